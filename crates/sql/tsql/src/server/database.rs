//! Databases that statements can name, and the list of the configured ones.

use std::path::PathBuf;

use longshore_codec::{Algorithm, Level};
use longshore_pipeline::SourceSpec;

/// A database that statements can name.
#[derive(Debug, Clone)]
pub struct Database {
    pub name: String,
    pub source: SourceSpec,
    /// For compressed backups that name no algorithm.
    pub algorithm: Option<Algorithm>,
    pub level: Option<Level>,
    /// The WAL archive of a PostgreSQL cluster: with it the recovery model is FULL.
    pub wal: Option<PathBuf>,
    /// Whether to rely on the locks of a SQLite database on any file system: only the configuration can allow it, no
    /// statement can.
    pub trust_locks: bool,
    /// Whether backups of a server hold its configuration files from outside the data directory.
    pub server_config: bool,
}

impl Database {
    /// Whether it is a cluster whose WAL is archived.
    pub(crate) fn recovery_is_full(&self) -> bool {
        matches!(self.source, SourceSpec::Postgres(_)) && self.wal.is_some()
    }
}

/// Why a configured database cannot be used now: a missing password, a missing path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Unusable {
    pub text: String,
    /// The next step for the operator; empty if it is obvious.
    pub hint: String,
    /// The location of its files, if known.
    pub place: Option<PathBuf>,
}

/// The configured databases. Sessions ask from several threads; a list stays as it is while a server runs. The tests in
/// `tests/databases` check this text for every list.
pub trait Databases: Send + Sync {
    /// Each name once, in the order in which `sys.databases` shows them.
    fn names(&self) -> Vec<String>;

    /// The database of exactly this name; `None` if there is none. Every listed name has a database, or a reason.
    ///
    /// Errors: why it cannot be used now.
    fn find(&self, name: &str) -> Result<Option<Database>, Unusable>;
}
