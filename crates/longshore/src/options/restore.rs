//! `longshore restore`.

use std::path::PathBuf;

use clap::Args;

use super::recovery::ClusterArgs;
use super::values::{self, Pair};
use super::{Bases, Media, Moving, Offloading};

const TEACH: &str = "\
Examples:
  longshore restore /mnt/a/app.bak /mnt/b/app.bak --to /srv/restored
      the last set, into a directory
  longshore restore --database sales --to /srv/restored
      the latest backup at the database's target
  longshore restore tuesday.bak --base sunday.bak monday.bak --to /srv/restored
      a differential set, with all that it needs
  longshore restore data.bak --to /tmp/one --only etc/app.conf
      one file
  longshore restore app.bak --to /srv/db --move app.db=copy.db
      under another name
  ssh vault 'cat app.bak' | longshore restore - --to /srv/restored
      from a pipe
  longshore restore pg.bak --to /srv/pg/data --target-time '2027-01-31 06:00:00+01' \\
      --wal-archive /mnt/backup/longshore/main-wal
      a PostgreSQL cluster, as it was at that moment

Not for: checking a backup (`longshore verify` writes nothing), or unpacking next to a running
application: stop it first, or restore elsewhere and let it open the copy.";

/// Restores a backup set, or some of its files, into a directory.
///
/// Everything is unpacked beside the target's names and moved in at the end: a restore that cannot finish
/// leaves nothing that looks like a database. Existing files are not overwritten unless --replace says so.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH)]
pub struct Restore {
    #[command(flatten)]
    pub media: Media,

    #[command(flatten)]
    pub bases: Bases,

    /// Directory that receives the files; created when missing.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Which backup set: its number in `longshore list` (FILE = n).
    ///
    /// The default is the last set of the media; from a pipe it is the first.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub position: Option<u32>,

    /// Only this path of the set and what is below it. Repeatable.
    ///
    /// `longshore list --files` shows the paths.
    #[arg(long, value_name = "PATH")]
    pub only: Vec<PathBuf>,

    /// Restore OLD of the set as NEW below the target (MOVE). Repeatable.
    #[arg(long = "move", value_name = "OLD=NEW", value_parser = values::pair())]
    pub moves: Vec<Pair>,

    /// Overwrite files that stand in the target.
    ///
    /// The old ones are kept until the new ones are complete, and put back when the restore fails. Stop
    /// whatever uses them first: a SQLite database that a program uses is refused (3101).
    #[arg(long)]
    pub replace: bool,

    /// With --replace: replace SQLite databases that programs use, too.
    ///
    /// Such a program goes on with the old file, which has no name any more: what it reads is old, and what it
    /// commits is lost.
    #[arg(long, requires = "replace")]
    pub replace_in_use: bool,

    #[command(flatten)]
    pub cluster: ClusterArgs,

    #[command(flatten)]
    pub offloading: Offloading,

    #[command(flatten)]
    pub moving: Moving,
}
