//! `longshore wal`: what PostgreSQL calls to archive its log and to get it back.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use longshore_codec::{Algorithm, Level};
use longshore_pg::Lsn;
use longshore_pg::wal::WalName;

use super::values;

/// Archives PostgreSQL's write-ahead log, and gives it back.
///
/// The archive holds one compressed file for each segment; docs/postgres-wal.md describes it and the settings of the
/// server.
#[derive(Debug, Args)]
pub struct Wal {
    #[command(subcommand)]
    pub action: WalAction,
}

#[derive(Debug, Subcommand)]
pub enum WalAction {
    Create(WalCreate),
    Push(WalPush),
    Get(WalGet),
    Receive(WalReceive),
    List(WalList),
    Needs(WalNeeds),
}

/// Where the archive is.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("place").required(true).args(["archive", "database"]))]
pub struct Archive {
    /// The archive's own directory, made by `longshore wal create`.
    ///
    /// One cluster's log and nothing else belongs there.
    #[arg(long, value_name = "DIR")]
    pub archive: Option<PathBuf>,

    /// A database of the configuration, which knows its archive (docs/configuration.md).
    ///
    /// The archive is the one that its [database.NAME.wal] names, else DATABASE/wal below its target. Settings there
    /// count where an option is not given.
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,

    /// With --database: another target of the configuration than the database's own.
    ///
    /// The archive lies in the first of its directories.
    #[arg(long, value_name = "NAME", requires = "database")]
    pub target: Option<String>,
}

/// How far to work ahead of the server's calls.
#[derive(Debug, Clone, Args)]
pub struct Ahead {
    /// Work ahead of the server's calls, in the background.
    ///
    /// A call starts a process that goes on with the files that will be asked for next, several at once, and ends
    /// when it has done --queue-max. The answer to each call never relies on it: each proves by the archive that its
    /// file is there, or does the work itself. The default is the database's setting; --async=false goes before it.
    #[arg(long = "async", value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    pub ahead: Option<bool>,

    /// Bytes of segments that --async may take on at a time; the default is the database's, else 1G.
    ///
    /// wal push: nothing is copied but into the archive; what waits stays in pg_wal. When more than this waits there,
    /// every call warns. Segments are never dropped: when pg_wal fills its file system the server stops, with
    /// everything committed still on disk. wal get: the fetched segments wait in pg_wal/longshore, never more than this.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::positive_size)]
    pub queue_max: Option<u64>,

    /// Files that --async works on at a time; the default is twice the number of CPUs.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: Option<u32>,

    /// Only work ahead, then end: what --async starts.
    #[arg(long, hide = true)]
    pub only_ahead: bool,
}

const TEACH_CREATE: &str = "\
Examples, as the server's user:
  longshore wal create --archive /mnt/backup/longshore/main-wal
  longshore wal create --database main

Not for: scheduled jobs. Where the archive's file system is not mounted, an archive made by a job
would take the log on the disk underneath.";

/// Makes a new archive; what is one already stays as it is.
///
/// `wal push` and `wal receive` never make one: a directory that is not marked as an archive may be a mount point whose
/// file system is away. The directory above the new one must exist.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_CREATE)]
pub struct WalCreate {
    #[command(flatten)]
    pub archive: Archive,
}

const TEACH_PUSH: &str = "\
Example, in postgresql.conf:
  archive_mode = on
  archive_command = 'longshore wal push %p --archive /mnt/backup/longshore/main-wal --async'

Exit codes: 0: the file is in the archive, durably. 7: the archive has other bytes under this name,
or belongs to another cluster; somebody must look. Others: PostgreSQL tries again. None is above
125.

Not for: files outside a cluster's pg_wal; whether WAL is a segment of this cluster is checked
before it is taken.";

/// Archives one file of the log: the server's archive_command.
///
/// A segment's header must show the cluster and the place that its name says. It is compressed, written beside its
/// place, synced, renamed, and its directory synced before success is told. The same file again is success; other
/// bytes under the same name are refused, and the archive keeps what it has.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_PUSH)]
pub struct WalPush {
    /// The file as %p names it: in pg_wal, relative to the data directory.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    #[command(flatten)]
    pub archive: Archive,

    /// NONE, MS_XPRESS, QAT_DEFLATE, ZSTD or LZ4; the default is the database's, else QAT_DEFLATE.
    #[arg(long, short, value_name = "ALGORITHM", value_parser = values::algorithm)]
    pub algorithm: Option<Algorithm>,

    /// LOW (the default), MEDIUM, HIGH, or a number of the algorithm's own scale.
    #[arg(long, short, value_name = "LEVEL", value_parser = values::level, allow_hyphen_values = true)]
    pub level: Option<Level>,

    /// Decode everything that was compressed before it is stored, and compare.
    #[arg(long)]
    pub verify: bool,

    #[command(flatten)]
    pub ahead: Ahead,
}

const TEACH_GET: &str = "\
Example, in postgresql.conf of a restored server:
  restore_command = 'longshore wal get %f %p --archive /mnt/backup/longshore/main-wal --async'

Exit codes: 0: the file is at its place, checked. 1: the archive does not have it, which is how
recovery learns that the log ends. 200: no answer (the archive cannot be reached, a file is damaged,
a segment is missing though later ones are there): recovery stops instead of ending early.

Not for: reading segments by hand: stock tools unpack them, `gzip -dc` for instance.";

/// Fetches one file of the log: the server's restore_command.
///
/// The file appears at its place when it was decoded, compared with its checksums and synced. That a segment is not
/// there is told only when the archive is certainly there: its identity file must be readable.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_GET)]
pub struct WalGet {
    /// The file's name, %f.
    #[arg(value_name = "NAME", value_parser = wal_name)]
    pub name: WalName,

    /// Where to put it, %p: relative to the data directory.
    #[arg(value_name = "PATH")]
    pub to: PathBuf,

    #[command(flatten)]
    pub archive: Archive,

    /// Let recovery end before a segment that is missing, though the archive has later ones.
    ///
    /// What was committed from there on is lost. Without it such a gap stops recovery (exit code 200), except on a
    /// standby, which can stream the segment from its primary or ask again.
    #[arg(long)]
    pub to_gap: bool,

    /// Also give the segment that `longshore wal receive` is still filling.
    ///
    /// For bringing back as much as there is after the server was lost; zeros stand behind what was received.
    #[arg(long)]
    pub partial: bool,

    /// Let replay make tablespaces where the log says, also where a server has files.
    ///
    /// Replay links to the directory that the log names and writes into what lies there. So a copy that recovers on the
    /// machine of its origin beyond the making of a tablespace writes into the origin's. Without this option a
    /// segment that makes one where files of a server lie stops recovery (exit code 200).
    #[arg(long)]
    pub tablespaces_as_logged: bool,

    /// Put a remark that names this restore into the histories of timelines.
    ///
    /// The server copies it into the history of the timeline that it opens on. Two restores of one backup are told
    /// apart by it; `longshore restore` writes the option with a name of its own for each.
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = values::restore_name)]
    pub restore: Option<String>,

    #[command(flatten)]
    pub ahead: Ahead,
}

const TEACH_RECEIVE: &str = "\
Examples:
  longshore wal receive postgres://backup@db1 --slot longshore --create-slot \\
      --archive /mnt/backup/longshore/main-wal
  longshore wal receive --database main

docs/postgres-wal.md has a systemd unit. Look at the slot's lag: a receiver that is down makes the
server keep its log.

Not for: servers whose archive_command archives already and that can lose a segment's worth; it
costs a connection.";

/// Receives the log as it is written, over a replication slot.
///
/// The segment being filled is kept in the archive's directory `receiving` and synced several times a second; the server
/// is told only of what is durable. Full segments go into the archive, histories too. Runs until it is stopped (SIGTERM,
/// Ctrl-C), tries again when the server is away, and goes on where it ended.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_RECEIVE)]
pub struct WalReceive {
    /// The server: a URL, or key=value pairs as for psql; the default is the database's.
    #[arg(value_name = "SERVER")]
    pub server: Option<String>,

    #[command(flatten)]
    pub archive: Archive,

    /// The replication slot: it makes the server keep what was not received yet.
    ///
    /// The default is `slot` in the database's [database.NAME.wal].
    #[arg(long, value_name = "NAME")]
    pub slot: Option<String>,

    /// Make the slot if the server does not have it.
    #[arg(long)]
    pub create_slot: bool,

    /// NONE, MS_XPRESS, QAT_DEFLATE, ZSTD or LZ4; the default is the database's, else QAT_DEFLATE.
    #[arg(long, short, value_name = "ALGORITHM", value_parser = values::algorithm)]
    pub algorithm: Option<Algorithm>,

    /// LOW (the default), MEDIUM, HIGH, or a number of the algorithm's own scale.
    #[arg(long, short, value_name = "LEVEL", value_parser = values::level, allow_hyphen_values = true)]
    pub level: Option<Level>,

    /// End when everything before this place in the log is durable.
    #[arg(long, value_name = "LSN")]
    pub until: Option<Lsn>,

    /// End with exit code 3 when the server cannot be reached, instead of trying again.
    #[arg(long)]
    pub once: bool,

    /// Seconds between two reports to the server; below half of its wal_sender_timeout.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value = "10",
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub status_interval: u32,
}

const TEACH_LIST: &str = "\
Examples:
  longshore wal list --archive /mnt/backup/longshore/main-wal
  longshore wal list --database main --verify

Not for: telling whether a backup can be restored; `longshore check` compares the two.";

/// Shows what a WAL archive has: unbroken runs of segments, and histories.
///
/// A new run on the same timeline means that segments are missing before it; exit code 5 then.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_LIST)]
pub struct WalList {
    #[command(flatten)]
    pub archive: Archive,

    /// Decode every segment and compare its checksums; exit code 1 when one is damaged.
    #[arg(long)]
    pub verify: bool,
}

const TEACH_NEEDS: &str = "\
Examples:
  longshore wal needs --archive /mnt/backup/longshore/main-wal
  longshore wal needs --archive /mnt/backup/main-wal --forget 7b0d9c52-6f4e-4a7e-9e8c-1f6f3a0f7f11

Not for: targets that are in use. A record that is forgotten comes back with that target's next
backup or expire, and log may be removed meanwhile.";

/// Shows which targets rely on a WAL archive, and on which log.
///
/// Each target leaves a record in the archive before its first backup there is reported. `longshore expire`, at whichever
/// target, keeps what any record asks for. Exit code 5: an earlier version used the archive, so that records may be
/// missing.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_NEEDS)]
pub struct WalNeeds {
    #[command(flatten)]
    pub archive: Archive,

    /// Remove the record of a target that is gone.
    #[arg(long, value_name = "ID")]
    pub forget: Option<uuid::Uuid>,

    /// Every target that relies on the archive has a record there now: log may be removed again.
    ///
    /// For archives of versions that left no records. Run `longshore expire`, or a backup, at each target before.
    #[arg(long)]
    pub complete: bool,
}

fn wal_name(text: &str) -> Result<WalName, String> {
    text.parse()
}
