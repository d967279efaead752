//! From the source to a buffer: a worker takes buffers, then the next task, and reads it.
//!
//! Cached bytes are read by a worker that has its turn to compute. Other bytes are read first, without the page cache
//! and outside the turn, so that another worker computes meanwhile.
//!
//! Invariants
//! - A worker has its buffers before it takes a task: one that waited for a buffer with a task in hand would block all
//!   later blocks. For the same reason cached work goes only to a worker that already has its turn.
//! - Every piece that was read is counted off its file, also of a file that changed: the last one settles the file.
//!
//! Leaves to others: what the next task is (`feed.rs`), compression (`block.rs`), and writing (`write.rs`).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_codec::Algorithm;
use longshore_io::{Buffer, Turn, Via};
use longshore_media::manifest::SUM_LEN;
use parking_lot::Mutex;

use super::block::BlockPosition;
use super::shared::LoadShared;
use crate::Error;
use crate::feed::{Feed, Handed, Job, Look, Scan, Work, scan_bytes};
use crate::gather::BlockInput;
use crate::measure::lap;
use crate::page_sums::PageSums;

/// The buffers of one block.
pub struct Buffers {
    input: Buffer,
    output: Buffer,
}

/// A task of the feed.
struct Task<W> {
    work: W,
    /// Whether its bytes are in the page cache.
    cached: bool,
}

/// A block that a worker has read, with its buffers.
pub struct Read {
    pub job: Job,
    pub position: BlockPosition,
    pub input: Buffer,
    pub output: Buffer,
    /// Core time spent reading it; zero if it came from a disk.
    pub took: Duration,
}

/// The answer to a worker that asks for a block.
pub enum Next {
    Block(Read),
    /// Nothing differed in what was read.
    Nothing,
    End,
}

impl LoadShared<'_> {
    /// Reads the next block of the source.
    pub fn read_next<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Next, Error> {
        let clock = &*self.context.clock;
        let at = clock.now();
        let Some(buffers) = self.take_buffers(turn) else {
            return Ok(Next::End);
        };
        lap(clock, at, &self.counters.buffer_wait_us);
        let Some(Task { work, cached }) = self.next_task(feed, turn)? else {
            return Ok(Next::End);
        };
        let read = match work {
            Work::Job(work) => Some(self.take_job(feed, Task { work, cached }, buffers, turn)?),
            Work::Scan(work) => self.take_scan(feed, Task { work, cached }, buffers, turn)?,
        };
        let Some(mut read) = read else {
            return Ok(Next::Nothing);
        };
        if turn.is_none() {
            let at = clock.now();
            *turn = Some(self.crew.gate.enter_from_wait());
            lap(clock, at, &self.counters.cpu_wait_us);
        }
        self.sum_pieces(&mut read);
        Ok(Next::Block(read))
    }

    fn take_buffers(&self, turn: &mut Option<Turn>) -> Option<Buffers> {
        let output = self.outputs.try_take().or_else(|| {
            *turn = None;
            self.outputs.take()
        })?;
        let input = self.inputs.try_take().or_else(|| {
            *turn = None;
            self.inputs.take()
        })?;
        Some(Buffers { input, output })
    }

    /// Cached work is handed out only to a worker that already holds its turn: a worker that waited for a turn with a
    /// job in hand would block all later blocks.
    fn next_task<'a, W: Handed>(
        &'a self,
        feed: &Mutex<Feed>,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Option<Task<W>>, Error> {
        let clock = &*self.context.clock;
        loop {
            let Some(work) = W::next_of(&mut feed.lock())? else {
                return Ok(None);
            };
            if self.crew.has_failed() {
                return Ok(None);
            }
            let cached = work.is_cached();
            if !cached {
                *turn = None;
            } else if turn.is_none() {
                *turn = self.crew.gate.try_enter();
            }
            if !cached || turn.is_some() {
                return Ok(Some(Task { work, cached }));
            }
            work.put_back_to(&mut feed.lock());
            let at = clock.now();
            *turn = Some(self.crew.gate.enter());
            lap(clock, at, &self.counters.cpu_wait_us);
        }
    }

    /// Reads a job, straight to where its plain bytes are needed.
    fn take_job<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        Task { work: job, cached }: Task<Job>,
        buffers: Buffers,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Read, Error> {
        let Buffers {
            mut input,
            mut output,
        } = buffers;
        self.throttle(job.plain_len, turn);
        let position = self.form.position(&job);
        let plain = match self.form.algorithm {
            Algorithm::None => &mut output[position.plain()..][..job.plain_len],
            _ => &mut input[..job.plain_len],
        };
        let began = self.context.clock.now();
        let at = self.read_pieces(&job, cached, plain, turn)?;
        let took = turn.as_ref().map_or(Duration::ZERO, |_| at - began);
        feed.lock().done(job.volume);
        self.count(&job);
        Ok(Read {
            job,
            position,
            input,
            output,
            took,
        })
    }

    /// Reads runs of based files until a block is full; `None`: nothing differed.
    fn take_scan<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        first: Task<Scan>,
        buffers: Buffers,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Option<Read>, Error> {
        let Buffers {
            mut input,
            mut output,
        } = buffers;
        let Some(job) = self.gather(feed, first, &mut input, turn)? else {
            return Ok(None);
        };
        let position = self.form.position(&job);
        if self.form.algorithm == Algorithm::None {
            output[position.plain()..][..job.plain_len].copy_from_slice(&input[..job.plain_len]);
        }
        self.count(&job);
        Ok(Some(Read {
            job,
            position,
            input,
            output,
            took: Duration::ZERO,
        }))
    }

    /// Fills `plain`, and settles every file that ends here; returns the time at the end. The worker holds a turn
    /// afterwards only if it read from the page cache.
    fn read_pieces<'a>(
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
                cold_bytes += piece.len_bytes as u64;
            }
            let plain = &mut plain[piece.at..][..piece.len_bytes];
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

    /// Compares based files until the buffer is full or no run waits. `None` if nothing differed.
    fn gather<'a>(
        &'a self,
        feed: &Mutex<Feed>,
        first: Task<Scan>,
        input: &mut [u8],
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Option<Job>, Error> {
        let mut gathered = BlockInput::default();
        let (volume, len_max) = (first.work.volume, scan_bytes(input.len()));
        let mut next = Some(first);
        while let Some(Task { work: scan, cached }) = next {
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
                true => self.next_task(feed, turn)?,
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
        let Some(base) = &self.base else {
            return Ok(());
        };
        let mut held = vec![0; scan.pages()];
        let first = scan.offset / u64::from(scan.based.page_bytes);
        base.sums(scan.based.held, first, &mut held)?;
        if scan.look == Look::Carry {
            if held.contains(&0) {
                return Err(self.base_lacks_sums(scan));
            }
            gathered.keep(scan, input, &[], held);
            return Ok(());
        }
        let run = &mut input[gathered.plain_len()..][..scan.len_bytes];
        let at = self.read_run(scan, cached, run, turn)?;
        let Differences { changed, sums } = differences(base, scan, run, &held)?;
        gathered.keep(scan, input, &changed, sums);
        lap(&*self.context.clock, at, &self.counters.compute_us);
        Ok(())
    }

    /// Fills `run`; returns the time from which the worker computes. It holds a turn afterwards.
    fn read_run<'a>(
        &'a self,
        scan: &Scan,
        cached: bool,
        run: &mut [u8],
        turn: &mut Option<Turn<'a>>,
    ) -> Result<Duration, Error> {
        let clock = &*self.context.clock;
        let at = clock.now();
        if cached && turn.is_none() {
            *turn = Some(self.crew.gate.enter());
            lap(clock, at, &self.counters.cpu_wait_us);
        }
        let mut at = clock.now();
        let via = if cached { Via::Cache } else { Via::Direct };
        scan.based.file.content.read_at(run, scan.offset, via)?;
        let counters = &self.counters;
        let len = scan.len_bytes as u64;
        counters.scanned_bytes.fetch_add(len, Ordering::Relaxed);
        if !cached {
            counters.reads.fetch_add(1, Ordering::Relaxed);
            counters.cold_bytes.fetch_add(len, Ordering::Relaxed);
            at = lap(clock, at, &counters.read_us);
        }
        if turn.is_none() {
            *turn = Some(self.crew.gate.enter_from_wait());
            at = lap(clock, at, &counters.cpu_wait_us);
        }
        Ok(at)
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
        let plain = match self.form.algorithm {
            Algorithm::None => &read.output[read.position.plain()..][..job.plain_len],
            _ => &read.input[..job.plain_len],
        };
        for piece in &job.pieces {
            let Some(place) = piece.sums else {
                continue;
            };
            let pages = plain[piece.at..][..piece.len_bytes].chunks(place.page_bytes as usize);
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

    fn count(&self, job: &Job) {
        let data = u64::from(job.plain_len > 0);
        self.counters.blocks.fetch_add(data, Ordering::Relaxed);
        self.counters
            .plain_bytes
            .fetch_add(job.plain_len as u64, Ordering::Relaxed);
    }
}

/// A run compared with the base.
struct Differences {
    /// The bytes of pages that differ, in runs.
    changed: Vec<Range<usize>>,
    /// Of all pages.
    sums: Vec<u64>,
}

/// Compares the pages of `run` with the sums that the base holds of them.
fn differences(
    base: &PageSums,
    scan: &Scan,
    run: &[u8],
    held: &[u64],
) -> Result<Differences, Error> {
    let page_bytes = scan.based.page_bytes as usize;
    let mut changed: Vec<Range<usize>> = Vec::new();
    let mut sums = Vec::with_capacity(held.len());
    for (i, (page, held)) in run.chunks(page_bytes).zip(held).enumerate() {
        let sum = base.sum_key().sum(page);
        sums.push(sum);
        if sum == *held {
            continue;
        }
        let start = i * page_bytes;
        if scan.look == Look::Sample {
            let content = &scan.based.file.content;
            content.explain(page, scan.offset + start as u64)?;
        }
        match changed.last_mut() {
            Some(last) if last.end == start => last.end += page.len(),
            _ => changed.push(start..start + page.len()),
        }
    }
    Ok(Differences { changed, sums })
}
