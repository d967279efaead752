//! The head of each file: a file of more than 100 lines says what it is for, what holds in it, and what it leaves to
//! others. The head of a file of more than 300 lines has a part for each of the last two.
//!
//! Only the number of lines and the parts' first words can be checked; whether a head is true is up to the reviewer.
//! Files of tests have the names of their tests instead.

use std::path::{Path, PathBuf};

/// Files longer than this need a head.
const LINES_MAX: usize = 100;
/// The fewest lines of a head.
const HEAD_LEAST: usize = 3;

/// The head of a file longer than this has parts.
const LINES_MAX_OF_A_SHORT_HEAD: usize = 300;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files of the crates, without those of tests.
#[derive(Default)]
struct Files {
    sources: Vec<PathBuf>,
}

impl Files {
    fn find(&mut self, dir: &Path) {
        const OF_TESTS: [&str; 4] = ["tests", "tests.rs", "examples", "benches"];
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if OF_TESTS.iter().any(|n| entry.file_name() == *n) {
                continue;
            }
            match entry.file_type().unwrap().is_dir() {
                true => self.find(&path),
                false if path.extension().is_none_or(|e| e != "rs") => (),
                false => self.sources.push(path),
            }
        }
    }

    fn all() -> Files {
        let mut files = Files::default();
        files.find(&root().join("crates"));
        assert!(files.sources.len() > 400, "{}", files.sources.len());
        files
    }
}

fn head(code: &str) -> impl Iterator<Item = &str> {
    code.lines().map_while(|line| line.strip_prefix("//!"))
}

fn lacks_its_head(code: &str) -> bool {
    code.lines().count() > LINES_MAX && head(code).count() < HEAD_LEAST
}

/// Whether a line of the head begins with the word.
fn has(code: &str, word: &str) -> bool {
    head(code).any(|line| line.trim_start().starts_with(word))
}

/// Whether a long head names what holds in the file and what the file leaves to others.
fn lacks_a_part(code: &str) -> bool {
    code.lines().count() > LINES_MAX_OF_A_SHORT_HEAD
        && !(has(code, "Invariant") && has(code, "Leaves to others:"))
}

/// The paths, from the root, of the files for which `lacks` is true.
fn lacking(files: &[PathBuf], lacks: fn(&str) -> bool) -> Vec<String> {
    let root = root();
    let mut found: Vec<String> = files
        .iter()
        .filter(|path| lacks(&std::fs::read_to_string(path).unwrap()))
        .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
        .collect();
    found.sort();
    found
}

#[test]
fn a_long_file_says_what_it_is_for() {
    let lacking = lacking(&Files::all().sources, lacks_its_head);
    assert!(
        lacking.is_empty(),
        "write a head of {HEAD_LEAST} lines or more: {lacking:#?}"
    );
}

#[test]
fn a_very_long_file_says_what_holds_and_what_it_leaves_to_others() {
    let lacking = lacking(&Files::all().sources, lacks_a_part);
    assert!(
        lacking.is_empty(),
        "begin a line of the head with \"Invariants\" and one with \"Leaves to others:\": {lacking:#?}"
    );
}

#[test]
fn a_short_file_needs_no_head_and_a_long_one_needs_three_lines() {
    let long = "fn f() {}\n".repeat(LINES_MAX + 1);
    assert!(lacks_its_head(&long));
    assert!(lacks_its_head(&format!("//! One.\n//! Two.\n\n{long}")));
    assert!(!lacks_its_head(&format!(
        "//! One.\n//!\n//! Two.\n\n{long}"
    )));
    assert!(!lacks_its_head("fn f() {}\n"));
}

#[test]
fn a_very_long_file_needs_both_parts_in_its_head() {
    let long = "fn f() {}\n".repeat(LINES_MAX_OF_A_SHORT_HEAD + 1);
    let (holds, leaves) = (
        "//! Invariants\n//! - One.\n",
        "//! Leaves to others: two.\n",
    );
    assert!(lacks_a_part(&long));
    assert!(lacks_a_part(&format!("{holds}{long}")));
    assert!(lacks_a_part(&format!("{leaves}{long}")));
    assert!(!lacks_a_part(&format!("{holds}//!\n{leaves}{long}")));
    assert!(
        lacks_a_part(&format!("{long}{holds}{leaves}")),
        "below the head"
    );
    assert!(!lacks_a_part("fn f() {}\n"));
}
