//! Finds earlier occurrences of the bytes at a position.
//!
//! Two hash tables, of the next eight and of the next four bytes, hold the latest position of each hash. A third table
//! for three bytes, as MS_XPRESS has it, costs a fifth of the speed on database pages and saves 1 % of size or less.
//!
//! Invariants
//! - Entries are positions modulo 32 KiB, so every entry, however old, stands for a position within a match's reach: no
//!   search has to check the distance. An old entry merely stands for another position than the one entered, which is
//!   as good a candidate as any.
//! - The bytes of every candidate are compared, so a table's content changes the size of the output, never its meaning.
//! - An empty entry means position 0 of the window, so no search may be made there.
//!
//! Leaves to others: which of two matches to take (`lazy.rs`), and the contract of a search (`lazy/contract.rs`).

use super::sequence::{DISTANCE_MAX, MATCH_LEN_MAX, MATCH_LEN_MIN, Window};
use crate::lazy::{Match, Search};
use crate::window::{equal_bytes, hash4, hash8};

const LATEST8_BITS: u32 = 14;
const LATEST4_BITS: u32 = 14;

pub(super) struct Matcher {
    /// In one allocation, so that both tables are reached from one register.
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
}

/// The window and the positions entered so far.
pub(super) struct WindowSearch<'a> {
    pub(super) window: &'a Window,
    pub(super) matcher: &'a mut Matcher,
}

impl Search for WindowSearch<'_> {
    const INSIDE_MAX: usize = 16;

    #[inline(always)]
    fn find(&mut self, at: usize) -> Match {
        let (window, tables) = (self.window, &mut self.matcher.tables);
        let next = window.u64_at(at);
        let from8 = exchange(&mut tables.latest8[hash8::<LATEST8_BITS>(next)], at);
        let from4 = exchange(&mut tables.latest4[hash4::<LATEST4_BITS>(next)], at);
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
            let max = (window.len() - at).min(MATCH_LEN_MAX);
            len = window.common(from, at, 8, max);
        }
        Match::new(len, at - from)
    }

    /// For matches of eight bytes or more.
    #[inline(always)]
    fn enter_inside(&mut self, at: usize) {
        let next = self.window.u64_at(at);
        self.matcher.tables.latest8[hash8::<LATEST8_BITS>(next)] = at as u16;
    }
}

/// Puts `at`, which is not 0, into `entry`; returns the position that was there, 1 to [`DISTANCE_MAX`] bytes before
/// `at`.
#[inline(always)]
fn exchange(entry: &mut u16, at: usize) -> usize {
    const BEHIND: usize = DISTANCE_MAX - 1;
    let latest = usize::from(std::mem::replace(entry, at as u16));
    at - 1 - (at.wrapping_sub(latest + 1) & BEHIND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lazy::contract::{contents, keeps_its_contract};

    #[test]
    fn the_search_in_a_window_keeps_the_contract() {
        let (mut window, mut matcher) = (Window::new(), Matcher::new());
        for (plain, covered_min) in contents() {
            window.fill(&plain);
            matcher.clear();
            let mut search = WindowSearch {
                window: &window,
                matcher: &mut matcher,
            };
            keeps_its_contract(&plain, covered_min, &mut search);
        }
    }

    #[test]
    fn every_entry_points_to_a_place_within_reach_and_a_recent_one_to_its_own() {
        for at in (1_usize..70)
            .chain(32_700..32_900)
            .chain(65_500..65_700)
            .chain([262_143])
        {
            for back in (1..300).chain(32_600..33_000).chain(65_400..65_700) {
                // Entries of earlier windows were cleared, so no entry means a position after `at`.
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
