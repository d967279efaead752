//! Options about accelerators, shared by commands that move data.

use clap::{Args, ValueEnum};
use longshore_pipeline::{Objective, OffloadMode, VerifyEngine};

#[derive(Debug, Args)]
#[command(next_help_heading = "Accelerators")]
pub struct Offloading {
    /// Who compresses: software, hardware, hybrid, or auto.
    ///
    /// `software`: CPUs alone. `hardware`: an accelerator; CPUs do what it leaves undone, and everything while it is
    /// out of service. `hybrid`: the accelerator is kept full and CPUs compress besides; it is never meant to be slower
    /// than the better of both, and falls back to that one when it is. `auto`: hybrid or hardware, as --objective
    /// says, where there is an accelerator. The format is the same whoever compresses. The default is what the server
    /// settings say (`hardware offload enabled`, `hardware offload mode`), else software. Not worth it for tiny
    /// databases: blocks below 64 KiB never go to a device.
    #[arg(long, value_name = "WHO", value_enum)]
    pub offload: Option<Offload>,

    /// With --offload auto: keep the time small, or the CPU time.
    ///
    /// `time` (the default) uses all that is there: hybrid. `cpu` leaves the CPUs to others: hardware.
    #[arg(long, hide_short_help = true, value_name = "WHAT", value_enum)]
    pub objective: Option<Goal>,

    /// How many of an accelerator's results are decoded again before they are used.
    ///
    /// Lengths, framing and the checksum of every result are always compared with what the CPU computed before the
    /// accelerator saw the bytes. `sample` (the default) also decodes one result in 64, and the first 256 after each
    /// start. `full` decodes all: two thirds of the CPU time that compressing takes, but no wrong bit can get
    /// through. `none` decodes nothing: a damaged compressed body is then only found by a verify or a restore.
    #[arg(long, hide_short_help = true, value_name = "HOW", value_enum)]
    pub verify_engine: Option<Checking>,

    /// Seconds after which a call to an accelerator that has not returned is given up.
    ///
    /// Software does its blocks again, and the accelerator is suspended and tested again later. The default, 5, is
    /// long against any call of a healthy device; raise it where the log says that calls did not return in time and
    /// the device is well.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub engine_timeout: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Offload {
    /// CPUs alone.
    Software,
    /// The accelerator; CPUs where it fails.
    Hardware,
    /// Both.
    Hybrid,
    /// Whatever there is.
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
pub enum Checking {
    /// Lengths, framing, checksums.
    None,
    /// Those, and one in 64 decoded.
    Sample,
    /// Those, and all decoded.
    Full,
}

impl From<Checking> for VerifyEngine {
    fn from(checking: Checking) -> VerifyEngine {
        match checking {
            Checking::None => VerifyEngine::None,
            Checking::Sample => VerifyEngine::Sample,
            Checking::Full => VerifyEngine::Full,
        }
    }
}
