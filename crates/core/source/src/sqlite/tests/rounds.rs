//! Goal: a copy is the committed state that the snapshot's own transaction shows, row for row.
//! Method: other processes commit, checkpoint, vacuum and die without pause; each round copies slowly with four
//! threads, then compares. The sum of all balances is a second witness; in some rounds a SQLite of another version is
//! a third.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use longshore_io::Via;
use rusqlite::types::Value;

use super::stage::*;
use crate::sqlite::Sqlite;
use crate::sqlite::snapshot::StateLock;

/// The events of the rounds, to show that they tested something.
#[derive(Debug, Default)]
struct Met {
    /// Snapshots of a database whose writer had died.
    of_the_dead: usize,
    /// Other snapshots that took pages from the log.
    overlaid: usize,
    /// Snapshots that a read transaction on the log held.
    held_by_log: usize,
    /// Snapshots that the database file alone would not have given.
    file_alone_differs: usize,
}

fn rounds(path: &Path, count: usize, pause: Duration) -> Met {
    let copies = tempfile::tempdir().unwrap();
    let mut met = Met::default();
    for round in 0..count {
        let source = opened(path).unwrap();
        let snapshot = &source.snapshot;
        let is_of_the_dead = matches!(snapshot.hold(), StateLock::DeadWriter(_));
        met.of_the_dead += usize::from(is_of_the_dead);
        met.held_by_log += usize::from(matches!(snapshot.hold(), StateLock::Log(_)));
        let entry = only_entry(&source);
        assert_eq!(entry.len % u64::from(snapshot.page_bytes()), 0);
        let copy = copies.path().join(format!("{round}.db"));
        let via = [Via::Cache, Via::Direct, Via::DontCache][round % 3];
        // Not a multiple of any page size except the smallest, and rarely aligned.
        copy_slowly(&entry, &copy, 512 * 77, pause, via).unwrap();

        let mut file_alone = vec![0; entry.len as usize];
        snapshot
            .db()
            .read_full_at(&mut file_alone, 0, Via::Cache)
            .unwrap();
        let differs = file_alone != std::fs::read(&copy).unwrap();
        met.file_alone_differs += usize::from(differs && !is_of_the_dead);
        let from_log = snapshot.overlay().next_run(0);
        met.overlaid += usize::from(from_log.is_some() && !is_of_the_dead);

        // The library cannot read a database whose journal is hot.
        let (check, shown) = match is_of_the_dead {
            true => dump_recovered(path),
            false => dump_snapshot(&source),
        };
        finish(source);
        let (copy_check, copied) = dump_file(&copy);
        assert_eq!(
            (check.as_str(), copy_check.as_str()),
            ("ok", "ok"),
            "round {round}"
        );
        assert!(
            shown == copied,
            "round {round}: the copy has other rows than the snapshot"
        );
        if round % 5 == 0 {
            assert_eq!(run("dump", &copy, &[]), "ok 500000", "round {round}");
        }
    }
    met
}

/// SQLite's recovery of a database and its hot journal. Another process makes the copy: a descriptor that this one
/// closes would end the snapshot's locks.
fn dump_recovered(path: &Path) -> (String, Vec<Vec<Value>>) {
    let copies = tempfile::tempdir().unwrap();
    for suffix in ["", "-journal"] {
        let from = format!("{}{suffix}", path.display());
        let to = copies.path().join(format!("copy.db{suffix}"));
        let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
        assert!(copied.success());
    }
    dump_file(&copies.path().join("copy.db"))
}

/// Runs the test while other processes use the database; again if one of them did not come to do anything meanwhile, as
/// on a machine with much else to do.
fn with(others: &[(&str, &[&str])], path: &Path, test: impl Fn() -> Met) -> Met {
    let mut idle = String::new();
    for _ in 0..5 {
        let others: Vec<_> = others
            .iter()
            .map(|(role, arguments)| Other::ready(role, path, arguments))
            .collect();
        let met = test();
        let said: Vec<_> = others.into_iter().map(Other::stop).collect();
        match said.into_iter().find(|said| said.ends_with(" 0")) {
            None => return met,
            Some(said) => idle = said,
        }
    }
    panic!("a process had nothing to do: {idle}");
}

const SLOW: Duration = Duration::from_millis(2);

#[test]
fn copies_are_snapshots_with_pages_of_512_under_truncating_checkpoints_and_vacuum() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 512, "wal");
    let others: [(_, &[&str]); 4] = [
        ("transfer", &[]),
        ("transfer", &[]),
        ("checkpoint", &["TRUNCATE"]),
        ("vacuum", &[]),
    ];
    let met = with(&others, &path, || rounds(&path, 10, SLOW));
    assert!(met.overlaid > 0 && met.file_alone_differs > 0, "{met:?}");
}

#[test]
fn copies_are_snapshots_with_pages_of_4096_under_restarting_checkpoints_and_autovacuum() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_vacuuming_database(dir.path(), 4096, "wal", "full");
    let others: [(_, &[&str]); 4] = [
        ("transfer", &[]),
        ("transfer", &[]),
        ("checkpoint", &["RESTART"]),
        ("vacuum", &[]),
    ];
    let met = with(&others, &path, || rounds(&path, 15, SLOW));
    assert!(met.overlaid > 0 && met.file_alone_differs > 0, "{met:?}");
}

#[test]
fn copies_are_snapshots_with_pages_of_65536_though_writers_die() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 65_536, "wal");
    let others: [(_, &[&str]); 4] = [
        ("transfer", &[]),
        ("dying", &[]),
        ("dying", &[]),
        ("checkpoint", &["TRUNCATE"]),
    ];
    let met = with(&others, &path, || rounds(&path, 10, SLOW));
    assert!(met.overlaid > 0 && met.file_alone_differs > 0, "{met:?}");
}

#[test]
fn copies_without_a_log_are_snapshots_though_writers_die() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let others: [(_, &[&str]); 3] = [("transfer", &[]), ("dying", &[]), ("dying", &[])];
    let met = with(&others, &path, || rounds(&path, 10, Duration::ZERO));
    assert_eq!(
        (met.held_by_log, met.overlaid, met.file_alone_differs),
        (0, 0, 0)
    );
}

/// Copies, compares with the transaction and ends the snapshot.
fn copy_and_compare(source: Sqlite) {
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");
    copy_slowly(
        &only_entry(&source),
        &copy,
        1 << 16,
        Duration::ZERO,
        Via::Cache,
    )
    .unwrap();
    let shown = dump_snapshot(&source);
    finish(source);
    assert_eq!(shown.0, "ok");
    assert!(dump_file(&copy) == shown);
}

/// Changes most pages, through the log.
const REWRITE: &str = "UPDATE account SET pad = pad || '.', balance = balance + 1";
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

#[test]
fn a_log_that_is_reset_under_the_snapshot_is_not_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let mut other = Other::ready("steps", &path, &[]);
    other.run(REWRITE);
    assert!(other.run(CHECKPOINT).starts_with("(0, "));
    let source = opened(&path).unwrap();
    let log_before = std::fs::read(dir.path().join("bank.db-wal")).unwrap();
    other.run(REWRITE);
    let log = std::fs::read(dir.path().join("bank.db-wal")).unwrap();
    assert_ne!(log[16..24], log_before[16..24], "the log was not reset");
    other.run(CHECKPOINT);
    copy_and_compare(source);
}

#[test]
fn checkpoints_under_the_snapshot_change_only_pages_that_come_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let mut other = Other::ready("steps", &path, &[]);
    other.run(REWRITE);
    // An older reader allows a checkpoint of the first half now, and of the rest only after the reader has gone.
    let older = opened_by_another(&path);
    other.run(REWRITE);
    other.run(CHECKPOINT);
    let source = opened(&path).unwrap();
    drop(older);
    let before = file_bytes(&source);
    // Few pages: a checkpoint skips those whose last frame is after the snapshot.
    other.run("UPDATE account SET balance = balance + 1 WHERE id = 1");
    // The older reader's process may take a moment to end.
    let mut copied = false;
    for _ in 0..500 {
        other.run(CHECKPOINT);
        copied = file_bytes(&source) != before;
        if copied {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(copied, "nothing was copied back");
    copy_and_compare(source);
}

fn opened_by_another(path: &Path) -> Other {
    Other::ready("read", path, &["0"])
}

/// The database file, read through the snapshot's own descriptor.
fn file_bytes(source: &Sqlite) -> Vec<u8> {
    let mut bytes = vec![0; source.snapshot.len() as usize];
    source
        .snapshot
        .db()
        .read_full_at(&mut bytes, 0, Via::Cache)
        .unwrap();
    bytes
}
