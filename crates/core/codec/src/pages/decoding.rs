//! Huffman codes of symbols, and reading them.
//!
//! A bit stream is read in steps of several codes. Four streams take their steps in turn: each step waits for the one before
//! it, and the processor meanwhile takes those of the other streams.
//!
//! Invariants
//! - Every bit pattern is a code, so a table has no empty entry.
//! - Nothing is read beyond a stream or written beyond its plain bytes, whatever the bits are.
//!
//! Leaves to others: which codes there are (`huffman.rs`).

use super::coding::{BITS_MAX, first_codes};

/// For each pattern of [`Tables::bits`] bits: the length of the code, and eight bits above it the symbol.
type Singles = [u16; 1 << BITS_MAX];

/// For each [`BITS_MAX`] bits, from the low byte to the high one: the bits of one code or two, the one or two symbols, and
/// how many they are.
type Pairs = [u32; 1 << BITS_MAX];

/// Codes in one step: with what is left of a byte before them they fit a word.
const STEP: usize = 56 / BITS_MAX;
/// Codes of at most [`SHORT`] bits in one step.
const LONG_STEP: usize = 7;
const SHORT: u32 = 8;

/// The meaning of bits.
pub(super) struct Tables {
    singles: Box<Singles>,
    pairs: Box<Pairs>,
    /// How many bits choose an entry of `singles`.
    bits: u32,
    /// `pairs` is filled, too.
    paired: bool,
}

impl Tables {
    pub(super) fn new() -> Tables {
        Tables {
            singles: Box::new([0; 1 << BITS_MAX]),
            pairs: Box::new([0; 1 << BITS_MAX]),
            bits: 0,
            paired: false,
        }
    }

    /// For codes of these lengths, which fill the code space. `paired`: often two codes have no more than [`BITS_MAX`] bits,
    /// and there are so many that a table of pairs is worth its time.
    pub(super) fn fill(&mut self, lengths: &[u8; 256], paired: bool) {
        let longest = lengths.iter().fold(0, |most, length| most.max(*length));
        let bits = if paired {
            BITS_MAX
        } else {
            usize::from(longest)
        };
        let mut next = first_codes(lengths);
        for (symbol, length) in lengths.iter().enumerate() {
            let length = usize::from(*length);
            if length == 0 {
                continue;
            }
            let span = 1 << (bits - length);
            let start = usize::from(next[length]) * span;
            next[length] += 1;
            self.singles[start..start + span].fill(length as u16 | (symbol as u16) << 8);
        }
        (self.bits, self.paired) = (bits as u32, paired);
        if paired {
            self.fill_pairs();
        }
    }

    fn fill_pairs(&mut self) {
        let singles = &self.singles;
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            let [first_len, first] = singles[index].to_le_bytes();
            let second = index << first_len & ((1 << BITS_MAX) - 1);
            let [second_len, second] = singles[second].to_le_bytes();
            let len = first_len + second_len;
            *pair = u32::from_le_bytes(match usize::from(len) <= BITS_MAX {
                true => [len, first, second, 2],
                false => [first_len, first, 0, 1],
            });
        }
    }

    /// Decodes one stream to `plain`; says whether it ends as it should.
    pub(super) fn decode_one(&self, bytes: &[u8], plain: &mut [u8]) -> bool {
        let mut reader = Bits::new(bytes);
        reader.decode(&self.singles, self.bits, plain);
        reader.ended()
    }

    /// Decodes all but the ends of four streams.
    #[inline(always)]
    pub(super) fn decode_four(&self, lanes: &mut [Lane<'_, '_>; 4]) {
        let (singles, bits) = (&*self.singles, self.bits);
        if self.paired {
            together(lanes, Paired(&self.pairs));
        } else if bits <= SHORT {
            together(lanes, Single::<LONG_STEP> { singles, bits });
        } else {
            together(lanes, Single::<STEP> { singles, bits });
        }
    }
}

/// Takes a step of each lane in turn, and then the steps that are left.
#[inline(always)]
fn together(lanes: &mut [Lane<'_, '_>; 4], how: impl Step) {
    let [a, b, c, d] = lanes;
    while how.step(a) && how.step(b) && how.step(c) && how.step(d) {}
    for lane in lanes {
        while how.step(lane) {}
    }
}

/// A way to decode some symbols. No closure: that would not be inlined into a function with its own target features.
trait Step {
    /// False where nothing was done: near the end of the stream or of its plain bytes.
    fn step(&self, lane: &mut Lane<'_, '_>) -> bool;
}

struct Single<'t, const COUNT: usize> {
    singles: &'t Singles,
    bits: u32,
}

impl<const COUNT: usize> Step for Single<'_, COUNT> {
    #[inline(always)]
    fn step(&self, lane: &mut Lane<'_, '_>) -> bool {
        let Some((mut word, room)) = lane.refill::<COUNT>() else {
            return false;
        };
        for symbol in room {
            let entry = self.singles[(word >> (64 - self.bits)) as usize & ((1 << BITS_MAX) - 1)];
            word <<= entry & 63;
            *symbol = (entry >> 8) as u8;
        }
        lane.word = word;
        lane.done += COUNT;
        true
    }
}

struct Paired<'t>(&'t Pairs);

impl Step for Paired<'_> {
    #[inline(always)]
    fn step(&self, lane: &mut Lane<'_, '_>) -> bool {
        let Some((mut word, room)) = lane.refill::<32>() else {
            return false;
        };
        let mut done = 0;
        for _ in 0..STEP {
            let pair = self.0[(word >> (64 - BITS_MAX)) as usize];
            word <<= pair & 63;
            let at = done & 15;
            room[at..at + 2].copy_from_slice(&((pair >> 8) as u16).to_le_bytes());
            done += (pair >> 24) as usize;
        }
        lane.word = word;
        lane.done += done;
        true
    }
}

/// One of four bit streams, and where its symbols go.
pub(super) struct Lane<'a, 'p> {
    bytes: &'a [u8],
    /// The byte that `word` was read at.
    at: usize,
    /// The next bits, from the top, then a bit that is set, then zeros, as many as bits were used since `at`.
    word: u64,
    plain: &'p mut [u8],
    /// Symbols that were decoded.
    done: usize,
}

impl<'a, 'p> Lane<'a, 'p> {
    pub(super) fn new(bytes: &'a [u8], plain: &'p mut [u8]) -> Lane<'a, 'p> {
        Lane {
            bytes,
            at: 0,
            word: 1,
            plain,
            done: 0,
        }
    }

    /// At least 56 bits of the stream and the mark below them, and room for symbols. `None` near the end of either.
    #[inline(always)]
    fn refill<const ROOM: usize>(&mut self) -> Option<(u64, &mut [u8; ROOM])> {
        let room = self.plain.get_mut(self.done..)?.first_chunk_mut()?;
        let used = self.word.trailing_zeros();
        let at = self.at + (used >> 3) as usize;
        let next = self.bytes.get(at..)?.first_chunk()?;
        self.at = at;
        Some(((u64::from_be_bytes(*next) | 1) << (used & 7), room))
    }

    /// Decodes the last symbols; says whether the stream ends as it should.
    pub(super) fn end(self, tables: &Tables) -> bool {
        let used = self.word.trailing_zeros() as usize;
        let mut reader = Bits::new(self.bytes);
        reader.at = self.at + used / 8;
        if !used.is_multiple_of(8) {
            reader.next_byte();
            reader.word <<= used % 8;
            reader.known -= used as u32 % 8;
        }
        reader.decode(&tables.singles, tables.bits, &mut self.plain[self.done..]);
        reader.ended()
    }
}

/// Bits of one stream, the highest bit of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    /// The byte that the next refill reads first. Beyond the end, zeros are read.
    at: usize,
    /// The next bits, from the top.
    word: u64,
    /// How many bits of `word` are known.
    known: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits {
            bytes,
            at: 0,
            word: 0,
            known: 0,
        }
    }

    fn next_byte(&mut self) {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.word |= u64::from(byte) << (56 - self.known);
        self.at += 1;
        self.known += 8;
    }

    #[inline(always)]
    fn symbol(&mut self, table: &Singles, bits: u32) -> u8 {
        let entry = table[(self.word >> (64 - bits)) as usize & ((1 << BITS_MAX) - 1)];
        self.word <<= entry & 63;
        self.known = self.known.wrapping_sub(u32::from(entry & 63));
        (entry >> 8) as u8
    }

    fn decode(&mut self, table: &Singles, bits: u32, plain: &mut [u8]) {
        for symbol in plain {
            while self.known < BITS_MAX as u32 {
                self.next_byte();
            }
            *symbol = self.symbol(table, bits);
        }
    }

    /// Whether what was read ends in the last byte, and the bits after it are zeros.
    fn ended(&self) -> bool {
        let read = 8 * self.at - self.known as usize;
        read.div_ceil(8) == self.bytes.len() && self.word == 0
    }
}
