//! Whether the names of a set still differ after the moves of a restore (MOVE).
//!
//! The set's index names every entry, so this is known before anything is written. Of a pipe nothing is known in
//! advance: there the file system refuses the second entry of a name when it comes.
//!
//! Invariants
//! - Two entries get one name only if both are directories: these become one.
//! - An entry that gets others below it is a directory.
//! - Memory grows with the moved entries, not with the set.
//!
//! Leaves to others: names that leave the target (`check_moves`), and names that exist there (`landing`).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use longshore_landing::{Error as LandingError, chosen_entry, may_be_log, moved};
use longshore_media::{EntryKind, Item, MediaSet};

use crate::Error;
use crate::request::RestoreRequest;

const TAKEN: &str = "two entries of the set would have one name";
const BELOW_A_FILE: &str = "an entry would be below one that is not a directory";

/// Refuses moves after which two entries of the set at `position` would be in each other's way.
///
/// Errors: `BadMove` with the moved entry; those of reading the index.
pub fn check(media: &MediaSet, position: u32, request: &RestoreRequest) -> Result<(), Error> {
    if request.moves.is_empty() {
        return Ok(());
    }
    let mut names = MovedNames::default();
    each(media, position, request, |from, to, is_dir| {
        if from != to {
            names.add(from, to, is_dir);
        }
    })?;
    each(media, position, request, |from, to, is_dir| {
        names.compare(from, to, is_dir);
    })?;
    match names.refused {
        Some((from, to, what)) => Err(LandingError::BadMove { from, to, what }.into()),
        None => Ok(()),
    }
}

/// Calls `seen` for each entry that is restored: its path in the set, its name after the moves, and whether it is a
/// directory.
fn each(
    media: &MediaSet,
    position: u32,
    request: &RestoreRequest,
    mut seen: impl FnMut(&Path, &Path, bool),
) -> Result<(), Error> {
    let only = &request.only;
    media.items(position, |item| {
        if let Item::Entry(entry) = item
            && entry.first
            && chosen_entry(only, &entry.path, may_be_log(&entry.kind))
        {
            let to = moved(&request.moves, &entry.path, may_be_log(&entry.kind));
            seen(&entry.path, &to, entry.kind == EntryKind::Dir);
        }
    })?;
    Ok(())
}

#[derive(Default)]
struct MovedNames {
    /// By its new name: a moved entry's path in the set, and whether it is a directory.
    entries: HashMap<PathBuf, (PathBuf, bool)>,
    /// What must be directories: everything above a moved entry's new name.
    above: HashSet<PathBuf>,
    /// The first collision: path in the set, new name, reason.
    refused: Option<(PathBuf, PathBuf, &'static str)>,
}

impl MovedNames {
    fn add(&mut self, from: &Path, to: &Path, is_dir: bool) {
        for above in to.ancestors().skip(1) {
            if !self.above.insert(above.to_owned()) {
                break;
            }
        }
        let earlier = self.entries.insert(to.into(), (from.into(), is_dir));
        if earlier.is_some_and(|(_, was_dir)| !(was_dir && is_dir)) {
            self.refuse(from, to, TAKEN);
        }
    }

    /// Compares an entry, moved or not, with all that were added.
    fn compare(&mut self, from: &Path, to: &Path, is_dir: bool) {
        if !is_dir && self.above.contains(to) {
            return self.refuse(from, to, BELOW_A_FILE);
        }
        if from != to {
            return;
        }
        let found = to.ancestors().find_map(|name| {
            let (moved, moved_is_dir) = self.entries.get(name)?;
            let what = match name == to {
                true if *moved_is_dir && is_dir => return None,
                true => TAKEN,
                false if *moved_is_dir => return None,
                false => BELOW_A_FILE,
            };
            Some((moved.clone(), name.to_owned(), what))
        });
        if let Some((from, to, what)) = found {
            self.refuse(&from, &to, what);
        }
    }

    fn refuse(&mut self, from: &Path, to: &Path, what: &'static str) {
        self.refused
            .get_or_insert_with(|| (from.into(), to.into(), what));
    }
}
