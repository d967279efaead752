//! The bit stream: bits fill each byte from its lowest bit on.

/// Puts bits into a buffer that may be too short.
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    /// Whole bytes put so far. May exceed the buffer: bytes beyond it are not written.
    len: usize,
    /// The last `pending` bits are in no whole byte yet.
    bits: u64,
    pending: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Writer<'a> {
        Writer {
            out,
            len: 0,
            bits: 0,
            pending: 0,
        }
    }

    /// Appends a code given as `code << 4 | length`. At most 56 bits go between two flushes.
    #[inline(always)]
    pub(super) fn put_code(&mut self, code: u32) {
        self.put(code >> 4, code & 15);
    }

    /// Appends `bits`, which are `count` bits. At most 56 bits go between two flushes.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u32, count: u32) {
        self.bits |= u64::from(bits) << self.pending;
        self.pending += count;
    }

    /// Moves whole bytes out.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        let bytes = self.bits.to_le_bytes();
        let whole = (self.pending / 8) as usize;
        if let Some(place) = self.out.get_mut(self.len..self.len + 8) {
            place.copy_from_slice(&bytes);
        } else if let Some(place) = self.out.get_mut(self.len..) {
            let len = whole.min(place.len());
            place[..len].copy_from_slice(&bytes[..len]);
        }
        self.len += whole;
        self.bits >>= whole * 8;
        self.pending %= 8;
    }

    /// Whether everything put so far was written.
    pub(super) fn fits(&self) -> bool {
        self.len <= self.out.len()
    }

    /// Fills up the last byte; returns the length, or `None` if it did not fit.
    pub(super) fn finish(mut self) -> Option<usize> {
        self.pending = self.pending.next_multiple_of(8);
        self.flush();
        self.fits().then_some(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_fill_bytes_from_the_lowest_on_and_stop_at_the_end_of_the_room() {
        let mut out = [0x77; 12];
        let mut bits = Writer::new(&mut out[..10]);
        bits.put(0b1, 1);
        bits.put(0b10, 2);
        bits.put_code(0x1234 << 4 | 13);
        bits.flush();
        assert_eq!(bits.finish(), Some(2));
        assert_eq!(u16::from_le_bytes([out[0], out[1]]), 0x1234 << 3 | 0b101);
        for room in 0..=11 {
            let mut out = [0x77; 20];
            let mut bits = Writer::new(&mut out[..room]);
            for byte in 1..=11 {
                bits.put(byte, 8);
                bits.flush();
            }
            assert_eq!(bits.finish(), (room == 11).then_some(11));
            let written = out[..room].iter().zip(1..);
            assert!(written.fold(true, |same, (byte, i)| same && *byte == i));
            assert!(out[room..].iter().all(|byte| *byte == 0x77));
        }
    }
}
