//! What a set holds, learned from its index before anything is written.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use longshore_media::{Entry, EntryKind, Item, MediaSet};

use crate::Error;

/// Below this directory every tablespace has a link by its OID.
const LINKS: &str = "pg_tblspc";
/// Without this file no server starts.
pub const CONTROL: &str = "global/pg_control";

/// Where a path of the set belongs.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// In the data directory, under its own path.
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

/// Digits without leading zeros, as PostgreSQL names its links.
fn oid(name: &str) -> Option<u32> {
    let oid: u32 = name.parse().ok()?;
    (oid > 0 && oid.to_string() == name).then_some(oid)
}

/// What the index tells.
#[derive(Debug, Default)]
pub struct Outline {
    /// Tablespaces that lie outside the data directory, with the place they had.
    pub spaces: BTreeMap<u32, PathBuf>,
    /// Bytes of files, for the data directory (`None`) and each tablespace.
    pub bytes: BTreeMap<Option<u32>, u64>,
    pub has_control: bool,
}

impl Outline {
    /// Reads the index of the set at `position`.
    pub fn read(media: &MediaSet, position: u32) -> Result<Outline, Error> {
        let mut outline = Outline::default();
        media.items(position, |item| {
            if let Item::Entry(entry) = item
                && entry.first
            {
                outline.add(&entry);
            }
        })?;
        Ok(outline)
    }

    fn add(&mut self, entry: &Entry) {
        let route = Route::of(&entry.path);
        if let (Route::Link(oid), EntryKind::Symlink { target }) = (&route, &entry.kind) {
            self.spaces.insert(*oid, target.clone());
        }
        if entry.kind == EntryKind::File {
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
    fn paths_of_tablespaces_are_told_from_others() {
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
