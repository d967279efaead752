//! SQLite in memory, for one query: its views, T-SQL's functions, and rows in T-SQL's types.
//!
//! A query sees its views and, attached for reading, the catalog. Lengths and memory are bounded, and the cancel flag
//! is looked at every few thousand instructions, so that no query holds a server up.
//!
//! Leaves to others: translating T-SQL (`translate`), and the rows of views (`schema.rs`).

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode};

use super::schema::{Rows, View};
use super::{QueryPlan, message};
use super::{collation, function};
use crate::convert::{PRECISION_MAX, convert, parse_date_time};
use crate::flow::{Stop, Variable};
use crate::message::Message;
use crate::session::Session;
use crate::value::{Type, Value, date_time_text};
use crate::variables::{Sum, VALUE_MAX, too_much};

/// Prepared statements that are cached: literals are parameters, so expressions of the same form share one.
const STATEMENTS: usize = 64;
/// SQLite's instructions between two checks of the cancel flag.
pub(super) const STEPS: i32 = 10_000;
/// The most memory of SQLite in this process, in bytes. Usual queries need a few hundred kilobytes, and backed-up
/// databases are read with small caches. A query that makes many long texts at once must fail, not the process.
const HEAP_MAX: i64 = 512 << 20;

pub struct Engine {
    db: Connection,
    /// The message of a function of ours that refused: SQLite passes on only its text.
    refusal: Arc<Mutex<Option<Message>>>,
    steps: Steps,
}

/// The present values of variables that a query sets row by row.
pub type Steps = Arc<Mutex<Vec<Variable>>>;

/// The engine that a session keeps while a batch runs: opening one costs more than most expressions.
#[derive(Default)]
pub(crate) struct EngineCache(std::cell::Cell<Option<Box<Engine>>>);

impl EngineCache {
    pub fn drop_it(&mut self) {
        self.0.set(None);
    }
}

impl Engine {
    /// The session's cached engine, if no view is needed.
    pub fn take(session: &Session, views: &[&'static View]) -> Result<Box<Engine>, Message> {
        match session.engine.0.take().filter(|_| views.is_empty()) {
            Some(kept) => Ok(kept),
            None => Ok(Box::new(Engine::open(session, views)?)),
        }
    }

    /// Keeps the engine for the next expression. An engine with views is not kept: their rows belong to one moment.
    pub fn give_back(self: Box<Engine>, session: &Session, views: &[&'static View]) {
        if views.is_empty() {
            session.engine.0.set(Some(self));
        }
    }

    fn open(session: &Session, views: &[&'static View]) -> Result<Engine, Message> {
        let refusal = Arc::new(Mutex::new(None));
        let steps = Steps::default();
        let prepare = || -> rusqlite::Result<Connection> {
            let mut db = Connection::open_in_memory()?;
            let cancel = session.cancel_flag();
            db.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX as i32)?;
            db.pragma_update(None, "hard_heap_limit", HEAP_MAX)?;
            function::register(&db, &refusal, &cancel, &steps)?;
            collation::register(&db)?;
            let asked = move || cancel.load(std::sync::atomic::Ordering::Relaxed);
            db.progress_handler(STEPS, Some(asked))?;
            db.set_prepared_statement_cache_capacity(STATEMENTS);
            Ok(db)
        };
        let db = prepare().map_err(|e| failed(&e))?;
        let catalog = views.iter().any(|v| matches!(v.rows, Rows::Catalog));
        if let Some(path) = session.server.known_catalog().filter(|_| catalog) {
            // Upgrades an older catalog, and refuses a file that is not one.
            drop(session.server.catalog()?);
            let path = path.to_string_lossy();
            db.execute("ATTACH DATABASE ?1 AS cat", [&path])
                .map_err(|e| failed(&e))?;
        }
        for view in views {
            if let Rows::Made(make) = view.rows {
                fill(&db, view, &make(session)?)?;
            }
        }
        db.pragma_update(None, "query_only", true)
            .map_err(|e| failed(&e))?;
        Ok(Engine { db, refusal, steps })
    }

    /// Runs a query that sets variables row by row; returns the number of rows and the variables' final values. After
    /// an error they have the values of the rows before it.
    pub fn run_stepwise(
        &self,
        session: &Session,
        plan: &QueryPlan,
    ) -> Result<(Result<u64, Stop>, Vec<Variable>), Message> {
        let names = plan.steps.iter();
        let before: Result<Vec<_>, _> = names.map(|n| session.variable(n).cloned()).collect();
        *self.steps.lock() = before?;
        let ran = self.run(session, plan, &mut |_| Ok(()));
        Ok((ran, std::mem::take(&mut *self.steps.lock())))
    }

    /// Passes each row to `take` and returns the number of rows.
    pub fn run(
        &self,
        session: &Session,
        plan: &QueryPlan,
        take: &mut dyn FnMut(Vec<Value>) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let wrong = |e: rusqlite::Error| self.wrong(session, &e);
        let mut statement = self.db.prepare_cached(&plan.sql).map_err(wrong)?;
        // What a subquery that was grouped does not need, no parameter names.
        let values = plan.values.iter().take(statement.parameter_count());
        let values: Result<Vec<_>, _> = values.map(cell).collect();
        let mut rows = statement
            .query(rusqlite::params_from_iter(values?))
            .map_err(wrong)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(wrong)? {
            let mut values = Vec::with_capacity(plan.columns.len());
            let mut sum = Sum::default();
            for (i, column) in plan.columns.iter().enumerate() {
                let cell = row.get_ref(i).map_err(wrong)?;
                let value = typed(cell, column.kind)?;
                sum.add(&value)?;
                values.push(value);
            }
            take(values)?;
            count += 1;
        }
        Ok(count)
    }

    /// How many instructions of SQLite's the last run of a query took.
    #[cfg(test)]
    pub fn instructions(&self, plan: &QueryPlan) -> i32 {
        let statement = self.db.prepare_cached(&plan.sql).unwrap();
        statement.get_status(rusqlite::StatementStatus::VmStep)
    }

    fn wrong(&self, session: &Session, error: &rusqlite::Error) -> Message {
        if session.is_cancelled() {
            return message::ABORTED.plain();
        }
        let refusal = self.refusal.lock().take();
        refusal.unwrap_or_else(|| match error.sqlite_error_code() {
            Some(ErrorCode::TooBig | ErrorCode::OutOfMemory) => too_much(),
            _ => failed(error),
        })
    }
}

fn failed(error: &rusqlite::Error) -> Message {
    message::OWN.with(&[&format!("the query could not be run: {error}")])
}

/// The name of a filled view's table.
pub fn table_of(view: &View) -> String {
    format!("{}_{}", view.schema, view.name)
}

fn fill(db: &Connection, view: &View, rows: &[Vec<Value>]) -> Result<(), Message> {
    let wrong = |e| failed(&e);
    let columns = view.columns();
    let names: Vec<_> = columns.iter().map(|c| format!("\"{}\"", c.name)).collect();
    let (table, names) = (table_of(view), names.join(", "));
    db.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {table} ({names})"))
        .map_err(wrong)?;
    let marks = vec!["?"; columns.len()].join(", ");
    let insert = format!("INSERT INTO {table} VALUES ({marks})");
    let mut insert = db.prepare(&insert).map_err(wrong)?;
    for row in rows {
        let cells: Result<Vec<_>, _> = row.iter().map(cell).collect();
        insert
            .execute(rusqlite::params_from_iter(cells?))
            .map_err(wrong)?;
    }
    Ok(())
}

/// A value in SQLite's form. Errors: 8115.
fn cell(value: &Value) -> Result<ToSqlOutput<'_>, Message> {
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
        Value::DateTime(at) => Sqlite::Text(date_time_text(&at)),
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
            convert(&value, kind)
        }
        _ => convert(&value, kind),
    }
}
