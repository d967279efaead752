//! Converts T-SQL's types and values to the protocol's, and back. One to one except for moments, which the protocol
//! counts from 1900.
//!
//! Invariants
//! - A client that does not know the newer types of dates and times gets texts, as from SQL Server.
//! - A moment of a client that is not in the calendar becomes NULL.
//!
//! Leaves to others: the bytes on the wire (`longshore-tds`).

use longshore_tds as tds;
use longshore_tsql::{Column, DateTime, Decimal, Temporal, Type, Value};
use uuid::Uuid;

/// `newer`: the client knows the date and time types that came after `datetime`. Other clients get texts, as from SQL
/// Server.
pub fn kind(of: Type, newer: bool) -> tds::Type {
    match of {
        Type::Date if !newer => tds::Type::NVarChar(Some(10)),
        Type::Time(_) if !newer => tds::Type::NVarChar(Some(16)),
        Type::DateTime2(_) if !newer => tds::Type::NVarChar(Some(27)),
        Type::DateTimeOffset(_) if !newer => tds::Type::NVarChar(Some(34)),
        Type::Date => tds::Type::Date,
        Type::Time(scale) => tds::Type::Time(scale),
        Type::SmallDateTime => tds::Type::SmallDateTime,
        Type::DateTime2(scale) => tds::Type::DateTime2(scale),
        Type::DateTimeOffset(scale) => tds::Type::DateTimeOffset(scale),
        Type::Bit => tds::Type::Bit,
        Type::TinyInt => tds::Type::TinyInt,
        Type::SmallInt => tds::Type::SmallInt,
        Type::Int => tds::Type::Int,
        Type::BigInt => tds::Type::BigInt,
        Type::Numeric { precision, scale } => tds::Type::Numeric { precision, scale },
        // Sent as numbers with the same digits: no client calculates differently with them.
        Type::Money => kind(Type::numeric(19, 4), newer),
        Type::SmallMoney => kind(Type::numeric(10, 4), newer),
        Type::Float => tds::Type::Float,
        Type::DateTime => tds::Type::DateTime,
        Type::Char(n) => tds::Type::Char(n),
        Type::NChar(n) => tds::Type::NChar(n),
        Type::VarChar(n) => tds::Type::VarChar(n),
        Type::NVarChar(n) => tds::Type::NVarChar(n),
        Type::Binary(n) => tds::Type::VarBinary(Some(n)),
        Type::VarBinary(n) => tds::Type::VarBinary(n),
        Type::UniqueIdentifier => tds::Type::UniqueIdentifier,
        Type::SqlVariant => tds::Type::Variant,
    }
}

pub fn column(column: &Column, newer: bool) -> tds::ResultColumn<'_> {
    tds::ResultColumn {
        name: &column.name,
        kind: kind(column.kind, newer),
        nullable: column.nullable,
    }
}

pub fn value(value: &Value, newer: bool) -> tds::Value<'_> {
    match value {
        Value::Temporal(Temporal::SmallDateTime(at)) => tds::Value::DateTime(moment(at)),
        Value::Temporal(at) if !newer => tds::Value::Text(at.to_string().into()),
        Value::Temporal(at) => tds::Value::Moment(newer_moment(*at)),
        Value::Null => tds::Value::Null,
        Value::Int(n) => tds::Value::Int(*n),
        Value::Decimal(Decimal { unscaled, scale }) => tds::Value::Decimal {
            unscaled: *unscaled,
            scale: *scale,
        },
        Value::Float(n) => tds::Value::Float(*n),
        Value::DateTime(at) => tds::Value::DateTime(moment(at)),
        Value::Text(text) => tds::Value::Text(text.as_str().into()),
        Value::Binary(bytes) => tds::Value::Binary(bytes.as_slice().into()),
        Value::Guid(id) => tds::Value::Guid(*id.as_bytes()),
    }
}

pub fn kind_back(kind: tds::Type) -> Type {
    match kind {
        tds::Type::Bit => Type::Bit,
        tds::Type::TinyInt => Type::TinyInt,
        tds::Type::SmallInt => Type::SmallInt,
        tds::Type::Int => Type::Int,
        tds::Type::BigInt => Type::BigInt,
        tds::Type::Numeric { precision, scale } => Type::Numeric { precision, scale },
        tds::Type::Float => Type::Float,
        tds::Type::Date => Type::Date,
        tds::Type::Time(scale) => Type::Time(scale),
        tds::Type::SmallDateTime => Type::SmallDateTime,
        tds::Type::DateTime => Type::DateTime,
        tds::Type::DateTime2(scale) => Type::DateTime2(scale),
        tds::Type::DateTimeOffset(scale) => Type::DateTimeOffset(scale),
        tds::Type::Char(n) => Type::Char(n),
        tds::Type::NChar(n) => Type::NChar(n),
        tds::Type::VarChar(n) => Type::VarChar(n),
        tds::Type::NVarChar(n) => Type::NVarChar(n),
        tds::Type::VarBinary(n) => Type::VarBinary(n),
        tds::Type::UniqueIdentifier => Type::UniqueIdentifier,
        tds::Type::Variant => Type::SqlVariant,
    }
}

/// A parameter of this type. Moments that do not exist in the calendar are NULL.
pub fn value_back(value: tds::Value, kind: tds::Type) -> Value {
    match value {
        tds::Value::DateTime(at) if kind == tds::Type::SmallDateTime => {
            let at = moment_back(at).map(Temporal::SmallDateTime);
            at.map_or(Value::Null, Value::Temporal)
        }
        tds::Value::Moment(at) => newer_moment_back(at, kind).map_or(Value::Null, Value::Temporal),
        tds::Value::Null => Value::Null,
        tds::Value::Int(n) => Value::Int(n),
        tds::Value::Decimal { unscaled, scale } => Value::Decimal(Decimal { unscaled, scale }),
        tds::Value::Float(n) => Value::Float(n),
        tds::Value::DateTime(at) => moment_back(at).map_or(Value::Null, Value::DateTime),
        tds::Value::Text(text) => Value::Text(text.into_owned()),
        tds::Value::Binary(bytes) => Value::Binary(bytes.into_owned()),
        tds::Value::Guid(id) => Value::Guid(Uuid::from_bytes(id)),
    }
}

const BEGINNING: jiff::civil::Date = jiff::civil::date(1900, 1, 1);
/// The first day of the newer types.
const FIRST_DAY: jiff::civil::Date = jiff::civil::date(1, 1, 1);

fn newer_moment(at: Temporal) -> tds::Moment {
    let offset_minutes = match at {
        Temporal::DateTimeOffset(_, minutes, _) => minutes,
        _ => 0,
    };
    let utc = at.utc();
    let days = utc.date().duration_since(FIRST_DAY).as_hours() / 24;
    let ns = utc.time().duration_since(jiff::civil::Time::midnight());
    tds::Moment {
        // Years have four digits.
        days: match at {
            Temporal::Time(..) => 0,
            _ => days as i32,
        },
        ns: ns.as_nanos() as u64,
        offset_minutes,
    }
}

fn newer_moment_back(at: tds::Moment, kind: tds::Type) -> Option<Temporal> {
    let days = jiff::Span::new().try_days(at.days).ok()?;
    let ns = jiff::SignedDuration::from_nanos(i64::try_from(at.ns).ok()?);
    let offset = jiff::SignedDuration::from_mins(at.offset_minutes.into());
    let utc = FIRST_DAY
        .checked_add(days)
        .ok()?
        .at(0, 0, 0, 0)
        .checked_add(ns)
        .ok()?;
    Some(match kind {
        tds::Type::Date => Temporal::Date(utc.date()),
        tds::Type::Time(scale) => Temporal::Time(utc.time(), scale),
        tds::Type::DateTime2(scale) => Temporal::DateTime2(utc, scale),
        tds::Type::DateTimeOffset(scale) => {
            let at_offset = utc.checked_add(offset).ok()?;
            Temporal::DateTimeOffset(at_offset, at.offset_minutes, scale)
        }
        _ => return None,
    })
}

fn moment(at: &DateTime) -> tds::DateTime {
    let since = at.date().duration_since(BEGINNING);
    let time = at.time().duration_since(jiff::civil::Time::midnight());
    tds::DateTime {
        // Years have four digits.
        days: (since.as_hours() / 24) as i32,
        ms: time.as_millis() as u32,
    }
}

fn moment_back(at: tds::DateTime) -> Option<DateTime> {
    // In two steps: the parts of one span have the same sign, and these may differ.
    let days = jiff::Span::new().try_days(at.days).ok()?;
    let time = jiff::SignedDuration::from_millis(at.ms.into());
    let date = BEGINNING.checked_add(days).ok()?;
    date.at(0, 0, 0, 0).checked_add(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_back_and_those_of_no_calendar_do_not() {
        for (year, month, day, ms) in [(1753, 1, 1, 0), (1899, 12, 31, 997), (2026, 3, 1, 120)] {
            let at = jiff::civil::date(year, month, day).at(22, 15, 4, ms * 1_000_000);
            let there = moment(&at);
            assert_eq!(moment_back(there), Some(at));
        }
        let known = moment(&jiff::civil::date(1899, 12, 31).at(0, 0, 1, 0));
        assert_eq!((known.days, known.ms), (-1, 1000));
        let never = tds::DateTime {
            days: i32::MAX,
            ms: 0,
        };
        assert_eq!(moment_back(never), None);
    }
}
