//! Reports a finished backup: to its caller, to the observer and to the history.
//!
//! Invariants
//! - The set is sealed already, so nothing here can make the backup fail; a history that cannot be written is a warning.
//! - Every warning reaches the observer and the report.
//!
//! Leaves to others: the backup (`store.rs`), and showing the report (the programs).

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use longshore_source::Change;

use super::prepared::Decisions;
use super::store::SealedSet;
use crate::history::{self, FinishedBackup};
use crate::load::mark_kind;
use crate::measure::RunKind;
use crate::observer::Observer;
use crate::report::{
    BackupReport, CHANGED_MAX, ChangedFile, DifferentialReport, FileTotals, NeededWal, Run,
    degraded_by, mark_text,
};
use crate::share::EngineShare;

pub fn of(decided: Decisions, sealed: SealedSet, observer: &dyn Observer) -> BackupReport {
    let counters = &sealed.counters;
    let blocks = counters.blocks.load(Ordering::Relaxed);
    let plain_bytes = sealed.totals.plain_bytes;
    let engines = EngineShare::all(decided.engine, (blocks, plain_bytes), &sealed.used);
    let mut warnings = degraded_by(&sealed.lost);
    warnings.extend(sealed.warnings);
    warnings.extend(sealed.used.into_iter().flat_map(|used| used.alarms));
    if !sealed.marks.is_empty() {
        warnings.push(format!(
            "{} files changed while they were read; the set is marked",
            sealed.marks.len()
        ));
    }
    let limit = counters.limit(sealed.elapsed, &decided.sizes, RunKind::Backup);
    let recorded = history::record_backup(
        decided.context,
        &FinishedBackup {
            request: decided.request,
            devices: &decided.devices,
            mirrors: &decided.mirrors,
            media_set: sealed.media_set,
            header: &sealed.header,
            totals: sealed.totals,
            stored_bytes: sealed.stored_bytes,
            index: sealed.index.as_ref(),
            engines: &engines,
            limit,
        },
    );
    let history_failed = recorded.is_err();
    let unkept = recorded.unwrap_or_else(|error| {
        warnings.push(error);
        None
    });
    for warning in &warnings {
        observer.warning(warning);
    }
    for note in sealed.notes.iter().chain(&unkept) {
        observer.note(note);
    }
    let method = decided.about.differing;
    let changed_bytes = counters.changed_bytes.load(Ordering::Relaxed);
    let differential = decided.parent.map(|parent| DifferentialReport {
        parent,
        method: method.unwrap_or("page sums"),
        described_bytes: plain_bytes.saturating_sub(changed_bytes) + sealed.based_bytes,
        based_files: sealed.based_files,
        read_bytes: counters.scanned_bytes.load(Ordering::Relaxed),
        changed_bytes,
    });
    let changed = sealed.marks.iter().take(CHANGED_MAX).map(changed_file);
    BackupReport {
        set: sealed.header.set,
        media_set: sealed.media_set,
        database: decided.about.database,
        position: sealed.header.position,
        start_us: sealed.header.start_us,
        finish_us: sealed.totals.finish_us,
        wal: NeededWal::of(&sealed.header, Some(sealed.totals.log.last_lsn)),
        plain_bytes,
        stored_bytes: sealed.stored_bytes,
        totals: FileTotals {
            entry_count: sealed.totals.entries,
            file_count: sealed.totals.files,
        },
        differential,
        damaged: sealed.totals.damaged,
        changed: changed.collect(),
        degraded: !sealed.lost.is_empty(),
        run: Run {
            elapsed_s: sealed.elapsed.as_secs_f64(),
            cpu_s: sealed.cpu.as_secs_f64(),
            limit,
            waits: counters.waits(),
            samples: sealed.samples,
            engines,
            warnings,
            notes: sealed.notes,
            history_failed,
            plan: sealed.plan,
        },
    }
}

fn changed_file((path, change): &(PathBuf, Change)) -> ChangedFile {
    ChangedFile {
        path: path.display().to_string(),
        what: mark_text(mark_kind(*change)),
    }
}
