//! The walk through a data directory and its tablespaces.
//!
//! One stream per volume, depth first, names streamed. Tablespaces are walked from their location, and appear
//! in the set below `pg_tblspc/OID`, where the cluster sees them.
//!
//! Invariants
//! - The links of tablespaces come first of all.
//! - Memory: a path per level, and one per database.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Stat, Via};
use longshore_pg::{Fork, RelationFile};
use parking_lot::Mutex;

use super::base::Segment;
use super::cluster::Cluster;
use super::content::{Held, Kind, OnDisk, State};
use super::rules::{self, Verdict};
use crate::attributes::Attributes;
use crate::reading::Reading;
use crate::reading::is_missing;
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

/// A directory of relations that was walked.
pub(super) struct Database {
    pub(super) start: Arc<Start>,
    /// In the backup.
    pub(super) path: PathBuf,
}

/// A directory being listed.
struct Level {
    dir: Arc<dyn Dir>,
    /// In the backup.
    path: PathBuf,
    host_path: PathBuf,
    names: Box<dyn Iterator<Item = io::Result<OsString>> + Send>,
    /// Whether its files are relations.
    is_database: bool,
}

/// A file that was listed.
pub(super) struct Place {
    pub(super) dir: Arc<dyn Dir>,
    /// In `dir`.
    pub(super) name: PathBuf,
    /// In the backup.
    pub(super) path: PathBuf,
    /// For people.
    pub(super) host_path: PathBuf,
}

/// What is told at the end.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) attributes: Attributes,
    pub(super) special: Tally,
    pub(super) links: Tally,
}

pub(super) struct Walk {
    /// What comes before everything else, last first.
    pub(super) given: Vec<Entry>,
    /// Not begun yet, last first.
    pub(super) starts: Vec<Start>,
    /// The one under way.
    start: Option<Arc<Start>>,
    levels: Vec<Level>,
    /// The directories of relations that were entered.
    pub(super) databases: Vec<Database>,
    pub(super) notes: Notes,
}

impl Walk {
    pub(super) fn new() -> Walk {
        Walk {
            given: Vec::new(),
            starts: Vec::new(),
            start: None,
            levels: Vec::new(),
            databases: Vec::new(),
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
            dir: start.dir.clone(),
            path: start.prefix.clone(),
            host_path: start.host_path.clone(),
            names,
            is_database: false,
        });
        self.start = Some(Arc::new(start));
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
                let xattrs = self.notes.attributes.read(&*dir, name, &host_path);
                let entered = is_elsewhere || self.enter(&*dir, name, &path, &host_path)?;
                Ok(entered.then(|| Entry {
                    xattrs,
                    ..Entry::named(path, EntryKind::Dir, &stat)
                }))
            }
            (FileKind::File, _) => {
                let place = Place {
                    dir,
                    name: name.into(),
                    path,
                    host_path,
                };
                let xattrs = self
                    .notes
                    .attributes
                    .read(&*place.dir, name, &place.host_path);
                let found = self.file(cluster, place, &stat)?;
                Ok(found.map(|entry| Entry { xattrs, ..entry }))
            }
            // Comes first of all, with the locations.
            (FileKind::Symlink, _) if rules::is_tablespace(&path) => Ok(None),
            (FileKind::Symlink, _) if rules::must_be_real(&path) => {
                Err(Error::LinkedData { path: host_path })
            }
            (FileKind::Symlink, _) => match dir.read_link(name) {
                Ok(target) => {
                    self.notes.links.add(&host_path);
                    Ok(Some(Entry::named(
                        path,
                        EntryKind::Symlink { target },
                        &stat,
                    )))
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
                    .push(Entry::named(path.join(name), EntryKind::Dir, &stat));
            }
        }
        Entry::named(path, EntryKind::Dir, &stat)
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
            Ok((dir.list()?, dir))
        };
        match open() {
            Ok((names, dir)) => {
                let is_database = rules::is_database_dir(path);
                if let (true, Some(start)) = (is_database, &self.start) {
                    self.databases.push(Database {
                        start: start.clone(),
                        path: path.into(),
                    });
                }
                self.levels.push(Level {
                    dir,
                    path: path.into(),
                    host_path: host_path.into(),
                    names,
                    is_database,
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
        place: Place,
        stat: &Stat,
    ) -> Result<Option<Entry>, Error> {
        let is_database = self.levels.last().is_some_and(|level| level.is_database);
        let relation = is_database.then(|| rules::relation(&place.name)).flatten();
        if let Some(file) = relation {
            // Init forks follow when the backup has ended in the server.
            let is_left = file.is_temporary || file.fork == Fork::Init;
            if is_left || is_unlogged(&place, &file)? {
                return Ok(None);
            }
            return Ok(Some(relation_file(cluster, place, &file, stat)));
        }
        // Whatever else there is must be whole: it is opened now, and small files are read now.
        let reading = match Reading::open(&*place.dir, &place.name, &place.host_path) {
            Ok(reading) => reading,
            Err(Error::Io { source, .. }) if is_missing(&source) => return Ok(None),
            Err(e) => return Err(e),
        };
        let stat = reading.stat().clone();
        if stat.len > HELD_MAX {
            let state = State::Open(Arc::new(reading));
            let path = place.path.clone();
            let content = on_disk(cluster, place, state, Kind::Other, stat.len);
            return Ok(Some(Entry {
                len: stat.len,
                content: Some(Arc::new(content)),
                ..Entry::named(path, EntryKind::File, &stat)
            }));
        }
        let mut bytes = vec![0; stat.len as usize];
        let len = reading
            .file()
            .read_full_at(&mut bytes, 0, Via::Cache)
            .map_err(|source| Error::Read {
                path: place.host_path,
                offset: 0,
                source,
            })?;
        bytes.truncate(len);
        Ok(Some(held(place.path, bytes, &stat)))
    }
}

/// The entry of a relation's file, which is opened when it is read.
pub(super) fn relation_file(
    cluster: &Arc<Cluster>,
    place: Place,
    file: &RelationFile,
    stat: &Stat,
) -> Entry {
    if let Some(verifier) = &cluster.verifier
        && !stat.len.is_multiple_of(verifier.page_bytes as u64)
    {
        let mut findings = verifier.findings.lock();
        findings.odd_lengths.add(&place.host_path);
    }
    let path = place.path.clone();
    let number = file.segment;
    let (segment, _) = Segment::of(&path).unzip();
    let kind = Kind::Relation {
        number,
        segment: segment.filter(|_| file.fork == Fork::Main),
    };
    let page_bytes = cluster.control.page_bytes;
    let has_pages = stat.len.is_multiple_of(u64::from(page_bytes));
    let content = (stat.len > 0).then(|| {
        Arc::new(on_disk(cluster, place, State::Unopened, kind, stat.len)) as Arc<dyn Content>
    });
    Entry {
        len: stat.len,
        page_bytes: has_pages.then_some(page_bytes),
        content,
        ..Entry::named(path, EntryKind::File, stat)
    }
}

fn on_disk(cluster: &Arc<Cluster>, place: Place, state: State, kind: Kind, len: u64) -> OnDisk {
    OnDisk {
        cluster: cluster.clone(),
        dir: place.dir,
        name: place.name,
        host_path: place.host_path,
        len,
        kind,
        state: Mutex::new(state),
    }
}

/// Whether a relation has an init fork, and nothing else of it is kept. Asked for each file: the answer of a moment
/// before is too old for a relation that was made since.
fn is_unlogged(place: &Place, file: &RelationFile) -> Result<bool, Error> {
    let init = format!("{}_init", file.filenode);
    match place.dir.stat(Path::new(&init)) {
        Ok(_) => Ok(true),
        Err(e) if is_missing(&e) => Ok(false),
        Err(source) => Err(Error::Io {
            action: "look for the init fork of",
            path: place.host_path.clone(),
            source,
        }),
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
        ..Entry::named(path, EntryKind::File, stat)
    }
}
