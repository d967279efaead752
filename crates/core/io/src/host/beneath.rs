//! Resolves a name below a directory descriptor without ever leaving that directory.
//!
//! `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS` does this in one atomic call. Kernels before 5.6 and some
//! sandboxes lack it; there each component is opened separately with `O_NOFOLLOW`. That is as strict, because a name
//! here has no `..` (see [`crate::names`]).
//!
//! Invariants
//! - No symbolic link is followed, neither on the way nor as the last component.
//! - A name of one component needs no walk: it cannot leave the directory if the call does not follow links.
//! - Both ways find the same files; only their speed differs.
//!
//! Leaves to others: names without `..` and without a root (`names.rs`), and the choice of the way ([`has_openat2`] is
//! asked once, in `host/mod.rs`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::names;

/// Whether this kernel and the sandbox, if any, allow `openat2`.
pub(super) fn has_openat2() -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(
        rustix::fs::CWD,
        "/",
        flags,
        Mode::empty(),
        ResolveFlags::empty(),
    )
    .is_ok()
}

/// Opens `normal`, a name from [`names::normal`]; an empty name is `root` itself.
pub(super) fn open(
    root: BorrowedFd<'_>,
    normal: &Path,
    flags: OFlags,
    mode: Mode,
    walk: bool,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some((parent, last)) = names::split(normal) else {
        return openat(root, OsStr::new("."), flags, mode);
    };
    if parent.as_os_str().is_empty() {
        return openat(root, last, flags, mode);
    }
    if walk {
        return openat(step_down(root, parent)?.as_fd(), last, flags, mode);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::io::retry_on_intr(|| rustix::fs::openat2(root, normal, flags, mode, resolve))
}

fn openat(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, mode))
}

fn step_down(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for part in path {
        let from = at.as_ref().map_or(root, |fd| fd.as_fd());
        at = Some(openat(from, part, flags, Mode::empty())?);
    }
    at.ok_or(Errno::NOENT)
}

/// A directory and one component in it: the arguments of the `*at` system calls.
pub(super) struct At<'a> {
    root: BorrowedFd<'a>,
    parent: Option<OwnedFd>,
    last: &'a OsStr,
}

impl<'a> At<'a> {
    /// Finds `normal`, a name from [`names::normal`]; an empty name gives the component `.` of `root`.
    pub(super) fn find(root: BorrowedFd<'a>, normal: &'a Path, walk: bool) -> io::Result<Self> {
        let Some((parent, last)) = names::split(normal) else {
            return Ok(Self {
                root,
                parent: None,
                last: OsStr::new("."),
            });
        };
        let parent = match parent.as_os_str().is_empty() {
            true => None,
            false => Some(open(
                root,
                parent,
                OFlags::PATH | OFlags::DIRECTORY,
                Mode::empty(),
                walk,
            )?),
        };
        Ok(Self { root, parent, last })
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.parent.as_ref().map_or(self.root, |fd| fd.as_fd())
    }

    pub(super) fn last(&self) -> &OsStr {
        self.last
    }
}
