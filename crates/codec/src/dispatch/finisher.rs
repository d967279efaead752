//! Finishing a block: a result is checked, and what is not there or not right is done in software.

use std::ops::Range;
use std::sync::Arc;

use longshore_io::Buffer;

use super::check::check_payload;
use super::desk::{Finished, Undone};
use super::{Dispatcher, Finish, Kept};
use crate::{
    Algorithm, Compressor, Damaged, Decompressor, Error, Fault, Job, Level, Outcome, Task,
};

/// What a thread that finishes blocks needs: software of its own, and room to decode.
pub struct Finisher {
    algorithm: Algorithm,
    compressor: Compressor,
    decompressor: Decompressor,
    /// Grows to one buffer.
    scratch: Vec<u8>,
}

/// A block that is finished.
pub struct Settled<T> {
    pub sequence: u64,
    pub tag: T,
    pub input: Arc<Buffer>,
    pub input_range: Range<usize>,
    pub output: Buffer,
    pub output_range: Range<usize>,
    /// Bytes of the result at the front of the output range. Only a payload can be damaged.
    pub result: Result<usize, Damaged>,
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

    /// Finishes one block on this thread. `fresh` finds an output buffer as long as the one that was put, in case a
    /// device still holds that. `None`: there was none; the block comes out of [`Dispatcher::next`] again.
    pub fn settle<T: Send + 'static>(
        &mut self,
        dispatcher: &Dispatcher<T>,
        finish: Finish<T>,
        fresh: impl FnOnce() -> Option<Buffer>,
    ) -> Option<Settled<T>> {
        let Finished {
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
                    undone = Some(Undone::Fault(Fault::Corrupt));
                }
            }
        }
        let recomputed = undone.is_some();
        let done = job.as_ref().map(|job| job.outcome.clone());
        let Some(mut output) = job.map(|job| job.output).or_else(fresh) else {
            inner.desk.put_back(Finished {
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
        Some(Settled {
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

    /// The length of a result that may be used.
    fn check<T>(&mut self, kept: &Kept<T>, job: &Job, decode: bool) -> Result<usize, Damaged> {
        let Outcome::Done { len } = job.outcome else {
            return Err(Damaged::at(0, "it is not done"));
        };
        let output = job.output.get(kept.output_range.clone()).unwrap_or(&[]);
        let Some(result) = output.get(..len) else {
            return Err(Damaged::at(len, "longer than its room"));
        };
        match kept.task {
            Task::Compress { .. } => {
                let plain = &kept.input[kept.input_range.clone()];
                let tools = (&mut self.decompressor, &mut self.scratch);
                check_payload(self.algorithm, result, (plain, kept.before), decode, tools)?;
            }
            Task::Decompress { plain_len } if len != plain_len => {
                return Err(Damaged::at(len, "another length than asked for"));
            }
            Task::Decompress { .. } => {
                if !kept.before.is_of(result) {
                    return Err(Damaged::at(0, "other bytes than were compressed"));
                }
            }
        }
        Ok(len)
    }

    fn redo<T>(&mut self, kept: &Kept<T>, output: &mut Buffer) -> Result<usize, Damaged> {
        let input = &kept.input[kept.input_range.clone()];
        let output = &mut output[kept.output_range.clone()];
        match kept.task {
            Task::Compress { .. } => Ok(self.compressor.compress(input, output).len),
            Task::Decompress { plain_len } => {
                let Some(plain) = output.get_mut(..plain_len) else {
                    return Err(Damaged::at(0, "longer than its buffer"));
                };
                self.decompressor.decompress(self.algorithm, input, plain)?;
                Ok(plain_len)
            }
        }
    }
}
