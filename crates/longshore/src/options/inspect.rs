//! `longshore verify`, `longshore repair` and `longshore list`, and how media are named.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`verify.rs`, `repair.rs`, `list.rs` in `commands`).

use clap::{ArgGroup, Args};
use longshore_media::DeviceSpec;

use super::{SetKeyOptions, TransferOptions, values};

/// The stripes of one media set.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("media").required(true).multiple(true).args(["devices", "target", "database"]))]
pub struct Media {
    /// All stripes of the media set, in any order: paths, s3://BUCKET/KEY, or -.
    ///
    /// - reads standard input. az://CONTAINER/KEY and gs://BUCKET/KEY are objects, too.
    ///
    /// Without devices, --database or --target must say what to read.
    #[arg(value_name = "DEVICE", value_parser = values::device())]
    pub devices: Vec<DeviceSpec>,

    /// Instead of devices: the database whose backup to read.
    ///
    /// The stripes are found at the database's target, so nobody must type their paths. With --target the database
    /// need not be in the configuration. For stripes that were moved away from their target, name devices instead.
    /// Without this option the command reads the named devices, or what --target says.
    #[arg(long, value_name = "NAME", conflicts_with = "devices")]
    pub database: Option<String>,

    /// The target that holds the backup; else the one configured for it.
    ///
    /// The default is `target` in [database.NAME], else in [defaults]: where its backups usually go. Give this option
    /// for a copy at another target. `list` and `catalog rebuild` also take it without --database and then read
    /// everything at the target.
    #[arg(long, value_name = "NAME", conflicts_with = "devices")]
    pub target: Option<String>,

    /// A label that `longshore list` shows, or `latest` (the default).
    ///
    /// The newest is the default because it loses the least. Give a label for an older state, or if the newest backup
    /// is damaged. On media that are named by their devices, --position chooses the set instead.
    #[arg(long, value_name = "LABEL", requires = "database")]
    pub label: Option<String>,

    #[command(flatten)]
    pub past: AsOf,
}

/// An earlier moment of a bucket.
#[derive(Debug, Clone, Copy, Args)]
pub struct AsOf {
    /// Read buckets as they were at this time with its zone: `2026-11-21 09:34:10+01`.
    ///
    /// For a bucket that keeps versions, after its objects were removed or replaced by somebody who should not have been
    /// able to: the versions of that time are read, by the store's clock, and nothing is written to the bucket. Name a
    /// time between two backups: AWS dates an upload by its beginning. By default buckets are read as they are. Not for
    /// directories, which keep no versions.
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = values::zoned_time)]
    pub as_of: Option<i64>,
}

/// The base of a differential set.
#[derive(Debug, Clone, Args)]
pub struct Bases {
    /// All stripes of other media sets that a differential set needs. Repeatable.
    ///
    /// These are the sets of its chain: its parent, the parent's parent, down to a full one. Sets on the same media, and
    /// at a target all sets, are found without this option.
    #[arg(long = "base", value_name = "DEVICE", num_args = 1.., conflicts_with = "database", value_parser = values::device())]
    pub bases: Vec<DeviceSpec>,
}

const TEACH_VERIFY: &str = "\
Examples:
  longshore verify /mnt/a/app.bak /mnt/b/app.bak
  longshore verify --database sales
      the latest backup
  longshore verify --all --older-than 30
      for a timer: what is new, and what was not read for 30 days
  longshore verify --stored --database sales
      on a machine that has no identity for its encrypted backups

Not for: proving that an application can use its data; only a restore and a check of the copy do.
A set made from files in use (marked) passes: its bytes are what was read.";

/// Decodes a backup and compares every checksum; writes nothing.
///
/// Reads, decompresses and checks everything that a restore would read. Damage is listed and reading goes on.
/// Exit code 0: all sets are undamaged. 1: damage was found. 4: the media could not be read at all.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_VERIFY)]
pub struct Verify {
    #[command(flatten)]
    pub media: Media,

    #[command(flatten)]
    pub bases: Bases,

    /// Every backup at the target, and its WAL, that no earlier run has found good.
    ///
    /// Results are recorded at the target, so a run after an interruption goes on from there, on any host. A copy of a backup
    /// has no result: name its target to verify it. Without --database all databases at --target are verified; without
    /// --target, too, all configured ones, each at its own target. Without this option the latest backup is read.
    #[arg(long, group = "media", conflicts_with_all = ["devices", "label", "position", "bases", "as_of"])]
    pub all: bool,

    /// With --all: read everything again.
    ///
    /// Without this option, what was found good is not read again. Use it after a disk or a controller had errors.
    #[arg(long, requires = "all", conflicts_with = "older_than")]
    pub again: bool,

    /// With --all: read again what was verified longer ago than this.
    ///
    /// Without this option, what was found good is never read again. Disks lose bits in time: give the longest time that damage
    /// may go unnoticed. A timer that runs daily then reads about the same each day.
    #[arg(long, value_name = "DAYS", requires = "all")]
    pub older_than: Option<u32>,

    /// Then write lost and damaged stripes once more, as `longshore repair` does.
    ///
    /// For media with parity stripes that were found valid. With --identity, what the repair writes was proved by the
    /// verification. The exit code is 5 if something was repaired. By default, media are only read.
    #[arg(long, conflicts_with_all = ["all", "position", "as_of"])]
    pub repair: bool,

    /// Compare the checksums of what is stored, and decode nothing: finds rot, needs no identity.
    ///
    /// For a machine that cannot open its backups, and for a look that costs little CPU time. It proves less: not that the bytes
    /// decode, not that they are the writer's (anybody can make checksums that fit), and nothing of the backups that a
    /// differential one needs. So only damage is recorded at a target. Without this option everything is decoded.
    #[arg(long, conflicts_with_all = ["all", "repair", "bases"])]
    pub stored: bool,

    /// Only the backup set with this number; the default is all of them.
    ///
    /// All are read because damage to one set says nothing about the others. Give a number to check one set of large
    /// media sooner; the other sets then stay unchecked.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub position: Option<u32>,

    #[command(flatten)]
    pub keys: SetKeyOptions,

    #[command(flatten)]
    pub moving: TransferOptions,
}

const TEACH_REPAIR: &str = "\
Examples:
  longshore repair /mnt/a/app.bak /mnt/b/app.bak /mnt/c/app.bak
      name all devices in the order of the backup, also those that are lost
  longshore repair --database sales --dry-run
      what is lost or damaged of the latest backup at its target

Not for: media without parity stripes (--parity of the backup), and media of which more stripes are
lost than there are parity stripes: use a copy.";

/// Writes lost and damaged stripes of media with parity once more.
///
/// Reads every stripe in full. A lost or damaged stripe is written as a new file from the others, checked on the way, and
/// renamed when all of them are durable. Stripes that are whole are not touched. Files that belong to something else are
/// refused. Encrypted media need no identity: the repair compares checksums, and `longshore verify --identity` proves the
/// result. Exit code 0: the media are whole now. 4: they cannot be repaired.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_REPAIR)]
#[command(group = ArgGroup::new("media").required(true).multiple(true).args(["devices", "database"]))]
pub struct Repair {
    /// All stripes of the media set, in the order of the backup: paths, or s3://BUCKET/KEY.
    ///
    /// A device whose stripe is lost gets a new one. If one stripe is lost, any order will do; if several are, the order
    /// tells which is which. The directories must exist. az://CONTAINER/KEY and gs://BUCKET/KEY are objects, too. Without
    /// the device of a lost stripe, the repair is refused. Without devices, --database must say what to repair.
    #[arg(value_name = "DEVICE", value_parser = values::device())]
    pub devices: Vec<DeviceSpec>,

    /// Instead of devices: the database whose backup to repair, at its target.
    ///
    /// The stripes are found there, and lost ones are written where the target has them now: the target's directories
    /// must exist, the database's are made. Without this option the named devices are repaired.
    #[arg(long, value_name = "NAME", conflicts_with = "devices")]
    pub database: Option<String>,

    /// The target that holds the backup; else the one configured for it.
    ///
    /// The default is `target` in [database.NAME], else in [defaults]. Give this option for a copy at another target.
    #[arg(long, value_name = "NAME", requires = "database")]
    pub target: Option<String>,

    /// A label that `longshore list` shows, or `latest` (the default).
    ///
    /// The newest is the default because it loses the least. `longshore info` shows which backups are DEGRADED.
    #[arg(long, value_name = "LABEL", requires = "database")]
    pub label: Option<String>,

    /// Show what is lost or damaged, and write nothing.
    ///
    /// Reads every stripe all the same. The exit code is 5 if something is to be repaired. Without it, the repair is made.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

const TEACH_LIST: &str = "\
Examples:
  longshore list /mnt/a/app.bak /mnt/b/app.bak
      media set and backup sets
  longshore list --target nightly
      everything a target holds
  longshore list app.bak --files --position 2
      the files of one set
  longshore list --label-only stray.bak
      what this stripe is, and which stripes belong to it

Not for: checking: only labels, headers and the index are read. `longshore verify` reads everything.";

/// Shows the content of media: label, backup sets, files.
///
/// Shows the facts of SQL Server's RESTORE HEADERONLY; with --label-only those of LABELONLY, with --files those of
/// FILELISTONLY. It reads little, however large the backup is.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_LIST)]
pub struct List {
    #[command(flatten)]
    pub media: Media,

    /// Show each stripe's own label only; stripes need not belong together.
    ///
    /// For a stray stripe: its label says to which media set it belongs and how many stripes that set has. By default
    /// all stripes are read as one media set and the backup sets are shown.
    #[arg(long, conflicts_with_all = ["files", "position", "target", "database"])]
    pub label_only: bool,

    /// Show the files of a backup set: of the last one, or of --position.
    ///
    /// The paths are those that `longshore restore --only` and --move take. By default the files are left out because
    /// a set may have millions.
    #[arg(long)]
    pub files: bool,

    /// Only the backup set with this number.
    ///
    /// The default is all sets of the media; with --files it is the last set, which a restore takes by default, too.
    /// The numbers are those of the column `position`.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub position: Option<u32>,

    #[command(flatten)]
    pub keys: SetKeyOptions,
}
