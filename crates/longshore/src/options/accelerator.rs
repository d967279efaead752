//! `longshore accelerator` and `longshore doctor`.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`accelerator.rs`, `doctor.rs` in `commands`).

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
    /// Shows each accelerator, whether backups use it, why not, and the counters of running backups.
    ///
    /// The columns are those of SQL Server's sys.dm_server_accelerator_status, with its reason codes; Longshore's own
    /// codes are above 100. If backups use hardware, a separate process tests each accelerator, so that a library that
    /// hangs or crashes does not take this command with it. Counters of running backups come from the directory
    /// `running` next to the catalog. The device's heartbeat is not changed.
    #[command(after_long_help = "\
Examples:
  longshore accelerator status
  longshore accelerator status --json

Not for: finding out what a machine lacks; `longshore doctor` names the commands that fix it.")]
    Status,
    Enable(Enable),
    /// Switches accelerators off: software compresses, in the same format.
    ///
    /// Takes effect with the next backup. The mode is kept until accelerators are enabled again.
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

Not for: people; `longshore accelerator status` runs it."
    )]
    Probe {
        /// The engine's name: qatzip or nvcomp.
        #[arg(value_name = "ENGINE")]
        engine: String,
    },
}

/// Lets backups use accelerators.
///
/// Changes the server settings `hardware offload enabled` and `hardware offload mode`, from the next backup on. A machine
/// without an accelerator compresses in software; nothing fails.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore accelerator enable
  longshore accelerator enable --mode hybrid

Not for: one backup; `longshore backup --offload hybrid` leaves the setting alone.")]
pub struct Enable {
    /// hardware, software or hybrid.
    ///
    /// `hardware` (the default, as in SQL Server): the accelerator compresses; CPUs take the blocks that it leaves.
    /// `software`: CPUs alone, in the accelerator's format. `hybrid`: both at once, for machines with idle cores.
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

/// Shows what this machine has for backups, what is missing, and what to type.
///
/// Reads processors, libraries, devices, and what the WAL archives of servers on this machine are owed, and changes nothing. It does
/// not need root; facts that only root can read are shown as unknown. Exit code 5 if something could be better, else 0.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  longshore doctor
  longshore doctor --json

Not for: seeing what backups use now (`longshore accelerator status`), or how fast they are
(`longshore lab bench`).")]
pub struct Doctor {}
