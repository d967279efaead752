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

use super::coding::BITS_MAX;

/// For each pattern of [`Tables::bits`] bits: the length of the code, and eight bits above it the symbol.
type Singles = [u16; (1 << BITS_MAX) + MORE];
/// Entries that are written at once.
const MORE: usize = 16;

/// Codes in one step: with what is left of a byte before them they fit a word.
const STEP: usize = 56 / BITS_MAX;
/// Codes of at most [`SHORT`] bits in one step.
const SHORT_STEP: usize = 7;
const SHORT: u32 = 8;
const LONG: u32 = BITS_MAX as u32;

/// The lengths of all codes, which fill the code space.
pub(super) struct Lengths {
    of: [u8; 256],
    /// How many symbols there are up to the last that has a code.
    symbols: usize,
    /// How many codes have each length.
    counts: [u16; BITS_MAX + 1],
}

impl Lengths {
    /// For symbols below `symbols`.
    pub(super) fn new(symbols: usize) -> Lengths {
        Lengths {
            of: [0; 256],
            symbols,
            counts: [0; BITS_MAX + 1],
        }
    }

    /// Gives `run` symbols from `at` on codes of this length, or none if it is 0.
    pub(super) fn put(&mut self, at: usize, run: usize, length: u8) {
        self.of[at..at + run].fill(length);
        self.counts[usize::from(length)] += run as u16;
    }

    /// Whether every bit pattern is a code.
    pub(super) fn fill_the_space(&self) -> bool {
        let counts = self.counts.iter().enumerate().skip(1);
        let space: usize = counts
            .map(|(length, count)| usize::from(*count) << (BITS_MAX - length))
            .sum();
        space == 1 << BITS_MAX
    }

    /// How many symbols have a code.
    fn coded(&self) -> usize {
        self.counts[1..]
            .iter()
            .map(|count| usize::from(*count))
            .sum()
    }

    /// The symbols in the order of their codes, and then those that have none.
    fn in_order(&self) -> [u8; 256] {
        let mut next = [0; BITS_MAX + 1];
        let mut sum = 0;
        for (next, count) in next.iter_mut().zip(self.counts).skip(1) {
            *next = sum;
            sum += usize::from(count);
        }
        next[0] = sum;
        let mut order = [0; 256];
        for (symbol, length) in self.of[..self.symbols].iter().enumerate() {
            let next = &mut next[usize::from(*length)];
            order[*next & 0xff] = symbol as u8;
            *next += 1;
        }
        order
    }
}

/// The meaning of bits.
pub(super) struct Tables {
    singles: Box<Singles>,
    /// How many bits choose an entry: [`SHORT`] or [`LONG`].
    bits: u32,
}

impl Tables {
    pub(super) fn new() -> Tables {
        Tables {
            singles: Box::new([0; (1 << BITS_MAX) + MORE]),
            bits: 0,
        }
    }

    /// For codes of these lengths.
    pub(super) fn fill(&mut self, lengths: &Lengths) {
        let longest = lengths.counts.iter().rposition(|count| *count > 0);
        let is_long = longest.is_some_and(|longest| longest > SHORT as usize);
        self.bits = if is_long { LONG } else { SHORT };
        // In order of their codes, so that a store of more entries than a symbol has is mended by the next one.
        let mut at = 0;
        for symbol in &lengths.in_order()[..lengths.coded()] {
            let length = lengths.of[usize::from(*symbol)];
            let span = 1 << (self.bits - u32::from(length));
            let entry = u16::from(length) | u16::from(*symbol) << 8;
            match self.singles[at..].first_chunk_mut::<MORE>() {
                Some(place) if span <= MORE => *place = [entry; MORE],
                _ => self.singles[at..at + span].fill(entry),
            }
            at += span;
        }
    }

    /// Decodes one stream to `plain`; says whether it ends as it should.
    pub(super) fn decode_one(&self, bytes: &[u8], plain: &mut [u8]) -> bool {
        let mut reader = Bits::new(bytes);
        reader.decode(&self.singles, self.bits, plain);
        reader.ended()
    }

    /// Whether codes have at most [`SHORT`] bits.
    fn is_short(&self) -> bool {
        self.bits == SHORT
    }
}

/// Decodes all but the ends of four streams.
#[inline(always)]
pub(super) fn decode_four(lanes: &mut [Lane<'_, '_, '_>; 4]) {
    match lanes[0].is_short() {
        true => singles::<4, SHORT_STEP, SHORT, SHORT>(lanes),
        false => singles::<4, STEP, LONG, LONG>(lanes),
    }
}

/// Decodes all but the ends of two times four streams. If only the second four have short codes, they are not decoded
/// together.
#[inline(always)]
pub(super) fn decode_eight(lanes: &mut [Lane<'_, '_, '_>; 8]) {
    match (lanes[0].is_short(), lanes[4].is_short()) {
        (true, true) => singles::<8, SHORT_STEP, SHORT, SHORT>(lanes),
        (true, false) => singles::<8, STEP, SHORT, LONG>(lanes),
        (false, false) => singles::<8, STEP, LONG, LONG>(lanes),
        (false, true) => {}
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

    /// Whether codes have at most [`SHORT`] bits.
    pub(super) fn is_short(&self) -> bool {
        self.tables.is_short()
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
