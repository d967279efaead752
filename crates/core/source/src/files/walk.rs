//! One volume's walk: depth first, one open directory per level, names streamed.
//!
//! Invariants
//! - Memory and descriptors are bounded whatever the tree contains.
//! - A path that is too long or too deep is left out and reported: any user who can write to the tree can make one, and
//!   must not prevent the backup of the rest.
//! - A name that vanishes between listing and opening is no error, and is told; a directory that changed meanwhile is listed
//!   again, so that a file comes under its new name.
//!
//! Leaves to others: which directories a volume begins with (`roots.rs`), and reading the files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Stat, Xattr};
use longshore_pg::PID_FILE;
use parking_lot::Mutex;

use super::content::{FileContent, Names};
use super::listing::{End, Listing, NAMES_MAX};
use super::roots::{RESTORING, Root, Start, has_displaced, is_restored_to};
use crate::attributes::Attributes;
use crate::reading::is_missing;
use crate::tally::Tally;
use crate::{Content, Entry, EntryKind, Error};

/// Each level holds two descriptors; the usual limit of a process is 1024.
const LEVELS_MAX: usize = 256;

/// Longest path in a backup, in bytes; also the system's limit.
const PATH_BYTES_MAX: usize = 4095;
/// How many bytes of such a path a warning shows.
const SHOWN_BYTES: usize = 200;

/// Files are compared with a base in pages of this size, whose sums take 0.1 % of their bytes.
const COMPARED_BYTES: u32 = 8 << 10;

/// How often a name is looked at again that was replaced meanwhile.
const SWAPS_MAX: u32 = 3;

/// The file that every data directory of PostgreSQL has.
const VERSION_FILE: &str = "PG_VERSION";
/// The directories of a data directory in which a cluster has its WAL, by the major version, and its links to tablespaces.
const WAL_DIRS: [&str; 2] = ["pg_wal", "pg_xlog"];
const SPACES_DIR: &str = "pg_tblspc";
/// Memory for hard links in the walk of one volume, whatever the tree contains.
const LINKS_BYTES_MAX: usize = 32 << 20;

pub(super) struct Walk {
    /// Starting points to come, in reverse order.
    starts: Vec<Start>,
    root: Option<Arc<Root>>,
    levels: Vec<Level>,
    /// How many more names the levels can remember.
    room: usize,
    links: Links,
    /// Whether the data directory of a running server ends the backup.
    refuse_servers: bool,
    /// SQLite databases among the files; the files' contents add them.
    pub(super) databases: Arc<Mutex<Tally>>,
    pub(super) notes: Notes,
}

/// A directory being listed.
struct Level {
    dir: Arc<dyn Dir>,
    /// Path relative to the root.
    path: PathBuf,
    names: Listing,
}

/// Observations reported at the end.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) special: Tally,
    /// Names of restores' own directories, which no restore could bring back.
    pub(super) restoring: Tally,
    /// Targets in which a restore was killed while it replaced names.
    pub(super) mixed: Tally,
    /// Whether a root is one.
    pub(super) is_mixed: bool,
    pub(super) vanished: Tally,
    /// Names that were gone when they were looked at.
    pub(super) gone: Tally,
    /// Directories that changed at each look.
    pub(super) restless: Tally,
    /// Names that were a link at one look and none at the next, again and again.
    pub(super) swapped: Tally,
    pub(super) unlinked: Tally,
    pub(super) logs: Tally,
    pub(super) attributes: Attributes,
    /// Directories whose contents were left out because they are too deep.
    pub(super) deep: Tally,
    /// Names left out because they are too long.
    pub(super) long: Tally,
    /// Data directories of PostgreSQL servers, recognised by a file that exists only while the server runs.
    pub(super) servers: Tally,
    /// Links from data directories of PostgreSQL to parts of their clusters.
    pub(super) clusters: Tally,
}

impl Walk {
    pub(super) fn new(mut starts: Vec<Start>, refuse_servers: bool) -> Self {
        starts.reverse();
        Self {
            starts,
            refuse_servers,
            root: None,
            levels: Vec::new(),
            room: NAMES_MAX,
            links: Links::default(),
            databases: Arc::default(),
            notes: Notes::default(),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            let found = match self.levels.last_mut() {
                None => match self.starts.pop() {
                    None => return Ok(None),
                    Some(start) => self.begin(start)?,
                },
                Some(level) => match level.names.next(&mut self.room) {
                    None => {
                        self.end_level()?;
                        None
                    }
                    Some(Ok(name)) => {
                        let (dir, path) = (level.dir.clone(), level.path.join(&name));
                        self.visit(&*dir, Path::new(&name), path)?
                    }
                    Some(Err(e)) => {
                        let path = level.path.clone();
                        self.missing_dir(path, "list", e)?;
                        self.leave();
                        None
                    }
                },
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn begin(&mut self, start: Start) -> Result<Option<Entry>, Error> {
        match start {
            Start::File {
                root,
                name,
                entry,
                companion,
            } => {
                self.root = Some(root.clone());
                match root.dir.stat(&name) {
                    Ok(stat) if stat.kind == FileKind::File => {
                        let at = (&*root.dir, &*name.clone());
                        Ok(Some(self.file(&root, at, (name, entry), &stat)?))
                    }
                    // The database's users made or removed the file meanwhile.
                    Err(e) if companion && is_missing(&e) => Ok(None),
                    Ok(_) if companion => Ok(None),
                    Ok(_) => Err(Error::Replaced {
                        path: root.host_path(&name),
                    }),
                    Err(source) => Err(Error::Io {
                        action: "look at",
                        path: root.host_path(&name),
                        source,
                    }),
                }
            }
            Start::Dir { root, path } => {
                self.root = Some(root.clone());
                if root.entry(&path).starts_with(RESTORING) {
                    self.notes.restoring.add(&root.host_path(&path));
                    return Ok(None);
                }
                let stat = match root.dir.stat(&path) {
                    Ok(stat) => stat,
                    Err(e) => return self.missing_dir(path, "look at", e).map(|()| None),
                };
                let entry = root.entry(&path);
                if !self.enter(&*root.dir, &path, path.clone())? || entry.as_os_str().is_empty() {
                    return Ok(None);
                }
                let xattrs = self.xattrs(&*root.dir, &path, &path);
                Ok(Some(Entry {
                    xattrs,
                    ..Entry::named(entry, EntryKind::Dir, &stat)
                }))
            }
        }
    }

    /// The entry for `name` in `dir`; `path` is its path below the root.
    fn visit(&mut self, dir: &dyn Dir, name: &Path, path: PathBuf) -> Result<Option<Entry>, Error> {
        self.visit_again(dir, name, path, SWAPS_MAX)
    }

    /// The same for a name that may be replaced so many times between two looks at it.
    fn visit_again(
        &mut self,
        dir: &dyn Dir,
        name: &Path,
        path: PathBuf,
        tries: u32,
    ) -> Result<Option<Entry>, Error> {
        let Some(root) = self.root.clone() else {
            return Ok(None);
        };
        let io = |action, source| Error::Io {
            action,
            path: root.host_path(&path),
            source,
        };
        let stat = match dir.stat(name) {
            Ok(stat) => stat,
            Err(e) if is_missing(&e) => {
                self.note_gone(name, &path);
                return Ok(None);
            }
            Err(e) => return Err(io("look at", e)),
        };
        let entry = root.entry(&path);
        if name.as_os_str() == RESTORING && is_restored_to(dir) {
            let path = root.host_path(path.parent().unwrap_or(&path));
            return Err(Error::BeingRestored { path });
        }
        if name.as_os_str() == RESTORING && has_displaced(dir) {
            let target = path.parent().unwrap_or(&path);
            self.notes.mixed.add(&root.host_path(target));
            self.notes.is_mixed |= entry.as_os_str() == RESTORING;
        }
        if entry.as_os_str() == RESTORING {
            self.notes.restoring.add(&root.host_path(&path));
            return Ok(None);
        }
        // Any user who can write to the tree can create a longer path or a deeper directory. Neither may prevent the
        // backup of the rest.
        if entry.as_os_str().len() > PATH_BYTES_MAX {
            self.notes.long.add(&beginning(&root.host_path(&path)));
            return Ok(None);
        }
        match stat.kind {
            FileKind::File => Ok(Some(self.file(&root, (dir, name), (path, entry), &stat)?)),
            FileKind::Dir if root.elsewhere.contains(&path) => Ok(None),
            FileKind::Dir => {
                let xattrs = self.xattrs(dir, name, &path);
                let entered = self.enter(dir, name, path)?;
                Ok(entered.then(|| Entry {
                    xattrs,
                    ..Entry::named(entry, EntryKind::Dir, &stat)
                }))
            }
            FileKind::Symlink => match dir.read_link(name) {
                Ok(target) => {
                    self.note_cluster_link(dir, name, &root.host_path(&path));
                    Ok(Some(Entry {
                        xattrs: self.xattrs(dir, name, &path),
                        ..Entry::named(entry, EntryKind::Symlink { target }, &stat)
                    }))
                }
                Err(e) if is_missing(&e) => {
                    self.note_gone(name, &path);
                    Ok(None)
                }
                // Replaced by a file that is not a link, which the backup must have.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => match tries {
                    0 => {
                        self.notes.swapped.add(&root.host_path(&path));
                        Ok(None)
                    }
                    _ => self.visit_again(dir, name, path, tries - 1),
                },
                Err(e) => Err(io("read the link", e)),
            },
            FileKind::Other => {
                self.notes.special.add(&root.host_path(&path));
                Ok(None)
            }
        }
    }

    /// The attributes of `name` in `dir`; `path` is its path below the root.
    fn xattrs(&mut self, dir: &dyn Dir, name: &Path, path: &Path) -> Vec<Xattr> {
        let host_path = self.host_path(path);
        self.notes.attributes.read(dir, name, &host_path)
    }

    /// The entry of a file `name` in `dir`, with its `path` below the root and `entry` in the backup.
    fn file(
        &mut self,
        root: &Arc<Root>,
        (dir, name): (&dyn Dir, &Path),
        (path, entry): (PathBuf, PathBuf),
        stat: &Stat,
    ) -> Result<Entry, Error> {
        if stat.len > 0 && is_database_log(&path) {
            self.notes.logs.add(&root.host_path(&path));
        }
        if path.file_name().is_some_and(|name| name == PID_FILE) {
            self.note_server(dir, name, &root.host_path(&path))?;
        }
        let mut names = None;
        if stat.links > 1 {
            let birth_ns = dir.birth_ns(name).ok().flatten();
            let add = |names: &Names| names.add(root, &path);
            match self.links.meet(stat, birth_ns, &entry, add) {
                Met::First(others) => names = Some(others),
                Met::Again(target) => {
                    return Ok(Entry::named(entry, EntryKind::HardLink { target }, stat));
                }
                Met::Full => self.notes.unlinked.add(&root.host_path(&path)),
            }
        }
        let xattrs = self.xattrs(dir, name, &path);
        let content = (stat.len > 0).then(|| {
            let databases = self.databases.clone();
            let stat = (stat, names);
            Arc::new(FileContent::new(root.clone(), path, stat, databases)) as Arc<dyn Content>
        });
        Ok(Entry {
            len: stat.len,
            page_bytes: Some(COMPARED_BYTES),
            xattrs,
            content,
            ..Entry::named(entry, EntryKind::File, stat)
        })
    }

    /// Notes the link at `path`, `name` in `dir`, if it leads from a data directory of PostgreSQL to a part of the cluster.
    fn note_cluster_link(&mut self, dir: &dyn Dir, name: &Path, path: &Path) {
        let is_data = |dir: &dyn Dir| {
            let version = dir.stat(Path::new(VERSION_FILE));
            version.is_ok_and(|stat| stat.kind == FileKind::File)
        };
        let is_wal = WAL_DIRS.iter().any(|wal| name == Path::new(wal));
        let above = || self.levels.len().checked_sub(2).map(|i| &self.levels[i]);
        let is_space = || {
            let parent = path.parent().and_then(Path::file_name);
            parent.is_some_and(|parent| parent == SPACES_DIR)
                && above().is_some_and(|level| is_data(&*level.dir))
        };
        if (is_wal && is_data(dir)) || is_space() {
            self.notes.clusters.add(path);
        }
    }

    /// Notes the file at `path` that a server has while it runs, `name` in `dir`. Errors: [`Error::RunningServer`] where
    /// that is asked for and the directory is a data directory.
    fn note_server(&mut self, dir: &dyn Dir, name: &Path, path: &Path) -> Result<(), Error> {
        let version = dir.stat(&name.with_file_name(VERSION_FILE));
        if self.refuse_servers && version.is_ok_and(|stat| stat.kind == FileKind::File) {
            let path = path.parent().unwrap_or(path).to_owned();
            return Err(Error::RunningServer { path });
        }
        self.notes.servers.add(path);
        Ok(())
    }

    /// Opens a directory and continues inside it; `false` if it no longer exists. A directory that is too deep stays
    /// empty.
    fn enter(&mut self, dir: &dyn Dir, name: &Path, path: PathBuf) -> Result<bool, Error> {
        if self.levels.len() == LEVELS_MAX {
            let path = self.host_path(&path);
            self.notes.deep.add(&beginning(&path));
            return Ok(true);
        }
        match dir.dir(name).and_then(|dir| Ok((Listing::of(&*dir)?, dir))) {
            Ok((names, dir)) => {
                self.levels.push(Level { dir, path, names });
                Ok(true)
            }
            Err(e) => self.missing_dir(path, "open directory", e).map(|()| false),
        }
    }

    /// Lists the last level's directory again if it changed, and leaves it otherwise.
    fn end_level(&mut self) -> Result<(), Error> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        let (end, path) = (level.names.end(&*level.dir), level.path.clone());
        match end {
            Ok(End::Again) => return Ok(()),
            Ok(End::Still) => {}
            Ok(End::Restless) => {
                let path = self.host_path(&path);
                self.notes.restless.add(&path);
            }
            Err(e) => self.missing_dir(path, "list", e)?,
        }
        self.leave();
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.room += level.names.remembered();
        }
    }

    /// Notes a name that was listed and is gone; if another file gets it, that one comes.
    fn note_gone(&mut self, name: &Path, path: &Path) {
        let host_path = self.host_path(path);
        self.notes.gone.add(&host_path);
        if let Some(level) = self.levels.last_mut() {
            level.names.forget(name.as_os_str(), &mut self.room);
        }
    }

    /// Notes a directory that vanished for the final warnings; any other failure is an error.
    fn missing_dir(
        &mut self,
        path: PathBuf,
        action: &'static str,
        e: io::Error,
    ) -> Result<(), Error> {
        let path = self.host_path(&path);
        if !is_missing(&e) {
            return Err(Error::Io {
                action,
                path,
                source: e,
            });
        }
        self.notes.vanished.add(&path);
        Ok(())
    }

    fn host_path(&self, path: &Path) -> PathBuf {
        self.root
            .as_ref()
            .map_or_else(|| path.into(), |root| root.host_path(path))
    }
}

/// The part of a path that a warning shows.
fn beginning(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    match bytes.get(..SHOWN_BYTES) {
        None => path.to_owned(),
        Some(begin) => OsStr::from_bytes(&[begin, b"..."].concat()).into(),
    }
}

/// Whether the path is one of SQLite's names for a write-ahead log or journal.
fn is_database_log(path: &Path) -> bool {
    let name = path.as_os_str().as_bytes();
    name.ends_with(b"-wal") || name.ends_with(b"-journal")
}

/// The first names of files that have several, until all their names have been seen.
///
/// When the table is full, a file that is not in it is backed up once per name, which is reported at the end.
#[derive(Default)]
struct Links {
    files: HashMap<(u64, u64), KnownLink>,
    bytes: usize,
}

struct KnownLink {
    first: PathBuf,
    /// Names not seen yet. Names created during the walk become separate files.
    left: u64,
    traits: Traits,
    names: Arc<Names>,
}

/// The marks that all names of one file have in common besides its number, which a new file may get while the walk goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Traits {
    birth_ns: Option<i64>,
    len: u64,
    mtime_ns: i64,
    mode: u32,
    owner: (u32, u32),
}

impl Traits {
    fn of(stat: &Stat, birth_ns: Option<i64>) -> Traits {
        Traits {
            birth_ns,
            len: stat.len,
            mtime_ns: stat.mtime_ns,
            mode: stat.mode,
            owner: (stat.uid, stat.gid),
        }
    }

    /// Whether both may be of one file. Without a time of birth, a file that was changed meanwhile counts as another.
    fn fit(&self, other: &Traits) -> bool {
        match (self.birth_ns, other.birth_ns) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self == other,
        }
    }
}

enum Met {
    /// With what becomes known of its other names.
    First(Arc<Names>),
    Again(PathBuf),
    Full,
}

impl Links {
    /// `add` makes the name one of the file's others, or says that it cannot be.
    fn meet(
        &mut self,
        stat: &Stat,
        birth_ns: Option<i64>,
        entry: &Path,
        add: impl FnOnce(&Names) -> bool,
    ) -> Met {
        let id = (stat.dev, stat.ino);
        let traits = Traits::of(stat, birth_ns);
        // A first name that was lost before its bytes were read is no name to link to.
        let is_another = |file: &KnownLink| !file.traits.fit(&traits) || !add(&file.names);
        if self.files.get(&id).is_some_and(is_another)
            && let Some(removed) = self.files.remove(&id)
        {
            self.bytes -= cost(&removed.first);
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.left -= 1;
            let first = match file.left {
                0 => {
                    self.bytes -= cost(&file.first);
                    self.files.remove(&id).map(|file| file.first)
                }
                _ => Some(file.first.clone()),
            };
            return first.map_or(Met::Full, Met::Again);
        }
        if self.bytes + cost(entry) > LINKS_BYTES_MAX {
            return Met::Full;
        }
        self.bytes += cost(entry);
        let names = Arc::new(Names::default());
        self.files.insert(
            id,
            KnownLink {
                first: entry.into(),
                left: stat.links - 1,
                traits,
                names: names.clone(),
            },
        );
        Met::First(names)
    }
}

/// A map is at least half full, so an entry costs at most twice its size.
fn cost(first: &Path) -> usize {
    first.as_os_str().len() + 2 * size_of::<((u64, u64), KnownLink)>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(ino: u64, links: u64) -> Stat {
        Stat {
            kind: FileKind::File,
            len: 1,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            dev: 1,
            ino,
            links,
        }
    }

    #[test]
    fn links_are_forgotten_when_all_names_were_met() {
        let mut links = Links::default();
        assert!(matches!(
            links.meet(&stat(1, 3), None, Path::new("a"), |_| true),
            Met::First(_)
        ));
        for name in ["b", "c"] {
            let met = links.meet(&stat(1, 3), None, Path::new(name), |_| true);
            assert!(matches!(met, Met::Again(first) if first == Path::new("a")));
        }
        assert_eq!((links.files.len(), links.bytes), (0, 0));
    }

    #[test]
    fn the_table_of_links_stops_at_its_bound_and_continues_when_it_has_room() {
        let mut links = Links::default();
        let name = "n".repeat(4000);
        let full = (1..).find(|&ino| {
            matches!(
                links.meet(&stat(ino, 2), None, Path::new(&name), |_| true),
                Met::Full
            )
        });
        let full = full.unwrap();
        assert!((6_000..8_400).contains(&full), "{full}");
        assert!(links.bytes <= LINKS_BYTES_MAX);
        assert!(matches!(
            links.meet(&stat(1, 2), None, Path::new("b"), |_| true),
            Met::Again(_)
        ));
        assert!(matches!(
            links.meet(&stat(full, 2), None, Path::new(&name), |_| true),
            Met::First(_)
        ));
    }

    /// Goal: a file is never taken for a removed one whose number it got.
    #[test]
    fn a_number_that_is_used_again_is_another_file() {
        let born = |stat: &Stat, at| (stat.clone(), at);
        let changed = Stat {
            mtime_ns: 5,
            ..stat(1, 2)
        };
        for ((first, first_born), (second, second_born), is_same) in [
            (born(&stat(1, 2), Some(1)), born(&stat(1, 2), Some(1)), true),
            (born(&stat(1, 2), Some(1)), born(&changed, Some(1)), true),
            (
                born(&stat(1, 2), Some(1)),
                born(&stat(1, 2), Some(2)),
                false,
            ),
            (born(&stat(1, 2), None), born(&stat(1, 2), None), true),
            (born(&stat(1, 2), None), born(&changed, None), false),
        ] {
            let mut links = Links::default();
            let met = links.meet(&first, first_born, Path::new("a"), |_| true);
            assert!(matches!(met, Met::First(_)));
            let met = links.meet(&second, second_born, Path::new("b"), |_| true);
            assert_eq!(matches!(met, Met::Again(_)), is_same, "{second_born:?}");
            // A second name of the new file is a link to the new file.
            if !is_same {
                let met = links.meet(&second, second_born, Path::new("c"), |_| true);
                assert!(matches!(met, Met::Again(first) if first == Path::new("b")));
            }
            assert_eq!((links.files.len(), links.bytes), (0, 0));
        }
    }
}
