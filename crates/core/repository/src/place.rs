//! Where a target's backups are: directories are the one place, buckets the other.
//!
//! Invariants
//! - A target's kind decides the place, and nothing above asks for the kind again.
//! - Two texts name one place if the directory or the prefix behind them is one, whatever the texts are.
//!
//! Leaves to others: what a place promises (`place/door.rs`), and both kinds of places (`place/`).

pub(crate) mod buckets;
pub(crate) mod directories;
mod door;
pub(crate) mod object_lease;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_bucket::Abilities;
use longshore_io::{Clock, Storage};

use self::buckets::Buckets;
use self::directories::Directories;
pub use self::door::LeftUploads;
pub(crate) use self::door::{
    Begun, Found, FoundRecord, Hold, LabelFiles, Place, Protection, Removal, ShelfMark, Stamp,
};

use crate::Error;
use crate::target::{self, Places, Target};

impl Target {
    /// The names of all databases at this target, sorted.
    pub fn databases(&self, storage: &dyn Storage) -> Result<Vec<String>, Error> {
        match &self.places {
            Places::Directories(directories) => target::databases(&self.name, directories, storage),
            Places::Buckets(prefixes) => buckets::databases(prefixes, storage),
        }
    }

    /// Where the backups of a database lie.
    pub(crate) fn place(
        &self,
        storage: &Arc<dyn Storage>,
        clock: &Arc<dyn Clock>,
        database: &str,
    ) -> Arc<dyn Place> {
        let (storage, database) = (storage.clone(), database.to_owned());
        let target = self.name.clone();
        match &self.places {
            Places::Directories(directories) => Arc::new(Directories {
                storage,
                clock: clock.clone(),
                target,
                directories: directories.clone(),
                database,
            }),
            Places::Buckets(prefixes) => Arc::new(Buckets {
                storage,
                target,
                prefixes: prefixes.clone(),
                database,
            }),
        }
    }

    /// A place that both targets have, however each names it: by device and inode of a directory, or of the database's below
    /// it, which may be a mount of its own; by server, bucket and key of a prefix. A place that cannot be reached is not known
    /// to be in both.
    pub fn common_place(
        &self,
        other: &Target,
        database: &str,
        storage: &dyn Storage,
    ) -> Option<String> {
        let keys = |target: &Target| -> Vec<(String, String)> {
            let of = |text: String| Some((place_key(&target.places, &text, storage)?, text));
            let below = |dir: &PathBuf| dir.join(database).display().to_string();
            let below: Vec<String> = target.directories().iter().map(below).collect();
            target
                .texts()
                .into_iter()
                .chain(below)
                .filter_map(of)
                .collect()
        };
        let others = keys(other);
        let ours = keys(self).into_iter();
        let mut both = ours.filter(|(key, _)| others.iter().any(|(theirs, _)| theirs == key));
        let same = both.next().map(|(_, text)| text);
        same.or_else(|| self.folder_around(other, database, storage))
    }

    /// The prefix of this target whose folder of the database has the other target's folder of it inside, or lies inside
    /// that one: what is there would be among the backups' own names.
    fn folder_around(
        &self,
        other: &Target,
        database: &str,
        storage: &dyn Storage,
    ) -> Option<String> {
        let folders = |target: &Target| -> Vec<((String, String), String)> {
            let of = |prefix: String| {
                let folder = buckets::folder_of(&format!("{prefix}/{database}"), storage)?;
                Some((folder, prefix))
            };
            match target.places {
                Places::Directories(_) => Vec::new(),
                Places::Buckets(_) => target.texts().into_iter().filter_map(of).collect(),
            }
        };
        let is_below = |one: &str, other: &str| {
            let rest = one.strip_prefix(other);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let others = folders(other);
        let is_near = |(key, server): &(String, String)| {
            others.iter().any(|((theirs, at), _)| {
                at == server && (is_below(key, theirs) || is_below(theirs, key))
            })
        };
        let mut near = folders(self).into_iter();
        near.find(|(folder, _)| is_near(folder))
            .map(|(_, prefix)| prefix)
    }

    /// The promises that the stores of a target's buckets keep, shown by a probe; none for directories.
    pub fn probe(
        &self,
        storage: &Arc<dyn Storage>,
        database: &str,
    ) -> Result<Vec<(String, Abilities)>, Error> {
        match &self.places {
            Places::Directories(_) => Ok(Vec::new()),
            Places::Buckets(prefixes) => Buckets {
                storage: storage.clone(),
                target: self.name.clone(),
                prefixes: prefixes.clone(),
                database: database.to_owned(),
            }
            .probe_all(),
        }
    }
}

/// The identity of a place of a target, which no other has; `None` if it cannot be reached.
fn place_key(places: &Places, text: &str, storage: &dyn Storage) -> Option<String> {
    match places {
        Places::Directories(_) => {
            let stat = storage.stat(Path::new(text)).ok()?;
            Some(format!("{} {}", stat.dev, stat.ino))
        }
        Places::Buckets(_) => buckets::identity_of(text, storage),
    }
}
