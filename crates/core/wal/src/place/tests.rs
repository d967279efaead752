//! Goal: the text of [`Place`], [`Stored`] and [`Draft`] holds for every place.
//! Method: directories on a real disk and on simulated ones with and without locks that reach everybody, and prefixes
//! of a simulated store with its habits.
//!
//! Each promise is a function of a [`Stage`]; the macro at the top makes each a test of each stage. A place that lies,
//! with drafts and open files that lie, shows that the promises can be broken.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use longshore_bucket::Scheme;
use longshore_bucket::sim::{Act, Habits, Store};
use longshore_io::{Clock, Fault, Host, HostClock, Op, SimDisk, Stat};
use longshore_pg::SegmentSize;

use super::super::identity::{Identity, Mark};
use super::door::Keep;
use super::*;

/// One empty archive, and as many handles to it as are asked for.
struct Stage {
    handle: Box<dyn Fn() -> Arc<dyn Place> + Sync>,
    /// From then on the place does not answer.
    silence: Box<dyn Fn() + Sync>,
    lie: Lie,
    _directory: Option<tempfile::TempDir>,
}

impl Stage {
    fn place(&self) -> Arc<dyn Place> {
        let place = (self.handle)();
        match self.lie {
            Lie::None => place,
            lie => Arc::new(Lying { place, lie }),
        }
    }

    fn real() -> Stage {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let gone = path.clone();
        Stage {
            handle: Box::new(move || {
                let dir = Host::new().dir(&path).unwrap();
                Ground::Directory(dir).place(&path)
            }),
            // A name that is no directory cannot be looked into.
            silence: Box::new(move || std::fs::write(gone.join("aa"), b"no directory").unwrap()),
            lie: Lie::None,
            _directory: Some(directory),
        }
    }

    fn on(disk: SimDisk) -> Stage {
        disk.create_dir_all(Path::new("/archive")).unwrap();
        let broken = disk.clone();
        Stage {
            handle: Box::new(move || {
                let dir = disk.dir(Path::new("/archive")).unwrap();
                Ground::Directory(dir).place(Path::new("/archive"))
            }),
            silence: Box::new(move || {
                broken.inject(Fault::errno(EIO).on(Op::Open));
            }),
            lie: Lie::None,
            _directory: None,
        }
    }

    fn simulated() -> Stage {
        Stage::on(SimDisk::new(1))
    }

    fn without_locks() -> Stage {
        Stage::on(SimDisk::new(2).set_keeps_locks(false))
    }

    fn that_writes_in_pieces() -> Stage {
        Stage::on(SimDisk::new(3).inject(Fault::short_write().sometimes()))
    }

    fn in_a_bucket(scheme: Scheme, habits: Habits) -> Stage {
        let store = Store::speaking(scheme);
        store.habits(habits);
        let silent = store.clone();
        Stage {
            handle: Box::new(move || {
                let ground = Ground::Bucket(store.bucket().unwrap(), Key::parse(ODD).unwrap());
                ground.place(Path::new(&format!("{scheme}sim/main/wal")))
            }),
            silence: Box::new(move || silent.script(|_| Act::LoseRequest)),
            lie: Lie::None,
            _directory: None,
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
}

/// A prefix with characters that an address encodes: they stay as they are in a key.
const ODD: &str = "ma~in/w\u{fc}%7E#[a]{b}";

const EIO: i32 = 5;

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
    of real simulated without_locks that_writes_in_pieces bucket azure google
        bucket_without_dates_and_with_short_pages;
    an_empty_place_has_nothing
    a_file_has_its_name_when_it_is_complete_and_not_before
    a_draft_that_is_dropped_leaves_nothing
    the_first_file_of_a_name_is_not_replaced
    of_several_writers_of_one_name_one_is_told_that_it_was_first
    a_file_is_read_in_any_range_and_never_beyond_its_end
    a_file_is_told_from_its_successor
    short_files_are_written_once_or_again
    of_several_marks_one_stands
    a_removed_file_is_gone_and_so_is_its_directory
    a_place_that_does_not_answer_is_an_error
}

/// Longer than what a place looks at at once, and no multiple of anything.
fn long(seed: u8) -> Vec<u8> {
    let byte = |i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed;
    (0..150_123).map(byte).collect()
}

/// A draft with these bytes, in pieces as a writer makes them.
fn draft(stage: &Stage, below: &str, name: &str, bytes: &[u8]) -> Box<dyn Draft> {
    let begun = stage.place().begin(Path::new(below), name).unwrap();
    let mut draft = begun.unwrap();
    let mut at = 0;
    for piece in bytes.chunks(64 << 10) {
        draft.write(piece, at).unwrap();
        at += piece.len() as u64;
    }
    draft.sync().unwrap();
    draft
}

/// Puts a file as an archive does: with the draft in hand, it looks for the name.
fn put(stage: &Stage, bytes: &[u8]) -> Published {
    let draft = draft(stage, "aa", "x", bytes);
    match opened(stage, "aa/x.wal") {
        Some(_) => Published::Theirs,
        None => draft.publish("x.wal").unwrap(),
    }
}

fn opened(stage: &Stage, file: &str) -> Option<Arc<dyn Stored>> {
    stage.place().open(Path::new(file), Wanted::All).unwrap()
}

fn read(stage: &Stage, file: &str) -> Option<Vec<u8>> {
    let stored = opened(stage, file)?;
    let mut bytes = vec![0; stored.len().unwrap() as usize];
    stored.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// The finished files of a directory, with their lengths.
fn names(stage: &Stage, below: &str) -> Vec<(String, u64)> {
    let listed = stage.place().list(Path::new(below), true).unwrap();
    let named = |entry: Entry| (entry.name.into_string().unwrap(), entry.len_bytes);
    let mut names: Vec<_> = listed.into_iter().map(named).collect();
    names.retain(|(name, _)| !name.ends_with(".tmp"));
    names.sort();
    names
}

fn an_empty_place_has_nothing(stage: &Stage) {
    assert_eq!(names(stage, ""), []);
    assert_eq!(names(stage, "aa"), []);
    assert!(opened(stage, "x.wal").is_none());
    assert!(opened(stage, "aa/x.wal").is_none());
    stage.place().remove(Path::new("x.wal")).unwrap();
    stage.place().remove(Path::new("aa/x.wal")).unwrap();
    let mark = read_mark(&*stage.place(), Path::new("archive")).unwrap();
    assert!(mark.is_none());
}

fn a_file_has_its_name_when_it_is_complete_and_not_before(stage: &Stage) {
    for (name, bytes) in [("x", long(1)), ("empty", Vec::new())] {
        let file = format!("{name}.wal");
        let draft = draft(stage, "aa", name, &bytes);
        assert!(opened(stage, &format!("aa/{file}")).is_none());
        assert!(!names(stage, "aa").iter().any(|(known, _)| *known == file));
        let published = draft.publish(&file).unwrap();
        assert!(matches!(published, Published::Ours { .. }), "{published:?}");
        assert!(read(stage, &format!("aa/{file}")).unwrap() == bytes);
    }
    let expected = [("empty.wal".to_owned(), 0), ("x.wal".to_owned(), 150_123)];
    assert_eq!(names(stage, "aa"), expected);
}

fn a_draft_that_is_dropped_leaves_nothing(stage: &Stage) {
    drop(draft(stage, "aa", "x", &long(2)));
    let listed = stage.place().list(Path::new("aa"), false).unwrap();
    assert!(listed.is_empty(), "{listed:?}");
    // The next writer gets through.
    assert!(matches!(put(stage, &long(3)), Published::Ours { .. }));
    assert!(read(stage, "aa/x.wal").unwrap() == long(3));
}

fn the_first_file_of_a_name_is_not_replaced(stage: &Stage) {
    // The second writer has no draft while the first one has, or is told at its end.
    let first = draft(stage, "aa", "x", &long(4));
    let second = stage.place().begin(Path::new("aa"), "x").unwrap();
    let published = first.publish("x.wal").unwrap();
    assert!(matches!(published, Published::Ours { .. }), "{published:?}");
    if let Some(mut second) = second {
        second.write(&[5; 5000], 0).unwrap();
        second.sync().unwrap();
        assert_eq!(second.publish("x.wal").unwrap(), Published::Theirs);
    }
    for bytes in [long(5), Vec::new()] {
        assert_eq!(put(stage, &bytes), Published::Theirs);
        assert!(read(stage, "aa/x.wal").unwrap() == long(4));
    }
    assert_eq!(names(stage, "aa").len(), 1);
}

fn of_several_writers_of_one_name_one_is_told_that_it_was_first(stage: &Stage) {
    let first = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let first = &first;
            scope.spawn(move || {
                let place = stage.place();
                let Some(mut draft) = place.begin(Path::new(""), "x").unwrap() else {
                    return;
                };
                draft.write(&[seed; 5000], 0).unwrap();
                draft.sync().unwrap();
                if place
                    .open(Path::new("x.wal"), Wanted::Parts)
                    .unwrap()
                    .is_some()
                {
                    return;
                }
                if let Published::Ours { .. } = draft.publish("x.wal").unwrap() {
                    first.lock().unwrap().push(seed);
                }
            });
        }
    });
    let [first] = first.into_inner().unwrap()[..] else {
        panic!("one writer is the first");
    };
    assert!(read(stage, "x.wal").unwrap() == [first; 5000]);
}

fn a_file_is_read_in_any_range_and_never_beyond_its_end(stage: &Stage) {
    let bytes = long(6);
    put(stage, &bytes);
    let len = bytes.len();
    for wanted in [Wanted::All, Wanted::Parts] {
        let place = stage.place();
        let stored = place.open(Path::new("aa/x.wal"), wanted).unwrap().unwrap();
        assert_eq!(stored.len().unwrap(), len as u64);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (stored, bytes) = (&stored, &bytes);
                scope.spawn(move || {
                    for (offset, count) in [
                        (0, 1),
                        (thread * 4096, 8192),
                        (70_000 + thread, 60_000),
                        (len - 1, 1),
                        (len - 70_000, 70_000),
                        (0, len),
                        (len, 0),
                    ] {
                        let mut found = vec![0; count];
                        stored.read_exact_at(&mut found, offset as u64).unwrap();
                        assert!(found == bytes[offset..offset + count], "{offset} {count}");
                    }
                });
            }
        });
        for (offset, count) in [(len, 1), (len - 1, 2), (0, len + 1), (len + 4096, 1)] {
            let beyond = stored.read_exact_at(&mut vec![0; count], offset as u64);
            assert!(beyond.is_err(), "{count} bytes at {offset} of {len}");
        }
    }
}

fn a_file_is_told_from_its_successor(stage: &Stage) {
    let identity = || {
        let stat = opened(stage, "aa/x.wal").unwrap().stat().unwrap();
        (stat.dev, stat.ino, stat.ctime_ns, stat.len)
    };
    put(stage, &long(7));
    let before = identity();
    assert_eq!(identity(), before, "the same file again");
    stage.place().remove(Path::new("aa/x.wal")).unwrap();
    put(stage, &long(8));
    assert_ne!(identity(), before);
}

fn short_files_are_written_once_or_again(stage: &Stage) {
    let place = stage.place();
    let note = Path::new("notes/one");
    place.write(note, b"first", Often::Once).unwrap();
    assert_eq!(read(stage, "notes/one").unwrap(), b"first");
    // A writer whose answer was lost writes the same again.
    place.write(note, b"first", Often::Once).unwrap();
    assert_eq!(names(stage, "notes"), [("one".to_owned(), 5)]);
    for text in [b"first".as_slice(), b"longer than that", b""] {
        place.write(Path::new("note"), text, Often::Again).unwrap();
        assert_eq!(read(stage, "note").unwrap(), text);
    }
}

fn identity(system: u64) -> Mark {
    Mark::Of(Identity {
        system,
        segment_size: SegmentSize::new(16 << 20).unwrap(),
    })
}

fn of_several_marks_one_stands(stage: &Stage) {
    let here = Path::new("archive");
    let any: Keep = &|found| found;
    let written = stage.place().mark(Mark::Unclaimed, &HostClock, any);
    assert_eq!(written.unwrap(), None);
    let again = stage.place().mark(Mark::Unclaimed, &HostClock, any);
    assert_eq!(again.unwrap(), Some(Mark::Unclaimed), "it is kept");
    // An archive without a cluster gets one, of several writers' ones.
    let claimed = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4)
            .map(|system| {
                scope.spawn(move || {
                    let keep: Keep = &|found| found.filter(|mark| mark.identity().is_some());
                    let own = identity(system);
                    let found = stage.place().mark(own, &HostClock, keep).unwrap();
                    found.unwrap_or(own)
                })
            })
            .collect();
        let claimed = writers.into_iter().map(|writer| writer.join().unwrap());
        claimed.collect::<Vec<_>>()
    });
    let stands = read_mark(&*stage.place(), here).unwrap();
    assert!(stands.and_then(Mark::identity).is_some());
    assert!(claimed.iter().all(|mark| Some(*mark) == stands));
}

fn a_removed_file_is_gone_and_so_is_its_directory(stage: &Stage) {
    let place = stage.place();
    put(stage, &long(9));
    draft(stage, "aa", "y", b"other").publish("y.wal").unwrap();
    let open = opened(stage, "aa/x.wal").unwrap();
    place.remove(Path::new("aa/x.wal")).unwrap();
    place.remove(Path::new("aa/x.wal")).unwrap();
    assert!(opened(stage, "aa/x.wal").is_none());
    // A reader that has it open goes on, or is told.
    let mut first = [0; 10];
    if open.read_exact_at(&mut first, 0).is_ok() {
        assert!(first == long(9)[..10]);
    }
    place.settle(Path::new("aa"), true).unwrap();
    assert_eq!(names(stage, "aa"), [("y.wal".to_owned(), 5)]);
    place.remove(Path::new("aa/y.wal")).unwrap();
    place.settle(Path::new("aa"), true).unwrap();
    place.settle(Path::new(""), false).unwrap();
    assert_eq!(names(stage, ""), []);
    assert!(matches!(put(stage, b"again"), Published::Ours { .. }));
}

/// `None` and an empty list mean that there certainly is nothing.
fn a_place_that_does_not_answer_is_an_error(stage: &Stage) {
    let place = stage.place();
    (stage.silence)();
    assert!(place.open(Path::new("aa/x.wal"), Wanted::All).is_err());
    assert!(place.list(Path::new("aa"), false).is_err());
}

/// A place that keeps every promise but one.
#[derive(Debug)]
struct Lying {
    place: Arc<dyn Place>,
    lie: Lie,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    RemovesNothing,
    SilenceIsNothing,
    ListsNoLengths,
    WritesOnce,
    ReplacesAnyMark,
    SaysOursToEverybody,
    TellsAnotherLength,
    FillsBeyondTheEnd,
    HasOneIdentityForAll,
}

/// An open file that keeps every promise but one.
#[derive(Debug)]
struct Misread {
    stored: Arc<dyn Stored>,
    lie: Lie,
}

impl Stored for Misread {
    fn len(&self) -> Result<u64, Error> {
        let more = u64::from(self.lie == Lie::TellsAnotherLength);
        self.stored.len().map(|len| len + more)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        match self.stored.read_exact_at(buf, offset) {
            Err(_) if self.lie == Lie::FillsBeyondTheEnd => Ok(()),
            read => read,
        }
    }

    fn stat(&self) -> Result<Stat, Error> {
        let stat = self.stored.stat()?;
        Ok(match self.lie {
            Lie::HasOneIdentityForAll => Stat {
                dev: 1,
                ino: 1,
                ctime_ns: 1,
                ..stat
            },
            _ => stat,
        })
    }
}

/// Says that it was first.
struct Boasting(Box<dyn Draft>);

impl Draft for Boasting {
    fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn publish(self: Box<Self>, file: &str) -> Result<Published, Error> {
        self.0.publish(file)?;
        Ok(Published::Ours { surely: true })
    }
}

impl Place for Lying {
    fn list(&self, below: &Path, lengths: bool) -> Result<Vec<Entry>, Error> {
        self.place.list(below, lengths).map(|mut entries| {
            if self.lie == Lie::ListsNoLengths {
                entries.iter_mut().for_each(|entry| entry.len_bytes = 0);
            }
            entries
        })
    }

    fn open(&self, file: &Path, wanted: Wanted) -> Result<Option<Arc<dyn Stored>>, Error> {
        let lie = self.lie;
        match self.place.open(file, wanted) {
            Err(_) if lie == Lie::SilenceIsNothing => Ok(None),
            opened => {
                Ok(opened?.map(|stored| -> Arc<dyn Stored> { Arc::new(Misread { stored, lie }) }))
            }
        }
    }

    fn begin(&self, below: &Path, name: &str) -> Result<Option<Box<dyn Draft>>, Error> {
        let begun = self.place.begin(below, name)?;
        Ok(match self.lie {
            Lie::SaysOursToEverybody => {
                begun.map(|draft| -> Box<dyn Draft> { Box::new(Boasting(draft)) })
            }
            _ => begun,
        })
    }

    fn write(&self, file: &Path, bytes: &[u8], often: Often) -> Result<(), Error> {
        let is_there = self.place.open(file, Wanted::Parts)?.is_some();
        match self.lie == Lie::WritesOnce && is_there {
            true => Ok(()),
            false => self.place.write(file, bytes, often),
        }
    }

    fn mark(&self, mark: Mark, clock: &dyn Clock, keep: Keep<'_>) -> Result<Option<Mark>, Error> {
        match self.lie {
            Lie::ReplacesAnyMark => self.place.mark(mark, clock, &|_| None),
            _ => self.place.mark(mark, clock, keep),
        }
    }

    fn remove(&self, file: &Path) -> Result<(), Error> {
        match self.lie {
            Lie::RemovesNothing => Ok(()),
            _ => self.place.remove(file),
        }
    }

    fn settle(&self, below: &Path, emptied: bool) -> Result<(), Error> {
        self.place.settle(below, emptied)
    }
}

/// Goal: the promises see whoever breaks one.
#[test]
fn every_lie_of_a_place_breaks_a_promise() {
    for lie in [
        Lie::None,
        Lie::RemovesNothing,
        Lie::SilenceIsNothing,
        Lie::ListsNoLengths,
        Lie::WritesOnce,
        Lie::ReplacesAnyMark,
        Lie::SaysOursToEverybody,
        Lie::TellsAnotherLength,
        Lie::FillsBeyondTheEnd,
        Lie::HasOneIdentityForAll,
    ] {
        let keeps = |promise: &&fn(&Stage)| {
            let stage = Stage {
                lie,
                ..Stage::without_locks()
            };
            std::panic::catch_unwind(AssertUnwindSafe(|| promise(&stage))).is_ok()
        };
        let kept = PROMISES.iter().filter(keeps).count();
        assert_eq!(kept == PROMISES.len(), lie == Lie::None, "{lie:?}");
    }
}
