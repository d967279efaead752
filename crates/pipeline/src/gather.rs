//! Blocks gathered from what differs in based files.
//!
//! A worker reads runs of based files into the free part of its input buffer and keeps there what differs from the base;
//! the next run is read behind it. Once another run might not fit, or none waits, the buffer becomes a block. It gets
//! its number only then: a worker that finds nothing for a long time holds up nobody.

use std::ops::Range;
use std::sync::Arc;

use longshore_media::header::MANIFEST_MAX;
use longshore_media::manifest::EXTENT_LEN;
use longshore_media::{Extent, Item};

use crate::feed::{BasedFile, ITEM_MAX, Job, Scan};

/// No source has smaller pages.
const PAGE_MIN: usize = 1 << 10;

/// What lies at the front of a worker's input buffer.
#[derive(Default)]
pub struct Gathered {
    manifest: Vec<u8>,
    plain_len: usize,
    last: Option<Arc<BasedFile>>,
}

impl Gathered {
    /// Where the next run is to be read.
    pub fn plain_len(&self) -> usize {
        self.plain_len
    }

    /// Whether a run of `len` bytes fits a buffer of `buffer_bytes`, whatever of it differs.
    pub fn has_room(&self, len: usize, buffer_bytes: usize) -> bool {
        self.plain_len + len <= buffer_bytes
            && self.manifest.len() + ITEM_MAX + extents_max(len) * EXTENT_LEN <= MANIFEST_MAX
    }

    /// Keeps the parts `changed` of the run that was read to `buffer[plain_len..]`.
    pub fn keep(&mut self, scan: &Scan, buffer: &mut [u8], changed: &[Range<usize>]) {
        let (Some(first), Some(last)) = (changed.first(), changed.last()) else {
            return;
        };
        // Never with a source's pages; but what is promised above must hold.
        let joined = first.start..last.end;
        let changed = match changed.len() <= extents_max(scan.len) {
            true => changed,
            false => std::slice::from_ref(&joined),
        };
        if !self
            .last
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, &scan.based))
        {
            scan.based.entry.encode(&mut self.manifest);
            self.last = Some(scan.based.clone());
        }
        let run_at = self.plain_len;
        for range in changed {
            let extent = Extent {
                offset: scan.offset + range.start as u64,
                len: range.len() as u32,
            };
            Item::Extent(extent).encode(&mut self.manifest);
            buffer.copy_within(run_at + range.start..run_at + range.end, self.plain_len);
            self.plain_len += range.len();
        }
    }

    /// The block, `None` when nothing differed.
    pub fn into_job(self, volume: usize, number: impl FnOnce() -> u64) -> Option<Job> {
        (self.plain_len > 0).then(|| Job {
            sequence: number(),
            volume,
            manifest: self.manifest,
            pieces: Vec::new(),
            plain_len: self.plain_len,
        })
    }
}

fn extents_max(len: usize) -> usize {
    len.div_ceil(2 * PAGE_MIN)
}
