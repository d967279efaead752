//! Goal: an `unsafe` block says which duty it takes on, not only which facts hold, and stands only where the product
//! meets C, the system or its own buffers.
//! Method: the code is read as text. Clippy asks that there is a SAFETY comment; these tests read it.
//! Not covered: whether a comment is true.

use std::path::{Path, PathBuf};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every Rust file of the repository but this one, with its name from the root.
fn all() -> Vec<(String, String)> {
    let root = longshore_tests::root();
    let mut files = Vec::new();
    for dir in ["crates", "doubles", "tests"] {
        sources(&root.join(dir), &mut files);
    }
    files.sort();
    files.retain(|file| !file.ends_with("tests/duties.rs"));
    let named = |file: &PathBuf| {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        (name, std::fs::read_to_string(file).unwrap())
    };
    files.iter().map(named).collect()
}

/// The comments that explain an unsafe block: the number of the first line, and the text.
fn explanations(code: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in code.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("// ");
        match comment {
            Some(text) if text.starts_with("SAFETY:") => found.push((number + 1, text.into())),
            Some(text) if is_open => {
                let last = &mut found.last_mut().unwrap().1;
                *last = format!("{last} {text}");
            }
            _ => {}
        }
        is_open =
            comment.is_some() && (is_open || comment.is_some_and(|t| t.starts_with("SAFETY:")));
    }
    found
}

/// Whether a text names what somebody owes. "Need" and "ask" are no such words: facts have them, too.
fn names_a_duty(text: &str) -> bool {
    const WORDS: [&str; 10] = [
        "demand", "demands", "require", "requires", "must", "owe", "owes", "oblige", "obliges",
        "expects",
    ];
    let mut words = text.split(|c: char| !c.is_alphabetic());
    words.any(|word| WORDS.contains(&word))
}

#[test]
fn every_unsafe_block_names_the_duty_that_it_takes_on() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (file, code) in all() {
        for (line, text) in explanations(&code) {
            count += 1;
            if !names_a_duty(&text) {
                wrong.push(format!("{file}:{line}: {text}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "say what the call demands, then why it is so here:\n{}",
        wrong.join("\n")
    );
    assert!(count > 200, "only {count} comments were found");
}

#[test]
fn every_unsafe_function_that_others_can_call_says_what_they_owe() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (file, code) in all() {
        let mut docs = String::new();
        for (number, line) in code.lines().enumerate() {
            let line = line.trim_start();
            if line.starts_with("pub") && line.contains("unsafe ") && line.contains("fn ") {
                count += 1;
                if !docs.contains("# Safety") {
                    wrong.push(format!("{file}:{}: {line}", number + 1));
                }
            }
            match line.starts_with("///") || line.starts_with("#[") {
                true => docs += line,
                false => docs.clear(),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 10, "only {count} functions were found");
}

/// The files of the product that may be unsafe, by the beginning of their names, and what they meet there.
const EDGES: &[(&str, &str)] = &[
    ("crates/cache/serving/src/lib.rs", "nbdkit"),
    (
        "crates/core/accel/src/devices/",
        "libraries and drivers of devices",
    ),
    ("crates/core/codec/src/deflate/", "ISA-L, libdeflate"),
    ("crates/core/codec/src/lz4.rs", "LZ4"),
    ("crates/core/codec/src/zstd.rs", "zstd"),
    ("crates/core/facts/src/", "system calls"),
    ("crates/core/io/src/", "system calls, buffers"),
    (
        "crates/core/codec/src/pages/avx2.rs",
        "AVX2: docs/decisions/pages.md",
    ),
    (
        "crates/core/codec/src/pages/avx512.rs",
        "AVX-512: docs/decisions/pages.md",
    ),
    (
        "crates/core/parity/src/kernel.rs",
        "GFNI, AVX2: docs/decisions/media.md",
    ),
    ("crates/core/pg/src/page.rs", "AVX2: docs/decisions/pg.md"),
    ("crates/core/source/src/sqlite/library.rs", "SQLite"),
    ("crates/core/terminal/src/interrupt.rs", "signals"),
    ("crates/lab/program/src/main.rs", "signals"),
    ("crates/longshore/src/main.rs", "signals"),
];

#[test]
fn only_edges_are_unsafe() {
    let mut used = vec![false; EDGES.len()];
    for (file, code) in all() {
        if !file.starts_with("crates/") || !file.contains("/src/") || file.ends_with("tests.rs") {
            continue;
        }
        let code = longshore_tests::shipped(&code);
        let mut lines = code.lines().map(str::trim_start);
        let is_unsafe = lines.any(|line| {
            let starts = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"];
            !line.starts_with("//") && starts.iter().any(|start| line.contains(start))
        });
        if !is_unsafe {
            continue;
        }
        let edge = EDGES.iter().position(|(edge, _)| file.starts_with(edge));
        let edge = edge.unwrap_or_else(|| panic!("{file} is unsafe, and no edge"));
        used[edge] = true;
    }
    let unused: Vec<_> = EDGES.iter().zip(used).filter(|(_, used)| !used).collect();
    assert!(unused.is_empty(), "safe by now: {unused:?}");
}

#[test]
fn a_fact_alone_is_no_duty_and_a_comment_ends_where_the_code_begins() {
    assert!(names_a_duty("`read` demands a place; `x` is one."));
    assert!(!names_a_duty("`x` is needed and outlives the call."));
    assert!(!names_a_duty(
        "only one call at a time uses `x`: calls need `&mut`."
    ));
    let code = "    // SAFETY: one\n    // two\n    f();\n    // three\n// SAFETY: four\n";
    let expected = [
        (1, "SAFETY: one two".to_owned()),
        (5, "SAFETY: four".to_owned()),
    ];
    assert_eq!(explanations(code), expected);
}
