//! The server's log, as `sp_readerrorlog` shows it: the backups and restores, and why they failed.
//!
//! A text file next to the catalog, one line for each entry: `2026-03-01 22:15:04.120 Backup      Database backed up.
//! …`.
//!
//! Invariants
//! - It is for people: no statement depends on it, and an entry that cannot be written is left out.
//! - An entry is one line, whatever its text contains.
//! - When the file reaches [`LEN_MAX`] bytes it becomes `errorlog.1`, and the previous one is removed; of several
//!   programs that find it full, one renames it.
//!
//! Leaves to others: which events have an entry (the statements), and the rows of `sp_readerrorlog`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{File, OpenHow, Stat, Storage, Via};
use parking_lot::Mutex;

use crate::value::{DateTime, date_time_text};

const LEN_MAX: u64 = 1 << 20;
const NAME: &str = "errorlog";
/// How often to reopen a log that other processes rotated.
const TRIES: usize = 8;
const BEFORE: &str = "errorlog.1";
/// The files of the log, next to the catalog.
pub const LOG_NAMES: [&str; 2] = [NAME, BEFORE];
/// Width of the column for the source.
const SOURCE_WIDTH: usize = 11;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// `2026-03-01 22:15:04.120`
    pub date: String,
    pub source: String,
    pub text: String,
}

#[derive(Debug)]
pub struct ErrorLog {
    storage: Arc<dyn Storage>,
    /// `None`: nothing is logged.
    directory: Option<PathBuf>,
    /// Orders writers among threads; among processes the file lock does.
    turn: Mutex<()>,
}

impl ErrorLog {
    pub fn beside(storage: Arc<dyn Storage>, catalog: Option<&Path>) -> ErrorLog {
        let absolute = catalog.and_then(|c| std::path::absolute(c).ok());
        ErrorLog {
            storage,
            directory: absolute.and_then(|c| c.parent().map(Path::to_path_buf)),
            turn: Mutex::default(),
        }
    }

    /// The paths of its files, which may not exist.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let directory = self.directory.iter();
        directory.flat_map(|d| [d.join(NAME), d.join(BEFORE)])
    }

    pub fn append(&self, at: DateTime, source: &str, text: &str) {
        let Some(directory) = &self.directory else {
            return;
        };
        let one_line: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let date = date_time_text(&at);
        let line = format!("{date} {source:<SOURCE_WIDTH$} {one_line}\n");
        if let Err(error) = self.write(directory, &line) {
            tracing::warn!(%error, "the server's log was not written");
        }
    }

    fn write(&self, directory: &Path, line: &str) -> io::Result<()> {
        let _turn = self.turn.lock();
        let dir = self.storage.create_dir_all(directory)?;
        let name = Path::new(NAME);
        let open = || match dir.open_own(name, u64::MAX) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => dir.open(name, OpenHow::CreateNew),
            opened => opened,
        };
        for _ in 0..TRIES {
            let file = match open() {
                // Another process has just created it.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open()?,
                opened => opened?,
            };
            let held = hold(&*file)?;
            let own = file.stat()?;
            let same = |now: Stat| (now.dev, now.ino) == (own.dev, own.ino);
            if held && !dir.stat(name).is_ok_and(same) {
                // It was rotated while we waited for it.
                continue;
            }
            if !held || own.len < LEN_MAX {
                return file.write_all_at(line.as_bytes(), own.len, Via::Cache);
            }
            dir.rename(name, Path::new(BEFORE))?;
        }
        Err(io::Error::other("other programs rename it again and again"))
    }

    /// The entries of the log, oldest first. `number` 0 is the current log, 1 the previous one.
    pub fn read(&self, number: i64) -> Vec<LogLine> {
        let name = match number {
            0 => NAME,
            1 => BEFORE,
            _ => return Vec::new(),
        };
        let text = self.text(name).unwrap_or_default();
        text.lines().filter_map(entry).collect()
    }

    fn text(&self, name: &str) -> io::Result<String> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let directory = self.directory.as_ref().ok_or_else(missing)?;
        let dir = self.storage.dir(directory)?;
        let file = dir.open(Path::new(name), OpenHow::Read)?;
        // This program does not write longer files.
        let len = file.stat()?.len.min(2 * LEN_MAX) as usize;
        let mut bytes = vec![0; len];
        let got = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(got);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Waits a moment for other processes that write; returns whether the file is locked for this one. Two lines that
/// overlap are better than a backup that waits.
fn hold(file: &dyn File) -> io::Result<bool> {
    for _ in 0..20 {
        if file.try_lock()? {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

fn entry(line: &str) -> Option<LogLine> {
    const DATE_LEN: usize = 23;
    let date = line.get(..DATE_LEN)?;
    let rest = line.get(DATE_LEN + 1..)?;
    let (source, text) = rest.split_once(' ')?;
    Some(LogLine {
        date: date.to_owned(),
        source: source.to_owned(),
        text: text.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::Host;

    fn log(dir: &Path) -> ErrorLog {
        ErrorLog::beside(Arc::new(Host::new()), Some(&dir.join("catalog.db")))
    }

    #[test]
    fn entries_come_back_in_order_each_on_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let at = jiff::civil::date(2026, 3, 1).at(22, 15, 4, 120_000_000);
        let log = log(dir.path());
        log.append(at, "Backup", "first\nsecond line");
        log.append(at, "Server", "next");
        let entries = log.read(0);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].text, "first second line");
        assert_eq!(entries[0].date, "2026-03-01 22:15:04.120");
        assert_eq!(entries[1].source, "Server");
        assert!(log.read(7).is_empty());
    }

    #[test]
    fn a_full_log_is_renamed_and_a_new_one_begins() {
        let dir = tempfile::tempdir().unwrap();
        let at = jiff::civil::date(2026, 3, 1).at(0, 0, 0, 0);
        let log = log(dir.path());
        std::fs::write(dir.path().join(NAME), vec![b'x'; LEN_MAX as usize]).unwrap();
        log.append(at, "Server", "new");
        assert_eq!(log.read(0).len(), 1);
        assert!(dir.path().join(BEFORE).exists());
    }

    #[test]
    fn a_full_log_is_put_away_once_however_many_find_it_full() {
        const WRITERS: usize = 16;
        let at = jiff::civil::date(2026, 3, 1).at(0, 0, 0, 0);
        for _ in 0..5 {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(NAME), vec![b'x'; LEN_MAX as usize]).unwrap();
            let barrier = std::sync::Barrier::new(WRITERS);
            std::thread::scope(|scope| {
                for _ in 0..WRITERS {
                    scope.spawn(|| {
                        // Like processes: each has its own log.
                        let log = log(dir.path());
                        barrier.wait();
                        log.append(at, "Server", "new");
                    });
                }
            });
            let before = std::fs::metadata(dir.path().join(BEFORE)).unwrap();
            assert!(before.len() >= LEN_MAX, "{} bytes are left", before.len());
        }
    }
}
