//! Backup: opens source and devices, plans, lets [`crate::load`] move the bytes, seals the set and reports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_codec::{Algorithm, Compressor};
use longshore_io::{Gate, Pool, SumKey, Via, facts};
use longshore_media::device::DeviceClass;
use longshore_media::{
    BackupDevice, BackupType, DeviceSpec, Disposition, LogEnd, LogStart, SetHeader, SetPlan,
    SetWriter, Totals,
};
use longshore_pg::Lineage;
use longshore_source::{Change, Description, Source, SourceKind, SourceOptions, SourceSpec};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::archived::{Known, check_archive, wait_for_log};
use crate::base;
use crate::choice::Choice;
use crate::crew::Crew;
use crate::handoff::Handoff;
use crate::history::{self, Finished};
use crate::load::Offloading;
use crate::load::{Moved, Shared, mark_kind, move_bytes};
use crate::log::LogSource;
use crate::measure::{Counters, Work, process_cpu};
use crate::plan::{Demand, Plan, Sizes};
use crate::report::{
    BackupReport, CHANGED_MAX, ChangedFile, DifferentialReport, FileTotals, Run, mark_text,
};
use crate::request::{BackupRequest, OnChange};
use crate::room::Room;
use crate::share::EngineShare;
use crate::{Error, House, Observer, devices};

/// FORMAT must not overwrite what is backed up.
fn refuse_own_files(house: &House, request: &BackupRequest) -> Result<(), Error> {
    let roots = match &request.source {
        SourceSpec::Sqlite(file) => std::slice::from_ref(file),
        SourceSpec::Files(roots) => roots.as_slice(),
        SourceSpec::Postgres(_) => &[],
    };
    let same_file = |a: &PathBuf, b: &PathBuf| {
        let id = |path| house.storage.stat(path).map(|s| (s.dev, s.ino));
        matches!((id(a), id(b)), (Ok(a), Ok(b)) if a == b)
    };
    for device in &request.devices {
        if let DeviceSpec::File(path) = device
            && request.disposition == Disposition::Format
            && roots.iter().any(|root| same_file(root, path))
        {
            let what = "it is what is to be backed up";
            return Err(longshore_media::Error::Io {
                action: "open",
                device: path.display().to_string(),
                offset: 0,
                source: std::io::Error::new(std::io::ErrorKind::ResourceBusy, what),
            }
            .into());
        }
    }
    Ok(())
}

/// Errors: [`Error::DeviceInside`].
fn refuse_inside(house: &House, devices: &[DeviceSpec], trees: &[PathBuf]) -> Result<(), Error> {
    for device in devices {
        let DeviceSpec::File(path) = device else {
            continue;
        };
        let absolute = std::path::absolute(path).unwrap_or_default();
        // What cannot be found is told when the device is opened.
        let parent = absolute.parent().unwrap_or(Path::new("/"));
        let Ok(dir) = house.storage.canonical(parent) else {
            continue;
        };
        if let Some(tree) = trees.iter().find(|tree| dir.starts_with(tree)) {
            return Err(Error::DeviceInside {
                device: path.clone(),
                tree: tree.clone(),
            });
        }
    }
    Ok(())
}

/// The lock of a device that is named twice would tell of another backup.
fn refuse_twice(devices: &[DeviceSpec]) -> Result<(), Error> {
    let mut families = HashMap::new();
    for (device, family) in devices.iter().zip(1..) {
        if let DeviceSpec::File(path) = device
            && let Some(family) = families.insert(path, family)
        {
            let device = path.display().to_string();
            return Err(longshore_media::Error::DeviceTwice { device, family }.into());
        }
    }
    Ok(())
}

pub fn run(
    house: &House,
    request: &BackupRequest,
    observer: &dyn Observer,
) -> Result<BackupReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    refuse_twice(&request.devices)?;
    devices::check(house, &request.devices, request.disposition, &request.own)?;
    let engine = Compressor::new(request.algorithm, request.level)?.engine();
    let devices = house.devices(&request.devices);
    let mut options = SourceOptions {
        database: request.database.clone(),
        volume_map: request.volume_map.clone(),
        wal_growth_limit_bytes: request.wal_growth_limit_bytes,
        trust_locks: request.trust_locks,
        postgres: (*request.postgres).clone(),
        ..SourceOptions::default()
    };
    let mut parent = None;
    let mut base_sums = None;
    if let Some(wanted) = &request.base {
        if !matches!(request.source, SourceSpec::Postgres(_)) {
            return Err(Error::NotDifferential);
        }
        let found = base::find(house, wanted, request.database.as_deref())?;
        base::check_kept(&found, request.disposition, &devices)?;
        parent = Some(found.header.set);
        options.postgres.base = Some(found.base);
        base_sums = Some(found.sums);
    }
    refuse_own_files(house, request)?;
    let (source, begun_us): (Box<dyn Source>, Option<i64>) = match (&request.log, &request.source) {
        (None, _) => {
            let storage = house.storage.clone();
            (
                longshore_source::open(storage, &request.source, &options)?,
                None,
            )
        }
        (Some(log), SourceSpec::Postgres(server)) => {
            let database = request
                .database
                .clone()
                .unwrap_or_else(|| "postgres".into());
            let source = LogSource::open(house, server, log, database)?;
            let begun_us = source.begun_us;
            (Box::new(source), Some(begun_us))
        }
        (Some(_), SourceSpec::Sqlite(_) | SourceSpec::Files(_)) => return Err(Error::NoLog),
    };
    let about = source.description().clone();
    refuse_inside(house, &request.devices, &about.trees)?;
    let first = match (&request.wal_proof, &about.log) {
        (Some(proof), Some(start)) => check_archive(house, proof, start, about.own_log.as_ref())?,
        _ => None,
    };
    let streams = devices
        .iter()
        .filter(|d| d.class() == DeviceClass::File)
        .count();
    let demand = Demand {
        tuning: &request.tuning,
        limits: &request.limits,
        devices: devices.len(),
        volumes: about.volumes.len(),
        buffer_bytes_of_media: None,
        streams,
    };
    let sizes = Room::now().fit(&demand, about.memory_bytes)?;
    let choice = Choice::of(house, &request.offload, request.algorithm);
    let sizes = sizes.lending(choice.buffers_wanted(&sizes), &request.tuning);
    let mut plan = plan(request, &choice.engine(engine), &devices, &about, &sizes);
    plan.memory_bytes += choice.memory_bytes(&sizes);
    plan.memory_bytes += base_sums.as_ref().map_or(0, |sums| sums.memory_bytes());
    plan.notices.extend(choice.notices.iter().cloned());
    let start_us = begun_us.unwrap_or_else(|| house.now_us());
    let sum_key = match &base_sums {
        // One key for a chain: a page is summed once.
        Some(sums) => Some(*sums.sum_key()),
        None => sum_key(request, &about)?,
    };
    let set_plan = set_plan(request, &about, &sizes, (start_us, parent, sum_key));
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
    let pool = |count: usize, bytes: usize| {
        Pool::new(count, bytes).map_err(memory(count.saturating_mul(bytes)))
    };
    let inputs = pool(sizes.buffer_count, sizes.buffer_bytes)?;
    let outputs = pool(sizes.output_count, sizes.output_bytes)?;
    let in_sequence = families.len() == 1 && !is_nul;
    let offloading = choice
        .start(house, &sizes, sizes.output_bytes, in_sequence)?
        .map(|started| Offloading::new(house, started, choice.mode, in_sequence));
    let shared = Shared {
        house,
        request,
        crew: Crew::new(
            vec![inputs.clone(), outputs.clone()],
            Gate::new(clock.clone(), sizes.cpus, sizes.cpu_ceiling),
            request.limits.throttle(&clock, sizes.buffer_bytes),
        ),
        cpus: sizes.cpus,
        inputs,
        outputs,
        offloading,
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
        sum_key,
        base: base_sums,
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
        based_files,
        summary,
        samples,
    } = moved?;
    writer.families = families;
    if let (OnChange::Fail, Some(path)) = (request.on_change, &summary.left_out) {
        return Err(Error::LeftOut { path: path.clone() });
    }
    let used = shared
        .offloading
        .as_ref()
        .map(|o| o.uses())
        .unwrap_or_default();
    let blocks = shared.counters.blocks.load(Ordering::Relaxed);
    writer
        .families
        .extend(shared.direct.into_iter().map(Mutex::into_inner));
    let marks = shared.marks.into_inner();
    if let (Some(start), Some(end)) = (&about.log, &summary.log) {
        match &request.wal_proof {
            Some(proof) => {
                let known = Known {
                    own: about.own_log.as_ref(),
                    first,
                    history: about.history.as_deref(),
                };
                wait_for_log(house, proof, (start, end), known)?
            }
            None if end.included => {}
            None => return Err(Error::LogUnproved),
        }
    }
    let plain_bytes = shared.counters.plain_bytes.load(Ordering::Relaxed);
    let totals = Totals {
        damaged: summary.damaged || !marks.is_empty(),
        log: summary.log.map_or(LogEnd::default(), |end| LogEnd {
            timeline: end.timeline.number(),
            last_lsn: end.last.0,
            included: end.included,
        }),
        // A recovery to a moment is compared with it, and commits are dated by the server's clock.
        finish_us: summary
            .complete_us
            .map_or(house.now_us(), |us| us.max(house.now_us())),
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
        differential: parent.map(|parent| DifferentialReport {
            parent,
            method: about.differing.unwrap_or_default(),
            based_files,
            read_bytes: shared.counters.scanned_bytes.load(Ordering::Relaxed),
            changed_bytes: shared.counters.changed_bytes.load(Ordering::Relaxed),
        }),
        damaged: totals.damaged,
        changed: marks.iter().take(CHANGED_MAX).map(changed_file).collect(),
        run: Run {
            elapsed_s: elapsed.as_secs_f64(),
            cpu_s: (process_cpu().saturating_sub(cpu_before)).as_secs_f64(),
            limit: shared.counters.limit(elapsed, &sizes, Work::Backup),
            waits: shared.counters.waits(),
            samples,
            engines: EngineShare::all(engine, (blocks, plain_bytes), &used),
            warnings: summary.warnings,
            history_failed: false,
            plan,
        },
    };
    let alarms = used.into_iter().flat_map(|u| u.alarms);
    report.run.warnings.extend(alarms);
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
        engines: &report.run.engines,
    };
    let recorded = history::record_backup(house, &finished);
    report.run.history_failed = recorded.is_err();
    report.run.warnings.extend(recorded.err());
    for warning in &report.run.warnings {
        observer.warning(warning);
    }
    Ok(report)
}

fn plan(
    request: &BackupRequest,
    engine: &str,
    devices: &[Arc<dyn BackupDevice>],
    about: &Description,
    sizes: &Sizes,
) -> Plan {
    Plan {
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
        memory_bytes: sizes.memory_bytes + about.memory_bytes,
        expected_bytes: about.expected_bytes,
        notices: about.notices.clone(),
        without_effect: Vec::new(),
    }
}

/// A new key, where later sets could differ from this one.
fn sum_key(request: &BackupRequest, about: &Description) -> Result<Option<SumKey>, Error> {
    if about.kind != SourceKind::Postgres || request.log.is_some() {
        return Ok(None);
    }
    let key = SumKey::random().map_err(|source| Error::Random { source })?;
    Ok(Some(key))
}

fn set_plan(
    request: &BackupRequest,
    about: &Description,
    sizes: &Sizes,
    (start_us, parent, sum_key): (i64, Option<Uuid>, Option<SumKey>),
) -> SetPlan {
    let header = SetHeader {
        set: Uuid::new_v4(),
        position: 0,
        start_us,
        source_kind: about.kind as u8,
        backup_type: match (&request.log, parent) {
            (Some(_), _) => BackupType::Log,
            (None, Some(_)) => BackupType::Differential,
            (None, None) => BackupType::Database,
        },
        algorithm: request.algorithm,
        level: request.level,
        buffer_bytes: sizes.buffer_bytes as u32,
        page_bytes: about.page_bytes,
        copy_only: request.copy_only,
        attributes: request.log.is_none(),
        parent,
        log: about.log.map_or(LogStart::default(), |start| LogStart {
            system: start.system,
            timeline: start.timeline.number(),
            first_lsn: start.first.0,
        }),
        expires_us: request.expires_us,
        time_zone: history::time_zone_quarters(start_us),
        database: about.database.clone(),
        name: request.name.clone(),
        description: request.description.clone(),
        machine: facts::host_name(),
        user: facts::user_name(),
        origin: history::origin(&request.source),
        lineage: about
            .lineage
            .as_ref()
            .map(Lineage::encode)
            .unwrap_or_default(),
        identity: request.identity.clone(),
        sum_key,
        server_started_us: sum_key.and(about.server_started_us),
    };
    SetPlan {
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
    }
}

fn changed_file((path, change): &(PathBuf, Change)) -> ChangedFile {
    ChangedFile {
        path: path.display().to_string(),
        what: mark_text(mark_kind(*change)),
    }
}
