//! `longshore backup`: the source, the devices, and how to read and store.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`backup.rs` in `commands`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use longshore_codec::{Algorithm, Level};
use longshore_media::{DeviceSpec, Disposition};
use longshore_pipeline::{Against, OnChange};

use super::values::{self, ArchivePath, Pair};
use super::{KeyOptions, OffloadOptions, ResultOptions, TransferOptions};

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
      a running PostgreSQL cluster, all databases, with the WAL that makes it consistent
  longshore backup sales --differential --or-full
      only the changes since the last full backup at its target, or everything if there is none
  longshore backup sales --target nightly
      a database and a target named in the configuration

Not for: the data directory of a running server (PostgreSQL, MySQL) as a file tree: files that
change while they are copied are not a backup. Nor for synchronising: every backup is a new set.";

/// Backs up one database or file tree to one or more devices.
///
/// A SQLite database is read as one committed moment, while other programs write to it; so is a PostgreSQL cluster, whose
/// connection string is libpq's (docs/postgres.md). Files are read as they are; files that change during the backup are
/// reported, and the set is marked. The set becomes valid only at the very end; an interrupted backup leaves nothing
/// half-valid.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH,
    group = ArgGroup::new("where").args(["to", "target"]),
    group = ArgGroup::new("disposing").args(["append", "init", "format"]))]
pub struct Backup {
    /// sqlite:FILE, files:PATH..., postgres://..., a path, or a configured database.
    ///
    /// If one path is given, a SQLite database is recognised by its first bytes; everything else is files.
    /// A word without `/` that names a [database.NAME] of the configuration is that database; write ./NAME
    /// for a file of the same name.
    #[arg(value_name = "SOURCE", required = true, num_args = 1.., value_parser = values::source())]
    pub source: Vec<OsString>,

    /// A path, s3://BUCKET/KEY, nul:, or - (standard output). Repeatable.
    ///
    /// 1 to 64 stripes, all of one kind; nul: keeps nothing. Stripes on different disks add up their write throughput.
    /// Compression uses all CPUs even with one stripe, so more stripes do not help there. Losing one stripe loses the
    /// backup, unless --parity is given. az://CONTAINER/KEY and gs://BUCKET/KEY are objects, too; docs/buckets.md says how to reach a bucket.
    /// Without --to the stripes go to --target, else to the configured database's target.
    #[arg(long, value_name = "DEVICE", value_parser = values::device())]
    pub to: Vec<DeviceSpec>,

    /// How many of the devices, the last ones, get parity of the others: 0 to 8.
    ///
    /// As many stripes, whichever they are, may then be lost or damaged: restores and verifies go on without them, and
    /// `longshore repair` writes them once more. A parity stripe is about as long as the longest other one. The default
    /// is `parity` of the target ([target.NAME]) for a backup to it, and 0 for --to. Media with parity stripes hold one
    /// backup set, so --append is refused on them. Not for one disk: parity there costs space and guards against little.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=8))]
    pub parity: Option<u16>,

    /// How many devices may fail during the backup, at most as many as have parity.
    ///
    /// The backup goes on without a device that fails: parity stands for its stripe. It ends DEGRADED, with exit code 5, and
    /// names the stripes; it can be restored, and `longshore repair` writes the stripes once more when the devices are back or
    /// were replaced. The default is `tolerate` of the target, else 0: such a backup fails. A device that is gone before
    /// the first byte is written, and one that is silent for ever, are not covered.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=8))]
    pub tolerate: Option<u16>,

    /// A target of the configuration: a new stripe in each directory.
    ///
    /// The stripes make a new media set. The default, without --to, is the configured database's target. The stripes are
    /// DIRECTORY/DATABASE/LABEL/family-N.bak; the label begins with the UTC time, such as
    /// 20270131T020000Z-full-1a2b3c4d (docs/repository.md). The target's directories must exist, so that the disk below
    /// an unmounted file system is not filled; directories below them are created.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// The database's name in media and history.
    ///
    /// The default is the configured name, else the file's name without extension, else the directory's name.
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    pub database: Option<String>,

    /// NONE, MS_XPRESS, QAT_DEFLATE, ZSTD, LZ4 or PAGES.
    ///
    /// QAT_DEFLATE (the default): gzip, fast on any CPU. ZSTD: smaller at a lower speed. LZ4: fastest to restore.
    /// PAGES: for pages of PostgreSQL and SQLite, whose columns it compresses one by one; no stock tool reads the stripes.
    /// MS_XPRESS: SQL Server's default, for comparison. NONE: for data that is already compressed; checksums are
    /// kept. The default can be set in the configuration's [defaults].
    #[arg(long, short, value_name = "ALGORITHM", value_parser = values::algorithm)]
    pub algorithm: Option<Algorithm>,

    /// LOW, MEDIUM, HIGH, or a number of the algorithm's own scale.
    ///
    /// QAT_DEFLATE 1 to 12, ZSTD -7 to 22, LZ4 1 to 12, MS_XPRESS and PAGES 1 to 3. The default is LOW, as in SQL
    /// Server; it costs the least CPU time. A higher level pays off if the device is slower than the compression.
    #[arg(long, short, value_name = "LEVEL", value_parser = values::level, allow_hyphen_values = true)]
    pub level: Option<Level>,

    /// Decode and check the whole set after it was written.
    ///
    /// Reads every stripe and compares every checksum, as `longshore verify` does. Takes about as long as a restore
    /// that writes nothing. Not possible for nul: and -.
    #[arg(long)]
    pub verify: bool,

    /// Encrypt for age1..., @FILE, passphrase:FILE, command:ID. Repeatable.
    ///
    /// A recipient begins with age1 or age1pq1. The file after @ has a recipient a line, or is a certificate; that after
    /// passphrase: has the passphrase in its first line. command:ID is a key that `wrap_command` of [encryption] wraps for. The identity of any one of them opens the backup; this machine needs none
    /// (`longshore key`). Names and contents are encrypted, but not the sizes, the database's name and the other facts that
    /// `longshore list` shows. The default is `recipients` of the target, else of [encryption]; without any, the backup is
    /// not encrypted.
    #[arg(long, value_name = "RECIPIENT")]
    pub encrypt_to: Vec<String>,

    /// Keep the slots that open it away from its media, in key objects at --keys.
    ///
    /// Media and an identity alone then open nothing, and `longshore key shred` destroys this one backup,
    /// wherever copies of its stripes are. Whoever removes the key objects destroys it, too: name two places. The default
    /// for a target is whether it has `keys`.
    #[arg(long, hide_short_help = true)]
    pub keys_detached: bool,

    /// A place of detached keys: a directory, or a prefix in a bucket. Repeatable.
    ///
    /// Each gets the key object with --keys-detached; a base with detached keys is opened by what is there. The default is `keys` of the
    /// target. A directory must exist.
    #[arg(long = "keys", value_name = "PLACE", hide_short_help = true)]
    pub key_places: Vec<String>,

    /// Sign it with the key in this file, so that readers can tell whose it is.
    ///
    /// `longshore key new --signing FILE` makes the key; only its owner may read the file. Encrypted backups alone can be signed.
    /// The default is `sign` of [encryption].
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub sign: Option<PathBuf>,

    #[command(flatten)]
    pub keys: KeyOptions,

    #[command(flatten)]
    pub differing: DifferentialOptions,

    #[command(flatten)]
    pub disposing: DispositionOptions,

    #[command(flatten)]
    pub labels: Labels,

    #[command(flatten)]
    pub reading: ReadOptions,

    #[command(flatten)]
    pub postgres: Postgres,

    #[command(flatten)]
    pub offloading: OffloadOptions,

    #[command(flatten)]
    pub results: ResultOptions,

    #[command(flatten)]
    pub moving: TransferOptions,
}

/// Storing only what differs from another backup.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("differing").args(["differential", "incremental"]))]
pub struct DifferentialOptions {
    /// Store only what differs from the last full backup.
    ///
    /// New files are stored whole, others by the pages that changed. A restore needs this backup and the full one. At a
    /// target the base is found there; for devices name it with --base, or append to the media that hold it. A base of
    /// SQLite or files on devices was made with --page-sums.
    #[arg(long)]
    pub differential: bool,

    /// Store only what differs from the newest backup, full or not.
    ///
    /// Smaller than --differential; a restore needs every backup between this one and the full one.
    #[arg(long)]
    pub incremental: bool,

    /// Keep page sums, so that later backups can differ from this one.
    ///
    /// Backups of PostgreSQL and backups to a target have them in any case. For SQLite and files on devices they are left
    /// out otherwise: they cost 0.12 CPU seconds for each GB and 0.2 % of the bytes.
    #[arg(long, hide_short_help = true)]
    pub page_sums: bool,

    /// A stripe of the media set that holds the base. Repeat for all of its stripes.
    ///
    /// Not for targets, where the backup finds its base itself. Without --base, a differential backup to devices needs
    /// --append and finds its base on the media that it adds to; any other is refused.
    #[arg(long, hide_short_help = true, value_name = "DEVICE", value_parser = values::device(),
        requires = "differing", conflicts_with = "target")]
    pub base: Vec<DeviceSpec>,

    /// Make a full backup if no base can be used.
    ///
    /// For scheduled jobs: the first backup at a target has no base. Without this option such a backup fails and says why.
    /// Do not use it if a full backup would not fit into the window.
    #[arg(long, hide_short_help = true, requires = "differing")]
    pub or_full: bool,
}

impl DifferentialOptions {
    pub fn against(&self) -> Option<Against> {
        match (self.differential, self.incremental) {
            (true, _) => Some(Against::LastFull),
            (_, true) => Some(Against::Newest),
            _ => None,
        }
    }
}

/// How media that are already on the devices are treated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Media")]
pub struct DispositionOptions {
    /// Add a backup set after those on the media (NOINIT).
    ///
    /// Name all stripes. The existing sets are not touched, even by a crash. Without --append, --init or --format,
    /// devices that hold anything are refused.
    #[arg(long)]
    pub append: bool,

    /// Replace all backup sets of the media, keeping its name (INIT).
    ///
    /// Refused if a set has not expired, unless --skip is given. The old sets are kept until the new one is
    /// complete.
    #[arg(long)]
    pub init: bool,

    /// With --init: overwrite sets that have not expired too.
    ///
    /// For media that must be used again before their date. Without it, --init protects each set until --expires or
    /// --retain-days of the backup that made it.
    #[arg(long, hide_short_help = true, requires = "init")]
    pub skip: bool,

    /// Write a new media set over anything that is there (FORMAT).
    ///
    /// Without asking, it overwrites sets that have not expired and files that are not backups. It never overwrites a
    /// SQLite database or the source.
    #[arg(long)]
    pub format: bool,
}

impl DispositionOptions {
    pub fn disposition(&self) -> Disposition {
        match self {
            DispositionOptions { append: true, .. } => Disposition::Append,
            DispositionOptions {
                init: true, skip, ..
            } => Disposition::Init { skip: *skip },
            DispositionOptions { format: true, .. } => Disposition::Format,
            _ => Disposition::New,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Labels")]
pub struct Labels {
    /// Name of the backup set, at most 128 characters.
    ///
    /// `longshore list` and the history show it, for people. Restores choose a set by number or by label. The name
    /// is empty by default.
    #[arg(long, value_name = "TEXT", value_parser = values::name)]
    pub name: Option<String>,

    /// Description of the backup set, at most 255 characters.
    ///
    /// `longshore list --json` and RESTORE HEADERONLY show it. It is empty by default. Use it for what the name has
    /// no room for, such as the reason of a backup; no command chooses a set by it.
    #[arg(long, hide_short_help = true, value_name = "TEXT", value_parser = values::description)]
    pub description: Option<String>,

    /// Name of the media set; with --append or --init it must be the one on the media.
    ///
    /// It keeps a job from adding to the wrong media, or from replacing them. By default a new media set has an empty
    /// name, and --append and --init accept media of any name.
    #[arg(long, hide_short_help = true, value_name = "TEXT", value_parser = values::name)]
    pub media_name: Option<String>,

    /// Description of a new media set, at most 255 characters.
    ///
    /// It is part of every stripe's label. It is empty by default. --append and --init keep the description of the
    /// existing media, so the option has no effect there.
    #[arg(long, hide_short_help = true, value_name = "TEXT", value_parser = values::description)]
    pub media_description: Option<String>,

    /// Mark the set as made out of turn: later differentials do not build on it.
    ///
    /// For a copy that leaves the site: without this option the next differential needs that copy for its restore.
    #[arg(long, hide_short_help = true)]
    pub copy_only: bool,

    /// When --init may overwrite the set: a date, or a moment such as 2027-01-31T06:00:00+01:00.
    ///
    /// A date means its midnight in this machine's time zone. The default is --retain-days. `longshore expire` keeps
    /// the set until then, too. --format and --skip overwrite the set at any time, so this option is no protection
    /// from them.
    #[arg(long, hide_short_help = true, value_name = "DATE", value_parser = values::moment)]
    pub expires: Option<i64>,

    /// Days during which --init may not overwrite the set.
    ///
    /// The default is retain_days in the configuration's [defaults], else 0: --init may overwrite it at once.
    #[arg(long, value_name = "DAYS", conflicts_with = "expires",
        value_parser = clap::value_parser!(u32).range(0..=99_999))]
    pub retain_days: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChangePolicyArg {
    /// Report the file and mark the set as damaged; exit code 5.
    Mark,
    /// Fail the backup at the first such file.
    Fail,
}

impl From<ChangePolicyArg> for OnChange {
    fn from(changed: ChangePolicyArg) -> OnChange {
        match changed {
            ChangePolicyArg::Mark => OnChange::Mark,
            ChangePolicyArg::Fail => OnChange::Fail,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Reading")]
pub struct ReadOptions {
    /// The reaction to a file that changes while it is read.
    ///
    /// For files; a SQLite database is always one moment. The default `mark` goes on, because one changing log file should
    /// not cost the night's backup.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHAT",
        value_enum,
        default_value = "mark"
    )]
    pub on_change: ChangePolicyArg,

    /// Treat a directory as a volume of its own, read in parallel with the others.
    ///
    /// By default volumes are found by mount point. Use this for storage that is faster than one reader, or to treat
    /// one machine's storage as several volumes.
    #[arg(long, hide_short_help = true, value_name = "DIR=NAME", value_parser = values::pair())]
    pub volume: Vec<Pair>,

    /// End the backup if the SQLite database's write-ahead log grows by more than this.
    ///
    /// While a backup reads, the write-ahead log cannot be reset, so it grows with every commit. The backup reports the
    /// growth. The default is no limit.
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = values::positive_size)]
    pub wal_growth_limit: Option<u64>,

    /// Rely on the SQLite database's locks although it is on a network or FUSE file system.
    ///
    /// Use it only if every program that writes to the database runs on this machine and uses this mount. Otherwise the
    /// copy may be torn, a program that uses a write-ahead log may be killed, and the database itself may be damaged.
    #[arg(long, hide_short_help = true)]
    pub trust_locks: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "PostgreSQL")]
pub struct Postgres {
    /// Store the WAL that makes the backup consistent in the backup itself.
    ///
    /// The default unless the backup goes to the target whose archive has the WAL ([database.NAME.wal] in the
    /// configuration). A temporary replication slot keeps the WAL on the server until the backup ends.
    #[arg(long, hide_short_help = true)]
    pub with_wal: bool,

    /// Check that this archive (`longshore wal push`) has the WAL that the backup needs.
    ///
    /// Only a backup to the archive's own target may leave WAL out of the set: an expire removes WAL that the backups
    /// there do not need, and knows no others. The default for a backup of a configured database to its own target is
    /// the database's archive. The backup waits for the last segment, up to --wal-wait seconds, and then fails with the
    /// name of the missing segment.
    #[arg(long, hide_short_help = true, value_name = "DIR", value_parser = values::archive())]
    pub wal_archive: Option<ArchivePath>,

    /// Seconds to wait until the WAL is in the archive.
    ///
    /// The default is 300: an archiver whose command failed tries again after at most a minute, so several attempts fit.
    /// Raise it if archiving is often further behind.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "SECONDS",
        default_value_t = 300
    )]
    pub wal_wait: u64,

    /// Let the server send its files, over the replication protocol.
    ///
    /// Needs the REPLICATION attribute, and works from any machine; the server reads and sends in one process. By
    /// default the backup reads the files itself, with all CPUs, and uses this only if it cannot read them.
    #[arg(long)]
    pub remote: bool,

    /// Spread the checkpoint at the start of the backup.
    ///
    /// A backup begins with a checkpoint. By default the server writes it as fast as the disk can; this option spreads
    /// it by checkpoint_completion_target, so that minutes may pass before the first byte is read.
    #[arg(long, hide_short_help = true)]
    pub spread_checkpoint: bool,

    /// End the backup at the first page whose checksum is wrong.
    ///
    /// By default the backup reports each such page with file and block, goes on, marks the set as damaged and ends with
    /// exit code 5: one bad page should not cost the rest of the night's backup.
    #[arg(long, hide_short_help = true)]
    pub fail_on_bad_page: bool,

    /// Leave out the server's configuration files that are outside its data directory.
    ///
    /// By default they are in the backup, below longshore-config, as far as the server's user may read them; on Debian and
    /// Ubuntu these are the files in /etc/postgresql. They may hold passwords (primary_conninfo). With --remote the
    /// server does not send them.
    #[arg(long, hide_short_help = true)]
    pub no_server_config: bool,
}
