//! SQLite's write-ahead log and the header of its index, read without the library.
//!
//! Source: SQLite file format, section 4; `walformat.html`; `wal.c`. The log is big-endian, the index in the machine's
//! own byte order. A frame is a 24-byte header and one page; a snapshot shows the last frame of each page up to the
//! mark.
//!
//! Invariants
//! - A header of the index counts only if both of its copies are equal and match their checksum.
//! - `scan` accepts only frames with the log's salts, and fails at the first other one. It needs one record of memory
//!   for each frame, up to a limit.
//! - `recover` ends at the last commit before the first frame that breaks the chain of checksums, as SQLite's own
//!   recovery does. Neither writes anything.
//!
//! Leaves to others: keeping the log from changing while it is read (`snapshot.rs`, `library.rs`); reading pages
//! through it (`overlay.rs`); the offsets and headers of frames (`frames.rs`).

use std::ops::Range;
use std::path::Path;

use longshore_io::{File, Via};

use super::frames::{FRAME_HEADER_BYTES, LOG_HEADER_BYTES, be, frame_offset, page_of};
use super::overlay::{Overlay, PageRecord, RECORDS_MAX, Records};
use crate::Error;

/// Two copies of 48 bytes, then the count of frames copied back to the database.
pub(super) const INDEX_HEADER_WORDS: usize = 25;

/// The state of a log between two commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexHeader {
    words: [u32; Self::COPY_WORDS],
    /// Frames that have been copied to the database file.
    pub(super) backfilled: u32,
}

impl IndexHeader {
    const COPY_WORDS: usize = 12;

    /// First the count of frames copied back, then the commit. A reset of the log writes in the opposite order, so a
    /// count read before an unchanged commit belongs to this log.
    pub(super) const READING_ORDER: [Range<usize>; 3] = [24..25, 0..12, 12..24];

    const VERSION: u32 = 3_007_000;

    /// `None` while a writer changes it: the copies differ or do not match their checksum.
    pub(super) fn parse(words: &[u32; INDEX_HEADER_WORDS]) -> Option<Self> {
        let (first, rest) = words.split_first_chunk::<{ Self::COPY_WORDS }>()?;
        let (second, rest) = rest.split_first_chunk::<{ Self::COPY_WORDS }>()?;
        let sum = first[..10]
            .chunks_exact(2)
            .fold([0, 0], |sum, pair| add(sum, pair[0], pair[1]));
        let whole = first == second && first[0] == Self::VERSION && sum == [first[10], first[11]];
        whole.then_some(Self {
            words: *first,
            backfilled: rest[0],
        })
    }

    #[cfg(test)]
    pub(super) fn of_commit(last_frame: u32, backfilled: u32) -> Self {
        let mut words = [0; Self::COPY_WORDS];
        words[4] = last_frame;
        Self { words, backfilled }
    }

    /// Whether the log is in the same state, regardless of how much was copied back.
    pub(super) fn same_commit(&self, other: &Self) -> bool {
        self.words == other.words
    }

    /// The last frame of the last commit; 0: the log is empty.
    pub(super) fn last_frame(&self) -> u32 {
        self.words[4]
    }

    /// Pages in the database after the last commit; 0: nothing was committed through this log yet.
    pub(super) fn pages(&self) -> u32 {
        self.words[5]
    }

    /// The salts are bytes of the log's header, so they are big-endian here too.
    pub(super) fn salts(&self) -> [u32; 2] {
        [u32::from_be(self.words[8]), u32::from_be(self.words[9])]
    }
}

/// How far frames were copied back to the database file, as the index of its log says.
///
/// A checkpoint notes its aim before it writes the database file, and what it reached afterwards. So if a file changed
/// between two equal looks, and no checkpoint runs at the second one, no checkpoint through this log wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Checkpoints {
    pub(super) backfilled: u32,
    pub(super) attempted: u32,
    /// A reset of the log changes them.
    pub(super) salts: [u32; 2],
}

impl Checkpoints {
    /// The words of the index, in the order of the fields.
    pub(super) const WORDS: [usize; 4] = [24, 32, 8, 9];

    pub(super) fn of([backfilled, attempted, salt_1, salt_2]: [u32; 4]) -> Self {
        Self {
            backfilled,
            attempted,
            salts: [salt_1, salt_2],
        }
    }
}

/// One step of SQLite's checksum, over two words.
fn add([s1, s2]: [u32; 2], a: u32, b: u32) -> [u32; 2] {
    let s1 = s1.wrapping_add(a).wrapping_add(s2);
    [s1, s2.wrapping_add(b).wrapping_add(s1)]
}

/// Finds the last frame of each page in `frames` (from 1, end excluded), without pages after `pages`. Errors:
/// [`Error::WalDamaged`] if a frame does not have `salts`.
pub(super) fn scan(
    log: &dyn File,
    path: &Path,
    page_bytes: u32,
    salts: [u32; 2],
    frames: Range<u32>,
    pages: u32,
) -> Result<Overlay, Error> {
    if frames.len() > RECORDS_MAX as usize {
        let frames = frames.end - frames.start;
        return Err(Error::WalTooLong {
            path: path.into(),
            frames,
            frames_max: RECORDS_MAX,
        });
    }
    let records = Records::Log { salts };
    let mut places = Vec::new();
    places.reserve_exact(frames.len());
    for frame in frames {
        let mut header = [0; FRAME_HEADER_BYTES];
        let offset = frame_offset(page_bytes.into(), frame);
        records.read_exact(log, path, &mut header, offset, Via::Cache)?;
        match page_of(&header, salts) {
            Some(page) if page <= pages => places.push(PageRecord {
                page,
                record: frame,
            }),
            Some(_) => {}
            None => return Err(records.mismatch(path, offset)),
        }
    }
    Ok(Overlay::new(page_bytes, records, places))
}

/// The content of a log without an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogContent {
    pub(super) page_bytes: u32,
    pub(super) salts: [u32; 2],
    /// The last frame of the last complete commit.
    pub(super) last_frame: u32,
    /// Pages in the database after that commit.
    pub(super) pages: u32,
}

/// Reads a log without writers as SQLite's recovery does: up to the last commit before the first frame that does not
/// continue the chain of checksums. `None`: nothing is committed in it.
pub(super) fn recover(log: &dyn File, path: &Path) -> Result<Option<LogContent>, Error> {
    let io = |offset| {
        move |source| Error::Read {
            path: path.into(),
            offset,
            source,
        }
    };
    let mut header = [0; LOG_HEADER_BYTES as usize];
    let len = log
        .read_full_at(&mut header, 0, Via::Cache)
        .map_err(io(0))?;
    let Some(chain) = Chain::begin(&header[..len]) else {
        return Ok(None);
    };
    let Chain {
        mut sum,
        page_bytes,
        salts,
        ..
    } = chain;
    let mut found = None;
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes as usize];
    for number in 1..u32::MAX {
        let offset = frame_offset(page_bytes.into(), number);
        let len = log
            .read_full_at(&mut frame, offset, Via::Cache)
            .map_err(io(offset))?;
        if len < frame.len() || [be(&frame, 8), be(&frame, 12)] != salts || be(&frame, 0) == 0 {
            break;
        }
        sum = chain.over(sum, &frame[..8]);
        sum = chain.over(sum, &frame[FRAME_HEADER_BYTES..]);
        if sum != [be(&frame, 16), be(&frame, 20)] {
            break;
        }
        let pages = be(&frame, 4);
        if pages != 0 {
            found = Some(LogContent {
                page_bytes,
                salts,
                last_frame: number,
                pages,
            });
        }
    }
    Ok(found)
}

/// The checksums of a log, each frame continuing the previous one.
struct Chain {
    big_endian: bool,
    page_bytes: u32,
    salts: [u32; 2],
    sum: [u32; 2],
}

impl Chain {
    const MAGIC: u32 = 0x377f_0682;
    const VERSION: u32 = 3_007_000;

    fn begin(header: &[u8]) -> Option<Self> {
        let magic = be(header, 0);
        let page_bytes = be(header, 8);
        let known = header.len() == LOG_HEADER_BYTES as usize
            && magic & !1 == Self::MAGIC
            && be(header, 4) == Self::VERSION
            && page_bytes.is_power_of_two()
            && (512..=65_536).contains(&page_bytes);
        if !known {
            return None;
        }
        let mut chain = Self {
            big_endian: magic & 1 == 1,
            page_bytes,
            salts: [be(header, 16), be(header, 20)],
            sum: [0; 2],
        };
        chain.sum = chain.over([0; 2], &header[..24]);
        (chain.sum == [be(header, 24), be(header, 28)]).then_some(chain)
    }

    fn over(&self, sum: [u32; 2], bytes: &[u8]) -> [u32; 2] {
        let word = |four: &[u8]| match self.big_endian {
            true => be(four, 0),
            false => be(four, 0).swap_bytes(),
        };
        bytes.chunks_exact(8).fold(sum, |sum, pair| {
            add(sum, word(&pair[..4]), word(&pair[4..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{Host, OpenHow, Storage};

    use super::*;

    const SALTS: [u32; 2] = [0x1234_5678, 0x9abc_def0];

    /// A log whose frame `i + 1` holds page `pages[i]`, filled with the frame's number.
    fn log_of(dir: &Path, page_bytes: usize, pages: &[u32]) -> std::sync::Arc<dyn File> {
        let mut bytes = vec![0; LOG_HEADER_BYTES as usize];
        for (i, page) in pages.iter().enumerate() {
            for word in [*page, 0, SALTS[0], SALTS[1], 0, 0] {
                bytes.extend_from_slice(&word.to_be_bytes());
            }
            bytes.resize(bytes.len() + page_bytes, i as u8 + 1);
        }
        std::fs::write(dir.join("wal"), bytes).unwrap();
        Host::new()
            .dir(dir)
            .unwrap()
            .open(Path::new("wal"), OpenHow::Read)
            .unwrap()
    }

    /// The expected bytes of the database: the number of each page's last frame, 0 if there is none.
    fn model(page_bytes: usize, count: u32, frames: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; page_bytes * count as usize];
        for (i, page) in frames
            .iter()
            .enumerate()
            .filter(|(_, page)| **page <= count)
        {
            bytes[(*page as usize - 1) * page_bytes..][..page_bytes].fill(i as u8 + 1);
        }
        bytes
    }

    #[test]
    fn an_overlay_lays_the_last_frame_of_each_page_over_any_range() {
        let dir = tempfile::tempdir().unwrap();
        let pages = [3, 4, 5, 6, 2, 9, 4, 1, 12, 13, 14, 30, 5, 9];
        let log = log_of(dir.path(), 512, &pages);
        let path = Path::new("wal");
        for (from, count) in [(1, 20), (1, 13), (4, 40), (14, 9), (15, 9)] {
            let used: Vec<u32> = pages[from as usize - 1..].to_vec();
            let mut expected = model(512, count, &used);
            expected
                .iter_mut()
                .filter(|b| **b > 0)
                .for_each(|b| *b += from as u8 - 1);
            let overlay = scan(&*log, path, 512, SALTS, from..15, count).unwrap();
            let len = expected.len();
            for (start, end) in (0..len)
                .step_by(331)
                .flat_map(|a| [1, 700, 5000].map(|n| (a, a + n)))
            {
                let end = end.min(len);
                let mut buf = vec![0; end - start];
                overlay
                    .apply(&*log, path, &mut buf, start as u64, Via::Cache)
                    .unwrap();
                assert_eq!(buf, expected[start..end], "{from} {count} {start}..{end}");
                let run = overlay.next_run(start as u64);
                let first = (start..len).find(|&i| expected[i] > 0);
                assert_eq!(run.as_ref().map(|run| run.start), first.map(|i| i as u64));
                if let Some(run) = run {
                    let all = &expected[run.start as usize..run.end as usize];
                    assert!(all.iter().all(|&b| b > 0));
                    assert_eq!(expected.get(run.end as usize).unwrap_or(&0), &0);
                }
            }
        }
    }

    #[test]
    fn a_frame_of_another_log_and_an_early_end_are_damage_at_their_offset() {
        let dir = tempfile::tempdir().unwrap();
        let log = log_of(dir.path(), 512, &[1, 2, 0, 4]);
        let path = Path::new("wal");
        let scan = |salts, frames| super::scan(&*log, path, 512, salts, frames, 9);
        let offset = |found: Result<Overlay, Error>| match found {
            Err(Error::WalDamaged { offset, .. }) => offset,
            other => panic!("{other:?}"),
        };
        assert_eq!(offset(scan([SALTS[0], 0], 2..3)), 32 + 536);
        assert_eq!(offset(scan(SALTS, 1..4)), 32 + 2 * 536);
        assert_eq!(offset(scan(SALTS, 4..6)), 32 + 4 * 536);
        let overlay = scan(SALTS, 1..3).unwrap();
        let other = log_of(dir.path(), 512, &[1, 7]);
        let refused = overlay.apply(&*other, path, &mut [0; 2048], 0, Via::Cache);
        assert!(matches!(
            refused,
            Err(Error::WalDamaged { offset: 568, .. })
        ));
        let frames = 1..RECORDS_MAX + 2;
        assert!(matches!(scan(SALTS, frames), Err(Error::WalTooLong { .. })));
    }

    #[test]
    fn an_index_head_is_whole_only_if_both_copies_match_their_checksum() {
        let mut words = [0; INDEX_HEADER_WORDS];
        words[..10].copy_from_slice(&[3_007_000, 0, 5, 0x1000_0001, 77, 99, 1, 2, 3, 4]);
        let sum = words[..10]
            .chunks_exact(2)
            .fold([0, 0], |s, pair| add(s, pair[0], pair[1]));
        words[10..12].copy_from_slice(&sum);
        words.copy_within(0..12, 12);
        words[24] = 50;
        let head = IndexHeader::parse(&words).unwrap();
        assert_eq!(
            (head.last_frame(), head.pages(), head.backfilled),
            (77, 99, 50)
        );
        assert_eq!(head.salts(), [u32::from_be(3), u32::from_be(4)]);
        for i in 0..24 {
            let mut torn = words;
            torn[i] ^= 1;
            assert_eq!(IndexHeader::parse(&torn), None, "word {i}");
        }
        for i in [0, 4, 11] {
            let mut wrong = words;
            wrong[i] ^= 1;
            wrong[i + 12] ^= 1;
            assert_eq!(IndexHeader::parse(&wrong), None, "word {i} of both");
        }
        assert_eq!(IndexHeader::parse(&[0; INDEX_HEADER_WORDS]), None);
    }
}
