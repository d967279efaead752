//! `longshore backup`.

use std::ffi::OsString;

use clap::{ArgGroup, Args, ValueEnum};
use longshore_codec::{Algorithm, Level};
use longshore_media::{DeviceSpec, Disposition};
use longshore_pipeline::{Against, OnChange};

use super::values::{self, Pair};
use super::{Moving, Offloading};

const TEACH: &str = "\
Examples:
  longshore backup app.db --to /mnt/a/app.bak --to /mnt/b/app.bak
      two stripes; the database may be in use
  longshore backup /srv/data --to /mnt/a/data.bak --algorithm ZSTD --level 3
      a directory tree
  longshore backup app.db --to nul:
      how fast could it be? Reads and compresses, keeps nothing
  longshore backup app.db --to - | ssh vault 'cat > app.bak'
      through a pipe
  longshore backup 'postgres:///postgres?host=/var/run/postgresql' --to /mnt/a/pg.bak
      a running PostgreSQL cluster, all databases, with the log that makes it consistent
  longshore backup sales --differential --or-full
      what changed since the last full backup at its target, or everything where there is none
  longshore backup sales --target nightly
      a database and a target named in the configuration

Not for: the files of a running server (PostgreSQL's data directory, MySQL's) as a file tree: copied
while they change, they are no backup. Not a synchroniser either: every backup is a new set.";

/// Backs up one database or file tree to one or more devices.
///
/// A SQLite database is read as one committed moment, while others write to it; so is a PostgreSQL cluster, whose
/// connection string is libpq's (docs/postgres.md). Files are read as they
/// stand, and those that change meanwhile are reported and the set is marked. The set becomes valid at the
/// very end; interrupted at any moment, nothing half-valid is left.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH,
    group = ArgGroup::new("where").args(["to", "target"]),
    group = ArgGroup::new("disposing").args(["append", "init", "format"]))]
pub struct Backup {
    /// sqlite:FILE, files:PATH..., postgres://..., a path, or the name of a configured database.
    ///
    /// One path alone is looked at: a SQLite database is recognised by its first bytes, everything else is files.
    /// A word without `/` that names a [database.NAME] of the configuration is that database; write ./NAME
    /// for a file of the same name.
    #[arg(value_name = "SOURCE", required = true, num_args = 1..)]
    pub source: Vec<OsString>,

    /// A device: a path, nul: (keeps nothing), or - (standard output). Repeat for more stripes.
    ///
    /// 1 to 64, all of one kind. Stripes on different disks add their write speeds; compression uses all CPUs
    /// with one stripe as with many, so do not add stripes for CPU's sake. Losing one stripe loses the backup.
    #[arg(long, value_name = "DEVICE", value_parser = values::device())]
    pub to: Vec<DeviceSpec>,

    /// A target of the configuration: a new media set, one stripe in each of its directories.
    ///
    /// The default, without --to, is the one that the configured database names.
    /// The stripes are DIRECTORY/DATABASE/LABEL/family-N.bak; the label tells the UTC time, such as
    /// 20270131T020000Z-full-1a2b3c4d (docs/repository.md). The directories must exist (an unmounted disk is not filled
    /// unnoticed); what is below them is created.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// The database's name in media and history.
    ///
    /// The default is the configured name, else the file's name without extension, else the directory's.
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    pub database: Option<String>,

    /// NONE, MS_XPRESS, QAT_DEFLATE, ZSTD or LZ4.
    ///
    /// QAT_DEFLATE (the default): gzip, fast on any CPU. ZSTD: smaller at a lower speed. LZ4: fastest to restore.
    /// MS_XPRESS: SQL Server's default, for comparison. NONE: for data that is compressed already; checksums
    /// stay. The default can be set in the configuration's [defaults].
    #[arg(long, short, value_name = "ALGORITHM", value_parser = values::algorithm)]
    pub algorithm: Option<Algorithm>,

    /// LOW, MEDIUM, HIGH, or a number of the algorithm's own scale.
    ///
    /// QAT_DEFLATE 1 to 12, ZSTD -7 to 22, LZ4 1 to 12, MS_XPRESS 1 to 3. The default is LOW, SQL Server's; it
    /// costs the least CPU. Higher levels pay off when the device is slower than the compression.
    #[arg(long, short, value_name = "LEVEL", value_parser = values::level, allow_hyphen_values = true)]
    pub level: Option<Level>,

    /// Decode and check the whole set after it was written.
    ///
    /// Reads every stripe back and compares every checksum, as `longshore verify` does. Costs about as long
    /// as a restore without its writing. Not possible for nul: and -.
    #[arg(long)]
    pub verify: bool,

    #[command(flatten)]
    pub differing: Differing,

    #[command(flatten)]
    pub disposing: Disposing,

    #[command(flatten)]
    pub labels: Labels,

    #[command(flatten)]
    pub reading: Reading,

    #[command(flatten)]
    pub postgres: Postgres,

    #[command(flatten)]
    pub offloading: Offloading,

    #[command(flatten)]
    pub moving: Moving,
}

/// Storing only what differs from another backup.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("differing").args(["differential", "incremental"]))]
pub struct Differing {
    /// Store only what differs from the last full backup. PostgreSQL only.
    ///
    /// Whole files where they are new, else the pages that changed. A restore needs this backup and the full one. At a
    /// target the base is found there; for devices name it with --base, or append to the media that hold it.
    #[arg(long)]
    pub differential: bool,

    /// Store only what differs from the newest backup, full or not.
    ///
    /// Smaller than --differential; a restore needs every backup between this one and the full one.
    #[arg(long)]
    pub incremental: bool,

    /// A stripe of the media set that holds the base. Repeat for all of its stripes.
    ///
    /// Not for targets, where the base is found by itself. With --append the base may be on the media that are
    /// appended to, and need not be named.
    #[arg(long, hide_short_help = true, value_name = "DEVICE", value_parser = values::device(),
        requires = "differing", conflicts_with = "target")]
    pub base: Vec<DeviceSpec>,

    /// Make a full backup where there is no base that can be used.
    #[arg(long, hide_short_help = true, requires = "differing")]
    pub or_full: bool,
}

impl Differing {
    pub fn against(&self) -> Option<Against> {
        match (self.differential, self.incremental) {
            (true, _) => Some(Against::LastFull),
            (_, true) => Some(Against::Newest),
            _ => None,
        }
    }
}

/// What becomes of media that stand on the devices already.
#[derive(Debug, Args)]
#[command(next_help_heading = "Media")]
pub struct Disposing {
    /// Add a backup set behind those on the media (NOINIT).
    ///
    /// Name all stripes. The sets there are not touched; a crash leaves them as they were. Without --append,
    /// --init or --format, devices that hold anything are refused.
    #[arg(long)]
    pub append: bool,

    /// Replace all backup sets of the media, keeping its name (INIT).
    ///
    /// Refused while a set has not expired, unless --skip is given. The old sets stay until the new one is
    /// complete.
    #[arg(long)]
    pub init: bool,

    /// With --init: overwrite sets that have not expired too.
    #[arg(long, hide_short_help = true, requires = "init")]
    pub skip: bool,

    /// Write a new media set over whatever stands there (FORMAT).
    ///
    /// Nothing is asked: sets that have not expired and files that are no backups are overwritten, too. Databases of
    /// SQLite and what is backed up are not.
    #[arg(long)]
    pub format: bool,
}

impl Disposing {
    pub fn disposition(&self) -> Disposition {
        match self {
            Disposing { append: true, .. } => Disposition::Append,
            Disposing {
                init: true, skip, ..
            } => Disposition::Init { skip: *skip },
            Disposing { format: true, .. } => Disposition::Format,
            _ => Disposition::New,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Labels")]
pub struct Labels {
    /// Name of the backup set, at most 128 characters.
    #[arg(long, value_name = "TEXT", value_parser = values::name)]
    pub name: Option<String>,

    /// Description of the backup set, at most 255 characters.
    #[arg(long, hide_short_help = true, value_name = "TEXT", value_parser = values::description)]
    pub description: Option<String>,

    /// Name of the media set; with --append or --init it must be the one on the media.
    #[arg(long, hide_short_help = true, value_name = "TEXT", value_parser = values::name)]
    pub media_name: Option<String>,

    /// Description of a new media set, at most 255 characters.
    #[arg(long, hide_short_help = true, value_name = "TEXT", value_parser = values::description)]
    pub media_description: Option<String>,

    /// Mark the set as made out of turn: no later differential will build on it.
    #[arg(long, hide_short_help = true)]
    pub copy_only: bool,

    /// When --init may overwrite the set: a date, or a moment such as 2027-01-31T06:00:00+01:00.
    #[arg(long, hide_short_help = true, value_name = "DATE", value_parser = values::moment)]
    pub expires: Option<i64>,

    /// Days during which --init may not overwrite the set.
    ///
    /// The default is [defaults] retain_days of the configuration, else 0: it may be overwritten at once.
    #[arg(long, value_name = "DAYS", conflicts_with = "expires",
        value_parser = clap::value_parser!(u32).range(0..=99_999))]
    pub retain_days: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Changed {
    /// Report the file and mark the set as damaged; exit code 5.
    Mark,
    /// Fail the backup at the first such file.
    Fail,
}

impl From<Changed> for OnChange {
    fn from(changed: Changed) -> OnChange {
        match changed {
            Changed::Mark => OnChange::Mark,
            Changed::Fail => OnChange::Fail,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Reading")]
pub struct Reading {
    /// What to do when a file changes while it is read.
    ///
    /// For files; a SQLite database is always one moment. `mark` keeps going, because one log file in a million
    /// should not cost the night's backup.
    #[arg(long, value_name = "WHAT", value_enum, default_value = "mark")]
    pub on_change: Changed,

    /// Treat a directory as a volume of its own, read in parallel with the others.
    ///
    /// Volumes are found by mount point; this is for storage that is faster than one reader, or for one machine
    /// that must play several.
    #[arg(long, hide_short_help = true, value_name = "DIR=NAME", value_parser = values::pair())]
    pub volume: Vec<Pair>,

    /// End the backup when the SQLite database's log grows by more than this meanwhile.
    ///
    /// While a backup reads, the write-ahead log cannot be emptied, so it grows with every commit. The growth
    /// is reported. The default is no limit.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::positive_size)]
    pub wal_growth_limit: Option<u64>,

    /// Rely on the SQLite database's locks though it lies on a network or FUSE file system.
    ///
    /// Say so only where every program that writes to it runs on this machine and uses this very mount. Else the copy
    /// may be torn, a program that uses a write-ahead log may be killed, and the database itself may be damaged.
    #[arg(long, hide_short_help = true)]
    pub trust_locks: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "PostgreSQL")]
pub struct Postgres {
    /// Store the log that makes the backup consistent in the backup itself.
    ///
    /// The default unless the backup goes to the target whose archive has the log ([database.NAME.wal] in the
    /// configuration). A replication slot keeps the log on the server meanwhile; it ends
    /// with the backup.
    #[arg(long, hide_short_help = true)]
    pub with_wal: bool,

    /// Prove the log in this archive (`longshore wal push`).
    ///
    /// Only a backup to the archive's own target does without the log in the set: an expire removes log that the backups
    /// there do not need, and knows of no others.
    /// The default for a configured database with an archive is that one, when the backup goes to its own target.
    /// The backup is valid once the log is there. Waits for the last segment up to --wal-wait, and fails with the name of the one that is missing.
    #[arg(long, value_name = "DIR")]
    pub wal_archive: Option<std::path::PathBuf>,

    /// Seconds to wait for the log to come to the archive.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "SECONDS",
        default_value_t = 300
    )]
    pub wal_wait: u64,

    /// Let the server send its files, over the replication protocol.
    ///
    /// Needs the REPLICATION attribute, and works from any machine; the server reads and sends in one process. The
    /// default is to read the files here, by all CPUs, and this way only when they cannot be read here.
    #[arg(long)]
    pub remote: bool,

    /// Let the checkpoint at the start take its time.
    ///
    /// A backup begins with a checkpoint. The default writes as fast as the disk can; this spreads it as the server's
    /// checkpoint_completion_target says, which may take minutes before the first byte is read.
    #[arg(long, hide_short_help = true)]
    pub spread_checkpoint: bool,

    /// End the backup at the first page whose checksum is wrong.
    ///
    /// The default reports each such page with file and block, finishes, marks the set as damaged and ends with exit
    /// code 5: one bad page should not cost the rest of the night's backup.
    #[arg(long, hide_short_help = true)]
    pub fail_on_bad_page: bool,
}
