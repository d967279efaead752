//! `longshore history` and `longshore catalog`.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//!
//! Leaves to others: the meaning of the options (`catalog.rs` in `commands`).

use clap::{Args, Subcommand};

use super::{Media, values};

/// Shows past backups, restores, or runs of all kinds, newest first.
///
/// The ratio is plain bytes divided by stored bytes; MB/s counts uncompressed pages of 8 KiB in units of 2^20 bytes, as
/// SQL Server does. Only backups and restores that succeeded have a row; --runs also shows what failed. The tables are
/// msdb's (backupset, restorehistory and others), and longshore_run: any SQLite client can query the file that
/// `longshore config check` names.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore history
  longshore history --database sales --limit 5
  longshore history --restores
  longshore history --runs --database sales

Not for: finding out what a file holds; `longshore list` reads the media themselves.")]
pub struct History {
    /// Only this database.
    ///
    /// The name must be exact: that of the backed-up database, or with --restores that of the restored one. The
    /// default is all databases.
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    pub database: Option<String>,

    /// Show at most this many rows, the newest; 0 shows all.
    ///
    /// The default is 20: they fit a screen. For more than a look, query the file with any SQLite client.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,

    /// Show restores instead of backups.
    ///
    /// Only the catalog knows them: media hold no record of restores, so `longshore catalog rebuild` cannot find them
    /// again. Without this option the command shows backups.
    #[arg(long)]
    pub restores: bool,

    /// Show runs of backup, restore, verify, drill, copy, expire and repair, also failed ones.
    ///
    /// Each with its end and why it failed, as this machine saw it; `longshore info` shows the last ones of all machines.
    /// Mistakes in a command line and dry runs are no runs. The newest 20,000 of each kind are kept; `longshore catalog
    /// rebuild` cannot find them again. Without this option the command shows backups.
    #[arg(long, conflicts_with = "restores")]
    pub runs: bool,
}

/// Rebuilds lost history from the media, and shows and changes server settings.
#[derive(Debug, Args)]
pub struct Catalog {
    #[command(subcommand)]
    pub action: CatalogAction,
}

#[derive(Debug, Subcommand)]
pub enum CatalogAction {
    Rebuild(Rebuild),
    Settings(Settings),
}

/// Adds missing backups to the history, read from their media.
///
/// Reads the labels, headers and index of one media set, or of all at a target, not their data. A damaged catalog is
/// first renamed. Restores cannot be rebuilt: media hold no record of them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  longshore catalog rebuild /mnt/a/app.bak /mnt/b/app.bak
  longshore catalog rebuild --target nightly

Not for: checking that the media are undamaged; `longshore verify` does.")]
pub struct Rebuild {
    #[command(flatten)]
    pub media: Media,
}

/// Shows the server settings, or changes one.
///
/// Names as in sp_configure: backup compression default, backup compression algorithm (1 MS_XPRESS,
/// 2 QAT_DEFLATE, 3 ZSTD, 4 LZ4, 5 PAGES), backup checksum default, media retention (days), hardware offload enabled,
/// hardware offload mode. A setting that was never changed is 0 and leaves the choice to this program. The options of a
/// backup and the configuration override these settings.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore catalog settings
  longshore catalog settings 'backup compression algorithm' 3

Not for: one backup (use its options), or defaults of one machine (use [defaults] in the
configuration).")]
pub struct Settings {
    /// The setting to change.
    ///
    /// Without it all settings are shown, with their limits, and none is changed. The name is that of sp_configure, in
    /// quotes because it has spaces. Not for one backup: use the backup's own options.
    #[arg(value_name = "NAME", requires = "value")]
    pub name: Option<String>,

    /// The new value; it takes effect at once.
    ///
    /// A number, even where it chooses an algorithm: 3 is ZSTD. The default is 0, which leaves the choice to this program.
    /// A value outside the limits that the command shows is refused. Not without a setting's name before it.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: Option<i64>,
}
