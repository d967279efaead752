//! One file of an archive: its head, its end and its blocks, each checked when it is read.
//!
//! Invariants
//! - Bytes that are not a complete file of this name are `Damaged`, with the block and its offset; a file of a later
//!   version is `Newer`.
//! - No length in the file is believed before it was checked.
//! - Stored bytes reach a decoder only if their checksum is right, and plain bytes reach the caller only if theirs is.
//!
//! Leaves to others: the layout (`object.rs`), and finding files (`archive.rs`).

use std::path::PathBuf;
use std::sync::Arc;

use longshore_codec::{Decompressor, payload_bound};
use longshore_io::crc32c;
use longshore_media::record::RecordError;
use longshore_pg::wal::{WalName, is_same_history};

use super::Error;
use super::object::{End, Head};
use super::place::Stored;

/// Enough bytes for any head.
const HEAD_MAX: u64 = 4096;

/// One file of the archive, its head and end read and checked.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) file: Arc<dyn Stored>,
    pub(super) path: PathBuf,
    pub(super) head: Head,
    pub(super) end: End,
}

/// The facts about a file that its blocks need not be read for.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) head: Head,
    pub(super) end: End,
}

impl Ends {
    /// The number of the last block that is not all zeros; 0 if all are.
    pub(super) fn last_written(&self) -> usize {
        let zeros = vec![0; self.head.block_bytes as usize];
        let is_written = |number: &usize| {
            let row = self.end.rows[*number];
            row.plain_crc != crc32c(&zeros[..self.head.block_len(*number)])
        };
        (0..self.end.rows.len()).rev().find(is_written).unwrap_or(0)
    }
}

impl Object {
    /// Errors: `Damaged` for any bytes that are not a complete file of this name, `Newer`, `Io`.
    pub(super) fn open(
        file: Arc<dyn Stored>,
        path: PathBuf,
        name: WalName,
    ) -> Result<Object, Error> {
        let damaged = |what| Error::malformed(path.clone(), what);
        let len = file.len()?;
        let mut bytes = vec![0; len.min(HEAD_MAX) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let head = Head::parse(&bytes).map_err(damaged)?;
        if head.name != name {
            return Err(damaged(RecordError::Field));
        }
        let after = head.len_after() as u64;
        if len < head.len_before() as u64 + after {
            return Err(damaged(RecordError::Length));
        }
        let mut framed = vec![0; after as usize];
        file.read_exact_at(&mut framed, len - after)?;
        let end = End::parse(&head, &framed, len).map_err(damaged)?;
        Ok(Object {
            file,
            path,
            head,
            end,
        })
    }

    /// Whether both hold the same bytes, or histories of the same timeline.
    ///
    /// Errors, for histories: `Damaged`, `Io`.
    pub(super) fn is_same_as(&self, other: &Object) -> Result<bool, Error> {
        if let WalName::History(timeline) = self.head.name {
            return Ok(is_same_history(timeline, &self.text()?, &other.text()?));
        }
        let blocks = |object: &Object| -> Vec<u32> {
            object.end.rows.iter().map(|row| row.plain_crc).collect()
        };
        let is_cut_alike = self.head.block_bytes == other.head.block_bytes;
        Ok(self.head.plain_len == other.head.plain_len
            && self.end.plain_crc == other.end.plain_crc
            && (!is_cut_alike || blocks(self) == blocks(other)))
    }

    /// Its head and its end.
    pub(super) fn ends(self) -> Ends {
        Ends {
            head: self.head,
            end: self.end,
        }
    }

    /// Decodes and checks every block, in order.
    pub(super) fn decode(
        &self,
        mut sink: impl FnMut(&[u8], u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut block = Block::default();
        let mut at = self.head.len_before() as u64;
        for (number, row) in self.end.rows.iter().enumerate() {
            let plain = self.decode_block(number, at, &mut block)?;
            sink(plain, number as u64 * u64::from(self.head.block_bytes))?;
            at += u64::from(row.stored_len);
        }
        Ok(())
    }

    /// All of its bytes, checked; for histories, which are short.
    pub(super) fn text(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.decode(|plain, _| {
            bytes.extend_from_slice(plain);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Decodes and checks one block, whose payload is at `at`.
    pub(super) fn decode_block<'b>(
        &self,
        number: usize,
        at: u64,
        block: &'b mut Block,
    ) -> Result<&'b [u8], Error> {
        let row = &self.end.rows[number];
        let damaged = |what: String| Error::Damaged {
            path: self.path.clone(),
            what: format!("block {number} at byte {at}: {what}"),
        };
        let largest = payload_bound(self.head.algorithm, self.head.block_bytes as usize);
        block.payload.resize(largest, 0);
        block.plain.resize(self.head.block_bytes as usize, 0);
        let payload = &mut block.payload[..row.stored_len as usize];
        let plain = &mut block.plain[..self.head.block_len(number)];
        self.file.read_exact_at(payload, at)?;
        let same = |what: &str, found: u32, expected: u32| match found == expected {
            true => Ok(()),
            false => Err(damaged(format!(
                "CRC-32C of its {what} bytes is {found:#010x}, not {expected:#010x}"
            ))),
        };
        same("stored", crc32c(payload), row.stored_crc)?;
        block
            .decompressor
            .decompress(self.head.algorithm, payload, plain)
            .map_err(|e| damaged(e.to_string()))?;
        same("plain", crc32c(plain), row.plain_crc)?;
        Ok(plain)
    }
}

/// A block being decoded.
#[derive(Default)]
pub(super) struct Block {
    decompressor: Decompressor,
    payload: Vec<u8>,
    pub(super) plain: Vec<u8>,
}
