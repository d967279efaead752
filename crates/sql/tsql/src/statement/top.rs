//! TOP of a statement that changes rows.

use crate::convert::convert_from;
use crate::message::{self, Message};
use crate::query;
use crate::session::Session;
use crate::syntax::Top;
use crate::value::{Type, Value};

/// The number of rows, of `count`, that TOP allows; part of a row counts as a row. Errors: 127, 1031, 1060.
pub(super) fn allowed(session: &Session, top: &Top, count: usize) -> Result<usize, Message> {
    let found = query::scalar(&session.query_context(), &top.count)?;
    if top.percent {
        return match convert_from(&found.value, found.kind, Type::Float)? {
            Value::Float(percent) if (0.0..=100.0).contains(&percent) => {
                Ok((count as f64 * percent / 100.0).ceil() as usize)
            }
            _ => Err(message::PERCENT_RANGE.plain()),
        };
    }
    match (found.kind.is_integer(), &found.value) {
        (true, Value::Int(n)) if *n < 0 => Err(message::TOP_NEGATIVE.plain()),
        (true, Value::Int(n)) => Ok(usize::try_from(*n).unwrap_or(usize::MAX).min(count)),
        _ => Err(message::TOP_NOT_WHOLE.plain()),
    }
}
