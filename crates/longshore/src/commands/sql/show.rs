//! Results as sqlcmd prints them: padded columns, a line of dashes, `(1 rows affected)`, errors as `Msg …, Level …`.
//!
//! Scripts parse this output, so its layout is fixed by tests with sqlcmd's own.
//!
//! Invariants
//! - Rows are printed as they come and not kept.
//! - An error in writing is remembered and ends the command.
//!
//! Leaves to others: JSON (`record.rs`), and values as text (`tsql`).

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use longshore_io::{File, Via};
use longshore_tsql::{Column, DoneEvent, Message, ReceiverGone, Sink, Type, Value};

use super::encoding::Encoding;
use longshore_terminal::output::to_stdout;

/// The format of results.
#[derive(Debug, Clone)]
pub struct Style {
    /// -1: no headers; 0: one header; otherwise a header every so many rows.
    pub headers: i64,
    pub separator: String,
    pub trim: bool,
    pub width: Option<usize>,
    /// The width of columns without a width of their own; 0: the width of their values.
    pub variable_width: usize,
    /// The width of columns with a width of their own; 0: the width of their type.
    pub fixed_width: usize,
    /// 1: each control character in a value is a blank; 2: a run of them is.
    pub control_characters: Option<u8>,
    /// The encoding of results.
    pub encoding: Encoding,
    /// Messages below this severity are hidden; information has severity 0.
    pub message_level: i8,
    /// The destination instead of standard output.
    pub file: Option<Arc<OutputFile>>,
    /// Without a file: to standard error instead of standard output, from `:out stderr` on.
    pub results_to_stderr: bool,
    /// 0: errors go to standard error; 1: all messages do.
    pub to_stderr: Option<u8>,
    /// The destination of errors, from `:error` on.
    pub errors: Option<ErrorsTo>,
    pub server: String,
}

/// Where `:error` sends messages of errors.
#[derive(Debug, Clone)]
pub enum ErrorsTo {
    File(Arc<OutputFile>),
    StandardOutput,
    StandardError,
}

/// The width of columns of unlimited length.
pub const WIDTH_MAX: usize = 256;

/// An output file for results.
#[derive(Debug)]
pub struct OutputFile {
    file: Arc<dyn File>,
    encoding: Encoding,
    /// Bytes written.
    len: AtomicU64,
    /// The reason of the first failed write.
    lost: OnceLock<String>,
}

impl OutputFile {
    /// `file` is empty.
    pub fn new(file: Arc<dyn File>, encoding: Encoding) -> OutputFile {
        OutputFile {
            file,
            encoding,
            len: AtomicU64::new(0),
            lost: OnceLock::new(),
        }
    }

    /// If the write fails, the reason is also kept for [`OutputFile::lost`].
    pub fn put(&self, text: &str) -> Result<(), ReceiverGone> {
        let at = self.len.load(Ordering::Relaxed);
        let bytes = self.encoding.encoded(text);
        let written = self.file.write_all_at(&bytes, at, Via::Cache);
        written.map_err(|error| {
            self.lost.get_or_init(|| error.to_string());
            ReceiverGone
        })?;
        self.len.store(at + bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The reason why the file is incomplete.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }
}

/// Writes to standard error, whose reader may be gone.
pub fn aside(bytes: &[u8]) {
    let _gone = io::stderr().lock().write_all(bytes);
}

/// A text as sqlcmd prints it: with its tabs and its lines. Other control characters, which media may have, could move
/// the terminal's cursor.
fn plain(text: &str) -> String {
    let one = |line: &str| {
        let pieces = line.split('\t').map(longshore_terminal::text::plain);
        pieces.collect::<Vec<_>>().join("\t")
    };
    let lines = text
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line));
    lines.map(one).collect::<Vec<_>>().join("\n")
}

/// The text with blanks in the place of control characters; `runs`: one for several.
fn without_controls(text: &str, runs: bool) -> String {
    let mut made = String::with_capacity(text.len());
    let mut follows = false;
    for c in text.chars() {
        match c.is_control() {
            true if runs && follows => {}
            true => made.push(' '),
            false => made.push(c),
        }
        follows = c.is_control();
    }
    longshore_terminal::text::plain(&made)
}

/// Whether -Y cuts values of a type: texts of bounded length, and values of any type.
fn is_cut(kind: Type) -> bool {
    kind.is_text() || kind == Type::SqlVariant
}

/// Prints while the statements run.
pub struct Show<'a> {
    style: &'a Style,
    columns: Vec<Column>,
    /// Whether a result set has begun and not ended.
    open: bool,
    rows: u64,
}

impl<'a> Show<'a> {
    pub fn new(style: &'a Style) -> Show<'a> {
        Show {
            style,
            columns: Vec::new(),
            open: false,
            rows: 0,
        }
    }

    fn put(&self, text: &str) -> Result<(), ReceiverGone> {
        if let Some(file) = &self.style.file {
            return file.put(text);
        }
        let bytes = self.style.encoding.encoded(text);
        if self.style.results_to_stderr {
            aside(&bytes);
            return Ok(());
        }
        to_stdout(&bytes).map_err(|_| ReceiverGone)
    }

    /// A message that stands apart from results.
    fn put_aside(&self, text: &str) {
        aside(&self.style.encoding.encoded(text));
    }

    fn line(&self, cells: impl Iterator<Item = String>) -> Result<(), ReceiverGone> {
        let mut line = cells.collect::<Vec<_>>().join(&self.style.separator);
        if let Some(width) = self.style.width
            && let Some((at, _)) = line.char_indices().nth(width)
        {
            line.truncate(at);
        }
        self.put(&(line + "\n"))
    }

    fn width(&self, column: &Column) -> usize {
        let own = column.kind.display_width();
        let most = match own {
            Some(_) => WIDTH_MAX,
            None => self.style.variable_width,
        };
        let own = match (own, self.style.fixed_width) {
            (Some(_), fixed @ 1..) if is_cut(column.kind) => return fixed,
            (own, _) => own.unwrap_or(most),
        };
        own.max(column.name.chars().count()).clamp(1, most.max(1))
    }

    /// Whether a column's values are neither cut nor padded.
    fn is_as_it_is(&self, column: &Column) -> bool {
        self.style.variable_width == 0 && column.kind.display_width().is_none()
    }

    fn cell(&self, column: &Column, text: &str) -> String {
        let plain = match self.style.control_characters {
            None => plain(text),
            Some(how) => without_controls(text, how > 1),
        };
        if self.style.trim {
            return plain.trim_end().to_owned();
        }
        if self.is_as_it_is(column) {
            return plain;
        }
        let width = self.width(column);
        let cut: String = plain.chars().take(width).collect();
        match column.kind.is_number() || column.kind == Type::SqlVariant {
            true => format!("{cut:>width$}"),
            false => format!("{cut:<width$}"),
        }
    }

    fn header(&self) -> Result<(), ReceiverGone> {
        self.line(self.columns.iter().map(|c| match self.style.trim {
            true => c.name.clone(),
            false if self.is_as_it_is(c) => c.name.clone(),
            false => format!("{:<width$.width$}", c.name, width = self.width(c)),
        }))?;
        self.line(self.columns.iter().map(|c| match self.style.trim {
            true => "-".repeat(c.name.chars().count().max(1)),
            false if self.is_as_it_is(c) => "-".repeat(c.name.chars().count().max(1)),
            false => "-".repeat(self.width(c)),
        }))
    }
}

impl Sink for Show<'_> {
    fn columns(&mut self, columns: &[Column]) -> Result<(), ReceiverGone> {
        self.columns = columns.to_vec();
        self.open = true;
        self.rows = 0;
        match self.style.headers {
            -1 => Ok(()),
            _ => self.header(),
        }
    }

    fn row(&mut self, row: &[Value]) -> Result<(), ReceiverGone> {
        let again = u64::try_from(self.style.headers).unwrap_or(0);
        if again > 0 && self.rows > 0 && self.rows.is_multiple_of(again) {
            self.put("\n")?;
            self.header()?;
        }
        self.rows += 1;
        let cells = self.columns.iter().zip(row);
        self.line(cells.map(|(column, value)| self.cell(column, &value.to_string())))
    }

    fn message(&mut self, message: &Message) -> Result<(), ReceiverGone> {
        if i16::from(message.class()) < i16::from(self.style.message_level) {
            return Ok(());
        }
        let text = plain(message.text.trim_end_matches(['\r', '\n']));
        let text = match message.is_error() {
            true => {
                let procedure = message
                    .procedure
                    .as_deref()
                    .map(longshore_terminal::text::plain);
                let procedure =
                    procedure.map_or(String::new(), |name| format!(" Procedure {name},"));
                format!(
                    "Msg {}, Level {}, State {}, Server {},{procedure} Line {}\n{text}\n",
                    message.number,
                    message.severity,
                    message.state,
                    self.style.server,
                    message.line
                )
            }
            false => format!("{text}\n"),
        };
        let aside = match self.style.to_stderr {
            None => false,
            Some(0) => message.is_error(),
            Some(_) => true,
        };
        match (&self.style.errors, aside) {
            (Some(ErrorsTo::File(file)), _) if message.is_error() => file.put(&text),
            (Some(ErrorsTo::StandardError), _) if message.is_error() => {
                self.put_aside(&text);
                Ok(())
            }
            (Some(ErrorsTo::StandardOutput), _) if message.is_error() => {
                to_stdout(&self.style.encoding.encoded(&text)).map_err(|_| ReceiverGone)
            }
            (_, true) => {
                self.put_aside(&text);
                Ok(())
            }
            (_, false) => self.put(&text),
        }
    }

    fn done(&mut self, done: DoneEvent) -> Result<(), ReceiverGone> {
        let ends = std::mem::take(&mut self.open);
        match done.rows {
            Some(rows) => self.put(&format!("\n({rows} rows affected)\n")),
            None if ends && !done.error => self.put("\n"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_io::{OpenHow, SimDisk, Storage};

    use super::*;
    use crate::commands::sql::sink_suite::{keeps_its_contract, legal};

    /// Goal: in every style, each row and each message is shown, and a full disk is a reader that is gone.
    #[test]
    fn everything_that_was_said_is_shown_or_the_reader_is_gone() {
        for (trim, headers, variable_width, bytes_max) in [
            (false, 0, 0, None),
            (false, -1, 40, None),
            (true, 1, 40, None),
            (false, 0, 40, Some(4096)),
        ] {
            let disk = SimDisk::new(1);
            let dir = disk.create_dir_all(Path::new("/out")).unwrap();
            let file = dir.open(Path::new("out"), OpenHow::CreateNew).unwrap();
            if let Some(bytes) = bytes_max {
                disk.set_capacity("/out", bytes).unwrap();
            }
            let style = Style {
                headers,
                separator: "|".into(),
                trim,
                width: None,
                variable_width,
                message_level: -1,
                fixed_width: 0,
                control_characters: None,
                encoding: Encoding::Utf8,
                file: Some(Arc::new(OutputFile::new(file, Encoding::Utf8))),
                to_stderr: None,
                errors: None,
                results_to_stderr: false,
                server: "server".into(),
            };
            let mut show = Show::new(&style);
            let taken = keeps_its_contract(&mut show);
            let lost = style.file.as_ref().unwrap().lost();
            assert_eq!(taken < 2 * legal().len(), bytes_max.is_some(), "{lost:?}");
            assert_eq!(lost.is_some(), bytes_max.is_some());
            if bytes_max.is_some() {
                continue;
            }
            let text = disk.read_file("/out/out").unwrap();
            let text = String::from_utf8_lossy(&text);
            for number in 1..=5 {
                let row = format!("row {number}");
                assert_eq!(text.matches(&row).count(), 2, "{row}: {text}");
            }
            for said in ["between rows", "before the first row", "(0 rows affected)"] {
                assert!(text.contains(said), "{said}: {text}");
            }
            assert!(!text.contains('\u{1b}'), "control characters");
        }
    }
}
