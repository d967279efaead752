//! Assembles a block: manifest records, block record and payload, in one contiguous run.
//!
//! Invariants
//! - The length of everything before the payload depends on the manifest alone. So a worker knows where the payload
//!   starts before it compresses, and compresses directly to that position.
//! - A reader accepts the parts of a manifest only in their order, all of one set and sequence, and only if their
//!   number, their length and their CRC are those of the block record.
//! - A reader's memory is bounded by [`MANIFEST_MAX`], whatever the records say.
//!
//! Leaves to others: the extents in a manifest (`manifest.rs`), the fields of the block record (`header.rs`), the
//! framing of records (`record.rs`), and compression.

use uuid::Uuid;

use crate::header::{BLOCK_FIXED_LEN, BlockHeader, MANIFEST_MAX};
use crate::record::{BODY_MAX, Container, Fields, RecordError, RecordKind};

/// Bytes of a `Manifest` record's body before its part of the manifest.
pub const MANIFEST_HEAD_LEN: usize = 28;
const PART_MAX: usize = BODY_MAX - MANIFEST_HEAD_LEN;
const LAST_PART_MAX: usize = BODY_MAX - BLOCK_FIXED_LEN;

/// The number of `Manifest` records that a manifest needs before its block record.
fn parts(manifest_len: usize) -> usize {
    manifest_len
        .saturating_sub(LAST_PART_MAX)
        .div_ceil(PART_MAX)
}

/// Bytes before the payload.
pub fn head_len(container: Container, manifest_len: usize) -> usize {
    let parts = parts(manifest_len);
    (parts + 1) * container.framed_len(0)
        + parts * MANIFEST_HEAD_LEN
        + BLOCK_FIXED_LEN
        + manifest_len
}

/// [`head_len`] of the longest manifest in any container.
pub fn head_len_max() -> usize {
    head_len(Container::Gzip, MANIFEST_MAX)
}

/// Writes everything before the payload to the start of `out`; fills in `header.manifest_*`.
///
/// # Panics
/// If `manifest` exceeds [`MANIFEST_MAX`] or `out` is shorter than [`head_len`].
pub fn put_head(container: Container, mut header: BlockHeader, manifest: &[u8], out: &mut [u8]) {
    assert!(
        manifest.len() <= MANIFEST_MAX,
        "manifest of {} bytes",
        manifest.len()
    );
    let parts = parts(manifest.len());
    header.manifest_len = manifest.len() as u32;
    header.manifest_crc = longshore_io::crc32c(manifest);
    header.manifest_parts = parts as u16;
    let mut at = 0;
    let mut rest = manifest;
    for part in 0..parts {
        let (bytes, later) = rest.split_at(rest.len().min(PART_MAX));
        rest = later;
        let mut head = [0; MANIFEST_HEAD_LEN];
        head[..16].copy_from_slice(header.set.as_bytes());
        head[16..24].copy_from_slice(&header.sequence.to_le_bytes());
        head[24..26].copy_from_slice(&(part as u16).to_le_bytes());
        at += container.put(RecordKind::Manifest, &[&head, bytes], &mut out[at..]);
    }
    container.put(RecordKind::Block, &[&header.encode(), rest], &mut out[at..]);
}

/// Collects the records that precede a payload.
#[derive(Debug, Default)]
pub struct HeadReader {
    manifest: Vec<u8>,
    parts: u16,
    of: Option<(Uuid, u64)>,
}

impl HeadReader {
    /// Adds a `Manifest` record.
    pub fn manifest(&mut self, body: &[u8]) -> Result<(), RecordError> {
        let mut f = Fields(body);
        let of = (Uuid::from_bytes(f.array()?), f.u64()?);
        let part = f.u16()?;
        f.zeros(2)?;
        if part != self.parts
            || usize::from(part) >= parts(MANIFEST_MAX)
            || *self.of.get_or_insert(of) != of
        {
            return Err(RecordError::Field);
        }
        self.parts += 1;
        self.push(f.0)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        if self.manifest.len() + bytes.len() > MANIFEST_MAX {
            return Err(RecordError::Length);
        }
        self.manifest.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether a block has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.parts > 0
    }

    /// Adds the `Block` record; returns the header and the whole manifest, and resets itself for the next block.
    pub fn block(&mut self, body: &[u8]) -> Result<(BlockHeader, Vec<u8>), RecordError> {
        let (header, last) = BlockHeader::decode(body)?;
        self.push(last)?;
        let HeadReader {
            manifest,
            parts,
            of,
        } = std::mem::take(self);
        if of.is_some_and(|of| of != (header.set, header.sequence))
            || parts != header.manifest_parts
            || manifest.len() != header.manifest_len as usize
        {
            return Err(RecordError::Field);
        }
        let found = longshore_io::crc32c(&manifest);
        if found != header.manifest_crc {
            return Err(RecordError::Checksum {
                expected: header.manifest_crc,
                found,
            });
        }
        Ok((header, manifest))
    }
}
