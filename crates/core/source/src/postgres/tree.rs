//! The walk through a data directory and its tablespaces.
//!
//! One stream per volume, depth first, names streamed. Tablespaces are walked from their location and appear in the
//! set below `pg_tblspc/OID`, as in the cluster.
//!
//! Invariants
//! - The links of tablespaces precede all other entries.
//! - Memory: a path per level, and one per database.
//!
//! Leaves to others: which names are left out (`rules.rs`), and reading the files.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Stat, Via};
use longshore_pg::{Fork, RelationFile};
use parking_lot::Mutex;

use super::base::RelationSegment;
use super::cluster::Cluster;
use super::content::{FileClass, KnownBytes, OnDisk, ReadState};
use super::pages::{PAUSE, Verifier};
use super::rules::{self, RuleVerdict};
use crate::attributes::Attributes;
use crate::reading::Reading;
use crate::reading::is_missing;
use crate::tally::Tally;
use crate::{Content, Entry, EntryKind, Error};

/// How often a relation file that ends within a page is looked at again, [`PAUSE`] apart.
const LOOKS_MAX: usize = 20;
/// After so many files that end within a page, no more are looked at again.
const ODD_MAX: u64 = 50;
/// Deeper than any cluster.
const LEVELS_MAX: usize = 64;
/// Files of at most this size, except relation files, are read when they are listed: a file that vanishes afterwards
/// is then complete in the backup. A truncated one could prevent a restored server from starting.
pub(super) const HELD_MAX: u64 = 64 << 10;

/// The starting point of a walk.
pub(super) struct Start {
    pub(super) dir: Arc<dyn Dir>,
    /// The path of `dir`, for messages.
    pub(super) host_path: PathBuf,
    /// Prefix of its entries' paths in the backup.
    pub(super) prefix: PathBuf,
}

/// A directory of relation files that was walked.
pub(super) struct Database {
    pub(super) start: Arc<Start>,
    /// Path in the backup.
    pub(super) path: PathBuf,
}

/// A directory being listed.
struct Level {
    dir: Arc<dyn Dir>,
    /// Path in the backup.
    path: PathBuf,
    host_path: PathBuf,
    names: Box<dyn Iterator<Item = io::Result<OsString>> + Send>,
    /// Whether its files are relation files.
    is_database: bool,
}

/// A file that was listed.
pub(super) struct ListedFile {
    pub(super) dir: Arc<dyn Dir>,
    /// Name in `dir`.
    pub(super) name: PathBuf,
    /// Path in the backup.
    pub(super) path: PathBuf,
    /// Path for messages.
    pub(super) host_path: PathBuf,
}

/// Observations reported at the end.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) attributes: Attributes,
    pub(super) special: Tally,
    pub(super) links: Tally,
    /// Names in the data directory that a restore made, not the server.
    pub(super) earlier: Tally,
}

pub(super) struct Walk {
    /// Entries that precede everything else, in reverse order.
    pub(super) given: Vec<Entry>,
    /// Starting points to come, in reverse order.
    pub(super) starts: Vec<Start>,
    /// The present one.
    start: Option<Arc<Start>>,
    levels: Vec<Level>,
    /// The directories of relation files that were entered.
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

    /// `elsewhere`: canonical paths of tablespaces, which have separate walks.
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
        if verdict == RuleVerdict::Leave {
            if rules::is_of_restore(&path) {
                self.notes.earlier.add(&host_path);
            }
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
            // Removed after it was listed: the WAL has the record.
            Err(e) if is_missing(&e) => return Ok(None),
            Err(e) => return Err(io("look at")(e)),
        };
        // Tablespace links and this directory are the first entries.
        if path == Path::new("pg_tblspc") && stat.kind == FileKind::Dir {
            self.enter(&*dir, name, &path, &host_path)?;
            return Ok(None);
        }
        match (stat.kind, verdict) {
            (FileKind::Dir | FileKind::Symlink, RuleVerdict::KeepEmpty) => {
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
                let place = ListedFile {
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
            // Stored among the first entries, with its location.
            (FileKind::Symlink, _) if rules::is_tablespace(&path) => Ok(None),
            (FileKind::Symlink, _) if rules::must_be_real(&path) => {
                Err(Error::LinkedData { path: host_path })
            }
            (FileKind::Symlink, _) => self.link(&*dir, name, path, &host_path, &stat),
            (FileKind::Other, _) => {
                self.notes.special.add(&host_path);
                Ok(None)
            }
        }
    }

    /// A symbolic link, which is stored as such; `None` if it was removed meanwhile.
    fn link(
        &mut self,
        dir: &dyn Dir,
        name: &Path,
        path: PathBuf,
        host_path: &Path,
        stat: &Stat,
    ) -> Result<Option<Entry>, Error> {
        match dir.read_link(name) {
            Ok(target) => {
                self.notes.links.add(host_path);
                let kind = EntryKind::Symlink { target };
                Ok(Some(Entry::named(path, kind, stat)))
            }
            Err(e) if is_missing(&e) => Ok(None),
            Err(source) => Err(Error::Io {
                action: "read the link",
                path: host_path.to_owned(),
                source,
            }),
        }
    }

    /// A directory whose contents are left out; for `pg_wal`, also the subdirectories that a server expects.
    fn keep_empty(&mut self, cluster: &Cluster, path: PathBuf, stat: &Stat) -> Entry {
        let mut stat = stat.clone();
        if stat.kind == FileKind::Symlink {
            // A symbolic link has no mode of its own.
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

    /// Opens a directory and continues inside it; false if it no longer exists.
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
        place: ListedFile,
        stat: &Stat,
    ) -> Result<Option<Entry>, Error> {
        let is_database = self.levels.last().is_some_and(|level| level.is_database);
        let relation = is_database.then(|| rules::relation(&place.name)).flatten();
        if let Some(file) = relation {
            // Init forks follow after the server has ended the backup.
            let is_left = file.is_temporary || file.fork == Fork::Init;
            if is_left || is_unlogged(&place, &file)? {
                return Ok(None);
            }
            return Ok(Some(relation_file(cluster, place, &file, stat)));
        }
        // All other files must be complete: they are opened now, and small ones are read now.
        let reading = match Reading::open(&*place.dir, &place.name, &place.host_path) {
            Ok(reading) => reading,
            Err(Error::Io { source, .. }) if is_missing(&source) => return Ok(None),
            Err(e) => return Err(e),
        };
        let stat = reading.stat().clone();
        if stat.len > HELD_MAX {
            let state = ReadState::Open(Arc::new(reading));
            let path = place.path.clone();
            let content = on_disk(cluster, place, state, FileClass::Other, stat.len);
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

/// The state of a relation file between two extensions. The system writes a page of PostgreSQL in pages of memory, and
/// some file systems (tmpfs) show the length between two of them. A file that ends within a page is therefore looked at
/// again, like a page whose checksum fails. If it stays so, it is reported.
fn settled(cluster: &Cluster, place: &ListedFile, stat: &Stat) -> Stat {
    let is_whole = |stat: &Stat| {
        let page_bytes = u64::from(cluster.control.page_bytes);
        stat.len.is_multiple_of(page_bytes)
    };
    let mut stat = stat.clone();
    // Very many such files are no extensions, and waiting for each would take long.
    let is_known = |verifier: &Verifier| verifier.findings.lock().odd_lengths.count() >= ODD_MAX;
    let looks = match cluster.verifier.as_ref().is_some_and(is_known) {
        true => 0,
        false => LOOKS_MAX,
    };
    for _ in 0..looks {
        if is_whole(&stat) {
            return stat;
        }
        cluster.clock.sleep(PAUSE);
        // If it is gone, reading notices it.
        let Ok(again) = place.dir.stat(&place.name) else {
            return stat;
        };
        stat = again;
    }
    if let Some(verifier) = &cluster.verifier
        && !is_whole(&stat)
    {
        let mut findings = verifier.findings.lock();
        findings.odd_lengths.add(&place.host_path);
    }
    stat
}

/// The entry of a relation file, which is opened when it is read.
pub(super) fn relation_file(
    cluster: &Arc<Cluster>,
    place: ListedFile,
    file: &RelationFile,
    stat: &Stat,
) -> Entry {
    let stat = &settled(cluster, &place, stat);
    let path = place.path.clone();
    let number = file.number;
    let (relation, _) = RelationSegment::of(&path).unzip();
    let main = relation.filter(|_| file.fork == Fork::Main);
    let layout = match (&cluster.layouts, &main) {
        (Some(layouts), Some(main)) => layouts.of(main),
        _ => None,
    };
    let kind = FileClass::Relation { number, main };
    let page_bytes = cluster.control.page_bytes;
    let has_pages = stat.len.is_multiple_of(u64::from(page_bytes));
    let content = (stat.len > 0).then(|| {
        Arc::new(on_disk(cluster, place, ReadState::Unopened, kind, stat.len)) as Arc<dyn Content>
    });
    Entry {
        len: stat.len,
        page_bytes: has_pages.then_some(page_bytes),
        layout,
        content,
        ..Entry::named(path, EntryKind::File, stat)
    }
}

fn on_disk(
    cluster: &Arc<Cluster>,
    place: ListedFile,
    state: ReadState,
    kind: FileClass,
    len: u64,
) -> OnDisk {
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

/// Whether the relation has an init fork; then nothing else of it is kept. Checked again for each file: an earlier
/// answer would be wrong for a relation created since.
fn is_unlogged(place: &ListedFile, file: &RelationFile) -> Result<bool, Error> {
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

/// Mode of a directory in a data directory that its group may not read.
const DIR_MODE: u32 = 0o700;

/// An entry whose bytes are known.
pub(super) fn held(path: PathBuf, bytes: Vec<u8>, stat: &Stat) -> Entry {
    let len = bytes.len() as u64;
    Entry {
        len,
        content: (len > 0).then(|| Arc::new(KnownBytes(bytes)) as Arc<dyn Content>),
        ..Entry::named(path, EntryKind::File, stat)
    }
}
