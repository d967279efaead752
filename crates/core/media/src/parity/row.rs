//! The Parity record: what a row took from each stripe, and the checksums of it all.
//!
//! Invariants
//! - A row takes the bytes that follow those of the row before, so all rows together cover a stripe.
//! - The chunk is as long as the longest of the row's members, and all rows but the last have a member of `row_bytes`.
//! - The record is the same on all parity stripes, and has the same place on them.
//!
//! Leaves to others: framing (`record.rs`), and the rows' order (`table.rs`).

use uuid::Uuid;

use crate::header::{FAMILIES_MAX, PARITY_MAX};
use crate::record::{Container, Fields, RecordError};

/// The most bytes that a row takes from a stripe.
pub const ROW_BYTES: u32 = 4 << 20;
/// The fewest that a writer may choose.
pub const ROW_BYTES_MIN: u32 = 4096;
/// Framing of a chunk: a skippable frame's magic, and its length.
pub(crate) const CHUNK_HEAD_LEN: usize = 8;
pub(crate) const CHUNK_MAGIC: [u8; 4] = [0x5b, 0x2a, 0x4d, 0x18];
/// The container of parity stripes.
pub(crate) const CONTAINER: Container = Container::Zstd;

/// A member of a row: bytes of a data stripe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset in the stripe.
    pub offset: u64,
    pub len: u32,
    pub crc: u32,
}

/// The body of a Parity record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRecord {
    pub set: Uuid,
    /// From 0.
    pub row: u64,
    /// Offset of the record in its parity stripe.
    pub at: u64,
    /// At most as many bytes are taken from each stripe.
    pub row_bytes: u32,
    /// Bytes of the chunk.
    pub chunk_len: u32,
    /// One for each data family.
    pub spans: Vec<Span>,
    /// The CRC-32C of the chunk of each parity family.
    pub chunk_crcs: Vec<u32>,
}

impl RowRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(body_len(self.spans.len(), self.chunk_crcs.len()));
        out.extend_from_slice(self.set.as_bytes());
        out.extend_from_slice(&self.row.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        out.extend_from_slice(&self.row_bytes.to_le_bytes());
        out.extend_from_slice(&self.chunk_len.to_le_bytes());
        out.extend_from_slice(&(self.spans.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.chunk_crcs.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for span in &self.spans {
            out.extend_from_slice(&span.offset.to_le_bytes());
            out.extend_from_slice(&span.len.to_le_bytes());
            out.extend_from_slice(&span.crc.to_le_bytes());
        }
        for crc in &self.chunk_crcs {
            out.extend_from_slice(&crc.to_le_bytes());
        }
        out
    }

    pub fn decode(body: &[u8]) -> Result<RowRecord, RecordError> {
        let mut f = Fields(body);
        let set = Uuid::from_bytes(f.array()?);
        let (row, at) = (f.u64()?, f.u64()?);
        let (row_bytes, chunk_len) = (f.u32()?, f.u32()?);
        let (data, parity) = (f.u16()?, f.u16()?);
        f.zeros(4)?;
        if !(1..=PARITY_MAX).contains(&parity) || !(1..=FAMILIES_MAX - parity).contains(&data) {
            return Err(RecordError::Field);
        }
        let span = |f: &mut Fields| {
            Ok(Span {
                offset: f.u64()?,
                len: f.u32()?,
                crc: f.u32()?,
            })
        };
        let spans: Result<Vec<Span>, RecordError> = (0..data).map(|_| span(&mut f)).collect();
        let chunk_crcs: Result<Vec<u32>, RecordError> = (0..parity).map(|_| f.u32()).collect();
        let record = RowRecord {
            set,
            row,
            at,
            row_bytes,
            chunk_len,
            spans: spans?,
            chunk_crcs: chunk_crcs?,
        };
        f.end()?;
        let longest = record.spans.iter().map(|span| span.len).max();
        let is_whole = record.spans.iter().all(|s| s.end().is_some());
        match (ROW_BYTES_MIN..=ROW_BYTES).contains(&row_bytes)
            && (1..=row_bytes).contains(&chunk_len)
            && longest == Some(chunk_len)
            && is_whole
        {
            true => Ok(record),
            false => Err(RecordError::Field),
        }
    }

    /// Bytes of the record and its chunk in a parity stripe.
    pub(crate) fn stored_len(&self) -> u64 {
        let record = record_len(self.spans.len(), self.chunk_crcs.len());
        record + CHUNK_HEAD_LEN as u64 + u64::from(self.chunk_len)
    }
}

impl Span {
    /// The offset after it.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.len))
    }
}

fn body_len(data: usize, parity: usize) -> usize {
    48 + 16 * data + 4 * parity
}

/// Bytes of a framed Parity record.
pub(crate) fn record_len(data: usize, parity: usize) -> u64 {
    CONTAINER.framed_len(body_len(data, parity)) as u64
}

/// The framing before a chunk.
pub(crate) fn chunk_head(len: u32) -> [u8; CHUNK_HEAD_LEN] {
    let mut head = [0; CHUNK_HEAD_LEN];
    head[..4].copy_from_slice(&CHUNK_MAGIC);
    head[4..].copy_from_slice(&len.to_le_bytes());
    head
}
