//! A SQLite file while it is being loaded, and its publication under its final name.
//!
//! Rows are inserted without a journal and without syncs, in key order; indexes are built at the end, where SQLite
//! sorts once instead of splitting pages a million times.
//!
//! Invariants
//! - The file has a temporary name until it is complete and synced: an interrupted run leaves `NAME.part`, which the
//!   next run replaces, and never a half-loaded database under the requested name.
//! - A log or journal of a replaced file is removed before the new file gets the name.
//! - A name that is taken is refused, unless it is to be replaced.
//!
//! Leaves to others: tables and rows (`tprocc`, `stae`), and the size (`sample/mod.rs`).

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use longshore_io::{Dir, Host, OpenHow, Storage};
use rusqlite::{Connection, OpenFlags, Statement, ToSql};

/// SQLite's default. Larger pages would make samples unlike the databases that they represent.
pub const PAGE_SIZE_BYTES: u64 = 4096;

/// Rows between two reports of progress: some tens of milliseconds.
const ROWS_PER_REPORT: u64 = 32_768;

/// Suffixes of the files that SQLite may leave next to a database.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// The final name of a sample file, and the directory that holds it.
pub struct SampleLocation {
    path: PathBuf,
    dir: Arc<dyn Dir>,
    name: PathBuf,
    part: PathBuf,
}

impl SampleLocation {
    /// Creates missing directories. Refuses a name that is taken, unless `replace` is set.
    pub fn claim(path: &Path, replace: bool) -> Result<SampleLocation> {
        let name = path
            .file_name()
            .with_context(|| format!("{} is not the name of a file", path.display()))?;
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let dir = Host::new()
            .create_dir_all(parent)
            .with_context(|| format!("cannot open directory {}", parent.display()))?;
        if !replace && dir.stat(Path::new(name)).is_ok() {
            bail!("{} exists: remove it, or use --replace", path.display());
        }
        let part = with_suffix(Path::new(name), ".part");
        Ok(SampleLocation {
            path: path.to_owned(),
            dir,
            name: name.into(),
            part,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn free_bytes(&self) -> Result<u64> {
        self.dir
            .free_bytes()
            .with_context(|| format!("cannot find the free space for {}", self.path.display()))
    }

    /// Removes the files of an earlier or failed run under the temporary name.
    pub fn discard(&self) -> Result<()> {
        let companions = COMPANIONS.map(|suffix| with_suffix(&self.part, suffix));
        for name in companions.iter().chain([&self.part]) {
            match self.dir.remove_file(name) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(e)
                        .with_context(|| format!("cannot remove {}.part", self.path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives the loaded file its name, durably.
    pub fn publish(&self) -> Result<()> {
        let publish = || -> std::io::Result<()> {
            self.dir.open(&self.part, OpenHow::ReadWrite)?.sync()?;
            // A -wal of the replaced file would be taken for one of the new file.
            for suffix in COMPANIONS {
                match self.dir.remove_file(&with_suffix(&self.name, suffix)) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
            }
            self.dir.sync(Path::new(""))?;
            self.dir.rename(&self.part, &self.name)?;
            self.dir.sync(Path::new(""))
        };
        publish().with_context(|| format!("cannot complete {}", self.path.display()))
    }
}

fn with_suffix(name: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(name);
    name.push(suffix);
    name.into()
}

/// A database that is being loaded, in one transaction, under its temporary name.
pub struct Loader<'a> {
    connection: Connection,
    rows: Cell<u64>,
    /// The table opened last.
    step: Cell<&'static str>,
    on_progress: &'a dyn Fn(&'static str, u64),
}

impl<'a> Loader<'a> {
    /// Starts an empty database. Calls `on_progress` with the table's name and the bytes so far.
    pub fn create(
        place: &SampleLocation,
        schema: &str,
        on_progress: &'a dyn Fn(&'static str, u64),
    ) -> Result<Loader<'a>> {
        place.discard()?;
        let path = with_suffix(&place.path, ".part");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        #[expect(clippy::disallowed_methods, reason = "nobody else knows the file yet")]
        let connection = Connection::open_with_flags(&path, flags)?;
        connection.execute_batch(&format!(
            "PRAGMA page_size = {PAGE_SIZE_BYTES};
             PRAGMA journal_mode = OFF;
             PRAGMA synchronous = OFF;
             PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA cache_size = -65536;
             PRAGMA foreign_keys = OFF;
             BEGIN;"
        ))?;
        connection.execute_batch(schema)?;
        Ok(Loader {
            connection,
            rows: Cell::new(0),
            step: Cell::new(""),
            on_progress,
        })
    }

    /// Prepares to append to all `columns` columns of `table`, which progress shows from now on.
    pub fn table(&self, table: &'static str, columns: usize) -> Result<Table<'_>> {
        self.step.set(table);
        let marks = vec!["?"; columns].join(", ");
        let insert = self
            .connection
            .prepare(&format!("INSERT INTO {table} VALUES ({marks})"))?;
        Ok(Table {
            name: table,
            insert,
            loader: self,
        })
    }

    /// Builds the indexes and closes the file, in WAL mode if asked.
    pub fn finish(self, indexes: &[&str], wal: bool) -> Result<LoadResult> {
        self.step.set("indexes");
        for index in indexes {
            self.report()?;
            self.connection.execute_batch(index)?;
        }
        self.connection
            .execute_batch("COMMIT; PRAGMA locking_mode = NORMAL;")?;
        // Leaving exclusive mode takes effect at the next access, which is this one.
        let bytes = self.bytes()?;
        if wal {
            let mode: String =
                self.connection
                    .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
            if mode != "wal" {
                bail!("SQLite keeps journal mode {mode} instead of WAL");
            }
        }
        self.connection.close().map_err(|(_, e)| e)?;
        Ok(LoadResult {
            bytes,
            rows: self.rows.get(),
        })
    }

    fn report(&self) -> Result<()> {
        (self.on_progress)(self.step.get(), self.bytes()?);
        Ok(())
    }

    fn bytes(&self) -> Result<u64> {
        let pages: i64 = self
            .connection
            .query_row("PRAGMA page_count", [], |row| row.get(0))?;
        Ok(pages.unsigned_abs() * PAGE_SIZE_BYTES)
    }
}

/// The result of a finished load.
#[derive(Debug, Clone, Copy)]
pub struct LoadResult {
    pub bytes: u64,
    pub rows: u64,
}

/// A table that takes rows.
pub struct Table<'c> {
    name: &'static str,
    insert: Statement<'c>,
    loader: &'c Loader<'c>,
}

impl Table<'_> {
    /// Appends one row, given all its columns in order.
    pub fn row(&mut self, values: &[&dyn ToSql]) -> Result<()> {
        self.insert
            .execute(values)
            .with_context(|| format!("cannot load a row of {}", self.name))?;
        let rows = self.loader.rows.get() + 1;
        self.loader.rows.set(rows);
        if rows.is_multiple_of(ROWS_PER_REPORT) {
            self.loader.report()?;
        }
        Ok(())
    }
}
