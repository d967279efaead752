//! The bytes being compressed, where every position can be read without a check.

/// Positions lie in `0..SIZE`, a power of two. Each accessor masks its position to that range, which tells the
/// compiler that no check is needed. After the last position there are readable bytes, all zero after the content's
/// end. `ROOM` is `SIZE` plus [`READ_BEYOND`].
pub(crate) struct Window<const SIZE: usize, const ROOM: usize> {
    bytes: Box<[u8; ROOM]>,
    len: usize,
}

pub(crate) const READ_BEYOND: usize = 8;

impl<const SIZE: usize, const ROOM: usize> Window<SIZE, ROOM> {
    const POSITION: usize = SIZE - 1;

    pub(crate) fn new() -> Window<SIZE, ROOM> {
        const { assert!(SIZE.is_power_of_two() && ROOM == SIZE + READ_BEYOND) };
        let zeros = vec![0; ROOM].into_boxed_slice().try_into();
        Window {
            bytes: zeros.expect("as long as asked for"),
            len: 0,
        }
    }

    /// Loads at most `SIZE` bytes.
    pub(crate) fn fill(&mut self, content: &[u8]) {
        self.len = content.len();
        self.bytes[..content.len()].copy_from_slice(content);
        self.bytes[content.len()..content.len() + READ_BEYOND].fill(0);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes from `from` to `to`.
    pub(crate) fn slice(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[from..to]
    }

    #[inline(always)]
    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.bytes[at & Self::POSITION]
    }

    /// Eight bytes from `at` on, the first one lowest.
    #[inline(always)]
    pub(crate) fn u64_at(&self, at: usize) -> u64 {
        let at = at & Self::POSITION;
        let bytes = self.bytes[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("eight of them"))
    }

    /// How many bytes from `a` and `b` on are equal, at most `max`; the first `known` are known to be.
    #[inline(always)]
    pub(crate) fn common(&self, a: usize, b: usize, known: usize, max: usize) -> usize {
        let mut len = known;
        while len < max {
            let differing = self.u64_at(a + len) ^ self.u64_at(b + len);
            if differing != 0 {
                return (len + equal_bytes(differing)).min(max);
            }
            len += 8;
        }
        max
    }
}

/// How many bytes are equal, 0 to 8, in two words whose difference (by XOR) is `differing`.
#[inline(always)]
pub(crate) fn equal_bytes(differing: u64) -> usize {
    differing.trailing_zeros() as usize / 8
}

/// A hash of `BITS` bits, of the eight bytes in `next`.
#[inline(always)]
pub(crate) fn hash8<const BITS: u32>(next: u64) -> usize {
    (next.wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - BITS)) as usize
}

/// A hash of `BITS` bits, of the first four bytes in `next`.
#[inline(always)]
pub(crate) fn hash4<const BITS: u32>(next: u64) -> usize {
    ((next as u32).wrapping_mul(0x9E37_79B1) >> (32 - BITS)) as usize
}
