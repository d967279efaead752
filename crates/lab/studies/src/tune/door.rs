//! Settings of a backup, what one of them costs, and what is wanted.

use std::fmt;

use longshore_codec::{Algorithm, Level};
use longshore_pipeline::OffloadMode;

/// What a backup can be told.
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
        let noun = if self.stripes == 1 {
            "stripe"
        } else {
            "stripes"
        };
        write!(f, ", {} {noun}", self.stripes)?;
        if let Some(bytes) = self.buffer_bytes {
            write!(f, ", buffers of {} KiB", bytes >> 10)?;
        }
        if let Some(count) = self.buffer_count {
            write!(f, ", {count} buffers")?;
        }
        Ok(())
    }
}

/// What is to be as little as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The time of a backup.
    Window,
    /// Its CPU time.
    Cpu,
    /// What it takes from a workload: CPU time, below a ceiling.
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
    /// What is compared, for each byte of the source.
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

/// From where on a measurement is hopeless and ends early.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Most {
    pub wall_s: f64,
    pub cpu_s: f64,
}

impl Most {
    pub const ANYTHING: Most = Most {
        wall_s: f64::INFINITY,
        cpu_s: f64::INFINITY,
    };
}

/// The result of one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Of the part that was reached.
    pub cost: Cost,
    pub end: End,
}

/// How a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Measured,
    /// It cost too much: the costs are those of a smaller part.
    GivenUp,
    /// Memory held all of it, so nothing is known of the places.
    InMemory,
}

/// A machine on which settings are measured.
pub trait Machine {
    /// Measures a setting on the same bytes as all others, and ends early where it costs more than `most`.
    ///
    /// Errors: a backup that fails.
    fn measure(&mut self, setting: &Setting, most: &Most) -> anyhow::Result<Trial>;

    /// The number of buffers that a backup takes by itself, of the last one that did.
    fn buffers(&self) -> usize;

    /// Whether there is time for another measurement.
    fn has_time(&self) -> bool;
}
