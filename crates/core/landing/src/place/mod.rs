//! The target directory of a restore: files go into a staging directory first and get their names last.
//!
//! Everything is written below `TARGET/.longshore-restoring/new`, synced, and only then renamed into the target, so a
//! restore that cannot finish leaves nothing that looks like a database. Files that `--replace` displaces wait in
//! `old` until the new names are durable; if a crash comes in between, a later restore puts them back.
//!
//! Invariants
//! - Nothing outside the target directory is touched: every name goes through [`Dir`], which follows no symbolic link
//!   and allows no `..`.
//! - What has the name of a file's log (`-wal`, `-shm`, `-journal`) never survives next to a restored file: SQLite would
//!   apply it. An encrypted database cannot be told from other files, so all files count. Logs restored with it get their
//!   names after the old file is gone and before the new one has its name.
//! - Only what was asked for makes way: of a part of the set, the directories above it stay (`swap.rs`).
//! - A SQLite database in use is not replaced unless that was requested; no program can use it from when the restore
//!   reaches its name until the new one has it ([`in_use`]).
//! - If a directory is replaced as a whole, the name without which nothing in it starts is removed first and comes
//!   back last, each with a sync in between: at no moment can a mixture of old and new be started.
//!
//! Leaves to others: moving names and moving them back (`names.rs`, `swap.rs`), and what a restore writes (`destination.rs`).

mod attributes;
mod blocks;
mod destination;
mod durable;
mod group;
mod in_use;
mod journal;
mod layout;
mod names;
mod partial_file;
mod root;
mod swap;
#[cfg(test)]
pub mod tests;
mod watch;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use longshore_io::{
    ACL_DEFAULT, Attributes, Clock, Dir, File, FileKind, Machine, OpenHow, Storage,
};
use longshore_media::{Entry, EntryKind, Extent};
use parking_lot::Mutex;

pub use self::attributes::{LostAttributes, WantedAttributes};
pub use self::destination::{
    DeltaResult, Destination, FilePiece, LateAttributes, ReplacePolicy, Root, RootContent,
    RootFiles, RootSwitch, Scope,
};
pub use self::durable::{SyncMethod, make_durable};
use self::group::FileGroup;
pub use self::in_use::linked_database;
use self::in_use::{Quiet, Refusal};
pub use self::layout::{DELTA, DELTA_CONTROL, LOST_AND_FOUND};
use self::layout::{DISPLACED, GONE, MOVING_NEW};
pub use self::names::standing;
use self::partial_file::{OPEN_MAX, PartialFile};
pub use self::root::{OwnDirectory, RootWish};
pub use self::swap::{check_above, refuse_foreign_log};
pub use self::watch::{EACH_MAX, OpenFiles};
use crate::error::Error;
use crate::files::files_of;
use crate::locked_target::{LockedTarget, STAGING, refuse_read};
use crate::mounts::{mounts_below, refuse_mounted};
use crate::moves::{check_moves, may_be_log, moved, place_of};
use crate::protected::ProtectedFiles;
use crate::running::refuse_running;
use crate::sides::base_of;
use crate::tree::{is_absent, remove_tree};

/// Known directories and free names that are remembered; further ones are looked up again.
const KNOWN_MAX: usize = 50_000;
/// Space that may be reserved and not yet written, in bytes over all files: files with holes reserve too much.
const RESERVED_MAX: u64 = 512 << 20;
/// Permission bit.
const OWNER_WRITES: u32 = 0o200;

/// Work that must wait until all files exist.
#[derive(Default)]
struct Later {
    /// Kept compact: one per directory of the set.
    dirs: Vec<(PathBuf, WantedAttributes)>,
    links: Vec<(PathBuf, PathBuf)>,
}

/// A restore in progress. Dropping it removes the staging directory, and everything that `finish` did not complete.
pub struct Target {
    storage: Arc<dyn Storage>,
    dir: Arc<dyn Dir>,
    path: PathBuf,
    /// The file systems mounted below the target, relative to it.
    mounts: Vec<PathBuf>,
    /// Excludes other restores.
    ground: LockedTarget,
    clock: Arc<dyn Clock>,
    replacing: ReplacePolicy,
    /// Files that are never replaced.
    kept: Option<ProtectedFiles>,
    /// Databases to be replaced, by their names in the target, locked until the end; or a description of a database's
    /// user. Only one thread tries at a time: to the others its handle would look like another program's.
    quiet: Mutex<HashMap<PathBuf, Result<Quiet, &'static str>>>,
    scope: Scope,
    /// The part of the set that is restored; empty: all of it.
    only: Vec<PathBuf>,
    moves: Vec<(PathBuf, PathBuf)>,
    root: RootWish,
    known_dirs: Mutex<HashSet<PathBuf>>,
    /// Places that were found free, or are replaced.
    places: Mutex<HashSet<PathBuf>>,
    /// Topmost names below which places with several components may be.
    merged: HashSet<OsString>,
    /// The places at or below them.
    nested: Mutex<BTreeSet<PathBuf>>,
    /// The places that have their new names.
    switched: Vec<FileGroup>,
    growing: Mutex<HashMap<PathBuf, PartialFile>>,
    /// Space reserved and not yet written, and its limit.
    reserved: AtomicU64,
    reserved_bytes_max: u64,
    later: Mutex<Later>,
    /// Names that were moved in; dropping moves them back unless the restore is complete.
    moved: Vec<OsString>,
    /// Whether the files displaced by this restore have been given up; those left by an earlier one do not count.
    given_up: bool,
    fate: Fate,
    /// The most names that are made durable one by one.
    each_max: usize,
    lost: Arc<LostAttributes>,
    /// Files kept open between blocks.
    open_max: usize,
    /// The files that were written.
    watch: OpenFiles,
}

/// The state of a target, which decides what its drop must do.
enum Fate {
    /// No name has been moved in, or all were moved back.
    Unfinished,
    /// The restore is complete and durable.
    Standing,
    /// The same, and the staging directory is gone.
    Tidied,
    /// Names could not be moved back.
    Stuck,
}

impl Target {
    /// Prepares the target: creates it if needed, locks it, removes what a crashed restore left.
    pub fn open(
        machine: &Machine,
        path: &Path,
        replacing: ReplacePolicy,
        scope: Scope,
        moves: &[(PathBuf, PathBuf)],
    ) -> Result<Target, Error> {
        check_moves(moves)?;
        let ground = match replacing {
            ReplacePolicy::No => LockedTarget::take(machine, path)?,
            ReplacePolicy::Unused | ReplacePolicy::Anything => {
                LockedTarget::take_unread(machine, path)?
            }
        };
        let dir = ground.dir();
        if let (Scope::Names { .. }, true) = (scope, replacing != ReplacePolicy::No) {
            refuse_running(&*dir, path)?;
        }
        let mounts = mounts_below(&*machine.storage, path);
        if let (Scope::Directory { .. }, true) = (scope, replacing != ReplacePolicy::No)
            && let Some(mount) = mounts
                .iter()
                .find(|mount| *mount != Path::new(LOST_AND_FOUND))
        {
            let path = path.join(mount);
            return Err(Error::Mounted { path });
        }
        let free = dir.free_bytes().unwrap_or(0);
        let mut target = Target {
            storage: machine.storage.clone(),
            dir,
            path: path.into(),
            mounts,
            ground,
            clock: machine.clock.clone(),
            replacing,
            kept: None,
            quiet: Mutex::default(),
            scope,
            only: Vec::new(),
            moves: moves.to_vec(),
            root: RootWish::Usual,
            known_dirs: Mutex::default(),
            places: Mutex::default(),
            merged: HashSet::new(),
            nested: Mutex::default(),
            switched: Vec::new(),
            growing: Mutex::default(),
            reserved: AtomicU64::new(0),
            // Files that fit without reservations must fit with them.
            reserved_bytes_max: RESERVED_MAX.min(free / 16),
            later: Mutex::default(),
            moved: Vec::new(),
            fate: Fate::Unfinished,
            given_up: false,
            each_max: EACH_MAX,
            lost: Arc::default(),
            open_max: files_of(OPEN_MAX),
            watch: OpenFiles::new(),
        };
        target.merged = target.merged_tops();
        if let Err(refused) = target.put_back_displaced(true) {
            // A rest of another restore stays as it is until somebody decides.
            target.fate = Fate::Stuck;
            return Err(refused);
        }
        if let (Scope::Directory { .. }, ReplacePolicy::No) = (scope, replacing)
            && !target.standing()?.is_empty()
        {
            return Err(Error::TargetExists { path: path.into() });
        }
        for own in [DISPLACED, GONE, MOVING_NEW] {
            let name = Path::new(STAGING).join(own);
            remove_tree(&*target.dir, &name).map_err(target.at("remove", &name))?;
        }
        // If the target gives new files a default access control list, restored files must have their own list or
        // none.
        match target.dir.remove_xattr(Path::new(STAGING), ACL_DEFAULT) {
            // Without `/proc` the attribute cannot be reached.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.map_err(target.at("prepare", Path::new(STAGING)))?,
        }
        for part in ["new", "old"] {
            let name = Path::new(STAGING).join(part);
            remove_tree(&*target.dir, &name).map_err(target.at("remove", &name))?;
            target
                .dir
                .create_dir(&name)
                .map_err(target.at("create", &name))?;
        }
        Ok(target)
    }

    /// The same target, which in addition never replaces these files.
    pub fn keeping(mut self, kept: ProtectedFiles) -> Target {
        self.kept = Some(kept);
        self
    }

    /// The same target, which gets only these paths of the set, and what belongs to them.
    pub fn choosing(mut self, only: &[PathBuf]) -> Target {
        self.only = only.to_vec();
        self.merged = self.merged_tops();
        self
    }

    /// Topmost names of places that may have several components.
    fn merged_tops(&self) -> HashSet<OsString> {
        let moved_to = self.moves.iter().map(|(_, to)| to.clone());
        // Of what was asked for it is not known yet whether it is a log.
        let asked = |may_be_log| {
            let only = self.only.iter();
            only.map(move |only| moved(&self.moves, only, may_be_log))
        };
        let chosen = asked(true).chain(asked(false));
        let nested = moved_to
            .chain(chosen)
            .filter(|place| place.iter().count() > 1);
        nested
            .filter_map(|place| place.iter().next().map(OsString::from))
            .collect()
    }

    fn at(&self, action: &'static str, name: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
        let path = self.path.join(name);
        move |source| Error::Target {
            action,
            path: path.clone(),
            source,
        }
    }

    pub fn free_bytes(&self) -> Option<u64> {
        self.dir.free_bytes().ok()
    }

    /// The staged path of a file; refuses names that exist in the target.
    fn staged(&self, path: &Path) -> Result<PathBuf, Error> {
        self.staged_entry(path, &EntryKind::File)
    }

    fn staged_entry(&self, path: &Path, kind: &EntryKind) -> Result<PathBuf, Error> {
        let may_be_log = may_be_log(kind);
        let name = moved(&self.moves, path, may_be_log);
        let place = match (&*self.only, &*self.moves) {
            ([], []) => Cow::Borrowed(path.iter().next().map_or(path, Path::new)),
            (only, moves) => Cow::Owned(place_of(only, moves, path, may_be_log)),
        };
        if !self.places.lock().contains(&*place) {
            self.check_free(&place)?;
            self.note_place(&place);
            let mut places = self.places.lock();
            if places.len() >= KNOWN_MAX {
                places.clear();
            }
            places.insert(place.into_owned());
        }
        Ok(Path::new(STAGING).join("new").join(name))
    }

    fn check_free(&self, place: &Path) -> Result<(), Error> {
        if place.starts_with(STAGING) {
            return Err(Error::TargetTaken {
                path: self.path.join(place),
            });
        }
        if self.switches_names() {
            self.check_above(place)?;
        }
        if let Some(kept) = &self.kept {
            kept.check_name(&*self.dir, &self.path, place)?;
        }
        if let (Some(kept), true) = (&self.kept, self.replacing != ReplacePolicy::No) {
            kept.check_replaced(&*self.dir, &self.path, place)?;
        }
        self.refuse_mounts(place)?;
        match self.replacing {
            ReplacePolicy::No => {}
            ReplacePolicy::Unused if self.switches_names() => {
                return self.keep_others_out(place);
            }
            ReplacePolicy::Unused | ReplacePolicy::Anything => return Ok(()),
        }
        for name in std::iter::once(place.to_path_buf()).chain(self.side_files(place)) {
            if self.look(&name)?.is_some() {
                return Err(self.taken(&name));
            }
        }
        Ok(())
    }

    fn refuse_mounts(&self, place: &Path) -> Result<(), Error> {
        let is_replaced = self.replacing != ReplacePolicy::No;
        refuse_mounted(&self.mounts, &self.path, place, is_replaced)
    }

    /// Refuses to replace a symbolic link that leads to a database: its programs would be left with a file that no name
    /// here leads to. Errors: [`Error::DatabaseInUse`], [`Error::DatabaseLinked`].
    fn refuse_linked(&self, place: &Path) -> Result<(), Error> {
        let path = self.path.join(place);
        match in_use::behind(&*self.storage, &path, &*self.clock) {
            Ok(None) => Ok(()),
            Ok(Some((real, None))) => Err(Error::DatabaseLinked { path, real }),
            Ok(Some((_, Some(how)))) | Err(Refusal::InUse(how)) => {
                Err(Error::DatabaseInUse { path, how })
            }
            Err(Refusal::Unknown) => Err(Error::DatabaseUseUnknown { path }),
            Err(Refusal::Io(name, e)) => Err(crate::error::at("lock", &name)(e)),
        }
    }

    /// Locks the databases that are removed when `top` is replaced. Errors: [`Error::DatabaseInUse`].
    fn keep_others_out(&self, top: &Path) -> Result<(), Error> {
        let kind = match self.dir.stat(top) {
            Ok(stat) => stat.kind,
            Err(e) if is_absent(&e) => return Ok(()),
            Err(e) => return Err(self.at("look at", top)(e)),
        };
        let databases = match kind {
            // Whether a set of files has the same link is known at the end.
            FileKind::Symlink if self.scope == (Scope::Names { side_files: true }) => {
                return self.refuse_linked(top);
            }
            FileKind::Dir => {
                let below = self.dir.dir(top).map_err(self.at("look at", top))?;
                refuse_running(&*below, &self.path.join(top))?;
                in_use::below(&*self.dir, top).map_err(self.at("list", top))?
            }
            // A log alone belongs to its database.
            _ => std::iter::once(top.as_os_str())
                .chain(base_of(top.as_os_str()))
                .map(PathBuf::from)
                .collect(),
        };
        let mut asked = self.quiet.lock();
        for name in databases {
            if !asked.contains_key(&name) {
                let locked = match in_use::lock(&*self.dir, &name, &*self.clock) {
                    Ok(None) => continue,
                    Ok(Some(quiet)) => Ok(quiet),
                    Err(Refusal::InUse(how)) => Err(how),
                    Err(Refusal::Unknown) => {
                        return Err(Error::DatabaseUseUnknown {
                            path: self.path.join(&name),
                        });
                    }
                    Err(Refusal::Io(name, e)) => return Err(self.at("lock", &name)(e)),
                };
                asked.insert(name.clone(), locked);
            }
            if let Some(Err(how)) = asked.get(&name) {
                return Err(Error::DatabaseInUse {
                    path: self.path.join(name),
                    how,
                });
            }
        }
        Ok(())
    }

    fn ensure_parents(&self, staged: &Path) -> Result<(), Error> {
        let Some(parent) = staged.parent() else {
            return Ok(());
        };
        if self.known_dirs.lock().contains(parent) {
            return Ok(());
        }
        let mut missing: Vec<&Path> = Vec::new();
        for dir in parent.ancestors() {
            match self.dir.stat(dir) {
                Ok(_) => break,
                Err(_) => missing.push(dir),
            }
        }
        for dir in missing.into_iter().rev() {
            match self.dir.create_dir(dir) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(self.at("create", dir)(e));
                }
                _ => {}
            }
        }
        let mut known = self.known_dirs.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(parent.into());
        Ok(())
    }

    fn set_attributes(&self, name: &Path, entry: &Entry) -> Result<(), Error> {
        self.give(name, &WantedAttributes::of(entry)).map(drop)
    }

    fn give(&self, name: &Path, wanted: &WantedAttributes) -> Result<Option<u32>, Error> {
        let mode = wanted
            .give(&*self.dir, name, &self.lost)
            .map_err(self.at("set attributes of", name))?;
        // A cluster belongs to the user who runs its server, whoever ran the original's.
        if self.switches_names() {
            wanted
                .compare(&*self.dir, name, &self.lost)
                .map_err(self.at("look at", name))?;
        }
        Ok(mode)
    }

    fn create(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        self.ensure_parents(name)?;
        let file = self
            .dir
            .open(name, OpenHow::CreateNew)
            .map_err(self.at("create", name))?;
        self.watch.add(&*self.dir, name);
        Ok(file)
    }
}

impl RootContent for Target {
    fn put_name(&self, entry: &Entry) -> Result<(), Error> {
        let name = self.staged_entry(&entry.path, &entry.kind)?;
        self.ensure_parents(&name)?;
        match &entry.kind {
            EntryKind::File if entry.len > 0 => {
                self.growing(&name, entry)?;
                self.grown(&name, entry, 0)
            }
            EntryKind::File => {
                drop(self.create(&name)?);
                self.set_attributes(&name, entry)
            }
            EntryKind::Dir => {
                match self.dir.create_dir(&name) {
                    Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                        return Err(self.at("create", &name)(e));
                    }
                    _ => {}
                }
                // Its own mode might forbid adding files, and adding files changes its time.
                self.later
                    .lock()
                    .dirs
                    .push((name, WantedAttributes::of(entry)));
                Ok(())
            }
            EntryKind::Symlink { target } => {
                self.dir
                    .symlink(target, &name)
                    .map_err(self.at("create", &name))?;
                self.set_attributes(&name, entry)
            }
            EntryKind::HardLink { target } => {
                let target = self.staged(target)?;
                self.later.lock().links.push((target, name));
                Ok(())
            }
        }
    }

    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        let name = self.staged(&entry.path)?;
        let bytes: u64 = parts.iter().map(|(_, b)| b.len() as u64).sum();
        let whole = entry.first && bytes == entry.len;
        let file = if whole {
            self.create(&name)?
        } else {
            let file = self.growing(&name, entry)?;
            self.reserve(&name, &*file, parts)?;
            file
        };
        self.write(&name, &*file, parts)?;
        if whole {
            drop(file);
            return self.set_attributes(&name, entry);
        }
        drop(file);
        self.grown(&name, entry, bytes)
    }

    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error> {
        let name = self.staged(piece.path)?;
        let file = self.sized(&name, piece.len_bytes)?;
        self.write(&name, &*file, piece.parts)
    }

    fn complete(&self, entry: &Entry) -> Result<(), Error> {
        let name = self.staged(&entry.path)?;
        // A file without bytes does not exist yet.
        self.sized(&name, entry.len)?;
        self.set_attributes(&name, entry)
    }

    fn lost(&self) -> Arc<LostAttributes> {
        self.lost.clone()
    }

    fn holds(&self, name: &Path) -> bool {
        let staged = Path::new(STAGING).join("new").join(name);
        self.dir.stat(&staged).is_ok()
    }

    fn attributes_of(&self, dir: &Path) -> Attributes {
        let staged = Path::new(STAGING).join("new").join(dir);
        let later = self.later.lock();
        let found = later.dirs.iter().find(|(name, _)| *name == staged);
        found.map_or_else(Attributes::default, |(_, wanted)| wanted.plain)
    }
}

impl RootFiles for Target {
    fn add_file(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        self.create(&self.staged(name)?)
    }

    fn open_added(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        let name = self.staged(name)?;
        self.dir
            .open(&name, OpenHow::ReadWrite)
            .map_err(self.at("open", &name))
    }

    fn set_added(&self, name: &Path, attributes: &Attributes) -> Result<(), Error> {
        let name = self.staged(name)?;
        self.dir
            .set_attributes(&name, attributes)
            .map_err(self.at("set attributes of", &name))
    }

    fn remove_added(&self, name: &Path) -> Result<(), Error> {
        let name = self.staged(name)?;
        self.dir
            .remove_file(&name)
            .map_err(self.at("remove", &name))
    }

    fn set_root(&self, attributes: &Attributes) -> Result<(), Error> {
        self.dir
            .set_attributes(Path::new(""), attributes)
            .map_err(self.at("set attributes of", Path::new("")))
    }

    fn volume(&self) -> Option<(u64, u64)> {
        let stat = self.dir.stat(Path::new("")).ok()?;
        Some((stat.dev, self.free_bytes()?))
    }
}

impl RootSwitch for Target {
    fn displace(&self) -> Result<(), Error> {
        match self.scope {
            Scope::Directory { last } => self.displace_all(last),
            Scope::Names { .. } | Scope::Space => Ok(()),
        }
    }

    fn seal(&mut self) -> Result<LateAttributes, Error> {
        // Files with holes: ranges without an extent are zeros.
        for (name, grown) in std::mem::take(&mut *self.growing.lock()) {
            let file = match grown.file {
                Some(file) => file,
                None => self
                    .dir
                    .open(&name, OpenHow::ReadWrite)
                    .map_err(self.at("open", &name))?,
            };
            if file.stat().map_err(self.at("look at", &name))?.len < grown.entry.len {
                file.set_len(grown.entry.len)
                    .map_err(self.at("extend", &name))?;
            }
            if grown.reserved > 0 {
                file.free_unwritten().map_err(self.at("trim", &name))?;
            }
            self.set_attributes(&name, &grown.entry)?;
        }
        let mut later = std::mem::take(&mut *self.later.lock());
        for (target, name) in &later.links {
            self.ensure_parents(name)?;
            self.dir
                .hard_link(target, name)
                .map_err(self.at("link", name))?;
        }
        // Deepest first: setting a directory's mode may close it to us, and renames inside change its time.
        later
            .dirs
            .sort_by_key(|(name, _)| std::cmp::Reverse(name.as_os_str().len()));
        let new = Path::new(STAGING).join("new");
        let mut closed = HashMap::new();
        let moved: HashSet<PathBuf> = match self.merged.is_empty() {
            true => HashSet::new(),
            false => self.staged_places()?.into_iter().collect(),
        };
        for (name, wanted) in later.dirs {
            let mode = self.give(&name, &wanted)?;
            // A directory that its owner may not write to cannot be moved to another one.
            if let (Some(mode), Ok(top)) = (mode, name.strip_prefix(&new))
                && mode & OWNER_WRITES == 0
                && (name.parent() == Some(&new) || moved.contains(top))
            {
                let with_mode = |mode| Attributes {
                    mode: Some(mode),
                    ..wanted.plain
                };
                closed.insert(top.as_os_str().to_owned(), with_mode(mode));
                self.dir
                    .set_attributes(&name, &with_mode(mode | OWNER_WRITES))
                    .map_err(self.at("set attributes of", &name))?;
            }
        }
        make_durable(&*self.dir, &new, self.each_max, &self.watch)
            .map_err(|(name, e)| self.at("sync", &name)(e))?;
        Ok(LateAttributes(closed))
    }

    fn move_in(&mut self, closed: &LateAttributes) -> Result<(), Error> {
        self.ground.check()?;
        if self.replacing != ReplacePolicy::No {
            refuse_read(&*self.storage, &self.path)?;
        }
        if self.switches_names() {
            let result = self.switch_names(closed);
            if result.is_err()
                && let Err(error) = self.is_switching().and_then(|is| match is {
                    true => self.put_back_places(false),
                    false => Ok(()),
                })
            {
                tracing::warn!(target = %self.path.display(), %error, "names of an unfinished restore remain");
                self.fate = Fate::Stuck;
            }
            return result;
        }
        let new = Path::new(STAGING).join("new");
        let list = self
            .dir
            .dir(&new)
            .and_then(|d| d.list())
            .and_then(|l| l.collect());
        let mut tops: Vec<OsString> = list.map_err(self.at("list", &new))?;
        tops.sort();
        if let Scope::Directory { last } = self.scope {
            self.displace_all(last)?;
            tops.sort_by_key(|top| top == last);
        }
        let result = tops
            .into_iter()
            .try_for_each(|top| {
                if self.is_last(&top) {
                    self.sync_names()?;
                }
                self.move_one(&top)?;
                let closed = match closed.0.get(&top) {
                    Some(attributes) => self.close(Path::new(&top), attributes),
                    None => Ok(()),
                };
                self.moved.push(top);
                closed
            })
            .and_then(|()| self.sync_names());
        if result.is_err() {
            self.take_back();
        }
        result
    }

    fn give_up_displaced(&mut self) -> Result<(), Error> {
        self.given_up = true;
        self.give_up()
    }

    fn stand(&mut self) {
        self.ground.keep();
        self.fate = Fate::Standing;
    }
}

impl Destination for Target {
    fn put_name(&self, entry: &Entry) -> Result<(), Error> {
        RootContent::put_name(self, entry)
    }

    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        RootContent::put_data(self, entry, parts)
    }

    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error> {
        RootContent::put_piece(self, piece)
    }

    fn complete(&self, entry: &Entry, _crc32c: u32) -> Result<(), Error> {
        RootContent::complete(self, entry)
    }

    fn lost(&self) -> Vec<Arc<LostAttributes>> {
        vec![self.lost.clone()]
    }

    fn finish(mut self: Box<Self>) -> Result<Option<DeltaResult>, Error> {
        let closed = self.seal()?;
        self.move_in(&closed)?;
        self.give_up_displaced()?;
        self.stand();
        self.give_root();
        let replaces = self.switches_names() && self.replacing != ReplacePolicy::No;
        Ok(replaces.then(|| DeltaResult {
            rewritten_bytes: None,
            removed: self.removed(),
        }))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.growing.lock().clear();
        // FUSE keeps the names of open files.
        self.watch.end();
        if matches!(self.fate, Fate::Unfinished) {
            self.take_back();
        }
        let tidied = match self.fate {
            // The staged files now belong to another restore.
            _ if self.ground.check().is_err() => Ok(()),
            // The rest is cleanup.
            Fate::Tidied => Ok(()),
            Fate::Standing => self.remove_staging().map_err(|e| e.to_string()),
            Fate::Unfinished => self
                .take_up_again()
                .and_then(|()| self.put_back_displaced(false))
                .map_err(|e| e.to_string())
                .and_then(|()| self.remove_staging().map_err(|e| e.to_string())),
            // The displaced files are still needed.
            Fate::Stuck => Ok(()),
        };
        if let Fate::Standing | Fate::Tidied = self.fate {
            for (name, quiet) in &*self.quiet.lock() {
                if let Ok(Err(error)) = quiet.as_ref().map(Quiet::spoil) {
                    tracing::warn!(target = %self.path.display(), ?name, %error, "the replaced file could not be protected from its users");
                }
            }
        }
        if let Err(error) = tidied {
            tracing::warn!(target = %self.path.display(), error, "the staging directory could not be removed");
        }
    }
}
