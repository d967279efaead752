//! Goal: a catalog that is locked, damaged, missing or not a catalog gives a clear error, soon, and never a panic.
//! Method: other connections hold locks, and files are overwritten, deleted and replaced; calls that might wait
//! are timed.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{assert_whole, backup, open, restore, rows, run, sqlite};
use longshore_catalog::{BUSY_MAX, Catalog, Effect, Error, HistoryQuery, Setting};

fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    (dir, path)
}

fn with_backups(path: &Path, count: u64) {
    let catalog = open(path);
    for n in 1..=count {
        catalog.record_backup(&backup(n)).unwrap();
    }
    catalog.record_restore(&restore(backup(1))).unwrap();
}

/// All operations on a catalog, until one fails.
fn use_it(path: &Path) -> Result<(), Error> {
    let catalog = Catalog::open(path)?;
    catalog.history(&HistoryQuery::default())?;
    catalog.restores(&HistoryQuery::default())?;
    catalog.runs(&HistoryQuery::default())?;
    catalog.settings()?;
    catalog.set_setting(Setting::MediaRetention, 7, Effect::Now)?;
    catalog.record_backup(&backup(77))?;
    catalog.record_restore(&restore(backup(78)))?;
    catalog.record_run(&run(79))?;
    Ok(())
}

/// Runs `what` and asserts that it ended in time: it must not wait for ever. A minute more than one call may take is
/// allowed, because tests share a machine.
fn in_time<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let out = what();
    let took = start.elapsed();
    assert!(took < BUSY_MAX + Duration::from_secs(60), "took {took:?}");
    (out, took)
}

/// Runs `what`, which waits for a lock in vain, up to five times, until it took no longer than a call may wait and half
/// as much again. Others on the machine can delay one try, not all of them.
fn waits_no_longer_than_said<T>(what: impl Fn() -> T) -> T {
    let allowed = BUSY_MAX + BUSY_MAX / 2;
    let mut tries = (0..5).map(|_| in_time(&what));
    let (out, _) = tries
        .find(|(_, took)| *took < allowed)
        .expect("no call ended within the longest wait that is said");
    out
}

#[test]
fn a_writer_that_does_not_end_is_an_error_for_other_writers_and_none_for_readers() {
    let (_dir, path) = place();
    with_backups(&path, 2);
    let other = sqlite(&path);
    other
        .execute_batch("BEGIN IMMEDIATE; DELETE FROM restorefile")
        .unwrap();
    let catalog = open(&path);
    assert_eq!(catalog.history(&HistoryQuery::default()).unwrap().len(), 2);
    let (refused, took) = in_time(|| catalog.record_backup(&backup(3)).unwrap_err());
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    assert_eq!(refused.number(), Some(3009));
    assert!(took >= BUSY_MAX / 2, "gave up after {took:?}");
    waits_no_longer_than_said(|| catalog.record_backup(&backup(3)).unwrap_err());
    other.execute_batch("ROLLBACK").unwrap();
    assert!(catalog.record_backup(&backup(3)).unwrap());
}

#[test]
fn a_catalog_held_exclusively_is_an_error_when_it_is_opened() {
    let (_dir, path) = place();
    with_backups(&path, 1);
    let other = sqlite(&path);
    other
        .pragma_update(None, "locking_mode", "EXCLUSIVE")
        .unwrap();
    other
        .execute_batch("BEGIN; DELETE FROM restorefile; COMMIT")
        .unwrap();
    let refused = waits_no_longer_than_said(|| use_it(&path).unwrap_err());
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
}

#[test]
fn a_new_catalog_locked_before_it_has_tables_is_an_error_in_time() {
    let (_dir, path) = place();
    let other = sqlite(&path);
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let refused = waits_no_longer_than_said(|| use_it(&path).unwrap_err());
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    drop(other);
    use_it(&path).unwrap();
}

#[test]
fn a_lock_that_ends_in_time_is_waited_for() {
    let (_dir, path) = place();
    with_backups(&path, 1);
    let other = sqlite(&path);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let catalog = open(&path);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            other.execute_batch("COMMIT").unwrap();
        });
        assert!(catalog.record_backup(&backup(2)).unwrap());
    });
}

#[test]
fn garbage_is_damage_and_a_rebuild_renames_it_and_starts_empty() {
    let (dir, path) = place();
    let garbage = vec![0xa5; 20_000];
    for round in 1..=2 {
        std::fs::write(&path, &garbage).unwrap();
        std::fs::write(dir.path().join("catalog.db-wal"), &garbage).unwrap();
        let refused = Catalog::open(&path).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
        assert!(refused.hint().contains("longshore catalog rebuild"));
        let (catalog, aside) = Catalog::open_or_replace(&path).unwrap();
        let aside = aside.unwrap();
        assert_eq!(
            aside,
            dir.path().join(format!("catalog.db.damaged-{round}"))
        );
        assert_eq!(std::fs::read(&aside).unwrap(), garbage);
        assert!(catalog.record_backup(&backup(1)).unwrap());
        drop(catalog);
        assert_whole(&path);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_sound_catalog_is_not_replaced() {
    let (_dir, path) = place();
    with_backups(&path, 2);
    let (catalog, aside) = Catalog::open_or_replace(&path).unwrap();
    assert_eq!(aside, None);
    assert_eq!(catalog.history(&HistoryQuery::default()).unwrap().len(), 2);
}

/// Flips and truncates at many places; each image is used, and rebuilt if it is reported as damaged.
#[test]
fn no_damage_to_the_file_makes_a_panic_or_a_long_wait() {
    let (dir, path) = place();
    with_backups(&path, 3);
    let sound = std::fs::read(&path).unwrap();
    let mut images = Vec::new();
    // The file header and the start of the schema densely, the rest in strides.
    let places = (0..120).chain((120..sound.len()).step_by(1501));
    for (i, at) in places.enumerate() {
        let mut image = sound.clone();
        image[at] ^= [0xff, 0x01, 0x80][i % 3];
        images.push(image);
    }
    for len in (1..sound.len()).step_by(3777) {
        images.push(sound[..len].to_vec());
    }
    let mut zeroed = sound.clone();
    zeroed[4096..].fill(0);
    images.push(zeroed);

    let (mut refused, mut replaced) = (0, 0);
    for (i, image) in images.iter().enumerate() {
        let path = dir.path().join(format!("{i}.db"));
        std::fs::write(&path, image).unwrap();
        let (used, _) = in_time(|| use_it(&path));
        if let Err(error) = used {
            refused += 1;
            assert_eq!(error.number(), Some(3009), "image {i}: {error}");
            let corrupt = matches!(error, Error::Corrupt { .. });
            let foreign = matches!(error, Error::Foreign { .. } | Error::Newer { .. });
            let kept = matches!(error, Error::ReadOnly { .. });
            assert!(corrupt || foreign || kept, "image {i}: {error}");
            if corrupt {
                let (catalog, aside) = Catalog::open_or_replace(&path).unwrap();
                assert!(aside.is_some(), "image {i}: {error}");
                replaced += 1;
                drop(catalog);
                use_it(&path).unwrap();
            }
        }
    }
    // Enough of them must cause an error, or the images prove nothing.
    assert!(
        refused >= 40 && replaced >= 20,
        "{refused} refused, {replaced} replaced"
    );
}

#[test]
fn a_catalog_that_sqlite_may_not_write_is_read_and_not_written() {
    let (_dir, path) = place();
    with_backups(&path, 2);
    // The write version in the header: above 2, SQLite treats the file as read-only for every user. The read version
    // stays.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[18] = 3;
    std::fs::write(&path, &bytes).unwrap();
    let catalog = open(&path);
    assert_eq!(catalog.history(&HistoryQuery::default()).unwrap().len(), 2);
    let refused = catalog.record_backup(&backup(3)).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
}

#[test]
fn a_catalog_deleted_or_replaced_while_open_takes_no_more_records() {
    let (dir, path) = place();
    with_backups(&path, 1);
    let catalog = open(&path);
    std::fs::remove_file(&path).unwrap();
    let refused = catalog.record_backup(&backup(2)).unwrap_err();
    assert!(matches!(refused, Error::Vanished { .. }), "{refused}");
    let other = dir.path().join("other.db");
    with_backups(&other, 2);
    std::fs::rename(&other, &path).unwrap();
    let refused = catalog.record_restore(&restore(backup(2))).unwrap_err();
    assert!(matches!(refused, Error::Vanished { .. }), "{refused}");
    assert_eq!(refused.number(), Some(3009));
}

#[test]
fn a_catalog_with_other_names_is_not_written_to() {
    let (dir, path) = place();
    with_backups(&path, 1);
    let (catalog, copy) = (open(&path), dir.path().join("copy.db"));
    std::fs::hard_link(&path, &copy).unwrap();
    let before = std::fs::read(&copy).unwrap();
    let refused = catalog.record_backup(&backup(2)).unwrap_err();
    assert!(matches!(refused, Error::Shared { .. }), "{refused}");
    drop(catalog);
    let refused = Catalog::open(&path).unwrap_err();
    assert!(matches!(refused, Error::Shared { .. }), "{refused}");
    assert!(refused.hint().contains("cp "), "{}", refused.hint());
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    std::fs::remove_file(&copy).unwrap();
    open(&path).record_backup(&backup(2)).unwrap();
}

#[test]
fn a_new_catalog_is_its_owners_alone() {
    let (dir, path) = place();
    with_backups(&path, 1);
    let catalog = open(&path);
    catalog.record_backup(&backup(2)).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&entry.metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn other_databases_are_refused_and_stay_as_they_were() {
    let (dir, path) = place();
    let app = sqlite(&path);
    app.execute_batch("CREATE TABLE orders (id); INSERT INTO orders VALUES (7)")
        .unwrap();
    drop(app);
    let named = dir.path().join("named.db");
    let app = sqlite(&named);
    app.execute_batch("PRAGMA application_id = 99; PRAGMA user_version = 1")
        .unwrap();
    drop(app);
    for path in [path, named] {
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(Catalog::open(&path), Err(Error::Foreign { .. })));
        assert!(matches!(
            Catalog::open_or_replace(&path),
            Err(Error::Foreign { .. })
        ));
        assert!(std::fs::read(&path).unwrap() == before);
        assert!(!dir.path().join("catalog.db-wal").exists());
    }
}

#[test]
fn a_catalog_of_a_newer_version_is_refused_and_stays_as_it_was() {
    let (_dir, path) = place();
    with_backups(&path, 1);
    let newer = sqlite(&path);
    newer.execute_batch("PRAGMA user_version = 99").unwrap();
    let refused = Catalog::open(&path).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Newer {
                found: 99,
                known: 10,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(rows(&newer, "PRAGMA user_version"), ["99"]);
}

#[test]
fn places_where_no_catalog_can_be_are_refused_at_once() {
    let (dir, path) = place();
    std::fs::write(&path, b"").unwrap();
    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    for path in [
        dir.path(),
        &fifo,
        Path::new("/dev/null"),
        Path::new("/proc/longshore/catalog.db"),
        &path.join("catalog.db"),
        Path::new(""),
    ] {
        let (refused, took) = in_time(|| Catalog::open(path).unwrap_err());
        assert!(
            matches!(refused, Error::Path { .. }),
            "{}: {refused}",
            path.display()
        );
        assert!(took < BUSY_MAX, "{}: waited for {took:?}", path.display());
        assert_eq!(refused.number(), Some(3009));
    }
    let nameless = Catalog::open(Path::new("/proc/catalog.db")).unwrap_err();
    assert!(matches!(nameless, Error::Path { .. }), "{nameless}");
    // An empty file becomes a catalog, whatever SQLite thinks of its name.
    use_it(&path).unwrap();
    let odd = dir.path().join(":memory:");
    use_it(&odd).unwrap();
    assert_eq!(
        open(&odd).history(&HistoryQuery::default()).unwrap().len(),
        2
    );
}
