//! The names that SQLite gives the files next to a database: its write-ahead log, its rollback journal, and the memory that
//! programs share.
//!
//! Invariants
//! - A name says enough: an encrypted database cannot be told from other files, and a log that is not its own damages it, too.
//! - Paths with several components are treated like names: a log is always in its database's directory.
//!
//! Leaves to others: databases in use (`place/in_use.rs`), and the content of any of these files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The names of a SQLite database's side files.
pub fn side_files(database: &OsStr) -> Vec<OsString> {
    let side = |suffix: &&str| {
        let mut name = database.to_owned();
        name.push(suffix);
        name
    };
    SIDE_FILES.iter().map(side).collect()
}

/// The paths of the side files of the database at `path`.
pub fn sides_of(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    side_files(path.as_os_str()).into_iter().map(PathBuf::from)
}

/// The database to which a log or journal of this name, or at this path, belongs.
pub fn base_of(side: &OsStr) -> Option<&OsStr> {
    SIDE_FILES.iter().find_map(|suffix| {
        let base = side.as_bytes().strip_suffix(suffix.as_bytes())?;
        let is_name = !base.is_empty() && !base.ends_with(b"/");
        is_name.then(|| OsStr::from_bytes(base))
    })
}

/// Whether `path` is a side file of the database at `base`.
pub fn is_side_of(path: &Path, base: &Path) -> bool {
    base_of(path.as_os_str()).is_some_and(|found| found == base.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_file_has_one_database_in_its_own_directory() {
        for side in sides_of(Path::new("d/app.db")) {
            assert_eq!(base_of(side.as_os_str()), Some(OsStr::new("d/app.db")));
            assert!(is_side_of(&side, Path::new("d/app.db")));
            assert!(!is_side_of(&side, Path::new("app.db")));
        }
        for other in ["-wal", "d/-wal", "app.db", "app.db-wal.old", "app.db-WAL"] {
            assert_eq!(base_of(OsStr::new(other)), None, "{other}");
        }
    }
}
