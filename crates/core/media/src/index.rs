//! The index: a redundant, compressed copy of all manifests, for listing a set or reading one file without scanning its
//! stripes.
//!
//! While a family is written, its index grows in chunks of about [`CHUNK_RAW`] bytes. Each chunk points to the chunk
//! before it; the trailer points to the last one. A chunk is one run of `Index` records.
//!
//! Invariants
//! - A full chunk is compressed and written to the stripe at once, so memory does not grow with the backup.
//! - A chunk holds whole rows, and every record of a chunk repeats the chunk's lengths and its pointer; a difference is
//!   an error.
//! - A reader decompresses at most [`CHUNK_RAW_MAX`] bytes, whatever the chunk says.
//! - A restore of the whole set does not need the index.
//! - A chunk of an encrypted set is encrypted after it was compressed, and bound to its place: it opens nowhere else.
//!
//! Leaves to others: where a chunk is written and found (`set_writer.rs`, `set_reader.rs`), and the content of a
//! manifest (`manifest.rs`).

use std::sync::Arc;

use longshore_crypt::{Chunk as ChunkPlace, IndexKeys, Root, SetKeys};
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

use crate::record::{
    BODY_MAX, Container, Fields, HEAD_LEN, PREFIX_MAX, RecordError, RecordKind, SUFFIX_MAX,
};

/// Raw bytes at which a chunk is closed.
pub const CHUNK_RAW: usize = 256 << 10;
/// The longest chunk: the last block added may bring a whole manifest.
pub const CHUNK_RAW_MAX: usize =
    CHUNK_RAW + crate::header::MANIFEST_MAX + BLOCK_ROW_LEN + DIGEST_LEN;
/// Bytes of a block's row before its manifest.
pub const BLOCK_ROW_LEN: usize = 28;
/// Bytes of a block's digest, which rows of encrypted sets have before their manifest.
pub const DIGEST_LEN: usize = 32;
/// Bytes of an index record's body before its part of the compressed chunk.
pub const PART_HEAD_LEN: usize = 24;
/// The most index records in one chunk. Deflate adds less than an eighth to incompressible input.
pub const PARTS_MAX: usize = (CHUNK_RAW_MAX + CHUNK_RAW_MAX / 8).div_ceil(BODY_MAX - PART_HEAD_LEN);
/// The longest chunk in a stripe.
pub const CHUNK_FRAMED_MAX: usize = PARTS_MAX * (BODY_MAX + HEAD_LEN + PREFIX_MAX + SUFFIX_MAX);

/// The position of one block of this family, and its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub sequence: u64,
    /// Offset of the block's first record in the stripe.
    pub offset: u64,
    /// Bytes from `offset` to the end of the payload.
    pub len: u32,
    /// Bytes of the block before compression.
    pub plain_len: u32,
    /// In encrypted sets.
    pub digest: Option<Root>,
    pub manifest: Vec<u8>,
}

/// The family of a set whose chunks are encrypted or decrypted.
#[derive(Debug, Clone, Copy)]
pub struct ChunkOwner {
    pub set: [u8; 16],
    /// Number of the family, from 1.
    pub family: u16,
}

/// The keys that encrypt the chunks of one family.
#[derive(Debug, Clone)]
pub struct ChunkKeys {
    pub keys: Arc<SetKeys>,
    pub owner: ChunkOwner,
}

impl ChunkOwner {
    fn place(&self, number: u32, offset: u64, previous: (u64, u32), raw_len: u32) -> ChunkPlace {
        ChunkPlace {
            set: self.set,
            family: self.family,
            number,
            offset,
            previous,
            raw_len,
        }
    }
}

/// Collects rows until a chunk is full.
#[derive(Debug, Default)]
pub struct Builder {
    raw: Vec<u8>,
    /// Offset and bytes of the previous chunk; 0 if there is none.
    previous: (u64, u32),
    /// Chunks so far.
    count: u32,
    keys: Option<ChunkKeys>,
}

impl Builder {
    /// An index whose chunks are encrypted; its rows have digests.
    pub fn encrypted(keys: ChunkKeys) -> Builder {
        Builder {
            keys: Some(keys),
            ..Builder::default()
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: RowRef<'_>) {
        self.raw.extend_from_slice(&row.sequence.to_le_bytes());
        self.raw.extend_from_slice(&row.offset.to_le_bytes());
        self.raw.extend_from_slice(&row.len.to_le_bytes());
        self.raw.extend_from_slice(&row.plain_len.to_le_bytes());
        self.raw
            .extend_from_slice(&(row.manifest.len() as u32).to_le_bytes());
        self.raw.extend(row.digest.into_iter().flatten());
        self.raw.extend_from_slice(row.manifest);
    }

    pub fn is_full(&self) -> bool {
        self.raw.len() >= CHUNK_RAW
    }

    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Ends the chunk and returns its framed records, to be written at `offset` of the stripe.
    pub fn flush(&mut self, container: Container, offset: u64) -> Vec<u8> {
        let mut packed = compress_to_vec(&self.raw, level(&self.raw));
        if let Some(keys) = &self.keys {
            let raw_len = self.raw.len() as u32;
            let place = keys.owner.place(self.count, offset, self.previous, raw_len);
            packed = keys.keys.seal_chunk(&place, &packed);
        }
        self.count += 1;
        let mut out = Vec::with_capacity(packed.len() + packed.len() / 64 + 256);
        let parts = packed.chunks(BODY_MAX - PART_HEAD_LEN);
        let count = parts.len() as u16;
        for (part, bytes) in parts.enumerate() {
            let mut body = Vec::with_capacity(PART_HEAD_LEN + bytes.len());
            body.extend_from_slice(&self.previous.0.to_le_bytes());
            body.extend_from_slice(&self.previous.1.to_le_bytes());
            body.extend_from_slice(&(self.raw.len() as u32).to_le_bytes());
            body.extend_from_slice(&(part as u16).to_le_bytes());
            body.extend_from_slice(&count.to_le_bytes());
            body.extend_from_slice(&[0; 4]);
            body.extend_from_slice(bytes);
            container.append(RecordKind::Index, &body, &mut out);
        }
        self.previous = (offset, out.len() as u32);
        self.raw.clear();
        out
    }

    /// Offset and bytes of the last flushed chunk; zeros if there is none.
    pub fn last(&self) -> (u64, u32) {
        self.previous
    }
}

/// The compression level of a chunk. Names shrink to a fifth. Page sums do not shrink at all, and compressing them
/// hard costs more than computing them.
fn level(raw: &[u8]) -> u8 {
    let start = &raw[..raw.len().min(8 << 10)];
    match compress_to_vec(start, 1).len() * 4 > start.len() * 3 {
        true => 1,
        false => 5,
    }
}

/// A row whose parts are somewhere else.
#[derive(Debug, Clone, Copy)]
pub struct RowRef<'a> {
    pub sequence: u64,
    pub offset: u64,
    pub len: u32,
    pub plain_len: u32,
    pub digest: Option<&'a Root>,
    pub manifest: &'a [u8],
}

/// A chunk as it is stored: compressed, and perhaps encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChunk {
    /// Offset and bytes of the previous chunk; zeros in the first.
    pub previous: (u64, u32),
    raw_len: u32,
    packed: Vec<u8>,
}

/// Reads a stored chunk from its framed records.
pub fn stored_chunk(container: Container, mut framed: &[u8]) -> Result<StoredChunk, RecordError> {
    let mut packed = Vec::new();
    let (mut first, mut next) = (None, 0);
    loop {
        let len = container.framed_len_at(framed)?;
        let record = framed.get(..len).ok_or(RecordError::Length)?;
        let (kind, body) = container.parse(record)?;
        if kind != RecordKind::Index {
            return Err(RecordError::Field);
        }
        framed = &framed[len..];
        let mut f = Fields(body);
        let previous = (f.u64()?, f.u32()?);
        let raw_len = f.u32()?;
        let (part, count) = (f.u16()?, f.u16()?);
        f.zeros(4)?;
        let head = (previous, raw_len, count);
        if part != next
            || part >= count
            || usize::from(count) > PARTS_MAX
            || *first.get_or_insert(head) != head
        {
            return Err(RecordError::Field);
        }
        let is_last = part + 1 == count;
        if !is_last && f.0.len() != BODY_MAX - PART_HEAD_LEN {
            return Err(RecordError::Length);
        }
        packed.extend_from_slice(f.0);
        next += 1;
        if next == count {
            return match framed.is_empty() && raw_len as usize <= CHUNK_RAW_MAX {
                true => Ok(StoredChunk {
                    previous,
                    raw_len,
                    packed,
                }),
                false => Err(RecordError::Length),
            };
        }
    }
}

impl StoredChunk {
    /// The rows of a chunk of a set that is not encrypted.
    pub fn rows(&self) -> Result<Vec<Row>, RecordError> {
        rows(&self.packed, self.raw_len as usize, false)
    }

    /// The rows of an encrypted chunk, which is the `number`th of its family, from 0, and begins at `offset`.
    pub fn decrypted(
        &self,
        keys: &IndexKeys,
        owner: ChunkOwner,
        (number, offset): (u32, u64),
    ) -> Result<Vec<Row>, RecordError> {
        let place = owner.place(number, offset, self.previous, self.raw_len);
        let packed = keys.open_chunk(&place, &self.packed);
        let packed = packed.map_err(|_| RecordError::Tag)?;
        rows(&packed, self.raw_len as usize, true)
    }
}

fn rows(packed: &[u8], raw_len: usize, with_digests: bool) -> Result<Vec<Row>, RecordError> {
    let mut raw = vec![0; raw_len];
    let mut state = InflateState::new_boxed(DataFormat::Raw);
    let done = inflate(&mut state, packed, &mut raw, MZFlush::Finish);
    if done.status != Ok(MZStatus::StreamEnd) {
        return Err(RecordError::Field);
    }
    // Nothing may follow the stream.
    if done.bytes_written != raw_len || done.bytes_consumed != packed.len() {
        return Err(RecordError::Length);
    }
    let mut f = Fields(&raw);
    let mut rows = Vec::new();
    while !f.0.is_empty() {
        let (sequence, offset) = (f.u64()?, f.u64()?);
        let (len, plain_len) = (f.u32()?, f.u32()?);
        let manifest_len = f.u32()? as usize;
        let digest = match with_digests {
            true => Some(f.array()?),
            false => None,
        };
        rows.push(Row {
            sequence,
            offset,
            len,
            plain_len,
            digest,
            manifest: f.bytes(manifest_len)?.to_vec(),
        });
    }
    Ok(rows)
}

/// The number of records in a chunk, from the body of its first record.
pub fn part_count(body: &[u8]) -> Result<u16, RecordError> {
    let mut f = Fields(body);
    f.bytes(18)?;
    match f.u16()? {
        n if (1..=PARTS_MAX).contains(&usize::from(n)) => Ok(n),
        _ => Err(RecordError::Field),
    }
}
