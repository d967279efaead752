//! SQLite in memory, for one query: its views, T-SQL's functions, and rows in T-SQL's types.
//!
//! Invariants
//! - A query sees its views and, attached, the catalog, and can change neither.
//! - The length of a value, and SQLite's memory in the whole process, are bounded. The cancel flag is read every few
//!   thousand instructions, so no query holds a server up.
//! - Rows of views belong to one query: only a database without views is kept for the next.
//!
//! Leaves to others: translating T-SQL (`translate`), the rows of views (`schema.rs`), T-SQL's functions
//! (`function.rs`), and the forms of values (`cell.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode};

use super::cell::{cell, typed};
use super::function::StepVariables;
use super::plan::{QueryPlan, UsedRows, UsedTable};
use super::schema::{RowOrigin, View};
use super::{collation, function, percentile, single, variance};
use crate::flow::{Stop, Variable};
use crate::message::{self, Message};
use crate::notices::Notices;
use crate::server::Server;
use crate::tables::{SessionTables, TableRow};
use crate::value::Value;
use crate::variables::{Sum, VALUE_MAX, too_much};

/// Prepared statements that are cached: literals are parameters, so expressions of the same form share one.
const STATEMENTS: usize = 64;
/// SQLite's instructions between two checks of the cancel flag.
pub(super) const STEPS: i32 = 10_000;
/// The most memory of SQLite in this process, in bytes. Usual queries need a few hundred kilobytes, and backed-up
/// databases are read with small caches. A query that makes many long texts at once must fail, not the process.
const HEAP_MAX: i64 = 512 << 20;

pub struct Sqlite {
    db: Connection,
    /// The message of a function of ours that refused: SQLite passes on only its text.
    refusal: Arc<Mutex<Option<Message>>>,
    steps: StepVariables,
    /// Ends a query.
    cancel: Arc<AtomicBool>,
}

/// The database in memory that a session keeps while a batch runs: opening one costs more than most expressions.
#[derive(Default)]
pub(crate) struct SqliteCache {
    kept: std::cell::Cell<Option<Box<Sqlite>>>,
    notices: Arc<Notices>,
}

impl SqliteCache {
    pub fn drop_it(&mut self) {
        self.kept.set(None);
    }

    /// The notices of its queries.
    pub fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// The database that was kept if nothing is read, else one with the rows of views and tables.
    pub fn take(
        &self,
        server: &Server,
        tables: &SessionTables,
        cancel: &Arc<AtomicBool>,
        plan: &QueryPlan,
    ) -> Result<Box<Sqlite>, Message> {
        match self.kept.take().filter(|_| plan.is_alone()) {
            Some(kept) => Ok(kept),
            None => Ok(Box::new(Sqlite::open(
                server,
                tables,
                cancel,
                &self.notices,
                plan,
            )?)),
        }
    }

    /// Keeps a database for the next expression. One with rows is not kept: they belong to one moment.
    pub fn give_back(&self, sqlite: Box<Sqlite>, plan: &QueryPlan) {
        if plan.is_alone() {
            self.kept.set(Some(sqlite));
        }
    }
}

impl Sqlite {
    fn open(
        server: &Server,
        tables: &SessionTables,
        cancel: &Arc<AtomicBool>,
        notices: &Arc<Notices>,
        plan: &QueryPlan,
    ) -> Result<Sqlite, Message> {
        let views = &plan.views;
        let refusal = Arc::new(Mutex::new(None));
        let steps = StepVariables::default();
        let prepare = || -> rusqlite::Result<Connection> {
            let mut db = Connection::open_in_memory()?;
            let cancel = cancel.clone();
            db.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX as i32)?;
            db.pragma_update(None, "hard_heap_limit", HEAP_MAX)?;
            function::register(&db, &refusal, &cancel, &steps, notices)?;
            variance::register(&db)?;
            percentile::register(&db, &server.setup.memory, &refusal)?;
            single::register(&db, &refusal)?;
            collation::register(&db)?;
            let asked = move || cancel.load(Ordering::Relaxed);
            db.progress_handler(STEPS, Some(asked))?;
            db.set_prepared_statement_cache_capacity(STATEMENTS);
            Ok(db)
        };
        let db = prepare().map_err(|e| failed(&e))?;
        let catalog = views.iter().any(|v| matches!(v.rows, RowOrigin::Catalog));
        if let Some(path) = server.known_catalog().filter(|_| catalog) {
            // Upgrades an older catalog, and refuses a file that is not one.
            drop(server.catalog()?);
            let path = path.to_string_lossy();
            db.execute("ATTACH DATABASE ?1 AS cat", [&path])
                .map_err(|e| failed(&e))?;
        }
        for view in views {
            if let RowOrigin::Made(make) = view.rows {
                fill(&db, view, &make(server)?)?;
            }
        }
        for table in &plan.tables {
            load(&db, server, tables, table)?;
        }
        for used in &plan.functions {
            function::register_own(&db, &refusal, used).map_err(|e| failed(&e))?;
        }
        db.pragma_update(None, "query_only", true)
            .map_err(|e| failed(&e))?;
        let cancel = cancel.clone();
        Ok(Sqlite {
            db,
            refusal,
            steps,
            cancel,
        })
    }

    /// Runs a query that sets variables row by row, from the values that they have `before`; returns the number of rows
    /// and the variables' final values. After an error they have the values of the rows before it.
    pub fn run_stepwise(
        &self,
        plan: &QueryPlan,
        before: Vec<Variable>,
    ) -> (Result<u64, Stop>, Vec<Variable>) {
        *self.steps.lock() = before;
        let ran = self.run(plan, &mut |_| Ok(()));
        (ran, std::mem::take(&mut *self.steps.lock()))
    }

    /// Passes each row to `take` and returns the number of rows.
    pub fn run(
        &self,
        plan: &QueryPlan,
        take: &mut dyn FnMut(Vec<Value>) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        self.run_first(u64::MAX, plan, take)
    }

    /// The same of the first rows: nothing is computed for those after them.
    pub fn run_first(
        &self,
        limit: u64,
        plan: &QueryPlan,
        take: &mut dyn FnMut(Vec<Value>) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let wrong = |e: rusqlite::Error| self.wrong(&e);
        let mut statement = self.db.prepare_cached(&plan.sql).map_err(wrong)?;
        // A grouped subquery may need fewer values: no parameter names the others.
        let values = plan.values.iter().take(statement.parameter_count());
        let values: Result<Vec<_>, _> = values.map(cell).collect();
        let mut rows = statement
            .query(rusqlite::params_from_iter(values?))
            .map_err(wrong)?;
        let mut count = 0;
        while count < limit
            && let Some(row) = rows.next().map_err(wrong)?
        {
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

    fn wrong(&self, error: &rusqlite::Error) -> Message {
        if self.cancel.load(Ordering::Relaxed) {
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

/// Puts a table's rows, and their numbers as its last column, where the query finds them.
fn load(
    db: &Connection,
    server: &Server,
    tables: &SessionTables,
    table: &UsedTable,
) -> Result<(), Message> {
    let wrong = |e| failed(&e);
    let names: Vec<_> = (0..=table.columns).map(|i| format!("c{i}")).collect();
    let (name, names) = (table.name(), names.join(", "));
    db.execute_batch(&format!("CREATE TABLE {name} ({names})"))
        .map_err(wrong)?;
    let marks = vec!["?"; table.columns + 1].join(", ");
    let insert = format!("INSERT INTO {name} VALUES ({marks})");
    let mut insert = db.prepare(&insert).map_err(wrong)?;
    let mut put = |number: i64, row: &TableRow| -> Result<(), Message> {
        let mut cells = Vec::with_capacity(table.columns + 1);
        for value in row.iter().take(table.columns) {
            cells.push(cell(value)?);
        }
        cells.push(number.into());
        insert
            .execute(rusqlite::params_from_iter(cells))
            .map_err(wrong)?;
        Ok(())
    };
    match &table.rows {
        UsedRows::Made(rows) => {
            for (row, number) in rows.iter().zip(1..) {
                put(number, row)?;
            }
        }
        UsedRows::Stored(object) => {
            let loaded = server.kept.rows(object)?;
            let _claim = server.setup.memory.claim(loaded.rows.bytes())?;
            for (number, row) in loaded.rows.iter() {
                put(number, row)?;
            }
        }
        UsedRows::Own(id, shape) => {
            let found = tables.get(*id);
            let found = found.ok_or_else(|| message::object_unknown(&name))?;
            if !Arc::ptr_eq(&found.shape, shape) {
                return Err(message::DEFINITION_CHANGED.with(&[&found.name]));
            }
            for (number, row) in found.rows.iter() {
                put(number, row)?;
            }
        }
    }
    Ok(())
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
