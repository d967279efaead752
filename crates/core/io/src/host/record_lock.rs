//! Locks on ranges that belong to an open file or directory, and not to the process.
//!
//! Invariants
//! - A lock ends with the last descriptor of its open file, and conflicts with those of other open files of this process.
//! - A question takes no lock, and needs no right to write.
//!
//! Leaves to others: which ranges are locked, and what a lock means (`file.rs`, `dir.rs`).

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// Takes a lock of this kind, or with `F_UNLCK` gives it back. Never blocks.
pub(super) fn set(fd: impl AsFd, range: Range<u64>, kind: libc::c_int) -> io::Result<()> {
    call(fd, libc::F_OFD_SETLK, range, kind).map(|_| ())
}

/// Whether a lock of this kind would conflict with that of another open file.
pub(super) fn conflicts(fd: impl AsFd, range: Range<u64>, kind: libc::c_int) -> io::Result<bool> {
    let found = call(fd, libc::F_OFD_GETLK, range, kind)?;
    Ok(libc::c_int::from(found) != libc::F_UNLCK)
}

/// The kind of the lock afterwards.
fn call(
    fd: impl AsFd,
    command: libc::c_int,
    range: Range<u64>,
    kind: libc::c_int,
) -> io::Result<libc::c_short> {
    let number = |n: u64| libc::off_t::try_from(n).map_err(|_| io::Error::from(Errno::INVAL));
    let len = range.end.saturating_sub(range.start);
    // SAFETY: `zeroed` demands a type for which zeros are valid: a structure of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = number(range.start)?;
    lock.l_len = number(len)?;
    // SAFETY: fcntl demands an open descriptor and a lock to read and to write: the structure outlives the call.
    let done = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, &raw mut lock) };
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock.l_type),
    }
}
