//! The WAL archive: one file for each segment, in a standard container, below one directory for each cluster.
//!
//! ```text
//! DIR/longshore-wal                              which cluster's WAL this is
//! DIR/00000002.history.gz
//! DIR/0000000100000016/0000000100000016000000B3.gz
//! DIR/needs/ID.ID                                what the backups at a target need of it
//! ```
//!
//! In a bucket all archived files end with `.wal`, and `longshore-wal.new` marks an archive that is of no cluster yet.
//!
//! The archive is its only state: its contents are proved by the files themselves, and there is neither a separate
//! list nor a spool between PostgreSQL and the archive. `docs/postgres-wal.md` describes the files and the commands.
//!
//! Invariants
//! - A file has its name only when it is complete and durable; success is reported only when the name is durable, too.
//! - No file is ever replaced. The same bytes again count as success; other bytes are refused.
//! - Only segments of the cluster in the identity file, with its segment size, under their own names, get in.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod ahead;
mod archive;
mod border;
mod content;
mod copy;
mod debts;
mod doubt;
mod ends;
mod error;
#[cfg(test)]
#[path = "../../io/tests/contract/suite/alone.rs"]
mod file_suite;
mod follow;
mod form;
mod identity;
mod keeping;
mod kept;
mod links;
mod list;
mod looks;
mod memory;
pub mod needs;
mod note;
pub mod object;
mod order;
mod outflow;
mod owed;
mod owing;
mod parting;
mod place;
mod press;
pub mod proof;
mod range;
mod read;
mod receive;
mod refused;
mod replay;
mod sample;
mod sealed;
mod staged;
mod stored;
mod tail;
mod verbatim;
mod waiting;
mod written;

pub use ahead::{AheadLimits, AheadLock, PgWal, PrefetchResult};
pub use archive::{Outgoing, PushResult, WalArchive};
pub use copy::{WalCopied, WalToCopy, copy_wal};
pub use debts::{Creditor, OWED_LIST, Owed, OwedList};
pub use doubt::{Cut, Parting};
pub use error::Error;
pub use follow::Lag;
pub use form::{IDENTITY_NAME, StorageForm};
pub use identity::Identity;
pub use kept::{DebtMark, Debtor, Kept};
pub use links::Comparison;
pub use list::{Lost, RemovalResult, Run, SegmentImprint, Span};
pub use longshore_crypt::TagKey;
pub use looks::UnusableSegment;
pub use needs::{Need, is_need};
pub use owed::{Givers, Settled, ToSettle};
pub use owing::{AwaitExpires, Owing};
pub use place::{Ground, is_at_named_server, is_in_bucket, location};
pub use range::LogRange;
pub use read::ArchiveReader;
pub use receive::{Event, Progress, ReceiveError, ReceivePlan, receive};
pub use refused::{REFUSED_NAME, RefusedPush};
pub use replay::Replay;
pub use sample::SegmentTags;
pub use tail::Tail;
