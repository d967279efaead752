//! T-SQL for backups: text in, result sets and messages out.
//!
//! A [`Server`] stands for what a SQL Server instance is: its databases, settings, logical devices and log. Each client has
//! a [`Session`] on it, which runs batches and says what happens to a [`Sink`]: on a terminal, on the wire, in a test.
//!
//! ```text
//! text ──syntax──▶ statements ──statement──▶ pipeline's requests ──▶ messages, rows
//!                       └──────query───────▶ SQLite over the catalog and the server's views
//! ```
//!
//! Statements lower to the requests that the command line makes, and go through the same door, `pipeline::run`: what one
//! of them can do the other can, with the same results. The media, the catalog and the settings are shared.
//!
//! Invariants
//! - No text makes the server panic, nest without a bound, or leave the construct it is written as: nothing is
//!   recognised by its text.
//! - Every option of BACKUP and RESTORE is honoured, accepted with a reason, or refused ([`syntax::OPTIONS`]).
//! - A statement that fails says so, and leaves the batch to go on where SQL Server goes on.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod check;
mod convert;
mod errorlog;
mod flow;
mod memory;
pub mod message;
mod moving;
mod query;
mod refusal;
mod run;
mod server;
mod session;
mod settings;
mod sink;
mod statement;
pub mod syntax;
mod value;
mod variables;

pub use errorlog::LOG_NAMES;
pub use flow::{Argument, FIRST_DATABASE, Login, Outcome, Variable};
pub use memory::{Claim, Memory};
pub use message::Message;
pub use query::{VIEWS, View};
pub use server::{Database, Databases, Defaults, Prober, Server, Setup, Unusable};
pub use session::Session;
pub use sink::{Closed, Command, Done, Event, Record, Sink};
pub use value::{Column, DateTime, Decimal, Temporal, Type, Value, date_time_text};
