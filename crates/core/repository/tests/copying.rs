//! Goal: a second target gets the backups that belong there, whole, once, and nothing that is there is harmed.
//! Method: shelves in directories and in a simulated bucket, with backups that the shipped pipeline made.
//! Not covered: differentials and WAL, which need a server (`postgres_restore` of the program).

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use common::*;
use longshore_bucket::sim::{Act, Store};
use longshore_io::HostClock;
use longshore_repository::copying::{BegunCopy, CopyStep, plan};
use longshore_repository::retention::Policy;
use longshore_repository::{Error, Label, Places, Shelf, Target};
use tempfile::TempDir;

struct Stage {
    temp: TempDir,
    from: Shelf,
    to: Shelf,
}

impl Stage {
    /// A first target of so many directories, and a second one.
    fn new(from: usize, to: usize) -> Stage {
        let temp = tempfile::tempdir().unwrap();
        let place = |name: &str, count: usize| {
            let dirs: Vec<PathBuf> = (1..=count)
                .map(|i| temp.path().join(format!("{name}{i}")))
                .collect();
            dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
            let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
            shelf(&host(), &dirs)
        };
        let (from, to) = (place("from", from), place("to", to));
        fs::create_dir(temp.path().join("source")).unwrap();
        let stage = Stage { temp, from, to };
        stage.write_source(1);
        stage
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.temp.path().join(name)
    }

    fn write_source(&self, seed: u64) {
        let bytes = longshore_kit::random::content(seed, 100_000);
        fs::write(self.path("source/file"), bytes).unwrap();
    }

    fn shelve(&self, day: i64) -> Label {
        self.write_source(day as u64);
        shelve(&self.from, &self.path("source"), day)
    }

    fn steps(&self, policy: &Policy) -> Vec<CopyStep> {
        let (from, to) = (self.from.list().unwrap(), self.to.list().unwrap());
        plan(&from, &to, &[], policy, i64::MAX / 2).steps
    }

    fn copy(&self, label: &Label) -> Result<u64, Error> {
        copy(&self.from, &self.to, label, false)
    }

    /// The label's directory at the second target, made for something that no copy has put there.
    fn label_there(&self, label: &Label) -> PathBuf {
        let at = self.path(format!("to1/db/{label}"));
        fs::create_dir_all(&at).unwrap();
        at
    }

    /// The file that a restore of this label from a shelf gives.
    fn restored(&self, shelf: &Shelf, label: &Label) -> Vec<u8> {
        let out = self.path("out");
        let _absent = fs::remove_dir_all(&out);
        let lease = shelf.lease(Some(label.as_str())).unwrap();
        restore(&shelf.storage(), &lease.devices, &out).unwrap();
        fs::read(out.join("file")).unwrap()
    }
}

fn begin(from: &Shelf, to: &Shelf, label: &Label, again: bool) -> Result<BegunCopy, Error> {
    let listing = from.list()?;
    let at = listing.sets.iter().position(|set| set.label == *label);
    from.begin_copy((&listing, at.unwrap()), to, again)
}

fn copy(from: &Shelf, to: &Shelf, label: &Label, again: bool) -> Result<u64, Error> {
    let begun = begin(from, to, label, again)?;
    Ok(from.copy_stripes(&begun, &|_| {}, &|_| Ok(()))?.bytes)
}

fn keep(count: u32) -> Policy {
    Policy {
        keep_full: Some(count),
        ..Policy::default()
    }
}

#[test]
fn a_copy_is_the_same_backup_whatever_number_of_directories_each_target_has() {
    for (from, to) in [(1, 1), (2, 1), (1, 3), (3, 2)] {
        let stage = Stage::new(from, to);
        let label = stage.shelve(3);
        stage.copy(&label).unwrap();
        assert_eq!(words(&stage.to), ["complete"], "{from} to {to}");
        assert_eq!(
            stage.steps(&Policy::default()),
            [CopyStep::There(label.clone())]
        );
        assert_eq!(
            stage.restored(&stage.to, &label),
            longshore_kit::random::content(3, 100_000)
        );
        // A backup of its own is not told from its copy.
        let back = Stage::new(from, from);
        copy(&stage.to, &back.to, &label, false).unwrap();
        for family in 1..=from {
            let at = |root: PathBuf, name: &str| {
                fs::read(root.join(format!("{name}{family}/db/{label}/family-{family}.bak")))
                    .unwrap()
            };
            assert_eq!(at(stage.path(""), "from"), at(back.path(""), "to"));
        }
    }
}

#[test]
fn what_the_next_expire_there_would_remove_is_not_copied() {
    let stage = Stage::new(1, 1);
    let labels: Vec<Label> = (1..=4).map(|day| stage.shelve(day)).collect();
    let copied = CopyStep::Copy { again: false };
    let expected = [
        CopyStep::Unkept,
        CopyStep::Unkept,
        copied.clone(),
        copied.clone(),
    ];
    assert_eq!(stage.steps(&keep(2)), expected);
    assert_eq!(stage.steps(&Policy::default()), vec![copied.clone(); 4]);
    for label in &labels[2..] {
        stage.copy(label).unwrap();
    }
    let never = AtomicBool::new(false);
    let expired = stage
        .to
        .expire(&keep(2), &|| i64::MAX / 2, false, &never)
        .unwrap();
    assert_eq!(expired.listing.sets.len(), 2);
    let there = |i: usize| CopyStep::There(labels[i].clone());
    assert_eq!(
        stage.steps(&keep(2)),
        [CopyStep::Unkept, CopyStep::Unkept, there(2), there(3)]
    );
    // A newer one there pushes an older one out.
    assert_eq!(stage.steps(&keep(3))[1], copied);
    // One that is named is copied all the same.
    let (from, to) = (stage.from.list().unwrap(), stage.to.list().unwrap());
    let named = plan(&from, &to, &labels[..1], &keep(2), i64::MAX / 2).steps;
    assert_eq!(named[0], copied);
    assert!(named[1..].iter().all(|step| *step == CopyStep::NotAsked));
}

#[test]
fn another_backup_under_the_label_is_never_replaced() {
    let stage = Stage::new(1, 1);
    let label = stage.shelve(1);
    let other = Stage::new(1, 1);
    let theirs = other.shelve(1);
    // The other's stripe under this backup's label: a label proves nothing.
    let at = stage.label_there(&label);
    let stripe = other.path(format!("from1/db/{theirs}/family-1.bak"));
    fs::copy(&stripe, at.join("family-1.bak")).unwrap();
    let [CopyStep::Blocked(why)] = &stage.steps(&Policy::default())[..] else {
        panic!("{:?}", stage.steps(&Policy::default()));
    };
    assert!(why.contains("another backup"), "{why}");
    for again in [false, true] {
        let refused = copy(&stage.from, &stage.to, &label, again);
        assert!(
            matches!(refused, Err(Error::LabelTaken { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(
        fs::read(at.join("family-1.bak")).unwrap(),
        fs::read(stripe).unwrap()
    );
}

#[test]
fn damage_is_not_copied_and_leaves_nothing() {
    let stage = Stage::new(2, 2);
    let label = stage.shelve(1);
    let stripe = stage.path(format!("from2/db/{label}/family-2.bak"));
    let mut bytes = fs::read(&stripe).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&stripe, bytes).unwrap();
    assert!(matches!(stage.copy(&label), Err(Error::Media(_))));
    assert!(stage.to.list().unwrap().sets.is_empty());
    assert_eq!(paths(&stage.path("to1/db")), Vec::<PathBuf>::new());
}

#[test]
fn the_remains_of_a_copy_that_died_are_replaced_and_those_of_a_living_one_are_not() {
    let stage = Stage::new(1, 2);
    let label = stage.shelve(1);
    let begun = begin(&stage.from, &stage.to, &label, false).unwrap();
    assert_eq!(stage.steps(&Policy::default()), [CopyStep::BeingCopied]);
    for again in [false, true] {
        let refused = copy(&stage.from, &stage.to, &label, again);
        assert!(
            matches!(refused, Err(Error::LabelTaken { .. })),
            "{refused:?}"
        );
    }
    stage
        .from
        .copy_stripes(&begun, &|_| {}, &|_| Ok(()))
        .unwrap();
    drop(begun);
    assert_eq!(words(&stage.to), ["complete"]);
    // What a killed copy leaves: a stripe under its temporary name, and no lease.
    let at = stage.path(format!("to1/db/{label}/family-1.bak"));
    let bytes = fs::read(&at).unwrap();
    let pending = at.with_extension("bak.longshore-new");
    fs::write(pending, &bytes[..bytes.len() / 2]).unwrap();
    fs::remove_file(&at).unwrap();
    assert_eq!(words(&stage.to), ["INCOMPLETE"]);
    assert_eq!(
        stage.steps(&Policy::default()),
        [CopyStep::Copy { again: true }]
    );
    assert!(stage.copy(&label).is_err());
    copy(&stage.from, &stage.to, &label, true).unwrap();
    assert_eq!(
        stage.restored(&stage.to, &label),
        longshore_kit::random::content(1, 100_000)
    );
}

#[test]
fn neither_end_is_removed_while_a_copy_is_made() {
    let stage = Stage::new(1, 1);
    let labels: Vec<Label> = (1..=2).map(|day| stage.shelve(day)).collect();
    stage.copy(&labels[1]).unwrap();
    let begun = begin(&stage.from, &stage.to, &labels[0], false).unwrap();
    let never = AtomicBool::new(false);
    for shelf in [&stage.from, &stage.to] {
        shelf
            .expire(&keep(1), &|| i64::MAX / 2, false, &never)
            .unwrap();
    }
    stage
        .from
        .copy_stripes(&begun, &|_| {}, &|_| Ok(()))
        .unwrap();
    drop(begun);
    assert_eq!(words(&stage.from), ["complete"; 2]);
    assert_eq!(words(&stage.to), ["complete"; 2]);
}

#[test]
fn backups_go_to_a_bucket_and_come_back() {
    let store = Store::default();
    let stage = Stage::new(2, 1);
    let label = stage.shelve(1);
    let bucket = shelf_in(&store);
    copy(&stage.from, &bucket, &label, false).unwrap();
    assert_eq!(words(&bucket), ["complete"]);
    copy(&bucket, &stage.to, &label, false).unwrap();
    assert_eq!(
        stage.restored(&stage.to, &label),
        longshore_kit::random::content(1, 100_000)
    );
}

/// Goal: whatever request a copy to a bucket is killed before, what it leaves is a whole backup or none, and the next
/// copy completes it.
#[test]
fn a_copy_that_is_killed_anywhere_leaves_a_whole_backup_or_none() {
    let staged = || {
        let store = Store::default();
        let stage = Stage::new(2, 1);
        let label = stage.shelve(1);
        let bucket = shelf_in(&store);
        (store, stage, label, bucket)
    };
    let step = |stage: &Stage, to: &Shelf| {
        let (from, to) = (stage.from.list().unwrap(), to.list().unwrap());
        plan(&from, &to, &[], &Policy::default(), i64::MAX / 2)
            .steps
            .remove(0)
    };
    let requests = {
        let (store, stage, label, bucket) = staged();
        copy(&stage.from, &bucket, &label, false).unwrap();
        store.asked().len()
    };
    assert!(requests > 10);
    let mut unfinished = 0;
    for kill in 0..=requests {
        let at = format!("killed before request {kill} of {requests}");
        let (store, stage, label, bucket) = staged();
        let mut left = kill;
        store.script(move |_| match left.checked_sub(1) {
            None => Act::LoseRequest,
            Some(rest) => {
                left = rest;
                Act::Pass
            }
        });
        let done = copy(&stage.from, &bucket, &label, false);
        store.heal();
        let is_there = matches!(step(&stage, &bucket), CopyStep::There(_));
        if is_there {
            let found = stage.restored(&bucket, &label);
            assert!(found == content_of_first(), "{at}");
        }
        unfinished += usize::from(!is_there);
        // The process is dead, and its lease ends by the store's clock.
        store.pass(15 * 60 + 1);
        match step(&stage, &bucket) {
            CopyStep::There(_) => {}
            CopyStep::Copy { again } if done.is_err() => {
                copy(&stage.from, &bucket, &label, again).unwrap_or_else(|e| panic!("{at}: {e}"));
            }
            other => panic!("{at}: {other:?}"),
        }
        assert_eq!(words(&bucket), ["complete"], "{at}");
        assert!(
            stage.restored(&bucket, &label) == content_of_first(),
            "{at}"
        );
        let never = AtomicBool::new(false);
        bucket
            .expire(&keep(1), &|| i64::MAX / 2, false, &never)
            .unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(words(&bucket), ["complete"], "{at}");
        assert_eq!(store.uploads(), [], "{at}");
    }
    assert!(unfinished > 5, "{unfinished}");
}

/// A shelf in two prefixes of a store.
fn shelf_in(store: &Store) -> Shelf {
    let name = store.install().unwrap();
    let texts = [1, 2].map(|n| format!("s3://{name}/{n}"));
    let target = Target {
        name: "bucket".into(),
        places: Places::buckets(&texts).unwrap(),
    };
    Shelf::new(host(), Arc::new(HostClock), &target, "db").unwrap()
}

fn content_of_first() -> Vec<u8> {
    longshore_kit::random::content(1, 100_000)
}

/// The lease of a copy whose process is known by these: its name below the label, and its content.
fn lease_of(pid: u32, boot: &str, host: &str, mark: &str) -> (String, String) {
    (
        format!(".longshore-lease-backup.{boot}.{pid}.id"),
        format!("host {host}\nprocess {mark}\n"),
    )
}

/// Goal: who runs a copy again after a kill need not wait for 15 minutes, and nobody takes a living process for dead.
#[test]
fn the_label_of_a_copy_that_was_killed_on_this_machine_is_free_at_once() {
    let stage = Stage::new(2, 1);
    let label = stage.shelve(1);
    let (boot, host) = (
        longshore_io::boot_id().unwrap(),
        longshore_facts::host_name(),
    );
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let started = longshore_facts::process_started(child.id()).unwrap();
    let own = longshore_facts::process_mark().unwrap();
    let mark = format!("{started} {}", own.split_once(' ').unwrap().1);
    let pid = child.id();
    let ours = lease_of(pid, &boot, &host, &mark);
    let begun = |(name, content): &(String, String), whole: bool| {
        let store = Store::default();
        let texts = [format!("s3://{}/p", store.install().unwrap())];
        let target = Target {
            name: "bucket".into(),
            places: Places::buckets(&texts).unwrap(),
        };
        let bucket = Shelf::new(common::host(), Arc::new(HostClock), &target, "db").unwrap();
        copy(&stage.from, &bucket, &label, false).unwrap();
        store.put(&format!("p/db/{label}/{name}"), content.as_bytes());
        if !whole {
            store.lose(&format!("p/db/{label}/family-2.bak"));
        }
        (store, bucket)
    };
    let steps = |to: &Shelf| {
        let (from, to) = (stage.from.list().unwrap(), to.list().unwrap());
        plan(&from, &to, &[], &Policy::default(), i64::MAX / 2).steps
    };
    let is_held = |lease: &(String, String), what: &str| {
        let (_store, bucket) = begun(lease, false);
        assert_eq!(steps(&bucket), [CopyStep::BeingCopied], "{what}");
        let refused = copy(&stage.from, &bucket, &label, true);
        assert!(matches!(refused, Err(Error::LabelTaken { .. })), "{what}");
    };
    is_held(&ours, "it runs");
    child.kill().unwrap();
    child.wait().unwrap();
    is_held(&lease_of(pid, "boot", &host, &mark), "another boot");
    is_held(&lease_of(pid, &boot, "db2", &mark), "another host");
    let elsewhere = mark.replace("pid:[", "pid:[1");
    is_held(&lease_of(pid, &boot, &host, &elsewhere), "a container");
    is_held(&lease_of(pid, &boot, &host, ""), "an earlier version");
    let (store, bucket) = begun(&ours, false);
    assert_eq!(words(&bucket), ["writing"]);
    assert_eq!(steps(&bucket), [CopyStep::Copy { again: true }]);
    // An expire waits: what the process sent may still be done, and its stripes may be of no copy.
    let never = AtomicBool::new(false);
    let expired = bucket.expire(&keep(1), &|| i64::MAX / 2, false, &never);
    assert_eq!(expired.unwrap().listing.sets.len(), 1);
    copy(&stage.from, &bucket, &label, true).unwrap();
    assert_eq!(words(&bucket), ["complete"]);
    assert_eq!(store.keys().len(), 2, "{:?}", store.keys());
    // One that was killed after its last stripe is whole.
    let (_store, bucket) = begun(&ours, true);
    assert_eq!(steps(&bucket), [CopyStep::There(label.clone())]);
}

#[test]
fn remains_with_a_name_that_nobody_knows_stay_and_are_told() {
    let stage = Stage::new(1, 1);
    let label = stage.shelve(1);
    let at = stage.label_there(&label);
    fs::write(at.join("family-1.bak.longshore-new"), b"begun").unwrap();
    fs::write(at.join(".nfs0001"), b"somebody's").unwrap();
    for _ in 0..2 {
        let refused = copy(&stage.from, &stage.to, &label, true);
        assert!(
            matches!(refused, Err(Error::LabelTaken { .. })),
            "{refused:?}"
        );
        assert!(words(&stage.to).iter().all(|word| *word != "complete"));
    }
}

#[test]
fn one_place_under_two_names_is_found() {
    let stage = Stage::new(2, 2);
    let host = host();
    let of = |dirs: &[&str]| {
        let dirs: Vec<PathBuf> = dirs.iter().map(|dir| stage.path(dir)).collect();
        target(&dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>())
    };
    std::os::unix::fs::symlink(stage.path("from1"), stage.path("link")).unwrap();
    let own = of(&["from1", "from2"]);
    for other in [
        of(&["from2", "from1"]),
        of(&["to1", "link"]),
        of(&["from2/../from1/", "to1"]),
    ] {
        assert!(
            own.common_place(&other, "db", &*host).is_some(),
            "{other:?}"
        );
    }
    let apart = of(&["to1", "to2", "missing"]);
    assert_eq!(own.common_place(&apart, "db", &*host), None);
    // As a mount of the database's directory below another target looks.
    stage.shelve(1);
    std::os::unix::fs::symlink(stage.path("from2/db"), stage.path("to1/db")).unwrap();
    assert!(own.common_place(&apart, "db", &*host).is_some());
    assert_eq!(own.common_place(&apart, "other", &*host), None);
    let store = Store::default();
    let name = store.install().unwrap();
    let bucket = |prefix: &str| Target {
        name: "b".into(),
        places: Places::buckets(&[format!("s3://{name}{prefix}")]).unwrap(),
    };
    let one = bucket("/a");
    assert!(one.common_place(&bucket("/a/"), "db", &*host).is_some());
    assert_eq!(one.common_place(&bucket("/a/b"), "db", &*host), None);
    // The copies of the database would be among its own backups.
    for (near, far) in [(&one, &bucket("/a/db")), (&bucket("/a/db/x"), &one)] {
        assert!(near.common_place(far, "db", &*host).is_some());
        assert_eq!(near.common_place(far, "other", &*host), None);
        assert_eq!(near.common_place(far, "d", &*host), None);
    }
}

#[test]
fn a_copy_by_hard_links_is_known_as_the_same_files() {
    let stage = Stage::new(1, 1);
    let label = stage.shelve(1);
    let at = stage.label_there(&label);
    let stripe = stage.path(format!("from1/db/{label}/family-1.bak"));
    fs::hard_link(&stripe, at.join("family-1.bak")).unwrap();
    let devices = |shelf: &Shelf| shelf.list().unwrap().sets[0].devices.clone();
    let (ours, theirs) = (devices(&stage.from), devices(&stage.to));
    assert!(stage.from.shares_files(&ours, &theirs));
    fs::remove_file(at.join("family-1.bak")).unwrap();
    fs::copy(&stripe, at.join("family-1.bak")).unwrap();
    assert!(!stage.from.shares_files(&ours, &theirs));
}
