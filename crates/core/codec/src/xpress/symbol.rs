//! The numbers of a chunk's format, and the symbols of its code.

use crate::window;

/// The most plain bytes in a chunk, and one more than the greatest offset of a match.
pub const CHUNK_BYTES_MAX: usize = 1 << 16;

/// The chunk being compressed.
pub(super) type Window = window::Window<CHUNK_BYTES_MAX, { CHUNK_BYTES_MAX + window::READ_BEYOND }>;

/// 256 literals, then 16 × 16 matches by magnitude of offset and by length.
pub(super) const SYMBOLS: usize = 512;
/// Ends a chunk. As a match it would have offset 1 and length 3.
pub(super) const END_OF_STREAM: usize = 256;
pub(super) const CODE_BITS_MAX: usize = crate::huffman::CODE_BITS_MAX;
/// The code lengths of all symbols.
pub(super) const TABLE_BYTES: usize = SYMBOLS / 2;
pub(super) const MATCH_LEN_MIN: usize = 3;
/// Matches of this length or more have bytes after the symbol for their length: one byte, the length minus this one;
/// or 255 and then two bytes, the length minus the smallest.
pub(super) const LONG_LEN: usize = MATCH_LEN_MIN + 15;
/// Matches from this length on take three such bytes.
pub(super) const VERY_LONG_LEN: usize = LONG_LEN + 255;

/// Some literals and a match after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub literals: u16,
    pub match_len: u16,
    pub offset: u16,
}

impl Sequence {
    pub fn bytes(&self) -> usize {
        self.literals as usize + self.match_len as usize
    }
}

/// The symbol of a match. `offset` is not 0, `len` at least 3.
#[inline(always)]
pub(super) fn match_symbol(len: usize, offset: u16) -> usize {
    256 + (offset_bits(offset) as usize) * 16 + (len - MATCH_LEN_MIN).min(15)
}

/// How many bits of `offset`, which is not 0, follow a match's symbol: all below the highest.
#[inline(always)]
pub(super) fn offset_bits(offset: u16) -> u32 {
    u32::from(offset | 1).ilog2()
}
