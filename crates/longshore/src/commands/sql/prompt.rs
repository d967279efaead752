//! Statements typed by a person: editing, history, completion of words.
//!
//! Invariants
//! - The history is next to the catalog, readable by its owner only, and bounded in lines and bytes.
//! - Errors in reading or writing it are ignored: no statement depends on it.
//! - Lines of two prompts are both kept: typed lines are appended to what is there.
//!
//! Leaves to others: the meaning of what was typed (`sql`), and the words of options and views (`longshore-tsql`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{HostClock, SmallFile, Storage};
use longshore_tsql::VIEWS;
use longshore_tsql::syntax::OPTIONS;
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

pub struct Prompt {
    editor: Editor<Words, MemHistory>,
    /// The lines since the prompt began.
    typed: Vec<String>,
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
        words.extend(VIEWS.iter().map(view));
        words.sort_unstable();
        words.dedup();
        editor.set_helper(Some(Words(words)));
        let absolute = catalog.and_then(|c| std::path::absolute(c).ok());
        let directory = absolute.and_then(|c| c.parent().map(Path::to_path_buf));
        let mut prompt = Prompt {
            editor,
            typed: Vec::new(),
            storage,
            directory,
        };
        for line in prompt.read().unwrap_or_default().lines() {
            prompt.recall(line);
        }
        Ok(prompt)
    }

    pub fn line(&mut self, prompt: &str) -> rustyline::Result<UserInput> {
        match self.editor.readline(prompt) {
            Ok(line) => {
                if self.recall(&line) {
                    self.typed.push(line.clone());
                }
                Ok(UserInput::Line(line))
            }
            Err(ReadlineError::Interrupted) => Ok(UserInput::Dropped),
            Err(ReadlineError::Eof) => Ok(UserInput::End),
            Err(error) => Err(error),
        }
    }

    /// Adds the line to the editor's history; returns whether it has content.
    fn recall(&mut self, line: &str) -> bool {
        if line.trim().is_empty() {
            return false;
        }
        // The editor refuses only a repetition of the last line.
        let _known = self.editor.add_history_entry(line);
        true
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
    pub fn save(&self) {
        let write = || -> io::Result<()> {
            if self.directory.is_none() || self.typed.is_empty() {
                return Ok(());
            }
            self.file()?.change(&HostClock, 0o600, |before| {
                let before = String::from_utf8_lossy(before.unwrap_or_default());
                Ok::<_, io::Error>((Some(joined(&before, &self.typed).into_bytes()), ()))
            })
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "the history of statements was not written");
        }
    }
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
