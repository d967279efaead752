//! A directory of its own for every test, and ways to run the program in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::hears_interrupts;

pub const BINARY: &str = env!("CARGO_BIN_EXE_longshore");

pub struct Stage {
    dir: TempDir,
}

/// What a finished program left.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: &Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Checks the exit code and goes on.
    #[track_caller]
    pub fn exits(self, code: i32) -> Ran {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.out, self.err
        );
        self
    }

    #[track_caller]
    pub fn says(self, part: &str) -> Ran {
        assert!(
            self.out.contains(part) || self.err.contains(part),
            "{part:?} is missing\nstdout: {}\nstderr: {}",
            self.out,
            self.err
        );
        self
    }
}

impl Stage {
    pub fn new() -> Stage {
        Stage {
            dir: TempDir::new().unwrap(),
        }
    }

    /// Where a server's user can enter, too: the system's temporary directory may be closed to it.
    pub fn beside_servers() -> Stage {
        Stage {
            dir: TempDir::new_in("/tmp").unwrap(),
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
        let mut command = Command::new(BINARY);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("LONGSHORE_CATALOG", self.path("history.db"))
            .env("XDG_CONFIG_HOME", self.path("no-config"))
            .env("HOME", self.dir.path())
            .env_remove("LONGSHORE_CONFIG")
            .env_remove("LONGSHORE_LOG")
            .stdin(Stdio::null());
        hears_interrupts(&mut command);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }

    /// A line as one would type it; words are divided by spaces.
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

    /// Names in a directory, sorted.
    pub fn names(&self, dir: impl AsRef<Path>) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(self.path(dir))
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// A SQLite database of about so many MiB, in rollback-journal mode.
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

/// Flips one bit, in the middle: how much each of several stripes got is chance.
pub fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}
