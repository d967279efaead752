//! Goal: shelves in an object store keep the promises of directories, where there are no locks and no renames.
//! Method: the shipped client and the shipped pipeline over a simulated store; a process that is killed makes no
//! request more; one that acts meanwhile acts between two requests of another, at each of them in turn.

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use longshore_bucket::Address;
use longshore_bucket::sim::{Act, Asked, Habits, Store};
use longshore_io::HostClock;
use longshore_repository::retention::Policy;
use longshore_repository::{BackupKind, BackupState, Error, Fate, Places, Shelf, Target, target};
use tempfile::TempDir;

const STALE_S: i64 = 15 * 60;

struct Stage {
    temp: Arc<TempDir>,
    store: Store,
    name: String,
    shelf: Shelf,
}

fn shelf_of(name: &str, prefixes: &[&str]) -> Shelf {
    let texts: Vec<String> = prefixes.iter().map(|p| format!("s3://{name}{p}")).collect();
    let target = Target {
        name: "t".into(),
        places: Places::buckets(&texts).unwrap(),
    };
    Shelf::new(host(), Arc::new(HostClock), &target, "db").unwrap()
}

fn policy(keep: u32) -> Policy {
    Policy {
        keep_full: Some(keep),
        ..Policy::default()
    }
}

fn expire(shelf: &Shelf, keep: u32) -> Result<Vec<Fate>, Error> {
    let never = AtomicBool::new(false);
    let expired = shelf.expire(&policy(keep), &|| i64::MAX / 2, false, &never)?;
    Ok(expired.fates)
}

impl Stage {
    fn new() -> Stage {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("source")).unwrap();
        std::fs::write(temp.path().join("source/file"), [7; 100_000]).unwrap();
        let store = Store::default();
        let name = store.install().unwrap();
        Stage {
            temp: Arc::new(temp),
            store,
            shelf: shelf_of(&name, &["/p", "/p"]),
            name,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn shelve(&self, day: i64) -> String {
        shelve(&self.shelf, &self.path("source"), day).to_string()
    }

    fn try_to_shelve(&self, day: i64) -> Option<()> {
        let begun = self.shelf.begin(BackupKind::Full, day * 86_400_000_000);
        let begun = Arc::new(begun.ok()?);
        back_up(&host(), &self.path("source"), &begun, "db").ok()?;
        begun.confirm().ok()
    }

    fn words(&self) -> Vec<&'static str> {
        words(&self.shelf)
    }

    fn labels(&self) -> Vec<String> {
        let sets = self.shelf.list().unwrap().sets.into_iter();
        sets.map(|set| set.label.to_string()).collect()
    }

    fn keys_of(&self, label: &str) -> Vec<String> {
        let keys = self.store.keys().into_iter();
        keys.filter(|key| key.contains(label)).collect()
    }

    /// From now on, a process makes `count` requests more and is then killed.
    fn kill_after(&self, count: usize) {
        let mut left = count;
        self.store.script(move |_| match left {
            0 => Act::LoseRequest,
            _ => {
                left -= 1;
                Act::Pass
            }
        });
    }

    fn requests(&self) -> usize {
        self.store.asked().len()
    }

    fn assert_whole(&self, label: &str, at: &str) {
        let lease = self.shelf.lease(Some(label));
        let lease = lease.unwrap_or_else(|e| panic!("{at}: {label}: {e}"));
        assert_readable(&lease.devices, &self.path("out"), at);
    }

    /// Every set that looks complete is complete, and no set looks as if it had lost something.
    fn assert_honest(&self, at: &str) {
        for set in self.shelf.list().unwrap().sets {
            match &set.state {
                BackupState::Complete(_) => self.assert_whole(set.label.as_str(), at),
                BackupState::Abandoned | BackupState::Removing | BackupState::Writing { .. } => {}
                state => panic!("{at}: {}: {}", set.label, state.text()),
            }
        }
    }

    /// What is left is this one set: two stripes.
    fn assert_only(&self, label: &str, at: &str) {
        let keys = self.store.keys();
        let own = (1..=2).map(|n| format!("p/db/{label}/family-{n}.bak"));
        assert_eq!(keys, own.collect::<Vec<_>>(), "{at}");
    }
}

fn assert_readable(devices: &[longshore_media::DeviceSpec], out: &Path, at: &str) {
    restore(&host(), devices, out).unwrap_or_else(|e| panic!("{at}: {e}"));
    assert_eq!(
        std::fs::read(out.join("file")).unwrap(),
        [7; 100_000],
        "{at}"
    );
}

#[test]
fn a_backup_has_one_object_for_each_family_below_prefix_database_and_label() {
    let stage = Stage::new();
    let label = stage.shelve(1);
    stage.assert_only(&label, "after a backup");
    assert_eq!(stage.words(), ["complete"]);
    let lease = stage.shelf.lease(None).unwrap();
    assert_eq!(lease.label.as_str(), label);
    assert_readable(&lease.devices, &stage.path("out"), "");
    assert_eq!(stage.keys_of("lease-read").len(), 1);
    drop(lease);
    stage.assert_only(&label, "after a restore");
    let names = stage.shelf.target.databases(&*host()).unwrap();
    assert_eq!(names, ["db"]);
}

#[test]
fn stripes_in_several_buckets_and_prefixes_make_one_set() {
    let stage = Stage::new();
    let other = Store::default();
    let texts = [
        format!("s3://{}", stage.name),
        format!("s3://{}/a b/c", other.install().unwrap()),
        format!("s3://{}/p", stage.name),
    ];
    let target = Target {
        name: "t".into(),
        places: Places::buckets(&texts).unwrap(),
    };
    let shelf = Shelf::new(host(), Arc::new(HostClock), &target, "db").unwrap();
    let labels: Vec<_> = (1..=2)
        .map(|day| shelve(&shelf, &stage.path("source"), day))
        .collect();
    let first = &labels[0];
    assert!(
        stage
            .store
            .object(&format!("db/{first}/family-1.bak"))
            .is_some()
    );
    assert!(
        other
            .object(&format!("a b/c/db/{first}/family-2.bak"))
            .is_some()
    );
    assert!(
        stage
            .store
            .object(&format!("p/db/{first}/family-3.bak"))
            .is_some()
    );
    let lease = shelf.lease(Some(first.as_str())).unwrap();
    assert_readable(&lease.devices, &stage.path("out"), "");
    assert_eq!(expire(&shelf, 1).unwrap(), [Fate::Kept, Fate::Kept]);
    drop(lease);
    assert_eq!(expire(&shelf, 1).unwrap(), [Fate::Removed, Fate::Kept]);
    assert_eq!(stage.keys_of(first.as_str()), [""; 0]);
    assert_eq!(
        other.keys(),
        [format!("a b/c/db/{}/family-2.bak", labels[1])]
    );
}

#[test]
fn missing_damaged_foreign_unfinished_and_strange_backups_are_distinguished() {
    let stage = Stage::new();
    let labels: Vec<String> = (1..=6).map(|day| stage.shelve(day)).collect();
    let key = |label: usize, n: u16| format!("p/db/{}/family-{n}.bak", labels[label]);
    let bytes = |label: usize, n: u16| stage.store.object(&key(label, n)).unwrap();
    stage.store.lose(&key(0, 2));
    let cut = bytes(1, 1);
    stage.store.put(&key(1, 1), &cut[..cut.len() - 9]);
    stage.store.put(&key(2, 2), &bytes(5, 2));
    // Its writer was killed between two completions.
    stage.store.lose(&key(3, 1));
    let lease = format!("p/db/{}/.longshore-lease-backup.boot.1.id", labels[3]);
    stage.store.put(&lease, b"host db2\n");
    stage.store.put(&key(4, 1), b"");
    stage.store.put("p/db/notes.txt", b"mine");
    stage.store.put("p/db/notes/more", b"mine");
    stage
        .store
        .put(&format!("p/db/{}/note", labels[5]), b"mine");
    stage.store.put("p/db2/other", b"mine");
    assert_eq!(stage.words()[3], "writing");
    stage.store.pass(STALE_S + 1);
    assert_eq!(
        stage.words(),
        [
            "MISSING",
            "DAMAGED",
            "foreign",
            "INCOMPLETE",
            "DAMAGED",
            "complete"
        ]
    );
    let listing = stage.shelf.list().unwrap();
    let name = &stage.name;
    let strays = [
        format!("s3://{name}/p/db/{}/note", labels[5]),
        format!("s3://{name}/p/db/notes"),
        format!("s3://{name}/p/db/notes.txt"),
    ];
    assert_eq!(listing.strays, strays);
    let told = listing.sets[0].state.text();
    let expected = format!("s3://{name}/{}", key(0, 2));
    assert!(told.contains(&expected), "{told}");
    // A set that lost a stripe is reported, not skipped.
    stage.store.lose(&key(5, 2));
    let refused = stage.shelf.lease(None).unwrap_err();
    assert!(matches!(refused, Error::NotWhole { .. }), "{refused}");
}

/// Goal: whatever request a backup is killed before, what it leaves is a whole set or says that it is none, and a later
/// expire removes all of it.
#[test]
fn a_backup_that_is_killed_anywhere_leaves_a_whole_set_or_none_and_nothing_for_ever() {
    for habits in [
        Habits::default(),
        Habits {
            overwrites: true,
            tells_no_time: true,
            portion: 2,
        },
    ] {
        let requests = {
            let stage = Stage::new();
            stage.shelve(2);
            stage.requests()
        };
        assert!(requests > 10);
        for kill in 0..=requests {
            let at = format!("killed before request {kill}, {habits:?}");
            let stage = Stage::new();
            stage.store.habits(habits);
            let old = stage.shelve(1);
            stage.kill_after(kill);
            let done = stage.try_to_shelve(2).is_some();
            stage.store.heal();
            assert!(
                !done || kill + 2 >= requests,
                "{at}: it was reported as done"
            );
            stage.assert_honest(&at);
            stage.store.pass(STALE_S + 1);
            stage.assert_honest(&at);
            stage.assert_whole(&old, &at);
            if done {
                assert_eq!(stage.words(), ["complete", "complete"], "{at}");
            }
            let last = stage.shelve(3);
            expire(&stage.shelf, 1).unwrap_or_else(|e| panic!("{at}: {e}"));
            stage.assert_only(&last, &at);
            // Without the store's time, no upload is known to be old.
            if !habits.tells_no_time {
                assert_eq!(stage.store.uploads(), [], "{at}");
            }
        }
    }
}

/// Goal: what a dead writer sent and the store does after an expire has looked makes no set that looks whole and is not, and the
/// next expire removes it.
#[test]
fn a_request_that_arrives_after_an_expire_leaves_nothing_for_ever() {
    let requests = {
        let stage = Stage::new();
        stage.shelve(2);
        stage.requests()
    };
    for late in 0..requests {
        let at = format!("request {late} arrives late");
        let stage = Stage::new();
        stage
            .store
            .script(move |asked| match asked.number.cmp(&late) {
                std::cmp::Ordering::Less => Act::Pass,
                std::cmp::Ordering::Equal => Act::Late(usize::MAX),
                std::cmp::Ordering::Greater => Act::LoseRequest,
            });
        let _died = stage.try_to_shelve(2);
        stage.store.heal();
        stage.store.pass(STALE_S + 1);
        let last = stage.shelve(3);
        expire(&stage.shelf, 1).unwrap_or_else(|e| panic!("{at}: {e}"));
        stage.store.arrive();
        stage.assert_honest(&at);
        stage.assert_whole(&last, &at);
        stage.store.pass(STALE_S + 1);
        expire(&stage.shelf, 1).unwrap_or_else(|e| panic!("{at}: {e}"));
        stage.assert_only(&last, &at);
        assert_eq!(stage.store.uploads(), [], "{at}");
    }
}

/// Goal: only uploads of backups that have ended are aborted, and what the store refuses stops no expire. A look
/// counts the same ones, and aborts none.
#[test]
fn an_upload_is_aborted_when_it_is_old_and_its_backup_has_ended() {
    let stage = Stage::new();
    stage.shelve(1);
    let never = AtomicBool::new(false);
    let uploads = || {
        let expired = stage
            .shelf
            .expire(&policy(1), &|| i64::MAX / 2, false, &never);
        let uploads = expired.unwrap().uploads;
        (uploads.aborted, uploads.kept_because)
    };
    let begun = stage
        .shelf
        .begin(BackupKind::Full, 172_800_000_000)
        .unwrap();
    let (address, key) = match &begun.devices[0] {
        longshore_media::DeviceSpec::Bucket(address) => {
            (address.clone(), address.parts().unwrap().2)
        }
        other => panic!("{other:?}"),
    };
    let (bucket, _) = address.place(&*host()).unwrap();
    let upload = bucket.begin(&key, String::new(), &never).unwrap();
    let strange = longshore_bucket::Key::parse("p/db/not-ours/family-1.bak").unwrap();
    let strange = bucket.begin(&strange, String::new(), &never).unwrap();
    let counted = || stage.shelf.left_uploads().unwrap();
    assert_eq!(counted(), Some(0), "it is young");
    assert_eq!(uploads(), (0, None), "it is young");
    stage.store.pass(STALE_S + 1);
    // The backup still renews its lease.
    let leases: Vec<_> = stage
        .store
        .keys()
        .into_iter()
        .filter(|k| k.contains("longshore-lease"))
        .collect();
    assert_eq!(leases.len(), 1, "{:?}", stage.store.keys());
    let content = stage.store.object(&leases[0]).unwrap();
    stage.store.put(&leases[0], &content);
    assert_eq!(counted(), Some(0), "its backup is alive");
    assert_eq!(uploads(), (0, None), "its backup is alive");
    std::mem::forget(upload);
    drop(begun);
    stage.store.script(
        |asked| match asked.query.contains("uploads") && asked.method == "GET" {
            true => Act::Refuse(403, "AccessDenied"),
            false => Act::Pass,
        },
    );
    assert_eq!(counted(), None);
    let (aborted, why) = uploads();
    assert!(aborted == 0 && why.unwrap().contains("AccessDenied"));
    stage.store.heal();
    assert_eq!(counted(), Some(1));
    assert_eq!(uploads(), (1, None));
    assert_eq!(counted(), Some(0));
    let left: Vec<_> = stage.store.uploads().into_iter().map(|u| u.0).collect();
    assert_eq!(left, ["p/db/not-ours/family-1.bak"]);
    drop(strange);
}

/// Goal: whatever request an expire is killed before, no set is half there under its name, the kept one is whole, and
/// the next expire ends what was begun.
#[test]
fn an_expire_that_is_killed_anywhere_is_ended_by_the_next_one() {
    for habits in [
        Habits::default(),
        Habits {
            overwrites: true,
            tells_no_time: true,
            portion: 3,
        },
    ] {
        let requests = {
            let stage = Stage::new();
            (1..=3).for_each(|day| drop(stage.shelve(day)));
            let before = stage.requests();
            expire(&stage.shelf, 1).unwrap();
            stage.requests() - before
        };
        for kill in 0..=requests {
            let at = format!("killed before request {kill}, {habits:?}");
            let stage = Stage::new();
            stage.store.habits(habits);
            let labels: Vec<String> = (1..=3).map(|day| stage.shelve(day)).collect();
            stage.kill_after(kill);
            let _ended = expire(&stage.shelf, 1);
            stage.store.heal();
            stage.assert_honest(&at);
            stage.store.pass(STALE_S + 1);
            stage.assert_honest(&at);
            expire(&stage.shelf, 1).unwrap_or_else(|e| panic!("{at}: {e}"));
            stage.assert_only(&labels[2], &at);
        }
    }
}

/// Goal: where listings lag behind what is there, an expire removes nothing that stays, and no set looks whole that is not.
#[test]
fn listings_that_lag_make_no_set_whole_and_remove_none_that_stays() {
    let stage = Stage::new();
    let first = stage.shelve(1);
    // A new backup is not listed yet.
    stage.store.freeze_listings();
    let second = stage.shelve(2);
    assert_eq!(stage.labels(), [first.as_str()]);
    stage.assert_honest("the new one is not listed");
    let fates = expire(&stage.shelf, 1).unwrap();
    assert!(
        fates
            .iter()
            .all(|fate| !format!("{fate:?}").contains("Removed")),
        "{fates:?}"
    );
    stage.store.thaw_listings();
    assert_eq!(stage.words(), ["complete", "complete"]);
    stage.assert_whole(&first, "kept");
    stage.assert_whole(&second, "new");
    // A removed one still is.
    stage.store.freeze_listings();
    expire(&stage.shelf, 1).unwrap();
    let listing = stage.shelf.list().unwrap();
    for set in &listing.sets {
        let is_complete = matches!(set.state, BackupState::Complete(_));
        assert_eq!(
            is_complete,
            set.label.as_str() == second,
            "{}: {}",
            set.label,
            set.state.text()
        );
    }
    let lease = stage.shelf.lease(None).unwrap();
    assert_readable(&lease.devices, &stage.path("out"), "the newest");
    drop(lease);
    assert!(stage.shelf.lease(Some(&first)).is_err());
    stage.store.thaw_listings();
    stage.assert_honest("what the removal left");
    expire(&stage.shelf, 1).unwrap();
    stage.assert_only(&second, "at the end");
}

/// Goal: a set that a reader was given is not removed under it, whatever the moment at which the reader came.
#[test]
fn a_reader_that_comes_at_any_moment_of_an_expire_reads_a_whole_set_or_is_refused() {
    let mut kinds = [0, 0];
    for moment in 0..500 {
        let at = format!("a reader before request {moment}");
        let stage = Stage::new();
        let labels: Vec<String> = (1..=2).map(|day| stage.shelve(day)).collect();
        let lent = Arc::new(Mutex::new(None));
        let before = stage.requests();
        let (shelf, label, given) = (stage.shelf.clone(), labels[0].clone(), lent.clone());
        stage.store.meanwhile(before + moment, move || {
            *given.lock().unwrap() = Some(shelf.lease(Some(&label)));
        });
        let fates = expire(&stage.shelf, 1).unwrap();
        let Some(lent) = lent.lock().unwrap().take() else {
            assert!(moment > 8, "{at}");
            break;
        };
        match lent {
            Ok(lease) => {
                kinds[0] += 1;
                assert_readable(&lease.devices, &stage.path("out"), &at);
                assert_ne!(fates[0], Fate::Removed, "{at}");
            }
            Err(error) => {
                kinds[1] += 1;
                let refused = matches!(error, Error::NoSuchLabel { .. } | Error::NotWhole { .. });
                assert!(refused, "{at}: {error}");
            }
        }
        expire(&stage.shelf, 1).unwrap();
        stage.assert_only(&labels[1], &at);
    }
    assert!(kinds[0] > 3 && kinds[1] > 3, "{kinds:?}");
}

#[test]
fn an_expire_that_comes_at_any_moment_of_a_reader_spares_what_the_reader_gets() {
    for moment in 0..500 {
        let at = format!("an expire before request {moment}");
        let stage = Stage::new();
        let labels: Vec<String> = (1..=2).map(|day| stage.shelve(day)).collect();
        let before = stage.requests();
        let (shelf, done) = (stage.shelf.clone(), Arc::new(AtomicBool::new(false)));
        let ended = done.clone();
        stage.store.meanwhile(before + moment, move || {
            expire(&shelf, 1).unwrap();
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let lent = stage.shelf.lease(Some(&labels[0]));
        if !done.load(std::sync::atomic::Ordering::Relaxed) {
            assert!(moment > 8, "{at}");
            break;
        }
        match lent {
            Ok(lease) => assert_readable(&lease.devices, &stage.path("out"), &at),
            Err(error) => {
                let refused = matches!(error, Error::NoSuchLabel { .. } | Error::NotWhole { .. });
                assert!(refused, "{at}: {error}");
            }
        }
        stage.store.pass(STALE_S + 1);
        expire(&stage.shelf, 1).unwrap();
        stage.assert_only(&labels[1], &at);
    }
}

#[test]
fn two_expires_at_once_remove_nothing_that_stays() {
    for moment in 0..500 {
        let at = format!("another expire before request {moment}");
        let stage = Stage::new();
        let labels: Vec<String> = (1..=3).map(|day| stage.shelve(day)).collect();
        let before = stage.requests();
        let (shelf, done) = (stage.shelf.clone(), Arc::new(AtomicBool::new(false)));
        let ended = done.clone();
        stage.store.meanwhile(before + moment, move || {
            let other = expire(&shelf, 2);
            assert!(
                matches!(other, Ok(_) | Err(Error::Busy { .. })),
                "{other:?}"
            );
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let own = expire(&stage.shelf, 1);
        assert!(
            matches!(own, Ok(_) | Err(Error::Busy { .. })),
            "{at}: {own:?}"
        );
        if !done.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        stage.assert_honest(&at);
        expire(&stage.shelf, 1).unwrap();
        stage.assert_only(&labels[2], &at);
    }
}

/// Goal: no clock of this machine says which lease is alive. The store's is years behind it.
#[test]
fn a_lease_lives_by_the_stores_clock_alone() {
    for tells_no_time in [false, true] {
        let stage = Stage::new();
        stage.store.habits(Habits {
            tells_no_time,
            ..Habits::default()
        });
        let first = stage.shelve(1);
        stage.shelve(2);
        let begun = stage
            .shelf
            .begin(BackupKind::Full, 3 * 86_400_000_000)
            .unwrap();
        let lease = stage.shelf.lease(Some(&first)).unwrap();
        assert_eq!(stage.words(), ["complete", "complete", "writing"]);
        let kept = [Fate::Kept, Fate::Kept, Fate::Kept];
        assert_eq!(expire(&stage.shelf, 1).unwrap(), kept);
        stage.store.pass(STALE_S - 60);
        assert_eq!(expire(&stage.shelf, 1).unwrap(), kept);
        begun.confirm().unwrap();
        stage.store.pass(120);
        // The writer was in time, the reader was not.
        let fates = [Fate::Removed, Fate::Kept, Fate::Kept];
        assert_eq!(expire(&stage.shelf, 1).unwrap(), fates);
        stage.store.pass(STALE_S);
        let lost = begun.confirm().unwrap_err();
        assert!(matches!(lost, Error::LeaseLost { .. }), "{lost}");
        // Lost for good.
        let lost = begun.confirm().unwrap_err();
        assert!(matches!(lost, Error::LeaseLost { .. }), "{lost}");
        drop((lease, begun));
    }
}

/// Goal: a writer that was taken for dead completes nothing, and one that loses its place while it completes fails.
#[test]
fn a_backup_whose_lease_was_lost_fails_and_does_not_appear() {
    let count = {
        let stage = Stage::new();
        let begun = stage.shelf.begin(BackupKind::Full, 0).unwrap();
        let before = stage.requests();
        back_up_at(&host(), &stage.path("source"), begun).unwrap();
        stage.requests() - before
    };
    let mut ends = Vec::new();
    for moment in 0..count {
        let at = format!("lost before request {moment} of {count}");
        let stage = Stage::new();
        let begun = stage.shelf.begin(BackupKind::Full, 0).unwrap();
        let store = stage.store.clone();
        let then = stage.requests() + moment;
        let lose = move || store.pass(STALE_S + 1);
        stage.store.meanwhile(then, lose);
        let done = back_up_at(&host(), &stage.path("source"), begun);
        if let Err(error) = &done {
            let said = format!("{error:?}");
            assert!(said.contains("LeaseLost"), "{at}: {said}");
        }
        assert_eq!(stage.store.uploads(), [], "{at}");
        let keys = stage.store.keys();
        let stripes = keys.iter().filter(|key| key.contains("family")).count();
        ends.push((stripes, done.is_ok()));
    }
    // Nothing appears; then all does, and the backup fails; then it has succeeded before.
    let mut sorted = ends.clone();
    sorted.sort_unstable();
    assert_eq!(ends, sorted);
    sorted.dedup();
    assert_eq!(sorted, [(0, false), (2, false), (2, true)]);
}

fn is_removal(asked: &Asked) -> bool {
    asked.method == "DELETE" && !asked.is_abort()
}

/// Goal: credentials that may put and list, and not remove, make backups that count at once; and an expire with them
/// changes nothing.
#[test]
fn credentials_that_remove_nothing_back_up_and_expire_says_what_it_may_not() {
    let stage = Stage::new();
    stage.store.script(|asked| match is_removal(asked) {
        true => Act::Refuse(403, "AccessDenied"),
        false => Act::Pass,
    });
    let labels: Vec<String> = (1..=2).map(|day| stage.shelve(day)).collect();
    assert_eq!(stage.words(), ["complete", "complete"]);
    stage.assert_whole(&labels[0], "");
    let fates = expire(&stage.shelf, 1).unwrap();
    let Fate::Retained { why } = &fates[0] else {
        panic!("{fates:?}");
    };
    assert!(why.contains("AccessDenied"), "{why}");
    assert_eq!(stage.words(), ["complete", "complete"]);
    stage.store.heal();
    stage.store.pass(STALE_S + 1);
    // The lease that could not be removed does not make a set look as if it had never been one.
    let stripe = format!("p/db/{}/family-2.bak", labels[0]);
    let bytes = stage.store.object(&stripe).unwrap();
    stage.store.lose(&stripe);
    assert_eq!(stage.words(), ["MISSING", "complete"]);
    stage.store.put(&stripe, &bytes);
    assert_eq!(expire(&stage.shelf, 1).unwrap()[0], Fate::Removed);
    let left = stage.store.keys();
    let ended = |key: &&String| !key.contains(&labels[1]);
    assert_eq!(left.iter().filter(ended).count(), 0, "{left:?}");
    assert_eq!(stage.words(), ["complete"]);
}

/// Goal: nothing that an expire says stayed is lost by it: not for an old lease that goes first, nor for a mark that stays.
#[test]
fn a_removal_that_is_refused_at_its_first_stripe_is_taken_back_or_says_how() {
    for mark_stays in [false, true] {
        let stage = Stage::new();
        let labels: Vec<String> = (1..=3).map(|day| stage.shelve(day)).collect();
        let boot = "00000000-0000-0000-0000-000000000000";
        let lease = format!("p/db/{}/.longshore-lease-read.{boot}.1.x", labels[0]);
        stage.store.put(&lease, b"host dead\n");
        stage.store.pass(STALE_S + 1);
        if mark_stays {
            stage.store.keep_until("2026-12-24T18:00:00Z");
        }
        let locked = labels[0].clone();
        stage.store.script(move |asked| {
            let name = asked.key.rsplit('/').next().unwrap_or_default();
            let refused = name.starts_with("family") || (mark_stays && name == ".removing");
            match is_removal(asked) && asked.key.contains(&locked) && refused {
                true => Act::Refuse(403, "AccessDenied"),
                false => Act::Pass,
            }
        });
        let fates = expire(&stage.shelf, 1).unwrap();
        let Fate::Retained { why } = &fates[0] else {
            panic!("{fates:?}");
        };
        assert_eq!(fates[1..], [Fate::Removed, Fate::Kept]);
        let told = why.contains("keeps it until 2026-12-24T18:00:00Z");
        assert_eq!(told, mark_stays, "{why}");
        stage.store.heal();
        if mark_stays {
            let mark = format!("{}/.removing", labels[0]);
            assert!(why.contains(&mark), "{why}");
            stage.store.lose(&format!("p/db/{mark}"));
        }
        assert_eq!(stage.words(), ["complete", "complete"]);
        stage.assert_whole(&labels[0], "");
    }
}

#[test]
fn a_set_that_lost_some_stripes_to_a_removal_is_not_called_retained() {
    let stage = Stage::new();
    let labels: Vec<String> = (1..=2).map(|day| stage.shelve(day)).collect();
    let locked = format!("{}/family-2", labels[0]);
    stage.store.script(
        move |asked| match is_removal(asked) && asked.key.contains(&locked) {
            true => Act::Refuse(403, "AccessDenied"),
            false => Act::Pass,
        },
    );
    let fates = expire(&stage.shelf, 1).unwrap();
    assert!(matches!(&fates[0], Fate::Partly { .. }), "{fates:?}");
    assert_eq!(stage.words(), ["removing", "complete"]);
    stage.store.heal();
    assert_eq!(expire(&stage.shelf, 1).unwrap()[0], Fate::Removed);
    assert_eq!(stage.words(), ["complete"]);
}

#[test]
fn a_set_that_the_store_retains_stays_a_backup_and_the_others_go() {
    let stage = Stage::new();
    let labels: Vec<String> = (1..=3).map(|day| stage.shelve(day)).collect();
    let locked = format!("{}/family", labels[0]);
    stage.store.script(
        move |asked| match is_removal(asked) && asked.key.contains(&locked) {
            true => Act::Refuse(403, "AccessDenied"),
            false => Act::Pass,
        },
    );
    let fates = expire(&stage.shelf, 1).unwrap();
    assert!(matches!(&fates[0], Fate::Retained { .. }), "{fates:?}");
    assert_eq!(fates[1..], [Fate::Removed, Fate::Kept]);
    assert_eq!(stage.words(), ["complete", "complete"]);
    stage.assert_whole(&labels[0], "");
    stage.store.heal();
    assert_eq!(
        expire(&stage.shelf, 1).unwrap(),
        [Fate::Removed, Fate::Kept]
    );
    stage.assert_only(&labels[2], "");
}

/// Goal: a store that answers listings and nothing else is no reason to remove a set, whatever lease lies there.
#[test]
fn a_set_that_cannot_be_read_now_is_unknown_and_stays() {
    let stage = Stage::new();
    let first = stage.shelve(1);
    let lease = format!("p/db/{first}/.longshore-lease-backup.boot.1.id");
    stage.store.put(&lease, b"host db2\n");
    stage.store.pass(STALE_S + 1);
    stage.shelve(2);
    stage.store.script(
        move |asked| match asked.key.contains(&first) && !is_removal(asked) {
            true => Act::Refuse(500, "InternalError"),
            false => Act::Pass,
        },
    );
    assert_eq!(stage.words(), ["unknown", "complete"]);
    assert_eq!(expire(&stage.shelf, 1).unwrap(), [Fate::Kept, Fate::Kept]);
    stage.store.heal();
    assert_eq!(stage.words(), ["complete", "complete"]);
}

#[test]
fn a_store_that_ignores_conditions_is_told_by_a_probe_that_leaves_nothing() {
    let stage = Stage::new();
    for overwrites in [false, true] {
        stage.store.habits(Habits {
            overwrites,
            ..Habits::default()
        });
        let probed = stage.shelf.target.probe(&host(), "db").unwrap();
        assert_eq!(probed.len(), 1);
        assert_eq!(probed[0].0, format!("s3://{}/p/db", stage.name));
        assert_eq!(probed[0].1.keeps_first, !overwrites);
        assert_eq!(probed[0].1.no_removal, None);
    }
    assert_eq!(stage.store.keys(), [""; 0]);
}

/// Goal: a look at a target takes a list, one of its records, and one request for each end of a stripe: one for a short stripe.
#[test]
fn a_listing_asks_once_for_all_names_and_once_for_each_end_of_a_stripe() {
    let stage = Stage::new();
    (1..=5).for_each(|day| drop(stage.shelve(day)));
    let asked = |what: &str| {
        let before = stage.requests();
        assert_eq!(stage.words(), ["complete"; 5], "{what}");
        let asked = stage.store.asked().split_off(before);
        assert!(asked.iter().all(|a| a.method == "GET"), "{what}");
        let lists = asked.iter().filter(|a| a.query.contains("list-type"));
        assert_eq!(lists.count(), 2, "{what}");
        asked.len() - 2
    };
    assert_eq!(asked("short"), 5 * 2);
    // The list tells which leases are those of dead holders, and of holders that were done and may not remove them.
    for label in stage.labels() {
        let lease = |what: &str| format!("p/db/{label}/.longshore-lease-{what}.boot.1.id");
        stage.store.put(&lease("read"), b"host db2\n");
        stage.store.pass(STALE_S + 1);
        stage.store.put(&lease("backup"), b"done\n");
    }
    assert_eq!(asked("leases"), 5 * 2);
    // Of a longer stripe, the beginning does not have the end.
    let long = longshore_kit::random::content(1, 400_000);
    std::fs::write(stage.path("source/file"), long).unwrap();
    let stage = Stage {
        shelf: shelf_of(&stage.name, &["/long", "/long"]),
        ..stage
    };
    (1..=5).for_each(|day| drop(stage.shelve(day)));
    let before = stage.requests();
    assert_eq!(stage.words(), ["complete"; 5]);
    let asked = stage.requests() - before - 2;
    let long = stage.store.keys().into_iter().filter(|key| {
        let bytes = stage.store.object(key).unwrap();
        key.starts_with("long/") && bytes.len() > 16 << 10
    });
    assert_eq!(asked, 5 * 2 + long.count());
    assert!(asked > 5 * 2);
}

/// Goal: a look at many sets of a distant store waits for the answers to many requests at once.
#[test]
fn a_listing_of_a_distant_store_waits_for_many_answers_at_once() {
    const WAY: Duration = Duration::from_millis(100);
    let stage = Stage::new();
    (1..=60).for_each(|day| drop(stage.shelve(day)));
    for label in stage.labels() {
        let lease = format!("p/db/{label}/.longshore-lease-read.boot.1.id");
        stage.store.put(&lease, b"host db2\n");
    }
    stage.store.script(|_| Act::Delay(WAY));
    let before = (Instant::now(), stage.requests());
    assert_eq!(stage.words(), ["complete"; 60]);
    let requests = (stage.requests() - before.1) as u32;
    assert_eq!(requests, 2 + 60 + 60 * 2);
    // Two lists; then twice two rounds of 48. One after the other they would take 18 s.
    assert!(before.0.elapsed() < WAY * 40, "{:?}", before.0.elapsed());
}

/// Goal: whatever a target or an archive has in a bucket is known by its name, in every spelling of it.
#[test]
fn an_object_of_a_target_or_an_archive_is_known_by_its_name() {
    let set = "20270131T020000Z-full-1a2b3c4d";
    let wal = "00000001000000000000000A";
    let mark = "1a2b3c4d5e6f4a7e9e8c1f6f3a0f7f11";
    for (key, is_kept) in [
        (format!("p/db/{set}/family-1.bak"), true),
        (format!("p/db/{set}/family-65.bak"), true),
        (format!("p/db/{set}/.removing"), true),
        (format!("p/db/{set}/deeper/x.bak"), true),
        (format!("{set}/family-1.bak"), true),
        (format!("p/db/{set}"), true),
        (format!("p/db/{}/FAMILY-1.BAK", set.to_uppercase()), true),
        (format!("p/db/{}/family-1.bak", set.to_lowercase()), true),
        ("p/db/.longshore-relies-1".to_owned(), true),
        ("p/db/.Longshore-lease-x".to_owned(), true),
        ("p/wal/longshore-wal".to_owned(), true),
        ("p/wal/LONGSHORE-WAL.new".to_owned(), true),
        (format!("p/wal/00000001/{wal}.zst"), true),
        (format!("p/wal/{}", wal.to_lowercase()), true),
        (format!("p/wal/{wal}.00000028.backup"), true),
        ("p/wal/00000002.history.gz".to_owned(), true),
        (format!("p/wal/needs/{mark}.{mark}"), true),
        (format!("p/wal/NEEDS/{}.{mark}", mark.to_uppercase()), true),
        (format!("needs/{mark}.{mark}"), true),
        ("p/wal/needs/known".to_owned(), true),
        (format!("p/wal/{mark}.{mark}"), false),
        (format!("p/wal/needs/{mark}.bak"), false),
        ("p/wal/needs/1.bak".to_owned(), false),
        ("needs".to_owned(), false),
        ("p/wal/refused".to_owned(), true),
        ("p/refused/1.bak".to_owned(), false),
        ("p/db/family-1.bak".to_owned(), false),
        ("p/db/1.bak".to_owned(), false),
        (format!("p/db/{set}0/family-1.bak"), false),
        (format!("p/db/{set}.bak"), false),
        ("p/20270131.bak".to_owned(), false),
        ("p/longshore-wal.bak".to_owned(), false),
        ("p/longshore.bak".to_owned(), false),
        (format!("p/{wal}/x.bak"), false),
        ("p/ü.bak".to_owned(), false),
    ] {
        let address = Address::of(&format!("s3://abc/{key}")).unwrap();
        assert_eq!(target::kept_object(&address).is_some(), is_kept, "{key}");
    }
    // One object has no second spelling.
    for wrong in ["p//db/k", "p/./db/k", "p/../db/k", "/p/db/k", "p/db/k/"] {
        let address = Address::of(&format!("s3://abc/{wrong}")).unwrap();
        assert!(address.parts().is_err(), "{wrong}");
    }
}
