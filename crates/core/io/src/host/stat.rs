//! Facts about a file, from the system's form to that of the crate's door.

use std::io;
use std::path::Path;

use crate::storage::{FileKind, Stat};

/// Symbolic links are followed.
pub(super) fn at(path: &Path) -> io::Result<Stat> {
    Ok(stat_from(&rustix::fs::stat(path)?))
}

// The widths of these fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
pub(super) fn stat_from(stat: &rustix::fs::Stat) -> Stat {
    let ns = |seconds: i64, nanoseconds: i64| {
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds)
    };
    Stat {
        kind: match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::RegularFile => FileKind::File,
            rustix::fs::FileType::Directory => FileKind::Dir,
            rustix::fs::FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        },
        len: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime_ns: ns(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        ctime_ns: ns(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        dev: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        links: stat.st_nlink as u64,
    }
}

/// The time of creation in nanoseconds since the Unix epoch, if the file system records it.
pub(super) fn birth_of(found: &rustix::fs::Statx) -> Option<i64> {
    let is_kept = found.stx_mask & rustix::fs::StatxFlags::BTIME.bits() != 0;
    let at = found.stx_btime;
    let seconds = at.tv_sec.saturating_mul(1_000_000_000);
    is_kept.then(|| seconds.saturating_add(i64::from(at.tv_nsec)))
}
