//! Verify: decode everything, check every checksum, write nothing.

use std::sync::atomic::Ordering;

use longshore_media::{Error as MediaError, Item, MediaSet};
use parking_lot::Mutex;

use crate::measure::{Counters, Work, process_cpu};
use crate::offload::{Choice, Offload};
use crate::plan::{Plan, Sizes};
use crate::report::{Finding, Run, VerifiedSet, VerifyReport};
use crate::request::VerifyRequest;
use crate::unload::{Sink, Unloading, unload};
use crate::{Error, House, Observer};

/// Collects damage and goes on.
struct Inspector {
    findings: Mutex<Vec<Finding>>,
}

impl Inspector {
    fn note(&self, error: &MediaError) {
        let mut findings = self.findings.lock();
        if findings.len() < VerifyReport::FINDINGS_MAX {
            findings.push(Finding {
                number: error.number(),
                text: error.to_string(),
                hint: error.hint(),
            });
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
    let devices: Vec<_> = request
        .devices
        .iter()
        .map(|d| d.open(&house.storage))
        .collect();
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
    if let Some(bytes) = media.stored_bytes()? {
        let sum: u64 = media
            .sets()?
            .iter()
            .filter(|s| positions.contains(&s.header.position))
            .filter_map(|s| Some(s.trailer.as_ref()?.plain_bytes_total))
            .sum();
        counters
            .expected_bytes
            .store(if sum > 0 { sum } else { bytes }, Ordering::Relaxed);
    }
    for position in positions {
        let streams: Result<Vec<_>, _> = (0..media.family_count())
            .map(|i| media.stream(i, position))
            .collect();
        let streams = match streams {
            Ok(streams) => streams,
            // The set is not on every stripe: said above, or asked for and not there.
            Err(e) if request.position.is_some() => return Err(e.into()),
            Err(e) => {
                inspector.note(&e);
                refused.get_or_insert(e);
                continue;
            }
        };
        let header = streams[0].header().clone();
        let sizes = Sizes::decide(
            &request.tuning,
            &request.limits,
            media.family_count(),
            1,
            Some(header.buffer_bytes as usize),
            media.family_count(),
        );
        let plan = Plan::for_reading("verify", &media, &header, &sizes, &request.limits);
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
        let undamaged = inspector.findings.lock().len() == before;
        sets.extend(unloaded.sets.into_iter().map(|set| VerifiedSet {
            set: set.header.set,
            database: set.header.database,
            position,
            valid: undamaged && set.trailer.is_some(),
            plain_bytes: set.plain_bytes,
            stored_bytes: set.trailer.as_ref().map_or(0, |t| t.stored_bytes_total),
            made_damaged: set.trailer.is_some_and(|t| t.damaged),
        }));
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
