//! SQLite in memory, for one query: its views, T-SQL's functions, and rows in T-SQL's types.

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql};

use super::function;
use super::schema::{Rows, View};
use super::{Plan, message};
use crate::convert::{convert, parse_date_time};
use crate::message::Message;
use crate::session::{Session, Stop};
use crate::value::{Type, Value, date_time_text};
use crate::variables::{Sum, VALUE_MAX, too_much};

/// SQLite's instructions between two looks at the cancel flag.
const STEPS: i32 = 10_000;
/// What all of the process's SQLite takes, at most, in bytes. Usual queries need some hundred kilobytes, and what is
/// backed up is read with little caches; queries that make many long texts at once are to fail, not the process.
const HEAP_MAX: i64 = 512 << 20;

pub struct Engine {
    db: Connection,
    /// What a function of ours refused: SQLite passes on its text alone.
    refusal: Arc<Mutex<Option<Message>>>,
}

impl Engine {
    pub fn open(session: &Session, views: &[&'static View]) -> Result<Engine, Message> {
        let refusal = Arc::new(Mutex::new(None));
        let prepare = || -> rusqlite::Result<Connection> {
            let mut db = Connection::open_in_memory()?;
            let cancel = session.cancel_flag();
            db.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX as i32)?;
            db.pragma_update(None, "hard_heap_limit", HEAP_MAX)?;
            function::register(&db, &refusal, &cancel)?;
            let asked = move || cancel.load(std::sync::atomic::Ordering::Relaxed);
            db.progress_handler(STEPS, Some(asked))?;
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
                fill(&db, view, &make(session)?).map_err(|e| failed(&e))?;
            }
        }
        db.pragma_update(None, "query_only", true)
            .map_err(|e| failed(&e))?;
        Ok(Engine { db, refusal })
    }

    /// Gives each row to `take` and says how many there were.
    pub fn run(
        &self,
        session: &Session,
        plan: &Plan,
        take: &mut dyn FnMut(Vec<Value>) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let wrong = |e: rusqlite::Error| self.wrong(session, &e);
        let mut statement = self.db.prepare(&plan.sql).map_err(wrong)?;
        let values: Vec<Cell> = plan.values.iter().map(Cell).collect();
        let values: Vec<&dyn ToSql> = values.iter().map(|v| v as &dyn ToSql).collect();
        let mut rows = statement.query(values.as_slice()).map_err(wrong)?;
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

fn fill(db: &Connection, view: &View, rows: &[Vec<Value>]) -> rusqlite::Result<()> {
    let columns = view.columns();
    let names: Vec<_> = columns.iter().map(|c| format!("\"{}\"", c.name)).collect();
    let (table, names) = (table_of(view), names.join(", "));
    db.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {table} ({names})"))?;
    let marks = vec!["?"; columns.len()].join(", ");
    let mut insert = db.prepare(&format!("INSERT INTO {table} VALUES ({marks})"))?;
    for row in rows {
        insert.execute(rusqlite::params_from_iter(row.iter().map(Cell)))?;
    }
    Ok(())
}

/// A value as SQLite keeps it.
pub struct Cell<'a>(pub &'a Value);

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Binary(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            value => ToSqlOutput::Owned(kept(value.clone())),
        })
    }
}

/// The same for good.
pub fn kept(value: Value) -> rusqlite::types::Value {
    use rusqlite::types::Value as Sqlite;
    match value {
        Value::Null => Sqlite::Null,
        Value::Int(n) => Sqlite::Integer(n),
        Value::Decimal(n) => match i64::try_from(n.unscaled) {
            Ok(whole) if n.scale == 0 => Sqlite::Integer(whole),
            _ => Sqlite::Real(n.to_string().parse().unwrap_or(f64::MAX)),
        },
        Value::Float(n) => Sqlite::Real(n),
        Value::DateTime(at) => Sqlite::Text(date_time_text(&at)),
        Value::Text(text) => Sqlite::Text(text),
        Value::Binary(bytes) => Sqlite::Blob(bytes),
        Value::Guid(id) => Sqlite::Text(id.to_string().to_uppercase()),
    }
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
        _ => convert(&value, kind),
    }
}
