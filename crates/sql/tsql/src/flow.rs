//! The inputs and results of statements: variables, outcomes, and how a batch ends.
//!
//! Invariants
//! - A statement either continues the batch, ends it, or ends the connection; that is a value here and not an error.
//! - Every message that is sent is counted: the outcome has the highest severity, and a procedure's status is that of
//!   its last error.
//! - Messages of a failure are sent once: those in [`Stop::Failed`] are not sent yet, all others are.
//!
//! Leaves to others: running statements (`run.rs`), and the state of the session (`session.rs`).

use std::sync::Arc;

use crate::message::{self, Message};
use crate::notices::Notices;
use crate::sink::{Command, DoneEvent, ReceiverGone, Sink};
use crate::value::{Type, Value};

/// The user of the session; shown in views and histories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub host: String,
    pub program: String,
}

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The highest severity of the messages sent.
    pub severity_max: u8,
    /// The return status of the last procedure called: 0 if it succeeded. On failure, for `sp_executesql` the number
    /// of the last error of its batch, for every other procedure 1; for one that a script created, what its RETURN says.
    pub status: i32,
    /// A message of severity 20 or higher ended the session: its client gets nothing more after this answer.
    pub ended: bool,
}

impl Outcome {
    pub fn failed(self) -> bool {
        self.severity_max > message::SEVERITY_INFO_MAX
    }
}

/// A variable's type and value.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub kind: Type,
    pub value: Value,
}

/// An argument passed to a procedure from outside a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// With its @; `None`: by position.
    pub name: Option<String>,
    pub variable: Variable,
    /// Use the procedure's default instead.
    pub default: bool,
    /// The procedure may change its value.
    pub output: bool,
}

/// Why a statement did not end normally.
#[derive(Debug)]
pub(crate) enum Stop {
    Closed(ReceiverGone),
    /// The statement failed; these messages are not sent yet.
    Failed(Vec<Message>),
    /// The same for a name that was not found: only a TRY block around the batch catches it, none in the batch itself.
    Unresolved(Vec<Message>),
    /// The batch ends here, and so do all outer batches; all messages were sent.
    EndBatch,
    /// The batch ends here, and the outer one continues; all messages were sent.
    EndOwnBatch,
    /// RETURN: the batch ends, but not the outer one.
    Return,
    Break,
    Continue,
    /// The batch goes on at this label.
    Goto(String),
}

impl Stop {
    /// The last message of the failure; for callers without a sink.
    pub fn message(self) -> Message {
        match self {
            Stop::Failed(mut messages) | Stop::Unresolved(mut messages) => {
                messages.pop().unwrap_or_else(|| message::ABORTED.plain())
            }
            Stop::Closed(_)
            | Stop::EndBatch
            | Stop::EndOwnBatch
            | Stop::Return
            | Stop::Break
            | Stop::Continue
            | Stop::Goto(_) => message::ABORTED.plain(),
        }
    }
}

impl From<ReceiverGone> for Stop {
    fn from(closed: ReceiverGone) -> Stop {
        Stop::Closed(closed)
    }
}

impl From<Message> for Stop {
    fn from(message: Message) -> Stop {
        Stop::Failed(vec![message])
    }
}

impl From<Vec<Message>> for Stop {
    fn from(messages: Vec<Message>) -> Stop {
        Stop::Failed(messages)
    }
}

pub(crate) type Flow = Result<(), Stop>;

/// The destination of a statement's results.
pub(crate) struct Out<'a> {
    pub sink: &'a mut dyn Sink,
    /// The line of the statement.
    pub line: u32,
    /// Rows are not counted (`SET NOCOUNT ON`).
    pub(crate) nocount: bool,
    pub(crate) outcome: Outcome,
    /// The last error sent since the running procedure was called.
    pub(crate) last_error: u32,
    /// The value of RETURN of the procedure that just ended.
    pub(crate) returned: Option<i32>,
    /// The procedure that runs.
    pub(crate) procedure: Option<Arc<str>>,
    /// The notices of the statement's queries.
    pub(crate) notices: Arc<Notices>,
}

impl Out<'_> {
    /// Counts a message that is sent.
    pub(crate) fn count(&mut self, message: &Message) {
        self.outcome.severity_max = self.outcome.severity_max.max(message.severity);
        if message.is_error() {
            self.last_error = message.number;
        }
    }

    pub fn say(&mut self, message: Message) -> Result<(), ReceiverGone> {
        self.count(&message);
        let message = message.in_procedure(self.procedure.as_deref());
        self.sink.message(&message.at_line(self.line))
    }

    /// Runs a procedure and keeps its return status. `is_batch`: the status is an error's number.
    pub fn procedure(&mut self, is_batch: bool, run: impl FnOnce(&mut Self) -> Flow) -> Flow {
        let before = std::mem::take(&mut self.last_error);
        let flow = run(self);
        let unsaid = match &flow {
            Err(Stop::Failed(messages)) => messages.iter().rev().find(|m| m.is_error()),
            _ => None,
        };
        let error = unsaid.map_or(self.last_error, |m| m.number);
        let usual = match is_batch {
            true => i32::try_from(error).unwrap_or(i32::MAX),
            false => (error != 0).into(),
        };
        // A procedure of the server's may have said so before it failed.
        self.outcome.status = match is_batch {
            true => usual,
            false => std::mem::take(&mut self.returned).unwrap_or(usual),
        };
        if self.last_error == 0 {
            self.last_error = before;
        }
        flow
    }

    /// The return status of the procedure that ran last.
    pub fn status(&self) -> i32 {
        self.outcome.status
    }

    /// Sends the notices that are due.
    pub(crate) fn say_notices(&mut self) -> Result<(), ReceiverGone> {
        let due = self.notices.take();
        due.into_iter().try_for_each(|message| self.say(message))
    }

    pub fn done(&mut self, command: Command, rows: Option<u64>) -> Result<(), ReceiverGone> {
        self.say_notices()?;
        self.sink.done(DoneEvent {
            command,
            rows: rows.filter(|_| !self.nocount),
            error: false,
        })
    }

    /// A message with its own `done`, as BACKUP and RESTORE send them.
    pub fn say_done(&mut self, message: Message, command: Command) -> Result<(), ReceiverGone> {
        self.say(message)?;
        self.done(command, None)
    }
}

/// The database of a session that has not chosen one.
pub const FIRST_DATABASE: &str = "master";

/// SQL Server's own databases, which sessions may use; they contain nothing to back up.
pub(crate) const SYSTEM_DATABASES: [&str; 4] = ["master", "tempdb", "model", "msdb"];
