//! A regular file of the real file system, read and written with or without the page cache.
//!
//! A direct call transfers the part of the buffer whose address and offset are both aligned. Unaligned ends go by
//! `RWF_DONTCACHE`.
//!
//! Invariants
//! - If the file system refuses one method, the file uses the next for the rest of its life: first `O_DIRECT`, then
//!   `RWF_DONTCACHE`, then plain calls.
//! - Pages that were cached before are evicted by [`FileRead::drop_cached`] alone.
//! - Parts are transferred in the order of their bytes, so a short transfer is always a prefix.
//!
//! Leaves to others: directories and names (`dir.rs`), and aligned buffers (`../pool.rs`).

use crate::{FileAttributes, FileLock, FileRead, FileWrite};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::cached;
use super::claims::{self, Id};
use super::gift;
use super::record_lock;
use super::stat::stat_from;
use crate::storage::{File, OpenHow, Stat, Via, ZeroedSpace};

/// The alignment of addresses, offsets and lengths that suffices for `O_DIRECT` on every device we know.
const ALIGN: usize = 4096;

/// `RWF_DONTCACHE` of Linux 6.14, `fs.h`.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// From Linux `fcntl.h`; the same on every architecture.
const F_SETSIG: libc::c_int = 10;

#[derive(Debug)]
pub(super) struct HostFile {
    /// `None` only while the file is being dropped.
    fd: Option<OwnedFd>,
    id: Id,
    kind: FileType,
    writable: bool,
    /// `None` inside: the file system has no `O_DIRECT`. `OnceLock` ensures that it is opened at most once; opening
    /// and closing a second descriptor would end this process's POSIX locks on the file.
    direct: OnceLock<Option<OwnedFd>>,
    direct_refused: AtomicBool,
    dontcache_refused: AtomicBool,
}

/// How a call is cut: `head` bytes up to the first aligned position, then `middle` aligned bytes, then the rest.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    head: usize,
    middle: usize,
}

impl Cut {
    /// `None` if the address and the offset are never aligned together, or only for too few bytes.
    fn new(address: usize, offset: u64, len: usize) -> Option<Self> {
        let head = address.wrapping_neg() % ALIGN;
        let first = offset.checked_add(head as u64)?;
        let middle = len.checked_sub(head)? / ALIGN * ALIGN;
        (first.is_multiple_of(ALIGN as u64) && middle > 0).then_some(Self { head, middle })
    }
}

/// Refuses offsets beyond `i64`, which the system would take as negative: for `preadv2` and `pwritev2`, -1 means the
/// descriptor's own position.
fn possible(offset: u64, len: usize) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Errno::INVAL.into()),
    }
}

/// Whether the system or a sandbox does not know the call, or the file system does not know the flag. A sandbox may
/// return EPERM; if that refusal is genuine, the plain call repeats it.
fn is_unknown(e: Errno) -> bool {
    matches!(e, Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM)
}

impl HostFile {
    /// Errors: also [`claims::InUse`], if a snapshot claimed the file during the open.
    pub(super) fn new(fd: OwnedFd, how: OpenHow) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        let file = Self {
            fd: Some(fd),
            id: Id::of_raw(&stat),
            kind: FileType::from_raw_mode(stat.st_mode),
            writable: how != OpenHow::Read,
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(false),
            dontcache_refused: AtomicBool::new(false),
        };
        // If this is refused, the descriptor is parked until the claim ends.
        claims::check(file.id)?;
        Ok(file)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("only dropping takes the descriptor"),
        }
    }

    pub(super) fn kind(&self) -> FileType {
        self.kind
    }

    /// The descriptor for direct transfers; `None` if the file system has none.
    fn direct(&self) -> Option<BorrowedFd<'_>> {
        if self.direct_refused.load(Relaxed) {
            return None;
        }
        let open = || {
            let access = if self.writable {
                OFlags::RDWR
            } else {
                OFlags::RDONLY
            };
            let flags = access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let path = format!("/proc/self/fd/{}", self.fd().as_raw_fd());
            // After a refusal for any reason, the file can still be read through the page cache.
            rustix::fs::open(path, flags, Mode::empty()).ok()
        };
        self.direct.get_or_init(open).as_ref().map(|fd| fd.as_fd())
    }

    /// How to make this call directly; `None` if that is not possible.
    fn cut(&self, via: Via, buf: &[u8], offset: u64) -> Option<(Cut, BorrowedFd<'_>)> {
        if via != Via::Direct {
            return None;
        }
        let cut = Cut::new(buf.as_ptr() as usize, offset, buf.len())?;
        Some((cut, self.direct()?))
    }

    /// Makes a call that was cut: `part(range, directly)` transfers one range of the buffer.
    fn in_parts(
        cut: &Cut,
        len: usize,
        mut part: impl FnMut(Range<usize>, bool) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let middle_end = cut.head + cut.middle;
        let parts = [
            (0..cut.head, false),
            (cut.head..middle_end, true),
            (middle_end..len, false),
        ];
        let mut done = 0;
        for (range, directly) in parts {
            if range.is_empty() {
                continue;
            }
            let end = range.end;
            match part(range, directly) {
                Ok(n) => done += n,
                // The earlier parts were transferred; the error will return with the next call.
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
            if done < end {
                break;
            }
        }
        Ok(done)
    }

    fn fallocate(&self, flags: FallocateFlags, range: Range<u64>) -> io::Result<()> {
        let Some(len) = range.end.checked_sub(range.start).filter(|len| *len > 0) else {
            return Ok(());
        };
        let call = || rustix::fs::fallocate(self.fd(), flags, range.start, len);
        match rustix::io::retry_on_intr(call) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            called => Ok(called?),
        }
    }

    fn read_dontcache(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.dontcache_refused.load(Relaxed) {
            match rustix::io::preadv2(self.fd(), &mut [IoSliceMut::new(buf)], offset, DONTCACHE) {
                Err(e) if is_unknown(e) => self.dontcache_refused.store(true, Relaxed),
                read => return Ok(read?),
            }
        }
        Ok(rustix::io::pread(self.fd(), buf, offset)?)
    }

    fn write_dontcache(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        if !self.dontcache_refused.load(Relaxed) {
            match rustix::io::pwritev2(self.fd(), &[IoSlice::new(buf)], offset, DONTCACHE) {
                Err(e) if is_unknown(e) => self.dontcache_refused.store(true, Relaxed),
                written => return Ok(written?),
            }
        }
        Ok(rustix::io::pwrite(self.fd(), buf, offset)?)
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            let direct = self.direct.take().flatten();
            claims::close(self.id, [Some(fd), direct]);
        }
    }
}

impl FileRead for HostFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
        possible(offset, buf.len())?;
        if via == Via::Cache {
            return Ok(rustix::io::pread(self.fd(), buf, offset)?);
        }
        let Some((cut, direct)) = self.cut(via, buf, offset) else {
            return self.read_dontcache(buf, offset);
        };
        Self::in_parts(&cut, buf.len(), |range, directly| {
            let at = offset + range.start as u64;
            if directly {
                match rustix::io::pread(direct, &mut buf[range.clone()], at) {
                    Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                        self.direct_refused.store(true, Relaxed)
                    }
                    read => return Ok(read?),
                }
            }
            self.read_dontcache(&mut buf[range], at)
        })
    }

    fn stat(&self) -> io::Result<Stat> {
        let raw = rustix::fs::fstat(self.fd())?;
        let mut stat = stat_from(&raw);
        if FileType::from_raw_mode(raw.st_mode) == FileType::BlockDevice {
            // Moving the descriptor's position is harmless: every transfer names its offset.
            stat.len = rustix::fs::seek(self.fd(), SeekFrom::End(0))?;
        }
        Ok(stat)
    }

    fn identity(&self) -> Option<String> {
        let raw = rustix::fs::fstat(self.fd()).ok()?;
        let (major, minor) = (
            rustix::fs::major(raw.st_rdev),
            rustix::fs::minor(raw.st_rdev),
        );
        let device = FileType::from_raw_mode(raw.st_mode) == FileType::BlockDevice;
        device.then(|| crate::identity::disk_identity((major, minor)))?
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        cached::is_cached(self.fd(), range)
    }

    fn drop_cached(&self) {
        // The call is advice, and whoever gave it compares the bytes all the same.
        let _advised = rustix::fs::fadvise(self.fd(), 0, None, rustix::fs::Advice::DontNeed);
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        // Moving the descriptor's position is harmless: every transfer names its offset.
        let start = match rustix::fs::seek(self.fd(), SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                let len = self.stat()?.len;
                return Ok((offset < len).then_some(offset..len));
            }
            Err(e) => return Err(e.into()),
        };
        match rustix::fs::seek(self.fd(), SeekFrom::Hole(start)) {
            Ok(end) => Ok(Some(start..end)),
            // The file was truncated between the two calls.
            Err(Errno::NXIO) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn reflink(&self) -> Option<Arc<dyn File>> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.fd().as_raw_fd())).ok()?;
        // O_EXCL: the file can never be given a name.
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let copy = rustix::fs::open(path.parent()?, flags, Mode::from_raw_mode(0o600)).ok()?;
        rustix::fs::ioctl_ficlone(&copy, self.fd()).ok()?;
        Some(Arc::new(Self::new(copy, OpenHow::ReadWrite).ok()?))
    }
}

impl FileWrite for HostFile {
    fn write_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<usize> {
        possible(offset, buf.len())?;
        if via == Via::Cache {
            return Ok(rustix::io::pwrite(self.fd(), buf, offset)?);
        }
        let Some((cut, direct)) = self.cut(via, buf, offset) else {
            return self.write_dontcache(buf, offset);
        };
        Self::in_parts(&cut, buf.len(), |range, directly| {
            let at = offset + range.start as u64;
            if directly {
                match rustix::io::pwrite(direct, &buf[range.clone()], at) {
                    Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                        self.direct_refused.store(true, Relaxed)
                    }
                    written => return Ok(written?),
                }
            }
            self.write_dontcache(&buf[range], at)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::fs::ftruncate(self.fd(), len)
        })?)
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.fallocate(FallocateFlags::KEEP_SIZE, range)
    }

    fn free_unwritten(&self) -> io::Result<()> {
        let len = self.stat()?.len;
        let mut at = 0;
        while at < len {
            // Reserved space that was never written reads as a hole, and the system reports it as one.
            let data = self.next_data(at)?.unwrap_or(len..len);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            self.fallocate(flags, at..data.start)?;
            at = data.end;
        }
        Ok(())
    }

    fn zero(&self, range: Range<u64>, space: ZeroedSpace) -> io::Result<bool> {
        let Some(len) = range.end.checked_sub(range.start).filter(|len| *len > 0) else {
            return Ok(true);
        };
        let kind = match space {
            ZeroedSpace::Freed => FallocateFlags::PUNCH_HOLE,
            ZeroedSpace::Kept => FallocateFlags::ZERO_RANGE,
        };
        let flags = kind | FallocateFlags::KEEP_SIZE;
        let call = || rustix::fs::fallocate(self.fd(), flags, range.start, len);
        match rustix::io::retry_on_intr(call) {
            // A block device accepts only whole blocks.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            called => called.map(|()| true).map_err(Into::into),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::fs::fdatasync(self.fd())
        })?)
    }

    fn sync_with_times(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(self.fd()))?)
    }
}

impl FileAttributes for HostFile {
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(
            self.fd(),
            Mode::from_raw_mode(mode & 0o7777),
        )?)
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        let stat = rustix::fs::fstat(self.fd())?;
        if !gift::is_ours(&stat) {
            return Ok(false);
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            let text = "a file with other names is not given away";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        gift::give(self.fd(), owner)
    }
}

impl FileLock for HostFile {
    fn try_lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(self.fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(Errno::BADF) => Err(io::ErrorKind::PermissionDenied.into()),
            Err(e) => Err(e.into()),
        }
    }

    fn try_lock_range(&self, range: Range<u64>, exclusive: bool) -> io::Result<bool> {
        let kind = match exclusive {
            true => libc::F_WRLCK,
            false => libc::F_RDLCK,
        };
        match record_lock::set(self.fd(), range, kind) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            locked => locked.map(|()| true),
        }
    }

    fn unlock_range(&self, range: Range<u64>) -> io::Result<()> {
        record_lock::set(self.fd(), range, libc::F_UNLCK)
    }

    /// The kernel grants a write lease only on a file that has no other handle.
    fn is_open_elsewhere(&self) -> io::Result<bool> {
        self.is_lease_refused(libc::F_WRLCK)
    }

    /// The kernel grants a read lease only on a file that nobody has open for writing.
    fn is_written_elsewhere(&self) -> io::Result<bool> {
        self.is_lease_refused(libc::F_RDLCK)
    }
}

impl HostFile {
    /// Whether other handles keep the kernel from granting a lease of this kind; the lease is given back at once.
    fn is_lease_refused(&self, kind: libc::c_int) -> io::Result<bool> {
        let set = |command, argument: libc::c_int| {
            // SAFETY: fcntl demands an open descriptor, and for both commands an integer.
            match unsafe { libc::fcntl(self.fd().as_raw_fd(), command, argument) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // If another process opens the file while we hold the lease, the kernel signals us: by SIGIO, which ends a
        // process, unless another signal is chosen. SIGURG is ignored by default.
        set(F_SETSIG, libc::SIGURG)?;
        match set(libc::F_SETLEASE, kind) {
            Ok(()) => set(libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_call_is_all_middle_and_an_odd_length_leaves_a_tail() {
        assert_eq!(
            Cut::new(8192, 4096, 8192),
            Some(Cut {
                head: 0,
                middle: 8192
            })
        );
        assert_eq!(
            Cut::new(8192, 4096, 8195),
            Some(Cut {
                head: 0,
                middle: 8192
            })
        );
    }

    #[test]
    fn address_and_offset_that_become_aligned_together_leave_a_head() {
        assert_eq!(
            Cut::new(8192 + 100, 100, 8192),
            Some(Cut {
                head: 3996,
                middle: 4096
            })
        );
    }

    #[test]
    fn an_unaligned_or_short_extent_is_not_cut() {
        assert_eq!(Cut::new(8192 + 100, 4096, 1 << 20), None);
        assert_eq!(Cut::new(8192, 1, 1 << 20), None);
        assert_eq!(Cut::new(8192, 0, 4095), None);
        assert_eq!(Cut::new(1, 1, 4095), None);
        assert_eq!(Cut::new(1, u64::MAX, 8192), None);
        assert_eq!(Cut::new(4096, 0, 0), None);
    }

    #[test]
    fn unwritten_space_is_given_back_to_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let path = dir.path().join("file");
        let fd = rustix::fs::open(&path, how, Mode::from_raw_mode(0o600)).unwrap();
        let file = HostFile::new(fd, OpenHow::ReadWrite).unwrap();
        file.set_len(8 << 20).unwrap();
        file.allocate(0..8 << 20).unwrap();
        let blocks = |file: &HostFile| rustix::fs::fstat(file.fd()).unwrap().st_blocks * 512;
        let reserved = blocks(&file);
        (&file as &dyn File)
            .write_all_at(&[1; 100], 5 << 20, Via::Cache)
            .unwrap();
        file.free_unwritten().unwrap();
        // A file system that cannot reserve space has nothing to give back.
        assert!(
            blocks(&file) < 1 << 20,
            "{reserved} and then {}",
            blocks(&file)
        );
        let mut found = [0; 200];
        (&file as &dyn File)
            .read_exact_at(&mut found, 5 << 20, Via::Cache)
            .unwrap();
        assert_eq!(
            (&found[..100], &found[100..]),
            (&[1; 100][..], &[0; 100][..])
        );
    }
}
