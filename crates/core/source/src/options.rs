//! Options for opening a source. Pure data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_pg::Earlier;

use crate::base::Base;

/// How to open a source.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// The database's name for people, instead of one derived from its path.
    pub database: Option<String>,
    /// Directories that count as volumes, with volume names: lets one machine simulate several volumes.
    pub volume_map: Vec<(PathBuf, String)>,
    /// How much a SQLite write-ahead log may grow, in bytes, while it is read; `None`: no limit.
    pub wal_growth_limit_bytes: Option<u64>,
    /// Whether to rely on the locks of a SQLite database on any file system: the user guarantees that every program
    /// that writes to it uses the same mount.
    pub trust_locks: bool,
    /// Whether a file that a PostgreSQL server has in its data directory while it runs ends a backup of files; otherwise it
    /// is a warning.
    pub refuse_servers: bool,
    /// Whether a SQLite database without a write-ahead log may be read from a copy that shares its blocks, if the file
    /// system can make one: commits then wait for a moment only. The copy has no name; its inode stays on the source's
    /// file system until the backup ends.
    pub reflink: bool,
    /// How long to wait for a database to become readable.
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
            refuse_servers: false,
            reflink: true,
            lock_wait: Duration::from_secs(30),
            postgres: PostgresOptions::default(),
        }
    }
}

/// Options for the backup of a PostgreSQL server.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Store only the differences from this set.
    pub base: Option<Base>,
    /// Backups at the same target that were complete before this one began, the newest last. The set records how each
    /// is related to the server.
    pub earlier: Arc<Vec<Earlier>>,
    /// The label in `backup_label`, one line of at most 1024 bytes.
    pub label: String,
    /// Spread the initial checkpoint over time instead of writing as fast as the disk allows.
    pub spread_checkpoint: bool,
    /// Whether the set includes the WAL between start and end.
    pub with_wal: bool,
    /// Use the replication protocol even if the files are readable.
    pub remote: bool,
    /// Whether a page with a wrong checksum ends the backup; otherwise it is reported and the set is marked.
    pub fail_on_bad_page: bool,
    /// Whether the set includes configuration files from outside the data directory.
    pub configuration: bool,
    /// Whether to ask the server how the rows of its tables are laid out.
    pub layouts: bool,
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
            configuration: true,
            layouts: false,
        }
    }
}
