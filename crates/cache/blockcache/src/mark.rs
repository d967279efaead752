//! Distinguishes a backend from another one without reading it.

use std::io;

use longshore_io::{File, FileKind};

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
        },
        _ => BackendMark {
            len_bytes: stat.len,
            inode: identity(),
            // A block device's times do not depend on its content.
            changed_ns: 0,
        },
    })
}

/// FNV-1a, which the format names; never 0.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}
