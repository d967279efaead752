//! The receiver of a batch's results: a terminal, a network connection, a test.
//!
//! Calls come in the order in which a server sends them on the wire, from the thread that called
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
//!   all. On the wire all but a batch's last `done` have the MORE bit.
//! - After [`ReceiverGone`] nothing more is sent; a running backup is ended as by a cancel.
//!
//! Leaves to others: showing results (the programs), and tokens on the wire (`longshore-tds`).

use crate::message::Message;
use crate::value::{Column, Value};

/// The receiver is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct ReceiverGone;

/// The statement that ended. The number is the one in DONE on the wire (CurCmd), as captures of SQL Server 2022 show
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    /// A batch that did not compile, and statements whose number is unknown.
    Other = 0,
    Select = 193,
    Insert = 195,
    Delete = 196,
    Update = 197,
    Execute = 224,
    BackupDatabase = 228,
    /// RESTORE DATABASE and RESTORE LOG.
    Restore = 229,
    /// The rows of HEADERONLY, FILELISTONLY and LABELONLY; the first two end with another one as well.
    MediaRows = 230,
    BackupLog = 235,
    RestoreHeaderOnly = 250,
    RestoreFileListOnly = 376,
    RestoreVerifyOnly = 377,
}

/// The end of a statement, or of a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoneEvent {
    pub command: Command,
    /// Rows sent or changed; `None` for other statements, and after SET NOCOUNT ON.
    pub rows: Option<u64>,
    /// It failed; its messages said why. The batch may continue.
    pub error: bool,
}

/// Receives result sets and messages, in the order in which the statements make them. After [`ReceiverGone`] the session
/// sends nothing more. The tests in `tests/sinks` check both sides of this text.
pub trait Sink {
    /// Begins a result set. It ends with the next `columns` or `done`.
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone>;

    /// A row of the result set that `columns` began, with one value for each of its columns.
    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone>;

    /// INFO (severity 0 to 10) or an error. Comes at any time, also between rows.
    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone>;

    /// A statement, or a part of one, has ended; comes after its rows and messages.
    fn done(&mut self, done: DoneEvent) -> Result<(), ReceiverGone>;

    /// USE: the session's database has changed. A wire protocol tells its client (ENVCHANGE); the message 5701 follows
    /// separately.
    fn database_changed(&mut self, _from: &str, _to: &str) -> Result<(), ReceiverGone> {
        Ok(())
    }
}

/// Stores everything, for callers that inspect it afterwards.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Recorder {
    pub events: Vec<SinkEvent>,
}

/// One call of a [`Sink`].
#[derive(Debug, Clone, PartialEq)]
pub enum SinkEvent {
    Columns(Vec<Column>),
    Row(Vec<Value>),
    Message(Message),
    Done(DoneEvent),
    Database(String),
}

impl Recorder {
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.events.iter().filter_map(|event| match event {
            SinkEvent::Message(message) => Some(message),
            _ => None,
        })
    }

    pub fn rows(&self) -> impl Iterator<Item = &[Value]> {
        self.events.iter().filter_map(|event| match event {
            SinkEvent::Row(row) => Some(row.as_slice()),
            _ => None,
        })
    }

    /// The columns of the first result set; empty without one.
    pub fn columns(&self) -> &[Column] {
        let found = self.events.iter().find_map(|event| match event {
            SinkEvent::Columns(columns) => Some(columns.as_slice()),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

impl Sink for Recorder {
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone> {
        self.events.push(SinkEvent::Columns(columns.to_vec()));
        Ok(())
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        self.events.push(SinkEvent::Row(row.to_vec()));
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        self.events.push(SinkEvent::Message(message.clone()));
        Ok(())
    }

    fn done(&mut self, done: DoneEvent) -> Result<(), ReceiverGone> {
        self.events.push(SinkEvent::Done(done));
        Ok(())
    }

    fn database_changed(&mut self, _from: &str, to: &str) -> Result<(), ReceiverGone> {
        self.events.push(SinkEvent::Database(to.to_owned()));
        Ok(())
    }
}
