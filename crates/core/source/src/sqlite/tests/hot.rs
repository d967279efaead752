//! Goal: if a writer died, the backup holds the state that SQLite recovers, and SQLite can still recover it.
//! Method: writers are killed at every system call that changes a file, in the middle of the call; journals are
//! truncated and altered. The oracle is SQLite itself, which opens a copy of database and journal.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use longshore_io::{Host, Via};
use rusqlite::Connection;
use rusqlite::types::Value;
use tempfile::TempDir;

use super::stage::*;
use crate::sqlite::Sqlite;
use crate::sqlite::snapshot::StateLock;
use crate::{Error, SourceOptions};

/// The library that kills the process.
struct Killer {
    _dir: TempDir,
    library: PathBuf,
}

/// Built once.
static KILLER: LazyLock<Killer> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("cut.c"), dir.path().join("cut.so"));
    fs::write(&source, include_str!("cut.c")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    let built = cc.arg("-ldl").status().expect("a C compiler is needed");
    assert!(built.success());
    Killer { _dir: dir, library }
});

impl Killer {
    /// The environment of a program that can be killed.
    fn preload(&self) -> [(&str, &OsStr); 1] {
        [("LD_PRELOAD", self.library.as_os_str())]
    }
}

/// SQLite's recovery of a copy of a database and its journal: the file's bytes, and whether SQLite can read them.
fn recovered(dir: &Path) -> (Vec<u8>, bool) {
    // SQLite syncs when it rolls back; in memory that is quick.
    let copy = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    for name in ["bank.db", "bank.db-journal"] {
        if dir.join(name).exists() {
            fs::copy(dir.join(name), copy.path().join(name)).unwrap();
        }
    }
    let path = copy.path().join("bank.db");
    let db = Connection::open(&path).unwrap();
    let opened = db.query_row("PRAGMA schema_version", [], |row| row.get::<_, i64>(0));
    drop(db);
    (fs::read(&path).unwrap(), opened.is_ok())
}

/// The bytes in a backup.
fn backed_up(source: &Sqlite) -> Vec<u8> {
    let entry = only_entry(source);
    let Some(content) = &entry.content else {
        return Vec::new();
    };
    let mut bytes = vec![0xAA; entry.len as usize];
    for (i, piece) in bytes.chunks_mut(10_000).enumerate() {
        content
            .read_at(piece, i as u64 * 10_000, Via::Cache)
            .unwrap();
    }
    assert_eq!(content.settle().unwrap(), None);
    bytes
}

/// The rows of a database with these bytes.
fn rows(bytes: &[u8]) -> (String, Vec<Vec<Value>>) {
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy.db");
    fs::write(&copy, bytes).unwrap();
    dump_file(&copy)
}

/// Backs up, compares with SQLite's recovery of the files, and returns whether there was a hot journal.
fn compare(path: &Path, what: &str, is_whole: bool) -> bool {
    let dir = path.parent().unwrap();
    let before = fingerprint(dir);
    let (expected, is_readable) = recovered(dir);
    let source = match opened(path) {
        Ok(source) => source,
        Err(e) => {
            assert!(!is_readable, "{what}: refused what SQLite can read: {e}");
            return false;
        }
    };
    let hot = matches!(source.snapshot.hold(), StateLock::DeadWriter(_));
    let found = backed_up(&source);
    finish(source);
    assert!(fingerprint(dir) == before, "{what}: it was written to");
    // A file truncated in the middle of a page is read as if zeros followed.
    let len = found.len().max(expected.len());
    let whole = |mut bytes: Vec<u8>| {
        bytes.resize(len, 0);
        bytes
    };
    if is_whole {
        let (check, _) = rows(&expected);
        assert_eq!(check, "ok", "{what}");
        assert!(rows(&found) == rows(&expected), "{what}: other rows");
    }
    assert!(whole(found) == whole(expected), "{what}: other bytes");
    hot
}

/// A copy of a database without its companion files.
fn fresh(template: &Path) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bank.db");
    fs::copy(template, &path).unwrap();
    (dir, path)
}

/// Kills a transaction at each of its system calls; returns how many kills left a hot journal.
fn cut_everywhere(page_bytes: u32, arguments: [&str; 3]) -> usize {
    let template = tempfile::tempdir().unwrap();
    let template = &new_database(template.path(), page_bytes, "delete");
    let mut cutter = Other::start_with("cut", template, &arguments, &KILLER.preload());
    assert_eq!(cutter.line(), "ready");
    let mut hot = 0;
    for at in 0..2000 {
        let (_dir, path) = fresh(template);
        let said = cutter.run(&format!("{at} {}", path.display()));
        hot += usize::from(compare(
            &path,
            &format!("{page_bytes} {arguments:?} cut at {at}"),
            true,
        ));
        if said == "survived" {
            assert!(at > 10, "{arguments:?}: only {at} system calls");
            return hot;
        }
    }
    panic!("the transaction never ends");
}

#[test]
fn a_writer_killed_at_any_system_call_leaves_what_sqlite_would_recover() {
    let hot = cut_everywhere(4096, ["2000", "delete", "full"]);
    assert!(hot > 10, "{hot}");
}

#[test]
fn a_writer_killed_while_its_cache_spills_leaves_what_sqlite_would_recover() {
    let hot = cut_everywhere(1024, ["3", "persist", "full"]);
    assert!(hot > 20, "{hot}");
}

#[test]
fn a_writer_that_never_syncs_leaves_what_sqlite_would_recover() {
    let hot = cut_everywhere(512, ["5", "truncate", "off"]);
    assert!(hot > 20, "{hot}");
    let hot = cut_everywhere(65_536, ["3", "delete", "off"]);
    assert!(hot > 5, "{hot}");
}

#[test]
fn a_damaged_journal_means_what_sqlite_makes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 1024, "delete");
    run("die_in_transaction", &path, &[]);
    let journal = fs::read(dir.path().join("bank.db-journal")).unwrap();
    let sector = u32::from_be_bytes(journal[20..24].try_into().unwrap()) as usize;
    let mut random = longshore_kit::Random(7);
    let mut hot = 0;
    for round in 0..270 {
        let mut bytes = journal.clone();
        let what = match round % 9 {
            0 => {
                bytes.truncate(random.below(bytes.len()));
                "cut"
            }
            1 => {
                // Not the high bytes of the length, which would require files of terabytes.
                let at = [0, 7, 8, 11, 12, 15, 18, 19, 20, 23, 24, 25, 26, 27][random.below(14)];
                bytes[at] ^= 1 << random.below(8);
                "a bit of the first head"
            }
            2 => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
                "a bit anywhere"
            }
            3 => {
                // A later header, if there is one at that sector.
                let at = random.below(bytes.len() / sector) * sector;
                bytes[at..][..28.min(journal.len() - at)].fill(random.below(256) as u8);
                "the head of a sector"
            }
            4 => {
                let at = random.below(bytes.len());
                let end = (at + random.below(5000)).min(bytes.len());
                bytes[at..end].fill(0);
                "a hole"
            }
            5 => {
                // The number of pages before the transaction.
                bytes[16..20].copy_from_slice(&(random.below(500) as u32).to_be_bytes());
                "another length"
            }
            6 => {
                // The number of records: none, a few, or to the end.
                let count = [0, 1, 7, u32::MAX][random.below(4)];
                bytes[8..12].copy_from_slice(&count.to_be_bytes());
                "another count"
            }
            7 => {
                let at = random.below(bytes.len());
                bytes.extend_from_within(at..);
                "its own end again"
            }
            _ => {
                // Page 0, or the page that is never written: the journal ends there.
                let page = [0, 0x4000_0000 / 1024 + 1][random.below(2)] as u32;
                let at = sector + random.below((bytes.len() - sector) / 1032) * 1032;
                bytes[at..at + 4].copy_from_slice(&page.to_be_bytes());
                "a record of no page"
            }
        };
        fs::write(dir.path().join("bank.db-journal"), bytes).unwrap();
        hot += usize::from(compare(&path, &format!("round {round}: {what}"), false));
    }
    assert!(hot > 160, "{hot}");
}

#[test]
fn a_dead_writers_journal_is_rolled_back_only_after_the_backup_has_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    run("die_in_transaction", &path, &[]);
    let (expected, _) = recovered(dir.path());
    let source = opened(&path).unwrap();
    assert!(matches!(source.snapshot.hold(), StateLock::DeadWriter(_)));
    for sql in [
        "SELECT count(*) FROM account",
        "UPDATE account SET balance = 0",
    ] {
        let said = Other::ready("impatient", &path, &[sql]).stop();
        assert!(said.contains("database is locked"), "{sql}: {said}");
    }
    assert!(backed_up(&source) == expected);
    // Long enough to be noticed.
    std::thread::sleep(Duration::from_millis(150));
    let notes = finish(source);
    assert!(notes.iter().any(|n| n.contains("could wait")), "{notes:?}");
    assert_eq!(run("dump", &path, &[]), "ok 500000");
    assert!(!dir.path().join("bank.db-journal").exists());
    finish(opened(&path).unwrap());
}

#[test]
fn a_living_writers_journal_is_not_a_dead_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let (expected, _) = recovered(dir.path());
    let mut writer = Other::ready("steps", &path, &[]);
    writer.run("BEGIN IMMEDIATE");
    writer.run("UPDATE account SET balance = 0");
    assert!(
        fs::metadata(dir.path().join("bank.db-journal"))
            .unwrap()
            .len()
            > 0
    );
    let source = opened(&path).unwrap();
    assert!(matches!(source.snapshot.hold(), StateLock::SharedLock(_)));
    assert!(backed_up(&source) == expected);
    finish(source);
    writer.run("ROLLBACK");
    writer.stop();
    assert_eq!(run("dump", &path, &[]), "ok 500000");
}

#[test]
fn a_journal_of_several_databases_is_refused_and_left_for_its_application() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    let others = tempfile::tempdir().unwrap();
    let other = new_database(others.path(), 4096, "delete");
    let other = [other.to_str().unwrap()];
    Other::start_with("die_in_commit_of_two", &path, &other, &KILLER.preload()).stop();
    let before = fingerprint(dir.path());
    let refused = opened(&path).err().unwrap();
    assert!(matches!(refused, Error::HotJournal { .. }), "{refused}");
    assert!(
        refused.to_string().contains("several databases"),
        "{refused}"
    );
    assert!(refused.hint().contains("rolls the journal back"));
    assert!(fingerprint(dir.path()) == before);
    // As in the hint.
    assert_eq!(run("dump", &path, &[]), "ok 500000");
    finish(opened(&path).unwrap());
}

/// Which of the two SQLite would use first is nothing to guess.
#[test]
fn a_dead_writers_journal_next_to_a_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    run("die_in_transaction", &path, &[]);
    fs::write(dir.path().join("bank.db-wal"), [1; 100]).unwrap();
    let before = fingerprint(dir.path());
    let refused = opened(&path).err().unwrap();
    assert!(
        refused.to_string().contains("a write-ahead log too"),
        "{refused}"
    );
    assert!(fingerprint(dir.path()) == before);
}

#[test]
fn a_journal_that_changes_under_the_backup_is_an_error_and_never_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    run("die_in_transaction", &path, &[]);
    let source = opened(&path).unwrap();
    let content = content_of(&source);
    let journal = dir.path().join("bank.db-journal");
    let bytes = fs::read(&journal).unwrap();
    let end = bytes.len() as u64;
    fs::File::options()
        .write(true)
        .open(&journal)
        .unwrap()
        .set_len(end / 3)
        .unwrap();
    let mut all = vec![0; source.snapshot.len() as usize];
    let refused = content.read_at(&mut all, 0, Via::Cache).unwrap_err();
    assert!(matches!(refused, Error::JournalChanged { .. }), "{refused}");
}

#[test]
fn a_dead_writers_database_is_waited_for_while_another_rolls_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_database(dir.path(), 4096, "delete");
    run("die_in_transaction", &path, &[]);
    let options = SourceOptions {
        lock_wait: Duration::from_millis(200),
        ..SourceOptions::default()
    };
    // The EXCLUSIVE lock of a program that would be rolling back.
    let holder = Other::ready("lock_exclusively", &path, &[]);
    let refused = Sqlite::open(&Host::new(), &path, &options).err().unwrap();
    assert!(matches!(refused, Error::Busy { .. }), "{refused}");
    holder.stop();
    finish(opened(&path).unwrap());
}
