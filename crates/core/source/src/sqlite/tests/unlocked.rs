//! Goal: a database that is read without a lock comes out as SQLite itself would recover it, whatever is wrong with its
//! log; one that is written meanwhile fails its backup.
//! Method: logs that are damaged, cut, or mixed with older frames. The oracle is SQLite's own recovery of the same
//! files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_io::{Host, Via};
use rusqlite::Connection;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::stage::*;
use crate::sqlite::Sqlite;
use crate::sqlite::snapshot::{Snapshot, StateLock};
use crate::{Error, Source, SourceOptions};

fn opened_unlocked(path: &Path) -> Result<Sqlite, Error> {
    let snapshot = Snapshot::take_unlocked(&Host::new(), path)?;
    Sqlite::of(snapshot, &Host::new(), path, &SourceOptions::default())
}

/// The first 32 bytes of a log; frames begin after them (SQLite file format, section 4.1).
const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// A database with pages of 512 bytes whose log holds some commits, and a copy of both files.
fn left_behind(dir: &Path) -> (PathBuf, Vec<u8>, Vec<u8>) {
    let path = dir.join("left.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "PRAGMA page_size = 512; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
         CREATE TABLE t (id INTEGER PRIMARY KEY, x);
         PRAGMA wal_checkpoint(TRUNCATE);",
    )
    .unwrap();
    for i in 0..12 {
        let sql = format!(
            "INSERT INTO t (x) VALUES (randomblob({})), (zeroblob({i}))",
            i * 150
        );
        db.execute_batch(&sql).unwrap();
    }
    db.execute_batch("DELETE FROM t WHERE id % 3 = 0; VACUUM;")
        .unwrap();
    let files = (
        fs::read(&path).unwrap(),
        fs::read(dir.join("left.db-wal")).unwrap(),
    );
    drop(db);
    (path, files.0, files.1)
}

/// Writes both files, copies the database without a lock, and lets SQLite recover it.
fn compare(dir: &Path, db: &[u8], log: &[u8], what: &str) {
    let path = dir.join("same.db");
    let log_path = dir.join("same.db-wal");
    for stale in ["same.db-shm", "copy.db-wal", "copy.db-shm"] {
        let _ = fs::remove_file(dir.join(stale));
    }
    fs::write(&path, db).unwrap();
    fs::write(&log_path, log).unwrap();
    let source = opened_unlocked(&path).unwrap();
    let copy = dir.join("copy.db");
    copy_slowly(
        &only_entry(&source),
        &copy,
        1000,
        Duration::ZERO,
        Via::Cache,
    )
    .unwrap();
    finish(source);
    assert!(dump_file(&copy) == dump_file(&path), "{what}");
}

#[test]
fn a_log_is_recovered_as_sqlite_does_whatever_is_wrong_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_, db, log) = left_behind(dir.path());
    let frame = FRAME_HEADER + 512;
    let frames = (log.len() - HEADER) / frame;
    assert_eq!(log.len(), HEADER + frames * frame);
    compare(dir.path(), &db, &log, "whole");
    let empty = dir.path().join("copy.db");
    compare(dir.path(), &db, &[], "empty");
    let without = dump_file(&empty);
    compare(dir.path(), &db, &log, "whole again");
    assert!(dump_file(&empty) != without, "the log makes no difference");
    for at in (0..HEADER).chain((HEADER..log.len()).step_by(frame / 3 * 2 + 1)) {
        let mut damaged = log.clone();
        damaged[at] ^= 0x10;
        compare(dir.path(), &db, &damaged, &format!("byte {at} flipped"));
    }
    for cut in [
        1,
        HEADER,
        HEADER + 1,
        HEADER + frame * 3 / 2,
        log.len() - 1,
        log.len() - frame,
    ] {
        compare(dir.path(), &db, &log[..cut], &format!("cut at {cut}"));
    }
    // Frames of an older log after those of the newest, as after a reset.
    let mut older = log.clone();
    older.extend_from_slice(&log[HEADER..]);
    compare(dir.path(), &db, &older, "older frames behind");
    let chain_of_other_order = with_big_endian_checksums(&log, frame);
    compare(
        dir.path(),
        &db,
        &chain_of_other_order,
        "checksums in big-endian order",
    );
}

/// The log as a big-endian machine would have written it.
fn with_big_endian_checksums(log: &[u8], frame: usize) -> Vec<u8> {
    let sum = |(mut a, mut b): (u32, u32), bytes: &[u8]| {
        for (i, word) in bytes.chunks(4).enumerate() {
            let word = u32::from_be_bytes(word.try_into().unwrap());
            match i % 2 {
                0 => a = a.wrapping_add(word).wrapping_add(b),
                _ => b = b.wrapping_add(word).wrapping_add(a),
            }
        }
        (a, b)
    };
    let put = |(a, b): (u32, u32), to: &mut [u8]| {
        to[..4].copy_from_slice(&a.to_be_bytes());
        to[4..].copy_from_slice(&b.to_be_bytes());
    };
    let mut log = log.to_vec();
    log[3] |= 1;
    let mut chain = sum((0, 0), &log[..24]);
    put(chain, &mut log[24..32]);
    for frame in log[HEADER..].chunks_mut(frame) {
        chain = sum(chain, &frame[..8]);
        chain = sum(chain, &frame[FRAME_HEADER..]);
        put(chain, &mut frame[16..24]);
    }
    log
}

#[test]
fn a_database_written_meanwhile_fails_its_backup() {
    for sql in [
        "UPDATE account SET balance = 1",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = new_database(dir.path(), 4096, "wal");
        Other::ready("idle", &path, &[]).stop();
        let source = opened_unlocked(&path).unwrap();
        assert!(matches!(source.snapshot.hold(), StateLock::Nothing(_)));
        assert!(source.description.notices[0].contains("without a lock"));
        let content = content_of(&source);
        content.read_at(&mut [0; 4096], 0, Via::Cache).unwrap();
        content.settle().unwrap();
        run("once", &path, &[sql]);
        assert!(
            matches!(content.settle(), Err(Error::ChangedUnlocked { .. })),
            "{sql}"
        );
        let refused = Box::new(source).finish().err().unwrap();
        assert!(refused.hint().contains("as the owner"));
    }
}

#[test]
fn an_unfinished_journal_is_refused_without_a_lock_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    run("die_in_transaction", &path, &[]);
    assert!(matches!(
        opened_unlocked(&path).err(),
        Some(Error::HotJournal { .. })
    ));
}

#[test]
fn root_makes_files_next_to_anothers_database_only_if_it_can_give_them_away() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "skipped: only root can take part in the locks of another user's closed database"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let owner = 65_534;
    std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
    let before = fingerprint(dir.path());
    let full = capabilities(None).unwrap();
    let mut less = full;
    less.effective.remove(CapabilitySet::CHOWN);
    // Of this thread alone.
    set_capabilities(None, less).unwrap();
    let source = opened(&path).unwrap();
    assert!(matches!(source.snapshot.hold(), StateLock::Nothing(_)));
    assert!(fingerprint(dir.path()) == before);
    finish(source);
    // A log that a crash left gets no shared memory of root's, either.
    Other::ready("idle", &path, &[]).stop();
    fs::remove_file(dir.path().join("bank.db-shm")).unwrap();
    finish(opened(&path).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    set_capabilities(None, full).unwrap();
    let source = opened(&path).unwrap();
    assert!(matches!(source.snapshot.hold(), StateLock::Log(_)));
    let made = fs::metadata(dir.path().join("bank.db-shm")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), owner);
    finish(source);
}
