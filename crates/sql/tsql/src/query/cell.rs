//! Values of T-SQL as SQLite keeps them, and back.
//!
//! SQLite has five kinds of values. A value of another of T-SQL's types becomes one of these, in a form that compares and
//! sorts as the type does.
//!
//! Invariants
//! - A value that went to SQLite comes back as the same value of the same type.
//!
//! Leaves to others: which conversions T-SQL allows (`convert`).

use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::convert::{PRECISION_MAX, convert, convert_from, in_ticks, parse_date_time, type_of};
use crate::message::{self, Message, OUT_OF_RANGE};
use crate::value::{Type, Value, date_time_text};

/// A value in SQLite's form. Errors: 8115.
pub fn cell(value: &Value) -> Result<ToSqlOutput<'_>, Message> {
    Ok(match value {
        Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Value::Binary(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        value => ToSqlOutput::Owned(kept(value.clone())?),
    })
}

/// Numbers below this keep all their whole digits in binary floating point.
const WHOLE_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// Checks that a number is exact before the point, if its type is. Errors: 8115.
pub fn check_whole(n: f64, kind: Type) -> Result<(), Message> {
    match kind.is_exact() && n.abs() >= WHOLE_MAX {
        true => Err(message::OVERFLOW.with(&[&"numeric"])),
        false => Ok(()),
    }
}

/// The same as an owned value. Errors: 8115 for a number too large for SQLite.
pub fn kept(value: Value) -> Result<rusqlite::types::Value, Message> {
    use rusqlite::types::Value as Sqlite;
    Ok(match value {
        Value::Null => Sqlite::Null,
        Value::Int(n) => Sqlite::Integer(n),
        Value::Decimal(n) => match n.whole().map(i64::try_from) {
            Some(Ok(whole)) => Sqlite::Integer(whole),
            _ => {
                let real = n.to_string().parse().unwrap_or(f64::MAX);
                check_whole(real, Type::numeric(PRECISION_MAX, 0))?;
                Sqlite::Real(real)
            }
        },
        Value::Float(n) => Sqlite::Real(n),
        Value::DateTime(at) => Sqlite::Text(date_time_text(&in_ticks(at).unwrap_or(at))),
        Value::Temporal(at) => Sqlite::Text(at.sortable()),
        Value::Text(text) => Sqlite::Text(text),
        Value::Binary(bytes) => Sqlite::Blob(bytes),
        Value::Guid(id) => Sqlite::Text(id.to_string().to_uppercase()),
    })
}

/// A value as it comes back from SQLite. Errors: 8115 for a number too large for it.
pub fn stored(value: Value) -> Result<Value, Message> {
    use rusqlite::types::Value as Sqlite;
    Ok(match kept(value)? {
        Sqlite::Null => Value::Null,
        Sqlite::Integer(n) => Value::Int(n),
        Sqlite::Real(n) => Value::Float(n),
        Sqlite::Text(text) => Value::Text(text),
        Sqlite::Blob(bytes) => Value::Binary(bytes),
    })
}

/// A value in SQLite's own type.
pub fn plain(cell: ValueRef) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => Value::Int(n),
        ValueRef::Real(n) => Value::Float(n),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Binary(bytes.to_vec()),
    }
}

/// The same in a known type.
pub fn typed(cell: ValueRef, kind: Type) -> Result<Value, Message> {
    typed_value(plain(cell), kind)
}

/// A value as it comes back from SQLite, in its T-SQL type.
pub fn typed_value(value: Value, kind: Type) -> Result<Value, Message> {
    match (&value, kind) {
        // From the catalog, or from a function of ours.
        (Value::Text(text), Type::DateTime) => {
            Ok(parse_date_time(text).map_or(Value::Null, Value::DateTime))
        }
        // Names from media may exceed the columns' lengths; whole names are more useful.
        (Value::Text(_), Type::NVarChar(_) | Type::VarChar(_) | Type::Char(_) | Type::NChar(_)) => {
            Ok(value)
        }
        (Value::Float(n), kind) => {
            check_whole(*n, kind)?;
            made(&value, kind)
        }
        _ => made(&value, kind),
    }
}

/// A value that an operator has made, in its type. Errors: 8115, without a text of its own.
fn made(value: &Value, kind: Type) -> Result<Value, Message> {
    convert(value, kind).map_err(|refused| match refused.number == OUT_OF_RANGE.number {
        true => message::OVERFLOW.with(&[&kind]),
        false => refused,
    })
}

/// A type by its name as printed by [`Type`].
pub fn kind(value: &Value) -> Type {
    let text = match value {
        Value::Text(text) => text.as_str(),
        _ => "",
    };
    let (name, sizes) = text.split_once('(').unwrap_or((text, ""));
    let sizes: Vec<Option<u32>> = sizes
        .trim_end_matches(')')
        .split(',')
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().ok())
        .collect();
    type_of(name, &sizes).unwrap_or(Type::NVarChar(None))
}

/// A cell in its T-SQL type: rounds a computed value to it, or refuses it.
pub fn as_kind(value: &Value, of: Type) -> Result<Value, Message> {
    match (value, of) {
        (Value::Text(_), of) if of.is_moment() || of == Type::UniqueIdentifier => {
            convert(value, of)
        }
        (Value::Int(_) | Value::Float(_), of) if of.is_number() => {
            if let Value::Float(n) = value {
                check_whole(*n, of)?;
            }
            made(value, of)
        }
        _ => Ok(value.clone()),
    }
}

/// A cell of one type in another.
pub fn converted(value: &Value, from: Type, to: Type) -> Result<Value, Message> {
    convert_from(&as_kind(value, from)?, from, to)
}
