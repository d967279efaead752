//! A type's name means one thing, or a few rooms' own things: more than three rooms do not give one name to types of
//! their own, and a room gives a name once. A reader of `Plan` in a room need not ask which of six it is.
//!
//! The code is read as text: definitions that other files can see (`pub`, in any form), without tests.
//! Goal: no more than three rooms give one name to types that other files can see, except names that this file lists
//! with a reason; and no room gives one name to two such types, with another such list.
//! Not covered: definitions that do not begin their line with `pub`, and names that differ only a little.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most rooms with types of one name.
const ROOMS_MAX: usize = 3;

/// Names that may be in every room, with the reason.
const EVERYWHERE: &[(&str, &str)] = &[(
    "Error",
    "each room has its own, and Rust's own libraries name theirs so",
)];

/// Names that a room gives to several types, the number of these, and the reason.
const SEVERAL: &[(&str, &str, usize, &str)] = &[
    ("accel", "Library", 2, "one vendor's each"),
    (
        "accel",
        "Session",
        2,
        "QATzip's structure, and what owns one",
    ),
    (
        "accel",
        "Trouble",
        2,
        "an accelerator's, and a batch's of it",
    ),
    (
        "blockcache",
        "WriteInProgress",
        2,
        "of the store, and of the reads that it concerns",
    ),
    (
        "codec",
        "Compressor",
        6,
        "one algorithm each, and the choice among them",
    ),
    (
        "codec",
        "Decompressor",
        4,
        "one algorithm each, and the choice among them",
    ),
    (
        "codec",
        "Deflater",
        5,
        "one library each, and the choice among them",
    ),
    (
        "codec",
        "Inflater",
        4,
        "one library each, and the choice among them",
    ),
    ("codec", "Matcher", 2, "one algorithm each"),
    ("codec", "Search", 2, "a trait, and what measures its work"),
    ("codec", "Sequence", 2, "one algorithm each"),
    (
        "codec",
        "Window",
        3,
        "the type for any size, and for one algorithm each",
    ),
    (
        "longshore",
        "Archive",
        2,
        "options, and what becomes of them",
    ),
    (
        "longshore",
        "Catalog",
        2,
        "options, and a section of the configuration",
    ),
    ("longshore", "Config", 2, "options, and the configuration"),
    (
        "longshore",
        "Serve",
        2,
        "options, and a section of the configuration",
    ),
    (
        "longshore",
        "Settings",
        2,
        "options, and what becomes of them",
    ),
    (
        "longshore",
        "Wal",
        3,
        "options, a section of the configuration, and a row of a report",
    ),
    (
        "pipeline",
        "Offloading",
        2,
        "of backups and of restores, which mirror one another",
    ),
    (
        "pipeline",
        "PendingBlock",
        2,
        "of backups and of restores, which mirror one another",
    ),
    (
        "pipeline",
        "Read",
        2,
        "of backups and of restores, which mirror one another",
    ),
    ("source", "Begun", 2, "one kind of source each"),
    (
        "source",
        "Database",
        2,
        "as the server lists it, and as its directories show it",
    ),
    ("source", "Notes", 2, "one kind of source each"),
    ("source", "Start", 2, "one kind of source each"),
    ("source", "Walk", 2, "one kind of source each"),
    (
        "studies",
        "Table",
        2,
        "of a report, and of a sample database",
    ),
    ("tsql", "Argument", 2, "as it was written, and its value"),
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The name that a line defines for a type that other files can see.
fn defined(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(inside) => inside.split_once(')')?.1,
        None => rest,
    };
    let (keyword, name) = rest.trim_start().split_once(' ')?;
    if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
        return None;
    }
    let end = name.find(|c| !is_word(c)).unwrap_or(name.len());
    Some(&name[..end])
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if is_test {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The rooms that define each name, one entry for each definition.
fn definitions() -> BTreeMap<String, Vec<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    sources(&crates, &mut files);
    let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let mut above = file.ancestors();
        if !above.any(|dir| dir.file_name().is_some_and(|name| name == "src")) {
            continue;
        }
        let room = above.next().unwrap().file_name().unwrap();
        let room = room.to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let shipped = longshore_tests::shipped(&text);
        for name in shipped.lines().filter_map(defined) {
            rooms.entry(name.to_owned()).or_default().push(room.clone());
        }
    }
    rooms
}

/// The rooms that define each name.
fn rooms_by_name() -> BTreeMap<String, BTreeSet<String>> {
    let all = definitions().into_iter();
    all.map(|(name, rooms)| (name, rooms.into_iter().collect()))
        .collect()
}

#[test]
fn no_room_gives_one_name_to_two_types_unless_they_are_listed() {
    let mut found = BTreeSet::new();
    for (name, rooms) in definitions() {
        for room in rooms.iter().collect::<BTreeSet<_>>() {
            let count = rooms.iter().filter(|other| *other == room).count();
            if count > 1 {
                found.insert((room.clone(), name.clone(), count));
            }
        }
    }
    let listed = SEVERAL
        .iter()
        .map(|(room, name, count, _)| ((*room).to_owned(), (*name).to_owned(), *count));
    let listed: BTreeSet<_> = listed.collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "give one of these another name: {new:?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        gone.is_empty(),
        "these need no exception any more: {gone:?}"
    );
}

#[test]
fn no_name_is_given_to_types_of_more_than_three_rooms() {
    let rooms = rooms_by_name();
    assert!(rooms.len() > 500, "only {} names were found", rooms.len());
    let everywhere = |name: &str| EVERYWHERE.iter().any(|(known, _)| *known == name);
    let wrong: Vec<_> = rooms
        .iter()
        .filter(|(name, rooms)| rooms.len() > ROOMS_MAX && !everywhere(name))
        .collect();
    assert!(
        wrong.is_empty(),
        "give these types names of their own: {wrong:#?}"
    );
    for (name, _) in EVERYWHERE {
        let needs = rooms
            .get(*name)
            .is_some_and(|rooms| rooms.len() > ROOMS_MAX);
        assert!(needs, "{name} needs no exception any more");
    }
}

#[test]
fn definitions_are_told_from_other_lines() {
    assert_eq!(defined("pub struct Plan {"), Some("Plan"));
    assert_eq!(defined("pub(super) enum Kind<'a> {"), Some("Kind"));
    assert_eq!(defined("pub trait Source: Send {"), Some("Source"));
    assert_eq!(defined("pub fn plan() {"), None);
    assert_eq!(defined("struct Plan {"), None);
    assert_eq!(defined("    pub struct Inner {"), None);
}
