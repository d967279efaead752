//! Backs up SQLite databases while they are written.
//!
//! A read transaction holds a committed state. Its bytes are read from the files themselves, by many threads and in
//! large pieces, several times faster than through the library. With a write-ahead log, the state is the database file
//! with the log's frames in place of its own pages; the backup holds one plain database file.
//!
//! Why the bytes are that state
//! - *Which state.* The header of the wal-index names the last commit. It is read before and after the transaction
//!   begins. If both are equal, the transaction shows exactly that commit, because it took its copy in between.
//! - *The log stays.* A transaction holds one of five read locks. Under locks 1 to 4 the log is not reset, and
//!   checkpoints copy only frames up to a mark that is not after our commit. The only pages of the database file that
//!   change are pages of such frames, and all of those are read from the log here.
//! - *And no other log is.* A program that uses another name of the file, a hard link or a mount of it, has another log, and
//!   its checkpoints wait for nobody here. If the file changed and the index tells of no checkpoint, the backup fails.
//! - *Or the log is not needed.* Under lock 0, taken when the whole log is in the database file, the next writer may
//!   reset the log, but no checkpoint writes the database file. The count of frames copied back is read between two
//!   reads of the unchanged header. If it reaches the commit, the database file alone is the state, under either lock;
//!   if not, we cannot hold lock 0.
//! - *Or commits wait.* Without a log, SQLite's SHARED lock keeps the database file unchanged, until the end or until a
//!   copy that shares its blocks was made.
//! - *Or all programs wait.* If a writer died in a transaction, its journal has the original of every page that it may
//!   have changed. The state is the database file with those originals in place of its own pages, truncated to its
//!   former length. No other program can read, write or roll back while we hold the SHARED lock.
//! - *Or no program wrote.* If this user cannot take part in locking (read-only media, a closed database of another
//!   user), nothing is locked and the library is not used. At the end the files are checked, and a change is an error.
//!
//! Invariants
//! - Nothing is written: no checkpoint, no rollback of a hot journal, no additional `-wal` or `-shm` left, and none
//!   created that the database's owner could not use. If a log was left without its `-shm`, the `-shm` is created, as
//!   by every reader, and stays.
//! - Our descriptors are opened before the transaction and closed after it ([`held`]), and nothing else in this process
//!   opens the files meanwhile: they are claimed ([`longshore_io::Claim`]).
//! - Memory: 8 bytes per log frame that waits for a checkpoint, or per page in a hot journal, at most 1 GiB.
//!
//! Leaves to others: a journal of several databases (refused, with a hint), writers that do not lock (`nolock=1`,
//! `unix-none`), and commits in the log of another name of the file (a warning, if that name is a hard link).

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
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longshore_io::Storage;
use parking_lot::Mutex;

use crate::attributes::Attributes;
use crate::volumes::Volumes;
use crate::{
    CheckDepth, Content, Description, Entry, EntryKind, Error, Source, SourceKind, SourceOptions,
    SourceSummary,
};
use content::SnapshotContent;
use snapshot::{Snapshot, StateLock};

/// Smaller pages are compared several at a time: their sums would take more of a set than the rows that they spare.
const COMPARED_BYTES_MIN: u32 = 8 << 10;

pub(crate) struct Sqlite {
    description: Description,
    snapshot: Arc<Snapshot>,
    entry: Mutex<Option<Entry>>,
    /// Extended attributes that could not be read.
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
            about_bytes: None,
            memory_bytes: snapshot.memory_bytes(),
            differing: None,
            layouts: None,
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

/// SQLite's own check of a database, at one committed state: its findings, up to `max`; `None`: `cancel` was set.
pub(crate) fn check(
    storage: &dyn Storage,
    path: &Path,
    options: &SourceOptions,
    (depth, max): (CheckDepth, u32),
    cancel: &Arc<AtomicBool>,
) -> Result<Option<Vec<String>>, Error> {
    let options = SourceOptions {
        // SQLite reads the database by its name.
        reflink: false,
        ..options.clone()
    };
    let snapshot = Snapshot::take(storage, path, &options)?;
    let found = snapshot.integrity(depth, max, cancel)?;
    snapshot.check_still()?;
    snapshot.end()?;
    Ok(found)
}

fn entry(path: PathBuf, snapshot: &Arc<Snapshot>) -> Entry {
    let stat = snapshot.stat();
    let content = (snapshot.len() > 0)
        .then(|| Arc::new(SnapshotContent::new(snapshot.clone())) as Arc<dyn Content>);
    Entry {
        len: snapshot.len(),
        page_bytes: Some(snapshot.page_bytes().max(COMPARED_BYTES_MIN)),
        content,
        ..Entry::named(path, EntryKind::File, stat)
    }
}

/// The warning about other names of the database file, each of which has a log of its own.
fn names_warning(snapshot: &Snapshot) -> Option<String> {
    let links = snapshot.stat().links;
    // Without a log, what was committed is in the file, whatever its name was.
    let has_log = matches!(
        snapshot.hold(),
        StateLock::Log(_) | StateLock::Nothing(_) | StateLock::Reflink(_)
    );
    (links > 1 && has_log).then(|| {
        format!(
            "{} has {links} names: what a program committed by another name is only in the log of that name, and not in this \
             backup; list the names with: find / -xdev -samefile {0}",
            snapshot.path().display()
        )
    })
}

fn notices(snapshot: &Snapshot) -> Vec<String> {
    let mut notices = Vec::new();
    match snapshot.hold() {
        StateLock::Log(_) => notices.push(
            "writers continue, but the write-ahead log grows until the backup ends; a FULL, RESTART \
             or TRUNCATE checkpoint waits until then, and blocks other writers"
                .into(),
        ),
        StateLock::SharedLock(_) => notices.push(
            "this database has no write-ahead log: commits wait until the backup ends, and a \
             waiting commit blocks new readers"
                .into(),
        ),
        StateLock::DeadWriter(_) => notices.push(
            "a program died while it wrote to this database: the backup leaves out its unfinished \
             transaction, which the next program that opens the database rolls back; no program can until the \
             backup ends"
                .into(),
        ),
        StateLock::Nothing(_) => notices.push(
            "this user cannot lock the database: it is read without a lock, and the backup \
             fails if any program writes meanwhile"
                .into(),
        ),
        StateLock::Reflink(_) | StateLock::Empty => {}
    }
    let links = snapshot.stat().links;
    if links > 1 && names_warning(snapshot).is_none() {
        notices.push(format!(
            "{} has {links} names: the journal that a killed program left by another name is not seen",
            snapshot.path().display()
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
        let mut notes = Vec::new();
        if ending.log_growth_bytes > 0 {
            notes.push(format!(
                "the write-ahead log grew by {} bytes during the backup",
                ending.log_growth_bytes
            ));
        }
        if matches!(
            self.snapshot.hold(),
            StateLock::SharedLock(_) | StateLock::DeadWriter(_)
        ) {
            notes.extend(wait_note(ending.held_for));
        }
        notes.extend(self.attributes.notes());
        let warnings = self.attributes.warnings();
        Ok(SourceSummary {
            warnings: warnings.chain(names_warning(&self.snapshot)).collect(),
            notes,
            ..SourceSummary::default()
        })
    }
}

/// The note about commits that may have waited for `held`; none if the wait was too short to notice.
fn wait_note(held: Duration) -> Option<String> {
    let seconds = held.as_secs_f64();
    (seconds >= 0.1).then(|| format!("commits could wait for up to {seconds:.1} seconds"))
}
