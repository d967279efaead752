//! The bytes of one plain file, and whether it changed while it was read.
//!
//! Invariants
//! - The file is opened at its first use, so waiting entries hold no descriptor; it is opened at most once.
//! - Its attributes when listed, when opened and when settled decide whether it changed. A name that was added or
//!   removed is no change.
//! - Bytes that the file no longer has are zeros up to the listed length, and the file counts as changed.
//!
//! Leaves to others: what a change means to the backup (the pipeline), and finding files (`walk.rs`).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_io::{Dir, FileKind, Stat, Via};
use parking_lot::Mutex;

use super::roots::Root;
use crate::reading::{Reading, is_missing};
use crate::spec::SQLITE_MAGIC;
use crate::tally::Tally;
use crate::{Change, Content, Error};

/// Names of a file beyond those that are looked for when the first one is gone.
const OTHERS_MAX: usize = 16;

/// The other names of a file, of which each became a link to the first: its bytes are read through one of them if the first
/// name is gone, or is another file's, when it is opened.
#[derive(Default)]
pub(super) struct Names(Mutex<Found>);

#[derive(Default)]
enum Found {
    #[default]
    Nothing,
    /// Met before the file was opened.
    Met(Vec<(Arc<Root>, PathBuf)>),
    Opened,
    /// No name led to the file.
    Lost,
}

impl Names {
    /// Adds a name; false if it cannot be a link, because the first name is stored without the file's bytes.
    pub(super) fn add(&self, root: &Arc<Root>, path: &Path) -> bool {
        let mut found = self.0.lock();
        match &mut *found {
            Found::Nothing => *found = Found::Met(vec![(root.clone(), path.to_path_buf())]),
            Found::Met(others) if others.len() < OTHERS_MAX => {
                others.push((root.clone(), path.to_path_buf()));
            }
            Found::Met(_) | Found::Opened => {}
            Found::Lost => return false,
        }
        true
    }
}

/// Opened through its root at the first use, so that entries waiting to be read hold no descriptors, neither their own
/// nor their directory's.
pub(super) struct FileContent {
    root: Arc<Root>,
    /// Relative to the root.
    path: PathBuf,
    listed: Version,
    /// `None`: the file has one name.
    names: Option<Arc<Names>>,
    state: Mutex<State>,
    /// Whether a read found the file shorter than listed.
    shrunk: AtomicBool,
    /// The tally of SQLite databases, and whether this file is in it.
    databases: Arc<Mutex<Tally>>,
    noted: AtomicBool,
}

/// Attributes that change when a file's bytes change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    dev: u64,
    ino: u64,
    len: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    links: u64,
}

impl Version {
    fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.dev,
            ino: stat.ino,
            len: stat.len,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
            links: stat.links,
        }
    }

    /// Whether the bytes may differ. A new or removed name changes ctime too, which does not count: a file that is
    /// deleted while it is read is still read completely.
    fn differs(&self, now: &Version) -> bool {
        let renamed = Version {
            ctime_ns: now.ctime_ns,
            links: now.links,
            ..*self
        };
        *now != *self && (self.links == now.links || renamed != *now)
    }
}

enum State {
    Unopened,
    Open {
        reading: Arc<Reading>,
        version: Version,
    },
    Gone,
    Settled,
}

impl FileContent {
    pub(super) fn new(
        root: Arc<Root>,
        path: PathBuf,
        (stat, names): (&Stat, Option<Arc<Names>>),
        databases: Arc<Mutex<Tally>>,
    ) -> Self {
        Self {
            root,
            path,
            listed: Version::of(stat),
            names,
            state: Mutex::new(State::Unopened),
            shrunk: AtomicBool::new(false),
            databases,
            noted: AtomicBool::new(false),
        }
    }

    fn host_path(&self) -> PathBuf {
        self.root.host_path(&self.path)
    }

    /// `None` if the file no longer exists.
    fn open(&self) -> Result<Option<Arc<Reading>>, Error> {
        let mut state = self.state.lock();
        match &*state {
            State::Open { reading, .. } => return Ok(Some(reading.clone())),
            State::Gone => return Ok(None),
            State::Settled => {
                return Err(Error::Ended {
                    path: self.host_path(),
                });
            }
            State::Unopened => {}
        }
        match self.open_by_any_name() {
            Ok(reading) => {
                let reading = Arc::new(reading);
                let version = Version::of(reading.stat());
                *state = State::Open {
                    reading: reading.clone(),
                    version,
                };
                Ok(Some(reading))
            }
            Err(Error::Io { source, .. }) if self.is_gone(&source) => {
                *state = State::Gone;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Opens the file by the first of its names that still leads to it; what has its own name, if none does.
    fn open_by_any_name(&self) -> Result<Reading, Error> {
        let opened = open_below(&self.root, &self.path);
        let Some(names) = &self.names else {
            return opened;
        };
        let is_it = |reading: &Reading| {
            let found = reading.stat();
            (found.dev, found.ino) == (self.listed.dev, self.listed.ino)
        };
        let mut found = names.0.lock();
        if opened.as_ref().is_ok_and(is_it) {
            *found = Found::Opened;
            return opened;
        }
        if let Found::Met(others) = std::mem::replace(&mut *found, Found::Lost) {
            let mut others = others
                .iter()
                .filter_map(|(root, path)| open_below(root, path).ok());
            if let Some(reading) = others.find(is_it) {
                *found = Found::Opened;
                return Ok(reading);
            }
        }
        opened
    }

    /// Whether the file is gone: the name no longer exists, or is now a link, a directory or a device.
    fn is_gone(&self, refusal: &io::Error) -> bool {
        is_missing(refusal)
            || match self.root.dir.stat(&self.path) {
                Ok(stat) => stat.kind != FileKind::File,
                Err(e) => is_missing(&e),
            }
    }

    fn read_error(&self, offset: u64, source: io::Error) -> Error {
        Error::Read {
            path: self.host_path(),
            offset,
            source,
        }
    }
}

impl Content for FileContent {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> Result<(), Error> {
        let mut filled = 0;
        if let Some(reading) = self.open()? {
            filled = reading
                .file()
                .read_full_at(buf, offset, via)
                .map_err(|e| self.read_error(offset, e))?;
            let wanted_end = (offset + buf.len() as u64).min(self.listed.len);
            if offset + (filled as u64) < wanted_end {
                self.shrunk.store(true, Ordering::Relaxed);
            }
        }
        buf[filled..].fill(0);
        // Recognised by its first bytes, without an additional open or read.
        if offset == 0
            && buf[..filled].starts_with(SQLITE_MAGIC)
            && !self.noted.swap(true, Ordering::Relaxed)
        {
            self.databases.lock().add(&self.host_path());
        }
        Ok(())
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        matches!(self.open(), Ok(Some(reading)) if reading.file().is_cached(range))
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let Some(reading) = self.open()? else {
            return Ok(None);
        };
        let data = reading
            .file()
            .next_data(offset)
            .map_err(|e| self.read_error(offset, e))?;
        Ok(data
            .map(|data| data.start..data.end.min(self.listed.len))
            .filter(|data| data.start < data.end))
    }

    fn settle(&self) -> Result<Option<Change>, Error> {
        let (reading, opened) = match std::mem::replace(&mut *self.state.lock(), State::Settled) {
            State::Open { reading, version } => (reading, version),
            State::Gone => return Ok(Some(Change::Vanished)),
            State::Unopened | State::Settled => return Ok(None),
        };
        let stat = reading.file().stat().map_err(|source| Error::Io {
            action: "look at",
            path: self.host_path(),
            source,
        })?;
        let now = Version::of(&stat);
        if self.shrunk.load(Ordering::Relaxed) || now.len < self.listed.len {
            return Ok(Some(Change::Shrunk));
        }
        let modified = self.listed.differs(&opened) || opened.differs(&now);
        Ok(modified.then_some(Change::Modified))
    }
}

/// The system accepts names of fewer than 4096 bytes; longer ones are resolved in pieces.
const NAME_BYTES_MAX: usize = 4000;

fn open_below(root: &Root, path: &Path) -> Result<Reading, Error> {
    let host_path = root.host_path(path);
    if path.as_os_str().len() <= NAME_BYTES_MAX {
        return Reading::open(&*root.dir, path, &host_path);
    }
    let (dir, rest) = descend(&root.dir, path).map_err(|source| Error::Io {
        action: "open",
        path: host_path.clone(),
        source,
    })?;
    Reading::open(&*dir, &rest, &host_path)
}

fn descend(root: &Arc<dyn Dir>, path: &Path) -> io::Result<(Arc<dyn Dir>, PathBuf)> {
    let mut dir = root.clone();
    let mut piece = PathBuf::new();
    for part in path {
        if !piece.as_os_str().is_empty() && piece.as_os_str().len() + part.len() >= NAME_BYTES_MAX {
            dir = dir.dir(&piece)?;
            piece.clear();
        }
        piece.push(part);
    }
    Ok((dir, piece))
}
