//! Delta: changes an existing data directory into the set's, writing only the differences.
//!
//! Blocks are compared byte by byte with the existing files; neither times nor checksums are trusted. Names that the
//! set does not have are removed first. Meanwhile the control file is missing, and a note names the cluster of the
//! directory, so that no server starts and an interrupted delta can be repeated.
//!
//! Invariants
//! - Nothing is changed before two things are proved: the directory belongs to the set's cluster, by its system
//!   identifier, and every tablespace's directory is the one it links to, and no other running server's. A stopped
//!   server cannot be detected, because a tablespace does not record whose it is.
//! - The control file is removed, durably, before the first change, and comes back when everything else is durable.
//! - A file that has other names is never written to: a copy made of hard links (`cp -al`), or the cluster from which
//!   `pg_upgrade --link` came, keeps its bytes. The name is removed and the whole file is written again. A name that
//!   is added during the restore is noticed, and refused, when the file is next opened; what was written before is
//!   visible through it.
//!
//! Leaves to others: the locations of tablespaces (`spaces.rs`), and a cluster in a new directory (`mod.rs`).

use crate::place::RootContent;
use crate::place::RootFiles;
use crate::place::RootSwitch;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longshore_facts as facts;
use longshore_io::{Attributes, Dir, File, FileKind, Machine, OpenHow, Via};
use longshore_media::{Entry, EntryKind, Extent, SetHeader};
use parking_lot::Mutex;

use super::existing;
use super::names;
use super::outline::{self, CONTROL, NameKind, Names};
use crate::cluster_error::ClusterError;
use crate::error::{Error, at};
use crate::locked_target::{LOCK, LockedTarget, STAGING};
use crate::mounts::mounts_below;
use crate::path_list::PathList;
use crate::place::{
    DELTA, DELTA_CONTROL, DeltaResult, EACH_MAX, FilePiece, LOST_AND_FOUND, LateAttributes,
    LostAttributes, OpenFiles, SyncMethod, WantedAttributes, make_durable,
};
use crate::tree::remove_tree;

/// Bytes that are compared, and written, together: contains a whole page of every usual size.
const GRAIN: usize = 32 << 10;
/// In the data directory of a running server.
const PID_FILE: &str = "postmaster.pid";

/// A directory that is changed in place.
pub struct InPlace {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    /// Excludes other restores until the restore is complete.
    ground: Option<LockedTarget>,
    /// Whether anything has been changed.
    touched: AtomicBool,
    /// Whether it is the data directory, which has the control file; otherwise a tablespace.
    is_data: bool,
    /// Directories, and files whose extended attributes a later write could remove.
    later: Mutex<Vec<(PathBuf, WantedAttributes)>>,
    /// Whether the set records the extended attributes of every name.
    attributes: bool,
    lost: Arc<LostAttributes>,
    rewritten: AtomicU64,
    removed: Mutex<PathList>,
    /// The most names that are made durable one by one.
    each_max: usize,
    /// The files that were written.
    watch: OpenFiles,
}

/// Refuses a tablespace's directory `dir` at `path` that is in use, unless it is where the data directory's link leads.
pub fn refuse_foreign_space(
    dir: &dyn Dir,
    oid: u32,
    path: &Path,
    link: Option<&Path>,
) -> Result<(), Error> {
    let names: Vec<_> = dir
        .list()
        .and_then(|names| names.collect())
        .map_err(at("list", path))?;
    let used = names.iter().any(|name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.starts_with("PG_")
    });
    if used && link != Some(path) {
        return Err(ClusterError::Foreign {
            path: path.to_owned(),
            what: format!("its cluster does not have tablespace {oid} there"),
        }
        .into());
    }
    Ok(())
}

/// Refuses a directory in which a delta would remove, or replace, a name on or above which something is mounted. `prefix` is
/// the directory's path in the set, empty for the data directory.
pub fn refuse_mounts(
    machine: &Machine,
    path: &Path,
    names: &Names,
    prefix: &Path,
) -> Result<(), Error> {
    let stays = |mount: &PathBuf| {
        let top = mount.iter().next().map_or(mount.as_path(), Path::new);
        let is_others = names.kind(&prefix.join(top)).is_none() && !prefix.as_os_str().is_empty();
        let is_dir = names.kind(&prefix.join(mount)) == Some(NameKind::Dir);
        is_others || is_dir || mount == Path::new(LOST_AND_FOUND)
    };
    let mounts = mounts_below(&*machine.storage, path);
    match mounts.into_iter().find(|mount| !stays(mount)) {
        Some(mount) => Err(Error::Mounted {
            path: path.join(mount),
        }),
        None => Ok(()),
    }
}

impl InPlace {
    /// Proves that the data directory at `path` belongs to the set's cluster.
    pub fn open_data(machine: &Machine, path: &Path, header: &SetHeader) -> Result<InPlace, Error> {
        let root = InPlace::open(machine, path, true, header.attributes)?;
        existing::prove(&*root.dir, path, header.log.system)?;
        Ok(root)
    }

    /// Prevents a server from starting on the data directory of the cluster `system`.
    pub fn disable(&self, system: u64) -> Result<(), Error> {
        self.touched.store(true, Ordering::Relaxed);
        let staging = Path::new(STAGING);
        let note = staging.join(DELTA);
        let write = || {
            remove_tree(&*self.dir, &note)?;
            let file = self.dir.open(&note, OpenHow::CreateNew)?;
            file.write_all_at(system.to_string().as_bytes(), 0, Via::Cache)?;
            file.sync()?;
            self.dir.sync(staging)?;
            self.dir.sync(Path::new(""))?;
            remove_tree(&*self.dir, &staging.join(DELTA_CONTROL))?;
            remove_tree(&*self.dir, Path::new(CONTROL))?;
            match self.dir.sync(Path::new("global")) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            }
        };
        write().map_err(self.fail("prepare", Path::new("")))
    }

    /// Opens a tablespace of a cluster that was proved; `link` is its location according to the data directory.
    pub fn open_space(
        machine: &Machine,
        oid: u32,
        path: &Path,
        link: Option<&Path>,
        header: &SetHeader,
    ) -> Result<InPlace, Error> {
        let root = InPlace::open(machine, path, false, header.attributes)?;
        refuse_foreign_space(&*root.dir, oid, path, link)?;
        let foreign = |what| ClusterError::Foreign {
            path: path.to_owned(),
            what,
        };
        if let Some(server) = root.server_with(machine, oid) {
            let server = server.display();
            let what = format!("the server that runs in {server} has tablespace {oid} there, too");
            return Err(foreign(what).into());
        }
        Ok(root)
    }

    /// The data directory of a running server that has its tablespace here: a copied data directory keeps its origin's
    /// links. The cluster to be restored is not running.
    fn server_with(&self, machine: &Machine, oid: u32) -> Option<PathBuf> {
        let place = |dir: &dyn Dir| {
            dir.stat(Path::new(""))
                .ok()
                .map(|stat| (stat.dev, stat.ino))
        };
        let ours = place(&*self.dir)?;
        let is_here = |server: &facts::WorkingDirectory| {
            let dir = machine.storage.dir(&server.here).ok()?;
            dir.stat(Path::new(PID_FILE)).ok()?;
            let link = dir.read_link(&outline::link(oid)).ok()?;
            let theirs = server.root.join(link.strip_prefix("/").ok()?);
            let theirs = machine.storage.dir(&theirs).ok()?;
            (place(&*theirs)? == ours).then_some(())
        };
        let mut servers = facts::working_directories().into_iter();
        let found = servers.find(|server| is_here(server).is_some())?;
        Some(found.path)
    }

    pub(super) fn open(
        machine: &Machine,
        path: &Path,
        is_data: bool,
        attributes: bool,
    ) -> Result<InPlace, Error> {
        let ground = LockedTarget::take_unread(machine, path)?;
        Ok(InPlace {
            dir: ground.dir(),
            path: path.to_owned(),
            ground: Some(ground),
            touched: AtomicBool::new(false),
            is_data,
            later: Mutex::default(),
            attributes,
            lost: Arc::default(),
            rewritten: AtomicU64::new(0),
            removed: Mutex::default(),
            each_max: EACH_MAX,
            watch: OpenFiles::new(),
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<std::ffi::OsString>, Error> {
        self.dir
            .dir(dir)
            .and_then(|dir| dir.list()?.collect())
            .map_err(at("list", &self.path.join(dir)))
    }

    /// Removes names that the set lacks, or has as another kind. `prefix` is the root's path in the set.
    pub fn clear(&self, names: &Names, prefix: &Path) -> Result<(), Error> {
        self.touched.store(true, Ordering::Relaxed);
        let mut stack = vec![PathBuf::new()];
        let mut shared = 0u64;
        while let Some(dir) = stack.pop() {
            for name in self.list(&dir)? {
                if dir.as_os_str().is_empty() && (name == STAGING || name == LOST_AND_FOUND) {
                    continue;
                }
                let path = dir.join(&name);
                let known = names.kind(&prefix.join(&path));
                // A tablespace of another major version may share the directory.
                if known.is_none() && !self.is_data && dir.as_os_str().is_empty() {
                    continue;
                }
                let fail = at("remove", &self.path.join(&path));
                let found = self.dir.stat(&path).map_err(&fail)?;
                match (known, found.kind) {
                    (Some(NameKind::Dir), FileKind::Dir) => stack.push(path),
                    // A link shares its times and owner with its other names, too.
                    (Some(NameKind::Dense), FileKind::File)
                    | (Some(NameKind::Link), FileKind::Symlink)
                        if found.links > 1 =>
                    {
                        shared += 1;
                        self.dir.remove_file(&path).map_err(fail)?;
                    }
                    (Some(NameKind::Dense), FileKind::File)
                    | (Some(NameKind::Link), FileKind::Symlink) => {}
                    _ => {
                        remove_tree(&*self.dir, &path).map_err(fail)?;
                        let is_whole = known.is_none() || found.kind == FileKind::Dir;
                        if is_whole && !names::is_made(&prefix.join(&path)) {
                            self.removed.lock().add(self.path.join(&path));
                        }
                    }
                }
            }
        }
        if shared > 0 {
            tracing::info!(
                target = %self.path.display(), shared,
                "files with other names (hard links) are rewritten whole"
            );
        }
        Ok(())
    }

    /// The path to which an entry is written: the control file is staged.
    fn name(&self, path: &Path) -> PathBuf {
        match self.is_data && path == Path::new(CONTROL) {
            true => Path::new(STAGING).join(DELTA_CONTROL),
            false => path.to_owned(),
        }
    }

    fn fail(&self, action: &'static str, name: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
        at(action, &self.path.join(name))
    }

    fn file(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        self.opened(name).map(|(file, _)| file)
    }

    /// Opens a file to write to it, and returns its length; creates it if missing. Refuses a file that has got another
    /// name.
    fn opened(&self, name: &Path) -> Result<(Arc<dyn File>, u64), Error> {
        let file = self.open_or_make(name)?;
        let found = file.stat().map_err(self.fail("look at", name))?;
        if found.links > 1 {
            return Err(ClusterError::Shared {
                path: self.path.join(name),
            }
            .into());
        }
        Ok((file, found.len))
    }

    fn open_or_make(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        let file = self.unwatched(name)?;
        self.watch.add(&*self.dir, name);
        Ok(file)
    }

    fn unwatched(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        match self.dir.open(name, OpenHow::ReadWrite) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            found => return found.map_err(self.fail("open", name)),
        }
        self.ensure_parents(name)?;
        match self.dir.open(name, OpenHow::CreateNew) {
            // Another worker was faster.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                self.dir.open(name, OpenHow::ReadWrite)
            }
            made => made,
        }
        .map_err(self.fail("create", name))
    }

    fn ensure_parents(&self, name: &Path) -> Result<(), Error> {
        let mut missing: Vec<&Path> = Vec::new();
        for dir in name
            .ancestors()
            .skip(1)
            .filter(|dir| !dir.as_os_str().is_empty())
        {
            match self.dir.stat(dir) {
                Ok(_) => break,
                Err(_) => missing.push(dir),
            }
        }
        missing
            .into_iter()
            .rev()
            .try_for_each(|dir| self.make_dir(dir))
    }

    fn make_dir(&self, name: &Path) -> Result<(), Error> {
        match self.dir.create_dir(name) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(self.fail("create", name)(e))
            }
            _ => Ok(()),
        }
    }

    /// Writes the bytes that differ from the existing ones.
    fn rewrite(&self, file: &dyn File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let mut found = vec![0; bytes.len()];
        let there = file.read_full_at(&mut found, offset, Via::DontCache)?;
        let same = |at: usize, grain: &[u8]| {
            at + grain.len() <= there && found[at..at + grain.len()] == *grain
        };
        let mut at = 0;
        while at < bytes.len() {
            let mut end = at;
            while let Some(grain) = bytes[end..].chunks(GRAIN).next()
                && !same(end, grain)
            {
                end += grain.len();
            }
            if end > at {
                file.write_all_at(&bytes[at..end], offset + at as u64, Via::Cache)?;
                let wrote = (end - at) as u64;
                self.rewritten.fetch_add(wrote, Ordering::Relaxed);
                at = end;
            } else {
                at += GRAIN.min(bytes.len() - at);
            }
        }
        Ok(())
    }

    fn set(&self, name: &Path, attributes: &Attributes) -> Result<(), Error> {
        self.dir
            .set_attributes(name, attributes)
            .map_err(self.fail("set attributes of", name))
    }

    /// Gives a name of the set exactly its own attributes. For directories, and names with extended attributes, this
    /// happens when everything has been written.
    fn give(&self, name: PathBuf, entry: &Entry) -> Result<(), Error> {
        let wanted = WantedAttributes::of(entry);
        if entry.kind == EntryKind::Dir || !entry.xattrs.is_empty() {
            self.later.lock().push((name, wanted));
            return Ok(());
        }
        self.settle(&name, &wanted)
    }

    fn settle(&self, name: &Path, wanted: &WantedAttributes) -> Result<(), Error> {
        let give = || {
            if self.attributes {
                wanted.take_others(&*self.dir, name)?;
            }
            wanted.give(&*self.dir, name, &self.lost).map(drop)
        };
        give().map_err(self.fail("set attributes of", name))
    }

    /// Opens a file of the set and sets its length: every block sets the same length, so their order does not matter.
    fn sized(&self, name: &Path, len: u64) -> Result<Arc<dyn File>, Error> {
        let (file, found) = self.opened(name)?;
        if found != len {
            file.set_len(len).map_err(self.fail("resize", name))?;
        }
        Ok(file)
    }

    /// `pg_wal`, or another directory of the set, may be the mount point of a separate file system.
    fn sync_mounted(&self, dirs: &[(PathBuf, WantedAttributes)]) -> Result<(), Error> {
        let mut synced = BTreeSet::new();
        for name in std::iter::once(Path::new("")).chain(dirs.iter().map(|(name, _)| &**name)) {
            let device = self.dir.stat(name).map_err(self.fail("look at", name))?.dev;
            if synced.insert(device) && synced.len() > 1 {
                let mounted = self.dir.dir(name).and_then(|dir| dir.sync_all());
                mounted.map_err(self.fail("sync", name))?;
            }
        }
        Ok(())
    }

    fn rewrite_all(
        &self,
        name: &Path,
        file: &dyn File,
        parts: &[(Extent, &[u8])],
    ) -> Result<(), Error> {
        parts.iter().try_for_each(|(extent, bytes)| {
            self.rewrite(file, bytes, extent.offset)
                .map_err(self.fail("write", name))
        })
    }
}

impl RootContent for InPlace {
    fn put_name(&self, entry: &Entry) -> Result<(), Error> {
        let name = self.name(&entry.path);
        match &entry.kind {
            EntryKind::File => {
                self.sized(&name, entry.len)?;
                self.give(name, entry)
            }
            EntryKind::Dir => {
                self.ensure_parents(&name)?;
                self.make_dir(&name)?;
                self.give(name, entry)
            }
            EntryKind::Symlink { target } => {
                let is_same = self
                    .dir
                    .read_link(&name)
                    .is_ok_and(|found| found == *target);
                if !is_same {
                    remove_tree(&*self.dir, &name).map_err(self.fail("remove", &name))?;
                    self.ensure_parents(&name)?;
                    self.dir
                        .symlink(target, &name)
                        .map_err(self.fail("create", &name))?;
                }
                self.give(name, entry)
            }
            EntryKind::HardLink { .. } => Err(ClusterError::HardLink {
                path: entry.path.clone(),
            }
            .into()),
        }
    }

    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        let name = self.name(&entry.path);
        let file = self.sized(&name, entry.len)?;
        self.rewrite_all(&name, &*file, parts)?;
        drop(file);
        match entry.first {
            true => self.give(name, entry),
            false => Ok(()),
        }
    }

    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error> {
        let name = self.name(piece.path);
        let file = self.sized(&name, piece.len_bytes)?;
        self.rewrite_all(&name, &*file, piece.parts)
    }

    fn complete(&self, entry: &Entry) -> Result<(), Error> {
        let name = self.name(&entry.path);
        self.sized(&name, entry.len)?;
        self.give(name, entry)
    }

    fn lost(&self) -> Arc<LostAttributes> {
        self.lost.clone()
    }

    fn holds(&self, name: &Path) -> bool {
        self.dir.stat(&self.name(name)).is_ok()
    }

    fn attributes_of(&self, dir: &Path) -> Attributes {
        let later = self.later.lock();
        let found = later.iter().find(|(name, _)| name == dir);
        found.map_or_else(Attributes::default, |(_, wanted)| wanted.plain)
    }
}

impl RootFiles for InPlace {
    fn add_file(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        remove_tree(&*self.dir, name).map_err(self.fail("remove", name))?;
        self.file(name)
    }

    fn open_added(&self, name: &Path) -> Result<Arc<dyn File>, Error> {
        self.file(name)
    }

    fn set_added(&self, name: &Path, attributes: &Attributes) -> Result<(), Error> {
        self.set(name, attributes)
    }

    fn remove_added(&self, name: &Path) -> Result<(), Error> {
        self.dir
            .remove_file(name)
            .map_err(self.fail("remove", name))
    }

    fn set_root(&self, attributes: &Attributes) -> Result<(), Error> {
        let root = Path::new("");
        self.set(root, attributes)?;
        self.dir.sync(root).map_err(self.fail("sync", root))
    }

    fn volume(&self) -> Option<(u64, u64)> {
        None
    }
}

impl RootSwitch for InPlace {
    fn seal(&mut self) -> Result<LateAttributes, Error> {
        let mut later = std::mem::take(&mut *self.later.lock());
        later.sort_by_key(|(name, _)| std::cmp::Reverse(name.as_os_str().len()));
        for (name, wanted) in &later {
            self.settle(name, wanted)?;
        }
        let synced = make_durable(&*self.dir, Path::new(""), self.each_max, &self.watch)
            .map_err(|(name, e)| self.fail("sync", &name)(e))?;
        if synced == SyncMethod::Whole {
            self.sync_mounted(&later)?;
        }
        Ok(LateAttributes::default())
    }

    fn displace(&self) -> Result<(), Error> {
        Ok(())
    }

    fn move_in(&mut self, _closed: &LateAttributes) -> Result<(), Error> {
        self.ground.as_ref().map_or(Ok(()), LockedTarget::check)?;
        if !self.is_data {
            return Ok(());
        }
        let control = Path::new(CONTROL);
        self.dir
            .rename(&self.name(control), control)
            .and_then(|()| self.dir.sync(Path::new("global")))
            .map_err(self.fail("complete", control))
    }

    fn stand(&mut self) {
        let staging = Path::new(STAGING);
        let tidy = || {
            remove_tree(&*self.dir, &staging.join(DELTA))?;
            for name in self.dir.dir(staging)?.list()? {
                let name = name?;
                if name != LOCK {
                    remove_tree(&*self.dir, &staging.join(name))?;
                }
            }
            self.ground.as_ref().map_or(Ok(()), LockedTarget::clear)
        };
        if let Err(error) = tidy() {
            tracing::warn!(target = %self.path.display(), %error, "the staging directory could not be removed");
        }
        if let Some(mut ground) = self.ground.take() {
            ground.keep();
        }
    }

    fn delta(&self) -> Option<DeltaResult> {
        Some(DeltaResult {
            rewritten_bytes: Some(self.rewritten.load(Ordering::Relaxed)),
            removed: self.removed.lock().clone(),
        })
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        // A refused directory is left as it was; one that was changed is continued by the next delta.
        if let (Some(ground), false) = (&self.ground, *self.touched.get_mut())
            && let Err(error) = ground.clear()
        {
            tracing::warn!(target = %self.path.display(), %error, "the staging directory could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{Op, SimDisk};

    use super::*;
    use crate::place::tests::{entry, machine};

    /// Goal: after a delta everything is durable, including files that were already right and are only in the page
    /// cache, and files on separate file systems.
    #[test]
    fn a_delta_makes_durable_what_it_wrote_and_what_it_found() {
        for each_max in [EACH_MAX, 0] {
            let disk = SimDisk::new(3);
            disk.mount("/space").unwrap();
            disk.mount("/space/PG_18/2").unwrap();
            let machine = machine(&disk);
            // Written by a program that did not sync.
            let dir = machine.storage.dir(Path::new("/space")).unwrap();
            dir.create_dir(Path::new("PG_18/1")).unwrap();
            let there = dir.open(Path::new("PG_18/1/a"), OpenHow::CreateNew);
            there.unwrap().write_all_at(b"same", 0, Via::Cache).unwrap();
            let mut space = InPlace::open(&machine, Path::new("/space"), false, true).unwrap();
            space.each_max = each_max;
            for name in ["PG_18", "PG_18/1", "PG_18/2"] {
                space.put_name(&entry(name, EntryKind::Dir, 0)).unwrap();
            }
            let files = [
                ("PG_18/1/a", b"same"),
                ("PG_18/1/b", b"more"),
                ("PG_18/2/c", b"else"),
            ];
            for (name, bytes) in files {
                let whole = Extent { offset: 0, len: 4 };
                let file = entry(name, EntryKind::File, 4);
                space.put_data(&file, &[(whole, bytes)]).unwrap();
            }
            space.seal().unwrap();
            for image in disk.images(5) {
                for (name, bytes) in files {
                    let found = image.read_file(Path::new("/space").join(name));
                    assert_eq!(found.unwrap(), bytes, "{name}, {each_max} synced each");
                }
            }
            let all = disk
                .history()
                .iter()
                .filter(|(op, _)| *op == Op::SyncAll)
                .count();
            assert_eq!(all, if each_max == 0 { 2 } else { 0 });
        }
    }

    /// Goal: a file that gets another name during the restore is not written to through it.
    #[test]
    fn a_name_that_is_added_meanwhile_is_refused() {
        let disk = SimDisk::new(4);
        disk.mount("/space").unwrap();
        let machine = machine(&disk);
        disk.write_file("/space/PG_18/a", b"then").unwrap();
        let space = InPlace::open(&machine, Path::new("/space"), false, true).unwrap();
        let dir = machine.storage.dir(Path::new("/space")).unwrap();
        dir.hard_link(Path::new("PG_18/a"), Path::new("copy"))
            .unwrap();
        let whole = Extent { offset: 0, len: 4 };
        let file = entry("PG_18/a", EntryKind::File, 4);
        let refused = space.put_data(&file, &[(whole, b"now!")]).unwrap_err();
        assert!(refused.to_string().contains("another name"), "{refused}");
        assert_eq!(disk.read_file("/space/copy").unwrap(), b"then");
    }
}
