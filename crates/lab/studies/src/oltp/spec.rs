//! The settings of backups under load.

use std::path::PathBuf;
use std::time::Duration;

use super::peers::LoadedPeer;

/// The database and its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKind {
    /// TPC-C-like transactions on a PostgreSQL cluster of its own.
    Postgres,
    /// pgbench's own transactions on such a cluster.
    Pgbench,
    /// TPC-C-like transactions on SQLite in WAL mode.
    Sqlite,
}

impl LoadKind {
    pub fn text(self) -> &'static str {
        match self {
            LoadKind::Postgres => "TPC-C-like, PostgreSQL",
            LoadKind::Pgbench => "pgbench, PostgreSQL",
            LoadKind::Sqlite => "TPC-C-like, SQLite",
        }
    }
}

/// The settings of the study.
#[derive(Debug, Clone)]
pub struct OltpSpec {
    /// `None`: PostgreSQL where it is installed, else SQLite.
    pub kind: Option<LoadKind>,
    /// Of the sample from which the database is made.
    pub bytes: u64,
    pub clients: usize,
    /// A pause of each client after each transaction; not for pgbench.
    pub think: Duration,
    /// The least time of each phase; one backup at least is made in each.
    pub phase: Duration,
    /// For the database and, without `dirs`, the stripes.
    pub work: PathBuf,
    pub dirs: Vec<PathBuf>,
    pub stripes: usize,
    /// Percent of the machine's CPU: further phases with this limit.
    pub max_cpu: Option<f64>,
    /// How often the phases are repeated, 1 at least; the order is turned round in every other round.
    pub rounds: usize,
    /// Further phases with backups of other programs. They need a PostgreSQL cluster.
    pub peers: Vec<LoadedPeer>,
    pub quick: bool,
    /// This program: `PROGRAM lab load` is the load.
    pub program: PathBuf,
}
