//! The state that all sessions share: the databases, the catalog's settings, logical backup devices, the log.
//!
//! Invariants
//! - The crate knows neither configuration files nor the command line: the caller that starts a [`Server`] lists the
//!   databases and the base of relative device names in a [`Setup`].
//! - A start is SQL Server's restart: settings that wait for a restart take effect.
//!
//! Leaves to others: one session (`session.rs`), and statements (`statement`).

mod checks;
mod credentials;
mod database;
mod keys;
mod locks;
pub(crate) mod objects;
mod open;
mod persistent;
mod sessions;
mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use longshore_accelerators::{AcceleratorSettings, Probe};
use longshore_catalog::Catalog;
use longshore_codec::{Algorithm, Level};
use longshore_media::Recipients;
use longshore_pipeline::{Limits, RunContext, Tuning};
use parking_lot::Mutex;

pub(crate) use self::credentials::CredentialRow;
pub use self::database::{Database, Databases, Unusable};
pub(crate) use self::keys::{KeyError, Keys, OpenMaster, master_context, text_of_date};
pub(crate) use self::locks::{
    AppLocks, LOCKS_MAX, LockAnswer, LockModes, LockName, LockOwner, LockWait,
};
pub(crate) use self::objects::is_shared;
pub(crate) use self::open::{OpenTables, SessionKey};
use self::persistent::PersistentState;
pub use self::sessions::ClientLink;
use self::sessions::SessionList;
pub(crate) use self::sessions::{
    SESSION_FIRST, SESSION_LAST, SessionFacts, SessionNumber, SessionState,
};
use crate::convert::{in_ticks, parse_moment};
use crate::errorlog::ErrorLog;
use crate::memory::Memory;
use crate::message::{self, Message};
use crate::value::DateTime;

/// The configuration's values for whatever statements leave open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Defaults {
    pub tuning: Tuning,
    pub limits: Limits,
    /// Applies before the setting `media retention`.
    pub retain_days: Option<u32>,
    /// The algorithm of compressed backups if neither the database nor a setting chooses one.
    pub algorithm: Option<Algorithm>,
    pub level: Option<Level>,
}

/// Tests accelerators; the configured mode decides how thoroughly.
pub type Prober = dyn Fn(AcceleratorSettings) -> Vec<Probe> + Send + Sync;

/// The names of all who may log in, as they are now.
pub type Logins = dyn Fn() -> Vec<String> + Send + Sync;

/// The parts of a server.
#[derive(Clone)]
pub struct Setup {
    /// `@@SERVERNAME`.
    pub name: String,
    /// Each session replaces its cancel flag by its own.
    pub context: RunContext,
    pub databases: Arc<dyn Databases>,
    pub defaults: Defaults,
    /// For whom backups are encrypted; `None`: they are not. An error refuses every backup.
    pub encrypt_to: Result<Option<Recipients>, Unusable>,
    /// Absolute; the base of relative device names.
    pub backup_directory: PathBuf,
    /// The directories (with everything below) that statements may name; `None`: everything. A configured database is
    /// always read and restored at its own location.
    pub directories: Option<Vec<PathBuf>>,
    /// The prefixes of buckets, `s3://BUCKET/PREFIX` without a slash at the end, below which statements may name
    /// objects; `None`: all of them.
    pub buckets: Option<Vec<String>>,
    /// Prefixes of targets: no statement writes there.
    pub kept_buckets: Vec<String>,
    /// Files and directories that no statement may overwrite, in addition to the catalog and the databases' own.
    pub reserved: Vec<PathBuf>,
    pub prober: Arc<Prober>,
    /// Whom IS_SRVROLEMEMBER knows, besides the session's own login; none where there are no logins.
    pub logins: Arc<Logins>,
    /// The memory bound for all sessions together.
    pub memory: Memory,
}

/// A session's present activity: a row of `sys.dm_exec_requests`.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    pub command: &'static str,
    pub database: String,
    pub start: DateTime,
    pub percent: Option<u8>,
    /// The statement, without its secrets.
    pub text: String,
}

/// A statement that a session runs now, for other views than `sys.dm_exec_requests`.
#[derive(Debug, Clone)]
pub struct RunningRequest {
    pub session: u32,
    /// As `command` of the view: `BACKUP DATABASE`.
    pub command: &'static str,
    pub database: String,
    /// Microseconds since the Unix epoch.
    pub since_us: i64,
    pub percent: Option<u8>,
}

/// Shared by all sessions; give it to them in an [`Arc`].
pub struct Server {
    pub(crate) setup: Setup,
    pub(crate) started: DateTime,
    pub(crate) kept: PersistentState,
    pub(crate) keys: Keys,
    pub(crate) activities: Mutex<BTreeMap<u32, Activity>>,
    /// How many bytes backups and restores have moved, by databases in lower case.
    moved: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    /// Trace flags of all sessions (`DBCC TRACEON (…, -1)`).
    pub(crate) trace_flags: Mutex<BTreeSet<i64>>,
    pub(crate) log: ErrorLog,
    /// Databases that a session is restoring now, in lower case.
    restoring: Mutex<BTreeSet<String>>,
    pub(crate) sessions: SessionList,
    /// Names that scripts have locked.
    pub(crate) locks: AppLocks,
    next_key: AtomicU64,
    /// Held while rows of tables that stay, or a table's definition, are changed.
    pub(crate) open: Mutex<OpenTables>,
}

/// A database that only one session restores until this is dropped: each step of a restore reads the state left by
/// earlier steps when it begins, and writes it back when it ends.
pub(crate) struct RestoreLock {
    server: Arc<Server>,
    name: String,
}

impl RestoreLock {
    /// Errors: 3101.
    pub fn with(server: &Arc<Server>, name: &str) -> Result<RestoreLock, Message> {
        let name = name.to_lowercase();
        match server.restoring.lock().insert(name.clone()) {
            true => Ok(RestoreLock {
                server: server.clone(),
                name,
            }),
            false => Err(message::EXCLUSIVE_ACCESS.plain()),
        }
    }
}

impl Drop for RestoreLock {
    fn drop(&mut self) {
        self.server.restoring.lock().remove(&self.name);
    }
}

impl Server {
    /// Settings that waited for a restart take effect. A catalog that cannot be read is logged, and the server starts
    /// without it: backups must not depend on it.
    pub fn start(setup: Setup) -> Arc<Server> {
        let context = &setup.context;
        let log = ErrorLog::beside(context.storage.clone(), context.catalog.as_deref());
        let server = Server {
            started: local(context.clock.wall_ns() / 1000),
            log,
            kept: PersistentState::new(context),
            keys: Keys::new(context),
            setup,
            activities: Mutex::default(),
            moved: Mutex::default(),
            trace_flags: Mutex::default(),
            restoring: Mutex::default(),
            sessions: SessionList::default(),
            locks: AppLocks::default(),
            next_key: AtomicU64::default(),
            open: Mutex::default(),
        };
        if let Some(path) = server.known_catalog() {
            let restarted = Catalog::open(path).and_then(|catalog| catalog.restart());
            if let Err(error) = restarted {
                server.write_log("Server", &format!("Server settings were not read: {error}"));
            }
        }
        server.kept.refresh();
        Arc::new(server)
    }

    /// The counter of bytes that backups and restores of a database have moved since the start.
    pub(crate) fn moved(&self, database: &str) -> Arc<AtomicU64> {
        let mut all = self.moved.lock();
        all.entry(database.to_lowercase()).or_default().clone()
    }

    /// The catalog's path, if it exists: a query does not create it.
    pub(crate) fn known_catalog(&self) -> Option<&Path> {
        self.kept.known_catalog()
    }

    /// The catalog; created if it is missing.
    pub(crate) fn catalog(&self) -> Result<Catalog, Message> {
        self.kept.catalog()
    }

    /// The sessions that wait for a lock, by their numbers.
    pub(crate) fn lock_waits(&self) -> BTreeMap<u32, LockWait> {
        self.locks.waits(self.setup.context.clock.now())
    }

    pub(crate) fn session_key(&self) -> SessionKey {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Local time, to the millisecond.
    pub(crate) fn now(&self) -> DateTime {
        local(self.setup.context.clock.wall_ns() / 1000)
    }

    /// The rows of `sys.dm_exec_requests`.
    pub fn running_requests(&self) -> Vec<RunningRequest> {
        let request = |(session, activity): (u32, Activity)| RunningRequest {
            session,
            command: activity.command,
            database: activity.database,
            since_us: TimeZone::system()
                .to_ambiguous_timestamp(activity.start)
                .compatible()
                .map_or(0, jiff::Timestamp::as_microsecond),
            percent: activity.percent,
        };
        let activities = self.activities.lock().clone();
        activities.into_iter().map(request).collect()
    }

    /// Writes a line to the log that `sp_readerrorlog` shows. `source`: the component that writes.
    pub fn write_log(&self, source: &str, text: &str) {
        self.log.append(self.now(), source, text);
    }

    /// The database of this name, ignoring case if only one matches. `Ok(None)`: there is none.
    pub(crate) fn database(&self, name: &str) -> Result<Option<Database>, Unusable> {
        let names = self.database_names();
        let found = names.iter().find(|n| *n == name).or_else(|| {
            let mut alike = names.iter().filter(|n| n.eq_ignore_ascii_case(name));
            alike.next().filter(|_| alike.next().is_none())
        });
        let Some(name) = found else {
            return Ok(None);
        };
        if self.is_configured(name) {
            return self.setup.databases.find(name);
        }
        self.kept.restored(name).map_err(|waiting| Unusable {
            text: message::IN_RESTORE.with(&[&name]).text,
            hint: "end it with RESTORE DATABASE … WITH RECOVERY".into(),
            place: Some(waiting.target),
        })
    }

    /// Whether a database's WAL is archived, so that its recovery model is FULL.
    pub(crate) fn is_logged(&self, name: &str) -> bool {
        match self.database(name) {
            Ok(Some(database)) => database.recovery_is_full(),
            Ok(None) | Err(_) => false,
        }
    }

    /// A configured database keeps its configured location, wherever a backup of it is restored.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.setup.databases.names().iter().any(|n| n == name)
    }

    /// Configured ones first.
    pub(crate) fn database_names(&self) -> Vec<String> {
        let mut names = self.setup.databases.names();
        let known = self.kept.names().into_iter();
        let new: BTreeSet<_> = known.filter(|n| !names.contains(n)).collect();
        names.extend(new);
        names
    }
}

/// Local wall time of a moment, in microseconds since 1970, to the millisecond.
pub(crate) fn local(unix_us: i64) -> DateTime {
    let at = jiff::Timestamp::from_millisecond(unix_us.div_euclid(1000)).unwrap_or_default();
    let at = at.to_zoned(jiff::tz::TimeZone::system()).datetime();
    in_ticks(at).unwrap_or(at)
}

/// The moment that a script names, in microseconds since 1970: local wall time, or a time with its own offset from
/// UTC.
///
/// Errors: a text that explains why it is ambiguous or invalid; `None` if it is not a moment at all.
pub(crate) fn moment_us(text: &str) -> Result<i64, Option<String>> {
    moment_in(text, &TimeZone::system())
}

fn moment_in(text: &str, here: &TimeZone) -> Result<i64, Option<String>> {
    let (at, offset_min) = parse_moment(text).ok_or(None)?;
    let offset = match offset_min {
        Some(minutes) => Offset::from_seconds(i32::from(minutes) * 60).map_err(|_| None)?,
        None => match here.to_ambiguous_zoned(at).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { .. } => {
                return Err(Some(format!(
                    "{at} does not exist here: the clock is put forward over it"
                )));
            }
            AmbiguousOffset::Fold { before, after } => {
                let (before, after) = (offset_text(before), offset_text(after));
                return Err(Some(format!(
                    "{at} occurs twice here: write '{at}{before}' or '{at}{after}'"
                )));
            }
        },
    };
    match offset.to_timestamp(at) {
        Ok(found) => Ok(found.as_microsecond()),
        // The last possible days, `99991231`, mean never.
        Err(_) if at.year() == 9999 => Ok(jiff::Timestamp::MAX.as_microsecond()),
        Err(_) => Err(None),
    }
}

/// In the form of scripts: `+02:00`.
fn offset_text(offset: Offset) -> String {
    let minutes = offset.seconds() / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a moment is never another one than was written: its own zone applies, and a wall time that occurs twice
    /// or never is refused with the form to write instead.
    #[test]
    fn a_moment_is_the_one_that_its_zone_says_and_no_other() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |text| moment_in(text, &berlin);
        let us = |text: &str| Ok(text.parse::<jiff::Timestamp>().unwrap().as_microsecond());
        for (text, expected) in [
            ("2027-01-31T06:00:00", "2027-01-31T05:00:00Z"),
            ("2027-07-31 06:00", "2027-07-31T04:00:00Z"),
            ("2027-01-31T06:00:00Z", "2027-01-31T06:00:00Z"),
            ("2027-01-31T06:00:00-00:01", "2027-01-31T06:01:00Z"),
            ("2027-01-31 06:00:00 +02:00", "2027-01-31T04:00:00Z"),
            ("2026-10-25T02:30:00+01:00", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(at(text), us(expected), "{text}");
        }
        let twice = at("2026-10-25T02:30:00").unwrap_err().unwrap();
        for text in ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"] {
            assert!(twice.contains(&format!("'{text}'")), "{twice}");
        }
        let never = at("2027-03-28T02:30:00").unwrap_err().unwrap();
        assert!(never.contains("does not exist here"), "{never}");
        for text in [
            "2027-01-31T06:00:00[Europe/Berlin]",
            "2027-01-31T06:00:00+2",
            "soon",
        ] {
            assert_eq!(at(text), Err(None), "{text}");
        }
    }
}
