//! Huffman codes of symbols, and reading them.
//!
//! A bit stream is read in steps of several codes. Four or eight streams take their steps in turn: each step waits for the
//! one before it, and the processor meanwhile takes those of the other streams.
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
const SHORT_STEP: usize = 7;
const SHORT: u32 = 8;
const LONG: u32 = BITS_MAX as u32;

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
        let bits = if paired || u32::from(longest) > SHORT {
            BITS_MAX
        } else {
            SHORT as usize
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

    fn way(&self) -> Way {
        match (self.paired, self.bits) {
            (true, _) => Way::Pairs,
            (false, SHORT) => Way::Short,
            _ => Way::Long,
        }
    }
}

/// How the steps of a stream are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Pairs,
    Short,
    Long,
}

/// Decodes all but the ends of four streams.
#[inline(always)]
pub(super) fn decode_four(lanes: &mut [Lane<'_, '_, '_>; 4]) {
    match lanes[0].tables.way() {
        Way::Pairs => pairs(lanes),
        Way::Short => singles::<4, SHORT_STEP, SHORT, SHORT>(lanes),
        Way::Long => singles::<4, STEP, LONG, LONG>(lanes),
    }
}

/// Decodes all but the ends of two times four streams. If only the second four have short codes, they are not decoded
/// together.
#[inline(always)]
pub(super) fn decode_eight(lanes: &mut [Lane<'_, '_, '_>; 8]) {
    match (lanes[0].tables.way(), lanes[4].tables.way()) {
        (Way::Pairs, Way::Pairs) => pairs(lanes),
        (Way::Short, Way::Short) => singles::<8, SHORT_STEP, SHORT, SHORT>(lanes),
        (Way::Short, Way::Long) => singles::<8, STEP, SHORT, LONG>(lanes),
        (Way::Long, Way::Long) => singles::<8, STEP, LONG, LONG>(lanes),
        _ => {}
    }
    let (first, second) = lanes.split_at_mut(4);
    for four in [first, second] {
        decode_four(four.try_into().expect("four lanes"));
    }
}

/// Steps of `COUNT` codes, one of each lane in turn, while all lanes have as much. The codes of the first four lanes have at
/// most `BITS` bits, those of the others `OTHER_BITS`.
#[inline(always)]
fn singles<const N: usize, const COUNT: usize, const BITS: u32, const OTHER_BITS: u32>(
    lanes: &mut [Lane<'_, '_, '_>; N],
) {
    let (first, other) = (&*lanes[0].tables.singles, &*lanes[N - 1].tables.singles);
    loop {
        let mut words = [0; N];
        let mut rooms = [const { None::<&mut [u8; COUNT]> }; N];
        for (lane, (word, room)) in lanes.iter_mut().zip(words.iter_mut().zip(&mut rooms)) {
            match lane.refill::<COUNT>() {
                Some((next, place)) => (*word, *room) = (next, Some(place)),
                None => return,
            }
        }
        for k in 0..COUNT {
            for i in 0..N {
                let entry = match i {
                    0..4 => first[(words[i] >> (64 - BITS)) as usize],
                    _ => other[(words[i] >> (64 - OTHER_BITS)) as usize],
                };
                words[i] <<= entry & 63;
                if let Some(room) = &mut rooms[i] {
                    room[k] = (entry >> 8) as u8;
                }
            }
        }
        for (lane, word) in lanes.iter_mut().zip(words) {
            lane.word = word;
            lane.done += COUNT;
        }
    }
}

/// Steps of one or two codes each.
#[inline(always)]
fn pairs<const N: usize>(lanes: &mut [Lane<'_, '_, '_>; N]) {
    'all: loop {
        for lane in lanes.iter_mut() {
            if !lane.pairs() {
                break 'all;
            }
        }
    }
}

/// One of four bit streams, and where its symbols go.
pub(super) struct Lane<'t, 'a, 'p> {
    tables: &'t Tables,
    bytes: &'a [u8],
    /// The byte that `word` was read at.
    at: usize,
    /// The next bits, from the top, then a bit that is set, then zeros, as many as bits were used since `at`.
    word: u64,
    plain: &'p mut [u8],
    /// Symbols that were decoded.
    done: usize,
}

impl<'t, 'a, 'p> Lane<'t, 'a, 'p> {
    pub(super) fn new(
        tables: &'t Tables,
        bytes: &'a [u8],
        plain: &'p mut [u8],
    ) -> Lane<'t, 'a, 'p> {
        Lane {
            tables,
            bytes,
            at: 0,
            word: 1,
            plain,
            done: 0,
        }
    }

    /// Whether codes have at most [`SHORT`] bits, and are read one at a time.
    pub(super) fn is_short(&self) -> bool {
        self.tables.way() == Way::Short
    }

    /// At least 56 bits of the stream and the mark below them, and room for symbols. `None` near the end of either.
    #[inline(always)]
    fn refill<const ROOM: usize>(&mut self) -> Option<(u64, &mut [u8; ROOM])> {
        let room = self.plain.get_mut(self.done..)?.first_chunk_mut()?;
        let used = self.word.trailing_zeros();
        let at = self.at + (used >> 3) as usize;
        let next = self.bytes.get(at..)?.first_chunk()?;
        let word = (u64::from_be_bytes(*next) | 1) << (used & 7);
        (self.at, self.word) = (at, word);
        Some((word, room))
    }

    /// Takes a step of some codes, or two at a time. False where nothing was done: near the end of the stream or of its plain
    /// bytes.
    #[inline(always)]
    fn pairs(&mut self) -> bool {
        let pairs = &*self.tables.pairs;
        let Some((mut word, room)) = self.refill::<32>() else {
            return false;
        };
        let mut done = 0;
        for _ in 0..STEP {
            let pair = pairs[(word >> (64 - BITS_MAX)) as usize];
            word <<= pair & 63;
            let at = done & 15;
            room[at..at + 2].copy_from_slice(&((pair >> 8) as u16).to_le_bytes());
            done += (pair >> 24) as usize;
        }
        self.word = word;
        self.done += done;
        true
    }

    /// Decodes the last symbols; says whether the stream ends as it should.
    pub(super) fn end(self) -> bool {
        let tables = self.tables;
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
