//! Huffman codes of symbols, and writing them.
//!
//! Invariants
//! - Codes are canonical: in order of length, and then of symbol.
//! - A bit stream begins with the highest bit of its first byte.
//!
//! Leaves to others: which symbols get codes (`huffman.rs`), and faster ways to write them (`kernel.rs`).

use crate::huffman::lengths;

/// Longest code.
pub(super) const BITS_MAX: usize = 11;
/// Longest code of a stream below [`SHORT`]: its decoding table is filled in less time.
const BITS_MAX_SHORT: usize = 9;
const SHORT: usize = 8192;

/// The codes of all symbols; a symbol without one has length 0.
pub(super) struct CodeBook {
    pub(super) lengths: [u8; 256],
    pub(super) codes: [u16; 256],
}

impl CodeBook {
    /// For at least two symbols that occur.
    pub(super) fn new(counts: &[u32; 256], len: usize) -> CodeBook {
        let lengths = if len < SHORT {
            lengths::<256, BITS_MAX_SHORT>(counts)
        } else {
            lengths::<256, BITS_MAX>(counts)
        };
        let mut codes = [0; 256];
        let mut next = first_codes(&lengths);
        for (code, length) in codes.iter_mut().zip(lengths) {
            if length > 0 {
                *code = next[usize::from(length)];
                next[usize::from(length)] += 1;
            }
        }
        CodeBook { lengths, codes }
    }
}

/// The first code of each length.
pub(super) fn first_codes(lengths: &[u8; 256]) -> [u16; BITS_MAX + 2] {
    let mut of_length = [0u16; BITS_MAX + 1];
    for length in lengths {
        of_length[usize::from(*length)] += 1;
    }
    of_length[0] = 0;
    let mut next = [0; BITS_MAX + 2];
    for length in 1..=BITS_MAX {
        next[length + 1] = (next[length] + of_length[length]) << 1;
    }
    next
}

/// Bytes that a stream's memory has beyond its longest codes: the last stores are of eight bytes each.
pub(super) const STREAM_SLACK: usize = 16;

/// Writes one bit stream to the start of `out`; returns its length.
pub(super) fn encode_one(codes: &CodeBook, plain: &[u8], out: &mut [u8]) -> usize {
    let mut writer = CodeWriter::default();
    for symbols in plain.chunks(4) {
        let (mut bits, mut len) = (0u64, 0);
        for symbol in symbols {
            let length = u32::from(codes.lengths[usize::from(*symbol)]);
            bits = bits << length | u64::from(codes.codes[usize::from(*symbol)]);
            len += length;
        }
        writer.put(out, bits, len);
    }
    writer.end()
}

/// Where a bit stream ends so far.
#[derive(Default, Clone, Copy)]
pub(super) struct CodeWriter {
    /// Whole bytes written.
    at: usize,
    /// The bits after them, from the top.
    word: u64,
    pending: u32,
}

impl CodeWriter {
    /// Appends the lowest `len` bits (1 to 56) of `bits`, above which there are none.
    #[inline(always)]
    pub(super) fn put(&mut self, out: &mut [u8], bits: u64, len: u32) {
        let pending = self.pending + len;
        self.word |= bits << (64 - pending);
        out[self.at..self.at + 8].copy_from_slice(&self.word.to_be_bytes());
        self.at += pending as usize >> 3;
        self.word <<= pending & !7 & 63;
        self.pending = pending & 7;
    }

    /// The length of the stream.
    pub(super) fn end(self) -> usize {
        self.at + usize::from(self.pending > 0)
    }
}
