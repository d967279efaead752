//! Samples of a server's own segments, by which encrypted copies of them are recognized later.
//!
//! Invariants
//! - A sample proves whole blocks: a copy is recognized only if its file has a tag of each of them.
//! - A file without tags of the sample's key is never recognized.
//!
//! Leaves to others: reading the server's segments, and when a sample is taken (the pipeline).

use std::sync::Arc;

use longshore_crypt::{TAG_LEN, TagKey, is_same_tag};
use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};

use super::object::PlainMark;
use super::press::block_bytes;
use super::{Error, WalArchive};

/// Tags of the first blocks of a segment, as a server had it at some moment: it may recycle the file before the archive's
/// copy can be compared.
#[derive(Debug, Clone)]
pub struct SegmentTags {
    key: Arc<TagKey>,
    name: WalName,
    block_bytes: u64,
    len: u64,
    tags: Vec<[u8; TAG_LEN]>,
    /// The bytes of the present block so far.
    block: Vec<u8>,
}

impl SegmentTags {
    /// A sample of the first `len` bytes of a segment, and of the rest of the block in which they end.
    pub fn of(key: Arc<TagKey>, name: SegmentName, size: SegmentSize, len: u64) -> SegmentTags {
        let block_bytes = u64::from(block_bytes(size.bytes() as u32));
        let len = len.max(1).div_ceil(block_bytes) * block_bytes;
        SegmentTags {
            key,
            name: WalName::Segment(name),
            block_bytes,
            len: len.min(size.bytes()),
            tags: Vec::new(),
            block: Vec::new(),
        }
    }

    /// The bytes that the sample needs.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the next bytes.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = (self.block_bytes as usize - self.block.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() as u64 == self.block_bytes {
                let number = self.tags.len() as u32;
                let name = self.name.to_string();
                self.tags.push(self.key.tag(&name, number, &self.block));
                self.block.clear();
            }
        }
    }
}

impl WalArchive {
    /// Whether the archive's encrypted copy of a segment is the one that the sample was taken of.
    ///
    /// Errors: `Missing`, `Damaged`, `Newer`, `Io`.
    pub fn is_sampled(&self, sample: &SegmentTags) -> Result<bool, Error> {
        let file = self.open_file(sample.name)?;
        let ends = file.ends();
        let is_comparable = ends.has_tags_of(&sample.key)
            && u64::from(ends.head.block_bytes) == sample.block_bytes
            && sample.tags.len() as u64 * sample.block_bytes == sample.len;
        let is_same = |(number, own): (usize, &[u8; TAG_LEN])| {
            let row = ends.end.rows.get(number).map(|row| row.plain);
            matches!(row, Some(PlainMark::Tag(tag)) if is_same_tag(own, &tag))
        };
        Ok(is_comparable && sample.tags.iter().enumerate().all(is_same))
    }
}
