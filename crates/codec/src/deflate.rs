//! Deflate engines, and which of them serves which level.
//!
//! | engine | levels | when |
//! |---|---|---|
//! | ISA-L | 1 to 3 | found at run time and passed its self-test |
//! | libdeflate | 4 to 12; 1 to 3 without ISA-L | built in (feature `libdeflate`) |
//! | miniz_oxide | whatever is left | always there: pure Rust, slow |
//!
//! All of them make raw deflate data with a window of at most 32 KiB, and any of them inflates
//! what another made. Levels shift to the nearest engine at hand, they are never refused.

pub(crate) mod isal;
#[cfg(feature = "libdeflate")]
pub(crate) mod libdeflate;
pub(crate) mod miniz;

use crate::{Damaged, Level};
pub(crate) use isal::Isal;

/// The levels of QAT_DEFLATE's own scale.
pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = 1..=12;

/// The level on QAT_DEFLATE's own scale that serves `level` best.
pub(crate) fn number(level: Level) -> i32 {
    match level {
        Level::Low => 1,
        Level::Medium => 3,
        Level::High => 6,
        Level::Number(n) => n,
    }
}

/// One worker's compressor.
pub(crate) enum Deflater {
    Isal(isal::Deflater),
    #[cfg(feature = "libdeflate")]
    Libdeflate(libdeflate::Deflater),
    Miniz(miniz::Deflater),
}

impl Deflater {
    /// The best engine at hand for `level`, one of [`LEVELS`].
    pub(crate) fn new(level: i32, isal: Option<&Isal>) -> Deflater {
        if let (Some(isal), 1..=3) = (isal, level) {
            return Deflater::Isal(isal::Deflater::new(isal, level as u32));
        }
        #[cfg(feature = "libdeflate")]
        if let Some(deflater) = libdeflate::Deflater::new(level) {
            return Deflater::Libdeflate(deflater);
        }
        Deflater::Miniz(miniz::Deflater::new(level))
    }

    /// Compresses `plain` to one final deflate stream at the start of `out`. None when it does
    /// not fit; `out` is then worthless.
    pub(crate) fn deflate(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        match self {
            Deflater::Isal(d) => d.deflate(plain, out),
            #[cfg(feature = "libdeflate")]
            Deflater::Libdeflate(d) => d.deflate(plain, out),
            Deflater::Miniz(d) => d.deflate(plain, out),
        }
    }

    pub(crate) fn engine(&self) -> &'static str {
        match self {
            Deflater::Isal(_) => isal::NAME,
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
    pub(crate) fn inflate(&mut self, deflate: &[u8], plain: &mut [u8]) -> Result<(), Damaged> {
        let whole = match self {
            Inflater::Isal(i) => i.inflate(deflate, plain),
            #[cfg(feature = "libdeflate")]
            Inflater::Libdeflate(i) => i.inflate(deflate, plain),
            Inflater::Miniz(i) => i.inflate(deflate, plain),
        };
        if whole {
            Ok(())
        } else {
            Err(Damaged::at(
                0,
                "deflate data does not decode to its plain length",
            ))
        }
    }
}
