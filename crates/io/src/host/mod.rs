//! Linux itself as a [`Storage`].
//!
//! A directory is one descriptor, a file one or two (the second, with `O_DIRECT`, is opened at the
//! first direct transfer). Everything below a directory is reached through its descriptor, see
//! [`beneath`]; paths are used only to open the directories a person named.
//!
//! Invariants
//! - No operation below a directory follows a symbolic link, and none waits for a FIFO, a device or
//!   a lock.
//! - All descriptors of a file are closed at one moment, when its last handle is dropped, or later: not while somebody
//!   in this process holds SQLite's locks on the file ([`claims`]).
//! - Reading leaves no trace: the access time is left alone where the system allows that.

mod beneath;
mod cached;
mod claims;
mod dir;
mod file;
mod keeps_locks;
mod xattrs;

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags};

use crate::storage::{Dir, File, FileKind, OpenHow, Stat, Storage};
pub use cached::drop_from_cache;
pub use claims::{Claim, ConnectionClaims, Hush, InUse};
use dir::HostDir;
use file::HostFile;

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

    /// Resolves names component by component, as on kernels before 5.6, whatever this kernel can.
    /// Slower and otherwise alike; lets a test drive the older way.
    pub fn without_openat2() -> Self {
        Self { walk: true }
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
                // Somebody else made it meanwhile; whether it is a directory, opening will tell.
                Err(rustix::io::Errno::EXIST) => continue,
                made => made?,
            }
            if let Some(parent) = path.parent() {
                self.dir(or_here(parent))?.sync(Path::new(""))?;
            }
        }
        self.dir(or_here(path))
    }

    fn disk(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open_named(path, flags, OpenHow::ReadWrite)?;
        match file.kind() {
            FileType::RegularFile => Ok(Arc::new(file)),
            FileType::BlockDevice => {
                // Once more, for itself alone; the name may lead elsewhere by now.
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
        Ok(stat_from(&rustix::fs::stat(path)?))
    }

    fn birth_ns(&self, path: &Path) -> io::Result<Option<i64>> {
        use rustix::fs::{AtFlags, CWD, StatxFlags};
        let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME)?;
        let is_kept = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let at = found.stx_btime;
        let seconds = at.tv_sec.saturating_mul(1_000_000_000);
        Ok(is_kept.then(|| seconds.saturating_add(i64::from(at.tv_nsec))))
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }
}

/// Opens a file by its path, unless it is claimed. Symbolic links are followed.
fn open_named(path: &Path, flags: OFlags, how: OpenHow) -> io::Result<HostFile> {
    if claims::any() {
        let named = rustix::fs::stat(path)?;
        claims::check(claims::Id::of_raw(&named))?;
    }
    let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
    HostFile::new(fd, how)
}

/// The parent of a one-component relative path has no text, but a place.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

// The widths of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn stat_from(stat: &rustix::fs::Stat) -> Stat {
    let ns = |seconds: i64, nanoseconds: i64| {
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds)
    };
    Stat {
        kind: match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::RegularFile => FileKind::File,
            rustix::fs::FileType::Directory => FileKind::Dir,
            rustix::fs::FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        },
        len: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime_ns: ns(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        ctime_ns: ns(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        dev: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        links: stat.st_nlink as u64,
    }
}
