//! Goal: the crates (rooms) and their dependencies (doors) are those that ARCHITECTURE.md draws.
//! Method: cargo's facts about the workspace are compared with tables here and on the page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The crates that each crate may use; rows from the lowest layer up. Crates of one row do not use each other.
const ROOMS: &[(u8, &str, &[&str])] = &[
    (0, "io", &[]),
    (0, "facts", &[]),
    (0, "balance", &[]),
    (0, "tds", &[]),
    (0, "crypt", &[]),
    (0, "parity", &[]),
    (1, "bucket", &["io", "balance"]),
    (1, "codec", &["io"]),
    (1, "pg", &["io"]),
    (2, "accel", &["io", "facts", "balance", "codec"]),
    (
        2,
        "media",
        &["io", "facts", "crypt", "parity", "bucket", "codec"],
    ),
    (2, "policy", &["io", "balance"]),
    (2, "source", &["io", "facts", "codec", "pg"]),
    (3, "blockcache", &["io", "policy"]),
    (3, "simulator", &["policy"]),
    (3, "catalog", &["io", "crypt", "media"]),
    (
        3,
        "wal",
        &["io", "facts", "bucket", "crypt", "codec", "pg", "media"],
    ),
    (
        4,
        "repository",
        &["io", "facts", "bucket", "pg", "media", "wal"],
    ),
    (
        4,
        "accelerators",
        &["io", "facts", "codec", "accel", "catalog"],
    ),
    (4, "serving", &["io", "policy", "blockcache"]),
    (
        5,
        "landing",
        &["io", "facts", "pg", "media", "source", "wal", "repository"],
    ),
    (5, "nbd", &["serving"]),
    (5, "lab-nbd", &["io", "policy", "serving"]),
    (
        6,
        "pipeline",
        &[
            "io",
            "facts",
            "codec",
            "pg",
            "accel",
            "media",
            "source",
            "catalog",
            "wal",
            "repository",
            "accelerators",
            "landing",
        ],
    ),
    (
        7,
        "studies",
        &[
            "io",
            "facts",
            "codec",
            "pg",
            "accel",
            "policy",
            "simulator",
            "pipeline",
        ],
    ),
    (
        7,
        "terminal",
        &[
            "io",
            "codec",
            "accel",
            "media",
            "source",
            "catalog",
            "wal",
            "repository",
            "pipeline",
        ],
    ),
    (
        7,
        "tsql",
        &[
            "io",
            "facts",
            "crypt",
            "codec",
            "media",
            "catalog",
            "accelerators",
            "landing",
            "pipeline",
        ],
    ),
    (
        8,
        "longshore",
        &[
            "io",
            "facts",
            "tds",
            "crypt",
            "codec",
            "pg",
            "media",
            "policy",
            "source",
            "blockcache",
            "catalog",
            "wal",
            "repository",
            "accelerators",
            "landing",
            "pipeline",
            "terminal",
            "tsql",
        ],
    ),
    (
        8,
        "lab",
        &[
            "io",
            "facts",
            "codec",
            "accel",
            "policy",
            "simulator",
            "pipeline",
            "studies",
            "terminal",
        ],
    ),
];

/// The rooms that a crate's tests use in addition, and why. Kit and doubles are for every crate's tests.
const TESTS: &[(&str, &str, &str)] = &[
    ("catalog", "codec", "sets to be recorded are compressed"),
    ("facts", "io", "a clock"),
    ("lab", "lab-nbd", "the plugin is loaded"),
    ("lab", "nbd", "the plugin is loaded"),
    ("lab", "serving", "the plugin's settings"),
    ("landing", "codec", "sets to be restored are compressed"),
    ("longshore", "nbd", "the plugin is loaded"),
    ("pipeline", "crypt", "sets are encrypted for new recipients"),
    ("repository", "codec", "sets on a shelf are compressed"),
    ("repository", "crypt", "sets on a shelf are encrypted"),
    // From a lower row to a higher one, so no code of it can be used.
    ("repository", "pipeline", "real backups are put on a shelf"),
];

/// Packages outside the architecture: tests that use the binary and the machine's tools, and the doubles of vendors'
/// libraries, which use no other crate.
fn outside(package: &str) -> bool {
    matches!(package, "tests" | "kit") || package.starts_with("double-")
}

fn room(package: &str) -> &str {
    package.strip_prefix("longshore-").unwrap_or(package)
}

/// Cargo's facts about the workspace.
fn metadata() -> serde_json::Value {
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
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Edges of the shipped code, or those of tests.
fn edges(of_tests: bool) -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|d| (d["kind"].as_str() == Some("dev")) == of_tests)
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
    let edges = edges(false);
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
fn tests_use_only_further_rooms_that_are_listed_with_a_reason() {
    let shipped = edges(false);
    let mut found = BTreeSet::new();
    for (from, uses) in edges(true) {
        let new = uses.iter().filter(|to| **to != from && !outside(to));
        let new = new.filter(|to| !shipped[&from].contains(*to));
        found.extend(new.map(|to| (from.clone(), to.clone())));
    }
    let listed = TESTS
        .iter()
        .map(|(from, to, _)| ((*from).into(), (*to).into()));
    assert_eq!(found, listed.collect());
}

/// The folders of `crates/`, by product, and the products that each may use. `longshore` alone stands outside of them.
const PRODUCTS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("sql", &["core"]),
    ("cache", &["core"]),
    ("lab", &["core", "cache"]),
];

#[test]
fn the_folders_show_the_products_and_what_each_uses() {
    let mut product = BTreeMap::new();
    for path in longshore_tests::rooms() {
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let name = manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let folder = path.parent().unwrap().file_name().unwrap();
        product.insert(
            room(name.unwrap()).to_owned(),
            folder.to_str().unwrap().to_owned(),
        );
    }
    assert_eq!(product.remove("longshore").unwrap(), "crates");
    // The programs that make backups and serve a cache have nothing of the lab in them.
    let edges = edges(false);
    for shipped in ["longshore", "nbd"] {
        let mut within = vec![shipped];
        let mut seen = BTreeSet::from([shipped]);
        while let Some(room) = within.pop() {
            for used in &edges[room] {
                assert_ne!(
                    product[used.as_str()],
                    "lab",
                    "{shipped}: {room} uses {used}"
                );
                if seen.insert(used.as_str()) {
                    within.push(used.as_str());
                }
            }
        }
        assert!(seen.len() > 4, "{shipped} has {seen:?}");
    }
    for (_, name, uses) in ROOMS.iter().filter(|room| room.1 != "longshore") {
        let own = &product[*name];
        let (_, may) = PRODUCTS.iter().find(|(folder, _)| folder == own).unwrap();
        for used in *uses {
            let other = &product[*used];
            assert!(
                other == own || may.contains(&other.as_str()),
                "{name} of {own} uses {used} of {other}"
            );
        }
    }
}

/// The code that tests share is in no program that is shipped.
#[test]
fn the_kit_is_used_by_tests_alone() {
    let mut users = 0;
    for package in metadata()["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["name"] == "longshore-kit" {
                assert_eq!(dependency["kind"], "dev", "{}", package["name"]);
                users += 1;
            }
        }
    }
    assert!(users > 5, "only {users} crates use the kit");
}

/// One room waits asynchronously. Everywhere else a thread waits, so that a run's threads can be counted.
#[test]
fn the_asynchronous_runtime_is_in_one_room() {
    const OF_BUCKET: [&str; 4] = ["tokio", "object_store", "reqwest", "futures-util"];
    let mut found = BTreeSet::new();
    for package in metadata()["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if OF_BUCKET.contains(&name) {
                assert_eq!(package["name"], "longshore-bucket", "uses {name}");
                found.insert(name.to_owned());
            }
        }
    }
    assert_eq!(found, OF_BUCKET.map(str::to_owned).into());
}

/// Simulated disks and clocks, and engines that fail as they are told, are in tests and in nothing that is shipped.
#[test]
fn features_for_tests_are_asked_for_by_tests_alone() {
    const FOR_TESTS: [&str; 2] = ["sim", "contract"];
    let mut asked = BTreeSet::new();
    for package in metadata()["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let features = dependency["features"].as_array().unwrap();
            let of_tests = features.iter().filter_map(|f| f.as_str());
            for feature in of_tests.filter(|f| FOR_TESTS.contains(f)) {
                let kind = dependency["kind"].as_str();
                assert_eq!(kind, Some("dev"), "{} asks for {feature}", package["name"]);
                asked.insert(feature.to_owned());
            }
        }
    }
    assert_eq!(asked, FOR_TESTS.map(str::to_owned).into());
}

/// A policy that is only there to be compared with is the lab's.
#[test]
fn the_filters_that_are_shipped_are_those_that_a_cache_at_work_can_have() {
    let dir = longshore_tests::root().join("crates/cache/policy/src/policy/filter");
    let files: BTreeSet<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let own = [
        "aware.rs",
        "balance.rs",
        "door.rs",
        "fixed.rs",
        "mixer.rs",
        "mod.rs",
        "shared.rs",
        "tests.rs",
        "watch.rs",
    ];
    assert_eq!(files, own.map(str::to_owned).into());
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
    let top = ROOMS.iter().map(|room| room.0).max().unwrap();
    let (_, picture) = page.split_once(&format!("```\n {top} ")).unwrap();
    let (picture, _) = picture.split_once("```").unwrap();
    let lines = format!(" {top} {picture}");
    assert_eq!(lines.lines().count(), usize::from(top) + 1);
    for (number, line) in (0..=top).rev().zip(lines.lines()) {
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
