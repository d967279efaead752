//! PAGES payloads: database pages in columns, in an LZ4 skippable frame. No stock tool reads them.
//!
//! | offset | size | value |
//! |---|---|---|
//! | 0 | 4 | `5c 2a 4d 18`: skippable frame 12 |
//! | 4 | 4 | bytes that follow |
//! | 8 | 1 | 0: the plain bytes follow as they are |
//!
//! Invariants
//! - A payload is never longer than [`stored_len`].
//! - A payload is accepted only if its frame and its plain bytes end exactly where the payload and the buffer end.

use crate::encoded::Encoded;
use crate::{Level, PayloadError};

mod layout;

pub use layout::{Column, Layout, Part};

const MAGIC: u32 = 0x184d_2a5c;
const FRAME_HEADER_LEN: usize = 8;
/// The most bytes that a payload has more than its plain bytes.
const OVERHEAD: usize = 64;
/// Memory of one worker's compressor or decompressor.
pub const WORKER_MEMORY: usize = 16 << 20;

pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = 1..=3;

/// Length of the longest payload of `plain_len` bytes.
pub(crate) fn stored_len(plain_len: usize) -> usize {
    plain_len + OVERHEAD
}

/// One worker's compressor.
pub(crate) struct Compressor;

impl Compressor {
    pub(crate) fn new(_: Level) -> Compressor {
        Compressor
    }

    /// Writes the payload for `plain` into `out`, which holds it stored.
    pub(crate) fn compress(&mut self, plain: &[u8], _: &[Part<'_>], out: &mut [u8]) -> Encoded {
        let len = FRAME_HEADER_LEN + 1 + plain.len();
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&((len - FRAME_HEADER_LEN) as u32).to_le_bytes());
        out[8] = 0;
        out[9..len].copy_from_slice(plain);
        Encoded { len, stored: true }
    }
}

/// One worker's decompressor.
pub(crate) struct Decompressor;

impl Decompressor {
    pub(crate) fn new() -> Decompressor {
        Decompressor
    }

    /// Decodes one frame that fills `payload` and gives exactly `plain.len()` bytes.
    pub(crate) fn decompress(
        &mut self,
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), PayloadError> {
        let number = |at: usize| {
            let bytes = payload.get(at..at + 4).and_then(|b| b.try_into().ok());
            bytes.map(u32::from_le_bytes)
        };
        if number(0) != Some(MAGIC) {
            return Err(PayloadError::at(0, "not the skippable frame of PAGES"));
        }
        if number(4).is_none_or(|n| n as usize != payload.len() - FRAME_HEADER_LEN) {
            return Err(PayloadError::at(4, "frame and payload do not end together"));
        }
        if payload.get(8) != Some(&0) {
            return Err(PayloadError::at(8, "unknown method"));
        }
        if payload.len() - 9 != plain.len() {
            return Err(PayloadError::at(9, "another plain length"));
        }
        plain.copy_from_slice(&payload[9..]);
        Ok(())
    }
}
