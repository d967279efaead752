//! Output for people and scripts: tables, sizes, and one JSON object.
//!
//! Invariants
//! - Standard output carries the answer, standard error everything else.
//! - If a backup itself goes to standard output, the answer goes to standard error too.
//! - A reader that goes away (`| head`) is no error; an answer for which there is no space is one ([`lost`]).
//!
//! Leaves to others: what an answer says (the commands), and progress (the programs).

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use crate::failure::{Exit, Failure};
pub use crate::journal::to_stderr;
use crate::journal::{Priority, is_connected, tell};
use crate::text::plain;

/// The form of the answer.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
    /// A stripe is written to standard output.
    pub stdout_taken: bool,
}

/// The frame around every JSON answer.
#[derive(Serialize)]
struct Envelope<T> {
    status: &'static str,
    exit_code: u8,
    /// All warnings, in the form that people read.
    warnings: Vec<String>,
    /// All notes.
    notes: Vec<String>,
    #[serde(flatten)]
    body: T,
}

impl<T> Envelope<T> {
    fn of(status: &'static str, exit: Exit, body: T) -> Envelope<T> {
        Envelope {
            status,
            exit_code: exit.code(),
            warnings: std::mem::take(&mut WARNED.lock()),
            notes: std::mem::take(&mut NOTED.lock()),
            body,
        }
    }
}

/// Warnings collected for the JSON answer, of which a process gives one.
static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Notes, likewise.
static NOTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// How many were given, printed or not.
static WARNINGS: AtomicU64 = AtomicU64::new(0);

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a Failure,
}

impl Output {
    /// Prints the answer as text, unless JSON or silence was requested.
    pub fn say(&self, text: &str) {
        if !self.json && !self.quiet {
            self.put(text);
        }
    }

    /// Prints what was found to be wrong, also when silence was requested; not next to a JSON answer.
    pub fn findings(&self, text: &str) {
        if !self.json {
            self.put(text);
        }
    }

    /// Prints the answer as JSON if that was requested.
    pub fn json(&self, exit: Exit, body: impl Serialize) {
        let status = match exit {
            Exit::Done => "ok",
            Exit::No => "damaged",
            Exit::Warnings => "warnings",
            _ => "error",
        };
        self.json_as(status, exit, body);
    }

    /// The same for commands whose answer no means something other than damage.
    pub fn json_as(&self, status: &'static str, exit: Exit, body: impl Serialize) {
        if self.json {
            self.put_json(&Envelope::of(status, exit, body));
        }
    }

    /// The exit code of a command that did its work: a warning makes it 5.
    pub fn done(&self) -> Exit {
        match self.warnings() {
            0 => Exit::Done,
            _ => Exit::Warnings,
        }
    }

    /// The number of warnings so far.
    pub fn warnings(&self) -> u64 {
        WARNINGS.load(Ordering::Relaxed)
    }

    /// A remark for people, in addition to the answer.
    pub fn remark(&self, text: &str) {
        if !self.json && !self.quiet {
            tell(Priority::Info, text, None);
        }
    }

    /// One line for the journal of a unit that runs this program with --quiet, so that a run has a begin and an end there.
    /// `outcome`: how the run ends.
    pub fn journal(&self, text: &str, outcome: Option<Exit>) {
        let priority = match outcome {
            None | Some(Exit::Done) => Priority::Info,
            Some(Exit::Warnings) => Priority::Warning,
            Some(_) => Priority::Error,
        };
        if self.quiet && !self.json && is_connected() {
            tell(priority, text, outcome.map(Exit::word));
        }
    }

    pub fn warn(&self, text: &str) {
        WARNINGS.fetch_add(1, Ordering::Relaxed);
        self.tell(("warning", Priority::Warning), &WARNED, text);
    }

    /// Something to know that is no reason for concern, such as an option without an effect. The exit code stays. With
    /// `--quiet` only the journal and the JSON answer get it: cron sends what is printed as a mail.
    pub fn note(&self, text: &str) {
        if self.quiet && !self.json && !is_connected() {
            return;
        }
        self.tell(("note", Priority::Notice), &NOTED, text);
    }

    fn tell(&self, (what, priority): (&str, Priority), collected: &Mutex<Vec<String>>, text: &str) {
        if self.json {
            collected.lock().push(text.to_owned());
        } else {
            let lines: Vec<_> = text.lines().map(plain).collect();
            let told = format!("longshore: {what}: {}\n", lines.join("\n"));
            tell(priority, &told, None);
        }
    }

    pub fn fail(&self, failure: &Failure) {
        if self.json {
            self.put_json(&Envelope::of(
                "error",
                failure.exit,
                ErrorBody { error: failure },
            ));
        } else {
            tell(Priority::Error, &failure.lines(), Some(failure.exit.word()));
        }
    }

    /// Reports a failure at one place of several, for people; the run continues.
    pub fn complain(&self, place: &str, failure: &Failure) {
        if !self.json {
            let told = format!("{}  at: {place}\n", failure.lines());
            tell(Priority::Error, &told, Some(failure.exit.word()));
        }
    }

    /// Starts one JSON object with a member that is written element by element; the outcome is at its end.
    pub fn json_stream(&self, head: &impl Serialize, member: &str) -> JsonStream<'_> {
        let mut text = serde_json::to_string(head).unwrap_or_else(|_| "{}".to_owned());
        text.pop();
        if text.len() > 1 {
            text.push(',');
        }
        text += &format!("\"{member}\":[");
        JsonStream {
            output: self,
            text,
            separator: "",
        }
    }

    fn put_json(&self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.put(&(text + "\n")),
            Err(error) => to_stderr(&format!("longshore: error: {error}\n")),
        }
    }

    fn put(&self, text: &str) {
        // The end of the command reports what was not written.
        let _lost = self.taken(text);
    }

    /// Prints a part of a long answer as text. Error: the reader is gone.
    pub fn say_on(&self, text: &str) -> io::Result<()> {
        match self.json || self.quiet {
            true => Ok(()),
            false => self.taken(text),
        }
    }

    fn taken(&self, text: &str) -> io::Result<()> {
        if self.stdout_taken {
            to_stderr(text);
            return Ok(());
        }
        to_stdout(text.as_bytes())
    }

    /// Writes bytes that are the answer regardless of `--json` and `--quiet`.
    pub fn raw(&self, bytes: &[u8]) {
        // The end of the command reports what was not written.
        let _lost = to_stdout(bytes);
    }
}

/// Why a write of the answer to standard output failed, the first time. A process has one standard output.
static LOST: OnceLock<String> = OnceLock::new();

/// Writes a part of the answer at once. An error is kept for [`lost`], unless the reader is gone: then nobody can be
/// told.
pub fn to_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    if let Err(error) = &written
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error.to_string());
    }
    written
}

/// The failure of an incomplete answer, if there is one.
pub fn lost() -> Option<Failure> {
    LOST.get()
        .map(|why| Failure::unwritten("the answer was not written to standard output", why))
}

/// A long answer is written in pieces of this size.
pub const PIECE_BYTES: usize = 64 << 10;

/// See [`Output::json_stream`].
pub struct JsonStream<'a> {
    output: &'a Output,
    text: String,
    separator: &'static str,
}

impl JsonStream<'_> {
    /// Error: the reader is gone.
    pub fn element(&mut self, value: &impl Serialize) -> io::Result<()> {
        if let Ok(text) = serde_json::to_string(value) {
            self.text += self.separator;
            self.text += &text;
            self.separator = ",";
        }
        match self.text.len() > PIECE_BYTES {
            true => self.output.taken(&std::mem::take(&mut self.text)),
            false => Ok(()),
        }
    }

    pub fn end(self) {
        #[derive(Serialize)]
        struct NoItems {}
        self.end_with(&Envelope::of("ok", Exit::Done, NoItems {}));
    }

    /// Ends an incomplete answer. Returns the exit code: the failure has been reported.
    pub fn fail(self, failure: &Failure) -> Exit {
        let exit = failure.exit;
        self.end_with(&Envelope::of("error", exit, ErrorBody { error: failure }));
        exit
    }

    fn end_with(self, tail: &impl Serialize) {
        let tail = serde_json::to_string(tail).unwrap_or_else(|_| "{}".to_owned());
        self.output.put(&format!("{}],{}\n", self.text, &tail[1..]));
    }
}

/// Columns next to each other: texts aligned left, numbers right.
pub struct Table {
    columns: Columns,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&'static str]) -> Table {
        Table {
            columns: Columns::new(heads),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.columns.see(&cells);
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.columns.heads())?;
        for row in &self.rows {
            f.write_str(&self.columns.line(row))?;
        }
        Ok(())
    }
}

/// The column widths of a table that is too long to hold: its rows are passed twice.
pub struct Columns {
    heads: Vec<String>,
    widths: Vec<usize>,
    /// Whether all cells so far are numbers.
    numbers: Vec<bool>,
    is_empty: bool,
}

impl Columns {
    pub fn new(heads: &[&'static str]) -> Columns {
        Columns {
            heads: heads.iter().map(|h| (*h).to_owned()).collect(),
            widths: heads.iter().map(|h| width(h)).collect(),
            numbers: vec![true; heads.len()],
            is_empty: true,
        }
    }

    /// Widens the columns for a row.
    pub fn see(&mut self, cells: &[String]) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.is_empty = false;
        for (i, cell) in cells.iter().enumerate() {
            self.widths[i] = self.widths[i].max(width(cell));
            self.numbers[i] &= cell.starts_with(|c: char| c.is_ascii_digit()) || cell == "-";
        }
    }

    pub fn heads(&self) -> String {
        self.line(&self.heads)
    }

    /// One row. A cell wider than its column moves the later cells.
    pub fn line(&self, cells: &[String]) -> String {
        let mut text = String::new();
        for (i, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(self.widths[i].saturating_sub(width(cell)));
            let gap = if i == 0 { "" } else { "  " };
            match self.numbers[i] && !self.is_empty {
                true => text += &format!("{gap}{pad}{cell}"),
                false => text += &format!("{gap}{cell}{pad}"),
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Bytes in the largest unit that leaves a whole part: `812.4 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// A UTC time to the second.
pub fn moment(unix_us: i64) -> String {
    match jiff::Timestamp::from_microsecond(unix_us) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => "-".to_owned(),
    }
}

/// The first whole second that is not before this moment: what is recoverable since then can be asked for as it is printed.
pub fn moment_after(unix_us: i64) -> String {
    moment(unix_us.saturating_add(999_999))
}

/// CPU seconds per 10^9 bytes.
pub fn cpu_s_per_gb(cpu_s: f64, plain_bytes: u64) -> f64 {
    if plain_bytes == 0 {
        0.0
    } else {
        cpu_s / (plain_bytes as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_right_and_texts_left() {
        let mut table = Table::new(&["name", "bytes"]);
        table.row(vec!["a".into(), "5".into()]);
        table.row(vec!["long name".into(), "12345".into()]);
        assert_eq!(
            table.to_string(),
            "name       bytes\na              5\nlong name  12345\n"
        );
    }

    #[test]
    fn sizes_name_their_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
