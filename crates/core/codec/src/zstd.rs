//! ZSTD payloads: one zstd frame with its content size, without its own checksum.
//!
//! The block around the payload carries a CRC-32C of both the plain and the stored bytes, so zstd's XXH64 would only
//! cost time again.
//!
//! Incompressible input becomes a frame of raw blocks written here: zstd itself would write the same, but this bound
//! does not depend on its version.
//!
//! The named levels, measured as in `deflate.rs`:
//!
//! | level | MB/s | ratio | |
//! |---|---|---|---|
//! | 1 | 738 | 4.500 | |
//! | 2 | 625 | 4.570 | |
//! | 3 | 450 | 4.714 | `MEDIUM` |
//! | 5 | 210 | 4.854 | |
//! | 6 | 143 | 4.944 | `HIGH` |
//! | 7 | 108 | 4.958 | |
//! | 9 | 92 | 4.970 | |
//!
//! `LOW` is level 1 with parameters of its own. On one core of a Xeon with AVX-512, 1 MiB at a time, MB/s of CPU time
//! and ratio, for 257 MB of PostgreSQL's tables and indexes (pgbench, TPC-C, TPC-H) and 262 MB each of the sample
//! databases of `lab sample`:
//!
//! | | PostgreSQL | stae | tprocc |
//! |---|---|---|---|
//! | level 1 | 626, 4.160 | 427, 2.794 | 501, 1.587 |
//! | level 1, window 2^18, hash 2^15, match 6 | 616, 4.262 | 398, 3.075 | 488, 1.597 |
//! | the same, blocks of 128 KiB are not split | 639, 4.247 | 409, 3.066 | 499, 1.596 |
//! | with a hash of 2^14, which is 64 KiB: `LOW` | 673, 4.223 | 419, 3.024 | 503, 1.592 |
//! | with a window of 2^17 besides | 665, 4.178 | 416, 2.941 | 523, 1.589 |
//! | every third position instead | 716, 4.022 | 417, 2.806 | 584, 1.580 |
//!
//! In blocks that shrink by a factor below 1.75 (an eighth of that PostgreSQL cluster, most of tprocc), looking at
//! every seventh position costs 1.6 to 2 % of the size and is 50 % faster (521 to 778 and 513 to 760 MB/s); in other
//! blocks the size suffers. So the last blocks decide how the next is searched ([`Pace`]).
//!
//! Decoding runs at 1800 to 2000 MB/s.
//!
//! Source: RFC 8878.
//!
//! Invariants
//! - The writer's payload is one zstd frame that names its content size. The reader accepts only one frame that fills
//!   the payload and gives exactly the plain length.
//! - `compress` always produces a payload of at most [`stored_len`] bytes: input that does not shrink enough, or that
//!   zstd has no memory for, is stored.
//! - A context is made and freed once and used by one thread at a time.
//!
//! Leaves to others: how closely the next block is searched (`pace.rs`); how much a frame must save (`encoded.rs`); the
//! checksums around the payload (`longshore-media`).

use std::ptr::NonNull;

use zstd_safe::DCtx;
use zstd_safe::zstd_sys::{self, ZSTD_CCtx, ZSTD_cParameter, ZSTD_cParameter::*};

use crate::encoded::{Encoded, worth};
use crate::pace::{Pace, Search};
use crate::{Level, PayloadError};

pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = -7..=22;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Frame header descriptor: content size of 4 bytes, single segment, no checksum, no dictionary.
const DESCRIPTOR: u8 = 0b1010_0000;
const HEADER_LEN: usize = 9;
const BLOCK_MAX: usize = 128 << 10;
const BLOCK_HEADER: usize = 3;

/// `ZSTD_c_blockSplitterLevel` of zstd.h, since 1.5.7.
const BLOCK_SPLITTER_LEVEL: ZSTD_cParameter = ZSTD_c_experimentalParam20;
const NO_SPLITTING: i32 = 1;
/// `ZSTD_c_literalCompressionMode` of zstd.h.
const LITERAL_COMPRESSION_MODE: ZSTD_cParameter = ZSTD_c_experimentalParam5;
const ENABLED: i32 = 1;

/// Length of a frame that stores `plain_len` bytes.
pub(crate) fn stored_len(plain_len: usize) -> usize {
    HEADER_LEN + plain_len + plain_len.div_ceil(BLOCK_MAX) * BLOCK_HEADER
}

/// Writes `plain` as a frame of raw blocks; returns the payload's length.
fn store(plain: &[u8], out: &mut [u8]) -> usize {
    out[..4].copy_from_slice(&MAGIC);
    out[4] = DESCRIPTOR;
    out[5..HEADER_LEN].copy_from_slice(&(plain.len() as u32).to_le_bytes());
    let mut at = HEADER_LEN;
    let count = plain.len().div_ceil(BLOCK_MAX);
    for (i, block) in plain.chunks(BLOCK_MAX).enumerate() {
        // Bit 0: last block. Bits 1 and 2: type, 0 is raw. The rest: its length.
        let header = (block.len() as u32) << 3 | u32::from(i + 1 == count);
        out[at..at + BLOCK_HEADER].copy_from_slice(&header.to_le_bytes()[..BLOCK_HEADER]);
        at += BLOCK_HEADER;
        out[at..at + block.len()].copy_from_slice(block);
        at += block.len();
    }
    at
}

/// One worker's compressor.
///
/// Uses the C interface, since `zstd-safe` has no name for the parameter that switches the block splitter off.
pub(crate) struct Compressor {
    context: NonNull<ZSTD_CCtx>,
    pace: Option<Pace>,
}

/// `targetLength`: the fast strategy tries one position in `targetLength` + 1, and with 0 as many as at level 1.
fn target_length(search: Search) -> i32 {
    match search {
        Search::Close => 0,
        Search::Sparse => 6,
    }
}

/// Shorter blocks say nothing about the next.
const TELLING: usize = 128 << 10;

// SAFETY: a context belongs to no thread; only two threads must not use it at once, and whoever uses it holds the
// compressor alone.
unsafe impl Send for Compressor {}

impl Compressor {
    pub(crate) fn new(level: Level) -> Compressor {
        // SAFETY: the call demands nothing; null, its answer without memory, is looked for below.
        let context = unsafe { zstd_sys::ZSTD_createCCtx() };
        let mut made = Compressor {
            context: NonNull::new(context).expect("zstd gets memory for a context"),
            pace: None,
        };
        match level {
            Level::Low => {
                // Chosen for the bundled 1.5.7.
                made.set(ZSTD_c_compressionLevel, 1);
                made.set(ZSTD_c_windowLog, 18);
                made.set(ZSTD_c_hashLog, 14);
                made.set(ZSTD_c_minMatch, 6);
                made.set(BLOCK_SPLITTER_LEVEL, NO_SPLITTING);
                // Without this parameter zstd stops coding literals as soon as it searches sparsely.
                made.set(LITERAL_COMPRESSION_MODE, ENABLED);
                made.pace = Some(Pace::new());
            }
            Level::Medium => made.set(ZSTD_c_compressionLevel, 3),
            Level::High => made.set(ZSTD_c_compressionLevel, 6),
            Level::Number(n) => made.set(ZSTD_c_compressionLevel, n),
        }
        made.set(ZSTD_c_contentSizeFlag, 1);
        made.set(ZSTD_c_checksumFlag, 0);
        made.set(ZSTD_c_dictIDFlag, 0);
        made
    }

    fn set(&mut self, parameter: ZSTD_cParameter, value: i32) {
        // SAFETY: zstd.h demands a context that one thread uses: `new` made it, and `&mut self` has it alone.
        let code =
            unsafe { zstd_sys::ZSTD_CCtx_setParameter(self.context.as_ptr(), parameter, value) };
        assert!(!is_error(code), "zstd knows its own parameters");
    }

    /// Writes the payload for `plain` into `out`, which holds it stored.
    pub(crate) fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Encoded {
        let len = match self.pace.take() {
            Some(mut pace) if plain.len() >= TELLING => {
                let len = pace.compress(plain.len(), |search| {
                    self.set(ZSTD_c_targetLength, target_length(search));
                    self.attempt(plain, out)
                });
                self.pace = Some(pace);
                len
            }
            pace => {
                self.pace = pace;
                self.attempt(plain, out)
            }
        };
        match len {
            Some(len) => Encoded { len, stored: false },
            None => Encoded {
                len: store(plain, out),
                stored: true,
            },
        }
    }

    /// The length of the frame, or `None` if the input does not shrink or memory is short; storing works in both
    /// cases.
    fn attempt(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        let room = &mut out[..worth(plain.len())];
        // SAFETY: zstd.h demands a context that one thread uses: `new` made it, and `&mut self` has it alone. Both ranges
        // are slices with their lengths; zstd writes to the first and reads the second only.
        let len = unsafe {
            zstd_sys::ZSTD_compress2(
                self.context.as_ptr(),
                room.as_mut_ptr().cast(),
                room.len(),
                plain.as_ptr().cast(),
                plain.len(),
            )
        };
        (!is_error(len)).then_some(len)
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        // SAFETY: zstd.h demands a context that was not freed: `new` made it, and only this frees it.
        unsafe { zstd_sys::ZSTD_freeCCtx(self.context.as_ptr()) };
    }
}

fn is_error(code: usize) -> bool {
    // SAFETY: the call demands a number, of which any is allowed, and no memory.
    unsafe { zstd_sys::ZSTD_isError(code) != 0 }
}

/// One worker's decompressor.
pub(crate) struct Decompressor {
    context: DCtx<'static>,
}

impl Decompressor {
    pub(crate) fn new() -> Decompressor {
        Decompressor {
            context: DCtx::create(),
        }
    }

    /// Decodes frames that fill `payload` and give exactly `plain.len()` bytes.
    pub(crate) fn decompress(
        &mut self,
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), PayloadError> {
        if !payload.starts_with(&MAGIC) {
            return Err(PayloadError::at(0, "not a zstd frame"));
        }
        match zstd_safe::find_frame_compressed_size(payload) {
            Ok(len) if len == payload.len() => {}
            Ok(len) => {
                return Err(PayloadError::at(
                    len,
                    "bytes after the end of the zstd frame",
                ));
            }
            Err(_) => return Err(PayloadError::at(payload.len(), "zstd frame ends early")),
        }
        match self.context.decompress(plain, payload) {
            Ok(len) if len == plain.len() => Ok(()),
            Ok(_) => Err(PayloadError::at(
                payload.len(),
                "frame holds less than the plain length",
            )),
            Err(code) => Err(PayloadError::at(0, zstd_safe::get_error_name(code))),
        }
    }
}

/// The library's version, for example `1.5.7`.
pub(crate) fn version() -> &'static str {
    zstd_safe::version_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn noise(seed: u64) -> impl Iterator<Item = u8> {
        let mut state = seed | 1;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
    }

    /// Letters and digits in random order, as in TPC-C's rows: hardly any matches.
    fn letters(seed: u64) -> Vec<u8> {
        noise(seed).map(|byte| b'0' + byte % 43).take(MIB).collect()
    }

    /// Rows that resemble each other.
    fn rows(seed: u64) -> Vec<u8> {
        (0..)
            .flat_map(|i: u64| format!("{:08};{};customer;", i * seed, i % 7).into_bytes())
            .take(MIB)
            .collect()
    }

    fn round_trip(compressor: &mut Compressor, plain: &[u8]) -> usize {
        let mut out = vec![0; stored_len(plain.len())];
        let encoded = compressor.compress(plain, &mut out);
        let mut back = vec![0; plain.len()];
        Decompressor::new()
            .decompress(&out[..encoded.len], &mut back)
            .unwrap();
        assert!(back == plain);
        encoded.len
    }

    #[test]
    fn compressible_data_is_always_searched_closely() {
        let fresh = |plain: &[u8]| round_trip(&mut Compressor::new(Level::Low), plain);
        let (poor, good) = (letters(1), rows(3));
        let (poor_len, good_len) = (fresh(&poor), fresh(&good));
        let mut one = Compressor::new(Level::Low);
        for _ in 0..3 {
            for _ in 0..4 {
                let len = round_trip(&mut one, &poor);
                assert!(len < poor_len * 21 / 20, "{len} {poor_len}");
                // Short blocks are searched as configured.
                round_trip(&mut one, &good[..1000]);
            }
            assert_eq!(round_trip(&mut one, &good), good_len);
        }
    }

    #[test]
    fn barely_compressible_data_is_searched_sparsely_after_a_while() {
        // Words that recur, too seldom and too short to be found at every seventh position.
        let mut poor = letters(5);
        for at in (4096..MIB - 64).step_by(512) {
            poor.copy_within(at - 4000..at - 3984, at);
        }
        let mut one = Compressor::new(Level::Low);
        let lens: Vec<usize> = (0..4).map(|_| round_trip(&mut one, &poor)).collect();
        assert_eq!(lens[0], round_trip(&mut Compressor::new(Level::Low), &poor));
        // The second block was compressed both ways, and the sparse result was kept.
        assert!(lens[1] > lens[0] && lens[1..] == [lens[1]; 3], "{lens:?}");
    }

    #[test]
    fn incompressible_data_is_stored_at_either_pace() {
        let noise: Vec<u8> = noise(7).take(MIB).collect();
        let mut one = Compressor::new(Level::Low);
        for _ in 0..4 {
            assert!(round_trip(&mut one, &noise) <= stored_len(MIB));
        }
    }

    #[test]
    fn numbered_levels_are_zstd_s_own() {
        let plain = rows(5);
        for level in [-3, 1, 3] {
            let mut out = vec![0; stored_len(plain.len())];
            let ours = Compressor::new(Level::Number(level)).compress(&plain, &mut out);
            let mut theirs = vec![0; zstd_safe::compress_bound(plain.len())];
            let len = zstd_safe::compress(&mut theirs[..], &plain, level).unwrap();
            assert!(out[..ours.len] == theirs[..len], "level {level}");
        }
    }
}
