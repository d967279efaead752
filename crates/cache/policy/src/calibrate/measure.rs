//! Measures a device: requests to random places, several at a time, for each size and depth of a plan.
//!
//! Invariants
//! - Requests go past the page cache, and the bytes in flight are bounded by the plan. Nothing is written where reads
//!   are measured.
//! - A cell has at least some requests, however long they take; the first that fails, or is short, ends the measurement.
//! - Each cell and each run has other places, and writes other bytes: a cache in the device may keep earlier ones.
//! - The clock is an argument, so a test can measure a simulated device.
//!
//! Leaves to others: fitting a model to the cells (`fit.rs`, `writes.rs`), and limits that show over time (`course.rs`).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_io::{Clock, File, Pool, Via, side_by_side};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::Point;
use crate::model::Op;
use crate::policy::LINE_BYTES;

/// Bytes of the requests of a plan.
const LENS: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 2 << 20];
/// Requests in flight at a time.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// The time for each size and depth.
const CELL_TIME: Duration = Duration::from_secs(2);
/// The most bytes in flight.
const IN_FLIGHT_MAX: u64 = 16 << 20;

/// The requests, and the time for them.
#[derive(Debug, Clone)]
pub struct MeasurePlan {
    /// Multiples of 4096.
    pub lens: Vec<u64>,
    pub depths: Vec<u32>,
    /// For each cell; some requests are made even if they take longer.
    pub time: Duration,
    /// For each cell before that: where a burst is faster, the time in which its credit is used up.
    pub warm_up: Duration,
    /// At most this many bytes are in flight: more would only measure the link again.
    pub in_flight_bytes_max: u64,
}

impl Default for MeasurePlan {
    fn default() -> MeasurePlan {
        MeasurePlan {
            lens: LENS.to_vec(),
            depths: DEPTHS.to_vec(),
            time: CELL_TIME,
            warm_up: Duration::ZERO,
            in_flight_bytes_max: IN_FLIGHT_MAX,
        }
    }
}

impl MeasurePlan {
    /// The sizes and depths that are measured.
    pub fn cells(&self) -> Vec<(u64, u32)> {
        let all = self
            .lens
            .iter()
            .flat_map(|len| self.depths.iter().map(move |depth| (*len, *depth)));
        all.filter(|(len, depth)| len * u64::from(*depth) <= self.in_flight_bytes_max)
            .collect()
    }
}

/// Why a path cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error("{have} bytes are too few for random requests; {least} are needed")]
    TooSmall { have: u64, least: u64 },
    #[error("no memory for {depth} requests of {len} bytes")]
    Memory {
        len: u64,
        depth: u32,
        #[source]
        error: io::Error,
    },
    #[error("cannot start {depth} threads")]
    Threads {
        depth: u32,
        #[source]
        error: io::Error,
    },
    #[error("a {} of {len} bytes at byte {offset} failed", name(*op))]
    Request {
        op: Op,
        offset: u64,
        len: u64,
        #[source]
        error: io::Error,
    },
}

impl MeasureError {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            MeasureError::TooSmall { .. } => "name a larger file on the same device, or the device",
            MeasureError::Memory { .. } => "free some memory",
            MeasureError::Threads { .. } => {
                "allow this user more threads (`ulimit -u`; TasksMax in a systemd unit)"
            }
            MeasureError::Request { .. } => "check the device; `dmesg` may show more",
        }
    }
}

/// The word for a request in texts.
pub(super) fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

/// The range must hold this many of the longest requests.
const PLACES: u64 = 64;
/// Each thread makes this many requests, however long they take.
const REQUESTS_LEAST: u64 = 3;

/// A file or a device that is measured, and by which requests.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    pub file: &'a dyn File,
    /// The bytes from the beginning that requests may go to.
    pub len_bytes: u64,
    /// Writes replace what is there.
    pub op: Op,
    /// Grows by what is written.
    pub written_bytes: &'a AtomicU64,
}

/// Measures all cells, bypassing the page cache. Calls `on_cell` after each cell.
pub fn measure(
    probe: Probe<'_>,
    plan: &MeasurePlan,
    clock: &dyn Clock,
    on_cell: &dyn Fn(&Point),
) -> Result<Vec<Point>, MeasureError> {
    let longest = plan.lens.iter().copied().max().unwrap_or(0);
    let least = longest.saturating_mul(PLACES);
    if probe.len_bytes < least || longest == 0 {
        let have = probe.len_bytes;
        return Err(MeasureError::TooSmall { have, least });
    }
    let mut points = Vec::new();
    for shape in plan.cells() {
        let point = cell(probe, shape, (plan.warm_up, plan.time), clock)?;
        on_cell(&point);
        points.push(point);
    }
    Ok(points)
}

/// Equal requests of both probes at the same time.
pub fn together(
    probes: [Probe<'_>; 2],
    shape: (u64, u32),
    plan: &MeasurePlan,
    clock: &dyn Clock,
) -> Result<[Point; 2], MeasureError> {
    let one = |n: usize| cell(probes[n], shape, (plan.warm_up, plan.time), clock);
    let both = side_by_side(2, one).map_err(|error| MeasureError::Threads { depth: 2, error })?;
    let both: Vec<Point> = both.into_iter().collect::<Result<_, _>>()?;
    Ok([both[0], both[1]])
}

/// `depth` threads, each with one request of `len` bytes in flight at a time. Those of the first `warm_up` do not count.
pub(super) fn cell(
    probe: Probe<'_>,
    (len, depth): (u64, u32),
    (warm_up, time): (Duration, Duration),
    clock: &dyn Clock,
) -> Result<Point, MeasureError> {
    let Probe {
        file,
        len_bytes,
        op,
        written_bytes,
    } = probe;
    let pool = Pool::new(depth as usize, len as usize).map_err(|error| MeasureError::Memory {
        len,
        depth,
        error,
    })?;
    let (count, took_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let from = clock.now() + warm_up;
    let end = from + time;
    // Other places for each cell and each run: a cache in or behind the device may keep earlier ones.
    let seed = end.as_nanos() as u64 ^ len << 32 ^ u64::from(depth) << 16;
    let ask = |thread: usize| -> Result<(), MeasureError> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ thread as u64);
        let Some(mut buffer) = pool.take() else {
            return Ok(());
        };
        let buffer = &mut buffer[..len as usize];
        if op == Op::Write {
            random.fill_bytes(buffer);
        }
        let mut counted = 0;
        while !failed.load(Ordering::Relaxed) && (counted < REQUESTS_LEAST || clock.now() < end) {
            let offset = random.next_u64() % (len_bytes / len) * len;
            if op == Op::Write {
                // No two are alike in any line, so that a device which keeps equal blocks once writes all of them.
                for line in buffer.chunks_mut(LINE_BYTES as usize) {
                    let stamp = random.next_u64().to_le_bytes();
                    let at = line.len().min(stamp.len());
                    line[..at].copy_from_slice(&stamp[..at]);
                }
            }
            let begun = clock.now();
            let done = match op {
                Op::Read => {
                    let done = file.read_full_at(buffer, offset, Via::Direct);
                    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
                    done.and_then(|n| (n as u64 == len).then_some(()).ok_or_else(short))
                }
                Op::Write => {
                    written_bytes.fetch_add(len, Ordering::Relaxed);
                    file.write_all_at(buffer, offset, Via::Direct)
                }
            };
            if let Err(error) = done {
                failed.store(true, Ordering::Relaxed);
                return Err(MeasureError::Request {
                    op,
                    offset,
                    len,
                    error,
                });
            }
            if begun >= from {
                let ns = clock.now().saturating_sub(begun).as_nanos() as u64;
                took_ns.fetch_add(ns, Ordering::Relaxed);
                counted += 1;
            }
        }
        count.fetch_add(counted, Ordering::Relaxed);
        Ok(())
    };
    side_by_side(depth as usize, ask)
        .map_err(|error| MeasureError::Threads { depth, error })?
        .into_iter()
        .collect::<Result<(), _>>()?;
    let count = count.into_inner();
    Ok(Point {
        op,
        len_bytes: len,
        depth,
        mean_us: took_ns.into_inner() as f64 / 1000.0 / count.max(1) as f64,
        count,
    })
}
