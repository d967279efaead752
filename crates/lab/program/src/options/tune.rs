//! `longshore tune`: the settings that suit a source, its places and a purpose.
//!
//! Leaves to others: the meaning of the options (`tune.rs` in `commands`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use longshore_codec::Algorithm;
use longshore_terminal::values;

use super::written::OutputOptions;

const TEACH_TUNE: &str = "\
Examples:
  longshore tune app.db --to /mnt/disk1/backup --to /mnt/disk2/backup
  longshore tune postgres:///shop --to s3://my-bucket/backup --purpose workload --within 3600

Not for: a busy machine, unless it is always as busy when backups run.";

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Purpose {
    /// The shortest time.
    Window,
    /// The least CPU time.
    Cpu,
    /// The least taken from a workload: little CPU time, below a ceiling.
    Workload,
    /// The least space.
    Size,
}

/// Finds the algorithm, stripes, buffers and limits that suit this machine and a purpose.
///
/// Makes backups of the source to the places, one setting after the other, and ends each as soon as it knows enough: at most
/// 150 seconds in all (--time). Nothing of them is left, and none is encrypted. Each begins as every
/// backup does: of a PostgreSQL server with a checkpoint. The answer is the command line, a configuration, why, and when to run it again.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_TUNE)]
pub struct Tune {
    /// What is backed up: a database or directories, as for `longshore backup`.
    #[arg(value_name = "SOURCE", num_args = 1.., required = true, value_parser = values::source())]
    pub source: Vec<OsString>,

    /// Where backups go: directories, or addresses of object stores. Repeatable.
    ///
    /// There is no default. Give one for each disk, in the order in which you want to use them: it is found out how many help. A
    /// directory is created if it is missing, and its disk needs room for some seconds of a backup.
    #[arg(long, value_name = "PLACE", required = true)]
    pub to: Vec<String>,

    /// The cost that is to be as little as possible.
    ///
    /// The default is `window`, the time of a backup. With another purpose, say with --within what time there is.
    #[arg(long, value_enum, value_name = "PURPOSE", default_value = "window")]
    pub purpose: Purpose,

    /// Seconds that a backup may take.
    ///
    /// Settings that would take longer are left out; a tenth of the time stays in reserve. With `workload` it decides how low the ceiling of
    /// CPU time can be. Needs a source whose size is known before its end, so no tree. By default a backup may take as long as it takes.
    #[arg(long, value_name = "SECONDS", value_parser = values::long_seconds)]
    pub within: Option<f64>,

    /// An algorithm that may be taken. Repeatable.
    ///
    /// The default is QAT_DEFLATE, ZSTD and LZ4. PAGES must be named, because only Longshore reads it, and NONE, because it takes the
    /// most space.
    #[arg(long, value_name = "NAME", value_parser = values::algorithm)]
    pub algorithm: Vec<Algorithm>,

    /// Seconds for all measurements together.
    ///
    /// The default is 150. Time for what is measured last is kept, and each measurement has a limit; only a checkpoint of the server
    /// is waited for. More time makes each measurement longer, which helps where they differ much.
    #[arg(long, value_name = "SECONDS", default_value = "150", value_parser = values::long_seconds)]
    pub time: f64,

    /// Write the settings to a new file, as configuration.
    ///
    /// An existing file is refused: add the printed lines to it yourself. By default they are only printed.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,

    #[command(flatten)]
    pub written: OutputOptions,
}
