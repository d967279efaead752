//! The descriptors of one database, the transaction that protects them, and the order in which they end.
//!
//! Invariants
//! - Closing any descriptor of a file drops all locks that this process has on it. So a file is claimed before it is
//!   opened; while the claim lives, no descriptor of it is really closed, and the transaction ends before the claims
//!   do.
//! - Files that SQLite created next to the database are removed at the end.
//!
//! Leaves to others: which lock a database needs (`snapshot.rs`), and calls of SQLite's library (`library.rs`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longshore_io::{Claim, Clock, Dir, File, FileKind, HostClock, Hush, OpenHow, Stat, Storage};
use parking_lot::Mutex;

use super::journal;
use super::library::{self, Begun, Deadline, Pause, Reader, Refusal};
use super::wal::Checkpoints;
use crate::reading::refused;
use crate::{CheckDepth, Error};

/// The names of a database and of the files next to it.
pub(super) struct DatabaseFiles {
    pub(super) path: PathBuf,
    pub(super) log_path: PathBuf,
    pub(super) journal_path: PathBuf,
    dir: Arc<dyn Dir>,
    name: PathBuf,
    log_name: PathBuf,
    shared_memory_name: PathBuf,
    journal_name: PathBuf,
}

impl DatabaseFiles {
    pub(super) fn find(storage: &dyn Storage, path: &Path) -> Result<Self, Error> {
        let io = |action| {
            move |source| Error::Io {
                action,
                path: path.into(),
                source,
            }
        };
        let real = storage.canonical(path).map_err(io("find"))?;
        let stat = storage.stat(&real).map_err(io("look at"))?;
        let (FileKind::File, Some(parent), Some(name)) =
            (stat.kind, real.parent(), real.file_name())
        else {
            return Err(Error::NotADatabase { path: path.into() });
        };
        let beside = |suffix| {
            let mut name = OsString::from(name);
            name.push(suffix);
            PathBuf::from(name)
        };
        Ok(Self {
            dir: storage.dir(parent).map_err(io("open the directory of"))?,
            name: name.into(),
            log_path: parent.join(beside("-wal")),
            log_name: beside("-wal"),
            shared_memory_name: beside("-shm"),
            journal_path: parent.join(beside("-journal")),
            journal_name: beside("-journal"),
            path: real,
        })
    }

    /// `None` if there is no such file.
    fn stat(&self, name: &Path) -> Result<Option<Stat>, Error> {
        match self.dir.stat(name) {
            Ok(stat) => Ok(Some(stat)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => {
                let path = self.path.with_file_name(name);
                Err(Error::Io {
                    action: "look at",
                    path,
                    source,
                })
            }
        }
    }

    /// Whether locks and shared memory of the database and its companion files reach all programs that can use it.
    pub(super) fn keeps_locks(&self) -> Result<bool, Error> {
        let keeps = |name: &Path| {
            self.dir.keeps_locks(name).map_err(|source| Error::Io {
                action: "look at the file system of",
                path: self.path.clone(),
                source,
            })
        };
        Ok(keeps(&self.name)? && keeps(Path::new(""))?)
    }

    /// `None` if there is none.
    fn open_journal(&self) -> Result<Option<Arc<dyn File>>, Error> {
        match self.open(&self.journal_name) {
            Ok(journal) => Ok(Some(journal)),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn open(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        let opened = self.dir.open(name, OpenHow::Read);
        opened.map_err(refused(&self.path.with_file_name(name)))
    }
}

/// Attributes that any write would change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) log: Option<Stat>,
    /// Whether there is a journal that looks like that of an unfinished transaction.
    pub(super) has_journal: bool,
    db: Option<Stat>,
}

/// Attributes that every write to the database file changes, and a change of its owner, mode or names does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastWrite {
    len: u64,
    mtime_ns: i64,
}

/// The longest time, in nanoseconds, for which the kernel gives files the same time of a write.
const TICK_NS: i64 = 20_000_000;

/// The database file at the beginning of a transaction that uses the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileMark {
    written: LastWrite,
    checkpoints: Checkpoints,
}

/// Ends in the order of its first five fields: the transaction, the descriptors, the claims. While the claims live, no
/// descriptor of a claimed file is really closed: a close would silently drop the transaction's locks.
pub(super) struct LockedDatabase {
    reader: Mutex<Option<Reader>>,
    db: Arc<dyn File>,
    log: Option<Arc<dyn File>>,
    /// Holds no locks.
    journal: Option<Arc<dyn File>>,
    claims: Vec<Claim>,
    place: DatabaseFiles,
    stat: Stat,
    /// Whether there was neither a log nor shared memory before we came.
    was_alone: bool,
}

impl LockedDatabase {
    /// Opens and claims the database file. Takes no lock yet.
    pub(super) fn open(place: DatabaseFiles) -> Result<Self, Error> {
        let db = place.open(&place.name)?;
        let stat = db.stat().map_err(|source| Error::Io {
            action: "look at",
            path: place.path.clone(),
            source,
        })?;
        let claims = vec![claim(&stat, &place.path)?];
        Ok(Self {
            reader: Mutex::new(None),
            db,
            log: None,
            journal: None,
            claims,
            place,
            stat,
            was_alone: false,
        })
    }

    pub(super) fn place(&self) -> &DatabaseFiles {
        &self.place
    }

    pub(super) fn db(&self) -> &dyn File {
        &*self.db
    }

    pub(super) fn log(&self) -> Option<&dyn File> {
        self.log.as_deref()
    }

    pub(super) fn journal(&self) -> Option<&dyn File> {
        self.journal.as_deref()
    }

    /// The database file's attributes when it was opened.
    pub(super) fn stat(&self) -> &Stat {
        &self.stat
    }

    pub(super) fn look(&self) -> Result<Look, Error> {
        let journal = self.place.stat(&self.place.journal_name)?;
        if journal
            .as_ref()
            .is_some_and(|journal| journal.kind != FileKind::File)
        {
            return Err(Error::NotACompanion {
                path: self.place.journal_path.clone(),
            });
        }
        let has_journal = journal.is_some_and(|journal| journal.len > 0 && self.looks_hot());
        Ok(Look {
            log: self.place.stat(&self.place.log_name)?,
            has_journal,
            db: self.place.stat(&self.place.name)?,
        })
    }

    pub(super) fn last_write(&self) -> Result<LastWrite, Error> {
        let stat = self.db.stat().map_err(|source| Error::Io {
            action: "look at",
            path: self.place.path.clone(),
            source,
        })?;
        Ok(LastWrite {
            len: stat.len,
            mtime_ns: stat.mtime_ns,
        })
    }

    /// The database file's last write, and the checkpoints before it. Of a transaction that uses the log.
    ///
    /// Times of files are as coarse as the kernel's ticks. So after a write of just now this waits: what is written in the
    /// same tick is then in all that is read later.
    pub(super) fn file_mark(&mut self) -> Result<FileMark, Refusal> {
        let Some(checkpoints) = self.reader()?.checkpoints()? else {
            return Err(Refusal::NoAccess);
        };
        let written = self.last_write()?;
        if (0..TICK_NS).contains(&(HostClock.wall_ns() - written.mtime_ns)) {
            HostClock.sleep(Duration::from_nanos(TICK_NS.unsigned_abs()));
        }
        Ok(FileMark {
            written,
            checkpoints,
        })
    }

    /// Whether all writes to the database file since the mark may be those of checkpoints through the log of this name.
    pub(super) fn is_explained(&self, mark: &FileMark) -> Result<bool, Error> {
        if self.last_write()? == mark.written {
            return Ok(true);
        }
        let reader = self.reader.lock();
        let reader = reader.as_ref().ok_or_else(|| Error::Ended {
            path: self.place.path.clone(),
        })?;
        // In this order: a checkpoint that ends between both shows in the counts.
        Ok(reader.is_checkpointed()? || reader.checkpoints()? != Some(mark.checkpoints))
    }

    /// A journal that cannot be read is treated as hot.
    fn looks_hot(&self) -> bool {
        let looks_hot = |journal: Arc<dyn File>| {
            journal::looks_hot(&*journal, &self.place.journal_path).unwrap_or(true)
        };
        self.place
            .open_journal()
            .ok()
            .flatten()
            .is_none_or(looks_hot)
    }

    pub(super) fn has_shared_memory(&self) -> Result<bool, Error> {
        Ok(self.place.stat(&self.place.shared_memory_name)?.is_some())
    }

    /// Opens the database with SQLite's library too. Files that SQLite creates next to it are removed at the end.
    pub(super) fn connect(&mut self) -> Result<(), Error> {
        self.was_alone =
            self.place.stat(&self.place.log_name)?.is_none() && !self.has_shared_memory()?;
        self.claim_shared_memory()?;
        *self.reader.get_mut() = Some(Reader::open(&self.place.path)?);
        Ok(())
    }

    /// Begins the read transaction. Waits for locks until `deadline`.
    pub(super) fn begin(&mut self, deadline: Deadline) -> Result<(), Refusal> {
        let mut pause = Pause::default();
        loop {
            // SQLite may create and lock the shared-memory file before it can be claimed.
            let hush = Hush::begin();
            let begun = self.reader()?.try_begin()?;
            self.claim_shared_memory()?;
            drop(hush);
            match begun {
                Begun::Yes => return Ok(()),
                Begun::Busy if deadline.is_ahead() => pause.wait(),
                Begun::Busy => return Err(deadline.busy(&self.place.path).into()),
            }
        }
    }

    /// The connection. Errors: [`Error::Ended`] if there is none.
    pub(super) fn reader(&mut self) -> Result<&mut Reader, Error> {
        let Some(reader) = self.reader.get_mut() else {
            return Err(Error::Ended {
                path: self.place.path.clone(),
            });
        };
        Ok(reader)
    }

    /// The findings of SQLite's check of the state that the transaction shows; `None`: cancelled.
    pub(super) fn integrity(
        &self,
        depth: CheckDepth,
        max: u32,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Option<Vec<String>>, Error> {
        let mut reader = self.reader.lock();
        let reader = reader.as_mut().ok_or_else(|| Error::Ended {
            path: self.place.path.clone(),
        })?;
        reader.integrity(depth, max, cancel)
    }

    /// Whether our descriptor and SQLite's refer to the same file, which still has its name.
    pub(super) fn is_one_file(&mut self) -> Result<bool, Error> {
        if self.reader()?.has_moved() {
            return Ok(false);
        }
        let named = self.place.stat(&self.place.name)?;
        Ok(named.is_some_and(|named| (named.dev, named.ino) == (self.stat.dev, self.stat.ino)))
    }

    /// Opens the log. During a transaction that uses the log, nothing removes its name.
    pub(super) fn open_log(&mut self) -> Result<(), Error> {
        self.log = Some(self.place.open(&self.place.log_name)?);
        Ok(())
    }

    /// Opens the journal; `false` if there is none. Under a SHARED lock, a dead writer's journal is neither rolled
    /// back nor removed before the end.
    pub(super) fn open_journal(&mut self) -> Result<bool, Error> {
        self.journal = self.place.open_journal()?;
        Ok(self.journal.is_some())
    }

    pub(super) fn close_journal(&mut self) {
        self.journal = None;
    }

    /// Claims the shared-memory file that carries the log's locks, if there is one.
    fn claim_shared_memory(&mut self) -> Result<(), Error> {
        let name = &self.place.shared_memory_name;
        if let Some(stat) = self.place.stat(name)?
            && !self.claims.iter().any(|claim| claim.is_of(&stat))
        {
            let path = self.place.path.with_file_name(name);
            self.claims.push(claim(&stat, &path)?);
        }
        Ok(())
    }

    /// Errors: [`Error::Replaced`] if the present shared-memory file was not claimed.
    pub(super) fn check_shared_memory(&self) -> Result<(), Error> {
        let name = &self.place.shared_memory_name;
        match self.place.stat(name)? {
            Some(stat) if self.claims.iter().any(|claim| claim.is_of(&stat)) => Ok(()),
            _ => Err(Error::Replaced {
                path: self.place.path.with_file_name(name),
            }),
        }
    }

    /// Drops the connection and everything that came with it, as if SQLite had never been used.
    pub(super) fn disconnect(&mut self) -> Result<(), Error> {
        self.end_transaction()?;
        self.log = None;
        self.claims.truncate(1);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn with_connection<T>(&self, f: impl FnOnce(&rusqlite::Connection) -> T) -> T {
        f(self.reader.lock().as_ref().unwrap().connection())
    }

    /// Ends the transaction; does nothing the second time. Descriptors stay open.
    pub(super) fn end_transaction(&self) -> Result<(), Error> {
        let Some(reader) = self.reader.lock().take() else {
            return Ok(());
        };
        let ended = reader.close();
        if self.was_alone {
            self.remove_made_files();
        }
        ended
    }

    /// If SQLite created log and shared memory for us alone, it removes them when we leave as the last user.
    fn remove_made_files(&self) {
        let unused = matches!(self.place.stat(&self.place.log_name), Ok(Some(log)) if log.len == 0);
        if !unused {
            return;
        }
        if let Err(e) = library::visit(&self.place.path) {
            tracing::warn!(path = ?self.place.path, error = %e, "empty -wal and -shm files remain");
        }
    }
}

fn claim(stat: &Stat, path: &Path) -> Result<Claim, Error> {
    Claim::of_snapshot(stat).map_err(|_| Error::InUse { path: path.into() })
}

impl Drop for LockedDatabase {
    fn drop(&mut self) {
        if let Err(e) = self.end_transaction() {
            tracing::warn!(path = ?self.place.path, error = %e, "the snapshot did not end cleanly");
        }
    }
}
