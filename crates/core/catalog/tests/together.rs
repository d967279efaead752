//! Goal: several programs use one catalog at once and lose and double nothing, also when they all create it.
//! Method: processes (this test binary again) and threads record their own backups and shared ones; the rows are
//! counted by plain SQLite.

mod common;

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::{assert_whole, backup, count, restore, sqlite};
use longshore_catalog::{Catalog, Error, HistoryQuery};

/// Far longer than any writer needs.
const PATIENCE: Duration = Duration::from_secs(60);
const OWN: u64 = 20;
const SHARED: u64 = 10;

/// A call that waited in vain wrote nothing, and may be made again: a machine with too much work is no failure here.
fn patient<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match call() {
            Err(Error::Locked { .. }) if Instant::now() < until => {}
            ended => return ended.unwrap(),
        }
    }
}

/// Records `OWN` backups that no other process has, and `SHARED` that all have.
fn record(catalog: &Path, who: u64) {
    let catalog = patient(|| Catalog::open(catalog));
    for n in 0..OWN.max(SHARED) {
        if n < OWN {
            assert!(patient(|| catalog.record_backup(&backup(1000 * who + n))));
        }
        if n < SHARED {
            patient(|| catalog.record_backup(&backup(999_000 + n)));
            patient(|| catalog.record_restore(&restore(backup(999_000 + n))));
        }
        let found = patient(|| catalog.history(&HistoryQuery::default()));
        assert!(found.len() as u64 > n);
    }
}

fn assert_all_there(path: &Path, writers: u64) {
    assert_whole(path);
    let db = sqlite(path);
    assert_eq!(
        count(&db, "SELECT count(*) FROM backupset"),
        writers * OWN + SHARED
    );
    assert_eq!(
        count(&db, "SELECT count(*) FROM restorehistory"),
        writers * SHARED
    );
}

#[test]
fn processes_that_create_and_fill_one_catalog_together_lose_and_double_nothing() {
    const CATALOG: &str = "LONGSHORE_TEST_SHARED_CATALOG";
    const WHO: &str = "LONGSHORE_TEST_WHO";
    if let Some(catalog) = std::env::var_os(CATALOG) {
        return record(
            Path::new(&catalog),
            std::env::var(WHO).unwrap().parse().unwrap(),
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/catalog.db");
    let writer = |who: u64| -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes_that_create_and_fill_one_catalog_together_lose_and_double_nothing",
            ])
            .env(CATALOG, &path)
            .env(WHO, who.to_string())
            .spawn()
            .unwrap()
    };
    let writers: Vec<_> = (1..=4).map(writer).collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    assert_all_there(&path, 4);
}

#[test]
fn threads_with_a_connection_each_lose_and_double_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    std::thread::scope(|threads| {
        for who in 1..=3 {
            let path = &path;
            threads.spawn(move || record(path, who));
        }
    });
    assert_all_there(&path, 3);
}

#[test]
fn many_that_create_the_same_catalog_at_one_moment_all_succeed() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|threads| {
            for who in 1..=8 {
                let (path, barrier) = (&path, &barrier);
                threads.spawn(move || {
                    barrier.wait();
                    let catalog = patient(|| Catalog::open(path));
                    patient(|| catalog.record_backup(&backup(who)));
                });
            }
        });
        assert_whole(&path);
        assert_eq!(count(&sqlite(&path), "SELECT count(*) FROM backupset"), 8);
    }
}
