//! Finds earlier occurrences of what stands at a position.
//!
//! Two hash tables, of the next eight and of the next four bytes, hold the latest position of each
//! hash. A third one for three bytes, as MS_XPRESS has it, costs a fifth of the speed on database
//! pages and gains 1 % of size or less.
//!
//! Entries are positions modulo 32 KiB, so that every entry, however old, stands for a place
//! within a match's reach: no search has to check the distance. An old entry only stands for
//! another place than it was made for; and since every candidate's bytes are compared, that is as
//! good a candidate as any. An empty entry says position 0 of the window, so no search may be
//! made there.

use super::{DISTANCE_MAX, MATCH_LEN_MIN, Window};
use crate::window::equal_bytes;

/// A match, or with a `score` of 0 or less none worth the name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match {
    pub(super) len: usize,
    pub(super) distance: usize,
    /// What the match saves: about a quarter of a literal per unit, of which a literal's bits are
    /// four and each bit of the distance costs one.
    pub(super) score: i32,
}

/// How many bytes before the content's end a search must start.
pub(super) const SEARCH_BYTES_MIN: usize = 8;

const LATEST8_BITS: u32 = 14;
const LATEST4_BITS: u32 = 14;

pub(super) struct Matcher {
    /// In one piece, so that both tables are reached from one register.
    tables: Box<Tables>,
}

struct Tables {
    latest8: [u16; 1 << LATEST8_BITS],
    latest4: [u16; 1 << LATEST4_BITS],
}

impl Matcher {
    pub(super) fn new() -> Matcher {
        let tables = Tables {
            latest8: [0; 1 << LATEST8_BITS],
            latest4: [0; 1 << LATEST4_BITS],
        };
        Matcher {
            tables: Box::new(tables),
        }
    }

    /// Forgets all positions.
    pub(super) fn clear(&mut self) {
        self.tables.latest8.fill(0);
        self.tables.latest4.fill(0);
    }

    /// Enters `at` as a place that matches of eight bytes or more may come from.
    #[inline(always)]
    pub(super) fn insert_long(&mut self, window: &Window, at: usize) {
        self.tables.latest8[hash8(window.u64_at(at))] = at as u16;
    }

    /// Enters `at` and returns the best match for it, of at most `max` bytes.
    ///
    /// `at` is not 0, and at least 8 bytes before the content's end.
    #[inline(always)]
    pub(super) fn find(&mut self, window: &Window, at: usize, max: usize) -> Match {
        let next = window.u64_at(at);
        let from8 = exchange(&mut self.tables.latest8[hash8(next)], at);
        let from4 = exchange(&mut self.tables.latest4[hash4(next)], at);
        let mut from = from8;
        let mut len = equal_bytes(window.u64_at(from) ^ next);
        if len < 8 {
            from = from4;
            len = equal_bytes(window.u64_at(from) ^ next);
        }
        if len < MATCH_LEN_MIN {
            return Match::default();
        }
        if len == 8 {
            len = window.common(from, at, 8, max);
        }
        let distance = at - from;
        Match {
            len,
            distance,
            score: 4 * len as i32 - (distance as u32 | 1).ilog2() as i32,
        }
    }
}

/// Puts `at`, which is not 0, into `entry`; gives the place that stood there, 1 to
/// [`DISTANCE_MAX`] bytes before `at`.
#[inline(always)]
fn exchange(entry: &mut u16, at: usize) -> usize {
    const BEHIND: usize = DISTANCE_MAX - 1;
    let latest = usize::from(std::mem::replace(entry, at as u16));
    at - 1 - (at.wrapping_sub(latest + 1) & BEHIND)
}

#[inline(always)]
fn hash8(next: u64) -> usize {
    (next.wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - LATEST8_BITS)) as usize
}

#[inline(always)]
fn hash4(next: u64) -> usize {
    ((next as u32).wrapping_mul(0x9E37_79B1) >> (32 - LATEST4_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_stands_for_a_place_within_reach_and_a_young_one_for_its_own() {
        for at in (1_usize..70)
            .chain(32_700..32_900)
            .chain(65_500..65_700)
            .chain([262_143])
        {
            for back in (1..300).chain(32_600..33_000).chain(65_400..65_700) {
                // Entries of earlier windows are gone, so none is of a place behind `at`.
                let Some(made) = at.checked_sub(back) else {
                    continue;
                };
                let mut entry = made as u16;
                let from = exchange(&mut entry, at);
                assert_eq!(entry, at as u16);
                assert!(
                    (1..=DISTANCE_MAX).contains(&(at - from)),
                    "{at}, {made}: {from}"
                );
                if (1..=DISTANCE_MAX).contains(&back) {
                    assert_eq!(from, made);
                }
            }
        }
    }
}
