//! MS_XPRESS payloads: LZ77+Huffman chunks in an LZ4 skippable frame.
//!
//! | offset | size | value |
//! |---|---|---|
//! | 0 | 4 | `5b 2a 4d 18`: skippable frame 11 |
//! | 4 | 4 | bytes that follow |
//! | 8 | 4 | plain bytes |
//! | 12 | 2 × count | stored length of each chunk, less one |
//! | 12 + 2 × count | | the chunks |
//!
//! All numbers are little-endian. No stock tool reads such chunks, hence a frame that stock tools skip.
//!
//! Invariants
//! - Every chunk but the last stands for 65,536 plain bytes, and count follows from that.
//! - A chunk as long as its plain bytes contains those bytes; any shorter one is a separate MS-XCA LZ77+Huffman stream;
//!   none is longer. So a payload never exceeds [`stored_len`].
//! - A payload is accepted only if its frame, its plain length and its last chunk end exactly where the payload and the
//!   plain bytes end.
//!
//! Leaves to others: the chunks themselves (`xpress`), and how much a chunk must save to be worth it ([`worth`]).

use crate::encoded::{Encoded, worth};
use crate::{Level, PayloadError, xpress};

const MAGIC: u32 = 0x184d_2a5b;
const HEADER_LEN: usize = 12;
/// Bytes of the payload that the frame's own length does not count.
const FRAME_HEADER_LEN: usize = 8;
const CHUNK_PLAIN: usize = xpress::CHUNK_BYTES_MAX;

pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = 1..=3;

/// Length of a payload that stores `plain_len` bytes.
pub(crate) fn stored_len(plain_len: usize) -> usize {
    table_end(plain_len) + plain_len
}

fn table_end(plain_len: usize) -> usize {
    HEADER_LEN + 2 * plain_len.div_ceil(CHUNK_PLAIN)
}

/// One worker's compressor.
pub(crate) struct Compressor {
    encoder: xpress::Encoder,
}

impl Compressor {
    pub(crate) fn new(level: Level) -> Compressor {
        let level = match level {
            Level::Low => 1,
            Level::Medium => 2,
            Level::High => 3,
            // Checked against `LEVELS` by the caller.
            Level::Number(n) => n as u8,
        };
        Compressor {
            encoder: xpress::Encoder::new(level),
        }
    }

    /// Writes the payload for `plain` into `out`, which holds it stored.
    pub(crate) fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Encoded {
        let mut at = table_end(plain.len());
        let mut stored = true;
        for (i, chunk) in plain.chunks(CHUNK_PLAIN).enumerate() {
            let room = &mut out[at..at + worth(chunk.len())];
            let compressed = self.encoder.compress(chunk, room);
            stored &= compressed.is_none();
            let len = compressed.unwrap_or_else(|| {
                out[at..at + chunk.len()].copy_from_slice(chunk);
                chunk.len()
            });
            let entry = HEADER_LEN + 2 * i;
            out[entry..entry + 2].copy_from_slice(&((len - 1) as u16).to_le_bytes());
            at += len;
        }
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&((at - FRAME_HEADER_LEN) as u32).to_le_bytes());
        out[8..HEADER_LEN].copy_from_slice(&(plain.len() as u32).to_le_bytes());
        Encoded { len: at, stored }
    }
}

/// Decodes one frame that fills `payload` and gives exactly `plain.len()` bytes.
pub(crate) fn decompress(payload: &[u8], plain: &mut [u8]) -> Result<(), PayloadError> {
    let mut at = table_end(plain.len());
    if payload.len() < at {
        return Err(PayloadError::at(payload.len(), "chunk table ends early"));
    }
    let number = |at: usize| {
        u32::from_le_bytes([
            payload[at],
            payload[at + 1],
            payload[at + 2],
            payload[at + 3],
        ])
    };
    if number(0) != MAGIC {
        return Err(PayloadError::at(0, "not the skippable frame of MS_XPRESS"));
    }
    if number(4) as usize != payload.len() - FRAME_HEADER_LEN {
        return Err(PayloadError::at(4, "frame and payload do not end together"));
    }
    if number(8) as usize != plain.len() {
        return Err(PayloadError::at(8, "frame has another plain length"));
    }
    for (i, chunk) in plain.chunks_mut(CHUNK_PLAIN).enumerate() {
        let entry = HEADER_LEN + 2 * i;
        let len = usize::from(u16::from_le_bytes([payload[entry], payload[entry + 1]])) + 1;
        let stored = payload[at..]
            .get(..len)
            .ok_or(PayloadError::at(entry, "chunk is longer than the payload"))?;
        if len > chunk.len() {
            return Err(PayloadError::at(
                entry,
                "chunk is longer than its plain bytes",
            ));
        } else if len == chunk.len() {
            chunk.copy_from_slice(stored);
        } else {
            xpress::decompress(stored, chunk)
                .map_err(|d: xpress::ChunkError| PayloadError::at(at, d.to_string()))?;
        }
        at += len;
    }
    if at != payload.len() {
        return Err(PayloadError::at(at, "bytes after the last chunk"));
    }
    Ok(())
}
