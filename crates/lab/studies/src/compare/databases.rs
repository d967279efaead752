//! The table of a comparison's databases: what each holds, and in how many files.
//!
//! Invariants
//! - A database is only read. One in WAL mode is not opened for this, because reading it can write next to it.
//! - A figure that is not known is absent; one that a server only estimates is called so.
//!
//! Leaves to others: sizes and files, which the backups measured (`timing.rs`).

use std::path::Path;

use anyhow::{Context, Result, ensure};
use longshore_io::{ConnectionClaims, OpenHow, Storage, Via};
use longshore_pg::client::{Connection as Client, Mode};
use longshore_pipeline::SourceSpec;
use rusqlite::{Connection, OpenFlags};

use crate::platform;
use crate::report::{Cell, Column, Section, Table};
use crate::timing::Timing;

/// Rows of larger databases are not counted: every page would be read.
const COUNTED_BYTES_MAX: u64 = 2 << 30;
/// Where a database of SQLite says that readers use the write-ahead log, and the value.
const READ_VERSION_AT: usize = 19;
const IN_WAL_MODE: u8 = 2;

/// A comparison's database with what is known of it.
#[derive(Debug)]
pub struct Compared {
    pub name: String,
    source: String,
    bytes: u64,
    files: u64,
    content: Option<Content>,
}

#[derive(Debug, Clone, PartialEq)]
struct Content {
    pages: f64,
    page_bytes: f64,
    tables: f64,
    /// `None`: not counted.
    rows: Option<f64>,
    is_estimate: bool,
}

impl Compared {
    /// A database after one of its backups.
    pub fn of(storage: &dyn Storage, name: &str, source: &SourceSpec, taken: &Timing) -> Compared {
        let content = match source {
            SourceSpec::Sqlite(path) => of_sqlite(storage, path, taken.plain_bytes).ok(),
            SourceSpec::Postgres(options) => Client::open(storage, options, Mode::Sql)
                .map_err(anyhow::Error::from)
                .and_then(of_server)
                .ok(),
            SourceSpec::Files(_) => None,
        };
        Compared {
            name: name.to_owned(),
            source: platform::name_of(source),
            bytes: taken.plain_bytes,
            files: taken.file_count,
            content,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let of = |value: fn(&Content) -> Option<f64>| self.content.as_ref().and_then(value);
        vec![
            self.name.as_str().into(),
            (self.bytes as f64 / 1e6).into(),
            (self.files as f64).into(),
            of(|c| Some(c.pages)).into(),
            of(|c| Some(c.page_bytes)).into(),
            of(|c| Some(c.tables)).into(),
            of(|c| c.rows).into(),
            self.source.as_str().into(),
        ]
    }
}

/// The section with the table.
pub fn section(databases: &[Compared]) -> Section {
    let is_estimate = |d: &&Compared| d.content.as_ref().is_some_and(|c| c.is_estimate);
    let mut prose = vec![
        "Size and files are what a backup reads. Pages, tables and rows are the database's own; those of a database in WAL \
         mode are not asked for, nor are rows of more than 2 GiB counted."
            .to_owned(),
    ];
    let estimated = databases.iter().filter(is_estimate);
    let estimated: Vec<&str> = estimated.map(|d| d.name.as_str()).collect();
    if !estimated.is_empty() {
        prose.push(format!(
            "The rows of {} are its server's estimate.",
            estimated.join(" and ")
        ));
    }
    Section {
        heading: "Databases".into(),
        prose,
        table: Some(Table {
            columns: vec![
                Column::text("Database"),
                Column::number("Size", "10^6 bytes", 1),
                Column::number("Files", "", 0),
                Column::number("Pages", "", 0),
                Column::number("Page", "bytes", 0),
                Column::number("Tables", "", 0),
                Column::number("Rows", "", 0),
                Column::text("Source"),
            ],
            row_values: databases.iter().map(Compared::cells).collect(),
        }),
        charts: Vec::new(),
    }
}

/// Whether a database of SQLite is in WAL mode, by its head.
fn is_in_wal_mode(storage: &dyn Storage, path: &Path) -> Result<bool> {
    let name = path.file_name().context("no file")?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let dir = storage.dir(parent.unwrap_or(Path::new(".")))?;
    let file = dir.open(Path::new(name), OpenHow::Read)?;
    let mut head = [0; READ_VERSION_AT + 1];
    file.read_full_at(&mut head, 0, Via::Cache)?;
    Ok(head[READ_VERSION_AT] == IN_WAL_MODE)
}

fn of_sqlite(storage: &dyn Storage, path: &Path, bytes: u64) -> Result<Content> {
    ensure!(!is_in_wal_mode(storage, path)?, "in WAL mode");
    #[expect(clippy::disallowed_methods, reason = "claimed around the call")]
    let open = || Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let (_claims, opened) = ConnectionClaims::around(path, open);
    let connection = opened?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let rows = || -> rusqlite::Result<i64> {
        let count = |table: &String| {
            let quoted = table.replace('"', "\"\"");
            number(&format!("SELECT count(*) FROM \"{quoted}\""))
        };
        tables.iter().map(count).sum()
    };
    Ok(Content {
        pages: number("PRAGMA page_count")? as f64,
        page_bytes: number("PRAGMA page_size")? as f64,
        tables: tables.len() as f64,
        rows: match bytes {
            0..=COUNTED_BYTES_MAX => rows().ok().map(|n| n as f64),
            _ => None,
        },
        is_estimate: false,
    })
}

fn of_server(mut client: Client) -> Result<Content> {
    let found = client.query(
        "SELECT pg_database_size(current_database()) / current_setting('block_size')::bigint,
         current_setting('block_size'), count(*), coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')",
    )?;
    Ok(Content {
        pages: found.value(0, 0)?,
        page_bytes: found.value(0, 1)?,
        tables: found.value(0, 2)?,
        rows: Some(found.value(0, 3)?),
        is_estimate: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::tests::made_up;
    use longshore_io::Host;

    fn database(path: &Path, mode: &str) -> SourceSpec {
        let made = Connection::open(path).unwrap();
        made.execute_batch(&format!(
            "PRAGMA page_size = 4096; PRAGMA journal_mode = {mode};
             CREATE TABLE \"odd \"\" name\" (a INTEGER PRIMARY KEY AUTOINCREMENT);
             CREATE TABLE b (c); CREATE INDEX d ON b (c);
             INSERT INTO b VALUES (1), (2), (3); INSERT INTO \"odd \"\" name\" VALUES (7);"
        ))
        .unwrap();
        SourceSpec::Sqlite(path.to_owned())
    }

    #[test]
    fn tables_and_rows_are_counted_and_a_database_in_wal_mode_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(root.path()).unwrap().count();
        let plain = database(&root.path().join("plain.db"), "delete");
        let known = Compared::of(&Host::new(), "one", &plain, &made_up(1.0, 1));
        let content = known.content.clone().unwrap();
        assert_eq!((content.tables, content.rows), (2.0, Some(4.0)));
        assert_eq!(content.page_bytes, 4096.0);
        let len = std::fs::metadata(root.path().join("plain.db"))
            .unwrap()
            .len();
        assert_eq!(content.pages * content.page_bytes, len as f64);
        let wal = database(&root.path().join("wal.db"), "wal");
        let before = names();
        let unknown = Compared::of(&Host::new(), "two", &wal, &made_up(1.0, 1));
        assert_eq!((unknown.content.is_none(), names()), (true, before));
        let section = section(&[known, unknown]);
        let rows = section.table.unwrap().row_values;
        assert_eq!(rows[0][5..7], [Cell::from(2.0), Cell::from(4.0)]);
        assert_eq!(rows[1][3..7], vec![Cell::Absent; 4]);
        assert!(!section.prose.concat().contains("estimate"));
    }

    #[test]
    fn rows_of_a_large_database_are_not_counted() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("large.db");
        database(&path, "delete");
        let content = of_sqlite(&Host::new(), &path, COUNTED_BYTES_MAX + 1).unwrap();
        assert_eq!((content.tables, content.rows), (2.0, None));
    }
}
