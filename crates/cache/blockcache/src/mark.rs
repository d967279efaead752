//! Distinguishes a backend from another one without reading it.

use std::io;
use std::path::Path;

use longshore_io::{File, FileKind, Storage, boot_id};

use crate::format::BackendMark;

/// The backend's length and identity now.
pub(crate) fn mark(backend: &dyn File) -> io::Result<BackendMark> {
    let stat = backend.stat()?;
    let identity = || backend.identity().map_or(0, |names| hash(names.as_bytes()));
    Ok(match stat.kind {
        FileKind::File => BackendMark {
            len_bytes: stat.len,
            inode: stat.ino,
            changed_ns: stat.ctime_ns,
            dev: stat.dev,
            birth_ns: None,
        },
        _ => BackendMark {
            len_bytes: stat.len,
            inode: identity(),
            // A block device's times do not depend on its content.
            changed_ns: 0,
            dev: 0,
            birth_ns: None,
        },
    })
}

/// The same with the birth of the file, which is at `path`. `None` also where another machine may write to the file, or
/// give it times: on a network's file system, and on FUSE.
pub(crate) fn mark_at(
    storage: &dyn Storage,
    backend: &dyn File,
    path: &Path,
) -> io::Result<BackendMark> {
    let mut mark = mark(backend)?;
    if backend.stat()?.kind != FileKind::File {
        return Ok(mark);
    }
    let path = storage.canonical(path)?;
    let found = storage.stat(&path)?;
    let is_the_same = (found.dev, found.ino) == (mark.dev, mark.inode);
    if let (true, Some(parent), Some(name)) = (is_the_same, path.parent(), path.file_name())
        && storage.dir(parent)?.keeps_locks(Path::new(name))?
    {
        mark.birth_ns = storage.birth_ns(&path)?.filter(|at| *at != 0);
    }
    Ok(mark)
}

/// The present boot of this machine; 0 if the system does not tell.
pub(crate) fn boot() -> u64 {
    boot_id().map_or(0, |id| hash(id.as_bytes()))
}

/// FNV-1a, which the format names; never 0.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}
