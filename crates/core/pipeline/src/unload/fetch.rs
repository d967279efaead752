//! Restores with an accelerator that decompresses: the mirror image of `load/offload.rs`.
//!
//! Invariants
//! - A result is used only if it has the plain CRC-32C in the block's header; otherwise software decodes the block
//!   again, and only a block that software cannot decode either is damaged.
//! - Blocks do not wait for one another, so any of them can be finished with a spare buffer.
//! - A block's number here is new: a damaged header's sequence may not be unique.
//!
//! Leaves to others: the stored CRC-32C, which the worker has checked before (`decode.rs`), and choosing a device
//! (`longshore-accel`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_accel::Task;
use longshore_accel::dispatch::{Admission, Before, EngineUse, Finish, Finisher, Offer};
use longshore_codec::Level;
use longshore_io::{Buffer, Turn, crc32c};

use super::shared::{Offloading, PendingBlock, UnloadShared, WantedBlock};
use crate::choice::{NAP, Started, WORTH_BYTES};
use crate::error::Error;
use crate::measure::lap;

impl Offloading {
    pub fn new(started: Started<PendingBlock>) -> Offloading {
        Offloading {
            dispatcher: started.dispatcher,
            spare: started.spare,
            next: AtomicU64::new(0),
        }
    }

    /// Passes a payload to an accelerator, or returns it with its buffer. Releases the turn while it waits for room.
    pub fn offer<'a>(
        &self,
        shared: &'a UnloadShared,
        wanted: WantedBlock,
        turn: &mut Option<Turn<'a>>,
    ) -> Option<WantedBlock> {
        let header = &wanted.read.block.header;
        let plain_len = header.plain_len as usize;
        if plain_len < WORTH_BYTES {
            return Some(wanted);
        }
        let admitted = loop {
            match self
                .dispatcher
                .admit(plain_len, shared.counters.remaining())
            {
                Admission::Yes(admitted) => break admitted,
                Admission::Full if !shared.crew.has_failed() => {
                    *turn = None;
                    self.dispatcher.wait_for_room();
                }
                Admission::Full | Admission::No => return Some(wanted),
            }
        };
        let WantedBlock { read, items, plain } = wanted;
        let (payload, read) = read.split();
        let header = &read.block.header;
        let offer = Offer {
            sequence: self.next.fetch_add(1, Ordering::Relaxed),
            task: Task::Decompress { plain_len },
            input: Arc::new(payload),
            input_range: read.place.clone(),
            output: plain,
            output_range: 0..plain_len,
            before: Before::Crc32c(header.plain_crc),
            tag: PendingBlock { read, items },
        };
        self.dispatcher.put(admitted, offer);
        None
    }

    /// One finisher, until all blocks are finished.
    pub fn finish_all(&self, shared: &UnloadShared) -> Result<(), Error> {
        let clock = &*shared.context.clock;
        let mut finisher = Finisher::new(shared.algorithm, Level::Low)?;
        while let Some(finish) = self.dispatcher.next() {
            let turn = shared.crew.gate.enter();
            let at = clock.now();
            let done = self.finish(shared, &mut finisher, finish);
            lap(clock, at, &shared.counters.compute_us);
            // Writing waits for devices, so another thread may compute.
            drop(turn);
            match done {
                Some((fetched, plain, Ok(()))) => {
                    let header = &fetched.read.block.header;
                    let plain = &plain[..header.plain_len as usize];
                    shared.deliver(fetched.read.set(), fetched.items, plain)?;
                }
                Some((fetched, _, Err(what))) => {
                    shared.sink.damage(fetched.read.damaged(what))?;
                }
                None => clock.sleep(NAP),
            }
        }
        Ok(())
    }

    /// `None`: there is no buffer for it now.
    fn finish(
        &self,
        shared: &UnloadShared,
        finisher: &mut Finisher,
        finish: Finish<PendingBlock>,
    ) -> Option<(PendingBlock, Buffer, Result<(), String>)> {
        let fresh = || shared.plains.try_take().or_else(|| self.spare.try_take());
        let settled = finisher.settle(&self.dispatcher, finish, fresh)?;
        let expected = settled.tag.read.block.header.plain_crc;
        let result = match settled.result {
            Err(what) => Err(format!("it does not decode: {what}")),
            // The accelerator's result was already compared.
            Ok(_) if !settled.recomputed => Ok(()),
            Ok(len) => match crc32c(&settled.output[..len]) {
                found if found == expected => Ok(()),
                found => Err(format!(
                    "plain bytes have CRC-32C {found:#010x}, not {expected:#010x}"
                )),
            },
        };
        Some((settled.tag, settled.output, result))
    }

    /// Must be called about ten times a second.
    pub fn tick(&self, shared: &UnloadShared) {
        if shared.crew.has_failed() {
            self.dispatcher.abort();
        }
        self.dispatcher.tick(None);
    }

    /// Called when no more blocks will be offered.
    pub fn end(&self) {
        self.dispatcher.end();
    }

    pub fn uses(&self) -> Vec<EngineUse> {
        self.dispatcher.uses()
    }

    /// Records that a worker decoded a block itself.
    pub fn software_did(&self, plain_len: usize, took: Duration) {
        self.dispatcher.software_did(plain_len, took);
    }
}
