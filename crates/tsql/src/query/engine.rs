//! SQLite in memory, for one query: its views, T-SQL's functions, and rows in T-SQL's types.

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode};

use super::schema::{Rows, View};
use super::{Plan, message};
use super::{collation, function};
use crate::convert::{PRECISION_MAX, convert, parse_date_time};
use crate::flow::{Stop, Variable};
use crate::message::Message;
use crate::session::Session;
use crate::value::{Type, Value, date_time_text};
use crate::variables::{Sum, VALUE_MAX, too_much};

/// Statements that are kept ready: literals are parameters, so that expressions of the same form share one.
const STATEMENTS: usize = 64;
/// SQLite's instructions between two looks at the cancel flag.
const STEPS: i32 = 10_000;
/// What all of the process's SQLite takes, at most, in bytes. Usual queries need some hundred kilobytes, and what is
/// backed up is read with little caches; queries that make many long texts at once are to fail, not the process.
const HEAP_MAX: i64 = 512 << 20;

pub struct Engine {
    db: Connection,
    /// What a function of ours refused: SQLite passes on its text alone.
    refusal: Arc<Mutex<Option<Message>>>,
    steps: Steps,
}

/// Variables that a query sets row by row: what they are now.
pub type Steps = Arc<Mutex<Vec<Variable>>>;

/// The engine that a session keeps while a batch runs: to open one costs more than most expressions.
#[derive(Default)]
pub(crate) struct Kept(std::cell::Cell<Option<Box<Engine>>>);

impl Kept {
    pub fn drop_it(&mut self) {
        self.0.set(None);
    }
}

impl Engine {
    /// The one that the session keeps, where no view has to be there.
    pub fn take(session: &Session, views: &[&'static View]) -> Result<Box<Engine>, Message> {
        match session.engine.0.take().filter(|_| views.is_empty()) {
            Some(kept) => Ok(kept),
            None => Ok(Box::new(Engine::open(session, views)?)),
        }
    }

    /// For the next expression. What has views is not kept: their rows are of the moment.
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
            // Brings an older catalog up to date, and refuses what is none.
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

    /// Runs a query that sets variables row by row: how many rows there were, and what the variables are then. Where it
    /// fails they are what the rows before made of them.
    pub fn run_stepwise(
        &self,
        session: &Session,
        plan: &Plan,
    ) -> Result<(Result<u64, Stop>, Vec<Variable>), Message> {
        let names = plan.steps.iter();
        let before: Result<Vec<_>, _> = names.map(|n| session.variable(n).cloned()).collect();
        *self.steps.lock() = before?;
        let ran = self.run(session, plan, &mut |_| Ok(()));
        Ok((ran, std::mem::take(&mut *self.steps.lock())))
    }

    /// Gives each row to `take` and says how many there were.
    pub fn run(
        &self,
        session: &Session,
        plan: &Plan,
        take: &mut dyn FnMut(Vec<Value>) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let wrong = |e: rusqlite::Error| self.wrong(session, &e);
        let mut statement = self.db.prepare_cached(&plan.sql).map_err(wrong)?;
        let values: Result<Vec<_>, _> = plan.values.iter().map(cell).collect();
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

/// A value as SQLite keeps it. Errors: 8115.
fn cell(value: &Value) -> Result<ToSqlOutput<'_>, Message> {
    Ok(match value {
        Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Value::Binary(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        value => ToSqlOutput::Owned(kept(value.clone())?),
    })
}

/// Numbers below this have all their whole digits in binary floating point.
const WHOLE_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// A number is as exact as its type says, before the point. Errors: 8115.
pub fn check_whole(n: f64, kind: Type) -> Result<(), Message> {
    match kind.is_exact() && n.abs() >= WHOLE_MAX {
        true => Err(message::OVERFLOW.with(&[&"numeric"])),
        false => Ok(()),
    }
}

/// The same for good. Errors: 8115 for a number that SQLite has no room for.
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

/// A value as SQLite has it, without a type of ours.
pub fn plain(cell: ValueRef) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => Value::Int(n),
        ValueRef::Real(n) => Value::Float(n),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Binary(bytes.to_vec()),
    }
}

/// The same of a type that is known.
pub fn typed(cell: ValueRef, kind: Type) -> Result<Value, Message> {
    let value = plain(cell);
    match (&value, kind) {
        // Of the catalog, or of a function of ours.
        (Value::Text(text), Type::DateTime) => {
            Ok(parse_date_time(text).map_or(Value::Null, Value::DateTime))
        }
        // Names from media may be longer than the columns say; whole ones are of more use.
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
