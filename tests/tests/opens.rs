//! Every crate opens files only through the crate `io`, which asks the register of claims. Clippy refuses the rest
//! (`clippy.toml`); this test checks that Clippy does so in every crate, and which places are excused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const HELD: &str = "#![cfg_attr(not(test), deny(clippy::disallowed_methods))]";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_room_is_held_to_open_files_by_the_register() {
    let mut rooms = 0;
    for room in longshore_tests::rooms() {
        let src = room.join("src");
        let door = ["lib.rs", "main.rs"].map(|name| src.join(name));
        let door = door.iter().find(|path| path.exists()).unwrap();
        let text = std::fs::read_to_string(door).unwrap();
        assert!(text.contains(HELD), "{} lacks {HELD}", door.display());
        rooms += 1;
    }
    assert!(rooms > 10, "{rooms}");
    let lint = std::fs::read_to_string(root().join("clippy.toml")).unwrap();
    for way in [
        "std::fs::File::open",
        "std::fs::OpenOptions::open",
        "std::fs::read",
        "std::fs::write",
        "rustix::fs::open",
        "rustix::fs::openat",
        "rustix::fs::openat2",
        "rusqlite::Connection::open",
        "rusqlite::Connection::open_with_flags",
    ] {
        assert!(
            lint.contains(&format!("path = \"{way}\"")),
            "{way} is allowed"
        );
    }
}

#[test]
fn the_excused_places_are_those_of_the_page() {
    let page = std::fs::read_to_string(root().join("docs/decisions/io.md")).unwrap();
    let table = page.split("| excused | why |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|l| l.starts_with('|'));
    let listed: BTreeSet<String> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2).map(str::to_owned))
        .filter(|word| word.ends_with(".rs"))
        .collect();
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let mut excused = BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        if text
            .replace(HELD, "")
            .contains("clippy::disallowed_methods")
        {
            let name = path.strip_prefix(root().join("crates")).unwrap();
            excused.insert(name.display().to_string());
        }
    }
    assert_eq!(excused, listed);
}
