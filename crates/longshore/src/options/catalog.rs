//! `longshore history` and `longshore catalog`.

use clap::{Args, Subcommand};

use super::{Media, values};

/// Shows past backups, or restores, newest first.
///
/// Ratio is plain by stored bytes; MB/s counts pages of 8 KiB in units of 2^20 bytes, uncompressed, as SQL
/// Server does. Only successful runs have a row. The tables are msdb's (backupset, restorehistory and theirs):
/// any SQLite client can query the file that `longshore config check` names.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore history
  longshore history --database sales --limit 5
  longshore history --restores

Not for: finding out what a file holds; `longshore list` asks the media, which are the truth.")]
pub struct History {
    /// Only this database.
    #[arg(long, value_name = "NAME", value_parser = values::name)]
    pub database: Option<String>,

    /// At most so many rows, the newest.
    ///
    /// 20 fit a screen. 0 shows all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,

    /// Show restores instead of backups.
    #[arg(long)]
    pub restores: bool,
}

/// Learns lost history from the media again, and keeps server settings.
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

/// Learns backups from their media again.
///
/// Reads labels, headers and the index of one media set, or of all at a target, not their data, and adds what the
/// history lacks. A catalog that is damaged is moved aside first. Restores cannot be relearned: media do not know them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  longshore catalog rebuild /mnt/a/app.bak /mnt/b/app.bak
  longshore catalog rebuild --target nightly

Not for: proving that the media are whole; `longshore verify` does.")]
pub struct Rebuild {
    #[command(flatten)]
    pub media: Media,
}

/// Shows the server settings, or changes one.
///
/// Named as in sp_configure: backup compression default, backup compression algorithm (1 MS_XPRESS,
/// 2 QAT_DEFLATE, 3 ZSTD, 4 LZ4), backup checksum default, media retention (days), hardware offload enabled,
/// hardware offload mode. A setting that was never changed is 0 and leaves the choice to this program. What a
/// backup or the configuration says overrides them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore catalog settings
  longshore catalog settings 'backup compression algorithm' 3

Not for: one backup (use its options), or one machine's habits (use [defaults] in the
configuration).")]
pub struct Settings {
    /// The setting to change.
    #[arg(value_name = "NAME", requires = "value")]
    pub name: Option<String>,

    /// Its new value; it counts at once.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: Option<i64>,
}
