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

/// The head of a file longer than this names its invariants and what it leaves to others.
const LINES_MAX_OF_A_SHORT_HEAD: usize = 300;

/// The files that have no such head yet, one a line, in order. The list only gets shorter: a file with a head, or one
/// that no longer exists, fails the test, too.
const NOT_YET: &str = include_str!("heads.list");

/// The very long files whose heads lack one of the two parts, as in [`NOT_YET`].
const PARTS_NOT_YET: &str = include_str!("heads-parts.list");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 4] = ["tests", "tests.rs", "examples", "benches"];
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if SKIPPED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        match entry.file_type().unwrap().is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            false => (),
        }
    }
}

fn head_lines(code: &str) -> usize {
    code.lines().take_while(|l| l.starts_with("//!")).count()
}

fn lacks_its_head(code: &str) -> bool {
    code.lines().count() > LINES_MAX && head_lines(code) < HEAD_LEAST
}

/// Whether a long head names what holds in the file and what the file leaves to others.
fn lacks_a_part(code: &str) -> bool {
    let head = || code.lines().map_while(|line| line.strip_prefix("//!"));
    let has = |word: &str| head().any(|line| line.trim_start().starts_with(word));
    code.lines().count() > LINES_MAX_OF_A_SHORT_HEAD
        && !(has("Invariant") && has("Leaves to others:"))
}

/// Compares the files for which `lacks` is true with the `known` ones, which are on the list `list`.
fn check(lacks: fn(&str) -> bool, known: &str, list: &str, remedy: &str) {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 400, "{}", files.len());
    let crates = root().join("crates");
    let mut lacking: Vec<String> = files
        .iter()
        .filter(|path| lacks(&std::fs::read_to_string(path).unwrap()))
        .map(|path| path.strip_prefix(&crates).unwrap().display().to_string())
        .collect();
    lacking.sort();
    let known: Vec<&str> = known.lines().collect();
    let new = lacking.iter().filter(|p| !known.contains(&p.as_str()));
    let mut wrong: Vec<String> = new.map(|p| format!("{p}: {remedy}")).collect();
    let done = known.iter().filter(|p| !lacking.iter().any(|l| l == *p));
    wrong.extend(done.map(|p| format!("{p}: take it off tests/tests/{list}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_long_file_says_what_it_is_for_and_the_list_of_those_that_do_not_gets_shorter() {
    let remedy = format!("write a head of {HEAD_LEAST} lines or more");
    check(lacks_its_head, NOT_YET, "heads.list", &remedy);
}

#[test]
fn a_very_long_file_says_what_holds_and_what_it_leaves_and_the_list_of_others_gets_shorter() {
    let remedy = "begin a line of its head with \"Invariants\" and one with \"Leaves to others:\"";
    check(lacks_a_part, PARTS_NOT_YET, "heads-parts.list", remedy);
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
