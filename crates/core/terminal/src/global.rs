//! The options that every command of every program takes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "General options")]
pub struct Global {
    /// Configuration file with databases, targets and defaults.
    ///
    /// Or the environment's LONGSHORE_CONFIG. Without either, the first existing file is read of
    /// $XDG_CONFIG_HOME/longshore/longshore.toml (or ~/.config/longshore/longshore.toml) and
    /// /etc/longshore/longshore.toml. No file is needed: options can say everything. A file in the working directory is
    /// not read by default, because anyone who can write there could redirect a backup.
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        env = "LONGSHORE_CONFIG",
        hide_env = true
    )]
    pub config: Option<PathBuf>,

    /// The file with the history of backups and restores, or `none`.
    ///
    /// Or the environment's LONGSHORE_CATALOG. The default is `path` in the configuration's [catalog], else
    /// longshore/catalog.db below $XDG_STATE_HOME, else below /var/lib for root and ~/.local/state for others. A lost or
    /// locked catalog never fails a backup: the backup warns, and `longshore catalog rebuild` reads the media again.
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        env = "LONGSHORE_CATALOG",
        hide_env = true
    )]
    pub catalog: Option<OsString>,

    /// Print one JSON object on standard output, also for an error.
    ///
    /// It has the same facts as the text. An error is {"status":"error","exit_code":4,"error":{"code":"media",
    /// "number":3132,"text":...,"causes":[...],"hint":...}}. `code` is the exit code as a word; `number` is SQL Server's
    /// for this error, or one from 50100 on (docs/errors.md). No progress is shown. If the backup itself goes to
    /// standard output (device `-`), the object goes to standard error.
    #[arg(long, global = true)]
    pub json: bool,

    /// Print the plan before the work starts: buffers, memory, workers, engines.
    ///
    /// The lines are `Name: value`, spelled as by SQL Server's trace flag 3213 where it has them, so that tuning
    /// scripts can read them. They go to standard error.
    #[arg(long, short, global = true)]
    pub verbose: bool,

    /// Print errors and warnings only.
    ///
    /// For scheduled jobs that look at the exit code. By default the result goes to standard output and progress to
    /// standard error. Not for commands whose text is the answer, such as `longshore list`: they print nothing.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}
