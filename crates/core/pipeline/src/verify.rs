//! Verify: decodes everything, checks every checksum, writes nothing.
//!
//! Invariants
//! - Damage is a finding, not an error: it is noted with its device and offset, and reading goes on, so that one run
//!   lists all of it up to a bound.
//! - Accelerators are not used, because the run checks their work.
//! - The sets that a differential set needs are read, too.
//! - Where the stored bytes alone are asked for, no key is needed, and the report says that no more was done.
//!
//! Leaves to others: decoding (`unload`), and the order of a chain (`chain`).

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_media::{BackupType, BlockStream, Error as MediaError, Item, MediaSet, check_parity};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::chain::{self, Chain, Link, Merge};
use crate::choice::EngineChoice;
use crate::measure::{Counters, RunKind, Sample, process_cpu};
use crate::plan::{Demand, Plan, Sizes};
use crate::report::{Finding, NeededWal, Run, VerifiedSet, VerifyReport, degraded};
use crate::request::Offload;
use crate::request::{VerifyDepth, VerifyRequest};
use crate::room::Room;
use crate::unload::{Sink, UnloadJob, UnloadedSet, unload};
use crate::{ChainError, Error, Observer, RunContext};

/// Collects damage and continues.
#[derive(Default)]
struct Inspector {
    findings: Mutex<Vec<Finding>>,
    /// How often something was noted, also what is a finding already or one too many.
    noted: AtomicUsize,
}

impl Inspector {
    fn note(&self, error: &MediaError) {
        self.put(error.number(), error.to_string(), error.hint());
    }

    /// Notes why a chain is broken; other errors are returned to the caller.
    fn note_chain(&self, error: Error) -> Result<(), Error> {
        match &error {
            // A base that no identity opens is not damaged.
            closed if closed.is_closed() => Err(error),
            Error::Chain(chain) => {
                let cause = std::error::Error::source(chain).map(|cause| format!(": {cause}"));
                let text = chain.to_string() + &cause.unwrap_or_default();
                self.put(error.number(), text, chain.hint());
                Ok(())
            }
            Error::Media(media) => {
                self.note(media);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn put(&self, number: Option<u32>, text: String, hint: &'static str) {
        self.noted.fetch_add(1, Ordering::Relaxed);
        let mut findings = self.findings.lock();
        // A stripe without its end is met when sets are listed, and again when its blocks are read.
        let is_known = findings
            .iter()
            .any(|f| f.number == number && f.text == text);
        if !is_known && findings.len() < VerifyReport::FINDINGS_MAX {
            findings.push(Finding { number, text, hint });
        }
    }
}

impl Sink for Inspector {
    fn wants(&self, _set: usize, _items: &[Item]) -> bool {
        true
    }
    fn writes(&self) -> bool {
        false
    }

    fn block(&self, _set: usize, _items: Vec<Item>, _plain: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn damage(&self, error: MediaError) -> Result<(), Error> {
        self.note(&error);
        Ok(())
    }
}

/// A set on its media.
type SetAt<'a> = (&'a MediaSet, u32);

/// A verification in progress.
struct Verification<'a> {
    context: &'a RunContext,
    request: &'a VerifyRequest,
    observer: &'a dyn Observer,
    inspector: Inspector,
    counters: Counters,
    /// The first reason why there is nothing to verify, if any.
    refused: Option<MediaError>,
    sets: Vec<VerifiedSet>,
    samples: Vec<Sample>,
    /// For the set that was read last.
    shown: Option<(Plan, Sizes)>,
}

pub fn run(
    context: &RunContext,
    request: &VerifyRequest,
    observer: &dyn Observer,
) -> Result<VerifyReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let _priority = request.limits.lower_io_priority();
    let media = context.media(&context.devices(&request.devices))?;
    let mut verifying = Verification {
        context,
        request,
        observer,
        inspector: Inspector::default(),
        counters: Counters::default(),
        refused: None,
        sets: Vec::new(),
        samples: Vec::new(),
        shown: None,
    };
    let positions = verifying.positions(&media)?;
    let (started, cpu_before) = (context.clock.now(), process_cpu());
    let bases = chain::open_bases(context, &request.bases)?;
    let chains = match media.stored_bytes()? {
        Some(_) if request.depth == VerifyDepth::Chains => {
            verifying.chains(&media, &positions, &bases)?
        }
        _ => Vec::new(),
    };
    let work = work(&media, &positions, &chains, &request.known);
    verifying.expect(&media, &work)?;
    for set in work {
        verifying.read(set)?;
    }
    verifying.judge_chains(&chains);
    let elapsed = context.clock.now() - started;
    let cpu = process_cpu().saturating_sub(cpu_before);
    verifying.report(&media, &bases, elapsed, cpu)
}

/// The requested sets, and those that they need and that are not known to be sound.
fn work<'a>(
    media: &'a MediaSet,
    positions: &[u32],
    chains: &[Chain<'a>],
    sound: &[Uuid],
) -> Vec<SetAt<'a>> {
    let mut work: Vec<SetAt> = positions.iter().map(|p| (media, *p)).collect();
    let place = |(media, position): &SetAt| (std::ptr::from_ref(*media), *position);
    let mut known: HashSet<_> = work.iter().map(place).collect();
    let links = chains.iter().flat_map(|chain| &chain.links);
    for link in links.filter(|link| !sound.contains(&link.header.set)) {
        let needed = (link.media, link.header.position);
        if known.insert(place(&needed)) {
            work.push(needed);
        }
    }
    work
}

impl Verification<'_> {
    /// How often damage was noted so far: more than the findings that are kept.
    fn noted(&self) -> usize {
        self.inspector.noted.load(Ordering::Relaxed)
    }

    /// The sets to verify. A set that is incomplete on the media is a finding.
    fn positions(&mut self, media: &MediaSet) -> Result<Vec<u32>, Error> {
        let positions = match (self.request.position, media.stored_bytes()?) {
            (Some(position), _) => vec![position.max(1)],
            (None, None) => vec![1],
            (None, Some(_)) => {
                for error in media.unreadable()? {
                    self.inspector.note(&error);
                    self.refused.get_or_insert(error);
                }
                let sets = media.sets()?;
                for set in sets.iter().filter(|s| s.trailer.is_none()) {
                    // The set's own error names the stripe that lacks its end.
                    if let Err(error) = media.set(set.header.position) {
                        self.inspector.note(&error);
                    }
                }
                sets.iter().map(|s| s.header.position).collect()
            }
        };
        if positions.is_empty() {
            let none = || MediaError::NoSuchSet {
                device: media.device(0).to_owned(),
                position: 1,
                count: 0,
            };
            return Err(self.refused.take().unwrap_or_else(none).into());
        }
        Ok(positions)
    }

    /// Notes how many bytes will be read; unknown for a pipe.
    fn expect(&self, media: &MediaSet, work: &[SetAt]) -> Result<(), Error> {
        let Some(stored) = media.stored_bytes()? else {
            return Ok(());
        };
        let plain = |(media, position): &SetAt| {
            let trailer = media.set(*position).ok()?.trailer?;
            Some(trailer.plain_bytes_total)
        };
        let sum = work.iter().filter_map(plain).fold(0, u64::saturating_add);
        let expected = if sum > 0 { sum } else { stored };
        let counter = &self.counters.expected_bytes;
        counter.store(expected, Ordering::Relaxed);
        Ok(())
    }

    /// The set's streams; `None` if missing parts were noted and the other sets are to be checked.
    fn streams(&mut self, (media, position): SetAt) -> Result<Option<Vec<BlockStream>>, Error> {
        let families = 0..media.family_count();
        let stream = |i| match self.request.depth {
            VerifyDepth::Stored => media.stored_stream(i, position),
            VerifyDepth::Chains | VerifyDepth::Alone => media.stream(i, position),
        };
        let streams: Result<Vec<_>, _> = families.map(stream).collect();
        match streams {
            Ok(streams) => Ok(Some(streams)),
            // The set is not on every stripe: noted above, or requested and missing.
            Err(e) if self.request.position.is_some() => Err(e.into()),
            Err(e) => {
                self.context.check_cancel()?;
                self.inspector.note(&e);
                self.refused.get_or_insert(e);
                Ok(None)
            }
        }
    }

    /// Reads one whole set.
    fn read(&mut self, set: SetAt) -> Result<(), Error> {
        let Some(streams) = self.streams(set)? else {
            return Ok(());
        };
        let (media, position) = set;
        let header = streams[0].header().clone();
        let (limits, tuning) = (&self.request.limits, &self.request.tuning);
        let demand = Demand {
            tuning,
            limits,
            devices: media.family_count(),
            volumes: 1,
            buffer_bytes_of_media: Some(header.buffer_bytes as usize),
            streams: media.family_count(),
            algorithm: header.algorithm,
        };
        let devices = media.reading_bytes();
        let sizes = Room::now().fit(&demand, devices)?;
        let mut plan = Plan::for_reading("verify", media, &header, &sizes, limits, tuning);
        plan.memory_bytes += devices;
        self.observer.planned(&plan);
        self.shown = Some((plan, sizes));
        let before = self.noted();
        // Verification checks the work of accelerators, so it uses none of them.
        let choice = EngineChoice::of(self.context, &Offload::default(), header.algorithm);
        let unloading = UnloadJob {
            context: self.context,
            sizes: &sizes,
            limits,
            choice: &choice,
            counters: &self.counters,
            observer: self.observer,
            stored_only: self.request.depth == VerifyDepth::Stored,
        };
        let unloaded = unload(&unloading, vec![streams], &self.inspector)?;
        self.samples.extend(unloaded.samples);
        // A restore queries the set before it reads it: an error there counts here, too.
        if self.noted() == before
            && media.stored_bytes()?.is_some()
            && let Err(error) = media.set(position)
        {
            self.inspector.note(&error);
        }
        if self.noted() == before {
            self.parity(media)?;
        }
        let undamaged = self.noted() == before;
        let verified = |read| verified(read, set, undamaged);
        self.sets.extend(unloaded.sets.into_iter().map(verified));
        Ok(())
    }

    /// Reads the parity stripes. Damage there is no damage of the set, which is degraded by it.
    fn parity(&self, media: &MediaSet) -> Result<(), Error> {
        let throttle = self.request.limits.throttle(&self.context.clock, 1 << 20);
        let moved = |bytes: u64| {
            if let Some(throttle) = &throttle {
                throttle.take(bytes);
            }
            match self.context.check_cancel() {
                Ok(()) => Ok(()),
                Err(_) => Err(MediaError::Cancelled {
                    device: media.device(0).to_owned(),
                }),
            }
        };
        let checked = check_parity(media, &moved);
        self.context.check_cancel()?;
        Ok(checked?)
    }

    /// A chain is sound if each of its sets is. A set that was read just now counts as it was found.
    fn judge_chains(&mut self, chains: &[Chain]) {
        for chain in chains {
            let (sets, known) = (&self.sets, &self.request.known);
            let is_valid = |link: &Link| {
                let set = link.header.set;
                let mut read = sets.iter().filter(|s| s.set == set).peekable();
                match read.peek() {
                    Some(_) => read.any(|read| read.valid),
                    None => known.contains(&set),
                }
            };
            if chain.links.iter().all(is_valid) {
                let newest = chain.links[0].header.set;
                let of_it = self.sets.iter_mut().filter(|set| set.set == newest);
                of_it.for_each(|set| set.chain_sets = Some(chain.links.len()));
            }
        }
    }

    fn report(
        self,
        media: &MediaSet,
        bases: &[MediaSet],
        elapsed: Duration,
        cpu: Duration,
    ) -> Result<VerifyReport, Error> {
        let Some((plan, sizes)) = self.shown else {
            let incomplete = || MediaError::Incomplete {
                device: media.device(0).to_owned(),
                position: self.request.position.unwrap_or(1),
            };
            return Err(self.refused.unwrap_or_else(incomplete).into());
        };
        let mut warnings = degraded(media);
        warnings.extend(bases.iter().flat_map(degraded));
        for warning in &warnings {
            self.observer.warning(warning);
        }
        Ok(VerifyReport {
            stored_only: self.request.depth == VerifyDepth::Stored,
            sets: self.sets,
            findings: self.inspector.findings.into_inner(),
            run: Run {
                elapsed_s: elapsed.as_secs_f64(),
                cpu_s: cpu.as_secs_f64(),
                limit: self.counters.limit(elapsed, &sizes, RunKind::Verify),
                waits: self.counters.waits(),
                samples: self.samples,
                engines: Vec::new(),
                warnings,
                notes: Vec::new(),
                history_failed: false,
                plan,
            },
        })
    }

    /// The chains of the differential sets among `positions`, if their sets are available. If no other media were
    /// given, a missing set is not a finding.
    fn chains<'a>(
        &self,
        media: &'a MediaSet,
        positions: &[u32],
        bases: &'a [MediaSet],
    ) -> Result<Vec<Chain<'a>>, Error> {
        let mut chains = Vec::new();
        let positions: HashSet<u32> = positions.iter().copied().collect();
        for set in media.sets()? {
            self.context.check_cancel()?;
            let (header, complete) = (&set.header, set.trailer.is_some());
            if header.parent.is_none() || !complete || !positions.contains(&header.position) {
                continue;
            }
            let chain = match Chain::collect(self.context, media, set, bases) {
                Ok(chain) => chain,
                Err(Error::Chain(ChainError::Missing { .. })) if self.request.bases.is_empty() => {
                    continue;
                }
                Err(error) => {
                    self.inspector.note_chain(error)?;
                    continue;
                }
            };
            match Merge::read(&chain, &|_| true, false) {
                Ok(_) => chains.push(chain),
                Err(error) => self.inspector.note_chain(error)?,
            }
        }
        Ok(chains)
    }
}

fn verified(read: UnloadedSet, (media, position): SetAt, undamaged: bool) -> VerifiedSet {
    let trailer = read.trailer.as_ref();
    let is_pipe = media.stored_bytes().is_ok_and(|bytes| bytes.is_none());
    let signature = match is_pipe {
        true => None,
        false => media.signature(position).ok(),
    };
    VerifiedSet {
        set: read.header.set,
        position,
        device: media.device(0).to_owned(),
        is_log: read.header.backup_type == BackupType::Log,
        parent: read.header.parent,
        chain_sets: None,
        valid: undamaged && trailer.is_some(),
        degraded: !media.faults().is_empty(),
        wal: NeededWal::of(&read.header, trailer.map(|t| t.log.last_lsn)),
        plain_bytes: read.plain_bytes,
        stored_bytes: trailer.map_or(0, |t| t.stored_bytes_total),
        made_damaged: trailer.is_some_and(|t| t.damaged),
        signature: signature.map(|state| state.word()),
        signer: signature.and_then(|state| Some(state.signer()?.to_string())),
        database: read.header.database,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unload::contract::keeps_its_contract;

    #[test]
    fn a_verification_keeps_the_contract_of_sinks_and_notes_all_damage() {
        let inspector = Inspector::default();
        assert_eq!(keeps_its_contract(&inspector, 0).len(), 4, "all files");
        let findings = inspector.findings.into_inner();
        let texts: Vec<&str> = findings.iter().map(|f| &*f.text).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
    }

    #[test]
    fn one_fact_is_one_finding_and_damage_counts_also_when_the_list_is_full() {
        let inspector = Inspector::default();
        let cut = |position| MediaError::Incomplete {
            device: "a".to_owned(),
            position,
        };
        inspector.note(&cut(1));
        inspector.note(&cut(1));
        assert_eq!(inspector.findings.lock().len(), 1);
        for position in 0..=VerifyReport::FINDINGS_MAX as u32 {
            inspector.note(&cut(position));
        }
        assert_eq!(inspector.findings.lock().len(), VerifyReport::FINDINGS_MAX);
        let noted = inspector.noted.load(Ordering::Relaxed);
        assert_eq!(noted, 2 + VerifyReport::FINDINGS_MAX + 1);
    }
}
