//! The target directory itself, where a restore of files makes it: its mode, owner, times and attributes.
//!
//! Invariants
//! - A directory that the restore makes is its owner's alone until all names are there and their attributes are set. It stays
//!   so if what it had is not known or cannot be given.
//! - A directory that was there keeps its own.
//!
//! Leaves to others: what a set says of its root (`longshore-media`), and names in the directory (`mod.rs`).

use std::path::Path;

use longshore_io::Attributes;

use super::attributes::WantedAttributes;
use super::{Fate, Target};
use crate::error::Error;

/// The mode of a directory that is its owner's alone.
const CLOSED: u32 = 0o700;

/// The directory that a set's names were in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnDirectory {
    OfTree,
    /// Of single files or several paths, of which each kept its own attributes alone.
    AroundFiles,
    AroundDatabase,
}

impl OwnDirectory {
    fn words(self) -> &'static str {
        match self {
            OwnDirectory::OfTree => "the tree's own directory",
            OwnDirectory::AroundFiles => "the directory that its paths were in",
            OwnDirectory::AroundDatabase => "the directory that its database was in",
        }
    }
}

/// The attributes of the target directory, if the restore makes it.
#[derive(Debug, Clone, Default)]
pub enum RootWish {
    /// Those that the system gives it.
    #[default]
    Usual,
    /// Nobody but its owner may enter: what this directory had is not known.
    Closed(OwnDirectory),
    /// Those of the tree's own directory.
    Known(WantedAttributes),
}

impl Target {
    /// The same target, whose directory gets this if it was made for the restore.
    pub fn rooting(mut self, wish: RootWish) -> Result<Target, Error> {
        if self.ground.is_new() && !matches!(wish, RootWish::Usual) {
            let closed = Attributes {
                mode: Some(CLOSED),
                ..Attributes::default()
            };
            let name = Path::new("");
            let set = self.dir.set_attributes(name, &closed);
            set.map_err(self.at("set attributes of", name))?;
        }
        self.root = wish;
        Ok(self)
    }

    /// Called when the restore is complete: nothing is removed from the directory afterwards, which would change its time.
    pub(super) fn give_root(&mut self) {
        let path = self.path.clone();
        let path = path.display();
        match (&self.root, self.ground.is_new()) {
            (RootWish::Usual, _) | (RootWish::Closed(_), false) => {}
            (RootWish::Closed(of), true) => self.lost.remark(format!(
                "the set does not tell the mode of {}: {path} is open to its owner alone (chmod widens it)",
                of.words()
            )),
            (RootWish::Known(wanted), false) => {
                if let Some(note) = self.differs(wanted) {
                    self.lost.remark(note);
                }
            }
            (RootWish::Known(wanted), true) => {
                let wanted = WantedAttributes {
                    path: self.path.clone(),
                    ..wanted.clone()
                };
                if self.ground.check().is_err() || self.remove_staging().is_err() {
                    return;
                }
                self.fate = Fate::Tidied;
                let name = Path::new("");
                let given = wanted
                    .give(&*self.dir, name, &self.lost)
                    .and_then(|_| wanted.compare(&*self.dir, name, &self.lost))
                    .and_then(|()| self.dir.sync(name));
                if let Err(error) = given {
                    self.lost.warn(format!(
                        "{path} could not be given the mode and owner of the tree's own directory: {error}"
                    ));
                }
            }
        }
    }

    /// The words for a directory that was there, if it has another mode or owner than the tree's own had.
    fn differs(&self, wanted: &WantedAttributes) -> Option<String> {
        let found = self.dir.stat(Path::new("")).ok()?;
        let (mode, (uid, gid)) = (wanted.plain.mode?, wanted.plain.owner?);
        if (found.mode, found.uid, found.gid) == (mode, uid, gid) {
            return None;
        }
        Some(format!(
            "{} was there before and keeps mode {:04o} and owner {}:{}; the tree's own directory had {mode:04o} and {uid}:{gid}",
            self.path.display(),
            found.mode,
            found.uid,
            found.gid
        ))
    }
}
