//! A shelf: the backups of one database at a target.
//!
//! Everything is read from the place and the media themselves; there is no index that could be wrong.
//! [`MediaSet`] decides which stripes belong together, and whether a set is complete.
//!
//! Where they lie, and how leases and removals keep out of each other's way there, is a [`Place`]'s.
//!
//! Invariants
//! - A reader leases every set of a chain before it looks at them again, and reads what it saw then.
//! - A set whose removal has begun no longer counts as a backup.
//! - A set of which only the label is left is told from one that was never complete, as far as anything shows it.
//!
//! Leaves to others: where the backups are, with leases and removals there (`place.rs`), and the rules
//! (`retention.rs`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_bucket::past_ns;
use longshore_io::{Clock, Storage, side_by_side};
use longshore_media::{
    BackupDevice, BackupType, DeviceSpec, Error as MediaError, Keyring, MediaSet, ObjectName,
};

use longshore_pg::{Earlier, Lsn, Recovery, recovery};
use longshore_wal::proof::Reach;
use longshore_wal::{self as wal, LogRange, WalArchive};
use uuid::Uuid;

use crate::Error;
use crate::branch::{self, Branch};
use crate::chain::{Health, SetFacts, chain};
use crate::identity::Identity;
use crate::label::{BackupKind, Label};
use crate::lease::{Holder, Use};
use crate::place::{Begun, Found, FoundRecord, Hold, LabelFiles, Place, Protection};
use crate::recover::{self, RestoreStart, SkippedBackup};
use crate::state::{BackupState, Complete, Shown, broken, strangers, writing};
use crate::target::{self, Target, WAL};

/// The backups of one database at a target.
#[derive(Debug, Clone)]
pub struct Shelf {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub target: Target,
    pub database: String,
    /// The WAL archive of the database; `None`: next to its backups.
    pub archive: Option<PathBuf>,
    /// Reads the WAL archive, if it is encrypted, and knows whose backups count.
    pub keyring: Arc<Keyring>,
    pub(crate) place: Arc<dyn Place>,
    /// Records of drills of copies of these backups elsewhere.
    pub(crate) heeded: Arc<[FoundRecord]>,
}

/// One backup on a shelf.
#[derive(Debug)]
pub struct BackupEntry {
    pub label: Label,
    pub state: BackupState,
    /// The existing stripes, by path.
    pub devices: Vec<DeviceSpec>,
    /// Whether nothing but the label is there, not even the lease of a run that was killed.
    pub is_bare: bool,
    /// The names of further copies of these stripes under the same label, which nobody reads.
    pub doubles: Vec<String>,
    /// The names of key objects next to them, also of those of other sets.
    pub objects: Vec<ObjectName>,
    /// Bytes of everything under the label.
    pub bytes: u64,
    /// Programs that read it now.
    pub readers: Vec<Holder>,
    /// Tells the existing stripes from all copies of them, and from what may have their names later.
    pub imprint: String,
    /// What of each existing stripe no copy has: family, length in bytes, and the last change in nanoseconds.
    pub stamps: Vec<(u32, u64, i64)>,
    /// The last result of a verification or a drill of these very stripes, if it found them not to be good, or of a drill of any
    /// copy, if it found the content not to be good: in words that follow the label.
    pub found_bad: Option<String>,
}

/// What a record names a backup by: its set, and the very stripes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetIdentity {
    pub label: Label,
    pub set: Uuid,
    pub imprint: String,
}

/// Everything on a shelf.
#[derive(Debug, Default)]
pub struct Listing {
    /// Sorted by time; labels alone would not decide for backups of one second.
    pub sets: Vec<BackupEntry>,
    /// Unknown names. Nothing changes them.
    pub strays: Vec<String>,
    /// When it was read, by the clock that judges leases.
    pub at_us: i64,
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

    /// Its identity; `None` if it is not whole.
    pub fn identity(&self) -> Option<SetIdentity> {
        Some(SetIdentity {
            label: self.label.clone(),
            set: self.complete()?.header.set,
            imprint: self.imprint.clone(),
        })
    }

    /// Its stripes that are lost or damaged, as far as headers and trailers tell which.
    pub fn families_lost(&self) -> u64 {
        match &self.state {
            BackupState::Complete(complete) => complete.faults.len() as u64,
            BackupState::Missing { families, .. } => families.len() as u64,
            _ => 0,
        }
    }

    /// The start, as exactly as it is known. A backup that cannot be read may be the last with its label's time.
    fn start_us(&self) -> i64 {
        match self.complete() {
            Some(complete) => complete.header.start_us,
            None if was_backup(self) => i64::MAX,
            None => self.label.begun_us(),
        }
    }

    /// Whether nothing shows what it was: the place of a run that ended with its machine, or a backup whose stripes are gone.
    pub fn is_bare_name(&self) -> bool {
        self.is_bare && matches!(self.state, BackupState::Abandoned)
    }

    /// Whether it is refused for its signature, or because it is not encrypted.
    pub fn is_strangers(&self) -> bool {
        matches!(
            self.state,
            BackupState::Foreign {
                is_strangers: true,
                ..
            }
        )
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
                BackupState::Missing { .. } | BackupState::Lost { .. } => Health::Missing,
                BackupState::Damaged { .. } => Health::Broken,
                // It may be the machine's own, of before the requirement, and others may need it and its WAL.
                BackupState::Foreign {
                    is_strangers: true, ..
                } => Health::Unknown,
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
            plain_bytes: 0,
            expires_us: None,
            log: None,
            identity: Identity::default(),
            in_use: !self.readers.is_empty(),
            is_degraded: self.complete().is_some_and(|c| !c.faults.is_empty()),
            found_bad: self.found_bad.is_some(),
            leads: false,
        };
        let shown = match &self.state {
            BackupState::Complete(complete) => Some((&complete.header, &complete.trailer)),
            BackupState::Foreign {
                shown: Some(shown), ..
            } => Some((&shown.header, &shown.trailer)),
            _ => None,
        };
        // It may count again, so what it needs is known of a foreign one, too.
        if let Some((header, trailer)) = shown {
            facts.id = Some(header.set);
            facts.parent = header.parent;
            facts.log = (header.log.system != 0).then_some(LogRange {
                system: header.log.system,
                first_timeline: header.log.timeline,
                first_lsn: header.log.first_lsn,
                last_timeline: trailer.log.timeline,
                last_lsn: trailer.log.last_lsn,
            });
        }
        if let BackupState::Complete(complete) = &self.state {
            let (header, trailer) = (&complete.header, &complete.trailer);
            facts.kind = match header.backup_type {
                // No place is begun for a log set: it depends on no other set, like a full backup.
                BackupType::Database | BackupType::Log => BackupKind::Full,
                BackupType::Differential => BackupKind::Differential,
            };
            facts.copy_only = header.copy_only;
            facts.start_us = header.start_us;
            facts.finish_us = trailer.finish_us;
            facts.plain_bytes = trailer.plain_bytes_total;
            facts.expires_us = header.expires_us;
            facts.identity = Identity::of(header);
        }
        facts
    }
}

/// The place of a new backup. Held until the backup ends.
#[derive(Debug)]
pub struct NewBackup {
    pub label: Label,
    /// One for each family, in order.
    pub devices: Vec<DeviceSpec>,
    hold: Box<dyn Hold>,
}

impl NewBackup {
    pub(crate) fn of(begun: Begun) -> NewBackup {
        NewBackup {
            label: begun.label,
            devices: begun.devices,
            hold: begun.hold,
        }
    }

    /// To be called when everything is written, before the backup is reported as done.
    ///
    /// Errors: the place was lost meanwhile, so others may have removed some of it.
    pub fn confirm(&self) -> Result<(), Error> {
        self.hold.confirm()
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
    /// All sets of the chain as they were when they were leased.
    pub identities: Vec<SetIdentity>,
    _holds: Vec<Box<dyn Hold>>,
}

impl BackupLease {
    /// Holds this, too, until reading ends.
    pub(crate) fn hold_too(&mut self, hold: Box<dyn Hold>) {
        self._holds.push(hold);
    }
}

/// How often is looked before a backup without stripes is called lost.
const REMOVAL_LOOKS: usize = 3;

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
        let place = target.place(&storage, &clock, database);
        Ok(Shelf {
            storage,
            clock,
            target: target.clone(),
            database: database.to_owned(),
            archive: None,
            keyring: Arc::default(),
            place,
            heeded: Arc::default(),
        })
    }

    /// The storage of all files here.
    pub fn storage(&self) -> Arc<dyn Storage> {
        self.storage.clone()
    }

    /// The directory of the database's WAL, or its address; `None` at a target without places.
    pub fn wal_path(&self) -> Option<PathBuf> {
        let beside = |first: PathBuf| first.join(&self.database).join(WAL);
        let own = self.archive.clone();
        own.or_else(|| self.target.first_place().map(beside))
    }

    /// [`Shelf::wal_path`], for a command that needs one.
    ///
    /// Errors: [`Error::NoArchive`].
    pub fn needed_wal_path(&self) -> Result<PathBuf, Error> {
        self.wal_path().ok_or_else(|| Error::NoArchive {
            target: self.target.name.clone(),
            database: self.database.clone(),
        })
    }

    /// Where the database's WAL is, if buckets are read as they were and this is none: nobody knows what it had then.
    pub fn present_wal(&self) -> Option<PathBuf> {
        let path = self.wal_path()?;
        (past_ns().is_some() && !wal::is_in_bucket(&path)).then_some(path)
    }

    /// The database's WAL archive; `None` if nothing was ever archived.
    ///
    /// Errors: [`Error::PresentArchive`].
    pub fn wal(&self) -> Result<Option<WalArchive>, Error> {
        if let Some(archive) = self.present_wal() {
            return Err(Error::PresentArchive { archive });
        }
        let opened = match (&self.archive, self.target.first_place()) {
            (Some(path), _) => WalArchive::existing(&*self.storage, path),
            (None, Some(base)) => {
                let below = Path::new(&self.database).join(WAL);
                WalArchive::existing_below(&*self.storage, &base, &below)
            }
            (None, None) => return Ok(None),
        };
        match opened {
            Ok(archive) => Ok(Some(archive.with_keyring(&self.keyring))),
            Err(wal::Error::NotAnArchive { .. } | wal::Error::NothingYet { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads the shelf. Errors: a directory of the target that cannot be read; a problem with a single backup is its
    /// [`BackupState`].
    pub fn list(&self) -> Result<Listing, Error> {
        self.listing(self.place.look()?)
    }

    /// The found labels, each with its verdict. Errors: the system refuses threads.
    pub(crate) fn listing(&self, found: Found) -> Result<Listing, Error> {
        let now_ns = found.now_ns;
        let labels: Vec<_> = found.labels.into_iter().map(Some).map(Mutex::new).collect();
        let next = AtomicUsize::new(0);
        let judge = |_| {
            let mut judged = Vec::new();
            while let Some(one) = labels.get(next.fetch_add(1, Ordering::Relaxed)) {
                let taken = one.lock().unwrap_or_else(PoisonError::into_inner).take();
                judged.extend(taken.map(|(label, files)| self.judge(label, files, now_ns)));
            }
            judged
        };
        let count = self.place.side_by_side().min(labels.len());
        let mut sets = match count {
            0 | 1 => judge(0),
            _ => {
                let judged = side_by_side(count, judge).map_err(|source| Error::Io {
                    action: "look into the backups at",
                    path: PathBuf::from(&self.target.name),
                    source,
                })?;
                judged.into_iter().flatten().collect()
            }
        };
        self.tell_lost(&mut sets);
        self.tell_bad(&mut sets);
        sets.sort_by_key(|s| (s.label.begun_us(), s.start_us(), s.label.clone()));
        tell_copies(&mut sets);
        Ok(Listing {
            sets,
            strays: found.strays,
            at_us: now_ns / 1000,
        })
    }

    /// Tells the labels without a stripe of which a record says that they had a complete backup.
    fn tell_lost(&self, sets: &mut [BackupEntry]) {
        let mut bare: Vec<&mut BackupEntry> =
            sets.iter_mut().filter(|set| set.is_bare_name()).collect();
        if bare.is_empty() {
            return;
        }
        // A removal that ended during the first look leaves a name in it, too.
        let looked = self
            .place
            .look()
            .and_then(|again| Ok((again, self.status()?)));
        let (again, status) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                for set in bare {
                    let what = format!("whether it was complete once cannot be read: {error}");
                    set.state = BackupState::Unknown { what };
                }
                return;
            }
        };
        for set in &mut bare {
            let files = again.labels.get(&set.label);
            let is_there = files.is_some_and(|files| !files.removing && files.stripes.is_empty());
            if let Some(read_us) = status.was_read_us(&set.label).filter(|_| is_there) {
                let what = format!("it was read on {}", recovery::time(read_us));
                set.state = BackupState::Lost { what };
            }
        }
    }

    /// Tells the backups of which the last result is bad. Records that cannot be read say nothing, and `check` names them.
    fn tell_bad(&self, sets: &mut [BackupEntry]) {
        if sets.iter().all(|set| set.complete().is_none()) {
            return;
        }
        let Ok(status) = self.judgements() else {
            return;
        };
        for set in sets {
            set.found_bad = status.bad(set);
        }
    }

    /// The backups under these labels, as they are now.
    ///
    /// Errors: the place cannot be read.
    pub(crate) fn listed(&self, labels: &[Label]) -> Result<Listing, Error> {
        let mut found = self.place.look()?;
        found.labels.retain(|label, _| labels.contains(label));
        self.listing(found)
    }

    /// Whether a backup that was listed was removed since, or is being removed: then it is none any longer. One of which
    /// anything else is left was not removed but lost.
    ///
    /// Errors: the place cannot be read.
    pub fn is_removed(&self, label: &Label) -> Result<bool, Error> {
        // A removal that ends during a look may leave the name alone in what that look found.
        for _ in 0..REMOVAL_LOOKS {
            let found = self.listed(std::slice::from_ref(label))?;
            match found.sets.first().map(|set| &set.state) {
                None | Some(BackupState::Removing) => return Ok(true),
                Some(BackupState::Abandoned | BackupState::Lost { .. }) => {}
                Some(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    fn judge(&self, label: Label, files: LabelFiles, now_ns: i64) -> BackupEntry {
        let (imprint, stamps) = (files.imprint(), files.stamps.clone());
        let is_bare = files.stripes.is_empty() && !files.has_lease;
        let (mut devices, mut doubles) = (files.stripes, Vec::new());
        let (writers, readers): (Vec<_>, Vec<_>) = files
            .holders
            .into_iter()
            .partition(|h| h.what == Some(Use::Backup));
        let state = if files.removing {
            BackupState::Removing
        } else if let Some(writer) = writers.first() {
            self.unfinished(writer, &devices, files.writers_ended)
        } else if let Some(what) = files.unreadable {
            BackupState::Unknown { what }
        } else if devices.is_empty() {
            match &files.ending {
                Some(writer) => writing(writer.text()),
                // A writer has a lease before it has any.
                None if is_bare && !files.objects.is_empty() => BackupState::Lost {
                    what: "its key objects are left".to_owned(),
                },
                None => BackupState::Abandoned,
            }
        } else {
            let opened: Vec<Arc<dyn BackupDevice>> =
                devices.iter().map(|d| d.open(&self.storage)).collect();
            let mut state = self.state(&opened, files.any_finished);
            if matches!(state, BackupState::Foreign { shown: None, .. })
                && let Some(found) = self.without_doubles(&label, &devices)
            {
                (state, devices, doubles) = found;
            }
            match state {
                BackupState::Abandoned => match files
                    .ending
                    .map(|writer| writer.text())
                    .or_else(|| self.place.writer(&devices, now_ns))
                {
                    Some(by) => writing(by),
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
            is_bare,
            doubles,
            bytes: files.bytes,
            readers,
            objects: files.objects.into_iter().collect(),
            imprint,
            stamps,
            found_bad: None,
        }
    }

    /// The state of a set whose writer's lease is alive. One that is whole is no less so because its writer was killed
    /// before it could say that.
    fn unfinished(&self, writer: &Holder, stripes: &[DeviceSpec], has_ended: bool) -> BackupState {
        if has_ended && !stripes.is_empty() {
            let opened: Vec<_> = stripes.iter().map(|d| d.open(&self.storage)).collect();
            if let state @ BackupState::Complete(_) = self.state(&opened, false) {
                return state;
            }
        }
        BackupState::Writing {
            by: writer.text(),
            has_ended,
        }
    }

    /// The state of a set of which stripes are there twice, as where one directory of a target was copied into another, with
    /// the stripes that are read and the names of the others. `None` if no stripe is, or if what the others show is not the same.
    fn without_doubles(
        &self,
        label: &Label,
        stripes: &[DeviceSpec],
    ) -> Option<(BackupState, Vec<DeviceSpec>, Vec<String>)> {
        let families = 1..=u16::try_from(self.target.count()).unwrap_or(u16::MAX);
        let homes: Vec<DeviceSpec> = families
            .filter_map(|family| self.place.device(label, family).ok())
            .collect();
        // Those at their own places are read, if they can choose.
        let (at_home, elsewhere): (Vec<_>, Vec<_>) =
            stripes.iter().partition(|stripe| homes.contains(stripe));
        let mut headers = Vec::new();
        let (mut read, mut doubles) = (Vec::new(), Vec::new());
        for stripe in at_home.into_iter().chain(elsewhere) {
            let header = MediaSet::label(&*stripe.open(&self.storage)).ok()?;
            match headers.iter().position(|known| *known == header) {
                Some(same) => doubles.push((same, stripe.clone())),
                None => {
                    headers.push(header);
                    read.push(stripe.clone());
                }
            }
        }
        let whole = |stripes: &[DeviceSpec]| {
            let opened: Vec<_> = stripes.iter().map(|d| d.open(&self.storage)).collect();
            match self.state(&opened, true) {
                BackupState::Complete(complete) => Some(complete),
                _ => None,
            }
        };
        if doubles.is_empty() {
            return None;
        }
        let complete = whole(&read)?;
        for (at, double) in &doubles {
            let mut other = read.clone();
            other[*at] = double.clone();
            let other = whole(&other)?;
            // Parity can stand for a damaged stripe, and then its double may be the better one.
            let is_same = complete.faults.is_empty()
                && other.faults.is_empty()
                && other.header == complete.header
                && other.trailer == complete.trailer
                && other.stored_bytes == complete.stored_bytes;
            if !is_same {
                return None;
            }
        }
        let name = |(_, double): &(usize, DeviceSpec)| double.open(&self.storage).name();
        let doubles = doubles.iter().map(name).collect();
        Some((BackupState::Complete(complete), read, doubles))
    }

    fn missing(&self, label: &Label, families: Vec<u16>, count: u16) -> BackupState {
        let same = usize::from(count) == self.target.count();
        let place = |n: &u16| self.place.stripe(label, *n);
        let expected = families.iter().filter(|_| same).map(place).collect();
        BackupState::Missing {
            families,
            count,
            expected,
        }
    }

    /// The state according to the stripes themselves.
    fn state(&self, devices: &[Arc<dyn BackupDevice>], any_finished: bool) -> BackupState {
        let signers = self.keyring.signers();
        let read = MediaSet::open(devices).and_then(|media| {
            let media = media.with_keyring(&self.keyring);
            let set = media.set(0)?;
            let stored_bytes = media.stored_bytes()?.unwrap_or(0);
            // A verification tells what is wrong with these records.
            let recipients = media.recipients(set.header.position).ok();
            let judged = (set.trailer.is_some() && signers.any())
                .then(|| media.signature(set.header.position))
                .transpose();
            // Where no signature is needed, a verification tells what is wrong with this record, too.
            let signature = match judged {
                Err(error) if signers.required() => return Err(error),
                judged => judged.ok().flatten(),
            };
            Ok((set, stored_bytes, media.faults(), (recipients, signature)))
        });
        match read {
            Ok((set, stored_bytes, faults, (recipients, signature))) => match set.trailer {
                Some(_) if signature.is_some_and(|found| signers.refuse(&found)) => {
                    strangers(signature.map_or(String::new(), |found| found.to_string()))
                }
                Some(_) if !set.header.encrypted && self.keyring.requires_encryption() => {
                    strangers("it is not encrypted, and must be".to_owned())
                }
                Some(trailer) if set.header.database != self.database => BackupState::Foreign {
                    what: format!("it is a backup of {:?}", set.header.database),
                    is_strangers: false,
                    shown: Some(Box::new(Shown {
                        header: set.header,
                        trailer,
                    })),
                },
                Some(trailer) => BackupState::Complete(Box::new(Complete {
                    header: set.header,
                    trailer,
                    stored_bytes,
                    faults,
                    recipients,
                    signature,
                })),
                None => BackupState::Abandoned,
            },
            // A store that does not answer says nothing about the set.
            Err(error @ (MediaError::Bucket(_) | MediaError::Cancelled { .. })) => broken(error),
            // Stripes get their names when everything is durable; until then a stripe may lack anything.
            Err(_) if !any_finished => BackupState::Abandoned,
            Err(error) => match broken(error) {
                // Anybody may have put a stripe among the machine's own: their WAL is kept.
                BackupState::Foreign { what, .. } if signers.required() => {
                    BackupState::Unknown { what }
                }
                state => state,
            },
        }
    }

    /// How many uploads killed backups have left here, for whose parts a store charges until an expire aborts them; `None`:
    /// the target has no such thing, or does not tell.
    pub fn left_uploads(&self) -> Result<Option<u64>, Error> {
        self.place.left_uploads()
    }

    /// Keeps backups, copies and expires from beginning here, on any host; `word` says why.
    pub fn stop(&self, word: &str) -> Result<(), Error> {
        self.place.stop(word)
    }

    /// Why nothing may begin here; `None`: everything may.
    pub fn stopped(&self) -> Result<Option<String>, Error> {
        self.place.stopped()
    }

    /// Allows what [`Shelf::stop`] forbade; false if nothing was forbidden.
    pub fn resume(&self) -> Result<bool, Error> {
        self.place.resume()
    }

    /// Errors: [`Error::Stopped`].
    pub(crate) fn check_stopped(&self) -> Result<(), Error> {
        match self.place.stopped()? {
            None => Ok(()),
            Some(word) => Err(Error::Stopped {
                target: self.target.name.clone(),
                database: self.database.clone(),
                word,
            }),
        }
    }

    /// Makes a place for a new backup. `begun_us` is the time in its label.
    ///
    /// Errors: [`Error::Stopped`]; [`Error::NotMounted`]; [`Error::Unreachable`]; [`Error::NotADirectory`]; [`Error::Io`].
    pub fn begin(&self, kind: BackupKind, begun_us: i64) -> Result<NewBackup, Error> {
        self.check_stopped()?;
        self.check_mounted()?;
        Ok(NewBackup::of(self.place.begin(kind, begun_us)?))
    }

    /// The backup with this label, or the latest that can be restored, protected against removal with all backups it
    /// needs.
    ///
    /// Errors: [`Error::Nothing`], [`Error::NoSuchLabel`], [`Error::NotWhole`], [`Error::Chain`]. A latest backup that
    /// is broken is skipped only if it was never completed; otherwise it is reported.
    pub fn lease(&self, label: Option<&str>) -> Result<BackupLease, Error> {
        let listing = self.list()?;
        let index = self.choose(&listing, label)?;
        let mut lease = self.lease_listed(&listing, index)?;
        if label.is_none() {
            // Labels of one second tell no order.
            let begun_us = lease.label.begun_us();
            let newer = |set: &&BackupEntry| set.label.begun_us() >= begun_us;
            let strange = listing.sets.iter().filter(newer);
            let strange = strange.filter(|set| set.is_strangers());
            lease.passed.extend(strange.map(|set| SkippedBackup {
                label: set.label.clone(),
                why: set.state.text(),
            }));
        }
        Ok(lease)
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
        // The database's own archive says which cluster is meant, also where its WAL is not what is replayed.
        let cluster = match (label, archive) {
            (None, None) => {
                let own = self.wal().ok().flatten();
                own.and_then(|own| Some(own.identity()?.system))
            }
            _ => None,
        };
        let choice = recover::choose(&facts, state, label, recovery, archive, cluster);
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

    /// The backup with this index, protected as by [`Shelf::lease`].
    ///
    /// Errors: [`Error::NoSuchLabel`], [`Error::NotWhole`], [`Error::Chain`].
    pub fn lease_listed(&self, listing: &Listing, index: usize) -> Result<BackupLease, Error> {
        self.usable(listing, index)?;
        let last = listing.sets[index].facts().log.map_or(0, |l| l.last_lsn);
        let choice = RestoreStart {
            index,
            passed: Vec::new(),
            reach: Reach::of(None, Lsn(last)),
        };
        self.take_lease(listing, choice)
    }

    /// The stripes of a leased backup in the order of its families, those that are lost as well: where they would be
    /// written now. A lost stripe of a backup that was made when the target had other places is left out.
    ///
    /// Errors: its stripes make no media set.
    pub fn all_stripes(&self, lease: &BackupLease) -> Result<Vec<DeviceSpec>, Error> {
        let opened: Vec<_> = lease
            .devices
            .iter()
            .map(|d| d.open(&self.storage))
            .collect();
        let media = MediaSet::open(&opened)?;
        let stripes = media.stripes();
        let has_its_places = stripes.len() == self.target.count();
        let mut all = Vec::new();
        for stripe in &stripes {
            match stripe.device_index {
                Some(index) => all.push(lease.devices[index].clone()),
                None if has_its_places => {
                    all.push(self.place.device(&lease.label, stripe.family)?);
                }
                None => {}
            }
        }
        Ok(all)
    }

    /// The stripes of a leased backup, those that are lost as well. A lost one may still have a file that is no stripe.
    pub(crate) fn stripe_count(&self, lease: &BackupLease) -> Result<usize, Error> {
        let opened = lease.devices.iter().map(|d| d.open(&self.storage));
        let media = MediaSet::open(&opened.collect::<Vec<_>>())?;
        Ok(media.stripes().len())
    }

    /// Makes room for the lost ones of [`Shelf::all_stripes`].
    ///
    /// Errors: [`Error::Stopped`]; a directory of the target does not exist, or cannot be written to.
    pub fn make_room(&self, lease: &BackupLease, all: &[DeviceSpec]) -> Result<(), Error> {
        self.check_stopped()?;
        for (family, device) in (1..).zip(all) {
            if !lease.devices.contains(device) {
                self.place.make_room(&lease.label, family)?;
            }
        }
        Ok(())
    }

    fn take_lease(&self, listing: &Listing, choice: RestoreStart) -> Result<BackupLease, Error> {
        let chosen = choice.index;
        let set = &listing.sets[chosen];
        let mut lease = BackupLease {
            label: set.label.clone(),
            devices: Vec::new(),
            parents: Vec::new(),
            facts: set.facts(),
            log_included: set.complete().is_some_and(|c| c.trailer.log.included),
            passed: choice.passed,
            reach: choice.reach,
            unprotected: None,
            identities: Vec::new(),
            _holds: Vec::new(),
        };
        let links = chain(&listing.facts(), chosen)?;
        for i in &links {
            match self.place.protect(&listing.sets[*i].label)? {
                Protection::Held(hold) => lease._holds.push(hold),
                Protection::Needless => {}
                Protection::Impossible(why) => lease.unprotected = Some(why),
            }
        }
        // Backups that were listed before the leases were taken may be gone by now.
        let needed = links.iter().map(|i| listing.sets[*i].label.clone());
        let again = self.listed(&needed.collect::<Vec<_>>())?;
        for i in links {
            let label = &listing.sets[i].label;
            let set = again.sets.iter().find(|s| s.label == *label);
            let set = set.filter(|s| s.complete().is_some());
            let set = set.ok_or_else(|| self.no_such(label.as_str()))?;
            lease.identities.extend(set.identity());
            match i == chosen {
                true => lease.devices = set.devices.clone(),
                false => lease.parents.push((set.label.clone(), set.devices.clone())),
            }
        }
        Ok(lease)
    }

    fn no_such(&self, label: &str) -> Error {
        Error::NoSuchLabel {
            target: self.target.name.clone(),
            database: self.database.clone(),
            label: label.to_owned(),
        }
    }

    /// The label of the backup that [`Shelf::lease`] means, also of one that cannot be restored from here.
    ///
    /// Errors: [`Error::Nothing`], [`Error::NoSuchLabel`], [`Error::Branches`], and those of [`Shelf::list`].
    pub fn meant(&self, label: Option<&str>) -> Result<Label, Error> {
        let listing = self.list()?;
        let index = self.meant_in(&listing, label)?;
        Ok(listing.sets[index].label.clone())
    }

    pub(crate) fn choose(&self, listing: &Listing, label: Option<&str>) -> Result<usize, Error> {
        let index = self.meant_in(listing, label)?;
        self.usable(listing, index).map(|()| index)
    }

    /// The same in a listing, as its index.
    ///
    /// Errors: [`Error::Nothing`], [`Error::NoSuchLabel`], [`Error::Branches`].
    pub fn meant_in(&self, listing: &Listing, label: Option<&str>) -> Result<usize, Error> {
        if let Some(label) = label {
            let found = listing.sets.iter().position(|s| s.label.as_str() == label);
            return found.ok_or_else(|| self.no_such(label));
        }
        // A set that was never a backup cannot be the latest one; a backup that is broken must be reported, not
        // skipped.
        let Some(latest) = listing.sets.iter().rposition(was_backup) else {
            if let Some(strange) = listing.sets.iter().rposition(BackupEntry::is_strangers) {
                return Ok(strange);
            }
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
        Ok(latest)
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
pub(crate) fn was_backup(set: &BackupEntry) -> bool {
    let is_none = matches!(
        set.state,
        BackupState::Writing { .. } | BackupState::Abandoned | BackupState::Removing
    );
    !is_none && !set.is_strangers()
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
        let foreign = BackupState::Foreign {
            what,
            is_strangers: false,
            shown: None,
        };
        let was = std::mem::replace(&mut sets[copy].state, foreign);
        if let (BackupState::Complete(complete), BackupState::Foreign { shown, .. }) =
            (was, &mut sets[copy].state)
        {
            *shown = Some(Box::new(Shown {
                header: complete.header,
                trailer: complete.trailer,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::tests::*;
    use crate::place::directories::Directories;
    use crate::target::Places;
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
            places: Places::Directories(vec!["/t".into()]),
        };
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let shelf = Shelf::new(storage.clone(), Arc::new(HostClock), &target, "db").unwrap();
        let place = Directories {
            storage,
            clock: Arc::new(HostClock),
            target: "t".into(),
            directories: target.directories().to_vec(),
            database: "db".into(),
        };
        let dir = disk.dir(dir).unwrap();
        let now = dir.stat(name).unwrap().mtime_ns;
        let late = now + longshore_io::STALE.as_nanos() as i64 + 1;
        let is_writing = |now_ns| {
            let listing = shelf.listing(place.look_at(now_ns).unwrap()).unwrap();
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
    /// Goal: where nobody can read whether a backup was complete, it is not taken for a run that did not end, whose name an expire
    /// removes.
    #[test]
    fn a_name_of_which_nothing_can_be_read_is_unknown_and_not_abandoned() {
        let label = "20270131T020000Z-full-1a2b3c4d";
        let disk = SimDisk::new(1);
        let name = Path::new("/t/db").join(label);
        disk.write_file(name.join("gone"), b"").unwrap();
        let dir = disk.dir(&name).unwrap();
        dir.remove_file(Path::new("gone")).unwrap();
        let target = Target {
            name: "t".into(),
            places: Places::Directories(vec!["/t".into()]),
        };
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let shelf = Shelf::new(storage, Arc::new(HostClock), &target, "db").unwrap();
        let state = || shelf.list().unwrap().sets.remove(0).state;
        assert!(matches!(state(), BackupState::Abandoned));
        // The first look is answered, and the second one is not.
        const EIO: i32 = 5;
        let mut unknown = 0;
        for nth in 1..=8 {
            let _failing = disk.heal().inject(
                Fault::errno(EIO)
                    .on(Op::List)
                    .below("/t/db")
                    .nth(nth)
                    .times(1),
            );
            match shelf.list().map(|mut listing| listing.sets.remove(0).state) {
                Ok(BackupState::Unknown { what }) if what.contains("whether it was complete") => {
                    unknown += 1;
                }
                Ok(BackupState::Abandoned | BackupState::Unknown { .. }) | Err(_) => {}
                other => panic!("{nth}: {other:?}"),
            }
        }
        assert!(unknown > 0);
    }
}
