//! Files and directories that change their owner, by an open descriptor.
//!
//! Invariants
//! - No name is resolved: whoever may change names in a directory cannot have another file given.
//! - A file of a third user is not given.
//!
//! Leaves to others: the kind of a file, its other names (`file.rs`), and the content of a directory (`dir.rs`).

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{Gid, Stat, Uid};
use rustix::io::Errno;

/// True if it belongs to this process's effective user.
pub(super) fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Gives it, if the system allows; `true` then.
pub(super) fn give(fd: BorrowedFd<'_>, (uid, gid): (u32, u32)) -> io::Result<bool> {
    match rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
        // EINVAL: our user namespace has no such number.
        Err(Errno::PERM | Errno::INVAL) => Err(io::ErrorKind::PermissionDenied.into()),
        given => Ok(given.map(|()| true)?),
    }
}
