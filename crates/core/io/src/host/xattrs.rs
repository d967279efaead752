//! Extended attributes of a name below a directory descriptor.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::beneath::At;
use crate::xattr::{Xattr, Xattrs};

/// Buffer for the names in the first call, in bytes; most files have no attributes.
const LIST_BYTES: usize = 1 << 10;
/// Buffer for a value in the first call, in bytes: an access control list has 4 bytes and 8 for each entry.
const VALUE_BYTES: usize = 1 << 10;
/// The system's own limit for all names and for one value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const SYSTEM_MAX: usize = 64 << 10;
/// How many times a list or value that grows between two calls is read again.
const TRIES: usize = 8;

/// The path of the name below `/proc`. Nothing is opened: closing any descriptor of a SQLite database would drop the
/// locks that this process holds on it.
fn reach(at: &At<'_>) -> io::Result<CString> {
    let mut path = format!("/proc/self/fd/{}/", at.dir().as_raw_fd()).into_bytes();
    path.extend_from_slice(at.last().as_bytes());
    Ok(CString::new(path)?)
}

/// Repeats the call with a larger buffer until the result fits.
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

/// Whether the file system has no attributes, or none for files of this kind.
fn is_unsupported(e: Errno) -> bool {
    matches!(e, Errno::NOTSUP | Errno::NOSYS | Errno::NOTTY)
}

pub(super) fn read(at: &At<'_>) -> io::Result<Xattrs> {
    let path = reach(at)?;
    let names = match whole(LIST_BYTES, |buf| rustix::fs::llistxattr(&*path, buf)) {
        Err(e) if is_unsupported(e) => return Ok(Xattrs::default()),
        names => names?,
    };
    let mut found = Xattrs::default();
    let names = names.split(|byte| *byte == 0).filter(|n| !n.is_empty());
    let (mut names, unkept): (Vec<&[u8]>, Vec<&[u8]>) = names.partition(|n| Xattr::is_kept(n));
    let told = unkept.into_iter().filter(|n| !Xattr::is_signature(n));
    found.unkept = told.map(<[u8]>::to_vec).collect();
    names.sort_unstable();
    for name in names {
        let get = |buf: &mut [u8]| rustix::fs::lgetxattr(&*path, OsStr::from_bytes(name), buf);
        match whole(VALUE_BYTES, get) {
            Ok(value) => found.read.push(Xattr {
                name: name.to_owned(),
                value,
            }),
            // The attribute was removed after it was listed.
            Err(Errno::NODATA) => {}
            Err(e) if is_unsupported(e) => {}
            Err(Errno::PERM | Errno::ACCESS) => found.refused += 1,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

pub(super) fn set(at: &At<'_>, xattr: &Xattr) -> io::Result<()> {
    let (path, name) = (reach(at)?, OsStr::from_bytes(&xattr.name));
    let flags = XattrFlags::empty();
    Ok(rustix::fs::lsetxattr(&*path, name, &xattr.value, flags)?)
}

pub(super) fn remove(at: &At<'_>, name: &[u8]) -> io::Result<()> {
    match rustix::fs::lremovexattr(&*reach(at)?, OsStr::from_bytes(name)) {
        Err(Errno::NODATA) => Ok(()),
        Err(e) if is_unsupported(e) => Ok(()),
        removed => Ok(removed?),
    }
}
