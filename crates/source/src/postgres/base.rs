//! What a differential backup must know of the set that it differs from.
//!
//! Filled from the set's index while it streams by. Kept of it are the main forks of relations, by their numbers
//! instead of their names, and when each database's directory was made. Everything else is stored whole anyway.
//!
//! Memory: 20 bytes for each file of a main fork, and some 40 for each database.

use std::collections::HashMap;
use std::path::Path;

use longshore_pg::{Control, Fork, Lsn, Timeline};

use super::rules;
use crate::LogStart;

/// In every database's own directory, written when the directory is made and never again.
const VERSION_FILE: &str = "PG_VERSION";

/// The set that a backup is to differ from.
#[derive(Debug, Clone)]
pub struct Base {
    /// Where its replay begins.
    pub start: LogStart,
    /// Where its files are consistent.
    pub end: (Timeline, Lsn),
    /// Microseconds since the Unix epoch.
    pub begun_us: i64,
    /// Its `global/pg_control`.
    pub control: Control,
    /// Whether it differs from a set itself.
    pub is_differential: bool,
    files: Vec<Held>,
    databases: HashMap<(u32, u32), i64>,
}

/// One segment of a relation's main fork, wherever its directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Segment {
    /// The tablespace's OID.
    pub(super) space: u32,
    /// The database's OID, 0 for what all databases share.
    pub(super) database: u32,
    pub(super) filenode: u32,
    pub(super) number: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    segment: Segment,
    pages: u32,
}

/// Bytes that each file of a main fork takes.
const HELD_BYTES: u64 = size_of::<Held>() as u64;

impl Segment {
    /// The file at `path` of a backup, and which fork of its relation it is. `None` for what is no relation's file.
    pub(super) fn of(path: &Path) -> Option<(Segment, Fork)> {
        let (space, database) = rules::place(path.parent()?)?;
        let file = rules::relation(path.file_name()?.as_ref())?;
        let segment = Segment {
            space,
            database,
            filenode: file.filenode,
            number: file.segment,
        };
        (!file.is_temporary).then_some((segment, file.fork))
    }
}

impl Base {
    /// A full backup that knows no file yet.
    pub fn new(start: LogStart, end: (Timeline, Lsn), begun_us: i64, control: Control) -> Base {
        Base {
            start,
            end,
            begun_us,
            control,
            is_differential: false,
            files: Vec::new(),
            databases: HashMap::new(),
        }
    }

    /// Takes note of a file of the set. Each is to be named once.
    pub fn add(&mut self, path: &Path, len: u64, mtime_ns: i64) {
        if path.file_name().is_some_and(|name| name == VERSION_FILE) {
            if let Some(place) = path.parent().and_then(rules::place) {
                self.databases.insert(place, mtime_ns);
            }
            return;
        }
        let page = u64::from(self.control.page_bytes);
        if let Some((segment, Fork::Main)) = Segment::of(path)
            && len.is_multiple_of(page)
            && let Ok(pages) = u32::try_from(len / page)
        {
            self.files.push(Held { segment, pages });
        }
    }

    /// To be called once, when every file was named.
    pub fn complete(&mut self) {
        self.files.sort_unstable();
        self.files.dedup_by_key(|held| held.segment);
        self.files.shrink_to_fit();
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        self.files.capacity() as u64 * HELD_BYTES + self.databases.capacity() as u64 * 48
    }

    /// How many pages the segment has in the set; `None` when it is not there.
    pub(super) fn pages(&self, segment: Segment) -> Option<u32> {
        let at = self
            .files
            .binary_search_by_key(&segment, |held| held.segment)
            .ok()?;
        Some(self.files[at].pages)
    }

    /// The directories of databases, by tablespace and database, and when each was made.
    pub(super) fn databases(&self) -> impl Iterator<Item = ((u32, u32), i64)> {
        self.databases.iter().map(|(place, made)| (*place, *made))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn base() -> Base {
        let mut bytes = vec![0; longshore_pg::CONTROL_FILE_LEN];
        for (at, value) in [
            (8, 1300u32),
            (48, 1),
            (216, 8192),
            (220, 131_072),
            (228, 16 << 20),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let crc = longshore_io::crc32c(&bytes[..288]);
        bytes[288..292].copy_from_slice(&crc.to_le_bytes());
        let control = Control::parse(&bytes).unwrap();
        let timeline = Timeline::new(1).unwrap();
        let start = LogStart {
            system: 1,
            timeline,
            first: Lsn(1000),
        };
        Base::new(start, (timeline, Lsn(2000)), 0, control)
    }

    #[test]
    fn only_main_forks_of_whole_pages_are_known() {
        let mut base = base();
        for (path, len) in [
            ("base/5/16384", 3 * 8192),
            ("base/5/16384.1", 8192),
            ("base/5/16384_fsm", 8192),
            ("base/5/16384_init", 8192),
            ("base/5/16385", 8191),
            ("base/5/t3_16386", 8192),
            ("global/1262", 8192),
            ("pg_tblspc/77/PG_15_202209061/5/16384", 2 * 8192),
            ("pg_xact/0000", 8192),
            ("postgresql.conf", 8192),
        ] {
            base.add(Path::new(path), len, 0);
        }
        base.complete();
        let pages = |space, database, filenode, number| {
            base.pages(Segment {
                space,
                database,
                filenode,
                number,
            })
        };
        assert_eq!(pages(1663, 5, 16384, 0), Some(3));
        assert_eq!(pages(1663, 5, 16384, 1), Some(1));
        assert_eq!(pages(77, 5, 16384, 0), Some(2));
        assert_eq!(pages(1664, 0, 1262, 0), Some(1));
        for absent in [
            (1663, 5, 16385),
            (1663, 5, 16386),
            (77, 6, 16384),
            (1663, 0, 1262),
        ] {
            assert_eq!(pages(absent.0, absent.1, absent.2, 0), None, "{absent:?}");
        }
        assert_eq!(base.files.len(), 4);
        assert!(base.memory_bytes() >= 80);
    }

    #[test]
    fn databases_are_known_by_their_version_files() {
        let mut base = base();
        base.add(Path::new("PG_VERSION"), 3, 1);
        base.add(Path::new("base/5/PG_VERSION"), 3, 2);
        base.add(Path::new("pg_tblspc/7/PG_15_202209061/6/PG_VERSION"), 3, 3);
        let mut found: Vec<_> = base.databases().collect();
        found.sort();
        assert_eq!(found, [((7, 6), 3), ((1663, 5), 2)]);
    }
}
