//! Verify: decode everything, check every checksum, write nothing.

use std::sync::atomic::Ordering;

use longshore_media::{BackupType, Error as MediaError, Item, MediaSet};
use parking_lot::Mutex;

use crate::chain::{self, Chain, Link, Merge};
use crate::measure::{Counters, Work, process_cpu};
use crate::offload::{Choice, Offload};
use crate::plan::{Plan, Sizes};
use crate::report::{Finding, Run, VerifiedSet, VerifyReport};
use crate::request::{Tuning, VerifyRequest};
use crate::room::Room;
use crate::unload::{Sink, Unloading, unload};
use crate::{ChainError, Error, House, Observer};

/// Collects damage and goes on.
struct Inspector {
    findings: Mutex<Vec<Finding>>,
}

impl Inspector {
    fn note(&self, error: &MediaError) {
        self.put(error.number(), error.to_string(), error.hint());
    }

    /// Why a chain does not hold; what else keeps it from being looked at is the caller's.
    fn note_chain(&self, error: Error) -> Result<(), Error> {
        match &error {
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
        let mut findings = self.findings.lock();
        if findings.len() < VerifyReport::FINDINGS_MAX {
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

pub fn run(
    house: &House,
    request: &VerifyRequest,
    observer: &dyn Observer,
) -> Result<VerifyReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let _priority = request.limits.lower_io_priority();
    let devices = house.devices(&request.devices);
    let media = MediaSet::open(&devices)?;
    let inspector = Inspector {
        findings: Mutex::new(Vec::new()),
    };
    // Why there is nothing to verify, if so.
    let mut refused = None;
    let positions = match (request.position, media.stored_bytes()?) {
        (Some(position), _) => vec![position.max(1)],
        (None, None) => vec![1],
        (None, Some(_)) => {
            for error in media.unreadable()? {
                inspector.note(&error);
                refused.get_or_insert(error);
            }
            let sets = media.sets()?;
            for set in sets.iter().filter(|s| s.trailer.is_none()) {
                // The set's own answer names the stripe that lacks its end.
                if let Err(error) = media.set(set.header.position) {
                    inspector.note(&error);
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
        return Err(refused.unwrap_or_else(none).into());
    }
    let counters = Counters::default();
    let started = house.clock.now();
    let cpu_before = process_cpu();
    let mut sets = Vec::new();
    let mut samples = Vec::new();
    let mut shown = None;
    let bases = chain::open_bases(house, &request.bases)?;
    let chains = match media.stored_bytes()? {
        Some(_) => chains(house, &media, &positions, &bases, &inspector, request)?,
        None => Vec::new(),
    };
    let mut work: Vec<(&MediaSet, u32)> = positions.iter().map(|p| (&media, *p)).collect();
    for link in chains.iter().flat_map(|chain| &chain.links) {
        let known = |(media, position): &(&MediaSet, u32)| {
            std::ptr::eq(*media, link.media) && *position == link.header.position
        };
        if !work.iter().any(known) {
            work.push((link.media, link.header.position));
        }
    }
    if let Some(bytes) = media.stored_bytes()? {
        let mut sum = 0u64;
        for (media, position) in &work {
            let set = media.set(*position).ok();
            let trailer = set.and_then(|set| set.trailer);
            sum = sum.saturating_add(trailer.map_or(0, |t| t.plain_bytes_total));
        }
        counters
            .expected_bytes
            .store(if sum > 0 { sum } else { bytes }, Ordering::Relaxed);
    }
    for (media, position) in work {
        let streams: Result<Vec<_>, _> = (0..media.family_count())
            .map(|i| media.stream(i, position))
            .collect();
        let streams = match streams {
            Ok(streams) => streams,
            // The set is not on every stripe: said above, or asked for and not there.
            Err(e) if request.position.is_some() => return Err(e.into()),
            Err(e) => {
                house.check_cancel()?;
                inspector.note(&e);
                refused.get_or_insert(e);
                continue;
            }
        };
        let header = streams[0].header().clone();
        let (families, buffer_bytes) = (media.family_count(), header.buffer_bytes as usize);
        let decide = |tuning: &Tuning| {
            Sizes::decide(
                tuning,
                &request.limits,
                families,
                1,
                Some(buffer_bytes),
                families,
            )
        };
        let sizes = Room::now().fit(&request.tuning, families, 0, true, decide)?;
        let plan = Plan::for_reading(
            "verify",
            media,
            &header,
            &sizes,
            &request.limits,
            &request.tuning,
        );
        observer.planned(&plan);
        shown = Some((plan, sizes));
        let before = inspector.findings.lock().len();
        // A verification is the judge of what accelerators did: it asks none of them.
        let choice = Choice::of(house, &Offload::default(), header.algorithm);
        let unloading = Unloading {
            house,
            sizes: &sizes,
            limits: &request.limits,
            choice: &choice,
            counters: &counters,
            observer,
        };
        let unloaded = unload(&unloading, vec![streams], &inspector)?;
        samples.extend(unloaded.samples);
        // A restore asks for the set before it reads it: what it finds wrong there is wrong here, too.
        if inspector.findings.lock().len() == before
            && media.stored_bytes()?.is_some()
            && let Err(error) = media.set(position)
        {
            inspector.note(&error);
        }
        let undamaged = inspector.findings.lock().len() == before;
        sets.extend(unloaded.sets.into_iter().map(|set| VerifiedSet {
            set: set.header.set,
            database: set.header.database,
            position,
            device: media.device(0).to_owned(),
            is_log: set.header.backup_type == BackupType::Log,
            parent: set.header.parent,
            chain_sets: None,
            valid: undamaged && set.trailer.is_some(),
            plain_bytes: set.plain_bytes,
            stored_bytes: set.trailer.as_ref().map_or(0, |t| t.stored_bytes_total),
            made_damaged: set.trailer.is_some_and(|t| t.damaged),
        }));
    }
    for chain in &chains {
        let is_valid = |link: &Link| sets.iter().any(|s| s.set == link.header.set && s.valid);
        if chain.links.iter().all(is_valid) {
            let newest = chain.links[0].header.set;
            let of_it = sets.iter_mut().filter(|set| set.set == newest);
            of_it.for_each(|set| set.chain_sets = Some(chain.links.len()));
        }
    }
    let findings = inspector.findings.into_inner();
    let Some((plan, sizes)) = shown else {
        let incomplete = || MediaError::Incomplete {
            device: media.device(0).to_owned(),
            position: request.position.unwrap_or(1),
        };
        return Err(refused.unwrap_or_else(incomplete).into());
    };
    let elapsed = house.clock.now() - started;
    Ok(VerifyReport {
        sets,
        findings,
        run: Run {
            elapsed_s: elapsed.as_secs_f64(),
            cpu_s: process_cpu().saturating_sub(cpu_before).as_secs_f64(),
            limit: counters.limit(elapsed, &sizes, Work::Verify),
            waits: counters.waits(),
            samples,
            engines: Vec::new(),
            warnings: Vec::new(),
            history_failed: false,
            plan,
        },
    })
}

/// The chains of the differential sets among `positions`, as far as their members are here. Where nobody said where
/// the others are, one that is not here is no finding.
fn chains<'a>(
    house: &House,
    media: &'a MediaSet,
    positions: &[u32],
    bases: &'a [MediaSet],
    inspector: &Inspector,
    request: &VerifyRequest,
) -> Result<Vec<Chain<'a>>, Error> {
    let mut chains = Vec::new();
    for set in media.sets()? {
        let (header, complete) = (&set.header, set.trailer.is_some());
        if header.parent.is_none() || !complete || !positions.contains(&header.position) {
            continue;
        }
        let chain = match Chain::collect(house, media, set, bases) {
            Ok(chain) => chain,
            Err(Error::Chain(ChainError::Missing { .. })) if request.bases.is_empty() => continue,
            Err(error) => {
                inspector.note_chain(error)?;
                continue;
            }
        };
        match Merge::read(&chain, &|_| true, false) {
            Ok(_) => chains.push(chain),
            Err(error) => inspector.note_chain(error)?,
        }
    }
    Ok(chains)
}
