//! BACKUP DATABASE and BACKUP LOG: lowers a statement to one request of the pipeline, and answers with SQL Server's
//! messages.
//!
//! Invariants
//! - A device that is on, in or over a database, the catalog or a data directory is refused before anything is opened.
//! - Options that the statement leaves open come from the server settings; a catalog that cannot be read never fails a
//!   backup.
//!
//! Leaves to others: moving bytes and recording history (`pipeline`), and the words of messages (`message/table.rs`).

use std::time::Duration;

use longshore_catalog::{ChainPlace, HistoryRow};
use longshore_codec::{Algorithm, Level};
use longshore_media::device::DeviceClass;
use longshore_media::{Container, DeviceSpec, Disposition, MediaSet};
use longshore_pipeline::{
    Against, BackupReport, BackupRequest, BaseRequest, LogPlace, LogRequest, OnChange, Report,
    Request, ServerSettings, SourceError, SourceSpec, pages, unarchived,
};

use super::device::{DEVICES_MAX, devices, is_readable, reach, recorded};
use super::options::{CompressionChoice, FILES_AND_GROUPS, Options, refused};
use super::{
    FILES_SHOWN_MAX, LOG_FILE, encryption, ground, hear, media, object, processed, say_warnings,
};
use crate::flow::{Flow, Out, SYSTEM_DATABASES, Stop};
use crate::message::{self, Message};
use crate::moving::{Steps, watched};
use crate::refusal;
use crate::server::Database;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Applies, Backup, BackupWhat, Device, Name};

const DAY_US: i64 = 86_400_000_000;

pub(crate) fn backup(session: &mut Session, backup: &Backup, out: &mut Out) -> Flow {
    let statement = match &backup.what {
        BackupWhat::Log { .. } => "BACKUP LOG",
        _ => "BACKUP DATABASE",
    };
    let done = one(session, backup, out);
    session.leave();
    done.map_err(|stop| match stop {
        Stop::Failed(mut messages) => {
            // Any device that a backup cannot open is reported as one that it cannot create.
            let unopened = messages.iter_mut();
            for message in unopened.filter(|m| m.number == message::CANNOT_OPEN.number) {
                message.state = 1;
            }
            encryption::explain(session, &mut messages);
            // Mistakes of grammar do not end with this message.
            messages.push(message::TERMINATING.with(&[&statement]));
            let text = message::BACKUP_FAILED.with(&[&command_words(backup)]);
            session.server.write_log("Backup", &text.text);
            for message in messages.iter().filter(|m| m.is_error()) {
                session.server.write_log("Backup", &message.text);
            }
            Stop::Failed(messages)
        }
        other => other,
    })
}

/// The command in the words of message 3041.
fn command_words(backup: &Backup) -> String {
    let name = |name: &Name| match name {
        Name::Literal(name) | Name::Variable(name) => name.clone(),
    };
    match &backup.what {
        BackupWhat::Database { name: n, .. } => format!("BACKUP DATABASE {}", name(n)),
        BackupWhat::Log { name: n } => format!("BACKUP LOG {}", name(n)),
        BackupWhat::Group(_) => "BACKUP GROUP".into(),
        BackupWhat::Server => "BACKUP SERVER".into(),
    }
}

fn one(session: &mut Session, backup: &Backup, out: &mut Out) -> Flow {
    session.check_no_transaction()?;
    let (name, parts, statement) = match &backup.what {
        BackupWhat::Database { name, parts } => (name, parts.as_slice(), Applies::BACKUP_DATABASE),
        BackupWhat::Log { name } => (name, [].as_slice(), Applies::BACKUP_LOG),
        BackupWhat::Group(_) | BackupWhat::Server => {
            let text = "this version has no snapshot backups of several databases";
            return Err(message::OWN.with(&[&text]).into());
        }
    };
    let database = existing(session, &session.name_of(name)?)?;
    check_stopped(session, &database)?;
    let is_log = statement == Applies::BACKUP_LOG;
    if is_log && !database.recovery_is_full() {
        return Err(message::SIMPLE_RECOVERY.with(&[&"BACKUP LOG"]).into());
    }
    if !parts.is_empty() {
        return Err(refused(FILES_AND_GROUPS, WHOLE_BACKUP).into());
    }
    check_mirrors(backup)?;
    // Mirrors are devices of the same class, which statements may reach.
    let named: Vec<Device> = named(backup).cloned().collect();
    let devices = devices(session, &named, &backup.options)?;
    check_ground(session, &devices)?;
    let options = Options::of(session, &backup.options, statement, &devices)?;
    check_mirrored(backup, &options)?;
    make_directories(session, &devices);
    let mut devices: Vec<DeviceSpec> = match options.part_bytes {
        Some(bytes) => devices.into_iter().map(|d| in_parts_of(d, bytes)).collect(),
        None => devices,
    };
    let mirrors = devices.split_off(backup.to.len());
    let settings = server_settings(session);
    let encrypt_to = encryption::recipients(session, &options, out)?;
    let mut request = lower(session, &database, devices, &options, &settings)?;
    request.encrypt_to = encrypt_to;
    let mirrors = mirrors.chunks(backup.to.len());
    request.mirrors = mirrors.map(<[DeviceSpec]>::to_vec).collect();
    if is_log {
        check_archived(session, &database)?;
        request.log = Some(log(session, &database)?);
    }
    let report = run(session, &database, &request, &options, out)?;
    note_names(session, backup, (&request, &report), out)?;
    say_end(session, &database, &request, &options, &report, out)
}

/// Refuses a log backup whose WAL nobody archives, in the words of `longshore backup`.
fn check_archived(session: &Session, database: &Database) -> Result<(), Message> {
    let (SourceSpec::Postgres(server), Some(archive)) = (&database.source, &database.wal) else {
        return Ok(());
    };
    let storage = &*session.server.setup.context.storage;
    match unarchived(storage, server, archive) {
        None => Ok(()),
        Some(why) => {
            let text = format!(
                "{why}: set archive_mode = on, which needs a restart, and archive_command (`longshore wal push %p \
                 --database {}`); or run `longshore wal receive`",
                database.name
            );
            Err(message::OWN.with(&[&text]))
        }
    }
}

/// The devices that a statement names, those of its mirrors last.
fn named(backup: &Backup) -> impl Iterator<Item = &Device> {
    backup.to.iter().chain(backup.mirrors.iter().flatten())
}

/// Notes in the history which of the devices were named by logical ones. A history that cannot be changed is told, and fails
/// nothing.
fn note_names(
    session: &Session,
    backup: &Backup,
    (request, report): (&BackupRequest, &BackupReport),
    out: &mut Out,
) -> Flow {
    let mut logical = Vec::new();
    for (device, spec) in named(backup).zip(request.all_devices()) {
        if let (Device::Logical(name), DeviceSpec::File(path)) = (device, spec) {
            logical.push((path.display().to_string(), session.name_of(name)?));
        }
    }
    if logical.is_empty() || session.server.known_catalog().is_none() || report.run.history_failed {
        return Ok(());
    }
    let catalog = session.server.catalog();
    let noted = catalog.and_then(|catalog| {
        let noted = catalog.name_devices(report.media_set, &logical);
        noted.map_err(|e| message::OWN.with(&[&e]))
    });
    match noted {
        Ok(()) => Ok(()),
        Err(refused) => Ok(out.say(message::WARNING.with(&[&refused.text]))?),
    }
}

fn in_parts_of(device: DeviceSpec, bytes: u64) -> DeviceSpec {
    match device {
        DeviceSpec::Bucket(address) => DeviceSpec::Bucket(address.in_parts_of(bytes)),
        other => other,
    }
}

/// The database of this name. Errors: 911, 927, 3147, and 50002 for SQL Server's own.
fn existing(session: &Session, name: &str) -> Result<Database, Message> {
    if name.eq_ignore_ascii_case("tempdb") {
        return Err(message::TEMPDB.plain());
    }
    check_system(session, name, "a backup")?;
    database(session, name)
}

/// Refuses a restored cluster in which a server may run: what is known of it are its files, and files of a running server
/// are no backup.
fn check_stopped(session: &Session, database: &Database) -> Result<(), Vec<Message>> {
    if session.server.is_configured(&database.name) {
        return Ok(());
    }
    let storage = &session.server.setup.context.storage;
    let restored = session.server.kept.cluster(&database.name);
    match restored.filter(|data| storage.stat(&data.join(PID_FILE)).is_ok()) {
        Some(path) => Err(refusal::of(&SourceError::RunningServer { path }.into())),
        None => Ok(()),
    }
}

/// Databases of SQL Server's own are refused by name.
pub(super) fn check_system(session: &Session, name: &str, what: &str) -> Result<(), Message> {
    let mut all = SYSTEM_DATABASES.iter();
    let is_system = all.any(|own| own.eq_ignore_ascii_case(name));
    if is_system && matches!(session.server.database(name), Ok(None)) {
        let what = format!("{what} of {name} (the catalog's file has what is in it)");
        return Err(message::NOT_HERE.with(&[&what]));
    }
    Ok(())
}

/// Errors: 911, 927.
pub(super) fn database(session: &Session, name: &str) -> Result<Database, Message> {
    if let Some(waiting) = session.server.kept.sequence(name)
        && !session.server.is_configured(&waiting.database)
    {
        return Err(message::IN_RESTORE.with(&[&waiting.database]));
    }
    let found = session.server.database(name);
    let database = found
        .map_err(|e| refusal::unusable(&e))?
        .ok_or_else(|| message::DATABASE_MISSING.with(&[&name]))?;
    // A restore may have placed its files anywhere.
    if !session.server.is_configured(&database.name) {
        let paths = match &database.source {
            SourceSpec::Sqlite(path) => std::slice::from_ref(path),
            SourceSpec::Files(paths) => paths,
            SourceSpec::Postgres(_) => &[],
        };
        for path in paths {
            reach(session, path, &path.display())?;
        }
    }
    Ok(database)
}

/// Why a part of a database is not backed up.
const WHOLE_BACKUP: &str = "a database is always backed up whole: the sources have no filegroups";

/// The most mirrors of a media set, as in SQL Server.
const MIRRORS_MAX: usize = 3;

/// Errors: 3010, 3205, and 50000 for more mirrors.
fn check_mirrors(backup: &Backup) -> Result<(), Message> {
    let all: usize = backup.mirrors.iter().map(Vec::len).sum();
    if backup.to.len() + all > DEVICES_MAX {
        return Err(message::TOO_MANY_DEVICES.with(&[&DEVICES_MAX]));
    }
    if backup.mirrors.iter().any(|m| m.len() != backup.to.len()) {
        return Err(message::MIRROR_UNEVEN.plain());
    }
    match backup.mirrors.len() {
        0..=MIRRORS_MAX => Ok(()),
        count => {
            let text =
                format!("MIRROR TO: a media set has at most {MIRRORS_MAX} mirrors, not {count}");
            Err(message::OWN.with(&[&text]))
        }
    }
}

/// Errors: 50000 for mirrors of media that are not formatted, or have parity.
fn check_mirrored(backup: &Backup, options: &Options) -> Result<(), Message> {
    let text = match (backup.mirrors.is_empty(), options.format, options.parity) {
        (true, _, _) | (false, true, 0) => return Ok(()),
        (false, false, _) => {
            "MIRROR TO needs WITH FORMAT: this version begins mirrored media, and adds nothing to them; name new devices, or \
             add FORMAT, which replaces what is on these"
        }
        (false, true, _) => "MIRROR TO and PARITY exclude each other: leave out one of them",
    };
    Err(message::OWN.with(&[&text]))
}

/// Refuses a backup onto, into or over the files of a database, the catalog or a PostgreSQL data directory: 3201.
pub(super) fn check_ground(session: &Session, devices: &[DeviceSpec]) -> Result<(), Message> {
    let storage = &*session.server.setup.context.storage;
    let plots = ground::plots(&session.server, None);
    for device in devices {
        let DeviceSpec::File(path) = device else {
            object::check_kept(session, device)?;
            continue;
        };
        let real = ground::real(storage, path);
        let meets =
            |plot: &ground::Plot| real.starts_with(&plot.path) || plot.path.starts_with(&real);
        if plots.iter().any(meets) || ground::cluster(storage, &real, false).is_some() {
            return Err(message::CANNOT_OPEN.with(&[&path.display(), &refusal::IN_USE]));
        }
    }
    Ok(())
}

/// Makes the missing directories above files, below one that is there: maintenance solutions make none on Linux. Where that
/// fails, opening the device says why.
fn make_directories(session: &Session, devices: &[DeviceSpec]) {
    let storage = &*session.server.setup.context.storage;
    for device in devices {
        let DeviceSpec::File(path) = device else {
            continue;
        };
        let Some(parent) = path.parent() else {
            continue;
        };
        let is_there = |above: &&std::path::Path| storage.stat(above).is_ok();
        let nearest = parent.ancestors().find(is_there);
        if nearest.is_some_and(|above| above != parent && above.parent().is_some()) {
            let made = storage.create_dir_all(parent);
            if let Err(error) = made {
                tracing::debug!(%error, "directories for a backup were not made");
            }
        }
    }
}

/// A catalog that cannot be read never fails a statement that moves bytes.
pub(super) fn server_settings(session: &Session) -> ServerSettings {
    let context = &session.server.setup.context;
    ServerSettings::read(&*context.storage, context.catalog.as_deref()).unwrap_or_else(|error| {
        tracing::warn!(%error, "server settings were not read");
        ServerSettings::default()
    })
}

/// Translates the statement to the pipeline's request.
fn lower(
    session: &Session,
    database: &Database,
    devices: Vec<DeviceSpec>,
    options: &Options,
    settings: &ServerSettings,
) -> Result<BackupRequest, Message> {
    let server = &session.server.setup;
    let defaults = &server.defaults;
    let disposition = match (options.format, options.init) {
        (true, _) => Disposition::Format,
        (false, true) => Disposition::Init { skip: options.skip },
        (false, false) => Disposition::Append,
    };
    let before = match disposition {
        Disposition::Format => None,
        _ => standing(session, &devices),
    };
    check_alone(session, before.as_ref())?;
    // The set before it decides the options that the statement leaves open.
    let before = before.filter(|_| disposition == Disposition::Append);
    let (algorithm, level) = codec(database, options, settings, defaults, before.as_ref());
    let base = match options.differential {
        true => Some(base(session, database, &devices)?),
        false => None,
    };
    let mut request = BackupRequest::new(database.source.clone(), devices);
    request.base = base;
    if options.differential {
        // A full restore of another source cannot wait for one.
        if !matches!(database.source, SourceSpec::Postgres(_)) {
            return Err(message::OPTION_UNSUPPORTED.with(&[&"differential"]));
        }
    }
    request.database = Some(database.name.clone());
    request.user = Some(session.login.user.clone()).filter(|user| !user.is_empty());
    request.trust_locks = database.trust_locks;
    // A statement's answer has no place for the warning that its success is none.
    request.refuse_servers = true;
    request.postgres.configuration = database.server_config;
    request.disposition = disposition;
    request.algorithm = algorithm;
    request.level = level;
    request.name = options.name.clone().unwrap_or_default();
    request.description = options.description.clone().unwrap_or_default();
    request.media_name = options.media_name.clone().unwrap_or_default();
    request.media_description = options.media_description.clone().unwrap_or_default();
    request.copy_only = options.copy_only;
    request.parity = options.parity;
    request.tolerated = options.tolerated;
    request.expires_us = expires_us(session, options, settings);
    // STOP_ON_ERROR is the default.
    request.on_change = match options.continue_after_error {
        true => OnChange::Mark,
        false => OnChange::Fail,
    };
    request.postgres.fail_on_bad_page = !options.continue_after_error;
    if let Some(mode) = settings.offload {
        request.offload.mode = mode;
    }
    request.tuning = options.tuning(&defaults.tuning);
    request.limits = options.limits(&defaults.limits);
    Ok(request)
}

/// The last full backup in the history that is not COPY_ONLY: differential statements name none. A backup to NUL
/// cannot be compared with. `to`: the statement's own devices. Errors: 3035, and those of [`recorded`].
fn base(session: &Session, database: &Database, to: &[DeviceSpec]) -> Result<BaseRequest, Message> {
    let missing = || message::NO_DIFFERENTIAL_BASE.with(&[&database.name]);
    if session.server.known_catalog().is_none() {
        return Err(missing());
    }
    let is_kept = |row: &HistoryRow| row.devices.iter().all(|name| is_readable(name));
    let newest = session
        .server
        .catalog()?
        .newest_full(&database.name, is_kept);
    let newest = newest.map_err(|e| message::OWN.with(&[&e]))?;
    let newest = newest.ok_or_else(missing)?;
    Ok(BaseRequest {
        against: Against::LastFull,
        devices: recorded(session, newest.devices.iter().map(String::as_str), to)?,
        // The devices may hold a copy of the media that lacks this set.
        set: Some(newest.set),
    })
}

/// The file that a server has in its data directory while it runs.
const PID_FILE: &str = "postmaster.pid";

/// How long a server may take to archive its last segment.
const LOG_PATIENCE: Duration = Duration::from_secs(60);

/// Where the log chain continues, by the history: after the last log backup; before the first log backup, with the
/// first full one, so that the chain continues every full backup since. WAL that is missing in the archive moves the
/// start to a later full backup. Errors: 4214.
fn log(session: &Session, database: &Database) -> Result<LogRequest, Message> {
    let missing = || message::NO_CURRENT_BACKUP.plain();
    let archive = database.wal.clone().ok_or_else(missing)?;
    if session.server.known_catalog().is_none() {
        return Err(missing());
    }
    let chain = session.server.catalog()?.log_chain(&database.name);
    let chain = chain.map_err(|e| message::OWN.with(&[&e]))?;
    let system = chain.fulls.last().ok_or_else(missing)?.system;
    // After a restore the server may write its own WAL at those LSNs again, so the old log backups do not count.
    let logs = chain.logs.into_iter().filter(|_| !chain.is_set_back);
    // A log chain belongs to the cluster of the last full backup.
    let places = logs.chain(chain.fulls);
    let place = |at: ChainPlace| LogPlace {
        system: at.system,
        timeline: at.timeline,
        lsn: at.lsn,
        lineage: at.lineage,
    };
    Ok(LogRequest {
        archive,
        since: places
            .filter(|place| place.system == system)
            .map(place)
            .collect(),
        is_set_back: chain.is_set_back,
        patience: LOG_PATIENCE,
    })
}

/// The existing media on the devices, if they can be read: the pipeline refuses the others.
fn standing(session: &Session, devices: &[DeviceSpec]) -> Option<MediaSet> {
    let storage = &session.server.setup.context.storage;
    let opened: Vec<_> = devices.iter().map(|d| d.open(storage)).collect();
    // An object is not appended to.
    let files = opened.iter().all(|d| d.class() == DeviceClass::File);
    files.then(|| MediaSet::open(&opened).ok()).flatten()
}

/// Refuses to change one of several mirrors, by the history: the others would be left behind. A history that cannot be read
/// knows of none. Errors: 50000.
fn check_alone(session: &Session, before: Option<&MediaSet>) -> Result<(), Message> {
    let Some(media) = before else {
        return Ok(());
    };
    match media::mirror_count(session, media.header(0).media_set) > 1 {
        false => Ok(()),
        true => {
            let text = "these media were begun with MIRROR TO, and this version adds nothing to such media: name new devices, or \
                        use WITH FORMAT, which replaces what is on them";
            Err(message::OWN.with(&[&text]))
        }
    }
}

/// Algorithm and level: the statement's, otherwise the media's, otherwise those of settings and configuration.
fn codec(
    database: &Database,
    options: &Options,
    settings: &ServerSettings,
    defaults: &crate::server::Defaults,
    before: Option<&MediaSet>,
) -> (Algorithm, Level) {
    let compress = match options.compression {
        Some(CompressionChoice::Named { algorithm, level }) => {
            return (algorithm, level.unwrap_or_default());
        }
        Some(CompressionChoice::On) => true,
        Some(CompressionChoice::Off) => false,
        None => before.map_or(settings.compress, |media| media.header(0).compressed),
    };
    if !compress {
        return (Algorithm::None, Level::default());
    }
    let chosen = settings
        .algorithm
        .or(database.algorithm)
        .or(defaults.algorithm);
    let chosen = chosen.filter(|a| *a != Algorithm::None);
    let usual = chosen.unwrap_or(Algorithm::MsXpress);
    let level = database.level.or(defaults.level).unwrap_or_default();
    let Some(media) = before.filter(|m| m.header(0).compressed) else {
        return (usual, level);
    };
    if Container::of_set(usual, media.header(0).encrypted) == media.container() {
        return (usual, level);
    }
    // Another container cannot be appended: the last set's algorithm is used again.
    let last = media.sets().ok().and_then(|mut sets| sets.pop());
    match last {
        Some(set) => (set.header.algorithm, set.header.level),
        None => (usual, level),
    }
}

/// RETAINDAYS overrides EXPIREDATE; without either, the configuration's days apply, then the setting `media
/// retention`.
fn expires_us(session: &Session, options: &Options, settings: &ServerSettings) -> Option<i64> {
    let now_us = session.server.setup.context.clock.wall_ns() / 1000;
    let after = |days: u32| now_us.saturating_add(i64::from(days) * DAY_US);
    if let Some(days) = options.retain_days {
        return (days > 0).then(|| after(days));
    }
    if options.expires.is_some() {
        return options.expires;
    }
    let days = session.server.setup.defaults.retain_days;
    let days = days.or(settings.retain_days).filter(|d| *d > 0);
    days.map(after)
}

fn run(
    session: &mut Session,
    database: &Database,
    request: &BackupRequest,
    options: &Options,
    out: &mut Out,
) -> Result<BackupReport, Stop> {
    let (words, command) = kind(request);
    session.enter(words, &database.name);
    let context = session.context().equipped(&request.offload);
    let mut steps = options.stats.map(Steps::of);
    let asked = Request::Backup(request.clone());
    let moved = session.server.moved(&database.name);
    let result = watched(&context, &asked, &moved, |news| {
        hear(session, news, &mut steps, command, out)
    })?;
    let report = match result.map_err(|e| refusal::of(&e))? {
        Report::Backup(report) => report,
        Report::Restore(_) | Report::Verify(_) => {
            return Err(message::OWN
                .with(&[&"internal error: another answer"])
                .into());
        }
    };
    if steps.as_mut().is_some_and(|s| s.shows(100)) {
        let end = message::PERCENT_PROCESSED.with(&[&100]);
        out.say_done(end, command)?;
    }
    Ok(report)
}

fn say_end(
    session: &Session,
    database: &Database,
    request: &BackupRequest,
    options: &Options,
    report: &BackupReport,
    out: &mut Out,
) -> Flow {
    let (words, command) = kind(request);
    let run = &report.run;
    for warning in run
        .warnings
        .iter()
        .chain(&run.notes)
        .chain(&run.plan.notices)
    {
        session.server.write_log("Backup", warning);
    }
    for changed in &report.changed {
        let text = format!("{} {}", changed.path, changed.what);
        out.say(message::WARNING.with(&[&text]))?;
    }
    // Files that changed are told one by one.
    let is_count =
        |text: &String| text.ends_with("files changed while they were read; the set is marked");
    say_warnings(run, is_count, out)?;
    for (file, bytes) in files(session, database, request, report) {
        let line = message::FILE_PROCESSED;
        let line = line.with(&[&pages(bytes), &database.name, &file, &report.position]);
        out.say_done(line, command)?;
    }
    if report.damaged && options.continue_after_error {
        out.say(message::BACKUP_DAMAGED.plain())?;
    }
    if report.run.history_failed {
        out.say(message::HISTORY_FAILED.plain())?;
    }
    log_success(session, database, request, report);
    let statement = match request.base {
        Some(_) => "BACKUP DATABASE WITH DIFFERENTIAL",
        None => words,
    };
    let end = processed(statement, report.plain_bytes, report.run.elapsed_s);
    Ok(out.say_done(end, command)?)
}

/// The statement's name in messages, and its command.
fn kind(request: &BackupRequest) -> (&'static str, Command) {
    match request.log {
        Some(_) => ("BACKUP LOG", Command::BackupLog),
        None => ("BACKUP DATABASE", Command::BackupDatabase),
    }
}

/// The pages of each file, for message 4035.
fn files(
    session: &Session,
    database: &Database,
    request: &BackupRequest,
    report: &BackupReport,
) -> Vec<(String, u64)> {
    let one = |name: String| vec![(name, report.plain_bytes)];
    if let SourceSpec::Sqlite(path) = &database.source {
        let name = path.file_name().unwrap_or(path.as_os_str());
        return one(name.to_string_lossy().into_owned());
    }
    if request.log.is_some() {
        return one(LOG_FILE.into());
    }
    let listed = match report.totals.file_count as usize <= FILES_SHOWN_MAX {
        true => media::files(session, &request.devices, report.position),
        false => None,
    };
    listed.unwrap_or_else(|| one(database.name.clone()))
}

/// Logs 18264, unless trace flag 3226 suppresses it.
fn log_success(
    session: &Session,
    database: &Database,
    request: &BackupRequest,
    report: &BackupReport,
) {
    const SILENT: i64 = 3226;
    if session.traces(SILENT) {
        return;
    }
    let about = media::summary(session, &request.devices, report.position);
    let (first, last) = about.map_or((0, 0), |set| {
        let last = set.trailer.map_or(0, |t| t.log.last_lsn);
        (set.header.log.first_lsn, last)
    });
    let words = |device| device_words(device, report.position);
    let devices: Vec<_> = request.devices.iter().map(words).collect();
    if request.log.is_some() {
        let text = message::LOG_LOG_BACKED_UP.with(&[
            &database.name,
            &"unknown",
            &first,
            &last,
            &devices.len(),
            &devices.join(", "),
        ]);
        session.server.write_log("Backup", &text.text);
        return;
    }
    if request.base.is_some() {
        let text = message::LOG_DIFFERENTIAL.with(&[
            &database.name,
            &"unknown",
            &pages(report.plain_bytes),
            &first,
            &last,
            &request.devices.len(),
            &devices.join(", "),
        ]);
        session.server.write_log("Backup", &text.text);
        return;
    }
    let text = message::LOG_DATABASE_BACKED_UP.with(&[
        &database.name,
        &"unknown",
        &pages(report.plain_bytes),
        &first,
        &last,
        &devices.len(),
        &devices.join(", "),
    ]);
    session.server.write_log("Backup", &text.text);
}

fn device_words(device: &DeviceSpec, position: u32) -> String {
    let (kind, name) = match device {
        DeviceSpec::File(path) => ("DISK", path.display().to_string()),
        DeviceSpec::Nul => ("DISK", "NUL".to_owned()),
        DeviceSpec::Pipe => ("VIRTUAL_DEVICE", "-".to_owned()),
        DeviceSpec::Bucket(address) => ("URL", address.to_string()),
    };
    format!("FILE={position}, TYPE={kind}: {{'{name}'}}")
}
