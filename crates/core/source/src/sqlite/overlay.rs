//! Pages of a database that come from a file next to it: newer ones from the write-ahead log, or older ones from the
//! rollback journal of a dead writer.
//!
//! Invariants
//! - Each page comes from one record, the last one of its page that the state includes.
//! - A record is checked again whenever it is read: an overwritten record is an error, never a page.
//! - Memory: 8 bytes per record while it is built, 8 bytes per page afterwards.
//!
//! Leaves to others: which records the state includes (`wal.rs`, `journal.rs`), and the layout of a record
//! (`frames.rs`, `records.rs`).

use std::ops::Range;
use std::path::Path;

use longshore_io::{File, Via};

use super::{frames, records};
use crate::Error;

/// The index takes 8 bytes per record: at most 1 GiB, for 512 GiB of log with pages of 4 KiB.
pub(super) const RECORDS_MAX: u32 = 1 << 27;

/// Adjacent records are read together, in pieces that fit in a core's cache.
const RUN_BYTES_MAX: usize = 256 << 10;

/// The record in the file that holds a page of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PageRecord {
    /// Counted from 1.
    pub(super) page: u32,
    /// A frame of the log, counted from 1, or a record of the journal, counted from 0.
    pub(super) record: u32,
}

/// The format of the file's records.
#[derive(Debug)]
pub(super) enum Records {
    Log { salts: [u32; 2] },
    Journal(Vec<records::RecordRun>),
}

impl Records {
    /// Bytes before and after the page in a record.
    fn around(&self) -> (usize, usize) {
        match self {
            Records::Log { .. } => (frames::FRAME_HEADER_BYTES, 0),
            Records::Journal(_) => (records::BEFORE_PAGE, records::AFTER_PAGE),
        }
    }

    fn offset(&self, page_bytes: u64, record: u32) -> u64 {
        match self {
            Records::Log { .. } => frames::frame_offset(page_bytes, record),
            Records::Journal(runs) => records::record_offset(runs, page_bytes, record),
        }
    }

    /// The page in these bytes, if they are that record.
    fn page_of(&self, record: u32, bytes: &[u8]) -> Option<u32> {
        match self {
            Records::Log { salts } => frames::page_of(bytes, *salts),
            Records::Journal(runs) => records::page_of(runs, record, bytes),
        }
    }

    /// The error for a record that was overwritten.
    pub(super) fn mismatch(&self, path: &Path, offset: u64) -> Error {
        let path = path.into();
        match self {
            Records::Log { .. } => Error::WalDamaged { path, offset },
            Records::Journal(_) => Error::JournalChanged { path, offset },
        }
    }

    pub(super) fn read_exact(
        &self,
        file: &dyn File,
        path: &Path,
        buf: &mut [u8],
        offset: u64,
        via: Via,
    ) -> Result<(), Error> {
        file.read_exact_at(buf, offset, via)
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::UnexpectedEof => self.mismatch(path, offset),
                _ => Error::Read {
                    path: path.into(),
                    offset,
                    source,
                },
            })
    }
}

/// The pages that a state takes from the log or journal.
#[derive(Debug)]
pub(super) struct Overlay {
    page_bytes: u64,
    records: Records,
    /// Sorted by page, one for each.
    places: Vec<PageRecord>,
}

impl Overlay {
    /// An overlay without pages.
    pub(super) fn empty(page_bytes: u32) -> Self {
        Self::new(page_bytes, Records::Journal(Vec::new()), Vec::new())
    }

    /// If a page has several records, the last one counts.
    pub(super) fn new(page_bytes: u32, records: Records, mut places: Vec<PageRecord>) -> Self {
        places.sort_unstable();
        // Deduplication keeps the first of equals, so the last record must come first.
        places.reverse();
        places.dedup_by_key(|place| place.page);
        places.reverse();
        places.shrink_to_fit();
        Self {
            page_bytes: page_bytes.into(),
            records,
            places,
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<PageRecord>()) as u64
    }

    fn offset(&self, place: &PageRecord) -> u64 {
        self.records.offset(self.page_bytes, place.record)
    }

    fn record_bytes(&self) -> usize {
        let (before, after) = self.records.around();
        before + self.page_bytes as usize + after
    }

    fn page_range(&self, place: &PageRecord) -> Range<u64> {
        let start = u64::from(place.page - 1) * self.page_bytes;
        start..start + self.page_bytes
    }

    /// The records of pages that overlap `bytes` of the database.
    fn within(&self, bytes: Range<u64>) -> &[PageRecord] {
        let from = self
            .places
            .partition_point(|place| self.page_range(place).end <= bytes.start);
        let rest = &self.places[from..];
        let count = rest.partition_point(|place| self.page_range(place).start < bytes.end);
        &rest[..count]
    }

    /// Copies the pages over `buf`, which holds the database file's bytes from `offset`. `path` is the name of `file`.
    pub(super) fn apply(
        &self,
        file: &dyn File,
        path: &Path,
        buf: &mut [u8],
        offset: u64,
        via: Via,
    ) -> Result<(), Error> {
        let wanted = offset..offset + buf.len() as u64;
        let places = self.within(wanted.clone());
        if places.is_empty() {
            return Ok(());
        }
        // Records are never aligned for direct reads.
        let via = if via == Via::Cache {
            Via::Cache
        } else {
            Via::DontCache
        };
        let record_bytes = self.record_bytes();
        let (before, _) = self.records.around();
        let records_max = (RUN_BYTES_MAX / record_bytes).max(1);
        let mut records = vec![0; record_bytes * records_max.min(places.len())];
        let follows =
            |a: &PageRecord, b: &PageRecord| self.offset(b) == self.offset(a) + record_bytes as u64;
        for run in places
            .chunk_by(follows)
            .flat_map(|run| run.chunks(records_max))
        {
            let records = &mut records[..record_bytes * run.len()];
            let mut at = self.offset(&run[0]);
            self.records.read_exact(file, path, records, at, via)?;
            for (place, record) in run.iter().zip(records.chunks_exact(record_bytes)) {
                if self.records.page_of(place.record, record) != Some(place.page) {
                    return Err(self.records.mismatch(path, at));
                }
                at += record_bytes as u64;
                let page = self.page_range(place);
                let both = page.start.max(wanted.start)..page.end.min(wanted.end);
                let plain = &record[before..];
                buf[slice(&both, wanted.start)].copy_from_slice(&plain[slice(&both, page.start)]);
            }
        }
        Ok(())
    }

    pub(super) fn is_cached(&self, file: &dyn File, bytes: Range<u64>) -> bool {
        self.within(bytes).iter().all(|place| {
            let at = self.offset(place);
            file.is_cached(at..at + self.record_bytes() as u64)
        })
    }

    /// The first run of adjacent overlay pages at or after `offset`.
    pub(super) fn next_run(&self, offset: u64) -> Option<Range<u64>> {
        let from = self
            .places
            .partition_point(|place| self.page_range(place).end <= offset);
        let mut run = self.page_range(self.places.get(from)?);
        for place in &self.places[from + 1..] {
            let page = self.page_range(place);
            if page.start != run.end {
                break;
            }
            run.end = page.end;
        }
        Some(run.start.max(offset)..run.end)
    }
}

fn slice(range: &Range<u64>, base: u64) -> Range<usize> {
    (range.start - base) as usize..(range.end - base) as usize
}
