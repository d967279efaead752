//! Records in a WAL archive which WAL the backups at a target need, so that every expire sees it.
//!
//! A shelf is identified there by a mark: an empty file with a random name in the database's directory at the target.
//! Its record in the archive contains that name and the time of the file's last change. A copy of the directory has
//! the same name with another time, so it gets a mark and a record of its own, and the WAL that the first one needs
//! stays. A directory that was renamed, or that two hosts see under different paths, stays the same shelf. In a bucket a copy
//! can have the time, too, and nothing can be renamed: there the mark's server, bucket and key belong to it, and the record
//! names them.
//!
//! Invariants
//! - A backup's record is durable before its WAL is proved to exist, and no expire that began earlier removes WAL from
//!   the archive during the proof. An expire takes a lease on the archive, then reads the records, then removes. A
//!   backup writes its record, then waits until no such lease is held, then proves. So one of the two sees the other.
//!   An expire of the same target may list before the backup exists and then replace its record; so the backup checks
//!   after the wait that the record still exists, and otherwise writes another one and waits again.
//! - Only an expire reduces what a shelf requires, only if the needs of all its backups are known, and only from a
//!   listing made after it had the lease and had read the records that it removes.
//!
//! Leaves to others: which WAL the backups need (`retention.rs`), and the archive's files (`longshore-wal`).

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use longshore_facts as facts;
use longshore_io::Clock;
use longshore_pg::Lsn;
use longshore_wal::needs::{ClusterNeed, NeedRecord, Others, Purpose};
use longshore_wal::{self as wal, Ground, Need, WalArchive};

use crate::chain::SetFacts;
use crate::label::Label;
use crate::lease::{self, Holder, Lease, Use};
use crate::place::object_lease::ObjectLease;
use crate::place::{Hold, ShelfMark, buckets};
use crate::retention::{LogNeed, Policy, decide};
use crate::shelf::Shelf;

use crate::{Error, LogFate};

/// How often the archive is checked for an expire.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often an expire makes sure that it still has its lease on an archive in a bucket.
const CONFIRM_EVERY: Duration = Duration::from_secs(10);

/// A backup that will rely on its archive.
#[derive(Debug, Clone)]
pub struct Reliance {
    shelf: Shelf,
    /// The backup's own label.
    label: Label,
}

impl Reliance {
    pub fn new(shelf: &Shelf, label: &Label) -> Reliance {
        Reliance {
            shelf: shelf.clone(),
            label: label.clone(),
        }
    }

    /// Records in the archive that WAL of a cluster from `first` on is needed, and the needs of the target's other
    /// backups that no record covers yet. Durable when it returns.
    ///
    /// Errors: the archive's `NeedUnwritten`, `Io`; those of [`Shelf::list`].
    pub fn announce(&self, archive: &WalArchive, system: u64, first: Lsn) -> Result<(), Error> {
        self.tell(archive, system, first).map(drop)
    }

    /// Like [`Reliance::announce`]; returns the files of the records that cover the backup.
    fn tell(&self, archive: &WalArchive, system: u64, first: Lsn) -> Result<Vec<PathBuf>, Error> {
        let shelf = &self.shelf;
        // A record that cannot be read may be this shelf's; then there are two.
        let records = archive.need_records()?.read;
        let marks = shelf.place.marks()?;
        let covering = own(&marks, &records).filter(|record| record.need.covers(system, first));
        let covering: Vec<PathBuf> = covering.map(|record| record.file.clone()).collect();
        if !covering.is_empty() {
            return Ok(covering);
        }
        let others = |set: &SetFacts| set.label != self.label;
        let facts: Vec<_> = shelf.list()?.facts().into_iter().filter(others).collect();
        let need = decide(&facts, &Policy::default(), 0).log;
        let from = need.of(system).map_or(first.0, |need| need.from);
        let log = (!need.all).then(|| ClusterNeed {
            from: from.min(first.0),
            ranges: Vec::new(),
        });
        let left = shelf.leave(archive, (&marks, &records), (system, log))?;
        Ok(vec![left])
    }

    /// Waits until no expire that may not have seen the record removes WAL from the archive. Blocks up to `patience`.
    ///
    /// One record must exist both before and after the wait: an expire of this target that listed before the backup
    /// existed replaces the records that it has read.
    ///
    /// Errors: `BeingExpired`; those of [`Reliance::announce`].
    pub fn settle(
        &self,
        archive: &WalArchive,
        system: u64,
        first: Lsn,
        patience: Duration,
    ) -> Result<(), Error> {
        let clock = &*self.shelf.clock;
        let began = clock.now();
        loop {
            let told = self.tell(archive, system, first)?;
            outwait(archive, clock, (began, patience))?;
            for file in &told {
                if archive.has_need(file)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits until no expire removes WAL from the archive that may not have seen a record which is there now. Blocks up to
/// `patience`.
///
/// Errors: `BeingExpired`, `Io`, `Store`.
pub fn await_expires(
    archive: &WalArchive,
    clock: &dyn Clock,
    patience: Duration,
) -> Result<(), wal::Error> {
    outwait(archive, clock, (clock.now(), patience))
}

/// Waits until no expire holds a lease on the archive.
fn outwait(
    archive: &WalArchive,
    clock: &dyn Clock,
    (began, patience): (Duration, Duration),
) -> Result<(), wal::Error> {
    loop {
        let removers = removers(archive)?;
        let Some(holder) = removers.first() else {
            return Ok(());
        };
        if clock.now().saturating_sub(began) >= patience {
            return Err(wal::Error::BeingExpired {
                archive: archive.path().to_owned(),
                holder: holder.text(),
                waited_s: patience.as_secs(),
            });
        }
        clock.sleep(LOOK_EVERY);
    }
}

/// Another process that removes WAL from the archive now.
///
/// Errors: `Io`.
fn other_remover(archive: &WalArchive, own: &RemoverLease) -> Result<Option<Holder>, wal::Error> {
    let at = || wal::Error::io("search for leases in", archive.path());
    let others = match (archive.ground(), own) {
        (Ground::Directory(dir), RemoverLease::File(own)) => {
            let now_ns = own.touch().map_err(at())?;
            lease::holders(&**dir, Some(own.name()), now_ns).map_err(at())?
        }
        (Ground::Bucket(bucket, key), RemoverLease::Object(own, _)) => {
            buckets::holders(bucket, key, Some(own.key()))?
        }
        // A lease is of its archive's kind.
        (Ground::Directory(_) | Ground::Bucket(..), _) => Vec::new(),
    };
    Ok(others.into_iter().next())
}

/// The processes that remove WAL from the archive now.
///
/// Errors: `Io`.
fn removers(archive: &WalArchive) -> Result<Vec<Holder>, wal::Error> {
    let at = || wal::Error::io("search for leases in", archive.path());
    let dir = match archive.ground() {
        Ground::Directory(dir) => dir,
        Ground::Bucket(bucket, key) => return Ok(buckets::holders(bucket, key, None)?),
    };
    // No lease is too old by this: most often there is none at all, and nothing need be written.
    let any = lease::holders(&**dir, None, i64::MIN).map_err(at())?;
    if any.is_empty() {
        return Ok(any);
    }
    let now_ns = archive.now_ns().map_err(at())?;
    lease::holders(&**dir, None, now_ns).map_err(at())
}

/// The lease of an expire on an archive.
enum RemoverLease {
    File(Lease),
    /// And when it was confirmed last, by this machine's clock.
    Object(ObjectLease, Cell<Option<Duration>>),
}

impl RemoverLease {
    /// Errors: it was lost, so backups may rely on WAL that it was to keep them from.
    fn confirm(&self, clock: &dyn Clock) -> Result<(), Error> {
        let RemoverLease::Object(lease, last) = self else {
            return Ok(());
        };
        let now = clock.now();
        let is_recent = |last: Duration| now.saturating_sub(last) < CONFIRM_EVERY;
        if !last.get().is_some_and(is_recent) {
            lease.confirm()?;
            last.set(Some(now));
        }
        Ok(())
    }
}

/// The records that belong to a shelf with these marks.
fn own<'a>(
    marks: &'a [ShelfMark],
    records: &'a [NeedRecord],
) -> impl Iterator<Item = &'a NeedRecord> {
    let is_own = |record: &&NeedRecord| marks.iter().any(|mark| mark.is_of(record));
    records.iter().filter(is_own)
}

impl ShelfMark {
    fn is_of(&self, record: &NeedRecord) -> bool {
        let need = &record.need;
        let is_place = |place: &PathBuf| *place == need.directory;
        self.id == need.id
            && is_same_moment(self.changed_ns, need.sealed_ns)
            && self.only_at.as_ref().is_none_or(is_place)
    }
}

/// Whether two readings of one file's change time may mean the same change. Some file systems report, or store, whole
/// seconds only.
fn is_same_moment(one_ns: i64, other_ns: i64) -> bool {
    const SECOND: i64 = 1_000_000_000;
    let is_whole = one_ns % SECOND == 0 || other_ns % SECOND == 0;
    one_ns == other_ns || (is_whole && one_ns / SECOND == other_ns / SECOND)
}

impl Shelf {
    /// Adds a record of this shelf; returns its file.
    fn leave(
        &self,
        archive: &WalArchive,
        (marks, records): (&[ShelfMark], &[NeedRecord]),
        (system, log): (u64, Option<ClusterNeed>),
    ) -> Result<PathBuf, Error> {
        let of = |mark: &ShelfMark| records.iter().find(|record| mark.is_of(record));
        let found = marks.iter().find_map(of).map(|record| &record.need);
        let made;
        // A mark without a record here can be used; one whose record is another shelf's cannot.
        let unused = |mark: &&ShelfMark| records.iter().all(|r| r.need.id != mark.id);
        let recorded = marks.iter().find(|mark| of(mark).is_some());
        let mark = match recorded.or_else(|| marks.iter().find(unused)) {
            Some(mark) => mark,
            None => {
                made = self.place.new_mark()?;
                &made
            }
        };
        let directory = match &mark.only_at {
            Some(place) => place.clone(),
            None => self.place.home()?,
        };
        let file = archive.add_need(&Need {
            id: mark.id,
            sealed_ns: found.map_or(mark.changed_ns, |need| need.sealed_ns),
            database: self.database.clone(),
            target: self.target.name.clone(),
            host: facts::host_name(),
            purpose: Purpose::Backups,
            directory,
            since_us: found.map_or(self.clock.wall_ns() / 1000, |need| need.since_us),
            system,
            log,
        })?;
        Ok(file)
    }

    /// Removes the WAL that no backup needs. `need` returns what this shelf's kept backups need, from a new listing.
    pub(crate) fn expire_archive(
        &self,
        archive: &WalArchive,
        dry: bool,
        need: &dyn Fn() -> Result<LogNeed, Error>,
    ) -> Result<LogFate, Error> {
        let system = archive.identified()?.system;
        let lease = match dry {
            true => None,
            false => match lease_of(archive, &*self.clock)? {
                Ok(lease) => Some(lease),
                Err(why) => return Ok(LogFate::Undecided(why)),
            },
        };
        let records = archive.need_records()?;
        let marks = self.place.marks()?;
        let owned: Vec<&NeedRecord> = own(&marks, &records.read).collect();
        let need = need()?;
        let at = (marks.as_slice(), records.read.as_slice());
        if need.all {
            // An earlier record of this shelf is enough; without one, everything is required.
            if !dry && owned.is_empty() {
                self.leave(archive, at, (system, None))?;
            }
            return Ok(LogFate::Unsure);
        }
        let Some(ours) = need.of(system) else {
            return Ok(LogFate::OtherCluster { system });
        };
        if !dry {
            // A record that says the same stays: a store that lets none go would get one more with each run.
            let recorded = ours.recorded();
            let is_same = |own: &&NeedRecord| {
                let need = &own.need;
                (need.system, need.log.as_ref()) == (system, Some(&recorded))
                    && (&need.database, &need.target) == (&self.database, &self.target.name)
                    && need.host == facts::host_name()
            };
            let same = owned.iter().copied().find(is_same);
            if same.is_none() {
                self.leave(archive, at, (system, Some(ours.clone())))?;
            }
            let kept = same.map(|same| &same.file);
            let outdated = owned.iter().copied().filter(|own| Some(&own.file) != kept);
            // A record that the store keeps asks the expires of other targets for more than is needed, which is safe.
            let _kept = archive.remove_needs(&outdated.collect::<Vec<_>>())?;
        }
        if let Some(error) = records.unread.first() {
            return Ok(LogFate::Undecided(format!("{error}; {}", error.hint())));
        }
        if !archive.knows_all()? {
            let path = archive.path().display();
            let why = format!(
                "an earlier version used {path} and recorded no target's needs. Run `longshore expire` at every target whose \
                 backups rely on it, then once `longshore wal needs --archive {path} --complete`"
            );
            return Ok(LogFate::Undecided(why));
        }
        let is_other = |record: &&NeedRecord| !owned.iter().any(|own| std::ptr::eq(*own, *record));
        let others = records.read.iter().filter(is_other);
        let others = Others::new(others.map(|record| record.need.clone()).collect());
        let lost = Cell::new(None);
        let is_held = || match lease.as_ref().map(|lease| lease.confirm(&*self.clock)) {
            Some(Err(error)) => {
                lost.set(Some(error));
                false
            }
            Some(Ok(())) | None => true,
        };
        let is_lost = Cell::new(!is_held());
        let removed = archive.remove_unneeded(Lsn(ours.from), dry, |timeline, start, end| {
            is_lost.set(is_lost.get() || !is_held());
            is_lost.get()
                || ours.needs(timeline.number(), start, end)
                || others.need(system, timeline, start, end)
        })?;
        if let Some(error) = lost.take() {
            return Err(error);
        }
        drop(lease);
        Ok(LogFate::Removed {
            files: removed.files,
            stored_bytes: removed.stored_bytes,
            kept_for: others.keepers(),
            retained: removed.retained,
        })
    }
}

/// The lease of the one expire that removes WAL from the archive, or why it cannot be had.
fn lease_of(
    archive: &WalArchive,
    clock: &dyn Clock,
) -> Result<Result<RemoverLease, String>, Error> {
    let path = archive.path();
    let taken = match archive.ground() {
        Ground::Directory(dir) => Lease::take(dir.clone(), Use::Expire, clock),
        Ground::Bucket(bucket, key) => {
            let place = (bucket.clone(), key.clone());
            let lease = match ObjectLease::take(place, Use::Expire) {
                Err(Error::Store(error)) if error.is_forbidden() => {
                    return Ok(Err(error.to_string()));
                }
                lease => RemoverLease::Object(lease?, Cell::default()),
            };
            return alone(archive, lease);
        }
    };
    let lease = match taken {
        Ok(lease) => RemoverLease::File(lease),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            let path = path.display();
            return Ok(Err(format!("this user cannot write in {path}: {e}")));
        }
        Err(source) => {
            return Err(Error::Io {
                action: "lock",
                path: path.to_owned(),
                source,
            });
        }
    };
    alone(archive, lease)
}

/// The lease, if no other expire has one.
fn alone(archive: &WalArchive, lease: RemoverLease) -> Result<Result<RemoverLease, String>, Error> {
    let path = archive.path();
    Ok(match other_remover(archive, &lease)? {
        None => Ok(lease),
        Some(other) => {
            let (path, other) = (path.display(), other.text());
            Err(format!("another expire is running in {path}: {other}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_that_lost_its_fraction_is_the_same_and_any_other_is_not() {
        let at = 1_700_000_000_123_456_789;
        assert!(is_same_moment(at, at));
        assert!(!is_same_moment(at, at + 1));
        assert!(is_same_moment(at, 1_700_000_000_000_000_000));
        assert!(!is_same_moment(at, 1_700_000_001_000_000_000));
    }
}
