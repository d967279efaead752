//! Asks a device for equal requests at random places, several at a time.
//!
//! Invariants
//! - Requests go past the page cache. Nothing is written where reads are measured.
//! - The first request that fails, or is short, ends the measurement.
//! - Each call has other places, and writes other bytes: a cache in the device may keep earlier ones.
//! - The clock is an argument, so a test can measure a simulated device.
//!
//! Leaves to others: which sizes and depths (`measure.rs`), and rates over time (`course.rs`).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_io::{Clock, File, Pool, Via, side_by_side};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::Point;
use crate::model::Op;
use crate::policy::LINE_BYTES;

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
    #[error("a {} of {len} bytes at byte {offset} failed", op.noun())]
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

/// `depth` threads, each with one request of `len` bytes in flight at a time, for `time`; each makes `least` of them or more.
pub(super) fn cell(
    probe: Probe<'_>,
    (len, depth): (u64, u32),
    (time, least): (Duration, u64),
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
    let end = clock.now() + time;
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
        while !failed.load(Ordering::Relaxed) && (counted < least || clock.now() < end) {
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
            let ns = clock.now().saturating_sub(begun).as_nanos() as u64;
            took_ns.fetch_add(ns, Ordering::Relaxed);
            counted += 1;
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
