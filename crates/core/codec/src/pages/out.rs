//! Where a payload is written.
//!
//! Invariants
//! - Nothing is written beyond the room; what does not fit is dropped, and the payload is then worthless.

/// A payload that grows in memory that is there already.
pub(super) struct Out<'a> {
    room: &'a mut [u8],
    len: usize,
    is_full: bool,
}

impl<'a> Out<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Out<'a> {
        Out {
            room,
            len: 0,
            is_full: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Drops what was appended since it was so long.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Whether something did not fit.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn push(&mut self, byte: u8) {
        self.extend(&[byte]);
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        match self.room[self.len..].get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.is_full = true,
        }
    }

    /// Appends `value` in groups of seven bits, the lowest first; each byte but the last has its top bit set.
    pub(super) fn number(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }
}

/// Bytes that [`Out::number`] appends for `value`.
pub(super) fn number_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}
