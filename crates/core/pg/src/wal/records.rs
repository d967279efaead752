//! Reads WAL records one after another: their kind and their own data.
//!
//! | offset | size | field of a record |
//! |---|---|---|
//! | 0 | 4 | bytes of the record, this header included |
//! | 4 | 4 | transaction; 0: none |
//! | 8 | 8 | LSN of the previous record |
//! | 16 | 1 | kind within the resource manager (high four bits) |
//! | 17 | 1 | resource manager |
//! | 20 | 4 | CRC-32C of everything after this header, then of the 20 bytes before |
//! | 24 | | block references, then the record's own data |
//!
//! A record begins at a multiple of 8 and continues across the headers of the pages that it crosses. After a segment
//! switch the rest of the segment is empty. On a standby, a page may say that the record before it was abandoned.
//!
//! Invariants
//! - Every record names the LSN of the previous one: if that does not match, the reader fails and does not go on.
//! - Pages are of one cluster, and their timelines never go back.
//! - The checksum is verified for every record whose body is kept, and for all records if requested
//!   ([`Records::verify_to`]): for most WAL that costs more than everything else.
//! - Memory is bounded by [`DATA_MAX`]; no length from the input determines an allocation.
//!
//! Leaves to others: the headers of pages (`page.rs`), and the meaning of a record's data (`transactions.rs` and the
//! callers).
//!
//! Source: PostgreSQL 14 to 18, `access/xlogrecord.h`, `access/xlog_internal.h`, `access/rmgrlist.h`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Dir, File, OpenHow, Via, crc32c_append};

use super::page::{CONTINUES, PAGE_HEADER_LEN};
use super::{NotWal, SegmentHeader};
use crate::{Lsn, SegmentName, SegmentSize, Timeline};

/// The most bytes of a record's body that are kept. Records whose data is needed are far shorter.
const DATA_MAX: usize = 16 << 10;
const RECORD_HEADER_LEN: usize = 24;
const CRC_AT: usize = 20;
const PAGE_HEADER_SHORT: u64 = 24;
const BEFORE_GIVEN_UP: u16 = 8;

/// The resource manager of the WAL itself, and some of its records: a segment switch, the end of a primary's backup, a
/// restore point.
const RM_XLOG: u8 = 0;
const XLOG_SWITCH: u8 = 0x40;
const XLOG_BACKUP_END: u8 = 0x50;
const XLOG_RESTORE_POINT: u8 = 0x70;

/// Identifiers of the parts before a record's own data.
const DATA_SHORT: u8 = 255;
const DATA_LONG: u8 = 254;
const ORIGIN: u8 = 253;
const TOPLEVEL_XID: u8 = 252;

/// A WAL record: its header, and of its data only what recovery targets need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalRecord {
    pub at: Lsn,
    /// Number of the resource manager.
    pub manager: u8,
    /// Kind within the resource manager: only the high four bits are set.
    pub kind: u8,
    /// 0: none.
    pub transaction: u32,
    /// The bytes after the header, at most 16 KiB of them.
    body: Vec<u8>,
}

/// Why the WAL cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum NotRecords {
    #[error("cannot read the WAL at {at}")]
    Read { at: Lsn, source: io::Error },
    #[error("the WAL segment at {at} is not a WAL segment")]
    Segment { at: Lsn, source: NotWal },
    #[error("the WAL at {at} has no {what}")]
    Broken { at: Lsn, what: &'static str },
}

/// Reads records in order. `read` fills a buffer from an LSN on.
pub struct Records<R> {
    read: R,
    /// The LSN of the next byte.
    at: u64,
    /// The LSN of the previous record; `None` before the first.
    before: Option<u64>,
    segment: SegmentHeader,
    /// The timeline of the last page that was entered.
    timeline: u32,
    verify_all: bool,
    page: Vec<u8>,
    /// The LSN of `page`; `None` before it is filled.
    page_at: Option<u64>,
}

/// Reads a timeline's WAL from the segments in `dir`.
pub fn segments_in(
    dir: &dyn Dir,
    timeline: Timeline,
    size: SegmentSize,
) -> impl FnMut(Lsn, &mut [u8]) -> io::Result<()> {
    segments(timeline, size, |name| {
        dir.open(Path::new(&name.to_string()), OpenHow::Read)
    })
}

/// Reads a timeline's WAL from the segments that `open` finds.
pub fn segments(
    timeline: Timeline,
    size: SegmentSize,
    mut open: impl FnMut(SegmentName) -> io::Result<Arc<dyn File>>,
) -> impl FnMut(Lsn, &mut [u8]) -> io::Result<()> {
    let mut last: Option<(SegmentName, Arc<dyn File>)> = None;
    move |at, buf| {
        let name = SegmentName::holding(timeline, at, size);
        let file = match &last {
            Some((known, file)) if *known == name => file.clone(),
            _ => {
                let file = open(name)?;
                last = Some((name, file.clone()));
                file
            }
        };
        file.read_exact_at(buf, at.0 % size.bytes(), Via::Cache)
    }
}

enum TakenBytes {
    All,
    /// The record was abandoned; another one begins at the reader's position.
    GivenUp,
}

impl<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>> Records<R> {
    /// Starts with the first record that begins in the segment at `segment`.
    pub fn of_segment(read: R, segment: Lsn) -> Result<Records<R>, NotRecords> {
        let mut records = Records::new(read, segment, segment)?;
        records.load(segment.0)?;
        if records.flags() & CONTINUES != 0 {
            let left = u32::from_le_bytes(first(&records.page[16..20]));
            // Whether abandoned or complete, a record follows.
            records.take(left.into(), |_, _| {})?;
        }
        Ok(records)
    }

    /// Starts at `start`, where a record must begin; `segment` is the LSN of its segment.
    pub fn new(mut read: R, start: Lsn, segment: Lsn) -> Result<Records<R>, NotRecords> {
        let mut bytes = [0; PAGE_HEADER_LEN];
        read(segment, &mut bytes).map_err(|source| NotRecords::Read {
            at: segment,
            source,
        })?;
        let header = SegmentHeader::parse(&bytes).map_err(|source| NotRecords::Segment {
            at: segment,
            source,
        })?;
        if header.start != segment || start < segment {
            return Err(NotRecords::Broken {
                at: segment,
                what: "segment that holds the start",
            });
        }
        Ok(Records {
            read,
            at: start.0,
            before: None,
            page: vec![0; header.page_bytes as usize],
            page_at: None,
            timeline: header.timeline.number(),
            segment: header,
            verify_all: false,
        })
    }

    /// Starts with the first record of the last page before `end` in which a record begins, in the segment at
    /// `segment`; `end` is in that segment or is its end. `None` if no record begins there.
    pub fn last_page_before(
        read: R,
        segment: Lsn,
        end: Lsn,
    ) -> Result<Option<Records<R>>, NotRecords> {
        let mut records = Records::new(read, segment, segment)?;
        let page_bytes = records.page.len() as u64;
        let mut page_end = end.0.next_multiple_of(page_bytes);
        while page_end > segment.0 {
            let start = page_end - page_bytes;
            page_end = start;
            records.load(start)?;
            if records.page.iter().all(|byte| *byte == 0) {
                continue;
            }
            records.check_page(start)?;
            let header = match start == segment.0 {
                true => PAGE_HEADER_LEN as u64,
                false => PAGE_HEADER_SHORT,
            };
            let left = match records.flags() & CONTINUES != 0 {
                true => u32::from_le_bytes(first(&records.page[16..20])),
                false => 0,
            };
            let within = (header + u64::from(left)).next_multiple_of(8);
            let is_there = within < page_bytes
                && start + within < end.0
                && records.page[within as usize..][..4] != [0; 4];
            if is_there {
                records.at = start + within;
                return Ok(Some(records));
            }
        }
        Ok(None)
    }

    /// From now on, verifies every record's checksum.
    pub fn verifying(mut self) -> Records<R> {
        self.verify_all = true;
        self
    }

    /// Proves that every record up to `end` has a valid checksum and leads to the next one.
    pub fn verify_to(self, end: Lsn) -> Result<(), NotRecords> {
        let mut records = self.verifying();
        while records.next(end, |_, _| false)?.is_some() {}
        Ok(())
    }

    /// The major version of the server that wrote the WAL.
    pub fn major(&self) -> u16 {
        self.segment.major
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.segment.page_bytes
    }

    /// The LSN after the last record that was read.
    pub fn place(&self) -> Lsn {
        Lsn(self.at.next_multiple_of(8))
    }

    /// The next record that begins before `end`. The body is read if `wanted` (manager, kind) returns true; otherwise
    /// it is empty.
    pub fn next(
        &mut self,
        end: Lsn,
        wanted: impl Fn(u8, u8) -> bool,
    ) -> Result<Option<WalRecord>, NotRecords> {
        loop {
            self.at = self.at.next_multiple_of(8);
            // Nothing after the end is read.
            if self.at >= end.0 {
                return Ok(None);
            }
            self.enter_page(false)?;
            let at = self.at;
            if at >= end.0 {
                return Ok(None);
            }
            let mut header = [0; RECORD_HEADER_LEN];
            if let TakenBytes::GivenUp = self.take(RECORD_HEADER_LEN as u64, |i, part| {
                header[i..i + part.len()].copy_from_slice(part);
            })? {
                continue;
            }
            let total = u64::from(u32::from_le_bytes(first(&header[0..4])));
            let transaction = u32::from_le_bytes(first(&header[4..8]));
            let before = u64::from_le_bytes(first(&header[8..16]));
            let (kind, manager) = (header[16] & 0xf0, header[17]);
            let follows = self.before.is_none_or(|known| known == before) && before < at;
            if total < RECORD_HEADER_LEN as u64 || !follows {
                return Err(NotRecords::Broken {
                    at: Lsn(at),
                    what: "record that follows the one before",
                });
            }
            let (mut body, mut crc) = (Vec::new(), 0);
            let is_wanted = wanted(manager, kind);
            let keep = if is_wanted { DATA_MAX } else { 0 };
            let verify = is_wanted || self.verify_all;
            let taken = self.take(total - RECORD_HEADER_LEN as u64, |i, part| {
                let room = keep.saturating_sub(i).min(part.len());
                body.extend_from_slice(&part[..room]);
                if verify {
                    crc = crc32c_append(crc, part);
                }
            })?;
            if let TakenBytes::GivenUp = taken {
                continue;
            }
            if verify && crc32c_append(crc, &header[..CRC_AT]).to_le_bytes() != header[CRC_AT..] {
                return Err(NotRecords::Broken {
                    at: Lsn(at),
                    what: "record whose checksum is right",
                });
            }
            self.before = Some(at);
            if (manager, kind) == (RM_XLOG, XLOG_SWITCH) {
                self.at = self.at.next_multiple_of(self.segment.segment_size.bytes());
            }
            return Ok(Some(WalRecord {
                at: Lsn(at),
                manager,
                kind,
                transaction,
                body,
            }));
        }
    }

    /// Passes `len` bytes of a record to `sink`, in parts with their offsets.
    fn take(
        &mut self,
        len: u64,
        mut sink: impl FnMut(usize, &[u8]),
    ) -> Result<TakenBytes, NotRecords> {
        let page_bytes = self.page.len() as u64;
        let mut done = 0;
        while done < len {
            if let TakenBytes::GivenUp = self.enter_page(true)? {
                return Ok(TakenBytes::GivenUp);
            }
            let within = (self.at % page_bytes) as usize;
            let part = (len - done).min(page_bytes - within as u64) as usize;
            sink(done as usize, &self.page[within..within + part]);
            self.at += part as u64;
            done += part as u64;
        }
        Ok(TakenBytes::All)
    }

    /// Loads the page that begins at `start`.
    fn load(&mut self, start: u64) -> Result<(), NotRecords> {
        if self.page_at != Some(start) {
            let at = Lsn(start);
            (self.read)(at, &mut self.page).map_err(|source| NotRecords::Read { at, source })?;
            self.page_at = Some(start);
        }
        Ok(())
    }

    /// The flags of the loaded page.
    fn flags(&self) -> u16 {
        u16::from_le_bytes(first(&self.page[2..4]))
    }

    /// Checks that the loaded page, which begins at `start`, belongs to this WAL; returns its timeline.
    fn check_page(&self, start: u64) -> Result<u32, NotRecords> {
        let magic = u16::from_le_bytes(first(&self.page[0..2]));
        let place = u64::from_le_bytes(first(&self.page[8..16]));
        let broken = |what| NotRecords::Broken {
            at: Lsn(start),
            what,
        };
        if magic != self.segment.magic || place != start {
            return Err(broken("page of its own"));
        }
        if start.is_multiple_of(self.segment.segment_size.bytes())
            && u64::from_le_bytes(first(&self.page[24..32])) != self.segment.system
        {
            return Err(broken("page of this cluster"));
        }
        Ok(u32::from_le_bytes(first(&self.page[4..8])))
    }

    /// Loads the page of the next byte, and skips its header.
    fn enter_page(&mut self, within_record: bool) -> Result<TakenBytes, NotRecords> {
        let page_bytes = self.page.len() as u64;
        let start = self.at - self.at % page_bytes;
        self.load(start)?;
        if self.at != start {
            return Ok(TakenBytes::All);
        }
        let flags = self.flags();
        let timeline = self.check_page(start)?;
        if timeline < self.timeline {
            return Err(NotRecords::Broken {
                at: Lsn(start),
                what: "page of a timeline that follows the one before",
            });
        }
        self.timeline = timeline;
        let long = start.is_multiple_of(self.segment.segment_size.bytes());
        self.at += if long {
            PAGE_HEADER_LEN as u64
        } else {
            PAGE_HEADER_SHORT
        };
        match (within_record, flags & CONTINUES != 0) {
            (true, true) | (false, false) => Ok(TakenBytes::All),
            (true, false) if flags & BEFORE_GIVEN_UP != 0 => Ok(TakenBytes::GivenUp),
            (true, false) => Err(NotRecords::Broken {
                at: Lsn(start),
                what: "rest of the record that runs into it",
            }),
            (false, true) => Err(NotRecords::Broken {
                at: Lsn(start),
                what: "record of its own at its start",
            }),
        }
    }
}

impl WalRecord {
    /// Whether records of this kind end a backup or are restore points.
    pub fn is_mark(manager: u8, kind: u8) -> bool {
        manager == RM_XLOG && [XLOG_BACKUP_END, XLOG_RESTORE_POINT].contains(&kind)
    }

    /// The start of the backup that ends with this record; `None` for other records.
    pub fn backup_end(&self) -> Option<Lsn> {
        let ends = (self.manager, self.kind) == (RM_XLOG, XLOG_BACKUP_END);
        let start = self.data().filter(|_| ends)?.first_chunk()?;
        Some(Lsn(u64::from_le_bytes(*start)))
    }

    /// The name of the restore point in this record; `None` for other records.
    pub fn restore_point(&self) -> Option<&[u8]> {
        let is_point = (self.manager, self.kind) == (RM_XLOG, XLOG_RESTORE_POINT);
        // Its time precedes the name.
        let name = self.data().filter(|_| is_point)?.get(8..)?;
        name.split(|byte| *byte == 0).next()
    }

    /// The record's own data, for a record without block references; `None` if it has some, is damaged or was not kept
    /// to its end.
    pub fn data(&self) -> Option<&[u8]> {
        let (len, kept) = self.own()?;
        kept.get(..len)
    }

    /// Like [`WalRecord::data`], as much as was kept.
    pub fn data_head(&self) -> Option<&[u8]> {
        let (len, kept) = self.own()?;
        Some(&kept[..len.min(kept.len())])
    }

    /// The length of its own data, and the part that was kept, from its start.
    fn own(&self) -> Option<(usize, &[u8])> {
        let mut rest = self.body.as_slice();
        loop {
            let (id, after) = rest.split_first()?;
            rest = match *id {
                DATA_SHORT => {
                    let (len, data) = after.split_first()?;
                    return Some((usize::from(*len), data));
                }
                DATA_LONG => {
                    let (len, data) = after.split_first_chunk()?;
                    return Some((u32::from_le_bytes(*len) as usize, data));
                }
                ORIGIN => after.get(2..)?,
                TOPLEVEL_XID => after.get(4..)?,
                _ => return None,
            };
        }
    }
}

/// The first bytes of a slice that is long enough; the callers' ranges are constant.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 1024;
    const SEGMENT: u64 = 1 << 20;
    const START: u64 = 5 * SEGMENT;

    /// WAL made record by record, in a server's layout.
    struct Log {
        bytes: Vec<u8>,
        before: u64,
    }

    impl Log {
        fn new() -> Log {
            let mut log = Log {
                bytes: Vec::new(),
                before: START - 40,
            };
            log.page(0, 0);
            log
        }

        fn at(&self) -> u64 {
            START + self.bytes.len() as u64
        }

        fn page(&mut self, flags: u16, left: u32) {
            let at = self.at();
            let long = at.is_multiple_of(SEGMENT);
            let flags = flags | if long { 2 } else { 0 };
            self.bytes.extend_from_slice(&0xd113u16.to_le_bytes());
            self.bytes.extend_from_slice(&flags.to_le_bytes());
            self.bytes.extend_from_slice(&1u32.to_le_bytes());
            self.bytes.extend_from_slice(&at.to_le_bytes());
            self.bytes.extend_from_slice(&left.to_le_bytes());
            self.bytes.extend_from_slice(&[0; 4]);
            if long {
                self.bytes.extend_from_slice(&7u64.to_le_bytes());
                self.bytes
                    .extend_from_slice(&(SEGMENT as u32).to_le_bytes());
                self.bytes.extend_from_slice(&(PAGE as u32).to_le_bytes());
            }
        }

        /// Adds the next record and returns its LSN.
        fn record(&mut self, manager: u8, kind: u8, data: &[u8]) -> u64 {
            self.align();
            let at = self.at();
            let mut record = Vec::new();
            let mut body = vec![TOPLEVEL_XID, 1, 0, 0, 0, DATA_LONG];
            body.extend_from_slice(&(data.len() as u32).to_le_bytes());
            body.extend_from_slice(data);
            record.extend_from_slice(&(body.len() as u32 + 24).to_le_bytes());
            record.extend_from_slice(&[0; 4]);
            record.extend_from_slice(&self.before.to_le_bytes());
            record.extend_from_slice(&[kind, manager, 0, 0, 0, 0, 0, 0]);
            record.extend_from_slice(&body);
            let crc = crc32c_append(crc32c_append(0, &record[24..]), &record[..20]);
            record[20..24].copy_from_slice(&crc.to_le_bytes());
            self.put(&record);
            self.before = at;
            if (manager, kind) == (RM_XLOG, XLOG_SWITCH) {
                while !self.at().is_multiple_of(SEGMENT) {
                    self.bytes.push(0);
                }
            }
            at
        }

        fn align(&mut self) {
            while !self.bytes.len().is_multiple_of(8) {
                self.bytes.push(0);
            }
            if self.at().is_multiple_of(PAGE) {
                self.page(0, 0);
            }
        }

        fn put(&mut self, record: &[u8]) {
            for (i, byte) in record.iter().enumerate() {
                if self.at().is_multiple_of(PAGE) {
                    self.page(CONTINUES, (record.len() - i) as u32);
                }
                self.bytes.push(*byte);
            }
        }
    }

    /// Reads from WAL that ends with zeros.
    fn reader(bytes: &[u8]) -> impl FnMut(Lsn, &mut [u8]) -> io::Result<()> + '_ {
        |at: Lsn, buf: &mut [u8]| {
            buf.fill(0);
            let from = ((at.0 - START) as usize).min(bytes.len());
            let to = (from + buf.len()).min(bytes.len());
            buf[..to - from].copy_from_slice(&bytes[from..to]);
            Ok(())
        }
    }

    type Found = Vec<(u64, u8, u8, Vec<u8>)>;

    fn read_all(bytes: &[u8], start: u64, end: u64) -> Result<Found, NotRecords> {
        let mut records = Records::new(reader(bytes), Lsn(start), Lsn(START))?;
        records.verify_all = true;
        let mut found = Vec::new();
        while let Some(record) = records.next(Lsn(end), |manager, _| manager != 9)? {
            let data = record.data().map(<[u8]>::to_vec).unwrap_or_default();
            found.push((record.at.0, record.manager, record.kind, data));
        }
        Ok(found)
    }

    /// A commit with more invalidations than are kept of a record has its time before them.
    #[test]
    fn the_latest_end_of_a_transaction_is_found_among_other_records() {
        let end = |seconds: i64, more: usize| {
            let mut data = (seconds * 1_000_000).to_le_bytes().to_vec();
            data.resize(8 + more, 7);
            data
        };
        let mut log = Log::new();
        let latest = |log: &Log| {
            let records = Records::new(reader(&log.bytes), Lsn(START), Lsn(START)).unwrap();
            let latest = crate::wal::latest_end(records);
            latest.map(|us| (us - crate::wal::EPOCH_US) / 1_000_000)
        };
        // Assigning a transaction, preparing one, and another manager's record end no transaction.
        log.record(1, 0x50, &end(900, 0));
        log.record(1, 0x10, &end(901, 0));
        log.record(2, 0x00, &end(902, 0));
        assert_eq!(latest(&log), None);
        for (kind, seconds, more) in [
            (0x80, 100, 40_000),
            (0x20, 101, 0),
            (0x30, 102, 8),
            (0x40, 103, 8),
        ] {
            log.record(1, kind, &end(seconds, more));
            assert_eq!(latest(&log), Some(seconds), "{kind:#x}");
        }
        // A transaction of a server whose clock was set back.
        log.record(1, 0x00, &end(50, 0));
        assert_eq!(latest(&log), Some(103));
    }

    proptest! {
        #[test]
        fn records_come_back_whatever_pages_they_cross(
            all in proptest::collection::vec((0u8..12, 0u8..16, 0usize..3000), 1..80)
        ) {
            let mut log = Log::new();
            let mut put = Vec::new();
            for (manager, kind, len) in all {
                let data = vec![kind; len];
                let at = log.record(manager, kind << 4, &data);
                put.push((at, manager, kind << 4, if manager == 9 { vec![] } else { data }));
            }
            log.align();
            let found = read_all(&log.bytes, put[0].0, log.at()).unwrap();
            prop_assert_eq!(found, put);
        }

        #[test]
        fn damage_neither_panics_nor_runs_on(
            bytes in proptest::collection::vec(any::<u8>(), 0..6000),
            flips in proptest::collection::vec((0usize..6000, any::<u8>()), 0..20)
        ) {
            let mut log = Log::new();
            for i in 0..8 {
                log.record(i, 0, &bytes);
            }
            for (at, value) in flips {
                if let Some(byte) = log.bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let _judged = read_all(&log.bytes, START + 40, log.at());
        }
    }

    #[test]
    fn a_record_that_was_given_up_is_left_out() {
        let mut log = Log::new();
        let first_at = log.record(3, 0x10, b"one");
        log.align();
        // Begins near the end of its page, and the next page is not valid.
        while log.at() % PAGE < PAGE - 64 {
            log.record(3, 0x20, b"");
            log.align();
        }
        let mut lost = 500u32.to_le_bytes().to_vec();
        lost.extend_from_slice(&[0; 4]);
        lost.extend_from_slice(&log.before.to_le_bytes());
        log.put(&lost);
        while !log.at().is_multiple_of(PAGE) {
            log.bytes.push(0);
        }
        log.page(BEFORE_GIVEN_UP, 0);
        let last_at = log.record(0, 0xd0, b"given up");
        let end = log.at();
        let found = read_all(&log.bytes, first_at, end).unwrap();
        assert_eq!(
            found.last().unwrap(),
            &(last_at, 0, 0xd0, b"given up".to_vec())
        );
    }

    /// However a record continues into a segment, the segment's own records are found from its first page on.
    #[test]
    fn a_segment_is_read_from_its_first_record_on() {
        let tail = |len: usize| {
            let mut log = Log::new();
            // Up to the segment's last page.
            let whole = vec![1; 1000];
            while log.at() < START + SEGMENT - 2 * PAGE {
                log.record(1, 0x10, &whole);
            }
            log.record(2, 0x20, &vec![2; len]);
            let at = log.record(3, 0x30, b"first");
            (log, at)
        };
        // Ends in the segment: in its first page, in a later one, and exactly with a page.
        for len in [3 * PAGE as usize, 9 * PAGE as usize, 20 * PAGE as usize] {
            for more in 0..40 {
                let (log, first_at) = tail(len + 32 * more);
                let end = log.at();
                let read = |at: Lsn, buf: &mut [u8]| {
                    buf.fill(0);
                    let from = ((at.0 - START) as usize).min(log.bytes.len());
                    let to = (from + buf.len()).min(log.bytes.len());
                    buf[..to - from].copy_from_slice(&log.bytes[from..to]);
                    Ok(())
                };
                let mut records = Records::of_segment(read, Lsn(START + SEGMENT)).unwrap();
                let found = records.next(Lsn(end), |_, _| true).unwrap().unwrap();
                assert_eq!((found.at.0, found.manager), (first_at, 3));
                assert!(records.next(Lsn(end), |_, _| true).unwrap().is_none());
            }
        }
    }

    #[test]
    fn a_changed_record_is_found_and_nothing_after_the_end_is_read() {
        let mut log = Log::new();
        let first_at = log.record(1, 0, &[1; 500]);
        // Ends with its page.
        log.align();
        let heads = RECORD_HEADER_LEN + 10;
        log.record(1, 0, &vec![2; (PAGE - log.at() % PAGE) as usize - heads]);
        let end = log.at();
        assert!(end.is_multiple_of(PAGE), "{end}");
        assert_eq!(read_all(&log.bytes, first_at, end).unwrap().len(), 2);
        let mut other = log.bytes.clone();
        other[600] ^= 1;
        assert!(matches!(
            read_all(&other, first_at, end),
            Err(NotRecords::Broken {
                what: "record whose checksum is right",
                ..
            })
        ));
    }

    #[test]
    fn another_segments_page_and_a_broken_thread_are_told() {
        let mut log = Log::new();
        let first_at = log.record(1, 0, &[1; 2000]);
        log.record(1, 0, b"second");
        let end = log.at();
        let mut other = log.bytes.clone();
        other[PAGE as usize + 8] ^= 1;
        assert!(matches!(
            read_all(&other, first_at, end),
            Err(NotRecords::Broken {
                what: "page of its own",
                ..
            })
        ));
        let mut thread = log.bytes.clone();
        let second = (log.before - START) as usize;
        thread[second + 8] ^= 1;
        assert!(read_all(&thread, first_at, end).is_err());
    }
}
