//! `longshore wal`: the commands that PostgreSQL runs to archive its WAL and to fetch it again.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`wal/` in `commands`).

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use longshore_codec::{Algorithm, Level};
use longshore_pg::Lsn;
use longshore_pg::wal::WalName;

use super::values::{self, ArchivePath};
use super::{AsOf, KeyOptions};

/// Archives PostgreSQL's WAL, and fetches it for recovery.
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
    Owed(WalOwed),
}

/// Where the archive is.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("place").required(true).args(["archive", "database"]))]
pub struct Archive {
    /// The archive's directory, or s3://BUCKET/PREFIX, made by `longshore wal create`.
    ///
    /// It is for one cluster's WAL and nothing else. Without this option --database must name the archive.
    #[arg(long, value_name = "DIR", value_parser = values::archive())]
    pub archive: Option<ArchivePath>,

    /// A database of the configuration, which names its archive (docs/configuration.md).
    ///
    /// The archive is the one in its [database.NAME.wal], else DATABASE/wal below its target. The settings there are
    /// the defaults of the options. Without this option --archive must name the archive.
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,

    /// With --database: another target of the configuration than the database's own.
    ///
    /// The archive is in the first of the target's directories or buckets. By default the archive is the one in the
    /// database's [database.NAME.wal], else at the database's own target.
    #[arg(long, value_name = "NAME", requires = "database")]
    pub target: Option<String>,
}

/// How far to work ahead of the server's calls.
#[derive(Debug, Clone, Args)]
pub struct LookAheadOptions {
    /// Work ahead of the server's calls, in the background.
    ///
    /// A call starts a process that handles the files that the server will ask for next, several at a time, and ends
    /// when it has done --queue-max. No call relies on that process: each checks that its file is in the archive, or
    /// does the work itself. The default is the database's setting; --async=false overrides it.
    #[arg(long = "async", value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true")]
    pub ahead: Option<bool>,

    /// Bytes of segments that --async may queue; the default is the database's, else 1G.
    ///
    /// wal push: segments are copied only into the archive; waiting segments stay in pg_wal. If more than this waits
    /// there, every call warns. Segments are never dropped: if pg_wal fills its file system the server stops, and all
    /// commits are still on disk. wal get: fetched segments wait in pg_wal/longshore, never more than this.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::positive_size)]
    pub queue_max: Option<u64>,

    /// Files that --async works on at a time; the default is twice the number of CPUs.
    ///
    /// Twice, because a worker waits for the archive's disk after it has compressed, and the CPU is idle then. Lower it if archiving takes CPUs
    /// from the server; raise it for an archive on a network with long round trips. For an archive in a bucket the default is 8 at least.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    pub workers: Option<u32>,

    /// Only work ahead, then exit: --async starts this.
    #[arg(long, hide = true)]
    pub only_ahead: bool,
}

const TEACH_CREATE: &str = "\
Examples, as the server's user:
  longshore wal create --archive /mnt/backup/longshore/main-wal
  longshore wal create --database main

Not for: scheduled jobs. If the archive's file system is not mounted, a job would make an archive
on the disk below, and WAL would go there.";

/// Makes a new archive; an existing archive is not changed.
///
/// `wal push` and `wal receive` never make one: a directory that is not marked as an archive may be a mount point whose
/// file system is not mounted. The parent directory must exist.
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
or belongs to another cluster; an administrator must look. Others: PostgreSQL retries. None is above
125.

Not for: files outside a cluster's pg_wal; a segment of another cluster is refused.";

/// Archives one WAL file: the server's archive_command.
///
/// A segment's header must show this cluster and the LSN of the segment's name. The segment is compressed, written under
/// another name, synced and renamed, and its directory is synced, before the command reports success. Pushing the same
/// file again succeeds; other bytes under the same name are refused, and the archive keeps its file.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_PUSH)]
pub struct WalPush {
    /// The file as %p names it: in pg_wal, relative to the data directory.
    ///
    /// There is no default: without %p in archive_command it is unknown which file the server means. The server runs the
    /// command in its data directory. Not for a segment that the server still fills: use `longshore wal receive`.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    #[command(flatten)]
    pub archive: Archive,

    /// NONE, MS_XPRESS, QAT_DEFLATE, ZSTD, LZ4 or PAGES; the default is the database's, else QAT_DEFLATE.
    ///
    /// The first that names one counts: this option, [database.NAME.wal], [database.NAME], [defaults]. QAT_DEFLATE is
    /// the default because any CPU compresses it quickly and `gzip -dc` reads it. ZSTD takes less space and more CPU
    /// time; NONE is only for file systems that compress.
    #[arg(long, short, value_name = "ALGORITHM", value_parser = values::algorithm)]
    pub algorithm: Option<Algorithm>,

    /// LOW (the default), MEDIUM, HIGH, or a number of the algorithm's own scale.
    ///
    /// LOW is the default because it takes the least CPU time, and the server's archiver waits for every push. A
    /// higher level makes smaller files; use it if the machine has idle CPUs. A level belongs to an algorithm: a
    /// configured level does not apply if only --algorithm is given.
    #[arg(long, short, value_name = "LEVEL", value_parser = values::level, allow_hyphen_values = true)]
    pub level: Option<Level>,

    /// Decode and compare the compressed data before it is stored.
    ///
    /// Finds a fault of the memory or the compressor while the server still has the segment. Costs CPU time on the server's
    /// machine; `longshore wal list --verify` checks the archive later, on any machine.
    #[arg(long)]
    pub verify: bool,

    /// Encrypt for age1... or @FILE. Repeatable.
    ///
    /// A recipient begins with age1 or age1pq1; the file after @ has a recipient a line. The identity of any one of them
    /// reads the archive; this machine needs none. Histories of timelines are not encrypted. The default is `recipients` of
    /// the target, else of [encryption], unless [database.NAME.wal] has `encrypt = false`; without any, WAL is not encrypted.
    #[arg(long, value_name = "RECIPIENT")]
    pub encrypt_to: Vec<String>,

    /// Sign it with the key in this file, so that readers can tell whose it is.
    ///
    /// `longshore key new --signing FILE` makes the key; only its owner may read the file. Encrypted WAL alone can be signed.
    /// The default is `sign` of [encryption].
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub sign: Option<PathBuf>,

    #[command(flatten)]
    pub keys: KeyOptions,

    #[command(flatten)]
    pub ahead: LookAheadOptions,

    /// Only copy WAL to the database's copies, then exit: `copy_at_once` starts this.
    #[arg(long, hide = true)]
    pub only_follow: bool,
}

const TEACH_GET: &str = "\
Example, in postgresql.conf of a restored server:
  restore_command = 'longshore wal get %f %p --archive /mnt/backup/longshore/main-wal --async'

Exit codes: 0: the file was fetched and checked. 1: the archive does not have it, which tells
recovery that the WAL ends. 200: no answer (the archive cannot be reached, a file is damaged, or a
segment is missing and later ones are there): recovery stops instead of ending early.

Not for: reading segments by hand: stock tools such as `gzip -dc` decompress them.";

/// Fetches one WAL file: the server's restore_command.
///
/// The file appears under its name after it was decoded, compared with its checksums and synced. A segment is reported
/// as missing only if the archive is certainly there: its identity file must be readable.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_GET)]
pub struct WalGet {
    /// The name of the WAL file, %f.
    ///
    /// There is no default: without %f in restore_command the server's request is unknown. The server asks for segments
    /// and for histories of timelines. Not for a path: that is the second argument.
    #[arg(value_name = "NAME", value_parser = wal_name)]
    pub name: WalName,

    /// The path to write to, %p: relative to the data directory.
    ///
    /// There is no default: without %p in restore_command it is unknown where the server looks for the file. The server
    /// runs the command in its data directory. Not for a directory: the path must name a file.
    #[arg(value_name = "PATH")]
    pub to: PathBuf,

    #[command(flatten)]
    pub archive: Archive,

    /// Let recovery end before a missing segment although the archive has later ones.
    ///
    /// Later commits are lost. Without this option such a gap stops recovery (exit code 200), except on a standby, which
    /// can stream the segment from its primary or ask again.
    #[arg(long)]
    pub to_gap: bool,

    /// Also give the segment that `longshore wal receive` is still filling.
    ///
    /// To recover as much as possible after the server was lost; zeros follow the received part.
    #[arg(long)]
    pub partial: bool,

    /// Let replay create tablespaces where the WAL says, even where a server has files.
    ///
    /// Replay links to the directory that the WAL names and writes into it. So a copy that is recovered on the original's
    /// machine, past the creation of a tablespace, writes into the original's tablespace. Without this option a segment
    /// that creates a tablespace in a directory with a server's files stops recovery (exit code 200).
    #[arg(long)]
    pub tablespaces_as_logged: bool,

    /// Add a remark that names this restore to timeline history files.
    ///
    /// The server copies the remark into the history of the timeline that it opens on, where it distinguishes two
    /// restores of one backup; `longshore restore` writes this option with a new name for each. If the name ends in `.` and
    /// the UUID of the backup that was restored, as those names do, the server's later backups are known to follow that
    /// backup. Without this option the server gets history files as the archive has them.
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = values::restore_name)]
    pub restore: Option<String>,

    #[command(flatten)]
    pub keys: KeyOptions,

    #[command(flatten)]
    pub past: AsOf,

    #[command(flatten)]
    pub ahead: LookAheadOptions,
}

const TEACH_RECEIVE: &str = "\
Examples:
  longshore wal receive postgres://backup@db1 --slot longshore --create-slot \\
      --archive /mnt/backup/longshore/main-wal
  longshore wal receive --database main

In a bucket, the archive lags up to one segment, and the receiver is no synchronous standby.
docs/postgres-wal.md has a systemd unit. Monitor the slot's lag: while the receiver is down, the
server keeps its WAL.

Not for: servers that have an archive_command and can lose the last segment; the receiver costs a
connection.";

/// Receives WAL as the server writes it, over a replication slot.
///
/// The segment being filled is kept in the archive's directory `receiving` and synced several times a second; for an
/// archive in a bucket it is kept in memory, until all of it is in the bucket. The receiver reports only durable WAL to
/// the server. Full segments and timeline history files go into the archive. Runs
/// until it is stopped (SIGTERM, Ctrl-C), reconnects if the server is away, and continues where it stopped.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_RECEIVE)]
pub struct WalReceive {
    /// The server: a URL, or key=value pairs as for psql; the default is the database's.
    #[arg(value_name = "SERVER")]
    pub server: Option<String>,

    #[command(flatten)]
    pub archive: Archive,

    /// The replication slot: it makes the server keep WAL that was not received yet.
    ///
    /// The default is `slot` in the database's [database.NAME.wal]; with --database and --create-slot
    /// it is `longshore`. Without these there is no default: a slot belongs to one receiver, and only
    /// you know to which.
    #[arg(long, value_name = "NAME")]
    pub slot: Option<String>,

    /// Make the slot if the server does not have it.
    ///
    /// Also in a unit: where a slot was dropped and the server has removed WAL since that the archive lacks, the receiver ends with an error
    /// and skips nothing.
    #[arg(long)]
    pub create_slot: bool,

    /// NONE, MS_XPRESS, QAT_DEFLATE, ZSTD, LZ4 or PAGES; the default is the database's, else QAT_DEFLATE.
    ///
    /// The first that names one counts: this option, [database.NAME.wal], [database.NAME], [defaults]. QAT_DEFLATE is
    /// the default because any CPU compresses it quickly and `gzip -dc` reads it. ZSTD takes less space and more CPU
    /// time; NONE is only for file systems that compress.
    #[arg(long, short, value_name = "ALGORITHM", value_parser = values::algorithm)]
    pub algorithm: Option<Algorithm>,

    /// LOW (the default), MEDIUM, HIGH, or a number of the algorithm's own scale.
    ///
    /// LOW is the default because it takes the least CPU time, and a receiver that is slower than the server falls
    /// behind. A higher level makes smaller files; use it if the machine has idle CPUs. A level belongs to an
    /// algorithm: a configured level does not apply if only --algorithm is given.
    #[arg(long, short, value_name = "LEVEL", value_parser = values::level, allow_hyphen_values = true)]
    pub level: Option<Level>,

    /// Encrypt for age1... or @FILE. Repeatable.
    ///
    /// A recipient begins with age1 or age1pq1; the file after @ has a recipient a line. The identity of any one of them
    /// reads the archive; this machine needs none. Histories of timelines are not encrypted. The default is `recipients` of
    /// the target, else of [encryption], unless [database.NAME.wal] has `encrypt = false`; without any, WAL is not encrypted.
    #[arg(long, value_name = "RECIPIENT")]
    pub encrypt_to: Vec<String>,

    /// Sign it with the key in this file, so that readers can tell whose it is.
    ///
    /// `longshore key new --signing FILE` makes the key; only its owner may read the file. Encrypted WAL alone can be signed.
    /// The default is `sign` of [encryption].
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub sign: Option<PathBuf>,

    #[command(flatten)]
    pub keys: KeyOptions,

    /// End when everything before this LSN is durable.
    ///
    /// For scripts that need the WAL of one moment, such as pg_current_wal_lsn() after a change. An archive in a bucket has
    /// it when the whole segment is there: end the segment with pg_switch_wal(). By default the receiver runs until it is
    /// stopped.
    #[arg(long, value_name = "LSN")]
    pub until: Option<Lsn>,

    /// End with exit code 3 if the server cannot be reached, instead of retrying.
    ///
    /// For supervisors that restart a failed program themselves, and for trying out a connection string. A slot that a
    /// receiver which has just ended still holds is waited for, for half a minute.
    #[arg(long)]
    pub once: bool,

    /// Seconds between two status reports to the server; less than half of its wal_sender_timeout.
    ///
    /// The default is 10, as for pg_receivewal; wal_sender_timeout is 60 by default. Lower it
    /// if the server's wal_sender_timeout is below 20 seconds, or it would end the connection.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value = "10",
        value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub status_interval: u32,
}

const TEACH_LIST: &str = "\
Examples:
  longshore wal list --archive /mnt/backup/longshore/main-wal
  longshore wal list --database main --verify

Not for: telling whether a backup can be restored; `longshore check` compares the two.";

/// Shows a WAL archive's unbroken runs of segments, and its timeline histories.
///
/// A second run on the same timeline means that segments before it are missing; exit code 5 then.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_LIST)]
pub struct WalList {
    #[command(flatten)]
    pub archive: Archive,

    #[command(flatten)]
    pub past: AsOf,

    #[command(flatten)]
    pub keys: KeyOptions,

    /// Decode every segment and compare its checksums; exit code 1 if one is damaged.
    ///
    /// Reads every byte of the archive, so it takes long for a large one; run it after a fault of the archive's disk.
    #[arg(long)]
    pub verify: bool,
}

const TEACH_NEEDS: &str = "\
Examples:
  longshore wal needs --archive /mnt/backup/longshore/main-wal
  longshore wal needs --archive /mnt/backup/main-wal --forget 7b0d9c52-6f4e-4a7e-9e8c-1f6f3a0f7f11

Not for: targets that are in use. A removed record comes back with that target's next backup or
expire, and WAL may be removed meanwhile.";

/// Shows which targets rely on a WAL archive, and on which WAL.
///
/// Each target leaves a record in the archive before its first backup there is reported. `longshore expire` at any
/// target keeps the WAL that any record names. A server leaves one in copies' archives as long as its own archive is owed
/// WAL (`longshore wal owed`). Exit code 5: an earlier version used the archive, so that records may be
/// missing.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_NEEDS)]
pub struct WalNeeds {
    #[command(flatten)]
    pub archive: Archive,

    /// Remove the record of a target, or of a server's debt, that no longer exists.
    ///
    /// The next expire can then remove the WAL that only this record keeps. The table without this option shows the IDs.
    #[arg(long, value_name = "ID")]
    pub forget: Option<uuid::Uuid>,

    /// Declare that every target that relies on the archive has a record, so that WAL may be removed again.
    ///
    /// For archives of versions that left no records. First run `longshore expire` or a backup at each target.
    #[arg(long)]
    pub complete: bool,
}

const TEACH_OWED: &str = "\
Examples, as the server's user:
  longshore wal owed --database main
  longshore wal owed --database main --settle
  longshore wal owed --database main /var/lib/postgresql/17/main/pg_wal

Exit code 5: something is owed still, or a copy may keep more WAL than is owed.

Not for: gaps for other reasons; `longshore check` finds those, and `longshore copy` fills them.";

/// Shows what a database's own WAL archive is owed, because it was away while pushes succeeded.
///
/// With `home_behind` a push succeeds while the own archive is away and a copy's archive has the file. The list of these files is in the
/// cluster's pg_wal, and the pushes that follow bring them. This command shows the list, also where no server runs.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_OWED)]
pub struct WalOwed {
    /// A database of the configuration (docs/configuration.md).
    ///
    /// There is no default: the list can have files of several databases that archive one cluster's WAL.
    #[arg(long, value_name = "NAME")]
    pub database: String,

    /// The cluster's pg_wal; the default is that of the running server.
    ///
    /// The default needs a connection over a socket of this machine in the database's `url`, and the right to read the data directory.
    #[arg(value_name = "PG_WAL")]
    pub pg_wal: Option<PathBuf>,

    /// Bring now what can be brought, as pushes do.
    ///
    /// For a server that archives nothing for a while, or no longer. Each file is compared with the content that the server archived.
    #[arg(long)]
    pub settle: bool,

    /// Make what the list owes to another database a debt to this one.
    ///
    /// For a [database.NAME] that was renamed. A database that the configuration has keeps its own debts. Without this option every
    /// debt stays with its database.
    #[arg(long, value_name = "OTHER")]
    pub take: Option<String>,

    /// Take the files that are lost from the list: no copy in reach, nor pg_wal, has them.
    ///
    /// Later moments can be recovered after a full backup. The table without this option names the files. It is refused while a copy
    /// of the configuration cannot be looked at, and leaves what a copy has again.
    #[arg(long, conflicts_with = "settle")]
    pub give_up: bool,

    /// With --settle: encrypt for age1... or @FILE, as in archive_command. Repeatable.
    ///
    /// It is needed where archive_command has this option, since files that pg_wal still has are stored as a push stores them. The
    /// default is `recipients` of the target, else of [encryption], unless [database.NAME.wal] has `encrypt = false`.
    #[arg(
        long,
        value_name = "RECIPIENT",
        hide_short_help = true,
        requires = "settle"
    )]
    pub encrypt_to: Vec<String>,

    /// With --settle: sign with the key in this file, as in archive_command.
    ///
    /// Encrypted WAL alone can be signed. The default is `sign` of [encryption].
    #[arg(long, value_name = "FILE", hide_short_help = true, requires = "settle")]
    pub sign: Option<PathBuf>,

    #[command(flatten)]
    pub keys: KeyOptions,
}

fn wal_name(text: &str) -> Result<WalName, String> {
    text.parse()
}
