//! The part of a session that a query may read.
//!
//! Invariants
//! - A query changes nothing of a session but what it keeps for the next one: SQLite's database and the trees of a
//!   batch.
//!
//! Leaves to others: the session itself (`session.rs`), and what a query makes of it (`translate`).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::{FunctionCode, MadeTable, QueryPlan};
use super::reader::Reader;
use super::sqlite::{Sqlite, SqliteCache};
use crate::cursors::Cursors;
use crate::dates::DateOrder;
use crate::flow::{Login, Variable};
use crate::message::{self, Message};
use crate::server::{Server, SessionKey};
use crate::syntax::{Heed, Language};
use crate::tables::SessionTables;
use crate::variables::Variables;

/// How often a query is translated because another session changes the definitions of its tables.
const TRIES_MAX: usize = 50;

/// Findings of a translation that nobody runs: of one before the batch runs, when no variable has its value.
#[derive(Debug, Default)]
pub(crate) struct Compiling {
    /// It asked for the value of a variable, which a type may depend on.
    pub is_unsure: Cell<bool>,
    /// It names something of the server's own, which may have more columns in SQL Server.
    pub names_own: Cell<bool>,
}

/// A session's state, lent for one query.
#[derive(Clone, Copy)]
pub(crate) struct QueryContext<'a> {
    pub server: &'a Arc<Server>,
    pub login: &'a Login,
    /// The database in use.
    pub database: &'a str,
    pub variables: &'a Variables,
    /// `@@SPID`
    pub id: u32,
    /// The session, among the owners of locks.
    pub key: SessionKey,
    /// `@@ERROR`
    pub error: u32,
    /// `@@ROWCOUNT`
    pub row_count: u64,
    /// `@@OPTIONS`
    pub options: i64,
    /// `@@LOCK_TIMEOUT`
    pub lock_timeout: i64,
    /// `@@DATEFIRST`
    pub date_first: i64,
    /// `SET DATEFORMAT`
    pub date_order: DateOrder,
    pub language: Language,
    /// `@@TRANCOUNT`
    pub transactions: u32,
    /// Whether the open transaction can only be rolled back.
    pub doomed: bool,
    /// The message that a CATCH block handles.
    pub caught: Option<&'a Message>,
    pub cursors: &'a Cursors,
    pub tables: &'a SessionTables,
    /// Tables of the statement that asks.
    pub made: &'a [MadeTable],
    /// Whether the query says which rows of a table are changed: then common table expressions pass on the rows' numbers.
    pub tracks_rows: bool,
    /// Whether only the columns of the query are asked for, for a view about columns.
    pub describes: bool,
    /// The translation is one before the batch runs: no rows are made for it, and no query runs.
    pub compiling: Option<&'a Compiling>,
    pub place: BatchPlace,
    pub cancel: &'a Arc<AtomicBool>,
    pub sqlite_cache: &'a SqliteCache,
    pub reader: &'a Reader,
    /// Runs functions that scripts have created.
    pub function_code: FunctionCode,
}

impl<'a> QueryContext<'a> {
    pub fn variable(&self, name: &str) -> Result<&'a Variable, Message> {
        self.variables.declared(name)
    }

    /// Notes that this translation names something of the server's own.
    pub fn names_own(&self) {
        if let Some(compiling) = self.compiling {
            compiling.names_own.set(true);
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// A database in memory with the rows that a plan reads.
    pub fn sqlite(&self, plan: &QueryPlan) -> Result<Box<Sqlite>, Message> {
        self.sqlite_cache.notices().begin(Heed::of(self.options));
        self.sqlite_cache
            .take(self.server, self.tables, self.cancel, plan)
    }

    /// A plan, and the database with the rows that it reads: made again while another session changes the definition of a
    /// table of it.
    pub fn planned(
        &self,
        mut plan: impl FnMut() -> Result<QueryPlan, Message>,
    ) -> Result<(QueryPlan, Box<Sqlite>), Message> {
        let mut tries = 1..TRIES_MAX;
        loop {
            let plan = plan()?;
            match self.sqlite(&plan) {
                Err(refused)
                    if refused.number == message::DEFINITION_CHANGED.number
                        && tries.next().is_some() => {}
                opened => return opened.map(|sqlite| (plan, sqlite)),
            }
        }
    }

    /// Keeps a database that was opened for this plan for the next query, if it may.
    pub fn give_back(&self, sqlite: Box<Sqlite>, plan: &QueryPlan) {
        self.sqlite_cache.give_back(sqlite, plan);
    }
}

/// Where a batch runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchPlace {
    /// `@@NESTLEVEL`
    pub level: i64,
    /// `@@PROCID`
    pub procedure: i64,
    /// `SCOPE_IDENTITY()`
    pub scope_identity: Option<i64>,
    /// `@@IDENTITY`
    pub identity: Option<i64>,
}
