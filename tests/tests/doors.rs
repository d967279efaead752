//! A door between rooms is small, and its text is held by tests: no public trait has more than seven methods, and
//! `doors.list` names for each its contract suite and everything that implements it, doubles included. A wider trait is
//! made of several, as `File` is of reading, writing and locking, so that each has a contract that fits on a page.
//!
//! A new trait, and a new implementation of an old one, are missing in the list: whoever adds them there has run the suite
//! over them, or says in a line why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const METHODS_MAX: usize = 7;

/// How a trait begins that others than its own module can implement.
const BEGINNINGS: [&str; 3] = ["pub trait ", "pub(crate) trait ", "pub(super) trait "];

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

/// The text of every source file, with its path and its room: the directory of `src` or `tests`.
fn files() -> Vec<(PathBuf, String, String)> {
    let root = longshore_tests::root();
    let mut paths = Vec::new();
    for part in ["crates", "doubles"] {
        sources(&root.join(part), &mut paths);
    }
    let inside = ["src", "tests", "examples", "benches", "build"];
    let mut files = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let inner = path.strip_prefix(&root).unwrap();
        let names: Vec<&str> = inner.iter().map(|name| name.to_str().unwrap()).collect();
        // Folders of tests may have any name.
        let Some(at) = names.iter().position(|name| inside.contains(name)) else {
            continue;
        };
        let room = names[at - 1].to_owned();
        files.push((path, room, text));
    }
    files
}

/// The public traits of a file, each with the number of methods that it names and whether it has a doc comment.
fn traits(text: &str) -> Vec<(&str, usize, bool)> {
    let mut found: Vec<(&str, usize, bool)> = Vec::new();
    let (mut is_inside, mut is_told) = (false, false);
    for line in text.lines() {
        let named = BEGINNINGS.iter().find_map(|b| line.strip_prefix(b));
        if let Some(name) = named {
            let end = name.find(|c: char| !c.is_alphanumeric());
            found.push((&name[..end.unwrap_or(name.len())], 0, is_told));
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
        is_told = line.starts_with("///") || (is_told && line.starts_with('#'));
    }
    found
}

/// The traits that a file implements, each with the name of the type.
fn implemented(text: &str) -> Vec<(&str, &str)> {
    let name = |path: &str| -> usize {
        let end = path.find(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
        end.unwrap_or(path.len())
    };
    let mut found = Vec::new();
    for line in text.lines() {
        let Some(mut rest) = line.trim_start().strip_prefix("impl") else {
            continue;
        };
        if rest.starts_with('<') {
            let mut depth = 0;
            let end = rest.find(|c: char| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            });
            rest = &rest[end.map_or(0, |end| end + 1)..];
        }
        if let Some((of, by)) = rest.trim_start().split_once(" for ") {
            let (of, by) = (&of[..name(of)], &by[..name(by)]);
            let last = |path: &'_ str| path.rfind(':').map_or(0, |at| at + 1);
            found.push((&of[last(of)..], &by[last(by)..]));
        }
    }
    found
}

/// A line of the list: `ROOM/TRAIT | SUITE or "none: WHY" | IMPLEMENTATIONS`.
struct Door {
    suite: String,
    implementations: BTreeSet<String>,
}

fn list() -> BTreeMap<String, Door> {
    let text = include_str!("doors.list");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [door, suite, implementations] = cells[..] else {
                panic!("doors.list: {line}");
            };
            let implementations = implementations.split_whitespace().map(Into::into).collect();
            let suite = suite.to_owned();
            (
                door.to_owned(),
                Door {
                    suite,
                    implementations,
                },
            )
        })
        .collect()
}

#[test]
fn no_public_trait_has_more_than_seven_methods() {
    let mut count = 0;
    for (path, _, text) in files() {
        for (name, methods, is_told) in traits(&text) {
            count += 1;
            let at = path.display();
            assert!(
                methods <= METHODS_MAX,
                "{at}: {name} has {methods} methods: make it of several traits"
            );
            assert!(
                is_told,
                "{at}: {name} has no contract: write what both sides owe"
            );
        }
    }
    assert!(count > 40, "only {count} traits were found");
}

#[test]
fn every_public_trait_has_a_contract_suite_or_an_excuse() {
    let (list, mut found) = (list(), BTreeSet::new());
    for (path, room, text) in files() {
        for (name, ..) in traits(&text) {
            let door = format!("{room}/{name}");
            assert!(
                list.contains_key(&door),
                "{}: write a contract suite for {door}, run every implementation through it, and add both to doors.list",
                path.display()
            );
            found.insert(door);
        }
    }
    for (door, Door { suite, .. }) in &list {
        assert!(found.contains(door), "doors.list: there is no {door}");
        if let Some(why) = suite.strip_prefix("none:") {
            assert!(why.trim().len() > 20, "doors.list: {door} has no excuse");
            continue;
        }
        let text = fs::read_to_string(longshore_tests::root().join(suite));
        let text = text.unwrap_or_else(|e| panic!("doors.list: {suite}: {e}"));
        let name = door.rsplit('/').next().unwrap();
        assert!(
            text.contains(&format!("[`{name}`]")),
            "{suite} does not say that it is for {name}"
        );
        let runs = text.contains("#[test]") || text.contains("pub fn keeps_its_contract");
        assert!(
            runs || text.contains("pub fn engine_contract"),
            "{suite} has no tests"
        );
    }
}

#[test]
fn everything_that_implements_a_public_trait_is_named_with_its_suite() {
    let list = list();
    let files = files();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, room, text) in &files {
        for (name, by) in implemented(text) {
            let rooms = list
                .keys()
                .filter_map(|door| door.strip_suffix(&format!("/{name}")));
            let rooms: Vec<&str> = rooms.collect();
            // Where several rooms have a trait of this name, it is the own one, or the one of a room that is used.
            let is_used = |other: &&&str| text.contains(&format!("longshore_{other}"));
            let own = rooms.iter().find(|other| *other == room);
            let Some(of) = own.or_else(|| match rooms[..] {
                [_] => rooms.first(),
                _ => rooms.iter().find(is_used),
            }) else {
                continue;
            };
            found
                .entry(format!("{of}/{name}"))
                .or_default()
                .insert(by.to_owned());
        }
    }
    for (
        door,
        Door {
            implementations, ..
        },
    ) in &list
    {
        let found = found.remove(door).unwrap_or_default();
        assert_eq!(
            &found, implementations,
            "doors.list: {door}: run what is new through the suite, then name it"
        );
    }
}

#[test]
fn methods_are_counted_with_and_without_bodies() {
    let text = "/// Both.\n#[odd]\npub trait Door: Send {\n    fn a(&self);\n\n    fn b(&self) {\n        fn c() {}\n    }\n}\npub(super) trait Empty {}\nfn d() {}\n";
    assert_eq!(traits(text), [("Door", 2, true), ("Empty", 0, false)]);
}

#[test]
fn implementations_are_found_whatever_their_parameters() {
    let text = "impl Door for A {\n    impl<'a, T: Into<B<'a>>> x::Door<T> for y::C<'a, T> {}\nimpl D {}\nimpl Door\n";
    assert_eq!(implemented(text), [("Door", "A"), ("Door", "C")]);
}
