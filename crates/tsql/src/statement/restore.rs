//! RESTORE DATABASE, RESTORE LOG, VERIFYONLY; the rest of RESTORE lists media.

use std::path::{Path, PathBuf};

use longshore_catalog::{BackupRecord, MediaRecord};
use longshore_media::{DeviceSpec, Item, MediaSet, SetHeader};
use longshore_pipeline::{
    Offload, Report, Request, RestoreReport, RestoreRequest, SourceSpec, VerifyRequest, pages,
};

use super::backup::server_settings;
use super::device::{devices, disk_path};
use super::options::Options;
use super::{FILES_SHOWN_MAX, hear, media, processed};
use crate::message::{self, Message};
use crate::moving::{Steps, watched};
use crate::refusal;
use crate::server::Database;
use crate::session::{Flow, Out, Session, Stop};
use crate::sink::Command;
use crate::syntax::{Applies, Name, Part, Restore, RestoreWhat};

const SQLITE: u8 = 2;
const POSTGRES: u8 = 3;

pub(crate) fn restore(session: &mut Session, restore: &Restore, out: &mut Out) -> Flow {
    let statement = match restore.what {
        RestoreWhat::Database { .. } | RestoreWhat::Snapshot { .. } => "RESTORE DATABASE",
        RestoreWhat::Log { .. } => "RESTORE LOG",
        RestoreWhat::HeaderOnly => "RESTORE HEADERONLY",
        RestoreWhat::FileListOnly => "RESTORE FILELISTONLY",
        RestoreWhat::LabelOnly => "RESTORE LABELONLY",
        RestoreWhat::VerifyOnly => "VERIFY DATABASE",
        RestoreWhat::RewindOnly => "RESTORE REWINDONLY",
    };
    let done = one(session, restore, out);
    session.leave();
    done.map_err(|stop| match stop {
        Stop::Failed(mut messages) => {
            messages.push(message::TERMINATING.with(&[&statement]));
            for message in messages.iter().filter(|m| m.is_error()) {
                session.server.write_log("Restore", &message.text);
            }
            Stop::Failed(messages)
        }
        other => other,
    })
}

fn one(session: &mut Session, restore: &Restore, out: &mut Out) -> Flow {
    let from = devices(session, &restore.from)?;
    let options = |session: &Session, statement| Options::of(session, &restore.options, statement);
    match &restore.what {
        RestoreWhat::Database { name, parts } => {
            let options = options(session, Applies::RESTORE_DATABASE)?;
            database(session, (name, parts), from, &options, out)
        }
        RestoreWhat::Log { name, .. } => {
            let options = options(session, Applies::RESTORE_LOG)?;
            let name = session.name_of(name)?;
            if session.server.database(&name).is_ok_and(|d| d.is_none()) {
                return Err(message::DATABASE_NOT_THERE.with(&[&name]).into());
            }
            media::media(session, &from, &options)?;
            Err(message::NOT_READY_TO_ROLL.plain().into())
        }
        RestoreWhat::Snapshot { .. } => {
            let text = "database snapshots are not part of this version";
            Err(message::OWN.with(&[&text]).into())
        }
        RestoreWhat::HeaderOnly => {
            let options = options(session, Applies::HEADER_ONLY)?;
            media::header_only(session, &from, &options, out)
        }
        RestoreWhat::FileListOnly => {
            let options = options(session, Applies::FILE_LIST_ONLY)?;
            media::file_list_only(session, &from, &options, out)
        }
        RestoreWhat::LabelOnly => {
            let options = options(session, Applies::LABEL_ONLY)?;
            media::label_only(session, &from, &options, out)
        }
        RestoreWhat::VerifyOnly => {
            let options = options(session, Applies::VERIFY_ONLY)?;
            verify(session, from, &options, out)
        }
        RestoreWhat::RewindOnly => {
            options(session, Applies::REWIND_ONLY)?;
            Ok(out.done(Command::Restore, None)?)
        }
    }
}

/// Where a set is to be restored.
struct Place {
    target: PathBuf,
    /// Entry path in the set → path below the target.
    moves: Vec<(PathBuf, PathBuf)>,
    /// The database that stands there afterwards.
    source: SourceSpec,
    /// It belongs to the database of this name already.
    own: bool,
}

fn database(
    session: &mut Session,
    (name, parts): (&Name, &[Part]),
    from: Vec<DeviceSpec>,
    options: &Options,
    out: &mut Out,
) -> Flow {
    let name = session.name_of(name)?;
    if name.eq_ignore_ascii_case("tempdb") {
        return Err(message::TEMPDB.plain().into());
    }
    let existing = session.server.database(&name);
    let existing = existing.map_err(|e| refusal::unusable(&e))?;
    if from.is_empty() {
        return Err(match existing {
            Some(_) => message::RECOVERED_ALREADY.plain().into(),
            None => message::DATABASE_NOT_THERE.with(&[&name]).into(),
        });
    }
    if !parts.is_empty() {
        let text = "files and filegroups";
        return Err(message::OPTION_UNSUPPORTED.with(&[&text]).into());
    }
    let media = media::media(session, &from, options)?;
    let position = options.position.unwrap_or(1);
    let set = media.set(position).map_err(|e| refusal::media(&e))?;
    let header = set.header;
    let alike = header.database.eq_ignore_ascii_case(&name);
    if existing.is_some() && !alike && !options.replace {
        return Err(message::OTHER_DATABASE.with(&[&name]).into());
    }
    let place = place(session, &name, existing.as_ref(), &media, &header, options)?;
    let settings = server_settings(session);
    let defaults = &session.server.setup.defaults;
    let mut offload = Offload::default();
    if let Some(mode) = settings.offload {
        offload.mode = mode;
    }
    let request = RestoreRequest {
        position,
        // A database of its own is overwritten without a word, as SQL Server does it.
        replace: options.replace || place.own,
        moves: place.moves.clone(),
        offload,
        tuning: options.tuning(&defaults.tuning),
        limits: options.limits(&defaults.limits),
        ..RestoreRequest::new(from, place.target.clone())
    };
    let report = run(session, &name, &request, options, out)?;
    let known = existing.as_ref().is_some_and(|_| place.own);
    if !known {
        let database = Database {
            name: name.clone(),
            source: place.source,
            algorithm: existing.as_ref().and_then(|d| d.algorithm),
            level: existing.as_ref().and_then(|d| d.level),
        };
        let spelled = existing.map_or(name.clone(), |d| d.name);
        session.server.restored.lock().insert(spelled, database);
    }
    say_end(session, &name, &request, &header, &report, out)
}

/// The names at the root of a set, two at most: one or several is all that counts.
fn roots(media: &MediaSet, position: u32) -> Result<Vec<PathBuf>, Vec<Message>> {
    let mut roots: Vec<PathBuf> = Vec::new();
    let each = |item: Item| {
        if let Item::Entry(entry) = item
            && let Some(first) = entry.path.iter().next()
            && roots.len() < 2
            && !roots.iter().any(|r| r == Path::new(first))
        {
            roots.push(first.into());
        }
    };
    media
        .items(position, each)
        .map_err(|e| refusal::media(&e))?;
    Ok(roots)
}

/// A set of one root goes to one path, one of several below a directory. MOVE says where, by the name of that root (as
/// FILELISTONLY shows it) or by the database's name for the whole; without MOVE it is where the database of this name
/// is. Where the backup was made never decides: media may come from anywhere.
fn place(
    session: &Session,
    name: &str,
    existing: Option<&Database>,
    media: &MediaSet,
    header: &SetHeader,
    options: &Options,
) -> Result<Place, Stop> {
    let roots = roots(media, header.position)?;
    let single = match roots.as_slice() {
        [root] if header.source_kind != POSTGRES => Some(root.clone()),
        _ => None,
    };
    let logical = single
        .as_ref()
        .map_or(header.database.clone(), |root| root.display().to_string());
    let mut destination = None;
    for (from, to) in &options.moves {
        if *from != logical && *from != header.database {
            let known = message::LOGICAL_FILE.with(&[from, &name]);
            return Err(known.into());
        }
        destination = Some(disk_path(&session.server.setup.backup_directory, to)?);
    }
    let own = match (existing.map(|d| &d.source), &single) {
        (Some(SourceSpec::Sqlite(path)), Some(_)) if header.source_kind == SQLITE => {
            Some(path.clone())
        }
        (Some(SourceSpec::Files(paths)), Some(_)) => match paths.as_slice() {
            [path] => Some(path.clone()),
            _ => None,
        },
        (Some(SourceSpec::Files(paths)), None) => common_parent(paths),
        _ => None,
    };
    let Some(path) = destination.clone().or_else(|| own.clone()) else {
        let original = header.origin.split_once(':').map_or("", |(_, path)| path);
        return Err(vec![
            message::CANNOT_RESTORE_TO.with(&[&logical, &original]),
            message::RESTORE_PLANNING.plain(),
        ]
        .into());
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    let is_own = own.and_then(|own| std::path::absolute(own).ok()) == Some(path.clone());
    check_owner(session, name, &path, &logical)?;
    let source = match header.source_kind {
        SQLITE => SourceSpec::Sqlite(path.clone()),
        _ => SourceSpec::Files(vec![path.clone()]),
    };
    let Some(root) = single else {
        return Ok(Place {
            target: path,
            moves: Vec::new(),
            source,
            own: is_own,
        });
    };
    let (Some(parent), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(message::CANNOT_RESTORE_TO
            .with(&[&logical, &path.display()])
            .into());
    };
    let moves = match Path::new(file) == root {
        true => Vec::new(),
        false => vec![(root, PathBuf::from(file))],
    };
    Ok(Place {
        target: parent.to_path_buf(),
        moves,
        source,
        own: is_own,
    })
}

fn common_parent(paths: &[PathBuf]) -> Option<PathBuf> {
    let first = paths.first()?.parent()?;
    let same = paths.iter().all(|p| p.parent() == Some(first));
    same.then(|| first.to_path_buf())
}

/// No restore overwrites the file of another database, whatever REPLACE says: 1834, 3156, 3119.
fn check_owner(session: &Session, name: &str, path: &Path, logical: &str) -> Result<(), Stop> {
    let others = session.server.database_names();
    for other in others.iter().filter(|n| !n.eq_ignore_ascii_case(name)) {
        let Ok(Some(database)) = session.server.database(other) else {
            continue;
        };
        let taken = match &database.source {
            SourceSpec::Sqlite(file) => same_file(file, path),
            SourceSpec::Files(roots) => roots.iter().any(|root| same_file(root, path)),
            SourceSpec::Postgres(_) => false,
        };
        if taken {
            return Err(vec![
                message::FILE_IN_USE.with(&[&path.display(), other]),
                message::CANNOT_RESTORE_TO.with(&[&logical, &path.display()]),
                message::RESTORE_PLANNING.plain(),
            ]
            .into());
        }
    }
    Ok(())
}

fn same_file(a: &Path, b: &Path) -> bool {
    std::path::absolute(a).is_ok_and(|a| a == b)
}

fn run(
    session: &mut Session,
    name: &str,
    request: &RestoreRequest,
    options: &Options,
    out: &mut Out,
) -> Result<RestoreReport, Stop> {
    session.enter("RESTORE DATABASE", name);
    let house = session.house().equipped(&request.offload);
    let mut steps = options.stats.map(Steps::of);
    let asked = Request::Restore(request.clone());
    let result = watched(&house, &asked, |news| {
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
    Ok(report)
}

fn say_end(
    session: &Session,
    name: &str,
    request: &RestoreRequest,
    header: &SetHeader,
    report: &RestoreReport,
    out: &mut Out,
) -> Flow {
    for warning in &report.run.warnings {
        session.server.write_log("Restore", warning);
    }
    let listed = media::files(session, &request.devices, header.position);
    let files = listed.filter(|all| all.len() <= FILES_SHOWN_MAX);
    let whole = || vec![(name.to_owned(), report.plain_bytes)];
    for (file, bytes) in files.unwrap_or_else(whole) {
        let line = message::FILE_PROCESSED;
        let line = line.with(&[&pages(bytes), &name, &file, &header.position]);
        out.say_done(line, Command::Restore)?;
    }
    if report.damaged {
        out.say(message::SET_DAMAGED.plain())?;
    }
    if report.run.history_failed {
        out.say(message::HISTORY_FAILED.plain())?;
    }
    let text = message::LOG_DATABASE_RESTORED.with(&[
        &name,
        &"unknown",
        &header.log.first_lsn,
        &0,
        &request.devices.len(),
        &report.target,
    ]);
    session.server.write_log("Restore", &text.text);
    let end = processed("RESTORE DATABASE", report.plain_bytes, report.run.elapsed_s);
    Ok(out.say_done(end, Command::Restore)?)
}

fn verify(session: &mut Session, from: Vec<DeviceSpec>, options: &Options, out: &mut Out) -> Flow {
    media::media(session, &from, options)?;
    let position = options.position.unwrap_or(1);
    let defaults = &session.server.setup.defaults;
    let request = VerifyRequest {
        devices: from.clone(),
        bases: Vec::new(),
        position: Some(position),
        tuning: options.tuning(&defaults.tuning),
        limits: options.limits(&defaults.limits),
    };
    session.enter("RESTORE VERIFYONLY", &session.database);
    let mut steps = options.stats.map(Steps::of);
    let house = session.house();
    let result = watched(&house, &Request::Verify(request), |news| {
        hear(session, news, &mut steps, Command::RestoreVerifyOnly, out)
    })?;
    let report = match result.map_err(|e| refusal::of(&e))? {
        Report::Verify(report) => report,
        Report::Backup(_) | Report::Restore(_) => {
            return Err(message::OWN
                .with(&[&"internal error: another answer"])
                .into());
        }
    };
    if steps.as_mut().is_some_and(|s| s.shows(100)) {
        let end = message::PERCENT_PROCESSED.with(&[&100]);
        out.say_done(end, Command::RestoreVerifyOnly)?;
    }
    if !report.is_valid() {
        let mut messages: Vec<_> = report
            .findings
            .iter()
            .map(|finding| message::DETAIL.with(&[&finding.text]))
            .collect();
        messages.push(message::DAMAGE.plain());
        return Err(messages.into());
    }
    if report.sets.iter().any(|s| s.made_damaged) {
        out.say(message::SET_DAMAGED.plain())?;
    }
    if options.load_history {
        load_history(session, &from, position, out)?;
    }
    let valid = message::SET_VALID.with(&[&position]);
    Ok(out.say_done(valid, Command::RestoreVerifyOnly)?)
}

/// A history that cannot be written does not fail the verification (3009).
fn load_history(
    session: &Session,
    from: &[DeviceSpec],
    position: u32,
    out: &mut Out,
) -> Result<(), Stop> {
    let opened = media::open(session, from);
    let record = || -> Result<BackupRecord, longshore_media::Error> {
        let media = MediaSet::open(&opened)?;
        let set = media.set(position)?;
        let trailer = set.trailer.unwrap_or_default();
        let about = MediaRecord::of(&media, &opened);
        let mut record = BackupRecord::of(about, set.header, &trailer);
        record.read_files(&media)?;
        Ok(record)
    };
    let record = record().map_err(|e| refusal::media(&e))?;
    let recorded = session.server.catalog().and_then(|catalog| {
        catalog
            .record_backup(&record)
            .map_err(|_| message::HISTORY_FAILED.plain())
    });
    if recorded.is_err() {
        out.say(message::HISTORY_FAILED.plain())?;
    }
    Ok(())
}
