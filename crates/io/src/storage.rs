//! The seam between Longshore and a file system.
//!
//! A [`Storage`] opens directories by the path a person named. Everything below a [`Dir`] is named
//! relative to it, and no name can leave it: absolute names, `..` and symbolic links on the way are
//! refused by the implementation (on Linux by `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`).
//! That is why restore needs no path checks of its own.
//!
//! Invariants
//! - Nothing is durable before it was synced: file bytes by [`File::sync`], names by
//!   [`Dir::sync`] of the directory that holds them, everything by [`Dir::sync_all`].
//! - [`File::write_at`] may be short, like the system call; [`File::write_all_at`] is not.
//! - A [`File`] owns all its descriptors (the direct one too) and closes them together, when the
//!   last handle is dropped.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::xattr::{ACL_ACCESS, Xattr, Xattrs};

/// Bytes that a copy from file to file moves at a time.
const COPY_BYTES: usize = 1 << 20;

/// How bytes travel between memory and a file. A hint: every implementation accepts every
/// alignment and falls back to the next gentler way when the file system refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Through the page cache, which keeps them.
    Cache,
    /// Past the page cache (`O_DIRECT`). Buffer, offset and length should be multiples of 4096;
    /// what is not goes by `DontCache`.
    Direct,
    /// Through the page cache, which drops what was not in it before (`RWF_DONTCACHE`).
    DontCache,
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenHow {
    /// For reading; the file must exist. Opening never blocks (a FIFO is refused).
    Read,
    /// For reading and writing; the file must exist.
    ReadWrite,
    /// For reading and writing; the file must not exist. Mode 0o600 until attributes are set.
    CreateNew,
}

/// What a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    /// A socket, FIFO or device node: never backed up.
    Other,
}

/// What the file system says of a name or an open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    /// Bytes; of a symbolic link, the length of its target.
    pub len: u64,
    /// Permission bits with set-id and sticky bits: 0 to 0o7777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Nanoseconds since the Unix epoch. Moves with every change of content or attributes.
    pub ctime_ns: i64,
    /// Identifies the file system (a volume); with `ino`, the file.
    pub dev: u64,
    pub ino: u64,
    /// Number of names the file has.
    pub links: u64,
}

/// What a restore sets on a name. `None` leaves a field as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, 0 to 0o7777. Not applied to symbolic links.
    pub mode: Option<u32>,
    /// Owner and group. Refusal for want of privilege is not an error; `mode` then goes without its
    /// set-id bits, which would lend the privileges of whoever restores.
    pub owner: Option<(u32, u32)>,
    /// Nanoseconds since the Unix epoch; the access time is set alike.
    pub mtime_ns: Option<i64>,
}

impl Attributes {
    /// Those that a name has.
    pub fn of(stat: &Stat) -> Attributes {
        Attributes {
            mode: Some(stat.mode),
            owner: Some((stat.uid, stat.gid)),
            mtime_ns: Some(stat.mtime_ns),
        }
    }
}

/// A file system: the real one ([`crate::Host`]) or a simulated one ([`crate::SimDisk`]).
pub trait Storage: Send + Sync + Debug {
    /// Opens an existing directory. Symbolic links in `path` are followed: the caller chose it.
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Creates `path` and its missing parents (mode 0o755 less the umask), syncs each parent that
    /// gained a name, and opens it. Existing directories are left alone.
    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Opens an existing regular file, or a block device where there are any, for reading and writing. Symbolic
    /// links in `path` are followed: the caller chose it. `ResourceBusy`: a block device that is mounted, or that
    /// another one is made of, or that somebody else has opened by this.
    fn disk(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let path = self.canonical(path)?;
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                self.dir(parent)?.open(Path::new(name), OpenHow::ReadWrite)
            }
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// What `path` is, following symbolic links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// When what stands at `path` was made, in nanoseconds since the Unix epoch; a symbolic link is not followed. `None`
    /// where the file system does not keep it.
    fn birth_ns(&self, _path: &Path) -> io::Result<Option<i64>> {
        Ok(None)
    }

    /// Where `path` really is: absolute, without symbolic links.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;
}

/// An open directory. Names are relative, may have several components, and never leave it.
pub trait Dir: Send + Sync + Debug {
    /// Opens a regular file. A symbolic link, directory or special file is refused.
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>>;

    /// Opens a directory below this one.
    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>>;

    /// What `name` is; a symbolic link is not followed. An empty name is the directory itself.
    fn stat(&self, name: &Path) -> io::Result<Stat>;

    /// The names in this directory without `.` and `..`, in no order, read in pieces: memory does
    /// not grow with the directory.
    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>>;

    fn read_link(&self, name: &Path) -> io::Result<PathBuf>;

    /// Creates one directory, mode 0o700 until attributes are set; fails if the name exists.
    fn create_dir(&self, name: &Path) -> io::Result<()>;

    /// As [`Dir::create_dir`], with a mode of 0o755 less the umask.
    fn create_shared_dir(&self, name: &Path) -> io::Result<()> {
        self.create_dir(name)?;
        let shared = Attributes {
            mode: Some(0o755),
            ..Attributes::default()
        };
        self.set_attributes(name, &shared)
    }

    /// Creates a symbolic link. `target` is stored as it is and never followed.
    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()>;

    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()>;

    /// Opens a file to lock it: for writing where that is allowed, for some file systems (NFS) lock no others.
    fn open_to_lock(&self, name: &Path) -> io::Result<Arc<dyn File>> {
        match self.open(name, OpenHow::ReadWrite) {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                self.open(name, OpenHow::Read)
            }
            opened => opened,
        }
    }

    /// Opens a file that is to be changed where it stands, for reading and writing. A file that has other names
    /// (hard links: a `cp -al` copy) is first replaced by a copy of its first `keep` bytes, so that the other names
    /// keep what they have. A name that is added later shows what is written from then on.
    ///
    /// Callers keep each other away: two that replace one file at a time may fail with `AlreadyExists`.
    fn open_own(&self, name: &Path, keep: u64) -> io::Result<Arc<dyn File>> {
        let file = self.open(name, OpenHow::ReadWrite)?;
        let found = file.stat()?;
        if found.links <= 1 {
            return Ok(file);
        }
        let mut temporary = name.as_os_str().to_owned();
        temporary.push(".longshore-own");
        let temporary = Path::new(&temporary);
        match self.remove_file(temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let own = self.open(temporary, OpenHow::CreateNew)?;
        let replaced = file
            .copy_to(&*own, keep.min(found.len))
            .and_then(|()| own.sync())
            .and_then(|()| self.set_attributes(temporary, &Attributes::of(&found)))
            .and_then(|()| self.copy_xattrs(name, temporary))
            .and_then(|()| self.rename(temporary, name))
            .and_then(|()| self.sync(name.parent().unwrap_or(Path::new(""))));
        if replaced.is_err() {
            // What cannot be removed now, the next try removes.
            let _left = self.remove_file(temporary);
        }
        replaced.map(|()| own)
    }

    /// Gives `to` the extended attributes of `from`, as far as both file systems and this user's rights allow; without
    /// an access control list, `to` gets its owner's rights alone.
    fn copy_xattrs(&self, from: &Path, to: &Path) -> io::Result<()> {
        for xattr in self.xattrs(from)?.read {
            if self.set_xattr(to, &xattr).is_err() && xattr.name == ACL_ACCESS {
                let mode = self.stat(to)?.mode & !0o077;
                let own = Attributes {
                    mode: Some(mode),
                    ..Attributes::default()
                };
                self.set_attributes(to, &own)?;
            }
        }
        Ok(())
    }

    /// Renames within this directory tree, atomically replacing a file `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove_file(&self, name: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, name: &Path) -> io::Result<()>;

    /// Sets attributes without following a symbolic link.
    fn set_attributes(&self, name: &Path, attributes: &Attributes) -> io::Result<()>;

    /// The extended attributes of `name` that are kept ([`Xattr::is_kept`]), in the order of their names. A symbolic
    /// link is not followed. None where the file system has none.
    fn xattrs(&self, _name: &Path) -> io::Result<Xattrs> {
        Ok(Xattrs::default())
    }

    /// Sets an extended attribute without following a symbolic link.
    ///
    /// Errors: `Unsupported` where the file system has none; the system's for want of privilege or room.
    fn set_xattr(&self, _name: &Path, _xattr: &Xattr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes an extended attribute; one that is not there is fine, and so is a file system that has none.
    fn remove_xattr(&self, _name: &Path, _xattr: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Makes the names in directory `name` durable (`fsync` of the directory); empty: this one.
    fn sync(&self, name: &Path) -> io::Result<()>;

    /// Makes everything written to this file system durable (`syncfs`).
    fn sync_all(&self) -> io::Result<()>;

    /// Free bytes for an unprivileged writer.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Whether locks on the file `name`, and memory mapped from it, are known to be seen by everybody who can write to it.
    /// On a network, and on FUSE, others may come by another machine or another mount, which the system cannot tell. An
    /// empty name is this directory, for what is in it.
    fn keeps_locks(&self, name: &Path) -> io::Result<bool>;
}

/// An open regular file, or a block device ([`Storage::disk`]), whose length is its size. All methods may be called from many threads at once.
pub trait File: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes at `offset`. Short at the end of the file, 0 beyond it.
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize>;

    /// Writes at `offset` and says how many bytes went; may be short, at least 1 unless `buf` is
    /// empty.
    fn write_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<usize>;

    fn stat(&self) -> io::Result<Stat>;

    /// What the system knows a block device by, whatever its name is today; `None` of a file, and where it knows
    /// nothing.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space for a range without changing the length or the contents. Direct writes into reserved
    /// space within the length do not wait for each other. Best effort: an unsupporting file system
    /// is no error, a full one is.
    fn allocate(&self, range: Range<u64>) -> io::Result<()>;

    /// Gives back the space that was reserved and never written; reading is not changed. Best effort, as
    /// [`File::allocate`] is.
    fn free_unwritten(&self) -> io::Result<()>;

    /// Makes a range within the length read as zeros and gives its space back; `false`, and nothing changed, where
    /// the file system cannot.
    fn punch(&self, _range: Range<u64>) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes bytes and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;

    /// Makes bytes, length and times durable (`fsync`), so that no power cut takes the times back.
    fn sync_with_times(&self) -> io::Result<()> {
        self.sync()
    }

    /// Whether every page of the range lies in the page cache, so that reading it costs no I/O.
    /// `false` when the system cannot tell.
    fn is_cached(&self, range: Range<u64>) -> bool;

    /// The first range at or after `offset` that may hold data (`SEEK_DATA`, `SEEK_HOLE`);
    /// `None` when only a hole follows. Everything is data where the system cannot tell.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>>;

    /// A copy of the file as it is now that shares its blocks, has no name and is seen by nobody
    /// else (`FICLONE`): made in an instant, whatever the length. `None` where the file system
    /// cannot share blocks or this user may not write beside the file.
    fn reflink(&self) -> Option<Arc<dyn File>> {
        None
    }

    /// Takes an exclusive advisory lock (`flock`) that ends with this handle; `false` when
    /// somebody else holds it. Never blocks.
    ///
    /// Errors: `PermissionDenied` where the file system (NFS) locks only what is open for writing, and this is not.
    fn try_lock(&self) -> io::Result<bool>;

    /// Takes a record lock of a range that conflicts with everybody's, with POSIX locks of this process, too, and ends
    /// with this handle; `false` when somebody has one that conflicts. Never blocks. `exclusive` needs a handle for
    /// writing. The bytes need not exist.
    fn try_lock_range(&self, _range: Range<u64>, _exclusive: bool) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives such a lock back.
    fn unlock_range(&self, _range: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether there is another handle of this file on this machine. Errors where the system cannot tell: it is somebody
    /// else's file, or lies on another machine.
    fn is_open_elsewhere(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Fills `buf` unless the file ends first; says how many bytes were read.
    fn read_full_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64, via) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Fills `buf`; a file that ends first is `UnexpectedEof`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<()> {
        match self.read_full_at(buf, offset, via)? {
            n if n == buf.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Copies the first `len` bytes to the beginning of `to`; a file that ends first is `UnexpectedEof`.
    fn copy_to(&self, to: &dyn File, len: u64) -> io::Result<()> {
        let mut buf = vec![0; COPY_BYTES.min(usize::try_from(len).unwrap_or(COPY_BYTES))];
        let mut at = 0;
        while at < len {
            let n = buf
                .len()
                .min(usize::try_from(len - at).unwrap_or(buf.len()));
            self.read_exact_at(&mut buf[..n], at, Via::DontCache)?;
            to.write_all_at(&buf[..n], at, Via::DontCache)?;
            at += n as u64;
        }
        Ok(())
    }

    /// Writes all of `buf`, repeating short writes.
    fn write_all_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.write_at(&buf[done..], offset + done as u64, via) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
