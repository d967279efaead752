//! Restores with an accelerator that decompresses: the mirror image of `load/offload.rs`.
//!
//! A worker checks a payload's stored CRC-32C and offers it. What comes back must have the plain CRC-32C that stands in
//! the block's header; software does again what has not, and only what software cannot decode either is damaged.
//! Blocks do not wait for one another, so any of them can be finished with a spare buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_codec::dispatch::{
    Admission, Before, Dispatcher, EngineUse, Finish, Finisher, Offer,
};
use longshore_codec::{Level, Task};
use longshore_io::{Buffer, Pass, Pool, crc32c};
use longshore_media::Item;

use super::{Read, Shared};
use crate::choice::{NAP, WORTH_BYTES};
use crate::error::Error;
use crate::measure::lap;

/// A run's accelerators at work.
pub struct Fetching {
    dispatcher: Dispatcher<Fetched>,
    spare: Pool,
    /// Numbers blocks anew: what stands in a damaged block's header need not be unique.
    next: AtomicU64,
}

/// What a block still needs when it comes back.
pub struct Fetched {
    /// Its payload stays with the dispatcher.
    read: Read<()>,
    items: Vec<Item>,
}

impl Fetching {
    pub fn new((dispatcher, spare): (Dispatcher<Fetched>, Pool)) -> Fetching {
        Fetching {
            dispatcher,
            spare,
            next: AtomicU64::new(0),
        }
    }

    /// Hands a payload to an accelerator, or gives it back with its buffer. Lets go of the turn while it waits for
    /// room.
    pub fn offer<'a>(
        &self,
        shared: &'a Shared,
        (read, items, plain): (Read, Vec<Item>, Buffer),
        turn: &mut Option<Pass<'a>>,
    ) -> Option<(Read, Vec<Item>, Buffer)> {
        let header = &read.block.header;
        let (plain_len, stored_len) = (header.plain_len as usize, header.stored_len as usize);
        if plain_len < WORTH_BYTES {
            return Some((read, items, plain));
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
                Admission::Full | Admission::No => return Some((read, items, plain)),
            }
        };
        let (payload, read) = read.split();
        let header = &read.block.header;
        let offer = Offer {
            sequence: self.next.fetch_add(1, Ordering::Relaxed),
            task: Task::Decompress { plain_len },
            input: Arc::new(payload),
            input_range: 0..stored_len,
            output: plain,
            output_range: 0..plain_len,
            before: Before::Crc32c(header.plain_crc),
            tag: Fetched { read, items },
        };
        self.dispatcher.put(admitted, offer);
        None
    }

    /// One finisher, until everything is finished.
    pub fn finish_all(&self, shared: &Shared) -> Result<(), Error> {
        let clock = &*shared.house.clock;
        let mut finisher = Finisher::new(shared.algorithm, Level::Low)?;
        while let Some(finish) = self.dispatcher.next() {
            let turn = shared.crew.gate.enter();
            let at = clock.now();
            let done = self.finish(shared, &mut finisher, finish);
            lap(clock, at, &shared.counters.compute_us);
            // Writing waits for devices: somebody else may compute.
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
        shared: &Shared,
        finisher: &mut Finisher,
        finish: Finish<Fetched>,
    ) -> Option<(Fetched, Buffer, Result<(), String>)> {
        let fresh = || shared.plains.try_take().or_else(|| self.spare.try_take());
        let settled = finisher.settle(&self.dispatcher, finish, fresh)?;
        let expected = settled.tag.read.block.header.plain_crc;
        let result = match settled.result {
            Err(what) => Err(format!("it does not decode: {what}")),
            // The accelerator's result was compared already.
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

    /// To be called about ten times a second.
    pub fn tick(&self, shared: &Shared) {
        if shared.crew.has_failed() {
            self.dispatcher.abort();
        }
        self.dispatcher.tick(None);
    }

    /// Nothing will be offered any more.
    pub fn end(&self) {
        self.dispatcher.end();
    }

    pub fn uses(&self) -> Vec<EngineUse> {
        self.dispatcher.uses()
    }

    /// A worker decoded a block itself.
    pub fn software_did(&self, plain_len: usize, took: Duration) {
        self.dispatcher.software_did(plain_len, took);
    }
}

impl Shared<'_> {
    /// A block's plain bytes, checked, go to the sink.
    pub fn deliver(&self, set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error> {
        let len = plain.len() as u64;
        let tally = &self.tallies[set];
        tally.plain_bytes.fetch_add(len, Ordering::Relaxed);
        self.counters.plain_bytes.fetch_add(len, Ordering::Relaxed);
        let data = u64::from(len > 0);
        self.counters.blocks.fetch_add(data, Ordering::Relaxed);
        self.sink.block(set, items, plain)
    }
}
