//! Assembles a block: manifest records, block record and payload, in one contiguous run.
//!
//! Invariants
//! - The length of everything before the payload depends on the manifest alone. So a worker knows where the payload
//!   starts before it compresses, and compresses directly to that position.
//! - A reader accepts the parts of a manifest only in their order, all of one set and sequence, and only if their
//!   number, their length and their CRC are those of the block record.
//! - A reader's memory is bounded by [`MANIFEST_MAX`], whatever the records say.
//! - The checksums of an encrypted block are over what is stored; that of its plain bytes is encrypted with its manifest.
//!
//! Leaves to others: the extents in a manifest (`manifest.rs`), the fields of the block record (`header.rs`), the
//! framing of records (`record.rs`), compression, and ciphers (`longshore-crypt`).

use std::ops::Range;
use std::sync::Arc;

use longshore_crypt::{BlockSeal, Root, SetKeys, TAG_LEN};
use uuid::Uuid;

use crate::header::{BLOCK_FIXED_LEN, BlockHeader, ENCRYPTED_HEAD, MANIFEST_MAX};
use crate::manifest::{CHECK_LEN, put_check, take_check};
use crate::record::{BODY_MAX, Container, ENCRYPTED_MAGIC, Fields, RecordError, RecordKind};

/// Bytes that encryption adds to a manifest: the checksum of the plain bytes, and a tag.
pub const ENCRYPTED_MANIFEST_EXTRA: usize = CHECK_LEN + TAG_LEN;
/// The longest manifest before it is encrypted. Others are held to it, too, so that either way is open for a block.
pub const MANIFEST_PLAIN_MAX: usize = MANIFEST_MAX - ENCRYPTED_MANIFEST_EXTRA;

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

/// Encrypts a block in place and writes everything before its payload.
///
/// `block` begins where the block does; its payload is at [`encrypted_payload`], and is `header.stored_len` bytes long.
/// Fills in the rest of the header, and returns it with the block's digest; its `stored_len` bytes follow the head.
///
/// # Panics
/// If `manifest` exceeds [`MANIFEST_PLAIN_MAX`], or `block` has no room for what encryption adds.
pub fn put_encrypted(
    container: Container,
    mut header: BlockHeader,
    manifest: &[u8],
    keys: &SetKeys,
    block: &mut [u8],
) -> (BlockHeader, Root) {
    let mut sealed = manifest.to_vec();
    put_check(header.plain_crc, &mut sealed);
    let place = encrypted_payload(container, manifest.len());
    let len = header.stored_len as usize;
    header.plain_crc = 0;
    header.manifest_len = (sealed.len() + TAG_LEN) as u32;
    header.manifest_parts = parts(sealed.len() + TAG_LEN) as u16;
    let (before, payload) = block.split_at_mut(place);
    if len > 0 {
        header.stored_len = (ENCRYPTED_HEAD + len + TAG_LEN) as u32;
    }
    let seal = keys.seal_block(&header.fixed(), &mut sealed, &mut payload[..len]);
    sealed.extend_from_slice(&seal.manifest_tag);
    header.salt = seal.salt;
    let head = place - ENCRYPTED_HEAD;
    if len > 0 {
        payload[len..len + TAG_LEN].copy_from_slice(&seal.payload_tag);
        before[head..].copy_from_slice(&encrypted_head(len + TAG_LEN));
    }
    let stored = head..head + header.stored_len as usize;
    header.stored_crc = longshore_io::crc32c(&block[stored]);
    put_head(container, header.clone(), &sealed, &mut block[..head]);
    let digest = seal.digest(header.sequence);
    (header, digest)
}

/// Offset of the bytes that are encrypted as the payload, from the block's first byte.
pub fn encrypted_payload(container: Container, manifest_len: usize) -> usize {
    head_len(container, manifest_len + ENCRYPTED_MANIFEST_EXTRA) + ENCRYPTED_HEAD
}

/// The head of the frame around an encrypted payload.
fn encrypted_head(len: usize) -> [u8; ENCRYPTED_HEAD] {
    let mut out = [0; ENCRYPTED_HEAD];
    out[..4].copy_from_slice(&ENCRYPTED_MAGIC.to_le_bytes());
    out[4..].copy_from_slice(&(len as u32).to_le_bytes());
    out
}

/// The tags and the digest of an encrypted block as it is stored.
///
/// Errors: [`RecordError::Framing`] if the payload is not in its frame, [`RecordError::Length`].
pub fn stored_seal(
    header: &BlockHeader,
    manifest: &[u8],
    payload: &[u8],
) -> Result<BlockSeal, RecordError> {
    let manifest_tag = manifest.last_chunk().ok_or(RecordError::Length)?;
    let payload_tag = match payload.split_first_chunk::<ENCRYPTED_HEAD>() {
        None if payload.is_empty() => [0; TAG_LEN],
        None => return Err(RecordError::Length),
        Some((head, sealed)) if *head == encrypted_head(sealed.len()) => {
            *sealed.last_chunk().ok_or(RecordError::Length)?
        }
        Some(_) => return Err(RecordError::Framing),
    };
    Ok(BlockSeal {
        salt: header.salt,
        manifest_tag: *manifest_tag,
        payload_tag,
    })
}

/// Decrypts the payload of a block whose manifest was decrypted.
#[derive(Debug, Clone)]
pub struct Encrypted {
    keys: Arc<SetKeys>,
    header: BlockHeader,
    manifest_tag: [u8; TAG_LEN],
}

impl Encrypted {
    /// Decrypts a manifest in place. The header's `plain_crc` is set, which only the manifest has.
    ///
    /// Errors: [`RecordError::Tag`], [`RecordError::Field`].
    pub fn open(
        keys: &Arc<SetKeys>,
        header: &mut BlockHeader,
        manifest: &mut Vec<u8>,
        seal: &BlockSeal,
    ) -> Result<Encrypted, RecordError> {
        let stored = header.clone();
        keys.open_manifest(&header.fixed(), &header.salt, manifest)
            .map_err(|_| RecordError::Tag)?;
        header.plain_crc = take_check(manifest)?;
        Ok(Encrypted {
            keys: keys.clone(),
            header: stored,
            manifest_tag: seal.manifest_tag,
        })
    }

    /// Decrypts a payload in place, and says where in `stored` it is then.
    ///
    /// Errors: [`RecordError::Tag`].
    pub fn payload(&self, stored: &mut [u8]) -> Result<Range<usize>, RecordError> {
        let Some(sealed) = stored.get_mut(ENCRYPTED_HEAD..).filter(|s| !s.is_empty()) else {
            return Ok(0..0);
        };
        let header = &self.header;
        let len = self
            .keys
            .open_payload(&header.fixed(), &header.salt, &self.manifest_tag, sealed)
            .map_err(|_| RecordError::Tag)?;
        Ok(ENCRYPTED_HEAD..ENCRYPTED_HEAD + len)
    }
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
