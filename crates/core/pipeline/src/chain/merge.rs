//! Decides which set of a chain provides each byte of each file.
//!
//! The indexes are read from the newest set to the oldest. If a file is not *based* in a set, older sets do not matter
//! for it. A file that is based has a row in the table, and for each set except the last one that has bytes of it, the
//! runs that no newer set has ([`Spans`]). When blocks arrive, in any order, [`Merge::pieces`] returns the parts of an
//! extent that count. So every byte is written once, and no set has to wait for an older one.
//!
//! Invariants
//! - Each byte comes from one set, and never from beyond the file's length in any newer set: a range that was
//!   truncated and grew again is zeros.
//! - Names are not kept: a row has 128 bits of a keyed hash, so that media cannot choose names that collide.
//! - Memory grows with the actual contents of the indexes, never with lengths they claim, and is limited to
//!   [`MEMORY_MAX`].
//!
//! Leaves to others: the runs of one file (`spans.rs`), and which sets make a chain (`mod.rs`).

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use longshore_io::{crc32c, crc32c_join, crc32c_zeros};
use longshore_media::{BlockStream, Entry, EntryKind, Extent, Item};

use super::spans::{Spans, without};
use super::{Chain, ChainError, Link};
use crate::Error;

/// The most memory for the table, in bytes.
const MEMORY_MAX: u64 = 1 << 30;
/// If less than this share of a set is wanted, its blocks are read individually. Above it, reading the whole set
/// sequentially, with all its checks, costs no more.
const PICKED_SHARE: f64 = 0.875;

type Key = (u64, u64);

/// A file that is assembled from several sets.
#[derive(Debug)]
struct Row {
    key: Key,
    /// Length in the newest set.
    len: u64,
    /// The shortest length in the sets read so far.
    clip: u64,
    /// Bytes that no set has.
    missing: u64,
    /// The CRC of the pieces, relative to a file of zeros.
    sum: AtomicU32,
    /// The depth of the oldest set read so far that has the file.
    oldest: u16,
    /// Whether the file is based in that set.
    is_based: bool,
}

/// Which parts of which set count.
#[derive(Debug)]
pub struct Merge {
    hashers: (RandomState, RandomState),
    /// Sorted by key.
    rows: Vec<Row>,
    /// For every set except the last one, newest first.
    spans: Vec<Spans>,
    with_sums: bool,
}

/// A file of a merge.
#[derive(Debug, Clone, Copy)]
pub struct FileRow(usize);

impl Merge {
    /// Reads the indexes of the chain. Only wanted files get rows. `with_sums`: whether checksums of whole files will
    /// be requested.
    ///
    /// Errors: [`ChainError::NoSuchFile`], [`ChainError::Contradiction`], [`ChainError::Scattered`], and errors in
    /// reading an index.
    pub fn read(
        chain: &Chain,
        is_wanted: &dyn Fn(&Path) -> bool,
        with_sums: bool,
    ) -> Result<Merge, Error> {
        let mut merge = Merge {
            hashers: Default::default(),
            rows: Vec::new(),
            spans: Vec::new(),
            with_sums,
        };
        merge.add_rows(chain, is_wanted)?;
        for depth in 0..chain.links.len() {
            merge.add_set(chain, depth, is_wanted)?;
        }
        Ok(merge)
    }

    pub fn memory_bytes(&self) -> u64 {
        let rows = (self.rows.capacity() * size_of::<Row>()) as u64;
        rows + self.spans.iter().map(Spans::memory_bytes).sum::<u64>()
    }

    /// Bytes that come from older sets.
    pub fn older_bytes(&self) -> u64 {
        let newest = self.spans.first();
        let of_newest: u64 = newest.map_or(0, Spans::len_bytes);
        let all: u64 = self.rows.iter().map(|row| row.len - row.missing).sum();
        all.saturating_sub(of_newest)
    }

    fn key(&self, path: &Path) -> Key {
        (self.hashers.0.hash_one(path), self.hashers.1.hash_one(path))
    }

    /// The row of a file that is assembled from several sets; `None` for all other names.
    pub fn file(&self, path: &Path) -> Option<FileRow> {
        let key = self.key(path);
        let found = self.rows.binary_search_by_key(&key, |row| row.key);
        found.ok().map(FileRow)
    }

    pub fn len(&self, file: FileRow) -> u64 {
        self.rows[file.0].len
    }

    /// Bytes of the file that no set has: zeros.
    pub fn missing(&self, file: FileRow) -> u64 {
        self.rows[file.0].missing
    }

    fn add_rows(&mut self, chain: &Chain, is_wanted: &dyn Fn(&Path) -> bool) -> Result<(), Error> {
        let newest = &chain.links[0];
        let mut scattered = false;
        let (media, position) = (newest.media, newest.header.position);
        media.items(position, |item| {
            let Item::Entry(entry) = item else { return };
            if entry.first && entry.based && is_wanted(&entry.path) && !scattered {
                let key = self.key(&entry.path);
                self.rows.push(Row {
                    key,
                    len: entry.len,
                    clip: entry.len,
                    missing: entry.len,
                    sum: AtomicU32::new(0),
                    oldest: 0,
                    is_based: true,
                });
                scattered = self.memory_bytes() > MEMORY_MAX;
            }
        })?;
        self.check_memory(chain, 0)?;
        self.rows.shrink_to_fit();
        self.rows.sort_unstable_by_key(|row| row.key);
        let twice = self.rows.windows(2).find(|pair| pair[0].key == pair[1].key);
        match twice.map(|pair| pair[0].key) {
            Some(key) => Err(self.contradiction(newest, self.path_of(newest, key)?)),
            None => Ok(()),
        }
    }

    /// Adds the contents of the set at `depth`, for files to which it still contributes.
    fn add_set(
        &mut self,
        chain: &Chain,
        depth: usize,
        is_wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<(), Error> {
        let link = &chain.links[depth];
        let is_last = depth + 1 == chain.links.len();
        let mut spans = Spans::default();
        let mut current = None;
        let mut verdict = Ok(());
        link.media.items(link.header.position, |item| match item {
            Item::Entry(entry) if verdict.is_ok() => {
                let wrong = is_last && entry.based;
                match self.look(&entry, depth, is_wanted) {
                    Ok(file) if !wrong => current = file,
                    _ => verdict = Err(self.contradiction(link, entry.path)),
                }
                if self.memory_bytes() + spans.memory_bytes() > MEMORY_MAX {
                    verdict = self.check_memory(chain, spans.memory_bytes());
                }
            }
            Item::Extent(extent) if verdict.is_ok() => {
                if let Some(FileRow(i)) = current {
                    self.add_extent(i, depth, extent, &mut spans);
                }
            }
            Item::Entry(_) | Item::Extent(_) | Item::Mark(_) | Item::Sums(_) => {}
        })?;
        verdict?;
        if let Some(row) = spans.seal() {
            let key = self.rows[row as usize].key;
            return Err(self.contradiction(link, self.path_of(link, key)?));
        }
        if !is_last {
            self.spans.push(spans);
        }
        let is_absent = |row: &&Row| row.is_based && usize::from(row.oldest) < depth;
        if let Some(absent) = self.rows.iter().find(is_absent) {
            let child = &chain.links[depth - 1];
            return Err(ChainError::NoSuchFile {
                child: child.name(),
                parent: link.name(),
                path: self.path_of(child, absent.key)?,
            }
            .into());
        }
        Ok(())
    }

    /// The row to which an entry's extents belong. `Err`: the entry contradicts an earlier one.
    fn look(
        &mut self,
        entry: &Entry,
        depth: usize,
        is_wanted: &dyn Fn(&Path) -> bool,
    ) -> Result<Option<FileRow>, ()> {
        if entry.kind != EntryKind::File {
            return Ok(None);
        }
        let Some(file) = self.file(&entry.path) else {
            return match depth == 0 && entry.based && is_wanted(&entry.path) {
                true => Err(()),
                false => Ok(None),
            };
        };
        let row = &mut self.rows[file.0];
        let oldest = usize::from(row.oldest);
        if oldest == depth {
            let same = row.is_based == entry.based && (depth > 0 || row.len == entry.len);
            return if same { Ok(Some(file)) } else { Err(()) };
        }
        if !row.is_based || oldest + 1 != depth {
            return Ok(None);
        }
        row.oldest = depth as u16;
        row.is_based = entry.based;
        row.clip = row.clip.min(entry.len);
        Ok(Some(file))
    }

    fn add_extent(&mut self, i: usize, depth: usize, extent: Extent, spans: &mut Spans) {
        let row = &self.rows[i];
        let is_based = row.is_based;
        let mut bytes = 0;
        let mut add = |piece: Range<u64>| {
            let len = (piece.end - piece.start) as u32;
            bytes += u64::from(len);
            if is_based {
                spans.put(i as u32, piece.start, len);
            }
        };
        without(
            &self.spans[..depth],
            i as u32,
            cut(extent, row.clip),
            &mut add,
        );
        let missing = &mut self.rows[i].missing;
        *missing = missing.saturating_sub(bytes);
    }

    fn check_memory(&self, chain: &Chain, more_bytes: u64) -> Result<(), Error> {
        if self.memory_bytes() + more_bytes <= MEMORY_MAX {
            return Ok(());
        }
        let newest = chain.links[0].name();
        let max_bytes = MEMORY_MAX;
        Err(ChainError::Scattered { newest, max_bytes }.into())
    }

    fn contradiction(&self, link: &Link, path: PathBuf) -> Error {
        let set = link.name();
        ChainError::Contradiction { set, path }.into()
    }

    /// The name for a key; needed only for errors.
    fn path_of(&self, link: &Link, key: Key) -> Result<PathBuf, Error> {
        let mut path = PathBuf::new();
        link.media.items(link.header.position, |item| {
            if let Item::Entry(entry) = item
                && self.key(&entry.path) == key
            {
                path = entry.path;
            }
        })?;
        Ok(path)
    }

    /// Calls `each` with the parts that count of an extent of the set at `depth`, in order.
    pub fn pieces(
        &self,
        depth: usize,
        FileRow(i): FileRow,
        extent: Extent,
        each: &mut dyn FnMut(Range<u64>),
    ) {
        let row = &self.rows[i];
        match depth.cmp(&usize::from(row.oldest)) {
            std::cmp::Ordering::Greater => {}
            std::cmp::Ordering::Less => {
                let range = cut(extent, u64::MAX);
                self.spans[depth].within(i as u32, range).for_each(each)
            }
            std::cmp::Ordering::Equal => {
                without(&self.spans[..depth], i as u32, cut(extent, row.clip), each)
            }
        }
    }

    /// Whether any part of a block of the set at `depth`, which is not the newest, counts.
    pub fn wants(&self, depth: usize, items: &[Item]) -> bool {
        let mut current = None;
        items.iter().any(|item| match item {
            Item::Entry(entry) => {
                current = match entry.kind {
                    EntryKind::File => self.file(&entry.path),
                    _ => None,
                };
                false
            }
            Item::Extent(extent) => current.is_some_and(|file| {
                let mut any = false;
                self.pieces(depth, file, *extent, &mut |_| any = true);
                any
            }),
            Item::Mark(_) | Item::Sums(_) => false,
        })
    }

    /// Adds bytes that were written to a file's checksum. Each byte must be added once.
    pub fn note(&self, FileRow(i): FileRow, parts: &[(Extent, &[u8])]) {
        if !self.with_sums {
            return;
        }
        let row = &self.rows[i];
        let sum = parts.iter().fold(0, |sum, (extent, bytes)| {
            // CRCs are linear: this is the part's contribution to the file's CRC, with zeros before and after it.
            let len = bytes.len() as u64;
            let behind = row.len.saturating_sub(extent.offset + len);
            sum ^ crc32c_join(crc32c(bytes) ^ crc32c_zeros(len), 0, behind)
        });
        row.sum.fetch_xor(sum, Ordering::Relaxed);
    }

    /// The CRC-32C of a whole file; valid after all of it was added.
    pub fn sum(&self, FileRow(i): FileRow) -> u32 {
        let row = &self.rows[i];
        row.sum.load(Ordering::Relaxed) ^ crc32c_zeros(row.len)
    }

    /// The streams to read from the set at `depth`.
    pub fn streams(&self, chain: &Chain, depth: usize) -> Result<Vec<BlockStream>, Error> {
        let Link {
            media,
            header,
            trailer,
        } = &chain.links[depth];
        let families = 0..media.family_count();
        if depth > 0 {
            let wants = |items: &[Item]| self.wants(depth, items);
            let picked = families
                .clone()
                .map(|i| media.stream_of(i, header.position, &wants))
                .collect::<Result<Option<Vec<_>>, _>>()?;
            let bytes = |streams: &Vec<BlockStream>| -> u64 {
                streams.iter().map(BlockStream::picked_bytes).sum()
            };
            let few = trailer.stored_bytes_total as f64 * PICKED_SHARE;
            if let Some(picked) = picked.filter(|picked| (bytes(picked) as f64) < few) {
                return Ok(picked);
            }
        }
        let streams = families.map(|i| media.stream(i, header.position));
        Ok(streams.collect::<Result<_, _>>()?)
    }
}

/// The bytes of an extent before `end`.
fn cut(extent: Extent, end: u64) -> Range<u64> {
    extent.offset..(extent.offset + u64::from(extent.len)).min(end)
}
