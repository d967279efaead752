//! Names in the target: which names a restore displaces, how its own get there, and how they go back if it fails.
//!
//! Invariants
//! - Displaced names are kept until all new ones are in place and durable.
//! - A crash in between leaves a state from which the next restore puts the old names back.
//! - A database and its side files move together: a write-ahead log next to another database would damage it.
//!
//! Leaves to others: what may be displaced at all (`options`, the callers), and writing the files (`destination.rs`).

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longshore_io::{Attributes, Dir, FileKind, OpenHow, Via};

use super::destination::{ReplacePolicy, Scope};
use super::layout::{ARRIVING, DELTA, DELTA_CONTROL, DISPLACED, GONE, LOST_AND_FOUND};
use super::{Fate, Target};
use crate::error::{Error, at};
use crate::locked_target::STAGING;
use crate::tree::{OPEN_TO_US, remove_tree};

const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// The first bytes of every SQLite 3 database.
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The names of a SQLite database's side files.
pub fn side_files(database: &OsStr) -> Vec<OsString> {
    let side = |suffix: &&str| {
        let mut name = database.to_owned();
        name.push(suffix);
        name
    };
    SIDE_FILES.iter().map(side).collect()
}

/// The database whose side file has this name.
fn database_named(side: &OsStr) -> Option<OsString> {
    let name = side.as_bytes();
    SIDE_FILES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix.as_bytes()))
        .map(|database| OsStr::from_bytes(database).to_owned())
}

/// The names in the directory at `path`, without our own.
pub fn standing(dir: &dyn Dir, path: &Path) -> Result<Vec<OsString>, Error> {
    let list = dir.list().and_then(|l| l.collect());
    let names: Vec<OsString> = list.map_err(at("list", path))?;
    let own = |name: &OsString| name != STAGING && name != LOST_AND_FOUND;
    Ok(names.into_iter().filter(own).collect())
}

impl Target {
    /// After a crash in the middle of `finish`: displaced names without a successor go back.
    pub(super) fn put_back_displaced(&self) -> Result<(), Error> {
        let old = Path::new(STAGING).join("old");
        let Ok(dir) = self.dir.dir(&old) else {
            return Ok(());
        };
        if let Scope::Directory { last } = self.scope
            && self.is_new(last)?
        {
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
        match self.scope {
            Scope::Directory { last } => names.sort_by_key(|name| name == last),
            Scope::Names { .. } | Scope::Space => {
                self.remove_arrived(&names)?;
                // Side files first: an existing database is assumed to have its side files.
                names.sort_by_key(|name| database_named(name).is_none());
            }
        }
        // A side file must not return next to another database than its own.
        let stands = |name: &OsStr| self.dir.stat(Path::new(name)).is_ok();
        let successor = |name: &OsString| {
            stands(name) || database_named(name).is_some_and(|database| stands(&database))
        };
        let back: Vec<_> = names.iter().filter(|n| !successor(n)).cloned().collect();
        let mut sides = false;
        for name in back {
            let is_side = database_named(&name).is_some();
            if self.is_last(&name) || (sides && !is_side) {
                self.sync_names()?;
            }
            sides = is_side;
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

    pub(super) fn side_files(&self, top: &OsStr) -> Vec<OsString> {
        match self.scope {
            Scope::Names { side_files: true } => side_files(top),
            _ => Vec::new(),
        }
    }

    /// Whether a SQLite database is restored as `top` and does not have its name yet. Among plain files it is
    /// recognised by its first bytes, which are in place by now.
    fn brings_database(&self, top: &OsStr) -> Result<bool, Error> {
        let name = Path::new(STAGING).join("new").join(top);
        let cannot = self.at("look at", &name);
        let magic_len = SQLITE_MAGIC.len();
        match self.dir.stat(&name) {
            Ok(found) if found.kind == FileKind::File => match self.scope {
                Scope::Names { side_files: true } => return Ok(true),
                Scope::Names { .. } if found.len >= magic_len as u64 => {}
                _ => return Ok(false),
            },
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(e)),
            _ => return Ok(false),
        }
        let mut magic = [0; SQLITE_MAGIC.len()];
        self.dir
            .open(&name, OpenHow::Read)
            .and_then(|file| file.read_exact_at(&mut magic, 0, Via::Cache))
            .map_err(cannot)?;
        Ok(magic == *SQLITE_MAGIC)
    }

    /// The restored database that `top` is, or whose side file it is.
    fn database_of(&self, top: &OsStr) -> Result<Option<OsString>, Error> {
        if self.brings_database(top)? {
            return Ok(Some(top.to_owned()));
        }
        match database_named(top) {
            Some(database) if self.brings_database(&database)? => Ok(Some(database)),
            _ => Ok(None),
        }
    }

    /// The restored names in the order in which they are moved: a database's side files directly before the database,
    /// so that it never exists without them.
    pub(super) fn in_order(&self, tops: Vec<OsString>) -> Result<Vec<OsString>, Error> {
        if !matches!(self.scope, Scope::Names { .. }) {
            return Ok(tops);
        }
        let known: HashSet<OsString> = tops.iter().cloned().collect();
        let mut order = Vec::with_capacity(tops.len());
        for top in tops {
            match self.database_of(&top)? {
                Some(database) if database == top => {
                    let sides = side_files(&top).into_iter();
                    order.extend(sides.filter(|side| known.contains(side)));
                    order.push(top);
                }
                // Moved together with its database.
                Some(_) => {}
                None => order.push(top),
            }
        }
        Ok(order)
    }

    /// Whether it is one of the side files that were moved directly before.
    fn just_moved(&self, name: &OsStr) -> bool {
        self.moved
            .iter()
            .rev()
            .take(SIDE_FILES.len())
            .any(|moved| moved == name)
    }

    /// Displaces those of the names that exist in the target and were not just restored.
    fn displace_names(&self, names: &[OsString]) -> Result<(), Error> {
        let old = Path::new(STAGING).join("old");
        for name in names.iter().filter(|name| !self.just_moved(name)) {
            match self.dir.stat(Path::new(name)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(self.at("look at", Path::new(name))(e)),
                Ok(_) if self.replacing == ReplacePolicy::No => {
                    return Err(self.taken(Path::new(name)));
                }
                Ok(_) => self
                    .dir
                    .rename(Path::new(name), &old.join(name))
                    .map_err(self.at("displace", Path::new(name)))?,
            }
            // The database first, each durably removed before the next: side files without the database are harmless.
            if names.len() > 1 {
                self.sync_names()?;
            }
        }
        Ok(())
    }

    /// After a crash: side files of a restored database may exist without the database. The old database must not find
    /// them; its own were all displaced before them.
    fn remove_arrived(&self, displaced: &[OsString]) -> Result<(), Error> {
        let marker = Path::new(STAGING).join(ARRIVING);
        match self.dir.stat(&marker) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            found => found.map(drop).map_err(self.at("look at", &marker))?,
        }
        for database in displaced {
            if self.dir.stat(Path::new(database)).is_ok() {
                continue;
            }
            for side in side_files(database) {
                match self.dir.remove_file(Path::new(&side)) {
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(self.at("remove", Path::new(&side)))?,
                }
            }
        }
        self.sync_names()?;
        self.unmark(&marker)
    }

    fn mark(&self, marker: &Path) -> Result<(), Error> {
        match self.dir.open(marker, OpenHow::CreateNew).map(drop) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| self.dir.sync(Path::new(STAGING))),
        }
        .map_err(self.at("create", marker))
    }

    fn unmark(&self, marker: &Path) -> Result<(), Error> {
        remove_tree(&*self.dir, marker)
            .and_then(|()| self.dir.sync(Path::new(STAGING)))
            .map_err(self.at("remove", marker))
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
        let marker = Path::new(STAGING).join(ARRIVING);
        let database = self.database_of(top)?;
        match &database {
            None => self.displace_names(std::slice::from_ref(top))?,
            Some(database) => {
                let mut names = vec![database.clone()];
                names.extend(side_files(database));
                self.displace_names(&names)?;
                if database == top {
                    // Its own side files come before it.
                    if names.iter().any(|name| self.just_moved(name)) {
                        self.sync_names()?;
                    }
                } else {
                    self.mark(&marker)?;
                }
            }
        }
        self.dir
            .rename(&staged, Path::new(top))
            .map_err(self.at("complete", Path::new(top)))?;
        let came_with_sides =
            |name: &OsString| side_files(name).iter().any(|side| self.just_moved(side));
        if database.is_some_and(|database| database == *top && came_with_sides(&database)) {
            self.sync_names()?;
            self.unmark(&marker)?;
        }
        Ok(())
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
        for part in ["new", "old", GONE] {
            remove_tree(&*self.dir, &staging.join(part))?;
        }
        for own in [DISPLACED, ARRIVING, DELTA, DELTA_CONTROL] {
            remove_tree(&*self.dir, &staging.join(own))?;
        }
        self.ground.clear()
    }
}
