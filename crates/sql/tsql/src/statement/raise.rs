//! RAISERROR and THROW: messages of the script's own.
//!
//! Invariants
//! - A severity up to 10 is information: it is sent at once, and `@@ERROR` stays 0 unless SETERROR says otherwise.
//! - A severity from 20 on ends the session after its messages.
//! - A message's number is 50000, or one of `sys.messages`; others are refused (2732, 18054).
//!
//! Leaves to others: the text (`format.rs`), and what a failed statement does to its batch (`run.rs`).

use crate::convert::convert_from;
use crate::flow::{Flow, Out, Stop, Variable};
use crate::format::{OF_RAISERROR, cut, formatted};
use crate::message::{self, ALL, Message};
use crate::session::Session;
use crate::sink::{Command, DoneEvent};
use crate::syntax::{Operand, Raise, Throw};
use crate::value::{Type, Value};

/// The number of a message that has none of its own.
const OF_TEXT: u32 = message::OWN.number;
/// The lowest number that a script may raise.
const NUMBER_MIN: i64 = 13_000;
const ARGUMENTS_MAX: usize = 20;
/// Higher severities need WITH LOG.
const SEVERITY_MAX: i64 = 18;
const SEVERITY_LAST: i64 = 25;
/// From here on the session ends.
const SEVERITY_FATAL: u8 = 20;

pub(crate) fn raise(session: &mut Session, raise: &Raise, out: &mut Out) -> Flow {
    session.row_count = 0;
    let raised = raised(session, raise)?;
    if raise.log {
        let source = format!("spid{}", session.id());
        let Message {
            number,
            severity,
            state,
            text,
            ..
        } = &raised;
        let head = format!("Error: {number}, Severity: {severity}, State: {state}.");
        session.server.write_log(&source, &head);
        session.server.write_log(&source, text);
    }
    if raised.severity >= SEVERITY_FATAL {
        return end_session(session, raised, out);
    }
    if raised.is_error() {
        return Err(raised.into());
    }
    session.error = match raise.set_error {
        true => raised.number,
        false => 0,
    };
    Ok(out.say(raised)?)
}

/// The message with its text.
fn raised(session: &Session, raise: &Raise) -> Result<Message, Message> {
    if raise.arguments.len() > ARGUMENTS_MAX {
        return Err(message::RAISE_ARGUMENTS.with(&[&ARGUMENTS_MAX]));
    }
    let severity = whole(session, &raise.severity)?.unwrap_or(0);
    let state = match whole(session, &raise.state)? {
        None => 0,
        Some(state) if state < 0 => 1,
        // Only the last byte is kept.
        Some(state) => (state & 0xff) as u8,
    };
    let given = typed(session, &raise.message)?;
    let number = match (given.kind.is_integer(), &given.value) {
        (true, Value::Int(number)) => Some(*number),
        (true, _) => Some(0),
        (false, _) => None,
    };
    let known = number.and_then(known);
    let usual = known.map_or(0, |known| known.severity.into());
    let severity = match severity {
        -1 if number.is_some() => usual,
        severity => severity.clamp(0, SEVERITY_LAST),
    };
    if severity > SEVERITY_MAX && !raise.log {
        return Err(message::RAISE_SEVERITY.with(&[&SEVERITY_MAX]));
    }
    let mut arguments = Vec::with_capacity(raise.arguments.len());
    for argument in &raise.arguments {
        arguments.push(typed(session, argument)?);
    }
    let text = match (number, known) {
        (None, _) => {
            let text = convert_from(&given.value, given.kind, Type::NVarChar(None))?;
            match text {
                // A message without a text is a blank.
                Value::Null => " ".to_owned(),
                text => formatted(&text.to_string(), &arguments, OF_RAISERROR)?,
            }
        }
        (Some(number), None) => return Err(unknown(number, severity, state)),
        (Some(_), Some(known)) => {
            // A place takes a value of any type.
            let mut pieces = known.pattern.split("{}");
            let mut text = pieces.next().unwrap_or_default().to_owned();
            for (i, piece) in pieces.enumerate() {
                let value = arguments.get(i).filter(|a| !a.value.is_null());
                text += &value.map_or("(null)".to_owned(), |a| a.value.to_string());
                text += piece;
            }
            cut(text)
        }
    };
    Ok(Message {
        number: known.map_or(OF_TEXT, |known| known.number),
        severity: severity as u8,
        state,
        text,
        line: 1,
        procedure: None,
    })
}

/// A message of SQL Server's that this server has, too.
fn known(number: i64) -> Option<&'static message::MessageTemplate> {
    let raisable = (NUMBER_MIN..i64::from(OF_TEXT)).contains(&number);
    ALL.iter()
        .find(|known| raisable && i64::from(known.number) == number)
}

fn unknown(number: i64, severity: i64, state: u8) -> Message {
    if number < NUMBER_MIN || number == i64::from(OF_TEXT) {
        return message::RAISE_NUMBER.with(&[&number, &NUMBER_MIN, &i32::MAX]);
    }
    message::RAISE_UNKNOWN.with(&[&number, &severity, &state])
}

/// Sends a fatal message and those about the end of the session, and ends its batch.
fn end_session(session: &mut Session, raised: Message, out: &mut Out) -> Flow {
    let (number, severity) = (raised.number, raised.severity);
    session.error = number;
    session.end_transaction();
    out.say(raised)?;
    out.say(message::USER_ERROR_ENDS.with(&[&session.id(), &number, &severity]))?;
    out.say(message::SESSION_KILLED.plain())?;
    out.sink.done(DoneEvent {
        command: Command::Other,
        rows: None,
        error: true,
    })?;
    out.outcome.ended = true;
    Err(Stop::EndBatch)
}

/// THROW with its arguments; the severity is always 16.
pub(crate) fn throw(session: &Session, throw: &Throw) -> Flow {
    let number = whole(session, &throw.number)?.unwrap_or(0);
    let Some(thrown) = u32::try_from(number).ok().filter(|n| *n >= OF_TEXT) else {
        return Err(message::THROW_NUMBER.with(&[&number]).into());
    };
    let state = whole(session, &throw.state)?.unwrap_or(0);
    if state < 0 {
        return Err(message::THROW_STATE.with(&[&state]).into());
    }
    let given = typed(session, &throw.message)?;
    let text = match convert_from(&given.value, given.kind, Type::NVarChar(Some(2048)))? {
        Value::Null => String::new(),
        text => text.to_string().replace("%%", "%"),
    };
    Err(Message {
        number: thrown,
        severity: message::OWN.severity,
        state: (state & 0xff) as u8,
        text: cut(text),
        line: 1,
        procedure: None,
    }
    .into())
}

/// THROW without arguments: all messages of the error that the CATCH block handles, with their lines.
pub(crate) fn rethrow(session: &Session) -> Flow {
    match session.caught.is_empty() {
        true => Err(message::RETHROW_OUTSIDE.plain().into()),
        false => Err(session.caught.clone().into()),
    }
}

/// An argument as an `int`; `None`: NULL.
fn whole(session: &Session, operand: &Operand) -> Result<Option<i64>, Message> {
    let given = typed(session, operand)?;
    Ok(match convert_from(&given.value, given.kind, Type::Int)? {
        Value::Int(n) => Some(n),
        _ => None,
    })
}

/// An argument with the type that T-SQL gives it.
pub(super) fn typed(session: &Session, operand: &Operand) -> Result<Variable, Message> {
    let of = |kind, value| Ok(Variable { kind, value });
    match operand {
        Operand::Integer(n) => {
            let kind = i32::try_from(*n).map_or(Type::BigInt, |_| Type::Int);
            of(kind, Value::Int(*n))
        }
        Operand::Number(text) if text.starts_with("0x") || text.starts_with("0X") => {
            of(Type::Int, Value::Int(hexadecimal(&text[2..])))
        }
        // The fraction is dropped.
        Operand::Number(_) => {
            let value = session.value_of(operand)?;
            let whole = match value {
                Value::Decimal(number) => {
                    i64::try_from(number.unscaled / 10_i128.pow(number.scale.min(38).into())).ok()
                }
                Value::Float(number) => Some(number as i64),
                _ => None,
            };
            of(Type::BigInt, whole.map_or(Value::Null, Value::Int))
        }
        Operand::Text(text) => of(Type::NVarChar(None), Value::text(text.as_str())),
        Operand::Null => of(Type::Int, Value::Null),
        Operand::Variable(name) => session.typed_variable(name),
    }
}

/// The last four bytes, as an `int`.
fn hexadecimal(digits: &str) -> i64 {
    let last = &digits[digits.len().saturating_sub(8)..];
    let bits = u32::from_str_radix(last, 16).unwrap_or(0);
    i64::from(bits as i32)
}
