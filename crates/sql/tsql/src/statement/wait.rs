//! WAITFOR: for a time, or up to a time of day; and the loop of everything that waits.
//!
//! Invariants
//! - A cancel ends a wait within [`TURN`]: the client's, KILL, the server's end, and that of a client that is gone.
//! - The clock of the server's machine counts; a time of day that has passed is tomorrow's.
//!
//! Leaves to others: the times of literals, which the parser reads (`syntax/wait.rs`).

use std::time::Duration;

use crate::flow::{Flow, Variable};
use crate::message::{self, Message};
use crate::session::Session;
use crate::syntax::{Operand, parse_time};
use crate::value::{Type, Value};

/// How long a cancel, or what is waited for, may go unseen.
const TURN: Duration = Duration::from_millis(20);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitEnd {
    Done,
    TooLate,
    Cancelled,
}

/// Waits until something is done, for that long at most; `None`: without end.
pub(super) fn wait_until(
    session: &Session,
    how_long: Option<Duration>,
    mut is_done: impl FnMut() -> bool,
) -> WaitEnd {
    let clock = session.server.setup.context.clock.clone();
    let end = how_long.map(|how_long| clock.now() + how_long);
    loop {
        if session.is_cancelled() {
            return WaitEnd::Cancelled;
        }
        if is_done() {
            return WaitEnd::Done;
        }
        let left = end.map_or(TURN, |end| end.saturating_sub(clock.now()));
        if left.is_zero() {
            return WaitEnd::TooLate;
        }
        clock.sleep(left.min(TURN));
    }
}

pub(crate) fn wait(session: &mut Session, until: bool, time: &Operand) -> Flow {
    session.row_count = 0;
    // NULL waits for nothing.
    let Some(time) = time_of(session, time)? else {
        return Ok(());
    };
    let how_long = match (time, until) {
        (Time::Never, _) => None,
        (Time::Milliseconds(ms), false) => Some(ms),
        (Time::Milliseconds(ms), true) => {
            let now = session.server.now();
            let seconds = u64::from(now.hour().unsigned_abs()) * 3600
                + u64::from(now.minute().unsigned_abs()) * 60
                + u64::from(now.second().unsigned_abs());
            let now = seconds * 1000 + u64::from(now.millisecond().unsigned_abs());
            Some((ms % DAY_MS + DAY_MS - now) % DAY_MS)
        }
    };
    let database = session.database.clone();
    session.enter("WAITFOR", &database);
    let ended = wait_until(session, how_long.map(Duration::from_millis), || false);
    session.leave();
    match ended {
        WaitEnd::Cancelled => Err(message::ABORTED.plain().into()),
        WaitEnd::Done | WaitEnd::TooLate => Ok(()),
    }
}

enum Time {
    Milliseconds(u64),
    /// A negative number of seconds: only a cancel ends it, as in SQL Server.
    Never,
}

/// Errors: 241 for a text that is no time, 9815 for a type that is none.
fn time_of(session: &Session, time: &Operand) -> Result<Option<Time>, Message> {
    let name = match time {
        Operand::Variable(name) => name,
        Operand::Text(text) => {
            let read = parse_time(text).ok_or_else(|| message::WAIT_TIME_SYNTAX.with(&[text]))?;
            return Ok(Some(Time::Milliseconds(read)));
        }
        Operand::Integer(_) | Operand::Number(_) | Operand::Null => return Ok(None),
    };
    let Variable { kind, value } = session.typed_variable(name)?;
    let is_time = matches!(kind, Type::DateTime | Type::Int | Type::SmallInt) || kind.is_text();
    match (kind, value) {
        _ if !is_time => Err(message::WAIT_TYPE.with(&[&kind])),
        (_, Value::Null) => Ok(None),
        (_, Value::Int(seconds)) => Ok(Some(match u64::try_from(seconds) {
            Ok(seconds) => Time::Milliseconds(seconds * 1000),
            Err(_) => Time::Never,
        })),
        (_, Value::DateTime(at)) => {
            let seconds = (i64::from(at.hour()) * 60 + i64::from(at.minute())) * 60;
            let ms = (seconds + i64::from(at.second())) * 1000 + i64::from(at.millisecond());
            Ok(Some(Time::Milliseconds(ms.unsigned_abs())))
        }
        (_, value) => {
            let read = parse_time(&value.to_string());
            let read = read.ok_or_else(|| message::NOT_A_DATE.plain())?;
            Ok(Some(Time::Milliseconds(read)))
        }
    }
}
