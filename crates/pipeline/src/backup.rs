//! Backup: one kind of worker reads, checks and compresses a buffer while it stays in its core's cache.
//!
//! What lies in the page cache is read by the worker that has its turn to compute. What does not is read past the
//! cache first, outside the turn, so that another worker computes meanwhile. Finished blocks go to
//! the stripes' writers. On the NUL device there is nothing to wait for, so workers hand over directly.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_codec::{Algorithm, Compressor, NoneFrame, none_frame};
use longshore_io::{Buffer, Gate, Pass, Pool, Throttle, Via, crc32c, facts};
use longshore_media::block::{head_len, put_head};
use longshore_media::device::DeviceClass;
use longshore_media::header::MANIFEST_MAX;
use longshore_media::manifest::{MarkKind, PATH_MAX};
use longshore_media::{
    BackupDevice, BackupType, BlockHeader, BlockOut, Container, FamilyWriter, Item, Mark,
    SetHeader, SetPlan, SetWriter, Totals,
};
use longshore_source::{Change, Source, SourceOptions};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::crew::{Crew, join};
use crate::feed::{Feed, Job};
use crate::handoff::Handoff;
use crate::history::{self, Finished};
use crate::measure::{Counters, Sampler, lap, process_cpu};
use crate::plan::{ALIGN, Plan, Sizes};
use crate::report::{BackupReport, ChangedFile, FileTotals, Run, mark_text};
use crate::request::{BackupRequest, OnChange};
use crate::{Error, House, Observer};

/// Changed files named in a report; all of them are marked in the set.
const CHANGED_MAX: usize = 100;

/// A block that is ready to be written.
struct Ready {
    output: Buffer,
    /// Where in `output` the block stands.
    start: usize,
    end: usize,
    sequence: u64,
    plain_len: u32,
    stored_crc: u32,
    manifest: Vec<u8>,
}

/// What all threads of one backup share.
struct Shared<'a> {
    house: &'a House,
    request: &'a BackupRequest,
    crew: Crew,
    inputs: Pool,
    outputs: Pool,
    gate: Gate,
    throttle: Option<Throttle>,
    counters: Counters,
    handoff: Handoff<Ready>,
    /// With the NUL device: the families, for workers to write to directly.
    direct: Vec<Mutex<FamilyWriter>>,
    container: Container,
    set: Uuid,
    marks: Mutex<Vec<(PathBuf, Change)>>,
}

pub fn run(
    house: &House,
    request: &BackupRequest,
    observer: &dyn Observer,
) -> Result<BackupReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let engine = Compressor::new(request.algorithm, request.level)?.engine();
    let devices: Vec<Arc<dyn BackupDevice>> = request
        .devices
        .iter()
        .map(|d| d.open(&house.storage))
        .collect();
    let options = SourceOptions {
        database: request.database.clone(),
        volume_map: request.volume_map.clone(),
        wal_growth_limit_bytes: request.wal_growth_limit_bytes,
        ..SourceOptions::default()
    };
    let source = longshore_source::open(house.storage.clone(), &request.source, &options)?;
    let about = source.description().clone();
    let streams = devices
        .iter()
        .filter(|d| d.class() == DeviceClass::File)
        .count();
    let sizes = Sizes::decide(
        &request.tuning,
        &request.limits,
        devices.len(),
        about.volumes.len(),
        None,
        streams,
    );
    let plan = Plan {
        action: "backup",
        database: about.database.clone(),
        devices: devices.iter().map(|d| d.name()).collect(),
        volumes: about
            .volumes
            .iter()
            .map(|v| v.path.display().to_string())
            .collect(),
        algorithm: request.algorithm.to_string(),
        level: request.level.to_string(),
        engine: engine.to_owned(),
        buffer_count: sizes.buffer_count,
        buffer_bytes: sizes.buffer_bytes,
        workers: sizes.workers,
        cpus: sizes.cpus,
        cpu_ceiling: sizes.cpu_ceiling,
        rate_bytes_per_s: request.limits.rate_bytes_per_s,
        memory_bytes: sizes.memory_bytes,
        expected_bytes: about.expected_bytes,
        notices: about.notices.clone(),
    };
    let start_us = house.now_us();
    let header = SetHeader {
        set: Uuid::new_v4(),
        position: 0,
        start_us,
        source_kind: about.kind as u8,
        backup_type: BackupType::Database,
        algorithm: request.algorithm,
        level: request.level,
        buffer_bytes: sizes.buffer_bytes as u32,
        page_bytes: about.page_bytes,
        copy_only: request.copy_only,
        expires_us: request.expires_us,
        time_zone: history::time_zone_quarters(start_us),
        database: about.database.clone(),
        name: request.name.clone(),
        description: request.description.clone(),
        machine: facts::host_name(),
        user: facts::user_name(),
        origin: history::origin(&request.source),
    };
    let set_plan = SetPlan {
        disposition: request.disposition,
        media_name: request.media_name.clone(),
        media_description: request.media_description.clone(),
        header,
        // Nothing is gained by staging what is not compressed: the page cache's own write-behind is faster.
        via: if request.algorithm == Algorithm::None {
            Via::DontCache
        } else {
            Via::Direct
        },
    };
    observer.planned(&plan);
    let clock = house.clock.clone();
    let started = clock.now();
    let cpu_before = process_cpu();
    let _priority = request.limits.lower_io_priority();
    let mut writer = SetWriter::begin(&devices, set_plan, start_us)?;
    let mut families = std::mem::take(&mut writer.families);
    let is_nul = devices[0].class() == DeviceClass::Nul;
    let memory = |bytes: usize| {
        move |source| Error::Memory {
            bytes: bytes as u64,
            source,
        }
    };
    let pool = |bytes: usize| {
        Pool::new(sizes.buffer_count, bytes)
            .map_err(memory(sizes.buffer_count.saturating_mul(bytes)))
    };
    let (inputs, outputs) = (pool(sizes.buffer_bytes)?, pool(sizes.output_bytes)?);
    let shared = Shared {
        house,
        request,
        crew: Crew::new(vec![inputs.clone(), outputs.clone()]),
        inputs,
        outputs,
        gate: Gate::new(clock.clone(), sizes.cpus, sizes.cpu_ceiling),
        throttle: request.limits.throttle(&clock, sizes.buffer_bytes),
        counters: Counters::default(),
        handoff: Handoff::new(families.len() == 1),
        direct: if is_nul {
            families.drain(..).map(Mutex::new).collect()
        } else {
            Vec::new()
        },
        container: writer.container,
        set: writer.header.set,
        marks: Mutex::new(Vec::new()),
    };
    shared
        .counters
        .expected_bytes
        .store(about.expected_bytes.unwrap_or(0), Ordering::Relaxed);

    let moved = move_bytes(&shared, source, families, sizes.workers, observer);
    shared.crew.verdict()?;
    let Moved {
        families,
        totals,
        warnings,
        samples,
    } = moved?;
    writer.families = families;
    writer
        .families
        .extend(shared.direct.into_iter().map(Mutex::into_inner));
    let marks = shared.marks.into_inner();
    let plain_bytes = shared.counters.plain_bytes.load(Ordering::Relaxed);
    let totals = Totals {
        damaged: !marks.is_empty(),
        finish_us: house.now_us(),
        plain_bytes,
        entries: totals.entries,
        files: totals.files,
    };
    house.check_cancel()?;
    let (set_header, media_set) = (writer.header.clone(), writer.media_set);
    let stored_bytes = writer.seal(&totals)?;
    let elapsed = clock.now() - started;
    let mut report = BackupReport {
        set: set_header.set,
        media_set,
        database: about.database,
        position: set_header.position,
        plain_bytes,
        stored_bytes,
        totals: FileTotals {
            entries: totals.entries,
            files: totals.files,
        },
        damaged: totals.damaged,
        changed: marks.iter().take(CHANGED_MAX).map(changed_file).collect(),
        run: Run {
            elapsed_s: elapsed.as_secs_f64(),
            cpu_s: (process_cpu().saturating_sub(cpu_before)).as_secs_f64(),
            limit: shared.counters.limit(
                elapsed,
                sizes.workers,
                sizes.cpus,
                sizes.cpu_ceiling.is_some(),
            ),
            waits: shared.counters.waits(),
            samples,
            warnings,
            plan,
        },
    };
    if !marks.is_empty() {
        report.run.warnings.push(format!(
            "{} files changed while they were read; the set is marked",
            marks.len()
        ));
    }
    let finished = Finished {
        request,
        devices: &devices,
        media_set,
        header: &set_header,
        totals,
        stored_bytes,
    };
    report
        .run
        .warnings
        .extend(history::record_backup(house, &finished).err());
    for warning in &report.run.warnings {
        observer.warning(warning);
    }
    Ok(report)
}

fn changed_file((path, change): &(PathBuf, Change)) -> ChangedFile {
    ChangedFile {
        path: path.display().to_string(),
        what: mark_text(mark_kind(*change)),
    }
}

fn mark_kind(change: Change) -> MarkKind {
    match change {
        Change::Modified => MarkKind::Modified,
        Change::Shrunk => MarkKind::Shrunk,
        Change::Vanished => MarkKind::Vanished,
    }
}

struct Moved {
    families: Vec<FamilyWriter>,
    totals: FileTotals,
    warnings: Vec<String>,
    samples: Vec<crate::Sample>,
}

/// Runs all threads from the first read to the last synced byte.
fn move_bytes(
    shared: &Shared,
    source: Box<dyn Source>,
    families: Vec<FamilyWriter>,
    workers: usize,
    observer: &dyn Observer,
) -> Result<Moved, Error> {
    let sampler = Sampler::new();
    let clock = &*shared.house.clock;
    std::thread::scope(|scope| {
        let samples = scope.spawn(|| sampler.watch(clock, &shared.counters, observer));
        let writers: Vec<_> = families
            .into_iter()
            .map(|family| scope.spawn(|| shared.crew.work("writer", || shared.write(family))))
            .collect();
        let read = shared
            .crew
            .work("reader", || shared.read_all(source, workers));
        shared.handoff.end();
        let families: Vec<_> = writers.into_iter().filter_map(join).collect();
        for family in &shared.direct {
            shared
                .crew
                .work("writer", || Ok(family.lock().finish_data()?));
        }
        sampler.end();
        let samples = samples.join().unwrap_or_default();
        let (totals, warnings) = read.ok_or(Error::Cancelled)?;
        Ok(Moved {
            families,
            totals,
            warnings,
            samples,
        })
    })
}

impl Shared<'_> {
    /// Reads the whole source with all workers, then ends its snapshot.
    fn read_all(
        &self,
        source: Box<dyn Source>,
        workers: usize,
    ) -> Result<(FileTotals, Vec<String>), Error> {
        let (totals, next) = {
            let feed = Mutex::new(Feed::new(&*source, self.inputs.buffer_len()));
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..workers)
                    .map(|_| scope.spawn(|| self.crew.work("worker", || self.compress_all(&feed))))
                    .collect();
                threads.into_iter().for_each(|t| {
                    join(t);
                });
            });
            let mut feed = feed.into_inner();
            self.note_changes(std::mem::take(&mut feed.changes))?;
            let totals = FileTotals {
                entries: feed.entries,
                files: feed.files,
            };
            (totals, feed.number())
        };
        // The database is let go before anything waits for the target.
        let summary = source.finish()?;
        if !self.crew.has_failed() {
            self.put_marks(next)?;
        }
        Ok((totals, summary.warnings))
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

    /// One worker: buffers first, then the next extent, until the source ends.
    fn compress_all(&self, feed: &Mutex<Feed>) -> Result<(), Error> {
        let clock = &*self.house.clock;
        let mut compressor = Compressor::new(self.request.algorithm, self.request.level)?;
        // Held from block to block while nothing blocks: the core's cache stays warm.
        let mut turn: Option<Pass> = None;
        loop {
            self.house.check_cancel()?;
            let at = clock.now();
            let Some((mut input, mut output)) = self.take_buffers(&mut turn) else {
                return Ok(());
            };
            lap(clock, at, &self.counters.buffer_wait_us);
            let job = match feed.lock().next()? {
                Some(job) if !self.crew.has_failed() => job,
                _ => return Ok(()),
            };
            if let Some(throttle) = &self.throttle {
                turn = None;
                let at = clock.now();
                throttle.take(job.plain_len as u64);
                lap(clock, at, &self.counters.rate_wait_us);
            }
            let place = self.place(&job);
            let (plain, _) = match self.request.algorithm {
                Algorithm::None => {
                    output[place.payload + NoneFrame::PREFIX_LEN..].split_at_mut(job.plain_len)
                }
                _ => input.split_at_mut(job.plain_len),
            };
            let at = self.read(&job, plain, &mut turn)?;
            feed.lock().done(job.volume);
            self.settle(&job)?;
            if turn.is_none() {
                turn = Some(self.gate.enter());
                lap(clock, at, &self.counters.cpu_wait_us);
            }
            let at = clock.now();
            let ready = self.finish_block(job, place, &mut compressor, &input, output);
            lap(clock, at, &self.counters.compute_us);
            drop(input);
            if self.gate_is_limited() {
                turn = None;
            }
            self.put(ready)?;
        }
    }

    fn gate_is_limited(&self) -> bool {
        self.request.limits.cpu_percent.is_some()
    }

    fn take_buffers(&self, turn: &mut Option<Pass>) -> Option<(Buffer, Buffer)> {
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

    /// Fills `plain`; returns the time when it was done. Holds a turn afterwards only if it read
    /// from the page cache.
    fn read<'a>(
        &'a self,
        job: &Job,
        plain: &mut [u8],
        turn: &mut Option<Pass<'a>>,
    ) -> Result<Duration, Error> {
        let clock = &*self.house.clock;
        let at = clock.now();
        let cached = job
            .pieces
            .iter()
            .all(|p| p.file.content.is_cached(p.offset..p.offset + p.len as u64));
        if cached && turn.is_none() {
            *turn = Some(self.gate.enter());
            lap(clock, at, &self.counters.cpu_wait_us);
        } else if !cached {
            *turn = None;
        }
        let at = clock.now();
        for piece in &job.pieces {
            // What is not cached must not push out what is.
            let via = if cached { Via::Cache } else { Via::Direct };
            piece
                .file
                .content
                .read_at(&mut plain[piece.at..][..piece.len], piece.offset, via)?;
        }
        if cached {
            return Ok(lap(clock, at, &self.counters.compute_us));
        }
        self.counters
            .reads
            .fetch_add(job.pieces.len() as u64, Ordering::Relaxed);
        self.counters
            .cold_bytes
            .fetch_add(job.plain_len as u64, Ordering::Relaxed);
        Ok(lap(clock, at, &self.counters.read_us))
    }

    fn settle(&self, job: &Job) -> Result<(), Error> {
        self.counters
            .plain_bytes
            .fetch_add(job.plain_len as u64, Ordering::Relaxed);
        for piece in &job.pieces {
            if let Some(change) = piece.file.piece_done()? {
                self.note_changes(vec![(piece.file.path.clone(), change)])?;
            }
        }
        Ok(())
    }

    /// Where head and payload of a job's block go in the output buffer.
    fn place(&self, job: &Job) -> Place {
        let head = head_len(self.container, job.manifest.len());
        // Uncompressed data is read straight into its place, past the cache only if that is aligned.
        let start = match self.request.algorithm {
            Algorithm::None => {
                (head + NoneFrame::PREFIX_LEN).next_multiple_of(ALIGN)
                    - head
                    - NoneFrame::PREFIX_LEN
            }
            _ => 0,
        };
        Place {
            start,
            payload: start + head,
        }
    }

    fn finish_block(
        &self,
        job: Job,
        place: Place,
        compressor: &mut Compressor,
        input: &[u8],
        mut output: Buffer,
    ) -> Ready {
        let n = job.plain_len;
        let (plain_crc, stored_len) = match self.request.algorithm {
            _ if n == 0 => (0, 0),
            Algorithm::None => {
                let frame = none_frame(n);
                let data = place.payload + NoneFrame::PREFIX_LEN;
                output[place.payload..data].copy_from_slice(&frame.prefix);
                output[data + n..][..NoneFrame::SUFFIX_LEN].copy_from_slice(&frame.suffix);
                (
                    crc32c(&output[data..data + n]),
                    NoneFrame::PREFIX_LEN + n + NoneFrame::SUFFIX_LEN,
                )
            }
            _ => {
                let crc = crc32c(&input[..n]);
                (
                    crc,
                    compressor
                        .compress(&input[..n], &mut output[place.payload..])
                        .len,
                )
            }
        };
        let end = place.payload + stored_len;
        let stored_crc = crc32c(&output[place.payload..end]);
        let header = BlockHeader {
            set: self.set,
            sequence: job.sequence,
            plain_len: n as u32,
            stored_len: stored_len as u32,
            plain_crc: if n == 0 { crc32c(&[]) } else { plain_crc },
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

    fn put(&self, ready: Ready) -> Result<(), Error> {
        if self.direct.is_empty() {
            self.handoff.put(ready.sequence, ready);
            return Ok(());
        }
        // NUL never blocks: no other thread is needed to wait for it.
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
        let clock = &*self.house.clock;
        while let Some(ready) = self.handoff.take() {
            let at = clock.now();
            self.write_block(&mut family, &ready)?;
            lap(clock, at, &self.counters.write_us);
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
        }
        if !self.crew.has_failed() {
            family.finish_data()?;
        }
        Ok(family)
    }

    /// Blocks that hold only marks, after all data.
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
struct Place {
    start: usize,
    payload: usize,
}
