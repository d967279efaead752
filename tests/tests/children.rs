//! One function starts every other program, and checks who could change the program and which environment it gets;
//! libraries are loaded only after a check of their file.

use std::path::{Path, PathBuf};

/// The only files that may start a program or load a library themselves.
const DOORS: [(&str, &[&str]); 2] = [
    ("Command::new(", &["crates/core/io/src/child.rs"]),
    (
        "Library::new(",
        &[
            // Each after a call of `vetted`.
            "crates/core/accel/src/devices/nvcomp/symbols.rs",
            "crates/core/accel/src/devices/qatzip/library.rs",
            "crates/core/codec/src/deflate/isal.rs",
        ],
    ),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_test = |p: &Path| p.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test(&path) {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && !is_test(&path) {
            found.push(path);
        }
    }
}

#[test]
fn programs_and_libraries_are_started_through_one_door() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for room in longshore_tests::rooms() {
        sources(&room.join("src"), &mut files);
    }
    assert!(files.len() > 200, "{} files", files.len());
    let mut seen = [0; DOORS.len()];
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = longshore_tests::shipped(&text);
        let name = file
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        for (n, (call, doors)) in DOORS.iter().enumerate() {
            let has_it = code.lines().any(|line| {
                line.find(call).is_some_and(|at| {
                    // Types such as the command line's `WalCommand` do not count.
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
                })
            });
            if has_it {
                assert!(doors.contains(&name.as_str()), "{name} has {call}");
                seen[n] += 1;
            }
        }
    }
    assert_eq!(seen, DOORS.map(|(_, doors)| doors.len()));
}
