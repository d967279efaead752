//! The settings of backups under load.

use std::path::PathBuf;
use std::time::Duration;

use super::peers::LoadedPeer;
use crate::sample::SampleKind;

/// The database under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadKind {
    /// A PostgreSQL cluster of its own.
    Postgres,
    /// pgbench's own transactions on such a cluster.
    Pgbench,
    /// SQLite in WAL mode.
    Sqlite,
}

/// The transactions of the load, where they are not pgbench's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadMix {
    /// TPC-C-like: order entry.
    Orders,
    /// STAE-like: a brokerage house, which mostly reads.
    Trades,
}

impl LoadMix {
    /// The sample whose database they need.
    pub fn sample(self) -> SampleKind {
        match self {
            LoadMix::Orders => SampleKind::Tprocc,
            LoadMix::Trades => SampleKind::Stae,
        }
    }

    fn text(self) -> &'static str {
        match self {
            LoadMix::Orders => "TPC-C-like",
            LoadMix::Trades => "STAE-like",
        }
    }
}

impl OltpSpec {
    /// The load in words, on a database of this kind.
    pub fn load_text(&self, kind: LoadKind) -> String {
        match kind {
            LoadKind::Postgres => format!("{}, PostgreSQL", self.mix.text()),
            LoadKind::Pgbench => "pgbench, PostgreSQL".to_owned(),
            LoadKind::Sqlite => format!("{}, SQLite", self.mix.text()),
        }
    }
}

/// The settings of the study.
#[derive(Debug, Clone)]
pub struct OltpSpec {
    /// `None`: PostgreSQL where it is installed, else SQLite.
    pub kind: Option<LoadKind>,
    pub mix: LoadMix,
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
