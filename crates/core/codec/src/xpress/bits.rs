//! The bit stream of a chunk: 16-bit little-endian words with bytes strewn in.
//!
//! A reader of MS-XCA always holds 16 to 31 bits: it starts with two words and reads the next word as soon as fewer
//! than 16 bits are left. Bytes in the stream (long match lengths) are read from the reader's position at that moment,
//! up to two words ahead of the bits around them. So the writer keeps words and bytes apart, and combines them once all
//! words are known.
//!
//! Invariants
//! - A strewn byte is where a reader is that has read exactly the bits put before it.
//! - The buffers have room for the worst chunk of either kind, so nothing grows while a chunk is written.
//! - A finished writer is empty again: no bit of a chunk reaches the next.
//!
//! Leaves to others: at most 48 bits between two flushes (the caller's duty), and which codes are put (`stream.rs`).

use super::symbol::{CHUNK_BYTES_MAX, LONG_LEN, MATCH_LEN_MIN, VERY_LONG_LEN};

/// Room for a chunk of nothing but literals with 15-bit codes, and for 8 bytes beyond.
const WORD_BYTES_MAX: usize = (CHUNK_BYTES_MAX + 1) * 2 + 8;

/// Room for a chunk of nothing but matches whose length takes bytes, rounded up to a power of two.
const STREWN_MAX: usize = (CHUNK_BYTES_MAX / LONG_LEN + 1).next_power_of_two();

/// Collects a chunk's bit stream. Reused from chunk to chunk.
pub(super) struct BitWriter {
    /// Full words take the first `len` bytes.
    words: Box<[u8; WORD_BYTES_MAX]>,
    len: usize,
    /// The last `pending` bits are in no full word yet.
    bits: u64,
    pending: u32,
    strewn: Box<[LeadingBytes; STREWN_MAX]>,
    strewn_len: usize,
}

/// Bytes that come before the word at `words[at]`.
#[derive(Clone, Copy)]
struct LeadingBytes {
    at: u32,
    bytes: [u8; 4],
    len: u32,
}

impl BitWriter {
    pub(super) fn new() -> BitWriter {
        BitWriter {
            words: Box::new([0; WORD_BYTES_MAX]),
            len: 0,
            bits: 0,
            pending: 0,
            strewn: Box::new(
                [LeadingBytes {
                    at: 0,
                    bytes: [0; 4],
                    len: 0,
                }; STREWN_MAX],
            ),
            strewn_len: 0,
        }
    }

    /// Appends a code given as `code << 4 | length`. At most 48 bits go between two flushes.
    #[inline(always)]
    pub(super) fn put_code(&mut self, code: u32) {
        self.put(code >> 4, code & 15);
    }

    /// Appends `bits`, which are `count` bits. At most 48 bits go between two flushes.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u32, count: u32) {
        self.bits = self.bits << count | u64::from(bits);
        self.pending += count;
    }

    /// Moves full words out.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        // The oldest bit to the top, then the four words into the order of the stream.
        let bits = self.bits << 1 << (63 - self.pending);
        let even = 0x0000_FFFF_0000_FFFF;
        let bits = bits.rotate_left(32);
        let bits = (bits & even) << 16 | bits >> 16 & even;
        self.words[self.len..self.len + 8].copy_from_slice(&bits.to_le_bytes());
        self.len += (self.pending / 16 * 2) as usize;
        self.pending %= 16;
    }

    /// Adds the extra bytes of a match's length, if any, at the position of a reader that has read everything put so
    /// far.
    #[inline(always)]
    pub(super) fn strew_len(&mut self, match_len: usize) {
        // Always written, and kept by an addition instead of a branch: match lengths cannot be predicted.
        let beyond = match_len.wrapping_sub(LONG_LEN) as u8;
        let [low, high, ..] = (match_len - MATCH_LEN_MIN).to_le_bytes();
        let (bytes, len) = if match_len < VERY_LONG_LEN {
            ([beyond, 0, 0, 0], 1)
        } else {
            ([255, low, high, 0], 3)
        };
        let at = stream_len(self.len * 8 + self.pending as usize) as u32;
        self.strewn[self.strewn_len % STREWN_MAX] = LeadingBytes { at, bytes, len };
        self.strewn_len += usize::from(match_len >= LONG_LEN);
    }

    /// Writes the stream to `out`, which has its length, and starts again.
    pub(super) fn finish(&mut self, out: &mut [u8]) {
        let end = stream_len(self.len * 8 + self.pending as usize);
        self.flush();
        // The word that a reader holds ahead at the end.
        self.words[end - 2..end].fill(0);
        let (mut from, mut to) = (0, 0);
        for strewn in &self.strewn[..self.strewn_len] {
            let (at, len) = (strewn.at as usize, strewn.len as usize);
            out[to..to + at - from].copy_from_slice(&self.words[from..at]);
            to += at - from;
            out[to..to + len].copy_from_slice(&strewn.bytes[..len]);
            to += len;
            from = at;
        }
        out[to..].copy_from_slice(&self.words[from..end]);
        (self.len, self.bits, self.pending, self.strewn_len) = (0, 0, 0, 0);
    }
}

/// The bytes of all words that a reader has taken in after reading `bits` bits; 1 or more.
#[inline(always)]
pub(super) fn stream_len(bits: usize) -> usize {
    2 * (bits.div_ceil(16) + 1)
}
