//! Files with several names of which a restore takes some, without the one whose entry has the bytes.
//!
//! A set stores the bytes under one name, and the other names are links to it. Where that name was not asked for, the first
//! of the names that were gets the bytes, and the others become links to it.
//!
//! Invariants
//! - The names come from the set's index, so what a restore does is decided before it writes. Of a pipe nothing is known in
//!   advance: there such a name is refused when it comes.
//! - A name never comes back without its bytes: a set that has no file for it is refused.
//! - Memory grows with the names that are restored as links, which the destination keeps, too.
//!
//! Leaves to others: making links, and which paths were asked for (`longshore-landing`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_landing::chosen;
use longshore_media::{Entry, EntryKind, Item, MediaSet};

use crate::Error;

/// The files whose bytes come back under another name than in the set.
#[derive(Debug, Default)]
pub struct FurtherNames<'a> {
    only: &'a [PathBuf],
    /// By the path that has the bytes in the set.
    files: HashMap<PathBuf, NewName>,
}

#[derive(Debug)]
struct NewName {
    path: PathBuf,
    came: AtomicBool,
}

impl<'a> FurtherNames<'a> {
    /// Reads the index of the set at `position`; nothing is read if all of the set is restored.
    ///
    /// An index that cannot be read prevents no restore: such a name is then refused when it comes.
    pub fn of(media: &MediaSet, position: u32, only: &'a [PathBuf]) -> FurtherNames<'a> {
        let mut found = FurtherNames {
            only,
            files: HashMap::new(),
        };
        if only.is_empty() {
            return found;
        }
        let read = media.items(position, |item| {
            if let Item::Entry(entry) = item
                && let EntryKind::HardLink { target } = &entry.kind
                && chosen(only, &entry.path)
                && !chosen(only, target)
            {
                found.add(target, &entry.path);
            }
        });
        match read {
            Ok(()) => found,
            Err(error) => {
                tracing::warn!(%error, "the index cannot be read for names of files with several");
                FurtherNames::unknown(only)
            }
        }
    }

    /// The names of a set whose index is not known.
    pub fn unknown(only: &'a [PathBuf]) -> FurtherNames<'a> {
        FurtherNames {
            only,
            files: HashMap::new(),
        }
    }

    /// The least of the names gets the bytes, whatever the order of the entries is.
    fn add(&mut self, target: &Path, name: &Path) {
        let new = self.files.entry(target.into()).or_insert_with(|| NewName {
            path: name.into(),
            came: AtomicBool::new(false),
        });
        if name < new.path.as_path() {
            new.path = name.into();
        }
    }

    /// Whether the path was not asked for, and has the bytes of a name that was.
    pub fn takes(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// The path of the set under which a file comes back.
    pub fn name_of<'p>(&'p self, path: &'p Path) -> &'p Path {
        self.files.get(path).map_or(path, |new| &new.path)
    }

    /// The entry under the name that it comes back with; `None` for a name that came with the bytes.
    ///
    /// Errors: [`Error::FurtherName`] for a name whose file is not restored.
    pub fn placed<'e>(&self, entry: &'e Entry) -> Result<Option<Cow<'e, Entry>>, Error> {
        let renamed = match &entry.kind {
            EntryKind::File => self.files.get(&entry.path).map(|new| {
                new.came.store(true, Ordering::Relaxed);
                Entry {
                    path: new.path.clone(),
                    ..entry.clone()
                }
            }),
            EntryKind::HardLink { target } => match self.files.get(target) {
                Some(new) if new.path == entry.path => return Ok(None),
                Some(new) => Some(Entry {
                    kind: EntryKind::HardLink {
                        target: new.path.clone(),
                    },
                    ..entry.clone()
                }),
                None if !chosen(self.only, target) => {
                    return Err(Error::FurtherName {
                        path: entry.path.clone(),
                        target: target.clone(),
                    });
                }
                None => None,
            },
            EntryKind::Dir | EntryKind::Symlink { .. } => None,
        };
        Ok(Some(renamed.map_or(Cow::Borrowed(entry), Cow::Owned)))
    }

    /// Called when everything was put. Errors: [`Error::FurtherName`] for a name whose bytes did not come.
    pub fn check_came(&self) -> Result<(), Error> {
        let lost = self
            .files
            .iter()
            .find(|(_, new)| !new.came.load(Ordering::Relaxed));
        match lost {
            Some((target, new)) => Err(Error::FurtherName {
                path: new.path.clone(),
                target: target.clone(),
            }),
            None => Ok(()),
        }
    }
}
