//! Goal: the tests of restores have a configured database: its server, a target of two directories, an archive of its
//! WAL, and marks in its history.
//! Method: a real server that archives by the program's own command.
//! Not covered: this file has no tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use longshore_kit::{Installation, PATIENCE, Server};
use serde_json::Value;

use crate::common::{BINARY, Guarded, answer, longshore, text, wait};
use crate::stage::{Stage, judged, succeed};

/// A configured database whose WAL goes to an archive of its own, and its server.
pub struct Main {
    pub stage: Stage,
}

/// A moment in its history.
#[derive(Clone)]
pub struct Moment {
    pub time: String,
    pub lsn: String,
}

impl Main {
    pub fn new(installation: &Installation) -> Main {
        let conf = [("archive_mode", "on"), ("archive_command", "false")];
        let stage = Stage::new(installation, &conf);
        let server = &stage.server;
        let path = |name: &str| stage.path(name).display().to_string();
        let config = format!(
            "[database.main]\nurl = \"{}\"\ntarget = \"t\"\nalgorithm = \"LZ4\"\n\
             [database.main.wal]\narchive = \"{}\"\nalgorithm = \"ZSTD\"\nasync = true\nprefetch = \"8M\"\n\
             [target.t]\ndirectories = [\"{}\", \"{}\"]\n[target.other]\ndirectories = [\"{}\"]\n",
            server.url(),
            path("log/main"),
            path("disk1"),
            path("disk2"),
            path("disk3"),
        );
        std::fs::write(stage.path("longshore.toml"), config).unwrap();
        std::fs::create_dir_all(stage.path("log/main")).unwrap();
        server.user().own(stage.dir.path());
        // Targets stay this process's: it makes the backups.
        for dir in ["disk1", "disk2", "disk3"] {
            std::fs::create_dir(stage.path(dir)).unwrap();
        }
        let main = Main { stage };
        succeed(&mut main.command("wal create --database main"));
        main.stage.server.user().own(&main.stage.path("log"));
        main.archives("wal push %p --database main");
        main
    }

    pub fn archives(&self, action: &str) {
        let program = crate::common::BINARY;
        let config = self.stage.path("longshore.toml");
        self.stage.server.psql(&format!(
            "alter system set archive_command = '{program} --catalog none --config {} {action}'; \
             select pg_reload_conf()",
            config.display()
        ));
    }

    /// The program with the configuration.
    pub fn command(&self, line: &str) -> Command {
        let mut command = longshore(["--config"]);
        command.arg(self.stage.path("longshore.toml"));
        command.args(line.split_whitespace());
        command
    }

    /// `wal push` of a file by the server's user, whose archive takes nothing from root.
    pub fn push(&self, file: &Path, archive: &Path) -> Command {
        let mut push = self.stage.server.command_at(Path::new(BINARY));
        push.args(["--catalog", "none", "wal", "push"]).arg(file);
        push.arg("--archive").arg(archive);
        push
    }

    /// A backup of the database, and its label.
    pub fn back_up(&self) -> String {
        self.back_up_as("")
    }

    pub fn back_up_as(&self, option: &str) -> String {
        let before = self.labels();
        // Labels have a resolution of one second; damaged sets have no finer time.
        std::thread::sleep(Duration::from_millis(1000));
        succeed(&mut self.command(&format!("backup main {option}")));
        let new = self.labels().into_iter().find(|l| !before.contains(l));
        new.unwrap()
    }

    pub fn labels(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.stage.path("disk1/main"));
        let names = names.into_iter().flatten();
        names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            // The mark by which the archive knows the target.
            .filter(|name| !name.starts_with('.'))
            .collect()
    }

    pub fn mark(&self, marker: u32) -> Moment {
        let server = &self.stage.server;
        server.psql(&format!("insert into marker values ({marker})"));
        let moment = Moment {
            time: server.psql("select clock_timestamp() at time zone 'UTC'") + "+00",
            lsn: server.psql("select pg_current_wal_lsn()"),
        };
        server.psql("select pg_sleep(0.02)");
        moment
    }

    /// Ends three segments, each with a change in it.
    pub fn fill_segments(&self) {
        for _ in 0..3 {
            let server = &self.stage.server;
            server.psql("insert into marker values (0); select pg_switch_wal()");
        }
    }

    pub fn archived(&self, server: &Server) {
        archived(server);
    }

    /// `restore --database main` into a new directory of this name.
    pub fn restore(&self, name: &str, more: &[&str]) -> (PathBuf, Command) {
        let data = self.stage.path(name);
        let mut command = self.command("restore --database main --json --to");
        command.arg(&data).args(more);
        (data, command)
    }

    /// Restores, and starts a server; returns the choice that was made, and the server.
    pub fn restored(&self, name: &str, more: &[&str]) -> (Value, Server) {
        let (data, mut command) = self.restore(name, more);
        let told = answer(&judged(&mut command))["chosen"].clone();
        let server = self.stage.adopt(&data);
        server.start();
        (told, server)
    }

    pub fn segment(&self, lsn: &str) -> PathBuf {
        let name = self
            .stage
            .server
            .psql(&format!("select pg_walfile_name('{lsn}')"));
        let dir = self.stage.path("log/main").join(&name[..16]);
        let path = dir.join(format!("{name}.zst"));
        assert!(path.exists(), "{}", path.display());
        path
    }
}

/// Runs a backup to its end, and `act` while it is in progress: the backup is stopped meanwhile.
pub fn meanwhile(backup: &mut Command, act: impl FnOnce()) {
    backup.args(["--max-rate", "4MB"]);
    backup.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Guarded(backup.spawn().unwrap());
    let pid = child.0.id();
    // It reads relations, so it has already looked at the initial facts, tablespaces among them.
    let has_read = || {
        let counts = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let bytes = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
        bytes.unwrap().parse::<u64>().unwrap() > 2 << 20
    };
    loop {
        if child.0.try_wait().unwrap().is_some() {
            panic!("it is over already: {}", said(&mut child));
        }
        if has_read() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let signal = |signal| {
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        unsafe { libc::kill(pid as i32, signal) };
    };
    signal(libc::SIGSTOP);
    act();
    signal(libc::SIGCONT);
    let status = wait(&mut child.0, PATIENCE, "the backup");
    assert!(status.success(), "{}", said(&mut child));
}

/// The text that a process wrote to standard error before it ended.
fn said(child: &mut Guarded) -> String {
    let mut stderr = Vec::new();
    std::io::Read::read_to_end(child.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    text(&stderr)
}

/// Switches the WAL segment and waits until it is archived. The server may continue to write meanwhile.
pub fn archived(server: &Server) {
    let last = server.psql("select pg_walfile_name(pg_switch_wal() - 1)");
    let done = format!("select last_archived_wal >= '{last}' from pg_stat_archiver");
    server.wait_for(&done, "t");
    // A backup's history file may come after the segments that it needs.
    let waiting = "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'";
    server.wait_for(waiting, "0");
}

pub fn markers(server: &Server) -> String {
    server.psql("select string_agg(i::text, ' ' order by i) from marker")
}

pub fn reached(server: &Server) -> String {
    server.wait_for(
        "select pg_is_in_recovery() and not pg_is_wal_replay_paused()",
        "f",
    );
    markers(server)
}
