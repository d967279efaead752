//! The names of one directory, listed again if it changed while they were visited.
//!
//! A file that is renamed while a directory is walked may be seen under neither name: the old one is gone when it is
//! looked at, and the new one came after the listing.
//!
//! Invariants
//! - Each name comes once, however often the directory is listed. All names of the first listing come, whatever their sums are.
//! - The work is bounded: a directory that changes all the time is listed [`AGAIN_MAX`] times more.
//! - Memory is bounded for all listings of a walk together, whatever the tree contains.
//!
//! Leaves to others: looking at the names, and the words for what may be missing (`walk.rs`, `mod.rs`).

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;

use longshore_io::Dir;

use crate::reading::is_missing;

/// How often a directory is listed again.
const AGAIN_MAX: u32 = 3;

/// How many names of the directories that are open are remembered, at up to 20 bytes each.
pub(super) const NAMES_MAX: usize = 1 << 20;

/// The end of a listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The directory is as it was when it was listed.
    Still,
    /// It changed, and is listed again.
    Again,
    /// It changed again and again, or has more names than are remembered.
    Restless,
}

pub(super) struct Listing {
    names: Box<dyn Iterator<Item = io::Result<OsString>> + Send>,
    /// Times of the last change of the directory, from before the names were listed.
    times: (i64, i64),
    again: u32,
    hasher: RandomState,
    /// Keyed sums of the names that came.
    came: HashSet<u64>,
    /// Whether all names that came are remembered.
    knows_all: bool,
}

impl Listing {
    pub(super) fn of(dir: &dyn Dir) -> io::Result<Listing> {
        let times = times(dir)?;
        Ok(Listing {
            names: dir.list()?,
            times,
            again: 0,
            hasher: RandomState::new(),
            came: HashSet::new(),
            knows_all: true,
        })
    }

    /// The next name. `room` is how many more names can be remembered.
    pub(super) fn next(&mut self, room: &mut usize) -> Option<io::Result<OsString>> {
        loop {
            let name = match self.names.next()? {
                Ok(name) => name,
                Err(e) => return Some(Err(e)),
            };
            if *room == 0 {
                self.knows_all = false;
            } else if self.came.insert(self.hasher.hash_one(&name)) {
                *room -= 1;
            } else if self.again > 0 {
                continue;
            }
            return Some(Ok(name));
        }
    }

    /// Forgets a name that was gone when it was looked at: what has it later is another file.
    pub(super) fn forget(&mut self, name: &OsStr, room: &mut usize) {
        if self.came.remove(&self.hasher.hash_one(name)) {
            *room += 1;
        }
    }

    /// Called after the last name: lists the directory again if it changed.
    pub(super) fn end(&mut self, dir: &dyn Dir) -> io::Result<End> {
        let now = match times(dir) {
            Ok(now) => now,
            Err(e) if is_missing(&e) => return Ok(End::Still),
            Err(e) => return Err(e),
        };
        if now == self.times {
            return Ok(End::Still);
        }
        if !self.knows_all || self.again == AGAIN_MAX {
            return Ok(End::Restless);
        }
        self.names = match dir.list() {
            Ok(names) => names,
            // It was removed with all that was in it.
            Err(e) if is_missing(&e) => return Ok(End::Still),
            Err(e) => return Err(e),
        };
        self.times = now;
        self.again += 1;
        Ok(End::Again)
    }

    /// How many names it remembers.
    pub(super) fn remembered(&self) -> usize {
        self.came.len()
    }
}

fn times(dir: &dyn Dir) -> io::Result<(i64, i64)> {
    dir.stat(Path::new(""))
        .map(|stat| (stat.mtime_ns, stat.ctime_ns))
}
