//! Deflate engines, and which of them serves which level.
//!
//! | engine | levels | when |
//! |---|---|---|
//! | ISA-L | 1 to 3 | found at run time and passed its self-test |
//! | our own | 4 | always there: pure Rust, made for database pages |
//! | libdeflate | 5 to 12; 1 to 3 without ISA-L | built in (feature `libdeflate`) |
//! | miniz_oxide | the remaining ones | always available: pure Rust, slow |
//!
//! Time and ratio of blocks of 1 MiB on one core of an EPYC (Zen 4, shared virtual machine), 64 MiB of each of the
//! lab's samples, taken evenly; medians of five rounds, from level 7 on of one:
//!
//! | level | engine | CPU s/GB, stae | ratio | CPU s/GB, tprocc | ratio | |
//! |---|---|---|---|---|---|---|
//! | 1 | ISA-L | 1.94 | 2.736 | 2.31 | 1.581 | `LOW` |
//! | 2 | ISA-L | 2.07 | 2.773 | 2.49 | 1.585 | |
//! | 3 | ISA-L | 3.58 | 2.896 | 3.38 | 1.590 | `MEDIUM`: on Intel processors it loses only a third of level 1 |
//! | 4 | our own | 4.76 | 3.051 | 5.05 | 1.616 | MS_XPRESS LOW: 5.70, 2.963; 5.77, 1.613 |
//! | 5 | libdeflate | 8.07 | 3.245 | 8.97 | 1.640 | |
//! | 6 | libdeflate | 10.64 | 3.269 | 9.84 | 1.643 | `HIGH` |
//! | 7 | libdeflate | 17.36 | 3.290 | 12.00 | 1.646 | |
//! | 9 | libdeflate | 57.90 | 3.308 | 33.36 | 1.647 | |
//!
//! libdeflate's own level 4 takes 7.5 at 3.039 and 9.1 at 1.610, members of 256 KiB compared.
//!
//! Decoding runs at 1300 MB/s (ISA-L) or 1200 MB/s (libdeflate), whatever the level.
//!
//! Invariants
//! - All of them make raw deflate data with a window of at most 32 KiB, and any of them inflates the others' output.
//! - A level without its engine is served by another one, never refused.
//! - Inflating succeeds only if one final stream fills its input and gives exactly the plain bytes.
//!
//! Leaves to others: members and their checksums (`members.rs`, `gzext.rs`), and finding ISA-L's library
//! (`deflate/isal.rs`).

pub mod isal;
#[cfg(feature = "libdeflate")]
pub(crate) mod libdeflate;
pub mod miniz;
pub(crate) mod own;

use crate::{Level, PayloadError};
pub use isal::Isal;

/// The levels of QAT_DEFLATE's own scale.
pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = 1..=12;

/// The level on QAT_DEFLATE's own scale that serves `level` best.
pub fn number(level: Level) -> i32 {
    match level {
        Level::Low => 1,
        Level::Medium => 3,
        Level::High => 6,
        Level::Number(n) => n,
    }
}

/// One worker's compressor.
pub enum Deflater {
    Isal(isal::Deflater),
    Own(own::Deflater),
    #[cfg(feature = "libdeflate")]
    Libdeflate(libdeflate::Deflater),
    Miniz(miniz::Deflater),
}

impl Deflater {
    /// The best engine at hand for `level`, 1 to 12.
    pub fn new(level: i32, isal: Option<&Isal>) -> Deflater {
        if let (Some(isal), 1..=3) = (isal, level) {
            return Deflater::Isal(isal::Deflater::new(isal, level as u32));
        }
        if level == own::LEVEL {
            return Deflater::Own(own::Deflater::new());
        }
        #[cfg(feature = "libdeflate")]
        if let Some(deflater) = libdeflate::Deflater::new(level) {
            return Deflater::Libdeflate(deflater);
        }
        Deflater::Miniz(miniz::Deflater::new(level))
    }

    /// Compresses `plain` to one final deflate stream at the start of `out`. `None` if it does not fit; `out` is then
    /// worthless.
    pub fn deflate(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        match self {
            Deflater::Isal(d) => d.deflate(plain, out),
            Deflater::Own(d) => d.deflate(plain, out),
            #[cfg(feature = "libdeflate")]
            Deflater::Libdeflate(d) => d.deflate(plain, out),
            Deflater::Miniz(d) => d.deflate(plain, out),
        }
    }

    pub(crate) fn engine(&self) -> &'static str {
        match self {
            Deflater::Isal(_) => isal::NAME,
            Deflater::Own(_) => own::NAME,
            #[cfg(feature = "libdeflate")]
            Deflater::Libdeflate(_) => libdeflate::NAME,
            Deflater::Miniz(_) => miniz::NAME,
        }
    }
}

/// One worker's decompressor.
pub(crate) enum Inflater {
    Isal(isal::Inflater),
    #[cfg(feature = "libdeflate")]
    Libdeflate(libdeflate::Inflater),
    Miniz(miniz::Inflater),
}

impl Inflater {
    pub(crate) fn new(isal: Option<&Isal>) -> Inflater {
        if let Some(isal) = isal {
            return Inflater::Isal(isal::Inflater::new(isal));
        }
        #[cfg(feature = "libdeflate")]
        if let Some(inflater) = libdeflate::Inflater::new() {
            return Inflater::Libdeflate(inflater);
        }
        Inflater::Miniz(miniz::Inflater::new())
    }

    /// Inflates one final deflate stream that fills `deflate` and gives exactly `plain.len()`
    /// bytes.
    pub(crate) fn inflate(&mut self, deflate: &[u8], plain: &mut [u8]) -> Result<(), PayloadError> {
        let whole = match self {
            Inflater::Isal(i) => i.inflate(deflate, plain),
            #[cfg(feature = "libdeflate")]
            Inflater::Libdeflate(i) => i.inflate(deflate, plain),
            Inflater::Miniz(i) => i.inflate(deflate, plain),
        };
        if whole {
            Ok(())
        } else {
            Err(PayloadError::at(
                0,
                "deflate data does not decode to its plain length",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inflaters() -> Vec<Inflater> {
        let mut all = vec![Inflater::Miniz(miniz::Inflater::new())];
        all.extend(
            Isal::load()
                .ok()
                .map(|isal| Inflater::Isal(isal::Inflater::new(isal))),
        );
        #[cfg(feature = "libdeflate")]
        all.extend(libdeflate::Inflater::new().map(Inflater::Libdeflate));
        all
    }

    fn deflaters() -> Vec<Deflater> {
        let isal = Isal::load().ok();
        let mut all: Vec<_> = LEVELS.map(|level| Deflater::new(level, isal)).collect();
        all.extend([1, 3].map(|level| Deflater::new(level, None)));
        all.extend([1, 6, 12].map(|level| Deflater::Miniz(miniz::Deflater::new(level))));
        all
    }

    /// Words from a small alphabet in changing order: matches near and far, and literals.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof!["[a-d]{1,9}", "[A-Z]{40}", "\\PC{3}"];
        (
            prop::collection::vec(word, 1..40),
            prop::collection::vec(any::<prop::sample::Index>(), 1..2000),
        )
            .prop_map(|(words, order)| order.iter().flat_map(|at| at.get(&words).bytes()).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_engine_inflates_what_any_engine_deflated(plain in text()) {
            let mut out = vec![0; plain.len() + plain.len() / 8 + 1024];
            let mut found = vec![0; plain.len()];
            for mut deflater in deflaters() {
                let Some(len) = deflater.deflate(&plain, &mut out) else {
                    return Err(TestCaseError::fail("no room"));
                };
                for mut inflater in inflaters() {
                    found.fill(0xaa);
                    prop_assert!(inflater.inflate(&out[..len], &mut found).is_ok());
                    prop_assert!(found == plain, "{}", deflater.engine());
                }
            }
        }
    }

    #[test]
    fn no_engine_takes_deflate_data_with_a_byte_too_many_or_too_few() {
        let plain: Vec<u8> = (0..3000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let mut out = vec![0; 20_000];
        let len = Deflater::Miniz(miniz::Deflater::new(6))
            .deflate(&plain, &mut out)
            .unwrap();
        for mut inflater in inflaters() {
            let mut inflate =
                |len: usize, room: usize| inflater.inflate(&out[..len], &mut vec![0; room]).is_ok();
            assert!(inflate(len, plain.len()));
            assert!(!inflate(len + 1, plain.len()) && !inflate(len - 1, plain.len()));
            assert!(!inflate(len, plain.len() + 1) && !inflate(len, plain.len() - 1));
            assert!(!inflate(0, plain.len()) && !inflate(0, 0));
        }
    }

    #[test]
    fn no_engine_writes_beyond_the_room_it_is_given() {
        // A multiplicative generator: its upper bits are noise to any matcher.
        let step = |state: &mut u64| {
            *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            Some((*state >> 56) as u8)
        };
        let noise: Vec<u8> = (0..70_000).scan(1, |state, _| step(state)).collect();
        for mut deflater in deflaters() {
            for room in [0, 1, 7, 8, 9, 63, 1000, 60_000] {
                let mut out = vec![0x77; room + 256];
                assert_eq!(
                    deflater.deflate(&noise, &mut out[..room]),
                    None,
                    "{}",
                    deflater.engine()
                );
                assert!(
                    out[room..].iter().all(|b| *b == 0x77),
                    "{} in {room}",
                    deflater.engine()
                );
            }
        }
    }
}
