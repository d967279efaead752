//! Finishes a block: checks an accelerator's result, and does in software what is missing or wrong.
//!
//! Invariants
//! - Every result is compared with lengths, framing and the checksum that the CPU computed before the accelerator saw
//!   the bytes.
//! - A block is always finished: whatever the device did, software can do it from the input, which is kept until then.
//! - A buffer that a device may still write to is never used for the block.
//!
//! Leaves to others: which results are also decoded (`check.rs`), and what a fault costs the device (`standing.rs`).

use std::ops::Range;
use std::sync::Arc;

use longshore_codec::{Algorithm, Compressor, Decompressor, Error, Level, PayloadError};
use longshore_io::Buffer;

use super::check::check_payload;
use super::desk::{FinishedParcel, NotDone};
use super::inner::ParcelRest;
use super::{Dispatcher, Finish};
use crate::{Fault, Job, Outcome, Task};

/// The state of a thread that finishes blocks: its own software codec, and room to decode.
pub struct Finisher {
    algorithm: Algorithm,
    compressor: Compressor,
    decompressor: Decompressor,
    /// Grows to one buffer.
    scratch: Vec<u8>,
}

/// A block that is finished.
pub struct FinishedBlock<T> {
    pub sequence: u64,
    pub tag: T,
    pub input: Arc<Buffer>,
    pub input_range: Range<usize>,
    pub output: Buffer,
    pub output_range: Range<usize>,
    /// Bytes of the result at the start of the output range. Only a payload can be damaged.
    pub result: Result<usize, PayloadError>,
    /// Software did it.
    pub recomputed: bool,
}

impl Finisher {
    /// Errors: `LevelOutOfRange`, `LevelNotSupported`.
    pub fn new(algorithm: Algorithm, level: Level) -> Result<Finisher, Error> {
        Ok(Finisher {
            algorithm,
            compressor: Compressor::new(algorithm, level)?,
            decompressor: Decompressor::new(),
            scratch: Vec::new(),
        })
    }

    /// Finishes one block on this thread. `fresh` supplies an output buffer as long as the one that was put, for the
    /// case that a device may still hold that one. `None`: `fresh` had no buffer, and [`Dispatcher::next`] returns the
    /// block again.
    pub fn settle<T: Send + 'static>(
        &mut self,
        dispatcher: &Dispatcher<T>,
        finish: Finish<T>,
        fresh: impl FnOnce() -> Option<Buffer>,
    ) -> Option<FinishedBlock<T>> {
        let FinishedParcel {
            sequence,
            kept,
            job,
            mut undone,
        } = finish.0;
        let inner = &*dispatcher.inner;
        let lane = &inner.lanes[kept.lane];
        if undone.is_none()
            && let Some(job) = &job
        {
            let decode = lane.take_sample(sequence, &inner.terms);
            match self.check(&kept, job, decode) {
                Ok(len) => {
                    let (plain, payload) = match kept.task {
                        Task::Compress { .. } => (kept.input_range.len(), len),
                        Task::Decompress { .. } => (len, kept.input_range.len()),
                    };
                    lane.used(plain, payload, decode);
                }
                Err(what) => {
                    tracing::debug!(sequence, %what, "a result was refused");
                    lane.refused(inner.clock.now());
                    undone = Some(NotDone::Fault(Fault::Corrupt));
                }
            }
        }
        let recomputed = undone.is_some();
        let done = job.as_ref().map(|job| job.outcome.clone());
        let Some(mut output) = job.map(|job| job.output).or_else(fresh) else {
            inner.desk.put_back(FinishedParcel {
                sequence,
                kept,
                job: None,
                undone,
            });
            return None;
        };
        let result = match (recomputed, done) {
            (false, Some(Outcome::Done { len })) => Ok(len),
            _ => {
                lane.recomputed(undone);
                self.redo(&kept, &mut output)
            }
        };
        let plain_len = match kept.task {
            Task::Compress { .. } => kept.input_range.len(),
            Task::Decompress { plain_len } => plain_len,
        };
        inner.progressed(plain_len);
        Some(FinishedBlock {
            sequence,
            tag: kept.tag,
            input: kept.input,
            input_range: kept.input_range,
            output,
            output_range: kept.output_range,
            result,
            recomputed,
        })
    }

    /// The length of a result that passed its checks.
    fn check<T>(
        &mut self,
        kept: &ParcelRest<T>,
        job: &Job,
        decode: bool,
    ) -> Result<usize, PayloadError> {
        let Outcome::Done { len } = job.outcome else {
            return Err(PayloadError::at(0, "it is not done"));
        };
        let output = job.output.get(kept.output_range.clone()).unwrap_or(&[]);
        let Some(result) = output.get(..len) else {
            return Err(PayloadError::at(len, "longer than its buffer"));
        };
        match kept.task {
            Task::Compress { .. } => {
                let plain = &kept.input[kept.input_range.clone()];
                let tools = (&mut self.decompressor, &mut self.scratch);
                check_payload(self.algorithm, result, (plain, kept.before), decode, tools)?;
            }
            Task::Decompress { plain_len } if len != plain_len => {
                return Err(PayloadError::at(len, "another length than asked for"));
            }
            Task::Decompress { .. } => {
                if !kept.before.is_of(result) {
                    return Err(PayloadError::at(0, "other bytes than were compressed"));
                }
            }
        }
        Ok(len)
    }

    fn redo<T>(
        &mut self,
        kept: &ParcelRest<T>,
        output: &mut Buffer,
    ) -> Result<usize, PayloadError> {
        let input = &kept.input[kept.input_range.clone()];
        let output = &mut output[kept.output_range.clone()];
        match kept.task {
            Task::Compress { .. } => Ok(self.compressor.compress(input, output).len),
            Task::Decompress { plain_len } => {
                let Some(plain) = output.get_mut(..plain_len) else {
                    return Err(PayloadError::at(0, "longer than its buffer"));
                };
                self.decompressor.decompress(self.algorithm, input, plain)?;
                Ok(plain_len)
            }
        }
    }
}
