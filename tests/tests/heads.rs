//! Goal: no file is longer than 1,200 lines, and each Rust file and script of more than 100 lines has a head. A source
//! says what it is for, what holds in it, and what it leaves to others, with a part for each of the last two. A file of
//! tests names its goal instead, and its method or what it does not cover. A script has either form.
//! Method: the files below the folders of code and documentation are read as text.
//! Not covered: only the number of lines, the parts' first words and the names of other files, in its text and in its
//! drawings, can be checked; whether a head is true is up to the reviewer.

use std::path::{Path, PathBuf};

/// Files longer than this need a head with parts.
const LINES_MAX: usize = 100;
/// No file is longer: nobody reads it in one sitting.
const FILE_LINES_MAX: usize = 1200;
/// The independent reader of the format is one file of Python's standard library, so that a stranger copies one file to
/// another machine and runs it. It shares nothing with the product, and grows only with the format.
const LONGER: [&str; 1] = ["tests/reader/longshore_reader.py"];
/// The fewest lines of a head.
const HEAD_LEAST: usize = 3;
/// The folders in which files of code are.
const FOLDERS: [&str; 6] = ["contrib", "crates", "docs", "doubles", "scripts", "tests"];

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
        for dir in ["crates", "doubles", "tests"] {
            files.find(&root().join(dir), false);
        }
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

/// Whether a long file does not say what holds in it, or what it leaves to others.
fn lacks_a_part(code: &str) -> bool {
    code.lines().count() > LINES_MAX && !(has(code, "Invariant") && has(code, "Leaves to others:"))
}

/// Whether a long file of tests does not say what it shows and how, or what it does not show.
fn lacks_its_goal(code: &str) -> bool {
    let is_told = has(code, "Goal:") && (has(code, "Method:") || has(code, "Not covered:"));
    code.lines().count() > LINES_MAX && !is_told
}

/// The head of a script: its first text in Python, else its first comment.
fn script_head(code: &str) -> Vec<&str> {
    let code = match code.strip_prefix("#!") {
        Some(code) => code.split_once('\n').map_or("", |(_, below)| below),
        None => code,
    };
    match code.strip_prefix("\"\"\"") {
        Some(text) => {
            let end = text.find("\"\"\"").unwrap_or(0);
            text[..end].lines().collect()
        }
        None => {
            let comment = code.lines().map_while(|line| line.strip_prefix('#'));
            comment.collect()
        }
    }
}

/// Whether the head of a long script lacks its parts: what holds or how it works, and what it leaves to others; or, of a
/// test, what it shows and how, or what it does not show.
fn lacks_a_scripts_parts(code: &str) -> bool {
    let head = script_head(code);
    let has = |word: &str| head.iter().any(|line| line.trim_start().starts_with(word));
    let of_tool = (has("Invariant") || has("Method:")) && has("Leaves to others:");
    let of_test = has("Goal:") && (has("Method:") || has("Not covered:"));
    let is_told = head.len() >= HEAD_LEAST && (of_tool || of_test);
    code.lines().count() > LINES_MAX && !is_told
}

/// The Rust files that a head names between backquotes.
fn named(code: &str) -> Vec<String> {
    let text: Vec<&str> = head(code).collect();
    let text = text.join(" ");
    let between = text.split('`').skip(1).step_by(2);
    between
        .filter(|name| name.ends_with(".rs") && !name.contains(' '))
        .map(|name| name.trim_start_matches("../").to_owned())
        .collect()
}

/// The Rust files that a head lists in its drawings: the words between fences that end so.
fn listed(code: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in head(code) {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        let words = line.split_whitespace().filter(|word| word.ends_with(".rs"));
        found.extend(words.filter(|_| inside && !fence).map(str::to_owned));
    }
    found
}

/// The names of a list that are files neither next to the module's own file `path` nor in a folder of its name.
fn gone(path: &Path, names: Vec<String>) -> Vec<String> {
    let next_to = path.parent().unwrap();
    let below = path.with_extension("");
    let is_gone = |name: &String| !next_to.join(name).is_file() && !below.join(name).is_file();
    names.into_iter().filter(is_gone).collect()
}

/// The names of which no path is the end.
fn unknown(names: Vec<String>, paths: &[String]) -> Vec<String> {
    let is_known = |name: &String| paths.iter().any(|p| p.ends_with(&format!("/{name}")));
    names.into_iter().filter(|n| !is_known(n)).collect()
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

/// The scripts below `dir`: Python's and the shell's.
fn scripts(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            scripts(&path, found);
        } else if path.extension().is_some_and(|e| e == "py" || e == "sh") {
            found.push(path);
        }
    }
}

/// The files of code below `dir` that are longer than [`FILE_LINES_MAX`], from the root.
fn longer(dir: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let is_code = |e: &std::ffi::OsStr| ["rs", "py", "sh", "c", "h"].iter().any(|c| e == *c);
        if entry.file_type().unwrap().is_dir() {
            longer(&path, found);
        } else if path.extension().is_some_and(is_code) {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            found.extend((lines > FILE_LINES_MAX).then_some(name));
        }
    }
}

#[test]
fn no_file_is_too_long_but_the_independent_reader() {
    let mut names = Vec::new();
    for dir in FOLDERS {
        longer(&root().join(dir), &mut names);
    }
    assert_eq!(names, LONGER, "split these, or take them off the list");
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
fn a_long_file_says_what_holds_and_what_it_leaves_to_others() {
    let lacking = lacking(&Files::all().sources, lacks_a_part);
    assert!(
        lacking.is_empty(),
        "begin a line of the head with \"Invariants\" and one with \"Leaves to others:\": {lacking:#?}"
    );
}

#[test]
fn a_long_file_of_tests_names_its_goal_and_its_method_or_its_limit() {
    let lacking = lacking(&Files::all().tests, lacks_its_goal);
    assert!(
        lacking.is_empty(),
        "begin a line of the head with \"Goal:\" and one with \"Method:\" or \"Not covered:\": {lacking:#?}"
    );
}

#[test]
fn a_long_script_says_what_holds_or_how_it_works_and_where_it_ends() {
    let mut files = Vec::new();
    for dir in FOLDERS {
        scripts(&root().join(dir), &mut files);
    }
    assert!(files.len() > 30, "{}", files.len());
    let lacking = lacking(&files, lacks_a_scripts_parts);
    assert!(
        lacking.is_empty(),
        "begin a line of the head with \"Invariants\" or \"Method:\" and one with \"Leaves to others:\"; of a test, one \
         with \"Goal:\" and one with \"Method:\" or \"Not covered:\": {lacking:#?}"
    );
}

#[test]
fn the_files_that_heads_name_exist() {
    let files = Files::all();
    let all = || files.sources.iter().chain(&files.tests);
    let paths: Vec<String> = all().map(|p| p.display().to_string()).collect();
    let mut missing = Vec::new();
    for path in all() {
        let names = named(&std::fs::read_to_string(path).unwrap());
        let unknown = unknown(names, &paths).into_iter();
        let path = path.strip_prefix(root()).unwrap().display();
        missing.extend(unknown.map(|name| format!("{path}: {name}")));
    }
    assert!(missing.is_empty(), "name files that exist: {missing:#?}");
}

#[test]
fn the_files_that_a_heads_drawing_lists_are_in_the_module() {
    let files = Files::all();
    let mut missing = Vec::new();
    let mut count = 0;
    for path in files.sources.iter().chain(&files.tests) {
        let names = listed(&std::fs::read_to_string(path).unwrap());
        count += names.len();
        let gone = gone(path, names).into_iter();
        let path = path.strip_prefix(root()).unwrap().display();
        missing.extend(gone.map(|name| format!("{path}: {name}")));
    }
    assert!(missing.is_empty(), "list files of the module: {missing:#?}");
    assert!(count > 8, "only {count} were found");
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
fn a_long_file_needs_both_parts_in_its_head() {
    let long = "fn f() {}\n".repeat(LINES_MAX + 1);
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
fn a_long_file_of_tests_needs_a_goal_and_a_method_or_a_limit() {
    let long = "fn f() {}\n".repeat(LINES_MAX + 1);
    let [goal, method, limit] = ["Goal", "Method", "Not covered"].map(|w| format!("//! {w}: x.\n"));
    assert!(lacks_its_goal(&format!("{goal}{long}")));
    assert!(lacks_its_goal(&format!("{method}{limit}{long}")));
    assert!(!lacks_its_goal(&format!("{goal}{method}{long}")));
    assert!(!lacks_its_goal(&format!("{goal}{limit}{long}")));
    assert!(!lacks_its_goal("fn f() {}\n"));
}

#[test]
fn a_long_script_needs_a_head_of_one_of_the_two_forms() {
    let code = "x = 1\n".repeat(LINES_MAX + 1);
    let python = |head: &str| {
        format!("#!/usr/bin/env python3\n\"\"\"{head}\"\"\"\n\"\"\"Goal:\"\"\"\n{code}")
    };
    let shell = |head: &str| {
        let comment: String = head.lines().map(|line| format!("# {line}\n")).collect();
        format!("#!/bin/sh\n{comment}\n# Goal:\n# Method:\n{code}")
    };
    for told in [
        "A tool.\n\nInvariants\n- One.\nLeaves to others: two.\n",
        "A tool.\n\nMethod: one.\nLeaves to others: two.\n",
        "A test.\nGoal: one.\nMethod: two.\n",
        "A test.\nGoal: one.\nNot covered: two.\n",
    ] {
        assert!(!lacks_a_scripts_parts(&python(told)), "{told}");
        assert!(!lacks_a_scripts_parts(&shell(told)), "{told}");
    }
    for lacking in [
        "",
        "A tool.",
        "A tool.\n\nInvariants\n- One.\n",
        "A tool.\n\nLeaves to others: two.\n",
        "A test.\n\nGoal: one.\n",
        "Method: one.\nLeaves to others: two.",
    ] {
        assert!(lacks_a_scripts_parts(&python(lacking)), "{lacking}");
        assert!(lacks_a_scripts_parts(&shell(lacking)), "{lacking}");
    }
    assert!(lacks_a_scripts_parts(&code));
    assert!(!lacks_a_scripts_parts("x = 1\n"));
}

#[test]
fn a_name_in_a_head_is_the_end_of_a_path() {
    let head =
        "//! The pool (`../pool.rs`), `a/b.rs` and\n//! [`Pool`], `c` and `x y.rs`.\n\n// `z.rs`\n";
    assert_eq!(named(head), ["pool.rs", "a/b.rs"]);
    let paths = ["r/a/b.rs", "r/mypool.rs"].map(str::to_owned);
    assert_eq!(unknown(named(head), &paths), ["pool.rs"]);
}

#[test]
fn a_list_of_files_in_a_head_is_found_and_compared_with_the_modules_folder() {
    let head = "//! `a.rs`\n//! ```text\n//!  heads.rs  this\n//!  lane.rs ──▶ a\n//! ```\n//! b.rs\n\n// c.rs\n";
    assert_eq!(listed(head), ["heads.rs", "lane.rs"]);
    let tests = root().join("tests/tests");
    assert_eq!(gone(&tests.join("doors.rs"), listed(head)), ["lane.rs"]);
    assert_eq!(
        gone(&tests.with_extension("rs"), listed(head)),
        ["lane.rs"],
        "in a folder of the file's name"
    );
}
