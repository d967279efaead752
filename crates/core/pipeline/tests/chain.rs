//! Goal: a differential set restores to exactly the tree it was made from, whatever happened between it and the full
//! set at the end of its chain.
//! Method: random trees, changed at random for some generations. Each generation except the first is written as a
//! differential set by hand, with more or less than necessary in it, its blocks in any order on any stripe, on
//! separate or shared media sets. Then generations are restored, completely, in part and under other names, and
//! compared with the trees in memory: kinds, bytes, modes, times and links.
//!
//! `LONGSHORE_CHAINS` sets how many worlds are tried; `LONGSHORE_CHAIN_SEED` tries one.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::forge::{Block, Claims, write};
use common::pieces::file;
use common::*;
use longshore_codec::Algorithm;
use longshore_io::{FileKind, Host, SimDisk, Storage};
use longshore_kit::Random;
use longshore_media::{DeviceSpec, Entry, EntryKind, Extent, Item};
use longshore_pipeline::{ChainError, Error, RestoreRequest, Tuning};
use uuid::Uuid;

/// Content of files, some with holes.
trait Filled {
    fn filled(&mut self, len: usize) -> Vec<u8>;
}

impl Filled for Random {
    fn filled(&mut self, len: usize) -> Vec<u8> {
        let seed = self.below(1 << 30_u64);
        let mut bytes = content(seed, len);
        if self.one_in(3) {
            // Zeros that are not written are holes.
            let at = self.below(len.max(1));
            let end = len.min(at + self.below(len.max(1)));
            bytes[at..end].fill(0);
        }
        bytes
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    File(Vec<u8>),
    Dir,
    Link(PathBuf),
    /// Another name of a file.
    Hard(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    what: What,
    mode: u32,
    mtime_ns: i64,
}

type Tree = BTreeMap<PathBuf, Node>;

/// Names for any kind of entry: few, so that they are reused.
fn any_name(random: &mut Random) -> PathBuf {
    let dir = ["", "d0", "d1", "d1/e"][random.below(4)];
    Path::new(dir).join(format!("n{}", random.below(7)))
}

fn node(random: &mut Random, what: What) -> Node {
    Node {
        what,
        mode: [0o600, 0o644, 0o755, 0o4750][random.below(4)],
        mtime_ns: 1_600_000_000_000_000_000 + random.below(1 << 40_i64),
    }
}

/// Adds a new name, or replaces an old one by another kind.
fn add(tree: &mut Tree, random: &mut Random) {
    let name = any_name(random);
    // Entries below it are removed, and its parents become directories.
    tree.retain(|path, _| path == &name || !path.starts_with(&name));
    for dir in name.ancestors().skip(1).filter(|dir| *dir != Path::new("")) {
        let is_dir = tree.get(dir).is_some_and(|node| node.what == What::Dir);
        if !is_dir {
            let mut made = node(random, What::Dir);
            made.mode |= 0o700;
            tree.insert(dir.into(), made);
        }
    }
    let len = [0, 1, 5000, 70_000, 200_000][random.below(5)];
    let files: Vec<PathBuf> = (tree.iter())
        .filter(|(path, node)| matches!(node.what, What::File(_)) && **path != name)
        .map(|(path, _)| path.clone())
        .collect();
    let what = match random.below(10) {
        0 => What::Dir,
        1 => What::Link("../anywhere".into()),
        2 if !files.is_empty() => What::Hard(files[random.below(files.len())].clone()),
        _ => {
            let len = len + random.below(len + 1);
            What::File(random.filled(len))
        }
    };
    let mut made = node(random, what);
    if made.what == What::Dir {
        made.mode |= 0o700;
    }
    tree.insert(name, made);
}

/// The next generation.
fn changed(tree: &Tree, random: &mut Random) -> Tree {
    let mut tree = tree.clone();
    for _ in 0..random.below(6) {
        add(&mut tree, random);
    }
    for _ in 0..random.below(4) {
        let names: Vec<_> = tree.keys().cloned().collect();
        if !names.is_empty() {
            let gone = &names[random.below(names.len())];
            tree.retain(|path, _| !path.starts_with(gone));
        }
    }
    for node in tree.values_mut() {
        let What::File(bytes) = &mut node.what else {
            continue;
        };
        match random.below(6) {
            0 => bytes.truncate(random.below(bytes.len() + 1)),
            1 => {
                let more = random.below(90_000);
                bytes.extend(random.filled(more));
            }
            // Grown without written bytes.
            2 => bytes.resize(bytes.len() + random.below(90_000), 0),
            3 | 4 if !bytes.is_empty() => {
                for _ in 0..1 + random.below(5) {
                    let at = random.below(bytes.len());
                    let end = bytes.len().min(at + 1 + random.below(9000));
                    let new = random.filled(end - at);
                    bytes[at..end].copy_from_slice(&new);
                }
            }
            _ => {}
        }
        if random.one_in(2) {
            node.mtime_ns += 1_000_000_007;
        }
    }
    // Files that other names linked to may be gone.
    let whole = tree.clone();
    tree.retain(|_, node| match &node.what {
        What::Hard(to) => matches!(
            whole.get(to),
            Some(Node {
                what: What::File(_),
                ..
            })
        ),
        _ => true,
    });
    tree
}

/// The extents that a set has of a file, given its base.
fn extents(bytes: &[u8], base: Option<&[u8]>, random: &mut Random) -> Vec<(usize, usize)> {
    let grain = [1, 512, 8192][random.below(3)];
    let as_based = |at: usize, end: usize| match base {
        // After the end of the parent's file there are zeros.
        Some(base) => (at..end).all(|i| bytes[i] == base.get(i).copied().unwrap_or_default()),
        None => bytes[at..end].iter().all(|byte| *byte == 0),
    };
    let generous = random.one_in(3);
    let mut all: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes
            .len()
            .min(at + grain.max(if random.one_in(4) { 3000 } else { 1 }));
        if !as_based(at, end) || (generous && random.one_in(5)) {
            match all.last_mut() {
                Some((_, last)) if *last == at && *last - at < 30_000 => *last = end,
                _ => all.push((at, end)),
            }
        }
        at = end;
    }
    all
}

/// A generation as blocks, relative to `base`, if any.
fn blocks(tree: &Tree, base: Option<&Tree>, random: &mut Random) -> Vec<Block> {
    const BLOCK: usize = 20_000;
    let mut blocks: Vec<Block> = Vec::new();
    let mut block = Block::default();
    for (path, node) in tree {
        let old = base.and_then(|base| match &base.get(path)?.what {
            What::File(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        let old = old.filter(|_| !random.one_in(6));
        let (kind, len) = match &node.what {
            What::File(bytes) => (EntryKind::File, bytes.len()),
            What::Dir => (EntryKind::Dir, 0),
            What::Link(to) => (EntryKind::Symlink { target: to.clone() }, 0),
            What::Hard(to) => (EntryKind::HardLink { target: to.clone() }, 0),
        };
        let mut entry = Entry {
            path: path.clone(),
            based: kind == EntryKind::File && old.is_some(),
            xattrs: Vec::new(),
            kind,
            first: true,
            mode: node.mode,
            uid: 0,
            gid: 0,
            mtime_ns: node.mtime_ns,
            len: len as u64,
        };
        block.0.push(Item::Entry(entry.clone()));
        entry.first = false;
        let What::File(bytes) = &node.what else {
            continue;
        };
        for (mut at, end) in extents(bytes, old, random) {
            while at < end {
                if block.1.len() >= BLOCK || random.one_in(20) {
                    blocks.push(std::mem::take(&mut block));
                    block.0.push(Item::Entry(entry.clone()));
                }
                let stop = end.min(at + BLOCK - block.1.len());
                block.0.push(Item::Extent(Extent {
                    offset: at as u64,
                    len: (stop - at) as u32,
                }));
                block.1.extend_from_slice(&bytes[at..stop]);
                at = stop;
            }
        }
    }
    blocks.push(block);
    random.shuffle(&mut blocks);
    blocks
}

/// The tree below `root`; hard links are recognised by their inodes.
fn found(storage: &dyn Storage, root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut inodes: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut stack = vec![PathBuf::new()];
    while let Some(path) = stack.pop() {
        let dir = storage.dir(&root.join(&path)).unwrap();
        for name in dir.list().unwrap() {
            let name = PathBuf::from(name.unwrap());
            let stat = dir.stat(&name).unwrap();
            let full = path.join(&name);
            let what = match stat.kind {
                FileKind::Dir => {
                    stack.push(full.clone());
                    What::Dir
                }
                FileKind::Symlink => What::Link(dir.read_link(&name).unwrap()),
                _ => match inodes.get(&stat.ino) {
                    Some(first) => What::Hard(first.clone()),
                    None => {
                        inodes.insert(stat.ino, full.clone());
                        let file = dir.open(&name, longshore_io::OpenHow::Read).unwrap();
                        let mut bytes = vec![0; stat.len as usize];
                        file.read_full_at(&mut bytes, 0, longshore_io::Via::Cache)
                            .unwrap();
                        What::File(bytes)
                    }
                },
            };
            let (mode, mtime_ns) = (stat.mode, stat.mtime_ns);
            tree.insert(
                full,
                Node {
                    what,
                    mode,
                    mtime_ns,
                },
            );
        }
    }
    tree
}

/// A name in comparable form: what it is, its mode and time, and all names of the same file.
type Resolved = (What, Option<(u32, i64)>, Vec<PathBuf>);

/// All names of one file are equal; which of them is the link does not matter.
fn resolved(tree: &Tree) -> BTreeMap<PathBuf, Resolved> {
    let file = |path: &PathBuf| match &tree[path].what {
        What::Hard(to) => to.clone(),
        _ => path.clone(),
    };
    let all = |of: &PathBuf| -> Vec<PathBuf> {
        tree.keys()
            .filter(|path| file(path) == *of)
            .cloned()
            .collect()
    };
    tree.keys()
        .map(|path| {
            let first = file(path);
            let node = &tree[&first];
            let attributes = match node.what {
                // Modes and times of symbolic links are not compared.
                What::Link(_) => None,
                _ => Some((node.mode, node.mtime_ns)),
            };
            (path.clone(), (node.what.clone(), attributes, all(&first)))
        })
        .collect()
}

fn assert_same(found: &Tree, expected: &Tree, what: &str) {
    let (found, expected) = (resolved(found), resolved(expected));
    for (path, node) in &expected {
        let Some(other) = found.get(path) else {
            panic!("{what}: {} is missing", path.display());
        };
        if other == node {
            continue;
        }
        if let (What::File(a), What::File(b)) = (&other.0, &node.0) {
            let at = a.iter().zip(b).position(|(a, b)| a != b);
            panic!(
                "{what}: {} has {} bytes, not {}, the first that differs is {at:?}; {:?} {:?} not {:?} {:?}",
                path.display(),
                a.len(),
                b.len(),
                other.1,
                other.2,
                node.1,
                node.2,
            );
        }
        panic!("{what}: {} is {other:?}, not {node:?}", path.display());
    }
    let more: Vec<_> = found
        .keys()
        .filter(|path| !expected.contains_key(*path))
        .collect();
    assert!(more.is_empty(), "{what}: {more:?} should not be there");
}

/// Where a generation was written.
struct Place {
    media: usize,
    position: u32,
}

struct World {
    storage: Arc<dyn Storage>,
    trees: Vec<Tree>,
    places: Vec<Place>,
    /// The stripes of each media set.
    media: Vec<Vec<DeviceSpec>>,
}

impl World {
    fn new(storage: Arc<dyn Storage>, root: &Path, random: &mut Random) -> World {
        let mut tree = Tree::new();
        for _ in 0..12 {
            add(&mut tree, random);
        }
        let mut world = World {
            storage,
            trees: vec![tree],
            places: Vec::new(),
            media: Vec::new(),
        };
        world.trees[0] = changed(&world.trees[0], random);
        for _ in 0..1 + random.below(4) {
            let next = changed(world.trees.last().unwrap(), random);
            world.trees.push(next);
        }
        let mut parent: Option<Uuid> = None;
        let mut sets = Vec::new();
        for generation in 0..world.trees.len() {
            let mut claims = Claims::new(parent);
            if generation == 0 || random.one_in(2) {
                let stripes = 1 + random.below(3);
                let name = |i| root.join(format!("m{}-{i}.bak", world.media.len()));
                world
                    .media
                    .push((0..stripes).map(|i| DeviceSpec::File(name(i))).collect());
                sets.push((0, [Algorithm::Lz4, Algorithm::Zstd][random.below(2)]));
            }
            let media = world.media.len() - 1;
            claims.algorithm = sets[media].1;
            claims.buffer_bytes = [32 << 10, 64 << 10][random.below(2)];
            sets[media].0 += 1;
            let base = generation.checked_sub(1).map(|before| &world.trees[before]);
            let blocks = blocks(&world.trees[generation], base, random);
            let devices = &world.media[media];
            write(&world.storage, devices, &claims, &blocks, |_| {
                random.below(9)
            });
            world.places.push(Place {
                media,
                position: sets[media].0,
            });
            parent = Some(claims.set);
        }
        world
    }

    /// A restore of one generation, with all other media sets as bases.
    fn request(&self, generation: usize, target: &Path, random: &mut Random) -> RestoreRequest {
        let place = &self.places[generation];
        let mut devices = self.media[place.media].clone();
        random.shuffle(&mut devices);
        let mut request = restore_request(devices, target);
        request.position = place.position;
        for (i, media) in self.media.iter().enumerate() {
            if i != place.media || random.one_in(8) {
                request.bases.extend(media.clone());
            }
        }
        random.shuffle(&mut request.bases);
        if random.one_in(3) {
            request.tuning = Tuning {
                buffer_count: Some(1 + random.below(3)),
                buffer_bytes: None,
            };
        }
        request
    }

    fn restore(&self, request: RestoreRequest) -> Result<Tree, Error> {
        let target = request.target.clone();
        restore(&context_on(self.storage.clone()), request)?;
        Ok(found(&*self.storage, &target))
    }
}

fn try_world(seed: u64) {
    let random = &mut Random(seed);
    let disk = SimDisk::new(seed);
    disk.write_file("/m/neighbour", b"").unwrap();
    let world = World::new(Arc::new(disk), Path::new("/m"), random);
    let last = world.trees.len() - 1;
    for generation in [last, random.below(last + 1)] {
        let what = format!("seed {seed}, generation {generation} of {last}");
        let target = PathBuf::from(format!("/out{generation}"));
        let mut request = world.request(generation, &target, random);
        request.replace = true;
        let restored = world
            .restore(request)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_same(&restored, &world.trees[generation], &what);
    }
    // A part of the tree.
    let tree = &world.trees[last];
    let names: Vec<_> = tree.keys().cloned().collect();
    let Some(only) = names.get(random.below(names.len().max(1))) else {
        return;
    };
    let what = format!("seed {seed}, only {}", only.display());
    let mut request = world.request(last, Path::new("/part"), random);
    request.only = vec![only.clone()];
    let is_dir = tree[only].what == What::Dir;
    if !is_dir {
        request.moves = vec![(only.clone(), "else/where".into())];
    }
    let within = |path: &Path| path.starts_with(only);
    let mut part: Tree = tree.clone();
    part.retain(|path, _| within(path));
    // The bytes of a name outside come under the first name in the part, to which others are links.
    let outside: Vec<_> = (part.iter())
        .filter_map(|(path, node)| match &node.what {
            What::Hard(to) if !within(to) => Some((to.clone(), path.clone())),
            _ => None,
        })
        .rev()
        .collect();
    let first: BTreeMap<_, _> = outside.iter().cloned().collect();
    for (target, path) in outside {
        match first[&target] == path {
            true => part.insert(path, tree[&target].clone()),
            false => part.insert(
                path,
                Node {
                    what: What::Hard(first[&target].clone()),
                    ..tree[&target].clone()
                },
            ),
        };
    }
    let mut restored = world
        .restore(request)
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    if !is_dir {
        let moved = restored.remove(Path::new("else/where"));
        restored = moved.map(|node| (only.clone(), node)).into_iter().collect();
    }
    // Parent directories are created with default attributes.
    restored.retain(|path, _| within(path));
    assert_same(&restored, &part, &what);
}

#[test]
fn the_last_generation_comes_back_and_so_does_any_before() {
    if let Ok(seed) = std::env::var("LONGSHORE_CHAIN_SEED") {
        return try_world(seed.parse().unwrap());
    }
    let worlds = std::env::var("LONGSHORE_CHAINS").map_or(150, |n| n.parse().unwrap());
    (0..worlds).for_each(try_world);
}

#[test]
fn chains_on_a_real_file_system_come_back() {
    for seed in 1000..1008 {
        let dir = tempfile::tempdir().unwrap();
        let random = &mut Random(seed);
        let storage: Arc<dyn Storage> = Arc::new(Host::new());
        let media = dir.path().join("m");
        std::fs::create_dir(&media).unwrap();
        let mut world = World::new(storage, &media, random);
        // Setting owners requires privileges.
        for tree in &mut world.trees {
            tree.values_mut().for_each(|node| node.mode &= 0o777);
        }
        let last = world.trees.len() - 1;
        let target = dir.path().join("out");
        let request = world.request(last, &target, random);
        let mut restored = world.restore(request).unwrap();
        restored.values_mut().for_each(|node| node.mode &= 0o777);
        assert_same(&restored, &world.trees[last], &format!("seed {seed}"));
    }
}

/// Three generations on three media sets, one stripe each.
fn three(dir: &str) -> (SimDisk, [Uuid; 3], Vec<DeviceSpec>) {
    let disk = SimDisk::new(1);
    disk.write_file(Path::new(dir).join("neighbour"), b"")
        .unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let devices: Vec<_> = (0..3)
        .map(|i| DeviceSpec::File(Path::new(dir).join(format!("{i}.bak"))))
        .collect();
    let mut parent = None;
    let sets = [0usize, 1, 2].map(|i| {
        let claims = Claims::new(parent);
        let block = file(
            "f",
            30_000,
            parent.is_some(),
            true,
            &[(i * 1000, vec![i as u8 + 1; 3000])],
        );
        write(&storage, &devices[i..=i], &claims, &[block], |_| 0);
        parent = Some(claims.set);
        claims.set
    });
    (disk, sets, devices)
}

fn chain_request(devices: &[DeviceSpec], bases: &[DeviceSpec]) -> RestoreRequest {
    let mut request = restore_request(devices.to_vec(), Path::new("/out"));
    request.bases = bases.to_vec();
    request
}

fn refused(disk: &SimDisk, request: RestoreRequest) -> ChainError {
    let context = context_on(Arc::new(disk.clone()));
    let error = restore(&context, request).unwrap_err();
    assert!(disk.read_file("/out/f").is_err(), "{error}");
    match error {
        Error::Chain(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_link_that_does_not_hold_is_named() {
    let (disk, sets, devices) = three("/m");
    let request = |bases: &[DeviceSpec]| chain_request(&devices[2..], bases);
    let error = refused(&disk, request(&[]));
    assert_eq!(error.number(), 3136);
    let text = error.to_string();
    for part in [&sets[2].to_string(), &sets[1].to_string(), "/m/2.bak"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains("2023-11-14 22:13:20 UTC"), "{text}");
    assert!(error.hint().contains("--base"), "{}", error.hint());
    let error = refused(&disk, request(&devices[1..2]));
    assert!(
        matches!(&error, ChainError::Missing { parent, .. } if *parent == sets[0]),
        "{error}"
    );
    // All of them, in any order.
    let bases = [devices[1].clone(), devices[0].clone()];
    restore(&context_on(Arc::new(disk.clone())), request(&bases)).unwrap();
    let mut expected = vec![0; 30_000];
    for i in 0..3usize {
        expected[i * 1000..i * 1000 + 3000].fill(i as u8 + 1);
    }
    assert!(disk.read_file("/out/f").unwrap() == expected);
}

#[test]
fn a_link_that_is_damaged_or_not_complete_is_named() {
    let (disk, sets, devices) = three("/m");
    let whole = disk.read_file("/m/0.bak").unwrap();
    // Its trailer is cut off, as a crash might leave it.
    disk.write_file("/m/0.bak", &whole[..whole.len() - 100])
        .unwrap();
    let request = || chain_request(&devices[2..], &devices[..2]);
    let error = refused(&disk, request());
    let named = |error: &ChainError| {
        let source = std::error::Error::source(error).map(ToString::to_string);
        matches!(error, ChainError::Broken { parent, .. } if *parent == sets[0])
            && source.is_some_and(|source| source.contains("0.bak"))
    };
    assert!(named(&error), "{error}");
    // Its header cannot be read, so nothing shows that it was the parent.
    let mut damaged = whole.clone();
    let at = whole.windows(6).position(|w| w == b"forged").unwrap();
    damaged[at] ^= 1;
    disk.write_file("/m/0.bak", &damaged).unwrap();
    let error = refused(&disk, request());
    assert!(named(&error), "{error}");
    // A damaged payload is found when it is read, and nothing is left.
    let mut damaged = whole.clone();
    let frame = |w: &[u8]| w == [4, 0x22, 0x4d, 0x18];
    let at = whole.windows(4).rposition(frame).unwrap() + 20;
    damaged[at] ^= 1;
    disk.write_file("/m/0.bak", &damaged).unwrap();
    let context = context_on(Arc::new(disk.clone()));
    let error = restore(&context, request()).unwrap_err();
    assert!(error.to_string().contains("0.bak"), "{error}");
    assert!(disk.read_file("/out/f").is_err());
    disk.write_file("/m/0.bak", &whole).unwrap();
    restore(&context, request()).unwrap();
}

#[test]
fn sets_that_do_not_belong_together_are_refused() {
    for (what, change) in [
        (
            "another kind of source",
            Claims {
                source_kind: 2,
                ..Claims::new(None)
            },
        ),
        (
            "another cluster",
            Claims {
                system: 7,
                ..Claims::new(None)
            },
        ),
    ] {
        let (disk, _, devices) = three("/m");
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let odd = DeviceSpec::File("/m/odd.bak".into());
        let block = file("f", 10, false, true, &[(0, vec![1; 10])]);
        write(
            &storage,
            std::slice::from_ref(&odd),
            &change,
            &[block],
            |_| 0,
        );
        let child = DeviceSpec::File("/m/child.bak".into());
        let block = file("f", 10, true, true, &[]);
        write(
            &storage,
            std::slice::from_ref(&child),
            &Claims::new(Some(change.set)),
            &[block],
            |_| 0,
        );
        let mut bases = devices;
        bases.push(odd);
        let error = refused(&disk, chain_request(&[child], &bases));
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(error.number(), 3136);
    }
}

#[test]
fn chains_without_an_end_are_refused() {
    let (disk, _, _) = three("/m");
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let device = |i: usize| DeviceSpec::File(format!("/m/c{i}.bak").into());
    let ids = [Uuid::new_v4(), Uuid::new_v4()];
    for i in 0..2 {
        let mut claims = Claims::new(Some(ids[1 - i]));
        claims.set = ids[i];
        write(
            &storage,
            &[device(i)],
            &claims,
            &[file("f", 10, true, true, &[])],
            |_| 0,
        );
    }
    let error = refused(&disk, chain_request(&[device(0)], &[device(1)]));
    assert!(matches!(error, ChainError::Endless { .. }), "{error}");
    // A set that is its own parent.
    let mut claims = Claims::new(Some(ids[0]));
    claims.set = ids[0];
    write(
        &storage,
        &[device(2)],
        &claims,
        &[file("f", 10, true, true, &[])],
        |_| 0,
    );
    let error = refused(&disk, chain_request(&[device(2)], &[]));
    assert!(matches!(error, ChainError::Endless { .. }), "{error}");
}

/// A full set with `base`, and one with `blocks` relative to it.
fn pair(base: &[Block], blocks: &[Block]) -> (SimDisk, RestoreRequest) {
    let disk = SimDisk::new(1);
    disk.write_file("/m/neighbour", b"").unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let devices = [DeviceSpec::File("/m/a.bak".into())];
    let full = Claims::new(None);
    write(&storage, &devices, &full, base, |_| 0);
    write(
        &storage,
        &devices,
        &Claims::new(Some(full.set)),
        blocks,
        |_| 0,
    );
    (disk, chain_request(&devices, &[]))
}

#[test]
fn a_file_that_is_based_on_none_is_refused_by_name() {
    let dir = |path: &str| {
        let mut block = file(path, 0, false, true, &[]);
        let Item::Entry(entry) = &mut block.0[0] else {
            unreachable!()
        };
        entry.kind = EntryKind::Dir;
        block
    };
    let based = file("f", 10, true, true, &[(0, vec![1; 10])]);
    for base in [
        vec![],
        vec![dir("f")],
        vec![file("g", 10, false, true, &[])],
    ] {
        let (disk, request) = pair(&base, std::slice::from_ref(&based));
        let error = refused(&disk, request);
        let named = matches!(&error, ChainError::NoSuchFile { path, .. } if path == Path::new("f"));
        assert!(named, "{error}");
    }
    let (disk, request) = pair(&[file("f", 0, false, true, &[])], &[based]);
    restore(&context_on(Arc::new(disk.clone())), request).unwrap();
    assert_eq!(disk.read_file("/out/f").unwrap(), [1; 10]);
}

#[test]
fn sets_that_contradict_themselves_are_refused() {
    let base = [file("f", 10, false, true, &[(0, vec![1; 10])])];
    let byte = |at: usize| (at, vec![9u8; 2]);
    for (what, blocks) in [
        (
            "named twice",
            vec![
                file("f", 10, true, true, &[]),
                file("f", 10, true, true, &[]),
            ],
        ),
        (
            "two lengths",
            vec![
                file("f", 10, true, true, &[]),
                file("f", 11, true, false, &[byte(0)]),
            ],
        ),
        (
            "based and not",
            vec![
                file("f", 10, true, true, &[]),
                file("f", 10, false, false, &[byte(0)]),
            ],
        ),
        (
            "not and based",
            vec![
                file("f", 10, false, true, &[]),
                file("f", 10, true, false, &[byte(0)]),
            ],
        ),
        (
            "bytes twice",
            vec![
                file("f", 10, true, true, &[byte(0)]),
                file("f", 10, true, false, &[byte(1)]),
            ],
        ),
    ] {
        let (disk, request) = pair(&base, &blocks);
        let error = refused(&disk, request);
        let named =
            matches!(&error, ChainError::Contradiction { path, .. } if path == Path::new("f"));
        assert!(named, "{what}: {error}");
    }
}

#[test]
fn a_whole_set_with_based_files_is_refused() {
    let based = file("f", 10, true, true, &[(0, vec![1; 10])]);
    let (disk, mut request) = pair(std::slice::from_ref(&based), std::slice::from_ref(&based));
    assert!(matches!(
        refused(&disk, request.clone()),
        ChainError::Contradiction { .. }
    ));
    request.position = 1;
    assert!(matches!(
        refused(&disk, request),
        ChainError::Contradiction { .. }
    ));
}

#[test]
fn blocks_of_older_sets_that_do_not_count_are_not_read() {
    // Of eight files in the full set, one is still needed, and only half of it.
    let block = |i: usize| {
        let name = format!("f{i}");
        vec![
            file(
                &name,
                60_000,
                false,
                true,
                &[(0, content(i as u64, 30_000))],
            ),
            file(
                &name,
                60_000,
                false,
                false,
                &[(30_000, content(99 - i as u64, 30_000))],
            ),
        ]
    };
    let base: Vec<_> = (0..8).flat_map(block).collect();
    let newer = vec![7; 30_000];
    let (disk, request) = pair(
        &base,
        &[file("f3", 60_000, true, true, &[(0, newer.clone())])],
    );
    let report = restore(&context_on(Arc::new(disk.clone())), request).unwrap();
    let out = |p: &&PathBuf| p.parent() == Some(Path::new("/out"));
    assert_eq!(disk.paths().iter().filter(out).count(), 1);
    let expected = [newer, content(96, 30_000)].concat();
    assert!(disk.read_file("/out/f3").unwrap() == expected);
    let read: Vec<_> = report.chain.iter().map(|set| set.plain_bytes).collect();
    assert_eq!(read, [30_000, 30_000]);
    assert_eq!(report.totals.file_count, 1);
}

#[test]
fn verify_says_whether_it_looked_at_the_chain() {
    let (disk, sets, devices) = three("/m");
    let context = context_on(Arc::new(disk.clone()));
    let verified =
        |bases: &[DeviceSpec]| verify_with(&context, vec![devices[2].clone()], bases.to_vec());
    // Without the chain, the set is valid.
    let alone = verified(&[]).unwrap();
    assert!(alone.is_valid());
    let told: Vec<_> = alone
        .sets
        .iter()
        .map(|s| (s.parent, s.chain_sets))
        .collect();
    assert_eq!(told, [(Some(sets[1]), None)]);
    let all = verified(&devices[..2]).unwrap();
    assert!(all.is_valid());
    let told: Vec<_> = all.sets.iter().map(|s| (s.set, s.chain_sets)).collect();
    assert_eq!(told, [(sets[2], Some(3)), (sets[1], None), (sets[0], None)]);
    // If bases are named, a missing one is a finding.
    let some = verified(&devices[1..2]).unwrap();
    assert!(!some.is_valid());
    assert_eq!(some.findings[0].number, Some(3136));
    assert!(some.findings[0].text.contains(&sets[0].to_string()));
    // Damage in a parent.
    let whole = disk.read_file("/m/0.bak").unwrap();
    let frame = |w: &[u8]| w == [4, 0x22, 0x4d, 0x18];
    let mut damaged = whole.clone();
    let at = whole.windows(4).rposition(frame).unwrap() + 20;
    damaged[at] ^= 1;
    disk.write_file("/m/0.bak", &damaged).unwrap();
    let broken = verified(&devices[..2]).unwrap();
    assert!(!broken.is_valid() && broken.sets[0].valid && !broken.sets[2].valid);
    assert_eq!(broken.sets[0].chain_sets, None);
    // A parent without the file.
    let (disk, request) = pair(&[], &[file("f", 10, true, true, &[])]);
    let context = context_on(Arc::new(disk));
    let unfit = verify(&context, request.devices).unwrap();
    assert!(!unfit.is_valid() && unfit.sets.iter().all(|set| set.valid));
    assert!(
        unfit.findings[0].text.contains("no such file"),
        "{:?}",
        unfit.findings
    );
}

#[test]
fn chains_of_nonsense_are_answered_and_touch_nothing_else() {
    let rounds = std::env::var("LONGSHORE_NONSENSE").map_or(1500, |n| n.parse().unwrap());
    let mut restored = 0;
    for seed in 0..rounds {
        let mut random = Random(seed);
        let result = common::hostile::restore_nonsense(&mut |below| random.below(below));
        restored += u64::from(result.is_ok());
    }
    // Enough of them must get far.
    assert!(
        restored > rounds / 20,
        "{restored} of {rounds} were restored"
    );
}

#[test]
fn a_chain_of_more_sets_than_are_read_at_once_comes_back() {
    let disk = SimDisk::new(1);
    disk.write_file("/m/neighbour", b"").unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let devices = [DeviceSpec::File("/m/a.bak".into())];
    let mut expected = content(1, 50_000);
    let mut claims = Claims::new(None);
    let base = file("f", 50_000, false, true, &[(0, expected.clone())]);
    write(&storage, &devices, &claims, &[base], |_| 0);
    for i in 0..70usize {
        claims = Claims::new(Some(claims.set));
        let (at, part) = (i * 600, vec![i as u8; 1000]);
        expected[at..at + 1000].copy_from_slice(&part);
        let block = file("f", 50_000, true, true, &[(at, part)]);
        write(&storage, &devices, &claims, &[block], |_| 0);
    }
    let context = context_on(Arc::new(disk.clone()));
    let report = restore(&context, chain_request(&devices, &[])).unwrap();
    assert_eq!(report.chain.len(), 71);
    assert!(disk.read_file("/out/f").unwrap() == expected);
}
