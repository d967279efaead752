//! The text of [`Search`] as a test of any search, over contents that repeat themselves near and far, and hardly at all.
//!
//! Invariants
//! - A match that is worth taking is one: its bytes are the content's, at both places.
//!
//! Leaves to others: whether the size is good (the round trips of each algorithm).

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Contents with the least number of bytes that matches must cover.
pub(crate) fn contents() -> Vec<(Vec<u8>, usize)> {
    let noise = |len: usize| -> Vec<u8> {
        let step = |state: &mut u64| {
            *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            Some((*state >> 56) as u8)
        };
        (0..len).scan(7, |state, _| step(state)).collect()
    };
    let lines = |i: u32| format!("line {} of {};\n", i * i % 97, i / 3).into_bytes();
    vec![
        (noise(9), 0),
        (noise(5000), 0),
        (vec![7; 3000], 2900),
        (noise(64).repeat(40), 2400),
        (noise(20_000).repeat(2), 18_000),
        ((0..900).flat_map(lines).collect(), 5000),
    ]
}

/// Covers the content with matches as [`parse`] does, and looks at each match that the search gives.
///
/// # Panics
/// If the search breaks a promise.
pub(crate) fn keeps_its_contract(plain: &[u8], covered_min: usize, search: &mut impl Search) {
    let mut watched = Watched {
        plain,
        search,
        last: 0,
    };
    let mut covered = 0;
    parse(plain.len(), &mut watched, |_, found| covered += found.len);
    assert!(covered >= covered_min, "{covered} of {} bytes", plain.len());
}

/// Looks at what passes.
struct Watched<'a, S> {
    plain: &'a [u8],
    search: &'a mut S,
    /// The position entered last.
    last: usize,
}

impl<S: Search> Watched<'_, S> {
    /// The caller enters each position once, in order, and never 0.
    fn enters(&mut self, at: usize) {
        assert!(at > self.last, "{at} after {}", self.last);
        self.last = at;
    }
}

impl<S: Search> Search for Watched<'_, S> {
    const INSIDE_MAX: usize = S::INSIDE_MAX;

    fn find(&mut self, at: usize) -> Match {
        self.enters(at);
        assert!(at < search_end(self.plain.len()));
        let found = self.search.find(at);
        if found.score > 0 {
            let Match { len, distance, .. } = found;
            assert!((1..=at).contains(&distance), "{distance} before {at}");
            assert!(len <= self.plain.len() - at, "{len} bytes at {at}");
            let from = at - distance;
            assert!(self.plain[from..from + len] == self.plain[at..at + len]);
            assert_eq!(found.score, score(len, distance));
        }
        found
    }

    fn enter_inside(&mut self, at: usize) {
        self.enters(at);
        self.search.enter_inside(at);
    }
}

/// Compares with every earlier position, but for one thing.
struct Lying<'a> {
    plain: &'a [u8],
    lie: Lie,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    FindsNothing,
    IsOneByteTooLong,
    IsOneByteTooNear,
    PraisesItself,
}

impl Search for Lying<'_> {
    const INSIDE_MAX: usize = 16;

    fn find(&mut self, at: usize) -> Match {
        let plain = self.plain;
        let common = |from: usize| {
            let pairs = plain[from..].iter().zip(&plain[at..]);
            pairs.take_while(|(a, b)| a == b).count()
        };
        let all = (at.saturating_sub(300)..at).map(|from| (common(from), from));
        let (len, from) = all.max().unwrap_or_default();
        if len < 4 || self.lie == Lie::FindsNothing {
            return Match::default();
        }
        let longer = usize::from(self.lie == Lie::IsOneByteTooLong);
        let nearer = usize::from(self.lie == Lie::IsOneByteTooNear);
        let mut found = Match::new(len + longer, at - from - nearer);
        found.score += i32::from(self.lie == Lie::PraisesItself);
        found
    }

    fn enter_inside(&mut self, _at: usize) {}
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_a_search_breaks_the_contract() {
    let line = |i: u32| format!("line {} of {};\n", i * i % 97, i / 3).into_bytes();
    let plain: Vec<u8> = (0..200).flat_map(line).collect();
    for lie in [
        Lie::None,
        Lie::FindsNothing,
        Lie::IsOneByteTooLong,
        Lie::IsOneByteTooNear,
        Lie::PraisesItself,
    ] {
        let mut search = Lying { plain: &plain, lie };
        let checked = catch_unwind(AssertUnwindSafe(|| {
            keeps_its_contract(&plain, 1000, &mut search);
        }));
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}
