//! Finds earlier occurrences of the bytes at a position.
//!
//! Three hash tables, of the next eight, four and three bytes, hold the latest position of each hash. Positions with
//! the same 8-byte hash are chained from the latest back: for long matches, comparing several candidates pays. For
//! short matches the nearest one is enough, since the offset determines their cost. Everything together fits in a
//! second-level cache; the tables that every byte touches, 52 KiB, almost fit in a first-level cache.
//!
//! Invariants
//! - The bytes of every candidate are compared, so a table's content changes the size of the output, never its meaning.
//! - Tables are cleared, not tagged: an empty entry means position 0, which is as good a candidate as any. So no search
//!   may be made at position 0.
//! - The lazy search never gives a match of length 3 at offset 1: its symbol ends a chunk.
//!
//! Leaves to others: the choice among matches (`lazy.rs`, `optimal.rs`). `optimal.rs` avoids the end's symbol by its
//! price.

use super::symbol::CHUNK_BYTES_MAX;
use super::symbol::Window;
use crate::lazy::{Match, Search};
use crate::window::{equal_bytes, hash4, hash8};

/// A match that could be written, or a literal if the length is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) len: u16,
    pub(super) offset: u16,
}

const LATEST8_BITS: u32 = 14;
const LATEST4_BITS: u32 = 13;
const LATEST3_BITS: u32 = 11;

pub(super) struct Matcher {
    /// In one allocation, so that all tables are reached from one register.
    tables: Box<Tables>,
}

struct Tables {
    latest8: [u16; 1 << LATEST8_BITS],
    latest4: [u16; 1 << LATEST4_BITS],
    latest3: [u16; 1 << LATEST3_BITS],
    /// For each position the one before it with the same 8-byte hash.
    earlier8: [u16; CHUNK_BYTES_MAX],
}

impl Matcher {
    pub(super) fn new() -> Matcher {
        let tables = Tables {
            latest8: [0; 1 << LATEST8_BITS],
            latest4: [0; 1 << LATEST4_BITS],
            latest3: [0; 1 << LATEST3_BITS],
            earlier8: [0; CHUNK_BYTES_MAX],
        };
        Matcher {
            tables: Box::new(tables),
        }
    }

    /// Forgets all positions.
    pub(super) fn clear(&mut self) {
        // `earlier8` is reached only through positions entered afterwards.
        self.tables.latest8.fill(0);
        self.tables.latest4.fill(0);
        self.tables.latest3.fill(0);
    }

    /// Enters `at` as a position from which matches may come.
    #[inline(always)]
    pub(super) fn insert(&mut self, window: &Window, at: usize) {
        let next = window.u64_at(at);
        self.exchange8(next, at);
        self.tables.latest4[hash4::<LATEST4_BITS>(next)] = at as u16;
        self.tables.latest3[hash3(next)] = at as u16;
    }

    /// Enters `at` as a position from which matches of eight bytes or more may come.
    #[inline(always)]
    fn insert_long(&mut self, window: &Window, at: usize) {
        self.exchange8(window.u64_at(at), at);
    }

    #[inline(always)]
    fn exchange8(&mut self, next: u64, at: usize) -> usize {
        let latest = &mut self.tables.latest8[hash8::<LATEST8_BITS>(next)];
        let earlier = std::mem::replace(latest, at as u16);
        self.tables.earlier8[at & (CHUNK_BYTES_MAX - 1)] = earlier;
        earlier as usize
    }

    /// Enters `at` and returns the best match for it, of at most `max` bytes. Looks at `DEPTH`
    /// positions of the same 8-byte hash, and at one of the others if none of those matched.
    ///
    /// `at` is not 0, and at least 8 bytes before the chunk's end.
    #[inline(always)]
    fn find<const DEPTH: usize>(&mut self, window: &Window, at: usize, max: usize) -> Match {
        let next = window.u64_at(at);
        let mut from = self.exchange8(next, at);
        let from4 = std::mem::replace(
            &mut self.tables.latest4[hash4::<LATEST4_BITS>(next)],
            at as u16,
        ) as usize;
        let from3 = std::mem::replace(&mut self.tables.latest3[hash3(next)], at as u16) as usize;

        for seen in 1..=DEPTH {
            if window.u64_at(from) == next {
                return self.longest(window, at, max, from, DEPTH - seen);
            }
            from = self.tables.earlier8[from] as usize;
        }

        let rank = short_rank(window, at, next, from4).max(short_rank(window, at, next, from3));
        let len = (rank >> 16 & 15) as usize;
        let offset = (rank & 0xFFFF) as usize;
        // Still a match of 8 bytes or more: its position fell out of the chain.
        let len = if len == 8 {
            window.common(at - offset, at, 8, max)
        } else {
            len
        };
        // A match with the symbol of the chunk's end is avoided: it saves too little.
        if (len, offset) == (3, 1) {
            return Match::default();
        }
        Match::new(len, offset)
    }

    /// Enters `at` and appends its matches, of at most `max` bytes, to `candidates`: each longer than the one before
    /// and farther away. Looks at `DEPTH` positions of the same 8-byte hash. The conditions are those of
    /// [`Matcher::find`].
    #[inline(always)]
    pub(super) fn find_all<const DEPTH: usize>(
        &mut self,
        window: &Window,
        at: usize,
        max: usize,
        candidates: &mut Vec<Candidate>,
    ) {
        let next = window.u64_at(at);
        let mut from8 = self.exchange8(next, at);
        let from4 = std::mem::replace(
            &mut self.tables.latest4[hash4::<LATEST4_BITS>(next)],
            at as u16,
        ) as usize;
        let from3 = std::mem::replace(&mut self.tables.latest3[hash3(next)], at as u16) as usize;

        let mut longest = 2;
        for from in [from3, from4] {
            // A match longer than these eight bytes will be found through the chain.
            let len = equal_bytes(window.u64_at(from) ^ next);
            if len > longest {
                longest = len;
                candidates.push(Candidate {
                    len: len as u16,
                    offset: (at - from) as u16,
                });
            }
        }
        for _ in 0..DEPTH {
            let differing = window.u64_at(from8) ^ next;
            // Compares first the bytes that would make it longer than the last match.
            let beyond = longest.max(7) - 7;
            let longer = window.u64_at(from8 + beyond) ^ window.u64_at(at + beyond);
            if differing | longer == 0 {
                let len = window.common(from8, at, 8, max);
                if len > longest {
                    longest = len;
                    candidates.push(Candidate {
                        len: len as u16,
                        offset: (at - from8) as u16,
                    });
                }
            }
            let earlier = self.tables.earlier8[from8] as usize;
            if earlier >= from8 {
                break;
            }
            from8 = earlier;
        }
    }

    /// The longest match, at `from` or one of `more` positions before it; the 8 bytes there match.
    #[inline(always)]
    fn longest(&self, window: &Window, at: usize, max: usize, from: usize, more: usize) -> Match {
        let next = window.u64_at(at);
        let mut best = from;
        let mut len = window.common(from, at, 8, max);
        let mut from = from;
        for _ in 0..more {
            from = self.tables.earlier8[from] as usize;
            // Farther away, so useful only if longer: the bytes that would make it longer are compared first.
            let differing = window.u64_at(from + len - 7) ^ window.u64_at(at + len - 7);
            if (window.u64_at(from) ^ next) | differing == 0 {
                let longer = window.common(from, at, 8, max);
                if longer > len {
                    (best, len) = (from, longer);
                }
            }
        }
        Match::new(len, at - best)
    }
}

/// The chunk and the positions entered so far, at a level that looks at `DEPTH` positions of an 8-byte hash, enters up
/// to `INSIDE_MAX` positions of a match, and with `SHORT_INSIDE` enters these into the tables of short matches, too.
pub(super) struct ChunkSearch<
    'a,
    const DEPTH: usize,
    const INSIDE_MAX: usize,
    const SHORT_INSIDE: bool,
> {
    pub(super) window: &'a Window,
    pub(super) matcher: &'a mut Matcher,
}

impl<const DEPTH: usize, const INSIDE_MAX: usize, const SHORT_INSIDE: bool> Search
    for ChunkSearch<'_, DEPTH, INSIDE_MAX, SHORT_INSIDE>
{
    const INSIDE_MAX: usize = INSIDE_MAX;

    #[inline(always)]
    fn find(&mut self, at: usize) -> Match {
        let max = self.window.len() - at;
        self.matcher.find::<DEPTH>(self.window, at, max)
    }

    #[inline(always)]
    fn enter_inside(&mut self, at: usize) {
        if SHORT_INSIDE {
            self.matcher.insert(self.window, at);
        } else {
            self.matcher.insert_long(self.window, at);
        }
    }
}

/// The rank of a match from `from` of 3 to 8 bytes: score, length and offset, so that the greatest is best; 0 if it is
/// shorter. Written without a branch, because it could not be predicted.
#[inline(always)]
fn short_rank(window: &Window, at: usize, next: u64, from: usize) -> u32 {
    let len = equal_bytes(window.u64_at(from) ^ next) as u32;
    let offset = (at - from) as u32;
    let score = 4 * len + 15 - (offset | 1).ilog2();
    if len < 3 {
        0
    } else {
        score << 20 | len << 16 | offset
    }
}

#[inline(always)]
fn hash3(next: u64) -> usize {
    ((next as u32) << 8).wrapping_mul(0x9E37_79B1) as usize >> (32 - LATEST3_BITS)
}
