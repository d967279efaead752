//! The database adaptors: what to read, in which order, and how safely.
//!
//! A [`Source`] holds its snapshot or its walk from `open` to `finish`. It provides [`Entry`]s, one stream per volume;
//! several workers can read an entry's [`Content`] at once. A source never writes: a database is left exactly as it
//! was found.
//!
//! Invariants
//! - An entry's path is relative, has only normal components and is unique in its source.
//! - A directory precedes its contents (on the same volume's stream).
//! - Memory does not grow with the number of entries.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attributes;
mod base;
mod door;
mod error;
mod files;
mod majors;
mod options;
mod postgres;
mod reading;
mod spec;
mod sqlite;
#[cfg(test)]
#[path = "../../io/tests/contract/suite/mod.rs"]
mod storage_suite;
mod tally;
mod volumes;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_io::Storage;
use longshore_pg::client::Options;

pub use base::Base;
pub use door::{
    Change, CheckDepth, ClusterCheck, Content, Description, Entry, EntryKind, LayoutCount, LogEnd,
    LogStart, Source, SourceKind, SourceRoot, SourceSummary, Volume,
};
pub use error::{BaseRefusal, Error};
pub use files::{RESTORE_LOCK, RESTORING};
pub use options::{PostgresOptions, SourceOptions};
pub use postgres::{
    ClosedLog, OwnLog, ServerBranch, StandbyDoubt, StandbyState, close_log, home, identify,
};
pub use spec::SourceSpec;
pub use volumes::mount_points;

/// Opens a source: takes the snapshot of a database, or checks the roots of a tree. Blocks up to
/// [`SourceOptions::lock_wait`] for a database that writers keep locked.
pub fn open(
    storage: Arc<dyn Storage>,
    spec: &SourceSpec,
    options: &SourceOptions,
) -> Result<Box<dyn Source>, Error> {
    match spec {
        SourceSpec::Files(paths) => Ok(Box::new(files::Files::open(storage, paths, options)?)),
        SourceSpec::Sqlite(path) => Ok(Box::new(sqlite::Sqlite::open(&*storage, path, options)?)),
        SourceSpec::Postgres(server) => postgres::open(storage, server, options),
    }
}

/// Has SQLite check the database at `path` itself, in one committed state, and writes nothing. Returns its findings, up to
/// `max`, of up to 1,000 characters each; `None`: `cancel` was set.
///
/// Programs that write to a database without a write-ahead log wait meanwhile.
pub fn check_sqlite(
    storage: &dyn Storage,
    path: &Path,
    options: &SourceOptions,
    extent: (CheckDepth, u32),
    cancel: &Arc<AtomicBool>,
) -> Result<Option<Vec<String>>, Error> {
    sqlite::check(storage, path, options, extent, cancel)
}

/// Has a server check the tables and indexes of all its databases with the extension amcheck, and writes nothing. Returns
/// up to `max` findings, of up to 1,000 characters each; `None`: `cancel` was set.
///
/// Each table is locked as by a reader of it.
pub fn check_postgres(
    storage: &dyn Storage,
    server: &Options,
    extent: (CheckDepth, u32),
    cancel: &AtomicBool,
) -> Result<Option<ClusterCheck>, Error> {
    postgres::check(storage, server, extent, cancel)
}
