//! A door between rooms is small: no public trait has more than seven methods. A wider one is made of several, as
//! `File` is of reading, writing and locking, so that each has a contract that fits on a page.

use std::fs;
use std::path::{Path, PathBuf};

const METHODS_MAX: usize = 7;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The public traits of a file, each with the number of methods that it names.
fn traits(text: &str) -> Vec<(&str, usize)> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("pub trait ") {
            let end = name.find(|c: char| !c.is_alphanumeric());
            found.push((&name[..end.unwrap_or(name.len())], 0));
            is_inside = !line.ends_with("{}");
        } else if line == "}" {
            is_inside = false;
        } else if is_inside {
            let method = line.strip_prefix("    ");
            let is_method = |rest: &str| rest.starts_with("fn ") || rest.starts_with("unsafe fn ");
            if method.is_some_and(is_method) {
                found.last_mut().unwrap().1 += 1;
            }
        }
    }
    found
}

#[test]
fn no_public_trait_has_more_than_seven_methods() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates"),
        &mut files,
    );
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (name, methods) in traits(&text) {
            count += 1;
            assert!(
                methods <= METHODS_MAX,
                "{}: {name} has {methods} methods: make it of several traits",
                file.display()
            );
        }
    }
    assert!(count > 20, "only {count} traits were found");
}

#[test]
fn methods_are_counted_with_and_without_bodies() {
    let text = "pub trait Door: Send {\n    fn a(&self);\n\n    fn b(&self) {\n        fn c() {}\n    }\n}\npub trait Empty {}\nfn d() {}\n";
    assert_eq!(traits(text), [("Door", 2), ("Empty", 0)]);
}
