//! Turns the paths that a person gave into the starting points of each volume's walk.
//!
//! Invariants
//! - Every path is checked before any is read: it exists, is a file or a directory, and no two of them would be
//!   restored to the same name.
//! - A directory on which another volume begins is left to that volume's walk, so nothing below a root is walked twice.
//! - A SQLite database brings the files next to it along, since it may not be consistent without them.
//!
//! Leaves to others: the walk itself (`walk.rs`), and which directory is a volume (`volumes.rs`).

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Stat, Storage};

use crate::attributes::Attributes;
use crate::reading::is_missing;
use crate::volumes::Volumes;
use crate::{Error, SourceRoot, Volume};

/// A restore's own directory in its target. It has names of before a restore and files that are not whole, and no restore
/// writes to it.
pub const RESTORING: &str = ".longshore-restoring";
/// The directory in it of names that the restore has displaced, and the journal of a switch of single names.
const DISPLACED: &str = "old";
const SWITCH: &str = "moving";
/// The file in it that a restore keeps locked while it runs.
pub const RESTORE_LOCK: &str = "lock";

/// A directory through which everything below it is reached.
pub(super) struct Root {
    pub(super) dir: Arc<dyn Dir>,
    /// The directory's canonical path, for messages.
    at: PathBuf,
    /// The prefix of its entries' paths in the backup; empty for a single root.
    pub(super) prefix: PathBuf,
    /// Directories below it, relative to it, where another walk begins.
    pub(super) elsewhere: HashSet<PathBuf>,
    /// Keeps restores from replacing the tree.
    _mark: Option<Box<dyn Send + Sync>>,
}

impl Root {
    /// Refuses a directory that has another one's name now.
    pub(super) fn check_named(&self, storage: &dyn Storage) -> Result<(), Error> {
        let id = |stat: Stat| (stat.dev, stat.ino);
        let (named, read) = (storage.stat(&self.at), self.dir.stat(Path::new("")));
        match (named.map(id), read.map(id)) {
            (Ok(named), Ok(read)) if named == read => Ok(()),
            // A directory that cannot be looked at has been reported, or could be read to its end.
            (Err(e), _) if !is_missing(&e) => Ok(()),
            (_, Err(e)) if !is_missing(&e) => Ok(()),
            _ => Err(Error::TreeReplaced {
                path: self.at.clone(),
            }),
        }
    }

    /// The full path, for messages, of `path`, which is relative to this root.
    pub(super) fn host_path(&self, path: &Path) -> PathBuf {
        below(&self.at, path)
    }

    /// The path of `path` in the set.
    pub(super) fn entry(&self, path: &Path) -> PathBuf {
        below(&self.prefix, path)
    }
}

/// `join` with an empty path would add a slash, which no path of a set may end in.
fn below(place: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        place.to_owned()
    } else {
        place.join(path)
    }
}

/// The starting point of one volume's walk.
pub(super) enum Start {
    /// A directory, relative to its root; empty for the root itself.
    Dir { root: Arc<Root>, path: PathBuf },
    /// A single file: its name in the root's directory, and its path in the backup.
    File {
        root: Arc<Root>,
        name: PathBuf,
        entry: PathBuf,
        /// Whether the file was not requested, but belongs to a SQLite database that was.
        companion: bool,
    },
}

/// A starting point, and the number of its volume.
type VolumeStart = (usize, Start);

/// The volumes of all roots, and the starting points of each.
pub(super) struct RootPlan {
    pub(super) volumes: Vec<Volume>,
    pub(super) starts: Vec<Vec<Start>>,
    /// The roots that are directories.
    pub(super) trees: Vec<Arc<Root>>,
    /// The first root's name for people.
    pub(super) name: String,
    /// The length of the file, if a single file is the only root.
    pub(super) len: Option<u64>,
}

impl RootPlan {
    /// The directory whose content is read, if a directory is the only path. `unread` gets attributes that cannot be read.
    pub(super) fn root(&self, unread: &mut Attributes) -> Result<SourceRoot, Error> {
        let mut starts = self.starts.iter().flatten();
        let only = starts.find_map(|start| match start {
            Start::Dir { root, .. } if root.prefix.as_os_str().is_empty() => Some(root),
            Start::Dir { .. } | Start::File { .. } => None,
        });
        let Some(root) = only else {
            return Ok(SourceRoot::None);
        };
        let (name, path) = (Path::new(""), root.host_path(Path::new("")));
        let stat = root.dir.stat(name).map_err(|source| Error::Io {
            action: "look at",
            path: path.clone(),
            source,
        })?;
        let xattrs = unread.read(&*root.dir, name, &path);
        Ok(SourceRoot::Dir { stat, xattrs })
    }
}

struct RequestedRoot {
    /// The path as given, for messages.
    path: PathBuf,
    canonical: PathBuf,
    stat: Stat,
    /// The last component of the path as given; empty for `/`.
    name: PathBuf,
}

/// Checks every path and divides the trees among volumes.
pub(super) fn plan(
    storage: &dyn Storage,
    paths: &[PathBuf],
    map: &[(PathBuf, String)],
) -> Result<RootPlan, Error> {
    let given: Vec<_> = paths
        .iter()
        .map(|path| look(storage, path))
        .collect::<Result<_, _>>()?;
    refuse_collisions(&given)?;
    let mut volumes = Volumes::new(storage, map)?;
    let mut starts: Vec<Vec<Start>> = Vec::new();
    let mut trees = Vec::new();
    let mut begin = |volume: usize, start| {
        if starts.len() <= volume {
            starts.resize_with(volume + 1, Vec::new);
        }
        starts[volume].push(start);
    };
    for root in &given {
        let volume = volumes.of(&root.canonical, root.stat.dev);
        if root.stat.kind == FileKind::File {
            let start = file_start(storage, root)?;
            for companion in companions(root, &given, &start) {
                begin(volume, companion);
            }
            begin(volume, start);
            continue;
        }
        let prefix = if given.len() == 1 {
            PathBuf::new()
        } else {
            root.name.clone()
        };
        let (tree, places) = dir_starts(storage, root, prefix, volume, &mut volumes)?;
        trees.push(tree);
        for (volume, start) in places {
            begin(volume, start);
        }
    }
    let volumes = volumes.into_vec();
    starts.resize_with(volumes.len(), Vec::new);
    let name = given
        .first()
        .map(|root| root.name.to_string_lossy().into_owned());
    let len = match given.as_slice() {
        [only] if only.stat.kind == FileKind::File => Some(only.stat.len),
        _ => None,
    };
    Ok(RootPlan {
        volumes,
        starts,
        trees,
        name: name.unwrap_or_default(),
        len,
    })
}

fn look(storage: &dyn Storage, path: &Path) -> Result<RequestedRoot, Error> {
    let io = |source| Error::Io {
        action: "find",
        path: path.into(),
        source,
    };
    let canonical = storage.canonical(path).map_err(io)?;
    let stat = storage.stat(&canonical).map_err(io)?;
    if !matches!(stat.kind, FileKind::File | FileKind::Dir) {
        return Err(Error::NotAFile { path: path.into() });
    }
    // A link keeps the name in the given path; `.` and `..` have no name.
    let name = match path.components().next_back() {
        Some(Component::Normal(name)) => name.into(),
        _ => canonical.file_name().unwrap_or_default().into(),
    };
    Ok(RequestedRoot {
        path: path.into(),
        canonical,
        stat,
        name,
    })
}

fn refuse_collisions(given: &[RequestedRoot]) -> Result<(), Error> {
    let [_, _, ..] = given else {
        return match given {
            [] => Err(Error::Spec {
                text: "files:".into(),
                reason: "no path is given",
            }),
            _ => Ok(()),
        };
    };
    let mut names: std::collections::HashMap<&Path, &RequestedRoot> = Default::default();
    for root in given {
        if root.name.as_os_str() == RESTORING {
            return Err(Error::Spec {
                text: root.path.display().to_string(),
                reason: "it is a restore's own directory, and no restore writes to that name",
            });
        }
        if root.name.as_os_str().is_empty() {
            return Err(Error::Spec {
                text: root.path.display().to_string(),
                reason: "it has no name to keep it apart from the other paths",
            });
        }
        if let Some(first) = names.insert(&root.name, root) {
            return Err(Error::RootsCollide {
                name: root.name.clone(),
                first: first.path.clone(),
                second: root.path.clone(),
            });
        }
    }
    Ok(())
}

/// Where the walks of a directory begin: at its root, on `volume`, and below it wherever another volume begins.
fn dir_starts(
    storage: &dyn Storage,
    root: &RequestedRoot,
    prefix: PathBuf,
    volume: usize,
    volumes: &mut Volumes,
) -> Result<(Arc<Root>, Vec<VolumeStart>), Error> {
    let mut places = vec![(volume, PathBuf::new())];
    for (at, dev) in volumes.beginnings(storage, &root.canonical) {
        if let Ok(path) = at.strip_prefix(&root.canonical) {
            places.push((volumes.of(&at, dev), path.to_path_buf()));
        }
    }
    let dir = open_dir(storage, &root.canonical)?;
    // A restore looks for the mark after it has its lock, and this looks for the lock after the mark: one of them sees the
    // other. Where no mark is possible, the end of the backup compares.
    let mark = dir.mark_read().ok();
    if is_restored_to(&*dir) {
        let path = root.canonical.clone();
        return Err(Error::BeingRestored { path });
    }
    if let (Some(parent), Some(name)) = (root.canonical.parent(), root.canonical.file_name()) {
        refuse_arrival(storage, parent, Path::new(name))?;
    }
    let tree = Arc::new(Root {
        dir,
        at: root.canonical.clone(),
        prefix,
        elsewhere: places[1..].iter().map(|(_, path)| path.clone()).collect(),
        _mark: mark,
    });
    let start = |(volume, path)| {
        let root = tree.clone();
        (volume, Start::Dir { root, path })
    };
    let starts = places.into_iter().map(start).collect();
    Ok((tree, starts))
}

/// Whether `dir` has names that a restore has displaced, or is exchanging: a killed one leaves it so.
pub(super) fn has_displaced(dir: &dyn Dir) -> bool {
    let own = Path::new(RESTORING);
    let old = dir.dir(&own.join(DISPLACED)).and_then(|old| old.list());
    old.is_ok_and(|mut names| names.next().is_some()) || dir.stat(&own.join(SWITCH)).is_ok()
}

/// Whether a restore into `dir` runs on this machine: a killed one's lock has ended.
pub(super) fn is_restored_to(dir: &dyn Dir) -> bool {
    let lock = dir.open_to_lock(&Path::new(RESTORING).join(RESTORE_LOCK));
    lock.and_then(|file| file.try_lock())
        .is_ok_and(|free| !free)
}

/// Refuses a name that a restore into the directory above is about to replace.
fn refuse_arrival(storage: &dyn Storage, above: &Path, name: &Path) -> Result<(), Error> {
    let Ok(dir) = storage.dir(above) else {
        return Ok(());
    };
    let staged = |part| {
        dir.stat(&Path::new(RESTORING).join(part).join(name))
            .is_ok()
    };
    match (staged("new") || staged("old")) && is_restored_to(&*dir) {
        true => Err(Error::BeingRestored {
            path: above.to_owned(),
        }),
        false => Ok(()),
    }
}

fn file_start(storage: &dyn Storage, file: &RequestedRoot) -> Result<Start, Error> {
    let (Some(parent), Some(name)) = (file.canonical.parent(), file.canonical.file_name()) else {
        return Err(Error::NotAFile {
            path: file.path.clone(),
        });
    };
    refuse_arrival(storage, parent, Path::new(name))?;
    let root = Arc::new(Root {
        dir: open_dir(storage, parent)?,
        at: parent.into(),
        prefix: PathBuf::new(),
        elsewhere: HashSet::new(),
        _mark: None,
    });
    Ok(Start::File {
        root,
        name: name.into(),
        entry: file.name.clone(),
        companion: false,
    })
}

/// The files of a SQLite database next to it: without them, the copy may be a state that never existed.
fn companions(file: &RequestedRoot, given: &[RequestedRoot], start: &Start) -> Vec<Start> {
    let Start::File {
        root, name, entry, ..
    } = start
    else {
        return Vec::new();
    };
    // By name alone: an encrypted database does not begin as others do.
    let beside = |path: &Path, suffix: &str| {
        let mut path = path.as_os_str().to_owned();
        path.push(suffix);
        PathBuf::from(path)
    };
    let is_given = |path: PathBuf| given.iter().any(|other| other.canonical == path);
    let found = ["-wal", "-shm", "-journal"].into_iter();
    found
        .filter(|suffix| !is_given(beside(&file.canonical, suffix)))
        .map(|suffix| Start::File {
            root: root.clone(),
            name: beside(name, suffix),
            entry: beside(entry, suffix),
            companion: true,
        })
        .collect()
}

fn open_dir(storage: &dyn Storage, path: &Path) -> Result<Arc<dyn Dir>, Error> {
    storage.dir(path).map_err(|source| Error::Io {
        action: "open directory",
        path: path.into(),
        source,
    })
}
