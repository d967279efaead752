//! Black-box tests: they use only the `longshore` binary and independent tools.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The directories of all crates: `crates/longshore`, and `crates/PRODUCT/ROOM` for the others.
pub fn rooms() -> Vec<PathBuf> {
    let inside = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let mut rooms = Vec::new();
    for path in inside(&root().join("crates")) {
        match path.join("Cargo.toml").exists() {
            true => rooms.push(path),
            false => rooms.extend(inside(&path)),
        }
    }
    rooms.sort();
    rooms
}
