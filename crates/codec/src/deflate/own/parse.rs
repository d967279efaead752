//! Chooses matches with one step of foresight: a match is taken unless the next position has a
//! better one.

use super::matcher::{Matcher, SEARCH_BYTES_MIN};
use super::{MATCH_LEN_MAX, Sequence, Window};

/// A match that saves less is not taken.
const SCORE_MIN: i32 = 2;
/// How much more the next position's match must save, for the literal before it.
const SCORE_GAIN_MIN: i32 = 3;
/// A match as long is taken without a look at the next position.
const LEN_ENOUGH: usize = 48;
/// After as many literals in a row, positions begin to be skipped: one in two, then two in three.
const LITERALS_PER_SKIP: usize = 256;
/// Of a match's inner positions all are entered up to this number, else some at both ends.
const INSIDE_MAX: usize = 16;

/// Covers the window with `sequences`; what they leave at its end is literals.
pub(super) fn parse(window: &Window, matcher: &mut Matcher, sequences: &mut Vec<Sequence>) {
    let end = window.len();
    let search_end = end.saturating_sub(SEARCH_BYTES_MIN);
    let longest = |at: usize| (end - at).min(MATCH_LEN_MAX);
    let mut literals_from = 0;
    let mut at = 1;
    while at < search_end {
        let mut found = matcher.find(window, at, longest(at));
        if found.score < SCORE_MIN {
            at += 1;
            if at >= literals_from + LITERALS_PER_SKIP {
                at += (at - literals_from) / LITERALS_PER_SKIP;
            }
            continue;
        }
        let mut inserted_to = at + 1;
        while found.len < LEN_ENOUGH && at + 1 < search_end {
            let next = matcher.find(window, at + 1, longest(at + 1));
            inserted_to += 1;
            if next.score < found.score + SCORE_GAIN_MIN {
                break;
            }
            at += 1;
            found = next;
        }
        sequences.push(Sequence {
            literals: (at - literals_from) as u32,
            match_len: found.len as u16,
            distance: found.distance as u16,
        });
        at += found.len;
        literals_from = at;
        insert_inside(window, matcher, inserted_to, at);
    }
}

/// Enters the positions from `from` to `to`, or some of them.
#[inline(always)]
fn insert_inside(window: &Window, matcher: &mut Matcher, from: usize, to: usize) {
    let mut insert = |from, to| {
        for at in from..to {
            matcher.insert_long(window, at);
        }
    };
    if to > from + INSIDE_MAX {
        insert(from, from + INSIDE_MAX / 4);
        insert(to - INSIDE_MAX / 4, to);
    } else {
        insert(from, to);
    }
}
