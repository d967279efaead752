//! Which pages have changed since a base was begun, from the server's WAL summaries.
//!
//! Pages that the summaries do not name need not be read: that is the whole gain.
//!
//! Memory: two bytes for each changed page, at most 8 KiB for 65,536 pages, and about 100 bytes for each changed
//! relation; in total at most [`MEMORY_MAX`], otherwise every page is read. During reading, the longest summary is
//! held as well: at most [`SUMMARY_MAX`], and counted.
//!
//! Invariants
//! - The summaries name every page that a record changes or contains, including pages with changed hint bits only, and
//!   "all visible" in heaps.
//! - If a relation was truncated or recreated ([`Summarized::limit`]), all pages from that point on count as changed;
//!   so does a database that was created or removed.
//!
//! Leaves to others: the format of a summary (`longshore-pg`), and reading the pages (`longshore-pipeline`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use longshore_io::{Clock, Dir, OpenHow, Via};
use longshore_pg::wal::summary::{
    self, CHUNK_PAGES, SUMMARIES_DIR, Summary, SummaryEntry, covering,
};
use longshore_pg::{Lsn, Timeline};

use super::base::RelationSegment;
use super::session::Session;
use crate::Error;

/// In bytes.
const MEMORY_MAX: u64 = 64 << 20;
/// Longest summary that is read, in bytes: as much as the memory for all changes.
const SUMMARY_MAX: u64 = MEMORY_MAX;
/// The server summarizes WAL some time after writing it; its summarizer sleeps up to half a minute when idle.
const PATIENCE: Duration = Duration::from_secs(45);
const PAUSE: Duration = Duration::from_millis(100);

const RELATION_BYTES: u64 = 100;
const BITMAP_BYTES: u64 = 8 << 10;
const WORDS: usize = CHUNK_PAGES as usize / 64;
/// A chunk with more pages than this is smaller as a bitmap.
const FEW_MAX: usize = BITMAP_BYTES as usize / 2;

#[derive(Debug, Default)]
pub(super) struct Changes {
    relations: HashMap<(u32, u32, u32), Pages>,
    databases: HashSet<(u32, u32)>,
    memory_bytes: u64,
    /// Length of the longest summary.
    read_bytes: u64,
}

/// Changed pages of one main fork, over all its files.
#[derive(Debug)]
struct Pages {
    /// From this block on, every page counts as changed.
    limit: u32,
    chunks: BTreeMap<u32, Chunk>,
}

#[derive(Debug)]
enum Chunk {
    /// In ascending order.
    Few(Vec<u16>),
    Bits(Box<[u64; WORDS]>),
}

impl Changes {
    /// Reads the summaries of `stretches`; waits for the last of them. `Err` holds the reason, for people, why every
    /// page must be read instead.
    pub(super) fn read(
        session: &Session,
        clock: &dyn Clock,
        wal_dir: &dyn Dir,
        stretches: &[Summary],
    ) -> Result<Result<Changes, String>, Error> {
        if !session.summarizes()? {
            return Ok(Err("summarize_wal is off".into()));
        }
        let dir = match wal_dir.dir(Path::new(SUMMARIES_DIR)) {
            Ok(dir) => dir,
            Err(e) => return Ok(Err(format!("its summaries cannot be read: {e}"))),
        };
        let began = clock.now();
        let chosen = loop {
            let available = match available(&*dir) {
                Ok(available) => available,
                Err(e) => return Ok(Err(format!("its summaries cannot be listed: {e}"))),
            };
            match covering(&available, stretches) {
                Ok(chosen) => break chosen,
                Err(hole) if is_past(hole, &available) || clock.now() - began > PATIENCE => {
                    let (timeline, at) = hole;
                    let text = format!("no summary covers {at} on timeline {timeline}");
                    return Ok(Err(text));
                }
                Err(_) => {
                    session.check()?;
                    clock.sleep(PAUSE);
                }
            }
        };
        let mut changes = Changes::default();
        for summary in chosen {
            session.check()?;
            if let Err(why) = changes.add_file(&*dir, &summary.name()) {
                return Ok(Err(format!("{}: {why}", summary.name())));
            }
        }
        Ok(Ok(changes))
    }

    fn add_file(&mut self, dir: &dyn Dir, name: &str) -> Result<(), String> {
        let text = |e: std::io::Error| e.to_string();
        let file = dir.open(Path::new(name), OpenHow::Read).map_err(text)?;
        let len = file.stat().map_err(text)?.len;
        if len > SUMMARY_MAX {
            return Err(format!("it has {len} bytes"));
        }
        self.read_bytes = self.read_bytes.max(len);
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0, Via::Cache)
            .map_err(text)?;
        summary::read(&bytes, |entry| self.add(entry)).map_err(|e| e.to_string())?;
        match self.memory_bytes > MEMORY_MAX {
            true => Err(format!(
                "the changes take more than {MEMORY_MAX} bytes of memory"
            )),
            false => Ok(()),
        }
    }

    fn add(&mut self, entry: SummaryEntry) {
        let place = (entry.space, entry.database);
        if entry.filenode == 0 {
            self.databases.insert(place);
            return;
        }
        // All other forks are stored completely.
        if entry.fork != 0 || self.memory_bytes > MEMORY_MAX {
            return;
        }
        let key = (entry.space, entry.database, entry.filenode);
        let memory_bytes = &mut self.memory_bytes;
        let pages = self.relations.entry(key).or_insert_with(|| {
            *memory_bytes += RELATION_BYTES;
            Pages {
                limit: u32::MAX,
                chunks: BTreeMap::new(),
            }
        });
        pages.limit = pages.limit.min(entry.limit);
        for (number, named) in entry.chunks().filter(|(_, named)| !named.is_empty()) {
            let chunk = pages.chunks.entry(number).or_insert(Chunk::Few(Vec::new()));
            *memory_bytes -= chunk.memory_bytes();
            chunk.add(named.iter());
            *memory_bytes += chunk.memory_bytes();
        }
    }

    /// The most memory held at once, in the past and in the future.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes + self.read_bytes
    }

    /// Whether the database's directory was created or removed.
    pub(super) fn has_database(&self, relation: RelationSegment) -> bool {
        self.databases
            .contains(&(relation.space, relation.database))
    }

    /// The first run of changed pages of a relation's segment inside `within`. Page numbers are relative to the segment,
    /// which has at most `relation_segment_pages`.
    pub(super) fn next(
        &self,
        relation: RelationSegment,
        relation_segment_pages: u32,
        within: Range<u32>,
    ) -> Option<Range<u32>> {
        let key = (relation.space, relation.database, relation.filenode);
        let pages = self.relations.get(&key)?;
        let first = u64::from(relation.number) * u64::from(relation_segment_pages);
        let of_relation = |page: u32| first + u64::from(page);
        let is_changed = |page: u32| pages.is_changed(of_relation(page));
        let start = pages.next(of_relation(within.start), of_relation(within.end))?;
        let start = (start - first) as u32;
        let end = (start + 1..within.end).find(|page| !is_changed(*page));
        Some(start..end.unwrap_or(within.end))
    }
}

impl Pages {
    /// The first changed page from `start` on, before `end`.
    fn next(&self, start: u64, end: u64) -> Option<u64> {
        let chunk_pages = u64::from(CHUNK_PAGES);
        let named = |(number, chunk): (&u32, &Chunk)| {
            let first = u64::from(*number) * chunk_pages;
            let from = start.saturating_sub(first).min(chunk_pages);
            chunk.next(from as u32).map(|page| first + u64::from(page))
        };
        let chunks = self.chunks.range((start / chunk_pages) as u32..);
        let named = chunks.filter_map(named).next();
        let limit = u64::from(self.limit);
        let cut = (limit != u64::from(u32::MAX)).then(|| limit.max(start));
        let next = named.into_iter().chain(cut).min()?;
        (next < end).then_some(next)
    }

    fn is_changed(&self, page: u64) -> bool {
        self.next(page, page + 1).is_some()
    }
}

impl Chunk {
    fn memory_bytes(&self) -> u64 {
        match self {
            Chunk::Few(pages) => 2 * pages.capacity() as u64,
            Chunk::Bits(_) => BITMAP_BYTES,
        }
    }

    fn add(&mut self, named: impl Iterator<Item = u16>) {
        match self {
            Chunk::Bits(bits) => set(bits, named),
            Chunk::Few(pages) => {
                pages.extend(named);
                pages.sort_unstable();
                pages.dedup();
                if pages.len() > FEW_MAX {
                    let mut bits = Box::new([0; WORDS]);
                    set(&mut bits, pages.iter().copied());
                    *self = Chunk::Bits(bits);
                }
            }
        }
    }

    /// The first changed page from `from` on.
    fn next(&self, from: u32) -> Option<u32> {
        match self {
            Chunk::Few(pages) => {
                let at = pages.partition_point(|page| u32::from(*page) < from);
                pages.get(at).map(|page| u32::from(*page))
            }
            Chunk::Bits(bits) => {
                let first = from as usize / 64;
                let rest = bits.iter().enumerate().skip(first);
                let mut words = rest.map(|(i, word)| match i == first {
                    true => (i, word & u64::MAX << (from % 64)),
                    false => (i, *word),
                });
                let (i, word) = words.find(|(_, word)| *word != 0)?;
                Some(i as u32 * 64 + word.trailing_zeros())
            }
        }
    }
}

fn set(bits: &mut [u64; WORDS], pages: impl Iterator<Item = u16>) {
    for page in pages {
        bits[usize::from(page / 64)] |= 1 << (page % 64);
    }
}

fn available(dir: &dyn Dir) -> std::io::Result<Vec<Summary>> {
    let mut found = Vec::new();
    for name in dir.list()? {
        found.extend(name?.to_str().and_then(Summary::parse));
    }
    Ok(found)
}

/// Whether the gap will never be filled, because a later summary exists already.
fn is_past((timeline, at): (Timeline, Lsn), available: &[Summary]) -> bool {
    let behind = |summary: &Summary| summary.timeline > timeline || summary.start > at;
    available.iter().any(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation(number: u32) -> RelationSegment {
        RelationSegment {
            space: 1663,
            database: 5,
            filenode: 7,
            number,
        }
    }

    fn changes(limit: u32, pages: &[u32]) -> Changes {
        let mut chunks: BTreeMap<u32, Chunk> = BTreeMap::new();
        for page in pages {
            let chunk = chunks
                .entry(page / CHUNK_PAGES)
                .or_insert(Chunk::Few(Vec::new()));
            chunk.add([*page as u16].into_iter());
        }
        Changes {
            relations: HashMap::from([((1663, 5, 7), Pages { limit, chunks })]),
            ..Changes::default()
        }
    }

    fn runs(changes: &Changes, number: u32, pages: u32) -> Vec<(u32, u32)> {
        let (mut at, mut found) = (0, Vec::new());
        while let Some(run) = changes.next(relation(number), 131_072, at..pages) {
            at = run.end;
            found.push((run.start, run.end));
        }
        found
    }

    #[test]
    fn runs_are_those_of_the_segment() {
        let named = [0, 1, 5, 65_535, 65_536, 131_071, 131_072, 131_080];
        let changes = changes(u32::MAX, &named);
        let first = [(0, 2), (5, 6), (65_535, 65_537), (131_071, 131_072)];
        assert_eq!(runs(&changes, 0, 131_072), first);
        assert_eq!(runs(&changes, 1, 131_072), [(0, 1), (8, 9)]);
        assert_eq!(runs(&changes, 1, 8), [(0, 1)]);
        assert_eq!(runs(&changes, 2, 131_072), []);
        assert_eq!(runs(&changes, 0, 0), []);
        let other = RelationSegment {
            filenode: 8,
            ..relation(0)
        };
        assert_eq!(changes.next(other, 131_072, 0..100), None);
    }

    #[test]
    fn a_summary_that_is_being_read_is_counted_and_a_longer_one_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        // One relation, no pages named.
        let mut bytes = 0x652b_137b_u32.to_le_bytes().to_vec();
        for field in [1663u32, 5, 7, 0, 3, 0] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend([0; 24]);
        bytes.extend(longshore_io::crc32c(&bytes).to_le_bytes());
        std::fs::write(dir.path().join("one"), &bytes).unwrap();
        let long = std::fs::File::create(dir.path().join("long")).unwrap();
        long.set_len(SUMMARY_MAX + 1).unwrap();
        let dir = longshore_io::Storage::dir(&longshore_io::Host::new(), dir.path()).unwrap();
        let mut changes = Changes::default();
        changes.add_file(&*dir, "one").unwrap();
        let counted = RELATION_BYTES + bytes.len() as u64;
        assert_eq!(changes.memory_bytes(), counted);
        assert_eq!(changes.next(relation(0), 131_072, 0..9), Some(3..9));
        assert!(changes.add_file(&*dir, "long").is_err());
        assert_eq!(changes.memory_bytes(), counted);
    }

    #[test]
    fn from_the_limit_on_everything_changed() {
        let changes = changes(10, &[3, 20]);
        assert_eq!(runs(&changes, 0, 30), [(3, 4), (10, 30)]);
        assert_eq!(runs(&changes, 0, 10), [(3, 4)]);
        assert_eq!(runs(&changes, 1, 7), [(0, 7)]);
    }

    #[test]
    fn a_bitmap_says_the_same_as_a_list() {
        let pages: Vec<u16> = (0..u16::MAX).step_by(3).collect();
        let mut bits = Chunk::Few(Vec::new());
        bits.add(pages.iter().copied());
        assert!(matches!(bits, Chunk::Bits(_)));
        let few = Chunk::Few(pages);
        for from in 0..CHUNK_PAGES {
            assert_eq!(bits.next(from), few.next(from), "{from}");
        }
        assert_eq!(bits.next(CHUNK_PAGES), None);
    }
}
