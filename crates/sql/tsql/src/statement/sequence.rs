//! Restores in several steps: a full set WITH NORECOVERY, differential sets, log sets, and RECOVERY.
//!
//! ```text
//! RESTORE DATABASE … NORECOVERY ─▶ restoring ─┬▶ RESTORE DATABASE (differential) ─▶ restoring
//!                                             ├▶ RESTORE LOG ─▶ restoring
//!                                             └▶ RECOVERY ─▶ a data directory that a server can be started on
//! ```
//!
//! Until the last step the pipeline keeps the cluster from starting; the catalog stores how far it has come, so that
//! another program can run the next step. No step starts a server.
//!
//! Invariants
//! - WAL is restored without a gap, from where the data needs it to where recovery ends: 4305, 4326, 4330.
//! - No step continues an interrupted one (4319); a refused step changes nothing.
//! - No step continues on files that another program put in place of the waiting ones (3154).
//!
//! Leaves to others: moving bytes (`pipeline`), and keeping a cluster from starting (`landing`).

use std::path::{Path, PathBuf};

use longshore_catalog::{RestoreSequence, RestoredDatabase};
use longshore_landing::{HeldCluster, HeldLock, enabled_subscriptions};
use longshore_media::{BackupType, DeviceSpec, SetHeader, SetSummary, SetTrailer};
use longshore_pipeline::{
    ClusterOptions, Lsn, Recovery, RecoveryTarget, RestoreNote, RestoreRequest, TargetAction,
    Timeline, TimelineChoice, record_accepted,
};

use uuid::Uuid;

use super::content::is_log_of;
use super::device::{named_path, reach as reach_path, reachable};
use super::options::Options;
use super::restoring::{
    ARCHIVES_NOTHING, RUNS_NO_SUBSCRIPTIONS, RestoreMessages, goes_on_archiving, request, run,
    say_end,
};
use super::{LOG_FILE, ground, media, processed};
use crate::flow::{Flow, Out, Stop};
use crate::message::{self, Message};
use crate::refusal;
use crate::session::Session;
use crate::sink::Command;

const POSTGRES: u8 = 3;

/// A session cannot restore the database that it uses: 3102.
pub fn check_use(session: &Session, name: &str) -> Result<(), Message> {
    match session.database.eq_ignore_ascii_case(name) {
        true => Err(message::IN_USE_HERE.with(&[&name])),
        false => Ok(()),
    }
}

/// The recovery target time, in microseconds since the Unix epoch.
fn stop_us(options: &Options) -> Option<i64> {
    options.stop_at
}

/// Refuses to stop before the data are consistent, and STOPAT without replay of WAL: 4338, 3145.
pub fn check_stop(
    options: &Options,
    header: &SetHeader,
    trailer: &SetTrailer,
) -> Result<(), Message> {
    if options.stop_at.is_none() {
        return Ok(());
    }
    if header.source_kind != POSTGRES {
        return Err(message::STOPAT_SIMPLE.plain());
    }
    match stop_us(options) {
        Some(stop) if stop >= trailer.finish_us => Ok(()),
        _ => Err(message::STOP_TOO_EARLY.plain()),
    }
}

/// Refuses a set that was made from damaged data, unless the statement goes on after errors: 3182.
pub fn check_damage(options: &Options, trailer: &SetTrailer) -> Result<(), Message> {
    match trailer.damaged && !options.continue_after_error {
        true => Err(message::MADE_DAMAGED.plain()),
        false => Ok(()),
    }
}

/// Whether the restored WAL ends before STOPAT: then more must follow, even WITH RECOVERY (4322).
pub fn falls_short(options: &Options, reached_us: i64) -> bool {
    stop_us(options).is_some_and(|stop| stop > reached_us)
}

/// The history's note about a step that reaches this moment.
pub fn note(session: &Session, name: &str, options: &Options, reached_us: i64) -> RestoreNote {
    RestoreNote {
        database: Some(name.to_owned()),
        stop_at_us: stop_us(options),
        no_recovery: options.no_recovery || falls_short(options, reached_us),
        user: Some(session.login.user.clone()).filter(|user| !user.is_empty()),
        // A restore over the database's own files replaces them without being asked to.
        replaces: Some(options.replace),
        unrecorded: false,
    }
}

/// Sets how far the WAL reaches after a full or differential set was restored.
fn reach(sequence: &mut RestoreSequence, header: &SetHeader, trailer: &SetTrailer) {
    (sequence.timeline, sequence.next_lsn) = match trailer.log.included {
        true => (trailer.log.timeline, trailer.log.last_lsn),
        false => (header.log.timeline, header.log.first_lsn),
    };
    sequence.consistent_lsn = trailer.log.last_lsn;
    sequence.reached_us = trailer.finish_us;
}

/// The devices as the catalog keeps them.
fn kept(from: &[DeviceSpec]) -> impl Iterator<Item = PathBuf> {
    from.iter().filter_map(|device| match device {
        DeviceSpec::File(path) => Some(path.clone()),
        DeviceSpec::Bucket(address) => Some(address.to_string().into()),
        DeviceSpec::Nul | DeviceSpec::Pipe => None,
    })
}

/// The devices of the steps before this one, but for those that it names itself. Errors: those of [`reachable`].
fn bases(
    session: &Session,
    sequence: &RestoreSequence,
    from: &[DeviceSpec],
) -> Result<Vec<DeviceSpec>, Message> {
    let storage = &*session.server.setup.context.storage;
    let real = |device: DeviceSpec| match device {
        DeviceSpec::File(path) => DeviceSpec::File(ground::real(storage, &path)),
        other => other,
    };
    let given: Vec<_> = from.iter().cloned().map(real).collect();
    let names = sequence
        .devices
        .iter()
        .map(|kept| kept.display().to_string());
    let names: Vec<String> = names.collect();
    let before = reachable(session, names.iter().map(String::as_str), from)?;
    let others = before.into_iter();
    Ok(others
        .filter(|device| !given.contains(&real(device.clone())))
        .collect())
}

/// A full set WITH NORECOVERY: the first step. `request` is complete except for holding the cluster back.
pub fn begin(
    session: &mut Session,
    name: &str,
    mut request: RestoreRequest,
    set: &SetSummary,
    options: &Options,
    out: &mut Out,
) -> Flow {
    let header = &set.header;
    if header.source_kind != POSTGRES {
        let only = "this database has no log to restore: restore it WITH RECOVERY";
        return Err(vec![
            message::OPTION_UNSUPPORTED.with(&[&"norecovery"]),
            message::DETAIL.with(&[&only]),
        ]
        .into());
    }
    request.cluster.hold = true;
    let mut sequence = RestoreSequence {
        database: name.to_owned(),
        target: request.target.clone(),
        is_ready: false,
        system: header.log.system,
        timeline: header.log.timeline,
        consistent_lsn: 0,
        next_lsn: 0,
        reached_us: 0,
        stop_at_us: None,
        log_count: 0,
        sets: vec![header.set],
        devices: kept(&request.devices).collect(),
    };
    let trailer = set.trailer.clone().unwrap_or_default();
    reach(&mut sequence, header, &trailer);
    step(session, &sequence, &request, header, options, out)
}

/// Runs a step that replaces the data directory as a whole. A failed step leaves the previous state; a step whose
/// client disconnects is treated as interrupted.
fn step(
    session: &mut Session,
    sequence: &RestoreSequence,
    request: &RestoreRequest,
    header: &SetHeader,
    options: &Options,
    out: &mut Out,
) -> Flow {
    let name = &sequence.database;
    let before = session.server.kept.sequence(name);
    // A program that ends in the middle leaves this record.
    let ours = RestoreSequence {
        is_ready: false,
        ..sequence.clone()
    };
    session.server.kept.keep_sequence(&ours)?;
    let report = match run(session, (name, "RESTORE DATABASE"), request, options, out) {
        Ok(report) => report,
        // The client is gone, and the result is unknown: the directory may be the new one.
        Err(stop @ Stop::Closed(_)) => return Err(stop),
        Err(stop) => {
            // Another program that was first may have ended its step meanwhile.
            session.server.kept.refresh();
            match before {
                _ if session.server.kept.sequence(name) != Some(ours) => {}
                Some(before) => session.server.kept.keep_sequence(&before)?,
                None => session.server.kept.end_sequence(name, None)?,
            }
            return Err(stop);
        }
    };
    session.server.kept.keep_sequence(&RestoreSequence {
        is_ready: true,
        ..sequence.clone()
    })?;
    if falls_short(options, sequence.reached_us) && !options.no_recovery {
        out.say(message::BEFORE_STOP.plain())?;
    }
    let said = RestoreMessages::of(&report, request, header);
    say_end(session, name, &said, out)
}

/// Keeps other programs from running a step on the waiting directory: 3101.
pub fn lock(session: &Session, target: &Path) -> Result<Option<HeldLock>, Stop> {
    let lock = HeldCluster::lock(&*session.server.setup.context.storage, target);
    Ok(lock.map_err(|e| refusal::of(&e.into()))?)
}

/// The sequence to which a further step belongs; no other program can use it while the lock is held. Errors: also
/// 3101, 3201.
fn waiting(session: &Session, name: &str) -> Result<(RestoreSequence, Option<HeldLock>), Stop> {
    let found = known(session, name)?;
    reach_path(session, &found.target, &found.target.display())?;
    let lock = lock(session, &found.target)?;
    // Another program may have run a step before we had the lock.
    session.server.kept.refresh();
    let sequence = known(session, name)?;
    match sequence.target == found.target {
        true => Ok((sequence, lock)),
        false => Err(message::EXCLUSIVE_ACCESS.plain().into()),
    }
}

/// The stored state of a sequence. Errors: 3117, 3118, 4319.
fn known(session: &Session, name: &str) -> Result<RestoreSequence, Message> {
    match session.server.kept.sequence(name) {
        Some(sequence) if sequence.is_ready => Ok(sequence),
        Some(sequence) => Err(message::INTERRUPTED.with(&[&sequence.target.display()])),
        None if session.server.database(name).is_ok_and(|d| d.is_none()) => {
            Err(message::DATABASE_NOT_THERE.with(&[&name]))
        }
        None => Err(message::NOT_READY_TO_ROLL.plain()),
    }
}

/// Restores a differential set on top of the restored one.
pub fn differential(
    session: &mut Session,
    name: &str,
    from: Vec<DeviceSpec>,
    set: &SetSummary,
    options: &Options,
    out: &mut Out,
) -> Flow {
    let (mut sequence, lock) = waiting(session, name)?;
    let header = &set.header;
    let trailer = set.trailer.clone().unwrap_or_default();
    check_damage(options, &trailer)?;
    check_stop(options, header, &trailer)?;
    let fits = |parent| sequence.sets.contains(&parent);
    if !header.parent.is_some_and(fits) {
        return Err(message::DIFFERENTIAL_BASE.plain().into());
    }
    if sequence.log_count > 0 {
        let why = "a log backup was already restored; start again with the full backup";
        return Err(vec![
            message::DIFFERENTIAL_BASE.plain(),
            message::DETAIL.with(&[&why]),
        ]
        .into());
    }
    check_moves(session, (&sequence, &header.database), options)?;
    let bases = bases(session, &sequence, &from)?;
    let devices: Vec<_> = kept(&from).collect();
    let is_copy = !goes_on_archiving(
        session,
        (&sequence.database, &from),
        &sequence.target,
        header,
    );
    let request = RestoreRequest {
        position: header.position,
        bases,
        // Only the waiting directory is replaced.
        replace: true,
        cluster: ClusterOptions {
            hold: true,
            no_archiving: is_copy,
            no_subscriptions: is_copy,
            ..ClusterOptions::default()
        },
        note: note(session, &sequence.database, options, trailer.finish_us),
        ..request(session, from, sequence.target.clone(), options)
    };
    open_held(session, &sequence)?;
    reach(&mut sequence, header, &trailer);
    sequence.sets.push(header.set);
    sequence.devices.extend(devices);
    step(session, &sequence, &request, header, options, out)?;
    if options.no_recovery || falls_short(options, sequence.reached_us) {
        return Ok(());
    }
    // The control file has changed.
    drop(lock);
    let _lock = self::lock(session, &sequence.target)?;
    recover(session, &sequence, out)
}

/// The restored directory, which must be the one that was left.
fn open_held(session: &Session, sequence: &RestoreSequence) -> Result<HeldCluster, Stop> {
    let held = HeldCluster::open(&*session.server.setup.context.storage, &sequence.target);
    let held = held.map_err(|e| refusal::of(&e.into()))?;
    if held.is_of(sequence.system, set(sequence)) {
        return Ok(held);
    }
    let (place, name) = (sequence.target.display(), &sequence.database);
    let why = format!(
        "{place} differs from what the last complete step left there: start again with the full backup, or abandon \
         the restore: DROP DATABASE [{name}]"
    );
    let first = message::OTHER_DATABASE.with(&[name]);
    Err(vec![first, message::DETAIL.with(&[&why])].into())
}

/// The set from which the data directory was restored.
pub fn set(sequence: &RestoreSequence) -> Uuid {
    sequence.sets.last().copied().unwrap_or_default()
}

/// RESTORE LOG.
pub fn log(
    session: &mut Session,
    name: &str,
    from: Vec<DeviceSpec>,
    options: &Options,
    out: &mut Out,
) -> Flow {
    check_use(session, name)?;
    let (mut sequence, _lock) = waiting(session, name)?;
    let opened = media::media(session, &from, options)?;
    let position = options.position.unwrap_or(1);
    let set = opened.set(position).map_err(|e| refusal::media(&e))?;
    let (header, trailer) = (set.header, set.trailer.unwrap_or_default());
    check_damage(options, &trailer)?;
    check_log(&sequence, &header, &trailer, opened.device(0))?;
    check_moves(session, (&sequence, &header.database), options)?;
    let stop = stop_us(options);
    if is_passed(&sequence, stop) {
        return Err(message::STOP_PASSED.plain().into());
    }
    let held = open_held(session, &sequence)?;
    // Everything committed before the set began is in it, and a commit after that.
    let reached_us = sequence.reached_us.max(header.start_us);
    let number = sequence.log_count + 1;
    let request = RestoreRequest {
        position,
        // Replaces the files of an interrupted attempt.
        replace: true,
        note: RestoreNote {
            // The log may turn out to be of another path of recovery.
            unrecorded: true,
            ..note(session, &sequence.database, options, reached_us)
        },
        ..request(session, from, held.log_place(number), options)
    };
    let name = sequence.database.clone();
    let start_us = session.server.setup.context.clock.wall_ns() / 1000;
    let mut report = run(session, (&name, "RESTORE LOG"), &request, options, out)?;
    held.adopt_log(number).map_err(|e| refusal::of(&e.into()))?;
    let (before, after) = (
        timeline(sequence.timeline)?,
        timeline(trailer.log.timeline)?,
    );
    let follows = held.follows(number, (before, Lsn(sequence.next_lsn)), after);
    if !follows.map_err(|e| refusal::of(&e.into()))? {
        return Err(message::OTHER_PATH.plain().into());
    }
    sequence.timeline = trailer.log.timeline;
    sequence.next_lsn = trailer.log.last_lsn;
    sequence.reached_us = reached_us;
    sequence.log_count = number;
    sequence.stop_at_us = stop;
    session.server.kept.keep_sequence(&sequence)?;
    let of = (start_us, report.plain_bytes);
    if let Err(warning) = record_accepted(&session.context(), &request, of) {
        session.server.write_log("Restore", &warning);
        report.run.history_failed = true;
    }
    let falls_short = falls_short(options, reached_us);
    if falls_short && !options.no_recovery {
        out.say(message::BEFORE_STOP.plain())?;
    }
    let mut said = RestoreMessages::of(&report, &request, &header);
    said.files = Some(vec![(LOG_FILE.to_owned(), report.plain_bytes)]);
    say_end(session, &name, &said, out)?;
    match options.no_recovery || falls_short {
        true => Ok(()),
        false => Ok(recover(session, &sequence, out)?),
    }
}

fn timeline(number: u32) -> Result<Timeline, Message> {
    Timeline::new(number).ok_or_else(|| message::DAMAGE.plain())
}

/// Whether WAL after this moment, or after the stop of an earlier step, was already restored.
fn is_passed(sequence: &RestoreSequence, stop: Option<i64>) -> bool {
    let reached = sequence.reached_us;
    let stopped = sequence.stop_at_us.is_some_and(|before| before <= reached);
    stopped || stop.is_some_and(|stop| stop < reached)
}

/// The waiting directory stays in place: MOVE may repeat its path, and name no other. A place for the log means nothing here,
/// either. `database`: as the set has it.
fn check_moves(
    session: &Session,
    (sequence, database): (&RestoreSequence, &str),
    options: &Options,
) -> Result<(), Message> {
    let storage = &*session.server.setup.context.storage;
    let there = ground::real(storage, &sequence.target);
    let data = options
        .moves
        .iter()
        .filter(|(from, _)| !is_log_of(from, database));
    for (from, to) in data {
        let path = named_path(session, to)?;
        if ground::real(storage, &path) != there {
            return Err(message::CANNOT_RESTORE_TO.with(&[from, to]));
        }
    }
    Ok(())
}

/// Whether a log set continues the restore. Errors: 3135, 3154, 4305, 4326.
fn check_log(
    sequence: &RestoreSequence,
    header: &SetHeader,
    trailer: &SetTrailer,
    device: &str,
) -> Result<(), Message> {
    let kind = match header.backup_type {
        BackupType::Log => None,
        BackupType::Database => Some("BACKUP DATABASE"),
        BackupType::Differential => Some("BACKUP DATABASE WITH DIFFERENTIAL"),
    };
    if let Some(kind) = kind {
        return Err(message::OTHER_KIND.with(&[&device, &kind]));
    }
    if header.log.system != sequence.system {
        return Err(message::OTHER_DATABASE.with(&[&sequence.database]));
    }
    let (first, last, next) = (
        header.log.first_lsn,
        trailer.log.last_lsn,
        sequence.next_lsn,
    );
    if first > next {
        return Err(message::LOG_TOO_RECENT.with(&[&first, &next]));
    }
    match last <= next {
        true => Err(message::LOG_TOO_EARLY.with(&[&last, &next])),
        false => Ok(()),
    }
}

/// RESTORE … WITH RECOVERY without devices: the last step. Errors: also 3153.
pub fn end(session: &mut Session, name: &str, options: &Options, out: &mut Out) -> Flow {
    // The database exists, and no restore waits.
    if known(session, name).is_err_and(|m| m.number == message::NOT_READY_TO_ROLL.number) {
        return Err(message::RECOVERED_ALREADY.plain().into());
    }
    let (sequence, _lock) = waiting(session, name)?;
    // The recovery target was given with the log.
    if options.stop_at.is_some() {
        return Err(message::OPTION_UNSUPPORTED.with(&[&"stopat"]).into());
    }
    check_moves(session, (&sequence, &sequence.database), options)?;
    if options.no_recovery {
        return Ok(out.done(Command::Restore, None)?);
    }
    let started = session.server.setup.context.clock.now();
    recover(session, &sequence, out)?;
    let elapsed = session.server.setup.context.clock.now() - started;
    let end = processed("RESTORE DATABASE", 0, elapsed.as_secs_f64());
    Ok(out.say_done(end, Command::Restore)?)
}

/// Releases the data directory; a server started on it replays the WAL.
fn recover(session: &Session, sequence: &RestoreSequence, out: &mut Out) -> Result<(), Stop> {
    if sequence.next_lsn < sequence.consistent_lsn {
        return Err(message::LOG_NOT_RESTORED.plain().into());
    }
    let context = &session.server.setup.context;
    // A program may have ended after the release and before it was recorded.
    if !HeldCluster::is_released(
        &*context.storage,
        &sequence.target,
        sequence.system,
        set(sequence),
    ) {
        release(session, sequence)?;
    }
    let name = &sequence.database;
    let restored = RestoredDatabase {
        name: name.clone(),
        source_kind: POSTGRES,
        path: sequence.target.clone(),
    };
    let is_configured = session.server.is_configured(name);
    let restored = (!is_configured).then_some(&restored);
    session.server.kept.end_sequence(name, restored)?;
    if let Err(error) = HeldCluster::forget(&*context.storage, &sequence.target) {
        tracing::warn!(%error, "an obsolete mark remains");
    }
    let text = format!(
        "{} is ready: start a PostgreSQL server on it, which replays the WAL",
        sequence.target.display()
    );
    out.say(message::DETAIL.with(&[&text]))?;
    if !HeldCluster::may_archive(&*context.storage, &sequence.target, sequence.system) {
        let text = format!("{}: {ARCHIVES_NOTHING}", sequence.target.display());
        out.say(message::DETAIL.with(&[&text]))?;
        if !enabled_subscriptions(&*context.storage, &sequence.target).is_empty() {
            let text = format!("{}: {RUNS_NO_SUBSCRIPTIONS}", sequence.target.display());
            out.say(message::DETAIL.with(&[&text]))?;
        }
    }
    Ok(())
}

fn release(session: &Session, sequence: &RestoreSequence) -> Result<(), Stop> {
    let context = &session.server.setup.context;
    let held = open_held(session, sequence)?;
    let stop = sequence.stop_at_us.filter(|s| *s <= sequence.reached_us);
    let recovery = Recovery {
        target: stop.map(RecoveryTarget::Time),
        timeline: TimelineChoice::Number(timeline(sequence.timeline)?),
        action: TargetAction::Promote,
        ..Recovery::default()
    };
    let logs = sequence.log_count;
    let released = held.release(&*context.storage, &recovery, logs);
    Ok(released.map_err(|e| refusal::of(&e.into()))?)
}
