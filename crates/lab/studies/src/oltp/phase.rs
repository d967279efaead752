//! A phase of backups under load, and what each of its backups took.
//!
//! Invariants
//! - A phase without a key is quiet: it has no backups. Phases of one key are of one kind, in different rounds.
//!
//! Leaves to others: making backups (`mod.rs`, `peers.rs`), and what a phase means (`findings.rs`).

use longshore_pipeline::{mb_per_s, ratio};

use crate::spread::median;
use crate::timing::Timing;

/// The keys of the phases that ask for hardware: without and with a limit of CPU time.
pub const HARD: &str = "hard";
pub const HARD_HELD: &str = "hard_held";

/// A backup, of this program or of another one.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub wall_s: f64,
    /// CPU seconds of the program; `None` where a server does its work.
    pub cpu_s: Option<f64>,
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    /// The part that accelerators compressed, 0 to 1.
    pub accelerator_share: f64,
}

impl Taken {
    /// CPU time of the program in percent of what so many processors have while the backup lasts: those that are online,
    /// whether this program may use all of them or not.
    pub fn own_cpu_percent(&self, processors: f64) -> Option<f64> {
        let all_s = self.wall_s * processors;
        self.cpu_s.map(|cpu_s| 100.0 * cpu_s / all_s.max(1e-9))
    }

    /// MB/sec as SQL Server counts: units of 2^20 bytes, uncompressed.
    pub fn mb_per_s(&self) -> f64 {
        mb_per_s(self.plain_bytes, self.wall_s)
    }

    pub fn ratio(&self) -> f64 {
        ratio(self.plain_bytes, self.stored_bytes)
    }
}

impl From<Timing> for Taken {
    fn from(timing: Timing) -> Taken {
        Taken {
            wall_s: timing.wall_s,
            cpu_s: Some(timing.cpu_s),
            plain_bytes: timing.plain_bytes,
            stored_bytes: timing.stored_bytes,
            accelerator_share: timing.accelerator_share(),
        }
    }
}

/// A phase of the study.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Empty for a quiet one.
    pub key: &'static str,
    /// The same in all rounds.
    pub kind: String,
    /// From 0. Of a quiet one: the round that follows it.
    pub round: usize,
    /// There are others of its kind.
    is_one_of_many: bool,
    /// By the wall clock.
    pub from_s: f64,
    pub to_s: f64,
    pub backups: Vec<Taken>,
}

impl Phase {
    pub fn quiet(name: String, round: usize) -> Phase {
        Phase::of("", &name, (round, 1))
    }

    /// A phase of a round, of so many.
    pub fn of(key: &'static str, kind: &str, (round, rounds): (usize, usize)) -> Phase {
        Phase {
            key,
            kind: kind.to_owned(),
            round,
            is_one_of_many: rounds > 1,
            from_s: 0.0,
            to_s: 0.0,
            backups: Vec::new(),
        }
    }

    pub fn name(&self) -> String {
        match self.is_one_of_many {
            true => format!("{}, round {}", self.kind, self.round + 1),
            false => self.kind.clone(),
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.key.is_empty()
    }

    /// Which part accelerators compressed, 0 to 1; `None`: the phase did not ask for them.
    pub fn accelerator_share(&self) -> Option<f64> {
        let shares = self.backups.iter().map(|taken| taken.accelerator_share);
        let all = shares.sum::<f64>() / self.backups.len().max(1) as f64;
        matches!(self.key, HARD | HARD_HELD).then_some(all)
    }

    pub fn backup_s(&self) -> Option<f64> {
        self.of_backups(|taken| Some(taken.wall_s))
    }

    /// The median of its backups; `None`: there is none with this figure.
    pub fn of_backups(&self, figure: impl Fn(&Taken) -> Option<f64>) -> Option<f64> {
        median(self.backups.iter().filter_map(figure))
    }
}
