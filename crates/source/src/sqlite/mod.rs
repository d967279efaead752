//! SQLite databases, while they are written.
//!
//! A read transaction holds a committed state; its bytes are then read from the files themselves, by
//! many threads and in large pieces, several times faster than through the library. With a
//! write-ahead log, the state is the database file with the log's frames laid over it, and one plain
//! database file is backed up.
//!
//! Why the bytes are that state
//! - *Which state.* The head of the wal-index names the last commit. It is read before and after the
//!   transaction begins; if both are equal, the transaction shows exactly that commit, because it
//!   took its copy in between.
//! - *The log stays.* A transaction holds one of five read locks. On lock 1 to 4, the log is not
//!   reset, and checkpoints copy only frames up to a mark that is not after our commit: the only
//!   pages of the database file that change are pages of such frames, and all of those come from the
//!   log here.
//! - *Or it is not needed.* On lock 0, taken when the whole log is in the database file, the log may
//!   be reset by the next writer, but no checkpoint writes the database file. The count of frames
//!   copied back is read between two looks at the unchanged head. If it reaches the commit, the
//!   database file alone is the state, under either lock; if not, we cannot be on lock 0.
//! - *Or nobody commits.* Without a log, SQLite's SHARED lock keeps the database file as it is, until
//!   the end or until a copy that shares its blocks was made.
//! - *Or everybody waits.* If a writer died in a transaction, its journal has the original of every
//!   page that it may have changed. The state is the database file with those laid over it, cut to
//!   its former length. Nobody else can read, write or roll back while we hold the SHARED lock.
//! - *Or nobody wrote.* Where this user cannot take part in locking (read-only media, a closed
//!   database of another user), nothing is locked and the library is not used; that the files kept
//!   still is checked at the end, and a change is an error.
//!
//! Invariants
//! - Nothing is written: no checkpoint, no rollback of a hot journal, no `-wal` or `-shm` left that
//!   was not there, none made where its owner could not use it. A missing `-shm` beside a log that
//!   was left behind is made, as by every reader, and stays.
//! - Our descriptors are opened before the transaction and closed after it ([`held`]), and nobody else in this process
//!   opens the files meanwhile: they are claimed ([`longshore_io::Claim`]).
//! - Memory: 8 bytes per log frame that waits for a checkpoint, or per page in a hot journal, 1 GiB at
//!   most.
//!
//! Left to others: a journal of several databases (refused, with what to do), writers that do not lock (`nolock=1`,
//! `unix-none`), and several names of one database file, each of which has a log of its own.

mod content;
mod frames;
mod held;
mod journal;
mod library;
mod overlay;
mod records;
mod snapshot;
mod wal;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::Storage;
use parking_lot::Mutex;

use crate::attributes::Attributes;
use crate::volumes::Volumes;
use crate::{
    Content, Description, Entry, EntryKind, Error, Source, SourceKind, SourceOptions, SourceSummary,
};
use content::SnapshotContent;
use snapshot::{Hold, Snapshot};

pub(crate) struct Sqlite {
    description: Description,
    snapshot: Arc<Snapshot>,
    entry: Mutex<Option<Entry>>,
    /// What could not be read of its extended attributes.
    attributes: Attributes,
}

impl Sqlite {
    pub(crate) fn open(
        storage: &dyn Storage,
        path: &Path,
        options: &SourceOptions,
    ) -> Result<Self, Error> {
        let snapshot = Snapshot::take(storage, path, options)?;
        Self::of(snapshot, storage, path, options)
    }

    fn of(
        snapshot: Snapshot,
        storage: &dyn Storage,
        path: &Path,
        options: &SourceOptions,
    ) -> Result<Self, Error> {
        let snapshot = Arc::new(snapshot);
        let mut volumes = Volumes::new(storage, &options.volume_map)?;
        volumes.of(snapshot.path(), snapshot.stat().dev);
        let stem = path
            .file_stem()
            .or(snapshot.path().file_stem())
            .unwrap_or_default();
        let stem = || stem.to_string_lossy().into_owned();
        let description = Description {
            kind: SourceKind::Sqlite,
            database: options.database.clone().unwrap_or_else(stem),
            log: None,
            history: None,
            lineage: None,
            own_log: None,
            page_bytes: snapshot.page_bytes(),
            expected_bytes: Some(snapshot.len()),
            memory_bytes: snapshot.memory_bytes(),
            differing: None,
            server_started_us: None,
            trees: Vec::new(),
            volumes: volumes.into_vec(),
            notices: notices(&snapshot),
        };
        let name = path
            .file_name()
            .or(snapshot.path().file_name())
            .unwrap_or_default();
        let mut attributes = Attributes::default();
        let mut entry = entry(PathBuf::from(name), &snapshot);
        if let (Some(parent), Some(name)) = (snapshot.path().parent(), snapshot.path().file_name())
            && let Ok(dir) = storage.dir(parent)
        {
            entry.xattrs = attributes.read(&*dir, Path::new(name), snapshot.path());
        }
        let entry = Mutex::new(Some(entry));
        Ok(Self {
            description,
            snapshot,
            entry,
            attributes,
        })
    }
}

fn entry(path: PathBuf, snapshot: &Arc<Snapshot>) -> Entry {
    let stat = snapshot.stat();
    let content = (snapshot.len() > 0)
        .then(|| Arc::new(SnapshotContent::new(snapshot.clone())) as Arc<dyn Content>);
    Entry {
        len: snapshot.len(),
        content,
        ..Entry::named(path, EntryKind::File, stat)
    }
}

fn notices(snapshot: &Snapshot) -> Vec<String> {
    let mut notices = Vec::new();
    match snapshot.hold() {
        Hold::Log => notices.push(
            "writers go on, but the write-ahead log grows until the backup ends, and a FULL, \
             RESTART or TRUNCATE checkpoint waits for that, other writers behind it"
                .into(),
        ),
        Hold::SharedLock(_) => notices.push(
            "this database has no write-ahead log: commits wait until the backup ends, and new \
             readers behind a waiting commit"
                .into(),
        ),
        Hold::DeadWriter(_) => notices.push(
            "a program died while it wrote to this database: its unfinished transaction is left out, \
             as the next program that opens the database will do, and until the backup ends \
             none can"
                .into(),
        ),
        Hold::Nothing(_) => notices.push(
            "this user cannot take part in the database's locking: it is read without a lock, and \
             the backup fails if anybody writes meanwhile"
                .into(),
        ),
        Hold::Reflink(_) | Hold::Empty => {}
    }
    if snapshot.stat().links > 1 {
        notices.push(format!(
            "{} has {} names: programs that use another one write a log that is not seen here",
            snapshot.path().display(),
            snapshot.stat().links
        ));
    }
    notices
}

impl Source for Sqlite {
    fn description(&self) -> &Description {
        &self.description
    }

    fn next(&self, volume: usize) -> Result<Option<Entry>, Error> {
        match volume {
            0 => Ok(self.entry.lock().take()),
            _ => Ok(None),
        }
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, Error> {
        self.snapshot.check_still()?;
        let ending = self.snapshot.end()?;
        let mut warnings = Vec::new();
        if ending.log_growth_bytes > 0 {
            warnings.push(format!(
                "the write-ahead log grew by {} bytes during the backup",
                ending.log_growth_bytes
            ));
        }
        if matches!(
            self.snapshot.hold(),
            Hold::SharedLock(_) | Hold::DeadWriter(_)
        ) {
            warnings.extend(wait_warning(ending.held_for));
        }
        warnings.extend(self.attributes.warnings());
        Ok(SourceSummary {
            warnings,
            ..SourceSummary::default()
        })
    }
}

/// What is said of commits that could wait for `held`; nothing of what nobody notices.
fn wait_warning(held: Duration) -> Option<String> {
    let seconds = held.as_secs_f64();
    (seconds >= 0.1).then(|| format!("commits could wait for up to {seconds:.1} seconds"))
}
