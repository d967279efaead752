//! A file that several blocks write to: how far it is, and which space to reserve next. `blocks.rs` opens and completes it.

use std::ops::Range;
use std::sync::Arc;

use longshore_io::File;
use longshore_media::Entry;

/// Files kept open between blocks; more are closed and opened again.
pub(super) const OPEN_MAX: usize = 256;
/// Buffers of this size or more are written past the page cache.
pub(super) const DIRECT_FROM: usize = 128 << 10;
/// Files of this size or more get their length and their space before their bytes.
const RESERVE_FROM: u64 = 4 << 20;
/// Space that is reserved at a time, in bytes.
const RESERVE_BYTES: u64 = 64 << 20;

/// A file that several blocks write to.
pub(super) struct Growing {
    pub(super) file: Option<Arc<dyn File>>,
    pub(super) written: u64,
    /// The block that introduces the file has been here: workers may take blocks in another order.
    pub(super) introduced: bool,
    pub(super) entry: Entry,
    /// Where the reserved space ends.
    pub(super) reserved_to: u64,
    /// How much of it is not written yet.
    pub(super) reserved: u64,
}

impl Growing {
    pub(super) fn is_whole(&self) -> bool {
        self.introduced && self.written >= self.entry.len
    }

    /// What to reserve before something is written up to `end`, if anything.
    ///
    /// On file systems where every write to new space waits for all others of the file (ext4), writing to
    /// reserved space takes half the CPU and keeps the device busy from several threads.
    pub(super) fn reservation(&self, start: u64, end: u64) -> Option<Range<u64>> {
        let wanted = self.entry.len >= RESERVE_FROM && end > self.reserved_to;
        let from = self.reserved_to.max(start);
        wanted.then(|| from..(from + RESERVE_BYTES).min(self.entry.len))
    }
}
