//! Restore: every stripe is read at once, blocks are decoded and written in any order, names come last.
//!
//! A differential set is restored with all that it needs as if they were one set: [`Merge`] says which bytes of which
//! set count.

mod reading;
mod writer;

use std::path::Path;
use std::sync::atomic::Ordering;

use longshore_media::{BackupType, MediaSet, SetHeader, SetTrailer};
use longshore_pg::Recovery;
use longshore_source::SourceKind;

use crate::archived::prove_replay;
use crate::chain::{self, Merge};
use crate::cluster::{self, Cluster, ClusterOptions, Outline};
use crate::kept::Kept;
use crate::measure::{Counters, Work, lap, process_cpu};
use crate::offload::{Choice, Offload};
use crate::place::{Place, Replacing, Scope, Target};
use crate::plan::{Plan, Sizes};
use crate::report::{RestoreReport, RestoredSet, Run, mark_text};
use crate::request::{RestoreRequest, Tuning};
use crate::room::Room;
use crate::share::EngineShare;
use crate::unload::{Unloaded, Unloading, unload};
use crate::{ChainError, ClusterError, Error, House, Observer, history};
use reading::Reading;
use writer::{Wave, Writer};

/// Of a directory that is replaced as a whole, or whose other names are removed.
fn check_standing(house: &House, kept: &Kept, target: &Path) -> Result<(), Error> {
    let cannot = |source| Error::Target {
        action: "list",
        path: target.to_owned(),
        source,
    };
    let dir = match house.storage.dir(target) {
        // Nothing stands there, or the restore will say what does.
        Err(e) if e.kind() != std::io::ErrorKind::PermissionDenied => return Ok(()),
        dir => dir.map_err(cannot)?,
    };
    for name in dir.list().map_err(cannot)? {
        kept.check_replaced(&*dir, target, Path::new(&name.map_err(cannot)?))?;
    }
    Ok(())
}

/// A cluster as a whole is put together with care; parts of one, and all else, are names like others.
fn open_target(
    house: &House,
    (request, options): (&RestoreRequest, &ClusterOptions),
    kind: SourceKind,
    media: &MediaSet,
    (header, trailer): (&SetHeader, Option<&SetTrailer>),
    merge: Option<&Merge>,
) -> Result<Box<dyn Place>, Error> {
    let kept = Kept::of(house, request);
    kept.check_target(&request.target)?;
    let whole = request.only.is_empty() && request.moves.is_empty();
    let is_log = header.backup_type == BackupType::Log;
    if kind == SourceKind::Postgres && whole && !is_log {
        let outline = match trailer {
            Some(trailer) => {
                cluster::check_recovery(header, trailer, options)?;
                let (position, delta) = (header.position, options.delta);
                Some(Outline::read(media, position, delta, merge)?)
            }
            None => None,
        };
        if request.replace || options.delta {
            check_standing(house, &kept, &request.target)?;
        }
        let set = (header, trailer);
        let place = (request.target.as_path(), request.replace);
        let cluster = Cluster::open(house, place, options, set, outline.as_ref())?;
        return Ok(Box::new(cluster));
    }
    if !options.is_default() {
        return Err(ClusterError::NotACluster.into());
    }
    let scope = Scope::Names {
        side_files: kind == SourceKind::Sqlite,
    };
    let target = Target::open(
        house,
        &request.target,
        match (request.replace, request.in_use) {
            (false, _) => Replacing::No,
            (true, false) => Replacing::Unused,
            (true, true) => Replacing::Anything,
        },
        scope,
        &request.moves,
    )?
    .keeping(kept);
    let older = merge.map_or(0, Merge::older_bytes);
    let needed = trailer.map(|trailer| trailer.plain_bytes_total.saturating_add(older));
    if let (Some(needed), Some(free), true) = (needed, target.free_bytes(), request.only.is_empty())
    {
        // Holes are not counted in either: this refuses only what cannot fit.
        if needed > free {
            return Err(Error::TargetFull {
                path: request.target.clone(),
                free,
                needed,
            });
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
    let devices = house.devices(&request.devices);
    let media = MediaSet::open(&devices)?;
    let bases = chain::open_bases(house, &request.bases)?;
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
    let reading = Reading::new(house, request, &media, (position, summary.as_ref()), &bases)?;
    let links = reading.links();
    let mut waves = reading.waves().into_iter().peekable();
    let mut streams = reading.streams(waves.peek().cloned().unwrap_or(0..1))?;
    let header = streams[0][0].header().clone();
    if header.parent.is_some() && links.is_empty() {
        return Err(ChainError::Pipe.into());
    }
    let kind = match header.source_kind {
        1 => SourceKind::Files,
        2 => SourceKind::Sqlite,
        3 => SourceKind::Postgres,
        kind => return Err(Error::SourceKind { kind }),
    };
    let largest = links.iter().map(|link| link.header.buffer_bytes).max();
    let buffer_bytes = Some(largest.unwrap_or(header.buffer_bytes) as usize);
    let (families, streams_max) = (media.family_count(), reading.streams_max());
    let decide = |tuning: &Tuning| {
        Sizes::decide(
            tuning,
            &request.limits,
            families,
            1,
            buffer_bytes,
            streams_max,
        )
    };
    let merged = reading.merge().map_or(0, Merge::memory_bytes);
    let sizes = Room::now().fit(&request.tuning, streams_max, merged, true, decide)?;
    let counters = Counters::default();
    let trailer = summary.as_ref().and_then(|s| s.trailer.as_ref());
    let expected = match links {
        [] => trailer.map(|t| t.plain_bytes_total),
        links => Some(
            links
                .iter()
                .map(|link| link.trailer.plain_bytes_total)
                .sum(),
        ),
    };
    counters
        .expected_bytes
        .store(expected.unwrap_or(0), Ordering::Relaxed);
    // Accelerators help with the set that has the most: the last one.
    let algorithm = links.last().map_or(&header, |link| &link.header).algorithm;
    let choice = Choice::that_decompresses(house, &request.offload, algorithm);
    let software = Choice::of(house, &Offload::default(), algorithm);
    let sizes = sizes.lending(choice.buffers_wanted(&sizes), &request.tuning);
    let mut plan = Plan::for_reading(
        "restore",
        &media,
        &header,
        &sizes,
        &request.limits,
        &request.tuning,
    );
    plan.engine = choice.engine(&plan.engine);
    plan.memory_bytes += choice.memory_bytes(&sizes);
    plan.memory_bytes += reading.merge().map_or(0, Merge::memory_bytes);
    for link in links.iter().skip(1) {
        plan.notices.push(format!("needs {}", link.name()));
        let devices = (0..link.media.family_count()).map(|i| link.media.device(i).to_owned());
        for device in devices {
            if !plan.devices.contains(&device) {
                plan.devices.push(device);
            }
        }
    }
    plan.notices.extend(choice.notices.iter().cloned());
    plan.expected_bytes = expected;
    observer.planned(&plan);
    let started = house.clock.now();
    let start_us = house.now_us();
    let cpu_before = process_cpu();
    let _priority = request.limits.lower_io_priority();
    let mut options = request.cluster.clone();
    if let (Some(archive), Some(recovery), Some(trailer)) =
        (&request.cluster.proof, recovery, trailer)
    {
        let set = (&header, trailer);
        let proven = prove_replay(house, archive, set, recovery)?;
        let warning = proven.warning();
        warning.iter().for_each(|text| observer.warning(text));
        let recovery = Recovery {
            not_ahead: proven.not_ahead,
            ..recovery.clone()
        };
        options.recovery = Some(recovery);
    }
    let target = open_target(
        house,
        (request, &options),
        kind,
        &media,
        (&header, trailer),
        reading.merge(),
    )?;
    let writer = Writer::new(house, target, reading.merge(), request, &counters);
    let mut done = Unloaded::default();
    while let Some(wave) = waves.next() {
        let unloading = Unloading {
            house,
            sizes: &sizes,
            limits: &request.limits,
            choice: if waves.peek().is_none() {
                &choice
            } else {
                &software
            },
            counters: &counters,
            observer,
        };
        let first = wave.start;
        let sink = Wave {
            writer: &writer,
            first,
        };
        let unloaded = unload(&unloading, streams, &sink)?;
        done.sets.extend(unloaded.sets);
        done.samples.extend(unloaded.samples);
        done.used = unloaded.used;
        streams = match waves.peek() {
            Some(next) => reading.streams(next.clone())?,
            None => Vec::new(),
        };
    }
    writer.check_found()?;
    let at = house.clock.now();
    if !links.is_empty() {
        writer.complete(&media, position)?;
    }
    let finished = writer.finish()?;
    let (totals, marks) = (finished.totals, finished.marks);
    lap(&*house.clock, at, &counters.write_us);
    let elapsed = house.clock.now() - started;
    let mut warnings = finished.warnings;
    let mut history_failed = false;
    let blocks = counters.blocks.load(Ordering::Relaxed);
    let plain_bytes = done.sets.iter().map(|set| set.plain_bytes).sum();
    let engines = EngineShare::all("software", (blocks, plain_bytes), &done.used);
    warnings.extend(done.used.iter().flat_map(|u| u.alarms.clone()));
    let mut tablespaces_taken = 0;
    let mut subscriptions = Vec::new();
    if kind == SourceKind::Postgres {
        let taken = cluster::taken_tablespaces(&*house.storage, &request.target);
        tablespaces_taken = taken.len() as u64;
        warnings.extend(taken.iter().map(cluster::told_of_taken));
        subscriptions = cluster::enabled_subscriptions(&*house.storage, &request.target);
        let run_on = !subscriptions.is_empty() && !request.cluster.no_subscriptions;
        warnings.extend(run_on.then(|| cluster::told_of_subscriptions(&subscriptions)));
        let not_ahead = options
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.not_ahead);
        if not_ahead {
            warnings.extend(cluster::told_of_not_ahead(&*house.storage, &request.target));
        }
    }
    let trailers = || done.sets.iter().filter_map(|set| set.trailer.as_ref());
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
    let chain = links.iter().zip(&done.sets).map(|(link, set)| RestoredSet {
        set: link.header.set,
        position: link.header.position,
        differential: link.header.parent.is_some(),
        devices: (0..link.media.family_count())
            .map(|i| link.media.device(i).to_owned())
            .collect(),
        plain_bytes: set.plain_bytes,
    });
    Ok(RestoreReport {
        chain: chain.collect(),
        set: header.set,
        database: header.database,
        position,
        target: request.target.display().to_string(),
        plain_bytes,
        stored_bytes: counters.stored_bytes.load(Ordering::Relaxed),
        totals,
        rewritten_bytes: finished.rewritten_bytes,
        attributes_lost: finished.attributes_lost,
        damaged,
        tablespaces_taken,
        subscriptions,
        run: Run {
            elapsed_s: elapsed.as_secs_f64(),
            cpu_s: process_cpu().saturating_sub(cpu_before).as_secs_f64(),
            limit: counters.limit(elapsed, &sizes, Work::Restore),
            waits: counters.waits(),
            samples: done.samples,
            engines,
            warnings,
            history_failed,
            plan,
        },
    })
}
