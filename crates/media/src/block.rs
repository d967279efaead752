//! Putting a block together: manifest records, block record, payload, in one contiguous run.
//!
//! The length of everything before the payload depends on the manifest alone, so a worker knows where the
//! payload will start before it compresses, and compresses straight into its place.

use uuid::Uuid;

use crate::header::{BLOCK_FIXED_LEN, BlockHeader, MANIFEST_MAX};
use crate::record::{BODY_MAX, Container, Fields, Kind, Malformed};

/// Bytes of a `Manifest` record's body before its part of the manifest.
pub const MANIFEST_HEAD_LEN: usize = 28;
const PART_MAX: usize = BODY_MAX - MANIFEST_HEAD_LEN;
const LAST_PART_MAX: usize = BODY_MAX - BLOCK_FIXED_LEN;

/// `Manifest` records a manifest needs in front of its block record.
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

/// Writes everything before the payload to the front of `out`; `header.manifest_*` are filled in here.
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
        at += container.put(Kind::Manifest, &[&head, bytes], &mut out[at..]);
    }
    container.put(Kind::Block, &[&header.encode(), rest], &mut out[at..]);
}

/// Collects the records before a payload while reading.
#[derive(Debug, Default)]
pub struct HeadReader {
    manifest: Vec<u8>,
    parts: u16,
    of: Option<(Uuid, u64)>,
}

impl HeadReader {
    /// Takes a `Manifest` record.
    pub fn manifest(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut f = Fields(body);
        let of = (Uuid::from_bytes(f.array()?), f.u64()?);
        let part = f.u16()?;
        f.zeros(2)?;
        if part != self.parts
            || usize::from(part) >= parts(MANIFEST_MAX)
            || *self.of.get_or_insert(of) != of
        {
            return Err(Malformed::Field);
        }
        self.parts += 1;
        self.push(f.0)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.manifest.len() + bytes.len() > MANIFEST_MAX {
            return Err(Malformed::Length);
        }
        self.manifest.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether a block was begun and not finished.
    pub fn is_open(&self) -> bool {
        self.parts > 0
    }

    /// Takes the `Block` record; returns the header and the whole manifest, and starts over.
    pub fn block(&mut self, body: &[u8]) -> Result<(BlockHeader, Vec<u8>), Malformed> {
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
            return Err(Malformed::Field);
        }
        let found = longshore_io::crc32c(&manifest);
        if found != header.manifest_crc {
            return Err(Malformed::Checksum {
                expected: header.manifest_crc,
                found,
            });
        }
        Ok((header, manifest))
    }
}
