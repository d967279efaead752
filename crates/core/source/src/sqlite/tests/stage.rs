//! Goal: the tests of SQLite sources share other processes that use a database, slow copies, and dumps that compare
//! databases.
//! Method: the other processes are Python programs with their own SQLite (`writer.py`), so no lock of ours is theirs.
//! Not covered: this file has no tests.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use longshore_io::{Host, Via};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::sqlite::Sqlite;
use crate::{Entry, Error, Source, SourceOptions};

/// A Python program that uses the database with its own SQLite.
pub(super) struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts `writer.py ROLE DATABASE ARGUMENTS`.
    pub(super) fn start(role: &str, path: &Path, arguments: &[&str]) -> Self {
        Self::start_with(role, path, arguments, &[])
    }

    pub(super) fn start_with(
        role: &str,
        path: &Path,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Self {
        let mut child = Command::new("python3")
            .envs(environment.iter().copied())
            .args(["-c", include_str!("writer.py"), role])
            .arg(path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 with its sqlite3 module is needed");
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self {
            child,
            input,
            output: BufReader::new(output),
        }
    }

    pub(super) fn ready(role: &str, path: &Path, arguments: &[&str]) -> Self {
        let mut other = Self::start(role, path, arguments);
        assert_eq!(other.line(), "ready");
        other
    }

    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends one statement to run; returns its first row, as Python prints it.
    pub(super) fn run(&mut self, sql: &str) -> String {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{sql}").unwrap();
        self.line()
    }

    /// Tells the program to stop and returns its last line.
    pub(super) fn stop(mut self) -> String {
        self.input = None;
        let line = self.line();
        self.child.wait().unwrap();
        line
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a role to its end.
pub(super) fn run(role: &str, path: &Path, arguments: &[&str]) -> String {
    Other::start(role, path, arguments).stop()
}

pub(super) fn new_database(dir: &Path, page_bytes: u32, mode: &str) -> PathBuf {
    new_vacuuming_database(dir, page_bytes, mode, "none")
}

pub(super) fn new_vacuuming_database(
    dir: &Path,
    page_bytes: u32,
    mode: &str,
    vacuum: &str,
) -> PathBuf {
    let path = dir.join("bank.db");
    let said = run("create", &path, &[&page_bytes.to_string(), mode, vacuum]);
    assert_eq!(said, "created");
    path
}

/// Without copies that share blocks, so that the transaction can be queried until the end.
pub(super) fn opened(path: &Path) -> Result<Sqlite, Error> {
    let options = SourceOptions {
        reflink: false,
        ..SourceOptions::default()
    };
    Sqlite::open(&Host::new(), path, &options)
}

pub(super) fn only_entry(source: &dyn Source) -> Entry {
    let entry = source.next(0).unwrap().unwrap();
    assert!(source.next(0).unwrap().is_none());
    entry
}

/// Copies an entry with four threads, in pieces of `piece_bytes`, pausing after each.
pub(super) fn copy_slowly(
    entry: &Entry,
    to: &Path,
    piece_bytes: u64,
    pause: Duration,
    via: Via,
) -> Result<(), Error> {
    let file = fs::File::create(to).unwrap();
    file.set_len(entry.len).unwrap();
    let next = AtomicU64::new(0);
    let content = entry.content.as_ref().unwrap();
    thread::scope(|scope| {
        let copy = || -> Result<(), Error> {
            loop {
                let offset = next.fetch_add(piece_bytes, Ordering::Relaxed);
                if offset >= entry.len {
                    return Ok(());
                }
                let mut piece = vec![0xAA; piece_bytes.min(entry.len - offset) as usize];
                content.read_at(&mut piece, offset, via)?;
                file.write_all_at(&piece, offset).unwrap();
                thread::sleep(pause);
            }
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(copy)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    assert_eq!(content.settle()?, None);
    Ok(())
}

/// Every row of every table, and the result of `integrity_check`.
pub(super) fn dump(db: &Connection) -> (String, Vec<Vec<Value>>) {
    let check = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    let tables: Vec<String> = {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        let mut names = db.prepare(sql).unwrap();
        names
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    };
    let mut rows = Vec::new();
    for table in tables {
        let mut all = db
            .prepare(&format!("SELECT *, rowid FROM {table} ORDER BY rowid"))
            .unwrap();
        let width = all.column_count();
        let values = all
            .query_map([], |row| {
                (0..width)
                    .map(|i| row.get(i))
                    .collect::<Result<Vec<Value>, _>>()
            })
            .unwrap();
        rows.push(vec![Value::Text(table)]);
        rows.extend(values.map(Result::unwrap));
    }
    (check, rows)
}

/// The rows that a program sees when it opens the copy.
pub(super) fn dump_file(path: &Path) -> (String, Vec<Vec<Value>>) {
    dump(&Connection::open(path).unwrap())
}

/// The rows that the snapshot's own transaction shows.
pub(super) fn dump_snapshot(source: &Sqlite) -> (String, Vec<Vec<Value>>) {
    source.snapshot.with_connection(dump)
}

/// Name, bytes, seconds and nanoseconds of the last change.
pub(super) type File = (OsString, Vec<u8>, i64, i64);

/// Names, bytes and times of everything in a directory except shared memory.
pub(super) fn fingerprint(dir: &Path) -> Vec<File> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|found| {
            let found = found.unwrap();
            let meta = found.metadata().unwrap();
            let shared = found.file_name().to_string_lossy().ends_with("-shm");
            let bytes = if shared {
                Vec::new()
            } else {
                fs::read(found.path()).unwrap()
            };
            let (s, ns) = if shared {
                (0, 0)
            } else {
                (meta.mtime(), meta.mtime_nsec())
            };
            (found.file_name(), bytes, s, ns)
        })
        .collect();
    files.sort();
    files
}

/// The notes of a backup that has no warning.
pub(super) fn finish(source: Sqlite) -> Vec<String> {
    let summary = Box::new(source).finish().unwrap();
    assert_eq!(summary.warnings, Vec::<String>::new());
    summary.notes
}

/// A content that outlives its source, as in a worker.
pub(super) fn content_of(source: &Sqlite) -> Arc<dyn crate::Content> {
    only_entry(source).content.unwrap()
}
