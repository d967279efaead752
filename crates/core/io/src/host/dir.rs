//! A directory of the real file system.
//!
//! Opening does not update the access time where this user may suppress that.
//!
//! Invariants
//! - A name is resolved below the open directory and follows no symbolic link, on kernels without `openat2` too.
//! - Opening never waits for a FIFO's other end, and gives a regular file or an error.
//! - A file that a snapshot of this process claims is not opened: it is identified by device and inode first.
//! - A mode is set after the owner, because a change of the owner clears the set-id bits. If the owner cannot be set,
//!   the set-id bits are not set either.
//!
//! Leaves to others: the resolution itself (`beneath.rs`), files once they are open (`file.rs`), extended attributes
//! (`xattrs.rs`), and the twin for tests (`sim`).

use crate::{DirAttributes, DirChange, DirIdentity, DirRead, DirSync};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::beneath::{self, At};
use super::claims;
use super::file::HostFile;
use super::stat::{birth_of, stat_from};
use super::{gift, keeps_locks, record_lock, xattrs};
use crate::names;
use crate::storage::{Attributes, Dir, File, OpenHow, Stat};
use crate::xattr::{Xattr, Xattrs};

/// The byte of a directory that whoever reads its tree locks. It does not exist, and no other program has a use for it.
const READ_MARK: std::ops::Range<u64> = 0x4c4f_4e47_5348..0x4c4f_4e47_5349;

#[derive(Debug)]
pub(super) struct HostDir {
    fd: OwnedFd,
    /// Resolve component by component, because `openat2` is missing.
    walk: bool,
}

impl HostDir {
    pub(super) fn new(fd: OwnedFd, walk: bool) -> Self {
        Self { fd, walk }
    }

    /// Runs `call` with the directory and the last component of `name`.
    fn at<T, E: Into<io::Error>>(
        &self,
        name: &Path,
        call: impl FnOnce(&At<'_>) -> Result<T, E>,
    ) -> io::Result<T> {
        let name = names::normal(name)?;
        call(&At::find(self.fd.as_fd(), &name, self.walk)?).map_err(Into::into)
    }

    fn open_dir(&self, name: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let name = names::normal(name)?;
        Ok(beneath::open(
            self.fd.as_fd(),
            &name,
            flags,
            Mode::empty(),
            self.walk,
        )?)
    }

    /// The same directory, opened once more: a lock belongs to an open directory, and this one has many users.
    fn again(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, ".", flags, Mode::empty())?)
    }

    fn statx(&self, name: &Path, what: StatxFlags) -> io::Result<rustix::fs::Statx> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        self.at(name, |at| {
            rustix::fs::statx(at.dir(), at.last(), flags, what)
        })
    }

    fn mount_id_by_proc(&self, name: &Path) -> io::Result<Option<u64>> {
        let name = names::normal(name)?;
        let named = beneath::open(
            self.fd.as_fd(),
            &name,
            OFlags::PATH,
            Mode::empty(),
            self.walk,
        )?;
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", named.as_raw_fd()));
        let told = told.unwrap_or_default();
        let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        Ok(id.and_then(|id| id.trim().parse().ok()))
    }
}

impl DirIdentity for HostDir {
    fn birth_ns(&self, name: &Path) -> io::Result<Option<i64>> {
        let found = self.statx(name, StatxFlags::BTIME)?;
        Ok(birth_of(&found))
    }

    fn mount_id(&self, name: &Path) -> io::Result<u64> {
        let found = self.statx(name, StatxFlags::MNT_ID);
        match found {
            Ok(found) if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 => Ok(found.stx_mnt_id),
            Err(e) if e.raw_os_error() != Some(libc::ENOSYS) => Err(e),
            // Kernels before 5.8 tell it only of an open file, and without `/proc` file systems are all there is.
            _ => match self.mount_id_by_proc(name)? {
                Some(id) => Ok(id),
                None => Ok(self.stat(name)?.dev),
            },
        }
    }

    fn mark_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        let own = self.again()?;
        record_lock::set(&own, READ_MARK, libc::F_RDLCK)?;
        Ok(Box::new(own))
    }

    fn is_marked_read(&self) -> io::Result<bool> {
        // A write lock conflicts with every reader's. It is asked for only: a directory cannot be opened to take one.
        record_lock::conflicts(self.again()?, READ_MARK, libc::F_WRLCK)
    }
}

impl DirRead for HostDir {
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let name = names::normal(name)?;
        let open = |flags, mode| beneath::open(self.fd.as_fd(), &name, flags, mode, self.walk);
        if claims::any()
            && let Ok(named) = open(OFlags::PATH, Mode::empty())
        {
            // Closing this descriptor (`O_PATH`) drops no locks.
            claims::check(claims::Id::of_raw(&rustix::fs::fstat(&named)?))?;
        }
        // Without O_NONBLOCK, opening a FIFO waits for its other end. Regular files ignore it.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match how {
            OpenHow::Read => match open(flags | OFlags::RDONLY | OFlags::NOATIME, Mode::empty()) {
                // Only the owner may suppress the access time.
                Err(Errno::PERM) => open(flags | OFlags::RDONLY, Mode::empty()),
                opened => opened,
            },
            OpenHow::ReadWrite => open(flags | OFlags::RDWR, Mode::empty()),
            OpenHow::CreateNew => open(
                flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
                Mode::from_raw_mode(0o600),
            ),
        }?;
        let file = HostFile::new(fd, how)?;
        match file.kind() {
            FileType::RegularFile => Ok(Arc::new(file)),
            FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            )),
        }
    }

    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(Self::new(self.open_dir(name)?, self.walk)))
    }

    fn stat(&self, name: &Path) -> io::Result<Stat> {
        self.at(name, |at| {
            rustix::fs::statat(at.dir(), at.last(), AtFlags::SYMLINK_NOFOLLOW)
        })
        .map(|stat| stat_from(&stat))
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>> {
        let names = rustix::fs::Dir::read_from(&self.fd)?;
        Ok(Box::new(names.filter_map(|entry| match entry {
            Ok(entry) => match entry.file_name().to_bytes() {
                b"." | b".." => None,
                name => Some(Ok(OsStr::from_bytes(name).to_owned())),
            },
            Err(e) => Some(Err(e.into())),
        })))
    }

    fn read_link(&self, name: &Path) -> io::Result<PathBuf> {
        self.at(name, |at| {
            rustix::fs::readlinkat(at.dir(), at.last(), Vec::new())
        })
        .map(|target| OsString::from_vec(target.into_bytes()).into())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let fs = rustix::fs::fstatvfs(&self.fd)?;
        Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
    }

    fn keeps_locks(&self, name: &Path) -> io::Result<bool> {
        let name = names::normal(name)?;
        if name.as_os_str().is_empty() {
            return keeps_locks::keeps_locks(&self.fd);
        }
        // Asks the file itself, because a single file can be mounted from elsewhere. Closing this descriptor drops no
        // locks.
        let dir = self.fd.as_fd();
        let named = beneath::open(dir, &name, OFlags::PATH, Mode::empty(), self.walk)?;
        keeps_locks::keeps_locks(named)
    }
}

impl DirChange for HostDir {
    fn create_dir(&self, name: &Path) -> io::Result<()> {
        self.at(name, |at| {
            rustix::fs::mkdirat(at.dir(), at.last(), Mode::from_raw_mode(0o700))
        })
    }

    fn create_shared_dir(&self, name: &Path) -> io::Result<()> {
        self.at(name, |at| {
            rustix::fs::mkdirat(at.dir(), at.last(), Mode::from_raw_mode(0o755))
        })
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        self.at(name, |at| {
            rustix::fs::symlinkat(target, at.dir(), at.last())
        })
    }

    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()> {
        self.at(existing, |old| {
            self.at(name, |new| {
                rustix::fs::linkat(
                    old.dir(),
                    old.last(),
                    new.dir(),
                    new.last(),
                    AtFlags::empty(),
                )
            })
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.at(from, |from| {
            self.at(to, |to| {
                rustix::fs::renameat(from.dir(), from.last(), to.dir(), to.last())
            })
        })
    }

    fn remove_file(&self, name: &Path) -> io::Result<()> {
        self.at(name, |at| {
            rustix::fs::unlinkat(at.dir(), at.last(), AtFlags::empty())
        })
    }

    fn remove_dir(&self, name: &Path) -> io::Result<()> {
        self.at(name, |at| {
            rustix::fs::unlinkat(at.dir(), at.last(), AtFlags::REMOVEDIR)
        })
    }
}

impl DirAttributes for HostDir {
    fn set_attributes(&self, name: &Path, attributes: &Attributes) -> io::Result<()> {
        self.at(name, |at| set_attributes(at, attributes))
    }

    fn xattrs(&self, name: &Path) -> io::Result<Xattrs> {
        self.at(name, xattrs::read)
    }

    fn set_xattr(&self, name: &Path, xattr: &Xattr) -> io::Result<()> {
        self.at(name, |at| xattrs::set(at, xattr))
    }

    fn remove_xattr(&self, name: &Path, xattr: &[u8]) -> io::Result<()> {
        self.at(name, |at| xattrs::remove(at, xattr))
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        if !gift::is_ours(&rustix::fs::fstat(&self.fd)?) {
            return Ok(false);
        }
        if self.list()?.next().transpose()?.is_some() {
            return Err(Errno::NOTEMPTY.into());
        }
        gift::give(self.fd.as_fd(), owner)
    }
}

impl DirSync for HostDir {
    fn sync(&self, name: &Path) -> io::Result<()> {
        let synced = match names::normal(name)?.as_os_str().is_empty() {
            true => rustix::fs::fsync(&self.fd),
            false => rustix::fs::fsync(self.open_dir(name)?),
        };
        match synced {
            // Some network file systems cannot sync directories; their names are durable at once.
            Err(Errno::INVAL) => Ok(()),
            synced => Ok(synced?),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.fd)?)
    }
}

fn set_attributes(at: &At<'_>, attributes: &Attributes) -> io::Result<()> {
    let mut mode = attributes.mode;
    // The owner comes first, because changing it clears the set-id bits.
    if let Some((uid, gid)) = attributes.owner {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match rustix::fs::chownat(at.dir(), at.last(), uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
            // EINVAL: our user namespace has no such number.
            Err(Errno::PERM | Errno::INVAL) => mode = mode.map(|mode| mode & !0o6000),
            owned => owned?,
        }
    }
    if let Some(mode) = mode {
        set_mode(at, mode)?;
    }
    if let Some(ns) = attributes.mtime_ns {
        let time = Timespec {
            tv_sec: ns.div_euclid(1_000_000_000),
            tv_nsec: ns.rem_euclid(1_000_000_000),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(at.dir(), at.last(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// `chmod` that does not follow symbolic links: `fchmodat2` since kernel 6.6, `/proc` before.
fn set_mode(at: &At<'_>, mode: u32) -> io::Result<()> {
    let name = CString::new(at.last().as_bytes())?;
    // SAFETY: the call demands an open descriptor, which lives as long as `at`, and a C string, which the name is; the
    // rest are integers.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_fchmodat2,
            at.dir().as_raw_fd(),
            name.as_ptr(),
            mode & 0o7777,
            libc::AT_SYMLINK_NOFOLLOW,
        )
    } != 0;
    if !failed {
        return Ok(());
    }
    let refused = io::Error::last_os_error();
    match refused.raw_os_error() {
        // A symbolic link has no mode of its own.
        Some(libc::EOPNOTSUPP) => Ok(()),
        // A sandbox that does not know the call returns EPERM. If the refusal is genuine, `/proc` repeats it.
        Some(libc::ENOSYS | libc::EPERM) => set_mode_by_proc(at, mode),
        _ => Err(refused),
    }
}

fn set_mode_by_proc(at: &At<'_>, mode: u32) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(at.dir(), at.last(), flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) == FileType::Symlink {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode & 0o7777))?)
}
