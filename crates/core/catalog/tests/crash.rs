//! Goal: a catalog survives the end of its writers with complete records only, and with all records that were reported
//! as stored: after kill -9 at any moment, and after a power cut that loses or tears unsynced data.
//! Method: this test binary is started again as the writer and killed; images of the files are made by hand as a power
//! cut could leave them. The images must open and pass SQLite's own checks.
//! Not covered: a file system or disk that loses synced data.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{assert_whole, backup, count, open, restore, sqlite};
use longshore_catalog::{Catalog, HistoryQuery};
use longshore_kit::Random;

const CHILD_CATALOG: &str = "LONGSHORE_TEST_CHILD_CATALOG";
const CHILD_FIRST: &str = "LONGSHORE_TEST_CHILD_FIRST";

/// Records backups and restores until killed, and prints each number when its records are safe.
fn write_until_killed(catalog: &Path, first: u64) -> ! {
    let catalog = open(catalog);
    let mut out = std::io::stdout();
    for n in first.. {
        catalog.record_backup(&backup(n)).unwrap();
        catalog.record_restore(&restore(backup(n))).unwrap();
        out.write_all(format!("safe {n}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }
    unreachable!("numbers do not end")
}

/// This test binary again, as the writer.
fn writer(catalog: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed_writers_leave_whole_records_and_all_that_were_reported",
            "--nocapture",
        ])
        .env(CHILD_CATALOG, catalog)
        .env(CHILD_FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The highest number printed as safe, read to the end of the child's output.
fn last_safe(lines: impl Iterator<Item = std::io::Result<String>>) -> Option<u64> {
    let numbers = lines.filter_map(|l| l.unwrap().rsplit_once("safe ")?.1.parse().ok());
    numbers.max()
}

#[test]
fn killed_writers_leave_whole_records_and_all_that_were_reported() {
    if let Some(catalog) = std::env::var_os(CHILD_CATALOG) {
        let first = std::env::var(CHILD_FIRST).unwrap().parse().unwrap();
        write_until_killed(Path::new(&catalog), first);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let mut dice = Random(1);
    let mut safe = Vec::new();
    for round in 0..15 {
        let first = round * 1_000_000;
        let mut child = writer(&path, first);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The test harness prints first; then wait until records are written.
        let begun = lines
            .by_ref()
            .find(|l| l.as_ref().unwrap().contains("safe "));
        assert!(begun.is_some());
        std::thread::sleep(Duration::from_micros(dice.below(40_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = last_safe(lines).unwrap_or(first);
        safe.extend(first..=last);

        assert_whole(&path);
        let db = sqlite(&path);
        for n in first..=last {
            let set = backup(n).header.set;
            let sql = format!(
                "SELECT count(*) FROM backupset JOIN restorehistory USING (backup_set_id) WHERE backup_set_uuid = '{set}'"
            );
            assert_eq!(
                count(&db, &sql),
                1,
                "round {round}: record {n} was reported and is gone"
            );
        }
    }
    let kept = open(&path).history(&HistoryQuery::default()).unwrap().len();
    // Each round may have recorded one more than it could print.
    assert!(
        (safe.len()..=safe.len() + 15).contains(&kept),
        "{kept} of {}",
        safe.len()
    );
}

#[test]
fn a_writer_killed_while_it_creates_the_catalog_leaves_one_that_opens() {
    let dir = tempfile::tempdir().unwrap();
    // How long the creation and the first record take on this machine.
    let start = Instant::now();
    open(&dir.path().join("timed.db"))
        .record_backup(&backup(1))
        .unwrap();
    let whole_us = start.elapsed().as_micros() as u64;
    let mut dice = Random(2);
    let mut partial = 0;
    for round in 0..400 {
        if round >= 40 && partial >= 5 {
            break;
        }
        // The machine may be faster now than when it was timed: then kill sooner.
        let most = if round < 40 {
            2 * whole_us
        } else {
            whole_us / 8
        };
        let path = dir.path().join(format!("{round}/catalog.db"));
        let mut child = writer(&path, 0);
        // From before the first file exists to after the first records.
        while !path.exists() && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(dice.below(most.max(1))));
        child.kill().unwrap();
        child.wait().unwrap();
        let catalog = open(&path);
        partial += u32::from(
            catalog
                .history(&HistoryQuery::default())
                .unwrap()
                .is_empty(),
        );
        catalog.record_backup(&backup(99)).unwrap();
        drop(catalog);
        assert_whole(&path);
    }
    assert!(
        partial >= 5,
        "only {partial} kills came before the first record"
    );
}

/// Goal: whatever part of the log a power cut leaves, the history is a complete prefix of what was recorded.
/// Method: SQLite appends to the log and syncs it at each commit, so a cut leaves a prefix of it, with its unsynced
/// end lost, torn (garbage) or zero. Every such image at every half frame must open, hold complete records only, and
/// never fewer than an earlier cut.
#[test]
fn a_power_cut_anywhere_in_the_log_leaves_a_whole_prefix_of_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    let catalog = open(&path);
    for n in 1..=4 {
        catalog.record_backup(&backup(n)).unwrap();
        catalog.record_restore(&restore(backup(n))).unwrap();
    }
    // While the catalog is open there was no checkpoint: everything is in the log.
    let base = std::fs::read(&path).unwrap();
    let log = std::fs::read(dir.path().join("catalog.db-wal")).unwrap();
    drop(catalog);
    let half_frame = (24 + 4096) / 2;
    let image = dir.path().join("image.db");
    let image_log = dir.path().join("image.db-wal");
    let mut dice = Random(3);
    let (mut cuts, mut seen) = (0, 0);
    for cut in (0..=log.len()).step_by(half_frame).chain([log.len()]) {
        let kept = &log[..cut];
        let mut zeros = kept.to_vec();
        zeros.resize(log.len(), 0);
        let mut torn = kept.to_vec();
        torn.resize_with(log.len(), || dice.next() as u8);
        let mut found = Vec::new();
        for tail in [kept, &zeros, &torn] {
            std::fs::write(&image, &base).unwrap();
            std::fs::write(&image_log, tail).unwrap();
            let catalog = open(&image);
            let backups = catalog.history(&HistoryQuery::default()).unwrap().len();
            let restores = catalog.restores(&HistoryQuery::default()).unwrap().len();
            found.push(backups + restores);
            drop(catalog);
            assert_whole(&image);
            remove(&image);
            cuts += 1;
        }
        assert!(
            found.iter().all(|n| *n == found[0] && *n >= seen),
            "cut {cut}: {found:?} after {seen}"
        );
        seen = found[0];
    }
    assert_eq!(seen, 8);
    assert_eq!(cuts, 3 * (log.len() / half_frame + 2));
    assert!(cuts > 150, "{cuts} cuts");
}

/// The log is synced before its pages go into the database file, so whatever pages a cut leaves there, the log still
/// has all of them.
#[test]
fn a_power_cut_while_the_log_is_merged_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    drop(open(&path));
    let catalog = open(&path);
    for n in 1..=3 {
        catalog.record_backup(&backup(n)).unwrap();
    }
    let before = std::fs::read(&path).unwrap();
    let log = std::fs::read(dir.path().join("catalog.db-wal")).unwrap();
    drop(catalog);
    let after = std::fs::read(&path).unwrap();
    assert!(after != before && log.len() > 3 * 4096);
    let image = dir.path().join("image.db");
    let mut dice = Random(4);
    for round in 0..60 {
        let mut mixed = before.clone();
        mixed.resize(after.len(), 0);
        for sector in 0..after.len() / 512 {
            if dice.below(2) == 1 {
                let range = sector * 512..(sector + 1) * 512;
                mixed[range.clone()].copy_from_slice(&after[range]);
            }
        }
        std::fs::write(&image, &mixed).unwrap();
        std::fs::write(dir.path().join("image.db-wal"), &log).unwrap();
        let kept = Catalog::open(&image)
            .unwrap()
            .history(&HistoryQuery::default())
            .unwrap();
        assert_eq!(kept.len(), 3, "round {round}");
        assert_whole(&image);
        remove(&image);
    }
}

fn remove(image: &Path) {
    for part in ["", "-wal", "-shm"] {
        let name = format!("{}{part}", image.display());
        match std::fs::remove_file(&name) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.unwrap(),
        }
    }
}
