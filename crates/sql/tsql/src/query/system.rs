//! Rows of the views about the machine, the sessions and the storage of tables, as far as there are facts.
//!
//! Invariants
//! - A fact that is not known is NULL, never a guess; views about what there is not have no rows.
//!
//! Leaves to others: the views' columns (`schema.rs`).

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use longshore_catalog::fork_guid;
use longshore_facts::{cores, memory_bytes, mount_of, uptime, volume_of};
use longshore_io::FileKind;
use longshore_pipeline::SourceSpec;

use super::objects::{date, tables_of};
use super::view::Facts;
use crate::convert::convert;
use crate::flow::SYSTEM_DATABASES;
use crate::message::{self, Message};
use crate::server::{Server, SessionFacts, local};
use crate::tables::{KeyKind, TableShape};
use crate::value::{DateTime, Type, Value};

type Rows = Result<Vec<Facts>, Message>;

/// Bytes of a page.
const PAGE: u64 = 8192;

fn whole(n: impl TryInto<i64>) -> Value {
    n.try_into().map_or(Value::Null, Value::Int)
}

/// The first number of a user's database; lower ones are SQL Server's own.
pub(super) const DATABASE_FIRST: i64 = 5;

/// The data of a database that is one file or directory.
struct DataFile {
    id: i64,
    database: String,
    path: PathBuf,
    /// `None`: what it takes is not known without reading it whole, as of a directory.
    bytes: Option<u64>,
    /// Whether it has a write-ahead log of its own next to it while it is in use.
    is_sqlite: bool,
}

impl DataFile {
    /// The name that MOVE takes: of a tree the database's.
    fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or(self.path.as_os_str());
        match self.is_sqlite || self.bytes.is_some() {
            true => file.to_string_lossy().into_owned(),
            false => self.database.clone(),
        }
    }

    fn pages(&self) -> Option<i64> {
        let pages = self.bytes?.div_ceil(PAGE);
        Some(i64::try_from(pages).unwrap_or(i64::MAX))
    }
}

fn data_files(server: &Server) -> Vec<DataFile> {
    let storage = &server.setup.context.storage;
    let mut all = Vec::new();
    for (id, name) in (DATABASE_FIRST..).zip(server.database_names()) {
        let Ok(Some(found)) = server.database(&name) else {
            continue;
        };
        let path = match &found.source {
            SourceSpec::Sqlite(path) => path,
            SourceSpec::Files(paths) => match paths.first() {
                Some(path) => path,
                None => continue,
            },
            SourceSpec::Postgres(_) => continue,
        };
        let is_whole = match &found.source {
            SourceSpec::Files(paths) => paths.len() == 1,
            _ => true,
        };
        let stat = storage.stat(path).ok();
        let stat = stat.filter(|stat| is_whole && stat.kind == FileKind::File);
        all.push(DataFile {
            id,
            database: name,
            path: path.clone(),
            bytes: stat.map(|stat| stat.len),
            is_sqlite: matches!(found.source, SourceSpec::Sqlite(_)),
        });
    }
    all
}

/// Two rows for each database, of its data and its log; sizes in pages of 8 KiB.
pub(super) fn master_files(server: &Server, _: &str) -> Rows {
    let mut rows: Vec<Facts> = Vec::new();
    let mut add = |id: i64, database: &str, data: Facts, log: Facts| {
        let id = ("database_id", Value::Int(id));
        let data = data.into_iter().chain(base(server, database)?);
        rows.push(std::iter::once(id.clone()).chain(data).collect());
        rows.push(std::iter::once(id).chain(log).collect());
        Ok::<_, Message>(())
    };
    for file in data_files(server) {
        add(
            file.id,
            &file.database,
            facts(&file),
            log_facts(server, &file),
        )?;
    }
    for (id, name, facts) in clusters(server) {
        let log = log_of(&facts, &name, None);
        add(id, &name, facts, log)?;
    }
    Ok(rows)
}

/// The log of a database whose data is this: each has one, as scripts expect that join data and log.
fn log_of(data: &Facts, name: &str, file: Option<(String, i64)>) -> Facts {
    let own = [
        ("file_id", Value::Int(2)),
        ("type", Value::Int(1)),
        ("type_desc", Value::text("LOG")),
        ("data_space_id", Value::Int(0)),
        ("name", Value::Text(format!("{name}_log"))),
    ];
    let is_own = |known: &str| own.iter().any(|(name, _)| *name == known);
    let is_of_data = |known: &str| is_own(known) || ["physical_name", "size"].contains(&known);
    let rest = data.iter().filter(|(name, _)| !is_of_data(name)).cloned();
    let mut all: Facts = own.iter().cloned().chain(rest).collect();
    if let Some((path, pages)) = file {
        all.push(("physical_name", Value::Text(path)));
        all.push(("size", Value::Int(pages)));
    }
    all
}

/// The same of a file: of a SQLite database its write-ahead log, which is there only while the database is in use.
fn log_facts(server: &Server, data: &DataFile) -> Facts {
    let name = data.name();
    if !data.is_sqlite {
        return log_of(&facts(data), &name, None);
    }
    let mut path = data.path.clone().into_os_string();
    path.push("-wal");
    let path = PathBuf::from(path);
    let bytes = server.setup.context.storage.stat(&path);
    let pages = bytes.map_or(0, |stat| stat.len.div_ceil(PAGE));
    let pages = i64::try_from(pages).unwrap_or(i64::MAX);
    let file = (path.display().to_string(), pages);
    log_of(&facts(data), &name, Some(file))
}

/// The full backup that the next differential one of a database differs from. NULL: there is none yet.
fn base(server: &Server, database: &str) -> Result<Facts, Message> {
    if server.known_catalog().is_none() {
        return Ok(Vec::new());
    }
    let base = server.catalog()?.differential_base(database);
    let Some(base) = base.map_err(|e| message::OWN.with(&[&e]))? else {
        return Ok(Vec::new());
    };
    let set = convert(&Value::Text(base.set), Type::UniqueIdentifier);
    Ok(vec![
        ("differential_base_lsn", Value::Int(base.checkpoint_lsn)),
        ("differential_base_guid", set.unwrap_or(Value::Null)),
        ("differential_base_time", date(&base.finished)),
    ])
}

/// The clusters, each with its data as one file: where it lies only its server knows.
fn clusters(server: &Server) -> Vec<(i64, String, Facts)> {
    let mut all = Vec::new();
    for (id, name) in (DATABASE_FIRST..).zip(server.database_names()) {
        let found = server.database(&name);
        if !matches!(found, Ok(Some(found)) if matches!(found.source, SourceSpec::Postgres(_))) {
            continue;
        }
        let mut row = vec![
            ("file_id", Value::Int(1)),
            ("type", Value::Int(0)),
            ("type_desc", Value::text("ROWS")),
            ("data_space_id", Value::Int(1)),
            ("name", Value::text(name.as_str())),
            ("state", Value::Int(0)),
            ("state_desc", Value::text("ONLINE")),
            ("max_size", Value::Int(-1)),
            ("growth", Value::Int(0)),
        ];
        let flags = [
            "is_media_read_only",
            "is_read_only",
            "is_sparse",
            "is_percent_growth",
        ];
        row.extend(flags.map(|name| (name, Value::bit(false))));
        all.push((id, name, row));
    }
    all
}

/// Whether, and from where, the log of each database can be backed up.
pub(super) fn recovery_status(server: &Server, _: &str) -> Rows {
    let mut rows = vec![vec![("database_id", Value::Int(1))]];
    for (id, name) in (DATABASE_FIRST..).zip(server.database_names()) {
        let mut row = vec![("database_id", Value::Int(id))];
        if server.is_logged(&name) && server.known_catalog().is_some() {
            let chain = server.catalog()?.log_chain(&name);
            let chain = chain.map_err(|e| message::OWN.with(&[&e]))?;
            if let Some(full) = chain.fulls.last() {
                let log = chain.logs.first().filter(|_| !chain.is_set_back);
                let log = log.filter(|log| log.system == full.system);
                let place = log.unwrap_or(full);
                let guid = |n: u128| Value::Guid(uuid::Uuid::from_u128(n));
                let fork = |timeline: u32| guid(fork_guid(full.system, timeline));
                row.push(("last_log_backup_lsn", whole(place.lsn)));
                row.push(("family_guid", guid(full.system.into())));
                row.push(("recovery_fork_guid", fork(place.timeline)));
                row.push(("first_recovery_fork_guid", fork(full.timeline)));
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The files of a database.
pub(super) fn files(server: &Server, database: &str) -> Rows {
    let mut all = data_files(server);
    all.retain(|file| file.database.eq_ignore_ascii_case(database));
    let both = |file| [facts(file), log_facts(server, file)];
    let mut rows: Vec<Facts> = all.iter().flat_map(both).collect();
    let clusters = clusters(server).into_iter();
    let own = clusters.filter(|(_, name, _)| name.eq_ignore_ascii_case(database));
    rows.extend(own.flat_map(|(_, name, facts)| {
        let log = log_of(&facts, &name, None);
        [facts, log]
    }));
    Ok(rows)
}

/// When a database was made, as its file or its cluster tells.
pub(super) fn created(server: &Server, database: &str) -> Option<DateTime> {
    let mut all = data_files(server).into_iter();
    match all.find(|file| file.database == database) {
        Some(file) => {
            let storage = &server.setup.context.storage;
            let birth = storage.birth_ns(&file.path).ok().flatten();
            birth.map(|ns| local(ns.div_euclid(1000)))
        }
        None => cluster_made(server, database),
    }
}

/// When a cluster was made, which its system identifier tells (`BootStrapXLOG` in PostgreSQL's xlog.c); `None`: no backup of
/// it is known.
fn cluster_made(server: &Server, database: &str) -> Option<DateTime> {
    server.known_catalog()?;
    let mut chain = server.catalog().ok()?.log_chain(database).ok()?;
    let seconds = i64::try_from(chain.fulls.pop()?.system >> 32).ok()?;
    Some(local(seconds.checked_mul(1_000_000)?))
}

fn facts(file: &DataFile) -> Facts {
    let (off, n) = (Value::bit(false), Value::Int);
    vec![
        ("file_id", n(1)),
        ("type", n(0)),
        ("type_desc", Value::text("ROWS")),
        ("data_space_id", n(1)),
        ("name", Value::Text(file.name())),
        (
            "physical_name",
            Value::text(file.path.display().to_string()),
        ),
        ("state", n(0)),
        ("state_desc", Value::text("ONLINE")),
        ("size", file.pages().map_or(Value::Null, n)),
        ("max_size", n(-1)),
        ("growth", n(0)),
        ("is_media_read_only", off.clone()),
        ("is_read_only", off.clone()),
        ("is_sparse", off.clone()),
        ("is_percent_growth", off),
    ]
}

/// The milliseconds since the machine was started.
fn since_start() -> Value {
    uptime().map_or(Value::Null, |time| whole(time.as_millis()))
}

/// The facts of the machine that scripts ask for.
pub(super) fn machine(server: &Server, _: &str) -> Rows {
    let cores = whole(cores());
    let memory = memory_bytes().map_or(Value::Null, |bytes| whole(bytes >> 10));
    Ok(vec![vec![
        ("ms_ticks", since_start()),
        ("cpu_count", cores.clone()),
        ("scheduler_count", cores),
        ("physical_memory_kb", memory),
        ("sqlserver_start_time", Value::DateTime(server.started)),
    ]])
}

/// The machine's memory.
pub(super) fn memory(_: &Server, _: &str) -> Rows {
    let memory = memory_bytes().map_or(Value::Null, |bytes| whole(bytes >> 10));
    Ok(vec![vec![("total_physical_memory_kb", memory)]])
}

/// This process, as a service.
pub(super) fn services(server: &Server, _: &str) -> Rows {
    let name = format!("Longshore ({})", server.setup.name);
    Ok(vec![vec![
        ("servicename", Value::Text(name)),
        ("status", Value::Int(4)),
        ("status_desc", Value::text("Running")),
        ("process_id", Value::Int(std::process::id().into())),
        ("is_clustered", Value::text("N")),
    ]])
}

/// The sizes of the databases' files, and the bytes that backups and restores of each have moved since the start: a counter
/// of a rate holds its sum.
pub(super) fn counters(server: &Server, _: &str) -> Rows {
    const RAW_COUNT: i64 = 65_792;
    const BULK_COUNT: i64 = 272_696_576;
    let row = |counter: &str, database: String, value: Option<i64>, kind: i64| {
        vec![
            ("object_name", Value::text("SQLServer:Databases")),
            ("counter_name", Value::text(counter)),
            ("instance_name", Value::Text(database)),
            ("cntr_value", value.map_or(Value::Null, Value::Int)),
            ("cntr_type", Value::Int(kind)),
        ]
    };
    let size = |file: DataFile| {
        let kib = file.pages().map(|n| n.saturating_mul(8));
        row("Data File(s) Size (KB)", file.database, kib, RAW_COUNT)
    };
    let moved = |name: String| {
        let bytes = server.moved(&name).load(Ordering::Relaxed);
        let bytes = i64::try_from(bytes).ok();
        row("Backup/Restore Throughput/sec", name, bytes, BULK_COUNT)
    };
    let mut rows: Vec<Facts> = data_files(server).into_iter().map(size).collect();
    rows.extend(server.database_names().into_iter().map(moved));
    Ok(rows)
}

/// For each file of a database its numbers, the moment, and its size: nobody counts its reads and writes.
pub(super) fn file_stats(server: &Server) -> Vec<Vec<Value>> {
    const UNKNOWN_BEFORE_SIZE: usize = 7;
    const UNKNOWN_AFTER_SIZE: usize = 3;
    let now = since_start();
    let row = |file: DataFile| {
        let mut row = vec![Value::Int(file.id), Value::Int(1), now.clone()];
        row.extend(vec![Value::Null; UNKNOWN_BEFORE_SIZE]);
        row.push(file.bytes.map_or(Value::Null, whole));
        row.extend(vec![Value::Null; UNKNOWN_AFTER_SIZE]);
        row
    };
    data_files(server).into_iter().map(row).collect()
}

/// For each file of a database its numbers, and the volume that it is on.
pub(super) fn volumes(server: &Server) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for file in data_files(server) {
        let (Ok(mount), Ok(volume)) = (mount_of(&file.path), volume_of(&file.path)) else {
            continue;
        };
        let directory = file.path.parent().unwrap_or(&file.path);
        let free = server.setup.context.storage.dir(directory);
        let free = free.and_then(|dir| dir.free_bytes());
        let text = |text: &std::ffi::OsStr| Value::text(text.to_string_lossy());
        rows.push(vec![
            Value::Int(file.id),
            Value::Int(1),
            text(mount.point.as_os_str()),
            text(&mount.source),
            Value::text(""),
            text(&mount.kind),
            whole(volume.total_bytes),
            free.map_or(Value::Null, whole),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::bit(volume.is_read_only),
            Value::Null,
        ]);
    }
    rows
}

/// The numbers of a table's indexes: 0 where there is no primary key, which is index 1.
fn index_numbers(shape: &TableShape) -> Vec<i64> {
    let has_primary = shape.keys.iter().any(|k| k.kind == KeyKind::Primary);
    let others = shape
        .keys
        .iter()
        .filter(|k| k.kind != KeyKind::Primary)
        .count();
    let plain = shape.indexes.iter().filter(|i| !i.unique).count();
    let first = i64::from(has_primary);
    let rest = 2..2 + (others + plain) as i64;
    std::iter::once(first).chain(rest).collect()
}

/// A part of a table's storage: its number, the table's, the index's, the rows, and the pages.
fn parts(server: &Server, database: &str) -> Vec<[i64; 5]> {
    let mut all = Vec::new();
    for (o, shape) in tables_of(server, database) {
        let loaded = server.kept.rows(&o);
        let (rows, bytes) = match &loaded {
            Ok(loaded) => (loaded.rows.iter().count(), loaded.rows.bytes()),
            Err(_) => (0, 0),
        };
        for index in index_numbers(&shape) {
            let own = if index <= 1 { bytes as u64 } else { 0 };
            let pages = own.div_ceil(PAGE) as i64;
            all.push([
                o.object.id * 1000 + index,
                o.object.id,
                index,
                rows as i64,
                pages,
            ]);
        }
    }
    all
}

pub(super) fn partitions(server: &Server, database: &str) -> Rows {
    let row = |[id, table, index, rows, _]: [i64; 5]| {
        vec![
            ("partition_id", Value::Int(id)),
            ("object_id", Value::Int(table)),
            ("index_id", Value::Int(index)),
            ("partition_number", Value::Int(1)),
            ("hobt_id", Value::Int(id)),
            ("rows", Value::Int(rows)),
            ("data_compression", Value::Int(0)),
            ("data_compression_desc", Value::text("NONE")),
        ]
    };
    Ok(parts(server, database).into_iter().map(row).collect())
}

pub(super) fn allocation_units(server: &Server, database: &str) -> Rows {
    let row = |[id, _, _, _, pages]: [i64; 5]| {
        vec![
            ("allocation_unit_id", Value::Int(id)),
            ("type", Value::Int(1)),
            ("type_desc", Value::text("IN_ROW_DATA")),
            ("container_id", Value::Int(id)),
            ("data_space_id", Value::Int(1)),
            ("total_pages", Value::Int(pages)),
            ("used_pages", Value::Int(pages)),
            ("data_pages", Value::Int(pages)),
        ]
    };
    Ok(parts(server, database).into_iter().map(row).collect())
}

pub(super) fn partition_stats(server: &Server, database: &str) -> Rows {
    let row = |[id, table, index, rows, pages]: [i64; 5]| {
        vec![
            ("partition_id", Value::Int(id)),
            ("object_id", Value::Int(table)),
            ("index_id", Value::Int(index)),
            ("partition_number", Value::Int(1)),
            ("in_row_data_page_count", Value::Int(pages)),
            ("in_row_used_page_count", Value::Int(pages)),
            ("in_row_reserved_page_count", Value::Int(pages)),
            ("used_page_count", Value::Int(pages)),
            ("reserved_page_count", Value::Int(pages)),
            ("row_count", Value::Int(rows)),
        ]
    };
    Ok(parts(server, database).into_iter().map(row).collect())
}

fn moment(at: Option<DateTime>) -> Value {
    at.map_or(Value::Null, Value::DateTime)
}

/// A text that a client may have left out.
fn given(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => Value::text(text),
    }
}

fn number_of_database(server: &Server, name: &str) -> Value {
    database_id(server, name).map_or(Value::Null, Value::Int)
}

/// The sessions that are there, as each says of itself.
pub(super) fn sessions(server: &Server, _: &str) -> Rows {
    let row = |(id, facts): (u32, SessionFacts)| {
        let (login, state) = (&facts.login, &facts.state);
        let status = if state.is_running {
            "running"
        } else {
            "sleeping"
        };
        vec![
            ("session_id", Value::Int(id.into())),
            ("login_time", Value::DateTime(facts.since)),
            ("host_name", given(&login.host)),
            ("program_name", given(&login.program)),
            ("login_name", given(&login.user)),
            ("original_login_name", given(&login.user)),
            ("status", Value::text(status)),
            ("last_request_start_time", moment(facts.begun)),
            ("last_request_end_time", moment(facts.ended)),
            ("is_user_process", Value::bit(true)),
            ("language", Value::text(state.language)),
            ("date_format", Value::text(state.date_order)),
            ("date_first", Value::Int(state.date_first)),
            ("lock_timeout", Value::Int(state.lock_timeout)),
            ("transaction_isolation_level", Value::Int(state.isolation)),
            ("database_id", number_of_database(server, &state.database)),
            (
                "open_transaction_count",
                Value::Int(state.transactions.into()),
            ),
        ]
    };
    Ok(server.sessions.all().into_iter().map(row).collect())
}

/// The connections of sessions; a session without a network has one, too, of which no more is known than its beginning.
pub(super) fn connections(server: &Server, _: &str) -> Rows {
    let row = |(id, facts): (u32, SessionFacts)| {
        let mut row = vec![
            ("session_id", Value::Int(id.into())),
            ("most_recent_session_id", Value::Int(id.into())),
            ("connect_time", Value::DateTime(facts.since)),
        ];
        if let Some(connection) = facts.connection {
            let encrypted = if connection.encrypted {
                "TRUE"
            } else {
                "FALSE"
            };
            row.extend([
                ("net_transport", Value::text("TCP")),
                ("protocol_type", Value::text("TSQL")),
                ("encrypt_option", Value::text(encrypted)),
                ("auth_scheme", Value::text("SQL")),
                ("net_packet_size", Value::Int(connection.packet_len.into())),
                ("client_net_address", Value::Text(connection.client)),
                ("client_tcp_port", Value::Int(connection.client_port.into())),
                ("local_net_address", Value::Text(connection.local)),
                ("local_tcp_port", Value::Int(connection.local_port.into())),
            ]);
        }
        row
    };
    Ok(server.sessions.all().into_iter().map(row).collect())
}

/// The sessions as SQL Server's table of old had them.
pub(super) fn processes(server: &Server, _: &str) -> Rows {
    let activities = server.activities.lock().clone();
    let waits = server.lock_waits();
    let row = |(id, facts): (u32, SessionFacts)| {
        let (login, state) = (&facts.login, &facts.state);
        let wait = waits.get(&id);
        let (blocker, waited) = wait.map_or((0, 0), |wait| (wait.blocker.into(), wait.waited));
        let command = match (activities.get(&id), state.is_running) {
            (Some(activity), _) => Value::text(activity.command),
            // Which statement of a batch runs is known of backups and restores only.
            (None, true) => Value::Null,
            (None, false) => Value::text("AWAITING COMMAND"),
        };
        let status = match (wait, state.is_running) {
            (Some(_), _) => "suspended",
            (None, true) => "running",
            (None, false) => "sleeping",
        };
        vec![
            ("spid", Value::Int(id.into())),
            ("blocked", Value::Int(blocker)),
            ("waittime", Value::Int(waited)),
            (
                "lastwaittype",
                wait.map_or(Value::Null, |wait| Value::text(wait.kind)),
            ),
            ("dbid", number_of_database(server, &state.database)),
            ("login_time", Value::DateTime(facts.since)),
            (
                "last_batch",
                Value::DateTime(facts.begun.unwrap_or(facts.since)),
            ),
            ("ecid", Value::Int(0)),
            ("open_tran", Value::Int(state.transactions.into())),
            ("status", Value::text(status)),
            ("hostname", Value::text(login.host.as_str())),
            ("program_name", Value::text(login.program.as_str())),
            ("cmd", command),
            ("loginame", Value::text(login.user.as_str())),
            ("sql_handle", Value::Binary(id.to_be_bytes().into())),
            ("stmt_start", Value::Int(0)),
            ("stmt_end", Value::Int(-1)),
            ("request_id", Value::Int(0)),
        ]
    };
    Ok(server.sessions.all().into_iter().map(row).collect())
}

/// Files as SQL Server's tables of old had them, of one database or with the number of each.
fn older_files(server: &Server, database: Option<&str>) -> Vec<Facts> {
    let mut all = data_files(server);
    all.retain(|file| database.is_none_or(|d| file.database.eq_ignore_ascii_case(d)));
    let row = |file: &DataFile| {
        let logical = file.path.file_name().unwrap_or(file.path.as_os_str());
        let mut row = vec![
            ("fileid", Value::Int(1)),
            ("groupid", Value::Int(1)),
            ("size", file.pages().map_or(Value::Null, Value::Int)),
            ("maxsize", Value::Int(-1)),
            ("growth", Value::Int(0)),
            ("name", Value::text(logical.to_string_lossy())),
            ("filename", Value::text(file.path.display().to_string())),
        ];
        if database.is_none() {
            row.push(("dbid", Value::Int(file.id)));
        }
        row
    };
    all.iter().map(row).collect()
}

pub(super) fn all_files(server: &Server, _: &str) -> Rows {
    Ok(older_files(server, None))
}

pub(super) fn own_files(server: &Server, database: &str) -> Rows {
    Ok(older_files(server, Some(database)))
}

/// The logical backup devices as SQL Server's table of old had them.
pub(super) fn devices(server: &Server, _: &str) -> Rows {
    /// A backup device that is a file.
    const DISK: i64 = 2;
    let row = |(name, path): (String, PathBuf)| {
        vec![
            ("name", Value::Text(name)),
            ("cntrltype", Value::Int(DISK)),
            ("phyname", Value::text(path.display().to_string())),
        ]
    };
    Ok(server.kept.devices().into_iter().map(row).collect())
}

/// `DB_ID`.
pub(crate) fn database_id(server: &Server, name: &str) -> Option<i64> {
    let same = |n: &str| n.eq_ignore_ascii_case(name);
    if let Some(i) = SYSTEM_DATABASES.iter().position(|n| same(n)) {
        return Some(i as i64 + 1);
    }
    let names = server.database_names();
    let found = names.iter().position(|n| same(n))?;
    Some(found as i64 + DATABASE_FIRST)
}

/// The database of a number.
pub(crate) fn database_of(server: &Server, number: i64) -> Option<String> {
    let place = usize::try_from(number.checked_sub(1)?).ok()?;
    let first = usize::try_from(DATABASE_FIRST - 1).unwrap_or(0);
    match SYSTEM_DATABASES.get(place) {
        Some(name) => Some((*name).to_owned()),
        None => server
            .database_names()
            .into_iter()
            .nth(place.checked_sub(first)?),
    }
}
