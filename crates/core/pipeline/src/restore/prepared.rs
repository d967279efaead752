//! A restore from its plan to its end: the decisions, and the moving bytes.
//!
//! Invariants
//! - The decisions that depend on the media alone come first, then those about archive and destination; every refusal
//!   that needs no bytes comes before the first byte is written.
//! - The streams that were opened to decide are the ones that are read, since a pipe can be read only once.
//! - Files get their names only after every wave was written and everything that was asked for was found.
//!
//! Leaves to others: decoding (`unload`), writing (`writer.rs`), and the order of a chain (`chain`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_codec::Algorithm;
use longshore_media::{BlockStream, MediaSet, SetHeader, SetTrailer};
use longshore_pg::Recovery;
use longshore_source::SourceKind;

use super::databases::EmptiedDatabases;
use super::opened::OpenedMedia;
use super::reading::Reading;
use super::target::DestinationNeeds;
use super::writer::{RestoreResult, Wave, Writer};
use crate::archived::{existing, prove_replay};
use crate::chain::{Link, Merge};
use crate::choice::EngineChoice;
use crate::measure::{Counters, lap, process_cpu};
use crate::plan::{Demand, Plan, Sizes, codec_bytes};
use crate::request::Offload;
use crate::request::RestoreRequest;
use crate::room::Room;
use crate::tail::check_tail;
use crate::unload::{UnloadJob, UnloadResult, unload};
use crate::{ChainError, ClusterOptions, Error, Observer, RunContext};

/// The decisions that depend on the media alone. [`PreparedRestore::move_blocks`] consults the archive and the destination.
pub struct PreparedRestore<'a> {
    pub context: &'a RunContext,
    pub request: &'a RestoreRequest,
    pub opened: &'a OpenedMedia,
    pub reading: Reading<'a>,
    /// Databases whose files are made empty; `None`: there are none.
    pub emptied: Option<&'a EmptiedDatabases>,
    /// The streams of the first wave: a pipe's header comes with them.
    streams: Vec<Vec<BlockStream>>,
    pub header: SetHeader,
    pub kind: SourceKind,
    pub sizes: Sizes,
    choice: EngineChoice,
    /// For all sets except the last one.
    software: EngineChoice,
    pub counters: Counters,
    pub plan: Plan,
}

/// The result of moving the bytes.
pub struct MoveResult {
    /// When bytes began to move.
    pub start_us: i64,
    pub unloaded: UnloadResult,
    pub finished: RestoreResult,
    /// The options of this restore.
    pub options: ClusterOptions,
    pub elapsed: Duration,
    pub cpu: Duration,
}

impl<'a> PreparedRestore<'a> {
    pub fn of(
        context: &'a RunContext,
        request: &'a RestoreRequest,
        opened: &'a OpenedMedia,
        emptied: Option<&'a EmptiedDatabases>,
    ) -> Result<PreparedRestore<'a>, Error> {
        let OpenedMedia { media, summary, .. } = opened;
        let about = (opened.position, summary.as_ref());
        let wanted = (&*request.only, emptied);
        let reading = Reading::new(context, wanted, media, about, &opened.bases)?;
        let first = reading.waves().into_iter().next();
        let streams = reading.streams(first.unwrap_or(0..1))?;
        let header = streams[0][0].header().clone();
        if header.parent.is_some() && reading.links().is_empty() {
            return Err(ChainError::Pipe.into());
        }
        let kind = kind_of(&header)?;
        let demand = Demand {
            tuning: &request.tuning,
            limits: &request.limits,
            devices: media.family_count(),
            volumes: 1,
            buffer_bytes_of_media: Some(largest_buffer(&header, reading.links())),
            streams: reading.streams_max(),
            algorithm: largest_codec(&header, reading.links()),
        };
        let bases = opened.bases.iter().map(MediaSet::reading_bytes);
        let devices = media.reading_bytes() + bases.sum::<u64>();
        let merged = reading.merge().map_or(0, Merge::memory_bytes) + devices;
        let sizes = Room::now().fit(&demand, merged)?;
        // Accelerators help with the largest set: the last one.
        let last = reading.links().last().map_or(&header, |link| &link.header);
        let choice = EngineChoice::that_decompresses(context, &request.offload, last.algorithm);
        let software = EngineChoice::of(context, &Offload::default(), last.algorithm);
        let sizes = sizes.with_staging(choice.buffers_wanted(&sizes), &request.tuning);
        let trailer = summary.as_ref().and_then(|set| set.trailer.as_ref());
        let expected = expected_bytes(trailer, reading.links());
        let counters = Counters::default();
        counters
            .expected_bytes
            .store(expected.unwrap_or(0), Ordering::Relaxed);
        let (limits, tuning) = (&request.limits, &request.tuning);
        let mut plan = Plan::for_reading("restore", media, &header, &sizes, limits, tuning);
        plan.engine = choice.engine(&plan.engine);
        plan.memory_bytes += choice.memory_bytes(&sizes) + merged;
        plan.expected_bytes = expected;
        name_links(&mut plan, reading.links());
        plan.notices.extend(choice.notices.iter().cloned());
        Ok(PreparedRestore {
            context,
            request,
            opened,
            reading,
            emptied,
            streams,
            header,
            kind,
            sizes,
            choice,
            software,
            counters,
            plan,
        })
    }

    pub fn trailer(&self) -> Option<&SetTrailer> {
        let summary = self.opened.summary.as_ref();
        summary.and_then(|set| set.trailer.as_ref())
    }

    /// The request's options; for a recovery from an archive, proves that the archive has its WAL.
    pub fn options(&self, observer: &dyn Observer) -> Result<ClusterOptions, Error> {
        let mut options = self.request.cluster.clone();
        if let (Some(archive), Some(recovery), Some(trailer)) =
            (&options.proof, &options.recovery, self.trailer())
        {
            let set = (&self.header, trailer);
            let proven = prove_replay(self.context, archive, set, recovery)?;
            let warning = proven.warning();
            warning.iter().for_each(|text| observer.warning(text));
            let request = (
                &*self.request.target,
                self.request.replace,
                &self.request.cluster,
            );
            let at = (proven.timeline, proven.end);
            let (storage, archive) = (&*self.context.storage, existing(self.context, archive)?);
            if let Some(text) = check_tail(storage, &archive, request, at, recovery)? {
                observer.warning(&text);
            }
            options.recovery = Some(Recovery {
                not_ahead: proven.not_ahead,
                ..recovery.clone()
            });
        }
        Ok(options)
    }

    /// The facts for its destination; `options` are those of [`PreparedRestore::options`].
    pub fn needs<'n>(&'n self, options: &'n ClusterOptions) -> DestinationNeeds<'n> {
        DestinationNeeds {
            request: self.request,
            options,
            kind: self.kind,
            media: &self.opened.media,
            header: &self.header,
            trailer: self.trailer(),
            merge: self.reading.merge(),
            emptied: self.emptied,
        }
    }

    /// Opens the destination, moves every wave into it and gives all files their names.
    pub fn move_blocks(&mut self, observer: &dyn Observer) -> Result<MoveResult, Error> {
        let (started, start_us) = (self.context.clock.now(), self.context.now_us());
        let cpu_before = process_cpu();
        let options = self.options(observer)?;
        let streams = std::mem::take(&mut self.streams);
        let target = self.needs(&options).open(self.context)?;
        let merge = self.reading.merge();
        let writer = Writer::new(self.context, target, merge, self.request, &self.counters);
        let writer = writer.renaming(self.reading.further());
        let writer = writer.emptying(self.emptied);
        let unloaded = self.unload_waves(streams, &writer, observer)?;
        writer.check_found()?;
        let at = self.context.clock.now();
        if merge.is_some() {
            writer.complete(&self.opened.media, self.opened.position)?;
        }
        let finished = writer.finish()?;
        lap(&*self.context.clock, at, &self.counters.write_us);
        Ok(MoveResult {
            start_us,
            unloaded,
            finished,
            options,
            elapsed: self.context.clock.now() - started,
            cpu: process_cpu().saturating_sub(cpu_before),
        })
    }

    /// `streams` are those of the first wave.
    fn unload_waves(
        &self,
        mut streams: Vec<Vec<BlockStream>>,
        writer: &Writer,
        observer: &dyn Observer,
    ) -> Result<UnloadResult, Error> {
        let mut done = UnloadResult::default();
        let mut waves = self.reading.waves().into_iter().peekable();
        while let Some(wave) = waves.next() {
            let is_last = waves.peek().is_none();
            let unloading = UnloadJob {
                context: self.context,
                sizes: &self.sizes,
                limits: &self.request.limits,
                choice: if is_last {
                    &self.choice
                } else {
                    &self.software
                },
                counters: &self.counters,
                observer,
                stored_only: false,
            };
            let first = wave.start;
            let unloaded = unload(&unloading, streams, &Wave { writer, first })?;
            done.sets.extend(unloaded.sets);
            done.samples.extend(unloaded.samples);
            done.used = unloaded.used;
            streams = match waves.peek() {
                Some(next) => self.reading.streams(next.clone())?,
                None => Vec::new(),
            };
        }
        Ok(done)
    }
}

fn kind_of(header: &SetHeader) -> Result<SourceKind, Error> {
    match header.source_kind {
        1 => Ok(SourceKind::Files),
        2 => Ok(SourceKind::Sqlite),
        3 => Ok(SourceKind::Postgres),
        kind => Err(Error::SourceKind { kind }),
    }
}

/// The algorithm of the sets whose codec needs the most memory.
fn largest_codec(header: &SetHeader, links: &[Link]) -> Algorithm {
    let headers = links.iter().map(|link| &link.header).chain([header]);
    headers
        .map(|header| header.algorithm)
        .max_by_key(|algorithm| codec_bytes(*algorithm, header.buffer_bytes as usize))
        .unwrap_or(header.algorithm)
}

fn largest_buffer(header: &SetHeader, links: &[Link]) -> usize {
    let largest = links.iter().map(|link| link.header.buffer_bytes).max();
    largest.unwrap_or(header.buffer_bytes) as usize
}

/// Plain bytes of all sets to be read; `None` for a pipe.
fn expected_bytes(trailer: Option<&SetTrailer>, links: &[Link]) -> Option<u64> {
    match links {
        [] => trailer.map(|trailer| trailer.plain_bytes_total),
        links => {
            let bytes = links.iter().map(|link| link.trailer.plain_bytes_total);
            Some(bytes.sum())
        }
    }
}

/// Names the other sets of a chain, and their devices, in the plan.
fn name_links(plan: &mut Plan, links: &[Link]) {
    for link in links.iter().skip(1) {
        plan.notices.push(format!("needs {}", link.name()));
        for i in 0..link.media.family_count() {
            let device = link.media.device(i).to_owned();
            if !plan.devices.contains(&device) {
                plan.devices.push(device);
            }
        }
    }
}
