//! The history of backups and restores, and the server settings, in one SQLite database.
//!
//! Tables and columns are those of SQL Server's msdb, so that existing queries work; further columns are named
//! `longshore_…`. The media are the truth: everything about backups can be relearned from them ([`Catalog::rebuild`]).
//! Only restores, runs, settings and the state of a T-SQL server exist nowhere else.
//!
//! Invariants
//! - One call is one transaction, synced before it returns: after a crash a backup is recorded completely or not at
//!   all.
//! - A backup set has one row however often it is recorded or relearned: its UUID is its identity.
//! - No call waits longer than [`BUSY_MAX`] for other users of the catalog, and none panics, whatever the file
//!   contains. Callers treat a failure as a warning (3009): the backup itself has succeeded.
//! - A database that is not a catalog is never written to.
//!
//! Dates in tables are text in local time of the machine that made the backup, as in msdb, with milliseconds:
//! `2026-03-01T22:15:04.120`; rows that queries here return have the offset from UTC after it. Both dates of a set use the
//! offset in its header, so that durations are right across a clock change. The same times in UTC, in microseconds since
//! 1970, are in `longshore_start_us` and `longshore_finish_us`; queries here sort and count by those.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod catalog;
mod credentials;
mod error;
mod files;
mod forget;
mod indexes;
mod kept;
mod keys;
mod log_chain;
mod moment;
mod msdb;
mod objects;
mod place;
mod query;
mod rebuild;
mod record;
mod runs;
mod schema;
mod service_file;
mod settings;
mod write;

pub use catalog::{BUSY_MAX, Catalog};
pub use credentials::Credential;
pub use error::Error;
pub use files::{FileList, FileRecord};
pub use forget::{Forget, RemovalResult};
pub use indexes::IndexedSet;
pub use kept::{RestoreSequence, RestoredDatabase};
pub use keys::{KeptBy, KeptCertificate, MasterKey, ServerKeys};
pub use log_chain::{ChainPlace, DifferentialBase, LogChain};
pub use msdb::{flags, fork_guid, recovery_model, type_word};
pub use objects::{CatalogObject, RowChanges, StoredRows};
pub use place::default_path;
pub use query::{HistoryRow, RestoreRow};
pub use rebuild::Rebuilt;
pub use record::{
    BackupRecord, EngineRecord, FamilyRecord, HistoryQuery, MediaRecord, RestoreKind,
    RestoreRecord, RestoredFile,
};
pub use runs::{RUNS_MAX, RunOutcome, RunRecord, RunRow, RunTask};
pub use service_file::service_key_path;
pub use settings::{Effect, Setting, SettingRow};
pub use write::{CERTIFICATE, KEY_ALGORITHM};
