//! Finds out whether a SQLite database that a restore is about to replace is in use, and locks it until it is replaced.
//!
//! The locks are SQLite's own, on the same bytes: EXCLUSIVE on the database file (pending, reserved and shared bytes; a
//! connection that has used a write-ahead log holds a shared lock as long as it lives), and all locks of the log's
//! shared-memory file (`-shm`). They belong to their handle, and conflict with locks of this process, too.
//!
//! Invariants
//! - The locks are held until the new database has its name, so that no acknowledged commit can come in between.
//! - An idle connection in rollback mode holds no lock. It is detected by its open file, if the system reports that (to
//!   a file's owner and to root, on local file systems).
//! - On a file system whose locks may not reach all programs ([`DirRead::keeps_locks`]), nothing proves that a database
//!   is unused, so it is not treated as unused.
//! - A program that opened the old file and waits for a lock finds no database in it afterwards, if this user could
//!   write to it.
//!
//! Leaves to others: replacing the file, and `--replace-in-use` (`place/mod.rs`).

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{Clock, Dir, File, FileKind, InUse, OpenHow, Storage, Via};

use crate::sides::base_of;
use crate::tree::is_absent;

/// SQLite file format, section 1.3.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// `os.h` and `os_unix.c` of SQLite: PENDING_BYTE, RESERVED_BYTE and the SHARED_SIZE bytes after it.
const DATABASE_LOCKS: Range<u64> = 0x4000_0000..0x4000_0000 + 2 + 510;
/// `os_unix.c`: UNIX_SHM_BASE to UNIX_SHM_DMS.
const LOG_LOCKS: Range<u64> = 120..129;

/// Programs that open the database for a moment do not prevent a restore.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// A database whose locks are held.
pub(super) struct Quiet {
    database: Arc<dyn File>,
    writable: bool,
    _shared_memory: Option<Arc<dyn File>>,
}

/// Why the locks cannot be taken.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A description of the user.
    InUse(&'static str),
    /// Locks prove nothing here.
    Unknown,
    Io(PathBuf, io::Error),
}

/// Locks the database `name` in `dir`; `None` if it is not a SQLite database.
pub(super) fn lock(
    dir: &dyn Dir,
    name: &Path,
    clock: &dyn Clock,
) -> Result<Option<Quiet>, Refusal> {
    if !is_file(dir, name)? {
        return Ok(None);
    }
    let (database, writable) = match open(dir, name) {
        Ok(opened) => opened,
        // Removed meanwhile by its owner.
        Err(Refusal::Io(_, e)) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if !is_database(dir, name, &*database)? {
        return Ok(None);
    }
    if !dir
        .keeps_locks(name)
        .map_err(|e| Refusal::Io(name.into(), e))?
    {
        return Err(Refusal::Unknown);
    }
    let until = clock.now() + PATIENCE;
    loop {
        match try_lock(dir, name, &database, writable) {
            Ok(shared_memory) => {
                return Ok(Some(Quiet {
                    database,
                    writable,
                    _shared_memory: shared_memory,
                }));
            }
            Err(Refusal::InUse(_)) if clock.now() < until => clock.sleep(PAUSE),
            Err(e) => return Err(e),
        }
    }
}

impl Quiet {
    /// Called when the new database has its name, before the locks are released. A program that opened the old file
    /// meanwhile and waits for a lock must not continue with it, because its commits there would be lost. A file with
    /// another name (a hard link) stays as it is.
    pub(super) fn spoil(&self) -> io::Result<()> {
        if self.writable && self.database.stat()?.links == 0 {
            self.database
                .write_all_at(&[0; MAGIC.len()], 0, Via::Cache)?;
        }
        Ok(())
    }
}

/// Errors: [`Refusal::InUse`]; then nothing is locked.
fn try_lock(
    dir: &dyn Dir,
    name: &Path,
    database: &Arc<dyn File>,
    writable: bool,
) -> Result<Option<Arc<dyn File>>, Refusal> {
    let failed = |e| Refusal::Io(name.into(), e);
    // If the system does not report open files, only the locks decide.
    if database.is_open_elsewhere().unwrap_or(false) {
        return Err(Refusal::InUse("another program or session has it open"));
    }
    if !database
        .try_lock_range(DATABASE_LOCKS, writable)
        .map_err(failed)?
    {
        return Err(Refusal::InUse(
            "another program or session has a lock on it",
        ));
    }
    let shared_memory_name = beside(name, "-shm");
    let locked = match is_file(dir, &shared_memory_name)? {
        false => Ok(None),
        true => open(dir, &shared_memory_name).and_then(|(file, writable)| {
            let failed = |e| Refusal::Io(shared_memory_name.clone(), e);
            match file.try_lock_range(LOG_LOCKS, writable).map_err(failed)? {
                true => Ok(Some(file)),
                false => Err(Refusal::InUse(
                    "another program or session has a lock on its log",
                )),
            }
        }),
    };
    if locked.is_err() {
        database.unlock_range(DATABASE_LOCKS).map_err(failed)?;
    }
    locked
}

/// Opens for writing if possible; otherwise only writers can be kept out.
fn open(dir: &dyn Dir, name: &Path) -> Result<(Arc<dyn File>, bool), Refusal> {
    let opened = match dir.open(name, OpenHow::ReadWrite) {
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            dir.open(name, OpenHow::Read).map(|file| (file, false))
        }
        opened => opened.map(|file| (file, true)),
    };
    opened.map_err(|e| match InUse::is(&e) {
        true => Refusal::InUse("a backup of it runs in this process"),
        false => Refusal::Io(name.into(), e),
    })
}

/// Whether an open file, which has the name in `dir`, is a database.
fn is_database(dir: &dyn Dir, name: &Path, file: &dyn File) -> Result<bool, Refusal> {
    let mut magic = [0; MAGIC.len()];
    let read = file.read_full_at(&mut magic, 0, Via::Cache);
    if read.map_err(|e| Refusal::Io(name.into(), e))? == magic.len() && magic == *MAGIC {
        return Ok(true);
    }
    // The first transaction of a new database is in its log or its journal.
    Ok(is_file(dir, &beside(name, "-wal"))? || is_file(dir, &beside(name, "-journal"))?)
}

fn is_file(dir: &dyn Dir, name: &Path) -> Result<bool, Refusal> {
    match dir.stat(name) {
        Ok(stat) => Ok(stat.kind == FileKind::File),
        Err(e) if is_absent(&e) => Ok(false),
        Err(e) => Err(Refusal::Io(name.into(), e)),
    }
}

fn beside(name: &Path, suffix: &str) -> PathBuf {
    let mut beside = OsString::from(name);
    beside.push(suffix);
    beside.into()
}

/// The databases below a directory that have a log or a journal: a database in use always has one, or its use cannot
/// be detected.
pub(super) fn below(dir: &dyn Dir, top: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    // A stack instead of recursion: the tree decides its depth.
    let mut stack = vec![top.to_path_buf()];
    while let Some(at) = stack.pop() {
        for name in dir.dir(&at)?.list()? {
            let name = name?;
            let path = at.join(&name);
            if let Some(base) = base_of(&name) {
                let base = at.join(base);
                if !found.contains(&base) {
                    found.push(base);
                }
            } else if dir.stat(&path).is_ok_and(|stat| stat.kind == FileKind::Dir) {
                stack.push(path);
            }
        }
    }
    Ok(found)
}

/// The real path of what the symbolic link at `path` leads to, and its directory; `None` if that cannot be opened.
fn led_to(storage: &dyn Storage, path: &Path) -> Option<(PathBuf, Arc<dyn Dir>)> {
    let real = storage.canonical(path).ok()?;
    let dir = storage.dir(real.parent()?).ok()?;
    Some((real, dir))
}

/// The database that the symbolic link at `path` leads to, found without a lock.
pub fn linked_database(storage: &dyn Storage, path: &Path) -> Option<PathBuf> {
    let (real, dir) = led_to(storage, path)?;
    let name = Path::new(real.file_name()?);
    let file = dir.open(name, OpenHow::Read).ok()?;
    let is_database = is_database(&*dir, name, &*file).is_ok_and(|is| is);
    is_database.then_some(real)
}

/// The database that the symbolic link at `path` leads to, and its use by a program; `None`: it leads to something else.
pub(super) fn behind(
    storage: &dyn Storage,
    path: &Path,
    clock: &dyn Clock,
) -> Result<Option<(PathBuf, Option<&'static str>)>, Refusal> {
    let Some((real, dir)) = led_to(storage, path) else {
        return Ok(None);
    };
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Ok(None);
    };
    match lock(&*dir, Path::new(name), clock) {
        Ok(None) => Ok(None),
        Ok(Some(_)) | Err(Refusal::Unknown) => Ok(Some((real, None))),
        Err(Refusal::InUse(how)) => Ok(Some((real, Some(how)))),
        Err(Refusal::Io(_, e)) if e.kind() == ErrorKind::PermissionDenied => Ok(None),
        Err(Refusal::Io(name, e)) => Err(Refusal::Io(parent.join(name), e)),
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{HostClock, SimDisk};

    use super::*;

    #[test]
    fn a_database_with_uninformative_locks_is_not_taken_for_unused() {
        let disk = SimDisk::new(1).set_keeps_locks(false);
        disk.write_file("/srv/app.db", MAGIC).unwrap();
        disk.write_file("/srv/note.txt", b"no database at all")
            .unwrap();
        let dir = disk.dir(Path::new("/srv")).unwrap();
        let lock = |name| lock(&*dir, Path::new(name), &HostClock);
        assert!(matches!(lock("app.db"), Err(Refusal::Unknown)));
        assert!(matches!(lock("note.txt"), Ok(None)));
        assert!(matches!(lock("nowhere"), Ok(None)));
        disk.set_keeps_locks(true);
        assert!(matches!(lock("app.db"), Ok(Some(_))));
    }
}
