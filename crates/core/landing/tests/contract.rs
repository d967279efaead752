//! Goal: the text of [`Destination`] holds for every destination: a target of each scope, a cluster, one with a
//! tablespace, and a delta.
//! Method: each promise runs on a real disk, on a simulated one, and on one that writes in pieces and fails.
//!
//! A delta changes existing files, and promises a directory that cannot start instead of an untouched one. The roots of a
//! cluster have a suite of their own (`src/cluster/tests.rs`). `contract/lies.rs` breaks each promise.

#[path = "contract/lies.rs"]
mod lies;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lies::Lie;
use longshore_codec::{Algorithm, Level};
use longshore_io::{Fault, Host, HostClock, Machine, Op, OpenHow, SimDisk, Storage, Via};
use longshore_landing::{
    Cluster, ClusterError, ClusterOptions, Destination, Error, FilePiece, Outline, ReplacePolicy,
    Scope, Target,
};
use longshore_media::{BackupType, Entry, EntryKind, Extent, LogStart, SetHeader, SourceIdentity};
use uuid::Uuid;

/// The destination of a restore.
#[derive(Debug, Clone, Copy, PartialEq)]
enum To {
    Target(Scope),
    Cluster,
    /// A cluster with a tablespace outside its data directory.
    Spaces,
}

const STAGED: [To; 5] = [
    To::Target(Scope::Names { side_files: false }),
    To::Target(Scope::Space),
    To::Target(Scope::Directory { last: "sub" }),
    To::Cluster,
    To::Spaces,
];

impl To {
    fn is_cluster(self) -> bool {
        !matches!(self, To::Target(_))
    }

    /// Whether it replaces what stands there if it is asked to; a tablespace never does.
    fn can_replace(self) -> bool {
        !matches!(self, To::Target(Scope::Space) | To::Spaces)
    }
}

type Tree = BTreeMap<PathBuf, Vec<u8>>;

const SYSTEM: u64 = 7_575_086_021_411_873_849;
const CONTROL: &str = "global/pg_control";
const SPACE: u32 = 16_384;
const IN_SPACE: &str = "PG_15_202209061/5/16385";
/// The files that a cluster gets in addition to the set's.
const OWN: [&str; 3] = ["backup_manifest", "postgresql.auto.conf", "recovery.signal"];

/// A directory that names are restored to, and one for a tablespace.
struct Place {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    space: PathBuf,
    /// The promise that a destination opened here breaks.
    lie: Lie,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    fn real() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        Place {
            storage: Arc::new(Host::new()),
            path: path.join("to"),
            space: path.join("space"),
            lie: Lie::None,
            _directory: Some(directory),
        }
    }

    fn on(disk: &SimDisk) -> Place {
        disk.write_file("/d/other", b"").unwrap();
        Place {
            storage: Arc::new(disk.clone()),
            path: "/d/to".into(),
            space: "/d/space".into(),
            lie: Lie::None,
            _directory: None,
        }
    }

    fn with(self, lie: Lie) -> Place {
        Place { lie, ..self }
    }

    fn machine(&self) -> Machine {
        Machine {
            storage: self.storage.clone(),
            clock: Arc::new(HostClock),
        }
    }

    fn open(&self, to: To, replacing: ReplacePolicy) -> Result<Box<dyn Destination>, Error> {
        let replacing = self.lie.policy(replacing);
        let To::Target(scope) = to else {
            return self.cluster(to, replacing != ReplacePolicy::No, false);
        };
        let target = Target::open(&self.machine(), &self.path, replacing, scope, &[])?;
        Ok(self.lie.told_by(self, Box::new(target)))
    }

    fn cluster(&self, to: To, replace: bool, delta: bool) -> Result<Box<dyn Destination>, Error> {
        let mut outline = Outline {
            has_control: true,
            ..Outline::default()
        };
        if to == To::Spaces {
            outline.spaces.insert(SPACE, self.space.clone());
        }
        let mut options = ClusterOptions {
            delta,
            ..ClusterOptions::default()
        };
        options.spaces.as_stored = true;
        let cluster = Cluster::open(
            &self.machine(),
            (&self.path, replace),
            &options,
            (&header(), None),
            Some(&outline),
        )?;
        Ok(self.lie.told_by(self, Box::new(cluster)))
    }

    /// The files that other programs see there, without the restore's own directory; those in the tablespace's
    /// directory are below `space`.
    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        self.add(&self.path, Path::new(""), &mut tree);
        self.add(&self.space, Path::new("space"), &mut tree);
        tree
    }

    fn add(&self, base: &Path, prefix: &Path, tree: &mut Tree) {
        let mut todo = vec![PathBuf::new()];
        while let Some(at) = todo.pop() {
            let Ok(dir) = self.storage.dir(&base.join(&at)) else {
                continue;
            };
            for name in dir.list().unwrap() {
                let name = PathBuf::from(name.unwrap());
                if name == Path::new(".longshore-restoring") {
                    continue;
                }
                match dir.open(&name, OpenHow::Read) {
                    Ok(file) => {
                        let mut bytes = vec![0; file.stat().unwrap().len as usize];
                        file.read_exact_at(&mut bytes, 0, Via::Cache).unwrap();
                        tree.insert(prefix.join(&at).join(name), bytes);
                    }
                    Err(_) => todo.push(at.join(name)),
                }
            }
        }
    }

    /// The tree is that of `seed`, with the files that `to` adds.
    fn holds(&self, to: To, seed: u8) -> bool {
        let mut tree = self.tree();
        let own = OWN.map(|name| tree.remove(Path::new(name)).is_some());
        own == [to.is_cluster(); 3] && tree == expected(to, seed)
    }
}

fn header() -> SetHeader {
    SetHeader {
        set: Uuid::from_u128(1),
        position: 1,
        start_us: 0,
        source_kind: 2,
        backup_type: BackupType::Database,
        algorithm: Algorithm::None,
        level: Level::Low,
        buffer_bytes: 1 << 20,
        page_bytes: 8192,
        copy_only: false,
        attributes: false,
        encrypted: false,
        keys_detached: false,
        parent: None,
        log: LogStart {
            system: SYSTEM,
            timeline: 1,
            first_lsn: 0,
        },
        expires_us: None,
        time_zone: 0,
        database: "db".into(),
        name: String::new(),
        description: String::new(),
        machine: String::new(),
        user: String::new(),
        origin: String::new(),
        lineage: Vec::new(),
        identity: SourceIdentity::default(),
        tree_root: Default::default(),
        sum_key: None,
        server_started_us: None,
    }
}

/// A control file of the cluster, whose free bytes are `seed`.
fn control(seed: u8) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    bytes[..8].copy_from_slice(&SYSTEM.to_le_bytes());
    for (at, value) in [
        (8, 1300u32),
        (48, 1),
        (216, 8192),
        (220, 131_072),
        (228, 16 << 20),
    ] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let crc = longshore_io::crc32c(&bytes[..288]);
    bytes[288..292].copy_from_slice(&crc.to_le_bytes());
    bytes[300..].fill(seed);
    bytes
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

/// A whole file, one in blocks, one in pieces, one that is empty, and one with a hole; of a cluster also the files without
/// which it is none.
fn expected(to: To, seed: u8) -> Tree {
    let mut holes = vec![0; LEN];
    holes[200_000..].copy_from_slice(&bytes(seed)[200_000..]);
    let names = ["blocks", "empty", "holes", "sub/pieces", "sub/whole"];
    let contents = [bytes(seed), Vec::new(), holes, bytes(seed), b"whole".into()];
    let mut tree: Tree = names.into_iter().map(PathBuf::from).zip(contents).collect();
    if to.is_cluster() {
        tree.insert(CONTROL.into(), control(seed));
        tree.insert("PG_VERSION".into(), b"15\n".into());
    }
    if to == To::Spaces {
        // Through the link, and where it leads to.
        for path in [link(), "space".into()] {
            tree.insert(path.join(IN_SPACE), b"spaced".into());
        }
    }
    tree
}

fn link() -> PathBuf {
    Path::new("pg_tblspc").join(SPACE.to_string())
}

/// Puts all of it, in an order that no backup would have, from several threads.
fn put(to: &dyn Destination, kind: To, seed: u8) -> Result<(), Error> {
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
            len_bytes: LEN as u64,
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
    let file = |name: &str, bytes: &[u8]| {
        let file = entry(name, EntryKind::File, bytes.len() as u64);
        to.put_data(&file, &[(extent(0, bytes.len()), bytes)])
    };
    let of_cluster = || {
        if kind == To::Spaces {
            let link = link();
            let link = link.to_str().unwrap();
            file(&format!("{link}/{IN_SPACE}"), b"spaced")?;
            let target = "/stored/elsewhere".into();
            to.put_name(&entry(link, EntryKind::Symlink { target }, 0))?;
        }
        if kind.is_cluster() {
            file(CONTROL, &control(seed))?;
            file("PG_VERSION", b"15\n")?;
            to.put_name(&entry("global", EntryKind::Dir, 0))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let pieces = scope.spawn(|| (0..3).try_for_each(piece));
        let blocks = scope.spawn(|| (0..3).try_for_each(block));
        let others = scope.spawn(others);
        let of_cluster = scope.spawn(of_cluster);
        [pieces, blocks, others, of_cluster]
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap())
    })?;
    let file = entry("sub/pieces", EntryKind::File, LEN as u64);
    to.complete(&file, longshore_io::crc32c(&all))
}

fn restore(place: &Place, to: To, replacing: ReplacePolicy, seed: u8) -> Result<(), Error> {
    let opened = place.open(to, replacing)?;
    put(&*opened, to, seed)?;
    opened.finish().map(drop)
}

/// A double is held to its promises on simulated disks only, which is soon done.
fn places(lie: Lie) -> Vec<Place> {
    let pieces = SimDisk::new(3).inject(Fault::short_write().sometimes());
    let mut places = vec![Place::on(&SimDisk::new(1)), Place::on(&pieces)];
    if lie == Lie::None {
        places.push(Place::real());
    }
    places.into_iter().map(|place| place.with(lie)).collect()
}

/// Every promise as a test of what keeps it, and by its name for the doubles that do not.
macro_rules! contract {
    ($($promise:ident)*) => {
        const PROMISES: &[(&str, fn(Lie))] = &[$((stringify!($promise), $promise)),*];

        mod kept { $(#[test] fn $promise() { super::$promise(super::Lie::None); })* }
    };
}

contract! {
    everything_that_was_put_is_there_at_the_end_and_nothing_before
    an_unfinished_stripe_leaves_the_old_file
    an_existing_file_is_replaced_only_on_request
    an_error_of_the_disk_leaves_all_or_nothing
    a_cluster_without_its_control_file_is_refused_at_the_end
    a_delta_is_complete_at_its_end_and_cannot_start_before
    an_error_of_the_disk_leaves_a_delta_that_cannot_start
}

/// Goal: in whatever order names and bytes come, and from whatever threads, nothing is seen before the end and all of it then.
fn everything_that_was_put_is_there_at_the_end_and_nothing_before(lie: Lie) {
    for to in STAGED {
        for place in places(lie) {
            let opened = place.open(to, ReplacePolicy::No).unwrap();
            put(&*opened, to, 1).unwrap();
            assert_eq!(place.tree(), Tree::new(), "{to:?}");
            let lost = opened.lost();
            assert_eq!(opened.finish().unwrap(), None, "all of it was written");
            assert!(place.holds(to, 1), "{to:?}");
            let directories = if to == To::Spaces { 2 } else { 1 };
            assert_eq!(lost.len(), directories, "{to:?}");
        }
    }
}

/// Goal: what is dropped before its end leaves what was there.
fn an_unfinished_stripe_leaves_the_old_file(lie: Lie) {
    for to in STAGED {
        for place in places(lie) {
            let opened = place.open(to, ReplacePolicy::No).unwrap();
            put(&*opened, to, 1).unwrap();
            drop(opened);
            assert_eq!(place.tree(), Tree::new(), "{to:?}");
            restore(&place, to, ReplacePolicy::No, 1).unwrap();
            if to.can_replace() {
                let opened = place.open(to, ReplacePolicy::Anything).unwrap();
                put(&*opened, to, 2).unwrap();
                drop(opened);
            }
            assert!(place.holds(to, 1), "{to:?}");
        }
    }
}

/// Goal: what stands is replaced where that was asked for, and refused else.
fn an_existing_file_is_replaced_only_on_request(lie: Lie) {
    for to in STAGED {
        for place in places(lie) {
            restore(&place, to, ReplacePolicy::No, 1).unwrap();
            assert!(restore(&place, to, ReplacePolicy::No, 2).is_err());
            assert!(place.holds(to, 1), "{to:?}");
            if to.can_replace() {
                restore(&place, to, ReplacePolicy::Anything, 2).unwrap();
                assert!(place.holds(to, 2), "{to:?}");
            }
        }
    }
}

/// Goal: whatever call fails, the end is told as an error, or everything is there; and never half of it.
fn an_error_of_the_disk_leaves_all_or_nothing(lie: Lie) {
    for to in STAGED {
        for op in [Op::Create, Op::Write, Op::CreateDir, Op::Rename, Op::Sync] {
            for nth in [1, 2, 3, 5, 8] {
                let disk = SimDisk::new(nth);
                let place = Place::on(&disk).with(lie);
                disk.inject(Fault::errno(EIO).on(op).nth(nth).times(1));
                let told = restore(&place, to, ReplacePolicy::No, 1).is_ok();
                disk.heal();
                let at = format!("{to:?}, {op:?} {nth}");
                let is_nothing = !told && place.tree().is_empty();
                assert!(place.holds(to, 1) || is_nothing, "{at}");
            }
        }
    }
}

/// Goal: a cluster without the file that makes it one is not completed, whatever else is there.
fn a_cluster_without_its_control_file_is_refused_at_the_end(lie: Lie) {
    for place in places(lie) {
        let opened = place.open(To::Cluster, ReplacePolicy::No).unwrap();
        put(&*opened, To::Target(Scope::Space), 1).unwrap();
        assert!(opened.finish().is_err());
        assert_eq!(place.tree(), Tree::new());
    }
}

/// Goal: a delta gives what a staged restore gives. Until then no server starts there, and the next delta completes what
/// one that was dropped, or failed, has begun.
fn a_delta_is_complete_at_its_end_and_cannot_start_before(lie: Lie) {
    for to in [To::Cluster, To::Spaces] {
        for place in places(lie) {
            let delta = || place.cluster(to, false, true);
            assert!(delta().is_err(), "there is no cluster to change");
            restore(&place, to, ReplacePolicy::No, 1).unwrap();
            let opened = delta().unwrap();
            put(&*opened, to, 2).unwrap();
            assert!(!place.tree().contains_key(Path::new(CONTROL)), "{to:?}");
            drop(opened);
            assert!(!place.tree().contains_key(Path::new(CONTROL)), "{to:?}");
            let opened = delta().unwrap();
            put(&*opened, to, 3).unwrap();
            let rewritten = opened.finish().unwrap();
            assert!(rewritten.unwrap().rewritten_bytes > Some(0), "{to:?}");
            assert!(place.holds(to, 3), "{to:?}");
        }
    }
}

/// Goal: whatever call of a delta fails, it is told, and the directory has the control file only when all of it is there.
fn an_error_of_the_disk_leaves_a_delta_that_cannot_start(lie: Lie) {
    for op in [Op::Create, Op::Write, Op::Rename, Op::Sync, Op::RemoveFile] {
        for nth in [1, 2, 3, 5, 8] {
            let disk = SimDisk::new(nth);
            let place = Place::on(&disk).with(lie);
            restore(&place, To::Cluster, ReplacePolicy::No, 1).unwrap();
            disk.inject(Fault::errno(EIO).on(op).nth(nth).times(1));
            let delta = || {
                let opened = place.cluster(To::Cluster, false, true)?;
                put(&*opened, To::Cluster, 2)?;
                opened.finish().map(drop)
            };
            let told: Result<(), Error> = delta();
            disk.heal();
            let at = format!("{op:?} {nth}");
            let can_start = place.tree().contains_key(Path::new(CONTROL));
            let is_old = place.holds(To::Cluster, 1);
            let is_new = place.holds(To::Cluster, 2);
            assert!(is_new || told.is_err(), "{at}");
            assert!(is_new || is_old || !can_start, "{at}");
            delta().unwrap();
            assert!(place.holds(To::Cluster, 2), "{at}");
        }
    }
}

const EIO: i32 = 5;

/// Goal: a server finds its tablespaces where the restore decided: the file that names them is edited as a whole, or refused
/// where that cannot be done.
#[test]
fn a_tablespace_map_in_pieces_or_of_another_form_is_refused() {
    const MAP: &str = "tablespace_map";
    let stored: &[u8] = b"16384 /stored/elsewhere\n";
    for (name, bytes, in_pieces, is_refused) in [
        (MAP, stored, true, true),
        (MAP, b"nonsense".as_slice(), false, true),
        (MAP, stored, false, false),
        ("another", stored, true, false),
    ] {
        for to in [To::Cluster, To::Spaces] {
            let place = Place::on(&SimDisk::new(1));
            let opened = place.open(to, ReplacePolicy::No).unwrap();
            let extent = Extent {
                offset: 0,
                len: bytes.len() as u32,
            };
            let (len_bytes, parts) = (bytes.len() as u64, &[(extent, bytes)]);
            let put = match in_pieces {
                true => opened.put_piece(&FilePiece {
                    path: Path::new(name),
                    len_bytes,
                    parts,
                }),
                false => opened.put_data(&entry(name, EntryKind::File, len_bytes), parts),
            };
            let at = format!("{to:?}, {name}, in pieces: {in_pieces}: {put:?}");
            match put {
                Ok(()) => assert!(!is_refused, "{at}"),
                Err(Error::Cluster(ClusterError::TablespaceMap)) => assert!(is_refused, "{at}"),
                Err(_) => panic!("{at}"),
            }
        }
    }
    // In two parts of one block, and a part alone.
    let place = Place::on(&SimDisk::new(1));
    let opened = place.open(To::Cluster, ReplacePolicy::No).unwrap();
    let (one, two) = stored.split_at(9);
    let extent = |offset: u64, bytes: &[u8]| Extent {
        offset,
        len: bytes.len() as u32,
    };
    let map = entry(MAP, EntryKind::File, stored.len() as u64);
    for parts in [
        vec![(extent(0, one), one), (extent(9, two), two)],
        vec![(extent(9, two), two)],
        Vec::new(),
    ] {
        let put = opened.put_data(&map, &parts);
        let is_refused = matches!(put, Err(Error::Cluster(ClusterError::TablespaceMap)));
        assert!(is_refused, "{} parts: {put:?}", parts.len());
    }
}
