//! One file of the archive, byte by byte: a head record, compressed blocks, an end record, in a standard container.
//!
//! `docs/postgres-wal.md`, section "Objects", is the specification; a test compares its tables with the code. Pure:
//! bytes in, values out.
//!
//! Invariants
//! - The head gives the number of blocks and so the length of the end record: both ends are found from the file's
//!   length alone, and every byte between them belongs to a block.
//! - Decoders accept any bytes without panic, and every length is checked before memory is allocated.
//!
//! Leaves to others: reading blocks and comparing their checksums (`stored.rs`), compressing (`press.rs`), and the
//! framing of records (`longshore-media`).

use longshore_codec::{Algorithm, PLAIN_LEN_MAX, payload_bound};
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
/// The most plain bytes of a file: the longest possible segment.
pub const PLAIN_MAX: u32 = 1 << 30;
/// Longest name.
const NAME_MAX: usize = 64;
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
}

/// One block, as the end record lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub stored_len: u32,
    /// CRC-32C of the plain bytes.
    pub plain_crc: u32,
    /// CRC-32C of the stored bytes: no damaged bytes reach a decoder.
    pub stored_crc: u32,
}

/// The part after the blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// CRC-32C of the head's body: shows that both belong to one file.
    pub head_crc: u32,
    /// CRC-32C of all plain bytes.
    pub plain_crc: u32,
    pub rows: Vec<Row>,
}

impl Head {
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(HEAD_FIXED_LEN + NAME_MAX);
        body.extend_from_slice(&0u64.to_le_bytes());
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
        body
    }

    pub fn decode(body: &[u8]) -> Result<Head, RecordError> {
        let mut f = Fields(body);
        match f.u64()? {
            0 => {}
            bits => return Err(RecordError::Feature(bits)),
        }
        let (system, plain_len, block_bytes) = (f.u64()?, f.u32()?, f.u32()?);
        let (segment_bytes, magic) = (f.u32()?, f.u16()?);
        let algorithm = Algorithm::from_number(f.u8()?).ok_or(RecordError::Field)?;
        let flags = f.u8()?;
        let name = f.text(NAME_MAX)?.parse().map_err(|_| RecordError::Field)?;
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
        };
        let sized = (1..=PLAIN_LEN_MAX).contains(&(block_bytes as usize))
            && plain_len <= PLAIN_MAX
            && head.blocks() <= BLOCKS_MAX;
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

    pub fn container(&self) -> Container {
        Container::of(self.algorithm)
    }

    /// Bytes of the file before the first block.
    pub fn len_before(&self) -> usize {
        let body = HEAD_FIXED_LEN + 2 + self.name.to_string().len();
        self.container().preamble().len() + self.container().framed_len(body)
    }

    /// Bytes of the file after the last block.
    pub fn len_after(&self) -> usize {
        self.container()
            .framed_len(END_FIXED_LEN + ROW_LEN * self.blocks())
    }

    /// All bytes before the first block.
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
        body.extend_from_slice(&self.plain_crc.to_le_bytes());
        for row in &self.rows {
            body.extend_from_slice(&row.stored_len.to_le_bytes());
            body.extend_from_slice(&row.plain_crc.to_le_bytes());
            body.extend_from_slice(&row.stored_crc.to_le_bytes());
        }
        body
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
        let (head_crc, plain_crc) = (f.u32()?, f.u32()?);
        if head_crc != crc32c(&head.encode()) {
            return Err(RecordError::Field);
        }
        let mut rows = Vec::with_capacity(head.blocks());
        let mut len = (head.len_before() + head.len_after()) as u64;
        for number in 0..head.blocks() {
            let row = Row {
                stored_len: f.u32()?,
                plain_crc: f.u32()?,
                stored_crc: f.u32()?,
            };
            if row.stored_len as usize > payload_bound(head.algorithm, head.block_len(number)) {
                return Err(RecordError::Length);
            }
            len += u64::from(row.stored_len);
            rows.push(row);
        }
        f.end()?;
        let joined = (0..).zip(&rows).fold(0, |crc, (number, row)| {
            crc32c_join(crc, row.plain_crc, head.block_len(number) as u64)
        });
        match len == file_len && joined == plain_crc {
            true => Ok(End {
                head_crc,
                plain_crc,
                rows,
            }),
            false => Err(RecordError::Length),
        }
    }
}
