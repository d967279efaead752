//! The files of a backup set, as listed in the history.
//!
//! Invariants
//! - A list is complete or empty: beyond [`FileList::MAX`] files it is emptied for good, since part of a list would
//!   mislead.
//! - A file that is introduced several times, as on media, is one file, and its extents add up.
//!
//! Leaves to others: rows and tables (`record.rs`, `schema.rs`), and the complete list of files, which only the media
//! have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longshore_media::{EntryKind, Item};

/// One file of a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileRecord {
    /// Length, holes included.
    pub len_bytes: u64,
    /// Bytes of it in the set.
    pub data_bytes: u64,
}

/// A set's files by their path in it; empty if there are more than [`FileList::MAX`], because part of a list would
/// mislead. The history is meant for databases of a few files; the media always have the whole list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileList {
    files: BTreeMap<PathBuf, FileRecord>,
    too_many: bool,
    /// The file to which the next extents belong.
    current: Option<PathBuf>,
}

impl FileList {
    /// The most files that are listed per set.
    pub const MAX: usize = 1000;

    /// Adds the next item of a manifest. A file may be introduced several times, as on media.
    pub fn item(&mut self, item: &Item) {
        match item {
            Item::Entry(entry) => {
                self.current = None;
                if entry.kind == EntryKind::File {
                    self.add(&entry.path, entry.len, 0);
                    self.current = Some(entry.path.clone());
                }
            }
            Item::Extent(extent) => {
                if let Some(path) = self.current.take() {
                    self.add(&path, 0, u64::from(extent.len));
                    self.current = Some(path);
                }
            }
            Item::Mark(_) | Item::Sums(_) => {}
        }
    }

    /// Adds `data_bytes` to a file's share, and the file itself if it is new.
    pub fn add(&mut self, path: &Path, len_bytes: u64, data_bytes: u64) {
        if self.too_many {
            return;
        }
        if let Some(file) = self.files.get_mut(path) {
            file.len_bytes = file.len_bytes.max(len_bytes);
            file.data_bytes = file.data_bytes.saturating_add(data_bytes);
        } else if self.files.len() < Self::MAX {
            let file = FileRecord {
                len_bytes,
                data_bytes,
            };
            self.files.insert(path.to_owned(), file);
        } else {
            self.too_many = true;
            self.files = BTreeMap::new();
        }
    }

    /// The files, sorted by path. Empty if there were too many.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, FileRecord)> {
        self.files
            .iter()
            .map(|(path, file)| (path.as_path(), *file))
    }
}

#[cfg(test)]
mod tests {
    use longshore_media::{Entry, Extent};

    use super::*;

    fn entry(path: &str, len: u64) -> Item {
        Item::Entry(Entry {
            path: path.into(),
            kind: EntryKind::File,
            first: false,
            based: false,
            xattrs: Vec::new(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime_ns: 0,
            len,
        })
    }

    #[test]
    fn the_extents_of_a_file_in_several_blocks_add_up() {
        let mut list = FileList::default();
        let extent = |len| Item::Extent(Extent { offset: 0, len });
        for item in [
            entry("b", 70),
            extent(30),
            entry("a", 5),
            extent(5),
            entry("b", 70),
            extent(20),
        ] {
            list.item(&item);
        }
        let found: Vec<_> = list.iter().collect();
        let file = |len_bytes, data_bytes| FileRecord {
            len_bytes,
            data_bytes,
        };
        assert_eq!(
            found,
            [(Path::new("a"), file(5, 5)), (Path::new("b"), file(70, 50))]
        );
    }

    #[test]
    fn one_file_too_many_empties_the_list_for_good() {
        let mut list = FileList::default();
        for i in 0..FileList::MAX {
            list.item(&entry(&format!("f{i}"), 1));
        }
        assert_eq!(list.iter().count(), FileList::MAX);
        list.item(&entry("f0", 1));
        assert_eq!(list.iter().count(), FileList::MAX);
        list.item(&entry("one more", 1));
        list.item(&entry("and another", 1));
        assert_eq!(list.iter().count(), 0);
    }
}
