//! Refusals, and that they leave the database as it was.

use std::fs;
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
