//! The cells of the grid: pairs of devices, loads, depths, resident shares and writes.
//!
//! Invariants
//! - The list of cells is fixed, and its order too, so that results of two runs can be compared cell by cell.
//! - A cell's measured time depends on its load and its devices, within bounds.
//!
//! Leaves to others: running cells (`run.rs`), and the goals (`verdict.rs`).

use std::fmt;

use crate::sim::{Group, Mix};
use longshore_policy::model::{Nanos, Op, PAIRS, Pair, Profile};

/// The clients' requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadKind {
    /// 4 KiB anywhere.
    Small,
    /// 4 KiB, some places far more often than others.
    Skewed,
    /// 64 KiB anywhere.
    Medium,
    /// 512 KiB, sequentially.
    Scans,
    /// Small reads and scans.
    Mixed,
}

impl LoadKind {
    pub const ALL: [LoadKind; 5] = [
        LoadKind::Small,
        LoadKind::Skewed,
        LoadKind::Medium,
        LoadKind::Scans,
        LoadKind::Mixed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            LoadKind::Small => "small",
            LoadKind::Skewed => "skewed",
            LoadKind::Medium => "medium",
            LoadKind::Scans => "scans",
            LoadKind::Mixed => "mixed",
        }
    }
}

/// When requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loop {
    Closed,
    /// At this multiple of the throughput in bytes that the better of no cache and classic reached in the closed loop.
    Open(f64),
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loop::Closed => write!(f, "closed"),
            Loop::Open(load) => write!(f, "open {load}"),
        }
    }
}

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub pair: &'static Pair,
    pub kind: LoadKind,
    /// Clients; in a mixed load, those with small reads.
    pub depth: u32,
    /// The share of the touched bytes for which the cache has room.
    pub resident_percent: u32,
    pub write_percent: u32,
    pub arrivals: Loop,
}

/// How much of the grid to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A few cells of every pair: for tests.
    Sample,
    Whole,
}

/// Bytes that the clients touch.
pub const REGION_BYTES: u64 = 64 << 20;

const SECOND: Nanos = 1_000_000_000;

impl Cell {
    pub fn mix(&self) -> Mix {
        let group = |clients: u32, request_bytes: u64, skew: f64| Group {
            clients,
            request_bytes,
            write_percent: f64::from(self.write_percent),
            scans: request_bytes >= 128 << 10,
            skew,
        };
        let groups = match self.kind {
            LoadKind::Small => vec![group(self.depth, 4 << 10, 0.0)],
            LoadKind::Skewed => vec![group(self.depth, 4 << 10, 0.9)],
            LoadKind::Medium => vec![group(self.depth, 64 << 10, 0.0)],
            LoadKind::Scans => vec![group(self.depth, 512 << 10, 0.0)],
            LoadKind::Mixed => vec![
                group(self.depth, 4 << 10, 0.0),
                group((self.depth * 3 / 4).clamp(1, 6), 512 << 10, 0.0),
            ],
        };
        Mix { groups }
    }

    pub fn profiles(&self) -> Option<(&'static Profile, &'static Profile)> {
        Some((
            Profile::named(self.pair.fast)?,
            Profile::named(self.pair.slow)?,
        ))
    }

    /// Virtual time to measure: long enough for about 20,000 requests, or 400 MB of long ones, if both devices were
    /// fully used, and for about 2,000 or 200 MB on the slow one; within bounds.
    pub fn measured(&self) -> Nanos {
        let Some((fast, slow)) = self.profiles() else {
            return 0;
        };
        let small = |slow: &Profile| 2e3 * 4096.0 / slow.capacity(Op::Read, 4 << 10);
        let long = |slow: &Profile| 200e6 / slow.capacity(Op::Read, 64 << 10);
        let (bytes, wanted, by_slow_us, most) = match self.kind {
            LoadKind::Small | LoadKind::Skewed => (4 << 10, 8192e4, small(slow), SECOND),
            LoadKind::Medium => (64 << 10, 400e6, long(slow), 3 * SECOND),
            LoadKind::Scans | LoadKind::Mixed => (512 << 10, 400e6, long(slow), 3 * SECOND),
        };
        let rate = fast.capacity(Op::Read, bytes) + slow.capacity(Op::Read, bytes);
        let us = (wanted / rate).max(by_slow_us);
        ((us * 1000.0) as Nanos).clamp(30_000_000, most)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell {
            pair,
            kind,
            depth,
            resident_percent,
            write_percent,
            arrivals,
        } = self;
        write!(
            f,
            "{}/{} {} x{depth} {resident_percent} % resident {write_percent} % writes {arrivals}",
            pair.fast,
            pair.slow,
            kind.name()
        )
    }
}

/// All cells of the grid.
pub fn cells(extent: Extent) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add =
        |kinds: &[LoadKind], depths: &[u32], residents: &[u32], writes: &[u32], arrivals| {
            for pair in PAIRS {
                for kind in kinds {
                    for depth in depths {
                        for resident_percent in residents {
                            cells.extend(writes.iter().map(|write_percent| Cell {
                                pair,
                                kind: *kind,
                                depth: *depth,
                                resident_percent: *resident_percent,
                                write_percent: *write_percent,
                                arrivals,
                            }));
                        }
                    }
                }
            }
        };
    match extent {
        Extent::Sample => add(&LoadKind::ALL, &[8], &[100, 80], &[0, 20], Loop::Closed),
        Extent::Whole => {
            let (deep, once) = (
                [LoadKind::Small, LoadKind::Scans, LoadKind::Mixed],
                [LoadKind::Skewed, LoadKind::Medium],
            );
            let (residents, writes) = ([100, 95, 80, 50], [0, 5, 20, 50]);
            add(&deep, &[1, 8, 32], &residents, &writes, Loop::Closed);
            add(&once, &[8], &residents, &writes, Loop::Closed);
            for load in [0.7, 1.2] {
                add(&LoadKind::ALL, &[8], &[95, 50], &[5, 20], Loop::Open(load));
            }
        }
    }
    cells
}
