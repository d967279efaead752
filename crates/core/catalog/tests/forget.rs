//! Goal: a long history is removed in time, leaves the catalog free for others meanwhile, and the removal can be
//! stopped.
//! Method: tens of thousands of sets, copied by SQL; another connection records backups while they are removed. The
//! limits in seconds are far above the usual time.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{backup, open, restore};
use longshore_catalog::{Catalog, Forget};
use rusqlite::Connection;

const ALL: Forget<'static> = Forget::EndedBefore("2099-01-01T00:00:00.000");

/// This many sets, each on separate media, as if recorded one by one; every tenth was restored.
fn fill(path: &Path, sets: u32) -> Catalog {
    let catalog = open(path);
    catalog.record_restore(&restore(backup(1))).unwrap();
    let db = Connection::open(path).unwrap();
    let columns = |table: &str, own: &[&str]| -> String {
        let mut columns = db.prepare(&format!("PRAGMA table_info({table})")).unwrap();
        let names = columns
            .query_map([], |row| row.get::<_, String>(1))
            .unwrap();
        let names = names.map(Result::unwrap);
        let left: Vec<_> = names.filter(|n| !own.contains(&n.as_str())).collect();
        left.iter().map(|n| format!(", \"{n}\"")).collect()
    };
    let media = columns("backupmediaset", &["media_set_id", "media_uuid"]);
    let family = columns("backupmediafamily", &["media_set_id"]);
    let set = columns(
        "backupset",
        &["backup_set_id", "backup_set_uuid", "media_set_id"],
    );
    let file = columns("backupfile", &["backup_set_id"]);
    let again = columns("restorehistory", &["restore_history_id", "backup_set_id"]);
    db.execute_batch(&format!(
        "BEGIN;
         CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {sets}) SELECT i FROM n;
         INSERT INTO backupmediaset (media_set_id, media_uuid {media}) SELECT i, 'm' || i {media} FROM backupmediaset, n;
         INSERT INTO backupmediafamily (media_set_id {family}) SELECT i {family} FROM backupmediafamily, n WHERE media_set_id = 1;
         INSERT INTO backupset (backup_set_id, backup_set_uuid, media_set_id {set}) SELECT i, 's' || i, i {set} FROM backupset, n;
         INSERT INTO backupfile (backup_set_id {file}) SELECT i {file} FROM backupfile, n WHERE backup_set_id = 1;
         INSERT INTO restorehistory (backup_set_id {again}) SELECT i {again} FROM restorehistory, n WHERE i % 10 = 0;
         COMMIT"
    ))
    .unwrap();
    catalog
}

fn left(path: &Path) -> u32 {
    let db = Connection::open(path).unwrap();
    let count = "SELECT count(*) FROM backupset";
    db.query_row(count, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_long_history_is_taken_out_and_backups_are_recorded_meanwhile() {
    const SETS: u32 = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let mut catalog = fill(&path, SETS);
    let began = Instant::now();
    let done = AtomicBool::new(false);
    let (gone, recorded, slowest) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let catalog = open(&path);
            let (mut recorded, mut slowest) = (0, Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                let mut record = backup(1_000_000 + recorded);
                // Later than any set that is removed.
                record.totals.finish_us += 200 * 365 * 86_400_000_000;
                let began = Instant::now();
                catalog.record_backup(&record).unwrap();
                slowest = slowest.max(began.elapsed());
                recorded += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            (recorded, slowest)
        });
        let gone = catalog.forget(ALL, &Arc::default()).unwrap();
        done.store(true, Ordering::Relaxed);
        let (recorded, slowest) = other.join().unwrap();
        (gone, recorded, slowest)
    });
    let took = began.elapsed();
    println!("{SETS} sets in {took:?}, {recorded} recorded meanwhile, {slowest:?} at most");
    assert_eq!(
        (gone.sets, gone.restores, gone.interrupted),
        (SETS.into(), (SETS / 10 + 1).into(), false)
    );
    assert_eq!(u64::from(left(&path)), recorded);
    assert!(recorded > 3);
    // A quadratic version took 27 s of CPU time.
    assert!(took < Duration::from_secs(20), "{took:?}");
    catalog.check().unwrap();
}

#[test]
fn removal_stops_on_request_and_removes_only_complete_records() {
    const SETS: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let mut catalog = fill(&path, SETS);
    let stop = Arc::new(AtomicBool::new(false));
    let (gone, took) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while left(&path) == SETS {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let gone = catalog.forget(ALL, &stop).unwrap();
        (gone, Instant::now())
    });
    let took = took.elapsed();
    assert!(gone.interrupted && gone.sets > 0, "{gone:?}");
    assert_eq!(u64::from(left(&path)), u64::from(SETS) - gone.sets);
    assert!(left(&path) > 0, "it was ended in time");
    assert!(took < Duration::from_secs(2));
    let db = Connection::open(&path).unwrap();
    let dangling = db
        .prepare("PRAGMA foreign_key_check")
        .unwrap()
        .exists([])
        .unwrap();
    assert!(!dangling);
    let media = "SELECT count(*) FROM backupmediaset WHERE media_set_id NOT IN (SELECT media_set_id FROM backupset)";
    assert_eq!(
        db.query_row(media, [], |row| row.get::<_, i64>(0)).unwrap(),
        0
    );
    // The next call removes the rest, on the same connection.
    let rest = catalog.forget(ALL, &Arc::default()).unwrap();
    assert_eq!((rest.interrupted, left(&path)), (false, 0));
}
