//! `longshore accelerator` and `longshore doctor`.

use clap::{Args, Subcommand, ValueEnum};
use longshore_pipeline::OffloadMode;

/// Shows accelerators, and chooses whether backups use them.
#[derive(Debug, Args)]
pub struct Accelerator {
    #[command(subcommand)]
    pub action: AcceleratorAction,
}

#[derive(Debug, Subcommand)]
pub enum AcceleratorAction {
    /// Shows what was found, whether it is used and why not, and what running backups do with it.
    ///
    /// The columns are those of SQL Server's sys.dm_server_accelerator_status, with its reason codes; ours are above 100.
    /// Where backups are to use hardware, each accelerator is tested in a process of its own, so that a library that
    /// hangs or dies cannot do it here. Counters of running backups come from the directory `running` beside the catalog.
    /// The device's heartbeat is not touched.
    #[command(after_long_help = "\
Examples:
  longshore accelerator status
  longshore accelerator status --json

Not for: finding out what a machine lacks; `longshore doctor` names the commands that help.")]
    Status,
    Enable(Enable),
    /// Switches accelerators off: software compresses, in the same format.
    ///
    /// Counts from the next backup on. The mode is kept for the next time.
    #[command(after_long_help = "\
Example:
  longshore accelerator disable

Not for: one backup; `longshore backup --offload software` leaves the setting alone.")]
    Disable,
    /// Tests one accelerator in this process and answers in JSON.
    #[command(
        hide = true,
        after_long_help = "\
Example:
  longshore accelerator probe qatzip

Not for: people; `longshore accelerator status` asks it."
    )]
    Probe {
        /// The engine's name: qatzip or nvcomp.
        #[arg(value_name = "ENGINE")]
        engine: String,
    },
}

/// Lets backups use accelerators.
///
/// What it changes are the server settings `hardware offload enabled` and `hardware offload mode`. Counts from the next backup
/// on. A machine without an accelerator compresses in software all the same: nothing fails.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore accelerator enable
  longshore accelerator enable --mode hybrid

Not for: one backup; `longshore backup --offload hybrid` leaves the setting alone.")]
pub struct Enable {
    /// hardware, software or hybrid.
    ///
    /// `hardware` (the default, as in SQL Server): the accelerator compresses, CPUs do what it leaves. `software`: the
    /// accelerator's format by CPUs alone. `hybrid`: both at once, for machines with idle cores.
    #[arg(long, value_name = "MODE", value_enum, default_value = "hardware")]
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The accelerator; CPUs where it fails.
    Hardware,
    /// CPUs alone.
    Software,
    /// Both.
    Hybrid,
}

impl From<Mode> for OffloadMode {
    fn from(mode: Mode) -> OffloadMode {
        match mode {
            Mode::Hardware => OffloadMode::Hardware,
            Mode::Software => OffloadMode::Software,
            Mode::Hybrid => OffloadMode::Hybrid,
        }
    }
}

/// Says what this machine has for backups, what is missing, and the command that helps.
///
/// Looks at processors, libraries and devices, and changes nothing. Nothing here needs root, but what only root may read
/// is said to be unknown. Exit code 5 when something could be better, else 0.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore doctor
  longshore doctor --json

Not for: what backups use now (`longshore accelerator status`), or how fast they are (`longshore lab
bench`).")]
pub struct Doctor {}
