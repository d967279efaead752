//! Goal: a door between rooms is small, and its text is held by tests: no public trait has more than seven methods, and
//! `doors.list` names for each its contract suite and everything that implements it, doubles included. A wider trait is
//! made of several, as `File` is of reading, writing and locking, so that each has a contract that fits on a page.
//!
//! Method: the code is read as text. A new trait, and a new implementation of an old one, are missing in the list:
//! whoever adds them there has run the suite over them, or says in a line why there is none. A named implementation must
//! be in the text that runs the suite: the suite's own file, the files next to it below `tests`, and every function that
//! calls the suite with those that it uses.
//!
//! Not covered: a type that is named there and not given to the suite.

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
    let root = longshore_tests::root().canonicalize().unwrap();
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
    /// The makers of each implementation that is not named where the suite runs (`NAME<MAKER`, `NAME<MAKER<ITS-MAKER`);
    /// the last one is named there.
    makers: BTreeMap<String, Vec<String>>,
    /// Implementations that do not run the suite (`!NAME`); a remark above the line has the reason.
    excused: BTreeSet<String>,
    remark: String,
}

fn list() -> BTreeMap<String, Door> {
    let mut doors = BTreeMap::new();
    let mut remark = String::new();
    for line in include_str!("doors.list").lines() {
        if line.is_empty() {
            remark.clear();
            continue;
        }
        if let Some(text) = line.strip_prefix('#') {
            remark += text;
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [door, suite, implementations] = cells[..] else {
            panic!("doors.list: {line}");
        };
        let mut made = Door {
            suite: suite.to_owned(),
            implementations: BTreeSet::new(),
            makers: BTreeMap::new(),
            excused: BTreeSet::new(),
            remark: remark.clone(),
        };
        for word in implementations.split_whitespace() {
            let mut words = word.split('<');
            let name = words.next().unwrap_or_default();
            let makers: Vec<String> = words.map(Into::into).collect();
            let plain = name.trim_start_matches('!').to_owned();
            if plain.len() < name.len() {
                made.excused.insert(plain.clone());
            }
            if !makers.is_empty() {
                made.makers.insert(plain.clone(), makers);
            }
            made.implementations.insert(plain);
        }
        doors.insert(door.to_owned(), made);
    }
    doors
}

/// Whether a text has the word, as code does: not as a part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_inner = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_inner) && !after.is_some_and(is_inner)
    })
}

/// The functions of a file, each with its text; found by the indentation that rustfmt gives.
fn functions(text: &str) -> Vec<(&str, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let inner = line.trim_start();
        let words = ["pub ", "pub(crate) ", "pub(super) ", "unsafe ", "const "];
        let bare = words
            .iter()
            .fold(inner, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        let Some(rest) = bare.strip_prefix("fn ") else {
            continue;
        };
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let last = format!("{}}}", &line[..line.len() - inner.len()]);
        let body = lines[at..].iter().take_while(|line| **line != last);
        let body: Vec<&str> = body.copied().collect();
        found.push((&rest[..end.unwrap_or(rest.len())], body.join("\n")));
    }
    found
}

/// The text of the functions that call one of `wanted`, with all functions of the file that call them or that they call.
fn running(text: &str, wanted: &[&str]) -> String {
    let all = functions(text);
    let calls = |body: &str, name: &str| {
        let inner = body.split_once('{').map_or("", |(_, inner)| inner);
        has_word(inner, name)
    };
    let mut known: BTreeSet<usize> = BTreeSet::new();
    for (at, (_, body)) in all.iter().enumerate() {
        if wanted.iter().any(|name| calls(body, name)) {
            known.insert(at);
        }
    }
    loop {
        let more: Vec<usize> = (0..all.len())
            .filter(|at| !known.contains(at))
            .filter(|at| {
                let (name, body) = &all[*at];
                known
                    .iter()
                    .any(|k| calls(&all[*k].1, name) || calls(body, all[*k].0))
            })
            .collect();
        if more.is_empty() {
            break;
        }
        known.extend(more);
    }
    let bodies = known.iter().map(|at| all[*at].1.as_str());
    bodies.collect::<Vec<_>>().join("\n")
}

/// The modules that a file includes by path, as resolved paths and names.
fn included(path: &Path, text: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for after in text.split("#[path = \"").skip(1) {
        let Some((inner, rest)) = after.split_once("\"]") else {
            continue;
        };
        let joined = path.parent().unwrap().join(inner);
        let name = rest.split("mod ").nth(1).unwrap_or_default();
        let name = name.split(';').next().unwrap_or_default();
        if let Ok(resolved) = joined.canonicalize() {
            found.push((resolved, name.to_owned()));
        }
    }
    found
}

/// What the tests of the tree read: files, and the modules that they include by path.
struct Tree {
    files: Vec<(PathBuf, String, String)>,
    /// The room of the includer, the included file and the module's name.
    included: Vec<(String, PathBuf, String)>,
}

impl Tree {
    fn read() -> Tree {
        let files = files();
        let each = |(path, room, text): &(PathBuf, String, String)| {
            let of = included(path, text).into_iter();
            let room = room.clone();
            of.map(move |(of, name)| (room.clone(), of, name))
                .collect::<Vec<_>>()
        };
        let included = files.iter().flat_map(each).collect();
        Tree { files, included }
    }

    /// All text that runs a suite.
    fn text_that_runs(&self, suite: &Path) -> String {
        let suite = suite.canonicalize().unwrap();
        let (parent, stem) = (suite.parent().unwrap(), suite.file_stem().unwrap());
        let is_folder = stem == "mod";
        let own = match is_folder {
            true => parent.to_owned(),
            false => suite.with_extension(""),
        };
        let beside = match is_folder {
            true => parent.parent().unwrap(),
            false => parent,
        };
        let is_test_binary = beside.parent().is_some_and(|up| up.ends_with("tests"));
        let found = self.files.iter().find(|(path, ..)| *path == suite);
        let (_, room, own_text) = found.unwrap_or_else(|| panic!("{}", suite.display()));
        let mut names = BTreeSet::from([own.file_name().unwrap().to_str().unwrap()]);
        let mut rooms = BTreeSet::from([room]);
        for (room, of, name) in &self.included {
            if *of == suite {
                names.insert(name);
            }
            // A room that includes a folder's `mod.rs` has the modules next to it, too.
            if *of == suite || *of == suite.with_file_name("mod.rs") {
                rooms.insert(room);
            }
        }
        let wanted: Vec<&str> = functions(own_text).iter().map(|(name, _)| *name).collect();
        let mut all = String::new();
        for (path, room, text) in &self.files {
            let is_near = *path == suite
                || path.starts_with(&own)
                || (is_test_binary && path.starts_with(beside));
            let uses = |name: &&str| text.contains(&format!("{name}::"));
            if is_near {
                all += text;
            } else if rooms.contains(room) && names.iter().any(uses) {
                all += &running(text, &wanted);
            }
        }
        all
    }

    /// Whether some file names both.
    fn has_both(&self, one: &str, other: &str) -> bool {
        let mut texts = self.files.iter().map(|(.., text)| text);
        texts.any(|text| has_word(text, one) && has_word(text, other))
    }
}

/// Why a name of the list does not count as run; `text` is all that runs the door's suite.
fn not_run(of: &Door, name: &str, text: &str, tree: &Tree) -> Option<String> {
    let makers = of.makers.get(name);
    if of.excused.contains(name) {
        let has_reason = makers.is_none() && has_word(&of.remark, name);
        let why = || format!("a remark above says why {name} does not run the suite");
        return (!has_reason).then(why);
    }
    let Some(makers) = makers else {
        let why = || format!("nothing that runs {} names {name}", of.suite);
        return (!has_word(text, name)).then(why);
    };
    if has_word(text, name) {
        return Some(format!(
            "{name} is named where the suite runs: leave out its maker"
        ));
    }
    let mut made = name;
    for maker in makers {
        if !tree.has_both(made, maker) {
            return Some(format!("{maker} makes no {made}"));
        }
        made = maker;
    }
    let why = || format!("nothing that runs {} names {made}", of.suite);
    (!has_word(text, made)).then(why)
}

#[test]
fn what_is_named_with_a_suite_is_in_the_text_that_runs_it() {
    let (list, tree) = (list(), Tree::read());
    let mut texts = BTreeMap::new();
    let mut wrong = Vec::new();
    for (door, of) in &list {
        if of.suite.starts_with("none:") {
            assert!(of.makers.is_empty() && of.excused.is_empty(), "{door}");
            continue;
        }
        let text = texts
            .entry(&of.suite)
            .or_insert_with(|| tree.text_that_runs(&longshore_tests::root().join(&of.suite)));
        let whys = of.implementations.iter();
        let whys = whys.filter_map(|name| not_run(of, name, text, &tree));
        wrong.extend(whys.map(|why| format!("doors.list: {door}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_that_run_a_suite_are_found_with_what_they_use() {
    let text = "fn a() {\n    suite(B);\n    c();\n}\nfn c() {\n    D\n}\nmod m {\n    pub(crate) fn e() {\n        F\n    }\n}\nfn g() {\n    a();\n    H\n}\n";
    let found = running(text, &["suite"]);
    assert!(
        has_word(&found, "B") && has_word(&found, "D") && has_word(&found, "H"),
        "{found}"
    );
    assert!(!has_word(&found, "F"), "{found}");
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

/// The traits that a trait's line names after the colon.
fn parents(line: &str) -> Vec<&str> {
    // A long list of them stands on lines of its own.
    let head = line.split('{').next().unwrap_or(line);
    let Some((_, bounds)) = head.split_once(':') else {
        return Vec::new();
    };
    let names = bounds.split('+').map(str::trim);
    names.map(|n| n.split('<').next().unwrap()).collect()
}

/// Traits that inherit more than [`METHODS_MAX`] methods, with all that they have, and why callers take the whole.
const WIDE: &[(&str, usize, &str)] = &[
    (
        "io/Dir",
        25,
        "an open directory is one thing that is read, changed and synced; readers can take DirRead",
    ),
    (
        "io/DirChange",
        12,
        "a change needs the reading that finds what to change",
    ),
    (
        "io/DirIdentity",
        11,
        "a thing that has an identity is found by the reading",
    ),
    (
        "io/File",
        21,
        "an open file is one thing that is read, written and locked; readers can take FileRead",
    ),
    (
        "landing/Root",
        19,
        "a restore fills, asks and switches one root, in this order",
    ),
    (
        "media/BackupDevice",
        12,
        "a device that writes a stripe also finds one that waits, or that was left",
    ),
    (
        "policy/Base",
        10,
        "a policy that is the base of others is one that keeps slots",
    ),
    (
        "repository/Place",
        20,
        "a place of backups also keeps what is marked, recorded and stopped there",
    ),
    ("tsql/Calls", 9, "a call's arguments are leaves"),
    (
        "tsql/Nodes",
        16,
        "the reader makes all kinds of nodes in one pass; each kind has a trait of its own",
    ),
    ("tsql/Operators", 9, "an operator's operands are leaves"),
];

#[test]
fn a_trait_that_is_wide_with_what_it_inherits_is_listed_with_a_reason() {
    let mut own = BTreeMap::new();
    for (_, room, text) in files() {
        for (name, methods, _) in traits(&text) {
            let line = text.lines().find(|line| {
                let rest = BEGINNINGS.iter().find_map(|b| line.strip_prefix(b));
                rest.is_some_and(|rest| {
                    let end = rest.find(|c: char| !c.is_alphanumeric());
                    &rest[..end.unwrap_or(rest.len())] == name
                })
            });
            let at = line.unwrap().as_ptr().addr() - text.as_ptr().addr();
            let above = parents(&text[at..]).into_iter();
            let above: Vec<String> = above.map(|parent| format!("{room}/{parent}")).collect();
            own.insert(format!("{room}/{name}"), (methods, above));
        }
    }
    // Each is counted once, although two parents may have it.
    let all = |door: &String| -> usize {
        let (mut todo, mut seen) = (vec![door.clone()], BTreeSet::new());
        while let Some(next) = todo.pop() {
            if let Some((_, above)) = own.get(&next)
                && seen.insert(next)
            {
                todo.extend(above.iter().cloned());
            }
        }
        seen.iter().map(|door| own[door].0).sum()
    };
    let found: BTreeMap<String, usize> = own
        .keys()
        .map(|door| (door.clone(), all(door)))
        .filter(|(_, methods)| *methods > METHODS_MAX)
        .collect();
    let listed = WIDE
        .iter()
        .map(|(door, methods, _)| ((*door).to_owned(), *methods));
    assert_eq!(found, listed.collect::<BTreeMap<_, _>>());
    assert_eq!(
        parents("pub trait A: B + Send + C<u8> {"),
        ["B", "Send", "C"]
    );
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
