//! The sums of all pages in a backup set's chain, to compare a newer state with.
//!
//! They are read from the index of one set, which has the sum of every page of its files, whether the set or an older
//! one stores the page. Lookups are by file and page, in any order.
//!
//! Invariants
//! - A page with an unknown sum has the sum 0, and is stored again. In a file that is not *based*, a page without a
//!   sum is a hole, so its sum is that of zeros. The last page ends with the file.
//! - Names are not kept: a file has 128 bits of a keyed hash, so that media cannot choose names that collide.
//! - Memory: 40 bytes per file with sums (about 90 during reading), and the sums, up to [`MEMORY_MAX`]; further sums
//!   are in an unnamed file. Both grow with the actual contents of the index, never with lengths it claims.
//!
//! Leaves to others: comparing pages and keeping the differences (`gather.rs`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{File, OpenHow, Storage, SumKey, Via};
use longshore_media::manifest::SUM_LEN;
use longshore_media::{Entry, EntryKind, Item, MediaSet, SetHeader, Sums};
use uuid::Uuid;

use crate::Error;

/// Bytes of sums held in memory: the sums of 64 GiB in pages of 8 KiB.
const MEMORY_MAX: u64 = 64 << 20;
/// The directory for the remaining sums, unless `TMPDIR` names another: larger than `/tmp`, which is often in memory.
const SPOOL_DIR: &str = "/var/tmp";

type Key = (u64, u64);

/// The page sums of a set's files.
#[derive(Debug)]
pub struct PageSums {
    sum_key: SumKey,
    hashers: (RandomState, RandomState),
    /// Sorted by key.
    rows: Vec<(Key, Row)>,
    store: Store,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    /// Index of the first page's sum in the store.
    at: u64,
    /// The file's length in bytes.
    len: u64,
    /// Binary logarithm of the page size.
    page_shift: u8,
    is_based: bool,
}

impl Row {
    fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    fn pages(&self) -> u64 {
        self.len.div_ceil(self.page_bytes())
    }
}

/// A file whose pages have sums.
#[derive(Debug, Clone, Copy)]
pub struct HeldFile {
    row: Row,
}

impl HeldFile {
    /// A file of `len` bytes without any sums.
    #[cfg(test)]
    pub fn of(len: u64, page_bytes: u32) -> HeldFile {
        let row = Row {
            at: 0,
            len,
            page_shift: page_bytes.trailing_zeros() as u8,
            is_based: false,
        };
        HeldFile { row }
    }

    /// The file's length in the base, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.row.len
    }
}

impl PageSums {
    /// Reads the set's index.
    pub fn read(
        storage: &dyn Storage,
        media: &MediaSet,
        header: &SetHeader,
    ) -> Result<PageSums, Error> {
        let damaged = |what: &str| {
            Error::Media(longshore_media::Error::SetDamaged {
                device: media.device(0).to_owned(),
                position: header.position,
                what: what.to_owned(),
            })
        };
        let sum_key = media
            .sum_key(header.position)?
            .ok_or_else(|| damaged("it has no page checksums"))?;
        let mut reading = Reading::new(storage, MEMORY_MAX);
        let mut verdict = Ok(());
        media.items(header.position, |item| {
            if verdict.is_ok() {
                verdict = reading.add(item);
            }
        })?;
        match verdict {
            Ok(()) => Ok(reading.complete(sum_key)),
            Err(Wrong::Contradiction) => Err(damaged("its page checksums contradict each other")),
            Err(Wrong::Io(e)) => Err(e),
        }
    }

    /// From files in pages of 4 KiB: path and sums.
    #[cfg(test)]
    pub fn of(files: &[(&Path, Vec<u64>)]) -> PageSums {
        let host = longshore_io::Host::new();
        let mut reading = Reading::new(&host, MEMORY_MAX);
        for (path, sums) in files {
            let entry = Entry {
                path: path.to_path_buf(),
                kind: EntryKind::File,
                first: true,
                based: true,
                mode: 0,
                uid: 0,
                gid: 0,
                mtime_ns: 0,
                len: sums.len() as u64 * 4096,
                xattrs: Vec::new(),
            };
            let sums = Sums {
                offset: 0,
                page_bytes: 4096,
                sums: sums.clone(),
            };
            for item in [Item::Entry(entry), Item::Sums(sums)] {
                assert!(reading.add(item).is_ok());
            }
        }
        reading.complete(SumKey::from_bytes([7; 32]))
    }

    pub fn sum_key(&self) -> &SumKey {
        &self.sum_key
    }

    pub fn memory_bytes(&self) -> u64 {
        let row = size_of::<(Key, Row)>() as u64;
        self.rows.capacity() as u64 * row + self.store.memory.capacity() as u64 * SUM_LEN as u64
    }

    /// The number of pages that have sums, or could have.
    pub fn pages(&self) -> u64 {
        self.store.len
    }

    /// The set's file at `path`; `None` if there is none, or its pages have another size.
    pub fn file(&self, path: &Path, page_bytes: u32) -> Option<HeldFile> {
        let key = key(&self.hashers, path);
        let found = self.rows.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        let row = self.rows[found].1;
        (1 << row.page_shift == page_bytes).then_some(HeldFile { row })
    }

    /// The sums of the pages from number `first` on; 0 if unknown, as after the file's end.
    pub fn sums(&self, file: HeldFile, first: u64, out: &mut [u64]) -> Result<(), Error> {
        let row = file.row;
        let pages = row.pages();
        let there = pages.saturating_sub(first).min(out.len() as u64) as usize;
        let (known, beyond) = out.split_at_mut(there);
        beyond.fill(0);
        if known.is_empty() {
            return Ok(());
        }
        self.store.get(row.at + first, known)?;
        if !row.is_based && known.contains(&0) {
            let page = vec![0; row.page_bytes() as usize];
            let zeros = self.sum_key.sum(&page);
            let last = (row.len % row.page_bytes()) as usize;
            if first + there as u64 == pages
                && let Some(sum @ 0) = known.last_mut()
            {
                *sum = match last {
                    0 => zeros,
                    last => self.sum_key.sum(&page[..last]),
                };
            }
            for sum in known.iter_mut().filter(|sum| **sum == 0) {
                *sum = zeros;
            }
        }
        Ok(())
    }
}

fn key(hashers: &(RandomState, RandomState), path: &Path) -> Key {
    (hashers.0.hash_one(path), hashers.1.hash_one(path))
}

/// Why an item is not accepted.
#[derive(Debug)]
enum Wrong {
    Contradiction,
    Io(Error),
}

struct Reading<'a> {
    hashers: (RandomState, RandomState),
    rows: HashMap<Key, Row>,
    store: Store,
    storage: &'a dyn Storage,
    current: Option<Entry>,
}

impl Reading<'_> {
    fn new(storage: &dyn Storage, memory_max: u64) -> Reading<'_> {
        Reading {
            hashers: Default::default(),
            rows: HashMap::new(),
            store: Store {
                memory: Vec::new(),
                memory_max: memory_max / SUM_LEN as u64,
                len: 0,
                spool: None,
            },
            storage,
            current: None,
        }
    }

    fn add(&mut self, item: Item) -> Result<(), Wrong> {
        match item {
            Item::Entry(entry) => {
                self.current = (entry.kind == EntryKind::File).then_some(entry);
                Ok(())
            }
            Item::Sums(sums) => self.add_sums(sums),
            Item::Extent(_) | Item::Mark(_) => Ok(()),
        }
    }

    fn add_sums(&mut self, sums: Sums) -> Result<(), Wrong> {
        let Some(entry) = &self.current else {
            return Err(Wrong::Contradiction);
        };
        let page_shift = sums.page_bytes.trailing_zeros() as u8;
        let at = self.store.len;
        let key = key(&self.hashers, &entry.path);
        let row = *self.rows.entry(key).or_insert(Row {
            at,
            len: entry.len,
            page_shift,
            is_based: entry.based,
        });
        if (row.len, row.page_shift, row.is_based) != (entry.len, page_shift, entry.based) {
            return Err(Wrong::Contradiction);
        }
        if row.at == at {
            self.store.len = at.checked_add(row.pages()).ok_or(Wrong::Contradiction)?;
        }
        let first = sums.offset >> page_shift;
        self.store
            .put(self.storage, row.at + first, &sums.sums)
            .map_err(Wrong::Io)
    }

    fn complete(self, sum_key: SumKey) -> PageSums {
        let mut rows: Vec<_> = self.rows.into_iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows.shrink_to_fit();
        let mut store = self.store;
        store.memory.shrink_to_fit();
        PageSums {
            sum_key,
            hashers: self.hashers,
            rows,
            store,
        }
    }
}

/// Sums by index; a sum that was never stored is 0.
#[derive(Debug)]
struct Store {
    memory: Vec<u64>,
    /// Sums from this index on are in the spool file.
    memory_max: u64,
    len: u64,
    spool: Option<(PathBuf, Arc<dyn File>)>,
}

impl Store {
    fn put(&mut self, storage: &dyn Storage, at: u64, sums: &[u64]) -> Result<(), Error> {
        let in_memory = self.memory_max.saturating_sub(at).min(sums.len() as u64) as usize;
        let (held, spooled) = sums.split_at(in_memory);
        if !held.is_empty() {
            let at = at as usize;
            let end = at + held.len();
            if self.memory.len() < end {
                self.memory.resize(end, 0);
            }
            self.memory[at..end].copy_from_slice(held);
        }
        if spooled.is_empty() {
            return Ok(());
        }
        if self.spool.is_none() {
            self.spool = Some(open_spool(storage)?);
        }
        let Some((path, file)) = &self.spool else {
            return Ok(());
        };
        let bytes: Vec<u8> = spooled.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let offset = (at + in_memory as u64 - self.memory_max) * SUM_LEN as u64;
        file.write_all_at(&bytes, offset, Via::Cache)
            .map_err(|source| Error::Spool {
                action: "write",
                path: path.clone(),
                source,
            })
    }

    fn get(&self, at: u64, out: &mut [u64]) -> Result<(), Error> {
        let in_memory = self.memory_max.saturating_sub(at).min(out.len() as u64) as usize;
        let (held, spooled) = out.split_at_mut(in_memory);
        let start = (at as usize).min(self.memory.len());
        let there = held.len().min(self.memory.len() - start);
        held.fill(0);
        held[..there].copy_from_slice(&self.memory[start..start + there]);
        if spooled.is_empty() {
            return Ok(());
        }
        spooled.fill(0);
        let Some((path, file)) = &self.spool else {
            return Ok(());
        };
        let mut bytes = vec![0; spooled.len() * SUM_LEN];
        let offset = (at + in_memory as u64 - self.memory_max) * SUM_LEN as u64;
        let len = file
            .read_full_at(&mut bytes, offset, Via::Cache)
            .map_err(|source| Error::Spool {
                action: "read",
                path: path.clone(),
                source,
            })?;
        bytes[len..].fill(0);
        let (words, _) = bytes.as_chunks();
        for (sum, word) in spooled.iter_mut().zip(words) {
            *sum = u64::from_le_bytes(*word);
        }
        Ok(())
    }
}

/// A new file that is unlinked at once: it disappears with the process.
fn open_spool(storage: &dyn Storage) -> Result<(PathBuf, Arc<dyn File>), Error> {
    let dir = std::env::var_os("TMPDIR").filter(|dir: &OsString| !dir.is_empty());
    let path = dir.map_or_else(|| PathBuf::from(SPOOL_DIR), PathBuf::from);
    let make = || {
        let dir = storage.dir(&path)?;
        let name = PathBuf::from(format!("longshore-sums-{}", Uuid::new_v4()));
        let file = dir.open(&name, OpenHow::CreateNew)?;
        dir.remove_file(&name)?;
        Ok(file)
    };
    match make() {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(Error::Spool {
            action: "make",
            path,
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::Host;

    use super::*;

    fn entry(path: &str, pages: u64, based: bool) -> Item {
        Item::Entry(Entry {
            path: path.into(),
            kind: EntryKind::File,
            first: true,
            based,
            mode: 0,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            len: pages * 8192,
            xattrs: Vec::new(),
        })
    }

    fn sums(first: u64, sums: &[u64]) -> Item {
        Item::Sums(Sums {
            offset: first * 8192,
            page_bytes: 8192,
            sums: sums.to_vec(),
        })
    }

    fn read(items: Vec<Item>, memory_max: u64) -> PageSums {
        let host = Host::new();
        let mut reading = Reading::new(&host, memory_max);
        for item in items {
            reading.add(item).unwrap();
        }
        reading.complete(SumKey::from_bytes([7; 32]))
    }

    #[test]
    fn the_last_page_ends_with_the_file() {
        let key = SumKey::from_bytes([7; 32]);
        let file = |based, len| {
            let Item::Entry(whole) = entry("a", 0, based) else {
                panic!("an entry");
            };
            Item::Entry(Entry { len, ..whole })
        };
        let all = |sums: &PageSums| {
            let held = sums.file(Path::new("a"), 8192).unwrap();
            let mut out = [99; 4];
            sums.sums(held, 0, &mut out).unwrap();
            (held.len_bytes(), out)
        };
        let len = 2 * 8192 + 100;
        let (page, last) = (key.sum(&[0; 8192]), key.sum(&[0; 100]));
        assert_ne!(page, last);
        let whole = read(vec![file(false, len), sums(0, &[8])], 1 << 20);
        assert_eq!(all(&whole), (len, [8, page, last, 0]));
        let based = read(vec![file(true, len), sums(2, &[8])], 1 << 20);
        assert_eq!(all(&based), (len, [0, 0, 8, 0]));
        let short = read(vec![file(false, 100), sums(0, &[8])], 1 << 20);
        assert_eq!(all(&short), (100, [8, 0, 0, 0]));
    }

    fn of(sums: &PageSums, path: &str, first: u64, count: usize) -> Vec<u64> {
        let file = sums.file(Path::new(path), 8192).unwrap();
        let mut out = vec![99; count];
        sums.sums(file, first, &mut out).unwrap();
        out
    }

    /// With everything in memory, with everything in the spool, and with the boundary inside a file.
    #[test]
    fn sums_are_found_by_file_and_page_wherever_they_lie() {
        for memory_max in [0, 3 * 8, 5 * 8, 1 << 20] {
            let sums = read(
                vec![
                    entry("a", 4, true),
                    sums(2, &[3, 4]),
                    entry("b", 3, true),
                    sums(0, &[5, 6]),
                    entry("a", 4, true),
                    sums(0, &[1, 2]),
                ],
                memory_max,
            );
            assert_eq!(of(&sums, "a", 0, 5), [1, 2, 3, 4, 0], "{memory_max}");
            assert_eq!(of(&sums, "a", 3, 1), [4]);
            assert_eq!(
                of(&sums, "b", 0, 4),
                [5, 6, 0, 0],
                "none is known of the last"
            );
            assert_eq!(of(&sums, "b", 9, 2), [0, 0]);
            assert!(sums.file(Path::new("c"), 8192).is_none());
            assert!(sums.file(Path::new("a"), 4096).is_none());
            assert_eq!(
                sums.file(Path::new("a"), 8192).unwrap().len_bytes(),
                4 * 8192
            );
            assert_eq!(sums.pages(), 7);
        }
    }

    #[test]
    fn a_hole_of_a_whole_file_has_the_sum_of_zeros() {
        let zeros = SumKey::from_bytes([7; 32]).sum(&[0; 8192]);
        let items = |based| vec![entry("a", 3, based), sums(1, &[8])];
        let whole = read(items(false), 1 << 20);
        assert_eq!(of(&whole, "a", 0, 4), [zeros, 8, zeros, 0]);
        assert_eq!(of(&read(items(true), 1 << 20), "a", 0, 4), [0, 8, 0, 0]);
    }

    #[test]
    fn an_index_that_contradicts_itself_is_refused_and_claims_cost_nothing() {
        let host = Host::new();
        let add = |items: Vec<Item>| {
            let mut reading = Reading::new(&host, MEMORY_MAX);
            items.into_iter().try_for_each(|item| reading.add(item))
        };
        assert!(add(vec![sums(0, &[1])]).is_err(), "of no file");
        let twice = |second| vec![entry("a", 3, false), sums(0, &[1]), second, sums(1, &[1])];
        assert!(add(twice(entry("a", 3, false))).is_ok());
        for second in [entry("a", 4, false), entry("a", 3, true)] {
            assert!(add(twice(second)).is_err());
        }
        let many = (0..100).flat_map(|i| {
            [
                entry(&i.to_string(), u64::from(u32::MAX), false),
                sums(0, &[1]),
            ]
        });
        let claiming = read(many.collect(), 1 << 10);
        assert!(
            claiming.memory_bytes() < 1 << 18,
            "{}",
            claiming.memory_bytes()
        );
    }
}
