//! Measures a device: reads at random places, several at a time, for each size and depth of a plan.
//!
//! Invariants
//! - The device is only read, past the page cache, and the bytes in flight are bounded by the plan.
//! - A cell has at least some reads, however long they take; the first read that fails, or is short, ends the
//!   measurement.
//! - Each cell and each run reads other places: a cache in the device may keep earlier ones.
//! - The clock is an argument, so a test can measure a simulated device.
//!
//! Leaves to others: fitting a model to the cells (`fit.rs`).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_io::{Clock, File, Pool, Via, side_by_side};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::Point;

/// Bytes of the reads of a plan.
const LENS: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 2 << 20];
/// Reads in flight at a time.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
/// The time for each size and depth.
const CELL_TIME: Duration = Duration::from_secs(2);
/// The most bytes in flight.
const IN_FLIGHT_MAX: u64 = 16 << 20;

/// The reads, and the time for them.
#[derive(Debug, Clone)]
pub struct MeasurePlan {
    /// Multiples of 4096.
    pub lens: Vec<u64>,
    pub depths: Vec<u32>,
    /// For each cell; some reads are made even if they take longer.
    pub time: Duration,
    /// At most this many bytes are in flight: more would only measure the link again.
    pub in_flight_bytes_max: u64,
}

impl Default for MeasurePlan {
    fn default() -> MeasurePlan {
        MeasurePlan {
            lens: LENS.to_vec(),
            depths: DEPTHS.to_vec(),
            time: CELL_TIME,
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
    #[error("{have} bytes are too few for random reads; {least} are needed")]
    TooSmall { have: u64, least: u64 },
    #[error("no memory for {depth} reads of {len} bytes")]
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
    #[error("a read of {len} bytes at byte {offset} failed")]
    Read {
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
            MeasureError::Read { .. } => "check the device; `dmesg` may show more",
        }
    }
}

/// The range must hold this many of the longest reads.
const PLACES: u64 = 64;
/// Each reader makes this many reads, however long they take.
const READS_LEAST: u64 = 3;

/// Measures all cells, bypassing the page cache. Calls `on_cell` after each cell.
pub fn measure(
    file: &dyn File,
    len_bytes: u64,
    plan: &MeasurePlan,
    clock: &dyn Clock,
    on_cell: &dyn Fn(&Point),
) -> Result<Vec<Point>, MeasureError> {
    let longest = plan.lens.iter().copied().max().unwrap_or(0);
    let least = longest.saturating_mul(PLACES);
    if len_bytes < least || longest == 0 {
        let have = len_bytes;
        return Err(MeasureError::TooSmall { have, least });
    }
    let mut points = Vec::new();
    for (len, depth) in plan.cells() {
        let point = cell(file, len_bytes, len, depth, plan.time, clock)?;
        on_cell(&point);
        points.push(point);
    }
    Ok(points)
}

/// `depth` readers, each with one read in flight at a time.
fn cell(
    file: &dyn File,
    len_bytes: u64,
    len: u64,
    depth: u32,
    time: Duration,
    clock: &dyn Clock,
) -> Result<Point, MeasureError> {
    let pool = Pool::new(depth as usize, len as usize).map_err(|error| MeasureError::Memory {
        len,
        depth,
        error,
    })?;
    let (count, took_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let end = clock.now() + time;
    // Other places for each cell and each run: a cache in or behind the device may keep earlier ones.
    let seed = end.as_nanos() as u64 ^ len << 32 ^ u64::from(depth) << 16;
    let read = |reader: usize| -> Result<(), MeasureError> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ reader as u64);
        let Some(mut buffer) = pool.take() else {
            return Ok(());
        };
        let mut reads = 0;
        while !failed.load(Ordering::Relaxed) && (reads < READS_LEAST || clock.now() < end) {
            let offset = random.next_u64() % (len_bytes / len) * len;
            let begun = clock.now();
            let done = file.read_full_at(&mut buffer[..len as usize], offset, Via::Direct);
            let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
            let done = done.and_then(|n| (n as u64 == len).then_some(()).ok_or_else(short));
            if let Err(error) = done {
                failed.store(true, Ordering::Relaxed);
                return Err(MeasureError::Read { offset, len, error });
            }
            let ns = clock.now().saturating_sub(begun).as_nanos() as u64;
            took_ns.fetch_add(ns, Ordering::Relaxed);
            reads += 1;
        }
        count.fetch_add(reads, Ordering::Relaxed);
        Ok(())
    };
    side_by_side(depth as usize, read)
        .map_err(|error| MeasureError::Threads { depth, error })?
        .into_iter()
        .collect::<Result<(), _>>()?;
    let count = count.into_inner();
    Ok(Point {
        len_bytes: len,
        depth,
        mean_us: took_ns.into_inner() as f64 / 1000.0 / count.max(1) as f64,
        count,
    })
}
