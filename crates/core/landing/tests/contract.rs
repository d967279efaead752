//! The text of [`Destination`] as tests, run by a target of each scope: on a real disk, on a simulated one, and on one that
//! writes in pieces and fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Fault, Host, HostClock, Machine, Op, SimDisk, Storage};
use longshore_landing::{Destination, Error, FilePiece, ReplacePolicy, Scope, Target};
use longshore_media::{Entry, EntryKind, Extent};

const SCOPES: [Scope; 3] = [
    Scope::Names { side_files: false },
    Scope::Space,
    Scope::Directory { last: "sub" },
];

type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// A directory that names are restored to.
struct Place {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    fn real() -> Place {
        let directory = tempfile::tempdir().unwrap();
        Place {
            storage: Arc::new(Host::new()),
            path: directory.path().join("to"),
            _directory: Some(directory),
        }
    }

    fn on(disk: &SimDisk) -> Place {
        disk.write_file("/d/other", b"").unwrap();
        Place {
            storage: Arc::new(disk.clone()),
            path: "/d/to".into(),
            _directory: None,
        }
    }

    fn open(&self, scope: Scope, replacing: ReplacePolicy) -> Result<Box<dyn Destination>, Error> {
        let machine = Machine {
            storage: self.storage.clone(),
            clock: Arc::new(HostClock),
        };
        let target = Target::open(&machine, &self.path, replacing, scope, &[])?;
        Ok(Box::new(target))
    }

    /// The files that other programs see there, without the restore's own directory.
    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut todo = vec![PathBuf::new()];
        while let Some(at) = todo.pop() {
            let Ok(dir) = self.storage.dir(&self.path.join(&at)) else {
                continue;
            };
            for name in dir.list().unwrap() {
                let name = PathBuf::from(name.unwrap());
                if name == Path::new(".longshore-restoring") {
                    continue;
                }
                match dir.open(&name, longshore_io::OpenHow::Read) {
                    Ok(file) => {
                        let mut bytes = vec![0; file.stat().unwrap().len as usize];
                        file.read_exact_at(&mut bytes, 0, longshore_io::Via::Cache)
                            .unwrap();
                        tree.insert(at.join(name), bytes);
                    }
                    Err(_) => todo.push(at.join(name)),
                }
            }
        }
        tree
    }
}

fn entry(path: &str, kind: EntryKind, len: u64) -> Entry {
    Entry {
        path: path.into(),
        kind,
        first: true,
        based: false,
        xattrs: Vec::new(),
        mode: 0o700,
        uid: 0,
        gid: 0,
        mtime_ns: 1,
        len,
    }
}

const LEN: usize = 300_000;

fn bytes(seed: u8) -> Vec<u8> {
    (0..LEN).map(|i| (i / 3) as u8 ^ seed).collect()
}

/// A whole file, one in blocks, one in pieces, one that is empty, and one with a hole.
fn expected(seed: u8) -> Tree {
    let mut holes = vec![0; LEN];
    holes[200_000..].copy_from_slice(&bytes(seed)[200_000..]);
    let names = ["blocks", "empty", "holes", "sub/pieces", "sub/whole"];
    let contents = [bytes(seed), Vec::new(), holes, bytes(seed), b"whole".into()];
    names.into_iter().map(PathBuf::from).zip(contents).collect()
}

/// Puts all of it, in an order that no backup would have, from several threads.
fn put(to: &dyn Destination, seed: u8) -> Result<(), Error> {
    let all = bytes(seed);
    let extent = |offset: usize, len: usize| Extent {
        offset: offset as u64,
        len: len as u32,
    };
    let cuts = [(200_000, 100_000), (0, 50_000), (50_000, 150_000)];
    let part = |i: usize| (extent(cuts[i].0, cuts[i].1), &all[cuts[i].0..][..cuts[i].1]);
    let block = |i: usize| {
        let mut file = entry("blocks", EntryKind::File, LEN as u64);
        file.first = i == 0;
        to.put_data(&file, &[part(i)])
    };
    let piece = |i: usize| {
        to.put_piece(&FilePiece {
            path: Path::new("sub/pieces"),
            len: LEN as u64,
            parts: &[part(i)],
        })
    };
    let others = || {
        let file = |name, len: usize| entry(name, EntryKind::File, len as u64);
        to.put_data(&file("sub/whole", 5), &[(extent(0, 5), b"whole")])?;
        to.put_data(&file("holes", LEN), &[part(0)])?;
        to.put_name(&file("empty", 0))?;
        to.put_name(&entry("sub", EntryKind::Dir, 0))
    };
    std::thread::scope(|scope| {
        let pieces = scope.spawn(|| (0..3).try_for_each(piece));
        let blocks = scope.spawn(|| (0..3).try_for_each(block));
        let others = scope.spawn(others);
        [pieces, blocks, others]
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    let file = entry("sub/pieces", EntryKind::File, LEN as u64);
    to.complete(&file, longshore_io::crc32c(&all))
}

fn restore(place: &Place, scope: Scope, replacing: ReplacePolicy, seed: u8) -> Result<(), Error> {
    let to = place.open(scope, replacing)?;
    put(&*to, seed)?;
    to.finish().map(drop)
}

fn places() -> [Place; 3] {
    let pieces = SimDisk::new(3).inject(Fault::short_write().sometimes());
    [
        Place::real(),
        Place::on(&SimDisk::new(1)),
        Place::on(&pieces),
    ]
}

/// Goal: in whatever order names and bytes come, and from whatever threads, nothing is seen before the end and all of it then.
#[test]
fn everything_that_was_put_is_there_at_the_end_and_nothing_before() {
    for scope in SCOPES {
        for place in places() {
            let to = place.open(scope, ReplacePolicy::No).unwrap();
            put(&*to, 1).unwrap();
            assert_eq!(place.tree(), Tree::new(), "{scope:?}");
            let lost = to.lost();
            assert_eq!(to.finish().unwrap(), None, "all of it was written");
            assert!(place.tree() == expected(1), "{scope:?}");
            assert_eq!(lost.len(), 1);
        }
    }
}

/// Goal: what is dropped before its end leaves what was there.
#[test]
fn an_unfinished_stripe_leaves_the_old_file() {
    for scope in SCOPES {
        for place in places() {
            let to = place.open(scope, ReplacePolicy::No).unwrap();
            put(&*to, 1).unwrap();
            drop(to);
            assert_eq!(place.tree(), Tree::new(), "{scope:?}");
            restore(&place, scope, ReplacePolicy::No, 1).unwrap();
            if !matches!(scope, Scope::Space) {
                let to = place.open(scope, ReplacePolicy::Anything).unwrap();
                put(&*to, 2).unwrap();
                drop(to);
            }
            assert!(place.tree() == expected(1), "{scope:?}");
        }
    }
}

/// Goal: what stands is replaced where that was asked for, and refused else.
#[test]
fn an_existing_file_is_replaced_only_on_request() {
    for scope in SCOPES {
        for place in places() {
            restore(&place, scope, ReplacePolicy::No, 1).unwrap();
            assert!(restore(&place, scope, ReplacePolicy::No, 2).is_err());
            assert!(place.tree() == expected(1), "{scope:?}");
            if !matches!(scope, Scope::Space) {
                restore(&place, scope, ReplacePolicy::Anything, 2).unwrap();
                assert!(place.tree() == expected(2), "{scope:?}");
            }
        }
    }
}

/// Goal: whatever call fails, the end is told as an error, or everything is there; and never half of it.
#[test]
fn an_error_of_the_disk_leaves_all_or_nothing() {
    const EIO: i32 = 5;
    for scope in SCOPES {
        for op in [Op::Create, Op::Write, Op::CreateDir, Op::Rename, Op::Sync] {
            for nth in [1, 2, 3, 5, 8] {
                let disk = SimDisk::new(nth);
                let place = Place::on(&disk);
                disk.inject(Fault::errno(EIO).on(op).nth(nth).times(1));
                let told = restore(&place, scope, ReplacePolicy::No, 1).is_ok();
                disk.heal();
                let tree = place.tree();
                let at = format!("{scope:?}, {op:?} {nth}");
                assert!(tree == expected(1) || (!told && tree.is_empty()), "{at}");
            }
        }
    }
}
