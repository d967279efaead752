//! PAGES payloads: pages of PostgreSQL and SQLite as columns, each in the form that suits it.
//!
//! A row's values of one column resemble each other, and its headers resemble the next row's. So pages are taken apart: line
//! pointers and headers are predicted, values become columns and planes of bytes, index keys and row addresses lie together.
//! A stream is coded by how often its bytes occur, and only text is searched for matches.
//!
//! | offset | size | value |
//! |---|---|---|
//! | 0 | 4 | `5c 2a 4d 18`: skippable frame 12 |
//! | 4 | 4 | bytes that follow |
//! | 8 | 1 | 0: the plain bytes follow. 1: groups follow (`group.rs`) |
//! | 9 | | |
//!
//! All numbers are little-endian. No stock tool reads a group, hence a frame that stock tools skip.
//!
//! Invariants
//! - A payload is complete: the layout that it needs is in it.
//! - A layout that does not fit costs size and time, and nothing else.
//! - The streams of a payload decode to at most [`EXPANSION_MAX`] times the plain bytes and [`EXPANSION_MORE`].
//!
//! Leaves to others: which tables the bytes are of (the caller's parts), and the checksums around a payload
//! (`longshore-media`).

use out::Out;

use crate::encoded::{Encoded, worth};
use crate::{Level, PayloadError};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
mod cell;
mod coding;
mod column;
mod cursor;
mod decoding;
mod group;
mod heap;
mod huffman;
mod index;
mod joining;
mod kernel;
mod layout;
mod loops;
mod lz;
mod measures;
mod out;
mod page;
mod planes;
mod records;
mod sqlite;
mod store;
mod stream;
#[cfg(test)]
mod tests;

pub use layout::{Column, Layout, Part};

const MAGIC: u32 = 0x184d_2a5c;
const FRAME_HEADER: usize = 8;
const STORED: u8 = 0;
const GROUPS: u8 = 1;
/// Bytes before the plain bytes of a stored payload.
const HEADER: usize = FRAME_HEADER + 1;

/// How much longer the streams may be than the buffer: an empty value of a byte has two bytes of lengths, for example.
const EXPANSION_MAX: usize = 6;
const EXPANSION_MORE: usize = 64 << 10;

pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = 1..=3;

/// Length of a payload that stores `plain_len` bytes.
pub(crate) fn stored_len(plain_len: usize) -> usize {
    HEADER + plain_len
}

/// Bytes that one compressor or decompressor keeps for the next buffer besides the buffers, which have `plain_len` bytes. A
/// store grows to what its column needs, and another table has other columns.
pub fn worker_memory(plain_len: usize) -> usize {
    const LEAST: usize = 16 << 20;
    LEAST.max(8 * plain_len)
}

/// One worker's compressor.
pub(crate) struct Compressor {
    coder: stream::Coder,
    group: group::Group,
}

impl Compressor {
    pub(crate) fn new(level: Level) -> Compressor {
        let level = match level {
            Level::Number(..=1) => Level::Low,
            Level::Number(2) => Level::Medium,
            Level::Number(_) => Level::High,
            named => named,
        };
        Compressor {
            coder: stream::Coder::new(level),
            group: group::Group::default(),
        }
    }

    /// Writes the payload for `plain`, which `parts` cover, into `out`, which holds it stored.
    pub(crate) fn compress(&mut self, plain: &[u8], parts: &[Part<'_>], out: &mut [u8]) -> Encoded {
        let most = worth(plain.len()).saturating_sub(HEADER);
        let (header, room) = out.split_at_mut(HEADER);
        let mut groups = Out::new(&mut room[..most]);
        let mut rest = plain;
        for part in merged(parts) {
            let (bytes, after) = rest.split_at(part.len.min(rest.len()));
            self.group
                .put(&mut self.coder, bytes, part.layout, &mut groups);
            rest = after;
            if groups.is_full() {
                break;
            }
        }
        let stored = groups.is_full();
        let len = match stored {
            true => plain.len(),
            false => groups.len(),
        };
        if self.group.memory() > worker_memory(plain.len()) {
            self.group = group::Group::default();
        }
        if stored {
            room[..len].copy_from_slice(plain);
        }
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..FRAME_HEADER].copy_from_slice(&((len + 1) as u32).to_le_bytes());
        header[FRAME_HEADER] = if stored { STORED } else { GROUPS };
        Encoded {
            len: HEADER + len,
            stored,
        }
    }
}

/// Parts of whole pages without a layout are one part.
fn merged<'a>(parts: &'a [Part<'a>]) -> impl Iterator<Item = Part<'a>> {
    const PAGE: usize = 1 << page::SIZE_BITS_USUAL;
    let joins = |a: &Part<'_>, b: &Part<'_>| {
        let whole = |part: &Part<'_>| part.layout.is_none() && part.len.is_multiple_of(PAGE);
        whole(a) && whole(b)
    };
    parts
        .chunk_by(joins)
        .map(|chunk| Part {
            len: chunk.iter().map(|part| part.len).sum(),
            layout: chunk[0].layout,
        })
        .filter(|part| part.len > 0)
}

/// One worker's decompressor.
pub(crate) struct Decompressor {
    decoder: stream::Decoder,
    group: group::Ungroup,
}

impl Decompressor {
    pub(crate) fn new() -> Decompressor {
        Decompressor {
            decoder: stream::Decoder::new(),
            group: group::Ungroup::default(),
        }
    }

    /// Decodes a payload that gives exactly `plain.len()` bytes.
    pub(crate) fn decompress(
        &mut self,
        payload: &[u8],
        plain: &mut [u8],
    ) -> Result<(), PayloadError> {
        let Some((header, bytes)) = payload.split_at_checked(HEADER) else {
            return Err(PayloadError::at(payload.len(), "payload ends early"));
        };
        if header[..4] != MAGIC.to_le_bytes() {
            return Err(PayloadError::at(0, "not a frame of PAGES"));
        }
        if page::u32_at(header, 4) as usize != payload.len() - FRAME_HEADER {
            return Err(PayloadError::at(4, "frame and payload do not end together"));
        }
        match header[FRAME_HEADER] {
            STORED if bytes.len() == plain.len() => {
                plain.copy_from_slice(bytes);
                Ok(())
            }
            STORED => Err(PayloadError::at(
                HEADER,
                "payload does not hold the plain length",
            )),
            GROUPS => {
                let most = worker_memory(plain.len());
                let left = most.saturating_sub(self.memory());
                let mut result = self.groups(bytes, plain, left);
                if result == Err(Refusal::Memory) {
                    // Another payload left it to streams that this one has not.
                    self.forget();
                    result = self.groups(bytes, plain, most);
                }
                if self.memory() > most {
                    self.forget();
                }
                result.map_err(|refusal| match refusal {
                    Refusal::Memory => PayloadError::at(HEADER, "streams need too much memory"),
                    Refusal::Payload(e) => e.shifted(HEADER),
                })
            }
            _ => Err(PayloadError::at(FRAME_HEADER, "a method that is not known")),
        }
    }

    fn memory(&mut self) -> usize {
        self.group.memory() + self.decoder.memory()
    }

    fn forget(&mut self) {
        self.group = group::Ungroup::default();
        self.decoder.forget();
    }

    /// Decodes groups, for which memory may grow by `memory` bytes.
    fn groups(&mut self, bytes: &[u8], plain: &mut [u8], memory: usize) -> Result<(), Refusal> {
        let allowance = EXPANSION_MAX * plain.len() + EXPANSION_MORE;
        let mut cursor = cursor::Cursor::new(bytes, allowance, memory);
        let mut filled = 0;
        while filled < plain.len() {
            let place = &mut plain[filled..];
            match self.group.get(&mut self.decoder, &mut cursor, place) {
                Ok(len) => filled += len,
                Err(_) if cursor.lacks_memory() => return Err(Refusal::Memory),
                Err(e) => return Err(Refusal::Payload(e)),
            }
        }
        match cursor.is_at_end() {
            true => Ok(()),
            false => Err(Refusal::Payload(cursor.error("bytes after the last group"))),
        }
    }
}

/// The reason for which a payload is not decoded.
#[derive(PartialEq, Eq)]
enum Refusal {
    /// It needs more memory than is left.
    Memory,
    Payload(PayloadError),
}
