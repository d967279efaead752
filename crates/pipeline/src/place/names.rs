//! Names in the target: what a restore displaces, how its own get there, and how they go back when it cannot finish.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use longshore_io::{Attributes, FileKind, OpenHow};

use super::{DELTA, DELTA_CONTROL, Fate, LOST_AND_FOUND, OPEN_TO_US, Scope, Target, remove_tree};
use crate::Error;
use crate::ground::STAGING;

/// Stands in the staging directory from when everything of a replaced directory is in `old` until nothing of it is to go
/// back any more: what stands in the target meanwhile is new.
pub(super) const DISPLACED: &str = "displaced";
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

impl Target {
    /// After a crash in the middle of `finish`: what was displaced and has no successor goes back.
    pub(super) fn put_back_displaced(&self) -> Result<(), Error> {
        let old = Path::new(STAGING).join("old");
        let Ok(dir) = self.dir.dir(&old) else {
            return Ok(());
        };
        if let Scope::Directory { last } = self.scope
            && self.is_new(last)?
        {
            // It was complete: what its server removed since must not come back from the old one.
            return remove_tree(&*self.dir, &old)
                .and_then(|()| self.dir.sync(Path::new(STAGING)))
                .map_err(self.at("remove", &old));
        }
        let mut names: Vec<_> = dir
            .list()
            .and_then(|l| l.collect())
            .map_err(self.at("list", &old))?;
        if let Scope::Directory { last } = self.scope {
            names.sort_by_key(|name| name == last);
        }
        // A side file without its database must not return next to a new one.
        let successor = |name: &OsString| {
            let base = SIDE_FILES
                .iter()
                .find_map(|s| name.to_str()?.strip_suffix(s))
                .map(OsString::from);
            self.dir.stat(Path::new(name)).is_ok()
                || base.is_some_and(|b| self.dir.stat(Path::new(&b)).is_ok() && !names.contains(&b))
        };
        let back: Vec<_> = names.iter().filter(|n| !successor(n)).cloned().collect();
        for name in back {
            if self.is_last(&name) {
                self.sync_names()?;
            }
            self.dir
                .rename(&old.join(&name), Path::new(&name))
                .map_err(self.at("put back", Path::new(&name)))?;
        }
        self.sync_names()
    }

    /// After a crash when everything was displaced: whether what stands there is new and whole. Without `last` it is
    /// new and not whole, and goes; then the marker, so that what goes back to its place is not taken for new.
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

    /// The target's own names.
    pub(super) fn standing(&self) -> Result<Vec<OsString>, Error> {
        let list = self.dir.list().and_then(|l| l.collect());
        let names: Vec<OsString> = list.map_err(self.at("list", Path::new("")))?;
        let own = |name: &OsString| name != STAGING && name != LOST_AND_FOUND;
        Ok(names.into_iter().filter(own).collect())
    }

    pub(super) fn is_last(&self, name: &OsStr) -> bool {
        matches!(self.scope, Scope::Directory { last } if name == last)
    }

    pub(super) fn side_files(&self, top: &OsStr) -> Vec<OsString> {
        if self.scope != (Scope::Names { side_files: true }) {
            return Vec::new();
        }
        let side = |s: &&str| {
            let mut name = top.to_owned();
            name.push(s);
            name
        };
        SIDE_FILES.iter().map(side).collect()
    }

    /// Moves everything that stands in the target out of the way.
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
            // It was done before the tablespaces got their names.
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
                tracing::warn!(target = %self.path.display(), ?top, %error, "a name of an unfinished restore stays");
                self.fate = Fate::Stuck;
            }
        }
    }

    pub(super) fn move_one(&self, top: &OsString) -> Result<(), Error> {
        let (new, old) = (
            Path::new(STAGING).join("new"),
            Path::new(STAGING).join("old"),
        );
        // The database first: side files without it harm nobody.
        for name in std::iter::once(top.clone()).chain(self.side_files(top)) {
            match self.dir.stat(Path::new(&name)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(self.at("look at", Path::new(&name))(e)),
                Ok(_) if !self.replace => {
                    return Err(Error::TargetExists {
                        path: self.path.join(name),
                    });
                }
                Ok(_) => self
                    .dir
                    .rename(Path::new(&name), &old.join(&name))
                    .map_err(self.at("displace", Path::new(&name)))?,
            }
            if name != *top {
                // Old side files must be gone for good before the new database has its name.
                self.sync_names()?;
            }
        }
        self.dir
            .rename(&new.join(top), Path::new(top))
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
        self.dir
            .sync(Path::new(""))
            .map_err(self.at("sync", Path::new("")))
    }

    /// Removes the staging directory, the lock last.
    pub(super) fn remove_staging(&self) -> std::io::Result<()> {
        let staging = Path::new(STAGING);
        for part in ["new", "old"] {
            remove_tree(&*self.dir, &staging.join(part))?;
        }
        for own in [DISPLACED, DELTA, DELTA_CONTROL] {
            remove_tree(&*self.dir, &staging.join(own))?;
        }
        self.ground.clear()
    }
}
