//! The directory that a restore goes to: made where it is missing, and kept from other restores.
//!
//! Invariants
//! - Directories that were made for a restore go again when it does not come to stand, as far as nothing is in them.
//! - The lock's file is removed by who holds it alone, and last of what the staging directory has: whoever comes in
//!   after us must not find his files removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, OpenHow, Storage};

use crate::{Error, House};

pub const STAGING: &str = ".longshore-restoring";
const LOCK: &str = "lock";

/// A directory that nobody else restores to while this lives.
pub struct Ground {
    dir: Arc<dyn Dir>,
    _lock: Arc<dyn File>,
    made: Made,
}

impl Ground {
    /// Creates the directory if needed, and takes its lock.
    pub fn take(house: &House, path: &Path) -> Result<Ground, Error> {
        let at = |action: &'static str, name: &Path| {
            let path = path.join(name);
            move |source| Error::Target {
                action,
                path,
                source,
            }
        };
        // First of all, so that it goes last, after everything that is opened here.
        let made = Made::before(&house.storage, path);
        let dir = house
            .storage
            .create_dir_all(path)
            .map_err(at("create", Path::new("")))?;
        let lock_name = Path::new(STAGING).join(LOCK);
        let is_first = match dir.create_dir(Path::new(STAGING)) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(at("create", Path::new(STAGING))(e)),
        };
        let lock = match dir.open(&lock_name, OpenHow::CreateNew) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                dir.open(&lock_name, OpenHow::ReadWrite)
            }
            other => other,
        };
        if let (Err(_), true) = (&lock, is_first)
            && let Err(error) = dir.remove_dir(Path::new(STAGING))
        {
            tracing::warn!(target = %path.display(), %error, "the staging directory could not be removed");
        }
        let lock = lock.map_err(at("create", &lock_name))?;
        let busy = || Error::TargetBusy { path: path.into() };
        if !lock.try_lock().map_err(at("lock", &lock_name))? {
            return Err(busy());
        }
        // A restore that just ended may have removed the file between our opening and locking it.
        let ours = lock.stat().map_err(at("lock", &lock_name))?;
        match dir.stat(&lock_name) {
            Ok(named) if (named.dev, named.ino) == (ours.dev, ours.ino) => {}
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(at("lock", &lock_name)(e));
            }
            _ => return Err(busy()),
        }
        Ok(Ground {
            dir,
            _lock: lock,
            made,
        })
    }

    pub fn dir(&self) -> Arc<dyn Dir> {
        self.dir.clone()
    }

    /// What was restored stands: the directories made for it stay.
    pub fn keep(&mut self) {
        self.made.names.clear();
    }

    /// Removes the lock's file, and the staging directory when nothing else is in it. The directory stays locked for
    /// those who opened the file before.
    pub fn clear(&self) -> std::io::Result<()> {
        let staging = Path::new(STAGING);
        self.dir.remove_file(&staging.join(LOCK))?;
        match self.dir.remove_dir(staging) {
            // The next restore is here already, or there is something to go on with.
            Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other,
        }
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
