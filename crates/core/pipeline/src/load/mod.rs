//! The threads of a backup: each worker reads, checks and compresses a buffer while it stays in its core's cache.
//!
//! Cached bytes are read by a worker that has its turn to compute. Other bytes are read first, without the page cache
//! and outside the turn, so that another worker computes meanwhile. A worker that returns from such a read may compute
//! in addition to the others, so that no core waits while a turn changes hands. Finished blocks go to the stripes'
//! writers. The NUL device never waits, so workers pass blocks to it directly.

mod offload;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_accel::dispatch::Finisher;
use longshore_codec::{Algorithm, Compressor, NoneFrame, none_frame};
use longshore_io::{Buffer, Pool, SumKey, Turn, Via, crc32c, crc32c_append, crc32c_join};
use longshore_media::block::{head_len, put_head};
use longshore_media::header::MANIFEST_MAX;
use longshore_media::manifest::{MarkKind, PATH_MAX, SUM_LEN};
use longshore_media::{BlockHeader, BlockOut, Container, FamilyWriter, Item, Mark};
use longshore_source::{Change, Source, SourceSummary};
use parking_lot::Mutex;
use uuid::Uuid;

pub use self::offload::Offload;
use self::offload::Read;
use crate::crew::{Crew, join, join_all};
use crate::feed::{Feed, Job, Look, Scan, Work, scan_bytes};
use crate::gather::BlockInput;
use crate::handoff::Handoff;
use crate::measure::{Counters, Sampler, lap};
use crate::page_sums::PageSums;
use crate::plan::ALIGN;
use crate::report::{FileTotals, mark_text};
use crate::request::{BackupRequest, OnChange};
use crate::{Error, Observer, RunContext};

/// A block that is ready to be written.
pub struct Ready {
    output: Buffer,
    /// Offset of the block in `output`.
    start: usize,
    end: usize,
    sequence: u64,
    plain_len: u32,
    stored_crc: u32,
    manifest: Vec<u8>,
}

/// The state shared by all threads of one backup.
pub struct LoadShared<'a> {
    pub context: &'a RunContext,
    pub request: &'a BackupRequest,
    pub crew: Crew,
    /// How many threads may compute at a time.
    pub cpus: usize,
    pub inputs: Pool,
    pub outputs: Pool,
    pub counters: Counters,
    pub handoff: Handoff<Ready>,
    /// The stripes with a writer of their own, and how many of them take no more blocks.
    pub stripes: usize,
    pub full: AtomicUsize,
    /// For the NUL device: the families, to which workers write directly.
    pub direct: Vec<Mutex<FamilyWriter>>,
    pub container: Container,
    pub set: Uuid,
    /// Accelerators in use; `None`: every block is compressed by the worker that read it.
    pub offloading: Option<Offload>,
    pub marks: Mutex<Vec<(PathBuf, Change)>>,
    /// The key of the page sums; `None`: there are none.
    pub sum_key: Option<SumKey>,
    /// The page sums of the base.
    pub base: Option<Arc<PageSums>>,
}
pub fn mark_kind(change: Change) -> MarkKind {
    match change {
        Change::Modified => MarkKind::Modified,
        Change::Shrunk => MarkKind::Shrunk,
        Change::Vanished => MarkKind::Vanished,
    }
}
/// The result of moving the bytes.
pub struct LoadResult {
    pub families: Vec<FamilyWriter>,
    pub totals: FileTotals,
    /// Files of which only the differences from the base were stored.
    pub based_files: u64,
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
        let (totals, based_files, summary) = read.ok_or(Error::Cancelled)?;
        Ok(LoadResult {
            families,
            totals,
            based_files,
            summary,
            samples,
        })
    })
}

impl LoadShared<'_> {
    /// Reads the whole source with all workers, then ends its snapshot.
    fn read_all(
        &self,
        source: Box<dyn Source>,
        workers: usize,
    ) -> Result<(FileTotals, u64, SourceSummary), Error> {
        let (totals, based_files, next) = {
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
                entries: feed.entries,
                files: feed.files,
            };
            (totals, feed.based, feed.number())
        };
        // The database is released before anything waits for the target.
        let summary = source.finish()?;
        if !self.crew.has_failed() {
            self.put_marks(next)?;
        }
        Ok((totals, based_files, summary))
    }

    fn note_changes(&self, changes: Vec<(PathBuf, Change)>) -> Result<(), Error> {
        match changes.first() {
            Some((path, change)) if self.request.on_change == OnChange::Fail => {
                Err(Error::Changed {
                    path: path.clone(),
                    what: mark_text(mark_kind(*change)),
                })
            }
            _ => {
                self.marks.lock().extend(changes);
                Ok(())
            }
        }
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
            let at = clock.now();
            let Some(buffers) = self.take_buffers(&mut turn) else {
                return Ok(());
            };
            lap(clock, at, &self.counters.buffer_wait_us);
            let Some((work, cached)) = self.next_work(feed, &mut turn)? else {
                return Ok(());
            };
            let taken = match work {
                Work::Job(job) => Some(self.take_job(feed, (job, cached), buffers, &mut turn)?),
                Work::Scan(scan) => self.take_scan(feed, (scan, cached), buffers, &mut turn)?,
            };
            let Some(mut read) = taken else {
                continue;
            };
            if turn.is_none() {
                let at = clock.now();
                turn = Some(self.crew.gate.enter_from_wait());
                lap(clock, at, &self.counters.cpu_wait_us);
            }
            self.sum_pieces(&mut read);
            let Some(Read {
                job,
                place,
                input,
                output,
                ..
            }) = self.offer(read, &mut turn)
            else {
                continue;
            };
            let at = clock.now();
            let ready = self.finish_block(job, place, &mut compressor, &input, output);
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

    /// Reads a job, straight to where its plain bytes are needed.
    fn take_job<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        (job, cached): (Job, bool),
        (mut input, mut output): (Buffer, Buffer),
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Read, Error> {
        self.throttle(job.plain_len, turn);
        let place = self.place(&job);
        let plain = match self.request.algorithm {
            Algorithm::None => &mut output[place.plain()..][..job.plain_len],
            _ => &mut input[..job.plain_len],
        };
        let began = self.context.clock.now();
        let at = self.read(&job, cached, plain, turn)?;
        let took = turn.as_ref().map_or(Duration::ZERO, |_| at - began);
        feed.lock().done(job.volume);
        self.count(&job);
        Ok(Read {
            job,
            place,
            input,
            output,
            took,
        })
    }

    /// Reads runs of based files until a block is full; `None`: nothing differed.
    fn take_scan<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        first: (Scan, bool),
        (mut input, mut output): (Buffer, Buffer),
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Option<Read>, Error> {
        let Some(job) = self.gather(feed, first, &mut input, turn)? else {
            return Ok(None);
        };
        let place = self.place(&job);
        if self.request.algorithm == Algorithm::None {
            output[place.plain()..][..job.plain_len].copy_from_slice(&input[..job.plain_len]);
        }
        self.count(&job);
        Ok(Some(Read {
            job,
            place,
            input,
            output,
            took: Duration::ZERO,
        }))
    }

    /// The next task, and whether its bytes are in the page cache.
    fn next_work<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Option<(Work, bool)>, Error> {
        let is_cached = |work: &Work| match work {
            Work::Job(job) => job.is_cached(),
            Work::Scan(scan) => scan.is_cached(),
        };
        self.next_of(Feed::next, is_cached, Feed::put_back, feed, turn)
    }

    /// Cached work is handed out only to a worker that already holds its turn: a worker that waited for a turn with a
    /// job in hand would block all later blocks.
    fn next_of<'a, 'f, W>(
        &'a self,
        next: impl Fn(&mut Feed<'f>) -> Result<Option<W>, Error>,
        is_cached: impl Fn(&W) -> bool,
        put_back: impl Fn(&mut Feed<'f>, W),
        feed: &Mutex<Feed<'f>>,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Option<(W, bool)>, Error> {
        let clock = &*self.context.clock;
        loop {
            let Some(work) = next(&mut feed.lock())? else {
                return Ok(None);
            };
            if self.crew.has_failed() {
                return Ok(None);
            }
            let cached = is_cached(&work);
            if !cached {
                *turn = None;
            } else if turn.is_none() {
                *turn = self.crew.gate.try_enter();
            }
            if !cached || turn.is_some() {
                return Ok(Some((work, cached)));
            }
            put_back(&mut feed.lock(), work);
            let at = clock.now();
            *turn = Some(self.crew.gate.enter());
            lap(clock, at, &self.counters.cpu_wait_us);
        }
    }

    /// Compares based files until the buffer is full or no run waits. `None` if nothing differed.
    fn gather<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        first: (Scan, bool),
        input: &mut [u8],
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Option<Job>, Error> {
        let mut gathered = BlockInput::default();
        let (volume, len_max) = (first.0.volume, scan_bytes(input.len()));
        let mut next = Some(first);
        while let Some((scan, cached)) = next {
            self.context.check_cancel()?;
            if scan.read_len() > 0 {
                self.throttle(scan.read_len(), turn);
            }
            self.look_through(&scan, cached, input, &mut gathered, turn)?;
            feed.lock().done(scan.volume);
            if let Some(change) = scan.based.file.piece_done()? {
                self.note_changes(vec![(scan.based.file.path.clone(), change)])?;
            }
            next = match gathered.has_room(len_max, input.len()) {
                true => self.next_of(
                    Feed::next_scan,
                    Scan::is_cached,
                    Feed::put_scan_back,
                    feed,
                    turn,
                )?,
                false => None,
            };
        }
        let job = gathered.into_job(volume, || feed.lock().number());
        let changed = job.as_ref().map_or(0, |job| job.plain_len as u64);
        self.counters
            .changed_bytes
            .fetch_add(changed, Ordering::Relaxed);
        Ok(job)
    }

    /// Reads a run and keeps its differences and the sums of all its pages. The worker holds a turn afterwards.
    fn look_through<'a>(
        &'a self,
        scan: &Scan,
        cached: bool,
        input: &mut [u8],
        gathered: &mut BlockInput,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<(), Error> {
        let clock = &*self.context.clock;
        let (Some(base), based) = (&self.base, &scan.based) else {
            return Ok(());
        };
        let mut held = vec![0; scan.pages()];
        let page_bytes = based.page_bytes as usize;
        base.sums(based.held, scan.offset / page_bytes as u64, &mut held)?;
        if scan.look == Look::Carry {
            if held.contains(&0) {
                return Err(self.base_lacks_sums(scan));
            }
            gathered.keep(scan, input, &[], held);
            return Ok(());
        }
        let at = clock.now();
        if cached && turn.is_none() {
            *turn = Some(self.crew.gate.enter());
            lap(clock, at, &self.counters.cpu_wait_us);
        }
        let at = clock.now();
        let via = if cached { Via::Cache } else { Via::Direct };
        let run = &mut input[gathered.plain_len()..][..scan.len];
        let content = &based.file.content;
        content.read_at(run, scan.offset, via)?;
        let counters = &self.counters;
        let len = scan.len as u64;
        counters.scanned_bytes.fetch_add(len, Ordering::Relaxed);
        let mut at = at;
        if !cached {
            counters.reads.fetch_add(1, Ordering::Relaxed);
            counters.cold_bytes.fetch_add(len, Ordering::Relaxed);
            at = lap(clock, at, &counters.read_us);
        }
        if turn.is_none() {
            *turn = Some(self.crew.gate.enter_from_wait());
            at = lap(clock, at, &counters.cpu_wait_us);
        }
        let mut changed: Vec<Range<usize>> = Vec::new();
        let mut sums = Vec::with_capacity(held.len());
        for (i, (page, held)) in run.chunks_exact(page_bytes).zip(held).enumerate() {
            let sum = base.sum_key().sum(page);
            sums.push(sum);
            if sum == held {
                continue;
            }
            let start = i * page_bytes;
            if scan.look == Look::Sample {
                content.explain(page, scan.offset + start as u64)?;
            }
            match changed.last_mut() {
                Some(last) if last.end == start => last.end += page_bytes,
                _ => changed.push(start..start + page_bytes),
            }
        }
        gathered.keep(scan, input, &changed, sums);
        lap(clock, at, &counters.compute_us);
        Ok(())
    }

    /// The base's based file has pages without a sum, which no writer leaves.
    fn base_lacks_sums(&self, scan: &Scan) -> Error {
        let path = scan.based.entry.path.display();
        Error::NoBase {
            reasons: format!("it has no page checksums of {path}: it is damaged"),
        }
    }

    /// Fills in the sums of the pages that were read.
    fn sum_pieces(&self, read: &mut Read) {
        let Some(key) = self
            .sum_key
            .as_ref()
            .filter(|_| !read.job.pieces.is_empty())
        else {
            return;
        };
        let clock = &*self.context.clock;
        let began = clock.now();
        let job = &mut read.job;
        let plain = match self.request.algorithm {
            Algorithm::None => &read.output[read.place.plain()..][..job.plain_len],
            _ => &read.input[..job.plain_len],
        };
        for piece in &job.pieces {
            let Some(place) = piece.sums else {
                continue;
            };
            let pages = plain[piece.at..][..piece.len].chunks_exact(place.page_bytes as usize);
            let room = job.manifest[place.at..].chunks_exact_mut(SUM_LEN);
            for (page, room) in pages.zip(room) {
                room.copy_from_slice(&key.sum(page).to_le_bytes());
            }
        }
        lap(clock, began, &self.counters.compute_us);
    }

    /// Waits until `bytes` may be read.
    fn throttle(&self, bytes: usize, turn: &mut Option<Turn>) {
        if let Some(throttle) = &self.crew.throttle {
            *turn = None;
            let clock = &*self.context.clock;
            let at = clock.now();
            throttle.take(bytes as u64);
            lap(clock, at, &self.counters.rate_wait_us);
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

    fn take_buffers(&self, turn: &mut Option<Turn>) -> Option<(Buffer, Buffer)> {
        let output = self.outputs.try_take().or_else(|| {
            *turn = None;
            self.outputs.take()
        })?;
        let input = self.inputs.try_take().or_else(|| {
            *turn = None;
            self.inputs.take()
        })?;
        Some((input, output))
    }

    /// Fills `plain`, and settles every file that ends here; returns the time at the end. The worker holds a turn
    /// afterwards only if it read from the page cache.
    fn read<'a>(
        &'a self,
        job: &Job,
        cached: bool,
        plain: &mut [u8],
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Duration, Error> {
        let clock = &*self.context.clock;
        let at = clock.now();
        // A rate limit may have taken the turn away.
        if cached && turn.is_none() {
            *turn = Some(self.crew.gate.enter());
            lap(clock, at, &self.counters.cpu_wait_us);
        }
        let at = clock.now();
        let (mut reads, mut cold_bytes) = (0, 0);
        for piece in &job.pieces {
            // If there are many pieces, only the first and the last were queried.
            let cached = match job.pieces.len() {
                0..=2 => cached,
                _ => piece.is_cached(),
            };
            // Uncached bytes must not evict cached ones.
            let via = if cached { Via::Cache } else { Via::Direct };
            if !cached {
                *turn = None;
                reads += 1;
                cold_bytes += piece.len as u64;
            }
            let plain = &mut plain[piece.at..][..piece.len];
            piece.file.content.read_at(plain, piece.offset, via)?;
            // This closes the file: a block may have more files than a process may have open.
            if let Some(change) = piece.file.piece_done()? {
                self.note_changes(vec![(piece.file.path.clone(), change)])?;
            }
        }
        let counters = &self.counters;
        counters.reads.fetch_add(reads, Ordering::Relaxed);
        counters.cold_bytes.fetch_add(cold_bytes, Ordering::Relaxed);
        let spent = match turn {
            Some(_) => &counters.compute_us,
            None => &counters.read_us,
        };
        Ok(lap(clock, at, spent))
    }

    fn count(&self, job: &Job) {
        let data = u64::from(job.plain_len > 0);
        self.counters.blocks.fetch_add(data, Ordering::Relaxed);
        self.counters
            .plain_bytes
            .fetch_add(job.plain_len as u64, Ordering::Relaxed);
    }

    /// Where header and payload of a job's block go in the output buffer.
    fn place(&self, job: &Job) -> BlockPosition {
        let head = head_len(self.container, job.manifest.len());
        // Uncompressed data is read directly to its position; only an aligned position allows reads that bypass the
        // cache.
        let start = match self.request.algorithm {
            Algorithm::None => {
                (head + NoneFrame::PREFIX_LEN).next_multiple_of(ALIGN)
                    - head
                    - NoneFrame::PREFIX_LEN
            }
            _ => 0,
        };
        BlockPosition {
            start,
            payload: start + head,
        }
    }

    fn finish_block(
        &self,
        job: Job,
        place: BlockPosition,
        compressor: &mut Compressor,
        input: &[u8],
        mut output: Buffer,
    ) -> Ready {
        let n = job.plain_len;
        let (plain_crc, stored_crc, stored_len) = match self.request.algorithm {
            _ if n == 0 => (crc32c(&[]), crc32c(&[]), 0),
            Algorithm::None => {
                let frame = none_frame(n);
                let data = place.plain();
                output[place.payload..data].copy_from_slice(&frame.prefix);
                output[data + n..][..NoneFrame::SUFFIX_LEN].copy_from_slice(&frame.suffix);
                // Only the frame was added, so one pass over the data gives both checksums.
                let plain_crc = crc32c(&output[data..data + n]);
                let stored_crc = crc32c_join(crc32c(&frame.prefix), plain_crc, n as u64);
                let stored_crc = crc32c_append(stored_crc, &frame.suffix);
                let stored_len = NoneFrame::PREFIX_LEN + n + NoneFrame::SUFFIX_LEN;
                (plain_crc, stored_crc, stored_len)
            }
            _ => {
                let plain_crc = crc32c(&input[..n]);
                let payload = &mut output[place.payload..];
                let stored_len = compressor.compress(&input[..n], payload).len;
                (plain_crc, crc32c(&payload[..stored_len]), stored_len)
            }
        };
        self.seal(job, place, output, (plain_crc, stored_crc, stored_len))
    }

    /// A block whose payload of `stored_len` bytes is in place, compressed from bytes with this CRC-32C.
    pub fn seal_block(
        &self,
        job: Job,
        place: BlockPosition,
        output: Buffer,
        plain_crc: u32,
        stored_len: usize,
    ) -> Ready {
        let stored_crc = crc32c(&output[place.payload..][..stored_len]);
        self.seal(job, place, output, (plain_crc, stored_crc, stored_len))
    }

    /// Writes the header before the payload.
    fn seal(
        &self,
        job: Job,
        place: BlockPosition,
        mut output: Buffer,
        (plain_crc, stored_crc, stored_len): (u32, u32, usize),
    ) -> Ready {
        let n = job.plain_len;
        let end = place.payload + stored_len;
        let header = BlockHeader {
            set: self.set,
            sequence: job.sequence,
            plain_len: n as u32,
            stored_len: stored_len as u32,
            plain_crc,
            stored_crc,
            manifest_crc: 0,
            manifest_len: 0,
            manifest_parts: 0,
            algorithm: self.request.algorithm,
        };
        put_head(
            self.container,
            header,
            &job.manifest,
            &mut output[place.start..],
        );
        Ready {
            output,
            start: place.start,
            end,
            sequence: job.sequence,
            plain_len: n as u32,
            stored_crc,
            manifest: job.manifest,
        }
    }

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
        let bytes = &ready.output[ready.start..ready.end];
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
    fn write(&self, mut family: FamilyWriter) -> Result<FamilyWriter, Error> {
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
    fn put_marks(&self, mut sequence: u64) -> Result<(), Error> {
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
                let place = self.place(&job);
                let Some(output) = self.outputs.take() else {
                    return Ok(());
                };
                let mut compressor = Compressor::new(self.request.algorithm, self.request.level)?;
                self.put(self.finish_block(job, place, &mut compressor, &[], output))?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub struct BlockPosition {
    start: usize,
    /// Offset of the payload in the output buffer.
    pub payload: usize,
}

impl BlockPosition {
    /// Offset of plain bytes that are stored uncompressed.
    fn plain(self) -> usize {
        self.payload + NoneFrame::PREFIX_LEN
    }
}
