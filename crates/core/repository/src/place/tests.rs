//! Goal: the text of [`Place`], [`Claims`], [`Marks`], [`StatusRecords`], [`Stops`], [`Remover`] and [`Hold`] holds for
//! every place.
//! Method: directories on a real disk and on simulated ones with and without locks that reach everybody, and prefixes
//! of a simulated store with its habits.
//!
//! Each promise is a function of a [`Stage`]; the macro at the top makes each a test of each stage. A place that lies,
//! with holds and removers that lie, shows that the promises can be broken.

use std::panic::AssertUnwindSafe;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_bucket::Scheme;
use longshore_bucket::sim::{Habits, Store};
use longshore_io::{Host, HostClock, SimDisk, Via};
use longshore_media::{DeviceSpec, OBJECT_MAX, ObjectName};

use super::door::*;
use super::*;
use crate::label::{BackupKind, Label};
use crate::shelf::Shelf;
use crate::status::{FailedRun, News, Task, Witnessed};
use crate::target::WAL;

/// A target of two places, and as many handles to a database there as are asked for.
struct Stage {
    target: Target,
    storage: Arc<dyn Storage>,
    /// A day in which this process stands still: a lease that must be kept alive is not.
    standstill: Box<dyn Fn()>,
    lie: Lie,
    _directory: Option<tempfile::TempDir>,
}

impl Stage {
    fn place(&self) -> Arc<dyn Place> {
        self.place_of("db")
    }

    fn place_of(&self, database: &str) -> Arc<dyn Place> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock);
        let place = self.target.place(&self.storage, &clock, database);
        match self.lie {
            Lie::None => place,
            lie => Arc::new(Lying {
                place,
                lie,
                has_forgotten: AtomicBool::new(false),
            }),
        }
    }

    fn of(places: Places, storage: Arc<dyn Storage>) -> Stage {
        Stage {
            target: Target {
                name: "t".into(),
                places,
            },
            storage,
            // A lock in a file system is held as long as its holder lives.
            standstill: Box::new(|| ()),
            lie: Lie::None,
            _directory: None,
        }
    }

    fn real() -> Stage {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| directory.path().join(name));
        paths
            .iter()
            .for_each(|path| std::fs::create_dir(path).unwrap());
        Stage {
            _directory: Some(directory),
            ..Stage::of(Places::Directories(paths.into()), Arc::new(Host::new()))
        }
    }

    fn on(disk: SimDisk) -> Stage {
        let paths = ["/one", "/two"].map(PathBuf::from);
        for path in &paths {
            disk.create_dir_all(path).unwrap();
        }
        Stage::of(Places::Directories(paths.into()), Arc::new(disk))
    }

    fn simulated() -> Stage {
        Stage::on(SimDisk::new(1))
    }

    fn without_locks() -> Stage {
        Stage::on(SimDisk::new(2).set_keeps_locks(false))
    }

    fn where_locks_need_writing() -> Stage {
        Stage::on(SimDisk::new(3).set_locks_need_writing(true))
    }

    fn in_a_bucket(scheme: Scheme, habits: Habits) -> Stage {
        let store = Store::speaking(scheme);
        store.habits(habits);
        let name = store.install().unwrap();
        let texts = ["p", "q"].map(|prefix| format!("{scheme}{name}/{prefix}"));
        Stage {
            standstill: Box::new(move || store.pass(86_400)),
            ..Stage::of(Places::buckets(&texts).unwrap(), Arc::new(Host::new()))
        }
    }

    fn bucket() -> Stage {
        Stage::in_a_bucket(Scheme::S3, Habits::default())
    }

    fn azure() -> Stage {
        Stage::in_a_bucket(Scheme::Azure, Habits::default())
    }

    fn google() -> Stage {
        Stage::in_a_bucket(Scheme::Google, Habits::default())
    }

    fn bucket_without_dates_and_with_short_pages() -> Stage {
        let habits = Habits {
            tells_no_time: true,
            portion: 2,
            ..Habits::default()
        };
        Stage::in_a_bucket(Scheme::S3, habits)
    }

    /// Writes the stripe of a family, as the pipeline does.
    fn write(&self, device: &DeviceSpec) {
        let mut write = device.open(&self.storage).create(Via::Cache).unwrap();
        write.write(b"a stripe").unwrap();
        write.sync().unwrap();
        write.keep();
        write.complete().unwrap();
    }

    /// A backup of which every stripe is there, and whose writer has gone.
    fn shelved(&self, day: i64) -> Label {
        let begun = self.begun(day);
        begun.devices.iter().for_each(|device| self.write(device));
        begun.hold.confirm().unwrap();
        begun.label.clone()
    }

    fn begun(&self, day: i64) -> Begun {
        let begun_us = day * 86_400_000_000;
        self.place().begin(BackupKind::Full, begun_us).unwrap()
    }

    fn labels(&self) -> Vec<Label> {
        self.place().look().unwrap().labels.into_keys().collect()
    }

    fn removed(&self, label: &Label) -> Removal {
        let place = self.place();
        let remover = place.lock().unwrap().unwrap();
        remover.remove(label).unwrap()
    }

    /// Checks the files under a label, as a reader and as the one remover find them.
    fn assert_seen(&self, label: &Label, check: impl Fn(&LabelFiles)) {
        let place = self.place();
        check(&place.look().unwrap().labels[label]);
        let remover = place.lock().unwrap().unwrap();
        check(&remover.look().unwrap().labels[label]);
    }
}

/// Every promise, kept by every place.
macro_rules! contract {
    (of $($stage:ident)*; $($promise:ident)*) => {
        contract! { @each [$($stage)*] [$($promise)*] }
        const PROMISES: &[fn(&Stage)] = &[$($promise),*];
    };
    (@each [$stage:ident $($more:ident)*] [$($promise:ident)*]) => {
        mod $stage { $(#[test] fn $promise() { super::$promise(&super::Stage::$stage()); })* }
        contract! { @each [$($more)*] [$($promise)*] }
    };
    (@each [] [$($promise:ident)*]) => {};
}

contract! {
    of real simulated without_locks where_locks_need_writing bucket azure google
        bucket_without_dates_and_with_short_pages;
    an_empty_place_has_nothing
    a_new_backup_is_held_before_its_first_byte_and_as_long_as_it_is_written
    a_backup_that_is_begun_and_left_leaves_nothing
    a_backup_lies_where_the_place_said_it_would
    a_lost_stripe_gets_room_where_it_was
    every_backup_has_a_label_of_its_own
    a_copy_has_the_label_and_the_stripes_of_its_original_and_takes_no_label_that_is_there
    what_is_written_or_read_is_not_removed
    a_hold_that_others_could_take_for_dead_says_so
    a_backup_that_is_not_used_is_removed_as_a_whole
    one_program_at_a_time_removes
    a_backup_that_is_not_there_is_not_protected
    a_mark_is_found_again_and_only_at_its_place
    a_record_is_replaced_as_a_whole_and_is_no_backup
    a_record_that_is_too_long_is_not_read
    stripes_that_are_written_again_have_another_change
    a_word_that_stops_is_seen_by_everybody_until_it_is_taken_away
    what_is_no_backup_is_told_and_left_alone
    key_objects_are_of_their_backup_and_go_with_it
    nothing_is_aborted_where_nothing_was_left
}

fn an_empty_place_has_nothing(stage: &Stage) {
    let place = stage.place();
    let found = place.look().unwrap();
    assert!(found.labels.is_empty() && found.strays.is_empty());
    assert!(place.lock().unwrap().is_none(), "nothing to remove");
    assert!(place.marks().unwrap().is_empty());
    assert!(place.side_by_side() > 0);
    assert_eq!(place.writer(&[], found.now_ns), None);
}

fn a_new_backup_is_held_before_its_first_byte_and_as_long_as_it_is_written(stage: &Stage) {
    let begun = stage.begun(1);
    let is_held = |count: usize| {
        stage.assert_seen(&begun.label, |files| {
            assert_eq!(files.holders.len(), 1, "{files:?}");
            assert_eq!(files.holders[0].pid, std::process::id());
            assert_eq!(files.stripes.len(), count, "{files:?}");
            assert!(!files.removing && files.unreadable.is_none());
        });
        begun.hold.confirm().unwrap();
    };
    is_held(0);
    for (i, device) in begun.devices.iter().enumerate() {
        stage.write(device);
        is_held(i + 1);
    }
    let Begun { label, hold, .. } = begun;
    drop(hold);
    stage.assert_seen(&label, |files| {
        assert!(files.holders.is_empty() && files.ending.is_none());
        assert!(files.any_finished && !files.removing);
    });
}

fn a_backup_that_is_begun_and_left_leaves_nothing(stage: &Stage) {
    let label = stage.begun(1).label;
    assert!(!stage.labels().contains(&label));
    assert!(stage.place().look().unwrap().strays.is_empty());
}

fn a_backup_lies_where_the_place_said_it_would(stage: &Stage) {
    let begun = stage.begun(1);
    assert_eq!(begun.devices.len(), 2, "one for each family");
    for (device, family) in begun.devices.iter().zip(1..) {
        let name = device.open(&stage.storage).name();
        assert_eq!(stage.place().stripe(&begun.label, family), name);
        stage.write(device);
    }
    stage.assert_seen(&begun.label, |files| {
        assert_eq!(files.stripes, begun.devices)
    });
    // A finished stripe has no writer.
    let now_ns = stage.place().look().unwrap().now_ns;
    assert_eq!(stage.place().writer(&begun.devices, now_ns), None);
}

fn every_backup_has_a_label_of_its_own(stage: &Stage) {
    let labels = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let place = stage.place();
                scope.spawn(move || place.begin(BackupKind::Differential, 1).unwrap())
            })
            .collect();
        let begun: Vec<Begun> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(stage.labels().len(), 4);
        begun
            .iter()
            .map(|begun| begun.label.clone())
            .collect::<Vec<_>>()
    });
    for (i, label) in labels.iter().enumerate() {
        assert_eq!(label.kind(), BackupKind::Differential);
        assert!(!labels[..i].contains(label), "{label}");
    }
}

fn a_copy_has_the_label_and_the_stripes_of_its_original_and_takes_no_label_that_is_there(
    stage: &Stage,
) {
    for families in [1, 2, 5] {
        let original = Label::new(i64::from(families) * 86_400_000_000, BackupKind::Full);
        let begun = stage.place().begin_copy(&original, families).unwrap();
        assert_eq!(begun.label, original);
        assert_eq!(begun.devices.len(), usize::from(families));
        for (device, family) in begun.devices.iter().zip(1..) {
            let name = device.open(&stage.storage).name();
            assert_eq!(stage.place().stripe(&original, family), name);
        }
        assert!(matches!(stage.removed(&original), Removal::InUse(_)));
        let refused = |label: &Label| {
            let again = stage.place().begin_copy(label, families);
            assert!(
                matches!(again, Err(Error::LabelTaken { .. })),
                "{families}: {again:?}"
            );
        };
        refused(&original);
        begun.devices.iter().for_each(|device| stage.write(device));
        begun.hold.confirm().unwrap();
        refused(&original);
        drop(begun);
        refused(&original);
        stage.assert_seen(&original, |files| {
            assert_eq!(files.stripes.len(), usize::from(families));
            assert!(files.any_finished && files.holders.is_empty());
        });
        refused(&stage.shelved(9));
    }
    let label = Label::new(0, BackupKind::Full);
    drop(stage.place().begin_copy(&label, 3).unwrap());
    assert!(!stage.labels().contains(&label), "nothing was written");
}

fn what_is_written_or_read_is_not_removed(stage: &Stage) {
    let begun = stage.begun(1);
    let is_kept = |label: &Label| {
        let removal = stage.removed(label);
        assert!(matches!(removal, Removal::InUse(_)), "{removal:?}");
        stage.assert_seen(label, |files| {
            assert!(!files.removing, "the removal was taken back");
        });
    };
    is_kept(&begun.label);
    begun.devices.iter().for_each(|device| stage.write(device));
    is_kept(&begun.label);
    let Begun {
        label,
        hold,
        devices,
    } = begun;
    drop(hold);
    let Protection::Held(first) = stage.place().protect(&label).unwrap() else {
        panic!("a place that is writable protects");
    };
    let Protection::Held(second) = stage.place().protect(&label).unwrap() else {
        panic!("a place that is writable protects");
    };
    is_kept(&label);
    drop(first);
    second.confirm().unwrap();
    is_kept(&label);
    stage.assert_seen(&label, |files| assert_eq!(files.stripes, devices));
    drop(second);
    assert_eq!(stage.removed(&label), Removal::Done);
}

fn a_hold_that_others_could_take_for_dead_says_so(stage: &Stage) {
    let begun = stage.begun(1);
    begun.devices.iter().for_each(|device| stage.write(device));
    let read = stage.shelved(2);
    let Protection::Held(reader) = stage.place().protect(&read).unwrap() else {
        panic!("a place that is writable protects");
    };
    for hold in [&begun.hold, &reader] {
        hold.confirm().unwrap();
    }
    (stage.standstill)();
    let found = stage.place().look().unwrap();
    for (label, hold) in [(&begun.label, &begun.hold), (&read, &reader)] {
        // A holder may be more careful than those who look.
        let is_held = !found.labels[label].holders.is_empty();
        let is_confirmed = hold.confirm().is_ok();
        assert!(is_held || !is_confirmed, "{label}");
        // A hold that was lost once stays lost.
        assert_eq!(hold.confirm().is_ok(), is_confirmed, "{label}, again");
    }
}

fn a_backup_that_is_not_used_is_removed_as_a_whole(stage: &Stage) {
    let labels = [1, 2, 3].map(|day| stage.shelved(day));
    assert_eq!(stage.labels(), labels);
    assert_eq!(stage.removed(&labels[1]), Removal::Done);
    assert_eq!(stage.labels(), [labels[0].clone(), labels[2].clone()]);
    assert_eq!(
        stage.removed(&labels[1]),
        Removal::Done,
        "it is gone already"
    );
    assert!(stage.place().look().unwrap().strays.is_empty());
    stage.assert_seen(&labels[2], |files| assert_eq!(files.stripes.len(), 2));
}

fn one_program_at_a_time_removes(stage: &Stage) {
    stage.shelved(1);
    let (one, other) = (stage.place(), stage.place());
    let lock = one.lock().unwrap();
    assert!(lock.is_some());
    let busy = other.lock().map(|lock| lock.is_some());
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    // A backup and a reader are not in the way.
    let label = stage.shelved(2);
    assert!(stage.place().protect(&label).is_ok());
    drop(lock);
    assert!(other.lock().unwrap().is_some());
}

fn a_backup_that_is_not_there_is_not_protected(stage: &Stage) {
    let kept = stage.shelved(1);
    let gone = stage.shelved(2);
    assert_eq!(stage.removed(&gone), Removal::Done);
    for label in [gone, Label::new(3, BackupKind::Full)] {
        let protected = stage.place().protect(&label).map(drop);
        let is_told = matches!(protected, Err(Error::NoSuchLabel { .. }));
        assert!(is_told, "{protected:?}");
    }
    assert_eq!(stage.labels(), [kept], "nothing was made");
}

fn a_mark_is_found_again_and_only_at_its_place(stage: &Stage) {
    stage.shelved(1);
    let place = stage.place();
    let made = [place.new_mark().unwrap(), place.new_mark().unwrap()];
    let found = stage.place().marks().unwrap();
    assert_eq!(found.len(), 2);
    for mark in &made {
        let again = found.iter().find(|known| known.id == mark.id).unwrap();
        let facts = |mark: &ShelfMark| (mark.changed_ns, mark.only_at.clone());
        assert_eq!(facts(again), facts(mark));
    }
    assert_ne!(made[0].id, made[1].id);
    assert!(stage.place().look().unwrap().strays.is_empty());
    let other = stage.place_of("other");
    assert!(other.marks().unwrap().is_empty());
    assert_eq!(stage.place().home().unwrap(), place.home().unwrap());
    drop(other.begin(BackupKind::Full, 1).unwrap());
    assert_ne!(other.home().unwrap(), place.home().unwrap());
}

/// A record's name.
const NOTE: &str = ".longshore-status-note";

fn notes(stage: &Stage, len_max: usize) -> Vec<FoundRecord> {
    let names = [NOTE, ".longshore-status-other"];
    stage.place().records(&names, len_max).unwrap()
}

fn a_record_is_replaced_as_a_whole_and_is_no_backup(stage: &Stage) {
    assert!(notes(stage, 9).is_empty());
    let label = stage.shelved(1);
    let mut last_ns = i64::MIN;
    for bytes in [&b"longer"[..], b"", b"short"] {
        stage.place().put_record(NOTE, bytes).unwrap();
        let found = notes(stage, 9);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, NOTE);
        assert_eq!(found[0].bytes.as_deref(), Some(bytes));
        assert!(found[0].at.ends_with(NOTE), "{found:?}");
        assert!(found[0].changed_ns >= last_ns, "{found:?}");
        last_ns = found[0].changed_ns;
    }
    let found = stage.place().look().unwrap();
    assert!(found.strays.is_empty(), "{found:?}");
    assert_eq!(found.labels.len(), 1);
    assert!(stage.place().marks().unwrap().is_empty());
    assert!(
        stage
            .place_of("other")
            .records(&[NOTE], 9)
            .unwrap()
            .is_empty()
    );
    assert_eq!(stage.removed(&label), Removal::Done);
    assert_eq!(notes(stage, 9).len(), 1, "it stays");
}

fn a_record_that_is_too_long_is_not_read(stage: &Stage) {
    stage.shelved(1);
    stage.place().put_record(NOTE, b"0123456789").unwrap();
    let read = |len_max| notes(stage, len_max)[0].bytes.clone();
    assert_eq!(read(10).as_deref(), Some(&b"0123456789"[..]));
    assert_eq!(read(9), None);
    assert_eq!(read(0), None);
}

fn a_lost_stripe_gets_room_where_it_was(stage: &Stage) {
    let label = stage.shelved(3);
    let place = stage.place();
    let before = place.look().unwrap().labels[&label].stripes.clone();
    let lost = place.device(&label, 2).unwrap();
    assert_eq!(before[1], lost);
    if let DeviceSpec::File(path) = &lost {
        // Its disk was replaced: nothing of the database is there.
        let dir = |path: &std::path::Path| stage.storage.dir(path).unwrap();
        let of_label = path.parent().unwrap();
        dir(of_label).remove_file("family-2.bak".as_ref()).unwrap();
        let home = of_label.parent().unwrap();
        dir(home).remove_dir(label.as_str().as_ref()).unwrap();
        assert_eq!(place.look().unwrap().labels[&label].stripes.len(), 1);
    }
    let _held = place.protect(&label).unwrap();
    for _ in 0..2 {
        place.make_room(&label, 2).unwrap();
    }
    if matches!(lost, DeviceSpec::File(_)) {
        stage.write(&lost);
    }
    assert_eq!(place.look().unwrap().labels[&label].stripes, before);
}

fn stripes_that_are_written_again_have_another_change(stage: &Stage) {
    let begun = stage.begun(1);
    let changes = || {
        stage.place().look().unwrap().labels[&begun.label]
            .changes
            .clone()
    };
    assert!(changes().is_empty(), "nothing is finished");
    begun.devices.iter().for_each(|device| stage.write(device));
    let first = changes();
    assert_eq!(first.len(), 2, "{first:?}");
    assert_ne!(first[0], first[1]);
    assert_eq!(changes(), first, "reading changes nothing");
    let copy = stage
        .place()
        .begin_copy(&Label::new(9, BackupKind::Full), 2)
        .unwrap();
    copy.devices.iter().for_each(|device| stage.write(device));
    let theirs = &stage.place().look().unwrap().labels[&copy.label].changes;
    assert!(
        theirs.iter().all(|change| !first.contains(change)),
        "{theirs:?}"
    );
}

fn a_word_that_stops_is_seen_by_everybody_until_it_is_taken_away(stage: &Stage) {
    let place = stage.place();
    assert_eq!(place.stopped().unwrap(), None);
    assert!(!place.resume().unwrap());
    place.stop("the disk is replaced").unwrap();
    place.stop("the other disk, too").unwrap();
    let seen = || stage.place().stopped().unwrap();
    assert_eq!(seen().as_deref(), Some("the other disk, too"));
    assert_eq!(stage.place_of("other").stopped().unwrap(), None);
    // It is neither a backup nor a stray, and what has begun goes on.
    stage.shelved(1);
    let found = stage.place().look().unwrap();
    assert_eq!((found.labels.len(), found.strays), (1, Vec::new()));
    assert!(stage.place().resume().unwrap());
    assert_eq!(seen(), None);
    assert!(!stage.place().resume().unwrap());
}

fn what_is_no_backup_is_told_and_left_alone(stage: &Stage) {
    let label = stage.shelved(1);
    let stripe = PathBuf::from(stage.place().stripe(&label, 1));
    let text = stripe.to_str().unwrap();
    let (backup, name) = text.rsplit_once('/').unwrap();
    let home = backup.rsplit_once('/').unwrap().0;
    for path in [format!("{home}/notes/{name}"), format!("{home}/{WAL}/x")] {
        let device = DeviceSpec::parse(&path);
        if let DeviceSpec::File(path) = &device {
            stage
                .storage
                .create_dir_all(path.parent().unwrap())
                .unwrap();
        }
        stage.write(&device);
    }
    let strays = stage.place().look().unwrap().strays;
    assert_eq!(strays.len(), 1, "{strays:?}");
    assert!(strays[0].contains("notes"), "{strays:?}");
    assert_eq!(stage.removed(&label), Removal::Done);
    assert_eq!(stage.place().look().unwrap().strays, strays);
}

/// Also the text of [`Folder`], which writes them: an object is there whole, also when it is written again, by several at once, or over
/// other bytes; and a name without one has none.
fn key_objects_are_of_their_backup_and_go_with_it(stage: &Stage) {
    let (label, other) = (stage.shelved(1), stage.shelved(2));
    let stripe = DeviceSpec::parse(&stage.place().stripe(&label, 1));
    let folder = stripe.open(&stage.storage).folder().unwrap();
    let set = [7; 16];
    assert!(folder.objects(&set).unwrap().is_empty());
    let bytes = b"an object".repeat(100);
    let name = ObjectName::of(&set, &bytes);
    let theirs = ObjectName::of(&[8; 16], &bytes);
    assert_eq!(folder.read(&name).unwrap(), None);
    for _ in 0..2 {
        folder.write(&name, &bytes).unwrap();
    }
    folder.write(&theirs, &bytes).unwrap();
    assert_eq!(folder.objects(&set).unwrap(), std::slice::from_ref(&name));
    assert_eq!(folder.read(&name).unwrap().unwrap(), bytes);
    // Other bytes under its name are replaced.
    folder.write(&name, b"rot").unwrap();
    folder.write(&name, &bytes).unwrap();
    assert_eq!(folder.read(&name).unwrap().unwrap(), bytes);
    // Several write one object at once, and none of them fails.
    let both = [ObjectName::of(&[9; 16], &bytes), name.clone()];
    std::thread::scope(|scope| {
        let write = || both.iter().for_each(|n| folder.write(n, &bytes).unwrap());
        (0..4).for_each(|_| drop(scope.spawn(write)));
    });
    // No more is read of a long one than tells that it is too long.
    let long = vec![1; OBJECT_MAX + 5000];
    let too_long = ObjectName::of(&set, &long);
    assert!(folder.write(&too_long, &long).is_err());
    let read = folder.read(&too_long).unwrap().unwrap();
    assert_eq!(read.len(), OBJECT_MAX + 1);
    let before = stage.place().look().unwrap().labels[&label].imprint();
    stage.assert_seen(&label, |files| {
        assert_eq!(files.objects.len(), 4);
        assert!(files.objects.contains(&name) && files.bytes > bytes.len() as u64);
        assert_eq!(files.imprint(), before);
    });
    assert!(stage.place().look().unwrap().strays.is_empty());
    stage.assert_seen(&other, |files| assert!(files.objects.is_empty()));
    assert_eq!(stage.removed(&label), Removal::Done);
    assert_eq!(stage.labels(), [other]);
    assert!(stage.place().look().unwrap().strays.is_empty());
}

fn nothing_is_aborted_where_nothing_was_left(stage: &Stage) {
    stage.shelved(1);
    let begun = stage.begun(2);
    let place = stage.place();
    assert_eq!(place.left_uploads().unwrap().unwrap_or(0), 0);
    let remover = place.lock().unwrap().unwrap();
    assert_eq!(
        remover.abort_left_uploads().unwrap(),
        LeftUploads::default()
    );
    begun.hold.confirm().unwrap();
}

/// A place that keeps every promise but one.
#[derive(Debug)]
struct Lying {
    place: Arc<dyn Place>,
    lie: Lie,
    has_forgotten: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    HoldsNothing,
    ProtectsNothing,
    ProtectsAnything,
    LocksNobodyOut,
    ForgetsMarks,
    ForgetsRecords,
    ForgetsTheFirstRecord,
    ReadsAnyLength,
    ForgetsStops,
    HasItElsewhere,
    MakesNoRoom,
    RemovesNothing,
    CopiesOverAnything,
    ConfirmsWhatWasLost,
    ConfirmsNothing,
    SeesNothingUnderItsLock,
    KeepsWhatNobodyUses,
    AbortsWhatIsInUse,
    CountsWhatIsInUse,
}

/// A hold that keeps its holder protected and says the wrong thing.
#[derive(Debug)]
struct Misled {
    _hold: Box<dyn Hold>,
    lie: Lie,
}

impl Hold for Misled {
    fn confirm(&self) -> Result<(), Error> {
        match self.lie {
            Lie::ConfirmsNothing => Err(Error::LeaseLost { at: "here".into() }),
            _ => Ok(()),
        }
    }
}

/// The hold, or one that lies about it.
fn hold(hold: Box<dyn Hold>, lie: Lie) -> Box<dyn Hold> {
    match lie {
        Lie::ConfirmsWhatWasLost | Lie::ConfirmsNothing => Box::new(Misled { _hold: hold, lie }),
        _ => hold,
    }
}

/// A remover that has its lock and keeps every other promise but one.
struct Careless<'a> {
    remover: Box<dyn Remover + 'a>,
    lie: Lie,
}

impl Remover for Careless<'_> {
    fn look(&self) -> Result<Found, Error> {
        let mut found = self.remover.look()?;
        if self.lie == Lie::SeesNothingUnderItsLock {
            found.labels.clear();
        }
        Ok(found)
    }

    fn remove(&self, label: &Label) -> Result<Removal, Error> {
        match self.lie {
            Lie::KeepsWhatNobodyUses => Ok(Removal::InUse("a program".into())),
            _ => self.remover.remove(label),
        }
    }

    fn abort_left_uploads(&self) -> Result<LeftUploads, Error> {
        let mut left = self.remover.abort_left_uploads()?;
        left.aborted += u64::from(self.lie == Lie::AbortsWhatIsInUse);
        Ok(left)
    }
}

/// Holds nothing.
#[derive(Debug)]
struct Nothing;

impl Hold for Nothing {
    fn confirm(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Claims for Lying {
    fn begin(&self, kind: BackupKind, begun_us: i64) -> Result<Begun, Error> {
        let mut begun = self.place.begin(kind, begun_us)?;
        if self.lie == Lie::HoldsNothing {
            begun.hold = Box::new(Nothing);
        }
        begun.hold = hold(begun.hold, self.lie);
        Ok(begun)
    }

    fn begin_copy(&self, label: &Label, families: u16) -> Result<Begun, Error> {
        let begun = match self.lie {
            Lie::CopiesOverAnything => {
                let elsewhere = Label::new(label.begun_us(), label.kind());
                let mut begun = self.place.begin_copy(&elsewhere, families)?;
                begun.label = label.clone();
                begun
            }
            _ => self.place.begin_copy(label, families)?,
        };
        Ok(begun)
    }

    fn device(&self, label: &Label, family: u16) -> Result<DeviceSpec, Error> {
        self.place.device(label, family)
    }

    fn make_room(&self, label: &Label, family: u16) -> Result<(), Error> {
        match self.lie {
            Lie::MakesNoRoom => Ok(()),
            _ => self.place.make_room(label, family),
        }
    }
}

impl Place for Lying {
    fn look(&self) -> Result<Found, Error> {
        self.place.look()
    }

    fn writer(&self, stripes: &[DeviceSpec], now_ns: i64) -> Option<String> {
        self.place.writer(stripes, now_ns)
    }

    fn stripe(&self, label: &Label, family: u16) -> String {
        let family = family + u16::from(self.lie == Lie::HasItElsewhere && family == 1);
        self.place.stripe(label, family)
    }

    fn protect(&self, label: &Label) -> Result<Protection, Error> {
        match self.lie {
            Lie::ProtectsNothing => {
                self.place.protect(label)?;
                Ok(Protection::Held(Box::new(Nothing)))
            }
            Lie::ProtectsAnything => Ok(self
                .place
                .protect(label)
                .unwrap_or_else(|error| Protection::Impossible(error.to_string()))),
            lie => Ok(match self.place.protect(label)? {
                Protection::Held(held) => Protection::Held(hold(held, lie)),
                none @ (Protection::Impossible(_) | Protection::Needless) => none,
            }),
        }
    }

    fn left_uploads(&self) -> Result<Option<u64>, Error> {
        let left = self.place.left_uploads()?;
        Ok(match self.lie {
            Lie::CountsWhatIsInUse => Some(left.unwrap_or(0) + 1),
            _ => left,
        })
    }

    fn lock(&self) -> Result<Option<Box<dyn Remover + '_>>, Error> {
        let locked = match self.lie {
            Lie::LocksNobodyOut => {
                let again = self.place.lock();
                again.or_else(|_| Ok(Some(Box::new(Unlocked(&*self.place)))))
            }
            _ => self.place.lock(),
        };
        Ok(match (locked?, self.lie) {
            (Some(_), Lie::RemovesNothing) => Some(Box::new(Unlocked(&*self.place))),
            (Some(remover), lie) => Some(Box::new(Careless { remover, lie })),
            (None, _) => None,
        })
    }
}

impl Marks for Lying {
    fn marks(&self) -> Result<Vec<ShelfMark>, Error> {
        let mut marks = self.place.marks()?;
        if self.lie == Lie::ForgetsMarks {
            marks.pop();
        }
        Ok(marks)
    }

    fn new_mark(&self) -> Result<ShelfMark, Error> {
        self.place.new_mark()
    }

    fn home(&self) -> Result<PathBuf, Error> {
        self.place.home()
    }
}

impl StatusRecords for Lying {
    fn records(&self, names: &[&str], len_max: usize) -> Result<Vec<FoundRecord>, Error> {
        match self.lie {
            Lie::ReadsAnyLength => self.place.records(names, len_max + 100),
            _ => self.place.records(names, len_max),
        }
    }

    fn put_record(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        match self.lie {
            Lie::ForgetsRecords => Ok(()),
            Lie::ForgetsTheFirstRecord if !self.has_forgotten.swap(true, Ordering::Relaxed) => {
                Ok(())
            }
            _ => self.place.put_record(name, bytes),
        }
    }
}

impl Stops for Lying {
    fn stopped(&self) -> Result<Option<String>, Error> {
        match self.lie == Lie::ForgetsStops {
            true => Ok(None),
            false => self.place.stopped(),
        }
    }

    fn stop(&self, word: &str) -> Result<(), Error> {
        self.place.stop(word)
    }

    fn resume(&self) -> Result<bool, Error> {
        self.place.resume()
    }
}

/// Has no lock, and removes nothing.
struct Unlocked<'a>(&'a dyn Place);

impl Remover for Unlocked<'_> {
    fn look(&self) -> Result<Found, Error> {
        self.0.look()
    }

    fn remove(&self, _label: &Label) -> Result<Removal, Error> {
        Ok(Removal::Done)
    }

    fn abort_left_uploads(&self) -> Result<LeftUploads, Error> {
        Ok(LeftUploads::default())
    }
}

/// Goal: the promises see whoever breaks one.
#[test]
fn every_lie_of_a_place_breaks_a_promise() {
    for lie in [
        Lie::None,
        Lie::HoldsNothing,
        Lie::ProtectsNothing,
        Lie::ProtectsAnything,
        Lie::LocksNobodyOut,
        Lie::ForgetsMarks,
        Lie::ForgetsRecords,
        Lie::ReadsAnyLength,
        Lie::ForgetsStops,
        Lie::HasItElsewhere,
        Lie::MakesNoRoom,
        Lie::RemovesNothing,
        Lie::CopiesOverAnything,
        Lie::ConfirmsWhatWasLost,
        Lie::ConfirmsNothing,
        Lie::SeesNothingUnderItsLock,
        Lie::KeepsWhatNobodyUses,
        Lie::AbortsWhatIsInUse,
        Lie::CountsWhatIsInUse,
    ] {
        // Only in a store can a hold be lost.
        let stage = match lie {
            Lie::ConfirmsWhatWasLost => Stage::bucket,
            _ => Stage::simulated,
        };
        let keeps = |promise: &&fn(&Stage)| {
            let stage = Stage { lie, ..stage() };
            std::panic::catch_unwind(AssertUnwindSafe(|| promise(&stage))).is_ok()
        };
        let kept = PROMISES.iter().filter(keeps).count();
        assert_eq!(kept == PROMISES.len(), lie == Lie::None, "{lie:?}");
    }
}

/// Goal: an alarm does not end because another host writes its own result over it.
#[test]
fn a_failure_that_is_lost_is_recorded_again() {
    let stage = Stage {
        lie: Lie::ForgetsTheFirstRecord,
        ..Stage::real()
    };
    let Places::Directories(paths) = &stage.target.places else {
        unreachable!("it has directories");
    };
    std::fs::create_dir(paths[0].join("db")).unwrap();
    let clock = Arc::new(HostClock);
    let mut shelf = Shelf::new(stage.storage.clone(), clock, &stage.target, "db").unwrap();
    shelf.place = stage.place();
    let run = FailedRun::new(Witnessed::now(1), None, (4, 3201, "away"));
    let news = News {
        failed: Some(run.clone()),
        ..News::default()
    };
    shelf.record(Task::Verify, &news).unwrap();
    assert_eq!(shelf.status().unwrap().open(Task::Verify), Some(&run));
}
