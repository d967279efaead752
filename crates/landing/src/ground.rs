//! The directory that a restore goes to: made where it is missing, and kept from other restores.
//!
//! Invariants
//! - Directories that were made for a restore go again when it does not come to stand, as far as nothing is in them.
//! - Where locks may not reach everybody, on a network or FUSE, the lock's file is a [`Reservation`]: only one can make it,
//!   and who lost it moves nothing in.
//! - The lock's file is removed by who holds it alone, and last of what the staging directory has: whoever comes in
//!   after us must not find his files removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_io::{Dir, File, Machine, OpenHow, Reservation, Storage};

use crate::error::Error;

pub const STAGING: &str = ".longshore-restoring";
pub const LOCK: &str = "lock";

/// A directory that nobody else restores to while this lives.
pub struct Ground {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    /// Closed before the staging directory is tried again.
    lock: Option<Lock>,
    /// Whether the staging directory was left though nothing of ours is in it.
    left: AtomicBool,
    made: Made,
}

enum Lock {
    /// Held as long as it is open.
    Kept {
        _file: Arc<dyn File>,
    },
    Reserved(Reservation),
}

impl Ground {
    /// Creates the directory if needed, and takes its lock.
    pub fn take(machine: &Machine, path: &Path) -> Result<Ground, Error> {
        let at = |action: &'static str, name: &Path| {
            let path = path.join(name);
            move |source| Error::Target {
                action,
                path,
                source,
            }
        };
        // First of all, so that it goes last, after everything that is opened here.
        let made = Made::before(&machine.storage, path);
        let dir = machine
            .storage
            .create_dir_all(path)
            .map_err(at("create", Path::new("")))?;
        let lock_name = Path::new(STAGING).join(LOCK);
        let keeps_locks = dir
            .keeps_locks(Path::new(""))
            .map_err(at("look at", Path::new("")))?;
        let is_first = match dir.create_dir(Path::new(STAGING)) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(at("create", Path::new(STAGING))(e)),
        };
        let lock = match keeps_locks {
            true => kept(&*dir, &lock_name),
            false => Reservation::take(&dir, &lock_name).map(|ours| ours.map(Lock::Reserved)),
        };
        if let (Err(_), true) = (&lock, is_first)
            && let Err(error) = dir.remove_dir(Path::new(STAGING))
        {
            tracing::warn!(target = %path.display(), %error, "the staging directory could not be removed");
        }
        let Some(lock) = lock.map_err(at("lock", &lock_name))? else {
            return Err(Error::TargetBusy { path: path.into() });
        };
        Ok(Ground {
            dir,
            path: path.into(),
            lock: Some(lock),
            left: AtomicBool::new(false),
            made,
        })
    }

    pub fn dir(&self) -> Arc<dyn Dir> {
        self.dir.clone()
    }

    /// To be called before anything is moved in. Errors: [`Error::TargetBusy`] when somebody took this restore for dead,
    /// and may have cleared what it had staged.
    pub fn check(&self) -> Result<(), Error> {
        let Some(Lock::Reserved(reservation)) = &self.lock else {
            return Ok(());
        };
        match reservation.is_ours() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::TargetBusy {
                path: self.path.clone(),
            }),
            Err(source) => Err(Error::Target {
                action: "lock",
                path: self.path.join(STAGING).join(LOCK),
                source,
            }),
        }
    }

    /// What was restored stands: the directories made for it stay.
    pub fn keep(&mut self) {
        self.made.names.clear();
    }

    /// Removes the lock's file, and the staging directory when nothing else is in it. The directory stays locked for
    /// those who opened the file before.
    pub fn clear(&self) -> std::io::Result<()> {
        if self.check().is_err() {
            return Ok(());
        }
        let staging = Path::new(STAGING);
        self.dir.remove_file(&staging.join(LOCK))?;
        match self.dir.remove_dir(staging) {
            // The next restore is here already, or there is something to go on with.
            Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                self.left.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }
}

impl Drop for Ground {
    /// FUSE and NFS keep a removed file under another name until it is closed. So the directory that held the lock may be
    /// empty only now; one that the next restore has taken has its lock in it, and stays.
    fn drop(&mut self) {
        drop(self.lock.take());
        let staging = Path::new(STAGING);
        if *self.left.get_mut() && self.dir.stat(&staging.join(LOCK)).is_err() {
            let _not_empty = self.dir.remove_dir(staging);
        }
    }
}

/// The lock by itself; `None`: somebody else has it.
fn kept(dir: &dyn Dir, name: &Path) -> std::io::Result<Option<Lock>> {
    let file = match dir.open(name, OpenHow::CreateNew) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            dir.open(name, OpenHow::ReadWrite)?
        }
        other => other?,
    };
    if !file.try_lock()? {
        return Ok(None);
    }
    // A restore that just ended may have removed the file between our opening and locking it.
    let ours = file.stat()?;
    match dir.stat(name) {
        Ok(named) if (named.dev, named.ino) == (ours.dev, ours.ino) => {
            Ok(Some(Lock::Kept { _file: file }))
        }
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(None),
    }
}

/// Names that did not exist before, innermost first. Dropping removes those that are empty directories.
struct Made {
    storage: Arc<dyn Storage>,
    names: Vec<PathBuf>,
}

impl Made {
    fn before(storage: &Arc<dyn Storage>, path: &Path) -> Made {
        let is_missing = |path: &&Path| match storage.stat(path) {
            Err(e) => e.kind() == std::io::ErrorKind::NotFound,
            Ok(_) => false,
        };
        let below = path.ancestors().take_while(|p| p.file_name().is_some());
        Made {
            storage: storage.clone(),
            names: below.take_while(is_missing).map(PathBuf::from).collect(),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.names {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return;
            };
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            let removed = self.storage.dir(parent);
            match removed.and_then(|dir| dir.remove_dir(Path::new(name))) {
                Ok(()) => {}
                // It was never made.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    // Somebody has put something there, or the disk is gone: both are others' to say.
                    tracing::debug!(path = %path.display(), %error, "a directory made for a restore stays");
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::SimDisk;

    use super::*;
    use crate::place::tests::machine;

    #[test]
    fn where_locks_do_not_reach_everybody_a_directory_is_restored_to_by_one() {
        let disk = SimDisk::new(1).set_keeps_locks(false);
        let lock = Path::new("/data").join(STAGING).join(LOCK);
        let take = || Ground::take(&machine(&disk), Path::new("/data"));
        let busy = |taken: Result<Ground, Error>| matches!(taken, Err(Error::TargetBusy { .. }));
        let first = take().unwrap();
        assert!(busy(take()));
        first.check().unwrap();
        // Of another machine, whose locks are not seen here.
        disk.write_file(&lock, b"another-boot 1 7 x\n").unwrap();
        assert!(matches!(first.check(), Err(Error::TargetBusy { .. })));
        first.clear().unwrap();
        drop(first);
        assert!(disk.stat(&lock).is_ok(), "it is not ours to remove");
        assert!(busy(take()));
        disk.dir(Path::new("/data"))
            .unwrap()
            .remove_file(&Path::new(STAGING).join(LOCK))
            .unwrap();
        let last = take().unwrap();
        last.clear().unwrap();
        drop(last);
        assert!(disk.stat(&lock).is_err());
    }
}
