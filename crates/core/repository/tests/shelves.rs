//! Goal: shelves in directories distinguish all states of a backup, protect backups in use, and expire nothing else.
//! Method: shelves on a real file system, with files removed, damaged and locked; one storage loses a directory like an
//! unmounted one.
//! Not covered: buckets (`buckets.rs`) and WAL (`log.rs`).

mod common;
#[path = "../../io/tests/contract/suite/mod.rs"]
mod storage_suite;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{fs, io};

use common::*;
use longshore_io::{Dir, Host, HostClock, Stat, Storage};
use longshore_media::DeviceSpec;
use longshore_repository::retention::Policy;
use longshore_repository::{BackupKind, BackupState, Error, Fate, Shelf};
use tempfile::TempDir;

struct Stage {
    temp: TempDir,
    shelf: Shelf,
}

impl Stage {
    fn new(directories: usize) -> Stage {
        let temp = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = (1..=directories)
            .map(|i| temp.path().join(format!("d{i}")))
            .collect();
        for dir in &dirs {
            fs::create_dir(dir).unwrap();
        }
        fs::create_dir(temp.path().join("source")).unwrap();
        fs::write(temp.path().join("source/file"), [7; 100_000]).unwrap();
        let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
        let shelf = shelf(&host(), &dirs);
        Stage { temp, shelf }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.temp.path().join(name)
    }

    fn shelve(&self, day: i64) -> String {
        shelve(&self.shelf, &self.path("source"), day).to_string()
    }

    fn family(&self, directory: u16, label: &str) -> PathBuf {
        self.path(format!("d{directory}/db/{label}/family-{directory}.bak"))
    }

    fn expire(&self, keep: u32) -> Result<Vec<Fate>, Error> {
        let policy = Policy {
            keep_full: Some(keep),
            ..Policy::default()
        };
        let never = AtomicBool::new(false);
        let expired = self
            .shelf
            .expire(&policy, &|| i64::MAX / 2, false, &never)?;
        Ok(expired.fates)
    }

    fn labels(&self) -> Vec<String> {
        let listing = self.shelf.list().unwrap();
        listing.sets.iter().map(|s| s.label.to_string()).collect()
    }
}

/// Goal: of backups whose labels have one time, one that cannot be read may be the newest, so no other is taken for it.
#[test]
fn a_lost_backup_of_the_same_second_hides_behind_no_other() {
    for lost in 0..3 {
        let stage = Stage::new(2);
        let labels: Vec<String> = (0..3).map(|_| stage.shelve(1)).collect();
        fs::remove_file(stage.family(2, &labels[lost])).unwrap();
        let error = stage.shelf.lease(None).unwrap_err();
        assert!(error.to_string().contains(&labels[lost]), "{lost}: {error}");
        let whole = &labels[(lost + 1) % 3];
        assert_eq!(
            stage.shelf.lease(Some(whole)).unwrap().label.as_str(),
            whole
        );
        stage.shelve(2);
        assert!(stage.shelf.lease(None).is_ok());
    }
}

#[test]
fn a_backup_has_one_family_in_each_directory_below_database_and_label() {
    let stage = Stage::new(2);
    let label = stage.shelve(1);
    for n in 1..=2u16 {
        let below = stage.path(format!("d{n}"));
        let db = PathBuf::from("db");
        let expected = [
            db.clone(),
            db.join(&label),
            db.join(&label).join(format!("family-{n}.bak")),
        ];
        assert_eq!(paths(&below), expected);
    }
    assert_eq!(words(&stage.shelf), ["complete"]);
    let lease = stage.shelf.lease(None).unwrap();
    assert_eq!(lease.label.as_str(), label);
    restore(&host(), &lease.devices, &stage.path("out")).unwrap();
    let restored = fs::read(stage.path("out/file")).unwrap();
    assert_eq!(restored, [7; 100_000]);
}

/// Goal: the disk below a mount point is not filled, and neither a first use nor a new directory is refused.
#[test]
fn a_directory_of_which_the_file_system_is_not_mounted_gets_no_backup() {
    let stage = Stage::new(2);
    let begun = |shelf: &Shelf, day: i64| {
        shelf
            .begin(BackupKind::Full, day * 86_400_000_000)
            .map(drop)
    };
    stage.shelve(1);
    let (home, away) = (stage.path("d2/db"), stage.path("away"));
    fs::rename(&home, &away).unwrap();
    match begun(&stage.shelf, 2).unwrap_err() {
        Error::NotMounted { home: named, .. } => assert_eq!(named, home),
        other => panic!("{other}"),
    }
    assert!(!home.exists(), "nothing was made there");
    // A directory that is added has no stripe of an older backup.
    fs::rename(&away, &home).unwrap();
    fs::create_dir(stage.path("d3")).unwrap();
    let all: Vec<PathBuf> = (1..=3).map(|n| stage.path(format!("d{n}"))).collect();
    let all: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
    begun(&shelf(&host(), &all), 3).unwrap();
    // An empty disk in the place of one that is lost is accepted by its mark.
    fs::rename(&home, &away).unwrap();
    fs::create_dir(&home).unwrap();
    begun(&stage.shelf, 4).unwrap();
}

#[test]
fn missing_damaged_foreign_unfinished_and_strange_backups_are_distinguished() {
    let stage = Stage::new(2);
    let labels: Vec<String> = (1..=7).map(|day| stage.shelve(day)).collect();
    fs::remove_dir_all(stage.path(format!("d2/db/{}", labels[0]))).unwrap();
    let cut = stage.family(1, &labels[1]);
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 9]).unwrap();
    fs::copy(stage.family(2, &labels[6]), stage.family(2, &labels[2])).unwrap();
    for n in 1..=2 {
        let name = stage.family(n, &labels[3]);
        let pending = format!("{}.longshore-new", name.display());
        fs::write(pending, &fs::read(&name).unwrap()[..60]).unwrap();
        fs::remove_file(name).unwrap();
    }
    fs::write(stage.family(1, &labels[4]), b"").unwrap();
    let other = Stage::new(2);
    let foreign = other.path("source");
    let begun = Arc::new(other.shelf.begin(BackupKind::Full, 0).unwrap());
    back_up(&host(), &foreign, &begun, "another").unwrap();
    for n in 1..=2 {
        let from = other.family(n, begun.label.as_str());
        fs::copy(from, stage.family(n, &labels[5])).unwrap();
    }
    fs::write(stage.path("d1/db/notes.txt"), b"mine").unwrap();
    fs::write(stage.path(format!("d1/db/{}/note", labels[6])), b"mine").unwrap();
    assert_eq!(
        words(&stage.shelf),
        [
            "MISSING",
            "DAMAGED",
            "foreign",
            "INCOMPLETE",
            "DAMAGED",
            "foreign",
            "complete"
        ]
    );
    let listing = stage.shelf.list().unwrap();
    assert_eq!(listing.strays.len(), 2);
    let BackupState::Missing {
        families, expected, ..
    } = &listing.sets[0].state
    else {
        panic!("{:?}", listing.sets[0]);
    };
    assert_eq!(families, &[2]);
    assert_eq!(
        expected,
        &[stage.family(2, &labels[0]).display().to_string()]
    );
    // The latest is whole; problems with the others are reported when they are requested.
    assert_eq!(stage.shelf.lease(None).unwrap().label.as_str(), labels[6]);
    for label in &labels[..6] {
        let refused = stage.shelf.lease(Some(label)).unwrap_err();
        assert!(matches!(refused, Error::NotWhole { .. }), "{refused}");
    }
    let refused = stage.shelf.lease(Some("latest-or-so")).unwrap_err();
    assert!(matches!(refused, Error::NoSuchLabel { .. }), "{refused}");
}

#[test]
fn a_latest_backup_that_lost_a_stripe_is_said_not_passed_over() {
    let stage = Stage::new(2);
    stage.shelve(1);
    let label = stage.shelve(2);
    fs::remove_file(stage.family(2, &label)).unwrap();
    let refused = stage.shelf.lease(None).unwrap_err().to_string();
    assert!(refused.contains("family-2.bak"), "{refused}");
}

#[test]
fn an_unmounted_directory_stops_everything_and_is_not_filled() {
    let stage = Stage::new(2);
    stage.shelve(1);
    fs::remove_dir_all(stage.path("d2")).unwrap();
    let begun = stage.shelf.begin(BackupKind::Full, 0).map(drop);
    let expired = stage.expire(1).map(drop);
    for refused in [begun, stage.shelf.list().map(drop), expired] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    }
    assert!(!stage.path("d2").exists());
}

/// A real file system in which one directory vanishes as soon as it was opened for the last time that is left to it, like an
/// unmounted one.
#[derive(Debug)]
struct Vanishing {
    path: PathBuf,
    opens: AtomicUsize,
}

impl Storage for Vanishing {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = Host::new().dir(path)?;
        if path == self.path && self.opens.fetch_sub(1, Ordering::Relaxed) == 1 {
            fs::rename(path, path.with_extension("gone"))?;
        }
        Ok(dir)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Host::new().create_dir_all(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Host::new().stat(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Host::new().canonical(path)
    }
}

#[test]
fn a_storage_of_which_a_directory_vanishes_is_like_any_other_before() {
    storage_suite::keeps_its_contract(&|| {
        let storage = Arc::new(Vanishing {
            path: "/nowhere".into(),
            opens: AtomicUsize::new(1),
        });
        storage_suite::Place::in_a(tempfile::tempdir().unwrap(), storage)
    });
}

/// Goal: a directory that is unmounted between the check and the first name is not created on the disk below.
#[test]
fn a_directory_that_vanishes_after_the_look_is_not_made_again() {
    let mut begun = 0;
    for (vanishing, databases) in [("d1", false), ("d2", false), ("d2", true)] {
        // The first look is at the word of `stop`.
        for opens in 1..=3 {
            begun += usize::from(begins_without(vanishing, databases, opens));
        }
    }
    assert!(begun >= 3, "{begun}");
}

/// Whether a backup begins at a target of which a directory vanishes after some looks. Otherwise it is refused.
fn begins_without(vanishing: &str, databases: bool, opens: usize) -> bool {
    let stage = Stage::new(2);
    if databases {
        stage.shelve(1);
    }
    let storage = Vanishing {
        path: stage.path(vanishing),
        opens: AtomicUsize::new(opens),
    };
    let clock = Arc::new(HostClock);
    let shelf = Shelf::new(Arc::new(storage), clock, &stage.shelf.target, "db").unwrap();
    let has_vanished = || stage.path(vanishing).with_extension("gone").exists();
    let begun = match shelf.begin(BackupKind::Full, 0) {
        Ok(begun) => begun,
        Err(refused) => {
            assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
            assert!(has_vanished() && !stage.path(vanishing).exists());
            return false;
        }
    };
    if !has_vanished() {
        // It was opened less often.
        return false;
    }
    assert!(
        !stage.path(vanishing).exists(),
        "{vanishing} was made again"
    );
    let DeviceSpec::File(path) = &begun.devices[usize::from(vanishing == "d2")] else {
        panic!("no file");
    };
    // A stripe there has no directory.
    assert!(fs::File::create(path).is_err());
    drop(begun);
    assert!(
        !stage.path(vanishing).exists(),
        "{vanishing} was made again"
    );
    true
}

#[test]
fn a_database_that_is_a_link_is_refused_by_writers_as_by_readers() {
    for linked in ["d1", "d2"] {
        let stage = Stage::new(2);
        let elsewhere = stage.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, stage.path(linked).join("db")).unwrap();
        let written = stage.shelf.begin(BackupKind::Full, 0).map(drop);
        for refused in [written, stage.shelf.list().map(drop)] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Error::NotADirectory { .. }), "{refused}");
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}

#[test]
fn a_backups_directories_are_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new(3);
    let label = stage.shelve(1);
    for n in 1..=3 {
        let dir = stage.path(format!("d{n}/db/{label}"));
        let mode = fs::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", dir.display());
    }
}

#[test]
fn a_backup_that_fails_leaves_no_directory() {
    let stage = Stage::new(2);
    let begun = stage.shelf.begin(BackupKind::Full, 0).unwrap();
    assert_eq!(words(&stage.shelf), ["writing"]);
    drop(begun);
    assert_eq!(paths(&stage.path("d1")), [PathBuf::from("db")]);
    assert_eq!(paths(&stage.path("d2")), [PathBuf::from("db")]);
}

#[test]
fn an_expire_removes_whole_sets_from_all_directories_and_nothing_else() {
    let stage = Stage::new(2);
    let labels: Vec<String> = (1..=4).map(|day| stage.shelve(day)).collect();
    fs::write(stage.path("d1/db/notes.txt"), b"mine").unwrap();
    fs::create_dir_all(stage.path("d1/db/wal/0000000100000000")).unwrap();
    fs::create_dir_all(stage.path("d1/other")).unwrap();
    let fates = stage.expire(2).unwrap();
    assert_eq!(
        fates,
        [Fate::Removed, Fate::Removed, Fate::Kept, Fate::Kept]
    );
    assert_eq!(stage.labels(), labels[2..]);
    for n in 1..=2 {
        for label in &labels[..2] {
            assert!(!stage.path(format!("d{n}/db/{label}")).exists());
        }
    }
    assert!(stage.path("d1/db/notes.txt").exists() && stage.path("d1/other").exists());
    assert!(stage.path("d1/db/wal/0000000100000000").exists());
    // There is nothing more to do; no lease of the expire is left.
    assert_eq!(stage.expire(2).unwrap(), [Fate::Kept, Fate::Kept]);
    let left = paths(&stage.path("d1/db"));
    assert!(
        left.iter().all(|p| !p.to_string_lossy().contains("lease")),
        "{left:?}"
    );
}

#[test]
fn a_leased_backup_stays_until_the_lease_ends() {
    let stage = Stage::new(2);
    let first = stage.shelve(1);
    stage.shelve(2);
    let lease = stage.shelf.lease(Some(&first)).unwrap();
    assert_eq!(stage.expire(1).unwrap(), [Fate::Kept, Fate::Kept]);
    restore(&host(), &lease.devices, &stage.path("out")).unwrap();
    drop(lease);
    assert_eq!(stage.expire(1).unwrap(), [Fate::Removed, Fate::Kept]);
}

#[test]
fn a_backup_in_progress_on_this_host_or_another_is_never_removed() {
    let stage = Stage::new(2);
    let begun = stage.shelf.begin(BackupKind::Full, 86_400_000_000).unwrap();
    let label = begun.label.to_string();
    // As its writers leave it for hours: stripes under temporary names.
    for n in 1..=2 {
        let pending = format!("{}.longshore-new", stage.family(n, &label).display());
        fs::write(pending, b"begun").unwrap();
    }
    stage.shelve(2);
    stage.shelve(3);
    assert_eq!(
        stage.expire(1).unwrap(),
        [Fate::Kept, Fate::Removed, Fate::Kept]
    );
    // From another host: its locks are not visible here, only its lease.
    let lease = fs::read_dir(stage.path(format!("d1/db/{label}")))
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.to_string_lossy().contains("lease"))
        .unwrap();
    drop(begun);
    let mut parts: Vec<String> = lease
        .to_string_lossy()
        .split('.')
        .map(str::to_owned)
        .collect();
    let boot = parts.len() - 4;
    parts[boot] = "another-hosts-boot".into();
    let lease = PathBuf::from(parts.join("."));
    fs::write(&lease, "host db2\n").unwrap();
    assert_eq!(stage.expire(1).unwrap(), [Fate::Kept, Fate::Kept]);
    assert_eq!(words(&stage.shelf), ["writing", "complete"]);
    // Dead for longer than a lease is valid.
    let old = std::time::SystemTime::now() - longshore_io::STALE * 2;
    let file = fs::File::options().write(true).open(&lease).unwrap();
    file.set_modified(old).unwrap();
    assert_eq!(words(&stage.shelf), ["INCOMPLETE", "complete"]);
    assert_eq!(stage.expire(1).unwrap(), [Fate::Removed, Fate::Kept]);
    assert!(!stage.path(format!("d1/db/{label}")).exists());
}

#[test]
fn a_writer_without_a_lease_is_known_by_its_lock() {
    let stage = Stage::new(1);
    let label = stage.shelve(1);
    stage.shelve(2);
    let name = stage.family(1, &label);
    let pending = PathBuf::from(format!("{}.longshore-new", name.display()));
    fs::write(&pending, &fs::read(&name).unwrap()[..999]).unwrap();
    fs::remove_file(&name).unwrap();
    let file = fs::File::open(&pending).unwrap();
    file.lock().unwrap();
    assert_eq!(words(&stage.shelf), ["writing", "complete"]);
    assert_eq!(stage.expire(1).unwrap(), [Fate::Kept, Fate::Kept]);
}

#[test]
fn two_expires_do_not_work_on_one_shelf() {
    use longshore_io::{HostClock, Storage};
    use longshore_repository::lease::{Lease, Use};
    let stage = Stage::new(1);
    stage.shelve(1);
    stage.shelve(2);
    let dir = longshore_io::Host::new().dir(&stage.path("d1/db")).unwrap();
    let other = Lease::take(dir, Use::Expire, &HostClock).unwrap();
    let refused = stage.expire(1).unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }), "{refused}");
    assert_eq!(stage.labels().len(), 2);
    drop(other);
    assert_eq!(stage.expire(1).unwrap(), [Fate::Removed, Fate::Kept]);
}

#[test]
fn a_target_that_was_widened_or_narrowed_still_finds_its_older_backups() {
    let stage = Stage::new(2);
    let wide = stage.shelve(1);
    let (d1, d2) = (stage.path("d1"), stage.path("d2"));
    let narrow = shelf(&host(), &[&d2]);
    assert_eq!(words(&narrow), ["MISSING"]);
    let swapped = shelf(&host(), &[&d2, &d1]);
    let lease = swapped.lease(Some(&wide)).unwrap();
    restore(&host(), &lease.devices, &stage.path("out")).unwrap();
    let one = shelf(&host(), &[&d1]);
    let single = shelve(&one, &stage.path("source"), 2);
    assert_eq!(words(&stage.shelf), ["complete", "complete"]);
    stage.shelf.lease(Some(single.as_str())).unwrap();
}

#[test]
fn backups_in_an_unreachable_directory_survive_every_expire() {
    let stage = Stage::new(2);
    let labels: Vec<String> = (1..=2).map(|day| stage.shelve(day)).collect();
    let one = shelf(&host(), &[&stage.path("d1")]);
    shelve(&one, &stage.path("source"), 3);
    let policy = Policy {
        keep_full: Some(1),
        ..Policy::default()
    };
    let never = AtomicBool::new(false);
    // Removed from the target.
    let expired = one
        .expire(&policy, &|| i64::MAX / 2, false, &never)
        .unwrap();
    assert_eq!(expired.fates, [Fate::Kept, Fate::Kept, Fate::Kept]);
    // Configured, but an empty mount point.
    fs::rename(stage.path("d2"), stage.path("away")).unwrap();
    fs::create_dir(stage.path("d2")).unwrap();
    assert_eq!(words(&stage.shelf), ["MISSING", "MISSING", "complete"]);
    assert_eq!(
        stage.expire(1).unwrap(),
        [Fate::Kept, Fate::Kept, Fate::Kept]
    );
    fs::remove_dir_all(stage.path("d2")).unwrap();
    fs::rename(stage.path("away"), stage.path("d2")).unwrap();
    let lease = stage.shelf.lease(Some(&labels[0])).unwrap();
    restore(&host(), &lease.devices, &stage.path("out")).unwrap();
    // When they are reachable again, the rules decide.
    drop(lease);
    let fates = stage.expire(1).unwrap();
    assert_eq!(fates, [Fate::Removed, Fate::Removed, Fate::Kept]);
}

/// Goal: killed expires leave no files for ever.
#[test]
fn an_expire_removes_the_leases_that_killed_ones_left_long_ago() {
    let stage = Stage::new(1);
    stage.shelve(1);
    let left = |name: &str| stage.path(format!("d1/db/.longshore-lease-{name}.b.1.x"));
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(100 * 3600);
    for name in ["expire", "read"] {
        let file = fs::File::create(left(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    stage.expire(1).unwrap();
    assert!(!left("expire").exists());
    assert!(left("read").exists(), "it is no expire's");
}

/// Goal: a backup that begins while an expire takes its lease and lists is not called one of the future.
#[test]
fn the_time_of_an_expire_is_that_after_its_listing() {
    let stage = Stage::new(1);
    stage.shelve(1);
    let asked = std::cell::Cell::new(0);
    let policy = Policy {
        keep_full: Some(1),
        ..Policy::default()
    };
    let never = AtomicBool::new(false);
    let now = || {
        asked.set(asked.get() + 1);
        // The lease is held: whoever lists comes before.
        let held = fs::read_dir(stage.path("d1/db")).unwrap();
        let held = held.flatten().filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy()
                .starts_with(".longshore-lease-expire")
        });
        assert_eq!(held.count(), 1);
        i64::MAX / 2
    };
    stage.shelf.expire(&policy, &now, false, &never).unwrap();
    assert!(asked.get() > 0);
}
