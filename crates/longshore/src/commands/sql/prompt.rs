//! Statements typed by a person: editing, history, completion of words.
//!
//! Invariants
//! - The history is next to the catalog, readable by its owner only, and bounded in lines and bytes.
//! - Errors in reading or writing it are ignored: no statement depends on it.
//! - Lines of two prompts are both kept: typed lines are appended to what is there.
//! - No line of a batch that may have a secret in it is kept, neither in the file nor in the editor.
//!
//! Leaves to others: the meaning of what was typed (`sql`), and the words of options and views (`longshore-tsql`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{HostClock, SmallFile, Storage};
use longshore_tsql::syntax::{OPTIONS, may_have_secret};
use longshore_tsql::views;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

const NAME: &str = "sql_history";
const LINES_MAX: usize = 1000;
const LEN_MAX: usize = 1 << 20;

/// Keywords of statements; options and views come from their tables.
const WORDS: &[&str] = &[
    "ACCELERATOR",
    "ALGORITHM",
    "ALTER SERVER CONFIGURATION SET HARDWARE_OFFLOAD",
    "BACKUP DATABASE",
    "BACKUP LOG",
    "DBCC TRACEON",
    "DECLARE",
    "DISK",
    "FROM",
    "LEVEL",
    "PRINT",
    "QAT_DEFLATE",
    "RECONFIGURE",
    "RESTORE DATABASE",
    "RESTORE FILELISTONLY",
    "RESTORE HEADERONLY",
    "RESTORE LABELONLY",
    "RESTORE VERIFYONLY",
    "SELECT",
    "WITH",
    "ZSTD",
    "sp_addumpdevice",
    "sp_configure",
    "sp_readerrorlog",
];

/// Completes the word before the cursor.
struct Words(Vec<String>);

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line.get(..at).unwrap_or_default();
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
            .map_or(0, |i| {
                i + before[i..].chars().next().map_or(1, char::len_utf8)
            });
        Ok((start, self.beginning(&before[start..])))
    }
}

impl Words {
    fn beginning(&self, part: &str) -> Vec<String> {
        let fits = |word: &&String| {
            let head = word.get(..part.len());
            !part.is_empty() && head.is_some_and(|h| h.eq_ignore_ascii_case(part))
        };
        self.0.iter().filter(fits).cloned().collect()
    }
}

impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {}
impl Validator for Words {}
impl Helper for Words {}

/// The user's input.
pub enum UserInput {
    Line(String),
    /// Ctrl-C: the current batch is dropped.
    Dropped,
    End,
}

/// The lines since the prompt began.
#[derive(Default)]
struct Typed {
    /// Those of batches that have ended, and may be kept.
    kept: Vec<String>,
    /// Those since the last batch ended.
    batch: Vec<String>,
    /// Whether the batch may have a secret in it: then it is empty here.
    hides: bool,
}

/// The treatment of a line by the editor.
#[derive(Debug, PartialEq, Eq)]
enum Recall {
    Keep,
    /// Nothing of this batch, from its first line on.
    ForgetBatch,
    Nothing,
}

impl Typed {
    fn add(&mut self, line: &str) -> Recall {
        if self.hides || line.trim().is_empty() {
            return Recall::Nothing;
        }
        if may_have_secret(line) {
            self.batch.clear();
            self.hides = true;
            return Recall::ForgetBatch;
        }
        self.batch.push(line.to_owned());
        Recall::Keep
    }

    /// Whether lines of the batch must be forgotten after all: only together may they have a secret in them.
    fn end_batch(&mut self) -> bool {
        let forgets = may_have_secret(&self.batch.join("\n"));
        if forgets {
            self.batch.clear();
        }
        self.kept.append(&mut self.batch);
        self.hides = false;
        forgets
    }
}

pub struct Prompt {
    editor: Editor<Words, MemHistory>,
    /// The lines of the history when the prompt began.
    before: Vec<String>,
    typed: Typed,
    storage: Arc<dyn Storage>,
    directory: Option<PathBuf>,
}

impl Prompt {
    /// `names`: databases. Errors: no terminal that supports line editing.
    pub fn open(
        storage: Arc<dyn Storage>,
        catalog: Option<&Path>,
        names: Vec<String>,
    ) -> rustyline::Result<Prompt> {
        let config = Config::builder().max_history_size(LINES_MAX)?.build();
        let mut editor = Editor::with_history(config, MemHistory::new())?;
        let mut words = names;
        words.extend(WORDS.iter().map(|w| (*w).to_owned()));
        words.extend(OPTIONS.iter().map(|o| o.word.to_owned()));
        let view = |v: &longshore_tsql::View| match v.database {
            Some(database) => format!("{database}.{}.{}", v.schema, v.name),
            None => format!("{}.{}", v.schema, v.name),
        };
        words.extend(views().map(view));
        words.sort_unstable();
        words.dedup();
        editor.set_helper(Some(Words(words)));
        let absolute = catalog.and_then(|c| std::path::absolute(c).ok());
        let directory = absolute.and_then(|c| c.parent().map(Path::to_path_buf));
        let mut prompt = Prompt {
            editor,
            before: Vec::new(),
            typed: Typed::default(),
            storage,
            directory,
        };
        let read = prompt.read().unwrap_or_default();
        let lines = read.lines().filter(|line| !line.trim().is_empty());
        prompt.before = lines.map(str::to_owned).collect();
        prompt.recall_kept();
        Ok(prompt)
    }

    pub fn line(&mut self, prompt: &str) -> rustyline::Result<UserInput> {
        match self.editor.readline(prompt) {
            Ok(line) => {
                match self.typed.add(&line) {
                    Recall::Keep => recall(&mut self.editor, &line),
                    Recall::ForgetBatch => self.recall_kept(),
                    Recall::Nothing => {}
                }
                Ok(UserInput::Line(line))
            }
            Err(ReadlineError::Interrupted) => Ok(UserInput::Dropped),
            Err(ReadlineError::Eof) => Ok(UserInput::End),
            Err(error) => Err(error),
        }
    }

    /// The batch of the lines before has ended: what may be kept of it is.
    pub fn end_batch(&mut self) {
        if self.typed.end_batch() {
            self.recall_kept();
        }
    }

    /// Replaces the editor's history by the lines that are kept.
    fn recall_kept(&mut self) {
        if let Err(error) = self.editor.clear_history() {
            tracing::debug!(%error, "the editor's history was not cleared");
        }
        for line in self.before.iter().chain(&self.typed.kept) {
            recall(&mut self.editor, line);
        }
    }

    fn file(&self) -> io::Result<SmallFile> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let directory = self.directory.as_ref().ok_or_else(missing)?;
        let dir = self.storage.create_dir_all(directory)?;
        Ok(SmallFile::new(dir, NAME, LEN_MAX))
    }

    fn read(&self) -> io::Result<String> {
        let bytes = self.file()?.read()?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Appends the typed lines to the history, after the lines that other prompts saved meanwhile.
    pub fn save(&mut self) {
        self.end_batch();
        let write = || -> io::Result<()> {
            if self.directory.is_none() || self.typed.kept.is_empty() {
                return Ok(());
            }
            self.file()?.change(&HostClock, 0o600, |before| {
                let before = String::from_utf8_lossy(before.unwrap_or_default());
                let after = joined(&before, &self.typed.kept);
                Ok::<_, io::Error>((Some(after.into_bytes()), ()))
            })
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "the history of statements was not written");
        }
    }
}

/// Adds a line to the editor's history.
fn recall(editor: &mut Editor<Words, MemHistory>, line: &str) {
    // The editor refuses only a repetition of the last line.
    let _known = editor.add_history_entry(line);
}

/// The newest lines, up to the limit.
fn joined(before: &str, typed: &[String]) -> String {
    let all: Vec<&str> = before
        .lines()
        .chain(typed.iter().map(String::as_str))
        .collect();
    let mut from = all.len().saturating_sub(LINES_MAX);
    let len = |lines: &[&str]| lines.iter().map(|l| l.len() + 1).sum::<usize>();
    while len(&all[from..]) > LEN_MAX {
        from += 1;
    }
    all[from..].iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_two_prompts_are_kept_up_to_a_bound() {
        let typed = |n: usize| (0..n).map(|i| format!("line {i}")).collect::<Vec<_>>();
        assert_eq!(joined("first\n", &typed(2)), "first\nline 0\nline 1\n");
        let many = joined("first\n", &typed(LINES_MAX));
        assert_eq!(
            (many.lines().count(), many.contains("first")),
            (LINES_MAX, false)
        );
        let long = vec!["x".repeat(LEN_MAX / 2); 3];
        assert_eq!(joined("", &long).lines().count(), 1);
    }

    #[test]
    fn no_line_of_a_batch_about_a_credential_is_kept() {
        let mut typed = Typed::default();
        assert_eq!(typed.add("SELECT 1"), Recall::Keep);
        assert_eq!(typed.add("GO"), Recall::Keep);
        typed.end_batch();
        assert_eq!(typed.add(":setvar s verysecret"), Recall::Keep);
        assert_eq!(typed.add("CREATE"), Recall::Keep);
        assert_eq!(typed.add("Credential c WITH"), Recall::ForgetBatch);
        assert_eq!(typed.add("SECRET = 'verysecret'"), Recall::Nothing);
        assert_eq!(typed.add("GO"), Recall::Nothing);
        typed.end_batch();
        assert_eq!(typed.add("SELECT 2"), Recall::Keep);
        typed.end_batch();
        assert_eq!(typed.add("OPEN MASTER KEY DECRYPTION"), Recall::ForgetBatch);
        assert_eq!(typed.add("BY PASSWORD = 'verysecret'"), Recall::Nothing);
        typed.end_batch();
        assert_eq!(typed.add("CREATE MASTER"), Recall::Keep);
        assert_eq!(typed.add("KEY 'verysecret'"), Recall::Keep);
        assert!(typed.end_batch());
        assert_eq!(typed.kept, ["SELECT 1", "GO", "SELECT 2"]);
    }

    #[test]
    fn words_are_completed_in_any_case_and_nothing_without_a_beginning() {
        let words = Words(vec![
            "BACKUP DATABASE".into(),
            "BUFFERCOUNT".into(),
            "é".into(),
        ]);
        assert_eq!(words.beginning("ba"), ["BACKUP DATABASE"]);
        assert_eq!(words.beginning("B").len(), 2);
        assert!(words.beginning("").is_empty());
        assert!(words.beginning("x").is_empty());
    }
}
