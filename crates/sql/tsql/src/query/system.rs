//! Rows of the views about the machine, the sessions and the storage of tables, as far as there are facts.
//!
//! Invariants
//! - A fact that is not known is NULL, never a guess; views about what there is not have no rows.
//!
//! Leaves to others: the views' columns (`schema.rs`).

use std::path::PathBuf;

use longshore_facts::{cores, memory_bytes, mount_of, volume_of};
use longshore_pipeline::SourceSpec;

use super::objects::tables_of;
use super::view::Facts;
use crate::flow::SYSTEM_DATABASES;
use crate::message::Message;
use crate::server::Server;
use crate::tables::{KeyKind, TableShape};
use crate::value::Value;

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
    pages: i64,
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
        let pages = storage.stat(path).map_or(0, |s| s.len.div_ceil(PAGE));
        all.push(DataFile {
            id,
            database: name,
            path: path.clone(),
            pages: i64::try_from(pages).unwrap_or(i64::MAX),
        });
    }
    all
}

/// One row for each database whose data is one file or directory; sizes in pages of 8 KiB.
pub(super) fn master_files(server: &Server, _: &str) -> Rows {
    let row = |file: DataFile| {
        let id = ("database_id", Value::Int(file.id));
        std::iter::once(id).chain(facts(&file)).collect()
    };
    Ok(data_files(server).into_iter().map(row).collect())
}

/// The files of a database.
pub(super) fn files(server: &Server, database: &str) -> Rows {
    let mut all = data_files(server);
    all.retain(|file| file.database.eq_ignore_ascii_case(database));
    Ok(all.iter().map(facts).collect())
}

fn facts(file: &DataFile) -> Facts {
    let logical = file.path.file_name().unwrap_or(file.path.as_os_str());
    let (off, n) = (Value::bit(false), Value::Int);
    vec![
        ("file_id", n(1)),
        ("type", n(0)),
        ("type_desc", Value::text("ROWS")),
        ("data_space_id", n(1)),
        ("name", Value::text(logical.to_string_lossy())),
        (
            "physical_name",
            Value::text(file.path.display().to_string()),
        ),
        ("state", n(0)),
        ("state_desc", Value::text("ONLINE")),
        ("size", n(file.pages)),
        ("max_size", n(-1)),
        ("growth", n(0)),
        ("is_media_read_only", off.clone()),
        ("is_read_only", off.clone()),
        ("is_sparse", off.clone()),
        ("is_percent_growth", off),
    ]
}

/// The facts of the machine that scripts ask for.
pub(super) fn machine(server: &Server, _: &str) -> Rows {
    let cores = whole(cores());
    let memory = memory_bytes().map_or(Value::Null, |bytes| whole(bytes >> 10));
    Ok(vec![vec![
        ("cpu_count", cores.clone()),
        ("scheduler_count", cores),
        ("physical_memory_kb", memory),
        ("sqlserver_start_time", Value::DateTime(server.started)),
    ]])
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

/// The sizes of the databases' files.
pub(super) fn counters(server: &Server, _: &str) -> Rows {
    const BULK_COUNT: i64 = 65_792;
    let row = |file: DataFile| {
        vec![
            ("object_name", Value::text("SQLServer:Databases")),
            ("counter_name", Value::text("Data File(s) Size (KB)")),
            ("instance_name", Value::Text(file.database)),
            ("cntr_value", Value::Int(file.pages.saturating_mul(8))),
            ("cntr_type", Value::Int(BULK_COUNT)),
        ]
    };
    Ok(data_files(server).into_iter().map(row).collect())
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
            Value::bit(volume.is_read_only),
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

/// The sessions that are there; only who runs a statement knows its own name.
pub(super) fn sessions(server: &Server, _: &str) -> Rows {
    let row = |id: u32| {
        vec![
            ("session_id", Value::Int(id.into())),
            ("login_time", Value::DateTime(server.started)),
            ("status", Value::text("running")),
            ("is_user_process", Value::bit(true)),
            // READ COMMITTED, with which SQL Server's sessions begin; the level changes nothing here.
            ("transaction_isolation_level", Value::Int(2)),
            ("database_id", Value::Int(1)),
        ]
    };
    Ok(server.session_numbers().into_iter().map(row).collect())
}

pub(super) fn connections(server: &Server, _: &str) -> Rows {
    let row = |id: u32| {
        vec![
            ("session_id", Value::Int(id.into())),
            ("most_recent_session_id", Value::Int(id.into())),
            ("connect_time", Value::DateTime(server.started)),
        ]
    };
    Ok(server.session_numbers().into_iter().map(row).collect())
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
