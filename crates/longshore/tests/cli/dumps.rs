//! Goal: the system dumps no process that has a key, whatever the limit of core files is: handlers as systemd's disregard limits.
//! Method: the real program waits for its input, and the owner of its files in /proc is looked at. The system shows those of a
//! process that it would not dump as root's. For that the program runs as another user, by `setpriv` if these tests are root's.
//! Not covered: the limit (`encrypted.rs`), and a dump itself, since its place is one for the whole machine.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Ran;
use crate::stage::{BINARY, Stage};

/// A user that no passwd database knows.
const USER: u32 = 23_461;

/// A directory of the user's as whom the program runs.
struct Users {
    stage: Stage,
    is_root: bool,
}

impl Users {
    fn new() -> Users {
        let stage = Stage::beside_servers();
        // SAFETY: `geteuid` demands nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        if is_root {
            // By another process: a program that this one still has open for writing cannot be run.
            let mut copy = Command::new("cp");
            let copied = copy.arg(BINARY).arg(stage.path("longshore")).status();
            assert!(copied.unwrap().success());
            std::os::unix::fs::chown(stage.path("."), Some(USER), Some(USER)).unwrap();
        }
        Users { stage, is_root }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = match self.is_root {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=23461", "--regid=23461", "--clear-groups"]);
                command.arg(self.stage.path("longshore"));
                command
            }
            false => Command::new(BINARY),
        };
        command.args(["--catalog", "none"]);
        command.args(line.split_whitespace());
        command
            .current_dir(self.stage.path("."))
            .env("HOME", self.stage.path("."))
            .env("XDG_CONFIG_HOME", self.stage.path("no-config"));
        command
    }

    fn line(&self, line: &str) -> Ran {
        Ran::of(&self.command(line).output().unwrap())
    }

    /// The owner of the files in /proc of a run that waits for its input, once that is root or `wait` has passed.
    fn shown_owner(&self, line: &str, wait: Duration) -> u32 {
        let mut command = self.command(line);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let place = format!("/proc/{}", child.id());
        let until = Instant::now() + wait;
        let owner = loop {
            // Before that it is `setpriv`, which is root's.
            let name = std::fs::read_to_string(format!("{place}/comm"));
            let is_begun = name.is_ok_and(|name| name.trim() == "longshore");
            let owner = std::fs::metadata(format!("{place}/status")).unwrap().uid();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{line}: {status}");
            }
            if is_begun && (owner == 0 || Instant::now() > until) {
                break owner;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        owner
    }
}

#[test]
fn a_process_with_a_key_belongs_to_root_in_the_eyes_of_the_system() {
    let users = Users::new();
    let to = users.line("key new id").exits(0).out.trim().to_owned();
    users.stage.database("app.db", 1);
    if users.is_root {
        let owner = Some(USER);
        std::os::unix::fs::chown(users.stage.path("app.db"), owner, owner).unwrap();
    }
    let minute = Duration::from_secs(60);
    for line in [
        "restore - --to out --identity id",
        &format!("backup app.db --to - --encrypt-to {to}"),
    ] {
        assert_eq!(users.shown_owner(line, minute), 0, "{line}");
    }
    // Without a key the process is its user's.
    let second = Duration::from_secs(1);
    for line in ["restore - --to out", "backup app.db --to -"] {
        assert_ne!(users.shown_owner(line, second), 0, "{line}");
    }
}
