//! Which targets rely on an archive, and on which of its WAL: records that targets, and servers with debts (`kept.rs`), write
//! in the archive itself.
//!
//! Backups at several targets, from several hosts, may rely on one archive, but an expire sees the backups of one
//! target only. So each target writes a record in the archive's directory `needs` before its first backup there is
//! reported, and an expire removes no WAL that any record requires. `docs/repository.md` describes the protocol.
//!
//! Invariants
//! - A record is never changed and never replaced. A target's needs are all of its records together: a backup only
//!   adds one; an expire of that target adds the new one and then removes those that it had read.
//! - A record that cannot be read requires everything.
//! - The file `needs/known` says that all targets that rely on the archive have a record. An archive has it from its
//!   creation, or because an operator confirmed it. Without it, versions that write no records may rely on the
//!   archive.
//!
//! Leaves to others: which WAL a target needs, and the mark that identifies it (`longshore-repository`, `reliance.rs`);
//! removing WAL (`list.rs`); storing the files (`place.rs`).

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{OpenHow, Via, crc32c};
use longshore_pg::{Lsn, Timeline};
use uuid::Uuid;

use super::place::{Often, Wanted};
use super::staged::ENDING;
use super::{Error, WalArchive};

/// The directory of the records, in the archive's own.
const NEEDS: &str = "needs";

/// In it: the file that says that all who rely on the archive have a record.
const KNOWN: &str = "known";

const TITLE: &str = "longshore wal need 1";

/// Longest record that is read, in bytes. A longer one is written as a need for everything.
const LEN_MAX: usize = 1 << 20;

/// How often a listing is restarted because a record was removed meanwhile.
const LOOKS_MAX: usize = 100;

/// Whether a file of this name, in a directory of that one, is a record, or says that all have one. Stores on some file
/// systems take upper-case and lower-case letters for the same.
pub fn is_need(directory: &str, name: &str) -> bool {
    let is_id = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_record = name
        .split_once('.')
        .is_some_and(|(id, own)| is_id(id) && is_id(own));
    directory.eq_ignore_ascii_case(NEEDS) && (is_record || name.eq_ignore_ascii_case(KNOWN))
}

/// The owner of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A target, whose backups need the WAL.
    Backups,
    /// A server, whose database's own archive is owed the WAL (`kept.rs`).
    Debt,
}

impl Purpose {
    /// The name of the record's line that says where its owner is.
    fn word(self) -> &'static str {
        match self {
            Purpose::Backups => "directory",
            Purpose::Debt => "pg_wal",
        }
    }
}

/// The WAL that the backups at one target, or the debt of one server, need from an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The random mark of the target's directory. Names and paths identify nothing: two hosts may use the same.
    pub id: Uuid,
    /// When the mark's file was last changed, in nanoseconds since the Unix epoch: a copy of the directory has the
    /// mark, but cannot have this time.
    pub sealed_ns: i64,
    pub database: String,
    pub target: String,
    /// The host that wrote the record.
    pub host: String,
    pub purpose: Purpose,
    pub directory: PathBuf,
    /// When the first record of this mark was written, by that host's clock; microseconds since the Unix epoch.
    pub since_us: i64,
    pub system: u64,
    /// `None`: everything.
    pub log: Option<ClusterNeed>,
}

/// The WAL of one cluster that a target needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterNeed {
    /// WAL that ends after this LSN is needed, on every timeline.
    pub from: u64,
    pub ranges: Vec<Range>,
}

/// WAL that a kept backup needs to become consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub timelines: (u32, u32),
    pub first: u64,
    pub last: u64,
}

impl ClusterNeed {
    pub fn needs(&self, timeline: u32, start: Lsn, end: Lsn) -> bool {
        let within = |r: &Range| {
            (r.timelines.0..=r.timelines.1).contains(&timeline)
                && start.0 <= r.last
                && r.first < end.0
        };
        end.0 > self.from || self.ranges.iter().any(within)
    }

    /// The same need as a record says it: ranges from which on everything is kept anyway are not in it.
    pub fn recorded(&self) -> ClusterNeed {
        let ranges = self.ranges.iter().filter(|range| range.first < self.from);
        ClusterNeed {
            from: self.from,
            ranges: ranges.copied().collect(),
        }
    }
}

/// A record, and its file.
#[derive(Debug)]
pub struct NeedRecord {
    pub need: Need,
    pub file: PathBuf,
}

/// All records of an archive.
#[derive(Debug, Default)]
pub struct Records {
    pub read: Vec<NeedRecord>,
    /// Why other records could not be read.
    pub unread: Vec<Error>,
}

impl Need {
    /// Whether WAL from `start` up to, not including, `end` must stay.
    pub fn needs(&self, system: u64, timeline: Timeline, start: Lsn, end: Lsn) -> bool {
        let log = self.log.as_ref().filter(|_| self.system == system);
        log.is_none_or(|log| log.needs(timeline.number(), start, end))
    }

    /// Whether it requires all WAL of a cluster from an LSN on.
    pub fn covers(&self, system: u64, from: Lsn) -> bool {
        let all = self.log.is_none();
        let above = |log: &ClusterNeed| self.system == system && log.from <= from.0;
        all || self.log.as_ref().is_some_and(above)
    }

    /// The LSN from which WAL is kept without gaps; `None`: all of it.
    pub fn from(&self) -> Option<Lsn> {
        self.log.as_ref().map(|log| Lsn(log.from))
    }

    fn encode(&self) -> String {
        let log = match &self.log {
            None => "all\n".to_owned(),
            Some(log) => {
                let log = log.recorded();
                let range = |r: &Range| {
                    let (first, last) = r.timelines;
                    format!("range {first} {last} {} {}\n", Lsn(r.first), Lsn(r.last))
                };
                let ranges: String = log.ranges.iter().map(range).collect();
                format!("from {}\n{ranges}", Lsn(log.from))
            }
        };
        let text = format!(
            "{TITLE}\nid {}\nseal {}\ndatabase {}\ntarget {}\nhost {}\n{} {}\nsince {}\nsystem {}\n",
            self.id,
            self.sealed_ns,
            line(&self.database),
            line(&self.target),
            line(&self.host),
            self.purpose.word(),
            line(&self.directory.to_string_lossy()),
            self.since_us,
            self.system,
        );
        let sealed = |text: String| {
            let crc = crc32c(text.as_bytes());
            text + &format!("crc32c {crc:08x}\n")
        };
        let whole = sealed(format!("{text}{log}"));
        match whole.len() > LEN_MAX {
            true => sealed(text + "all\n"),
            false => whole,
        }
    }

    /// `None` for anything except the output of [`Need::encode`].
    fn decode(bytes: &[u8]) -> Option<Need> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines().skip(1).peekable();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let id = field("id")?.parse().ok()?;
        let sealed_ns = field("seal")?.parse().ok()?;
        let database = field("database")?.to_owned();
        let target = field("target")?.to_owned();
        let host = field("host")?.to_owned();
        let (word, directory) = lines.next()?.split_once(' ')?;
        let purposes = [Purpose::Backups, Purpose::Debt];
        let purpose = purposes.into_iter().find(|known| known.word() == word)?;
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let mut need = Need {
            id,
            sealed_ns,
            database,
            target,
            host,
            purpose,
            directory: directory.into(),
            since_us: field("since")?.parse().ok()?,
            system: field("system")?.parse().ok()?,
            log: None,
        };
        let log = lines.next()?;
        if log != "all" {
            let from: Lsn = log.strip_prefix("from ")?.parse().ok()?;
            let mut ranges = Vec::new();
            while let Some(range) = lines.peek().and_then(|l| l.strip_prefix("range ")) {
                let mut words = range.split(' ');
                let timelines = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let first: Lsn = words.next()?.parse().ok()?;
                let last: Lsn = words.next()?.parse().ok()?;
                ranges.push(Range {
                    timelines,
                    first: first.0,
                    last: last.0,
                });
                lines.next();
            }
            need.log = Some(ClusterNeed {
                from: from.0,
                ranges,
            });
        }
        (need.encode() == text).then_some(need)
    }
}

/// A name as a line of a record.
fn line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

impl WalArchive {
    /// The needs that targets have recorded, sorted by name.
    ///
    /// Errors: `NeedUnreadable` if a record cannot be read; `Io`.
    pub fn needs(&self) -> Result<Vec<Need>, Error> {
        let mut records = self.need_records()?;
        match records.unread.pop() {
            Some(error) => Err(error),
            None => Ok(records.read.into_iter().map(|r| r.need).collect()),
        }
    }

    /// Errors: `Io`.
    pub fn need_records(&self) -> Result<Records, Error> {
        for _ in 0..LOOKS_MAX {
            if let Some(records) = self.look_at_needs()? {
                return Ok(records);
            }
        }
        let busy = io::Error::from(io::ErrorKind::ResourceBusy);
        Err(Error::io("list", self.path().join(NEEDS))(busy))
    }

    /// `None`: a record was removed between the listing and its reading, so its replacement may not have been listed.
    fn look_at_needs(&self) -> Result<Option<Records>, Error> {
        let mut records = Records::default();
        let path = self.path().join(NEEDS);
        let listed = self.place.list(Path::new(NEEDS), false)?.into_iter();
        let mut names: Vec<PathBuf> = listed.map(|entry| entry.name.into()).collect();
        names.sort();
        for file in names {
            let text = file.to_str().unwrap_or("");
            // Names that a file system uses for itself begin with a dot, e.g. those of removed files that are open on
            // NFS.
            if text == KNOWN || text.starts_with('.') || text.ends_with(ENDING) {
                continue;
            }
            let unread = |what: String| Error::NeedUnreadable {
                path: path.join(&file),
                what,
            };
            match self.need_bytes(&file) {
                Ok(None) => return Ok(None),
                Err(Error::Io { source, .. }) => records.unread.push(unread(source.to_string())),
                Err(e) => records.unread.push(unread(e.to_string())),
                Ok(Some(bytes)) => {
                    let need = Need::decode(&bytes);
                    let is_named =
                        |need: &Need| text.starts_with(&format!("{}.", need.id.simple()));
                    match need.filter(is_named) {
                        Some(need) => records.read.push(NeedRecord { need, file }),
                        None => records.unread.push(unread("it is damaged".to_owned())),
                    }
                }
            }
        }
        Ok(Some(records))
    }

    /// The bytes of a record, or more than any has; `None` if there is none.
    fn need_bytes(&self, file: &Path) -> Result<Option<Vec<u8>>, Error> {
        let Some(stored) = self.place.open(&Path::new(NEEDS).join(file), Wanted::All)? else {
            return Ok(None);
        };
        let mut bytes = vec![0; stored.len()?.min(LEN_MAX as u64 + 1) as usize];
        stored.read_exact_at(&mut bytes, 0)?;
        Ok(Some(bytes))
    }

    /// Adds a record, durably; returns its file.
    pub fn add_need(&self, need: &Need) -> Result<PathBuf, Error> {
        let name = format!("{}.{}", need.id.simple(), Uuid::new_v4().simple());
        self.write_need(&name, &need.encode())?;
        Ok(name.into())
    }

    /// Whether a record still exists. Opens its file, because an NFS client then asks the server, whatever it has
    /// cached.
    ///
    /// Errors: `Io`.
    pub fn has_need(&self, file: &Path) -> Result<bool, Error> {
        let file = Path::new(NEEDS).join(file);
        Ok(self.place.open(&file, Wanted::All)?.is_some())
    }

    /// Removes records; a crash may leave some of them. `Some`: why the store keeps one of them. It asks for more WAL than is
    /// needed until the store lets it go.
    ///
    /// Errors: `Io`, and those of a store that are no refusal.
    pub fn remove_needs(&self, records: &[&NeedRecord]) -> Result<Option<Error>, Error> {
        let mut kept = None;
        for record in records {
            match self.place.remove(&Path::new(NEEDS).join(&record.file)) {
                Err(Error::Store(error)) if error.is_forbidden() => {
                    kept = Some(Error::Store(error))
                }
                done => done?,
            }
        }
        if !records.is_empty() {
            self.place.settle(Path::new(NEEDS), false)?;
        }
        Ok(kept)
    }

    /// Removes the records of a target that no longer exists; returns their number.
    ///
    /// Errors: `Io`; the store does not allow it.
    pub fn forget_need(&self, id: Uuid) -> Result<usize, Error> {
        let records = self.need_records()?;
        let of_it = records.read.iter().filter(|r| r.need.id == id);
        let of_it: Vec<&NeedRecord> = of_it.collect();
        match self.remove_needs(&of_it)? {
            None => Ok(of_it.len()),
            Some(kept) => Err(kept),
        }
    }

    /// Whether all who rely on the archive have a record there.
    ///
    /// Errors: `Io`.
    pub fn knows_all(&self) -> Result<bool, Error> {
        let known = Path::new(NEEDS).join(KNOWN);
        Ok(self.place.open(&known, Wanted::All)?.is_some())
    }

    /// Records an operator's confirmation that all who rely on the archive have a record there.
    ///
    /// Errors: `NeedUnwritten`.
    pub fn know_all(&self) -> Result<(), Error> {
        self.write_need(KNOWN, "all who rely on this archive have a record here\n")
    }

    /// Writes a file into the directory of the records.
    fn write_need(&self, name: &str, text: &str) -> Result<(), Error> {
        let file = Path::new(NEEDS).join(name);
        match self.place.write(&file, text.as_bytes(), Often::Once) {
            Err(Error::Io { path, source, .. }) => Err(Error::NeedUnwritten { path, source }),
            written => written,
        }
    }

    /// Whether the archive contains no WAL of any cluster.
    pub(super) fn is_bare(&self) -> Result<bool, Error> {
        Ok(self.directories()?.is_empty())
    }

    /// The file system's own time, in nanoseconds since the Unix epoch; for an archive in a directory.
    pub fn now_ns(&self) -> io::Result<i64> {
        let Some(dir) = self.directory() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let name = PathBuf::from(format!("{NEEDS}/{}{ENDING}", Uuid::new_v4().simple()));
        let file = dir.open(&name, OpenHow::CreateNew)?;
        let written = file.write_all_at(b"now\n", 0, Via::Cache);
        let stat = written
            .and_then(|()| file.sync())
            .and_then(|()| file.stat());
        let _left = dir.remove_file(&name);
        Ok(stat?.mtime_ns)
    }
}

/// The records of other targets, and whether each keeps something that would otherwise be removed.
pub struct Others {
    needs: Vec<(Need, Cell<bool>)>,
}

impl Others {
    pub fn new(needs: Vec<Need>) -> Others {
        Others {
            needs: needs.into_iter().map(|n| (n, Cell::new(false))).collect(),
        }
    }

    /// Whether any of them needs this.
    pub fn need(&self, system: u64, timeline: Timeline, start: Lsn, end: Lsn) -> bool {
        let mut any = false;
        for (need, keeps) in &self.needs {
            if need.needs(system, timeline, start, end) {
                keeps.set(true);
                any = true;
            }
        }
        any
    }

    /// Those that kept something.
    pub fn keepers(self) -> Vec<Need> {
        let kept = self.needs.into_iter().filter(|(_, keeps)| keeps.get());
        kept.map(|(need, _)| need).collect()
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{Fault, SimClock, SimDisk};

    use super::*;

    fn need(log: Option<ClusterNeed>) -> Need {
        Need {
            id: Uuid::from_u128(7),
            sealed_ns: -5,
            database: "two\nlines".into(),
            target: "Große Daten".into(),
            host: String::new(),
            purpose: Purpose::Backups,
            directory: "/mnt/a b".into(),
            since_us: 1,
            system: u64::MAX,
            log,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is() {
        let range = |first, last| Range {
            timelines: (1, 2),
            first,
            last,
        };
        let some = ClusterNeed {
            from: 1 << 33,
            ranges: vec![range(5, 1 << 32), range(9, 10)],
        };
        for (log, purpose) in [
            (None, Purpose::Backups),
            (Some(some.clone()), Purpose::Backups),
            (Some(some), Purpose::Debt),
        ] {
            let written = Need {
                purpose,
                ..need(log.clone())
            };
            let text = written.encode();
            let read = Need::decode(text.as_bytes()).unwrap();
            assert_eq!((read.purpose, &read.log), (purpose, &log));
            assert_eq!(read.database, "two?lines");
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1;
                assert_eq!(Need::decode(&bytes), None, "byte {at}");
                assert_eq!(Need::decode(&text.as_bytes()[..at]), None, "cut at {at}");
            }
        }
        // A need whose record would be too long is written as everything.
        let many = ClusterNeed {
            from: u64::MAX,
            ranges: vec![range(1, 2); 100_000],
        };
        let read = Need::decode(need(Some(many)).encode().as_bytes()).unwrap();
        assert_eq!(read.log, None);
        // For WAL of a cluster other than the record's, nothing is known.
        let other = need(Some(ClusterNeed::default()));
        assert!(other.needs(1, Timeline::new(1).unwrap(), Lsn(1), Lsn(2)));
    }

    #[test]
    fn the_example_of_the_page_is_one() {
        let page = include_str!("../../../../docs/postgres-wal.md");
        let at = page.find(TITLE).unwrap();
        let example = page[at..].split("```").next().unwrap();
        let log = ClusterNeed {
            from: 0x16_b300_0028,
            ranges: vec![Range {
                timelines: (1, 1),
                first: 0x16_a000_0028,
                last: 0x16_a100_0100,
            }],
        };
        let example = Need::decode(example.as_bytes()).unwrap();
        assert_eq!(example.log, Some(log));
    }

    /// Goal: a target's records never require less than it needs, wherever the power is cut while it writes a record
    /// or an expire replaces one; and no incomplete record is found.
    #[test]
    fn a_power_cut_at_any_step_leaves_a_record_that_asks_for_enough() {
        let archive = |disk: &SimDisk| {
            let (base, below) = (Path::new("/base"), Path::new("wal"));
            WalArchive::create(disk, base, below, &SimClock::new(0))
        };
        let prepared = |seed| {
            let disk = SimDisk::new(seed);
            disk.write_file("/base/lost+found/.keep", b"").unwrap();
            archive(&disk).unwrap();
            disk
        };
        let from = |from| {
            need(Some(ClusterNeed {
                from,
                ranges: Vec::new(),
            }))
        };
        // Returns how much was reported.
        let run = |disk: &SimDisk| -> Result<(), usize> {
            let archive = archive(disk).map_err(|_| 0_usize)?;
            archive.add_need(&from(5)).map_err(|_| 0_usize)?;
            let records = archive.need_records().map_err(|_| 1_usize)?.read;
            archive.add_need(&from(9)).map_err(|_| 1_usize)?;
            let old: Vec<&NeedRecord> = records.iter().collect();
            archive.remove_needs(&old).map(drop).map_err(|_| 1_usize)
        };
        let whole = prepared(1);
        let before = whole.steps();
        run(&whole).unwrap();
        let steps = whole.steps();
        assert!(steps > 10, "{steps}");
        let lost = |forgotten: Option<&Fault>| {
            (before..=steps).find_map(|step| {
                let disk = prepared(step).cut_power_at(step);
                forgotten.map(|fault| disk.inject(fault.clone()));
                let reported = run(&disk).map_or_else(|reported| reported, |()| 2);
                disk.images(12).iter().find_map(|image| {
                    let records = archive(image).unwrap().need_records().unwrap();
                    let mut read = records.read.iter();
                    let covers = read.any(|r| r.need.covers(u64::MAX, Lsn(9)));
                    let is_kept = records.unread.is_empty() && (covers || reported == 0);
                    (!is_kept).then(|| format!("step {step}: {records:?}"))
                })
            })
        };
        assert_eq!(lost(None), None);
        // The records' directory is synced before the old record goes; nobody is told that this went.
        let record = |(path, _): &&(PathBuf, Fault)| path.components().count() > 3;
        let syncs = whole.forgetting(before);
        let found: Vec<bool> = syncs
            .iter()
            .filter(record)
            .map(|(_, fault)| lost(Some(fault)).is_some())
            .collect();
        assert_eq!(found, [true, true, false]);
    }
}
