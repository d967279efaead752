//! The WAL archive: one file for each segment, in a standard container, below one directory for each cluster.
//!
//! ```text
//! DIR/longshore-wal                              whose log this is
//! DIR/00000002.history.gz
//! DIR/0000000100000016/0000000100000016000000B3.gz
//! DIR/needs/ID.ID                                what the backups at a target need of it
//! ```
//!
//! The archive is its only state: what is in it is proven by it, there is no list beside it and no spool between
//! PostgreSQL and it. `docs/postgres-wal.md` describes the files and the commands.
//!
//! Invariants
//! - A file has its name only when it is whole and durable; success is told only when the name is durable, too.
//! - No file is ever replaced. The same bytes again are taken for what they are, others are refused.
//! - Only segments of the cluster in the identity file, with its segment size, under their own names, get in.

mod ahead;
mod archive;
mod error;
mod form;
mod identity;
mod links;
mod list;
mod needs;
mod note;
pub mod object;
mod outflow;
mod press;
mod read;
mod receive;
mod refused;
mod staged;
mod stored;
mod waiting;

pub use ahead::{Ahead, PgWal, Reach, Turn};
pub use archive::{Outgoing, Pushed, WalArchive};
pub use error::Error;
pub use form::{Form, IDENTITY_NAME};
pub use identity::Identity;
pub use links::Comparison;
pub use list::{Removed, Run, Span};
pub use needs::Need;
pub(crate) use needs::{Others, Record};
pub use read::Archived;
pub use receive::{Event, Plan, Progress, ReceiveError, receive};
pub use refused::Refused;
