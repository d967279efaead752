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
    (
        4,
        "pipeline",
        &[
            "io",
            "codec",
            "media",
            "source",
            "catalog",
            "balance",
            "pg",
            "repository",
        ],
    ),
    (4, "nbd", &["io", "cache", "blockcache"]),
    (5, "lab", &["io", "cache", "codec", "pipeline"]),
    (5, "tsql", &["io", "codec", "media", "catalog", "pipeline"]),
    (
        6,
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

#[test]
fn architecture_names_every_room_and_every_dependency() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    for (_, name, _) in ROOMS {
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not on the page"
        );
    }
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let names = section
        .lines()
        .take_while(|l| !l.starts_with('['))
        .filter_map(|l| l.split_once(" = "))
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("longshore-"));
    let mut count = 0;
    for name in names {
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} has no reason on the page"
        );
        count += 1;
    }
    assert!(
        count > 20,
        "only {count} dependencies were found in Cargo.toml"
    );
}
