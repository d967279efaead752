//! Open files that a part of a restore may keep.

use longshore_io::facts;

/// Files that a run has open beside those of its workers and stripes: directories, locks, the history.
pub const FILES_OWN: u64 = 8;

/// How many files of `most` a part of a run may keep open: a quarter of what is left to the process now.
pub fn files_of(most: usize) -> usize {
    let now = facts::descriptors();
    let left = now.allowed.map_or(u64::MAX, |allowed| {
        allowed.saturating_sub(now.open + FILES_OWN)
    });
    most.min(usize::try_from(left / 4).unwrap_or(most)).max(1)
}
