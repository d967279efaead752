//! `longshore lab oltp` and `load`: databases under load.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//!
//! Leaves to others: the meaning of the options (`loads.rs` in `commands`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use longshore_terminal::values;

use super::written::{OutputOptions, WORK};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LoadDatabase {
    /// A PostgreSQL cluster made for the study.
    Postgres,
    /// pgbench's own transactions on such a cluster.
    Pgbench,
    /// A SQLite database in WAL mode.
    Sqlite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoadName {
    /// Order entry like TPC-C's: five kinds of transactions in their mix.
    Tprocc,
    /// A brokerage house in the manner of TPC-E: six kinds, of which most only read.
    Stae,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LoadPeer {
    /// pgBackRest with zst level 1 and a process for each CPU.
    Pgbackrest,
    /// WAL-G with lz4.
    WalG,
    /// pg_basebackup with server-lz4, of PostgreSQL 15 or later.
    PgBasebackup,
}

const TEACH_OLTP: &str = "\
Examples:
  longshore lab oltp --html oltp.html
  longshore lab oltp --database sqlite --clients 2 --max-cpu 25
  longshore lab oltp --warehouses 10 --rounds 3
  longshore lab oltp --rounds 3 --peer pgbackrest --peer pg-basebackup

Not for: your own database. The study makes one, loads it, and removes it.";

/// Measures what backups cost a database under load: transactions, latencies, and how long each backup takes.
///
/// The phases are quiet, then NONE, MS_XPRESS, QAT_DEFLATE, ZSTD and LZ4 with backups one after another, then quiet
/// again. The answer is the transactions that each backup costs.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_OLTP)]
pub struct Oltp {
    /// The database and its load [default: postgres if it is installed, else sqlite].
    ///
    /// The study makes it and removes it. PostgreSQL must be installed; the lab installs nothing.
    #[arg(long, value_name = "NAME", value_enum)]
    pub database: Option<LoadDatabase>,

    /// The transactions of the load [default: tprocc].
    ///
    /// Both are written for this study, without keying times: results are no tpmC and no tpsE. pgbench has its own, so the two
    /// together are refused.
    #[arg(long, value_name = "NAME", value_enum)]
    pub load: Option<LoadName>,

    /// Size of the database [default: 1G, with --quick 24M].
    ///
    /// To measure disks give more than the memory. --warehouses says it in warehouses.
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    pub size: Option<u64>,

    /// Warehouses of the TPC-C-like database, all of them full, instead of a size.
    ///
    /// About 82 MB each. By default --size counts, whose last warehouse may be a smaller one. Other loads have none, so the two together are refused.
    #[arg(long, value_name = "N", conflicts_with = "size", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub warehouses: Option<u32>,

    /// Sessions that run transactions.
    ///
    /// The default is 4. More than the machine's CPUs leave none for the backup, which is what the study measures.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub clients: u16,

    /// Milliseconds that a client waits after each transaction.
    ///
    /// The default is 0: clients run as fast as the database. With pauses the load leaves CPU free, as most servers do.
    /// pgbench's load has none, so the two together are refused.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub think: u32,

    /// Least time of each phase [default: 20, with --quick 1].
    ///
    /// Backups run one after another until it is over; one at least is made.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    pub phase: Option<u16>,

    /// Directories for the stripes, in turn [default: --work].
    ///
    /// Give a directory on another disk than --work's, where the database is, if that is how you back up.
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Stripes of each backup.
    ///
    /// The default is 1, as for a backup with one --to.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub stripes: u8,

    /// Further phases in which each algorithm may use so much CPU.
    ///
    /// Percent of the whole machine, as `longshore backup --max-cpu`. Without it all phases run without a limit. Programs of --peer
    /// have no such limit.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent)]
    pub max_cpu: Option<f64>,

    /// How often all phases are repeated.
    ///
    /// The default is 1; the headline of fewer than 3 says that chance may decide. Every other round has them in the opposite order, and the table has medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub rounds: u8,

    /// Further phases with backups of this program, which must be installed. Repeatable.
    ///
    /// Without it only our own backups are made. It backs up the same cluster, so --database sqlite is refused. The report names its settings. As root it runs as the
    /// server's user, who must be able to enter --dir.
    #[arg(long, value_name = "PROGRAM", value_enum)]
    pub peer: Vec<LoadPeer>,

    /// Directory for the database, and for samples, which are kept.
    ///
    /// The default is in the working directory. As root, user postgres must be able to enter it.
    #[arg(long, value_name = "DIR", default_value = WORK)]
    pub work: PathBuf,

    /// A trial run: a small database, short and few phases. The numbers mean little.
    ///
    /// For trying out the command and its outputs; the report says that it was a trial.
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub written: OutputOptions,
}

const TEACH_LOAD: &str = "\
Examples:
  longshore lab sample tprocc --size 800M --wal orders.db
  longshore lab load sqlite:orders.db --clients 2 --seconds 60 --log load.log

Not for: a database that somebody needs: the transactions change it.";

/// Puts transactions on a database that has the tables of the sample tprocc or stae.
///
/// The tables say which: TPC-C-like ones, or those of a brokerage house. For a backup of your own next to it; `longshore lab oltp` does both. The log has a line for each transaction, in the
/// form of pgbench's log.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_LOAD)]
pub struct Load {
    /// The database: sqlite:FILE or a connection string of PostgreSQL.
    #[arg(value_name = "DATABASE")]
    pub database: OsString,

    /// Sessions that run transactions.
    ///
    /// The default is 4. SQLite has one writer at a time, so more clients only wait longer.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub clients: u16,

    /// Seconds that the load runs.
    ///
    /// The default is 60. Ctrl-C ends the load earlier, with its log complete.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,

    /// Milliseconds that a client waits after each transaction.
    ///
    /// The default is 0: clients run as fast as the database.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub think: u32,

    /// Write a line for each transaction to this file, which must not exist.
    ///
    /// Client, number, microseconds, kind, and the wall time of its end, as pgbench logs it. Without it only the
    /// totals are printed.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}
