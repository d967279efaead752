//! A shelf: the backups of one database at a target.
//!
//! Everything is read from the directories and the media themselves; there is no index that could be wrong.
//! [`MediaSet`] decides which stripes belong together, and whether a set is complete.
//!
//! Invariants
//! - A backup has a live lease in its directory, in the target's first one, before its first byte is written.
//! - A reader of a backup holds a lease there before the first stripe is opened. A program that removes the backup
//!   renames it first and checks for leases afterwards: one of the two notices the other.
//! - A set whose directory has the suffix `.removing` in any of the target's directories no longer counts as a backup.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Clock, Dir, FileKind, Storage};
use longshore_media::{
    BackupDevice, BackupType, DeviceSpec, Error as MediaError, MediaSet, SetHeader, SetTrailer,
};

use longshore_pg::{Earlier, Lsn, Recovery};
use longshore_wal::proof::Reach;
use longshore_wal::{self as wal, LogRange, WalArchive};
use uuid::Uuid;

use crate::Error;
use crate::branch::{self, Branch};
use crate::chain::{Health, SetFacts, chain};
use crate::identity::Identity;
use crate::label::{BackupKind, Label};
use crate::lease::{self, Holder, Lease, Use};
use crate::recover::{self, RestoreStart, SkippedBackup};
use crate::target::{
    self, MARK, PENDING, REMOVING, Target, WAL, family_name, family_of, is_reservation,
};

/// The backups of one database at a target.
#[derive(Debug, Clone)]
pub struct Shelf {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub target: Target,
    pub database: String,
    /// The WAL archive of the database; `None`: next to its backups.
    pub archive: Option<PathBuf>,
}

/// The state of one backup.
#[derive(Debug)]
pub enum BackupState {
    Complete(Box<Complete>),
    Writing {
        by: String,
    },
    /// Begun, never completed, and no program is writing it.
    Abandoned,
    /// Stripes are not in their place.
    Missing {
        families: Vec<u16>,
        count: u16,
        /// Where they were written, if the target still has the same directories.
        expected: Vec<PathBuf>,
    },
    Damaged {
        what: String,
    },
    /// Stripes of several sets under one label, of another database, or of a set that already has a label.
    Foreign {
        what: String,
    },
    /// Written by a newer version, or unreachable now.
    Unknown {
        what: String,
    },
    Removing,
}

/// A backup that is whole according to its headers and trailers.
#[derive(Debug)]
pub struct Complete {
    pub header: SetHeader,
    pub trailer: SetTrailer,
    pub stored_bytes: u64,
}

/// One backup on a shelf.
#[derive(Debug)]
pub struct BackupEntry {
    pub label: Label,
    pub state: BackupState,
    /// The existing stripes, by path.
    pub devices: Vec<DeviceSpec>,
    /// Bytes of everything under the label.
    pub bytes: u64,
    /// Programs that read it now.
    pub readers: Vec<Holder>,
}

/// Everything on a shelf.
#[derive(Debug, Default)]
pub struct Listing {
    /// Sorted by time; labels alone would not decide for backups of one second.
    pub sets: Vec<BackupEntry>,
    /// Unknown names. Nothing changes them.
    pub strays: Vec<PathBuf>,
}

impl Listing {
    /// The facts for chains and retention.
    pub fn facts(&self) -> Vec<SetFacts> {
        self.sets.iter().map(BackupEntry::facts).collect()
    }

    /// The branches that the backups form.
    pub fn branches(&self) -> Vec<Branch> {
        branch::branches(&self.facts())
    }

    /// The complete backups with which a new one is compared, the newest last.
    pub fn earlier(&self) -> Vec<Earlier> {
        let earlier = |set: &BackupEntry| {
            let complete = set.complete()?;
            branch::earlier(&complete.header, &complete.trailer)
        };
        let mut all: Vec<Earlier> = self.sets.iter().filter_map(earlier).collect();
        all.sort_by_key(|earlier| earlier.end.1);
        all
    }
}

impl BackupEntry {
    pub fn complete(&self) -> Option<&Complete> {
        match &self.state {
            BackupState::Complete(complete) => Some(complete),
            _ => None,
        }
    }

    /// The start, as exactly as it is known.
    fn start_us(&self) -> i64 {
        self.complete()
            .map_or(self.label.begun_us(), |c| c.header.start_us)
    }

    pub fn facts(&self) -> SetFacts {
        let begun_us = self.label.begun_us();
        let mut facts = SetFacts {
            label: self.label.clone(),
            health: match &self.state {
                BackupState::Complete(c) => Health::Whole {
                    clean: !c.trailer.damaged,
                },
                BackupState::Writing { .. } => Health::Writing,
                BackupState::Abandoned => Health::Abandoned,
                BackupState::Missing { .. } => Health::Missing,
                BackupState::Damaged { .. } => Health::Broken,
                BackupState::Foreign { .. } => Health::Foreign,
                BackupState::Unknown { .. } => Health::Unknown,
                BackupState::Removing => Health::Removing,
            },
            kind: self.label.kind(),
            id: None,
            parent: None,
            copy_only: false,
            start_us: begun_us,
            finish_us: begun_us,
            expires_us: None,
            log: None,
            identity: Identity::default(),
            in_use: !self.readers.is_empty(),
        };
        if let BackupState::Complete(complete) = &self.state {
            let (header, trailer) = (&complete.header, &complete.trailer);
            facts.kind = match header.backup_type {
                // No berth is made for a log set: it depends on no other set, like a full backup.
                BackupType::Database | BackupType::Log => BackupKind::Full,
                BackupType::Differential => BackupKind::Differential,
            };
            facts.id = Some(header.set);
            facts.parent = header.parent;
            facts.copy_only = header.copy_only;
            facts.start_us = header.start_us;
            facts.finish_us = trailer.finish_us;
            facts.expires_us = header.expires_us;
            facts.identity = Identity::of(header);
            facts.log = (header.log.system != 0).then_some(LogRange {
                system: header.log.system,
                first_timeline: header.log.timeline,
                first_lsn: header.log.first_lsn,
                last_timeline: trailer.log.timeline,
                last_lsn: trailer.log.last_lsn,
            });
        }
        facts
    }
}

/// The place of a new backup. Held until the backup ends.
#[derive(Debug)]
pub struct NewBackup {
    pub label: Label,
    /// One for each directory of the target, in order.
    pub devices: Vec<DeviceSpec>,
    /// The database's directory below each of the target's, opened before the label was made, so that its file system
    /// cannot be unmounted.
    homes: Vec<Arc<dyn Dir>>,
    /// Released by the drop, before the directories are removed.
    lease: Option<Lease>,
}

impl Drop for NewBackup {
    /// Removes the directories in which no stripe was left.
    fn drop(&mut self) {
        self.lease = None;
        for home in &self.homes {
            // Fails if there is a stripe in it: then the backup succeeded, or left something to inspect.
            let _kept = home.remove_dir(Path::new(self.label.as_str()));
        }
    }
}

/// A backup that is being read, with all backups it needs. No expire removes them while this is held.
#[derive(Debug)]
pub struct BackupLease {
    pub label: Label,
    pub devices: Vec<DeviceSpec>,
    /// The chain below it: parent first, full backup last.
    pub parents: Vec<(Label, Vec<DeviceSpec>)>,
    pub facts: SetFacts,
    /// Whether it holds the WAL that makes it consistent.
    pub log_included: bool,
    /// Newer backups that a recovery skipped.
    pub passed: Vec<SkippedBackup>,
    /// The WAL that a recovery from it needs.
    pub reach: Reach,
    /// Why part of it is not protected by a lease.
    pub unprotected: Option<String>,
    _leases: Vec<Lease>,
}

impl Shelf {
    /// Errors: [`Error::Name`].
    pub fn new(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        target: &Target,
        database: &str,
    ) -> Result<Shelf, Error> {
        if let Some(what) = target::bad_name(database) {
            return Err(Error::Name {
                target: target.name.clone(),
                name: database.to_owned(),
                what,
            });
        }
        Ok(Shelf {
            storage,
            clock,
            target: target.clone(),
            database: database.to_owned(),
            archive: None,
        })
    }

    /// The storage of all files here.
    pub fn storage(&self) -> Arc<dyn Storage> {
        self.storage.clone()
    }

    /// The database's directory below the target's directory with this index.
    pub fn path(&self, index: usize) -> PathBuf {
        self.target.directories[index].join(&self.database)
    }

    /// The directory of the database's WAL.
    pub fn wal_path(&self) -> PathBuf {
        let beside = || self.path(0).join(WAL);
        self.archive.clone().unwrap_or_else(beside)
    }

    /// The database's WAL archive; `None` if nothing was ever archived.
    pub fn wal(&self) -> Result<Option<WalArchive>, Error> {
        let opened = match &self.archive {
            Some(path) => WalArchive::existing(&*self.storage, path),
            None => {
                let base = self.target.directories.first().cloned();
                let below = Path::new(&self.database).join(WAL);
                WalArchive::existing_below(&*self.storage, &base.unwrap_or_default(), &below)
            }
        };
        match opened {
            Ok(archive) => Ok(Some(archive)),
            Err(wal::Error::NotAnArchive { .. } | wal::Error::NothingYet { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn io(
        &self,
        action: &'static str,
        path: &Path,
    ) -> impl Fn(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::Io {
            action,
            path: path.clone(),
            source,
        }
    }

    /// The database's directory below each of the target's, if it exists.
    pub(crate) fn dirs(&self) -> Result<Vec<Option<Arc<dyn Dir>>>, Error> {
        let below = |path: &PathBuf| {
            let dir = self.target.directory(&*self.storage, path)?;
            match dir.dir(Path::new(&self.database)) {
                Ok(dir) => Ok(Some(dir)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(self.unopened(&*dir, path.join(&self.database), e)),
            }
        };
        self.target.directories.iter().map(below).collect()
    }

    /// Reads the shelf. Errors: a directory of the target that cannot be read; a problem with a single backup is its
    /// [`BackupState`].
    pub fn list(&self) -> Result<Listing, Error> {
        self.list_at(self.clock.wall_ns())
    }

    /// `now_ns`: the file system's time, by which leases are judged.
    pub(crate) fn list_at(&self, now_ns: i64) -> Result<Listing, Error> {
        let dirs = self.dirs()?;
        let mut found: BTreeMap<Label, LabelFiles> = BTreeMap::new();
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
                        let found = found.entry(label).or_default();
                        found.removing |= removing;
                        let below = dir.dir(Path::new(&name));
                        match below.and_then(|below| found.look(i, text, &*below, now_ns)) {
                            Ok(strange) => {
                                strays.extend(
                                    strange.iter().map(|s| self.path(i).join(&name).join(s)),
                                );
                            }
                            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                            Err(e) => {
                                found.unreadable =
                                    Some(format!("{}: {e}", self.path(i).join(&name).display()))
                            }
                        }
                    }
                    Err(_) if text == WAL || text.starts_with(lease::PREFIX) => {}
                    Err(_) if text.starts_with(MARK) => {}
                    Err(_) => strays.push(self.path(i).join(&name)),
                }
            }
        }
        strays.sort();
        let mut sets: Vec<BackupEntry> = found
            .into_iter()
            .map(|(label, found)| self.judge(label, found, now_ns))
            .collect();
        sets.sort_by_key(|s| (s.label.begun_us(), s.start_us(), s.label.clone()));
        tell_copies(&mut sets);
        Ok(Listing { sets, strays })
    }

    fn judge(&self, label: Label, found: LabelFiles, now_ns: i64) -> BackupEntry {
        let path = |(i, dir, n): &(usize, String, u16)| {
            DeviceSpec::File(self.path(*i).join(dir).join(family_name(*n)))
        };
        let devices: Vec<DeviceSpec> = found.families.keys().map(path).collect();
        let (writers, readers): (Vec<_>, Vec<_>) = found
            .holders
            .into_iter()
            .partition(|h| h.what == Some(Use::Backup));
        let any_finished = found.families.values().any(|finished| *finished);
        let state = if found.removing {
            BackupState::Removing
        } else if let Some(writer) = writers.first() {
            BackupState::Writing { by: writer.text() }
        } else if let Some(what) = found.unreadable {
            BackupState::Unknown { what }
        } else if devices.is_empty() {
            BackupState::Abandoned
        } else {
            let opened: Vec<Arc<dyn BackupDevice>> =
                devices.iter().map(|d| d.open(&self.storage)).collect();
            match self.state(&opened, any_finished) {
                BackupState::Abandoned => match self.locked(&devices, now_ns) {
                    Some(by) => BackupState::Writing { by },
                    None => BackupState::Abandoned,
                },
                BackupState::Missing {
                    families, count, ..
                } => self.missing(&label, families, count),
                state => state,
            }
        };
        BackupEntry {
            label,
            state,
            devices,
            bytes: found.bytes,
            readers,
        }
    }

    /// The program that writes to these stripes directly, without a lease. If a lock cannot be tested, the stripe's
    /// age decides, as for a lease.
    fn locked(&self, devices: &[DeviceSpec], now_ns: i64) -> Option<String> {
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
        let locked = devices.iter().any(is_locked);
        locked.then(|| "a command that named its stripes as devices".to_owned())
    }

    fn missing(&self, label: &Label, families: Vec<u16>, count: u16) -> BackupState {
        let place = |n: &u16| {
            let index = usize::from(*n) - 1;
            self.path(index).join(label.as_str()).join(family_name(*n))
        };
        let same = usize::from(count) == self.target.directories.len();
        let expected = families.iter().filter(|_| same).map(place).collect();
        BackupState::Missing {
            families,
            count,
            expected,
        }
    }

    /// The state according to the stripes themselves.
    fn state(&self, devices: &[Arc<dyn BackupDevice>], any_finished: bool) -> BackupState {
        let media = MediaSet::open(devices);
        let read = media.and_then(|media| {
            let set = media.set(0)?;
            let stored_bytes = media.stored_bytes()?.unwrap_or(0);
            Ok((set, stored_bytes))
        });
        match read {
            Ok((set, stored_bytes)) => match set.trailer {
                Some(_) if set.header.database != self.database => BackupState::Foreign {
                    what: format!("it is a backup of {:?}", set.header.database),
                },
                Some(trailer) => BackupState::Complete(Box::new(Complete {
                    header: set.header,
                    trailer,
                    stored_bytes,
                })),
                None => BackupState::Abandoned,
            },
            // Stripes get their names when everything is durable; until then a stripe may lack anything.
            Err(_) if !any_finished => BackupState::Abandoned,
            Err(error) => broken(error),
        }
    }

    /// Makes a place for a new backup. `begun_us` is the time in its label.
    ///
    /// Errors: [`Error::Unreachable`]; [`Error::NotADirectory`]; [`Error::Io`].
    pub fn begin(&self, kind: BackupKind, begun_us: i64) -> Result<NewBackup, Error> {
        // All of them first: no directory may be filled while another one is not mounted. From here on everything is
        // created below open directories. By its path, a directory that is unmounted now would be created again on the
        // disk below its mount point.
        let open = |path: &PathBuf| self.target.directory(&*self.storage, path);
        let directories = self.target.directories.iter().map(open);
        let directories: Vec<Arc<dyn Dir>> = directories.collect::<Result<_, _>>()?;
        let homes = directories.iter().enumerate();
        let homes = homes.map(|(i, directory)| self.home(i, &**directory));
        let homes: Vec<Arc<dyn Dir>> = homes.collect::<Result<_, _>>()?;
        let Some(first) = homes.first() else {
            return Err(self.io("create", Path::new(""))(
                io::ErrorKind::NotFound.into(),
            ));
        };
        let (label, lease) = self.claim(&**first, kind, begun_us)?;
        let mut berth = NewBackup {
            label,
            devices: Vec::new(),
            homes,
            lease: Some(lease),
        };
        let name = PathBuf::from(berth.label.as_str());
        for (i, home) in berth.homes.iter().enumerate() {
            let path = self.path(i).join(&name);
            if i > 0 {
                home.create_dir(&name)
                    .and_then(|()| home.sync(Path::new("")))
                    .map_err(self.io("create", &path))?;
            }
            let file = path.join(family_name(i as u16 + 1));
            berth.devices.push(DeviceSpec::File(file));
        }
        Ok(berth)
    }

    /// The database's directory in an open one of the target's, created if missing.
    fn home(&self, index: usize, directory: &dyn Dir) -> Result<Arc<dyn Dir>, Error> {
        let (name, path) = (Path::new(&self.database), self.path(index));
        // Whoever made it before may have been killed before the name was durable.
        match directory.create_shared_dir(name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
        .and_then(|()| directory.sync(Path::new("")))
        .map_err(self.io("create", &path))?;
        let opened = directory.dir(name);
        opened.map_err(|e| self.unopened(directory, path, e))
    }

    /// The error for a database's directory at `path`, in an open one of the target's, that cannot be opened.
    fn unopened(&self, directory: &dyn Dir, path: PathBuf, error: io::Error) -> Error {
        match directory.stat(Path::new(&self.database)) {
            Ok(found) if found.kind != FileKind::Dir => Error::NotADirectory {
                target: self.target.name.clone(),
                path,
            },
            _ => self.io("open", &path)(error),
        }
    }

    /// A unique label, and the lease that claims it.
    fn claim(
        &self,
        dir: &dyn Dir,
        kind: BackupKind,
        begun_us: i64,
    ) -> Result<(Label, Lease), Error> {
        let cannot = self.io("create", &self.path(0));
        loop {
            let label = Label::new(begun_us, kind);
            let name = Path::new(label.as_str());
            match dir.create_dir(name) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made.and_then(|()| dir.sync(Path::new("")))
                        .map_err(&cannot)?;
                    let lease = dir
                        .dir(name)
                        .and_then(|dir| Lease::take(dir, Use::Backup, &*self.clock));
                    return Ok((label, lease.map_err(&cannot)?));
                }
            }
        }
    }

    /// The backup with this label, or the latest that can be restored, protected against removal with all backups it
    /// needs.
    ///
    /// Errors: [`Error::Nothing`], [`Error::NoSuchLabel`], [`Error::NotWhole`], [`Error::Chain`]. A latest backup that
    /// is broken is skipped only if it was never completed; otherwise it is reported.
    pub fn lease(&self, label: Option<&str>) -> Result<BackupLease, Error> {
        let listing = self.list()?;
        let index = self.choose(&listing, label)?;
        let last = listing.sets[index].facts().log.map_or(0, |l| l.last_lsn);
        let choice = RestoreStart {
            index,
            passed: Vec::new(),
            reach: Reach::of(None, Lsn(last)),
        };
        self.take_lease(&listing, choice)
    }

    /// The backup with which a recovery begins ([`recover::choose`]), or the one with this label if it is suitable,
    /// protected as by [`Shelf::lease`].
    ///
    /// Errors: [`Error::NoneBefore`], [`Error::NoSuchLabel`].
    pub fn lease_for(
        &self,
        label: Option<&str>,
        recovery: &Recovery,
        archive: Option<&WalArchive>,
    ) -> Result<BackupLease, Error> {
        let listing = self.list()?;
        if let Some(label) = label
            && !listing.sets.iter().any(|s| s.label.as_str() == label)
        {
            return Err(self.no_such(label));
        }
        let state = |i: usize| listing.sets[i].state.text();
        let facts = listing.facts();
        let choice = recover::choose(&facts, state, label, recovery, archive);
        let choice = choice.map_err(|none| match none.several {
            true => self.several(&facts, &branch::branches(&facts)),
            false => Error::NoneBefore {
                target: self.target.name.clone(),
                database: self.database.clone(),
                wish: recover::target_text(recovery.target.as_ref()),
                passed_over: none.passed,
                later: none.later,
            },
        })?;
        self.take_lease(&listing, choice)
    }

    fn take_lease(&self, listing: &Listing, choice: RestoreStart) -> Result<BackupLease, Error> {
        let chosen = choice.index;
        let set = &listing.sets[chosen];
        let mut loan = BackupLease {
            label: set.label.clone(),
            devices: Vec::new(),
            parents: Vec::new(),
            facts: set.facts(),
            log_included: set.complete().is_some_and(|c| c.trailer.log.included),
            passed: choice.passed,
            reach: choice.reach,
            unprotected: None,
            _leases: Vec::new(),
        };
        let links = chain(&listing.facts(), chosen)?;
        for i in &links {
            match self.lease_on(&listing.sets[*i].label) {
                Ok(lease) => loan._leases.push(lease),
                // Media on a read-only mount can be read; whether other hosts can write there is unknown.
                Err(Error::Io { source, .. }) if is_read_only(&source) => {
                    loan.unprotected = Some(source.to_string());
                }
                Err(e) => return Err(e),
            }
        }
        // Backups that were listed before the leases were taken may be gone by now.
        let again = self.list()?;
        for i in links {
            let label = &listing.sets[i].label;
            let set = again.sets.iter().find(|s| s.label == *label);
            let set = set.filter(|s| s.complete().is_some());
            let set = set.ok_or_else(|| self.no_such(label.as_str()))?;
            match i == chosen {
                true => loan.devices = set.devices.clone(),
                false => loan.parents.push((set.label.clone(), set.devices.clone())),
            }
        }
        Ok(loan)
    }

    fn lease_on(&self, label: &Label) -> Result<Lease, Error> {
        // A media set made when the target had other directories may not be in the first one.
        let lies_in = |i: &usize| {
            self.storage
                .stat(&self.path(*i).join(label.as_str()))
                .is_ok()
        };
        let home = (0..self.target.directories.len())
            .find(lies_in)
            .unwrap_or(0);
        let path = self.path(home).join(label.as_str());
        let dir = self.storage.dir(&path);
        dir.and_then(|dir| Lease::take(dir, Use::Read, &*self.clock))
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => self.no_such(label.as_str()),
                _ => self.io("protect", &path)(e),
            })
    }

    fn no_such(&self, label: &str) -> Error {
        Error::NoSuchLabel {
            target: self.target.name.clone(),
            database: self.database.clone(),
            label: label.to_owned(),
        }
    }

    fn choose(&self, listing: &Listing, label: Option<&str>) -> Result<usize, Error> {
        if let Some(label) = label {
            let found = listing.sets.iter().position(|s| s.label.as_str() == label);
            let i = found.ok_or_else(|| self.no_such(label))?;
            return self.usable(listing, i).map(|()| i);
        }
        // A set that was never a backup cannot be the latest one; a backup that is broken must be reported, not
        // skipped.
        let Some(latest) = listing.sets.iter().rposition(was_backup) else {
            return Err(Error::Nothing {
                target: self.target.name.clone(),
                database: self.database.clone(),
            });
        };
        let facts = listing.facts();
        let branches = branch::branches(&facts);
        // A set that cannot be read has no known LSN: only its label shows whether it is the latest.
        let latest = match self.living(&facts, &branches)? {
            Some(branch) if listing.sets[latest].complete().is_some() => branch.tip(),
            Some(branch) => {
                // The listing is sorted by label.
                if latest > branch.tip() {
                    latest
                } else {
                    branch.tip()
                }
            }
            None => latest,
        };
        self.usable(listing, latest).map(|()| latest)
    }

    /// The branch that is meant if none is named; `None` if no backup is whole.
    ///
    /// Errors: [`Error::Branches`].
    fn living<'a>(
        &self,
        facts: &[SetFacts],
        branches: &'a [Branch],
    ) -> Result<Option<&'a Branch>, Error> {
        match branch::living(branches).as_slice() {
            [] => Ok(branches.first()),
            [one] => Ok(Some(&branches[*one])),
            living => {
                let archive = self.wal().ok().flatten();
                let held = archive.map(|archive| recover::held(facts, branches, &archive));
                match archived(facts, branches, living, &held.unwrap_or_default()) {
                    Some(one) => Ok(Some(&branches[one])),
                    None => Err(self.several(facts, branches)),
                }
            }
        }
    }

    fn several(&self, facts: &[SetFacts], branches: &[Branch]) -> Error {
        Error::Branches {
            target: self.target.name.clone(),
            database: self.database.clone(),
            branches: branches.iter().map(|b| branch::text(facts, b)).collect(),
        }
    }

    /// The newest backup before `label` on its branch that looks whole, is not marked, and has all backups it needs;
    /// with `None`, the newest before the latest one. Whether its blocks are readable shows only when they are read.
    pub fn sound_before(&self, label: Option<&str>) -> Result<Option<Label>, Error> {
        let listing = self.list()?;
        let facts = listing.facts();
        let end = match label {
            Some(label) => listing.sets.iter().position(|s| s.label.as_str() == label),
            None => self
                .choose(&listing, None)
                .ok()
                .or_else(|| listing.sets.iter().rposition(was_backup)),
        };
        let Some(end) = end else {
            return Ok(None);
        };
        let branches = branch::branches(&facts);
        let own = branches.iter().find(|b| b.sets.contains(&end));
        let before: Vec<usize> = match (own, branch::living(&branches).as_slice()) {
            (Some(own), _) => own.sets.iter().copied().take_while(|i| *i != end).collect(),
            // It cannot be read, so its branch is unknown.
            (None, [one]) => {
                let sets = branches[*one].sets.iter().copied();
                sets.filter(|i| facts[*i].start_us < facts[end].start_us)
                    .collect()
            }
            (None, _) => Vec::new(),
        };
        let is_sound = |i: &usize| {
            let complete = listing.sets[*i].complete();
            complete.is_some_and(|c| !c.trailer.damaged) && chain(&facts, *i).is_ok()
        };
        let found = before.into_iter().rev().find(is_sound);
        Ok(found.map(|i| listing.sets[i].label.clone()))
    }

    fn usable(&self, listing: &Listing, index: usize) -> Result<(), Error> {
        let set = &listing.sets[index];
        match &set.state {
            BackupState::Complete(_) => Ok(chain(&listing.facts(), index).map(drop)?),
            state => Err(Error::NotWhole {
                database: self.database.clone(),
                label: set.label.to_string(),
                what: state.text(),
                number: state.number(),
            }),
        }
    }
}

/// The branch among these whose WAL is archived; `held`: the branches of which the archive holds some WAL. An archive
/// shows which branch of its own cluster continues, and nothing about another cluster or a source without WAL.
fn archived(
    facts: &[SetFacts],
    branches: &[Branch],
    living: &[usize],
    held: &[usize],
) -> Option<usize> {
    let system = branches[*living.first()?].system?;
    if living.iter().any(|i| branches[*i].system != Some(system)) {
        return None;
    }
    let held = living.iter().copied().filter(|i| held.contains(i));
    // An archive has only one timeline with each number: the latest one is the one that a server continues.
    let timeline = |i: usize| facts[branches[i].tip()].log.map(|l| l.last_timeline);
    let latest = held.clone().map(timeline).max();
    let on_latest: Vec<usize> = held.filter(|i| Some(timeline(*i)) == latest).collect();
    match on_latest.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// Whether it was whole once.
fn was_backup(set: &BackupEntry) -> bool {
    !matches!(
        set.state,
        BackupState::Writing { .. } | BackupState::Abandoned | BackupState::Removing
    )
}

impl BackupState {
    /// One line for messages.
    pub fn text(&self) -> String {
        match self {
            BackupState::Complete(c) if c.trailer.damaged => {
                "complete; marked: made from files that changed, or from damaged ones".into()
            }
            BackupState::Complete(_) => "complete".into(),
            BackupState::Writing { by } => format!("being written: {by}"),
            BackupState::Abandoned => "incomplete: the backup ended before it was complete".into(),
            BackupState::Missing {
                families,
                count,
                expected,
            } => {
                let missing: Vec<_> = families.iter().map(u16::to_string).collect();
                let expected = expected
                    .iter()
                    .map(|p| format!("; expected: {}", p.display()));
                let expected: String = expected.collect();
                format!(
                    "family {} of {count} is missing{expected}",
                    missing.join(", ")
                )
            }
            BackupState::Damaged { what } => format!("damaged: {what}"),
            BackupState::Foreign { what } => format!("foreign: {what}"),
            BackupState::Unknown { what } => format!("cannot be judged: {what}"),
            BackupState::Removing => "being removed".into(),
        }
    }

    /// SQL Server's message number for a restore that finds this state.
    fn number(&self) -> Option<u32> {
        match self {
            BackupState::Complete(_) | BackupState::Unknown { .. } => None,
            BackupState::Writing { .. } | BackupState::Abandoned | BackupState::Removing => {
                Some(3256)
            }
            BackupState::Missing { .. } => Some(3132),
            BackupState::Damaged { .. } => Some(3189),
            BackupState::Foreign { .. } => Some(3258),
        }
    }

    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            BackupState::Complete(c) if c.trailer.damaged => "marked",
            BackupState::Complete(_) => "complete",
            BackupState::Writing { .. } => "writing",
            BackupState::Abandoned => "INCOMPLETE",
            BackupState::Missing { .. } => "MISSING",
            BackupState::Damaged { .. } => "DAMAGED",
            BackupState::Foreign { .. } => "foreign",
            BackupState::Unknown { .. } => "unknown",
            BackupState::Removing => "removing",
        }
    }
}

/// One set under several labels is one backup, however it was copied: it counts under the label whose time is nearest
/// to the set's own, and the others are named.
fn tell_copies(sets: &mut [BackupEntry]) {
    let mut first: HashMap<Uuid, usize> = HashMap::new();
    let off = |set: &BackupEntry| set.label.begun_us().abs_diff(set.start_us());
    for at in 0..sets.len() {
        let Some(id) = sets[at].complete().map(|c| c.header.set) else {
            continue;
        };
        let Some(other) = first.insert(id, at) else {
            continue;
        };
        let (original, copy) = match off(&sets[at]) < off(&sets[other]) {
            true => (at, other),
            false => (other, at),
        };
        first.insert(id, original);
        let what = format!(
            "it is a copy of {}, the same backup under another label: retention does not count it, and never removes it",
            sets[original].label
        );
        sets[copy].state = BackupState::Foreign { what };
    }
}

/// The files under one label, over all directories.
#[derive(Debug, Default)]
struct LabelFiles {
    /// By directory, name in it and family number: whether the stripe has its final name.
    families: BTreeMap<(usize, String, u16), bool>,
    removing: bool,
    holders: Vec<Holder>,
    bytes: u64,
    unreadable: Option<String>,
}

impl LabelFiles {
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
            match family_of(text) {
                Some((number, finished)) => {
                    self.bytes += dir.stat(&file).map_or(0, |s| s.len);
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
        self.holders.extend(lease::holders(dir, None, now_ns)?);
        Ok(strays)
    }
}

/// Why a backup that once had its names cannot be used now.
fn broken(error: MediaError) -> BackupState {
    match error {
        MediaError::FamilyMissing { missing, count, .. } => BackupState::Missing {
            families: missing,
            count,
            expected: Vec::new(),
        },
        MediaError::Foreign { .. }
        | MediaError::FamilyTwice { .. }
        | MediaError::FamilyCount { .. } => BackupState::Foreign {
            what: error.to_string(),
        },
        MediaError::Missing { .. }
        | MediaError::Empty { .. }
        | MediaError::NotMedia { .. }
        | MediaError::Damaged { .. }
        | MediaError::TrailerDamaged { .. }
        | MediaError::BlockDamaged { .. }
        | MediaError::SetDamaged { .. }
        | MediaError::Incomplete { .. }
        | MediaError::NoSuchSet { .. } => BackupState::Damaged {
            what: error.to_string(),
        },
        MediaError::Newer { .. }
        | MediaError::Io { .. }
        | MediaError::ContainerMix { .. }
        | MediaError::Busy { .. }
        | MediaError::Exists { .. }
        | MediaError::NotExpired { .. }
        | MediaError::MediaName { .. }
        | MediaError::DeviceCount { .. }
        | MediaError::DeviceClass { .. }
        | MediaError::DeviceTwice { .. }
        | MediaError::Cancelled { .. }
        | MediaError::Bucket(_)
        | MediaError::Full { .. }
        | MediaError::Unsupported { .. } => BackupState::Unknown {
            what: error.to_string(),
        },
    }
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
    use crate::chain::tests::*;
    use longshore_io::{Fault, HostClock, Op, OpenHow, SimDisk};

    /// Goal: a user whose database shares a name with a cluster is asked, and does not get the cluster.
    #[test]
    fn an_archive_decides_among_branches_of_its_own_cluster_alone() {
        let server = |at, home| branch::tests::of_server(at, 10 * at as u64, home);
        let one_of = |sets: &[SetFacts], held: &[usize]| {
            let branches = branch::branches(sets);
            let living = branch::living(&branches);
            assert_eq!(living.len(), 2);
            let held: Vec<usize> = living
                .iter()
                .copied()
                .filter(|i| held.contains(&branches[*i].tip()))
                .collect();
            archived(sets, &branches, &living, &held).map(|one| branches[one].tip())
        };
        let copies = [server(1, 1), server(2, 2)];
        assert_eq!(one_of(&copies, &[1]), Some(1));
        assert_eq!(one_of(&copies, &[]), None);
        assert_eq!(one_of(&[server(1, 1), full(2)], &[0]), None);
        let mut other = server(2, 2);
        other.log.as_mut().unwrap().system += 1;
        assert_eq!(one_of(&[server(1, 1), other], &[0]), None);
    }

    #[test]
    fn a_writer_is_known_where_locks_need_writing_and_by_age_where_none_can_be_asked() {
        let disk = SimDisk::new(1).set_locks_need_writing(true);
        let dir = Path::new("/t/db/20270131T020000Z-full-1a2b3c4d");
        let name = Path::new("family-1.bak.longshore-new");
        disk.write_file(dir.join(name), b"begun").unwrap();
        let target = Target {
            name: "t".into(),
            directories: vec!["/t".into()],
        };
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let shelf = Shelf::new(storage, Arc::new(HostClock), &target, "db").unwrap();
        let dir = disk.dir(dir).unwrap();
        let now = dir.stat(name).unwrap().mtime_ns;
        let late = now + longshore_io::STALE.as_nanos() as i64 + 1;
        let is_writing = |now_ns| {
            let listing = shelf.list_at(now_ns).unwrap();
            matches!(listing.sets[0].state, BackupState::Writing { .. })
        };
        let file = dir.open(name, OpenHow::ReadWrite).unwrap();
        assert!(file.try_lock().unwrap());
        assert!(is_writing(late));
        drop(file);
        assert!(!is_writing(now));
        const EACCES: i32 = 13;
        disk.inject(
            Fault::errno(EACCES)
                .on(Op::Open)
                .below("/t/db/20270131T020000Z-full-1a2b3c4d/family-1.bak.longshore-new"),
        );
        assert!(is_writing(now));
        assert!(!is_writing(late));
    }
}
