//! `longshore restore`: its options, and what its help says.
//!
//! Invariants
//! - There is no default for the target, and nothing is overwritten without `--replace`: no restore writes over the
//!   original by accident.
//! - Each option has its default with the reason, and the help says what the command is not for.
//!
//! Leaves to others: what the options mean together (`commands/restore.rs`), and the recovery of clusters
//! (`options/recovery.rs`).

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::recovery::ClusterArgs;
use super::values::{self, Pair};
use super::{Bases, Media, OffloadOptions, SetKeyOptions, TransferOptions};

const TEACH: &str = "\
Examples:
  longshore restore /mnt/a/app.bak /mnt/b/app.bak --to /srv/restored
      the last set, into a directory
  longshore restore --database sales --to /srv/restored
      the latest backup at the database's target
  longshore restore tuesday.bak --base sunday.bak monday.bak --to /srv/restored
      a differential set and the sets that it needs
  longshore restore data.bak --to /tmp/one --only etc/app.conf
      one file
  longshore restore app.bak --to /srv/db --move app.db=copy.db
      under another name
  ssh vault 'cat app.bak' | longshore restore - --to /srv/restored
      from a pipe
  longshore restore pg.bak --to /srv/pg/data --target-time '2027-01-31 06:00:00+01' \\
      --wal-archive /mnt/backup/longshore/main-wal
      a PostgreSQL cluster, as it was at that moment

Not for: checking a backup (`longshore verify` writes nothing), or restoring next to a running
application: stop it first, or restore elsewhere and let it open the copy.";

/// Restores a backup set, or some of its files, into a directory.
///
/// Everything is restored to a staging directory and renamed into the target at the end: a restore that fails
/// leaves nothing that looks like a database. Existing files are not overwritten unless --replace is given.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH, group = ArgGroup::new("over").args(["replace", "delta"]))]
pub struct Restore {
    #[command(flatten)]
    pub media: Media,

    #[command(flatten)]
    pub bases: Bases,

    /// Directory for the restored files; created if missing.
    ///
    /// There is no default, so that no restore writes over the original by accident. For a PostgreSQL cluster it is
    /// the data directory of the copy. The file system needs room for all restored files, and with --replace also for
    /// the old ones until the end.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// The backup set's number in `longshore list` (FILE = n).
    ///
    /// The default is the last set on the media; from a pipe it is the first.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub position: Option<u32>,

    /// Restore only this path of the set and everything below it. Repeatable.
    ///
    /// `longshore list --files` shows the paths. A file's log (-wal, -shm, -journal) comes along. Nothing else in the
    /// target is replaced: directories above PATH stay. By default everything in the set is restored.
    #[arg(long, value_name = "PATH")]
    pub only: Vec<PathBuf>,

    /// Restore OLD of the set as NEW below the target (MOVE). Repeatable.
    ///
    /// OLD is a path that `longshore list --files` shows. A file's log (-wal, -shm, -journal) goes with it; directories
    /// above NEW that stand there stay. Not for tablespaces: --tablespace-map moves those. By default every path keeps its name.
    #[arg(long = "move", value_name = "OLD=NEW", value_parser = values::pair())]
    pub moves: Vec<Pair>,

    /// Overwrite existing files in the target.
    ///
    /// A directory is replaced as a whole: what the set does not have of it vanishes, which --dry-run shows. The old files
    /// are kept until the new ones are complete, and put back if the restore fails; if it is killed, by the next restore
    /// there. First stop the programs that use them: a SQLite database that a program uses is refused (3101), and so is a
    /// link to one. File systems mounted below are never replaced.
    #[arg(long)]
    pub replace: bool,

    /// With --replace: replace SQLite databases that programs use, too.
    ///
    /// Such a program goes on with the old file, which no longer has a name: it reads old data, and its commits are
    /// lost.
    #[arg(long, hide_short_help = true, requires = "replace")]
    pub replace_in_use: bool,

    /// Say what the restore would do, and write nothing.
    ///
    /// It chooses the backup, proves the WAL, reads the index of every set that it needs, and looks at the target: which
    /// files would be replaced, changed or removed, where tablespaces go, whether everything fits, and how long it took the
    /// last time. What would be refused is refused, but for what needs a lock: a program that uses a database is not
    /// noticed. Not for pipes, which can be read only once.
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub keys: SetKeyOptions,

    #[command(flatten)]
    pub cluster: ClusterArgs,

    #[command(flatten)]
    pub offloading: OffloadOptions,

    #[command(flatten)]
    pub moving: TransferOptions,
}
