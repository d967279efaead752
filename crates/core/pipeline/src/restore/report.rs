//! Reports a finished restore: to its caller, to the observer and to the history.
//!
//! Invariants
//! - Everything is durable under its name already, so nothing here can make the restore fail; a history that cannot be
//!   written is a warning.
//! - Dangers of the restored copy, such as subscriptions that would run, are named before anybody starts it.
//! - Every warning reaches the observer and the report.
//!
//! Leaves to others: the restore (`prepared.rs`), finding the dangers (`longshore-landing`), and showing the report
//! (the programs).

use std::path::Path;
use std::sync::atomic::Ordering;

use longshore_io::Storage;
use longshore_landing as landing;
use longshore_landing::DeltaResult;
use longshore_media::SetTrailer;
use longshore_source::SourceKind;

use super::databases::EmptiedDatabases;
use super::prepared::{MoveResult, PreparedRestore};
use crate::Observer;
use crate::chain::Link;
use crate::history;
use crate::measure::RunKind;
use crate::report::{
    ConfigurationReport, EmptiedDatabase, NeededWal, RestoreReport, RestoredSet, Run, degraded,
    mark_text,
};
use crate::share::EngineShare;

/// Tablespaces that a recovery would create in a server's files, and subscriptions that would run.
#[derive(Default)]
struct Dangers {
    tablespaces_taken: u64,
    subscriptions: Vec<String>,
    configuration: Option<ConfigurationReport>,
}

fn dangers(
    prepared: &PreparedRestore,
    moved: &MoveResult,
    warnings: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Dangers {
    if prepared.kind != SourceKind::Postgres {
        return Dangers::default();
    }
    let (request, storage) = (prepared.request, &*prepared.context.storage);
    let taken = landing::taken_tablespaces(storage, &request.target);
    warnings.extend(taken.iter().map(landing::told_of_taken));
    let subscriptions = landing::enabled_subscriptions(storage, &request.target);
    let run_on = !subscriptions.is_empty() && !request.cluster.no_subscriptions;
    warnings.extend(run_on.then(|| landing::told_of_subscriptions(&subscriptions)));
    let recovery = moved.options.recovery.as_ref();
    if recovery.is_some_and(|recovery| recovery.not_ahead) {
        notes.extend(landing::told_of_not_ahead(storage, &request.target));
    }
    if request.only.is_empty() && request.cluster.settings == landing::RecoverySettings::Write {
        let written = recovery.cloned().unwrap_or_default();
        notes.extend(landing::told_of_overruled(
            storage,
            &request.target,
            &written,
        ));
    }
    if request.only.is_empty() {
        warnings.extend(landing::told_of_data_directory(storage, &request.target));
    }
    let is_kept = request.cluster.settings == landing::RecoverySettings::Keep;
    if is_kept && !trailers(moved).any(|trailer| trailer.log.included) {
        notes.push(
            "the backup does not hold the WAL that makes it consistent: the server fetches it with the restore_command or \
             primary_conninfo of the settings that were kept, and stops if they have neither"
                .to_owned(),
        );
    }
    // A cluster that is not started as it is has nobody to tell.
    let is_started = !request.cluster.log_follows && !request.cluster.hold;
    let whole = request.only.is_empty() && request.moves.is_empty();
    let mut configuration = None;
    if is_started && whole {
        let (told, found) = landing::restored_configuration(storage, &request.target);
        notes.extend(told);
        configuration = found.map(ConfigurationReport::from);
    }
    Dangers {
        tablespaces_taken: taken.len() as u64,
        subscriptions,
        configuration,
    }
}

impl From<landing::RestoredConfiguration> for ConfigurationReport {
    fn from(found: landing::RestoredConfiguration) -> ConfigurationReport {
        ConfigurationReport {
            config_file: found.config_file,
            hba_file: found.hba_file,
            ident_file: found.ident_file,
            copies_directory: found.copies,
            start: found.start,
        }
    }
}

/// Tells what to do with databases whose files were made empty, and where replay may fail because of them.
fn tell_emptied(
    prepared: &PreparedRestore,
    emptied: &[EmptiedDatabase],
    warnings: &mut Vec<String>,
    notes: &mut Vec<String>,
) {
    const SHOWN_MAX: usize = 16;
    if emptied.is_empty() {
        return;
    }
    let word = |database: &EmptiedDatabase| match &database.name {
        Some(name) => format!("{name} ({})", database.oid),
        None => database.oid.to_string(),
    };
    let mut words: Vec<_> = emptied.iter().take(SHOWN_MAX).map(word).collect();
    if emptied.len() > SHOWN_MAX {
        words.push(format!("and {} more", emptied.len() - SHOWN_MAX));
    }
    let (storage, target) = (&*prepared.context.storage, &prepared.request.target);
    notes.push(format!(
        "{} databases were left empty: {}. No session can use them; when the server has opened, drop them, with its port for \
         PORT: {}",
        emptied.len(),
        words.join(", "),
        drop_command(storage, target, emptied)
    ));
    warnings.extend(landing::told_of_unlogged_hints(storage, target));
}

/// A shell command that drops these databases in the server of this data directory. The original has databases of the same
/// OIDs, and may run next to it: any other server drops nothing.
fn drop_command(storage: &dyn Storage, target: &Path, emptied: &[EmptiedDatabase]) -> String {
    let oids: Vec<_> = emptied.iter().map(|d| d.oid.to_string()).collect();
    let literal = |path: &Path| format!("'{}'", path.to_string_lossy().replace('\'', "''"));
    let mut places = vec![literal(target)];
    // The server tells its directory as it was started with it, with links or without.
    places.extend(storage.canonical(target).ok().map(|real| literal(&real)));
    places.dedup();
    let sql = format!(
        "select format('drop database %I', datname) from pg_database where oid in ({}) and inet_server_addr() is null \
         and current_setting('data_directory') in ({})",
        oids.join(", "),
        places.join(", ")
    );
    let mut inside = String::new();
    for c in sql.chars() {
        if matches!(c, '"' | '$' | '`' | '\\') {
            inside.push('\\');
        }
        inside.push(c);
    }
    format!("printf '%s\\n' \"{inside} \\gexec\" | psql -v ON_ERROR_STOP=1 -p PORT -d postgres")
}

/// Whether the set was made from files that changed meanwhile; if so, adds warnings that name them.
fn is_damaged(moved: &MoveResult, warnings: &mut Vec<String>) -> bool {
    let damaged = trailers(moved).any(|trailer| trailer.damaged);
    if damaged {
        warnings.push(
            "the backup set was made from files that changed during the backup (3188)".into(),
        );
        warnings.extend(moved.finished.marks.iter().map(|mark| {
            let what = mark_text(mark.kind);
            format!("{} {what} while it was backed up", mark.path.display())
        }));
    }
    damaged
}

fn trailers(moved: &MoveResult) -> impl Iterator<Item = &SetTrailer> {
    let sets = moved.unloaded.sets.iter();
    sets.filter_map(|set| set.trailer.as_ref())
}

/// Records the restore in the history, if there is a set to record; false if that failed.
fn record(
    prepared: &PreparedRestore,
    moved: &MoveResult,
    bytes: u64,
    warnings: &mut Vec<String>,
) -> bool {
    let Some(trailer) = trailers(moved).next() else {
        return true;
    };
    if prepared.request.note.unrecorded {
        return true;
    }
    let opened = prepared.opened;
    let recorded = history::record_restore(
        prepared.context,
        &opened.media,
        &opened.devices,
        &prepared.header,
        trailer,
        prepared.request,
        (moved.start_us, bytes),
    );
    let is_there = recorded.is_ok();
    warnings.extend(recorded.err());
    is_there
}

/// A set of a chain, of which so many bytes count.
pub fn set_of(link: &Link, plain_bytes: u64) -> RestoredSet {
    let devices = 0..link.media.family_count();
    RestoredSet {
        set: link.header.set,
        root: link.trailer.root_text(),
        position: link.header.position,
        is_differential: link.header.parent.is_some(),
        devices: devices.map(|i| link.media.device(i).to_owned()).collect(),
        plain_bytes,
    }
}

fn removed(delta: DeltaResult) -> Vec<String> {
    let paths = delta.removed.first.iter();
    paths.map(|path| path.display().to_string()).collect()
}

pub fn of(
    prepared: PreparedRestore,
    mut moved: MoveResult,
    observer: &dyn Observer,
) -> RestoreReport {
    let counters = &prepared.counters;
    let mut warnings = std::mem::take(&mut moved.finished.warnings);
    let mut notes = std::mem::take(&mut moved.finished.notes);
    let blocks = counters.blocks.load(Ordering::Relaxed);
    let plain_bytes = moved.unloaded.sets.iter().map(|set| set.plain_bytes).sum();
    let used = &moved.unloaded.used;
    let engines = EngineShare::all("software", (blocks, plain_bytes), used);
    warnings.extend(used.iter().flat_map(|used| used.alarms.clone()));
    warnings.extend(degraded(&prepared.opened.media));
    warnings.extend(prepared.opened.bases.iter().flat_map(degraded));
    let dangers = dangers(&prepared, &moved, &mut warnings, &mut notes);
    let emptied = prepared
        .emptied
        .map_or_else(Vec::new, EmptiedDatabases::report);
    tell_emptied(&prepared, &emptied, &mut warnings, &mut notes);
    let damaged = is_damaged(&moved, &mut warnings);
    let recorded = record(&prepared, &moved, plain_bytes, &mut warnings);
    for warning in &warnings {
        observer.warning(warning);
    }
    for note in &notes {
        observer.note(note);
    }
    let links = prepared.reading.links().iter();
    let chain = links.zip(&moved.unloaded.sets);
    let chain = chain
        .map(|(link, set)| set_of(link, set.plain_bytes))
        .collect();
    let limit = counters.limit(moved.elapsed, &prepared.sizes, RunKind::Restore);
    let trailer = trailers(&moved).next();
    let last_lsn = trailer.map(|trailer| trailer.log.last_lsn);
    let root = trailer.and_then(SetTrailer::root_text);
    let wal = NeededWal::of(&prepared.header, last_lsn);
    let delta = moved.finished.delta;
    RestoreReport {
        chain,
        set: prepared.header.set,
        root,
        database: prepared.header.database.clone(),
        position: prepared.opened.position,
        target: prepared.request.target.display().to_string(),
        wal,
        plain_bytes,
        stored_bytes: counters.stored_bytes.load(Ordering::Relaxed),
        totals: moved.finished.totals,
        rewritten_bytes: delta.as_ref().and_then(|delta| delta.rewritten_bytes),
        removed_names: delta.as_ref().map(|delta| delta.removed.count),
        removed: delta.map_or_else(Vec::new, removed),
        attributes_lost: moved.finished.attributes_lost,
        damaged,
        tablespaces_taken: dangers.tablespaces_taken,
        subscriptions: dangers.subscriptions,
        configuration: dangers.configuration,
        emptied,
        run: Run {
            elapsed_s: moved.elapsed.as_secs_f64(),
            cpu_s: moved.cpu.as_secs_f64(),
            limit,
            waits: counters.waits(),
            samples: moved.unloaded.samples,
            engines,
            warnings,
            notes,
            history_failed: !recorded,
            plan: prepared.plan,
        },
    }
}
