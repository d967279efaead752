//! Decompresses payloads to buffers.

use crate::lz4::{self, Blocks};
use crate::{Algorithm, PayloadError, chunks, members, pages, zstd};

/// Restores buffers, one at a time. One per worker thread: the engines' memory is allocated on first use and reused.
#[derive(Default)]
pub struct Decompressor {
    members: Option<members::Decompressor>,
    zstd: Option<zstd::Decompressor>,
    pages: Option<Box<pages::Decompressor>>,
}

impl Decompressor {
    pub fn new() -> Decompressor {
        Decompressor::default()
    }

    /// Decodes `payload` into `plain`, which the payload must fill exactly. Accepts any bytes. After an error the
    /// content of `plain` is undefined.
    pub fn decompress(
        &mut self,
        algorithm: Algorithm,
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), PayloadError> {
        match algorithm {
            Algorithm::None => lz4::decompress(payload, plain, Blocks::StoredOnly),
            Algorithm::Lz4 => lz4::decompress(payload, plain, Blocks::Any),
            Algorithm::MsXpress => chunks::decompress(payload, plain),
            Algorithm::QatDeflate => self
                .members
                .get_or_insert_with(members::Decompressor::new)
                .decompress(payload, plain),
            Algorithm::Zstd => self
                .zstd
                .get_or_insert_with(zstd::Decompressor::new)
                .decompress(payload, plain),
            Algorithm::Pages => self
                .pages
                .get_or_insert_with(|| Box::new(pages::Decompressor::new()))
                .decompress(payload, plain),
        }
    }
}

/// The bytes around a buffer that is stored under `NONE`: the payload is prefix, plain bytes, suffix. So a reader can
/// read straight into its destination. The lengths of prefix and suffix are the same for every buffer.
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
