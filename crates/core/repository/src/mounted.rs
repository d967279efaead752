//! Whether each directory of a target is the one that it was: a directory whose file system is not mounted is an empty
//! one.
//!
//! Invariants
//! - A target that is used for the first time, and a directory that was added to it, are accepted: nothing is missing there.
//! - The database's own directory is the mark. The operator who makes it by hand says that an empty disk is meant.
//!
//! Leaves to others: what lies at a target (`shelf.rs`), and opening its directories (`place`).

use std::path::PathBuf;

use crate::error::Error;
use crate::shelf::Shelf;

impl Shelf {
    /// Refuses a directory of the target that has nothing of the database, not even its directory, while the newest backup
    /// should have a stripe there: its file system may not be mounted, and the disk below would be filled.
    ///
    /// Errors: [`Error::NotMounted`], and those of [`Shelf::list`].
    pub fn check_mounted(&self) -> Result<(), Error> {
        let bare = self.place.bare_homes()?;
        if bare.is_empty() || bare.len() == self.target.count() {
            return Ok(());
        }
        let listing = self.list()?;
        let mut newest_first = listing.sets.iter().rev();
        let newest = newest_first.find_map(|set| set.state.lost_families());
        let Some(lost) = newest else {
            return Ok(());
        };
        let is_lost = |place: &&(u16, PathBuf)| lost.contains(&place.0);
        match bare.iter().find(is_lost) {
            None => Ok(()),
            Some((_, home)) => Err(Error::NotMounted {
                target: self.target.name.clone(),
                home: home.clone(),
            }),
        }
    }

    /// The first of the database's directories, if the target has none of them: it is new, or no file system of it is mounted.
    ///
    /// Errors: a directory of the target that cannot be read.
    pub fn bare_home(&self) -> Result<Option<PathBuf>, Error> {
        let bare = self.place.bare_homes()?;
        let all = bare.len() == self.target.count();
        Ok(bare
            .into_iter()
            .next()
            .filter(|_| all)
            .map(|(_, home)| home))
    }
}
