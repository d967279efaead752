//! Our own deflate for database pages: between ISA-L's fast levels and libdeflate's thorough ones, where neither has a
//! level that is both faster and smaller than MS_XPRESS.
//!
//! Matches are searched for as in MS_XPRESS ([`matcher`], [`lazy`]), in a window that slides; then each stretch of
//! about 64 KiB becomes a block with its own codes ([`blocks`]).
//!
//! Invariants
//! - The output depends on the plain bytes alone.
//! - Every block is compressed with its own codes. Incompressible input comes out longer than it was, does not fit in
//!   the output and is refused: the caller stores it.
//!
//! Leaves to others: inflating (ISA-L, libdeflate or miniz_oxide, in `deflate.rs`), and storing (`gzext.rs`).
//!
//! Source: RFC 1951.

#![forbid(unsafe_code)]

mod bits;
mod blocks;
mod matcher;
mod sequence;

use crate::lazy;
use matcher::{Matcher, WindowSearch};
use sequence::{Sequence, WINDOW_BYTES, Window};

pub(crate) const NAME: &str = "deflate";

/// The level on QAT_DEFLATE's scale that this serves.
pub(crate) const LEVEL: i32 = 4;

/// One worker's compressor: about 0.4 MiB, and 8 bytes for each match of a window.
pub struct Deflater {
    window: Window,
    matcher: Matcher,
    sequences: Vec<Sequence>,
    codes: blocks::Codes,
}

impl Deflater {
    pub(crate) fn new() -> Deflater {
        Deflater {
            window: Window::new(),
            matcher: Matcher::new(),
            sequences: Vec::new(),
            codes: blocks::Codes::new(),
        }
    }

    /// Compresses `plain` to one final deflate stream at the start of `out`. `None` if it does not fit.
    pub(crate) fn deflate(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let mut bits = bits::Writer::new(out);
        let mut rest = plain;
        loop {
            // Members never exceed a window; longer input has no matches across windows.
            let (part, after) = rest.split_at(rest.len().min(WINDOW_BYTES));
            self.window.fill(part);
            self.matcher.clear();
            self.sequences.clear();
            let mut searching = WindowSearch {
                window: &self.window,
                matcher: &mut self.matcher,
            };
            lazy::parse(part.len(), &mut searching, |literals, found| {
                self.sequences.push(Sequence {
                    literals: literals as u32,
                    match_len: found.len as u16,
                    distance: found.distance as u16,
                });
            });
            let last = after.is_empty();
            blocks::write(
                &self.window,
                &self.sequences,
                last,
                &mut self.codes,
                &mut bits,
            )?;
            if last {
                return bits.finish();
            }
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::miniz;
    use super::sequence::DISTANCE_MAX;
    use super::*;

    /// Deflates, then inflates with miniz_oxide, which shares no code with this; returns the length.
    fn round_trip(plain: &[u8]) -> usize {
        let mut out = vec![0; plain.len() * 2 + 1024];
        let len = Deflater::new().deflate(plain, &mut out).expect("room");
        let mut found = vec![0; plain.len()];
        assert!(miniz::Inflater::new().inflate(&out[..len], &mut found));
        assert!(found == plain);
        len
    }

    fn noise(len: usize) -> Vec<u8> {
        let step = |state: &mut u64| {
            *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            Some((*state >> 56) as u8)
        };
        (0..len).scan(7, |state, _| step(state)).collect()
    }

    #[test]
    fn contents_of_any_length_come_back() {
        let text: Vec<u8> = (0..3_000_u32)
            .flat_map(|i| format!("{} of {};", i * i % 977, i / 3).into_bytes())
            .collect();
        for len in (0..40).chain([257, 258, 259, 1000, text.len()]) {
            round_trip(&text[..len]);
            round_trip(&vec![b'x'; len]);
            round_trip(&noise(len));
        }
    }

    #[test]
    fn contents_of_several_windows_come_back() {
        for len in [
            WINDOW_BYTES - 1,
            WINDOW_BYTES,
            WINDOW_BYTES + 1,
            2 * WINDOW_BYTES + 77,
        ] {
            let plain: Vec<u8> = noise(5_000).into_iter().cycle().take(len).collect();
            assert!(round_trip(&plain) < len / 10);
            assert!(round_trip(&vec![0; len]) < len / 200);
        }
    }

    #[test]
    fn a_match_reaches_back_32_kib_and_not_a_byte_further() {
        for (distance, found) in [(DISTANCE_MAX, true), (DISTANCE_MAX + 1, false)] {
            let mut plain = noise(DISTANCE_MAX + 1);
            plain.extend_from_within(plain.len() - distance..);
            plain.truncate(DISTANCE_MAX + 1 + 200);
            let saved = plain.len() as i64 - round_trip(&plain) as i64;
            assert_eq!(saved > 0, found, "{distance}: {saved}");
        }
    }

    #[test]
    fn long_runs_of_literals_and_of_matches_alternate() {
        let mut plain = Vec::new();
        for i in 0..40_usize {
            plain.extend(noise(i * 331 % 9_000));
            let earlier = plain.len().saturating_sub(31_000);
            plain.extend_from_within(earlier..(earlier + i * 577 % 3_000).min(plain.len()));
        }
        round_trip(&plain);
    }
}
