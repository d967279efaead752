//! Records in the archives of copies, by which these keep what a database's own archive is owed: expires there read them
//! (`needs.rs`).
//!
//! The mark `pg_wal/longshore/relies-DATABASE` says that such records may be there, and identifies this pg_wal in them.
//!
//! Invariants
//! - The mark is durable before the first record is written, and goes only after all of them. So a record that nobody knows of
//!   is left by no crash, and without a mark nobody looks for records.
//! - A record is this pg_wal's if it has the mark and the moment of its last change, which no copy of the file has: a copied
//!   data directory neither trusts its origin's records nor removes them. A snapshot of the whole disk has the same moment.
//! - One process at a time changes records of a database, or adds debts that rest on them.
//!
//! Leaves to others: when records are written and removed (`owing.rs`, `keeping.rs`), and expires that began before a record was there (`longshore-repository`, `reliance.rs`).

use std::io;
use std::path::{Path, PathBuf};

use longshore_crypt::digest_of;
use longshore_facts as facts;
use longshore_io::{Clock, SmallFile};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};
use uuid::Uuid;

use super::ahead::{AheadLock, PLACE};
use super::content::hex;
use super::needs::{ClusterNeed, Need, NeedRecord, Purpose};
use super::{Error, PgWal, Run, WalArchive};

const LOCK: &str = "keep.";
const MARK: &str = "relies-";
/// Of the text of an identifier.
const MARK_LEN: usize = 36;

/// The identity of a pg_wal in records of one database's debts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebtMark {
    pub(super) id: Uuid,
    /// When its file was changed last, in nanoseconds since the Unix epoch.
    pub(super) changed_ns: i64,
}

/// The archive of a copy, by its location, that has a record from this LSN on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub(super) location: String,
    pub(super) mark: DebtMark,
    pub(super) from: Lsn,
}

/// The words of a record for people.
#[derive(Debug, Clone)]
pub struct Debtor<'a> {
    pub database: &'a str,
    /// The target whose archive is owed.
    pub target: &'a str,
    pub pg_wal: &'a Path,
}

impl DebtMark {
    fn is_of(self, record: &NeedRecord) -> bool {
        (record.need.id, record.need.sealed_ns) == (self.id, self.changed_ns)
    }
}

impl Kept {
    pub fn new(location: &Path, mark: DebtMark, from: Lsn) -> Kept {
        Kept {
            location: location_text(location),
            mark,
            from,
        }
    }

    /// `MARK MOMENT LSN LOCATION`
    pub(super) fn text(&self) -> String {
        let DebtMark { id, changed_ns } = self.mark;
        format!("{id} {changed_ns} {} {}", self.from, self.location)
    }

    pub(super) fn of(text: &str) -> Option<Kept> {
        let mut fields = text.splitn(4, ' ');
        Some(Kept {
            mark: DebtMark {
                id: fields.next()?.parse().ok()?,
                changed_ns: fields.next()?.parse().ok()?,
            },
            from: fields.next()?.parse().ok()?,
            location: fields.next()?.to_owned(),
        })
    }
}

impl PgWal {
    /// The turn to change records of a database's debts; `None` while another process has it.
    ///
    /// Errors: `Io`.
    pub fn turn_to_keep(&self, database: &str) -> Result<Option<AheadLock>, Error> {
        self.turn(&format!("{LOCK}{}.lock", short(database)))
    }

    /// The mark; `None`: no archive has a record.
    ///
    /// Errors: `Io`.
    pub fn debt_mark(&self, database: &str) -> Result<Option<DebtMark>, Error> {
        let (name, path) = self.mark_of(database);
        let read = || -> io::Result<Option<DebtMark>> {
            let dir = match self.dir.dir(Path::new(PLACE)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                dir => dir?,
            };
            let bytes = SmallFile::new(dir.clone(), &*name, MARK_LEN).read()?;
            let id = bytes.as_deref().and_then(parsed);
            let Some(id) = id else {
                return Ok(None);
            };
            let changed_ns = dir.stat(Path::new(&name))?.ctime_ns;
            Ok(Some(DebtMark { id, changed_ns }))
        };
        read().map_err(Error::io("read", path))
    }

    /// The mark, which is made if need be. Durable when it returns.
    ///
    /// Errors: `Io`.
    pub fn make_debt_mark(
        &self,
        _turn: &AheadLock,
        database: &str,
        clock: &dyn Clock,
    ) -> Result<DebtMark, Error> {
        let (name, path) = self.mark_of(database);
        let dir = self.durable_place(&name)?;
        let mark = SmallFile::new(dir, &*name, MARK_LEN).of_its_directory();
        let made = mark.change(clock, 0o600, |before| {
            let new = || Uuid::new_v4().to_string().into_bytes();
            let is_mark = before.is_some_and(|bytes| parsed(bytes).is_some());
            Ok::<_, io::Error>(((!is_mark).then(new), ()))
        });
        made.map_err(Error::io("write", &path))?;
        let gone = || Error::io("read", path)(io::ErrorKind::NotFound.into());
        self.debt_mark(database)?.ok_or_else(gone)
    }

    /// Removes the mark: no archive has a record any longer.
    ///
    /// Errors: `Io`.
    pub fn remove_debt_mark(&self, _turn: &AheadLock, database: &str) -> Result<(), Error> {
        let (name, path) = self.mark_of(database);
        let removed = self.dir.dir(Path::new(PLACE)).and_then(|dir| {
            match dir.remove_file(Path::new(&name)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            }
        });
        removed.map_err(Error::io("remove", path))
    }

    fn mark_of(&self, database: &str) -> (String, PathBuf) {
        let name = format!("{MARK}{}", short(database));
        let path = self.path.join(PLACE).join(&name);
        (name, path)
    }
}

impl WalArchive {
    /// Whether it has a record of this mark that asks for all WAL from `from` on.
    ///
    /// Errors: `NothingYet`, `Io`, `Store`.
    pub fn keeps_debt(&self, mark: DebtMark, from: Lsn) -> Result<bool, Error> {
        let system = self.identified()?.system;
        let records = self.need_records()?.read;
        let mut own = records.iter().filter(|record| mark.is_of(record));
        Ok(own.any(|record| record.need.covers(system, from)))
    }

    /// The last segment before `first` that is there, on its timeline or else on an earlier one, where it begins: by that one the
    /// archive is compared with another. Where none is, the one before.
    ///
    /// Errors: those of [`WalArchive::runs`].
    pub(super) fn keeps_before(&self, first: SegmentName, size: SegmentSize) -> Result<Lsn, Error> {
        let before = Lsn(first.start(size).0.saturating_sub(size.bytes()));
        let runs = self.runs()?;
        let begun = |run: &&Run| run.span.first.start(size) <= before;
        let last = |is_of: &dyn Fn(Timeline) -> bool| {
            let of = |run: &&Run| is_of(run.span.last.timeline);
            let ends = runs.iter().filter(of).filter(begun);
            ends.map(|run| run.span.last.start(size).min(before)).max()
        };
        let own = last(&|timeline| timeline == first.timeline);
        let found = own.or_else(|| last(&|timeline| timeline < first.timeline));
        Ok(found.unwrap_or(before))
    }

    /// Has WAL kept from `from` on, durably.
    ///
    /// Errors: `NothingYet`, `NeedUnwritten`, `Io`, `Store`.
    pub fn keep_debt(
        &self,
        (mark, from): (DebtMark, Lsn),
        debtor: &Debtor<'_>,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let system = self.identified()?.system;
        let records = self.need_records()?.read;
        let own: Vec<&NeedRecord> = records.iter().filter(|r| mark.is_of(r)).collect();
        if own.iter().any(|record| record.need.covers(system, from)) {
            return Ok(());
        }
        let since = own.iter().map(|record| record.need.since_us).min();
        self.add_need(&Need {
            id: mark.id,
            sealed_ns: mark.changed_ns,
            database: debtor.database.to_owned(),
            target: debtor.target.to_owned(),
            host: facts::host_name(),
            purpose: Purpose::Debt,
            directory: debtor.pg_wal.to_owned(),
            since_us: since.unwrap_or_else(|| clock.wall_ns() / 1000),
            system,
            log: Some(ClusterNeed {
                from: from.0,
                ranges: Vec::new(),
            }),
        })?;
        // One that the store keeps asks for less.
        self.remove_needs(&own).map(drop)
    }

    /// Removes the records of this mark. `Some`: why the store keeps one of them.
    ///
    /// Errors: `Io`, `Store`.
    pub fn release_debt(&self, mark: DebtMark) -> Result<Option<Error>, Error> {
        let records = self.need_records()?.read;
        let own: Vec<&NeedRecord> = records.iter().filter(|r| mark.is_of(r)).collect();
        self.remove_needs(&own)
    }
}

/// A location as lists have it, in one line.
pub(super) fn location_text(location: &Path) -> String {
    location.to_string_lossy().escape_debug().to_string()
}

/// A part of a file's name for a database, whose own name may have any letters: no two have the same.
fn short(database: &str) -> String {
    hex(&digest_of(database.as_bytes())[..16])
}

fn parsed(bytes: &[u8]) -> Option<Uuid> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
