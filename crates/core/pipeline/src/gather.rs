//! Blocks gathered from the differences in based files.
//!
//! A worker reads runs of based files into the free part of its input buffer and keeps the differences from the base
//! there; the next run is read after them. Once another run might not fit, or none waits, the buffer becomes a block.
//!
//! Invariants
//! - The sums of all pages of a run are kept, whether or not the page is.
//! - A run is taken only if it fits even when all of it differs, and its sums fit in the manifest.
//! - A block gets its number when it is complete: a worker that finds no differences for a long time holds up no other
//!   block.
//!
//! Leaves to others: handing out runs (`feed.rs`), and finding what differs (`page_sums.rs`, `load/read.rs`).

use std::ops::Range;
use std::sync::Arc;

use longshore_media::block::MANIFEST_PLAIN_MAX;
use longshore_media::manifest::{EXTENT_LEN, SUM_PAGE_MIN, sums_len};
use longshore_media::{Extent, Item, Sums};

use crate::feed::{BasedFile, CARRIED_PAGES, ITEM_MAX, Job, Scan};
use crate::parts::Parts;

/// No source has smaller pages.
const PAGE_MIN: usize = SUM_PAGE_MIN as usize;

/// The contents at the start of a worker's input buffer.
#[derive(Default)]
pub struct BlockInput {
    manifest: Vec<u8>,
    parts: Parts,
    plain_len: usize,
    last: Option<Arc<BasedFile>>,
}

impl BlockInput {
    /// Offset at which the next run is to be read.
    pub fn plain_len(&self) -> usize {
        self.plain_len
    }

    /// Whether a run of `len` bytes fits in a buffer of `buffer_bytes` even if all of it differs, and the sums of an
    /// unread run fit in the manifest.
    pub fn has_room(&self, len: usize, buffer_bytes: usize) -> bool {
        let compared = extents_max(len) * EXTENT_LEN + sums_len(len.div_ceil(PAGE_MIN));
        let items = ITEM_MAX + compared.max(sums_len(CARRIED_PAGES));
        self.plain_len + len <= buffer_bytes && self.manifest.len() + items <= MANIFEST_PLAIN_MAX
    }

    /// Keeps the sums of the run's pages, and the parts `changed` of the run, which was read to `buffer[plain_len..]`.
    pub fn keep(
        &mut self,
        scan: &Scan,
        buffer: &mut [u8],
        changed: &[Range<usize>],
        sums: Vec<u64>,
    ) {
        if !self
            .last
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, &scan.based))
        {
            scan.based.entry.encode(&mut self.manifest);
            let layout = scan.based.file.layout.clone();
            self.parts.begin(layout, scan.based.entry.len);
            self.last = Some(scan.based.clone());
        }
        Sums {
            offset: scan.offset,
            page_bytes: scan.based.page_bytes,
            sums,
        }
        .encode(&mut self.manifest);
        let run_at = self.plain_len;
        for range in changed {
            let extent = Extent {
                offset: scan.offset + range.start as u64,
                len: range.len() as u32,
            };
            Item::Extent(extent).encode(&mut self.manifest);
            buffer.copy_within(run_at + range.start..run_at + range.end, self.plain_len);
            self.parts.add(range.len());
            self.plain_len += range.len();
        }
    }

    /// The block; `None` if nothing was kept. A block without differences has no bytes.
    pub fn into_job(self, volume: usize, number: impl FnOnce() -> u64) -> Option<Job> {
        (!self.manifest.is_empty()).then(|| Job {
            sequence: number(),
            volume,
            manifest: self.manifest,
            pieces: Vec::new(),
            parts: self.parts,
            plain_len: self.plain_len,
        })
    }
}

fn extents_max(len: usize) -> usize {
    len.div_ceil(2 * PAGE_MIN)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use longshore_io::Via;
    use longshore_media::{Entry, EntryKind, manifest};
    use longshore_source::{Change, Content, Error};
    use proptest::prelude::*;

    use super::*;
    use crate::feed::{Look, OpenFile, scan_bytes};
    use crate::page_sums::HeldFile;

    /// A content that nobody has to read: it is a hole.
    struct Unread;

    impl Content for Unread {
        fn read_at(&self, buf: &mut [u8], _: u64, _: Via) -> Result<(), Error> {
            buf.fill(0);
            Ok(())
        }

        fn is_cached(&self, _: Range<u64>) -> bool {
            true
        }

        fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, Error> {
            Ok(None)
        }

        fn settle(&self) -> Result<Option<Change>, Error> {
            Ok(None)
        }
    }

    #[test]
    fn a_content_that_is_not_read_keeps_the_contract_all_the_same() {
        let bytes = crate::source_suite::check_content(&Unread, 100_000, 999);
        assert!(bytes == [0; 100_000]);
    }

    fn based(number: usize, len: usize, page: usize) -> Arc<BasedFile> {
        let entry = Entry {
            path: PathBuf::from(format!("base/5/{number}")),
            kind: EntryKind::File,
            first: false,
            based: true,
            xattrs: Vec::new(),
            mode: 0o600,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            len: len as u64,
        };
        Arc::new(BasedFile {
            file: OpenFile::new(&entry, Arc::new(Unread), None),
            entry,
            page_bytes: page as u32,
            held: HeldFile::of(len as u64, page as u32),
        })
    }

    /// Ranges of `pages` that are set.
    fn ranges(pages: &[bool], page: usize) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for (i, _) in pages.iter().enumerate().filter(|(_, changed)| **changed) {
            match found.last_mut() {
                Some(last) if last.end == i * page => last.end += page,
                _ => found.push(i * page..(i + 1) * page),
            }
        }
        found
    }

    /// Sums of unread pages take room in a manifest and none in a buffer.
    #[test]
    fn a_block_takes_no_run_whose_sums_its_manifest_has_no_room_for() {
        let (page, buffer_bytes) = (8 << 10, 1 << 20);
        let len = CARRIED_PAGES * page;
        let (based, mut buffer) = (based(1, 8 * len, page), vec![0; buffer_bytes]);
        let mut gathered = BlockInput::default();
        for run in 0..8 {
            if !gathered.has_room(scan_bytes(buffer_bytes), buffer_bytes) {
                break;
            }
            let scan = Scan {
                volume: 0,
                based: based.clone(),
                offset: (run * len) as u64,
                len_bytes: len,
                look: Look::Carry,
            };
            gathered.keep(&scan, &mut buffer, &[], vec![1; CARRIED_PAGES]);
        }
        let job = gathered.into_job(0, || 0).unwrap();
        assert!(
            job.manifest.len() <= MANIFEST_PLAIN_MAX,
            "{}",
            job.manifest.len()
        );
    }

    proptest! {
        /// The gathered parts over the base give the file; no byte is included twice, and limits hold.
        #[test]
        fn gathered_blocks_make_the_base_the_file(
            files in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.3), 1..200), 1..6),
            page in prop::sample::select(vec![1usize << 10, 8 << 10, 32 << 10]),
            buffer_bytes in prop::sample::select(vec![64usize << 10, 1 << 20]),
            seed in any::<u64>(),
        ) {
            let (run_max, mut buffer) = (scan_bytes(buffer_bytes), vec![0; buffer_bytes]);
            let byte = |file: usize, page: usize| (seed ^ (file * 31 + page * 7 + 1) as u64) as u8 | 1;
            let sum = |file: usize, page: usize| (file * 1000 + page + 1) as u64;
            let (mut blocks, mut gathered) = (Vec::new(), BlockInput::default());
            for (number, pages) in files.iter().enumerate() {
                let based = based(number, pages.len() * page, page);
                for (run, changed) in pages.chunks(run_max / page).enumerate() {
                    let (first, len) = (run * (run_max / page), changed.len() * page);
                    let offset = (first * page) as u64;
                    let scan = Scan { volume: 0, based: based.clone(), offset, len_bytes: len, look: Look::Compare };
                    if !gathered.has_room(run_max, buffer_bytes) {
                        let plain_len = gathered.plain_len();
                        let job = std::mem::take(&mut gathered).into_job(0, || 0).unwrap();
                        prop_assert_eq!(job.parts.len(), plain_len);
                        blocks.push((job.manifest, buffer[..plain_len].to_vec()));
                    }
                    let at = gathered.plain_len();
                    for (i, bytes) in buffer[at..at + len].chunks_mut(page).enumerate() {
                        bytes.fill(byte(number, first + i));
                    }
                    let sums = (0..changed.len()).map(|i| sum(number, first + i)).collect();
                    gathered.keep(&scan, &mut buffer, &ranges(changed, page), sums);
                }
            }
            let plain_len = gathered.plain_len();
            if let Some(job) = gathered.into_job(0, || 0) {
                prop_assert_eq!(job.parts.len(), plain_len);
                blocks.push((job.manifest, buffer[..plain_len].to_vec()));
            }
            let mut summed: Vec<Vec<u64>> = files.iter().map(|f| vec![0; f.len()]).collect();
            let mut restored: Vec<Vec<u8>> = files.iter().map(|f| vec![0; f.len() * page]).collect();
            for (manifest, plain) in &blocks {
                prop_assert!(manifest.len() <= MANIFEST_PLAIN_MAX && plain.len() <= buffer_bytes);
                let (mut at, mut file) = (0, 0);
                for item in manifest::decode(manifest, plain.len() as u32).unwrap() {
                    match item {
                        Item::Entry(e) => {
                            prop_assert!(e.based && !e.first);
                            file = e.path.file_name().unwrap().to_str().unwrap().parse().unwrap();
                        }
                        Item::Extent(e) => {
                            let (offset, len) = (e.offset as usize, e.len as usize);
                            let there = &mut restored[file][offset..offset + len];
                            prop_assert!(there.iter().all(|b| *b == 0));
                            there.copy_from_slice(&plain[at..at + len]);
                            at += len;
                        }
                        Item::Sums(s) => {
                            let first = s.offset as usize / page;
                            for (i, sum) in s.sums.into_iter().enumerate() {
                                prop_assert_eq!(std::mem::replace(&mut summed[file][first + i], sum), 0);
                            }
                        }
                        Item::Mark(_) => prop_assert!(false),
                    }
                }
            }
            for (number, pages) in files.iter().enumerate() {
                for (i, changed) in pages.iter().enumerate() {
                    prop_assert_eq!(summed[number][i], sum(number, i), "also of pages that are not stored");
                    let expected = if *changed { byte(number, i) } else { 0 };
                    let found = &restored[number][i * page..(i + 1) * page];
                    prop_assert!(found.iter().all(|b| *b == expected), "file {number} page {i}");
                }
            }
        }
    }
}
