//! Goal: every test of the command line has a directory of its own, and ways to run the program in it without the
//! user's history and configuration.
//! Method: real processes; a shell where a test needs pipes.
//! Not covered: this file has no tests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::longshore;
pub use crate::common::{BINARY, Ran};

pub struct Stage {
    dir: TempDir,
}

impl Stage {
    pub fn new() -> Stage {
        Stage {
            dir: TempDir::new().unwrap(),
        }
    }

    /// A directory that a server's user can enter, too: the system's temporary directory may be closed to that user.
    pub fn beside_servers() -> Stage {
        Stage {
            dir: longshore_kit::place::dir("lscli"),
        }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The program in this directory, with a history and a configuration of its own.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = longshore(args);
        command
            .current_dir(self.dir.path())
            .env("LONGSHORE_CATALOG", self.path("history.db"))
            .env("XDG_CONFIG_HOME", self.path("no-config"))
            .env("HOME", self.dir.path())
            .env_remove("LONGSHORE_LOG");
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }

    /// A line as a user types it; words are separated by spaces.
    pub fn line(&self, line: &str) -> Ran {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// A line for the shell; `longshore` is the program.
    pub fn shell(&self, line: &str) -> Ran {
        let own = Path::new(BINARY).parent().unwrap().display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.command::<&str>(&[]);
        let mut shell = Command::new("bash");
        shell
            .args(["-eo", "pipefail", "-c", line])
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        for (key, value) in command.env("PATH", format!("{own}:{path}")).get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        Ran::of(&shell.output().unwrap())
    }

    /// Names in a directory, sorted, but for the records of what runs found out.
    pub fn names(&self, dir: impl AsRef<Path>) -> Vec<String> {
        let mut names = self.all_names(dir);
        names.retain(|name| !name.starts_with(".longshore-status-"));
        names
    }

    /// Names in a directory, sorted.
    pub fn all_names(&self, dir: impl AsRef<Path>) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.path(dir))
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// A SQLite database of about `mib` MiB, in rollback-journal mode.
    pub fn database(&self, name: &str, mib: u32) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(&format!(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, payload BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})
             INSERT INTO item SELECT i, 'item number ' || i, randomblob(400) || zeroblob(560) FROM n;",
            mib * 1024
        ))
        .unwrap();
        path
    }
}

/// Every row of a database, as text.
pub fn rows(path: &Path) -> Vec<String> {
    let db = rusqlite::Connection::open(path).unwrap();
    let check: String = db
        .query_row("PRAGMA integrity_check", [], |r| r.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let mut rows = db
        .prepare("SELECT id || name || hex(payload) FROM item ORDER BY id")
        .unwrap();
    rows.query_map([], |r| r.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

/// Flips one bit in the middle: how much data each of several stripes received is chance.
pub fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}
