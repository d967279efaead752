//! The head of each file: a file of more than 100 lines says what it is for, what holds in it, and what it leaves to
//! others. The head of a file of more than 300 lines has a part for each of the last two. A file of tests of more than
//! 300 lines names its goal instead, and its method or what it does not cover.
//!
//! Only the number of lines and the parts' first words can be checked; whether a head is true is up to the reviewer.
//! Shorter files of tests have the names of their tests instead.

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

/// The Rust files below `dir`: those of tests, and all others.
#[derive(Default)]
struct Files {
    sources: Vec<PathBuf>,
    tests: Vec<PathBuf>,
}

impl Files {
    fn find(&mut self, dir: &Path, is_of_tests: bool) {
        const OF_TESTS: [&str; 4] = ["tests", "tests.rs", "examples", "benches"];
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let is_of_tests = is_of_tests || OF_TESTS.iter().any(|n| entry.file_name() == *n);
            match entry.file_type().unwrap().is_dir() {
                true => self.find(&path, is_of_tests),
                false if path.extension().is_none_or(|e| e != "rs") => (),
                false if is_of_tests => self.tests.push(path),
                false => self.sources.push(path),
            }
        }
    }

    fn all() -> Files {
        let mut files = Files::default();
        files.find(&root().join("crates"), false);
        files.find(&root().join("tests/tests"), true);
        assert!(files.sources.len() > 400, "{}", files.sources.len());
        assert!(files.tests.len() > 200, "{}", files.tests.len());
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

/// Whether a long file of tests does not say what it shows and how, or what it does not show.
fn lacks_its_goal(code: &str) -> bool {
    let is_told = has(code, "Goal:") && (has(code, "Method:") || has(code, "Not covered:"));
    code.lines().count() > LINES_MAX_OF_A_SHORT_HEAD && !is_told
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
fn a_very_long_file_of_tests_names_its_goal_and_its_method_or_its_limit() {
    let lacking = lacking(&Files::all().tests, lacks_its_goal);
    assert!(
        lacking.is_empty(),
        "begin a line of the head with \"Goal:\" and one with \"Method:\" or \"Not covered:\": {lacking:#?}"
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

#[test]
fn a_very_long_file_of_tests_needs_a_goal_and_a_method_or_a_limit() {
    let long = "fn f() {}\n".repeat(LINES_MAX_OF_A_SHORT_HEAD + 1);
    let [goal, method, limit] = ["Goal", "Method", "Not covered"].map(|w| format!("//! {w}: x.\n"));
    assert!(lacks_its_goal(&format!("{goal}{long}")));
    assert!(lacks_its_goal(&format!("{method}{limit}{long}")));
    assert!(!lacks_its_goal(&format!("{goal}{method}{long}")));
    assert!(!lacks_its_goal(&format!("{goal}{limit}{long}")));
    assert!(!lacks_its_goal("fn f() {}\n"));
}
