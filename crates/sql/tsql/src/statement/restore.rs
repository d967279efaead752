//! RESTORE DATABASE, RESTORE LOG and RESTORE VERIFYONLY: lowers a statement to one request of the pipeline.
//!
//! Decides where the set goes, which names MOVE may use, and whether the statement may replace what is there: without
//! REPLACE only the files of the same database.
//!
//! Invariants
//! - All refusals come before the first byte is written.
//! - A restored database is remembered under its name; one that the configuration names stays where the configuration
//!   says.
//!
//! Leaves to others: moving bytes, staging and renaming (`pipeline`, `landing`), and the listing forms of RESTORE.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_catalog::{BackupRecord, MediaRecord, RestoreSequence, RestoredDatabase};
use longshore_facts as facts;
use longshore_io::{FileKind, Storage};
use longshore_landing::{HeldCluster, refuse_media};
use longshore_media::{BackupType, DeviceSpec, MediaSet, SetHeader, SetSummary};
use longshore_pipeline::{
    ClusterOptions, Report, Request, RestoreRequest, SourceSpec, VerifyDepth, VerifyRequest,
};

use super::content::{POSTGRES, Parts, ROOTS_MAX, SQLITE, file_list_only, is_log_of, place_of};
use super::device::{devices, named_path, reach};
use super::options::{FILES_AND_GROUPS, Options, refused};
use super::restoring::{
    ARCHIVES_NOTHING, FILES, RestoreMessages, goes_on_archiving, request, run, say_end,
};
use super::{encryption, ground, hear, media, sequence};
use crate::flow::{Flow, Out, Stop};
use crate::message::{self, Message};
use crate::moving::{Steps, watched};
use crate::refusal;
use crate::server::{Database, RestoreLock};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Applies, Name, Part, Restore, RestoreWhat};

pub(crate) fn restore(session: &mut Session, restore: &Restore, out: &mut Out) -> Flow {
    let statement = match restore.what {
        RestoreWhat::Database { .. } | RestoreWhat::Snapshot { .. } => "RESTORE DATABASE",
        RestoreWhat::Log { .. } => "RESTORE LOG",
        RestoreWhat::HeaderOnly => "RESTORE HEADERONLY",
        RestoreWhat::FileListOnly => "RESTORE FILELIST",
        RestoreWhat::LabelOnly => "RESTORE LABELONLY",
        RestoreWhat::VerifyOnly => "VERIFY DATABASE",
        RestoreWhat::RewindOnly => "RESTORE REWINDONLY",
    };
    let done = one(session, restore, out);
    session.leave();
    done.map_err(|stop| match stop {
        Stop::Failed(mut messages) => {
            encryption::explain(session, &mut messages);
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
    session.check_no_transaction()?;
    let from = devices(session, &restore.from, &restore.options)?;
    let named = from.clone();
    let options =
        |session: &Session, statement| Options::of(session, &restore.options, statement, &named);
    match &restore.what {
        RestoreWhat::Database { name, parts } => {
            let options = options(session, Applies::RESTORE_DATABASE)?;
            let _alone = RestoreLock::with(&session.server, &session.name_of(name)?)?;
            database(session, name, parts, from, &options, out)
        }
        RestoreWhat::Log { name, parts } => {
            let options = options(session, Applies::RESTORE_LOG)?;
            let name = session.name_of(name)?;
            check_parts(parts)?;
            let _alone = RestoreLock::with(&session.server, &name)?;
            match from.is_empty() {
                true => sequence::end(session, &name, &options, out),
                false => sequence::log(session, &name, from, &options, out),
            }
        }
        RestoreWhat::Snapshot { .. } => {
            let text = "this version has no database snapshots";
            Err(message::OWN.with(&[&text]).into())
        }
        RestoreWhat::HeaderOnly => {
            let options = options(session, Applies::HEADER_ONLY)?;
            media::header_only(session, &from, &options, out)
        }
        RestoreWhat::FileListOnly => {
            let options = options(session, Applies::FILE_LIST_ONLY)?;
            file_list_only(session, &from, &options, out)
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

/// The destination of a set's restore.
struct RestoreDestination {
    target: PathBuf,
    /// Entry path in the set → path below the target.
    moves: Vec<(PathBuf, PathBuf)>,
    /// The database that is there afterwards.
    source: SourceSpec,
    /// It already belongs to the database of this name.
    own: bool,
    /// The target is one directory, and all of it is the database afterwards.
    whole: bool,
}

impl RestoreDestination {
    /// The file or directory of the database that is there afterwards.
    fn source_path(&self) -> &Path {
        match &self.source {
            SourceSpec::Sqlite(path) => path,
            SourceSpec::Files(paths) => paths.first().unwrap_or(&self.target),
            SourceSpec::Postgres(_) => &self.target,
        }
    }
}

/// The facts about the database that a statement names.
struct DatabaseFacts<'a> {
    name: &'a str,
    database: Option<&'a Database>,
    /// Its data directory, if it is a cluster that was restored here.
    cluster: Option<PathBuf>,
}

fn database(
    session: &mut Session,
    name: &Name,
    parts: &[Part],
    from: Vec<DeviceSpec>,
    options: &Options,
    out: &mut Out,
) -> Flow {
    let name = session.name_of(name)?;
    if name.eq_ignore_ascii_case("tempdb") {
        return Err(message::TEMPDB.plain().into());
    }
    if from.is_empty() {
        return sequence::end(session, &name, options, out);
    }
    check_parts(parts)?;
    sequence::check_use(session, &name)?;
    let media = media::media(session, &from, options)?;
    let position = options.position.unwrap_or(1);
    let set = media.set(position).map_err(|e| refusal::media(&e))?;
    match set.header.backup_type {
        BackupType::Database => {}
        BackupType::Differential => {
            return sequence::differential(session, &name, from, &set, options, out);
        }
        BackupType::Log => {
            let made = message::OTHER_KIND.with(&[&media.device(0), &"BACKUP LOG"]);
            return Err(made.into());
        }
    }
    let restore = FullRestore::prepare(session, name, from, &media, &set, options)?;
    let _lock = match &restore.waiting {
        Some(waiting) => sequence::lock(session, &waiting.target)?,
        None => None,
    };
    let finish_us = set.trailer.as_ref().map_or(0, |trailer| trailer.finish_us);
    if options.no_recovery || sequence::falls_short(options, finish_us) {
        let FullRestore {
            spelled, request, ..
        } = restore;
        return sequence::begin(session, &spelled, request, &set, options, out);
    }
    restore.run(session, &set.header, options, out)
}

/// RESTORE DATABASE of a full set, checked and ready to run.
struct FullRestore {
    /// The database's name in the statement.
    name: String,
    /// The name as the database that is there spells it.
    spelled: String,
    /// The sequence of restores that this one ends or begins again.
    waiting: Option<RestoreSequence>,
    place: RestoreDestination,
    request: RestoreRequest,
}

impl FullRestore {
    fn prepare(
        session: &Session,
        name: String,
        from: Vec<DeviceSpec>,
        media: &MediaSet,
        set: &SetSummary,
        options: &Options,
    ) -> Result<FullRestore, Stop> {
        let header = &set.header;
        let trailer = set.trailer.clone().unwrap_or_default();
        sequence::check_damage(options, &trailer)?;
        sequence::check_stop(options, header, &trailer)?;
        let waiting = session.server.kept.sequence(&name);
        let existing = session.server.database(&name);
        // A database that cannot be used because its file is lost still exists; only MOVE can name another location.
        let is_there = !matches!(existing, Ok(None));
        let existing = existing.ok().flatten();
        let spelled = existing.as_ref().map(|d| d.name.clone());
        let spelled = spelled.or(waiting.as_ref().map(|w| w.database.clone()));
        let spelled = spelled.unwrap_or_else(|| name.clone());
        let other = || message::OTHER_DATABASE.with(&[&name]);
        if is_there && !options.replace && !is_family(session, &spelled, header) {
            return Err(other().into());
        }
        let cluster = waiting.as_ref().map(|w| w.target.clone());
        let cluster = cluster.or_else(|| session.server.kept.cluster(&spelled));
        let known = DatabaseFacts {
            name: &name,
            database: existing.as_ref(),
            cluster,
        };
        let place = place(session, &known, media, header, options)?;
        let standing = existing.as_ref().map(|d| &d.source);
        if place.own && !options.replace && !is_own(session, &place, standing, header) {
            return Err(other().into());
        }
        let is_cluster = header.source_kind == POSTGRES;
        let is_copy =
            is_cluster && !goes_on_archiving(session, (&spelled, &from), &place.target, header);
        let request = RestoreRequest {
            position: options.position.unwrap_or(1),
            // The database's own files are overwritten without REPLACE, as in SQL Server.
            replace: options.replace || place.own,
            moves: place.moves.clone(),
            note: sequence::note(session, &spelled, options, trailer.finish_us),
            cluster: ClusterOptions {
                no_archiving: is_copy,
                no_subscriptions: is_copy,
                any_system: place.own && is_cluster,
                ..ClusterOptions::default()
            },
            ..request(session, from, place.target.clone(), options)
        };
        Ok(FullRestore {
            name,
            spelled,
            waiting,
            place,
            request,
        })
    }

    /// Restores, and notes where the database is now.
    fn run(
        self,
        session: &mut Session,
        header: &SetHeader,
        options: &Options,
        out: &mut Out,
    ) -> Flow {
        let what = (self.name.as_str(), "RESTORE DATABASE");
        let report = run(session, what, &self.request, options, out)?;
        let restored = RestoredDatabase {
            name: self.spelled.clone(),
            source_kind: header.source_kind,
            path: self.place.source_path().to_path_buf(),
        };
        if self.waiting.is_some() {
            let kept = (!session.server.is_configured(&self.spelled)).then_some(&restored);
            session.server.kept.end_sequence(&self.spelled, kept)?;
        }
        if !self.place.own {
            remember(session, &restored, out)?;
        }
        if self.request.cluster.no_archiving {
            let text = format!("{}: {ARCHIVES_NOTHING}", self.request.target.display());
            out.say(message::DETAIL.with(&[&text]))?;
        }
        let mut messages = RestoreMessages::of(&report, &self.request, header);
        messages.whole = self.place.whole;
        say_end(session, &self.name, &messages, out)
    }
}

/// Notes where a database is now. One that the configuration names stays where that says.
fn remember(session: &mut Session, restored: &RestoredDatabase, out: &mut Out) -> Flow {
    if !session.server.is_configured(&restored.name) {
        return Ok(session.server.kept.keep_database(restored)?);
    }
    let text = format!(
        "the database '{}' stays where the configuration says; the restored copy is in {}",
        restored.name,
        restored.path.display()
    );
    Ok(out.say(message::WARNING.with(&[&text]))?)
}

fn check_parts(parts: &[Part]) -> Result<(), Vec<Message>> {
    let Some(part) = parts.first() else {
        return Ok(());
    };
    let reason = match part {
        Part::Page(_) => "pages are not restored one by one: a database is always restored whole",
        _ => "a database is always restored whole: the sources have no filegroups",
    };
    Err(refused(FILES_AND_GROUPS, reason))
}

/// Whether a set belongs to the database's family: to the cluster with its system identifier, if known; otherwise to
/// its name.
fn is_family(session: &Session, name: &str, header: &SetHeader) -> bool {
    let context = &session.server.setup.context;
    let waiting = session
        .server
        .kept
        .sequence(name)
        .map(|waiting| waiting.system);
    let restored =
        || HeldCluster::system_of(&*context.storage, &session.server.kept.cluster(name)?);
    let backed_up = || {
        session.server.known_catalog()?;
        let chain = session.server.catalog().ok()?.log_chain(name).ok()?;
        chain.fulls.last().map(|full| full.system)
    };
    match waiting.or_else(restored).or_else(backed_up) {
        Some(system) => system == header.log.system,
        None => header.database.eq_ignore_ascii_case(name),
    }
}

/// Whether this set may replace the database's present files without REPLACE: a cluster with its system identifier;
/// anything else if it was made on this machine from this path, since two databases may have one name. If nothing is
/// there, nothing is lost.
fn is_own(
    session: &Session,
    place: &RestoreDestination,
    standing: Option<&SourceSpec>,
    header: &SetHeader,
) -> bool {
    let storage = &session.server.setup.context.storage;
    let stands = |source: &SourceSpec| match source {
        SourceSpec::Sqlite(path) => storage.stat(path).is_ok(),
        SourceSpec::Files(paths) => paths.iter().any(|path| storage.stat(path).is_ok()),
        SourceSpec::Postgres(_) => true,
    };
    let is_of_path = || {
        standing.is_none_or(|source| {
            header.origin == longshore_pipeline::origin(source) || !stands(source)
        })
    };
    match header.source_kind {
        POSTGRES => {
            let standing =
                HeldCluster::system_of(&*session.server.setup.context.storage, &place.target);
            standing.is_none_or(|system| system == header.log.system)
        }
        _ => header.machine == facts::host_name() && is_of_path(),
    }
}

/// The destination in MOVE; `name` is the database, for messages. A place for the log is taken and means nothing.
///
/// Errors: 3234, 4353.
fn moved<'o>(
    options: &'o Options,
    logical: &str,
    header: &SetHeader,
    name: &str,
) -> Result<Option<&'o str>, Message> {
    let mut destination = None;
    for (from, to) in &options.moves {
        let of_database = *from == header.database && !is_log_of(from, logical);
        let is_data = from == logical || of_database;
        if !is_data && (is_log_of(from, logical) || is_log_of(from, &header.database)) {
            continue;
        }
        if !is_data {
            return Err(message::LOGICAL_FILE.with(&[from, &name]));
        }
        if destination.is_some() {
            return Err(message::MOVED_TWICE.with(&[&logical]));
        }
        destination = Some(to.as_str());
    }
    Ok(destination)
}

/// A set of one file goes to one path, any other set below a directory. MOVE names the destination, by the name of
/// that root (as FILELISTONLY shows it) or by the database's name for the whole. Without MOVE it is the location of
/// the database of this name, if that is of the set's kind. The origin of the backup never decides: media may come
/// from anywhere.
fn place(
    session: &Session,
    known: &DatabaseFacts,
    media: &MediaSet,
    header: &SetHeader,
    options: &Options,
) -> Result<RestoreDestination, Stop> {
    let (name, existing) = (known.name, known.database);
    let Parts {
        roots,
        single,
        logical,
    } = Parts::of(media, header)?;
    let destination = moved(options, &logical, header, name)?;
    let destination = destination.map(|to| named_path(session, to)).transpose()?;
    let storage = &*session.server.setup.context.storage;
    let own = match header.source_kind {
        POSTGRES => known.cluster.clone(),
        kind => {
            existing.and_then(|d| own_place(storage, &d.source, kind, (&roots, single.is_some())))
        }
    };
    let Some(path) = destination.clone().or_else(|| own.clone()) else {
        let original = place_of(session, header);
        return Err(vec![
            message::CANNOT_RESTORE_TO.with(&[&logical, &original]),
            message::RESTORE_PLANNING.plain(),
        ]
        .into());
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    // A configured location is trusted; a restore may have left files anywhere.
    let is_configured = existing.is_some_and(|d| session.server.is_configured(&d.name));
    if destination.is_none() && (header.source_kind == POSTGRES || !is_configured) {
        reach(session, &path, &path.display())?;
    }
    let is_own = own.is_some_and(|own| ground::real(storage, &own) == ground::real(storage, &path));
    let written: Vec<PathBuf> = match (&single, header.source_kind) {
        (Some(_), SQLITE) => ground::with_side_files(&path).collect(),
        (None, FILES) if is_own && roots.len() <= ROOTS_MAX => {
            roots.iter().map(|root| path.join(root)).collect()
        }
        _ => vec![path.clone()],
    };
    let except = existing.map_or(name, |d| d.name.as_str());
    check_ground(
        session,
        except,
        (&written, is_own),
        header.source_kind,
        &logical,
    )?;
    check_standing(session, header, (&path, is_own), &roots, options)?;
    if single.is_some() && destination.is_some() {
        check_directory(storage, &path, &logical)?;
    }
    let source = match header.source_kind {
        SQLITE => SourceSpec::Sqlite(path.clone()),
        _ => SourceSpec::Files(vec![path.clone()]),
    };
    // Roots that are listed one by one have neighbours that belong to others.
    let listed =
        existing.is_some_and(|d| matches!(&d.source, SourceSpec::Files(all) if all.len() > 1));
    let whole = single.is_none() && !(is_own && listed);
    let (target, moves) = match single {
        None => (path, Vec::new()),
        Some(root) => {
            let unusable = || message::CANNOT_RESTORE_TO.with(&[&logical, &path.display()]);
            renamed_root(root, &path).ok_or_else(unusable)?
        }
    };
    Ok(RestoreDestination {
        target,
        moves,
        source,
        own: is_own,
        whole,
    })
}

/// A file is restored into a directory that is there: another one may be a mistake in its name. Errors: 5133, 3156, 3119.
fn check_directory(storage: &dyn Storage, path: &Path, logical: &str) -> Result<(), Vec<Message>> {
    let directory = path.parent().map(|parent| ground::real(storage, parent));
    let kind = directory.and_then(|directory| storage.stat(&directory).ok());
    if kind.is_some_and(|stat| stat.kind == FileKind::Dir) {
        return Ok(());
    }
    let missing = "2(The system cannot find the file specified.)";
    Err(vec![
        message::DIRECTORY_MISSING.with(&[&path.display(), &missing]),
        message::CANNOT_RESTORE_TO.with(&[&logical, &path.display()]),
        message::RESTORE_PLANNING.plain(),
    ])
}

/// The directory that a set of one file goes to, and the file's new name, if `path` gives it one. `None`: `path` names
/// no file.
fn renamed_root(root: PathBuf, path: &Path) -> Option<(PathBuf, Vec<(PathBuf, PathBuf)>)> {
    let (parent, file) = (path.parent()?, path.file_name()?);
    let moves = match Path::new(file) == root {
        true => Vec::new(),
        false => vec![(root, PathBuf::from(file))],
    };
    Some((parent.to_path_buf(), moves))
}

/// The database's location, if a set of this kind and these roots fits there: the replaced files must be the
/// database's own.
fn own_place(
    storage: &dyn Storage,
    source: &SourceSpec,
    kind: u8,
    (roots, single): (&BTreeSet<PathBuf>, bool),
) -> Option<PathBuf> {
    // A missing path may come back as either kind.
    let may_be = |path: &Path, kind: FileKind| storage.stat(path).map_or(true, |s| s.kind == kind);
    match (source, kind) {
        (SourceSpec::Sqlite(path), SQLITE) => single.then(|| path.clone()),
        (SourceSpec::Files(paths), FILES) => match paths.as_slice() {
            [path] if single => may_be(path, FileKind::File).then(|| path.clone()),
            [path] => may_be(path, FileKind::Dir).then(|| path.clone()),
            paths => {
                let parent = common_parent(paths)?;
                let mine = |root: &PathBuf| paths.contains(&parent.join(root));
                let fits = !single && roots.len() <= ROOTS_MAX && roots.iter().all(mine);
                fits.then_some(parent)
            }
        },
        // A SQLite file so damaged that it is taken for another kind of file.
        (SourceSpec::Files(paths), SQLITE) => match paths.as_slice() {
            [path] if single => may_be(path, FileKind::File).then(|| path.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn common_parent(paths: &[PathBuf]) -> Option<PathBuf> {
    let first = paths.first()?.parent()?;
    let same = paths.iter().all(|p| p.parent() == Some(first));
    same.then(|| first.to_path_buf())
}

/// No restore writes onto, into or over another database's files, even with REPLACE: 1834, 3156, 3119. A database that
/// is configured inside another one's tree may be restored in place.
fn check_ground(
    session: &Session,
    except: &str,
    (written, own): (&[PathBuf], bool),
    kind: u8,
    logical: &str,
) -> Result<(), Stop> {
    let storage = &*session.server.setup.context.storage;
    let plots = ground::plots(&session.server, Some(except));
    for path in written {
        let real = ground::real(storage, path);
        let refused = |first: Message| {
            vec![
                first,
                message::CANNOT_RESTORE_TO.with(&[&logical, &path.display()]),
                message::RESTORE_PLANNING.plain(),
            ]
        };
        let meets = |plot: &&ground::Plot| {
            let inside = real.starts_with(&plot.path) && (!own || real == plot.path);
            inside || plot.path.starts_with(&real)
        };
        if let Some(plot) = plots.iter().find(meets) {
            let first = message::FILE_IN_USE.with(&[&path.display(), &plot.owner]);
            return Err(refused(first).into());
        }
        // Any medium: backups are replaced by BACKUP WITH INIT or FORMAT.
        let medium = DeviceSpec::File(path.clone()).open(&session.server.setup.context.storage);
        if MediaSet::label(&*medium).is_ok() {
            return Err(
                refused(message::CANNOT_OPEN.with(&[&path.display(), &refusal::IN_USE])).into(),
            );
        }
        // The restore of a cluster itself checks whether a server runs in the directory. Files of a stopped cluster
        // that were backed up as files may be restored in place.
        let around = match kind {
            POSTGRES => real.parent().unwrap_or(&real),
            _ => &real,
        };
        if let Some(cluster) = ground::cluster(storage, around, own) {
            let owner = format!("PostgreSQL in {}", cluster.display());
            let first = message::FILE_IN_USE.with(&[&path.display(), &owner]);
            return Err(refused(first).into());
        }
    }
    Ok(())
}

const NOT_EMPTY: &str = "145(The directory is not empty.)";

/// No restore removes what its database does not own, even with REPLACE: 3156 for a directory with backups below it, and
/// those of [`check_cluster_place`]. `roots`: the names at the root of the set.
fn check_standing(
    session: &Session,
    header: &SetHeader,
    (path, own): (&Path, bool),
    roots: &BTreeSet<PathBuf>,
    options: &Options,
) -> Result<(), Stop> {
    let storage = &session.server.setup.context.storage;
    let check = |taken: &Path| {
        refuse_media(storage, taken).map_err(|error| {
            let mut messages = refusal::of(&error.into());
            messages.push(message::RESTORE_PLANNING.plain());
            Stop::from(messages)
        })
    };
    match header.source_kind {
        POSTGRES => {
            if !own && options.replace {
                check_cluster_place(session, path, header)?;
            }
            check(path)
        }
        // The names of a database's own directory are the database's, whatever they are.
        FILES if !own && roots.len() <= ROOTS_MAX => {
            roots.iter().try_for_each(|root| check(&path.join(root)))
        }
        FILES if !own => check(path),
        _ => Ok(()),
    }
}

/// A cluster replaces its directory as a whole, so nothing but the same cluster may be there: 1834 for another cluster,
/// 3201 for anything else.
fn check_cluster_place(session: &Session, path: &Path, header: &SetHeader) -> Result<(), Stop> {
    let storage = &*session.server.setup.context.storage;
    let real = ground::real(storage, path);
    let names = storage.dir(&real).and_then(|dir| dir.list());
    let mut names = names.into_iter().flatten().filter_map(Result::ok);
    // A restore that was killed left its staging directory.
    let is_anybodys = |name: std::ffi::OsString| {
        name != longshore_landing::STAGING && name != longshore_landing::LOST_AND_FOUND
    };
    let same = || HeldCluster::system_of(storage, &real) == Some(header.log.system);
    if !names.any(is_anybodys) || same() {
        return Ok(());
    }
    let first = match ground::cluster(storage, &real, false) {
        Some(cluster) => {
            let owner = format!("another PostgreSQL in {}", cluster.display());
            message::FILE_IN_USE.with(&[&path.display(), &owner])
        }
        None => message::CANNOT_OPEN.with(&[&path.display(), &NOT_EMPTY]),
    };
    let messages = vec![
        first,
        message::CANNOT_RESTORE_TO.with(&[&header.database, &path.display()]),
        message::RESTORE_PLANNING.plain(),
    ];
    Err(messages.into())
}

fn verify(session: &mut Session, from: Vec<DeviceSpec>, options: &Options, out: &mut Out) -> Flow {
    let media = media::media(session, &from, options)?;
    let position = options.position.unwrap_or(1);
    if !options.moves.is_empty() {
        let header = media.set(position).map_err(|e| refusal::media(&e))?.header;
        let logical = Parts::of(&media, &header)?.logical;
        moved(options, &logical, &header, &header.database)?;
    }
    let defaults = &session.server.setup.defaults;
    let request = VerifyRequest {
        devices: from.clone(),
        bases: Vec::new(),
        position: Some(position),
        known: Vec::new(),
        depth: VerifyDepth::Chains,
        tuning: options.reading_tuning(&defaults.tuning),
        limits: options.limits(&defaults.limits),
    };
    session.enter("RESTORE VERIFYONLY", &session.database);
    let mut steps = options.stats.map(Steps::of);
    let context = session.context();
    // A verification neither backs up nor restores.
    let request = Request::Verify(request);
    let result = watched(&context, &request, &Arc::default(), |news| {
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
    for text in &report.run.plan.without_effect {
        out.say(message::DETAIL.with(&[text]))?;
    }
    for text in report.run.degraded() {
        out.say(message::WARNING.with(&[text]))?;
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
        let media = media.with_keyring(&session.context().keyring);
        let set = media.set(position)?;
        let trailer = set.trailer.unwrap_or_default();
        let about = MediaRecord::of(&media, &opened);
        let mut record = BackupRecord::of(about, set.header, &trailer);
        record.read_thumbprint(&media)?;
        record.read_files(&media)?;
        Ok(record)
    };
    let mut record = record().map_err(|e| refusal::media(&e))?;
    let storage = &session.server.setup.context.storage;
    let recorded = session.server.catalog().and_then(|catalog| {
        catalog
            .settle(&mut record.media, storage)
            .and_then(|()| catalog.record_backup(&record))
            .map_err(|_| message::HISTORY_FAILED.plain())
    });
    if recorded.is_err() {
        out.say(message::HISTORY_FAILED.plain())?;
    }
    Ok(())
}
