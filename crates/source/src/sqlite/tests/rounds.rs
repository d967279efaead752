//! Goal: a copy is the committed state that the snapshot's own transaction shows, row for row.
//! Method: other processes commit, checkpoint, vacuum and die without pause; each round copies slowly
//! with four threads, then compares. The sum of all balances is a second witness, now and then a
//! SQLite of another version a third.

use std::path::Path;
use std::time::Duration;

use longshore_io::Via;

use super::stage::*;
use crate::Error;
use crate::sqlite::Sqlite;
use crate::sqlite::snapshot::Hold;

/// What the rounds met, so that they can be told from rounds in which nothing happened.
#[derive(Debug, Default)]
struct Met {
    /// Snapshots that took pages from the log.
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
        let source = opened_between_deaths(path);
        let snapshot = &source.snapshot;
        met.held_by_log += usize::from(matches!(snapshot.hold(), Hold::Log));
        let entry = only_entry(&source);
        assert_eq!(entry.len % u64::from(snapshot.page_bytes()), 0);
        let copy = copies.path().join(format!("{round}.db"));
        let via = [Via::Cache, Via::Direct, Via::DontCache][round % 3];
        // Not a multiple of any page size but the smallest, and never aligned for long.
        copy_slowly(&entry, &copy, 512 * 77, pause, via).unwrap();

        let mut file_alone = vec![0; entry.len as usize];
        snapshot
            .db()
            .read_full_at(&mut file_alone, 0, Via::Cache)
            .unwrap();
        met.file_alone_differs += usize::from(file_alone != std::fs::read(&copy).unwrap());
        let from_log = snapshot.log().and_then(|(_, overlay)| overlay.next_run(0));
        met.overlaid += usize::from(from_log.is_some());

        let (check, shown) = dump_snapshot(&source);
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

/// A hot journal is refused until the next writer has rolled it back.
fn opened_between_deaths(path: &Path) -> Sqlite {
    for _ in 0..2000 {
        match opened(path) {
            Err(Error::HotJournal { .. }) => std::thread::sleep(Duration::from_millis(5)),
            opened => return opened.unwrap(),
        }
    }
    panic!("no writer rolled the journal back");
}

fn with(others: &[(&str, &[&str])], path: &Path, test: impl FnOnce() -> Met) -> Met {
    let others: Vec<_> = others
        .iter()
        .map(|(role, arguments)| Other::ready(role, path, arguments))
        .collect();
    let met = test();
    for other in others {
        let said = other.stop();
        assert!(!said.ends_with(" 0"), "a process had nothing to do: {said}");
    }
    met
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
