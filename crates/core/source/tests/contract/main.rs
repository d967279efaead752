//! Goal: one contract holds for all sources: here for directories, on a real disk and on a simulated one, and for
//! SQLite with a rollback journal and with a write-ahead log.
//! Method: `suite.rs` reads each source in every way; sources that lie in one thing must break it.
//! Not covered: a server's source, which is checked in `tests/postgres`.

mod suite;

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_io::{Fault, Host, Op, SimDisk, Storage, Via};
use longshore_source::{
    Change, Content, Description, Entry, EntryKind, Error, Source, SourceOptions, SourceSpec,
    SourceSummary, open,
};
use suite::{keeps_its_contract, keeps_its_contract_to_one_reader};

fn opened(storage: &Arc<dyn Storage>, spec: &SourceSpec) -> Box<dyn Source> {
    open(storage.clone(), spec, &SourceOptions::default()).unwrap()
}

/// Longer than a piece that is read.
fn long() -> Vec<u8> {
    (0..200_123_usize).map(|i| (i / 7) as u8 | 1).collect()
}

#[test]
fn a_directory_on_a_real_disk_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("sub")).unwrap();
    std::fs::write(path("sub/long"), long()).unwrap();
    std::fs::write(path("empty"), b"").unwrap();
    let mut holes = vec![0; 3 << 20];
    holes[2 << 20..][..5].copy_from_slice(b"bytes");
    let file = std::fs::File::create(path("holes")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"bytes", 2 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    std::fs::hard_link(path("sub/long"), path("sub/other")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Host::new());
    let spec = SourceSpec::Files(vec![dir.path().into()]);
    let kept = keeps_its_contract(opened(&storage, &spec));
    let files: Vec<&Path> = kept.files.keys().map(PathBuf::as_path).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    assert!(kept.files[Path::new("holes")] == holes);
    assert!(kept.files.values().any(|bytes| *bytes == long()));
    let links = kept
        .kinds
        .values()
        .filter(|kind| matches!(kind, EntryKind::HardLink { .. } | EntryKind::Symlink { .. }));
    assert_eq!(links.count(), 2);
    assert_eq!(kept.changes, []);
}

/// Two directories, each a volume.
fn simulated() -> (SimDisk, Arc<dyn Storage>, SourceSpec) {
    let disk = SimDisk::new(1);
    disk.mount("/b").unwrap();
    disk.write_file("/a/long", &long()).unwrap();
    disk.write_file("/b/sub/short", b"short").unwrap();
    let spec = SourceSpec::Files(vec!["/a".into(), "/b".into()]);
    (disk.clone(), Arc::new(disk), spec)
}

#[test]
fn directories_on_a_simulated_disk_keep_the_contract() {
    for tells_holes in [true, false] {
        let (disk, storage, spec) = simulated();
        disk.set_tells_holes(tells_holes);
        let source = opened(&storage, &spec);
        assert_eq!(source.description().volumes.len(), 2);
        let kept = keeps_its_contract(source);
        assert!(kept.files.values().any(|bytes| *bytes == long()));
        assert!(kept.files.values().any(|bytes| bytes == b"short"));
        let once = keeps_its_contract_to_one_reader(opened(&storage, &spec));
        assert!(once.files == kept.files && once.kinds == kept.kinds);
    }
}

/// Goal: bytes that a file no longer has are zeros, and the change is told; bytes that cannot be read are an error.
#[test]
fn a_file_that_shrinks_or_vanishes_reads_as_zeros_and_a_bad_one_as_an_error() {
    for (what, change) in [
        ("shrink", Some(Change::Shrunk)),
        ("vanish", Some(Change::Vanished)),
        ("fail", None),
    ] {
        let (disk, storage, spec) = simulated();
        let source = opened(&storage, &spec);
        let mut entries = std::iter::from_fn(|| source.next(0).unwrap());
        let entry = entries.find(|entry| entry.len > 0).unwrap();
        match what {
            "shrink" => disk.write_file("/a/long", &long()[..5000]).unwrap(),
            "vanish" => drop(disk.remove_tree_at(0, "/a/long")),
            _ => drop(disk.inject(Fault::errno(5).on(Op::Read).below("/a"))),
        }
        // A step, so that what is to be removed is.
        let b = disk.dir(Path::new("/b")).unwrap();
        b.sync(Path::new("")).unwrap();
        let content = entry.content.unwrap();
        let mut bytes = vec![7; 10_000];
        let read = content.read_at(&mut bytes, 0, Via::Cache);
        let Some(change) = change else {
            assert!(matches!(read, Err(Error::Read { .. })), "{read:?}");
            continue;
        };
        read.unwrap();
        let left = if what == "shrink" { 5000 } else { 0 };
        assert!(bytes[..left] == long()[..left]);
        assert!(bytes[left..].iter().all(|byte| *byte == 0), "{what}");
        assert_eq!(content.settle().unwrap(), Some(change));
    }
}

#[test]
fn a_database_keeps_the_contract_with_and_without_a_log() {
    for mode in ["DELETE", "WAL"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let db = rusqlite::Connection::open(&path).unwrap();
        db.pragma_update(None, "journal_mode", mode).unwrap();
        db.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(300000)), ('last')")
            .unwrap();
        let storage: Arc<dyn Storage> = Arc::new(Host::new());
        let kept = keeps_its_contract(opened(&storage, &SourceSpec::Sqlite(path)));
        let [bytes] = &kept.files.into_values().collect::<Vec<_>>()[..] else {
            panic!("{mode}: one file");
        };
        let copy = dir.path().join("copy.db");
        std::fs::write(&copy, bytes).unwrap();
        let copy = rusqlite::Connection::open(&copy).unwrap();
        let last = copy.query_row("SELECT x FROM t WHERE typeof(x) = 'text'", [], |row| {
            row.get::<_, String>(0)
        });
        assert_eq!(last.unwrap(), "last", "{mode}");
        drop(db);
    }
}

/// A source that keeps the contract but in one thing.
struct Lying {
    source: Box<dyn Source>,
    lie: Lie,
    ended: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    PathOutside,
    KindInMode,
    BytesNowhere,
    MoreAfterTheEnd,
    ByteLeftOut,
    DataInHole,
}

impl Source for Lying {
    fn description(&self) -> &Description {
        self.source.description()
    }

    fn next(&self, volume: usize) -> Result<Option<Entry>, Error> {
        let Some(mut entry) = self.source.next(volume)? else {
            let again = self.ended.swap(true, Ordering::Relaxed);
            let entry = named("more");
            return Ok((self.lie == Lie::MoreAfterTheEnd && again).then_some(entry));
        };
        match self.lie {
            Lie::PathOutside => entry.path = Path::new("..").join(entry.path),
            Lie::KindInMode => entry.mode |= 0o100_000,
            Lie::BytesNowhere => entry.content = None,
            _ => {}
        }
        entry.content = entry.content.map(|content| {
            let lie = self.lie;
            Arc::new(LyingContent { content, lie }) as Arc<dyn Content>
        });
        Ok(Some(entry))
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, Error> {
        self.source.finish()
    }
}

struct LyingContent {
    content: Arc<dyn Content>,
    lie: Lie,
}

impl Content for LyingContent {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> Result<(), Error> {
        let filled = buf.len() - usize::from(self.lie == Lie::ByteLeftOut && offset == 0);
        self.content.read_at(&mut buf[..filled], offset, via)
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        self.content.is_cached(range)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        match self.lie {
            Lie::DataInHole => Ok(None),
            _ => self.content.next_data(offset),
        }
    }

    fn settle(&self) -> Result<Option<Change>, Error> {
        self.content.settle()
    }
}

fn named(path: &str) -> Entry {
    let disk = SimDisk::new(1);
    let stat = disk.stat(Path::new("/")).unwrap();
    Entry::named(path.into(), EntryKind::Dir, &stat)
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::PathOutside,
        Lie::KindInMode,
        Lie::BytesNowhere,
        Lie::MoreAfterTheEnd,
        Lie::ByteLeftOut,
        Lie::DataInHole,
    ] {
        let (_, storage, spec) = simulated();
        let source = Box::new(Lying {
            source: opened(&storage, &spec),
            lie,
            ended: AtomicBool::new(false),
        });
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| keeps_its_contract(source)));
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}
