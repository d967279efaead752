//! The files that a configuration file of PostgreSQL includes.
//!
//! Invariants
//! - Only the words that name files are understood; everything else in a file is skipped, and no bytes panic.
//! - A path is given as it is written: the server takes it relative to the file that names it.
//!
//! Leaves to others: finding and reading the files (`mod.rs`).
//!
//! Source: PostgreSQL 18, `guc-file.l`, `hba.c` (next_token, tokenize_auth_file).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The grammar of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// `postgresql.conf`.
    Settings,
    /// `pg_hba.conf`, `pg_ident.conf`, and lists that these name.
    Access,
    /// Includes nothing.
    Plain,
}

/// A file or directory that another file includes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Include {
    pub(super) path: PathBuf,
    pub(super) kind: TextKind,
    pub(super) is_dir: bool,
    /// Whether the server refuses to start without it.
    pub(super) needed: bool,
}

pub(super) fn of(kind: TextKind, text: &[u8]) -> Vec<Include> {
    let lines = text.split(|byte| *byte == b'\n');
    match kind {
        TextKind::Settings => lines.filter_map(setting).collect(),
        TextKind::Access => access(text),
        TextKind::Plain => Vec::new(),
    }
}

fn include(word: &[u8], path: Vec<u8>, kind: TextKind) -> Option<Include> {
    let (is_dir, needed) = match &*word.to_ascii_lowercase() {
        b"include" => (false, true),
        b"include_if_exists" => (false, false),
        b"include_dir" => (true, true),
        _ => return None,
    };
    (!path.is_empty()).then(|| Include {
        path: OsString::from_vec(path).into(),
        kind,
        is_dir,
        needed,
    })
}

/// A line `include 'FILE'` or `include = FILE`.
fn setting(line: &[u8]) -> Option<Include> {
    let line = line.trim_ascii();
    let end = line
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    let (word, rest) = line.split_at(end);
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"=").unwrap_or(rest).trim_ascii_start();
    let path = match rest.strip_prefix(b"'") {
        Some(quoted) => unquoted(quoted)?,
        None => {
            let ends = |b: &u8| b.is_ascii_whitespace() || *b == b'#';
            let end = rest.iter().position(ends).unwrap_or(rest.len());
            rest[..end].to_vec()
        }
    };
    include(word, path, TextKind::Settings)
}

/// The value whose first quote was taken; `None` if it does not end.
fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let mut bytes = text.iter().peekable();
    loop {
        match bytes.next()? {
            b'\'' if bytes.peek() == Some(&&b'\'') => {
                bytes.next();
                value.push(b'\'');
            }
            b'\'' => return Some(value),
            // Only the escapes that a path may need.
            b'\\' => value.push(*bytes.next()?),
            byte => value.push(*byte),
        }
    }
}

/// Lines `include FILE`, and words `@FILE`.
fn access(text: &[u8]) -> Vec<Include> {
    let mut found = Vec::new();
    for words in lines_of_words(text) {
        if let [(word, false), (path, _), ..] = &words[..]
            && let Some(include) = include(word, path.clone(), TextKind::Access)
        {
            found.push(include);
            continue;
        }
        let lists = words
            .into_iter()
            .filter(|(word, quoted)| !quoted && word.len() > 1);
        found.extend(lists.filter_map(|(word, _)| {
            let path = word.strip_prefix(b"@")?.to_vec();
            Some(Include {
                path: OsString::from_vec(path).into(),
                kind: TextKind::Access,
                is_dir: false,
                needed: false,
            })
        }));
    }
    found
}

/// A word, and whether it began with a quote.
type Word = (Vec<u8>, bool);

/// The words of each line; blanks and commas are between words, a line that ends in a backslash goes on.
fn lines_of_words(text: &[u8]) -> Vec<Vec<Word>> {
    let mut lines = vec![Vec::new()];
    let mut word: Option<Word> = None;
    let mut in_quotes = false;
    let mut in_comment = false;
    let mut bytes = text.iter().peekable();
    while let Some(byte) = bytes.next() {
        if *byte == b'\\' && bytes.peek() == Some(&&b'\n') {
            bytes.next();
            continue;
        }
        let line = lines.last_mut();
        match byte {
            b'\n' => {
                if let (Some(line), Some(word)) = (line, word.take()) {
                    line.push(word);
                }
                (in_quotes, in_comment) = (false, false);
                lines.push(Vec::new());
            }
            _ if in_comment => {}
            b'"' => {
                in_quotes = !in_quotes;
                word.get_or_insert((Vec::new(), true));
            }
            byte if in_quotes => word.get_or_insert((Vec::new(), true)).0.push(*byte),
            b'#' => in_comment = true,
            b' ' | b'\t' | b'\r' | b',' => {
                if let (Some(line), Some(word)) = (line, word.take()) {
                    line.push(word);
                }
            }
            byte => word.get_or_insert((Vec::new(), false)).0.push(*byte),
        }
    }
    if let (Some(line), Some(word)) = (lines.last_mut(), word) {
        line.push(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: TextKind, text: &str) -> Vec<String> {
        let word = |include: &Include| {
            let dir = if include.is_dir { "/" } else { "" };
            let needed = if include.needed { "" } else { "?" };
            format!("{}{dir}{needed}", include.path.display())
        };
        of(kind, text.as_bytes()).iter().map(word).collect()
    }

    #[test]
    fn includes_of_settings_are_found_in_every_form_of_the_server() {
        let text = "# include 'no'\n include = 'a b.conf' # yes\nINCLUDE_DIR 'conf.d'\ninclude_if_exists=x.conf\n\
            include 'it''s'\nincluded = 'no'\nwork_mem = 'include'\ninclude\ninclude 'open\ninclude_dir=''\n";
        assert_eq!(
            shown(TextKind::Settings, text),
            ["a b.conf", "conf.d/", "x.conf?", "it's"]
        );
    }

    #[test]
    fn includes_and_lists_of_access_rules_are_found() {
        let text = "local all @admins trust\nhost \"@no\",@\"dba list\" all ::1/128 md5 # @no\ninclude \\\n more.conf\n\
            include_dir \"hba.d\"\ninclude_if_exists x\nlocal db,@dbs all peer\n@\n";
        assert_eq!(
            shown(TextKind::Access, text),
            ["admins?", "dba list?", "more.conf", "hba.d/", "x?", "dbs?"]
        );
    }

    #[test]
    fn no_bytes_panic() {
        let mut seed = 7u32;
        for len in 0..300 {
            let byte = |_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                b"include_dir'\"\\#@=\n \t,\xff\0"[(seed >> 16) as usize % 22]
            };
            let text: Vec<u8> = (0..len).map(byte).collect();
            for kind in [TextKind::Settings, TextKind::Access, TextKind::Plain] {
                of(kind, &text);
            }
        }
    }
}
