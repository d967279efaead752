//! Chooses matches by price: the cheapest way to write the whole chunk, given the prices of symbols.
//!
//! The price of a symbol follows from its frequency, which follows from the choice. So the first prices come from a
//! greedy choice, and the next ones from the choice made with the first.
//!
//! Invariants
//! - The choices cover the chunk once, in order; position 0 is a literal.
//! - The symbol of the chunk's end is never chosen as a match: its price exceeds that of any other way.
//! - The work is bounded: a fixed number of rounds and of candidates at each position, and none inside a long match.
//!
//! Leaves to others: finding candidates (`matcher.rs`), and writing the stream (`stream.rs`).

use super::matcher::{Candidate, Matcher};
use super::symbol::Window;
use super::symbol::{
    CHUNK_BYTES_MAX, CODE_BITS_MAX, END_OF_STREAM, LONG_LEN, MATCH_LEN_MIN, SYMBOLS, Sequence,
    VERY_LONG_LEN, match_symbol, offset_bits,
};
use crate::huffman;

/// How many positions of one 8-byte hash are looked at.
const DEPTH: usize = 8;
/// A match of this length is taken, and no other is searched for inside it.
const LEN_ENOUGH: usize = 64;
/// How often prices are recomputed.
const ROUNDS: usize = 2;
/// The price in bits of a symbol that did not occur when prices were computed.
const UNUSED_BITS: u32 = 13;

/// More than the number of positions, and a size that needs no bounds check.
const BITS_LEN: usize = 2 * CHUNK_BYTES_MAX;

const LITERAL: Candidate = Candidate { len: 0, offset: 0 };

pub(super) struct Optimal {
    /// The candidates of all positions in order, each position's by ascending length.
    candidates: Vec<Candidate>,
    /// Where each position's candidates end.
    ends: Vec<u32>,
    /// The bits that the chunk takes from each position to its end.
    bits: Box<[u32; BITS_LEN]>,
    choices: Box<[Candidate; CHUNK_BYTES_MAX]>,
    counts: [u32; SYMBOLS],
}

impl Optimal {
    pub(super) fn new() -> Optimal {
        Optimal {
            candidates: Vec::new(),
            ends: Vec::new(),
            bits: Box::new([0; BITS_LEN]),
            choices: Box::new([LITERAL; CHUNK_BYTES_MAX]),
            counts: [0; SYMBOLS],
        }
    }

    /// Covers the window with `sequences`; the bytes after the last one are literals.
    pub(super) fn parse(
        &mut self,
        window: &Window,
        matcher: &mut Matcher,
        sequences: &mut Vec<Sequence>,
    ) {
        self.collect(window, matcher);
        for round in 0..ROUNDS {
            let prices = Prices::of(&self.counts);
            self.choose(window, &prices);
            sequences.clear();
            self.follow(window, sequences, round + 1 < ROUNDS);
        }
    }

    /// Lists every position's candidates, and counts the symbols of a greedy choice among them.
    fn collect(&mut self, window: &Window, matcher: &mut Matcher) {
        let end = window.len();
        let search_end = crate::lazy::search_end(end);
        self.candidates.clear();
        self.ends.clear();
        self.ends.push(0);
        self.counts = [0; SYMBOLS];
        self.counts[END_OF_STREAM] = 1;
        self.counts[window.byte(0) as usize] += 1;

        let mut greedy_at = 1;
        let mut at = 1;
        while at < end {
            let before = self.candidates.len();
            if at < search_end {
                matcher.find_all::<DEPTH>(window, at, end - at, &mut self.candidates);
            }
            self.ends.push(self.candidates.len() as u32);
            let longest = self.candidates[before..].last().copied();
            if at == greedy_at {
                let (symbol, len) = match longest {
                    Some(found) => (match_symbol(found.len as usize, found.offset), found.len),
                    None => (window.byte(at) as usize, 1),
                };
                self.counts[symbol] += 1;
                greedy_at += len as usize;
            }
            at += 1;
            if let Some(found) = longest
                && found.len as usize >= LEN_ENOUGH
            {
                let inside_end = at - 1 + found.len as usize;
                for inside in at..inside_end {
                    if inside < at + 8 || inside + 8 >= inside_end {
                        matcher.insert(window, inside);
                    }
                    self.ends.push(self.candidates.len() as u32);
                }
                at = inside_end;
                greedy_at = greedy_at.max(at);
            }
        }
    }

    /// Finds the cheapest choice for every position, from the last one to the first.
    fn choose(&mut self, window: &Window, prices: &Prices) {
        let end = window.len();
        let bits = &mut *self.bits;
        bits[end] = 0;
        let mut candidates = self.candidates.as_slice();
        for at in (0..end).rev() {
            let literal = bits[(at + 1) % BITS_LEN] + prices.literals[window.byte(at) as usize];
            // The bits above, then the choice that needs them, so that one comparison updates both.
            let mut least = u64::from(literal) << 32;
            let from = if at == 0 { 0 } else { self.ends[at - 1] };
            let of_position;
            (candidates, of_position) = candidates.split_at(from as usize);
            for candidate in of_position {
                let longest = candidate.len as usize;
                let prices = prices.matches(candidate.offset);
                let mut consider = |len: usize, price: u32| {
                    let price = bits[(at + len) % BITS_LEN] + price;
                    let choice = (len as u64) << 16 | u64::from(candidate.offset);
                    least = least.min(u64::from(price) << 32 | choice);
                };
                // One byte shorter may leave more to a better match; two bytes shorter rarely does.
                if longest < LONG_LEN {
                    consider(longest, prices[longest - MATCH_LEN_MIN]);
                    let shorter = (longest - 1).max(MATCH_LEN_MIN);
                    consider(shorter, prices[shorter - MATCH_LEN_MIN]);
                } else {
                    let len_bits = if longest < VERY_LONG_LEN { 8 } else { 24 };
                    consider(longest, prices[15] + len_bits);
                    consider(LONG_LEN - 1, prices[LONG_LEN - 1 - MATCH_LEN_MIN]);
                }
            }
            bits[at % BITS_LEN] = (least >> 32) as u32;
            self.choices[at] = Candidate {
                len: (least >> 16) as u16,
                offset: least as u16,
            };
        }
    }

    /// Writes down the choice, and counts its symbols if `count`.
    fn follow(&mut self, window: &Window, sequences: &mut Vec<Sequence>, count: bool) {
        self.counts = [0; SYMBOLS];
        self.counts[END_OF_STREAM] = 1;
        let mut literals_from = 0;
        let mut at = 0;
        while at < window.len() {
            let choice = self.choices[at];
            if choice == LITERAL {
                if count {
                    self.counts[window.byte(at) as usize] += 1;
                }
                at += 1;
                continue;
            }
            if count {
                self.counts[match_symbol(choice.len as usize, choice.offset)] += 1;
            }
            sequences.push(Sequence {
                literals: (at - literals_from) as u16,
                match_len: choice.len,
                offset: choice.offset,
            });
            at += choice.len as usize;
            literals_from = at;
        }
    }
}

/// The prices of symbols, in bits.
struct Prices {
    literals: [u32; 256],
    /// By bits of the offset, which are included, and by length minus the smallest.
    matches: [[u32; 16]; 16],
}

impl Prices {
    fn of(counts: &[u32; SYMBOLS]) -> Prices {
        let lengths = huffman::lengths::<SYMBOLS, CODE_BITS_MAX>(counts);
        let price = |symbol: usize| match lengths[symbol] {
            0 => UNUSED_BITS,
            bits => u32::from(bits),
        };
        let literals = std::array::from_fn(price);
        let mut matches: [[u32; 16]; 16] = std::array::from_fn(|offset_bits| {
            std::array::from_fn(|len| price(256 + offset_bits * 16 + len) + offset_bits as u32)
        });
        // This symbol ends the stream; we never use it as a match.
        matches[0][0] = 1 << 16;
        Prices { literals, matches }
    }

    /// The prices of matches at this offset, by length minus the smallest.
    #[inline(always)]
    fn matches(&self, offset: u16) -> &[u32; 16] {
        &self.matches[offset_bits(offset) as usize % 16]
    }
}
