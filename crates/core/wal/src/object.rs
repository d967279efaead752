//! One file of the archive, byte by byte: a head record, compressed blocks, an end record, in a standard container. An
//! encrypted one has Keys records after its head, and a frame around each block.
//!
//! `docs/postgres-wal.md`, section "Objects", is the specification; a test compares its tables with the code. Pure:
//! bytes in, values out.
//!
//! Invariants
//! - The head gives the number of blocks and so the length of the end record: both ends are found from the file's
//!   length alone, and every byte between them belongs to a block.
//! - Decoders accept any bytes without panic, and every length is checked before memory is allocated.
//!
//! Leaves to others: reading blocks and comparing their checksums (`stored.rs`), compressing (`press.rs`), encrypting
//! (`sealed.rs`), and the framing of records (`longshore-media`).

use longshore_codec::{Algorithm, PLAIN_LEN_MAX, payload_bound};
use longshore_crypt::{
    PIECE_MORE, Root, SIGNATURE_LEN, SIGNER_LEN, Signature, Signer, StoredSignature, TAG_LEN,
    TAGS_ID_LEN,
};
use longshore_io::{crc32c, crc32c_join};
use longshore_media::Container;
use longshore_media::record::{BODY_MAX, Fields, RecordError, RecordKind};
use longshore_pg::wal::WalName;

/// Bytes of a head's body before the name.
pub const HEAD_FIXED_LEN: usize = 32;
/// Bytes of an end's body before its rows.
pub const END_FIXED_LEN: usize = 8;
/// Bytes of one row.
pub const ROW_LEN: usize = 12;
/// The most blocks of a file.
pub const BLOCKS_MAX: usize = (BODY_MAX - END_FIXED_LEN) / ROW_LEN;
/// Bytes of an encrypted file's end before its rows.
pub const SEALED_END_FIXED_LEN: usize = 4 + TAGS_ID_LEN;
/// Bytes of one row of an encrypted file.
pub const SEALED_ROW_LEN: usize = 8 + TAG_LEN;
/// Bytes of the MAC after the rows of an encrypted file.
pub const MAC_LEN: usize = 32;
/// The most blocks of an encrypted file.
pub const SEALED_BLOCKS_MAX: usize = (BODY_MAX - SEALED_END_FIXED_LEN - MAC_LEN) / SEALED_ROW_LEN;
/// Bytes of the head of the frame around an encrypted block.
pub const FRAME_LEN: usize = 8;
/// Bytes that an encrypted block has more than its payload: the frame, the checksum of its plain bytes, salt and tag.
pub const SEALED_MORE: usize = FRAME_LEN + 4 + PIECE_MORE;
/// The most bytes of all Keys records of a file, with their framing.
pub const KEYS_MAX: usize = 1 << 16;
/// The most plain bytes of a file: the longest possible segment.
pub const PLAIN_MAX: u32 = 1 << 30;
/// Longest name.
const NAME_MAX: usize = 64;
/// The most blocks of a signed file.
pub const SIGNED_BLOCKS_MAX: usize =
    (BODY_MAX - SEALED_END_FIXED_LEN - MAC_LEN - SIGNATURE_LEN) / SEALED_ROW_LEN;
/// Bytes that every stored segment has at least: the bodies of a head with a segment's name, and of an end with one row.
pub const LEAST_LEN: u64 = (HEAD_FIXED_LEN + 2 + 24 + END_FIXED_LEN + ROW_LEN) as u64;
/// The file is encrypted.
const FEATURE_SEALED: u64 = 1;
/// The payloads are of PAGES.
const FEATURE_PAGES: u64 = 1 << 1;
/// The file is signed, too.
const FEATURE_SIGNED: u64 = 1 << 2;
/// The file ends with data from an earlier use of the segment.
const FLAG_UNFINISHED: u8 = 1;

/// The part before the blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The cluster's system identifier; 0 if the file does not contain it (histories, backup marks).
    pub system: u64,
    pub plain_len: u32,
    /// Plain bytes of each block except the last.
    pub block_bytes: u32,
    /// 0 unless it is a segment.
    pub segment_bytes: u32,
    /// The magic of the segment's pages; 0 unless it is a segment.
    pub magic: u16,
    pub algorithm: Algorithm,
    /// Whether the segment was archived before it was full.
    pub unfinished: bool,
    pub name: WalName,
    /// `None`: the file is not encrypted.
    pub sealed: Option<SealedHead>,
}

/// The fields that only an encrypted file's head has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedHead {
    /// Bytes of the Keys records that follow the head, with their framing.
    pub keys_len: u32,
    /// SHA-256 of the history of the file's timeline, without remarks; zeros if the writer had none.
    pub history: Root,
    /// `None`: the file is not signed.
    pub signer: Option<Signer>,
}

impl SealedHead {
    /// Bytes of its fields in the head.
    fn len(&self) -> usize {
        4 + self.history.len() + self.signer.map_or(0, |_| SIGNER_LEN)
    }

    /// Bytes of the signature at the end of the file.
    fn signature_len(&self) -> usize {
        self.signer.map_or(0, |_| SIGNATURE_LEN)
    }
}

/// The mark by which plain bytes are compared with a block's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainMark {
    /// CRC-32C.
    Crc(u32),
    /// Of an encrypted file: a tag that only the cluster's servers can make; zeros if the file's tags are of no key.
    Tag([u8; TAG_LEN]),
}

/// One block, as the end record lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub stored_len: u32,
    pub plain: PlainMark,
    /// CRC-32C of the stored bytes: no damaged bytes reach a decoder.
    pub stored_crc: u32,
}

/// The part after the blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// CRC-32C of the head's body: shows that both belong to one file.
    pub head_crc: u32,
    pub whole: WholeMark,
    pub rows: Vec<Row>,
}

/// The part of an end record that concerns all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WholeMark {
    /// CRC-32C of all plain bytes.
    Crc(u32),
    Sealed {
        /// The key that the tags are of; zeros: of none.
        tags: [u8; TAGS_ID_LEN],
        /// The MAC of everything before it in the body.
        mac: Root,
        /// The signature of a signed file.
        signature: Option<[u8; SIGNATURE_LEN]>,
    },
}

/// The feature bit of a file whose payloads are of this algorithm.
fn algorithm_feature(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::Pages => FEATURE_PAGES,
        Algorithm::None
        | Algorithm::MsXpress
        | Algorithm::QatDeflate
        | Algorithm::Zstd
        | Algorithm::Lz4 => 0,
    }
}

impl Head {
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(HEAD_FIXED_LEN + NAME_MAX);
        let sealed = match self.sealed.map(|sealed| sealed.signer) {
            None => 0,
            Some(None) => FEATURE_SEALED,
            Some(Some(_)) => FEATURE_SEALED | FEATURE_SIGNED,
        };
        let features = sealed | algorithm_feature(self.algorithm);
        body.extend_from_slice(&features.to_le_bytes());
        body.extend_from_slice(&self.system.to_le_bytes());
        body.extend_from_slice(&self.plain_len.to_le_bytes());
        body.extend_from_slice(&self.block_bytes.to_le_bytes());
        body.extend_from_slice(&self.segment_bytes.to_le_bytes());
        body.extend_from_slice(&self.magic.to_le_bytes());
        body.push(self.algorithm as u8);
        body.push(if self.unfinished { FLAG_UNFINISHED } else { 0 });
        let name = self.name.to_string();
        body.extend_from_slice(&(name.len() as u16).to_le_bytes());
        body.extend_from_slice(name.as_bytes());
        if let Some(sealed) = &self.sealed {
            body.extend_from_slice(&sealed.keys_len.to_le_bytes());
            body.extend_from_slice(&sealed.history);
            body.extend_from_slice(sealed.signer.as_ref().map_or(&[][..], |s| s.as_bytes()));
        }
        body
    }

    pub fn decode(body: &[u8]) -> Result<Head, RecordError> {
        let mut f = Fields(body);
        let features = f.u64()?;
        let unknown = features & !(FEATURE_SEALED | FEATURE_PAGES | FEATURE_SIGNED);
        if unknown != 0 {
            return Err(RecordError::Feature(unknown));
        }
        let (system, plain_len, block_bytes) = (f.u64()?, f.u32()?, f.u32()?);
        let (segment_bytes, magic) = (f.u32()?, f.u16()?);
        let algorithm = Algorithm::from_number(f.u8()?).ok_or(RecordError::Field)?;
        let flags = f.u8()?;
        let name = f.text(NAME_MAX)?.parse().map_err(|_| RecordError::Field)?;
        let sealed = match features & (FEATURE_SEALED | FEATURE_SIGNED) {
            0 => None,
            // The digests that a signature is of are those of an encrypted file.
            FEATURE_SIGNED => return Err(RecordError::Field),
            _ => Some(SealedHead {
                keys_len: f.u32()?,
                history: f.array()?,
                signer: match features & FEATURE_SIGNED {
                    0 => None,
                    _ => Some(Signer::from_bytes(f.array()?)),
                },
            }),
        };
        f.end()?;
        let head = Head {
            system,
            plain_len,
            block_bytes,
            segment_bytes,
            magic,
            algorithm,
            unfinished: flags == FLAG_UNFINISHED,
            name,
            sealed,
        };
        let blocks_max = match &head.sealed {
            None => BLOCKS_MAX,
            Some(sealed) if sealed.signer.is_some() => SIGNED_BLOCKS_MAX,
            Some(_) => SEALED_BLOCKS_MAX,
        };
        // A history is read where there is no key, to find out which WAL is needed.
        let is_sound = |sealed: &SealedHead| {
            (1..=KEYS_MAX).contains(&(sealed.keys_len as usize)) && head.holds_more()
        };
        let sized = (1..=PLAIN_LEN_MAX).contains(&(block_bytes as usize))
            && plain_len <= PLAIN_MAX
            && features & FEATURE_PAGES == algorithm_feature(algorithm)
            && head.blocks() <= blocks_max
            && head.sealed.as_ref().is_none_or(is_sound);
        match sized && flags & !FLAG_UNFINISHED == 0 {
            true => Ok(head),
            false => Err(RecordError::Field),
        }
    }

    pub fn blocks(&self) -> usize {
        self.plain_len.div_ceil(self.block_bytes) as usize
    }

    /// Plain bytes of the block with this number, which is below [`Head::blocks`].
    pub fn block_len(&self, number: usize) -> usize {
        let start = number * self.block_bytes as usize;
        (self.plain_len as usize - start).min(self.block_bytes as usize)
    }

    /// Whether the file holds more than facts that everybody may know: histories are not encrypted.
    pub fn holds_more(&self) -> bool {
        !matches!(self.name, WalName::History(_))
    }

    /// The most stored bytes of the block with this number.
    pub fn stored_max(&self, number: usize) -> usize {
        let more = self.sealed.map_or(0, |_| SEALED_MORE);
        payload_bound(self.algorithm, self.block_len(number)) + more
    }

    pub fn container(&self) -> Container {
        Container::of_set(self.algorithm, self.sealed.is_some())
    }

    /// Bytes of the file before the Keys records, or before the first block if there are none.
    pub fn len_of_head(&self) -> usize {
        let body = HEAD_FIXED_LEN + 2 + self.name.to_string().len();
        let body = body + self.sealed.as_ref().map_or(0, SealedHead::len);
        self.container().preamble().len() + self.container().framed_len(body)
    }

    /// Bytes of the file before the first block.
    pub fn len_before(&self) -> usize {
        let keys = self.sealed.map_or(0, |sealed| sealed.keys_len as usize);
        self.len_of_head() + keys
    }

    /// Bytes of the file after the last block.
    pub fn len_after(&self) -> usize {
        let (fixed, row) = match &self.sealed {
            None => (END_FIXED_LEN, ROW_LEN),
            Some(sealed) => (
                SEALED_END_FIXED_LEN + MAC_LEN + sealed.signature_len(),
                SEALED_ROW_LEN,
            ),
        };
        self.container().framed_len(fixed + row * self.blocks())
    }

    /// All bytes before the Keys records, or before the first block if there are none.
    pub fn framed(&self) -> Vec<u8> {
        let mut out = self.container().preamble().to_vec();
        self.container()
            .append(RecordKind::Wal, &self.encode(), &mut out);
        out
    }

    /// Reads the head at the start of a file.
    pub fn parse(bytes: &[u8]) -> Result<Head, RecordError> {
        let container = Container::detect(bytes).ok_or(RecordError::Framing)?;
        let rest = &bytes[container.preamble().len()..];
        let len = container.framed_len_at(rest)?;
        let framed = rest.get(..len).ok_or(RecordError::Length)?;
        let head = match container.parse(framed)? {
            (RecordKind::Wal, body) => Head::decode(body)?,
            (kind, _) => return Err(RecordError::Kind(kind as u8)),
        };
        match head.container() == container {
            true => Ok(head),
            false => Err(RecordError::Field),
        }
    }
}

impl End {
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(END_FIXED_LEN + ROW_LEN * self.rows.len());
        body.extend_from_slice(&self.head_crc.to_le_bytes());
        match &self.whole {
            WholeMark::Crc(crc) => body.extend_from_slice(&crc.to_le_bytes()),
            WholeMark::Sealed { tags, .. } => body.extend_from_slice(tags),
        }
        for row in &self.rows {
            body.extend_from_slice(&row.stored_len.to_le_bytes());
            if let PlainMark::Crc(crc) = row.plain {
                body.extend_from_slice(&crc.to_le_bytes());
            }
            body.extend_from_slice(&row.stored_crc.to_le_bytes());
            if let PlainMark::Tag(tag) = row.plain {
                body.extend_from_slice(&tag);
            }
        }
        if let WholeMark::Sealed { mac, signature, .. } = &self.whole {
            body.extend_from_slice(mac);
            body.extend_from_slice(signature.as_ref().map_or(&[][..], |s| &s[..]));
        }
        body
    }

    /// The bytes that the MAC of an encrypted file's end is over.
    pub fn authenticated(&self) -> Vec<u8> {
        let mut body = self.signed();
        body.truncate(body.len().saturating_sub(MAC_LEN));
        body
    }

    /// The bytes that the signature of a signed file's end is over: all before it.
    pub fn signed(&self) -> Vec<u8> {
        let mut body = self.encode();
        let signature = match &self.whole {
            WholeMark::Sealed { signature, .. } => signature.map_or(0, |s| s.len()),
            WholeMark::Crc(_) => 0,
        };
        body.truncate(body.len().saturating_sub(signature));
        body
    }

    /// The signature that the file says that it has.
    pub fn claim(&self, head: &Head) -> StoredSignature {
        let signer = head.sealed.and_then(|sealed| sealed.signer);
        match (signer, self.whole) {
            (
                Some(signer),
                WholeMark::Sealed {
                    signature: Some(bytes),
                    ..
                },
            ) => StoredSignature::Ed25519(Signature { signer, bytes }),
            _ => StoredSignature::None,
        }
    }

    /// All bytes after the last block.
    pub fn framed(&self, head: &Head) -> Vec<u8> {
        let mut out = Vec::new();
        head.container()
            .append(RecordKind::WalEnd, &self.encode(), &mut out);
        out
    }

    /// Reads the last [`Head::len_after`] bytes of a file that is `file_len` bytes long.
    pub fn parse(head: &Head, framed: &[u8], file_len: u64) -> Result<End, RecordError> {
        let body = match head.container().parse(framed)? {
            (RecordKind::WalEnd, body) => body,
            (kind, _) => return Err(RecordError::Kind(kind as u8)),
        };
        let mut f = Fields(body);
        let head_crc = f.u32()?;
        if head_crc != crc32c(&head.encode()) {
            return Err(RecordError::Field);
        }
        let is_sealed = head.sealed.is_some();
        let mut whole = match is_sealed {
            false => WholeMark::Crc(f.u32()?),
            true => WholeMark::Sealed {
                tags: f.array()?,
                mac: [0; MAC_LEN],
                signature: None,
            },
        };
        let mut rows = Vec::with_capacity(head.blocks());
        let mut len = (head.len_before() + head.len_after()) as u64;
        for number in 0..head.blocks() {
            let stored_len = f.u32()?;
            let row = match is_sealed {
                false => Row {
                    stored_len,
                    plain: PlainMark::Crc(f.u32()?),
                    stored_crc: f.u32()?,
                },
                true => Row {
                    stored_len,
                    stored_crc: f.u32()?,
                    plain: PlainMark::Tag(f.array()?),
                },
            };
            let least = if is_sealed { SEALED_MORE } else { 0 };
            if !(least..=head.stored_max(number)).contains(&(stored_len as usize)) {
                return Err(RecordError::Length);
            }
            len += u64::from(stored_len);
            rows.push(row);
        }
        if let WholeMark::Sealed { mac, signature, .. } = &mut whole {
            *mac = f.array()?;
            if head.sealed.is_some_and(|sealed| sealed.signer.is_some()) {
                *signature = Some(f.array()?);
            }
        }
        f.end()?;
        let is_whole = match whole {
            WholeMark::Crc(crc) => crc == joined_crc(&rows, |number| head.block_len(number) as u64),
            WholeMark::Sealed { .. } => true,
        };
        match len == file_len && is_whole {
            true => Ok(End {
                head_crc,
                whole,
                rows,
            }),
            false => Err(RecordError::Length),
        }
    }
}

/// CRC-32C of all plain bytes, from those of the blocks.
fn joined_crc(rows: &[Row], len_of: impl Fn(usize) -> u64) -> u32 {
    (0..)
        .zip(rows)
        .fold(0, |crc, (number, row)| match row.plain {
            PlainMark::Crc(plain) => crc32c_join(crc, plain, len_of(number)),
            PlainMark::Tag(_) => crc,
        })
}
