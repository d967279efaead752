//! From payloads back to buffers.

use crate::deflate::{Inflater, Isal};
use crate::gzext::{HEADER_LEN, Member};
use crate::lz4::{self, Blocks};
use crate::{Algorithm, Damaged, chunks, zstd};

/// Restores buffers, one at a time. One per worker thread: engines' memory is made on first use
/// and reused.
#[derive(Default)]
pub struct Decompressor {
    inflater: Option<Inflater>,
    zstd: Option<zstd::Decompressor>,
}

impl Decompressor {
    pub fn new() -> Decompressor {
        Decompressor::default()
    }

    /// Decodes `payload` into `plain`, whose length is what the payload must give exactly. Takes
    /// any bytes. On error `plain` holds rubbish.
    pub fn decompress(
        &mut self,
        algorithm: Algorithm,
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), Damaged> {
        match algorithm {
            Algorithm::None => lz4::decompress(payload, plain, Blocks::StoredOnly),
            Algorithm::Lz4 => lz4::decompress(payload, plain, Blocks::Any),
            Algorithm::MsXpress => chunks::decompress(payload, plain),
            Algorithm::Zstd => self
                .zstd
                .get_or_insert_with(zstd::Decompressor::new)
                .decompress(payload, plain),
            Algorithm::QatDeflate => {
                let inflater = self
                    .inflater
                    .get_or_insert_with(|| Inflater::new(Isal::load().ok()));
                inflate_members(inflater, payload, plain)
            }
        }
    }
}

fn inflate_members(
    inflater: &mut Inflater,
    payload: &[u8],
    plain: &mut [u8],
) -> Result<(), Damaged> {
    let (mut at, mut rest) = (0, plain);
    while !rest.is_empty() {
        let member = Member::parse(&payload[at..], rest.len()).map_err(|d| d.shifted(at))?;
        let (place, after) = rest.split_at_mut(member.plain_len);
        inflater
            .inflate(member.deflate, place)
            .map_err(|d| d.shifted(at + HEADER_LEN))?;
        if crc_fast::crc32_iso_hdlc(place) != member.crc32 {
            return Err(Damaged::at(
                at + HEADER_LEN,
                "member's CRC-32 does not match",
            ));
        }
        at += member.len;
        rest = after;
    }
    if at != payload.len() {
        return Err(Damaged::at(at, "bytes after the last member"));
    }
    Ok(())
}

/// The bytes around a buffer that is stored under `NONE`, so that a reader can read straight
/// into its place: the payload is prefix, plain bytes, suffix. Both have the same length for
/// every buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoneFrame {
    pub prefix: [u8; NoneFrame::PREFIX_LEN],
    pub suffix: [u8; NoneFrame::SUFFIX_LEN],
}

impl NoneFrame {
    pub const PREFIX_LEN: usize = lz4::PREFIX_LEN;
    pub const SUFFIX_LEN: usize = lz4::SUFFIX.len();
}

/// The frame for `plain_len` bytes, 1 to [`PLAIN_LEN_MAX`](crate::PLAIN_LEN_MAX).
pub fn none_frame(plain_len: usize) -> NoneFrame {
    NoneFrame {
        prefix: lz4::stored_prefix(plain_len),
        suffix: lz4::SUFFIX,
    }
}
