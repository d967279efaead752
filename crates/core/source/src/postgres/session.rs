//! The session that begins and ends the backup on the server.
//!
//! Invariants
//! - If the session ends, the server aborts the backup. So it is pinged while files are copied, and a backup whose
//!   session was lost fails.
//! - A temporary replication slot with a name of its own keeps the WAL that the backup needs.
//!
//! Leaves to others: reading files, and the wire protocol (`longshore-pg`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_io::{Clock, Storage};
use longshore_pg::client::{self, Connection, Mode, Options};
use longshore_pg::set_notes::ConfigFacts;
use longshore_pg::wal::{HISTORY_LEN_MAX, WalName};
use longshore_pg::{BackupLabel, Lsn, Timeline};
use parking_lot::Mutex;

use super::standby::StandbyState;
use crate::Error;
use crate::majors::{MAJOR_MAX, MAJOR_MIN};

/// How long a session may be silent before it is pinged.
const PING_EVERY: Duration = Duration::from_secs(5);
/// How long a busy server may take to answer.
const PING_PATIENCE: Duration = Duration::from_secs(60);
/// Prefix of the slot that keeps the WAL; the session's process number makes the name unique.
const SLOT_PREFIX: &str = "longshore_backup_";
/// SQLSTATE of a statement that a standby cancelled because replay conflicted with it.
const CANCELLED: &str = "40001";
/// How many times a cancelled statement is tried.
const TRIES_MAX: u32 = 10;

pub(super) struct Session {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
    /// When the server last answered, in milliseconds of `clock`.
    answered_ms: AtomicU64,
    address: String,
    pub(super) about: ServerFacts,
}

/// The server's statements about itself.
#[derive(Debug, Clone)]
pub(super) struct ServerFacts {
    pub(super) major: u32,
    pub(super) in_recovery: bool,
    pub(super) data_directory: String,
    pub(super) cluster_name: String,
    pub(super) system: u64,
    /// When the server was started, in microseconds since the Unix epoch, by its own clock: no two runs have the same.
    pub(super) started_us: i64,
}

/// A row of the list of databases. Any change of the database changes its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) oid: u32,
    pub(super) name: String,
    /// OID of the database's default tablespace.
    pub(super) tablespace: u32,
    /// The transaction that wrote the row.
    written_by: u32,
}

/// A database that may be asked for more than this session can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectableDatabase {
    pub(super) oid: u32,
    /// `None`: it is not UTF-8.
    pub(super) name: Option<String>,
    /// OID of the database's default tablespace.
    pub(super) tablespace: u32,
    /// Whether it takes connections, and this role's.
    pub(super) may_connect: bool,
}

/// The server's result at the end of the backup.
pub(super) struct StopResult {
    pub(super) stop: Lsn,
    pub(super) label: BackupLabel,
    /// Byte for byte.
    pub(super) label_text: Vec<u8>,
    /// Empty without tablespaces.
    pub(super) map_text: Vec<u8>,
}

/// The state of the WAL when a segment was closed.
pub(super) struct SegmentEnd {
    /// The server's time before, in microseconds since the Unix epoch.
    pub(super) at_us: i64,
    pub(super) segment_bytes: u64,
    /// The end of the meaningful bytes in the closed segment.
    pub(super) end: Lsn,
    /// A segment's name, which gives the timeline.
    pub(super) segment: String,
    /// The low 32 bits of the number of the committed transaction.
    pub(super) transaction: u32,
    /// The server's time afterwards.
    pub(super) by_us: i64,
}

impl Session {
    pub(super) fn open(
        storage: &dyn Storage,
        options: &Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Session, Error> {
        let mut connection =
            Connection::open(storage, options, Mode::Sql).map_err(|e| Error::Server {
                action: "connect to",
                source: Box::new(e),
            })?;
        let about = look(&mut connection)?;
        let address = connection.address().to_owned();
        let session = Session {
            connection: Mutex::new(connection),
            answered_ms: AtomicU64::new(0),
            clock,
            address,
            about,
        };
        session.note_answer();
        Ok(session)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn note_answer(&self) {
        let now_ms = self.clock.now().as_millis() as u64;
        self.answered_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Runs `attempt`, again if a standby cancelled one of its statements; `attempt` receives the number of the try,
    /// from 1. Such a cancellation also removes the session's slot; a backup that has begun goes on.
    pub(super) fn despite_replay<T>(
        &self,
        mut attempt: impl FnMut(u32) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tries = 1;
        loop {
            match attempt(tries) {
                Err(Error::Server { action, source })
                    if source.sqlstate() == Some(CANCELLED) && tries < TRIES_MAX =>
                {
                    tracing::info!(action, tries, "replay cancelled a statement of the backup");
                    tries += 1;
                }
                done => return done,
            }
        }
    }

    /// Creates a slot that keeps every segment from the latest checkpoint on until the session ends.
    pub(super) fn keep_log(&self) -> Result<(), Error> {
        let sql = format!(
            "select pg_create_physical_replication_slot('{SLOT_PREFIX}' || pg_backend_pid(), true, true)"
        );
        self.ask("create a slot that keeps the WAL", &sql).map(drop)
    }

    /// Whether the server summarizes its WAL.
    pub(super) fn summarizes(&self) -> Result<bool, Error> {
        let sql = "select coalesce(current_setting('summarize_wal', true), 'off')";
        self.ask("ask", sql)?.is_true(0, 0).map_err(misread)
    }

    /// All databases, by OID.
    pub(super) fn databases(&self) -> Result<Vec<Database>, Error> {
        let sql = "select oid, datname, dattablespace, xmin from pg_database order by oid";
        let rows = self.despite_replay(|_| self.ask("list the databases of", sql))?;
        let database = |row| {
            Ok(Database {
                oid: rows.value(row, 0)?,
                // The name is in the database's own encoding.
                name: String::from_utf8_lossy(rows.bytes(row, 1).unwrap_or_default()).into_owned(),
                tablespace: rows.value(row, 2)?,
                written_by: rows.value(row, 3)?,
            })
        };
        (0..rows.len())
            .map(database)
            .collect::<Result<_, _>>()
            .map_err(misread)
    }

    /// All databases, and whether this role may connect to them.
    pub(super) fn connectable(&self) -> Result<Vec<ConnectableDatabase>, Error> {
        let sql = "select oid, datname, dattablespace, \
                   datallowconn and has_database_privilege(oid, 'connect') \
                   from pg_database order by oid";
        let rows = self.despite_replay(|_| self.ask("list the databases of", sql))?;
        let database = |row| {
            Ok(ConnectableDatabase {
                oid: rows.value(row, 0)?,
                name: rows.text(row, 1).ok().map(str::to_owned),
                tablespace: rows.value(row, 2)?,
                may_connect: rows.is_true(row, 3)?,
            })
        };
        (0..rows.len())
            .map(database)
            .collect::<Result<_, _>>()
            .map_err(misread)
    }

    /// Where the configuration of the server is; `data` is its data directory without links.
    pub(super) fn configuration(&self, data: &Path) -> Result<ConfigFacts, Error> {
        let sql = "select current_setting('config_file'), current_setting('hba_file'), current_setting('ident_file')";
        let rows = self.despite_replay(|_| self.ask("ask for the configuration of", sql))?;
        let path = |column| {
            let given = rows.bytes(0, column).unwrap_or_default();
            data.join(Path::new(OsStr::from_bytes(given)))
        };
        Ok(ConfigFacts {
            data_directory: self.about.data_directory.clone().into(),
            config_file: path(0),
            hba_file: path(1),
            ident_file: path(2),
        })
    }

    /// The files from which the server would take settings now; none if the role may not see them.
    pub(super) fn setting_files(&self) -> Result<Vec<PathBuf>, Error> {
        let may = "select has_table_privilege('pg_file_settings', 'select') \
                   and has_function_privilege('pg_show_all_file_settings()', 'execute')";
        let rows = self.despite_replay(|_| self.ask("ask", may))?;
        if !rows.is_true(0, 0).map_err(misread)? {
            return Ok(Vec::new());
        }
        let sql = "select distinct sourcefile from pg_file_settings where sourcefile is not null";
        let rows = self.despite_replay(|_| self.ask("ask for the configuration files of", sql))?;
        let names = (0..rows.len()).filter_map(|row| rows.bytes(row, 0));
        Ok(names
            .map(|name| PathBuf::from(OsStr::from_bytes(name)))
            .collect())
    }

    /// Makes a checkpoint. This statement holds no snapshot, so replay does not cancel it, and the backup's own
    /// checkpoint is then short. If the role may not make checkpoints, the backup's own takes as long as before.
    pub(super) fn checkpoint(&self) {
        if let Err(error) = self.ask("make a checkpoint in", "checkpoint") {
            tracing::info!(
                error = crate::error::with_cause(&error),
                "no checkpoint before the backup"
            );
        }
    }

    /// Whether a database is being created, here or on a standby's primary; a standby always says yes, because it
    /// cannot know.
    pub(super) fn makes_databases(&self) -> Result<bool, Error> {
        if self.about.in_recovery {
            return Ok(true);
        }
        // This lock is taken before the database's directory is created, and held to the end of the transaction.
        let sql = "select count(*) > 0 from pg_locks where locktype = 'relation' \
                   and relation = 'pg_database'::regclass and mode = 'RowExclusiveLock' and granted";
        let rows = self.despite_replay(|_| self.ask("ask", sql))?;
        rows.is_true(0, 0).map_err(misread)
    }

    /// OIDs of the databases that are being removed, moved or renamed.
    pub(super) fn going(&self) -> Result<Vec<u32>, Error> {
        let sql = "select objid from pg_locks where locktype = 'object' \
                   and classid = 'pg_database'::regclass and mode = 'AccessExclusiveLock' and granted";
        let rows = self.despite_replay(|_| self.ask("ask", sql))?;
        let oid = |row| rows.value(row, 0).map_err(misread);
        (0..rows.len()).map(oid).collect()
    }

    /// Begins the backup and waits for a checkpoint, a fast one unless `spread`. Returns the LSN at which replay
    /// begins.
    pub(super) fn begin(&self, label: &str, spread: bool) -> Result<Lsn, Error> {
        let label = quote(label);
        let fast = !spread;
        let sql = match self.about.major {
            ..=14 => format!("select pg_start_backup({label}, {fast}, false)"),
            _ => format!("select pg_backup_start({label}, {fast})"),
        };
        let rows = self.ask("begin the backup", &sql)?;
        rows.value(0, 0).map_err(misread)
    }

    /// Ends the backup. The last WAL segment is closed, except on a standby.
    pub(super) fn end(&self) -> Result<StopResult, Error> {
        let sql = match self.about.major {
            ..=14 => "select lsn, labelfile, spcmapfile from pg_stop_backup(false, false)",
            _ => "select lsn, labelfile, spcmapfile from pg_backup_stop(false)",
        };
        let rows = self.despite_replay(|_| self.ask("end the backup", sql))?;
        let label_text = rows.bytes(0, 1).unwrap_or_default().to_vec();
        let label = BackupLabel::parse(&label_text).ok_or_else(|| {
            let text = String::from_utf8_lossy(&label_text).into_owned();
            Error::ServerSaid {
                what: "its backup label",
                text,
            }
        })?;
        Ok(StopResult {
            stop: rows.value(0, 0).map_err(misread)?,
            label,
            label_text,
            map_text: rows.bytes(0, 2).unwrap_or_default().to_vec(),
        })
    }

    /// The server's clock, in microseconds since the Unix epoch. On a standby it may lag behind the primary's, which
    /// dates commits.
    pub(super) fn clock_us(&self) -> Result<i64, Error> {
        let sql = "select floor(extract(epoch from \
                   greatest(clock_timestamp(), pg_last_xact_replay_timestamp())) * 1000000)::bigint";
        self.ask("ask for the time of", sql)?
            .value(0, 0)
            .map_err(misread)
    }

    /// How a standby is; `None`: the server is none.
    pub(super) fn standby(&self) -> Result<Option<StandbyState>, Error> {
        if !self.about.in_recovery {
            return Ok(None);
        }
        self.despite_replay(|_| {
            let state = StandbyState::ask(&mut self.connection.lock(), &*self.clock, true);
            self.note_answer();
            state.map_err(|source| Error::Server {
                action: "ask for the replay of",
                source: Box::new(source),
            })
        })
    }

    /// Fails if the session has ended, and with it the backup. Pings the server at most every few seconds.
    pub(super) fn check(&self) -> Result<(), Error> {
        let now_ms = self.clock.now().as_millis() as u64;
        let silent_ms = now_ms.saturating_sub(self.answered_ms.load(Ordering::Relaxed));
        if silent_ms < PING_EVERY.as_millis() as u64 {
            return Ok(());
        }
        // Another thread is already asking the server.
        let Some(mut connection) = self.connection.try_lock() else {
            return Ok(());
        };
        match connection.query_within("select 1", PING_PATIENCE) {
            Err(e) if e.sqlstate() != Some(CANCELLED) => Err(lost(&self.address, e)),
            _ => {
                self.note_answer();
                Ok(())
            }
        }
    }

    /// The end of the WAL: no page can have a greater LSN.
    pub(super) fn log_end(&self) -> Result<Lsn, Error> {
        let sql = match self.about.in_recovery {
            false => "select pg_current_wal_insert_lsn()",
            true => "select greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn())",
        };
        self.despite_replay(|_| self.ask("ask for the end of the WAL", sql))?
            .value(0, 0)
            .map_err(misread)
    }

    /// Writes a commit, so that recovery can reach every moment before it, and closes that commit's segment.
    pub(super) fn close_segment(&self) -> Result<SegmentEnd, Error> {
        // A synchronous standby that does not answer must not block a backup.
        let prepare = "set synchronous_commit = local";
        self.ask("prepare the session with", prepare)?;
        let before = "select floor(extract(epoch from clock_timestamp()) * 1000000)::bigint, \
                      (select setting::bigint from pg_settings where name = 'wal_segment_size')";
        let before = self.ask("ask", before)?;
        let committed = self.ask("write to the WAL of", "select pg_current_xact_id()")?;
        let transaction: u64 = committed.value(0, 0).map_err(misread)?;
        let rows = self.ask(
            "switch the WAL segment of",
            "select lsn, pg_walfile_name(lsn), floor(extract(epoch from clock_timestamp()) * 1000000)::bigint \
             from (select pg_switch_wal() as lsn) as closed",
        )?;
        Ok(SegmentEnd {
            at_us: before.value(0, 0).map_err(misread)?,
            segment_bytes: before.value(0, 1).map_err(misread)?,
            end: rows.value(0, 0).map_err(misread)?,
            segment: rows.text(0, 1).map_err(misread)?.to_owned(),
            transaction: transaction as u32,
            by_us: rows.value(0, 2).map_err(misread)?,
        })
    }

    /// The history file of this timeline; `None` on timeline 1, and if the role may not read files.
    pub(super) fn history(&self, timeline: Timeline) -> Result<Option<Vec<u8>>, Error> {
        if timeline.number() == 1 {
            return Ok(None);
        }
        let may = "select has_function_privilege('pg_read_binary_file(text, bigint, bigint, boolean)', 'execute')";
        if self.ask("ask", may)?.text(0, 0).map_err(misread)? != "t" {
            return Ok(None);
        }
        let name = WalName::History(timeline);
        let read = format!(
            "select encode(pg_read_binary_file('pg_wal/{name}', 0, {HISTORY_LEN_MAX}, true), 'hex')"
        );
        let rows = self.ask("read a timeline history of", &read)?;
        let hex = rows.bytes(0, 0).unwrap_or_default();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        Ok((!hex.is_empty()).then(|| hex.chunks(2).filter_map(byte).collect()))
    }

    fn ask(&self, action: &'static str, sql: &str) -> Result<client::Rows, Error> {
        let answer = self.connection.lock().query(sql);
        self.note_answer();
        answer.map_err(|e| match e {
            e @ client::Error::Lost { .. } => lost(&self.address, e),
            e => Error::Server {
                action,
                source: Box::new(e),
            },
        })
    }
}

fn lost(address: &str, source: client::Error) -> Error {
    Error::SessionLost {
        address: address.to_owned(),
        source: Box::new(source),
    }
}

pub(super) fn misread(source: client::Error) -> Error {
    Error::Server {
        action: "read the answer of",
        source: Box::new(source),
    }
}

/// A text as an SQL literal, independent of the server's setting for backslashes.
fn quote(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn look(connection: &mut Connection) -> Result<ServerFacts, Error> {
    let major = connection.major().map_err(misread)?;
    if !(MAJOR_MIN..=MAJOR_MAX).contains(&major) {
        return Err(Error::ServerMajor { major });
    }
    let mut ask = |action, sql: &str| {
        connection.query(sql).map_err(|e| Error::Server {
            action,
            source: Box::new(e),
        })
    };
    // The functions called below must be the server's own, whatever a role's or a database's settings are.
    ask("prepare the session with", "set search_path = pg_catalog")?;
    // This session may be idle for the hours of a backup, and a checkpoint takes time.
    let limits = ["statement_timeout", "idle_session_timeout", "lock_timeout"];
    let since_17 = (major >= 17).then_some("transaction_timeout");
    for setting in limits.into_iter().chain(since_17) {
        ask("prepare the session with", &format!("set {setting} = 0"))?;
    }
    let rows = ask(
        "ask",
        "select pg_is_in_recovery(), current_setting('wal_level'), \
         (select system_identifier from pg_control_system()), \
         floor(extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, \
         current_setting('cluster_name')",
    )?;
    let wal_level = rows.text(0, 1).map_err(misread)?;
    if wal_level == "minimal" {
        return Err(Error::WalLevel);
    }
    let directory = ask(
        "ask for the data directory of",
        "select current_setting('data_directory')",
    )?;
    Ok(ServerFacts {
        major,
        in_recovery: rows.is_true(0, 0).map_err(misread)?,
        system: rows.value(0, 2).map_err(misread)?,
        started_us: rows.value(0, 3).map_err(misread)?,
        cluster_name: rows.text(0, 4).map_err(misread)?.to_owned(),
        data_directory: directory.text(0, 0).map_err(misread)?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_its_quotes() {
        assert_eq!(quote(r"a'b\'c"), r"E'a''b\\''c'");
    }
}
