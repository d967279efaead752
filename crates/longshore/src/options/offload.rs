//! Accelerator options, shared by the commands that move data.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`offload.rs` in `commands`).

use clap::{Args, ValueEnum};
use longshore_pipeline::{Objective, OffloadMode, VerifyEngine};

#[derive(Debug, Args)]
#[command(next_help_heading = "Accelerators")]
pub struct OffloadOptions {
    /// Who compresses: software, hardware, hybrid, or auto.
    ///
    /// `software`: CPUs alone. `hardware`: an accelerator; CPUs take the blocks that it leaves, and all blocks while it is
    /// out of service. `hybrid`: the accelerator is kept busy and CPUs compress too; if that is slower than the better
    /// of the two alone, the backup falls back to the better one. `auto`: hybrid or hardware, by --objective, if there
    /// is an accelerator. The format is the same in all modes. The default is the server settings `hardware offload
    /// enabled` and `hardware offload mode`, else software. Useless for tiny databases: blocks below 64 KiB never go
    /// to a device.
    #[arg(long, value_name = "WHO", value_enum, hide_possible_values = true)]
    pub offload: Option<Offload>,

    /// With --offload auto: save elapsed time, or CPU time.
    ///
    /// `time` (the default) uses everything: hybrid. `cpu` leaves the CPUs to other programs: hardware.
    #[arg(long, hide_short_help = true, value_name = "WHAT", value_enum)]
    pub objective: Option<Goal>,

    /// Seconds after which a call to an accelerator that has not returned is given up.
    ///
    /// Software compresses its blocks instead; the accelerator is suspended and tested again later. A call of a healthy
    /// device takes far less than the default, 5. Raise it if the log reports calls that did not return in time and the
    /// device is healthy.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub engine_timeout: Option<u32>,
}

/// Checks of compressed results. A restore needs no such option: it compares every block with a stored checksum.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accelerators")]
pub struct ResultOptions {
    /// How many of an accelerator's results are decoded before they are used.
    ///
    /// Lengths, framing and the checksum of every result are always compared with what the CPU computed before the
    /// accelerator saw the bytes. `sample` (the default) also decodes one result in 64, and the first 256 after each
    /// start. `full` decodes all: it costs two thirds of the CPU time of compressing, and finds every wrong bit.
    /// `none` decodes nothing: only a verify or a restore then finds a damaged compressed body.
    #[arg(long, hide_short_help = true, value_name = "HOW", value_enum)]
    pub verify_engine: Option<CheckArg>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Offload {
    /// CPUs alone.
    Software,
    /// The accelerator; CPUs where it fails.
    Hardware,
    /// Both.
    Hybrid,
    /// The best that the machine has.
    Auto,
}

impl From<Offload> for OffloadMode {
    fn from(offload: Offload) -> OffloadMode {
        match offload {
            Offload::Software => OffloadMode::Software,
            Offload::Hardware => OffloadMode::Hardware,
            Offload::Hybrid => OffloadMode::Hybrid,
            Offload::Auto => OffloadMode::Auto,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// The shortest run.
    Time,
    /// The least CPU time.
    Cpu,
}

impl From<Goal> for Objective {
    fn from(goal: Goal) -> Objective {
        match goal {
            Goal::Time => Objective::Time,
            Goal::Cpu => Objective::Cpu,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckArg {
    /// Lengths, framing, checksums.
    None,
    /// Those, and one in 64 decoded.
    Sample,
    /// Those, and all decoded.
    Full,
}

impl From<CheckArg> for VerifyEngine {
    fn from(checking: CheckArg) -> VerifyEngine {
        match checking {
            CheckArg::None => VerifyEngine::None,
            CheckArg::Sample => VerifyEngine::Sample,
            CheckArg::Full => VerifyEngine::Full,
        }
    }
}
