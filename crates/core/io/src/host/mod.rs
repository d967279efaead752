//! Linux as a [`Storage`].
//!
//! A directory is one descriptor, a file one or two (the second, with `O_DIRECT`, is opened at the first direct
//! transfer). Everything below a directory is reached through its descriptor (see [`beneath`]). Paths are used only to
//! open the directories that a person named.
//!
//! Invariants
//! - No operation below a directory follows a symbolic link, and none waits for a FIFO, a device or a lock.
//! - All descriptors of a file are closed together when its last handle is dropped. The close is delayed while this
//!   process holds SQLite's locks on the file ([`claims`]).
//! - Reading leaves no trace: the access time does not change where the system allows that.
//! - A directory made by `create_dir_all` is durable with the names above it, up to the mount point, except those in
//!   directories that this user cannot change.
//!
//! Leaves to others: what a call promises (the traits of the crate's door), and names (`names.rs`).

mod beneath;
mod cached;
mod claims;
mod dir;
mod file;
mod gift;
mod keeps_locks;
mod named;
mod record_lock;
mod stat;
mod xattrs;

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, FileType, Mode, OFlags};

use crate::storage::{Dir, File, OpenHow, Stat, Storage};
pub use claims::{Claim, ConnectionClaims, Hush, InUse};
use dir::HostDir;
pub use named::drop_from_cache;
use named::open_named;

/// The file systems of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host {
    walk: bool,
}

impl Host {
    pub fn new() -> Self {
        Self {
            walk: !beneath::has_openat2(),
        }
    }

    /// Resolves names component by component even if this kernel has `openat2`. The result is the same, but slower;
    /// tests use it to run the code for kernels before 5.6.
    pub fn without_openat2() -> Self {
        Self { walk: true }
    }
}

impl Host {
    /// Syncs the directories that hold the names on the way to `path`, which is absolute and has no links.
    fn sync_names(&self, path: &Path) -> io::Result<()> {
        let mut below = rustix::fs::stat(path)?;
        for parent in path.ancestors().skip(1) {
            let stat = rustix::fs::stat(parent)?;
            if stat.st_dev != below.st_dev {
                // The file system is mounted here.
                return Ok(());
            }
            below = stat;
            if rustix::fs::access(parent, Access::WRITE_OK).is_err() {
                continue;
            }
            match self.dir(parent) {
                // A directory that may be changed but not read cannot be synced by itself.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    self.dir(path)?.sync_all()?;
                }
                dir => dir?.sync(Path::new(""))?,
            }
        }
        Ok(())
    }
}

impl Storage for Host {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Arc::new(HostDir::new(fd, self.walk)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let mut missing = Vec::new();
        let mut at = path;
        while let Err(e) = rustix::fs::stat(or_here(at)) {
            match at.parent() {
                Some(parent) if e == rustix::io::Errno::NOENT => {
                    missing.push(at);
                    at = parent;
                }
                _ => return Err(e.into()),
            }
        }
        for path in missing.into_iter().rev() {
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
                // Another process made it meanwhile. If it is not a directory, the open fails.
                Err(rustix::io::Errno::EXIST) => {}
                made => made?,
            }
        }
        let made = self.dir(or_here(path))?;
        self.sync_names(&std::fs::canonicalize(or_here(path))?)?;
        Ok(made)
    }

    fn disk(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open_named(path, flags, OpenHow::ReadWrite)?;
        match file.kind() {
            FileType::RegularFile => Ok(Arc::new(file)),
            FileType::BlockDevice => {
                // A second open, to get an exclusive handle of its own; the name may lead elsewhere by now.
                let path = format!("/proc/self/fd/{}", file.fd().as_raw_fd());
                let flags = flags | OFlags::EXCL;
                let alone = open_named(Path::new(&path), flags, OpenHow::ReadWrite)?;
                Ok(Arc::new(alone))
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a regular file nor a block device",
            )),
        }
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        stat::at(path)
    }

    fn birth_ns(&self, path: &Path) -> io::Result<Option<i64>> {
        use rustix::fs::{AtFlags, CWD, StatxFlags};
        let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME)?;
        Ok(stat::birth_of(&found))
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }
}

/// The parent of a relative path with one component has empty text; it is the current directory.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}
