//! The threads of a backup: each worker reads, checks and compresses a buffer while it stays in its core's cache.
//!
//! All threads share one state (`shared`). In the order of a buffer's walk: `read` takes a task from the feed and reads it,
//! here it is offered to an accelerator (`offload`) or compressed, `block` makes the stored block of it, and `write` hands
//! it to the stripes' writers.
//!
//! Invariants
//! - A worker computes only while it holds its turn. One that returns from a read outside the page cache may compute in
//!   addition to the others, so that no core waits while a turn changes hands.
//! - The source is released as soon as everything was read, before anything waits for the target.
//! - A failure of one thread ends all of them; what they made so far stays with the caller.
//!
//! Leaves to others: what is read, and in which order (`feed.rs`), failing together (`crew.rs`), and sealing the set
//! (`backup/store.rs`).

mod block;
mod offload;
mod read;
mod shared;
mod write;

use longshore_accel::dispatch::Finisher;
use longshore_codec::Compressor;
use longshore_io::Turn;
use longshore_media::FamilyWriter;
use longshore_source::{Source, SourceSummary};
use parking_lot::Mutex;

pub use self::block::BlockForm;
use self::read::{Next, Read};
pub use self::shared::{LoadShared, Offloading, mark_kind};
use crate::crew::{join, join_all};
use crate::feed::Feed;
use crate::measure::{Sampler, lap};
use crate::report::FileTotals;
use crate::{Error, Observer};

/// The result of the reading threads.
struct ReadResult {
    totals: FileTotals,
    based_files: u64,
    based_bytes: u64,
    summary: SourceSummary,
}

/// The result of moving the bytes.
pub struct LoadResult {
    pub families: Vec<FamilyWriter>,
    pub totals: FileTotals,
    /// Files of which only the differences from the base were stored, and their bytes, holes included.
    pub based_files: u64,
    pub based_bytes: u64,
    pub summary: SourceSummary,
    pub samples: Vec<crate::Sample>,
}

/// Runs all threads from the first read to the last synced byte.
pub fn move_bytes(
    shared: &LoadShared,
    source: Box<dyn Source>,
    families: Vec<FamilyWriter>,
    workers: usize,
    observer: &dyn Observer,
) -> Result<LoadResult, Error> {
    let sampler = Sampler::new();
    let clock = &*shared.context.clock;
    std::thread::scope(|scope| {
        let samples = shared.crew.start(scope, || {
            let each_time = || {
                shared.crew.heed(shared.context);
                if let Some(offloading) = &shared.offloading {
                    offloading.tick(shared);
                }
            };
            sampler.watch(clock, &shared.counters, observer, each_time)
        });
        let writers: Vec<_> = families
            .into_iter()
            .enumerate()
            .map_while(|family| {
                let write = || shared.write(family);
                shared.crew.hire(scope, "writer", write)
            })
            .collect();
        let finishers: Vec<_> = shared
            .offloading
            .iter()
            .flat_map(|offloading| std::iter::repeat_n(offloading, shared.cpus))
            .map_while(|offloading| {
                let finish = || offloading.finish_all(shared);
                shared.crew.hire(scope, "finisher", finish)
            })
            .collect();
        let read = shared
            .crew
            .work("reader", || shared.read_all(source, workers));
        if let Some(offloading) = &shared.offloading {
            offloading.dispatcher.end();
        }
        join_all(finishers);
        shared.handoff.end();
        let families: Vec<_> = writers.into_iter().filter_map(join).collect();
        for family in &shared.direct {
            shared
                .crew
                .work("writer", || Ok(family.lock().finish_data()?));
        }
        sampler.end();
        let samples = samples.and_then(|t| t.join().ok()).unwrap_or_default();
        let read = read.ok_or(Error::Cancelled)?;
        Ok(LoadResult {
            families,
            totals: read.totals,
            based_files: read.based_files,
            based_bytes: read.based_bytes,
            summary: read.summary,
            samples,
        })
    })
}

impl LoadShared<'_> {
    /// Reads the whole source with all workers, then ends its snapshot.
    fn read_all(&self, source: Box<dyn Source>, workers: usize) -> Result<ReadResult, Error> {
        let (totals, (based_files, based_bytes), next) = {
            let feed = Mutex::new(Feed::new(
                &*source,
                self.inputs.buffer_len(),
                self.sum_key.is_some(),
                self.base.as_deref(),
            ));
            loop {
                std::thread::scope(|scope| {
                    let work = || self.compress_all(&feed);
                    let hire = |_| self.crew.hire(scope, "worker", work);
                    let threads: Vec<_> = (0..workers).map_while(hire).collect();
                    join_all(threads);
                });
                if self.crew.has_failed() || !feed.lock().reopen()? {
                    break;
                }
            }
            let mut feed = feed.into_inner();
            self.note_changes(std::mem::take(&mut feed.changes))?;
            let totals = FileTotals {
                entry_count: feed.entries,
                file_count: feed.files,
            };
            (totals, (feed.based, feed.based_bytes), feed.number())
        };
        // The database is released before anything waits for the target.
        let summary = source.finish()?;
        if !self.crew.has_failed() {
            self.put_marks(next)?;
        }
        Ok(ReadResult {
            totals,
            based_files,
            based_bytes,
            summary,
        })
    }

    /// One worker: takes buffers first, then the next extent, until the source ends.
    fn compress_all(&self, feed: &Mutex<Feed>) -> Result<(), Error> {
        let clock = &*self.context.clock;
        let mut compressor = Compressor::new(self.request.algorithm, self.request.level)?;
        let mut finisher = match &self.offloading {
            Some(_) => Some(Finisher::new(self.request.algorithm, self.request.level)?),
            None => None,
        };
        // Held from block to block as long as nothing blocks: the core's cache stays warm.
        let mut turn: Option<Turn> = None;
        loop {
            self.context.check_cancel()?;
            if let (Some(offloading), Some(finisher), Some(_)) =
                (&self.offloading, &mut finisher, &turn)
            {
                offloading.finish_some(self, finisher)?;
            }
            let read = match self.read_next(feed, &mut turn)? {
                Next::Block(read) => read,
                Next::Nothing => continue,
                Next::End => return Ok(()),
            };
            let Some(Read {
                job,
                position,
                input,
                output,
                ..
            }) = self.offer(read, &mut turn)
            else {
                continue;
            };
            let at = clock.now();
            let form = &self.form;
            let ready = form.compressed(job, position, &mut compressor, &input, output);
            let ended = lap(clock, at, &self.counters.compute_us);
            if let Some(offloading) = &self.offloading {
                let plain_len = ready.plain_len as usize;
                offloading.dispatcher.software_did(plain_len, ended - at);
            }
            drop(input);
            if self.gate_is_limited() {
                turn = None;
            }
            self.put(ready)?;
        }
    }

    /// Returns the block unless an accelerator took it.
    fn offer<'a>(&'a self, read: Read, turn: &mut Option<Turn<'a>>) -> Option<Read> {
        let left = match &self.offloading {
            None => return Some(read),
            Some(offloading) => offloading.offer(self, read, self.request.level, turn),
        };
        if left.is_none() && self.gate_is_limited() {
            *turn = None;
        }
        left
    }

    fn gate_is_limited(&self) -> bool {
        self.request.limits.cpu_percent.is_some()
    }
}
