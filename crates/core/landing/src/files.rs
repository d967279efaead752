//! How many open files a part of a restore may keep.

use longshore_facts as facts;

/// Files that a run has open in addition to those of its workers and stripes: directories, locks, the history.
pub const FILES_OWN: u64 = 8;

/// How many of `most` files a part of a run may keep open: a quarter of what the process has left now.
pub fn files_of(most: usize) -> usize {
    let now = facts::descriptors();
    let left = now.allowed.map_or(u64::MAX, |allowed| {
        allowed.saturating_sub(now.open + FILES_OWN)
    });
    most.min(usize::try_from(left / 4).unwrap_or(most)).max(1)
}
