//! Goal: what was found out about a backup counts for this very backup alone, and recording it harms nothing.
//! Method: backups that the pipeline made, on a real file system, on a simulated disk with faults and power cuts, and in a
//! simulated store; then copies, clones and exchanges by the system's own tools.
//! Not covered: commands that record and show results (`longshore/tests/cli/status.rs`).

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use common::*;
use longshore_bucket::sim::Store;
use longshore_io::{Fault, HostClock, Op, SimDisk, Storage};
use longshore_repository::retention::Policy;
use longshore_repository::status::{GoodRun, LabelsThen, News, SetResult, Task, Witnessed};
use longshore_repository::{BackupKind, Fate, Label, Places, Shelf, Target};
use tempfile::TempDir;

const NOW_US: i64 = 4_000_000_000_000_000;
const HOUR_US: i64 = 3600 * 1_000_000;
const RECORD: &str = ".longshore-status-verify";

fn now() -> Witnessed {
    Witnessed::now(1_000_000_000)
}

fn record(shelf: &Shelf, labels: &[Label], wrong: Option<&str>) {
    let identities = shelf.identities(labels).unwrap();
    assert_eq!(identities.len(), labels.len());
    let result = |identity| SetResult::new(identity, &now(), wrong);
    let sets = identities.iter().map(result).collect();
    let news = News {
        sets,
        ..News::default()
    };
    shelf.record(Task::Verify, &news).unwrap();
}

/// For each backup, whether it was found good; `None`: nobody knows.
fn results(shelf: &Shelf) -> Vec<Option<bool>> {
    let status = shelf.status().unwrap();
    assert_eq!(status.unreadable, Vec::<String>::new());
    let sets = shelf.list().unwrap().sets;
    sets.iter()
        .map(|set| Some(status.of_set(Task::Verify, set, NOW_US)?.good))
        .collect()
}

struct Stage {
    temp: TempDir,
    shelf: Shelf,
}

impl Stage {
    fn new() -> Stage {
        let temp = tempfile::tempdir().unwrap();
        for dir in ["d1", "d2", "source"] {
            fs::create_dir(temp.path().join(dir)).unwrap();
        }
        fs::write(temp.path().join("source/file"), [7; 100_000]).unwrap();
        let shelf = shelf_at(&temp, &["d1", "d2"]);
        Stage { temp, shelf }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn shelve(&self, day: i64) -> Label {
        shelve(&self.shelf, &self.path("source"), day)
    }

    fn at(&self, directories: &[&str]) -> Shelf {
        shelf_at(&self.temp, directories)
    }
}

fn shelf_at(temp: &TempDir, directories: &[&str]) -> Shelf {
    let paths: Vec<PathBuf> = directories.iter().map(|d| temp.path().join(d)).collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    shelf(&host(), &paths)
}

fn run(program: &str, args: &[&Path]) {
    let done = Command::new(program).arg("-a").args(args).status();
    assert!(done.unwrap().success(), "{program} {args:?}");
}

/// Goal: a backup of which only the label is left is no run that never ended, as far as anything shows it.
#[test]
fn a_backup_that_lost_all_its_stripes_is_lost_and_kept_where_a_record_knows_it() {
    let stage = Stage::new();
    let labels = [1, 2, 3, 4].map(|day| stage.shelve(day));
    record(&stage.shelf, &labels[..1], None);
    record(&stage.shelf, &labels[3..], None);
    let empty = |label: &Label| {
        for family in 1..=2 {
            let dir = stage.path(&format!("d{family}/db/{label}"));
            fs::remove_file(dir.join(format!("family-{family}.bak"))).unwrap();
        }
    };
    empty(&labels[0]);
    empty(&labels[1]);
    assert_eq!(
        words(&stage.shelf),
        ["MISSING", "INCOMPLETE", "complete", "complete"]
    );
    let listing = stage.shelf.list().unwrap();
    let bare: Vec<bool> = listing.sets.iter().map(|set| set.is_bare_name()).collect();
    assert_eq!(bare, [false, true, false, false]);
    let expire = || {
        let policy = Policy {
            keep_full: Some(1),
            ..Policy::default()
        };
        let never = AtomicBool::new(false);
        let expired = stage.shelf.expire(&policy, &|| NOW_US, false, &never);
        expired.unwrap().fates
    };
    let (kept, removed) = (Fate::Kept, Fate::Removed);
    let expected = [kept.clone(), removed.clone(), removed, kept.clone()];
    assert_eq!(expire(), expected);
    // The newest is refused, and no older one is taken.
    stage.shelve(5);
    empty(&labels[3]);
    let newest = stage.shelve(6);
    record(&stage.shelf, std::slice::from_ref(&newest), Some("a block"));
    empty(&newest);
    let refused = stage.shelf.lease(None).unwrap_err().to_string();
    assert!(refused.contains("all its stripes are missing"), "{refused}");
    assert!(refused.contains(newest.as_str()), "{refused}");
    assert_eq!(expire(), [kept.clone(), kept.clone(), kept.clone(), kept]);
    // A run that was killed before its first stripe leaves its lease.
    let begun = stage.shelf.begin(BackupKind::Full, 0).unwrap();
    let dir = stage.path(&format!("d1/db/{}", begun.label));
    let lease = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let left = stage.path("lease");
    fs::copy(&lease, &left).unwrap();
    drop(begun);
    fs::create_dir_all(&dir).unwrap();
    fs::copy(&left, &lease).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    let file = fs::File::options().write(true).open(&lease).unwrap();
    file.set_modified(old).unwrap();
    let listing = stage.shelf.list().unwrap();
    let killed = &listing.sets[0];
    assert_eq!(killed.state.word(), "INCOMPLETE", "{killed:?}");
    assert!(!killed.is_bare_name());
}

#[test]
fn a_result_counts_for_the_very_backup_alone() {
    let stage = Stage::new();
    let labels = [1, 2].map(|day| stage.shelve(day));
    assert_eq!(results(&stage.shelf), [None, None]);
    record(&stage.shelf, &labels[..1], None);
    assert_eq!(results(&stage.shelf), [Some(true), None]);
    // By another name of the target, with the directories in another order or one more, it is the same backup.
    fs::create_dir(stage.path("d3")).unwrap();
    assert_eq!(results(&stage.at(&["d2", "d3", "d1"])), [Some(true), None]);
    // A clone has the same names, sets, bytes and times.
    for dir in ["d1", "d2"] {
        let to = format!("clone-{dir}");
        run("cp", &[&stage.path(dir), &stage.path(&to)]);
    }
    assert!(stage.path("clone-d1/db").join(RECORD).exists());
    assert_eq!(results(&stage.at(&["clone-d1", "clone-d2"])), [None, None]);
    // A stripe that comes back from a copy of itself is another one.
    let stripe = |dir: &str| stage.path(dir).join("db").join(labels[0].as_str());
    let (one, copy) = (
        stripe("d1").join("family-1.bak"),
        stripe("clone-d1").join("family-1.bak"),
    );
    let before = fs::metadata(&one).unwrap();
    fs::remove_file(&one).unwrap();
    run("cp", &[&copy, &one]);
    assert_eq!(fs::metadata(&one).unwrap().mtime(), before.mtime());
    assert_eq!(results(&stage.shelf), [None, None]);
    record(&stage.shelf, &labels, None);
    assert_eq!(results(&stage.shelf), [Some(true), Some(true)]);
    // The names of both are exchanged: the labels have no say.
    for dir in ["d1/db", "d2/db"] {
        let path = |name: &str| stage.path(dir).join(name);
        fs::rename(path(labels[0].as_str()), path("other")).unwrap();
        fs::rename(path(labels[1].as_str()), path(labels[0].as_str())).unwrap();
        fs::rename(path("other"), path(labels[1].as_str())).unwrap();
    }
    record(&stage.shelf, &labels[..1], Some("a block"));
    let listing = stage.shelf.list().unwrap();
    let damaged = listing.sets.iter().zip(results(&stage.shelf));
    let damaged: Vec<_> = damaged.filter(|(_, good)| *good == Some(false)).collect();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].0.label, labels[0]);
    // Bytes that were written over, with the times set back, are not the same either.
    let path = stripe("d1").join("family-1.bak");
    let bytes = fs::read(&path).unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    file.set_modified(time).unwrap();
    assert_eq!(results(&stage.shelf).iter().flatten().count(), 1);
}

#[test]
fn results_for_labels_that_are_gone_are_left_out_and_the_record_is_no_stray() {
    let stage = Stage::new();
    let labels = [1, 2].map(|day| stage.shelve(day));
    record(&stage.shelf, &labels, None);
    for dir in ["d1/db", "d2/db"] {
        fs::remove_dir_all(stage.path(dir).join(labels[0].as_str())).unwrap();
    }
    assert_eq!(results(&stage.shelf), [Some(true)]);
    let path = stage.path("d1/db").join(RECORD);
    let names = |label: &Label| fs::read_to_string(&path).unwrap().contains(label.as_str());
    assert!(names(&labels[0]));
    let news = |at_us| News {
        labels: Some(LabelsThen {
            labels: [labels[1].clone()].into(),
            at_us,
        }),
        ..News::default()
    };
    // Another host may have made that backup, and verified it, after the list was read.
    let listed = stage.shelf.list().unwrap().at_us;
    assert!(listed > now().at_us + HOUR_US, "it is this host's time");
    for at_us in [now().at_us, now().at_us + HOUR_US] {
        stage.shelf.record(Task::Verify, &news(at_us)).unwrap();
        assert!(names(&labels[0]) && names(&labels[1]));
    }
    let news = news(listed);
    stage.shelf.record(Task::Verify, &news).unwrap();
    assert!(!names(&labels[0]) && names(&labels[1]));
    assert!(stage.shelf.list().unwrap().strays.is_empty());
    // Nothing changes, so nothing is written.
    let before = fs::metadata(&path).unwrap().ino();
    stage.shelf.record(Task::Verify, &news).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
}

/// Goal: a result of a host whose clock was ahead ages, also while other results are written to its record.
#[test]
fn a_result_that_is_dated_ahead_is_as_old_as_its_own_record() {
    let stage = Stage::new();
    let labels = [1, 2].map(|day| stage.shelve(day));
    let host_us = || {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_micros() as i64
    };
    let record_at = |label: &Label, at_us| {
        let identities = stage.shelf.identities(std::slice::from_ref(label));
        let by = Witnessed::now(at_us);
        let news = News {
            sets: vec![SetResult::new(&identities.unwrap()[0], &by, None)],
            ..News::default()
        };
        stage.shelf.record(Task::Verify, &news).unwrap();
    };
    record_at(&labels[0], host_us() + 240 * HOUR_US);
    let after_us = host_us();
    // Then the clock is right again.
    for _ in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        record_at(&labels[1], host_us());
    }
    let status = stage.shelf.status().unwrap();
    let listing = stage.shelf.list().unwrap();
    let found = listing.sets.iter().find(|set| set.label == labels[0]);
    let result = status.of_set(Task::Verify, found.unwrap(), host_us());
    let at_us = result.unwrap().by.at_us;
    assert!(at_us <= after_us + 20_000, "{}", at_us - after_us);
}

/// Goal: what is left of a backup tells whether it was removed or lost.
#[test]
fn a_backup_of_which_anything_is_left_was_not_removed() {
    let stage = Stage::new();
    let labels = [1, 2, 3, 4].map(|day| stage.shelve(day));
    let is_removed = |label: &Label| stage.shelf.is_removed(label).unwrap();
    assert!(!labels.iter().any(is_removed));
    let at = |dir: &str, label: &Label| stage.path(dir).join("db").join(label.as_str());
    // All stripes, one stripe, all of it, all of it by an expire that was killed.
    fs::remove_file(at("d1", &labels[0]).join("family-1.bak")).unwrap();
    fs::remove_file(at("d2", &labels[0]).join("family-2.bak")).unwrap();
    fs::remove_file(at("d1", &labels[1]).join("family-1.bak")).unwrap();
    for dir in ["d1", "d2"] {
        fs::remove_dir_all(at(dir, &labels[2])).unwrap();
    }
    let renamed = format!("{}.removing", labels[3]);
    fs::rename(at("d1", &labels[3]), stage.path("d1/db").join(renamed)).unwrap();
    let removed: Vec<bool> = labels.iter().map(is_removed).collect();
    assert_eq!(removed, [false, false, true, true]);
}

/// Goal: whatever has the record's name is never followed nor written to.
#[test]
fn what_has_the_name_of_a_record_is_refused_and_replaced_and_never_followed() {
    let stage = Stage::new();
    let label = [stage.shelve(1)];
    let (path, other) = (stage.path("d1/db").join(RECORD), stage.path("other"));
    let refused = |why: &str| {
        let status = stage.shelf.status().unwrap();
        assert_eq!(status.unreadable.len(), 1, "{why}: {status:?}");
        let told = &status.unreadable[0];
        assert!(told.contains(RECORD) && told.contains(why), "{told}");
        assert!(!told.contains("secret"), "{told}");
        record(&stage.shelf, &label, None);
        assert_eq!(results(&stage.shelf), [Some(true)]);
        fs::remove_file(&path).unwrap();
    };
    let secret = b"{\"version\":1,\"sets\":\"secret\"}";
    fs::write(&other, secret).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    refused("regular file");
    std::os::unix::fs::symlink(&path, &path).unwrap();
    refused("regular file");
    fs::hard_link(&other, &path).unwrap();
    refused("not a record");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    refused("regular file");
    fs::write(&path, vec![b' '; 2 << 20]).unwrap();
    refused("regular file");
    assert_eq!(fs::read(&other).unwrap(), secret);
    // A record of a newer version is not written over.
    fs::write(&path, b"{\"version\":9}").unwrap();
    let news = News {
        good: Some(GoodRun {
            by: now(),
            began_us: now().at_us,
            backups: None,
            wal: true,
            to: None,
        }),
        ..News::default()
    };
    let error = stage.shelf.record(Task::Verify, &news).unwrap_err();
    assert!(error.to_string().contains("newer version"), "{error}");
    fs::remove_file(&path).unwrap();
    // A directory cannot be replaced: the record fails, and the backups are as they were.
    fs::create_dir(&path).unwrap();
    let identities = stage.shelf.identities(&label).unwrap();
    let news = News {
        sets: vec![SetResult::new(&identities[0], &now(), None)],
        ..News::default()
    };
    stage.shelf.record(Task::Verify, &news).unwrap_err();
    assert_eq!(stage.shelf.status().unwrap().unreadable.len(), 1);
    let left = paths(&stage.path("d1/db"));
    let is_new = |path: &&PathBuf| path.to_str().unwrap().contains(".new-");
    assert_eq!(left.iter().find(is_new), None);
    assert_eq!(words(&stage.shelf), ["complete"]);
}

/// Goal: hosts that record at one time may lose each other's results, and never believe one that nobody found.
#[test]
fn many_that_record_at_one_time_leave_a_whole_record() {
    let stage = Stage::new();
    let labels: Vec<Label> = (1..=4).map(|day| stage.shelve(day)).collect();
    std::thread::scope(|scope| {
        for (i, label) in labels.iter().enumerate() {
            let shelf = stage.at(&["d1", "d2"]);
            scope.spawn(move || {
                for _ in 0..20 {
                    let wrong = (i % 2 == 1).then_some("a block");
                    record(&shelf, std::slice::from_ref(label), wrong);
                }
            });
        }
    });
    let found = results(&stage.shelf);
    for (i, good) in found.iter().enumerate() {
        assert!(good.is_none_or(|good| good == (i % 2 == 0)), "{found:?}");
    }
    assert!(found.iter().any(Option::is_some));
    let left = paths(&stage.path("d1/db"));
    let is_new = |path: &&PathBuf| path.to_str().unwrap().contains(".new-");
    assert_eq!(left.iter().find(is_new), None);
}

#[test]
fn a_writer_that_was_killed_leaves_nothing_for_long() {
    let stage = Stage::new();
    let label = [stage.shelve(1)];
    let left = |age: u64| {
        let path = stage.path("d1/db").join(format!("{RECORD}.new-{age}"));
        fs::write(&path, b"{").unwrap();
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
        path
    };
    let (fresh, old) = (left(60), left(3600));
    assert!(stage.shelf.list().unwrap().strays.is_empty());
    record(&stage.shelf, &label, None);
    assert!(fresh.exists(), "it may be being written");
    assert!(!old.exists());
}

fn disk(seed: u64) -> (SimDisk, Shelf, Label) {
    let disk = SimDisk::new(seed);
    for dir in ["/t", "/u"] {
        disk.create_dir_all(Path::new(dir)).unwrap();
    }
    disk.write_file("/source/file", &[5; 7000]).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let shelf = shelf(&storage, &[Path::new("/t"), Path::new("/u")]);
    let label = shelve(&shelf, Path::new("/source"), 1);
    disk.settle();
    (disk, shelf, label)
}

fn news(shelf: &Shelf, label: &Label, wrong: Option<&str>) -> News {
    let identities = shelf.identities(std::slice::from_ref(label)).unwrap();
    News {
        sets: vec![SetResult::new(&identities[0], &now(), wrong)],
        ..News::default()
    }
}

/// Goal: a power cut while a result is recorded leaves the earlier record or the new one, and the new one once that was
/// told. Without any of the syncs this test fails.
#[test]
fn a_power_cut_at_any_step_leaves_the_record_before_or_after() {
    let (whole, shelf, label) = disk(0);
    let good = news(&shelf, &label, None);
    shelf.record(Task::Verify, &good).unwrap();
    let before = whole.steps();
    let bad = news(&shelf, &label, Some("a block"));
    shelf.record(Task::Verify, &bad).unwrap();
    let steps = whole.steps() - before;
    assert!(steps >= 4, "{steps}");
    let lost_with = |forgotten: Option<Op>| {
        (0..=steps).any(|step| {
            let (disk, shelf, label) = disk(step);
            shelf
                .record(Task::Verify, &news(&shelf, &label, None))
                .unwrap();
            disk.settle();
            let bad = news(&shelf, &label, Some("a block"));
            disk.cut_power_at(disk.steps() + step);
            if let Some(op) = forgotten {
                disk.inject(Fault::forgotten_sync().on(op));
            }
            let told = shelf.record(Task::Verify, &bad).is_ok();
            disk.images(9).iter().any(|image| {
                let bytes = image
                    .read_file(format!("/t/db/{RECORD}"))
                    .unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                let is_good = text.contains("\"good\":true");
                let is_bad = text.contains("\"good\":false");
                let is_whole = text.ends_with("}\n") && (is_good ^ is_bad);
                !is_whole || (told && !is_bad)
            })
        })
    };
    assert!(!lost_with(None));
    assert!(lost_with(Some(Op::Sync)));
    assert!(lost_with(Some(Op::SyncDir)));
}

#[test]
fn a_full_or_failing_disk_leaves_the_earlier_record_and_nothing_else() {
    let (disk, shelf, label) = disk(1);
    shelf
        .record(Task::Verify, &news(&shelf, &label, None))
        .unwrap();
    let count = disk.paths().len();
    let bad = news(&shelf, &label, Some("a block"));
    for op in [Op::Write, Op::Sync, Op::Rename] {
        for errno in [libc::ENOSPC, libc::EIO, libc::EROFS, libc::EACCES] {
            disk.inject(Fault::errno(errno).on(op));
            shelf.record(Task::Verify, &bad).unwrap_err();
            disk.heal();
            assert_eq!(results(&shelf), [Some(true)], "{op:?} {errno}");
            assert_eq!(disk.paths().len(), count, "{op:?} {errno}");
        }
    }
    shelf.record(Task::Verify, &bad).unwrap();
    assert_eq!(results(&shelf), [Some(false)]);
}

/// Goal: in a store, a copy under another prefix and an object that was written again have no result, and a store that
/// takes no more writes keeps the record.
#[test]
fn in_a_store_a_result_counts_for_the_very_objects_alone() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("source")).unwrap();
    fs::write(temp.path().join("source/file"), [7; 100_000]).unwrap();
    let store = Store::default();
    let name = store.install().unwrap();
    let at = |prefixes: &[&str]| {
        let texts: Vec<String> = prefixes.iter().map(|p| format!("s3://{name}{p}")).collect();
        let target = Target {
            name: "t".into(),
            places: Places::buckets(&texts).unwrap(),
        };
        Shelf::new(host(), Arc::new(HostClock), &target, "db").unwrap()
    };
    let shelf = at(&["/p", "/q"]);
    let labels = [1, 2].map(|day| shelve(&shelf, &temp.path().join("source"), day));
    record(&shelf, &labels, None);
    assert_eq!(results(&shelf), [Some(true), Some(true)]);
    assert_eq!(results(&at(&["/q", "/p"])), [Some(true), Some(true)]);
    let keys = store.keys().into_iter();
    let objects: Vec<(String, Vec<u8>)> = keys
        .filter_map(|key| Some((key.clone(), store.object(&key)?)))
        .collect();
    for (key, bytes) in &objects {
        store.put(&format!("copy/{key}"), bytes);
    }
    assert_eq!(results(&at(&["/copy/p", "/copy/q"])), [None, None]);
    store.pass(60);
    let stripe = format!("p/db/{}/family-1.bak", labels[0]);
    let (_, bytes) = objects.iter().find(|(key, _)| *key == stripe).unwrap();
    store.put(&stripe, bytes);
    assert_eq!(results(&shelf), [None, Some(true)]);
    store.put(&format!("p/db/{RECORD}"), &vec![b'['; 3 << 20]);
    assert_eq!(shelf.status().unwrap().unreadable.len(), 1);
    record(&shelf, &labels[..1], None);
    assert_eq!(results(&shelf), [Some(true), None]);
    let begun = shelf.begin(BackupKind::Full, 0).unwrap();
    drop(begun);
    assert!(shelf.list().unwrap().strays.is_empty());
}
