//! The part of a session that a query may read.
//!
//! Invariants
//! - A query changes nothing of a session but what it keeps for the next one: SQLite's database and the trees of a
//!   batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::reader::Reader;
use super::schema::View;
use super::sqlite::{Sqlite, SqliteCache};
use crate::cursors::Cursors;
use crate::flow::{Login, Variable};
use crate::message::Message;
use crate::server::Server;
use crate::variables::Variables;

/// A session's state, lent for one query.
#[derive(Clone, Copy)]
pub(crate) struct QueryContext<'a> {
    pub server: &'a Server,
    pub login: &'a Login,
    /// The database in use.
    pub database: &'a str,
    pub variables: &'a Variables,
    /// `@@SPID`
    pub id: u32,
    /// `@@ERROR`
    pub error: u32,
    /// `@@ROWCOUNT`
    pub row_count: u64,
    /// `@@TRANCOUNT`
    pub transactions: u32,
    /// Whether the open transaction can only be rolled back.
    pub doomed: bool,
    /// The message that a CATCH block handles.
    pub caught: Option<&'a Message>,
    pub cursors: &'a Cursors,
    pub cancel: &'a Arc<AtomicBool>,
    pub sqlite_cache: &'a SqliteCache,
    pub reader: &'a Reader,
}

impl<'a> QueryContext<'a> {
    pub fn variable(&self, name: &str) -> Result<&'a Variable, Message> {
        self.variables.declared(name)
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// A database in memory with the rows of these views.
    pub fn sqlite(&self, views: &[&'static View]) -> Result<Box<Sqlite>, Message> {
        self.sqlite_cache.take(self.server, self.cancel, views)
    }

    /// Keeps a database that was opened for these views for the next query, if it may.
    pub fn give_back(&self, sqlite: Box<Sqlite>, views: &[&'static View]) {
        self.sqlite_cache.give_back(sqlite, views);
    }
}
