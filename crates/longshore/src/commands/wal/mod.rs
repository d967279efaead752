//! `wal`: the commands that PostgreSQL's archive_command and restore_command run.
//!
//! Invariants
//! - Startup time matters: the server runs one process per file, so nothing is opened that the command does not need.
//!
//! Leaves to others: each command (`push.rs`, `get.rs` and the others), and the archive (`longshore-wal`).

mod ahead;
mod away;
mod create;
mod debt;
mod follow;
mod form;
mod get;
mod keeping;
mod list;
mod needs;
mod owed;
mod push;
mod receive;

pub use ahead::QUEUE_MAX;
pub use debt::{OwedReport, Weight, of_server, report_of, unknown, unknown_text};
pub use form::form;
pub use needs::Need;
pub use receive::DEFAULT_SLOT;

use crate::context::Context;
use crate::options::{Wal, WalAction};
use longshore_terminal::failure::{Exit, Failure};

pub fn run(options: &Wal, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        WalAction::Create(options) => create::run(options, context),
        WalAction::Push(options) => push::run(options, context),
        WalAction::Get(options) => get::run(options, context),
        WalAction::Receive(options) => receive::run(options, context),
        WalAction::List(options) => list::run(options, context),
        WalAction::Needs(options) => needs::run(options, context),
        WalAction::Owed(options) => owed::run(options, context),
    }
}
