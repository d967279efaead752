//! Memory that is filled from its start for one buffer, and again for the next.
//!
//! Invariants
//! - Used bytes were written since the last `clear`.

/// Bytes, of which the first are used. The others are there, so that a copy may write more than it means to.
#[derive(Default)]
pub(super) struct Store {
    bytes: Vec<u8>,
    used: usize,
}

/// How many bytes beyond what it was asked for [`Store::room`] gives, so that short values are copied as 32 bytes.
pub(super) const SLACK: usize = 32;

impl Store {
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Goes back to an earlier length.
    pub(super) fn truncate(&mut self, len: usize) {
        self.used = self.used.min(len);
    }

    /// Bytes that it holds, used or not.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn used(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    pub(super) fn used_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.used]
    }

    /// The next `len` bytes, and [`SLACK`] more; [`Store::advance`] uses them.
    #[inline(always)]
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.used + len + SLACK;
        if self.bytes.len() < end {
            self.grow(end);
        }
        &mut self.bytes[self.used..end]
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        let len = end.max(self.bytes.len() * 2).max(16 << 10);
        self.bytes.resize(len, 0);
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, len: usize) {
        self.used += len;
    }

    #[inline(always)]
    pub(super) fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        self.room(N)[..N].copy_from_slice(&bytes);
        self.used += N;
    }

    #[inline(always)]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }
}
