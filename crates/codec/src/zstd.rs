//! ZSTD payloads: one zstd frame with its content size, without a checksum of its own.
//!
//! The block around the payload carries a CRC-32C of both the plain and the stored bytes, so
//! zstd's XXH64 would only cost time a second time.
//!
//! What zstd does not shrink becomes a frame of raw blocks written here: that is what zstd itself
//! would write, but with a bound that does not depend on its version.
//!
//! The named levels, measured as in `deflate.rs`:
//!
//! | level | MB/s | ratio | |
//! |---|---|---|---|
//! | 1 | 738 | 4.500 | |
//! | 1 with window 18, hash 15, match 6 | 737 | 4.547 | `LOW`: smaller at the same speed |
//! | 2 | 625 | 4.570 | |
//! | 3 | 450 | 4.714 | `MEDIUM` |
//! | 5 | 210 | 4.854 | |
//! | 6 | 143 | 4.944 | `HIGH` |
//! | 7 | 108 | 4.958 | |
//! | 9 | 92 | 4.970 | |
//!
//! Decoding runs at 1800 to 2000 MB/s.
//!
//! Source: RFC 8878.

use zstd_safe::{CCtx, CParameter, DCtx};

use crate::encoded::{Encoded, worth};
use crate::{Damaged, Level};

pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = -7..=22;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Frame header descriptor: content size of 4 bytes, single segment, no checksum, no dictionary.
const DESCRIPTOR: u8 = 0b1010_0000;
const HEADER_LEN: usize = 9;
const BLOCK_MAX: usize = 128 << 10;
const BLOCK_HEADER: usize = 3;

/// Length of a frame that stores `plain_len` bytes.
pub(crate) fn stored_len(plain_len: usize) -> usize {
    HEADER_LEN + plain_len + plain_len.div_ceil(BLOCK_MAX) * BLOCK_HEADER
}

/// Writes `plain` as a frame of raw blocks; gives the payload's length.
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
pub(crate) struct Compressor {
    context: CCtx<'static>,
}

impl Compressor {
    pub(crate) fn new(level: Level) -> Compressor {
        let mut context = CCtx::create();
        let mut set = |parameter| {
            context
                .set_parameter(parameter)
                .expect("zstd knows its own parameters");
        };
        match level {
            Level::Low => {
                // Chosen for the bundled 1.5.7; zstd 1.5.4 is a tenth slower with them.
                set(CParameter::CompressionLevel(1));
                set(CParameter::WindowLog(18));
                set(CParameter::HashLog(15));
                set(CParameter::MinMatch(6));
            }
            Level::Medium => set(CParameter::CompressionLevel(3)),
            Level::High => set(CParameter::CompressionLevel(6)),
            Level::Number(n) => set(CParameter::CompressionLevel(n)),
        }
        set(CParameter::ContentSizeFlag(true));
        set(CParameter::ChecksumFlag(false));
        set(CParameter::DictIdFlag(false));
        Compressor { context }
    }

    /// Writes the payload for `plain` into `out`, which holds it stored.
    pub(crate) fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Encoded {
        // An error means that it does not fit, or that memory is short: storing needs neither.
        match self
            .context
            .compress2(&mut out[..worth(plain.len())], plain)
        {
            Ok(len) => Encoded { len, stored: false },
            Err(_) => Encoded {
                len: store(plain, out),
                stored: true,
            },
        }
    }
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
    pub(crate) fn decompress(&mut self, payload: &[u8], plain: &mut [u8]) -> Result<(), Damaged> {
        if !payload.starts_with(&MAGIC) {
            return Err(Damaged::at(0, "not a zstd frame"));
        }
        match zstd_safe::find_frame_compressed_size(payload) {
            Ok(len) if len == payload.len() => {}
            Ok(len) => return Err(Damaged::at(len, "bytes after the end of the zstd frame")),
            Err(_) => return Err(Damaged::at(payload.len(), "zstd frame ends early")),
        }
        match self.context.decompress(plain, payload) {
            Ok(len) if len == plain.len() => Ok(()),
            Ok(_) => Err(Damaged::at(
                payload.len(),
                "frame holds less than the plain length",
            )),
            Err(code) => Err(Damaged::at(0, zstd_safe::get_error_name(code))),
        }
    }
}

/// The library's version, for example `1.5.7`.
pub(crate) fn version() -> &'static str {
    zstd_safe::version_string()
}
