//! Who receives what a batch says: a terminal, a network connection, a test.
//!
//! Calls come in the order in which a server would put them on the wire, from the thread that called
//! [`crate::Session::run`], while the statement runs:
//!
//! ```text
//! statement = { message | result set } done { done }
//! result set = columns { row } done
//! ```
//!
//! Invariants
//! - `row` has as many values as the last `columns`, each of its column's type or NULL.
//! - Every statement that did something, or failed, ends with a `done`; a batch that did not compile has one `done` in
//!   all. On the wire all but a batch's last `done` carry the MORE bit.
//! - After [`Closed`] nothing more is sent; a backup that was running is ended as by a cancel.

use crate::message::Message;
use crate::value::{Column, Value};

/// Nobody listens any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct Closed;

/// What ended. The number is the one that DONE carries on the wire (CurCmd), as captures of SQL Server 2022 show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// A batch that did not compile, and statements whose number is not known.
    Other = 0,
    Select = 193,
    Execute = 224,
    BackupDatabase = 228,
    /// RESTORE DATABASE and RESTORE LOG.
    Restore = 229,
    /// The rows of HEADERONLY, FILELISTONLY and LABELONLY; the first two end with one of their own besides.
    MediaRows = 230,
    BackupLog = 235,
    RestoreHeaderOnly = 250,
    RestoreFileListOnly = 376,
    RestoreVerifyOnly = 377,
}

/// A statement, or a part of one, has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub command: Command,
    /// Rows sent; `None` where there was no result set, and after SET NOCOUNT ON.
    pub rows: Option<u64>,
    /// It failed; its messages said why. The batch may go on all the same.
    pub error: bool,
}

/// Receives result sets and messages.
pub trait Sink {
    /// Begins a result set.
    fn columns(&mut self, columns: &[Column]) -> Result<(), Closed>;

    fn row(&mut self, row: &[Value]) -> Result<(), Closed>;

    /// INFO (severity 0 to 10) or an error.
    fn message(&mut self, message: &Message) -> Result<(), Closed>;

    fn done(&mut self, done: Done) -> Result<(), Closed>;

    /// USE: the session's database is another one. A wire protocol tells its client (ENVCHANGE); the message 5701
    /// follows by itself.
    fn database_changed(&mut self, _from: &str, _to: &str) -> Result<(), Closed> {
        Ok(())
    }
}

/// Keeps everything, for callers that look at it afterwards.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Record {
    pub events: Vec<Event>,
}

/// One call of a [`Sink`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Columns(Vec<Column>),
    Row(Vec<Value>),
    Message(Message),
    Done(Done),
    Database(String),
}

impl Record {
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.events.iter().filter_map(|event| match event {
            Event::Message(message) => Some(message),
            _ => None,
        })
    }

    pub fn rows(&self) -> impl Iterator<Item = &[Value]> {
        self.events.iter().filter_map(|event| match event {
            Event::Row(row) => Some(row.as_slice()),
            _ => None,
        })
    }

    /// The columns of the first result set; empty without one.
    pub fn columns(&self) -> &[Column] {
        let found = self.events.iter().find_map(|event| match event {
            Event::Columns(columns) => Some(columns.as_slice()),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

impl Sink for Record {
    fn columns(&mut self, columns: &[Column]) -> Result<(), Closed> {
        self.events.push(Event::Columns(columns.to_vec()));
        Ok(())
    }

    fn row(&mut self, row: &[Value]) -> Result<(), Closed> {
        self.events.push(Event::Row(row.to_vec()));
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), Closed> {
        self.events.push(Event::Message(message.clone()));
        Ok(())
    }

    fn done(&mut self, done: Done) -> Result<(), Closed> {
        self.events.push(Event::Done(done));
        Ok(())
    }

    fn database_changed(&mut self, _from: &str, to: &str) -> Result<(), Closed> {
        self.events.push(Event::Database(to.to_owned()));
        Ok(())
    }
}
