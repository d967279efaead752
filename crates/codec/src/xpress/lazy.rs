//! Chooses matches with one step of foresight: a match is taken unless the next position has a
//! better one.

use super::Sequence;
use super::Window;
use super::matcher::{Matcher, SEARCH_BYTES_MIN};

/// What a level spends its time on.
#[derive(Clone, Copy)]
pub(super) struct Policy {
    /// Enter the inner positions of a match into the tables of short matches, too.
    short_inside: bool,
    /// Of longer matches only the first and last positions are entered.
    inside_max: usize,
}

impl Policy {
    pub(super) const FAST: Policy = Policy {
        short_inside: false,
        inside_max: 16,
    };
    pub(super) const NORMAL: Policy = Policy {
        short_inside: true,
        inside_max: 32,
    };
}

/// A match that saves less is not taken.
const SCORE_MIN: i32 = 2;
/// How much more the next position's match must save, for the literal before it.
const SCORE_GAIN_MIN: i32 = 3;
/// A match as long is taken without a look at the next position.
const LEN_ENOUGH: usize = 48;
/// After as many literals in a row, positions begin to be skipped: one in two, then two in three.
const LITERALS_PER_SKIP: usize = 256;

/// Covers the window with `sequences`; what they leave at its end is literals.
pub(super) fn parse<const DEPTH: usize>(
    window: &Window,
    matcher: &mut Matcher,
    policy: Policy,
    sequences: &mut Vec<Sequence>,
) {
    let end = window.len();
    let search_end = end.saturating_sub(SEARCH_BYTES_MIN);
    let mut literals_from = 0;
    let mut at = 1;
    while at < search_end {
        let mut found = matcher.find::<DEPTH>(window, at, end - at);
        if found.score < SCORE_MIN {
            at += 1;
            if at >= literals_from + LITERALS_PER_SKIP {
                at += (at - literals_from) / LITERALS_PER_SKIP;
            }
            continue;
        }
        let mut inserted_to = at + 1;
        while found.len < LEN_ENOUGH && at + 1 < search_end {
            let next = matcher.find::<DEPTH>(window, at + 1, end - at - 1);
            inserted_to += 1;
            if next.score < found.score + SCORE_GAIN_MIN {
                break;
            }
            at += 1;
            found = next;
        }
        sequences.push(Sequence {
            literals: (at - literals_from) as u16,
            match_len: found.len as u16,
            offset: found.offset as u16,
        });
        at += found.len;
        literals_from = at;
        insert_inside(window, matcher, policy, inserted_to, at);
    }
}

/// Enters the positions from `from` to `to`, or some of them.
#[inline(always)]
fn insert_inside(window: &Window, matcher: &mut Matcher, policy: Policy, from: usize, to: usize) {
    let mut insert = |from, to| {
        for at in from..to {
            if policy.short_inside {
                matcher.insert(window, at);
            } else {
                matcher.insert_long(window, at);
            }
        }
    };
    if to > from + policy.inside_max {
        insert(from, from + policy.inside_max / 4);
        insert(to - policy.inside_max / 4, to);
    } else {
        insert(from, to);
    }
}
