//! T-SQL's types and values as the protocol's, and back. One to one but for moments, which count from 1900 there.

use longshore_tds as tds;
use longshore_tsql::{Column, DateTime, Decimal, Type, Value};
use uuid::Uuid;

pub fn kind(kind: Type) -> tds::Type {
    match kind {
        Type::Bit => tds::Type::Bit,
        Type::TinyInt => tds::Type::TinyInt,
        Type::SmallInt => tds::Type::SmallInt,
        Type::Int => tds::Type::Int,
        Type::BigInt => tds::Type::BigInt,
        Type::Numeric { precision, scale } => tds::Type::Numeric { precision, scale },
        Type::Float => tds::Type::Float,
        Type::DateTime => tds::Type::DateTime,
        Type::Char(n) => tds::Type::Char(n),
        Type::NChar(n) => tds::Type::NChar(n),
        Type::VarChar(n) => tds::Type::VarChar(n),
        Type::NVarChar(n) => tds::Type::NVarChar(n),
        Type::VarBinary(n) => tds::Type::VarBinary(n),
        Type::UniqueIdentifier => tds::Type::UniqueIdentifier,
        Type::SqlVariant => tds::Type::Variant,
    }
}

pub fn column(column: &Column) -> tds::Column<'_> {
    tds::Column {
        name: &column.name,
        kind: kind(column.kind),
        nullable: column.nullable,
    }
}

pub fn value(value: &Value) -> tds::Value<'_> {
    match value {
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
        tds::Type::DateTime => Type::DateTime,
        tds::Type::Char(n) => Type::Char(n),
        tds::Type::NChar(n) => Type::NChar(n),
        tds::Type::VarChar(n) => Type::VarChar(n),
        tds::Type::NVarChar(n) => Type::NVarChar(n),
        tds::Type::VarBinary(n) => Type::VarBinary(n),
        tds::Type::UniqueIdentifier => Type::UniqueIdentifier,
        tds::Type::Variant => Type::SqlVariant,
    }
}

/// Moments that no calendar has are NULL.
pub fn value_back(value: tds::Value) -> Value {
    match value {
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
    // One after the other: the parts of a span have one sign, and these may differ.
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
