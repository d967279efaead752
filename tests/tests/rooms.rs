//! The rooms of the house and the doors between them, as ARCHITECTURE.md draws them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// What each room may use; rows from the floor up. Rooms of one row do not know each other.
const ROOMS: &[(u8, &str, &[&str])] = &[
    (0, "io", &[]),
    (0, "balance", &[]),
    (0, "tds", &[]),
    (1, "codec", &["io", "balance"]),
    (1, "pg", &["io"]),
    (2, "media", &["io", "codec"]),
    (2, "cache", &["io", "balance"]),
    (2, "source", &["io", "pg"]),
    (3, "blockcache", &["io", "cache"]),
    (3, "catalog", &["io", "media"]),
    (3, "repository", &["io", "codec", "media", "pg"]),
    (4, "landing", &["io", "media", "source", "pg", "repository"]),
    (
        5,
        "pipeline",
        &[
            "io",
            "codec",
            "media",
            "source",
            "catalog",
            "pg",
            "repository",
            "landing",
        ],
    ),
    (4, "nbd", &["io", "cache", "blockcache"]),
    (6, "lab", &["io", "cache", "codec", "pipeline"]),
    (
        6,
        "tsql",
        &["io", "codec", "media", "catalog", "landing", "pipeline"],
    ),
    (
        7,
        "longshore",
        &[
            "io",
            "balance",
            "codec",
            "pg",
            "media",
            "source",
            "cache",
            "blockcache",
            "catalog",
            "repository",
            "landing",
            "pipeline",
            "lab",
            "tsql",
            "tds",
        ],
    ),
];

/// Not part of the house: what uses the binary and what is on the machine, and the doubles of vendors'
/// libraries, which know none of it.
fn outside(package: &str) -> bool {
    matches!(package, "tests" | "test-servers") || package.starts_with("double-")
}

fn room(package: &str) -> &str {
    package.strip_prefix("longshore-").unwrap_or(package)
}

/// Edges of the shipped code; what only tests use is left out.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root)
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|d| d["kind"].as_str() != Some("dev"))
                .filter_map(|d| d["name"].as_str())
                .filter(|name| names.contains(name))
                .map(|name| room(name).to_owned())
                .collect();
            (room(package["name"].as_str().unwrap()).to_owned(), uses)
        })
        .collect()
}

#[test]
fn rooms_use_only_the_doors_that_the_picture_shows() {
    let edges = edges();
    for (from, uses) in &edges {
        if outside(from) {
            assert!(
                uses.is_empty(),
                "{from} stands outside and must not use {uses:?}"
            );
            continue;
        }
        let known = ROOMS.iter().find(|r| r.1 == from);
        let (_, _, may) = known.unwrap_or_else(|| panic!("the picture does not show {from}"));
        for to in uses {
            assert!(may.contains(&to.as_str()), "{from} must not use {to}");
        }
    }
    for (_, name, _) in ROOMS {
        assert!(
            edges.contains_key(*name),
            "the picture shows {name}, which is gone"
        );
    }
}

#[test]
fn doors_lead_down_and_never_sideways() {
    let row = |name: &str| ROOMS.iter().find(|r| r.1 == name).map(|r| r.0);
    for (from_row, from, uses) in ROOMS {
        for to in *uses {
            let to_row = row(to).unwrap_or_else(|| panic!("{from} uses {to}, which is no room"));
            assert!(to_row < *from_row, "{from} and {to}");
        }
    }
}

/// A page of the repository.
fn page(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The rows of the page's table that begins with `head`, cell by cell.
fn table<'p>(page: &'p str, head: &str) -> Vec<Vec<&'p str>> {
    let (_, rows) = page
        .split_once(head)
        .unwrap_or_else(|| panic!("no table {head}"));
    rows.lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

#[test]
fn the_table_of_architecture_says_of_every_room_what_it_may_use() {
    let page = page("ARCHITECTURE.md");
    let rows = table(&page, "| room | one line | its door | may use |");
    let shown: BTreeMap<String, BTreeSet<&str>> = rows
        .iter()
        .map(|cells| {
            let [name, _, _, may] = cells[..] else {
                panic!("a row of {} cells: {cells:?}", cells.len());
            };
            let may = may.split(", ").filter(|room| *room != "–").collect();
            (name.replace('`', ""), may)
        })
        .collect();
    let held = ROOMS
        .iter()
        .map(|(_, name, may)| ((*name).to_owned(), may.iter().copied().collect()))
        .collect();
    assert_eq!(shown, held);
}

#[test]
fn the_picture_of_architecture_has_every_room_in_its_row() {
    let page = page("ARCHITECTURE.md");
    let (_, picture) = page.split_once("```\n 7 ").unwrap();
    let (picture, _) = picture.split_once("```").unwrap();
    for (number, line) in (0..=7).rev().zip(format!(" 7 {picture}").lines()) {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some(number.to_string().as_str()), "{line}");
        let in_row = ROOMS.iter().filter(|room| room.0 == number);
        let held: BTreeSet<&str> = in_row.map(|room| room.1).collect();
        let shown: BTreeSet<&str> = words.take(held.len()).collect();
        assert_eq!(shown, held, "{line}");
    }
}

#[test]
fn every_dependency_has_a_reason_and_every_reason_a_dependency() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = page("docs/decisions/dependencies.md");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let used: BTreeSet<&str> = section
        .lines()
        .take_while(|l| !l.starts_with('['))
        .filter_map(|l| l.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("longshore-"))
        .collect();
    let rows = table(&page, "| crate | why | licence |");
    let listed: BTreeSet<&str> = rows
        .iter()
        .filter(|cells| cells[0].starts_with('`'))
        .flat_map(|cells| cells[0].split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(listed, used);
    assert!(used.len() > 20, "only {} were found", used.len());
    for cells in rows {
        assert!(
            cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty()),
            "{cells:?}"
        );
    }
}
