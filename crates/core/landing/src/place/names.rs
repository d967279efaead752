//! Names in a target that is replaced as a whole, or gets names that were free: how they get there, and how they go back if
//! the restore fails.
//!
//! Invariants
//! - Displaced names are kept until all new ones are in place and durable.
//! - A crash in between leaves a state from which the next restore puts the old names back.
//!
//! Leaves to others: names that are replaced one by one (`swap.rs`), what may be displaced at all (`options`, the callers),
//! and writing the files (`destination.rs`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use longshore_io::{Attributes, Dir, FileKind, OpenHow};

use super::destination::{ReplacePolicy, Scope};
use super::layout::{DELTA, DELTA_CONTROL, DISPLACED, GONE, LOST_AND_FOUND, MOVING, MOVING_NEW};
use super::{Fate, Target};
use crate::error::{Error, at};
use crate::locked_target::STAGING;
use crate::sides::sides_of;
use crate::tree::{OPEN_TO_US, remove_tree};

/// The names in the directory at `path`, without our own.
pub fn standing(dir: &dyn Dir, path: &Path) -> Result<Vec<OsString>, Error> {
    let list = dir.list().and_then(|l| l.collect());
    let names: Vec<OsString> = list.map_err(at("list", path))?;
    let own = |name: &OsString| name != STAGING && name != LOST_AND_FOUND;
    Ok(names.into_iter().filter(own).collect())
}

impl Target {
    /// After a restore that ended in the middle of `finish`: displaced names go back. `carefully`: it was another one.
    pub(super) fn put_back_displaced(&self, carefully: bool) -> Result<(), Error> {
        if self.is_switching()? {
            return self.put_back_places(carefully);
        }
        let last = match self.scope {
            Scope::Directory { last } => last,
            Scope::Names { .. } => return self.put_back_unknown(),
            // Nothing makes way for its names.
            Scope::Space => return Ok(()),
        };
        let old = Path::new(STAGING).join("old");
        let Ok(dir) = self.dir.dir(&old) else {
            return Ok(());
        };
        if self.is_new(last)? {
            // The restore was complete: files that its server has removed since must not come back from the old
            // directory.
            return remove_tree(&*self.dir, &old)
                .and_then(|()| self.dir.sync(Path::new(STAGING)))
                .map_err(self.at("remove", &old));
        }
        let mut names: Vec<_> = dir
            .list()
            .and_then(|l| l.collect())
            .map_err(self.at("list", &old))?;
        names.sort_by_key(|name| name == last);
        for name in names {
            if self.dir.stat(Path::new(&name)).is_ok() {
                continue;
            }
            if self.is_last(&name) {
                self.sync_names()?;
            }
            self.dir
                .rename(&old.join(&name), Path::new(&name))
                .map_err(self.at("put back", Path::new(&name)))?;
        }
        self.sync_names()
    }

    /// From here on nothing goes back; that is durable before success is reported. A power cut leaves the staging
    /// directory, and a user who later puts other files in the target does not see it: without this step, a later
    /// restore would treat those files as its own.
    pub(super) fn give_up(&self) -> Result<(), Error> {
        let staging = Path::new(STAGING);
        let old = staging.join("old");
        self.dir
            .rename(&old, &staging.join(GONE))
            .and_then(|()| self.dir.sync(staging))
            .map_err(self.at("give up", &old))
    }

    /// Undoes `give_up`, for a restore that failed after all.
    pub(super) fn take_up_again(&self) -> Result<(), Error> {
        if !self.given_up {
            return Ok(());
        }
        let staging = Path::new(STAGING);
        let (old, gone) = (staging.join("old"), staging.join(GONE));
        match self.dir.rename(&gone, &old) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.map_err(self.at("put back", &old)),
        }
    }

    /// After a crash when everything was displaced: whether the files in the target are new and complete. Without
    /// `last` they are new and incomplete, and are removed; then the marker is removed, so that files that go back are
    /// not taken for new ones.
    pub(super) fn is_new(&self, last: &str) -> Result<bool, Error> {
        let is_there = |name: &Path| match self.dir.stat(name) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(self.at("look at", name)(e)),
        };
        let marker = Path::new(STAGING).join(DISPLACED);
        if !is_there(&marker)? {
            return Ok(false);
        }
        if is_there(Path::new(last))? {
            return Ok(true);
        }
        for name in self.standing()? {
            let name = Path::new(&name);
            remove_tree(&*self.dir, name).map_err(self.at("remove", name))?;
        }
        self.sync_names()?;
        remove_tree(&*self.dir, &marker)
            .and_then(|()| self.dir.sync(Path::new(STAGING)))
            .map_err(self.at("remove", &marker))?;
        Ok(false)
    }

    /// The names in the target, without our own.
    pub(super) fn standing(&self) -> Result<Vec<OsString>, Error> {
        standing(&*self.dir, &self.path)
    }

    pub(super) fn is_last(&self, name: &OsStr) -> bool {
        matches!(self.scope, Scope::Directory { last } if name == last)
    }

    /// The error for an existing name.
    pub(super) fn taken(&self, name: &Path) -> Error {
        let path = self.path.join(name);
        match self.scope {
            Scope::Space => Error::TargetTaken { path },
            _ => Error::TargetExists { path },
        }
    }

    /// The names next to a database that must be free or make way with it, if the set is a database.
    pub(super) fn side_files(&self, place: &Path) -> Vec<PathBuf> {
        match self.scope {
            Scope::Names { side_files: true } => sides_of(place).collect(),
            _ => Vec::new(),
        }
    }

    /// Displaces what has a name that is restored.
    fn displace_name(&self, name: &Path) -> Result<(), Error> {
        match self.look(name)? {
            None => Ok(()),
            Some(_) if self.replacing == ReplacePolicy::No => Err(self.taken(name)),
            Some(_) => self
                .dir
                .rename(name, &Path::new(STAGING).join("old").join(name))
                .map_err(self.at("displace", name)),
        }
    }

    /// Moves everything in the target out of the way.
    pub(super) fn displace_all(&self, last: &str) -> Result<(), Error> {
        let mut standing = self.standing()?;
        let staging = Path::new(STAGING);
        let old = staging.join("old");
        standing.sort_by_key(|name| name != last);
        for name in &standing {
            let name = Path::new(name);
            self.dir
                .rename(name, &old.join(name))
                .map_err(self.at("displace", name))?;
            if name == Path::new(last) {
                self.sync_names()?;
            }
        }
        self.sync_names()?;
        let marker = staging.join(DISPLACED);
        self.dir.sync(&old).map_err(self.at("sync", &old))?;
        match self.dir.open(&marker, OpenHow::CreateNew).map(drop) {
            // This was done before the tablespaces got their names.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
        .and_then(|()| self.dir.sync(staging))
        .map_err(self.at("create", &marker))
    }

    pub(super) fn take_back(&mut self) {
        while let Some(top) = self.moved.pop() {
            let back = self.move_back(&top);
            if let Err(error) = back {
                tracing::warn!(target = %self.path.display(), ?top, %error, "a name of an unfinished restore remains");
                self.fate = Fate::Stuck;
            }
        }
    }

    pub(super) fn move_one(&self, top: &OsString) -> Result<(), Error> {
        let staged = Path::new(STAGING).join("new").join(top);
        self.displace_name(Path::new(top))?;
        self.dir
            .rename(&staged, Path::new(top))
            .map_err(self.at("complete", Path::new(top)))
    }

    pub(super) fn close(&self, top: &Path, attributes: &Attributes) -> Result<(), Error> {
        self.dir
            .set_attributes(top, attributes)
            .and_then(|()| self.dir.sync(top))
            .map_err(self.at("set attributes of", top))
    }

    pub(super) fn move_back(&self, top: &OsString) -> std::io::Result<()> {
        let top = Path::new(top);
        if self.dir.stat(top)?.kind == FileKind::Dir {
            self.dir.set_attributes(top, &OPEN_TO_US)?;
        }
        self.dir
            .rename(top, &Path::new(STAGING).join("new").join(top))
    }

    pub(super) fn sync_names(&self) -> Result<(), Error> {
        self.sync_in(Path::new(""))
    }

    /// Removes the staging directory, the lock last.
    pub(super) fn remove_staging(&self) -> std::io::Result<()> {
        let staging = Path::new(STAGING);
        if self.switches_names() {
            // The journal goes before the mark that the switch was complete: without the mark, the new names would be taken
            // back.
            remove_tree(&*self.dir, &staging.join(MOVING))?;
            self.dir.sync(staging)?;
        }
        for part in ["new", "old", GONE] {
            remove_tree(&*self.dir, &staging.join(part))?;
        }
        for own in [DISPLACED, MOVING_NEW, DELTA, DELTA_CONTROL] {
            remove_tree(&*self.dir, &staging.join(own))?;
        }
        self.ground.clear()
    }
}
