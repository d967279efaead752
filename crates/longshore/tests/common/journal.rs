//! Goal: a test runs the program as a unit of systemd does, and reads its entries of the journal.
//! Method: standard error is a file that `JOURNAL_STREAM` names; in a mount namespace, `/run/systemd/journal` is a
//! directory of the test, with a socket of the test or without one.
//! Not covered: this file has no tests.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Exchanges the directory of the journal's socket for another one, then becomes a program.
const INSIDE: &str = "test -d /run/systemd/journal || mount -t tmpfs none /run || exit 111
mkdir -p /run/systemd/journal && mount --bind \"$0\" /run/systemd/journal || exit 111
exec \"$@\"";

/// How a unit's run ended, and what it said.
pub struct UnitRun {
    pub code: i32,
    pub err: String,
    pub entries: Vec<Entry>,
}

/// An entry of the journal by its fields.
pub type Entry = BTreeMap<String, String>;

/// The value of a field, or nothing.
pub fn field<'a>(entry: &'a Entry, name: &str) -> &'a str {
    entry.get(name).map_or("", String::as_str)
}

/// Where units run.
pub struct Units {
    dir: PathBuf,
    /// The user and group of the units, if they are not those of this process.
    pub user: Option<(u32, u32)>,
    /// Whether standard error is the journal.
    pub is_journal: bool,
    /// Whether the journal answers.
    pub listens: bool,
}

impl Units {
    /// The journal answers, and standard error is connected to it. `dir` is made.
    pub fn new(dir: PathBuf) -> Units {
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        Units {
            dir,
            user: None,
            is_journal: true,
            listens: true,
        }
    }

    /// Runs a command in `work` as a unit; `None` if this user cannot mount.
    pub fn run(&self, command: &Command, work: &Path) -> Option<UnitRun> {
        let socket = self.dir.join("socket");
        let _none_before = std::fs::remove_file(&socket);
        let journal = self.listens.then(|| {
            let journal = UnixDatagram::bind(&socket).unwrap();
            std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
            let patience = Some(Duration::from_millis(20));
            journal.set_read_timeout(patience).unwrap();
            journal
        });
        let mut inside = self.inside(command, work);
        let ended = AtomicBool::new(false);
        let (code, entries) = std::thread::scope(|scope| {
            // The kernel holds ten datagrams at most until they are read.
            let entries = scope.spawn(|| {
                let mut entries = Vec::new();
                let mut datagram = vec![0; 1 << 20];
                while let Some(journal) = &journal {
                    match journal.recv(&mut datagram) {
                        Ok(len) => entries.push(entry(&datagram[..len])),
                        Err(_) if ended.load(Ordering::SeqCst) => break,
                        Err(_) => {}
                    }
                }
                entries
            });
            let code = inside.status().unwrap().code().unwrap();
            ended.store(true, Ordering::SeqCst);
            (code, entries.join().unwrap())
        });
        let err = std::fs::read_to_string(self.dir.join("stderr")).unwrap();
        if code == 111 || err.starts_with("unshare:") {
            eprintln!("left out: this user cannot mount");
            return None;
        }
        Some(UnitRun { code, err, entries })
    }

    /// The command in a mount namespace of its own.
    fn inside(&self, command: &Command, work: &Path) -> Command {
        let file = File::create(self.dir.join("stderr")).unwrap();
        let about = file.metadata().unwrap();
        let inode = about.ino() + u64::from(!self.is_journal);
        let mut inside = Command::new("unshare");
        inside.args(["-m", "sh", "-c", INSIDE]).arg(&self.dir);
        if let Some((user, group)) = self.user {
            let ids = [format!("--reuid={user}"), format!("--regid={group}")];
            inside.arg("setpriv").args(ids).arg("--clear-groups");
        }
        inside.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(key, value),
                None => inside.env_remove(key),
            };
        }
        inside
            .env("JOURNAL_STREAM", format!("{}:{inode}", about.dev()))
            .current_dir(work)
            .stderr(file);
        inside
    }
}

/// Reads an entry as systemd's page on the native protocol describes it.
fn entry(mut datagram: &[u8]) -> Entry {
    let mut fields = BTreeMap::new();
    while !datagram.is_empty() {
        let end = datagram.iter().position(|b| *b == b'\n').unwrap();
        let head = std::str::from_utf8(&datagram[..end]).unwrap();
        let (name, value, rest) = match head.split_once('=') {
            Some((name, value)) => (name, value.to_owned(), &datagram[end + 1..]),
            None => {
                let (len, rest) = datagram[end + 1..].split_at(8);
                let len = u64::from_le_bytes(len.try_into().unwrap()) as usize;
                let value = String::from_utf8(rest[..len].to_vec()).unwrap();
                assert_eq!(rest[len], b'\n');
                (head, value, &rest[len + 1..])
            }
        };
        let is_new = fields.insert(name.to_owned(), value).is_none();
        assert!(is_new, "{name} twice");
        datagram = rest;
    }
    fields
}
