//! The interface between Longshore and a file system.
//!
//! A [`Storage`] opens directories by paths that a person named. Everything below a [`Dir`] is named relative to it,
//! and no name can leave it: the implementation refuses absolute names, `..` and symbolic links on the way (on Linux
//! by `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`). That is why a restore needs no path checks.
//!
//! Invariants
//! - Nothing is durable before a sync: file bytes need [`FileWrite::sync`], names [`DirSync::sync`] of the directory that holds
//!   them; [`DirSync::sync_all`] covers everything.
//! - [`FileWrite::write_at`] may be short, like the system call; [`File::write_all_at`] is not.
//! - A [`File`] owns all its descriptors (including the direct one) and closes them together when the last handle is
//!   dropped.
//!
//! Leaves to others: the real file system (`host`), and the simulated one (`sim`).

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::xattr::{ACL_ACCESS, Xattr, Xattrs};

/// Bytes that a copy between files moves at a time.
const COPY_BYTES: usize = 1 << 20;

/// How bytes travel between memory and a file. A hint: every implementation accepts every alignment and falls back to
/// the next method if the file system refuses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Through the page cache, which keeps the pages.
    Cache,
    /// Without the page cache (`O_DIRECT`). Buffer, offset and length should be multiples of 4096; unaligned parts go
    /// by `DontCache`.
    Direct,
    /// Through the page cache, which drops pages that were not cached before (`RWF_DONTCACHE`).
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

/// The space of a range that is made zeros ([`FileWrite::zero`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroedSpace {
    /// Given back.
    Freed,
    /// Reserved as before.
    Kept,
}

/// The kind of file behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    /// A socket, FIFO or device node: never backed up.
    Other,
}

/// The file system's description of a name or an open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    /// Length in bytes; for a symbolic link, that of its target's name.
    pub len: u64,
    /// Permission, set-id and sticky bits: 0 to 0o7777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Nanoseconds since the Unix epoch. Changes with every change of content or attributes, and as a rule when one of its
    /// names changes: by all of its names then.
    pub ctime_ns: i64,
    /// Identifies the file system (a volume); together with `ino`, the file.
    pub dev: u64,
    pub ino: u64,
    /// Number of names (hard links).
    pub links: u64,
}

/// The attributes that a restore sets on a name. `None` leaves a field as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, 0 to 0o7777. Not applied to symbolic links.
    pub mode: Option<u32>,
    /// Owner and group. Lack of privilege to set them is not an error; `mode` is then set without its set-id bits,
    /// which would grant the privileges of the user who restores.
    pub owner: Option<(u32, u32)>,
    /// Nanoseconds since the Unix epoch; the access time is set to the same value.
    pub mtime_ns: Option<i64>,
}

impl Attributes {
    /// The attributes that a name has.
    pub fn of(stat: &Stat) -> Attributes {
        Attributes {
            mode: Some(stat.mode),
            owner: Some((stat.uid, stat.gid)),
            mtime_ns: Some(stat.mtime_ns),
        }
    }
}

/// A file system: the real one ([`crate::Host`]) or a simulated one. The tests in `tests/contract` check the text of the
/// traits in this file for every file system.
pub trait Storage: Send + Sync + Debug {
    /// Opens an existing directory. Symbolic links in `path` are followed: the caller chose it.
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Creates `path` and its missing parents (mode 0o755 less the umask) and opens `path`. Existing directories are
    /// not changed. Afterwards the names on the way to `path` are durable, those too that existed: a process that made
    /// them may have been killed before it synced them. Only names above a mount, and in directories that this user may
    /// not change, are taken to be durable.
    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>>;

    /// Opens an existing regular file, or a block device if supported, for reading and writing. Symbolic links in
    /// `path` are followed: the caller chose it. `ResourceBusy`: the block device is mounted, is part of another
    /// device, or was opened by another process through this call.
    fn disk(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let path = self.canonical(path)?;
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                self.dir(parent)?.open(Path::new(name), OpenHow::ReadWrite)
            }
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// The attributes of `path`; symbolic links are followed.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// When the file at `path` was created, in nanoseconds since the Unix epoch; a symbolic link is not followed.
    /// `None` if the file system does not record it.
    fn birth_ns(&self, _path: &Path) -> io::Result<Option<i64>> {
        Ok(None)
    }

    /// The real path: absolute, without symbolic links.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;
}

/// The entries of a directory. Names are relative, may have several components, and never leave it.
pub trait DirRead {
    /// Opens a regular file. A symbolic link, directory or special file is refused.
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>>;

    /// Opens a directory below this one. Errors: `NotFound`; `NotADirectory` for any other kind of name.
    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>>;

    /// The attributes of `name`; a symbolic link is not followed. An empty name is the directory itself.
    fn stat(&self, name: &Path) -> io::Result<Stat>;

    /// The names in this directory without `.` and `..`, in no order. They are read in pieces, so memory does not grow
    /// with the directory.
    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>>;

    /// The stored target of the symbolic link `name`, not resolved. Errors: `NotFound`; `InvalidInput` if `name` is no
    /// link.
    fn read_link(&self, name: &Path) -> io::Result<PathBuf>;

    /// Free bytes for an unprivileged writer.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Whether locks on the file `name`, and memory mapped from it, are known to be visible to every program that can
    /// write to it. On a network file system, and on FUSE, programs may use another machine or another mount, which
    /// the system cannot detect. An empty name asks for the files in this directory.
    fn keeps_locks(&self, name: &Path) -> io::Result<bool>;
}

/// The identity of the file, and of the mount, behind a name, and marks on this directory itself. The defaults know less than
/// Linux can tell.
pub trait DirIdentity: DirRead {
    /// When the file `name` was created, in nanoseconds since the Unix epoch; a symbolic link is not followed. `None` if
    /// the file system does not record it. A file that got the inode number of a removed one has another time.
    fn birth_ns(&self, _name: &Path) -> io::Result<Option<i64>> {
        Ok(None)
    }

    /// A number for the mount that `name` is on; a symbolic link is not followed, and an empty name is this directory. If
    /// something is mounted on `name`, its number is another one than its directory's, also where both are one file
    /// system (a bind mount). Numbers are used again after an unmount.
    fn mount_id(&self, name: &Path) -> io::Result<u64> {
        Ok(self.stat(name)?.dev)
    }

    /// Marks this directory, without writing to it, as one whose tree is being read, until the answer is dropped. Any number
    /// of readers can mark it at one time. Other machines may not see the mark.
    fn mark_read(&self) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    /// Whether a reader, also of this process, has marked this directory.
    fn is_marked_read(&self) -> io::Result<bool> {
        Ok(false)
    }
}

/// Changes of the names in a directory. They are durable after [`DirSync::sync`].
pub trait DirChange: DirAttributes {
    /// Creates one directory, mode 0o700 until attributes are set; fails if the name exists.
    fn create_dir(&self, name: &Path) -> io::Result<()>;

    /// As [`DirChange::create_dir`], with a mode of 0o755 less the umask.
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

    /// Gives a file of this tree a further name; symbolic links are not followed. Errors: `AlreadyExists`; the system's
    /// error if the file system has no hard links.
    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()>;

    /// Renames within this directory tree; atomically replaces an existing file `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a name that is not a directory; a symbolic link is removed itself. Open handles stay usable. Errors:
    /// `NotFound`, so a second call fails.
    fn remove_file(&self, name: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, name: &Path) -> io::Result<()>;
}

/// The attributes of names in a directory.
pub trait DirAttributes {
    /// Sets attributes without following a symbolic link.
    fn set_attributes(&self, name: &Path, attributes: &Attributes) -> io::Result<()>;

    /// The extended attributes of `name` that are kept ([`Xattr::is_kept`]), sorted by name. A symbolic link is not
    /// followed. Empty if the file system has no attributes.
    fn xattrs(&self, _name: &Path) -> io::Result<Xattrs> {
        Ok(Xattrs::default())
    }

    /// Sets an extended attribute without following a symbolic link.
    ///
    /// Errors: `Unsupported` if the file system has none; the system's error for lack of privilege or space.
    fn set_xattr(&self, _name: &Path, _xattr: &Xattr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes an extended attribute. No error if it does not exist or the file system has none.
    fn remove_xattr(&self, _name: &Path, _xattr: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Gives this directory itself to another owner and group, by the open directory and not by a name. `false`, with
    /// nothing changed, if it does not belong to this process's effective user.
    ///
    /// Errors: `DirectoryNotEmpty` if something is in it; `PermissionDenied` without the right to give to this owner.
    fn give(&self, _owner: (u32, u32)) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Makes changes durable.
pub trait DirSync {
    /// Makes the names in directory `name` durable (`fsync` of the directory); an empty name is this directory.
    fn sync(&self, name: &Path) -> io::Result<()>;

    /// Makes everything written to this file system durable (`syncfs`).
    fn sync_all(&self) -> io::Result<()>;
}

/// An open directory. Its methods are those of the traits that it is made of.
pub trait Dir:
    DirRead + DirIdentity + DirChange + DirAttributes + DirSync + Send + Sync + Debug
{
}

impl<T> Dir for T where
    T: DirRead + DirIdentity + DirChange + DirAttributes + DirSync + Send + Sync + Debug
{
}

impl dyn Dir + '_ {
    /// Opens a file to lock it: for writing if that is allowed, since some file systems (NFS) lock no others.
    pub fn open_to_lock(&self, name: &Path) -> io::Result<Arc<dyn File>> {
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

    /// Opens a file for reading and writing in place. A file that has other names (hard links, as from `cp -al`) is
    /// first replaced by a copy of its first `keep` bytes, so that the other names keep their content. A name that is
    /// added later shows what is written from then on.
    ///
    /// Callers must exclude each other: two that replace one file at a time may fail with `AlreadyExists`.
    pub fn open_own(&self, name: &Path, keep: u64) -> io::Result<Arc<dyn File>> {
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
            // If this cannot be removed now, the next try removes it.
            let _left = self.remove_file(temporary);
        }
        replaced.map(|()| own)
    }

    /// Makes the file `name`, which belongs to this directory's owner from the start
    /// ([`give_to_its_owner`](Self::give_to_its_owner)). If it cannot be given, it is removed again.
    pub fn create_for_its_owner(&self, name: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.open(name, OpenHow::CreateNew)?;
        self.give_to_its_owner(&*file).inspect_err(|_| {
            // It would be in the way of its owner, who could not open it, for ever.
            let _left = self.remove_file(name);
        })?;
        Ok(file)
    }

    /// Gives an open file of this directory, which is empty, to the directory's owner, who has to change it.
    ///
    /// The owner may exchange names at any time, and have a file of this process's user get the name: one with content, or
    /// with another name, is never given. A file of a third user is left as it is, without an error: its owner answers for it.
    /// Lack of the right to give is an error, unless root owns the directory, who can change the file as it is.
    ///
    /// Errors: `InvalidInput` if the file has content or other names; `PermissionDenied`.
    pub fn give_to_its_owner(&self, file: &dyn File) -> io::Result<()> {
        let (here, stat) = (self.stat(Path::new(""))?, file.stat()?);
        if stat.uid == here.uid {
            return Ok(());
        }
        if stat.len > 0 {
            let text = "a file with content is not given to the owner of its directory";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        unless_roots(file.give((here.uid, here.gid)), here.uid)
    }

    /// As [`give_to_its_owner`](Self::give_to_its_owner), the directory `name` of this one, while nothing is in it.
    ///
    /// Errors: `DirectoryNotEmpty`, `PermissionDenied`.
    pub fn give_dir_to_its_owner(&self, name: &Path) -> io::Result<()> {
        let here = self.stat(Path::new(""))?;
        if self.stat(name)?.uid == here.uid {
            return Ok(());
        }
        unless_roots(self.dir(name)?.give((here.uid, here.gid)), here.uid)
    }

    /// Copies the extended attributes of `from` to `to`, as far as both file systems and this user's rights allow. If
    /// an access control list cannot be copied, `to` grants rights to its owner only.
    pub fn copy_xattrs(&self, from: &Path, to: &Path) -> io::Result<()> {
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
}

/// The result of giving something to `owner`: root needs no gift.
fn unless_roots(given: io::Result<bool>, owner: u32) -> io::Result<()> {
    match given {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && owner == 0 => Ok(()),
        given => given.map(drop),
    }
}

/// Reads a file, and says what it is.
pub trait FileRead {
    /// Reads up to `buf.len()` bytes at `offset`. Short at the end of the file, 0 after it.
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize>;

    /// The attributes of the open file now, also if its name was removed or belongs to another file.
    fn stat(&self) -> io::Result<Stat>;

    /// A lasting identifier of a block device, independent of its present name; `None` for a file, and if the system
    /// knows none.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Whether every page of the range is in the page cache, so that reading it needs no I/O. `false` if the system
    /// cannot tell.
    fn is_cached(&self, range: Range<u64>) -> bool;

    /// Drops what the page cache has of the file and the medium has, too, so that later reads come from the medium: after a
    /// write-back that failed, the cache shows bytes that the medium does not have. To be called after a sync that succeeded;
    /// what others map or read meanwhile may stay. A file in memory alone has no medium.
    fn drop_cached(&self) {}

    /// The first range at or after `offset` that may hold data (`SEEK_DATA`, `SEEK_HOLE`); `None` if only a hole
    /// follows. If the system cannot tell, everything is data.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>>;

    /// A copy of the present file that shares its blocks and has no name, so only this handle reaches it (`FICLONE`).
    /// Takes the same short time for any length. `None` if the file system cannot share blocks or this user may not
    /// write in the file's directory.
    fn reflink(&self) -> Option<Arc<dyn File>> {
        None
    }
}

/// Changes the bytes of a file. They are durable after a sync only, and calls at different offsets may run in parallel.
pub trait FileWrite {
    /// Writes at `offset` and returns the number of bytes written; may be short, but at least 1 unless `buf` is empty.
    fn write_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<usize>;

    /// Truncates or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space for a range without changing the length or the contents. Direct writes into reserved space
    /// within the length do not wait for each other. Best effort: a file system that cannot reserve is not an error, a
    /// full one is.
    fn allocate(&self, range: Range<u64>) -> io::Result<()>;

    /// Gives back space that was reserved and never written; contents do not change. Best effort, like
    /// [`FileWrite::allocate`].
    fn free_unwritten(&self) -> io::Result<()>;

    /// Makes a range within the length read as zeros, which are not written; `false`, with nothing changed, if the file
    /// system cannot.
    fn zero(&self, _range: Range<u64>, _space: ZeroedSpace) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes bytes and length durable (`fdatasync`).
    ///
    /// Errors: `Unsupported` if nothing in this file can be durable, as in memory.
    fn sync(&self) -> io::Result<()>;

    /// Makes bytes, length and times durable (`fsync`), so that a power cut cannot revert the times.
    fn sync_with_times(&self) -> io::Result<()> {
        self.sync()
    }
}

/// Mode and owner of an open file, whatever has its name now. They are durable like attributes that are set by name. A file
/// that no directory has needs none.
pub trait FileAttributes {
    /// Sets the permission bits: 0 to 0o7777.
    fn set_mode(&self, _mode: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives the file to another owner and group. `false`, with nothing changed, if it does not belong to this process's
    /// effective user.
    ///
    /// Errors: `InvalidInput` if it is not a regular file, or has more names than one: another of them may be in a
    /// directory of somebody else; `PermissionDenied` without the right to give to this owner.
    fn give(&self, _owner: (u32, u32)) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Locks of a file, which end with its handle.
pub trait FileLock {
    /// Takes an exclusive advisory lock (`flock`) that ends with this handle; `false` if another handle holds it.
    /// Never blocks.
    ///
    /// Errors: `PermissionDenied` if the file system (NFS) locks only files open for writing, and this one is not.
    fn try_lock(&self) -> io::Result<bool>;

    /// Takes a record lock on a range that ends with this handle and conflicts with all other locks, POSIX locks of
    /// this process included; `false` if there is a conflicting lock. Never blocks. `exclusive` needs a handle for
    /// writing. The bytes need not exist.
    fn try_lock_range(&self, _range: Range<u64>, _exclusive: bool) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Releases such a lock.
    fn unlock_range(&self, _range: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether this machine has another handle of this file. Fails if the system cannot tell: the file belongs to
    /// another user or lies on another machine.
    fn is_open_elsewhere(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether this machine has a handle of this file that can write, a loop device's included; readers do not count.
    /// This handle must be open for reading only. Fails as [`is_open_elsewhere`](Self::is_open_elsewhere) does.
    fn is_written_elsewhere(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// An open regular file, or a block device ([`Storage::disk`]), whose length is its size. All methods may be called
/// from several threads at once.
pub trait File: FileRead + FileWrite + FileAttributes + FileLock + Send + Sync + Debug {}

impl<T: FileRead + FileWrite + FileAttributes + FileLock + Send + Sync + Debug> File for T {}

/// A write that failed. Before, it had done a part.
#[derive(Debug)]
pub struct BrokenWrite {
    /// Bytes.
    pub done: usize,
    pub source: io::Error,
}

impl dyn File + '_ {
    /// Fills `buf` unless the file ends first; returns the number of bytes read.
    pub fn read_full_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
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

    /// Fills `buf`; `UnexpectedEof` if the file ends first.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<()> {
        match self.read_full_at(buf, offset, via)? {
            n if n == buf.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Copies the first `len` bytes to the start of `to`; `UnexpectedEof` if the file ends first.
    pub fn copy_to(&self, to: &dyn File, len: u64) -> io::Result<()> {
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
    pub fn write_all_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<()> {
        let written = self.write_counted(buf, offset, via);
        written.map_err(|broken| broken.source)
    }

    /// [`write_all_at`](Self::write_all_at), whose error says how much of `buf` was written.
    pub fn write_counted(&self, buf: &[u8], offset: u64, via: Via) -> Result<(), BrokenWrite> {
        let mut done = 0;
        while done < buf.len() {
            let source = match self.write_at(&buf[done..], offset + done as u64, via) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    done += n;
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => e,
            };
            return Err(BrokenWrite { done, source });
        }
        Ok(())
    }
}
