//! Restore: every stripe is read at once, blocks are decoded and written in any order, names come last.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_media::{
    BlockStream, Entry, EntryKind, Error as MediaError, Extent, Item, Mark, MediaSet, SetHeader,
    SetTrailer,
};
use longshore_source::SourceKind;
use parking_lot::Mutex;

use crate::cluster::{self, Cluster, Outline};
use crate::measure::{Counters, Work, lap, process_cpu};
use crate::offload::Choice;
use crate::place::{Place, Scope, Target};
use crate::plan::{Plan, Sizes};
use crate::report::{CHANGED_MAX, FileTotals, RestoreReport, Run, mark_text};
use crate::request::RestoreRequest;
use crate::share::EngineShare;
use crate::unload::{Sink, Unloading, unload};
use crate::{ClusterError, Error, House, Observer, history};

struct Writer<'a> {
    house: &'a House,
    target: Box<dyn Place>,
    only: &'a [PathBuf],
    /// Which of `only` was found.
    found: Vec<AtomicBool>,
    counters: &'a Counters,
    entries: AtomicU64,
    files: AtomicU64,
    /// The first marks, for the report.
    marks: Mutex<Vec<Mark>>,
}

impl Writer<'_> {
    /// Whether a path was asked for.
    fn is_wanted(&self, path: &Path) -> bool {
        if self.only.is_empty() {
            return true;
        }
        let mut wanted = false;
        for (i, only) in self.only.iter().enumerate() {
            if path.starts_with(only) {
                self.found[i].store(true, Ordering::Relaxed);
                wanted = true;
            }
        }
        wanted
    }

    fn put(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        if !self.is_wanted(&entry.path) {
            return Ok(());
        }
        if entry.first {
            self.entries.fetch_add(1, Ordering::Relaxed);
            self.files
                .fetch_add(u64::from(entry.kind == EntryKind::File), Ordering::Relaxed);
        }
        if !parts.is_empty() {
            self.target.put_data(entry, parts)
        } else if entry.first {
            self.target.put_name(entry)
        } else {
            Ok(())
        }
    }
}

impl Sink for Writer<'_> {
    fn wants(&self, _set: usize, items: &[Item]) -> bool {
        wants(items, |path| self.is_wanted(path))
    }

    fn writes(&self) -> bool {
        true
    }

    fn block(&self, _set: usize, items: Vec<Item>, plain: &[u8]) -> Result<(), Error> {
        let clock = &*self.house.clock;
        let at = clock.now();
        let mut rest = plain;
        let mut current: Option<Entry> = None;
        let mut parts = Vec::new();
        for item in items {
            match item {
                Item::Entry(entry) => {
                    if let Some(before) = current.replace(entry) {
                        self.put(&before, &parts)?;
                    }
                    parts.clear();
                }
                Item::Extent(extent) => {
                    // The manifest was checked: its extents add up to the plain bytes.
                    let (bytes, later) = rest.split_at(extent.len as usize);
                    rest = later;
                    parts.push((extent, bytes));
                }
                Item::Mark(mark) => {
                    let mut marks = self.marks.lock();
                    if marks.len() < CHANGED_MAX && self.is_wanted(&mark.path) {
                        marks.push(mark);
                    }
                }
            }
        }
        if let Some(last) = current {
            self.put(&last, &parts)?;
        }
        lap(clock, at, &self.counters.write_us);
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn damage(&self, error: MediaError) -> Result<(), Error> {
        Err(error.into())
    }
}

/// Streams of only the blocks that hold something of `only`. `None` where all are wanted, or the index cannot be
/// read: then what the stripes themselves say counts.
fn picked_streams(media: &MediaSet, position: u32, only: &[PathBuf]) -> Option<Vec<BlockStream>> {
    if only.is_empty() {
        return None;
    }
    let is_wanted = |path: &Path| only.iter().any(|only| path.starts_with(only));
    let wants = |items: &[Item]| wants(items, is_wanted);
    let stream = |i| match media.stream_of(i, position, &wants) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "the index cannot be read: the whole stripes are");
            None
        }
    };
    (0..media.family_count()).map(stream).collect()
}

/// Whether a block holds anything of what is wanted.
fn wants(items: &[Item], is_wanted: impl Fn(&Path) -> bool) -> bool {
    items.iter().any(|item| match item {
        Item::Entry(entry) => is_wanted(&entry.path),
        Item::Mark(mark) => is_wanted(&mark.path),
        Item::Extent(_) => false,
    })
}

/// A cluster as a whole is put together with care; parts of one, and all else, are names like others.
fn open_target(
    house: &House,
    request: &RestoreRequest,
    kind: SourceKind,
    media: &MediaSet,
    (header, trailer): (&SetHeader, Option<&SetTrailer>),
) -> Result<Box<dyn Place>, Error> {
    if kind == SourceKind::Postgres && request.only.is_empty() && request.moves.is_empty() {
        let outline = match trailer {
            Some(trailer) => {
                cluster::check_recovery(header, trailer, request.cluster.recovery.as_ref())?;
                Some(Outline::read(
                    media,
                    header.position,
                    request.cluster.delta,
                )?)
            }
            None => None,
        };
        let set = (header, trailer);
        let options = &request.cluster;
        let place = (request.target.as_path(), request.replace);
        let cluster = Cluster::open(house, place, options, set, outline.as_ref())?;
        return Ok(Box::new(cluster));
    }
    if !request.cluster.is_default() {
        return Err(ClusterError::NotACluster.into());
    }
    let scope = Scope::Names {
        side_files: kind == SourceKind::Sqlite,
    };
    let target = Target::open(
        house,
        &request.target,
        request.replace,
        scope,
        &request.moves,
    )?;
    let needed = trailer.map(|trailer| trailer.plain_bytes_total);
    if let (Some(needed), Some(free), true) = (needed, target.free_bytes(), request.only.is_empty())
    {
        // Holes are not counted in either: this refuses only what cannot fit.
        if needed > free {
            return Err(Error::TargetFull { free, needed });
        }
    }
    Ok(Box::new(target))
}

pub fn run(
    house: &House,
    request: &RestoreRequest,
    observer: &dyn Observer,
) -> Result<RestoreReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let devices: Vec<_> = request
        .devices
        .iter()
        .map(|d| d.open(&house.storage))
        .collect();
    let media = MediaSet::open(&devices)?;
    // A pipe shows its sets only while it is read; there the first one is the default.
    let seekable = media.stored_bytes()?.is_some();
    let recovery = request.cluster.recovery.as_ref();
    let summary = if seekable {
        let position = cluster::position(&media, request.position, recovery)?;
        Some(media.set(position)?)
    } else {
        None
    };
    let position = summary
        .as_ref()
        .map_or(request.position.max(1), |s| s.header.position);
    let picked = match seekable {
        true => picked_streams(&media, position, &request.only),
        false => None,
    };
    let streams = match picked {
        Some(streams) => streams,
        None => (0..media.family_count())
            .map(|i| media.stream(i, position))
            .collect::<Result<_, _>>()?,
    };
    let header = streams[0].header().clone();
    if header.parent.is_some() {
        return Err(Error::Differential { position });
    }
    let kind = match header.source_kind {
        1 => SourceKind::Files,
        2 => SourceKind::Sqlite,
        3 => SourceKind::Postgres,
        kind => return Err(Error::SourceKind { kind }),
    };
    let sizes = Sizes::decide(
        &request.tuning,
        &request.limits,
        media.family_count(),
        1,
        Some(header.buffer_bytes as usize),
        media.family_count(),
    );
    let counters = Counters::default();
    let expected = summary
        .as_ref()
        .and_then(|s| s.trailer.as_ref())
        .map(|t| t.plain_bytes_total);
    counters
        .expected_bytes
        .store(expected.unwrap_or(0), Ordering::Relaxed);
    let choice = Choice::that_decompresses(house, &request.offload, header.algorithm);
    let sizes = sizes.lending(choice.buffers_wanted(&sizes), &request.tuning);
    let mut plan = Plan::for_reading("restore", &media, &header, &sizes, &request.limits);
    plan.engine = choice.engine(&plan.engine);
    plan.memory_bytes += choice.memory_bytes(&sizes);
    plan.notices.extend(choice.notices.iter().cloned());
    plan.expected_bytes = expected;
    observer.planned(&plan);
    let started = house.clock.now();
    let start_us = house.now_us();
    let cpu_before = process_cpu();
    let _priority = request.limits.lower_io_priority();
    let trailer = summary.as_ref().and_then(|s| s.trailer.as_ref());
    let target = open_target(house, request, kind, &media, (&header, trailer))?;
    let writer = Writer {
        house,
        target,
        only: &request.only,
        found: request
            .only
            .iter()
            .map(|_| AtomicBool::new(false))
            .collect(),
        counters: &counters,
        entries: AtomicU64::new(0),
        files: AtomicU64::new(0),
        marks: Mutex::default(),
    };
    let unloading = Unloading {
        house,
        sizes: &sizes,
        limits: &request.limits,
        choice: &choice,
        counters: &counters,
        observer,
    };
    let unloaded = unload(&unloading, vec![streams], &writer)?;
    if let Some(i) = writer.found.iter().position(|f| !f.load(Ordering::Relaxed)) {
        return Err(Error::NotInSet {
            path: request.only[i].clone(),
        });
    }
    let totals = FileTotals {
        entries: writer.entries.into_inner(),
        files: writer.files.into_inner(),
    };
    let at = house.clock.now();
    let marks = writer.marks.into_inner();
    let rewritten_bytes = writer.target.finish()?;
    lap(&*house.clock, at, &counters.write_us);
    let elapsed = house.clock.now() - started;
    let mut warnings = Vec::new();
    let mut history_failed = false;
    let blocks = counters.blocks.load(Ordering::Relaxed);
    let plain_bytes = unloaded.sets.iter().map(|set| set.plain_bytes).sum();
    let engines = EngineShare::all("software", (blocks, plain_bytes), &unloaded.used);
    warnings.extend(unloaded.used.iter().flat_map(|u| u.alarms.clone()));
    let trailers = || unloaded.sets.iter().filter_map(|set| set.trailer.as_ref());
    let damaged = trailers().any(|t| t.damaged);
    if damaged {
        warnings.push("the backup set was made from files that changed meanwhile (3188)".into());
        warnings.extend(marks.iter().map(|mark| {
            let what = mark_text(mark.kind);
            format!("{} {what} while it was backed up", mark.path.display())
        }));
    }
    if let Some(trailer) = trailers().next() {
        let recorded = history::record_restore(
            house,
            &media,
            &devices,
            &header,
            trailer,
            request,
            (start_us, plain_bytes),
        );
        history_failed = recorded.is_err();
        warnings.extend(recorded.err());
    }
    for warning in &warnings {
        observer.warning(warning);
    }
    Ok(RestoreReport {
        set: header.set,
        database: header.database,
        position,
        target: request.target.display().to_string(),
        plain_bytes,
        stored_bytes: counters.stored_bytes.load(Ordering::Relaxed),
        totals,
        rewritten_bytes,
        damaged,
        run: Run {
            elapsed_s: elapsed.as_secs_f64(),
            cpu_s: process_cpu().saturating_sub(cpu_before).as_secs_f64(),
            limit: counters.limit(elapsed, &sizes, Work::Restore),
            waits: counters.waits(),
            samples: unloaded.samples,
            engines,
            warnings,
            history_failed,
            plan,
        },
    })
}
