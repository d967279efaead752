//! `longshore verify` and `longshore list`, and how media are named.

use clap::{ArgGroup, Args};
use longshore_media::DeviceSpec;

use super::{TransferOptions, values};

/// The stripes of one media set.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("media").required(true).multiple(true).args(["devices", "target", "database"]))]
pub struct Media {
    /// All stripes of the media set, in any order: paths, s3://BUCKET/KEY, or -.
    ///
    /// - reads standard input.
    #[arg(value_name = "DEVICE", value_parser = values::device())]
    pub devices: Vec<DeviceSpec>,

    /// Instead of devices: the database whose backup to read.
    #[arg(long, value_name = "NAME", conflicts_with = "devices")]
    pub database: Option<String>,

    /// The target that holds the backup; else the one configured for it.
    #[arg(long, value_name = "NAME", conflicts_with = "devices")]
    pub target: Option<String>,

    /// A label that `longshore list` shows, or `latest` (the default).
    #[arg(long, value_name = "LABEL", requires = "database")]
    pub label: Option<String>,
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

    /// Only the backup set with this number; the default is all of them.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub position: Option<u32>,

    #[command(flatten)]
    pub moving: TransferOptions,
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
    #[arg(long, conflicts_with_all = ["files", "position", "target", "database"])]
    pub label_only: bool,

    /// Show the files of a backup set: of the last one, or of --position.
    #[arg(long)]
    pub files: bool,

    /// Only the backup set with this number.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub position: Option<u32>,
}
