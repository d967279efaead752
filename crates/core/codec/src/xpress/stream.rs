//! Writes a parsed chunk: counts symbols, makes their code, writes table and bits.
//!
//! Invariants
//! - The answer is `None` instead of a chunk that is not shorter than its room; nothing is written then.
//! - Tables have twice as many entries as there are symbols, so an index that stands for no literal stays in them.
//!
//! Leaves to others: finding the sequences (`matcher.rs`, `optimal.rs`), and the code's lengths (`huffman.rs`).

use super::bits::{BitWriter, stream_len};
use super::symbol::Window;
use super::symbol::{
    CODE_BITS_MAX, END_OF_STREAM, LONG_LEN, SYMBOLS, Sequence, TABLE_BYTES, VERY_LONG_LEN,
    match_symbol, offset_bits,
};
use crate::huffman;

/// This many literals of a sequence are counted and written without a branch on their number, which cannot be
/// predicted.
const FIRST_LITERALS: usize = 3;

/// Stands for "no literal", added to whatever byte is there; never written.
const NO_LITERAL: usize = SYMBOLS;

/// Counts or codes by symbol, including symbols that stand for no literal. With this size no bounds check is needed.
type BySymbol = [u32; 2 * SYMBOLS];

pub(super) struct StreamWriter {
    bits: BitWriter,
    counts: Box<BySymbol>,
    codes: Box<BySymbol>,
}

impl StreamWriter {
    pub(super) fn new() -> StreamWriter {
        StreamWriter {
            bits: BitWriter::new(),
            counts: Box::new([0; 2 * SYMBOLS]),
            codes: Box::new([0; 2 * SYMBOLS]),
        }
    }

    /// Writes the chunk that `sequences` describe to `out` and returns its length, or `None` if it
    /// would not be shorter than `out`.
    pub(super) fn write(
        &mut self,
        window: &Window,
        sequences: &[Sequence],
        out: &mut [u8],
    ) -> Option<usize> {
        let loose_bits = self.count(window, sequences);
        let (counts, _) = self.counts.split_first_chunk::<SYMBOLS>()?;
        let lengths = huffman::lengths::<SYMBOLS, CODE_BITS_MAX>(counts);
        let coded_bits: usize = counts
            .iter()
            .zip(&lengths)
            .map(|(&n, &bits)| n as usize * bits as usize)
            .sum();
        let size = TABLE_BYTES + stream_len(coded_bits + loose_bits.offsets) + loose_bits.len_bytes;
        if size >= out.len() {
            return None;
        }
        let (table, stream) = out[..size].split_at_mut(TABLE_BYTES);
        for (byte, pair) in table.iter_mut().zip(lengths.chunks_exact(2)) {
            *byte = pair[0] | pair[1] << 4;
        }
        self.codes[..SYMBOLS].copy_from_slice(&huffman::codes(&lengths));
        self.write_bits(window, sequences);
        self.bits.finish(stream);
        Some(size)
    }

    /// Counts the chunk's symbols, and the uncoded bits and bytes next to them.
    fn count(&mut self, window: &Window, sequences: &[Sequence]) -> Loose {
        let counts = &mut *self.counts;
        counts.fill(0);
        counts[END_OF_STREAM] = 1;
        let mut loose = Loose {
            offsets: 0,
            len_bytes: 0,
        };
        let mut at = 0;
        for sequence in sequences {
            let literals = sequence.literals as usize;
            for index in 0..FIRST_LITERALS {
                counts[first_literal(window, at, literals, index)] += 1;
            }
            if literals > FIRST_LITERALS {
                for &byte in window.slice(at + FIRST_LITERALS, at + literals) {
                    counts[byte as usize] += 1;
                }
            }
            let len = sequence.match_len as usize;
            counts[match_symbol(len, sequence.offset) % (2 * SYMBOLS)] += 1;
            loose.offsets += offset_bits(sequence.offset) as usize;
            loose.len_bytes += usize::from(len >= LONG_LEN) + 2 * usize::from(len >= VERY_LONG_LEN);
            at += sequence.bytes();
        }
        for &byte in window.slice(at, window.len()) {
            counts[byte as usize] += 1;
        }
        loose
    }

    fn write_bits(&mut self, window: &Window, sequences: &[Sequence]) {
        let (bits, codes) = (&mut self.bits, &*self.codes);
        let mut at = 0;
        for sequence in sequences {
            let literals = sequence.literals as usize;
            for index in 0..FIRST_LITERALS {
                bits.put_code(codes[first_literal(window, at, literals, index)]);
            }
            bits.flush();
            if literals > FIRST_LITERALS {
                put_literals(
                    bits,
                    codes,
                    window.slice(at + FIRST_LITERALS, at + literals),
                );
            }
            let (len, offset) = (sequence.match_len as usize, sequence.offset);
            bits.put_code(codes[match_symbol(len, offset) % (2 * SYMBOLS)]);
            bits.strew_len(len);
            let count = offset_bits(offset);
            bits.put(u32::from(offset) ^ 1 << count, count);
            bits.flush();
            at += sequence.bytes();
        }
        put_literals(bits, codes, window.slice(at, window.len()));
        bits.put_code(codes[END_OF_STREAM]);
    }
}

/// The parts of a stream that are not codes.
struct Loose {
    /// Bits of offsets.
    offsets: usize,
    /// Bytes of match lengths.
    len_bytes: usize,
}

/// The symbol of literal `index` of the `literals` at `at`, or a symbol that stands for none.
#[inline(always)]
fn first_literal(window: &Window, at: usize, literals: usize, index: usize) -> usize {
    window.byte(at + index) as usize + usize::from(literals <= index) * NO_LITERAL
}

#[inline(always)]
fn put_literals(bits: &mut BitWriter, codes: &BySymbol, literals: &[u8]) {
    for some in literals.chunks(3) {
        for &byte in some {
            bits.put_code(codes[byte as usize]);
        }
        bits.flush();
    }
}
