//! The value of a subquery that may have one row at most, as an aggregate of SQLite.
//!
//! Invariants
//! - A second row is an error (512), never left out.
//! - No row gives NULL.
//!
//! Leaves to others: which subqueries can have more than one row (`translate/expression.rs`).

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::Value;

use crate::message::{self, Message};

struct Single {
    /// The message behind the text that SQLite passes on.
    refusal: Arc<Mutex<Option<Message>>>,
}

impl Aggregate<Option<Value>, Value> for Single {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Option<Value>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, found: &mut Option<Value>) -> rusqlite::Result<()> {
        if found.is_some() {
            let message = message::SUBQUERY_ROWS.plain();
            let text = message.text.clone();
            *self.refusal.lock() = Some(message);
            return Err(rusqlite::Error::UserFunctionError(text.into()));
        }
        *found = Some(context.get(0)?);
        Ok(())
    }

    fn finalize(
        &self,
        _: &mut Context<'_>,
        found: Option<Option<Value>>,
    ) -> rusqlite::Result<Value> {
        Ok(found.flatten().unwrap_or(Value::Null))
    }
}

/// Registers it with a connection.
pub(super) fn register(
    db: &Connection,
    refusal: &Arc<Mutex<Option<Message>>>,
) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let refusal = refusal.clone();
    db.create_aggregate_function("ts_single", 1, flags, Single { refusal })
}
