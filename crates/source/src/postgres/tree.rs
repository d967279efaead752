//! The walk through a data directory and its tablespaces.
//!
//! One stream per volume, depth first, names streamed. Tablespaces are walked from their location, and appear
//! in the set below `pg_tblspc/OID`, where the cluster sees them.
//!
//! Invariants
//! - The links of tablespaces come first of all.
//! - Memory: a path per level, and the numbers of one directory's unlogged relations.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Stat, Via};
use longshore_pg::Fork;
use parking_lot::Mutex;

use super::cluster::Cluster;
use super::content::{Held, Kind, OnDisk, State};
use super::rules::{self, Verdict};
use crate::claims::Reading;
use crate::files::is_missing;
use crate::tally::Tally;
use crate::{Content, Entry, EntryKind, Error};

/// Deeper than any cluster is.
const LEVELS_MAX: usize = 64;
/// A file of this size or less is read when it is listed, unless it is a relation's: what vanishes right after is then
/// whole in the backup. A half-empty one could keep a restored server from starting.
pub(super) const HELD_MAX: u64 = 64 << 10;

/// Where a walk begins.
pub(super) struct Start {
    pub(super) dir: Arc<dyn Dir>,
    /// `dir`'s own path, for people.
    pub(super) host_path: PathBuf,
    /// What its entries' paths in the backup begin with.
    pub(super) prefix: PathBuf,
}

/// A directory being listed.
struct Level {
    dir: Arc<dyn Dir>,
    /// In the backup.
    path: PathBuf,
    host_path: PathBuf,
    names: Box<dyn Iterator<Item = io::Result<OsString>> + Send>,
    /// In a database's directory: the relations that have an init fork, of which nothing else is kept.
    unlogged: Option<HashSet<u32>>,
}

/// What is told at the end.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) special: Tally,
    pub(super) links: Tally,
}

pub(super) struct Walk {
    /// What comes before everything else, last first.
    pub(super) given: Vec<Entry>,
    /// Not begun yet, last first.
    pub(super) starts: Vec<Start>,
    levels: Vec<Level>,
    pub(super) notes: Notes,
}

impl Walk {
    pub(super) fn new() -> Walk {
        Walk {
            given: Vec::new(),
            starts: Vec::new(),
            levels: Vec::new(),
            notes: Notes::default(),
        }
    }

    /// `elsewhere`: canonical paths of tablespaces, which have walks of their own.
    pub(super) fn next(
        &mut self,
        cluster: &Arc<Cluster>,
        elsewhere: &[PathBuf],
    ) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(entry) = self.given.pop() {
                return Ok(Some(entry));
            }
            let Some(level) = self.levels.last_mut() else {
                match self.starts.pop() {
                    None => return Ok(None),
                    Some(start) => self.begin(start)?,
                }
                continue;
            };
            match level.names.next() {
                None => {
                    self.levels.pop();
                }
                Some(Ok(name)) => {
                    let found = self.visit(cluster, elsewhere, Path::new(&name))?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Some(Err(e)) if is_missing(&e) => {
                    self.levels.pop();
                }
                Some(Err(source)) => {
                    return Err(Error::Io {
                        action: "list",
                        path: level.host_path.clone(),
                        source,
                    });
                }
            }
        }
    }

    fn begin(&mut self, start: Start) -> Result<(), Error> {
        let names = start.dir.list().map_err(|source| Error::Io {
            action: "list",
            path: start.host_path.clone(),
            source,
        })?;
        self.levels.push(Level {
            dir: start.dir,
            path: start.prefix,
            host_path: start.host_path,
            names,
            unlogged: None,
        });
        Ok(())
    }

    fn visit(
        &mut self,
        cluster: &Arc<Cluster>,
        elsewhere: &[PathBuf],
        name: &Path,
    ) -> Result<Option<Entry>, Error> {
        let Some(level) = self.levels.last() else {
            return Ok(None);
        };
        let path = level.path.join(name);
        let host_path = level.host_path.join(name);
        let dir = level.dir.clone();
        let verdict = rules::judge(&path);
        if verdict == Verdict::Leave {
            return Ok(None);
        }
        let io = |action| {
            let path = host_path.clone();
            move |source| Error::Io {
                action,
                path,
                source,
            }
        };
        let stat = match dir.stat(name) {
            Ok(stat) => stat,
            // Listed and gone: its removal is in the log.
            Err(e) if is_missing(&e) => return Ok(None),
            Err(e) => return Err(io("look at")(e)),
        };
        // The first entries of all are these.
        if path == Path::new("pg_tblspc") && stat.kind == FileKind::Dir {
            self.enter(&*dir, name, &path, &host_path)?;
            return Ok(None);
        }
        match (stat.kind, verdict) {
            (FileKind::Dir | FileKind::Symlink, Verdict::KeepEmpty) => {
                Ok(Some(self.keep_empty(cluster, path, &stat)))
            }
            (FileKind::Dir, _) => {
                let is_elsewhere = elsewhere.contains(&host_path);
                let entered = is_elsewhere || self.enter(&*dir, name, &path, &host_path)?;
                Ok(entered.then(|| entry(path, EntryKind::Dir, &stat)))
            }
            (FileKind::File, _) => self.file(cluster, dir, name, path, host_path, &stat),
            // Comes first of all, with the locations.
            (FileKind::Symlink, _) if rules::is_tablespace(&path) => Ok(None),
            (FileKind::Symlink, _) if rules::must_be_real(&path) => {
                Err(Error::LinkedData { path: host_path })
            }
            (FileKind::Symlink, _) => match dir.read_link(name) {
                Ok(target) => {
                    self.notes.links.add(&host_path);
                    Ok(Some(entry(path, EntryKind::Symlink { target }, &stat)))
                }
                Err(e) if is_missing(&e) => Ok(None),
                Err(e) => Err(io("read the link")(e)),
            },
            (FileKind::Other, _) => {
                self.notes.special.add(&host_path);
                Ok(None)
            }
        }
    }

    /// A directory whose contents are left out, and for the log those below it that a server expects.
    fn keep_empty(&mut self, cluster: &Cluster, path: PathBuf, stat: &Stat) -> Entry {
        let mut stat = stat.clone();
        if stat.kind == FileKind::Symlink {
            // A link has no mode of its own.
            stat.mode = DIR_MODE;
        }
        if path == Path::new("pg_wal") {
            let inner: &[&str] = match cluster.session.about.major {
                17.. => &["archive_status", "summaries"],
                _ => &["archive_status"],
            };
            for name in inner {
                self.given
                    .push(entry(path.join(name), EntryKind::Dir, &stat));
            }
        }
        entry(path, EntryKind::Dir, &stat)
    }

    /// Opens a directory and goes on inside it; false when it is gone.
    fn enter(
        &mut self,
        dir: &dyn Dir,
        name: &Path,
        path: &Path,
        host_path: &Path,
    ) -> Result<bool, Error> {
        if self.levels.len() == LEVELS_MAX {
            return Err(Error::TooDeep {
                path: host_path.into(),
                levels_max: LEVELS_MAX,
            });
        }
        let open = || -> io::Result<_> {
            let dir = dir.dir(name)?;
            let unlogged = match rules::is_database_dir(path) {
                true => Some(unlogged_relations(&*dir)?),
                false => None,
            };
            Ok((dir.list()?, dir, unlogged))
        };
        match open() {
            Ok((names, dir, unlogged)) => {
                self.levels.push(Level {
                    dir,
                    path: path.into(),
                    host_path: host_path.into(),
                    names,
                    unlogged,
                });
                Ok(true)
            }
            Err(e) if is_missing(&e) => Ok(false),
            Err(source) => Err(Error::Io {
                action: "open directory",
                path: host_path.into(),
                source,
            }),
        }
    }

    fn file(
        &self,
        cluster: &Arc<Cluster>,
        dir: Arc<dyn Dir>,
        name: &Path,
        path: PathBuf,
        host_path: PathBuf,
        stat: &Stat,
    ) -> Result<Option<Entry>, Error> {
        let unlogged = self.levels.last().and_then(|level| level.unlogged.as_ref());
        let relation = unlogged.and_then(|_| rules::relation(name));
        if let (Some(unlogged), Some(file)) = (unlogged, &relation) {
            let is_unlogged = file.fork != Fork::Init && unlogged.contains(&file.filenode);
            if file.is_temporary || is_unlogged {
                return Ok(None);
            }
        }
        let on_disk = |state, kind, len| OnDisk {
            cluster: cluster.clone(),
            dir: dir.clone(),
            name: name.into(),
            host_path: host_path.clone(),
            len,
            kind,
            state: Mutex::new(state),
        };
        if let Some(file) = relation {
            if let Some(verifier) = &cluster.verifier
                && !stat.len.is_multiple_of(verifier.page_bytes as u64)
            {
                verifier.findings.lock().odd_lengths.add(&host_path);
            }
            let number = file.segment;
            let differing = cluster.differing.as_ref();
            let kind = match differing.and_then(|d| d.based(&path, stat.len)) {
                Some(based) => Kind::Based { number, based },
                None if differing.is_some_and(|d| d.empties(&path)) => Kind::Map { number },
                None => Kind::Relation { number },
            };
            let content = (stat.len > 0)
                .then(|| Arc::new(on_disk(State::Unopened, kind, stat.len)) as Arc<dyn Content>);
            return Ok(Some(Entry {
                len: stat.len,
                based: matches!(kind, Kind::Based { .. }),
                content,
                ..entry(path, EntryKind::File, stat)
            }));
        }
        // Whatever else there is must be whole: it is opened now, and small files are read now.
        let reading = match Reading::open(&*dir, name, &host_path) {
            Ok(reading) => reading,
            Err(Error::Io { source, .. }) if is_missing(&source) => return Ok(None),
            Err(e) => return Err(e),
        };
        let stat = reading.stat().clone();
        if stat.len > HELD_MAX {
            let state = State::Open(Arc::new(reading));
            return Ok(Some(Entry {
                len: stat.len,
                content: Some(Arc::new(on_disk(state, Kind::Other, stat.len))),
                ..entry(path, EntryKind::File, &stat)
            }));
        }
        let mut bytes = vec![0; stat.len as usize];
        let len = reading
            .file()
            .read_full_at(&mut bytes, 0, Via::Cache)
            .map_err(|source| Error::Read {
                path: host_path.clone(),
                offset: 0,
                source,
            })?;
        bytes.truncate(len);
        Ok(Some(held(path, bytes, &stat)))
    }
}

/// Permission bits of directories in a data directory that its group may not read.
const DIR_MODE: u32 = 0o700;

/// An entry whose bytes are known.
pub(super) fn held(path: PathBuf, bytes: Vec<u8>, stat: &Stat) -> Entry {
    let len = bytes.len() as u64;
    Entry {
        len,
        content: (len > 0).then(|| Arc::new(Held(bytes)) as Arc<dyn Content>),
        ..entry(path, EntryKind::File, stat)
    }
}

pub(super) fn entry(path: PathBuf, kind: EntryKind, stat: &Stat) -> Entry {
    Entry {
        path,
        kind,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        mtime_ns: stat.mtime_ns,
        len: 0,
        based: false,
        content: None,
    }
}

/// The relations in a directory that have an init fork.
fn unlogged_relations(dir: &dyn Dir) -> io::Result<HashSet<u32>> {
    let mut found = HashSet::new();
    for name in dir.list()? {
        let name = name?;
        if !name.as_bytes().ends_with(b"_init") {
            continue;
        }
        if let Some(file) = rules::relation(Path::new(&name)) {
            found.insert(file.filenode);
        }
    }
    Ok(found)
}
