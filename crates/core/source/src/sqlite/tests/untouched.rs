//! Goal: a backup leaves a database as it was found, whatever its state.
//! Method: fingerprint its directory (names, bytes, times), back up, compare. Shared memory is only counted: every
//! reader writes its own lock there.

use std::fs;
use std::path::Path;
use std::time::Duration;

use longshore_io::Via;

use super::stage::*;
use crate::sqlite::snapshot::StateLock;

/// Backs up, checks the first account in the copy, and that nothing in the directory changed except `made`.
fn back_up_untouched(path: &Path, first_balance: i64, made: &[&str]) {
    let dir = path.parent().unwrap();
    let mut before = fingerprint(dir);
    let source = opened(path).unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");
    copy_slowly(
        &only_entry(&source),
        &copy,
        1 << 20,
        Duration::ZERO,
        Via::Cache,
    )
    .unwrap();
    let shown = dump_snapshot(&source);
    assert_eq!(finish(source), Vec::<String>::new());
    let mut after = fingerprint(dir);
    after.retain(|file| !made.iter().any(|name| file.0.as_os_str() == *name));
    before.retain(|file| !made.iter().any(|name| file.0.as_os_str() == *name));
    let names = |files: &[File]| files.iter().map(|file| file.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    assert!(after == before, "bytes or times changed");
    assert!(dump_file(&copy) == shown);
    let sql = "SELECT balance FROM account WHERE id = 1";
    let balance: i64 = rusqlite::Connection::open(&copy)
        .unwrap()
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert_eq!(balance, first_balance);
}

#[test]
fn a_closed_database_has_no_log_before_and_none_after() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    assert_eq!(fingerprint(dir.path()).len(), 1);
    back_up_untouched(&path, 1000, &[]);
}

#[test]
fn a_backup_given_up_leaves_no_log_either() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let before = fingerprint(dir.path());
    let source = opened(&path).unwrap();
    let content = content_of(&source);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    drop(source);
    content.read_at(&mut [0; 16], 0, Via::Cache).unwrap();
    drop(content);
    assert!(fingerprint(dir.path()) == before);
}

#[test]
fn a_log_in_use_is_read_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = Other::ready("idle", &path, &[]);
    back_up_untouched(&path, 1001, &[]);
}

#[test]
fn a_left_over_log_is_read_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    Other::ready("idle", &path, &[]).stop();
    assert!(fs::metadata(dir.path().join("bank.db-wal")).unwrap().len() > 0);
    back_up_untouched(&path, 1001, &[]);
    fs::remove_file(dir.path().join("bank.db-shm")).unwrap();
    back_up_untouched(&path, 1001, &["bank.db-shm"]);
}

#[test]
fn frames_of_a_transaction_whose_writer_died_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    run("die_in_transaction", &path, &[]);
    assert!(fs::metadata(dir.path().join("bank.db-wal")).unwrap().len() > 100_000);
    back_up_untouched(&path, 1000, &[]);
}

#[test]
fn an_unnoticeable_wait_is_not_noted() {
    let note = |ms| super::super::wait_note(Duration::from_millis(ms));
    assert_eq!(note(99), None);
    let told = "commits could wait for up to 2.5 seconds";
    assert_eq!(note(2500).as_deref(), Some(told));
}

#[test]
fn a_database_without_a_log_is_left_alone() {
    for mode in ["delete", "truncate", "persist"] {
        let dir = tempfile::tempdir().unwrap();
        let path = new_database(dir.path(), 1024, mode);
        let before = fingerprint(dir.path());
        let source = opened(&path).unwrap();
        assert!(
            matches!(source.snapshot.hold(), StateLock::SharedLock(_)),
            "{mode}"
        );
        let copies = tempfile::tempdir().unwrap();
        let copy = copies.path().join("copy.db");
        copy_slowly(
            &only_entry(&source),
            &copy,
            1 << 20,
            Duration::ZERO,
            Via::Cache,
        )
        .unwrap();
        let notes = finish(source);
        let waited = |w: &String| w.starts_with("commits could wait for up to ");
        assert!(notes.iter().all(waited), "{notes:?}");
        assert!(fingerprint(dir.path()) == before, "{mode}");
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap());
    }
}

#[test]
fn an_empty_file_is_an_empty_database_and_its_neighbours_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.db");
    fs::write(&path, b"").unwrap();
    // SQLite removes both when it opens the database.
    fs::write(dir.path().join("new.db-wal"), b"stray").unwrap();
    fs::write(dir.path().join("new.db-journal"), b"stray").unwrap();
    let before = fingerprint(dir.path());
    let source = opened(&path).unwrap();
    let entry = only_entry(&source);
    assert_eq!((entry.len, entry.content.is_none()), (0, true));
    finish(source);
    assert!(fingerprint(dir.path()) == before);
}
