//! Goal: what is no database, or cannot be read soundly, is refused by its name, and is left as it was.
//! Method: files next to a real database, and simulated disks that keep no locks.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use longshore_io::{Host, SimDisk};

use super::stage::*;
use crate::sqlite::Sqlite;
use crate::{Error, SourceOptions};

fn refusal(path: &Path) -> Error {
    Sqlite::open(&Host::new(), path, &SourceOptions::default())
        .err()
        .unwrap()
}

#[test]
fn encrypted_and_foreign_files_are_refused_without_a_trace() {
    let noise: Vec<u8> = (0..40_960u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut one_byte_off = b"SQLite format 3\0".to_vec();
    one_byte_off[3] ^= 1;
    one_byte_off.resize(4096, 0);
    for bytes in [&noise[..], b"no database", &one_byte_off] {
        for neighbour in ["", "-wal", "-journal"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("secret.db");
            fs::write(&path, bytes).unwrap();
            if !neighbour.is_empty() {
                fs::write(dir.path().join(format!("secret.db{neighbour}")), [0; 4096]).unwrap();
            }
            let before = fingerprint(dir.path());
            let refused = refusal(&path);
            assert!(
                matches!(refused, Error::NotADatabase { .. }),
                "{neighbour}: {refused}"
            );
            assert!(fingerprint(dir.path()) == before, "{neighbour}");
        }
    }
}

#[test]
fn a_missing_or_special_file_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(refusal(dir.path()), Error::NotADatabase { path } if path == dir.path()));
    let nowhere = dir.path().join("nowhere");
    assert!(matches!(refusal(&nowhere), Error::Io { path, .. } if path == nowhere));
}

/// Goal: a FIFO in the place of the journal, which would stop SQLite for good, is refused before SQLite sees it.
/// Method: the test holds both ends and has written to it, so that a program that opens it goes on.
#[test]
fn a_fifo_in_the_place_of_the_journal_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("create table t(a)").unwrap();
    drop(connection);
    let journal = dir.path().join("app.db-journal");
    let made = std::process::Command::new("mkfifo").arg(&journal).status();
    assert!(made.unwrap().success());
    let mut ends = fs::File::options()
        .read(true)
        .write(true)
        .open(&journal)
        .unwrap();
    ends.write_all(&[1; 4096]).unwrap();
    let error = refusal(&path);
    assert!(
        matches!(&error, Error::NotACompanion { path } if *path == journal),
        "{error}"
    );
}

#[test]
fn a_database_with_unreliable_locks_is_not_touched_unless_its_user_vouches() {
    let disk = SimDisk::new(1).set_keeps_locks(false);
    let mut bytes = b"SQLite format 3\0".to_vec();
    bytes.resize(4096, 0);
    disk.write_file("/share/app.db", &bytes).unwrap();
    let path = Path::new("/share/app.db");
    let open = |trust_locks| {
        let options = SourceOptions {
            trust_locks,
            ..SourceOptions::default()
        };
        Sqlite::open(&disk, path, &options).err().unwrap()
    };
    let refused = open(false);
    assert!(
        matches!(&refused, Error::LocksNotKept { path: p } if p == path),
        "{refused}"
    );
    assert!(refused.hint().contains("--trust-locks"));
    // It gets as far as SQLite, which does not know the simulated disk.
    let refused = open(true);
    assert!(!matches!(refused, Error::LocksNotKept { .. }), "{refused}");
}
