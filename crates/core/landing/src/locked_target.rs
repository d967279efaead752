//! The target directory of a restore: created if missing, and locked against other restores.
//!
//! Invariants
//! - Directories that the restore created are removed if it fails and they are still empty.
//! - Where locks may not reach all programs (network file systems, FUSE), the lock file is a [`Reservation`]: only one
//!   restore can create it, and a restore that lost it moves nothing in.
//! - Only the holder of the lock removes the lock file, as the last file in the staging directory: a restore that
//!   starts afterwards must not lose its own files.
//!
//! Leaves to others: what is in the staging directory, and removing what a dead restore left there (`place/mod.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_io::{Dir, File, FileKind, Machine, OpenHow, Reservation, Storage};

use crate::error::Error;

pub const STAGING: &str = longshore_source::RESTORING;
pub const LOCK: &str = longshore_source::RESTORE_LOCK;

/// A directory to which no other restore writes while this exists.
pub struct LockedTarget {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    /// Closed before the second attempt to remove the staging directory.
    lock: Option<Lock>,
    /// Whether the staging directory was left although it contains nothing of ours.
    left: AtomicBool,
    /// Whether the directory did not exist before.
    is_new: bool,
    made: Made,
}

enum Lock {
    /// The lock is held as long as the file is open.
    Kept {
        _file: Arc<dyn File>,
    },
    Reserved(Reservation),
}

impl LockedTarget {
    /// Creates the directory if needed, and locks it.
    pub fn take(machine: &Machine, path: &Path) -> Result<LockedTarget, Error> {
        let at = |action: &'static str, name: &Path| {
            let path = path.join(name);
            move |source| Error::Target {
                action,
                path,
                source,
            }
        };
        refuse_dead_link(&*machine.storage, path)?;
        // Created first so that it is dropped last, after everything that is opened here.
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
        Ok(LockedTarget {
            dir,
            path: path.into(),
            lock: Some(lock),
            left: AtomicBool::new(false),
            is_new: !made.names.is_empty(),
            made,
        })
    }

    /// As [`LockedTarget::take`], to replace what is there. Errors: also those of [`refuse_read`].
    pub fn take_unread(machine: &Machine, path: &Path) -> Result<LockedTarget, Error> {
        let taken = LockedTarget::take(machine, path)?;
        match refuse_read(&*machine.storage, path) {
            Ok(()) => Ok(taken),
            Err(refused) => {
                if let Err(error) = taken.clear() {
                    tracing::warn!(target = %path.display(), %error, "the staging directory could not be removed");
                }
                Err(refused)
            }
        }
    }

    pub fn dir(&self) -> Arc<dyn Dir> {
        self.dir.clone()
    }

    /// Whether the directory was made for this restore.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Must be called before anything is moved in. Errors: [`Error::TargetBusy`] if another restore took this one for
    /// dead, and may have removed its staged files.
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

    /// Called when the restore is complete: the directories created for it stay.
    pub fn keep(&mut self) {
        self.made.names.clear();
    }

    /// Removes the lock file, and the staging directory if it is then empty. Restores that opened the file before
    /// still see it locked.
    pub fn clear(&self) -> std::io::Result<()> {
        if self.check().is_err() {
            return Ok(());
        }
        let staging = Path::new(STAGING);
        self.dir.remove_file(&staging.join(LOCK))?;
        match self.dir.remove_dir(staging) {
            // The next restore has begun, or there are files to continue with.
            Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                self.left.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }
}

impl Drop for LockedTarget {
    /// FUSE and NFS keep a removed file under another name until it is closed. So the directory that held the lock may
    /// be empty only now. If the next restore uses the directory, that restore's lock is in it, and the directory
    /// stays.
    fn drop(&mut self) {
        drop(self.lock.take());
        let staging = Path::new(STAGING);
        if *self.left.get_mut() && self.dir.stat(&staging.join(LOCK)).is_err() {
            let _not_empty = self.dir.remove_dir(staging);
        }
    }
}

/// Takes the lock without a reservation; `None` if another process holds it.
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
    // A restore that just ended may have removed the file after we opened it and before we locked it.
    let ours = file.stat()?;
    match dir.stat(name) {
        Ok(named) if (named.dev, named.ino) == (ours.dev, ours.ino) => {
            Ok(Some(Lock::Kept { _file: file }))
        }
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(None),
    }
}

/// Refuses to replace names in the directory at `path` while a backup reads it, or a tree around it. Must be called after
/// the lock was taken: a backup marks what it reads, and then looks for the lock.
///
/// Errors: [`Error::TargetRead`].
pub fn refuse_read(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    let real = storage.canonical(path).unwrap_or_else(|_| path.to_owned());
    let is_read = |place: &&Path| {
        let dir = storage.dir(place);
        dir.and_then(|dir| dir.is_marked_read()).unwrap_or(false)
    };
    match real.ancestors().find(is_read) {
        Some(place) => Err(Error::TargetRead {
            path: place.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Refuses a path of which a part is a symbolic link that leads nowhere: no directory can be made there.
///
/// Errors: [`Error::DeadLink`]. A name that cannot be looked at is left to whoever opens the path.
pub fn refuse_dead_link(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    // Everything above the innermost existing directory exists, so a dead link is directly below it.
    let is_missing = |path: &&Path| {
        storage
            .stat(path)
            .is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    let named = path.ancestors().take_while(|p| p.file_name().is_some());
    let Some(missing) = named.take_while(is_missing).last() else {
        return Ok(());
    };
    let (Some(parent), Some(name)) = (missing.parent(), missing.file_name()) else {
        return Ok(());
    };
    let parent = match parent.as_os_str().is_empty() {
        true => Path::new("."),
        false => parent,
    };
    let found = storage
        .dir(parent)
        .and_then(|dir| dir.stat(Path::new(name)));
    match found {
        Ok(found) if found.kind == FileKind::Symlink => {
            let path = missing.into();
            Err(Error::DeadLink { path })
        }
        _ => Ok(()),
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
                // It was never created.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    // The directory is in use now, or the disk is gone: both are reported elsewhere.
                    tracing::debug!(path = %path.display(), %error, "a directory that a restore created remains");
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
    fn one_restore_at_a_time_uses_a_directory_whose_locks_do_not_reach_every_machine() {
        let disk = SimDisk::new(1).set_keeps_locks(false);
        let lock = Path::new("/data").join(STAGING).join(LOCK);
        let take = || LockedTarget::take(&machine(&disk), Path::new("/data"));
        let busy =
            |taken: Result<LockedTarget, Error>| matches!(taken, Err(Error::TargetBusy { .. }));
        let first = take().unwrap();
        assert!(busy(take()));
        first.check().unwrap();
        // A lock of another machine, not visible here.
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
