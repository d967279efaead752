//! The contents of a set, read from its index before anything is written.
//!
//! Invariants
//! - A path is the data directory's, a tablespace's link, or in a tablespace, by PostgreSQL's own form of names; a
//!   number with leading zeros is no OID.
//! - Memory does not depend on the length of names: each takes about 60 bytes. Keys are random, so no set can be made
//!   whose names collide.
//! - The index is believed here only for decisions; the blocks are checked when they are restored.
//!
//! Leaves to others: where tablespaces go (`spaces.rs`), whether they fit (`room.rs`), and writing.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::{Component, Path, PathBuf};

use longshore_media::{Entry, EntryKind, Item, MediaSet};

use crate::error::Error;

/// The directory with a link for every tablespace, named by its OID.
pub const LINKS: &str = "pg_tblspc";
/// Without this file no server starts.
pub const CONTROL: &str = "global/pg_control";

/// The destination of a path of the set.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// In the data directory, under the same path.
    Data,
    /// The link of a tablespace.
    Link(u32),
    /// In a tablespace, under this path.
    Space(u32, &'a Path),
}

impl Route<'_> {
    pub fn of(path: &Path) -> Route<'_> {
        let Ok(below) = path.strip_prefix(LINKS) else {
            return Route::Data;
        };
        let mut parts = below.components();
        let oid = match parts.next() {
            Some(Component::Normal(name)) => name.to_str().and_then(oid),
            _ => None,
        };
        match (oid, parts.as_path()) {
            (None, _) => Route::Data,
            (Some(oid), rest) if rest.as_os_str().is_empty() => Route::Link(oid),
            (Some(oid), rest) => Route::Space(oid, rest),
        }
    }
}

/// The link of a tablespace.
pub fn link(oid: u32) -> PathBuf {
    Path::new(LINKS).join(oid.to_string())
}

/// Parses digits without leading zeros, as PostgreSQL names its links.
fn oid(name: &str) -> Option<u32> {
    let oid: u32 = name.parse().ok()?;
    (oid > 0 && oid.to_string() == name).then_some(oid)
}

/// The kind of a name in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Dir,
    Link,
    /// A file of which the set has every byte.
    Dense,
    /// A file with holes.
    Sparse,
}

/// All names of a set, by 128 bits of hash: about 60 bytes for each, whatever its length.
#[derive(Debug, Default)]
pub struct Names {
    hashers: (RandomState, RandomState),
    map: HashMap<(u64, u64), OutlineEntry>,
}

#[derive(Debug)]
enum OutlineEntry {
    Dir,
    Link,
    /// Bytes of extents still to come.
    File {
        missing: u64,
    },
}

impl Names {
    pub fn kind(&self, path: &Path) -> Option<NameKind> {
        self.map.get(&self.key(path)).map(|known| match known {
            OutlineEntry::Dir => NameKind::Dir,
            OutlineEntry::Link => NameKind::Link,
            OutlineEntry::File { missing: 0 } => NameKind::Dense,
            OutlineEntry::File { .. } => NameKind::Sparse,
        })
    }

    fn key(&self, path: &Path) -> (u64, u64) {
        (self.hashers.0.hash_one(path), self.hashers.1.hash_one(path))
    }

    fn add(&mut self, entry: &Entry, missing: u64) {
        self.map
            .entry(self.key(&entry.path))
            .or_insert(match entry.kind {
                EntryKind::Dir => OutlineEntry::Dir,
                EntryKind::Symlink { .. } => OutlineEntry::Link,
                EntryKind::File | EntryKind::HardLink { .. } => OutlineEntry::File { missing },
            });
    }

    fn came(&mut self, path: &Path, bytes: u64) {
        let key = self.key(path);
        if let Some(OutlineEntry::File { missing }) = self.map.get_mut(&key) {
            *missing = missing.saturating_sub(bytes);
        }
    }
}

/// The contents according to the index.
#[derive(Debug, Default)]
pub struct Outline {
    /// Empty unless requested.
    pub names: Names,
    /// Tablespaces outside the data directory, with their stored location.
    pub spaces: BTreeMap<u32, PathBuf>,
    /// Bytes of files, for the data directory (`None`) and each tablespace.
    pub bytes: BTreeMap<Option<u32>, u64>,
    pub has_control: bool,
}

impl Outline {
    /// Reads the index of the set at `position`. For a file assembled from several sets, `missing_of` returns how many
    /// of its bytes no set has; `None` for all other names. Files that `is_empty` names are restored as one hole.
    pub fn read(
        media: &MediaSet,
        position: u32,
        with_names: bool,
        missing_of: &dyn Fn(&Path) -> Option<u64>,
        is_empty: &dyn Fn(&Path) -> bool,
    ) -> Result<Outline, Error> {
        let mut outline = Outline::default();
        let mut last: Option<Entry> = None;
        media.items(position, |item| match item {
            Item::Entry(entry) => {
                if entry.first {
                    outline.add(&entry, is_empty(&entry.path));
                }
                if with_names {
                    let missing = missing_of(&entry.path);
                    outline.names.add(&entry, missing.unwrap_or(entry.len));
                    last = missing.is_none().then_some(entry);
                }
            }
            Item::Extent(extent) => {
                if let Some(entry) = &last {
                    outline.names.came(&entry.path, extent.len.into());
                }
            }
            Item::Mark(_) | Item::Sums(_) => {}
        })?;
        Ok(outline)
    }

    fn add(&mut self, entry: &Entry, is_empty: bool) {
        let route = Route::of(&entry.path);
        if let (Route::Link(oid), EntryKind::Symlink { target }) = (&route, &entry.kind) {
            self.spaces.insert(*oid, target.clone());
        }
        if entry.kind == EntryKind::File && !is_empty {
            let space = match route {
                Route::Space(oid, _) => Some(oid),
                Route::Data | Route::Link(_) => None,
            };
            let sum = self.bytes.entry(space).or_default();
            *sum = sum.saturating_add(entry.len);
        }
        self.has_control |= entry.path == Path::new(CONTROL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_tablespaces_are_distinguished_from_others() {
        let route = |path: &'static str| Route::of(Path::new(path));
        assert_eq!(route("base/1/16384"), Route::Data);
        assert_eq!(route("pg_tblspc"), Route::Data);
        assert_eq!(route("pg_tblspc/16384"), Route::Link(16384));
        let below = Path::new("PG_15_202209061/5/16385");
        assert_eq!(
            route("pg_tblspc/16384/PG_15_202209061/5/16385"),
            Route::Space(16384, below)
        );
        for odd in [
            "pg_tblspc/x/1",
            "pg_tblspc/016384/1",
            "pg_tblspc/0",
            "pg_tblspc/+1",
        ] {
            assert_eq!(route(odd), Route::Data, "{odd}");
        }
    }
}
