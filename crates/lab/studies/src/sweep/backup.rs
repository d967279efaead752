//! The backups of the study of stripes: their kinds, their rounds, and which of them count.
//!
//! Invariants
//! - A round in which another engine compressed than the kind's name says does not count; its row shows who did.
//! - Quantities of two backups are taken within a round, so that a drift in the machine's speed affects them little.
//!
//! Leaves to others: making the backups (`stripes.rs`), and showing them (`shown.rs`, `ratios.rs`).

use std::path::PathBuf;
use std::time::Duration;

use longshore_codec::Algorithm;
use longshore_pipeline::{OffloadMode, SourceSpec};

use crate::labels::{by_engine, counts_as};
use crate::spread::{RoundResults, median};
use crate::timing::Timing;

/// A kind of backup tried at each stripe count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripedKind {
    pub name: &'static str,
    pub algorithm: Algorithm,
    pub mode: OffloadMode,
}

impl StripedKind {
    const fn software(name: &'static str, algorithm: Algorithm) -> StripedKind {
        StripedKind {
            name,
            algorithm,
            mode: OffloadMode::Software,
        }
    }
}

pub const NONE: StripedKind = StripedKind::software("NONE", Algorithm::None);
pub const MS_XPRESS: StripedKind = StripedKind::software("MS_XPRESS", Algorithm::MsXpress);
pub const SOFTWARE: StripedKind =
    StripedKind::software("QAT_DEFLATE software", Algorithm::QatDeflate);
/// If an accelerator serves.
pub const HARDWARE: StripedKind = StripedKind {
    name: "QAT_DEFLATE hardware",
    algorithm: Algorithm::QatDeflate,
    mode: OffloadMode::Hardware,
};

/// The settings of the sweep.
#[derive(Debug, Clone)]
pub struct StripesSpec {
    pub source: SourceSpec,
    /// Stripes are spread over them in turn.
    pub dirs: Vec<PathBuf>,
    /// Ascending; usually [`STRIPES`](super::STRIPES).
    pub stripes: Vec<usize>,
    /// MAXTRANSFERSIZE.
    pub buffer_bytes: usize,
    /// How often all backups are made in their order; at least 1.
    pub rounds: usize,
    /// Between two backups, so that the next does not pay for the heat and the writes of the last.
    pub pause: Duration,
    /// Degrees Celsius that processors and target drives cool to before each backup; `None` waits for nothing.
    pub cool_c: Option<f64>,
}

/// One kind at one stripe count.
#[derive(Debug)]
pub struct StripedBackup {
    pub kind: StripedKind,
    pub stripes: usize,
    /// One for each round.
    pub taken: Vec<Timing>,
}

impl StripedBackup {
    /// Named after the engine that compressed it, which is not always the requested one.
    pub fn name(&self) -> String {
        match self.kind.mode {
            OffloadMode::Software => self.kind.name.to_owned(),
            mode => by_engine(&self.kind.algorithm.to_string(), mode, &self.taken),
        }
    }

    /// Rounds in which the engine of its kind's name compressed it, with their numbers.
    pub fn counted(&self) -> impl Iterator<Item = (usize, &Timing)> {
        let all = self.taken.iter().enumerate();
        all.filter(|(_, taken)| counts_as(self.kind.mode, taken))
    }

    pub fn median(&self, value: impl Fn(&Timing) -> f64) -> Option<f64> {
        median(self.taken.iter().map(value))
    }

    pub fn known(&self, value: impl Fn(&Timing) -> Option<f64>) -> Option<f64> {
        median(self.taken.iter().filter_map(value))
    }

    pub fn elapsed(&self) -> Option<RoundResults> {
        RoundResults::of(self.taken.iter().map(|t| t.wall_s))
    }
}

/// The backup of one kind at one stripe count, if any of its rounds counts.
pub fn at(backups: &[StripedBackup], kind: StripedKind, stripes: usize) -> Option<&StripedBackup> {
    let mut found = backups
        .iter()
        .filter(|b| b.kind == kind && b.stripes == stripes);
    found.find(|b| b.counted().next().is_some())
}

/// Both backups of each round in which both count.
pub fn pairs<'a>(a: &'a StripedBackup, b: &'a StripedBackup) -> Vec<(&'a Timing, &'a Timing)> {
    let of = |(round, a): (usize, &'a Timing)| {
        let mut others = b.counted();
        Some((a, others.find(|(other, _)| *other == round)?.1))
    };
    a.counted().filter_map(of).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::timing::tests::by_hardware;

    /// A backup with so many thousandths by hardware in each round.
    pub fn mixed(kind: StripedKind, stripes: usize, thousandths: &[u64]) -> StripedBackup {
        StripedBackup {
            kind,
            stripes,
            taken: thousandths.iter().map(|n| by_hardware(*n)).collect(),
        }
    }

    #[test]
    fn a_round_that_software_compressed_does_not_meet_another_ones() {
        let hardware = mixed(HARDWARE, 4, &[1000, 200, 950]);
        let software = mixed(SOFTWARE, 4, &[0, 0, 0]);
        assert_eq!(hardware.name(), "QAT_DEFLATE, 20.0–100.0 % in hardware");
        let rounds: Vec<usize> = hardware.counted().map(|(round, _)| round).collect();
        assert_eq!(
            (rounds.as_slice(), pairs(&software, &hardware).len()),
            (&[0, 2][..], 2)
        );
        let backups = [mixed(HARDWARE, 1, &[300]), hardware];
        assert!(at(&backups, HARDWARE, 1).is_none());
        assert_eq!(at(&backups, HARDWARE, 4).map(|b| b.stripes), Some(4));
    }
}
