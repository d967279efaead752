//! A job before and after the device: cut into chunks, then framed as a payload.
//!
//! Invariants
//! - Only whole chunks go to the device; this thread compresses the tail.
//! - A job either gets a whole payload or is left to software as a whole.
//!
//! Leaves to others: the batch between (`device.rs`, `batch_memory.rs`), and the members (`frame.rs`).

use std::ops::Range;
use std::sync::Arc;

use longshore_io::Buffer;

use super::batch_memory::{BatchMemory, Made};
use super::frame::{ChunkResult, frame};
use super::queues::CHUNK;
use crate::engine::{Fault, Job, Outcome};

/// One job's input and its division into chunks.
pub(super) struct Plan {
    pub input: Arc<Buffer>,
    pub range: Range<usize>,
    /// Whole chunks.
    pub whole: usize,
}

impl Plan {
    pub fn of(job: &Job) -> Plan {
        Plan {
            input: Arc::clone(&job.input),
            range: job.input_range.clone(),
            whole: job.input_range.len() / CHUNK,
        }
    }

    pub fn plain(&self) -> &[u8] {
        &self.input[self.range.clone()]
    }

    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.plain().chunks_exact(CHUNK)
    }
}

/// How many of `jobs`, at least one, together have at most `capacity` whole chunks.
pub(super) fn slice_len(jobs: &[&mut Job], capacity: usize) -> usize {
    let mut chunks = 0;
    let fitting = jobs.iter().take_while(|job| {
        chunks += job.input_range.len() / CHUNK;
        chunks <= capacity
    });
    fitting.count().max(1)
}

/// Frames a job's payload from the device's results for its whole chunks, and does the rest on this thread. Also
/// returns how many chunks the device failed at. A job that lost more than one chunk in four is left to software as a
/// whole, which uses more than one thread.
pub(super) fn finish(
    memory: &mut BatchMemory,
    plan: &Plan,
    made: &[Made],
    level: i32,
    out: &mut [u8],
) -> (Outcome, u64) {
    let failures = || {
        made.iter().filter_map(|made| match made {
            Made::Failed(fault) => Some(*fault),
            Made::Deflated { .. } | Made::Incompressible => None,
        })
    };
    let failed = failures().count();
    if let Some(fault) = failures().next()
        && failed * 4 > made.len()
    {
        return (Outcome::Recompute(fault), 0);
    }
    let plain = plan.plain();
    // The chunks that this thread compresses, kept until the job is framed: few, usually none or the tail.
    let mut own: Vec<Option<Vec<u8>>> = Vec::new();
    for (i, chunk) in plain.chunks(CHUNK).enumerate() {
        if matches!(made.get(i), None | Some(Made::Failed(_))) {
            let len = memory.deflate(chunk, level);
            own.push(len.map(|len| memory.deflated[..len].to_vec()));
        }
    }
    let mut own = own.iter();
    let pieces = plain.chunks(CHUNK).enumerate().map(|(i, chunk)| {
        let range = i * CHUNK..i * CHUNK + chunk.len();
        let piece = match made.get(i) {
            Some(Made::Deflated { at, crc32 }) => ChunkResult::Deflated {
                data: &memory.output()[at.clone()],
                crc32: *crc32,
            },
            Some(Made::Incompressible) => ChunkResult::Stored,
            Some(Made::Failed(_)) | None => match own.next().and_then(Option::as_ref) {
                None => ChunkResult::Stored,
                Some(data) => ChunkResult::Deflated {
                    data,
                    crc32: crc_fast::crc32_iso_hdlc(chunk),
                },
            },
        };
        (range, piece)
    });
    let outcome = match frame(plain, pieces, out) {
        Some(len) => Outcome::Done { len },
        None => Outcome::Recompute(Fault::NoRoom),
    };
    (outcome, failed as u64)
}
