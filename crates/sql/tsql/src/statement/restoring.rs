//! The common part of all restoring statements: the request, the run, and the messages at its end.
//!
//! Invariants
//! - A restored cluster may archive its WAL only if it provably replaces the configured server. In doubt the copy does
//!   not archive, because it would write a new timeline into the original's archive.
//! - Limits of the configuration do not slow a restore: they spare a workload during backups.
//! - The last message of a restore comes after all warnings, and is the one that SQL Server ends with.
//!
//! Leaves to others: what each statement may replace (`restore.rs`), and the restore itself (`pipeline`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longshore_catalog::HistoryQuery;
use longshore_landing::{HeldCluster, PathList, standing, taken_tablespaces, told_of_taken};
use longshore_media::{BackupType, DeviceSpec, Item, SetHeader};
use longshore_pipeline::{
    Limits, Offload, Report, Request, RestoreReport, RestoreRequest, SourceSpec, pages,
};

use super::backup::server_settings;
use super::device::recorded;
use super::options::Options;
use super::{FILES_SHOWN_MAX, hear, media, processed, say_warnings, some_of};
use crate::flow::{Flow, Out, Stop};
use crate::message;
use crate::moving::{Steps, watched};
use crate::refusal;
use crate::session::Session;
use crate::sink::Command;

/// Whether a cluster restored to `target` may archive its WAL as its settings say: only if it provably replaces the
/// configured server's own directory. A copy next to the original would write a new timeline into the original's
/// archive, and every later recovery would follow the copy.
///
/// The set names its server's directory, and so does the newest set, since the server may have moved in between. If a
/// server answers at the configured address, it runs in another directory, since a restore over a running server is
/// refused; then the target is a copy. `from`: the statement's devices.
pub(super) fn goes_on_archiving(
    session: &Session,
    (name, from): (&str, &[DeviceSpec]),
    target: &Path,
    header: &SetHeader,
) -> bool {
    let context = &session.server.setup.context;
    let is_home =
        |header: &SetHeader| HeldCluster::is_home(&*context.storage, target, &header.lineage);
    let is_down = || match session.server.database(name) {
        Ok(Some(database)) => {
            matches!(&database.source, SourceSpec::Postgres(server) if HeldCluster::is_down(&*context.storage, server))
        }
        _ => false,
    };
    session.server.is_configured(name)
        && HeldCluster::may_archive(&*context.storage, target, header.log.system)
        && is_home(header)
        && newest(session, (name, from), header).is_some_and(|newest| is_home(&newest))
        && is_down()
}

/// The number of newest backups that are read.
const NEWEST_MAX: u32 = 1000;

/// The newest full or differential set of the database in the history; the restored one if the history has none.
/// `None` if it cannot be read.
fn newest(
    session: &Session,
    (name, from): (&str, &[DeviceSpec]),
    restored: &SetHeader,
) -> Option<SetHeader> {
    if session.server.known_catalog().is_none() {
        return Some(restored.clone());
    }
    let query = HistoryQuery {
        database: Some(name.to_owned()),
        limit: Some(NEWEST_MAX),
    };
    let history = session.server.catalog().ok()?.history(&query).ok()?;
    if history.is_empty() {
        return Some(restored.clone());
    }
    // Log sets do not contain their server's directory.
    let newest = history.into_iter().filter(|row| row.kind != "L");
    let newest = newest.max_by_key(|row| row.finish_us)?;
    if newest.set == restored.set {
        return Some(restored.clone());
    }
    let names = newest.devices.iter().map(String::as_str);
    let devices = recorded(session, names, from).ok()?;
    let found = media::summary(session, &devices, newest.position)?.header;
    (found.set == newest.set).then_some(found)
}

/// The number of the kind of sets that are made from files.
pub(super) const FILES: u8 = 1;

/// The note about a copy that does not archive.
pub(super) const ARCHIVES_NOTHING: &str = "it archives nothing (archive_mode = 'off' in its postgresql.auto.conf): \
     remove the line when it has replaced the original, or has its own archive";

/// The note about a copy of a subscriber.
pub(super) const RUNS_NO_SUBSCRIPTIONS: &str = "its subscriptions do not run (max_logical_replication_workers = '0' in \
     its postgresql.auto.conf), because their slots are the original's: remove the line when it has replaced the original";

/// A complete restore request from statement, settings and configuration.
pub(super) fn request(
    session: &Session,
    from: Vec<DeviceSpec>,
    target: PathBuf,
    options: &Options,
) -> RestoreRequest {
    let defaults = &session.server.setup.defaults;
    let mut offload = Offload::default();
    if let Some(mode) = server_settings(session).offload {
        offload.mode = mode;
    }
    RestoreRequest {
        offload,
        tuning: options.reading_tuning(&defaults.tuning),
        // The configured limits spare a workload during backups; a restore is waited for.
        limits: options.limits(&Limits::default()),
        ..RestoreRequest::new(from, target)
    }
}

pub(super) fn run(
    session: &mut Session,
    (name, words): (&str, &'static str),
    request: &RestoreRequest,
    options: &Options,
    out: &mut Out,
) -> Result<RestoreReport, Stop> {
    session.enter(words, name);
    let context = session.context().equipped(&request.offload);
    let mut steps = options.stats.map(Steps::of);
    let asked = Request::Restore(request.clone());
    let moved = session.server.moved(name);
    let result = watched(&context, &asked, &moved, |news| {
        hear(session, news, &mut steps, Command::Restore, out)
    })?;
    let report = match result.map_err(|e| refusal::of(&e))? {
        Report::Restore(report) => report,
        Report::Backup(_) | Report::Verify(_) => {
            return Err(message::OWN
                .with(&[&"internal error: another answer"])
                .into());
        }
    };
    if steps.as_mut().is_some_and(|s| s.shows(100)) {
        out.say_done(message::PERCENT_PROCESSED.with(&[&100]), Command::Restore)?;
    }
    for text in &report.run.plan.without_effect {
        out.say(message::DETAIL.with(&[text]))?;
    }
    Ok(report)
}

/// The messages at the end of a restore.
pub(super) struct RestoreMessages<'a> {
    report: &'a RestoreReport,
    request: &'a RestoreRequest,
    header: &'a SetHeader,
    /// The files with a line of their own; `None`: those of the set.
    pub files: Option<Vec<(String, u64)>>,
    /// Whether the target is the database's own directory, so that all names in it are its.
    pub whole: bool,
}

impl<'a> RestoreMessages<'a> {
    pub fn of(
        report: &'a RestoreReport,
        request: &'a RestoreRequest,
        header: &'a SetHeader,
    ) -> RestoreMessages<'a> {
        RestoreMessages {
            report,
            request,
            header,
            files: None,
            whole: false,
        }
    }
}

/// Says in which names a restored tree differs from its backup and from what was there: names that went with what was
/// replaced, and names that stay though the set does not have them.
fn say_names(session: &Session, said: &RestoreMessages, out: &mut Out) -> Flow {
    let (report, request) = (said.report, said.request);
    if said.header.source_kind != FILES {
        return Ok(());
    }
    if let Some(count) = report.removed_names.filter(|count| *count > 0) {
        let names = some_of(count, report.removed.iter());
        let text = format!(
            "{count} names that the set does not have went with what was replaced: {names}"
        );
        out.say(message::WARNING.with(&[&text]))?;
    }
    let stay = match said.whole {
        true => surviving(session, request, said.header.position).unwrap_or_default(),
        false => PathList::default(),
    };
    if stay.count > 0 {
        let names = some_of(stay.count, stay.first.iter().map(|path| path.display()));
        let text = format!(
            "{} names that the set does not have stay: {names}",
            stay.count
        );
        out.say(message::WARNING.with(&[&text]))?;
    }
    Ok(())
}

/// The names directly in the target that the set does not have; everything below the set's own names was replaced. `None`
/// if they cannot be known.
fn surviving(session: &Session, request: &RestoreRequest, position: u32) -> Option<PathList> {
    let target = &request.target;
    let dir = session.server.setup.context.storage.dir(target).ok()?;
    let mut names: BTreeSet<_> = standing(&*dir, target).ok()?.into_iter().collect();
    let media = media::readable(session, &request.devices)?;
    let meet = |item: Item| {
        if let Item::Entry(entry) = item
            && let Some(first) = entry.path.iter().next()
        {
            names.remove(first);
        }
    };
    media.items(position, meet).ok()?;
    let mut stay = PathList::default();
    names.iter().for_each(|name| stay.add(target.join(name)));
    Some(stay)
}

pub(super) fn say_end(
    session: &Session,
    name: &str,
    said: &RestoreMessages,
    out: &mut Out,
) -> Flow {
    let (report, request, header) = (said.report, said.request, said.header);
    for warning in report.run.warnings.iter().chain(&report.run.notes) {
        session.server.write_log("Restore", warning);
    }
    let listed = || {
        let listed = media::files(session, &request.devices, header.position);
        listed.filter(|all| all.len() <= FILES_SHOWN_MAX)
    };
    let files = said.files.clone().or_else(listed);
    let whole = || vec![(name.to_owned(), report.plain_bytes)];
    for (file, bytes) in files.unwrap_or_else(whole) {
        let line = message::FILE_PROCESSED;
        let line = line.with(&[&pages(bytes), &name, &file, &header.position]);
        out.say_done(line, Command::Restore)?;
    }
    if report.damaged {
        out.say(message::SET_DAMAGED.plain())?;
        out.say(message::RESTORED_DAMAGED.plain())?;
    }
    let storage = &*session.server.setup.context.storage;
    let taken: Vec<String> = match report.tablespaces_taken {
        0 => Vec::new(),
        _ => taken_tablespaces(storage, &request.target)
            .iter()
            .map(told_of_taken)
            .collect(),
    };
    say_names(session, said, out)?;
    say_warnings(&report.run, |text| taken.contains(text), out)?;
    if request.cluster.no_subscriptions && !report.subscriptions.is_empty() {
        let text = format!("{}: {RUNS_NO_SUBSCRIPTIONS}", request.target.display());
        out.say(message::DETAIL.with(&[&text]))?;
    }
    for text in &taken {
        out.say(message::DETAIL.with(&[text]))?;
    }
    if report.run.history_failed {
        out.say(message::HISTORY_FAILED.plain())?;
    }
    let (entry, words) = match header.backup_type {
        BackupType::Database => (message::LOG_DATABASE_RESTORED, "RESTORE DATABASE"),
        BackupType::Differential => (message::LOG_DIFFERENTIAL_RESTORED, "RESTORE DATABASE"),
        BackupType::Log => (message::LOG_LOG_RESTORED, "RESTORE LOG"),
    };
    let set = media::summary(session, &request.devices, header.position);
    let last = set.and_then(|s| s.trailer).map_or(0, |t| t.log.last_lsn);
    let text = entry.with(&[
        &name,
        &"unknown",
        &header.log.first_lsn,
        &last,
        &request.devices.len(),
        &report.target,
    ]);
    session.server.write_log("Restore", &text.text);
    let end = processed(words, report.plain_bytes, report.run.elapsed_s);
    Ok(out.say_done(end, Command::Restore)?)
}
