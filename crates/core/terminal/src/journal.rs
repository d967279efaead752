//! Lines for people on standard error, which are entries with fields where that is systemd's journal.
//!
//! Invariants
//! - An entry says what the lines would. If the journal does not take it, the lines are written to standard error.
//! - The fields hold names, words, numbers and LSNs that the lines of a run may hold, too: no connection string, no
//!   password and no key.
//!
//! Leaves to others: the datagrams (`longshore-io`), what is said and when (`output.rs`), and which run it is (the
//! programs).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use longshore_io::JournalSocket;
use parking_lot::Mutex;

/// How much an entry matters, as syslog numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
    Debug = 7,
}

/// The run that entries are about.
#[derive(Debug, Default)]
pub struct RunFields {
    /// As `action` of the answer in JSON.
    pub task: &'static str,
    pub database: Option<String>,
    pub target: Option<String>,
    pub label: Option<String>,
    /// Full, differential or incremental.
    pub kind: Option<&'static str>,
    pub first_lsn: Option<String>,
    pub last_lsn: Option<String>,
    pub timeline: Option<u32>,
}

impl RunFields {
    fn named(&self) -> Vec<(&'static str, &str)> {
        let fields = [
            ("LONGSHORE_TASK", Some(self.task)),
            ("LONGSHORE_DATABASE", self.database.as_deref()),
            ("LONGSHORE_TARGET", self.target.as_deref()),
            ("LONGSHORE_LABEL", self.label.as_deref()),
            ("LONGSHORE_TYPE", self.kind),
            ("LONGSHORE_FIRST_LSN", self.first_lsn.as_deref()),
            ("LONGSHORE_LAST_LSN", self.last_lsn.as_deref()),
        ];
        let known = fields.into_iter();
        known
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// The run that this process is at, or was last at. A process does one at a time.
static RUN: Mutex<Option<RunFields>> = Mutex::new(None);

/// From here on, entries are about this run.
pub fn begin(run: RunFields) {
    *RUN.lock() = Some(run);
}

/// Adds what the run has found out about itself.
pub fn learn(change: impl FnOnce(&mut RunFields)) {
    if let Some(run) = &mut *RUN.lock() {
        change(run);
    }
}

/// Whether standard error is the journal, as systemd says of the services that it starts: by device and inode.
pub fn is_connected() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let about = || {
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        File::from(stderr).metadata()
    };
    about().is_ok_and(|about| stream == format!("{}:{}", about.dev(), about.ino()))
}

/// `None`: standard error is not the journal.
static SOCKET: OnceLock<Option<JournalSocket>> = OnceLock::new();

fn socket() -> Option<&'static JournalSocket> {
    let open = || is_connected().then(JournalSocket::open)?.ok();
    SOCKET.get_or_init(open).as_ref()
}

/// Says whole lines. `outcome`: the word of the exit code with which the run ends, where it does.
pub fn tell(priority: Priority, lines: &str, outcome: Option<&str>) {
    let sent = socket().is_some_and(|socket| send(socket, priority, lines, outcome).is_ok());
    if !sent {
        to_stderr(lines);
    }
}

fn send(
    socket: &JournalSocket,
    priority: Priority,
    lines: &str,
    outcome: Option<&str>,
) -> io::Result<()> {
    // The program's name is a field.
    let lines = lines.lines();
    let lines = lines.map(|line| line.strip_prefix("longshore: ").unwrap_or(line));
    let message = lines.collect::<Vec<_>>().join("\n");
    let priority = (priority as u8).to_string();
    let run = RUN.lock();
    let timeline = run.as_ref().and_then(|run| run.timeline);
    let timeline = timeline.map(|timeline| timeline.to_string());
    let mut fields = vec![
        ("MESSAGE", message.as_str()),
        ("PRIORITY", &priority),
        ("SYSLOG_IDENTIFIER", "longshore"),
    ];
    fields.extend(run.as_ref().map(RunFields::named).unwrap_or_default());
    fields.extend(
        timeline
            .as_deref()
            .map(|number| ("LONGSHORE_TIMELINE", number)),
    );
    fields.extend(outcome.map(|outcome| ("LONGSHORE_OUTCOME", outcome)));
    socket.send(&fields)
}

/// Waits a moment until the journal has taken the last entries: before the process ends.
pub fn settle() {
    if let Some(Some(socket)) = SOCKET.get() {
        socket.settle();
    }
}

pub fn to_stderr(text: &str) {
    let _gone = io::stderr().lock().write_all(text.as_bytes());
}
