//! Backups with an accelerator: between the worker that has read a block and the writer that needs it, the block may
//! pass through the dispatcher of `longshore-accel`.
//!
//! A worker that has read a block offers it. If the block is accepted, the worker continues reading; *finishers*,
//! threads that compute under the same gate as workers, check the accelerator's result or compress the block again in
//! software. If the block is refused, the worker compresses it while it is in the core's cache, as in a backup without
//! accelerators, which this file does not affect.
//!
//! Invariants
//! - A block is counted and written once, whoever compressed it.
//! - The pools have the buffers of a software backup plus an allowance for accelerators: buffers that hung calls keep
//!   never come out of the former.
//! - One block can always be finished: the block that the writer waits for has separate output buffers (`spare`), in
//!   case later blocks hold all others.
//!
//! Leaves to others: choosing a device and checking its result (`longshore-accel`), and how many buffers are lent
//! (`choice.rs`).

use std::sync::Arc;

use longshore_accel::Task;
use longshore_accel::dispatch::{Admission, Before, Finish, Finisher, Offer};
use longshore_codec::Level;
use longshore_io::{Buffer, Turn, crc32c};

use super::block::Payload;
use super::read::Read;
use super::shared::{LoadShared, Offloading, PendingBlock};
use crate::choice::{NAP, WORTH_BYTES};
use crate::error::Error;
use crate::measure::lap;

impl Offloading {
    /// Passes a block to an accelerator, or returns it for the caller to compress. Releases the turn while it waits
    /// for room.
    pub fn offer<'a>(
        &self,
        shared: &'a LoadShared,
        read: Read,
        level: Level,
        turn: &mut Option<Turn<'a>>,
    ) -> Option<Read> {
        let clock = &*shared.context.clock;
        let len = read.job.plain_len;
        if len < WORTH_BYTES {
            return Some(read);
        }
        let remaining = shared.counters.remaining();
        let admitted = loop {
            match self.dispatcher.admit(len, remaining) {
                Admission::Yes(admitted) => break admitted,
                Admission::No => return Some(read),
                Admission::Full if shared.crew.has_failed() => return Some(read),
                Admission::Full => {
                    *turn = None;
                    let at = clock.now();
                    self.dispatcher.wait_for_room();
                    lap(clock, at, &shared.counters.device_wait_us);
                }
            }
        };
        if turn.is_none() {
            *turn = Some(shared.crew.gate.enter());
        }
        let at = clock.now();
        let Read {
            mut job,
            position,
            input,
            output,
            took,
        } = read;
        // Blocks that wait must not keep files open.
        job.pieces.clear();
        let plain = &input[..len];
        let (before, plain_crc) = (Before::of(plain), crc32c(plain));
        let output_range = position.payload..output.len();
        let offer = Offer {
            sequence: job.sequence,
            task: Task::Compress { level },
            input: Arc::new(input),
            input_range: 0..len,
            output,
            output_range,
            before,
            tag: PendingBlock {
                job,
                position,
                plain_crc,
            },
        };
        self.dispatcher.put(admitted, offer);
        let ended = lap(clock, at, &shared.counters.compute_us);
        self.dispatcher.fed(len, took + (ended - at));
        None
    }

    /// One finisher: checks results and compresses the rest, until all blocks are finished.
    pub fn finish_all(&self, shared: &LoadShared) -> Result<(), Error> {
        let mut finisher = Finisher::new(shared.request.algorithm, shared.request.level)?;
        while let Some(finish) = self.dispatcher.next() {
            let turn = shared.crew.gate.enter();
            if !self.finish(shared, &mut finisher, finish)? {
                drop(turn);
                shared.context.clock.sleep(NAP);
            }
        }
        Ok(())
    }

    /// A worker that has its turn finishes available results, so that it does not take the turn from finishers.
    pub fn finish_some(&self, shared: &LoadShared, finisher: &mut Finisher) -> Result<(), Error> {
        while let Some(finish) = self.dispatcher.try_next() {
            if !self.finish(shared, finisher, finish)? {
                break;
            }
        }
        Ok(())
    }

    /// False if there is no buffer for it now.
    fn finish(
        &self,
        shared: &LoadShared,
        finisher: &mut Finisher,
        finish: Finish<PendingBlock>,
    ) -> Result<bool, Error> {
        let clock = &*shared.context.clock;
        let at = clock.now();
        let sequence = finish.sequence();
        let fresh = || self.fresh_output(shared, sequence);
        let Some(settled) = finisher.settle(&self.dispatcher, finish, fresh) else {
            return Ok(false);
        };
        // Compression cannot fail; only a payload can be damaged.
        if let Ok(len) = settled.result {
            let PendingBlock {
                job,
                position,
                plain_crc,
            } = settled.tag;
            let payload = Payload {
                len_bytes: len,
                plain_crc,
                stored_crc: shared
                    .form
                    .checksum(&settled.output[position.payload..][..len]),
            };
            let form = &shared.form;
            let ready = form.sealed(job, position, settled.output, &payload);
            if !settled.recomputed {
                self.dispatcher.fed(0, clock.now() - at);
            }
            drop(settled.input);
            shared.put(ready)?;
        }
        lap(clock, at, &shared.counters.compute_us);
        Ok(true)
    }

    /// Replaces a buffer that a device still holds. The spare buffers are for the block that the writer waits for: any
    /// other block would keep one until that block is written.
    fn fresh_output(&self, shared: &LoadShared, sequence: u64) -> Option<Buffer> {
        let is_next = || !self.in_sequence || shared.handoff.next() == sequence;
        shared
            .outputs
            .try_take()
            .or_else(|| is_next().then(|| self.spare.try_take()).flatten())
    }

    /// Must be called about ten times a second.
    pub fn tick(&self, shared: &LoadShared) {
        if shared.crew.has_failed() {
            self.dispatcher.abort();
        }
        let head = self
            .in_sequence
            .then(|| shared.handoff.blocked_at())
            .flatten();
        self.dispatcher.tick(head);
        if let Some(published) = &self.published {
            published.update(|| self.dispatcher.uses());
        }
    }
}
