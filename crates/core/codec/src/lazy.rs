//! Chooses matches with one step of lookahead: a match is taken unless the next position has a better one.
//!
//! Invariants
//! - Matches and literals cover the content once, in order; position 0 is always a literal.
//! - A search starts at most 8 bytes before the content's end, so that it can read 8 bytes at once.
//! - The cost is bounded on data without matches: after 256 literals in a row, positions are skipped.
//!
//! Leaves to others: finding matches ([`Search`]; MS_XPRESS and our own deflate differ in where matches may be), and
//! writing them (`emit`).

#[cfg(test)]
pub(crate) mod contract;

/// A match; a `score` of 0 or less means none worth taking.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Match {
    pub(crate) len: usize,
    pub(crate) distance: usize,
    pub(crate) score: i32,
}

impl Match {
    #[inline(always)]
    pub(crate) fn new(len: usize, distance: usize) -> Match {
        Match {
            len,
            distance,
            score: score(len, distance),
        }
    }
}

/// The saving of a match, in units of about a quarter of a literal: each byte of the match saves four, and each bit of
/// the distance costs one.
#[inline(always)]
pub(crate) fn score(len: usize, distance: usize) -> i32 {
    4 * len as i32 - (distance as u32 | 1).ilog2() as i32
}

/// How many bytes before the content's end a search must start.
const SEARCH_BYTES_MIN: usize = 8;

/// A match that saves less is not taken.
const SCORE_MIN: i32 = 2;
/// How much more the next position's match must save, to pay for the literal before it.
const SCORE_GAIN_MIN: i32 = 3;
/// A match of this length is taken without looking at the next position.
const LEN_ENOUGH: usize = 48;
/// After this many literals in a row, positions begin to be skipped: one in two, then two in three.
const LITERALS_PER_SKIP: usize = 256;

/// Knows the content and the positions entered so far. `contract.rs` checks each search.
pub(crate) trait Search {
    /// A match of up to this many inner positions enters all of them; a longer one enters some at both ends.
    const INSIDE_MAX: usize;

    /// Enters `at`, and finds the best match for the bytes there. `at` is not 0, and at least 8 bytes before the
    /// content's end.
    fn find(&mut self, at: usize) -> Match;

    /// Enters a position within a match.
    fn enter_inside(&mut self, at: usize);
}

/// The end of the positions, from 1 on, at which a search may start in content of that many bytes.
pub(crate) fn search_end(len: usize) -> usize {
    len.saturating_sub(SEARCH_BYTES_MIN)
}

/// Covers `len` bytes with matches: `emit` gets each match and the number of literals before it. The bytes after the
/// last match are literals.
#[inline(always)]
pub(crate) fn parse<S: Search>(len: usize, search: &mut S, mut emit: impl FnMut(usize, Match)) {
    let search_end = search_end(len);
    let mut literals_from = 0;
    let mut at = 1;
    while at < search_end {
        let mut found = search.find(at);
        if found.score < SCORE_MIN {
            at += 1;
            if at >= literals_from + LITERALS_PER_SKIP {
                at += (at - literals_from) / LITERALS_PER_SKIP;
            }
            continue;
        }
        let mut entered_to = at + 1;
        while found.len < LEN_ENOUGH && at + 1 < search_end {
            let next = search.find(at + 1);
            entered_to += 1;
            if next.score < found.score + SCORE_GAIN_MIN {
                break;
            }
            at += 1;
            found = next;
        }
        emit(at - literals_from, found);
        at += found.len;
        literals_from = at;
        enter_inside(search, entered_to, at);
    }
}

/// Enters the positions from `from` to `to`, or some of them.
#[inline(always)]
fn enter_inside<S: Search>(search: &mut S, from: usize, to: usize) {
    if to > from + S::INSIDE_MAX {
        (from..from + S::INSIDE_MAX / 4).for_each(|at| search.enter_inside(at));
        (to - S::INSIDE_MAX / 4..to).for_each(|at| search.enter_inside(at));
    } else {
        (from..to).for_each(|at| search.enter_inside(at));
    }
}
