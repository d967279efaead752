//! `sp_getapplock` and `sp_releaseapplock`: their arguments, messages and return values.
//!
//! Invariants
//! - The value is what SQL Server returns: 0 granted, 1 granted after a wait, -1 too late, -3 a deadlock, -999 a mistake.
//! - A cancel or KILL ends a wait, and the request leaves the queue.
//! - `sys.dm_exec_requests` shows a session while it waits.
//!
//! Leaves to others: who holds and who waits (`server/locks.rs`), names of locks (`query/translate/applock.rs`), and how
//! it is waited (`wait.rs`).

use std::time::Duration;

use super::arguments::Arguments;
use super::wait::{WaitEnd, wait_until};
use crate::convert::convert;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::query::{is_of_transaction, lock_name, lock_principal, lock_word};
use crate::server::{LOCKS_MAX, LockAnswer, LockModes, LockName, LockOwner};
use crate::session::Session;
use crate::sink::Command;
use crate::value::{Type, Value};

const TIMED_OUT: i32 = -1;
const DEADLOCK: i32 = -3;
const MISTAKE: i32 = -999;

/// The procedure of SQL Server's that messages name.
const ASKER: &str = "xp_userlock";

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
fn named(
    session: &Session,
    resource: Option<&Value>,
    principal: Option<&Value>,
) -> Result<LockName, Message> {
    lock_name(ASKER, &session.database, resource, principal)
}

fn owner(session: &Session, is_transaction: bool) -> LockOwner {
    LockOwner {
        session: session.key,
        number: session.id(),
        is_transaction,
    }
}

/// The word that says who owns a lock, and whether that is the transaction. `None`: there is no such owner.
fn owner_of(given: Option<Value>) -> (Option<String>, Option<bool>) {
    let word = given.map_or(Some("Transaction".to_owned()), |o| lock_word(&o));
    let is_transaction = word.as_deref().and_then(is_of_transaction);
    (word, is_transaction)
}

pub(super) fn get(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [resource, mode, by, timeout, principal] = arguments.of([
        "@resource",
        "@lockmode",
        "@lockowner",
        "@locktimeout",
        "@dbprincipal",
    ])?;
    let mode = mode.ok_or_else(|| arguments.missing("@LockMode"))?;
    let mode = lock_word(&mode);
    let Some(modes) = mode.as_deref().and_then(LockModes::named) else {
        return mistaken(not_recognized(mode.as_deref(), "@LockMode"), out);
    };
    let (word, is_transaction) = owner_of(by);
    let Some(is_transaction) = is_transaction else {
        return mistaken(not_recognized(word.as_deref(), "@LockOwner"), out);
    };
    let timeout = match convert(&timeout.unwrap_or(Value::Null), Type::Int)? {
        Value::Int(ms) => ms,
        _ => session.told.lock_timeout,
    };
    if is_transaction && session.transactions == 0 {
        return mistaken(message::LOCK_NO_TRANSACTION.plain(), out);
    }
    if timeout < -1 {
        return failed(message::LOCK_TIMEOUT.with(&[&ASKER]), out);
    }
    let name = match named(session, resource.as_ref(), principal.as_ref()) {
        Ok(name) => name,
        Err(wrong) => return failed(wrong, out),
    };
    let owner = owner(session, is_transaction);
    let server = session.server.clone();
    let since = (timeout != 0).then(|| server.setup.context.clock.now());
    let ticket = match server.locks.ask(&name, owner, modes, since) {
        LockAnswer::Granted => return finish(0, out),
        LockAnswer::Taken => return finish(TIMED_OUT, out),
        LockAnswer::Deadlock => return finish(DEADLOCK, out),
        LockAnswer::TooMany => {
            let text = format!("this session holds {LOCKS_MAX} application locks: release some");
            return failed(message::OWN.with(&[&text]), out);
        }
        LockAnswer::Waits(ticket) => ticket,
    };
    let patience = u64::try_from(timeout).ok().map(Duration::from_millis);
    let database = session.database.clone();
    session.enter("EXECUTE", &database);
    let is_granted = || server.locks.is_granted(&name, ticket);
    let ended = wait_until(session, patience, is_granted);
    session.leave();
    if ended != WaitEnd::Done {
        server.locks.give_up(&name, ticket);
    }
    match ended {
        WaitEnd::Done => finish(1, out),
        WaitEnd::TooLate => finish(TIMED_OUT, out),
        WaitEnd::Cancelled => Err(message::ABORTED.plain().into()),
    }
}

pub(super) fn release(session: &mut Session, arguments: &Arguments, out: &mut Out) -> Flow {
    let [resource, by, principal] = arguments.of(["@resource", "@lockowner", "@dbprincipal"])?;
    let (word, is_transaction) = owner_of(by);
    let Some(is_transaction) = is_transaction else {
        return mistaken(not_recognized(word.as_deref(), "@LockOwner"), out);
    };
    let name = match named(session, resource.as_ref(), principal.as_ref()) {
        Ok(name) => name,
        Err(wrong) => return failed(wrong, out),
    };
    if is_transaction && session.transactions == 0 {
        return failed(message::LOCK_OUTSIDE_TRANSACTION.plain(), out);
    }
    let owner = owner(session, is_transaction);
    match session.server.locks.release(&name, owner) {
        true => finish(0, out),
        false => {
            let shown = lock_principal(principal.as_ref());
            failed(message::LOCK_NOT_HELD.with(&[&shown, &name.resource]), out)
        }
    }
}
