//! Files that are opened by the path that a person named, not below a directory.

use std::io;
use std::path::Path;

use rustix::fs::{Advice, Mode, OFlags};

use super::claims;
use super::file::HostFile;
use crate::storage::OpenHow;

/// Opens a file by its path, unless it is claimed. Symbolic links are followed.
pub(super) fn open_named(path: &Path, flags: OFlags, how: OpenHow) -> io::Result<HostFile> {
    if claims::any() {
        let named = rustix::fs::stat(path)?;
        claims::check(claims::Id::of_raw(&named))?;
    }
    let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
    HostFile::new(fd, how)
}

/// Makes a file durable and asks the system to drop it from the page cache, for measurements that start cold. Pages
/// that other processes have mapped or locked stay.
pub fn drop_from_cache(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let file = open_named(path, flags, OpenHow::Read)?;
    rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file.fd()))?;
    Ok(rustix::fs::fadvise(file.fd(), 0, None, Advice::DontNeed)?)
}
