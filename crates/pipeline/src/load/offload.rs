//! Backups with an accelerator: between a worker that has read a block and the writer that wants it, the block may
//! take another way, through `codec`'s dispatcher.
//!
//! A worker that has read a block offers it. If it is taken, the worker goes on reading; *finishers*, threads that
//! compute under the same gate as workers, check the accelerator's result or do the block again in software. If it
//! is refused, the worker compresses it itself, while it lies in its core's cache: the way of a backup that has no
//! accelerator at all, which none of this touches.
//!
//! Invariants
//! - A block is counted and written once, whoever compressed it.
//! - The pools hold what the plan of a software backup gives, and on top of that the accelerators' allowance: what
//!   hung calls keep never comes out of the former.
//! - One block can always be finished: the one that the writer waits for has output buffers of its own (`spare`),
//!   should all others be taken by blocks behind it.

use std::sync::Arc;
use std::time::Duration;

use longshore_codec::dispatch::{
    Admission, Before, Dispatcher, EngineUse, Finish, Finisher, Mode, Offer,
};
use longshore_codec::{Level, Task};
use longshore_io::{Buffer, Pass, Pool, crc32c};

use super::{Place, Shared};
use crate::accelerator::Published;
use crate::choice::{NAP, WORTH_BYTES};
use crate::context::House;
use crate::error::Error;
use crate::feed::Job;
use crate::measure::lap;

/// A run's accelerators at work.
pub struct Offloading {
    pub dispatcher: Dispatcher<Waiting>,
    spare: Pool,
    /// One stripe: blocks are written in sequence.
    in_sequence: bool,
    /// Counters for whoever asks from another process.
    published: Option<Published>,
}

/// What a block still needs when it comes back.
pub struct Waiting {
    job: Job,
    place: Place,
    plain_crc: u32,
}

/// What a worker holds when it has read a block.
pub struct Read {
    pub job: Job,
    pub place: Place,
    pub input: Buffer,
    pub output: Buffer,
    /// What reading it took of a core; nothing when it came from a disk.
    pub took: Duration,
}

impl Offloading {
    pub fn new(
        house: &House,
        (dispatcher, spare): (Dispatcher<Waiting>, Pool),
        mode: Mode,
        in_sequence: bool,
    ) -> Offloading {
        Offloading {
            dispatcher,
            spare,
            in_sequence,
            published: Published::begin(house, mode),
        }
    }

    /// Hands a block to an accelerator, or gives it back to be compressed by the caller. Lets go of the turn while it
    /// waits for room.
    pub fn offer<'a>(
        &self,
        shared: &'a Shared,
        read: Read,
        level: Level,
        turn: &mut Option<Pass<'a>>,
    ) -> Option<Read> {
        let clock = &*shared.house.clock;
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
            place,
            input,
            output,
            took,
        } = read;
        // Files are not kept open by blocks that wait.
        job.pieces.clear();
        let plain = &input[..len];
        let (before, plain_crc) = (Before::of(plain), crc32c(plain));
        let output_range = place.payload..output.len();
        let offer = Offer {
            sequence: job.sequence,
            task: Task::Compress { level },
            input: Arc::new(input),
            input_range: 0..len,
            output,
            output_range,
            before,
            tag: Waiting {
                job,
                place,
                plain_crc,
            },
        };
        self.dispatcher.put(admitted, offer);
        let ended = lap(clock, at, &shared.counters.compute_us);
        self.dispatcher.fed(len, took + (ended - at));
        None
    }

    /// One finisher: checks what came back and does the rest, until everything is finished.
    pub fn finish_all(&self, shared: &Shared) -> Result<(), Error> {
        let mut finisher = Finisher::new(shared.request.algorithm, shared.request.level)?;
        while let Some(finish) = self.dispatcher.next() {
            let turn = shared.crew.gate.enter();
            if !self.finish(shared, &mut finisher, finish)? {
                drop(turn);
                shared.house.clock.sleep(NAP);
            }
        }
        Ok(())
    }

    /// A worker that has its turn finishes what is there, so that it does not keep finishers from theirs.
    pub fn finish_some(&self, shared: &Shared, finisher: &mut Finisher) -> Result<(), Error> {
        while let Some(finish) = self.dispatcher.try_next() {
            if !self.finish(shared, finisher, finish)? {
                break;
            }
        }
        Ok(())
    }

    /// False when there is no buffer for it now.
    fn finish(
        &self,
        shared: &Shared,
        finisher: &mut Finisher,
        finish: Finish<Waiting>,
    ) -> Result<bool, Error> {
        let clock = &*shared.house.clock;
        let at = clock.now();
        let sequence = finish.sequence();
        let fresh = || self.fresh_output(shared, sequence);
        let Some(settled) = finisher.settle(&self.dispatcher, finish, fresh) else {
            return Ok(false);
        };
        // Compression cannot fail: only payloads can be damaged.
        if let Ok(len) = settled.result {
            let Waiting {
                job,
                place,
                plain_crc,
            } = settled.tag;
            let ready = shared.seal_block(job, place, settled.output, plain_crc, len);
            if !settled.recomputed {
                self.dispatcher.fed(0, clock.now() - at);
            }
            drop(settled.input);
            shared.put(ready)?;
        }
        lap(clock, at, &shared.counters.compute_us);
        Ok(true)
    }

    /// A buffer in place of one that a device still holds. The spare ones are for the block that the writer waits
    /// for: with any other they might wait for it in their turn.
    fn fresh_output(&self, shared: &Shared, sequence: u64) -> Option<Buffer> {
        let is_next = || !self.in_sequence || shared.handoff.next() == sequence;
        shared
            .outputs
            .try_take()
            .or_else(|| is_next().then(|| self.spare.try_take()).flatten())
    }

    /// To be called about ten times a second.
    pub fn tick(&self, shared: &Shared) {
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

    pub fn uses(&self) -> Vec<EngineUse> {
        self.dispatcher.uses()
    }
}
