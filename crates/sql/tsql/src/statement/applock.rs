//! `sp_getapplock` and `sp_releaseapplock`: their arguments, messages and return values.
//!
//! Invariants
//! - The value is what SQL Server returns: 0 granted, 1 granted after a wait, -1 too late, -3 a deadlock, -999 a mistake.
//! - A cancel ends a wait within [`TURN`], and the request leaves the queue.
//!
//! Leaves to others: who holds and who waits (`server/locks.rs`).

use std::time::Duration;

use super::arguments::Arguments;
use crate::convert::convert;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::query::is_principal;
use crate::server::{LOCKS_MAX, LockAnswer, LockModes, LockName, LockOwner};
use crate::session::Session;
use crate::sink::Command;
use crate::value::{Type, Value};

/// How long a cancel, or the release of a lock, may go unseen.
const TURN: Duration = Duration::from_millis(20);

const TIMED_OUT: i32 = -1;
const DEADLOCK: i32 = -3;
const MISTAKE: i32 = -999;

/// The most characters of a resource's name, of a mode and an owner, and of a user's name.
const RESOURCE_MAX: usize = 255;
const WORD_MAX: usize = 32;
const PRINCIPAL_MAX: usize = 128;

fn cut(value: &Value, most: usize) -> String {
    value.to_string().chars().take(most).collect()
}

/// A word of an option, without the blanks at its end; `None`: NULL.
fn word(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| cut(value, WORD_MAX).trim_end_matches(' ').to_owned())
}

/// Whether it is the transaction that owns a lock; `None`: neither owner.
fn is_transaction(owner: Option<&str>) -> Option<bool> {
    match owner?.to_ascii_lowercase().as_str() {
        "transaction" => Some(true),
        "session" => Some(false),
        _ => None,
    }
}

/// A mistake that SQL Server tells of, and that is no error.
fn mistaken(message: Message, out: &mut Out) -> Flow {
    out.say(message)?;
    finish(MISTAKE, out)
}

/// One that is an error, too.
fn failed(message: Message, out: &mut Out) -> Flow {
    out.returned = Some(MISTAKE);
    Err(message.into())
}

fn finish(status: i32, out: &mut Out) -> Flow {
    out.returned = Some(status);
    Ok(out.done(Command::Execute, None)?)
}

fn not_recognized(word: Option<&str>, parameter: &str) -> Message {
    message::OPTION_NOT_RECOGNIZED.with(&[&word.unwrap_or("(null)"), &parameter])
}

/// The lock that is meant. Errors: 1202, 1224, 1230.
fn lock_name(
    session: &Session,
    resource: Option<&Value>,
    principal: Option<&Value>,
) -> Result<LockName, Message> {
    let by = "xp_userlock";
    let resource = resource.filter(|r| !r.is_null());
    let resource = resource.ok_or_else(|| message::LOCK_RESOURCE.with(&[&by]))?;
    let principal = match principal {
        None => "public".to_owned(),
        Some(Value::Null) => return Err(message::LOCK_PRINCIPAL.with(&[&by])),
        Some(name) => cut(name, PRINCIPAL_MAX),
    };
    if !is_principal(&principal) {
        return Err(message::PRINCIPAL_UNKNOWN.with(&[&principal]));
    }
    Ok(LockName {
        database: session.database.to_lowercase(),
        principal: principal.to_lowercase(),
        resource: cut(resource, RESOURCE_MAX),
    })
}

pub(super) fn get(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [resource, mode, owner, timeout, principal] = arguments.of([
        "@resource",
        "@lockmode",
        "@lockowner",
        "@locktimeout",
        "@dbprincipal",
    ])?;
    let mode = mode.ok_or_else(|| arguments.missing("@LockMode"))?;
    let mode = word(&mode);
    let Some(modes) = mode.as_deref().and_then(LockModes::named) else {
        return mistaken(not_recognized(mode.as_deref(), "@LockMode"), out);
    };
    let owner = owner.map_or(Some("Transaction".to_owned()), |o| word(&o));
    let Some(is_transaction) = is_transaction(owner.as_deref()) else {
        return mistaken(not_recognized(owner.as_deref(), "@LockOwner"), out);
    };
    let timeout = match convert(&timeout.unwrap_or(Value::Null), Type::Int)? {
        Value::Int(ms) => ms,
        _ => session.told.lock_timeout,
    };
    if is_transaction && session.transactions == 0 {
        return mistaken(message::LOCK_NO_TRANSACTION.plain(), out);
    }
    if timeout < -1 {
        return failed(message::LOCK_TIMEOUT.with(&[&"xp_userlock"]), out);
    }
    let name = match lock_name(session, resource.as_ref(), principal.as_ref()) {
        Ok(name) => name,
        Err(wrong) => return failed(wrong, out),
    };
    let owner = LockOwner {
        session: session.key,
        is_transaction,
    };
    let server = session.server.clone();
    let ticket = match server.locks.ask(&name, owner, modes, timeout != 0) {
        LockAnswer::Granted => return finish(0, out),
        LockAnswer::Deadlock if timeout != 0 => return finish(DEADLOCK, out),
        LockAnswer::Deadlock => return finish(TIMED_OUT, out),
        LockAnswer::TooMany => {
            let text = format!("this session holds {LOCKS_MAX} application locks: release some");
            return failed(message::OWN.with(&[&text]), out);
        }
        LockAnswer::Waits(_) if timeout == 0 => return finish(TIMED_OUT, out),
        LockAnswer::Waits(ticket) => ticket,
    };
    let patience = u64::try_from(timeout).ok().map(Duration::from_millis);
    match wait(session, &name, ticket, patience) {
        Some(true) => finish(1, out),
        Some(false) => finish(TIMED_OUT, out),
        None => Err(message::ABORTED.plain().into()),
    }
}

/// Whether a request was granted in time; `None`: a cancel ended the wait.
fn wait(
    session: &Session,
    name: &LockName,
    ticket: u64,
    patience: Option<Duration>,
) -> Option<bool> {
    let locks = &session.server.locks;
    let clock = session.server.setup.context.clock.clone();
    let end = patience.map(|patience| clock.now() + patience);
    loop {
        if session.is_cancelled() {
            locks.give_up(name, ticket);
            return None;
        }
        if locks.is_granted(name, ticket) {
            return Some(true);
        }
        let left = end.map_or(TURN, |end| end.saturating_sub(clock.now()));
        if left.is_zero() {
            locks.give_up(name, ticket);
            return Some(false);
        }
        clock.sleep(left.min(TURN));
    }
}

pub(super) fn release(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [resource, owner, principal] = arguments.of(["@resource", "@lockowner", "@dbprincipal"])?;
    let owner = owner.map_or(Some("Transaction".to_owned()), |o| word(&o));
    let Some(is_transaction) = is_transaction(owner.as_deref()) else {
        return mistaken(not_recognized(owner.as_deref(), "@LockOwner"), out);
    };
    let name = match lock_name(session, resource.as_ref(), principal.as_ref()) {
        Ok(name) => name,
        Err(wrong) => return failed(wrong, out),
    };
    if is_transaction && session.transactions == 0 {
        return failed(message::LOCK_OUTSIDE_TRANSACTION.plain(), out);
    }
    let owner = LockOwner {
        session: session.key,
        is_transaction,
    };
    match session.server.locks.release(&name, owner) {
        true => finish(0, out),
        false => {
            let shown = principal.map_or("public".to_owned(), |p| cut(&p, PRINCIPAL_MAX));
            failed(message::LOCK_NOT_HELD.with(&[&shown, &name.resource]), out)
        }
    }
}
