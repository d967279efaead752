//! From finished blocks to stripes: one thread for each stripe takes blocks from the hand-over and writes them.
//!
//! Invariants
//! - A stripe that is full takes no more blocks while another one does; the last one fails.
//! - Blocks that hold only marks come after all data.
//! - The NUL device never waits, so workers call `write_block` themselves.
//!
//! Leaves to others: making blocks (`mod.rs`, `block.rs`), the order in which they leave (`handoff.rs`), and bytes on the
//! device (`longshore-media`).

use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_codec::Compressor;
use longshore_media::block::MANIFEST_PLAIN_MAX;
use longshore_media::manifest::PATH_MAX;
use longshore_media::{BlockOut, FamilyWriter, HELD_BLOCKS, Item, Mark, SharedBytes};

use super::block::Ready;
use super::shared::{LoadShared, mark_kind};
use crate::Error;
use crate::feed::Job;
use crate::handoff::Handoff;
use crate::measure::lap;
use crate::parts::Parts;

impl LoadShared<'_> {
    /// One stripe's writer, by its number.
    pub fn write(
        &self,
        (writer, mut family): (usize, FamilyWriter),
    ) -> Result<FamilyWriter, Error> {
        let clock = &*self.context.clock;
        let mut written = 0;
        let write = |ready: Ready| -> Result<Stripe, Error> {
            let at = clock.now();
            written += ready.bytes().len() as u64;
            self.write_block(&mut family, ready)?;
            lap(clock, at, &self.counters.write_us);
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            Ok(Stripe {
                written,
                is_full: family.is_full(),
            })
        };
        match drain(&self.handoff, writer, (&self.full, self.stripes), write)? {
            Drained::Whole => {}
            Drained::AllFull => return Err(family.full().into()),
        }
        if !self.crew.has_failed() {
            family.finish_data()?;
        }
        Ok(family)
    }

    /// Hands a block to the stripes' writers.
    pub fn put(&self, ready: Ready) -> Result<(), Error> {
        if self.direct.is_empty() {
            self.handoff.put(ready.sequence, ready);
            return Ok(());
        }
        // NUL never blocks, so no writer thread is needed.
        let family = (ready.sequence % self.direct.len() as u64) as usize;
        self.write_block(&mut self.direct[family].lock(), ready)
    }

    fn write_block(&self, family: &mut FamilyWriter, ready: Ready) -> Result<(), Error> {
        let bytes = SharedBytes::new(ready.output, ready.start..ready.end);
        self.counters
            .stored_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let block = BlockOut {
            bytes: &bytes,
            sequence: ready.sequence,
            plain_len: ready.plain_len,
            stored_crc: ready.stored_crc,
            manifest: &ready.manifest,
            digest: ready.digest,
        };
        // Where the user asked for few buffers, none can stay away.
        match self.outputs.count() > 2 * HELD_BLOCKS {
            true => family.put_shared_block(&block, &bytes)?,
            false => family.put_block(&block)?,
        }
        Ok(())
    }

    /// Writes blocks that hold only marks, after all data.
    pub fn put_marks(&self, mut sequence: u64) -> Result<(), Error> {
        let marks = self.marks.lock().clone();
        let mut manifest = Vec::new();
        for (i, (path, change)) in marks.iter().enumerate() {
            Item::Mark(Mark {
                path: path.clone(),
                kind: mark_kind(*change),
            })
            .encode(&mut manifest);
            if manifest.len() + 2 * PATH_MAX > MANIFEST_PLAIN_MAX || i + 1 == marks.len() {
                let manifest = std::mem::take(&mut manifest);
                let job = Job {
                    sequence,
                    volume: 0,
                    manifest,
                    pieces: Vec::new(),
                    parts: Parts::default(),
                    plain_len: 0,
                };
                sequence += 1;
                let position = self.form.position(&job);
                let Some(output) = self.outputs.take() else {
                    return Ok(());
                };
                let mut compressor = Compressor::new(self.request.algorithm, self.request.level)?;
                let ready = self
                    .form
                    .compressed(job, position, &mut compressor, &[], output);
                self.put(ready)?;
            }
        }
        Ok(())
    }
}

/// The end of a stripe's work.
#[derive(Debug, PartialEq, Eq)]
enum Drained {
    /// No block is left for it.
    Whole,
    /// A block is left, and every stripe is full.
    AllFull,
}

/// A stripe after a block.
#[derive(Default)]
struct Stripe {
    /// Bytes of its blocks.
    written: u64,
    is_full: bool,
}

/// Gives blocks to one of several stripes, by its writer's number; `write` says how the stripe is afterwards. `full` counts the
/// stripes that are full.
fn drain<B>(
    handoff: &Handoff<B>,
    writer: usize,
    (full, stripes): (&AtomicUsize, usize),
    mut write: impl FnMut(B) -> Result<Stripe, Error>,
) -> Result<Drained, Error> {
    let mut stripe = Stripe::default();
    while let Some(block) = handoff.take(writer, stripe.written) {
        if stripe.is_full {
            return Ok(Drained::AllFull);
        }
        stripe = write(block)?;
        // The others take the blocks that follow. The last one waits for the end, which may come now.
        if stripe.is_full && full.fetch_add(1, Ordering::Relaxed) + 1 < stripes {
            break;
        }
    }
    Ok(Drained::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stripes with room for so many blocks, and how they ended when `blocks` came.
    fn drained(rooms: &[usize], blocks: u64) -> (Vec<usize>, Vec<Drained>) {
        let (handoff, full) = (Handoff::new(rooms.len()), AtomicUsize::new(0));
        let stripe = |(writer, room): (usize, usize)| {
            let mut taken = 0;
            let end = drain(&handoff, writer, (&full, rooms.len()), |_: u64| {
                taken += 1;
                Ok(Stripe {
                    written: taken as u64,
                    is_full: taken == room,
                })
            });
            (taken, end.unwrap())
        };
        std::thread::scope(|scope| {
            let stripes: Vec<_> = rooms
                .iter()
                .copied()
                .enumerate()
                .map(|room| scope.spawn(move || stripe(room)))
                .collect();
            for n in 0..blocks {
                handoff.put(n, n);
            }
            handoff.end();
            stripes.into_iter().map(|s| s.join().unwrap()).unzip()
        })
    }

    /// Goal: a full stripe gets no more blocks, the others get all that follow, and no block is left behind in silence.
    #[test]
    fn a_full_stripe_leaves_the_rest_to_the_others_and_the_last_one_says_that_all_are_full() {
        for round in 0..200 {
            let rooms = [2, 5, 40];
            let (taken, ends) = drained(&rooms, 30);
            assert_eq!(taken.iter().sum::<usize>(), 30, "round {round}: {taken:?}");
            assert!(taken.iter().zip(rooms).all(|(taken, room)| *taken <= room));
            assert!(ends.iter().all(|end| *end == Drained::Whole), "{ends:?}");
            // Exactly full is enough.
            let (taken, ends) = drained(&rooms, 47);
            assert_eq!(taken, rooms);
            assert!(ends.iter().all(|end| *end == Drained::Whole), "{ends:?}");
            let (taken, ends) = drained(&rooms, 48);
            assert_eq!(taken, rooms);
            let refused = ends.iter().filter(|end| **end == Drained::AllFull);
            assert_eq!(refused.count(), 1, "round {round}: {ends:?}");
        }
    }
}
