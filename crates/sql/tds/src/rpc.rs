//! Calls of procedures (MS-TDS 2.2.6.6).
//!
//! Invariants
//! - Calls, parameters and the length of a name are bounded, and nothing is allocated by a length that the client only
//!   claims.
//! - A parameter keeps its name, its type and whether it is for output.
//! - A call by name and one by number are the same call.
//!
//! Leaves to others: what a procedure does, and types and values (`value.rs`).

use crate::cursor::Cursor;
use crate::error::Error;
use crate::request::skip_headers;
use crate::text::from_utf16;
use crate::value::{Type, Value, parameter};

/// The most parameters of one call, as in SQL Server.
const PARAMETERS_MAX: usize = 2100;
/// The most calls in one request.
const CALLS_MAX: usize = 100;
/// The most bytes of a procedure's name.
const NAME_LEN_MAX: usize = 1046;

/// The procedure that is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Procedure {
    ExecuteSql,
    Prepare,
    Execute,
    PrepExec,
    /// ODBC's `{CALL procedure (?)}`, prepared and called at once.
    PrepExecCall,
    Unprepare,
    /// Known by number only, and not supported: cursors.
    Numbered(u16),
    Named(String),
}

impl Procedure {
    /// By name; calls by name and by number are equivalent.
    fn named(name: String) -> Procedure {
        let last = name.rsplit('.').next().unwrap_or_default();
        let bare = last.trim_start_matches('[').trim_end_matches(']');
        match bare.to_ascii_lowercase().as_str() {
            "sp_executesql" => Procedure::ExecuteSql,
            "sp_prepare" => Procedure::Prepare,
            "sp_execute" => Procedure::Execute,
            "sp_prepexec" => Procedure::PrepExec,
            "sp_prepexecrpc" => Procedure::PrepExecCall,
            "sp_unprepare" => Procedure::Unprepare,
            _ => Procedure::Named(name),
        }
    }

    fn numbered(id: u16) -> Procedure {
        match id {
            10 => Procedure::ExecuteSql,
            11 => Procedure::Prepare,
            12 => Procedure::Execute,
            13 => Procedure::PrepExec,
            14 => Procedure::PrepExecCall,
            15 => Procedure::Unprepare,
            other => Procedure::Numbered(other),
        }
    }
}

/// An argument of a procedure.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// With its @; empty: by position.
    pub name: String,
    /// The procedure returns its value.
    pub output: bool,
    /// Use the procedure's default instead of this value.
    pub default: bool,
    pub kind: Type,
    pub value: Value<'static>,
}

/// A procedure with its parameters; one message may have several calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub procedure: Procedure,
    pub parameters: Vec<Parameter>,
}

/// The calls of one request, in their order.
pub fn calls(body: &[u8]) -> Result<Vec<Call>, Error> {
    let mut cursor = Cursor::new(body, "a call");
    skip_headers(&mut cursor)?;
    let mut calls = vec![call(&mut cursor)?];
    while !cursor.is_empty() {
        if calls.len() == CALLS_MAX {
            return Err(cursor.malformed());
        }
        calls.push(call(&mut cursor)?);
    }
    Ok(calls)
}

/// The separator between calls. No parameter begins with one: names are shorter than 128 units.
fn is_separator(byte: u8) -> bool {
    matches!(byte, 0x80 | 0xfe | 0xff)
}

/// A call, and the separator after it.
fn call(cursor: &mut Cursor) -> Result<Call, Error> {
    let procedure = match cursor.u16()? {
        0xffff => Procedure::numbered(cursor.u16()?),
        units => {
            let len = usize::from(units) * 2;
            if len > NAME_LEN_MAX {
                return Err(cursor.malformed());
            }
            Procedure::named(from_utf16(cursor.take(len)?))
        }
    };
    let _options = cursor.u16()?;
    let mut parameters = Vec::new();
    while let Some(first) = cursor.rest().first() {
        if is_separator(*first) {
            cursor.u8()?;
            break;
        }
        if parameters.len() == PARAMETERS_MAX {
            return Err(Error::TooManyParameters {
                max: PARAMETERS_MAX,
            });
        }
        parameters.push(one(cursor)?);
    }
    Ok(Call {
        procedure,
        parameters,
    })
}

fn one(cursor: &mut Cursor) -> Result<Parameter, Error> {
    const BY_REFERENCE: u8 = 0x01;
    const DEFAULT: u8 = 0x02;
    const ENCRYPTED: u8 = 0x08;
    let name = cursor.short_text()?;
    let status = cursor.u8()?;
    if status & ENCRYPTED != 0 {
        return Err(cursor.malformed());
    }
    let (kind, value) = parameter(cursor)?;
    Ok(Parameter {
        name,
        output: status & BY_REFERENCE != 0,
        default: status & DEFAULT != 0,
        kind,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::put_utf16;

    /// sp_executesql N'SELECT @n', N'@n int', @n = 7
    fn request() -> Vec<u8> {
        let mut body = vec![4, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0];
        for text in ["SELECT @n", "@n int"] {
            body.extend([0, 0, 0xe7, 0x40, 0x1f, 9, 4, 0xd0, 0, 0x34]);
            body.extend((text.len() as u16 * 2).to_le_bytes());
            put_utf16(&mut body, text);
        }
        body.push(2);
        put_utf16(&mut body, "@n");
        body.extend([1, 0x26, 4, 4, 7, 0, 0, 0]);
        body
    }

    #[test]
    fn a_call_has_its_parameters_in_order() {
        let calls = calls(&request()).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].procedure, Procedure::ExecuteSql);
        let [text, _, n] = calls[0].parameters.as_slice() else {
            panic!("{calls:?}");
        };
        assert_eq!(text.value, Value::Text("SELECT @n".into()));
        assert_eq!((n.name.as_str(), n.output), ("@n", true));
        assert_eq!((n.kind, &n.value), (Type::Int, &Value::Int(7)));
    }

    #[test]
    fn several_calls_are_separated_and_names_are_those_of_the_numbers() {
        let mut body = vec![4, 0, 0, 0];
        for name in ["sp_configure", "master.sys.[sp_PrepExec]"] {
            body.extend((name.len() as u16).to_le_bytes());
            put_utf16(&mut body, name);
            body.extend([0, 0, 0xff]);
        }
        let calls = calls(&body).unwrap();
        assert_eq!(calls[0].procedure, Procedure::Named("sp_configure".into()));
        assert_eq!(calls[1].procedure, Procedure::PrepExec);
    }

    #[test]
    fn a_request_cut_anywhere_is_refused_or_shorter() {
        let whole = request();
        for len in 0..whole.len() {
            if let Ok(calls) = calls(&whole[..len]) {
                assert!(calls[0].parameters.len() < 3, "{len}");
            }
        }
    }
}
