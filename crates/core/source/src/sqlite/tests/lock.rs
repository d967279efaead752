//! Goal: a snapshot prevents the actions of other programs that would change it, and no others; what they hold, it
//! waits for.
//! Method: the witnesses are other processes: a lock lost by mistake would let them through.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use longshore_io::{Host, Via};

use super::stage::*;
use crate::sqlite::Sqlite;
use crate::sqlite::snapshot::StateLock;
use crate::{Error, Source, SourceOptions, SourceSpec};

/// `busy|log|checkpointed` of a TRUNCATE checkpoint by another process; busy is 1 while we read.
fn truncating_checkpoint(path: &Path) -> String {
    let mut other = Other::ready("impatient", path, &["PRAGMA wal_checkpoint(TRUNCATE)"]);
    other.line()
}

fn is_held(path: &Path) -> bool {
    truncating_checkpoint(path).contains("(1, ")
}

fn files_source(path: &Path) -> Result<(), Error> {
    let spec = SourceSpec::Files(vec![path.into()]);
    let source = crate::open(std::sync::Arc::new(Host::new()), &spec, &Default::default())?;
    // Its companion files are included.
    let name = Path::new(path.file_name().unwrap());
    let content = loop {
        let entry = source.next(0)?.unwrap();
        if entry.path == name {
            break entry.content.unwrap();
        }
    };
    content.read_at(&mut [0; 100], 0, Via::Cache)?;
    content.settle().map(|_| ())
}

#[test]
fn nothing_that_this_room_does_drops_the_locks() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = Other::ready("idle", &path, &[]);
    let source = opened(&path).unwrap();
    assert!(is_held(&path));
    let shared_memory = dir.path().join("bank.db-shm");
    let copies = tempfile::tempdir().unwrap();
    for path in [&path, &shared_memory] {
        assert!(matches!(files_source(path), Err(Error::InUse { .. })));
    }
    let words = [path.clone().into()];
    let refused = SourceSpec::parse(&Host::new(), &words);
    assert!(matches!(refused, Err(Error::InUse { .. })));
    assert!(matches!(opened(&path).err(), Some(Error::InUse { .. })));
    let entry = only_entry(&source);
    for via in [Via::Cache, Via::DontCache, Via::Direct] {
        copy_slowly(
            &entry,
            &copies.path().join("copy"),
            1 << 16,
            Duration::ZERO,
            via,
        )
        .unwrap();
    }
    drop(entry);
    assert!(is_held(&path), "a lock was lost");
    finish(source);
    assert!(!is_held(&path));
    // The claims have ended too.
    for path in [&path, &shared_memory] {
        files_source(path).unwrap();
    }
    assert_eq!(
        SourceSpec::parse(&Host::new(), &words).unwrap(),
        SourceSpec::Sqlite(path.clone())
    );
    finish(opened(&path).unwrap());
}

#[test]
fn the_witness_sees_a_lock_that_an_extra_close_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = Other::ready("idle", &path, &[]);
    let source = opened(&path).unwrap();
    assert!(is_held(&path));
    drop(std::fs::File::open(dir.path().join("bank.db-shm")).unwrap());
    assert!(!is_held(&path), "then the test above could not fail");
    drop(source);
}

#[test]
fn a_file_that_a_plain_reader_opened_before_is_not_closed_before_the_end() {
    let read = |path: PathBuf| {
        let spec = SourceSpec::Files(vec![path]);
        let files =
            crate::open(std::sync::Arc::new(Host::new()), &spec, &Default::default()).unwrap();
        let content = files.next(0).unwrap().unwrap().content.unwrap();
        content.read_at(&mut [0; 100], 0, Via::Cache).unwrap();
        content
    };
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = Other::ready("idle", &path, &[]);
    let contents = [read(path.clone()), read(dir.path().join("bank.db-shm"))];
    let source = opened(&path).unwrap();
    for content in contents {
        content.settle().unwrap();
        drop(content);
        assert!(is_held(&path), "a lock was lost");
    }
    finish(source);
    assert!(!is_held(&path));
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let content = read(path.clone());
    let source = opened(&path).unwrap();
    content.settle().unwrap();
    drop(content);
    let update = ["UPDATE account SET balance = 0"];
    let said = Other::ready("impatient", &path, &update).stop();
    assert!(said.contains("locked"), "{said}");
    finish(source);
}

#[test]
fn a_read_after_the_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let source = opened(&path).unwrap();
    let content = content_of(&source);
    content.read_at(&mut [0; 16], 0, Via::Cache).unwrap();
    finish(source);
    let refused = content.read_at(&mut [0; 16], 0, Via::Cache);
    assert!(matches!(refused, Err(Error::Ended { .. })));
    // Descriptors are still open, so the claim remains.
    assert!(matches!(opened(&path).err(), Some(Error::InUse { .. })));
    drop(content);
    finish(opened(&path).unwrap());
}

#[test]
fn writers_continue_during_a_backup_and_the_logs_growth_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = Other::ready("idle", &path, &[]);
    let source = opened(&path).unwrap();
    let seconds = timed(&path, "UPDATE account SET pad = pad || 'more'");
    assert!(seconds < 5.0, "the writer waited {seconds} s");
    let notes = finish(source);
    assert_eq!(notes.len(), 1);
    let grown = notes[0]
        .strip_prefix("the write-ahead log grew by ")
        .unwrap();
    let grown: u64 = grown.split(' ').next().unwrap().parse().unwrap();
    assert!(grown > 50 * 4096, "{grown}");
}

#[test]
fn growth_beyond_the_limit_fails_the_backup_and_releases_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = Other::ready("idle", &path, &[]);
    let options = SourceOptions {
        wal_growth_limit_bytes: Some(100_000),
        ..SourceOptions::default()
    };
    let source = Sqlite::open(&Host::new(), &path, &options).unwrap();
    let entry = only_entry(&source);
    let content = entry.content.as_ref().unwrap();
    content.read_at(&mut [0; 4096], 0, Via::Cache).unwrap();
    timed(&path, "UPDATE account SET pad = pad || 'more'");
    let refused = content
        .read_at(&mut [0; 4096], 0, Via::Cache)
        .err()
        .unwrap();
    assert!(
        matches!(&refused, Error::WalLimit { grown_bytes, limit_bytes: 100_000, .. } if *grown_bytes > 100_000)
    );
    drop((entry, source));
    assert!(!is_held(&path));
}

#[test]
fn without_a_log_commits_wait_and_the_copy_is_the_state_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let source = opened(&path).unwrap();
    assert!(matches!(source.snapshot.hold(), StateLock::SharedLock(_)));
    assert!(source.description.notices[0].contains("commits wait"));
    let mut writer = Other::ready("once", &path, &["UPDATE account SET balance = 0"]);
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");
    let pause = Duration::from_millis(100);
    copy_slowly(&only_entry(&source), &copy, 1 << 16, pause, Via::Cache).unwrap();
    // A waiting commit keeps new readers out.
    let is_waiting = || {
        let select = ["SELECT count(*) FROM account"];
        let said = Other::ready("impatient", &path, &select).stop();
        said.contains("database is locked")
    };
    assert!((0..100).any(|_| is_waiting()), "no commit waits");
    assert!(dump_file(&copy) == dump_snapshot(&source));
    assert_eq!(run("dump", &copy, &[]), "ok 500000");
    finish(source);
    let said = writer.line();
    assert!(said.ends_with(" None"), "{said}");
}

#[test]
fn a_write_by_somebody_who_does_not_lock_fails_the_backup() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let source = opened(&path).unwrap();
    let content = only_entry(&source).content.unwrap();
    content.read_at(&mut [0; 4096], 0, Via::Cache).unwrap();
    // A change without changed bytes does not count as a write.
    let changed = std::process::Command::new("chmod")
        .arg("640")
        .arg(&path)
        .status();
    assert!(changed.unwrap().success());
    content.settle().unwrap();
    // A separate process, because closing the file here would drop the locks.
    let unlocked = "import sys; open(sys.argv[1], 'r+b').write(b'S')";
    let mut writer = std::process::Command::new("python3");
    let wrote = writer.args(["-c", unlocked]).arg(&path).status().unwrap();
    assert!(wrote.success());
    assert!(matches!(content.settle(), Err(Error::ChangedLocked { .. })));
    let refused = Box::new(source).finish().err().unwrap();
    assert!(refused.hint().contains("does not lock"), "{refused}");
}

const REWRITE: &str = "UPDATE account SET pad = pad || '.', balance = balance + 1";
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// A second name of the database file, and a program that has written through the log of that name.
fn writer_by_another_name(path: &Path) -> Other {
    let link = path.with_file_name("link.db");
    std::fs::hard_link(path, &link).unwrap();
    let mut other = Other::ready("steps", &link, &[]);
    other.run(REWRITE);
    other
}

fn assert_written_in_spite(source: Sqlite) {
    let content = only_entry(&source).content.unwrap();
    assert!(matches!(content.settle(), Err(Error::ChangedLocked { .. })));
    let refused = Box::new(source).finish().err().unwrap();
    assert!(refused.hint().contains("another name"), "{refused}");
}

#[test]
fn a_checkpoint_through_the_log_of_another_name_fails_the_backup() {
    // Alone at its name, next to a program that has a log of this name, and with a log that a crash left.
    for case in ["alone", "used", "left"] {
        let dir = tempfile::tempdir().unwrap();
        let path = new_database(dir.path(), 4096, "wal");
        let mut near = (case != "alone").then(|| Other::ready("idle", &path, &[]));
        if case == "left" {
            near.take().map(Other::stop);
            std::fs::remove_file(dir.path().join("bank.db-shm")).unwrap();
        }
        let mut other = writer_by_another_name(&path);
        let source = opened(&path).unwrap();
        source.snapshot.check_still().unwrap();
        other.run(CHECKPOINT);
        assert_written_in_spite(source);
    }
}

#[test]
fn another_name_of_the_file_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = writer_by_another_name(&path);
    let source = opened(&path).unwrap();
    let warnings = Box::new(source).finish().unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains(" has 2 names: "), "{warnings:?}");
}

#[test]
fn a_checkpoint_of_a_log_that_was_recovered_is_no_write_in_spite_of_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    Other::ready("idle", &path, &[]).stop();
    std::fs::remove_file(dir.path().join("bank.db-shm")).unwrap();
    let before = std::fs::read(&path).unwrap();
    // Recovery of a log notes all of it as the aim of a checkpoint.
    let source = opened(&path).unwrap();
    run_checkpoint(&path);
    let mut after = vec![0; before.len()];
    let db = source.snapshot.db();
    db.read_full_at(&mut after, 0, Via::Cache).unwrap();
    assert!(after != before, "nothing was copied back");
    only_entry(&source).content.unwrap().settle().unwrap();
    finish(source);
}

fn run_checkpoint(path: &Path) {
    Other::ready("once", path, &[CHECKPOINT]).stop();
}

#[test]
fn a_checkpoint_that_runs_explains_a_write_until_it_ends_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let _other = Other::ready("idle", &path, &[]);
    let source = opened(&path).unwrap();
    // The lock of a checkpoint is the second of those at byte 120 of the shared memory.
    let program = "import sys, fcntl, os\n\
        shm = open(sys.argv[1] + '-shm', 'r+b')\n\
        fcntl.lockf(shm, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 121)\n\
        os.utime(sys.argv[1])\n\
        print('ready', flush=True)\n\
        sys.stdin.read()";
    let mut checkpointer = std::process::Command::new("python3")
        .args(["-c", program])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    let output = checkpointer.stdout.as_mut().unwrap();
    std::io::Read::read_exact(output, &mut said).unwrap();
    source.snapshot.check_still().unwrap();
    drop(checkpointer.stdin.take());
    assert!(checkpointer.wait().unwrap().success());
    let refused = source.snapshot.check_still();
    assert!(matches!(refused, Err(Error::ChangedLocked { .. })));
}

#[test]
fn a_copy_that_shares_blocks_frees_the_writers_where_it_can_be_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let before = std::fs::read(&path).unwrap();
    let options = SourceOptions::default();
    let source = Sqlite::open(&Host::new(), &path, &options).unwrap();
    let free = matches!(source.snapshot.hold(), StateLock::Reflink(_));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let mut writer = Other::ready("impatient", &path, &["UPDATE account SET balance = 0"]);
    let said = writer.line();
    assert_eq!(said.ends_with(" None"), free, "{said}");
    let copy = dir.path().join("copy.db");
    copy_slowly(
        &only_entry(&source),
        &copy,
        1 << 16,
        Duration::ZERO,
        Via::Direct,
    )
    .unwrap();
    assert!(std::fs::read(&copy).unwrap() == before);
    // Long enough to be noticed if a program waits.
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(finish(source).is_empty(), free);
}

#[test]
fn a_snapshot_is_taken_when_all_read_locks_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    // Lock 0, then locks 1 to 4 at different marks, then a writer beyond all marks.
    let mut others = vec![Other::ready("read", &path, &["0"])];
    others.extend((0..4).map(|_| Other::ready("read", &path, &["3"])));
    others.push(Other::ready("idle", &path, &[]));
    let source = opened(&path).unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");
    let entry = only_entry(&source);
    drop(others);
    assert!(is_held(&path));
    copy_slowly(&entry, &copy, 1 << 16, Duration::ZERO, Via::Cache).unwrap();
    assert!(dump_file(&copy) == dump_snapshot(&source));
    assert_eq!(run("dump", &copy, &[]), "ok 500012");
}

#[test]
fn the_journal_mode_cannot_be_changed_under_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "wal");
    let source = opened(&path).unwrap();
    let mut other = Other::ready("impatient", &path, &["PRAGMA journal_mode = DELETE"]);
    let said = other.line();
    assert!(said.contains("locked"), "{said}");
    finish(source);
}

#[test]
fn a_database_locked_by_a_writer_is_waited_for_and_given_up_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let other = Other::ready("exclusive", &path, &[]);
    let options = SourceOptions {
        lock_wait: Duration::from_secs(1),
        ..SourceOptions::default()
    };
    let refused = Sqlite::open(&Host::new(), &path, &options).err().unwrap();
    assert!(
        matches!(refused, Error::Busy { waited_s: 1, .. }),
        "{refused}"
    );
    let ending = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        other.stop()
    });
    finish(opened(&path).unwrap());
    ending.join().unwrap();
}

/// Seconds that one statement took in another process.
fn timed(path: &Path, sql: &str) -> f64 {
    let mut other = Other::ready("once", path, &[sql]);
    let said = other.line();
    assert!(said.ends_with(" None"), "{said}");
    said.split(' ').next().unwrap().parse().unwrap()
}
