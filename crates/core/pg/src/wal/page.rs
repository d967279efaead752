//! The headers of WAL pages: the fields that identify a page.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | magic: changes with every major |
//! | 2 | 2 | flags: 2 marks a long header, the first of a segment |
//! | 4 | 4 | timeline |
//! | 8 | 8 | the page's LSN |
//! | 16 | 4 | remaining bytes of a record that began earlier |
//! | 24 | 8 | long only: system identifier |
//! | 32 | 4 | long only: bytes of a segment |
//! | 36 | 4 | long only: bytes of a page |
//!
//! Invariants
//! - A segment's header is accepted only if its magic is known, it is a long one, and each field has a value that a
//!   server writes: its sizes are safe to compute with.
//! - A page belongs to an LSN only if its header says so; a page of zeros was never written.
//!
//! Leaves to others: records and their checksums (`wal/records.rs`). Numbers are in the byte order of the server's
//! machine; only little-endian is supported.
//!
//! Source: PostgreSQL 14 to 18, `access/xlog_internal.h`.

use crate::{Lsn, SegmentSize, Timeline};

/// Major versions, and the magic of their WAL pages.
pub const WAL_MAGICS: [(u16, u16); 5] = [
    (14, 0xd10d),
    (15, 0xd110),
    (16, 0xd113),
    (17, 0xd116),
    (18, 0xd118),
];

/// Bytes that [`SegmentHeader::parse`] needs.
pub const PAGE_HEADER_LEN: usize = 40;

/// The page begins with the rest of a record.
pub(super) const CONTINUES: u16 = 1;
const LONG_HEADER: u16 = 2;
const FLAGS_ALL: u16 = 0xf;

/// The contents of a segment's first page header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    pub major: u16,
    pub magic: u16,
    /// The timeline of this page. In the segment in which a promotion happened, it is the older one.
    pub timeline: Timeline,
    pub start: Lsn,
    /// The cluster's system identifier.
    pub system: u64,
    pub segment_size: SegmentSize,
    /// Bytes of one page, a power of two.
    pub page_bytes: u32,
}

/// Why bytes are not the beginning of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotWal {
    #[error("it ends within its first header")]
    Short,
    #[error(
        "its page magic {0:#06x} is not PostgreSQL 14's to 18's: it is not WAL, or is of a major version that this version \
         does not know"
    )]
    Magic(u16),
    #[error("its first page has no long header, so it does not begin a segment")]
    NotFirst,
    #[error("its header has an impossible {0}")]
    Field(&'static str),
}

impl SegmentHeader {
    /// Parses the header of a segment's first page from its first [`PAGE_HEADER_LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<SegmentHeader, NotWal> {
        let header = bytes
            .first_chunk::<PAGE_HEADER_LEN>()
            .ok_or(NotWal::Short)?;
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let magic = u16_at(0);
        let (major, _) = *WAL_MAGICS
            .iter()
            .find(|(_, known)| *known == magic)
            .ok_or(NotWal::Magic(magic))?;
        let flags = u16_at(2);
        if flags & LONG_HEADER == 0 {
            return Err(NotWal::NotFirst);
        }
        if flags & !FLAGS_ALL != 0 {
            return Err(NotWal::Field("flag"));
        }
        let timeline = Timeline::new(u32_at(4)).ok_or(NotWal::Field("timeline"))?;
        let segment_size =
            SegmentSize::new(u32_at(32).into()).ok_or(NotWal::Field("segment size"))?;
        let page_bytes = u32_at(36);
        if !(1 << 10..=1 << 16).contains(&page_bytes) || !page_bytes.is_power_of_two() {
            return Err(NotWal::Field("page size"));
        }
        let start = u64_at(8);
        if start % segment_size.bytes() != 0 {
            return Err(NotWal::Field("place"));
        }
        Ok(SegmentHeader {
            major,
            magic,
            timeline,
            start: Lsn(start),
            system: u64_at(24),
            segment_size,
            page_bytes,
        })
    }
}

/// Bytes at the start of a page that belong to a record that began earlier; `None` if the page begins with a record.
pub(super) fn continued(header: &[u8; PAGE_HEADER_LEN]) -> Option<u32> {
    let flags = u16::from_le_bytes([header[2], header[3]]);
    let left = [header[16], header[17], header[18], header[19]];
    (flags & CONTINUES != 0).then(|| u32::from_le_bytes(left))
}

/// Whether `page` is the page at this LSN of WAL with this magic, or was never written (zeros). If the last page of a
/// segment is neither, the segment was not written to its end: that page is left over from an earlier use.
pub fn is_page_at(page: &[u8], magic: u16, place: Lsn) -> bool {
    let Some((head, _)) = page.split_first_chunk::<16>() else {
        return false;
    };
    let own = head[..2] == magic.to_le_bytes() && head[8..] == place.0.to_le_bytes();
    own || page.iter().all(|b| *b == 0)
}

/// The timeline of the page at this LSN of WAL with this magic; `None` if it is not that page.
pub fn page_timeline(page: &[u8], magic: u16, place: Lsn) -> Option<Timeline> {
    let (head, _) = page.split_first_chunk::<16>()?;
    let own = head[..2] == magic.to_le_bytes() && head[8..] == place.0.to_le_bytes();
    let number = u32::from_le_bytes(*head[4..].first_chunk()?);
    Timeline::new(number).filter(|_| own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a segment of a PostgreSQL 15 server, as shown by `od`: system identifier
    /// 7575086021411873849, 16 MiB segments, 8 KiB pages.
    fn sample() -> [u8; PAGE_HEADER_LEN] {
        let mut bytes = [0; PAGE_HEADER_LEN];
        bytes[..2].copy_from_slice(&[0x10, 0xd1]);
        bytes[2] = 6;
        bytes[4] = 1;
        bytes[8..16].copy_from_slice(&[0, 0, 0, 0xb3, 0x16, 0, 0, 0]);
        bytes[24..32].copy_from_slice(&7_575_086_021_411_873_849u64.to_le_bytes());
        bytes[32..36].copy_from_slice(&[0, 0, 0, 1]);
        bytes[36..40].copy_from_slice(&[0, 0x20, 0, 0]);
        bytes
    }

    #[test]
    fn a_first_page_says_whose_it_is() {
        let header = SegmentHeader::parse(&sample()).unwrap();
        assert_eq!(header.major, 15);
        assert_eq!(header.timeline.number(), 1);
        assert_eq!(header.start, Lsn(0x16_b300_0000));
        assert_eq!(header.system, 7_575_086_021_411_873_849);
        assert_eq!(header.segment_size.bytes(), 16 << 20);
        assert_eq!(header.page_bytes, 8192);
    }

    #[test]
    fn an_impossible_header_is_refused_by_its_kind() {
        let changed = |at: usize, to: u8| {
            let mut bytes = sample();
            bytes[at] = to;
            SegmentHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(SegmentHeader::parse(&sample()[..39]), Err(NotWal::Short));
        assert_eq!(changed(0, 0x11), NotWal::Magic(0xd111));
        assert_eq!(changed(2, 0), NotWal::NotFirst);
        assert_eq!(changed(2, 0x12), NotWal::Field("flag"));
        assert_eq!(changed(4, 0), NotWal::Field("timeline"));
        assert_eq!(changed(9, 1), NotWal::Field("place"));
        assert_eq!(changed(32, 1), NotWal::Field("segment size"));
        assert_eq!(changed(36, 1), NotWal::Field("page size"));
    }

    #[test]
    fn a_page_that_is_elsewhere_is_neither_its_own_nor_empty() {
        let mut page = vec![0; 8192];
        let place = Lsn(0x16_b3ff_e000);
        assert!(is_page_at(&page, 0xd110, place));
        page[5000] = 1;
        assert!(!is_page_at(&page, 0xd110, place));
        page[..2].copy_from_slice(&[0x10, 0xd1]);
        page[8..16].copy_from_slice(&place.0.to_le_bytes());
        assert!(is_page_at(&page, 0xd110, place));
        assert!(!is_page_at(&page, 0xd113, place));
        assert!(!is_page_at(&page, 0xd110, Lsn(place.0 + 8192)));
        assert!(!is_page_at(&[], 0xd110, place));
    }
}
