//! Moves a backup's blocks to its stripes, proves that its WAL exists, and seals the set.
//!
//! Invariants
//! - The order: all blocks, then the source's end, then the proof about WAL, then the seal. A failure at any step
//!   leaves no valid set.
//! - A backup whose place on its shelf was lost is not sealed, and one that loses it during the seal fails.
//! - An error names what object stores still have of the failed set.
//!
//! Leaves to others: workers and writers (`load`), the proof (`archived.rs`), and the format (`longshore-media`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_accel::dispatch::EngineUse;
use longshore_io::{Gate, Pool};
use longshore_media::device::DeviceClass;
use longshore_media::manifest::MarkKind;
use longshore_media::{
    BackupDevice, FamilyWriter, IndexSecret, LeftStripe, LogEnd, SetHeader, SetWriter, Standing,
    StripeFault, Totals,
};
use longshore_source::{Change, SourceSummary};
use parking_lot::Mutex;
use uuid::Uuid;

use super::prepared::{Decisions, PreparedBackup};
use crate::archived::{ServerFacts, fed_until, wait_for_log};
use crate::crew::Crew;
use crate::error::Error;
use crate::handoff::Handoff;
use crate::load::{BlockForm, LoadResult, LoadShared, Offloading, move_bytes};
use crate::measure::{Counters, Sample, process_cpu};
use crate::observer::Observer;
use crate::plan::Plan;
use crate::report::mark_text;
use crate::request::OnChange;

/// A complete and valid set.
pub struct SealedSet {
    pub header: SetHeader,
    pub media_set: Uuid,
    pub totals: Totals,
    pub stored_bytes: u64,
    /// The key that opens the index of an encrypted set.
    pub index: Option<IndexSecret>,
    /// Stripes whose devices failed, as far as that was tolerated.
    pub lost: Vec<StripeFault>,
    /// Files of which only the differences from the base were stored, and their bytes, holes included.
    pub based_files: u64,
    pub based_bytes: u64,
    /// Files that changed while they were read.
    pub marks: Vec<(PathBuf, Change)>,
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
    pub counters: Counters,
    /// The accelerators' part.
    pub used: Vec<EngineUse>,
    pub samples: Vec<Sample>,
    pub elapsed: Duration,
    pub cpu: Duration,
    pub plan: Plan,
}

/// Errors: [`Error::Left`] around another one if object stores have something of the failed set.
pub fn store<'a>(
    prepared: PreparedBackup<'a>,
    observer: &dyn Observer,
) -> Result<(Decisions<'a>, SealedSet), Error> {
    let devices = prepared.decided.all_devices();
    // When this returns, all writers are gone, and have aborted what they could.
    write(prepared, observer).map_err(|error| {
        let stripes = left(&devices);
        match stripes.iter().all(is_nothing) {
            true => error,
            false => Error::Left {
                source: Box::new(error),
                stripes,
            },
        }
    })
}

fn left(devices: &[Arc<dyn BackupDevice>]) -> Vec<LeftStripe> {
    devices.iter().filter_map(|d| d.left()).collect()
}

fn is_nothing(stripe: &LeftStripe) -> bool {
    stripe.standing == Standing::No && stripe.upload.is_none()
}

fn write<'a>(
    prepared: PreparedBackup<'a>,
    observer: &dyn Observer,
) -> Result<(Decisions<'a>, SealedSet), Error> {
    let PreparedBackup {
        mut decided,
        source,
        plan,
        set_plan,
    } = prepared;
    let clock = decided.context.clock.clone();
    let (started, cpu_before) = (clock.now(), process_cpu());
    let mut writer = SetWriter::begin_mirrored(
        &decided.devices,
        &decided.mirrors,
        set_plan,
        decided.start_us,
    )?;
    if let Some(keys) = &writer.keys {
        decided.context.keyring.remember(keys);
    }
    let mut families = std::mem::take(&mut writer.families);
    let shared = share(&mut decided, &writer, &mut families)?;
    let moved = move_bytes(&shared, source, families, decided.sizes.workers, observer);
    shared.crew.verdict()?;
    let mut moved = moved?;
    moved.summary.warnings.append(&mut decided.warnings);
    writer.families = std::mem::take(&mut moved.families);
    if let (OnChange::Fail, Some(path)) = (decided.request.on_change, &moved.summary.left_out) {
        return Err(Error::LeftOut { path: path.clone() });
    }
    if let (OnChange::Fail, Some(path)) = (decided.request.on_change, &moved.summary.vanished) {
        return Err(Error::Changed {
            path: path.clone(),
            what: mark_text(MarkKind::Vanished),
        });
    }
    let uses = |offloading: &Offloading| offloading.uses();
    let used = shared.offloading.as_ref().map(uses).unwrap_or_default();
    let direct = shared.direct.into_iter().map(Mutex::into_inner);
    writer.families.extend(direct);
    let marks = shared.marks.into_inner();
    prove(&decided, &moved.summary)?;
    let doubt = doubt_of_standby(&decided, &moved.summary);
    moved.summary.warnings.extend(doubt);
    let plain_bytes = shared.counters.plain_bytes.load(Ordering::Relaxed);
    let totals = totals(&decided, &moved, plain_bytes, !marks.is_empty());
    decided.context.check_cancel()?;
    let (header, media_set) = (writer.header.clone(), writer.media_set);
    // A set whose place is lost must not appear, and one that lost it meanwhile must not count.
    confirm(&decided)?;
    let devices = decided.all_devices();
    let done = writer.seal_and_tell(&totals, &mut || {
        observer.completing(&left(&devices));
    })?;
    confirm(&decided)?;
    let sealed = SealedSet {
        header,
        media_set,
        totals,
        stored_bytes: done.stored_bytes,
        index: done.index,
        lost: done.lost,
        based_files: moved.based_files,
        based_bytes: moved.based_bytes,
        marks,
        warnings: moved.summary.warnings,
        notes: moved.summary.notes,
        counters: shared.counters,
        used,
        samples: moved.samples,
        elapsed: clock.now() - started,
        cpu: process_cpu().saturating_sub(cpu_before),
        plan,
    };
    Ok((decided, sealed))
}

/// The state shared by all threads. Workers write to the families of a NUL device themselves.
fn share<'a>(
    decided: &mut Decisions<'a>,
    writer: &SetWriter,
    families: &mut Vec<FamilyWriter>,
) -> Result<LoadShared<'a>, Error> {
    let (context, request, sizes) = (decided.context, decided.request, &decided.sizes);
    let pool = |count: usize, bytes: usize| {
        Pool::new(count, bytes).map_err(|source| Error::Memory {
            bytes: count.saturating_mul(bytes) as u64,
            source,
        })
    };
    let inputs = pool(sizes.buffer_count, sizes.buffer_bytes)?;
    let outputs = pool(sizes.output_count, sizes.output_bytes)?;
    let is_nul = decided.devices[0].class() == DeviceClass::Nul;
    let in_sequence = families.len() == 1 && !is_nul;
    let choice = &decided.choice;
    let offloading = choice.start(context, sizes, sizes.output_bytes, in_sequence)?;
    let offloading =
        offloading.map(|started| Offloading::new(context, started, choice.mode, in_sequence));
    let shared = LoadShared {
        context,
        request,
        crew: Crew::new(
            vec![inputs.clone(), outputs.clone()],
            Gate::new(context.clock.clone(), sizes.cpus, sizes.cpu_ceiling),
            request.limits.throttle(&context.clock, sizes.buffer_bytes),
        ),
        cpus: sizes.cpus,
        inputs,
        outputs,
        offloading,
        counters: Counters::default(),
        handoff: Handoff::new(families.len()),
        stripes: families.len(),
        full: AtomicUsize::new(0),
        direct: match is_nul {
            true => families.drain(..).map(Mutex::new).collect(),
            false => Vec::new(),
        },
        form: BlockForm {
            container: writer.container,
            set: writer.header.set,
            algorithm: request.algorithm,
            keys: writer.keys.clone(),
        },
        marks: Mutex::new(Vec::new()),
        sum_key: decided.sum_key,
        base: decided.base_sums.take(),
    };
    let expected = decided.about.expected_bytes.unwrap_or(0);
    let counter = &shared.counters.expected_bytes;
    counter.store(expected, Ordering::Relaxed);
    let about = decided.about.about_bytes.unwrap_or(0);
    shared.counters.about_bytes.store(about, Ordering::Relaxed);
    Ok(shared)
}

/// Errors: others may have taken the backup for dead, and removed some of it.
fn confirm(decided: &Decisions) -> Result<(), Error> {
    match &decided.request.place {
        Some(place) => Ok(place.confirm()?),
        None => Ok(()),
    }
}

/// Proves that the WAL that makes the backup consistent is in the set or in the archive.
fn prove(decided: &Decisions, summary: &SourceSummary) -> Result<(), Error> {
    let about = &decided.about;
    let (Some(start), Some(end)) = (&about.log, &summary.log) else {
        return Ok(());
    };
    match &decided.request.wal_proof {
        Some(proof) => {
            let known = ServerFacts {
                own: about.own_log.as_ref(),
                first: decided.first,
                history: about.history.as_deref(),
            };
            wait_for_log(decided.context, proof, (start, end), known)
        }
        None if end.included => Ok(()),
        None => Err(Error::LogUnproved),
    }
}

/// The reason why a standby's data may be older than the backup's end.
fn doubt_of_standby(decided: &Decisions, summary: &SourceSummary) -> Option<String> {
    let standby = summary.standby.as_ref()?;
    let proof = decided.request.wal_proof.as_ref();
    let is_fed = standby.restores && !standby.streams;
    let archived = proof
        .filter(|_| is_fed)
        .and_then(|proof| fed_until(decided.context, &proof.archive, standby));
    Some(standby.doubt(archived)?.text)
}

fn totals(decided: &Decisions, moved: &LoadResult, plain_bytes: u64, marked: bool) -> Totals {
    let (summary, now_us) = (&moved.summary, decided.context.now_us());
    Totals {
        damaged: summary.damaged || marked,
        log: summary.log.map_or(LogEnd::default(), |end| LogEnd {
            timeline: end.timeline.number(),
            last_lsn: end.last.0,
            included: end.included,
        }),
        // Recovery target times are compared with this, and the server's clock dates commits.
        finish_us: summary.complete_us.map_or(now_us, |us| us.max(now_us)),
        plain_bytes,
        entries: moved.totals.entry_count,
        files: moved.totals.file_count,
    }
}
