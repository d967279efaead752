//! DBCC CHECKIDENT: the last number of a table's column that numbers rows.
//!
//! Invariants
//! - A table without rows since its beginning, or since TRUNCATE, gives its next row the number of RESEED itself.
//!
//! Leaves to others: numbering rows (`change.rs`).

use super::change::{MadeChange, change};
use super::target::find;
use crate::convert::convert;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::query;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::Dbcc;
use crate::tables::Change;
use crate::value::{Type, Value};

/// Errors: 208, 2526, 7997.
pub(super) fn check_identity(session: &mut Session, dbcc: &Dbcc, out: &mut Out) -> Flow {
    let wrong = || message::DBCC_UNKNOWN.plain();
    let mut given = Vec::new();
    for operand in &dbcc.arguments {
        given.push(session.value_of(operand)?);
    }
    let (table, action) = given.split_first().ok_or_else(wrong)?;
    let name = table.to_string();
    let mut parts = query::name_parts(&name).ok_or_else(wrong)?;
    // The last part stands first.
    parts.reverse();
    let target = find(session, &parts)?;
    let Some((_, seed, step)) = target.shape.identity() else {
        return Err(message::NO_IDENTITY_COLUMN.with(&[&name]).into());
    };
    let words: Vec<String> = action
        .iter()
        .map(|v| v.to_string().to_ascii_uppercase())
        .collect();
    let new = match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] | ["NORESEED" | "RESEED"] => None,
        ["RESEED", _] => match convert(&action[1], Type::BigInt)? {
            Value::Int(n) => Some(n),
            _ => return Err(wrong().into()),
        },
        _ => return Err(wrong().into()),
    };
    let before_first = seed.wrapping_sub(step);
    let mut last = None;
    change(session, &target, "DBCC", |session, current| {
        last = current.last(session).1.filter(|last| *last != before_first);
        let identity = match (new, last) {
            (None, _) => None,
            (Some(n), Some(_)) => Some(n),
            (Some(n), None) => Some(n.checked_sub(step).ok_or_else(|| overflow(n))?),
        };
        let (removed, put) = (Vec::new(), Vec::new());
        Ok(MadeChange {
            change: Change { removed, put },
            identity: identity.or(current.last(session).1),
            ..MadeChange::default()
        })
    })?;
    if !dbcc
        .options
        .iter()
        .any(|(option, _)| option == "NO_INFOMSGS")
    {
        let shown = last.map_or("NULL".to_owned(), |n| n.to_string());
        out.say(message::IDENTITY_CHECKED.with(&[&shown]))?;
        out.say(message::DBCC_DONE.plain())?;
    }
    Ok(out.done(Command::Other, None)?)
}

fn overflow(n: i64) -> Message {
    message::OUT_OF_RANGE.with(&[&"bigint", &n])
}
