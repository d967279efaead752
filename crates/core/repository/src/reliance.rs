//! Records in a WAL archive which WAL the backups at a target need, so that every expire sees it.
//!
//! A shelf is identified there by a mark: an empty file with a random name in the database's directory at the target.
//! Its record in the archive contains that name and the time of the file's last change. A copy of the directory has
//! the same name with another time, so it gets a mark and a record of its own, and the WAL that the first one needs
//! stays. A directory that was renamed, or that two hosts see under different paths, stays the same shelf.
//!
//! Invariants
//! - A backup's record is durable before its WAL is proved to exist, and no expire that began earlier removes WAL from
//!   the archive during the proof. An expire takes a lease on the archive, then reads the records, then removes. A
//!   backup writes its record, then waits until no such lease is held, then proves. So one of the two sees the other.
//!   An expire of the same target may list before the backup exists and then replace its record; so the backup checks
//!   after the wait that the record still exists, and otherwise writes another one and waits again.
//! - Only an expire reduces what a shelf requires, only if the needs of all its backups are known, and only from a
//!   listing made after it had the lease and had read the records that it removes.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use longshore_facts as facts;
use longshore_pg::Lsn;
use longshore_wal::needs::{ClusterNeed, NeedRecord, Others};
use longshore_wal::{self as wal, Need, WalArchive};

use crate::chain::SetFacts;
use crate::label::Label;
use crate::lease::{self, Holder, Lease, Use};
use crate::place::ShelfMark;
use crate::retention::{LogNeed, Policy, decide};
use crate::shelf::Shelf;

use crate::{Error, LogFate};

/// How often the archive is checked for an expire.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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
        let began = self.shelf.clock.now();
        loop {
            let told = self.tell(archive, system, first)?;
            self.outwait(archive, began, patience)?;
            for file in &told {
                if archive.has_need(file)? {
                    return Ok(());
                }
            }
        }
    }

    /// Waits until no expire holds a lease on the archive.
    fn outwait(
        &self,
        archive: &WalArchive,
        began: Duration,
        patience: Duration,
    ) -> Result<(), wal::Error> {
        let clock = &*self.shelf.clock;
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
}

/// Who else removes log from the archive now.
///
/// Errors: `Io`.
fn other_remover(archive: &WalArchive, own: &Lease) -> Result<Option<Holder>, wal::Error> {
    let at = || wal::Error::io("search for leases in", archive.path());
    let now_ns = own.touch().map_err(at())?;
    let others = lease::holders(&*archive.dir(), Some(own.name()), now_ns).map_err(at())?;
    Ok(others.into_iter().next())
}

/// Who removes log from the archive now.
///
/// Errors: `Io`.
fn removers(archive: &WalArchive) -> Result<Vec<Holder>, wal::Error> {
    let at = || wal::Error::io("search for leases in", archive.path());
    // No lease is too old by this: most often there is none at all, and nothing need be written.
    let any = lease::holders(&*archive.dir(), None, i64::MIN).map_err(at())?;
    if any.is_empty() {
        return Ok(any);
    }
    let now_ns = archive.now_ns().map_err(at())?;
    lease::holders(&*archive.dir(), None, now_ns).map_err(at())
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
        self.id == need.id && is_same_moment(self.changed_ns, need.sealed_ns)
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
        // A mark without a record here can be used; one whose record is another shelf's cannot.
        let unused = |mark: &&ShelfMark| records.iter().all(|r| r.need.id != mark.id);
        let (id, sealed_ns) = match (found, marks.iter().find(unused)) {
            (Some(need), _) => (need.id, need.sealed_ns),
            (None, Some(mark)) => (mark.id, mark.changed_ns),
            (None, None) => {
                let mark = self.place.new_mark()?;
                (mark.id, mark.changed_ns)
            }
        };
        let directory = self.place.home()?;
        let file = archive.add_need(&Need {
            id,
            sealed_ns,
            database: self.database.clone(),
            target: self.target.name.clone(),
            host: facts::host_name(),
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
            false => match Lease::take(archive.dir(), Use::Expire, &*self.clock) {
                Ok(lease) => Some(lease),
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                    ) =>
                {
                    let why = format!(
                        "this user cannot write in {}: {e}",
                        archive.path().display()
                    );
                    return Ok(LogFate::Undecided(why));
                }
                Err(source) => {
                    return Err(Error::Io {
                        action: "lock",
                        path: archive.path().to_owned(),
                        source,
                    });
                }
            },
        };
        if let Some(lease) = &lease
            && let Some(other) = other_remover(archive, lease)?
        {
            let why = format!(
                "another expire is running in {}: {}",
                archive.path().display(),
                other.text()
            );
            return Ok(LogFate::Undecided(why));
        }
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
            self.leave(archive, at, (system, Some(ours.clone())))?;
            archive.remove_needs(&owned)?;
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
        let removed = archive.remove_unneeded(Lsn(ours.from), dry, |timeline, start, end| {
            ours.needs(timeline.number(), start, end) || others.need(system, timeline, start, end)
        })?;
        drop(lease);
        Ok(LogFate::Removed {
            files: removed.files,
            stored_bytes: removed.stored_bytes,
            kept_for: others.keepers(),
        })
    }
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
