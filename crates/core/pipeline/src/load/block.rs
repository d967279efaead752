//! The bytes of a block: where they go in a buffer, and its header.
//!
//! Everything here is computed from a job and its bytes. Nothing here waits, reads or writes, and nothing knows which
//! thread it serves, so workers and finishers of accelerators make the same blocks.
//!
//! Invariants
//! - Header, manifest and payload of a block are one contiguous run of its buffer.
//! - With [`Algorithm::None`] the plain bytes are where they are stored, at an aligned offset: they are read straight
//!   to that position and never copied.
//!
//! Leaves to others: cutting jobs (`feed.rs`), compressing (`longshore-codec`), the bytes of header and manifest
//! (`longshore-media`).

use std::sync::Arc;

use longshore_codec::{Algorithm, Compressor, NoneFrame, none_frame};
use longshore_io::{Buffer, crc32c, crc32c_append, crc32c_join};
use longshore_media::block::{encrypted_payload, head_len, put_encrypted, put_head};
use longshore_media::{BlockHeader, Container, Root, SetKeys};
use uuid::Uuid;

use crate::feed::Job;
use crate::plan::ALIGN;

/// A block that is ready to be written.
pub struct Ready {
    pub output: Buffer,
    /// Offset of the block in `output`.
    pub start: usize,
    pub end: usize,
    pub sequence: u64,
    pub plain_len: u32,
    pub stored_crc: u32,
    /// Not encrypted.
    pub manifest: Vec<u8>,
    /// Of an encrypted block.
    pub digest: Option<Root>,
}

impl Ready {
    pub fn bytes(&self) -> &[u8] {
        &self.output[self.start..self.end]
    }
}

/// Where header and payload of a block go in its output buffer.
#[derive(Clone, Copy)]
pub struct BlockPosition {
    start: usize,
    /// Offset of the payload in the output buffer.
    pub payload: usize,
}

impl BlockPosition {
    /// Offset of plain bytes that are stored uncompressed.
    pub fn plain(self) -> usize {
        self.payload + NoneFrame::PREFIX_LEN
    }
}

/// A payload that is in place in its output buffer.
pub struct Payload {
    pub len_bytes: usize,
    /// The CRC-32C of the bytes before compression.
    pub plain_crc: u32,
    /// The CRC-32C of the payload; of no meaning where it will be encrypted.
    pub stored_crc: u32,
}

/// The properties that all blocks of one set share.
pub struct BlockForm {
    pub container: Container,
    pub set: Uuid,
    pub algorithm: Algorithm,
    /// Those of an encrypted set.
    pub keys: Option<Arc<SetKeys>>,
}

impl BlockForm {
    pub fn position(&self, job: &Job) -> BlockPosition {
        let head = match &self.keys {
            Some(_) => encrypted_payload(self.container, job.manifest.len()),
            None => head_len(self.container, job.manifest.len()),
        };
        // Uncompressed data is read directly to its position; only an aligned position allows reads that bypass the
        // cache.
        let start = match self.algorithm {
            Algorithm::None => {
                (head + NoneFrame::PREFIX_LEN).next_multiple_of(ALIGN)
                    - head
                    - NoneFrame::PREFIX_LEN
            }
            _ => 0,
        };
        BlockPosition {
            start,
            payload: start + head,
        }
    }

    /// Compresses a job's plain bytes in `input` into `output`; with [`Algorithm::None`] they are in `output` already.
    pub fn compressed(
        &self,
        job: Job,
        position: BlockPosition,
        compressor: &mut Compressor,
        input: &[u8],
        mut output: Buffer,
    ) -> Ready {
        let n = job.plain_len;
        let payload = match self.algorithm {
            _ if n == 0 => Payload {
                len_bytes: 0,
                plain_crc: crc32c(&[]),
                stored_crc: crc32c(&[]),
            },
            Algorithm::None => framed(&mut output, position, n),
            _ => {
                let room = &mut output[position.payload..];
                let plain_crc = crc32c(&input[..n]);
                let parts = job.parts.for_codec();
                let len = compressor.compress_parts(&input[..n], &parts, room).len;
                Payload {
                    len_bytes: len,
                    plain_crc,
                    stored_crc: self.checksum(&room[..len]),
                }
            }
        };
        self.sealed(job, position, output, &payload)
    }

    /// The CRC-32C of a payload, unless other bytes will be stored.
    pub fn checksum(&self, payload: &[u8]) -> u32 {
        match &self.keys {
            Some(_) => 0,
            None => crc32c(payload),
        }
    }

    /// Writes the header before a payload that is in place, and encrypts both if the set is.
    pub fn sealed(
        &self,
        job: Job,
        position: BlockPosition,
        mut output: Buffer,
        payload: &Payload,
    ) -> Ready {
        let plain_len = job.plain_len as u32;
        let header = BlockHeader {
            set: self.set,
            sequence: job.sequence,
            plain_len,
            stored_len: payload.len_bytes as u32,
            plain_crc: payload.plain_crc,
            stored_crc: payload.stored_crc,
            manifest_crc: 0,
            manifest_len: 0,
            manifest_parts: 0,
            algorithm: self.algorithm,
            salt: Default::default(),
        };
        let block = &mut output[position.start..];
        let (end, stored_crc, digest) = match &self.keys {
            None => {
                put_head(self.container, header, &job.manifest, block);
                let end = position.payload + payload.len_bytes;
                (end, payload.stored_crc, None)
            }
            Some(keys) => {
                let (header, digest) =
                    put_encrypted(self.container, header, &job.manifest, keys, block);
                let head = head_len(self.container, header.manifest_len as usize);
                let end = position.start + head + header.stored_len as usize;
                (end, header.stored_crc, Some(digest))
            }
        };
        Ready {
            output,
            start: position.start,
            end,
            sequence: job.sequence,
            plain_len,
            stored_crc,
            manifest: job.manifest,
            digest,
        }
    }
}

/// Puts the frame around `len` plain bytes that are stored uncompressed.
fn framed(output: &mut Buffer, position: BlockPosition, len: usize) -> Payload {
    let frame = none_frame(len);
    let data = position.plain();
    output[position.payload..data].copy_from_slice(&frame.prefix);
    output[data + len..][..NoneFrame::SUFFIX_LEN].copy_from_slice(&frame.suffix);
    // Only the frame was added, so one pass over the data gives both checksums.
    let plain_crc = crc32c(&output[data..data + len]);
    let stored_crc = crc32c_join(crc32c(&frame.prefix), plain_crc, len as u64);
    Payload {
        len_bytes: NoneFrame::PREFIX_LEN + len + NoneFrame::SUFFIX_LEN,
        plain_crc,
        stored_crc: crc32c_append(stored_crc, &frame.suffix),
    }
}
