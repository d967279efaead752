//! WAL summaries: the pages that a range of WAL names. Servers from 17 on write them to `pg_wal/summaries` while
//! `summarize_wal` is on, each under its final name only when it is complete.
//!
//! A file is a magic number, an entry for each fork of a relation, an entry of zeros, and a CRC-32C of all that. An
//! entry ends with chunks of 65,536 pages each: a list of two-byte page numbers, or a bitmap if that is not longer.
//! Source: PostgreSQL 18, `src/common/blkreftable.c`, `src/backend/backup/walsummary.c`.
//!
//! Invariants
//! - No entry is passed on before the magic number and the checksum of the file match.
//! - `covering` returns summaries without a gap for every stretch, or the first LSN that none of them covers.
//! - No length in a file is trusted: entries that are longer than the file are an error.
//!
//! Leaves to others: finding and reading the files, and which pages a backup then reads (`longshore-source`,
//! `postgres/changes.rs`).

use std::ops::Range;

use crate::{Lsn, Timeline};

/// A directory below `pg_wal`.
pub const SUMMARIES_DIR: &str = "summaries";
const SUFFIX: &str = ".summary";
const MAGIC: u32 = 0x652b_137b;
const ENTRY_LEN: usize = 24;
/// Pages per chunk.
pub const CHUNK_PAGES: u32 = 1 << 16;
/// Two-byte words of a chunk that is a bitmap; a list is shorter.
const BITMAP_WORDS: u16 = 4096;

/// The range of WAL that a summary covers: from `start` to `end`, without `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Summary {
    pub timeline: Timeline,
    pub start: Lsn,
    pub end: Lsn,
}

impl Summary {
    /// `None` for names that are not those of a summary.
    pub fn parse(name: &str) -> Option<Summary> {
        let digits = name.strip_suffix(SUFFIX)?;
        let hex = |range: Range<usize>| {
            let part = digits.get(range)?;
            let plain = part.bytes().all(|b| b.is_ascii_hexdigit());
            u64::from_str_radix(part, 16).ok().filter(|_| plain)
        };
        let summary = Summary {
            timeline: Timeline::new(u32::try_from(hex(0..8)?).ok()?)?,
            start: Lsn(hex(8..24)?),
            end: Lsn(hex(24..40)?),
        };
        (digits.len() == 40 && summary.start < summary.end).then_some(summary)
    }

    pub fn name(&self) -> String {
        format!(
            "{:08X}{:016X}{:016X}{SUFFIX}",
            self.timeline.number(),
            self.start.0,
            self.end.0
        )
    }
}

/// The summaries that together cover all `stretches`, in order. Errors: the first LSN that none covers.
pub fn covering(
    available: &[Summary],
    stretches: &[Summary],
) -> Result<Vec<Summary>, (Timeline, Lsn)> {
    let mut chosen = Vec::new();
    for stretch in stretches {
        let of_it = available.iter().filter(|summary| {
            summary.timeline == stretch.timeline
                && summary.start < stretch.end
                && summary.end > stretch.start
        });
        let mut of_it: Vec<Summary> = of_it.copied().collect();
        of_it.sort_unstable();
        let mut reached = stretch.start;
        for summary in &of_it {
            if summary.start > reached {
                break;
            }
            reached = reached.max(summary.end);
        }
        if reached < stretch.end {
            return Err((stretch.timeline, reached));
        }
        chosen.append(&mut of_it);
    }
    Ok(chosen)
}

/// A summary's entry for one fork of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryEntry<'a> {
    /// OIDs of tablespace and database.
    pub space: u32,
    pub database: u32,
    /// 0: the entry is for the whole database, which was created or removed.
    pub filenode: u32,
    /// 0 the main fork, 1 the free space map, 2 the visibility map, 3 the init fork.
    pub fork: u32,
    /// The fork was truncated to this many pages, or created or removed (0); `u32::MAX` if none of these.
    pub limit: u32,
    usages: &'a [u8],
    words: &'a [u8],
}

/// Why bytes are not a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSummary {
    #[error("it is not a WAL summary of a known format")]
    Magic,
    #[error("its checksum is {found:#010x}, not {expected:#010x}")]
    Checksum { expected: u32, found: u32 },
    #[error("it ends early or late")]
    Length,
}

/// Reads a summary and passes each of its entries to `each`, but none before the checksum matches.
pub fn read<'a>(bytes: &'a [u8], mut each: impl FnMut(SummaryEntry<'a>)) -> Result<(), NotSummary> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or(NotSummary::Length)?;
    let expected = u32::from_le_bytes(*crc);
    if u32_at(body, 0) != Some(MAGIC) {
        return Err(NotSummary::Magic);
    }
    let found = longshore_io::crc32c(body);
    if found != expected {
        return Err(NotSummary::Checksum { expected, found });
    }
    let mut rest = &body[4..];
    loop {
        let (entry, behind) = rest.split_at_checked(ENTRY_LEN).ok_or(NotSummary::Length)?;
        let field = |i: usize| u32_at(entry, 4 * i).unwrap_or(0);
        if entry.iter().all(|byte| *byte == 0) {
            return match behind.is_empty() {
                true => Ok(()),
                false => Err(NotSummary::Length),
            };
        }
        let usages_len = usize::try_from(field(5))
            .ok()
            .and_then(|n| n.checked_mul(2));
        let (usages, behind) = usages_len
            .and_then(|len| behind.split_at_checked(len))
            .ok_or(NotSummary::Length)?;
        let words: usize = words_of(usages).map(usize::from).sum();
        let (words, behind) = behind
            .split_at_checked(2 * words)
            .ok_or(NotSummary::Length)?;
        each(SummaryEntry {
            space: field(0),
            database: field(1),
            filenode: field(2),
            fork: field(3),
            limit: field(4),
            usages,
            words,
        });
        rest = behind;
    }
}

impl<'a> SummaryEntry<'a> {
    /// The pages that the WAL names, chunk by chunk: a chunk's number and the page numbers in it, in no order.
    pub fn chunks(self) -> impl Iterator<Item = (u32, ChunkPages<'a>)> {
        let mut rest = self.words;
        words_of(self.usages).enumerate().map(move |(i, usage)| {
            let (words, behind) = rest.split_at(2 * usize::from(usage));
            rest = behind;
            (i as u32, ChunkPages { words, usage })
        })
    }
}

/// The pages of one chunk.
#[derive(Debug, Clone, Copy)]
pub struct ChunkPages<'a> {
    words: &'a [u8],
    usage: u16,
}

impl<'a> ChunkPages<'a> {
    pub fn is_empty(self) -> bool {
        self.usage == 0
    }

    pub fn iter(self) -> impl Iterator<Item = u16> + 'a {
        let is_bitmap = self.usage == BITMAP_WORDS;
        let listed = words_of(self.words).filter(move |_| !is_bitmap);
        let bits = words_of(self.words).enumerate().filter(move |_| is_bitmap);
        let bits = bits.flat_map(|(i, word)| {
            let set = (0..16u16).filter(move |bit| word & 1 << bit != 0);
            set.map(move |bit| i as u16 * 16 + bit)
        });
        listed.chain(bits)
    }
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u16> {
    let (words, _) = bytes.as_chunks::<2>();
    words.iter().map(|word| u16::from_le_bytes(*word))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(timeline: u32, start: u64, end: u64) -> Summary {
        Summary {
            timeline: Timeline::new(timeline).unwrap(),
            start: Lsn(start),
            end: Lsn(end),
        }
    }

    #[test]
    fn a_name_says_the_stretch() {
        let name = "0000000100000000010000280000000001000128.summary";
        let found = Summary::parse(name).unwrap();
        assert_eq!(found, summary(1, 0x100_0028, 0x100_0128));
        assert_eq!(found.name(), name);
        for odd in [
            "temp.summary",
            "0000000100000000010000280000000001000128",
            "0000000100000000010001280000000001000128.summary",
            "0000000000000000010000280000000001000128.summary",
            "00000001000000000100002800000000010001280.summary",
            "+000000100000000010000280000000001000128.summary",
        ] {
            assert_eq!(Summary::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_hole_anywhere_is_found() {
        let all = [
            summary(1, 10, 20),
            summary(1, 20, 40),
            summary(2, 30, 50),
            summary(1, 5, 15),
        ];
        let chosen = covering(&all, &[summary(1, 10, 30), summary(2, 30, 45)]).unwrap();
        assert_eq!(chosen, [all[3], all[0], all[1], all[2]]);
        let cases = [
            (summary(1, 4, 30), (1, 4)),
            (summary(1, 10, 41), (1, 40)),
            (summary(2, 29, 50), (2, 29)),
            (summary(3, 10, 20), (3, 10)),
        ];
        for (stretch, (timeline, at)) in cases {
            let hole = (Timeline::new(timeline).unwrap(), Lsn(at));
            assert_eq!(covering(&all, &[stretch]), Err(hole));
        }
        let holed = [all[0], summary(1, 21, 40)];
        let hole = (Timeline::new(1).unwrap(), Lsn(20));
        assert_eq!(covering(&holed, &[summary(1, 10, 30)]), Err(hole));
    }

    fn entry(fields: [u32; 5], chunks: &[Vec<u16>]) -> Vec<u8> {
        let mut bytes: Vec<u8> = fields.iter().flat_map(|f| f.to_le_bytes()).collect();
        bytes.extend((chunks.len() as u32).to_le_bytes());
        bytes.extend(chunks.iter().flat_map(|c| (c.len() as u16).to_le_bytes()));
        bytes.extend(chunks.iter().flatten().flat_map(|w| w.to_le_bytes()));
        bytes
    }

    fn file(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(entries.iter().flatten());
        bytes.extend([0; ENTRY_LEN]);
        let crc = longshore_io::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    #[test]
    fn lists_and_bitmaps_are_read() {
        let mut bitmap = vec![0u16; 4096];
        (bitmap[0], bitmap[4095]) = (0b101, 1 << 15);
        let bytes = file(&[
            entry([1663, 5, 0, 0, 0], &[]),
            entry([1663, 5, 16384, 0, u32::MAX], &[vec![7, 3], vec![], bitmap]),
        ]);
        let mut found = Vec::new();
        read(&bytes, |entry| {
            let pages = |(n, pages): (u32, ChunkPages)| (n, pages.iter().collect::<Vec<_>>());
            let chunks: Vec<_> = entry.chunks().map(pages).collect();
            found.push((entry.filenode, entry.limit, chunks));
        })
        .unwrap();
        let chunks = vec![(0, vec![7, 3]), (1, vec![]), (2, vec![0, 2, 65535])];
        assert_eq!(found, [(0, 0, vec![]), (16384, u32::MAX, chunks)]);
    }

    #[test]
    fn damage_and_every_cut_are_refused() {
        let whole = file(&[entry([1663, 5, 16384, 0, 3], &[vec![1, 2, 3]])]);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(read(&bytes, |_| {}).is_err(), "byte {at}");
            assert!(read(&whole[..at], |_| {}).is_err(), "cut at {at}");
        }
        // Bytes with a valid checksum may still be invalid.
        for fields in [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]] {
            let mut odd = entry(fields, &[]);
            odd[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
            assert_eq!(read(&file(&[odd]), |_| {}), Err(NotSummary::Length));
        }
    }
}
