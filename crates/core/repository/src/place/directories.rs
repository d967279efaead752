//! Backups below the database's name in each of a list of directories.
//!
//! Invariants
//! - A backup has a live lease in its directory, in the target's first one, before its first byte is written.
//! - A reader of a backup holds a lease there before the first stripe is opened. A program that removes the backup
//!   renames it first and checks for leases afterwards: one of the two notices the other.
//! - A set whose directory has the suffix `.removing` in any of the target's directories no longer counts as a backup.
//!   Each rename is durable before the next.
//!
//! Leaves to others: a lease's file and its locks (`lease.rs`); stripes (`longshore-media`); which backups count and
//! which ones go (`shelf.rs`, `expire.rs`, `retention.rs`); buckets (`buckets.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Clock, Dir, FileKind, OpenHow, Storage, Via, is_stale};
use longshore_media::{DeviceSpec, ObjectName, is_key_object};
use uuid::Uuid;

use super::door::{
    Begun, Claims, Found, FoundRecord, Hold, LabelFiles, LeftUploads, Marks, Place, Protection,
    Removal, Remover, ShelfMark, StatusRecords, Stops,
};
use crate::Error;
use crate::label::{BackupKind, Label};
use crate::lease::{self, Lease, Use};
use crate::target::{
    self, MARK, PENDING, REMOVING, STATUS, STOPPED, STOPPED_MAX, WAL, family_name, family_of,
    is_reservation,
};

/// A database's directory at a target, and its path for messages.
type Home = (Arc<dyn Dir>, PathBuf);

#[derive(Debug, Clone)]
pub(crate) struct Directories {
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    pub target: String,
    pub directories: Vec<PathBuf>,
    pub database: String,
}

/// The directories of a new backup.
#[derive(Debug)]
struct BackupHold {
    label: Label,
    /// The database's directory below each of the target's, opened before the label was made, so that its file system
    /// cannot be unmounted.
    homes: Vec<Arc<dyn Dir>>,
    /// Released by the drop, before the directories are removed.
    lease: Option<Lease>,
}

impl Hold for BackupHold {
    /// Each stripe's writer has a lock of its own.
    fn confirm(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Drop for BackupHold {
    /// Removes the directories in which no stripe was left.
    fn drop(&mut self) {
        self.lease = None;
        for home in &self.homes {
            // Fails if there is a stripe in it: then the backup succeeded, or left something to inspect.
            let _kept = home.remove_dir(Path::new(self.label.as_str()));
        }
    }
}

impl Hold for Lease {
    fn confirm(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The database's directories, without other expires.
struct Locked<'a> {
    place: &'a Directories,
    /// Those that exist, with their numbers.
    dirs: Vec<(usize, Arc<dyn Dir>)>,
    own: Lease,
    /// Where the lease is.
    path: PathBuf,
}

impl Directories {
    /// The database's directory below the target's directory with this index.
    fn path(&self, index: usize) -> PathBuf {
        self.directories[index].join(&self.database)
    }

    fn io(&self, action: &'static str, path: &Path) -> impl Fn(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::Io {
            action,
            path: path.clone(),
            source,
        }
    }

    /// Opens a directory of the target, which must exist.
    fn directory(&self, path: &Path) -> Result<Arc<dyn Dir>, Error> {
        target::directory(&self.target, &*self.storage, path)
    }

    /// The database's directory below each of the target's, if it exists.
    fn dirs(&self) -> Result<Vec<Option<Arc<dyn Dir>>>, Error> {
        let below = |path: &PathBuf| {
            let dir = self.directory(path)?;
            match dir.dir(Path::new(&self.database)) {
                Ok(dir) => Ok(Some(dir)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(self.unopened(&*dir, path.join(&self.database), e)),
            }
        };
        self.directories.iter().map(below).collect()
    }

    /// `now_ns`: the file system's time, by which leases are judged.
    pub(crate) fn look_at(&self, now_ns: i64) -> Result<Found, Error> {
        let dirs = self.dirs()?;
        let mut labels: BTreeMap<Label, Files> = BTreeMap::new();
        let mut strays = Vec::new();
        for (i, dir) in dirs.iter().enumerate() {
            let Some(dir) = dir else { continue };
            let cannot = self.io("list", &self.path(i));
            for name in dir.list().map_err(&cannot)? {
                let name = name.map_err(&cannot)?;
                let text = name.to_str().unwrap_or("");
                let (base, removing) = match text.strip_suffix(REMOVING) {
                    Some(base) => (base, true),
                    None => (text, false),
                };
                match base.parse::<Label>() {
                    Ok(label) => {
                        let files = labels.entry(label).or_default();
                        files.found.removing |= removing;
                        let below = dir.dir(Path::new(&name));
                        match below.and_then(|below| files.look(i, text, &*below, now_ns)) {
                            Ok(strange) => {
                                strays.extend(
                                    strange.iter().map(|s| self.path(i).join(&name).join(s)),
                                );
                            }
                            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                            Err(e) => {
                                files.found.unreadable =
                                    Some(format!("{}: {e}", self.path(i).join(&name).display()))
                            }
                        }
                    }
                    Err(_) if text == WAL || text.starts_with(lease::PREFIX) => {}
                    Err(_) if text.starts_with(MARK) || is_small_file(text) => {}
                    Err(_) => strays.push(self.path(i).join(&name)),
                }
            }
        }
        strays.sort();
        Ok(Found {
            labels: labels
                .into_iter()
                .map(|(label, files)| (label, files.of(self)))
                .collect(),
            strays: strays.iter().map(|s| s.display().to_string()).collect(),
            now_ns,
        })
    }

    /// The database's directory in an open one of the target's, created if missing.
    fn make_home(&self, index: usize, directory: &dyn Dir) -> Result<Arc<dyn Dir>, Error> {
        let (name, path) = (Path::new(&self.database), self.path(index));
        // The process that made it may have been killed before the name was durable.
        let made = match directory.create_shared_dir(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true),
        }
        .and_then(|made| directory.sync(Path::new("")).map(|()| made))
        .map_err(self.io("create", &path))?;
        if made && let Err(error) = self.refuse_intruder(directory, name, &path) {
            // Fails if another process has put something there meanwhile.
            let _kept = directory.remove_dir(name);
            return Err(error);
        }
        let opened = directory.dir(name);
        opened.map_err(|e| self.unopened(directory, path, e))
    }

    /// The error for a database's directory at `path`, in an open one of the target's, that cannot be opened.
    fn unopened(&self, directory: &dyn Dir, path: PathBuf, error: io::Error) -> Error {
        match directory.stat(Path::new(&self.database)) {
            Ok(found) if found.kind != FileKind::Dir => Error::NotADirectory {
                target: self.target.clone(),
                path,
            },
            _ => self.io("open", &path)(error),
        }
    }

    /// Errors: root has made `name` in another user's directory. That user could neither read, verify nor remove it,
    /// and its own next backup would fail. The owner that the file system gave decides: with a root that is squashed
    /// it is not root.
    fn refuse_intruder(&self, around: &dyn Dir, name: &Path, path: &Path) -> Result<(), Error> {
        let owner = |of: &Path| {
            let stat = around.stat(of).map_err(self.io("read", path));
            stat.map(|stat| stat.uid)
        };
        match (owner(name)?, owner(Path::new(""))?) {
            (0, uid) if uid != 0 => Err(Error::OthersTarget {
                target: self.target.clone(),
                path: path.to_owned(),
                owner: longshore_facts::name_of(uid).unwrap_or_else(|_| format!("#{uid}")),
            }),
            _ => Ok(()),
        }
    }

    /// Makes the label's directory, and the lease that claims it; `None` if the label is taken.
    fn claim(&self, dir: &dyn Dir, label: &Label) -> Result<Option<Lease>, Error> {
        let cannot = self.io("create", &self.path(0));
        let name = Path::new(label.as_str());
        match dir.create_dir(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            made => {
                made.and_then(|()| dir.sync(Path::new("")))
                    .map_err(&cannot)?;
                let lease = dir
                    .dir(name)
                    .and_then(|dir| Lease::take(dir, Use::Backup, &*self.clock));
                Ok(Some(lease.map_err(&cannot)?))
            }
        }
    }

    /// The directory that holds a new label's lease.
    fn first_of(&self, homes: &[Arc<dyn Dir>]) -> Result<Arc<dyn Dir>, Error> {
        let none = || self.io("create", Path::new(""))(io::ErrorKind::NotFound.into());
        homes.first().cloned().ok_or_else(none)
    }

    /// Opens the database's directory in each of the target's directories.
    fn open_homes(&self) -> Result<Vec<Arc<dyn Dir>>, Error> {
        // All of them first: no directory may be filled while another one is not mounted. From here on everything is
        // created below open directories. By its path, a directory that is unmounted now would be created again on the
        // disk below its mount point.
        let open = |path: &PathBuf| self.directory(path);
        let directories = self.directories.iter().map(open);
        let directories: Vec<Arc<dyn Dir>> = directories.collect::<Result<_, _>>()?;
        let homes = directories.iter().enumerate();
        let homes = homes.map(|(i, directory)| self.make_home(i, &**directory));
        homes.collect()
    }

    /// Makes the label's directories for the families, of which the first directory is claimed already. `adopts`: others may
    /// be there.
    fn fill(
        &self,
        homes: Vec<Arc<dyn Dir>>,
        (label, lease): (Label, Lease),
        families: usize,
        adopts: bool,
    ) -> Result<Begun, Error> {
        let held = BackupHold {
            label: label.clone(),
            homes,
            lease: Some(lease),
        };
        let name = PathBuf::from(label.as_str());
        for (i, home) in held.homes.iter().enumerate().take(families) {
            let path = self.path(i).join(&name);
            if i > 0 {
                match home.create_dir(&name) {
                    Err(e) if adopts && e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    made => made,
                }
                .and_then(|()| home.sync(Path::new("")))
                .map_err(self.io("create", &path))?;
            }
            self.refuse_intruder(&**home, &name, &path)?;
        }
        let device = |family: u16| DeviceSpec::File(self.stripe(&label, family).into());
        let devices = (1..=families as u16).map(device).collect();
        Ok(Begun {
            devices,
            hold: Box::new(held),
            label,
        })
    }

    /// The database's directory in the first of the target's directories that has it.
    fn first_dir(&self) -> Result<Option<Home>, Error> {
        let dirs = self.dirs()?.into_iter().enumerate();
        let mut there = dirs.filter_map(|(i, dir)| Some((dir?, self.path(i))));
        Ok(there.next())
    }
}

impl Claims for Directories {
    fn bare_homes(&self) -> Result<Vec<(u16, PathBuf)>, Error> {
        let homes = (1..).zip(self.dirs()?).enumerate();
        let bare = homes.filter(|(_, (_, dir))| dir.is_none());
        Ok(bare
            .map(|(index, (family, _))| (family, self.path(index)))
            .collect())
    }

    fn begin(&self, kind: BackupKind, begun_us: i64) -> Result<Begun, Error> {
        let homes = self.open_homes()?;
        let first = self.first_of(&homes)?;
        loop {
            let label = Label::new(begun_us, kind);
            if let Some(lease) = self.claim(&*first, &label)? {
                let families = homes.len();
                return self.fill(homes, (label, lease), families, false);
            }
        }
    }

    fn begin_copy(&self, label: &Label, families: u16) -> Result<Begun, Error> {
        let homes = self.open_homes()?;
        let first = self.first_of(&homes)?;
        let taken = || Error::LabelTaken {
            target: self.target.clone(),
            database: self.database.clone(),
            label: label.to_string(),
        };
        let removing = format!("{label}{REMOVING}");
        let has = |home: &Arc<dyn Dir>, name: &str| home.stat(Path::new(name)).is_ok();
        let is_there = |home: &Arc<dyn Dir>| has(home, label.as_str()) || has(home, &removing);
        if homes.iter().any(is_there) {
            return Err(taken());
        }
        let lease = self.claim(&*first, label)?.ok_or_else(taken)?;
        self.fill(homes, (label.clone(), lease), usize::from(families), false)
    }

    fn device(&self, label: &Label, family: u16) -> Result<DeviceSpec, Error> {
        Ok(DeviceSpec::File(self.stripe(label, family).into()))
    }

    fn make_room(&self, label: &Label, family: u16) -> Result<(), Error> {
        let index = (usize::from(family) - 1) % self.directories.len();
        let directory = self.directory(&self.directories[index])?;
        let home = self.make_home(index, &*directory)?;
        let (name, path) = (Path::new(label.as_str()), self.path(index));
        match home.create_dir(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
        .and_then(|()| home.sync(Path::new("")))
        .map_err(self.io("create", &path.join(name)))?;
        self.refuse_intruder(&*home, name, &path.join(name))
    }
}

impl Place for Directories {
    fn look(&self) -> Result<Found, Error> {
        self.look_at(self.clock.wall_ns())
    }

    /// If a lock cannot be tested, the stripe's age decides, as for a lease.
    fn writer(&self, stripes: &[DeviceSpec], now_ns: i64) -> Option<String> {
        let is_locked = |device: &DeviceSpec| {
            let DeviceSpec::File(path) = device else {
                return false;
            };
            let mut pending = path.as_os_str().to_owned();
            pending.push(PENDING);
            let (Some(dir), Some(name)) = (path.parent(), Path::new(&pending).file_name()) else {
                return false;
            };
            let name = Path::new(name);
            let Ok(dir) = self.storage.dir(dir) else {
                return false;
            };
            match dir.open_to_lock(name).and_then(|file| file.try_lock()) {
                Ok(ours) => !ours,
                Err(e) if e.kind() == io::ErrorKind::NotFound => false,
                Err(_) => dir
                    .stat(name)
                    .is_ok_and(|s| !longshore_io::is_stale(s.mtime_ns, now_ns)),
            }
        };
        let locked = stripes.iter().any(is_locked);
        locked.then(|| "a command that named its stripes as devices".to_owned())
    }

    fn stripe(&self, label: &Label, family: u16) -> String {
        let home = self.path((usize::from(family) - 1) % self.directories.len());
        let path = home.join(label.as_str()).join(family_name(family));
        path.display().to_string()
    }

    fn protect(&self, label: &Label) -> Result<Protection, Error> {
        // A media set made when the target had other directories may not be in the first one.
        let lies_in = |i: &usize| {
            self.storage
                .stat(&self.path(*i).join(label.as_str()))
                .is_ok()
        };
        let home = (0..self.directories.len()).find(lies_in).unwrap_or(0);
        let path = self.path(home).join(label.as_str());
        let dir = self.storage.dir(&path);
        match dir.and_then(|dir| Lease::take(dir, Use::Read, &*self.clock)) {
            Ok(lease) => Ok(Protection::Held(Box::new(lease))),
            // Media on a read-only mount can be read, and so can those on one that has no room for another name; whether
            // other hosts can write there is unknown.
            Err(e) if is_read_only(&e) || lease::is_full(&e) => {
                Ok(Protection::Impossible(e.to_string()))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::NoSuchLabel {
                target: self.target.clone(),
                database: self.database.clone(),
                label: label.to_string(),
            }),
            Err(e) => Err(self.io("protect", &path)(e)),
        }
    }

    fn lock(&self) -> Result<Option<Box<dyn Remover + '_>>, Error> {
        let dirs = self.dirs()?.into_iter().enumerate();
        let dirs: Vec<(usize, Arc<dyn Dir>)> =
            dirs.filter_map(|(i, dir)| Some((i, dir?))).collect();
        let Some((index, home)) = dirs.first() else {
            return Ok(None);
        };
        let path = self.path(*index);
        let cannot = self.io("lock", &path);
        let own = Lease::take(home.clone(), Use::Expire, &*self.clock).map_err(&cannot)?;
        self.refuse_intruder(&**home, Path::new(own.name()), &path)?;
        let now_ns = own.touch().map_err(&cannot)?;
        let others = lease::holders(&**home, Some(own.name()), now_ns).map_err(&cannot)?;
        match others.first() {
            Some(other) => Err(Error::Busy {
                path,
                holder: other.text(),
            }),
            None => {
                // They protect nothing, so what cannot be removed is in nobody's way.
                if let Err(error) = lease::remove_left(&**home, Use::Expire, own.name(), now_ns) {
                    tracing::info!(%error, "leases that killed expires left stay");
                }
                Ok(Some(Box::new(Locked {
                    place: self,
                    dirs,
                    own,
                    path,
                })))
            }
        }
    }
}

impl Marks for Directories {
    /// The marks in all directories of the target, those of the first directory first: if it was not mounted for a
    /// while, the mark may be in another one.
    fn marks(&self) -> Result<Vec<ShelfMark>, Error> {
        let mut marks = Vec::new();
        for (i, dir) in self.dirs()?.into_iter().enumerate() {
            let Some(dir) = dir else { continue };
            let cannot = self.io("list", &self.path(i));
            let begin = marks.len();
            for name in dir.list().map_err(&cannot)? {
                let name = PathBuf::from(name.map_err(&cannot)?);
                let id = name.to_str().and_then(|n| n.strip_prefix(MARK));
                if let Some(id) = id.and_then(|id| Uuid::parse_str(id).ok()) {
                    let stat = dir.stat(&name).map_err(&cannot)?;
                    // A second hard link is the mark of a copy: the two cannot be distinguished.
                    if stat.links <= 1 {
                        let changed_ns = stat.ctime_ns;
                        marks.push(ShelfMark {
                            id,
                            changed_ns,
                            only_at: None,
                        });
                    }
                }
            }
            if let Some(new) = marks.get_mut(begin..) {
                new.sort_by_key(|mark| mark.id);
            }
        }
        Ok(marks)
    }

    fn new_mark(&self) -> Result<ShelfMark, Error> {
        let id = Uuid::new_v4();
        let name = PathBuf::from(format!("{MARK}{}", id.simple()));
        let Some((dir, path)) = self.first_dir()? else {
            let nothing = io::Error::from(io::ErrorKind::NotFound);
            return Err(self.io("open", &self.path(0))(nothing));
        };
        let made = || -> io::Result<i64> {
            dir.open(&name, OpenHow::CreateNew)?.sync()?;
            dir.sync(Path::new(""))?;
            Ok(dir.stat(&name)?.ctime_ns)
        };
        let changed_ns = made().map_err(self.io("create", &path.join(&name)))?;
        Ok(ShelfMark {
            id,
            changed_ns,
            only_at: None,
        })
    }

    fn home(&self) -> Result<PathBuf, Error> {
        let directory = self.first_dir()?.map_or(PathBuf::new(), |(_, path)| path);
        Ok(self.storage.canonical(&directory).unwrap_or(directory))
    }
}

/// The infix of a record that is being written.
const NEW: &str = ".new-";

impl StatusRecords for Directories {
    fn records(&self, names: &[&str], len_max: usize) -> Result<Vec<FoundRecord>, Error> {
        let mut found = Vec::new();
        for (i, dir) in self.dirs()?.into_iter().enumerate() {
            let Some(dir) = dir else { continue };
            for name in names {
                let path = self.path(i).join(name);
                let read = read_record(&*dir, name, len_max).map_err(self.io("read", &path))?;
                found.extend(read.map(|(changed_ns, bytes)| FoundRecord {
                    name: (*name).to_owned(),
                    at: path.display().to_string(),
                    changed_ns,
                    bytes,
                }));
            }
        }
        Ok(found)
    }

    fn put_record(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let Some((dir, home)) = self.first_dir()? else {
            return Err(Error::Nothing {
                target: self.target.clone(),
                database: self.database.clone(),
            });
        };
        let others = |target, owner| Error::OthersRecord {
            target,
            path: home.clone(),
            owner,
        };
        let now_ns = self.replace(&*dir, &home.join(name), bytes, others)?;
        remove_left_records(&*dir, now_ns);
        Ok(())
    }
}

impl Directories {
    /// Replaces a small file in an open directory as a whole; returns its time. `others`: the error if the directory is
    /// another user's, of the target and that user: the file would be closed to its owner.
    fn replace(
        &self,
        dir: &dyn Dir,
        path: &Path,
        bytes: &[u8],
        others: impl Fn(String, String) -> Error,
    ) -> Result<i64, Error> {
        let cannot = self.io("write", path);
        let name = path.file_name().unwrap_or_default();
        let mut new = name.to_owned();
        new.push(format!("{NEW}{}", Uuid::new_v4().simple()));
        let new = PathBuf::from(new);
        let write = || -> Result<i64, Error> {
            let file = dir.open(&new, OpenHow::CreateNew).map_err(&cannot)?;
            let (own, around) = (file.stat(), dir.stat(Path::new("")));
            let (own, around) = (own.map_err(&cannot)?, around.map_err(&cannot)?);
            // Giving the file away by its name would follow whoever may exchange the name.
            if own.uid != around.uid {
                let owner = longshore_facts::name_of(around.uid);
                let owner = owner.unwrap_or_else(|_| format!("#{}", around.uid));
                return Err(others(self.target.clone(), owner));
            }
            let written = file.write_all_at(bytes, 0, Via::Cache);
            written.map_err(&cannot)?;
            file.sync_with_times().map_err(&cannot)?;
            let now_ns = file.stat().map_err(&cannot)?.mtime_ns;
            dir.rename(&new, Path::new(name)).map_err(&cannot)?;
            dir.sync(Path::new("")).map_err(&cannot)?;
            Ok(now_ns)
        };
        write().inspect_err(|_| {
            // If this cannot be removed now, a later record removes it.
            let _left = dir.remove_file(&new);
        })
    }
}

/// A record's last change and its bytes; `None` if there is none of this name.
fn read_record(
    dir: &dyn Dir,
    name: &str,
    len_max: usize,
) -> io::Result<Option<(i64, Option<Vec<u8>>)>> {
    let name = Path::new(name);
    let stat = match dir.stat(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        stat => stat?,
    };
    if stat.kind != FileKind::File {
        return Ok(Some((stat.mtime_ns, None)));
    }
    let file = match dir.open(name, OpenHow::Read) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let stat = file.stat()?;
    let told = usize::try_from(stat.len).unwrap_or(usize::MAX);
    let mut bytes = vec![0; told.min(len_max) + 1];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(len);
    let bytes = (told.max(len) <= len_max).then_some(bytes);
    Ok(Some((stat.mtime_ns, bytes)))
}

/// Whether a name is that of a record, of a word that stops, or of one that is being written.
fn is_small_file(name: &str) -> bool {
    name.starts_with(STATUS) || name.starts_with(STOPPED)
}

/// Removes what killed writers of records left.
fn remove_left_records(dir: &dyn Dir, now_ns: i64) {
    let Ok(names) = dir.list() else { return };
    for name in names.flatten() {
        let is_left = name
            .to_str()
            .is_some_and(|name| is_small_file(name) && name.contains(NEW));
        let name = Path::new(&name);
        if is_left && dir.stat(name).is_ok_and(|s| is_stale(s.mtime_ns, now_ns)) {
            let _kept = dir.remove_file(name);
        }
    }
}

impl Stops for Directories {
    /// From any of the target's directories: one that was not mounted for a while may lack it.
    fn stopped(&self) -> Result<Option<String>, Error> {
        for (i, dir) in self.dirs()?.into_iter().enumerate() {
            let Some(dir) = dir else { continue };
            let read = || -> io::Result<String> {
                let file = dir.open(Path::new(STOPPED), OpenHow::Read)?;
                let mut text = vec![0; STOPPED_MAX];
                let len = file.read_full_at(&mut text, 0, Via::Cache)?;
                Ok(String::from_utf8_lossy(&text[..len]).trim_end().to_owned())
            };
            match read() {
                Ok(word) => return Ok(Some(word)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                // That there is one is enough.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(Some(
                        "by another user, whose word cannot be read".to_owned(),
                    ));
                }
                Err(e) => return Err(self.io("read", &self.path(i).join(STOPPED))(e)),
            }
        }
        Ok(None)
    }

    fn stop(&self, word: &str) -> Result<(), Error> {
        let bytes = format!("{word}\n");
        for (i, home) in self.open_homes()?.into_iter().enumerate() {
            let path = self.path(i).join(STOPPED);
            // Its backups would fail at a word that they cannot read.
            let others = |target, owner| Error::OthersTarget {
                target,
                path: path.clone(),
                owner,
            };
            let now_ns = self.replace(&*home, &path, bytes.as_bytes(), others)?;
            remove_left_records(&*home, now_ns);
        }
        Ok(())
    }

    fn resume(&self) -> Result<bool, Error> {
        let mut was_there = false;
        for (i, dir) in self.dirs()?.into_iter().enumerate() {
            let Some(dir) = dir else { continue };
            match dir.remove_file(Path::new(STOPPED)) {
                Ok(()) => was_there = true,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(self.io("remove", &self.path(i).join(STOPPED))(e)),
            }
        }
        Ok(was_there)
    }
}

impl Remover for Locked<'_> {
    fn look(&self) -> Result<Found, Error> {
        self.place.look_at(self.touch()?)
    }

    fn remove(&self, label: &Label) -> Result<Removal, Error> {
        self.place.remove(&self.dirs, label, self.touch()?)
    }

    fn adopt(&self, label: &Label, families: u16) -> Result<Option<Begun>, Error> {
        let now_ns = self.touch()?;
        let name = Path::new(label.as_str());
        for (i, dir) in &self.dirs {
            match dir
                .dir(name)
                .and_then(|d| lease::holders(&*d, None, now_ns))
            {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Ok(holders) if holders.is_empty() => {}
                Ok(_) => return Ok(None),
                Err(e) => {
                    return Err(self.place.io("list", &self.place.path(*i).join(name))(e));
                }
            }
        }
        let homes = self.place.open_homes()?;
        let first = self.place.first_of(&homes)?;
        let cannot = self.place.io("create", &self.place.path(0));
        match first.create_dir(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
        .and_then(|()| first.sync(Path::new("")))
        .map_err(&cannot)?;
        let lease = first
            .dir(name)
            .and_then(|dir| Lease::take(dir, Use::Backup, &*self.place.clock))
            .map_err(cannot)?;
        let claimed = (label.clone(), lease);
        let begun = self.place.fill(homes, claimed, families.into(), true)?;
        Ok(Some(begun))
    }

    /// Files that a killed backup left are below its label, and go with it.
    fn abort_left_uploads(&self) -> Result<LeftUploads, Error> {
        Ok(LeftUploads::default())
    }
}

impl Locked<'_> {
    fn touch(&self) -> Result<i64, Error> {
        let touched = self.own.touch();
        touched.map_err(self.place.io("lock", &self.path))
    }
}

impl Directories {
    fn remove(
        &self,
        dirs: &[(usize, Arc<dyn Dir>)],
        label: &Label,
        now_ns: i64,
    ) -> Result<Removal, Error> {
        let name = PathBuf::from(label.as_str());
        let removing = PathBuf::from(format!("{label}{REMOVING}"));
        let mut renamed: Vec<&(usize, Arc<dyn Dir>)> = Vec::new();
        for at @ (i, dir) in dirs {
            let cannot = self.io("rename", &self.path(*i).join(&name));
            match dir.rename(&name, &removing) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                done => {
                    done.map_err(&cannot)?;
                    renamed.push(at);
                }
            }
            // Also where it was renamed before: by an expire that may have been killed before that was durable.
            dir.sync(Path::new("")).map_err(cannot)?;
        }
        let mut holder = None;
        for (i, dir) in dirs {
            match dir
                .dir(&removing)
                .and_then(|d| lease::holders(&*d, None, now_ns))
            {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                found => {
                    let found = found.map_err(self.io("list", &self.path(*i).join(&removing)))?;
                    holder = holder.or(found.first().map(lease::Holder::text));
                }
            }
        }
        if let Some(holder) = holder {
            // A removal that had begun before remains one.
            for (i, dir) in renamed.into_iter().rev() {
                dir.rename(&removing, &name)
                    .and_then(|()| dir.sync(Path::new("")))
                    .map_err(self.io("rename", &self.path(*i).join(&removing)))?;
            }
            return Ok(Removal::InUse(holder));
        }
        for (i, dir) in dirs {
            match clear(&**dir, &removing) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                cleared => {
                    cleared.map_err(self.io("remove", &self.path(*i).join(&removing)))?;
                }
            }
        }
        Ok(Removal::Done)
    }
}

/// The files under one label, over all directories.
#[derive(Debug, Default)]
struct Files {
    /// By directory, name in it and family number: whether the stripe has its final name.
    families: BTreeMap<(usize, String, u16), bool>,
    found: LabelFiles,
}

impl Files {
    fn of(self, place: &Directories) -> LabelFiles {
        let path = |(i, dir, n): &(usize, String, u16)| {
            DeviceSpec::File(place.path(*i).join(dir).join(family_name(*n)))
        };
        LabelFiles {
            stripes: self.families.keys().map(path).collect(),
            any_finished: self.families.values().any(|finished| *finished),
            ..self.found
        }
    }

    /// Returns unknown names.
    fn look(
        &mut self,
        index: usize,
        name: &str,
        dir: &dyn Dir,
        now_ns: i64,
    ) -> io::Result<BTreeSet<PathBuf>> {
        let mut strays = BTreeSet::new();
        for file in dir.list()? {
            let file = PathBuf::from(file?);
            let text = file.to_str().unwrap_or("");
            if text.starts_with(lease::PREFIX) {
                self.found.has_lease = true;
                match dir.stat(&file) {
                    // It blocks nothing and is not a lease, but should be reported.
                    Ok(stat) if stat.kind != FileKind::File => drop::<bool>(strays.insert(file)),
                    _ => {}
                }
                continue;
            }
            // Its holder's lease has all the information.
            if is_reservation(text) {
                continue;
            }
            if is_key_object(text) {
                let Ok(stat) = dir.stat(&file) else { continue };
                if stat.kind == FileKind::Dir {
                    strays.insert(file);
                    continue;
                }
                self.found.bytes += stat.len;
                self.found.objects.extend(ObjectName::parse(text));
                continue;
            }
            match family_of(text) {
                Some((number, finished)) => {
                    if let Ok(stat) = dir.stat(&file) {
                        self.found.bytes += stat.len;
                        let change = format!("{number} {} {}", stat.len, stat.ctime_ns);
                        self.found.changes.extend(finished.then_some(change));
                        let stamp = (number.into(), stat.len, stat.ctime_ns);
                        self.found.stamps.extend(finished.then_some(stamp));
                    }
                    *self
                        .families
                        .entry((index, name.to_owned(), number))
                        .or_default() |= finished;
                }
                None => {
                    strays.insert(file);
                }
            }
        }
        self.found
            .holders
            .extend(lease::holders(dir, None, now_ns)?);
        Ok(strays)
    }
}

/// Removes a backup's directory. Unknown names are left, and the directory with them. Key objects go last: a stripe that cannot be
/// removed keeps them.
fn clear(dir: &dyn Dir, name: &Path) -> io::Result<()> {
    let below = dir.dir(name)?;
    let mut strange = false;
    let mut objects = Vec::new();
    let remove = |file: &Path| match below.remove_file(file) {
        // A lease that ended just now.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    let is_dir = |file: &Path| {
        let stat = below.stat(file);
        stat.is_ok_and(|stat| stat.kind == FileKind::Dir)
    };
    for file in below.list()? {
        let file = PathBuf::from(file?);
        let text = file.to_str().unwrap_or("");
        if family_of(text).is_some() || is_reservation(text) || text.starts_with(lease::PREFIX) {
            remove(&file)?;
        } else if is_key_object(text) && !is_dir(&file) {
            objects.push(file);
        } else {
            strange = true;
        }
    }
    objects.iter().try_for_each(|file| remove(file))?;
    if strange {
        return Ok(());
    }
    dir.remove_dir(name)?;
    dir.sync(Path::new(""))
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{Host, HostClock};

    #[test]
    fn a_borrower_who_comes_between_the_decision_and_the_rename_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let label: Label = "20270131T020000Z-full-1a2b3c4d".parse().unwrap();
        let directories: Vec<PathBuf> = ["a", "b"].iter().map(|d| temp.path().join(d)).collect();
        for dir in &directories {
            std::fs::create_dir_all(dir.join("db").join(label.as_str())).unwrap();
        }
        let place = Directories {
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
            target: "t".into(),
            directories: directories.clone(),
            database: "db".into(),
        };
        let locked = place.lock().unwrap().unwrap();
        let home = directories[0].join("db").join(label.as_str());
        let dir = Host::new().dir(&home).unwrap();
        let lease = Lease::take(dir, Use::Read, &HostClock).unwrap();
        let removal = locked.remove(&label).unwrap();
        assert!(matches!(removal, Removal::InUse(h) if h.starts_with("read by process")));
        for dir in &directories {
            assert!(dir.join("db").join(label.as_str()).exists());
        }
        drop(lease);
        assert_eq!(locked.remove(&label).unwrap(), Removal::Done);
        drop(locked);
        for dir in &directories {
            assert_eq!(std::fs::read_dir(dir.join("db")).unwrap().count(), 0);
        }
    }
}
