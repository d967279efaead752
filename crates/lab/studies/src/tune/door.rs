//! The parts that the search and its machine have in common: settings of a backup, costs, and purposes.
//!
//! Invariants
//! - Costs of two settings are compared for each byte of the source, so that a part that is a little longer does not decide.
//!
//! Leaves to others: the search (`search.rs`), measuring (`measured.rs`), and words for people (`told.rs`).

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use longshore_codec::{Algorithm, Level};
use longshore_pipeline::{OffloadMode, SourceSpec};

use crate::report::counted;

/// The settings of the study.
#[derive(Debug, Clone)]
pub struct TuneSpec {
    pub source: SourceSpec,
    /// The words that name the source on a command line.
    pub words: Vec<OsString>,
    /// The line that a person types to run the program with arguments.
    pub line: fn(Vec<OsString>) -> String,
    /// Absolute directories, or addresses in object stores; at least one, all of a kind.
    pub to: Vec<String>,
    pub objective: Objective,
    /// How long a backup may take; `None`: as long as it takes.
    pub within: Option<Duration>,
    /// The algorithms that may be taken; empty: all whose stripes stock tools read.
    pub algorithms: Vec<Algorithm>,
    /// All measurements together.
    pub time: Duration,
}

/// Settings that a backup can be given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    pub algorithm: Algorithm,
    pub level: Level,
    pub engine: OffloadMode,
    /// At least 1.
    pub stripes: usize,
    /// MAXTRANSFERSIZE; `None`: the default.
    pub buffer_bytes: Option<usize>,
    /// BUFFERCOUNT; `None`: the default.
    pub buffer_count: Option<usize>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.level)?;
        match self.engine {
            OffloadMode::Software | OffloadMode::Auto => {}
            OffloadMode::Hardware => f.write_str(" in hardware")?,
            OffloadMode::Hybrid => f.write_str(" in hardware and software")?,
        }
        write!(f, ", {}", counted(self.stripes, "stripe"))?;
        if let Some(bytes) = self.buffer_bytes {
            write!(f, ", buffers of {} KiB", bytes >> 10)?;
        }
        if let Some(count) = self.buffer_count {
            write!(f, ", {count} buffers")?;
        }
        Ok(())
    }
}

/// The purpose: which cost is to be as little as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The time of a backup.
    Window,
    /// Its CPU time.
    Cpu,
    /// The share that it takes from a workload: CPU time, below a ceiling.
    Workload,
    /// The stored bytes.
    Size,
}

/// The cost of a part of the source, the same part for every setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Of the source.
    pub plain_bytes: u64,
    pub wall_s: f64,
    /// CPU seconds of this process.
    pub cpu_s: f64,
    pub stored_bytes: u64,
}

impl Cost {
    /// Seconds for each byte of the source.
    pub fn pace(&self) -> f64 {
        self.wall_s / self.plain_bytes.max(1) as f64
    }

    /// Stored bytes for each of the source.
    pub fn share(&self) -> f64 {
        self.stored_bytes as f64 / self.plain_bytes.max(1) as f64
    }

    pub fn cpu_pace(&self) -> f64 {
        self.cpu_s / self.plain_bytes.max(1) as f64
    }
}

impl Objective {
    /// The cost that is compared, for each byte of the source.
    pub fn of(self, cost: &Cost) -> f64 {
        match self {
            Objective::Window => cost.pace(),
            Objective::Cpu | Objective::Workload => cost.cpu_pace(),
            Objective::Size => cost.share(),
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Objective::Window => "the shortest time",
            Objective::Cpu => "the least CPU time",
            Objective::Workload => "the least taken from a workload",
            Objective::Size => "the least space",
        }
    }
}

/// A ceiling, and the cost below it.
#[derive(Debug, Clone, Copy)]
pub struct CpuCeiling {
    pub percent: f64,
    pub cost: Cost,
}

/// From where on a measurement is hopeless and ends early.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Most {
    /// Seconds for each byte of the source.
    pub pace: f64,
    /// CPU seconds for each.
    pub cpu_pace: f64,
}

impl Most {
    pub const ANYTHING: Most = Most {
        pace: f64::INFINITY,
        cpu_pace: f64::INFINITY,
    };
}

/// The result of one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineTrial {
    /// Of the part that was reached.
    pub cost: Cost,
    pub end: TrialEnd,
    /// With all that begins and ends it.
    pub took_s: f64,
}

/// How a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialEnd {
    Measured,
    /// It cost too much: the costs are those of a smaller part.
    GivenUp,
    /// Its time was over: likewise.
    OutOfTime,
    /// Memory held all of it, so nothing is known of the places.
    InMemory,
}

/// A machine on which settings are measured.
pub(super) trait Machine {
    /// Measures a setting on the same bytes as all others, and ends early where it costs more than `most` or takes longer than
    /// `limit_s` seconds.
    ///
    /// Errors: a backup that fails.
    fn measure(
        &mut self,
        setting: &Setting,
        most: &Most,
        limit_s: f64,
    ) -> anyhow::Result<MachineTrial>;

    /// The number of buffers that the last measured backup took.
    fn buffers(&self) -> usize;

    /// Seconds that are left for measurements; below 0 there are none.
    fn left_s(&self) -> f64;
}
