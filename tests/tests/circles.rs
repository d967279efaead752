//! Goal: inside every crate dependencies lead one way: no file uses names of a file that uses its own.
//! Method: the code is read as text: `use` lines and paths, without comments and tests. A name that a module only
//! re-exports (`pub use`) belongs to the file that defines it.
//! Not covered: methods that a type has in another file, and circles between folders whose files are in no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A path as written, from the crate's root: `["place", "Target"]`.
type Name = Vec<String>;

/// A module of a crate: one file.
#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Names that it re-exports: the name here, and the path of its definition; `None` for another crate's.
    hands_on: Vec<(String, Option<Name>)>,
    /// Paths that it uses.
    uses: BTreeSet<Name>,
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code without comments, strings and test-only parts.
fn code(text: &str) -> String {
    let text = longshore_tests::shipped(text);
    let mut out = String::new();
    for line in text.lines() {
        let line = line.trim_start();
        if !line.starts_with("//") {
            let mut in_string = false;
            let mut before = ' ';
            for c in line.chars() {
                if c == '"' && before != '\\' && before != '\'' {
                    in_string = !in_string;
                } else if !in_string {
                    out.push(c);
                }
                before = c;
            }
        }
        out.push('\n');
    }
    out
}

/// The paths of a `use` tree, each with the name that it gets.
fn leaves(tree: &str, before: &[String], found: &mut Vec<(String, Name)>) {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let mut path = before.to_vec();
        let head = tree[..open].split("::").map(str::trim);
        path.extend(head.filter(|s| !s.is_empty()).map(str::to_owned));
        let inner = tree[open + 1..].trim_end();
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        let (mut depth, mut from) = (0, 0);
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    leaves(&inner[from..at], &path, found);
                    from = at + 1;
                }
                _ => {}
            }
        }
        leaves(&inner[from..], &path, found);
        return;
    }
    if tree.is_empty() {
        return;
    }
    let (tree, alias) = match tree.split_once(" as ") {
        Some((tree, alias)) => (tree.trim(), Some(alias.trim())),
        None => (tree, None),
    };
    let mut path = before.to_vec();
    path.extend(tree.split("::").map(|s| s.trim().to_owned()));
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = alias.map(str::to_owned).or(path.last().cloned());
    found.push((name.unwrap_or_default(), path));
}

/// `path`, written in the module `at`, from the crate's root; `None` if it is not of this crate.
fn absolute(path: &[String], at: &[String], children: &BTreeSet<String>) -> Option<Name> {
    let first = path.first()?;
    let mut base = at.to_vec();
    let mut rest = path;
    match first.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|s| s == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        name if children.contains(name) => {}
        _ => return None,
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The modules of a crate by their paths.
fn modules(src: &Path) -> BTreeMap<Name, Module> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![(src.to_path_buf(), Name::new())];
    let mut files = Vec::new();
    while let Some((dir, at)) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if stem == "tests" {
                continue;
            }
            let mut name = at.clone();
            if path.is_dir() {
                name.push(stem);
                dirs.push((path, name));
            } else if path.extension().is_some_and(|e| e == "rs") {
                if !matches!(stem.as_str(), "mod" | "lib" | "main") {
                    name.push(stem);
                }
                files.push((name, path));
            }
        }
    }
    let names: BTreeSet<Name> = files.iter().map(|(name, _)| name.clone()).collect();
    for (name, file) in files {
        let text = code(&fs::read_to_string(&file).unwrap());
        let below = names
            .iter()
            .filter(|n| n.len() == name.len() + 1 && n.starts_with(&name));
        let children: BTreeSet<String> = below.map(|n| n[name.len()].clone()).collect();
        let module = module(&text, &name, &children, file);
        found.insert(name, module);
    }
    found
}

fn module(text: &str, at: &[String], children: &BTreeSet<String>, file: PathBuf) -> Module {
    let mut module = Module {
        file,
        ..Module::default()
    };
    let mut rest = String::new();
    let mut left = text;
    while let Some(start) = left.find("use ") {
        let begins = left[..start].trim_end_matches([' ', '\t']);
        let is_public = ["pub", "pub(crate)", "pub(super)"]
            .iter()
            .any(|p| begins.ends_with(p));
        let is_use = is_public || begins.is_empty() || begins.ends_with(['\n', '}', '{', ']']);
        let end = left[start..].find(';').map_or(left.len(), |e| start + e);
        if !is_use {
            rest += &left[..start + 4];
            left = &left[start + 4..];
            continue;
        }
        rest += &left[..start];
        let mut paths = Vec::new();
        leaves(&left[start + 4..end], &[], &mut paths);
        for (name, path) in paths {
            match (absolute(&path, at, children), is_public) {
                (path, true) => module.hands_on.push((name, path)),
                (Some(path), false) => drop(module.uses.insert(path)),
                (None, false) => {}
            }
        }
        left = &left[end.min(left.len())..];
    }
    rest += left;
    // Paths in the code itself.
    let starts = ["crate::", "super::", "self::"].map(str::to_owned);
    let own = children.iter().map(|child| format!("{child}::"));
    for start in starts.into_iter().chain(own) {
        for (i, _) in rest.match_indices(&start) {
            let before = rest[..i].chars().next_back();
            if before.is_some_and(|c| is_name(c) || c == ':' || c == '(' && start == "super::") {
                continue;
            }
            // Who may see an item: `pub(in crate::query)`.
            if rest[..i].ends_with("pub(in ") {
                continue;
            }
            let path: String = rest[i..]
                .chars()
                .take_while(|c| is_name(*c) || *c == ':')
                .collect();
            let path: Name = path
                .split("::")
                .filter(|s| !s.is_empty())
                .map(str::to_owned)
                .collect();
            if let Some(path) = absolute(&path, at, children)
                && !path.is_empty()
            {
                module.uses.insert(path);
            }
        }
    }
    module
}

/// The module whose file defines the item of `path`.
fn home(modules: &BTreeMap<Name, Module>, path: &[String], depth: usize) -> Option<Name> {
    let mut len = path.len();
    while !modules.contains_key(&path[..len]) {
        len = len.checked_sub(1)?;
    }
    let module = &path[..len];
    let Some(item) = path.get(len) else {
        return Some(module.to_vec());
    };
    let handed = modules[module]
        .hands_on
        .iter()
        .find(|(name, _)| name == item);
    match handed {
        Some((_, None)) => None,
        Some((_, Some(to))) if depth < 9 => {
            let to: Name = to.iter().chain(&path[len + 1..]).cloned().collect();
            home(modules, &to, depth + 1)
        }
        _ => Some(module.to_vec()),
    }
}

/// Sets of files that use one another in a circle.
fn circles(modules: &BTreeMap<Name, Module>) -> Vec<BTreeSet<Name>> {
    let uses = |name: &Name| -> BTreeSet<Name> {
        let homes = modules[name]
            .uses
            .iter()
            .filter_map(|p| home(modules, p, 0));
        homes.filter(|to| to != name).collect()
    };
    let edges: BTreeMap<&Name, BTreeSet<Name>> = modules.keys().map(|n| (n, uses(n))).collect();
    let reach = |from: &Name| {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<Name> = edges[from].iter().cloned().collect();
        while let Some(next) = todo.pop() {
            if seen.insert(next.clone()) {
                todo.extend(edges[&next].iter().cloned());
            }
        }
        seen
    };
    let reaches: BTreeMap<&Name, BTreeSet<Name>> =
        modules.keys().map(|name| (name, reach(name))).collect();
    let mut found: Vec<BTreeSet<Name>> = Vec::new();
    for (name, reached) in &reaches {
        if reached.contains(*name) && !found.iter().any(|circle| circle.contains(*name)) {
            let back = reached.iter().filter(|to| reaches[to].contains(*name));
            found.push(back.cloned().collect());
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn files_of_a_crate_use_one_another_in_no_circle() {
    let mut wrong = Vec::new();
    for room in longshore_tests::rooms() {
        let modules = modules(&room.join("src"));
        for circle in circles(&modules) {
            let files = circle.iter().map(|name| &modules[name].file);
            let files: Vec<String> = files
                .map(|file| file.strip_prefix(root()).unwrap().display().to_string())
                .collect();
            wrong.push(files.join(" "));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} circles; a name that both files need belongs in a third one:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_circle_is_found_also_through_a_name_that_is_handed_on() {
    let names = |path: &str| -> Name { path.split("::").map(str::to_owned).collect() };
    let children = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    let none = BTreeSet::new();
    let texts = [
        (Name::new(), "mod a;\nmod b;\npub use a::One;\n", &children),
        (
            names("a"),
            "use crate::b::{Two, Three};\npub struct One;\n",
            &none,
        ),
        (
            names("b"),
            "// use crate::x;\npub fn two() -> crate::One { One }\n",
            &none,
        ),
    ];
    let modules = texts.map(|(at, text, children)| {
        let module = module(&code(text), &at, children, PathBuf::new());
        (at, module)
    });
    let circles = circles(&BTreeMap::from(modules));
    assert_eq!(circles, [BTreeSet::from([names("a"), names("b")])]);
}
