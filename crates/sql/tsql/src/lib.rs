//! T-SQL for backups: text in, result sets and messages out.
//!
//! A [`Server`] stands for a SQL Server instance: its databases, settings, logical devices and log. Each client has a
//! [`Session`] on it, which runs batches and sends the results to a [`Sink`]: a terminal, a network connection, a
//! test.
//!
//! ```text
//! text ──syntax──▶ statements ──statement──▶ pipeline's requests ──▶ messages, rows
//!                       └──────query───────▶ SQLite over the catalog and the server's views
//! ```
//!
//! Statements become the same requests as the command line's, and go through the same function, `pipeline::run`: both
//! have the same abilities and results. The media, the catalog and the settings are shared.
//!
//! Invariants
//! - No text makes the server panic, nest without a bound, or leave its syntactic construct: nothing is
//!   recognised by comparing raw text.
//! - Every option of BACKUP and RESTORE is honoured, accepted with a reason, or refused ([`syntax::OPTIONS`]).
//! - A statement that fails reports it, and the batch continues where SQL Server would.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// Suites that other crates include, too, name this one.
#[cfg(test)]
extern crate self as longshore_tsql;

mod after;
mod check;
mod compile;
mod convert;
mod cursors;
mod dates;
mod errorlog;
mod flow;
mod format;
mod kinds;
mod memory;
pub mod message;
mod moving;
mod notices;
mod pairs;
mod query;
mod refusal;
mod relations;
mod run;
mod server;
mod session;
mod settings;
mod sink;
mod statement;
pub mod syntax;
mod tables;
mod value;
mod variables;

pub use errorlog::LOG_NAMES;
pub use flow::{Argument, FIRST_DATABASE, Login, Outcome, Variable};
pub use memory::{Claim, Memory};
pub use message::Message;
pub use query::{View, views};
pub use server::{
    ClientLink, Database, Databases, Defaults, Logins, Prober, RunningRequest, Server, Setup,
    Unusable,
};
pub use session::Session;
pub use sink::{Command, DoneEvent, ReceiverGone, Recorder, Sink, SinkEvent};
pub use value::{Column, DateTime, Decimal, Temporal, Type, Value, date_time_text};
