//! Checks a PostgreSQL cluster: its server, its archive, and the way of one WAL segment from the server to the
//! archive.
//!
//! Invariants
//! - The only change is on the server: it switches to a new segment, so that one must arrive.
//! - If the server cannot be asked, the archive is still checked by itself.
//! - Every finding that is not good ends with the command that mends it.
//!
//! Leaves to others: the archive's gaps and records (`longshore-wal`), and grading (`check.rs`).

use std::path::PathBuf;
use std::time::Duration;

use longshore_io::Clock;
use longshore_pg::client::{Connection, Mode, Options};
use longshore_pg::{Lsn, SegmentName};
use longshore_repository::Shelf;
use longshore_wal::{Error as WalError, Run, WalArchive};

use serde::Serialize;

use super::debts::{self, FORBIDDEN};
use super::depth::CheckDepth;
use super::notes::{Notes, told};
use super::sending;
use super::standby;
use super::timeline;
use crate::commands::archive::ArchiveLocation;
use crate::commands::results::age_text;
use crate::commands::wal::{OwedReport, of_server};
use crate::config;
use crate::context::Context;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;

/// The destination of a cluster's WAL.
pub struct Archive<'a> {
    database: String,
    path: PathBuf,
    /// The archive's settings, if it is configured.
    wal: Option<&'a config::Wal>,
    /// Whether the target's backups were already compared with the archive.
    with_backups: bool,
    context: &'a Context,
}

impl<'a> Archive<'a> {
    pub fn of(name: &str, shelf: Option<&Shelf>, context: &'a Context) -> Option<Archive<'a>> {
        let place = ArchiveLocation::of_database(context, name, None).ok()?;
        Some(Archive {
            database: name.to_owned(),
            path: place.path(),
            wal: context.config.wal_of(name),
            with_backups: shelf.is_some(),
            context,
        })
    }

    /// `None`: nothing was ever archived, or the archive's file system is not mounted.
    fn open(&self) -> Result<Option<WalArchive>, WalError> {
        match WalArchive::existing(&*self.context.storage, &self.path) {
            Ok(archive) => Ok(Some(archive)),
            Err(WalError::NotAnArchive { .. } | WalError::NothingYet { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether an archive is there, even if nothing was archived yet.
    fn is_made(&self) -> bool {
        let found = WalArchive::existing(&*self.context.storage, &self.path);
        !matches!(found, Err(WalError::NotAnArchive { .. }))
    }

    /// Checks that segments are contiguous when no backups tell which are needed.
    fn look(&self, notes: &mut Notes) {
        let path = self.path.display();
        let runs = match WalArchive::existing(&*self.context.storage, &self.path) {
            Ok(archive) => archive.runs(),
            Err(WalError::NotAnArchive { .. } | WalError::NothingYet { .. })
                if self.wal.is_none() =>
            {
                return;
            }
            Err(WalError::NotAnArchive { .. }) => {
                let text = format!(
                    "{path} is not a WAL archive: mount its file system, or create one with `longshore wal create`"
                );
                return notes.bad("log", text);
            }
            Err(WalError::NothingYet { .. }) => {
                return notes.look("log", format!("{path} is still empty"));
            }
            Err(e) => Err(e),
        };
        if self.context.config.encryption.require
            && let Ok(Some(archive)) = self.open()
            && let Ok(Some(name)) = archive.unsealed()
        {
            let text = format!(
                "{name} and perhaps others are not encrypted, and [encryption] has require = true: nothing is recovered with them"
            );
            notes.bad("log", text);
        }
        if self.context.config.encryption.require_signature
            && let Ok(Some(archive)) = self.open()
            && let Ok(Some((name, why))) = archive.unsigned()
        {
            let text = format!("{name} and perhaps others: {why}: nothing is recovered with them");
            notes.bad("log", text);
        }
        match runs {
            Err(e) => notes.bad("log", told(&Failure::from(e))),
            Ok(_) if self.with_backups => {}
            Ok(runs) => {
                for pair in runs.windows(2) {
                    let (before, after) = (pair[0].span.last, pair[1].span.first);
                    if before.timeline == after.timeline {
                        let text = format!("segments between {before} and {after} are missing");
                        notes.bad("log", text);
                    }
                }
            }
        }
    }

    /// The finding on a segment that archive_command says it has archived, and that the archive has not, as with
    /// `archive_command = '/bin/true'`. An archive that is away, or is still empty, has findings of its own.
    fn lacking(&self, archiver: &Archiver) -> Option<String> {
        // The mark of a backup is archived after its segment.
        let name = archiver.last_archived_wal.as_deref()?.get(..24)?;
        let name: SegmentName = name.parse().ok()?;
        let archive = self.open().ok()??;
        let runs = archive.runs().ok()?;
        let has = |run: &Run| run.span.first <= name && name <= run.span.last;
        if runs.iter().any(has) {
            return None;
        }
        // A copy has what is owed.
        let owed = of_server(&self.database, self.context);
        if owed.is_some_and(|owed| !owed.debts.is_empty() || owed.unknown.is_some()) {
            return None;
        }
        Some(format!(
            "archive_command said that it archived {name}, and {} lacks it: does it run `longshore wal push %p --database {}`? Then make a \
             full backup (`longshore backup {1}`)",
            self.path.display(),
            self.database
        ))
    }

    /// Whether a receiver is connected to the replication slot.
    fn slot(&self, connection: &mut Connection, notes: &mut Notes) {
        let Some(slot) = self.wal.and_then(|wal| wal.slot.as_deref()) else {
            return;
        };
        let sql = format!(
            "SELECT active, coalesce(wal_status, '') FROM pg_replication_slots WHERE slot_name = '{}'",
            slot.replace('\'', "''")
        );
        let found = connection
            .query(&sql)
            .and_then(|rows| match rows.is_empty() {
                true => Ok(None),
                false => Ok(Some((rows.is_true(0, 0)?, rows.text(0, 1)?.to_owned()))),
            });
        match found {
            Ok(Some((_, status))) if status == "lost" => {
                notes.bad(
                    "slot",
                    format!("{slot}: the server removed WAL that the slot needs"),
                );
            }
            Ok(Some((true, _))) => notes.good("slot", format!("{slot} is being received from")),
            Ok(Some((false, _))) => {
                let text = format!("{slot}: no receiver is connected; the server keeps its WAL");
                notes.bad("slot", text);
            }
            Ok(None) => notes.bad("slot", format!("{slot} does not exist")),
            Err(e) => notes.bad("slot", e.to_string()),
        }
    }
}

/// The answers of a server.
#[derive(Default)]
pub struct ServerAnswers {
    /// On its archive_command, if it was asked.
    pub archiver: Option<Archiver>,
    /// On the list in its pg_wal, as far as that can be seen.
    pub owed: Option<OwedReport>,
    /// Its cluster's system identifier.
    pub system: Option<u64>,
}

/// Checks the archive by itself, then the server, then the way from the server to the archive.
pub fn look(
    (name, server): (&str, &Options),
    archive: Option<&Archive<'_>>,
    depth: &CheckDepth,
    context: &Context,
    notes: &mut Notes,
) -> ServerAnswers {
    if let Some(archive) = archive {
        archive.look(notes);
    }
    let asked =
        Connection::open(&*context.storage, server, Mode::Sql).and_then(|mut connection| {
            let facts = ServerFacts::ask(&mut connection)?;
            Ok((connection, facts))
        });
    let (mut connection, facts) = match asked {
        Ok(asked) => asked,
        Err(e) => {
            let failure = Failure::of(Exit::Source, &e, numbers::SOURCE, e.hint());
            notes.bad("source", told(&failure));
            let owed = debts::look(name, None, context, notes);
            return ServerAnswers {
                owed,
                ..ServerAnswers::default()
            };
        }
    };
    let owed = debts::look(name, Some(&mut connection), context, notes);
    let archiver = archiving(
        (server, &facts, context),
        &mut connection,
        archive,
        depth,
        notes,
    );
    ServerAnswers {
        archiver,
        owed,
        system: facts.system,
    }
}

/// Checks the server, and the way from it to the archive.
fn archiving(
    (server, facts, context): (&Options, &ServerFacts, &Context),
    connection: &mut Connection,
    archive: Option<&Archive<'_>>,
    depth: &CheckDepth,
    notes: &mut Notes,
) -> Option<Archiver> {
    let place = server.for_people();
    notes.good("source", format!("{place}: PostgreSQL {}", facts.version));
    if facts.wal_level == "minimal" {
        notes.bad(
            "source",
            "wal_level is minimal: no online backup is possible",
        );
    }
    if facts.is_standby {
        let opened = archive.map(|archive| move || archive.open());
        let opened = opened.as_ref().map(|open| open as standby::Opened<'_>);
        standby::look(connection, opened, depth, &*context.clock, notes);
        return None;
    }
    if let Some(archive) = archive {
        archive.slot(connection, notes);
        let configured = archive.wal.and_then(|wal| wal.slot.as_deref());
        sending::default_slot(connection, configured, notes);
        if let Ok(Some(archive)) = archive.open() {
            timeline::look(connection, &archive, notes);
        }
    }
    match depth {
        CheckDepth {
            only_looks: true, ..
        } if archive.is_none() && facts.archive_mode != "off" => archiver(connection, None, notes),
        CheckDepth {
            only_looks: true, ..
        } => arrival(connection, facts, archive, 0, notes),
        CheckDepth { archive_wait, .. } => {
            arrival(connection, facts, archive, *archive_wait, notes)
        }
    }
}

/// A server's facts about itself.
struct ServerFacts {
    version: String,
    wal_level: String,
    archive_mode: String,
    is_standby: bool,
    /// `None`: the user may not ask.
    system: Option<u64>,
}

impl ServerFacts {
    fn ask(connection: &mut Connection) -> Result<ServerFacts, longshore_pg::client::Error> {
        let rows = connection.query(
            "SELECT current_setting('server_version'), current_setting('wal_level'), \
             current_setting('archive_mode'), pg_is_in_recovery()",
        )?;
        let text = |column| rows.text(0, column).map(str::to_owned);
        let system = connection.query("SELECT system_identifier FROM pg_control_system()");
        let system = system.and_then(|rows| rows.value::<i64>(0, 0));
        Ok(ServerFacts {
            version: text(0)?,
            wal_level: text(1)?,
            archive_mode: text(2)?,
            is_standby: rows.is_true(0, 3)?,
            system: system.ok().map(i64::cast_unsigned),
        })
    }
}

/// Whether a segment of a primary arrives in the archive within `wait_s` seconds, and whether archive_command succeeds. With 0
/// the server switches no segment, and its own report is all that there is.
fn arrival(
    connection: &mut Connection,
    facts: &ServerFacts,
    archive: Option<&Archive<'_>>,
    wait_s: u32,
    notes: &mut Notes,
) -> Option<Archiver> {
    let is_empty = |a: &Archive<'_>| a.wal.is_none() && matches!(a.open(), Ok(None));
    if archive.is_none_or(is_empty) {
        // One that `wal create` has made is still empty, and meant.
        let is_made = archive.is_some_and(Archive::is_made);
        if facts.archive_mode == "off" {
            notes.look(
                "archive",
                "no WAL archive is configured: a restore goes to the end of a backup, not to any moment",
            );
            return None;
        }
        if !is_made {
            notes.good(
                "archive",
                "archive_command archives elsewhere, and backups hold the WAL that they need: a restore by Longshore goes to the end \
                 of a backup; with [database.NAME.wal] it goes to any moment",
            );
            return archiver(connection, None, notes);
        }
    }
    let archive = archive?;
    match nobody_archives(connection, &facts.archive_mode) {
        Ok(false) => {}
        Ok(true) => {
            notes.bad(
                "archive",
                "archive_mode is off, and no receiver is connected: set archive_mode = on, which needs a restart, \
                 and archive_command; or run `longshore wal receive`",
            );
            return None;
        }
        Err(e) => {
            notes.bad("archive", e.to_string());
            return None;
        }
    }
    if wait_s > 0 {
        match round_trip(connection, archive, wait_s) {
            Ok(text) => notes.good("archive", text),
            Err(text) => notes.bad("archive", text),
        }
    }
    match facts.archive_mode.as_str() {
        "off" => None,
        _ => archiver(connection, Some(archive), notes),
    }
}

/// A server's report on its archive_command. Times are in microseconds since the Unix epoch.
#[derive(Debug, Serialize)]
pub struct Archiver {
    last_archived_wal: Option<String>,
    last_archived_us: Option<i64>,
    failed_count: u64,
    last_failed_wal: Option<String>,
    last_failed_us: Option<i64>,
    /// Whether the last call failed.
    fails: bool,
    /// The number of files that wait; `None` if the role may not read it.
    ready: Option<u64>,
    oldest_ready: Option<String>,
    oldest_ready_age_s: Option<u64>,
}

/// The age in seconds from which a waiting file is a finding.
const READY_AGE_MAX_S: u64 = 300;

impl Archiver {
    fn ask(connection: &mut Connection) -> Result<Archiver, longshore_pg::client::Error> {
        let us = |column: &str| format!("floor(extract(epoch from {column}) * 1000000)::bigint");
        let sql = format!(
            "SELECT last_archived_wal, {}, failed_count, last_failed_wal, {}, \
             coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) FROM pg_stat_archiver",
            us("last_archived_time"),
            us("last_failed_time")
        );
        let rows = connection.query(&sql)?;
        let text = |column| {
            let is_there = rows.bytes(0, column).is_some();
            is_there
                .then(|| rows.text(0, column).map(str::to_owned))
                .transpose()
        };
        let number = |column| {
            let is_there = rows.bytes(0, column).is_some();
            is_there.then(|| rows.value(0, column)).transpose()
        };
        let mut archiver = Archiver {
            last_archived_wal: text(0)?,
            last_archived_us: number(1)?,
            failed_count: rows.value(0, 2)?,
            last_failed_wal: text(3)?,
            last_failed_us: number(4)?,
            fails: rows.is_true(0, 5)?,
            ready: None,
            oldest_ready: None,
            oldest_ready_age_s: None,
        };
        let sql = "SELECT count(*), min(name), greatest(0, floor(extract(epoch from now() - min(modification))))::bigint \
                   FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready'";
        match connection.query(sql) {
            Ok(rows) => {
                archiver.ready = Some(rows.value(0, 0)?);
                if rows.bytes(0, 1).is_some() {
                    let oldest = rows.text(0, 1)?.trim_end_matches(".ready");
                    archiver.oldest_ready = Some(oldest.to_owned());
                    archiver.oldest_ready_age_s = Some(rows.value(0, 2)?);
                }
            }
            Err(e) if e.sqlstate() == Some(FORBIDDEN) => {}
            Err(e) => return Err(e),
        }
        Ok(archiver)
    }
}

/// Whether archive_command succeeds, and whether files wait for it.
fn archiver(
    connection: &mut Connection,
    archive: Option<&Archive<'_>>,
    notes: &mut Notes,
) -> Option<Archiver> {
    let what = "archiver";
    let archiver = match Archiver::ask(connection) {
        Ok(archiver) => archiver,
        Err(e) => {
            notes.bad(what, e.to_string());
            return None;
        }
    };
    match sending::no_command(connection) {
        Ok(None) => {}
        Ok(Some((grade, text))) => {
            notes.note(what, grade, text);
            return Some(archiver);
        }
        Err(e) => notes.bad(what, e.to_string()),
    }
    let is_old = archiver
        .oldest_ready_age_s
        .is_some_and(|age| age > READY_AGE_MAX_S);
    if archiver.fails {
        let text = format!(
            "archive_command fails, last with {}, {} times in all; {} files wait: see the server's log, or run \
             `longshore wal push pg_wal/FILE` with the options of archive_command",
            archiver.last_failed_wal.as_deref().unwrap_or("a file"),
            archiver.failed_count,
            archiver
                .ready
                .map_or_else(|| "some".to_owned(), |n| n.to_string()),
        );
        notes.bad(what, text);
    } else if let (true, Some(oldest), Some(age)) =
        (is_old, &archiver.oldest_ready, archiver.oldest_ready_age_s)
    {
        let text = format!(
            "{} files wait to be archived, {oldest} for {}",
            archiver.ready.unwrap_or(1),
            age_text(i64::try_from(age).unwrap_or(i64::MAX))
        );
        notes.bad(what, text);
    } else if let Some(text) = archive.and_then(|archive| archive.lacking(&archiver)) {
        notes.bad(what, text);
    } else {
        let waiting = match archiver.ready {
            Some(n) => format!("{n} files wait"),
            None => "only a role with pg_monitor can see how many files wait".to_owned(),
        };
        match sending::success(connection, archiver.ready, archiver.oldest_ready_age_s) {
            Ok(text) => notes.good(what, format!("{text}; {waiting}")),
            Err(e) => notes.bad(what, e.to_string()),
        }
    }
    Some(archiver)
}

/// No WAL can arrive, so there is nothing to wait for.
fn nobody_archives(
    connection: &mut Connection,
    archive_mode: &str,
) -> Result<bool, longshore_pg::client::Error> {
    if archive_mode != "off" {
        return Ok(false);
    }
    let rows = connection.query("SELECT NOT EXISTS (SELECT FROM pg_stat_replication)")?;
    rows.is_true(0, 0)
}

/// The server's report on an archive_command that fails.
fn failing(connection: &mut Connection) -> Option<String> {
    let sql = "SELECT last_failed_wal, failed_count FROM pg_stat_archiver \
               WHERE last_failed_time > coalesce(last_archived_time, '-infinity')";
    let rows = connection.query(sql).ok().filter(|rows| !rows.is_empty())?;
    let (wal, count) = (rows.text(0, 0).ok()?, rows.text(0, 1).ok()?);
    Some(format!(
        "; archive_command fails, last with {wal}, {count} times in all: see the server's log"
    ))
}

const RIGHTS: &str = "to test whether WAL arrives, the role needs `grant execute on \
                      function pg_create_restore_point(text), pg_switch_wal()`; --archive-wait 0 skips the test";

/// Switches the WAL segment and waits until it has arrived. Compares the content, because another branch of the
/// cluster may have archived a segment of the same name.
fn round_trip(
    connection: &mut Connection,
    archive: &Archive<'_>,
    wait_s: u32,
) -> Result<String, String> {
    // Writes WAL first: without any, the server would not switch the segment.
    let clock: &dyn Clock = &*archive.context.clock;
    let point = format!("longshore check {}.{}", clock.wall_ns(), std::process::id());
    let sql = format!(
        "SELECT pg_walfile_name(lsn), lsn FROM (SELECT pg_create_restore_point('{point}') AS lsn) AS made"
    );
    let refused = |e: longshore_pg::client::Error| match e.sqlstate() {
        Some(FORBIDDEN) => format!("{e}: {RIGHTS}"),
        _ => e.to_string(),
    };
    let rows = connection.query(&sql).map_err(refused)?;
    let name = rows.text(0, 0).map_err(|e| e.to_string())?.to_owned();
    let end: Lsn = rows.value(0, 1).map_err(|e| e.to_string())?;
    connection
        .query("SELECT pg_switch_wal()")
        .map_err(refused)?;
    let segment: SegmentName = name.parse()?;
    let until = clock.now() + Duration::from_secs(wait_s.into());
    loop {
        let found = archive.open().map_err(|e| e.to_string())?;
        let arrived = found.map(|a| (a.ends_with_point(segment, point.as_bytes(), end), a));
        match arrived {
            Some((Ok(true), _)) => return Ok(format!("{name} arrived")),
            // The archived file of this name differs from the segment that the server has just written.
            Some((Ok(false), archive)) => {
                let other = WalError::OtherBranch {
                    archive: archive.path().to_owned(),
                    name: segment,
                    path: "the server's".into(),
                };
                return Err(format!("{other}: {}", other.hint()));
            }
            // Its name alone does not show whose it is: the server says that its own push was accepted, which compares.
            Some((Err(e @ WalError::Unopened { .. }), _)) if !e.is_tampering() => {
                let sql = format!(
                    "SELECT coalesce(last_archived_wal >= '{name}', false) FROM pg_stat_archiver"
                );
                let rows = connection.query(&sql).map_err(refused)?;
                if rows.is_true(0, 0).map_err(|e| e.to_string())? {
                    return Ok(format!(
                        "{name} arrived, as the server says; it is encrypted, and was not read"
                    ));
                }
            }
            None | Some((Err(WalError::Missing { .. }), _)) => {}
            Some((Err(e), _)) => return Err(e.to_string()),
        }
        if clock.now() >= until {
            let why = failing(connection).unwrap_or_else(|| {
                "; archive_command or `longshore wal receive` must archive it".into()
            });
            return Err(format!(
                "{name} did not arrive at {} within {wait_s} s{why}",
                archive.path.display()
            ));
        }
        clock.sleep(Duration::from_millis(250));
    }
}
