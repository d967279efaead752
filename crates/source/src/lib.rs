//! What to read, in which order, and how safely: the database adaptors.
//!
//! A [`Source`] holds its snapshot or its walk open from `open` to `finish`. It hands out
//! [`Entry`]s, one stream per volume, and each entry's [`Content`] can be read by many workers at
//! once. A source never writes: a database is left exactly as it was found.
//!
//! Invariants
//! - An entry's path is relative, has only normal components and is unique in its source.
//! - A directory comes before what is in it (on the same volume's stream).
//! - Memory does not grow with the number of entries.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attributes;
mod door;
mod error;
mod files;
mod postgres;
mod reading;
mod spec;
mod sqlite;
mod tally;
mod volumes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_io::Storage;

pub use door::{
    Change, Content, Description, Entry, EntryKind, LogEnd, LogStart, Source, SourceKind,
    SourceSummary, Volume,
};
pub use error::{BaseRefusal, Error};
pub use postgres::{
    Base, ClosedLog, Identified, OwnLog, PostgresOptions, close_log, home, identify,
};
pub use spec::SourceSpec;

/// How a source is to be opened.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// The database's name for people, instead of one made from its path.
    pub database: Option<String>,
    /// Directories that stand for volumes, by volume name: lets one machine play several.
    pub volume_map: Vec<(PathBuf, String)>,
    /// How much a SQLite write-ahead log may grow in bytes while it is read; `None`: no limit.
    pub wal_growth_limit_bytes: Option<u64>,
    /// Whether locks of a SQLite database are relied on wherever it lies: its user vouches for every program that writes
    /// to it coming by the same mount.
    pub trust_locks: bool,
    /// Whether a SQLite database without a log may be read from a copy that shares its blocks, where
    /// the file system can make one: commits then wait for an instant only. The copy has no name; its
    /// inode lies on the source's file system until the backup ends.
    pub reflink: bool,
    /// How long to wait for a moment in which a database can be read.
    pub lock_wait: Duration,
    pub postgres: PostgresOptions,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            database: None,
            volume_map: Vec::new(),
            wal_growth_limit_bytes: None,
            trust_locks: false,
            reflink: true,
            lock_wait: Duration::from_secs(30),
            postgres: PostgresOptions::default(),
        }
    }
}

/// Opens a source: takes the snapshot of a database, looks at the roots of a tree. Blocks up to
/// [`SourceOptions::lock_wait`] for a database that writers keep locked.
pub fn open(
    storage: Arc<dyn Storage>,
    spec: &SourceSpec,
    options: &SourceOptions,
) -> Result<Box<dyn Source>, Error> {
    match spec {
        SourceSpec::Files(paths) => Ok(Box::new(files::Files::open(&*storage, paths, options)?)),
        SourceSpec::Sqlite(path) => Ok(Box::new(sqlite::Sqlite::open(&*storage, path, options)?)),
        SourceSpec::Postgres(server) => postgres::open(storage, server, options),
    }
}
