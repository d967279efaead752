//! Rows as one value of SQLite's: what APPLY gets for a row of the table on its left.
//!
//! SQLite can join a table with a function of its rows only where the function is `json_each`. So such rows are an array of
//! arrays in JSON, and each value in it is a text that keeps the value's kind and all its digits.
//!
//! Invariants
//! - A packed value is unpacked to the same value.
//!
//! Leaves to others: which queries and functions are packed (`translate/apply.rs`).

use serde_json::Value as Json;

use crate::message::Message;
use crate::value::Value;

type Result<T> = std::result::Result<T, Message>;

/// A value as a text; `None` for NULL.
fn text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Int(n) => format!("i{n}"),
        Value::Float(n) => format!("r{n:?}"),
        Value::Binary(bytes) => {
            let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
            digits.fold("b".to_owned(), |all, byte| all + &byte)
        }
        Value::Text(text) => format!("t{text}"),
        other => format!("t{other}"),
    })
}

/// `ts_pack(value)`
pub(super) fn pack(arguments: &[Value]) -> Result<Value> {
    Ok(text(&arguments[0]).map_or(Value::Null, Value::Text))
}

/// `ts_unpack(text)`
pub(super) fn unpack(arguments: &[Value]) -> Result<Value> {
    let Value::Text(text) = &arguments[0] else {
        return Ok(Value::Null);
    };
    let mut characters = text.chars();
    let kind = characters.next();
    let rest = characters.as_str();
    Ok(match kind {
        Some('i') => rest.parse().map_or(Value::Null, Value::Int),
        Some('r') => rest.parse().map_or(Value::Null, Value::Float),
        Some('b') => {
            let byte = |i: usize| u8::from_str_radix(rest.get(i..i + 2)?, 16).ok();
            let bytes: Option<Vec<u8>> = (0..rest.len()).step_by(2).map(byte).collect();
            bytes.map_or(Value::Null, Value::Binary)
        }
        Some(_) => Value::text(rest),
        None => Value::Null,
    })
}

/// Rows of values as SQLite keeps them.
pub(crate) fn rows(all: Vec<Vec<Value>>) -> Value {
    let row = |row: Vec<Value>| {
        let values = row
            .iter()
            .map(|value| text(value).map_or(Json::Null, Json::from));
        Json::Array(values.collect())
    };
    Value::Text(Json::Array(all.into_iter().map(row).collect()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_to_the_same_value() {
        for value in [
            Value::Null,
            Value::Int(i64::MIN),
            Value::Float(0.1 + 0.2),
            Value::Float(-1e300),
            Value::text(""),
            Value::text("i1\u{1}\"é"),
            Value::Binary(vec![0, 255, 16]),
            Value::Binary(Vec::new()),
        ] {
            let packed = pack(std::slice::from_ref(&value)).unwrap();
            assert_eq!(unpack(&[packed]).unwrap(), value);
        }
    }
}
