//! A file written by several blocks: its progress, and the space to reserve next. `blocks.rs` opens and completes it.

use std::ops::Range;
use std::sync::Arc;

use longshore_io::File;
use longshore_media::Entry;

/// Files kept open between blocks; further files are closed and opened again.
pub(super) const OPEN_MAX: usize = 256;
/// Buffers of at least this size are written without the page cache.
pub(super) const DIRECT_FROM: usize = 128 << 10;
/// Files of at least this size get their length and their space before their bytes.
const RESERVE_FROM: u64 = 4 << 20;
/// Space reserved at a time, in bytes.
const RESERVE_BYTES: u64 = 64 << 20;

/// A file written by several blocks.
pub(super) struct PartialFile {
    pub(super) file: Option<Arc<dyn File>>,
    pub(super) written_bytes: u64,
    /// Whether the block that introduces the file was written: workers may take blocks in another order.
    pub(super) introduced: bool,
    pub(super) entry: Entry,
    /// End of the reserved space.
    pub(super) reserved_to: u64,
    /// How much of the reserved space is not written yet.
    pub(super) reserved: u64,
}

impl PartialFile {
    pub(super) fn is_whole(&self) -> bool {
        self.introduced && self.written_bytes >= self.entry.len
    }

    /// The range to reserve before a write up to `end`, if any.
    ///
    /// On file systems where every write to new space waits for all other writes of the file (ext4), writing to
    /// reserved space takes half the CPU time and keeps the device busy from several threads.
    pub(super) fn reservation(&self, start: u64, end: u64) -> Option<Range<u64>> {
        let wanted = self.entry.len >= RESERVE_FROM && end > self.reserved_to;
        let from = self.reserved_to.max(start);
        wanted.then(|| from..(from + RESERVE_BYTES).min(self.entry.len))
    }
}
