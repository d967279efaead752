//! The chunk being compressed, where every position can be read without a check.

use super::CHUNK_BYTES_MAX;

/// Positions lie in `0..65536`. Each accessor cuts its position to that range, which tells the
/// compiler that no check is needed; behind the last position there are bytes to read, all zero
/// behind the chunk's end.
pub(super) struct Window {
    bytes: Box<[u8; CHUNK_BYTES_MAX + READ_BEYOND]>,
    len: usize,
}

const READ_BEYOND: usize = 8;
const POSITION: usize = CHUNK_BYTES_MAX - 1;

impl Window {
    pub(super) fn new() -> Window {
        Window {
            bytes: Box::new([0; CHUNK_BYTES_MAX + READ_BEYOND]),
            len: 0,
        }
    }

    /// Takes in a chunk of at most 65536 bytes.
    pub(super) fn fill(&mut self, chunk: &[u8]) {
        self.len = chunk.len();
        self.bytes[..chunk.len()].copy_from_slice(chunk);
        self.bytes[chunk.len()..chunk.len() + READ_BEYOND].fill(0);
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes from `from` to `to`.
    pub(super) fn slice(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[from..to]
    }

    #[inline(always)]
    pub(super) fn byte(&self, at: usize) -> u8 {
        self.bytes[at & POSITION]
    }

    /// Eight bytes from `at` on, the first one lowest.
    #[inline(always)]
    pub(super) fn u64_at(&self, at: usize) -> u64 {
        let at = at & POSITION;
        let bytes = self.bytes[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("eight of them"))
    }

    /// How many bytes from `a` and `b` on are equal, at most `max`; the first `known` are.
    #[inline(always)]
    pub(super) fn common(&self, a: usize, b: usize, known: usize, max: usize) -> usize {
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
pub(super) fn equal_bytes(differing: u64) -> usize {
    differing.trailing_zeros() as usize / 8
}
