//! Writes a parsed window as DEFLATE: divides it into blocks, makes the codes of each, writes codes and bits.
//!
//! Invariants
//! - A window becomes at least one block, in the form of RFC 1951.
//! - If the output is full, the caller learns it and nothing after that counts.
//!
//! Leaves to others: finding matches, building codes of bounded length, and the gzip container.

use super::bits::Writer;
use super::sequence::{MATCH_LEN_MAX, MATCH_LEN_MIN, Sequence, Window};
use crate::huffman::{self, CODE_BITS_MAX};

/// A block ends with the first sequence that reaches this many plain bytes. Database pages of one table are alike,
/// pages of two tables are not: half and twice this size are both worse.
const BLOCK_BYTES: usize = 64 << 10;

/// 256 literals, the end, 29 classes of length; two more have a code, but never occur.
const LITERALS_AND_LENGTHS: usize = 286;
const END_OF_BLOCK: usize = 256;
const DISTANCES: usize = 30;

/// Code lengths are written with a code of their own (RFC 1951 3.2.7).
const LENGTH_CODES: usize = 19;
const LENGTH_CODE_BITS_MAX: usize = 7;
const LENGTH_CODE_ORDER: [usize; LENGTH_CODES] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

/// This many literals of a sequence are counted and written without a branch on their number, which cannot be
/// predicted.
const FIRST_LITERALS: usize = 3;

/// Stands for "no literal", added to whatever byte is there; never written.
const NO_LITERAL: usize = 512;

/// Counts or codes by symbol, including symbols that stand for no literal. With this size no bounds check is needed.
type BySymbol = [u32; 2 * NO_LITERAL];

/// Counts, then codes, of the block at hand.
pub(super) struct Codes {
    symbols: Box<BySymbol>,
    distances: Box<[u32; 32]>,
}

impl Codes {
    pub(super) fn new() -> Codes {
        Codes {
            symbols: Box::new([0; 2 * NO_LITERAL]),
            distances: Box::new([0; 32]),
        }
    }
}

/// A stretch of the window: sequences from `at` on, and literals after them.
struct Block<'a> {
    window: &'a Window,
    at: usize,
    sequences: &'a [Sequence],
    end: usize,
}

/// Writes the window that `sequences` describe, as at least one block; `last` if nothing follows it. `None` once the
/// output is full.
pub(super) fn write(
    window: &Window,
    sequences: &[Sequence],
    last: bool,
    codes: &mut Codes,
    bits: &mut Writer,
) -> Option<()> {
    let (mut at, mut rest) = (0, sequences);
    loop {
        let mut end = at;
        let mut count = 0;
        while count < rest.len() && end - at < BLOCK_BYTES {
            end += rest[count].bytes();
            count += 1;
        }
        let (sequences, after) = rest.split_at(count);
        if after.is_empty() {
            end = window.len();
        }
        let block = Block {
            window,
            at,
            sequences,
            end,
        };
        block.count(codes);
        write_header(last && after.is_empty(), codes, bits);
        block.write(codes, bits);
        if !bits.fits() {
            return None;
        }
        if after.is_empty() {
            return Some(());
        }
        (at, rest) = (end, after);
    }
}

impl Block<'_> {
    fn count(&self, codes: &mut Codes) {
        let window = self.window;
        let symbols = &mut *codes.symbols;
        symbols.fill(0);
        codes.distances.fill(0);
        symbols[END_OF_BLOCK] = 1;
        let mut at = self.at;
        for sequence in self.sequences {
            let literals = sequence.literals as usize;
            for index in 0..FIRST_LITERALS {
                symbols[first_literal(window, at, literals, index)] += 1;
            }
            if literals > FIRST_LITERALS {
                for &byte in window.slice(at + FIRST_LITERALS, at + literals) {
                    symbols[byte as usize] += 1;
                }
            }
            symbols[length(sequence.match_len).symbol as usize % NO_LITERAL] += 1;
            codes.distances[distance(sequence.distance).symbol as usize % 32] += 1;
            at += sequence.bytes();
        }
        for &byte in window.slice(at, self.end) {
            symbols[byte as usize] += 1;
        }
    }

    fn write(&self, codes: &Codes, bits: &mut Writer) {
        let (window, symbols) = (self.window, &*codes.symbols);
        let mut at = self.at;
        for sequence in self.sequences {
            let literals = sequence.literals as usize;
            for index in 0..FIRST_LITERALS {
                bits.put_code(symbols[first_literal(window, at, literals, index)]);
            }
            bits.flush();
            if literals > FIRST_LITERALS {
                let more = window.slice(at + FIRST_LITERALS, at + literals);
                put_literals(bits, symbols, more);
            }
            let length = length(sequence.match_len);
            bits.put_code(symbols[length.symbol as usize % NO_LITERAL]);
            bits.put(length.beyond, length.beyond_bits);
            let distance = distance(sequence.distance);
            bits.put_code(codes.distances[distance.symbol as usize % 32]);
            bits.put(distance.beyond, distance.beyond_bits);
            bits.flush();
            at += sequence.bytes();
        }
        put_literals(bits, symbols, window.slice(at, self.end));
        bits.put_code(symbols[END_OF_BLOCK]);
        bits.flush();
    }
}

/// The symbol of literal `index` of the `literals` at `at`, or a symbol that stands for none.
#[inline(always)]
fn first_literal(window: &Window, at: usize, literals: usize, index: usize) -> usize {
    window.byte(at + index) as usize + usize::from(literals <= index) * NO_LITERAL
}

#[inline(always)]
fn put_literals(bits: &mut Writer, codes: &BySymbol, literals: &[u8]) {
    for some in literals.chunks(3) {
        for &byte in some {
            bits.put_code(codes[byte as usize]);
        }
        bits.flush();
    }
}

/// A symbol, and the extra bits that select a value of its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    symbol: u32,
    beyond: u32,
    beyond_bits: u32,
}

/// Of a match's length (RFC 1951 3.2.5).
#[inline(always)]
fn length(match_len: u16) -> Part {
    const CLASSES: usize = MATCH_LEN_MAX + 1;
    /// The class of each length, and the extra bits and smallest length of each class.
    const TABLES: ([u8; CLASSES], [u8; 29], [u16; 29]) = {
        let mut bits = [0; 29];
        let mut class = 8;
        while class < 28 {
            bits[class] = (class as u8 - 4) / 4;
            class += 1;
        }
        let (mut classes, mut least) = ([0; CLASSES], [0; 29]);
        let mut len = MATCH_LEN_MIN;
        class = 0;
        while class < 29 {
            least[class] = len as u16;
            let end = len + (1 << bits[class]);
            while len < end && len < CLASSES {
                classes[len] = class as u8;
                len += 1;
            }
            // The greatest length is a class of its own, although the class before it has bits for it.
            if class == 27 {
                len = MATCH_LEN_MAX;
            }
            class += 1;
        }
        (classes, bits, least)
    };
    static BY_LENGTH: ([u8; CLASSES], [u8; 29], [u16; 29]) = TABLES;
    let class = BY_LENGTH.0[match_len as usize] as usize;
    Part {
        symbol: (END_OF_BLOCK + 1 + class) as u32,
        beyond: u32::from(match_len - BY_LENGTH.2[class]),
        beyond_bits: u32::from(BY_LENGTH.1[class]),
    }
}

/// Of a match's distance, which is not 0.
#[inline(always)]
fn distance(distance: u16) -> Part {
    let from_0 = u32::from(distance - 1);
    if from_0 < 2 {
        return Part {
            symbol: from_0,
            beyond: 0,
            beyond_bits: 0,
        };
    }
    // Two classes for each magnitude: the bit below the highest bit selects one.
    let beyond_bits = from_0.ilog2() - 1;
    Part {
        symbol: 2 * beyond_bits + (from_0 >> beyond_bits),
        beyond: from_0 & ((1 << beyond_bits) - 1),
        beyond_bits,
    }
}

/// Makes codes from the counts, and writes them as the beginning of a block.
fn write_header(last: bool, codes: &mut Codes, bits: &mut Writer) {
    let symbols: [u32; LITERALS_AND_LENGTHS] = std::array::from_fn(|s| codes.symbols[s]);
    let distances: [u32; DISTANCES] = std::array::from_fn(|d| codes.distances[d]);
    let symbols = lengths::<_, CODE_BITS_MAX>(symbols);
    let distances = lengths::<_, CODE_BITS_MAX>(distances);
    codes.symbols[..LITERALS_AND_LENGTHS].copy_from_slice(&reversed_codes(&symbols));
    // Symbols that stand for no literal get a code of zero bits.
    codes.symbols[NO_LITERAL..].fill(0);
    codes.distances[..DISTANCES].copy_from_slice(&reversed_codes(&distances));

    let symbols = used(&symbols, END_OF_BLOCK + 1);
    let distances = used(&distances, 1);
    let mut runs = Runs::default();
    // One sequence of lengths: a run may cross from symbols to distances.
    let all: Vec<u8> = symbols.iter().chain(distances).copied().collect();
    all.chunk_by(|a, b| a == b)
        .for_each(|run| runs.push(run[0], run.len()));

    let mut counts = [0; LENGTH_CODES];
    for run in &runs.0 {
        counts[usize::from(run.symbol)] += 1;
    }
    let code_lengths = lengths::<_, LENGTH_CODE_BITS_MAX>(counts);
    let length_codes = reversed_codes(&code_lengths);
    let ordered = LENGTH_CODE_ORDER.map(|symbol| code_lengths[symbol]);
    let ordered = used(&ordered, 4);

    const DYNAMIC: u32 = 2;
    bits.put(u32::from(last), 1);
    bits.put(DYNAMIC, 2);
    bits.put((symbols.len() - END_OF_BLOCK - 1) as u32, 5);
    bits.put((distances.len() - 1) as u32, 5);
    bits.put((ordered.len() - 4) as u32, 4);
    bits.flush();
    for &length in ordered {
        bits.put(u32::from(length), 3);
        bits.flush();
    }
    for run in &runs.0 {
        bits.put_code(length_codes[usize::from(run.symbol)]);
        bits.put(u32::from(run.beyond), run.beyond_bits);
        bits.flush();
    }
}

/// Without the trailing zeros, except that `least` entries always remain.
fn used(lengths: &[u8], least: usize) -> &[u8] {
    let used = lengths.iter().rposition(|length| *length > 0);
    &lengths[..used.map_or(0, |last| last + 1).max(least)]
}

/// Code lengths for `counts`. A code has at least two symbols, even if fewer occur: some readers refuse the incomplete
/// code of one symbol.
fn lengths<const SYMBOLS: usize, const BITS_MAX: usize>(
    mut counts: [u32; SYMBOLS],
) -> [u8; SYMBOLS] {
    let mut missing = 2_usize.saturating_sub(counts.iter().filter(|n| **n > 0).count());
    for count in &mut counts {
        if missing > 0 && *count == 0 {
            *count = 1;
            missing -= 1;
        }
    }
    huffman::lengths::<SYMBOLS, BITS_MAX>(&counts)
}

/// The codes for `lengths`, each as `code << 4 | length`, with the code's first bit lowest.
fn reversed_codes<const SYMBOLS: usize>(lengths: &[u8; SYMBOLS]) -> [u32; SYMBOLS] {
    huffman::codes(lengths).map(|code| {
        let length = code & 15;
        if length == 0 {
            return 0;
        }
        (code >> 4).reverse_bits() >> (32 - length) << 4 | length
    })
}

/// Code lengths in the form in which they are written.
#[derive(Default)]
struct Runs(Vec<Run>);

#[derive(Clone, Copy)]
struct Run {
    symbol: u8,
    beyond: u8,
    beyond_bits: u32,
}

impl Runs {
    /// Appends `len` times `length`.
    fn push(&mut self, length: u8, len: usize) {
        let mut left = len;
        let mut push = |symbol, beyond: usize, beyond_bits| {
            let beyond = beyond as u8;
            self.0.push(Run {
                symbol,
                beyond,
                beyond_bits,
            });
        };
        if length == 0 {
            while left >= 11 {
                let some = left.min(138);
                push(18, some - 11, 7);
                left -= some;
            }
            if left >= 3 {
                push(17, left - 3, 3);
                left = 0;
            }
        } else {
            push(length, 0, 0);
            left -= 1;
            while left >= 3 {
                let some = left.min(6);
                push(16, some - 3, 2);
                left -= some;
            }
        }
        for _ in 0..left {
            push(length, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1951 3.2.5, both tables: first of each class, bits beyond.
    #[test]
    fn lengths_and_distances_have_the_symbols_of_the_standard() {
        let bits = [
            0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5,
        ];
        let mut expected = Vec::new();
        for (class, bits) in bits.into_iter().enumerate() {
            expected.extend((0..1 << bits).map(|beyond| (257 + class as u32, beyond, bits)));
        }
        *expected.last_mut().unwrap() = (285, 0, 0);
        let found = (3..=258).map(|len| {
            let part = length(len);
            (part.symbol, part.beyond, part.beyond_bits)
        });
        assert!(found.eq(expected));

        let mut expected = Vec::new();
        for class in 0..30_u32 {
            let bits = class.saturating_sub(2) / 2;
            expected.extend((0..1 << bits).map(|beyond| (class, beyond, bits)));
        }
        let found = (1..=32_768).map(|d| {
            let part = distance(d);
            (part.symbol, part.beyond, part.beyond_bits)
        });
        assert!(found.eq(expected));
    }

    #[test]
    fn runs_of_code_lengths_stand_for_as_many_as_there_are() {
        for length in [0, 1, 15] {
            for len in 1..320 {
                let mut runs = Runs::default();
                runs.push(length, len);
                let mut found = Vec::new();
                for run in &runs.0 {
                    let beyond = usize::from(run.beyond);
                    assert!(beyond < 1 << run.beyond_bits);
                    match run.symbol {
                        16 => found.resize(found.len() + 3 + beyond, *found.last().unwrap()),
                        17 => found.resize(found.len() + 3 + beyond, 0),
                        18 => found.resize(found.len() + 11 + beyond, 0),
                        length => found.push(length),
                    }
                }
                assert_eq!(found, vec![length; len]);
            }
        }
    }
}
