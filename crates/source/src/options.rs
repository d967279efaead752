//! How a source is opened. Pure data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_pg::Earlier;

use crate::postgres::Base;

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

/// How a server is to be backed up.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Store only what differs from this set.
    pub base: Option<Base>,
    /// Backups that were complete where this one goes before it began, the newest last. Each one's relation to the server
    /// is kept in the set.
    pub earlier: Arc<Vec<Earlier>>,
    /// The name in `backup_label`, at most 1024 bytes on one line.
    pub label: String,
    /// Let the checkpoint at the start take its time instead of writing as fast as the disk can.
    pub spread_checkpoint: bool,
    /// Whether the log between start and end goes into the set.
    pub with_wal: bool,
    /// Read over the replication protocol even where the files can be read.
    pub remote: bool,
    /// Whether a page with a wrong checksum ends the backup; else it is reported and the set is marked.
    pub fail_on_bad_page: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            base: None,
            earlier: Arc::default(),
            label: "longshore".into(),
            spread_checkpoint: false,
            with_wal: true,
            remote: false,
            fail_on_bad_page: false,
        }
    }
}
