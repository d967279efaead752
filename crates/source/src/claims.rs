//! Which files this process must not open and close now.
//!
//! SQLite's locks are POSIX record locks: the first `close` of any descriptor of a file by the
//! process that holds them drops them all, silently, and the snapshot with them (20 of 20 copies
//! were damaged in our trial). So every file that this room opens is entered here by device and
//! inode, either as read by plain readers or as claimed by one snapshot, never both.
//!
//! Invariants
//! - A descriptor of a claimed file is not closed before its claim ends. A reader that meets a claim
//!   has already opened the file: its descriptor is parked with the claim and closed with it.
//! - A file that plain readers have open cannot be claimed.
//!
//! Left to others: descriptors that are opened outside this room, e.g. a SQLite connection of our
//! own to a database that is being backed up, and the order in which a claim's owner lets go
//! (transaction, descriptors, claim).

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use longshore_io::{Dir, File, OpenHow, Stat};
use parking_lot::Mutex;

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Id {
    dev: u64,
    ino: u64,
}

impl Id {
    fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.dev,
            ino: stat.ino,
        }
    }
}

enum Holder {
    Readers(usize),
    Snapshot { parked: Vec<Arc<dyn File>> },
}

static HOLDERS: LazyLock<Mutex<HashMap<Id, Holder>>> = LazyLock::new(Mutex::default);

/// A file open for plain reading.
pub(crate) struct Reading {
    // Dropped in this order: once the entry is gone, a snapshot may take its locks.
    file: Arc<dyn File>,
    entered: Entered,
}

impl Reading {
    /// Opens `name` in `dir`; `path` is its name for people.
    pub(crate) fn open(dir: &dyn Dir, name: &Path, path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            action: "open",
            path: path.into(),
            source,
        };
        let file = dir.open(name, OpenHow::Read).map_err(io)?;
        let stat = file.stat().map_err(io)?;
        match HOLDERS
            .lock()
            .entry(Id::of(&stat))
            .or_insert(Holder::Readers(0))
        {
            Holder::Readers(count) => *count += 1,
            Holder::Snapshot { parked } => {
                parked.push(file);
                return Err(Error::InUse { path: path.into() });
            }
        }
        Ok(Self {
            file,
            entered: Entered { stat },
        })
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// What the file was when it was opened.
    pub(crate) fn stat(&self) -> &Stat {
        &self.entered.stat
    }
}

struct Entered {
    stat: Stat,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut holders = HOLDERS.lock();
        let id = Id::of(&self.stat);
        if let Some(Holder::Readers(count)) = holders.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                holders.remove(&id);
            }
        }
    }
}

/// The right of one snapshot to a file. Ends when dropped.
pub(crate) struct Claim {
    id: Id,
}

impl Claim {
    /// Claims an open file for a snapshot. When another holds it, `file` is closed at the right time.
    pub(crate) fn open(file: &Arc<dyn File>, path: &Path) -> Result<Self, Error> {
        let stat = file.stat().map_err(|source| Error::Io {
            action: "look at",
            path: path.into(),
            source,
        })?;
        Self::enter(&stat, Some(file), path)
    }

    /// Claims a file that only SQLite has open.
    pub(crate) fn unopened(stat: &Stat, path: &Path) -> Result<Self, Error> {
        Self::enter(stat, None, path)
    }

    fn enter(stat: &Stat, file: Option<&Arc<dyn File>>, path: &Path) -> Result<Self, Error> {
        let id = Id::of(stat);
        let mut holders = HOLDERS.lock();
        match holders.get_mut(&id) {
            None => {
                holders.insert(id, Holder::Snapshot { parked: Vec::new() });
                return Ok(Self { id });
            }
            Some(Holder::Snapshot { parked }) => parked.extend(file.cloned()),
            Some(Holder::Readers(_)) => {}
        }
        Err(Error::InUse { path: path.into() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Taken out under the lock, closed after it.
        let ended = HOLDERS.lock().remove(&self.id);
        drop(ended);
    }
}
