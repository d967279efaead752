//! What statements take and give: variables, outcomes, and how a batch ends.

use crate::message::{self, Message};
use crate::sink::{Closed, Command, Done, Sink};
use crate::value::{Type, Value};

/// Who the session is for; shown in views and histories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub host: String,
    pub program: String,
}

/// How a batch went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The highest severity of a message that was sent.
    pub severity_max: u8,
    /// The return status of the procedure that was called last: 0 if it succeeded; else of `sp_executesql` the number
    /// of the last error of its batch, of every other procedure 1.
    pub status: u32,
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

/// What is passed to a procedure from outside a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// With its @; `None`: by its place.
    pub name: Option<String>,
    pub variable: Variable,
    /// The procedure's own value instead.
    pub default: bool,
    /// The procedure may change it.
    pub output: bool,
}

/// Why a statement did not end as usual.
#[derive(Debug)]
pub(crate) enum Stop {
    Closed(Closed),
    /// The statement failed; these were not sent yet.
    Failed(Vec<Message>),
    /// The batch ends here, and every batch that it is in; everything was said.
    EndBatch,
    /// The batch ends here, and the one that it is in goes on; everything was said.
    EndOwnBatch,
    /// RETURN: the batch ends, but not the one that it is in.
    Return,
    Break,
    Continue,
}

impl Stop {
    /// The last word of what failed; for callers that have no sink.
    pub fn message(self) -> Message {
        match self {
            Stop::Failed(mut messages) => {
                messages.pop().unwrap_or_else(|| message::ABORTED.plain())
            }
            Stop::Closed(_)
            | Stop::EndBatch
            | Stop::EndOwnBatch
            | Stop::Return
            | Stop::Break
            | Stop::Continue => message::ABORTED.plain(),
        }
    }
}

impl From<Closed> for Stop {
    fn from(closed: Closed) -> Stop {
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

/// Where a statement's answers go.
pub(crate) struct Out<'a> {
    pub sink: &'a mut dyn Sink,
    /// Of the statement.
    pub line: u32,
    /// Rows are not counted (`SET NOCOUNT ON`).
    pub(crate) nocount: bool,
    pub(crate) outcome: Outcome,
    /// The error that was said last, since the procedure that runs was called.
    pub(crate) last_error: u32,
}

impl Out<'_> {
    /// Counts what is said.
    pub(crate) fn count(&mut self, message: &Message) {
        self.outcome.severity_max = self.outcome.severity_max.max(message.severity);
        if message.is_error() {
            self.last_error = message.number;
        }
    }

    pub fn say(&mut self, message: Message) -> Result<(), Closed> {
        self.count(&message);
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
        self.outcome.status = match is_batch {
            true => error,
            false => (error != 0).into(),
        };
        if self.last_error == 0 {
            self.last_error = before;
        }
        flow
    }

    /// The return status of the procedure that ran last.
    pub fn status(&self) -> u32 {
        self.outcome.status
    }

    pub fn done(&mut self, command: Command, rows: Option<u64>) -> Result<(), Closed> {
        self.sink.done(Done {
            command,
            rows: rows.filter(|_| !self.nocount),
            error: false,
        })
    }

    /// A message with a `done` of its own, as BACKUP and RESTORE send them.
    pub fn say_done(&mut self, message: Message, command: Command) -> Result<(), Closed> {
        self.say(message)?;
        self.done(command, None)
    }
}

/// The database of a session that has not chosen one.
pub const FIRST_DATABASE: &str = "master";

/// Databases of SQL Server's own that sessions may use; nothing of them is backed up.
pub(crate) const SYSTEM_DATABASES: [&str; 4] = ["master", "tempdb", "model", "msdb"];
