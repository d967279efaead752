//! QAT_DEFLATE in software: buffers to gzip-ext members and back, with the best available deflate engine.
//!
//! Invariants
//! - A member is never longer than the bound that the caller's buffer has: bytes that do not compress are stored.
//! - The layout does not depend on the engine, so every engine decodes every payload.
//! - A payload is accepted only if its members fill it and give exactly the plain bytes, and each CRC-32 matches.
//!
//! Leaves to others: a member's layout (`gzext.rs`), the engines themselves (`deflate`), and choosing levels
//! (`engines.rs`).

use crate::deflate::{self, Deflater, Inflater, Isal};
use crate::encoded::{Encoded, worth};
use crate::gzext::{self, HEADER_LEN, Member};
use crate::{Level, PayloadError};

/// One worker's compressor.
pub(crate) struct Compressor {
    deflater: Deflater,
    /// The fastest engine, for all levels but the lowest: tried first when `noise` is expected.
    scout: Option<Deflater>,
    /// The last member was stored. Incompressible members come in runs (encrypted or packed columns), and the thorough
    /// engines spend several times longer on them than on data.
    noise: bool,
}

impl Compressor {
    pub(crate) fn new(level: Level) -> Compressor {
        let isal = Isal::load().ok();
        let level = deflate::number(level);
        let lowest = *deflate::LEVELS.start();
        Compressor {
            deflater: Deflater::new(level, isal),
            scout: (level > lowest).then(|| Deflater::new(lowest, isal)),
            noise: false,
        }
    }

    pub(crate) fn engine(&self) -> &'static str {
        self.deflater.engine()
    }

    /// Writes the payload for `plain` into `out`, which holds all of its members stored.
    pub(crate) fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Encoded {
        let mut len = 0;
        let mut stored = true;
        for range in gzext::members(plain.len()) {
            let plain = &plain[range];
            let member = &mut out[len..len + gzext::stored_len(plain.len())];
            let crc32 = crc_fast::crc32_iso_hdlc(plain);
            let room = &mut member[HEADER_LEN..HEADER_LEN + worth(plain.len())];
            let deflated = self.deflate(plain, room);
            stored &= deflated.is_none();
            let deflate_len = deflated.unwrap_or_else(|| gzext::store(plain, member));
            len += gzext::seal(member, plain.len(), deflate_len, crc32);
        }
        Encoded { len, stored }
    }

    fn deflate(&mut self, plain: &[u8], room: &mut [u8]) -> Option<usize> {
        let hopeless = self.noise
            && self
                .scout
                .as_mut()
                .is_some_and(|scout| scout.deflate(plain, room).is_none());
        let deflated = if hopeless {
            None
        } else {
            self.deflater.deflate(plain, room)
        };
        self.noise = deflated.is_none();
        deflated
    }
}

/// One worker's decompressor.
pub(crate) struct Decompressor {
    inflater: Inflater,
}

impl Decompressor {
    pub(crate) fn new() -> Decompressor {
        Decompressor {
            inflater: Inflater::new(Isal::load().ok()),
        }
    }

    /// Decodes members that fill `payload` and give exactly `plain.len()` bytes.
    pub(crate) fn decompress(
        &mut self,
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), PayloadError> {
        let (mut at, mut rest) = (0, plain);
        while !rest.is_empty() {
            let member = Member::parse(&payload[at..], rest.len()).map_err(|d| d.shifted(at))?;
            let (place, after) = rest.split_at_mut(member.plain_len);
            let body = at + HEADER_LEN;
            self.inflater
                .inflate(member.deflate, place)
                .map_err(|d| d.shifted(body))?;
            if crc_fast::crc32_iso_hdlc(place) != member.crc32 {
                return Err(PayloadError::at(body, "member's CRC-32 does not match"));
            }
            at += member.len;
            rest = after;
        }
        if at != payload.len() {
            return Err(PayloadError::at(at, "bytes after the last member"));
        }
        Ok(())
    }
}
