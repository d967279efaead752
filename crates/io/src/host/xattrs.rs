//! Extended attributes of a name below a directory's descriptor.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::beneath::Place;
use crate::xattr::{Xattr, Xattrs};

/// Bytes of names that one call asks for at first; most files have none.
const LIST_BYTES: usize = 1 << 10;
/// Bytes of a value that one call asks for at first: an access control list has 4 and 8 for each entry.
const VALUE_BYTES: usize = 1 << 10;
/// What the system's own limit for names and for a value is (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const SYSTEM_MAX: usize = 64 << 10;
/// How often a list or a value may grow between two calls.
const TRIES: usize = 8;

/// The name by way of `/proc`. Nothing is opened: closing any descriptor of a SQLite database drops the locks that this
/// process may hold on it.
fn reach(at: &Place<'_>) -> io::Result<CString> {
    let mut path = format!("/proc/self/fd/{}/", at.dir().as_raw_fd()).into_bytes();
    path.extend_from_slice(at.last().as_bytes());
    Ok(CString::new(path)?)
}

/// Calls with a longer buffer until what is there fits.
fn whole(
    first: usize,
    call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; first];
    for _ in 0..TRIES {
        match call(&mut buf) {
            Err(Errno::RANGE) if buf.len() < SYSTEM_MAX => buf.resize(SYSTEM_MAX, 0),
            Err(e) => return Err(e),
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
        }
    }
    Err(Errno::RANGE)
}

/// Whether the file system has no attributes, or none for such a file.
fn is_unsupported(e: Errno) -> bool {
    matches!(e, Errno::NOTSUP | Errno::NOSYS | Errno::NOTTY)
}

pub(super) fn read(at: &Place<'_>) -> io::Result<Xattrs> {
    let path = reach(at)?;
    let names = match whole(LIST_BYTES, |buf| rustix::fs::llistxattr(&*path, buf)) {
        Err(e) if is_unsupported(e) => return Ok(Xattrs::default()),
        names => names?,
    };
    let mut found = Xattrs::default();
    let mut names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| Xattr::is_kept(name))
        .collect();
    names.sort_unstable();
    for name in names {
        let get = |buf: &mut [u8]| rustix::fs::lgetxattr(&*path, OsStr::from_bytes(name), buf);
        match whole(VALUE_BYTES, get) {
            Ok(value) => found.read.push(Xattr {
                name: name.to_owned(),
                value,
            }),
            // Removed since it was listed.
            Err(Errno::NODATA) => {}
            Err(e) if is_unsupported(e) => {}
            Err(Errno::PERM | Errno::ACCESS) => found.refused += 1,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

pub(super) fn set(at: &Place<'_>, xattr: &Xattr) -> io::Result<()> {
    let (path, name) = (reach(at)?, OsStr::from_bytes(&xattr.name));
    let flags = XattrFlags::empty();
    Ok(rustix::fs::lsetxattr(&*path, name, &xattr.value, flags)?)
}

pub(super) fn remove(at: &Place<'_>, name: &[u8]) -> io::Result<()> {
    match rustix::fs::lremovexattr(&*reach(at)?, OsStr::from_bytes(name)) {
        Err(Errno::NODATA) => Ok(()),
        Err(e) if is_unsupported(e) => Ok(()),
        removed => Ok(removed?),
    }
}
