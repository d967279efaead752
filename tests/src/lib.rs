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

/// The lines of a source that are part of the program: those of a module `tests`, between its first line and the next
/// one that is only `}`, are empty, so that the lines after it keep their numbers.
pub fn shipped(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut is_inside = false;
    for line in source.lines() {
        is_inside |= line == "mod tests {";
        if !is_inside && line != "#[cfg(test)]" {
            kept += line;
        }
        kept.push('\n');
        is_inside &= line != "}";
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_after_a_module_of_tests_is_part_of_the_program() {
        let source = "const A: u8 = 1;\n#[cfg(test)]\nmod tests {\n    fn f() {\n    }\n}\nconst B: u8 = 2;\n";
        assert_eq!(
            shipped(source),
            "const A: u8 = 1;\n\n\n\n\n\nconst B: u8 = 2;\n"
        );
    }
}
