//! From finished blocks to stripes: one thread for each stripe takes blocks from the hand-over and writes them.
//!
//! Invariants
//! - A stripe that is full takes no more blocks while another one does; the last one fails.
//! - Blocks that hold only marks come after all data.
//! - The NUL device never waits, so workers write to it themselves.

use std::sync::atomic::Ordering;

use longshore_codec::Compressor;
use longshore_media::header::MANIFEST_MAX;
use longshore_media::manifest::PATH_MAX;
use longshore_media::{BlockOut, FamilyWriter, Item, Mark};

use super::block::Ready;
use super::{LoadShared, mark_kind};
use crate::Error;
use crate::feed::Job;
use crate::measure::lap;

impl LoadShared<'_> {
    /// Hands a block to the stripes' writers.
    pub fn put(&self, ready: Ready) -> Result<(), Error> {
        if self.direct.is_empty() {
            self.handoff.put(ready.sequence, ready);
            return Ok(());
        }
        // NUL never blocks, so no writer thread is needed.
        let family = (ready.sequence % self.direct.len() as u64) as usize;
        self.write_block(&mut self.direct[family].lock(), &ready)
    }

    fn write_block(&self, family: &mut FamilyWriter, ready: &Ready) -> Result<(), Error> {
        let bytes = ready.bytes();
        self.counters
            .stored_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        family.put_block(&BlockOut {
            bytes,
            sequence: ready.sequence,
            plain_len: ready.plain_len,
            stored_crc: ready.stored_crc,
            manifest: &ready.manifest,
        })?;
        Ok(())
    }

    /// One stripe's writer.
    pub fn write(&self, mut family: FamilyWriter) -> Result<FamilyWriter, Error> {
        let clock = &*self.context.clock;
        let mut is_full = false;
        while let Some(ready) = self.handoff.take() {
            if is_full {
                return Err(family.full().into());
            }
            let at = clock.now();
            self.write_block(&mut family, &ready)?;
            lap(clock, at, &self.counters.write_us);
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            is_full = family.is_full();
            // The others take the blocks that follow. The last one waits for the end, which may come now.
            if is_full && self.full.fetch_add(1, Ordering::Relaxed) + 1 < self.stripes {
                break;
            }
        }
        if !self.crew.has_failed() {
            family.finish_data()?;
        }
        Ok(family)
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
            if manifest.len() + 2 * PATH_MAX > MANIFEST_MAX || i + 1 == marks.len() {
                let manifest = std::mem::take(&mut manifest);
                let job = Job {
                    sequence,
                    volume: 0,
                    manifest,
                    pieces: Vec::new(),
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
