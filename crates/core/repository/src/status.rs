//! What was found out about a database's backups, as small records at its target: verified, drilled, failed.
//!
//! ```text
//! DATABASE/.longshore-status-verify    the last verification of each backup, verified WAL, the last run that failed
//! DATABASE/.longshore-status-drill     the last drill of each backup, the last run that failed
//! DATABASE/.longshore-status-backup    the last run that failed; so for `expire` and `copy`
//! ```
//!
//! A record is JSON and is replaced as a whole. `docs/repository.md` has its members.
//!
//! Invariants
//! - A result counts for a backup only if set and stripes are the very ones that were read. A name proves nothing, and
//!   neither does a time: a copy, a clone and a set that was replaced under its label have no result.
//! - A result never counts as newer than the place's own clock says, and one that is dated later than now does not
//!   count.
//! - A record is anybody's bytes: at most [`LEN_MAX`] of it are read, and one that is not understood is named and
//!   counts for nothing.
//! - No lock is taken. If two programs write at one time, one of the two results may be lost: a backup is then verified
//!   once more, and never taken for verified.
//!
//! Leaves to others: reading and replacing files and objects (`place`), and what is worth an alarm (the programs).

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use jiff::Timestamp;
use longshore_facts as facts;
use longshore_pg::SegmentName;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::Error;
use crate::label::Label;
use crate::place::FoundRecord;
use crate::shelf::{BackupEntry, SetIdentity, Shelf};
use crate::target::STATUS;

/// Longest record that is read or written, in bytes.
pub const LEN_MAX: usize = 1 << 20;

/// The most results, and ranges of WAL, in a record. Older ones are left out: these backups are verified again.
const RESULTS_MAX: usize = 2500;
const RANGES_MAX: usize = 500;

/// Longest text in a record, in characters.
const TEXT_MAX: usize = 400;

/// The version of records that this program writes and reads.
const VERSION: u32 = 1;

/// Times after the year 2255, and as long before 1970, are nobody's: readers of JSON would round them.
const TIME_MAX_US: i64 = 1 << 53;

/// By how much the clocks of two hosts may differ.
const CLOCKS_DIFFER_US: i64 = 3600 * 1_000_000;

/// The kind of run that a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    Verify,
    Drill,
    Backup,
    Expire,
    Copy,
}

impl Task {
    pub const ALL: [Task; 5] = [
        Task::Verify,
        Task::Drill,
        Task::Backup,
        Task::Expire,
        Task::Copy,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Task::Verify => "verify",
            Task::Drill => "drill",
            Task::Backup => "backup",
            Task::Expire => "expire",
            Task::Copy => "copy",
        }
    }

    /// Whether its record has results for backups, and not only the last failure.
    fn has_results(self) -> bool {
        matches!(self, Task::Verify | Task::Drill)
    }

    fn file(self) -> String {
        format!("{STATUS}{}", self.word())
    }
}

/// The time and the host of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witnessed {
    /// Microseconds since the Unix epoch, by the host's clock.
    #[serde(
        rename = "at",
        serialize_with = "to_moment",
        deserialize_with = "moment"
    )]
    pub at_us: i64,
    pub host: String,
}

impl Witnessed {
    /// This host, now.
    pub fn now(now_us: i64) -> Witnessed {
        Witnessed {
            at_us: now_us,
            host: cut(&facts::host_name()),
        }
    }
}

/// The last result for one backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetResult {
    #[serde(serialize_with = "to_text", deserialize_with = "label")]
    pub label: Label,
    #[serde(serialize_with = "to_text", deserialize_with = "set")]
    pub set: Uuid,
    pub stripes: String,
    #[serde(flatten)]
    pub by: Witnessed,
    pub good: bool,
    /// How long it took.
    #[serde(default, deserialize_with = "seconds")]
    pub seconds: Option<f64>,
    /// The damage; empty if there was none.
    #[serde(default)]
    pub text: String,
}

impl SetResult {
    pub fn new(identity: &SetIdentity, by: &Witnessed, wrong: Option<&str>) -> SetResult {
        SetResult {
            label: identity.label.clone(),
            set: identity.set,
            stripes: identity.imprint.clone(),
            by: by.clone(),
            good: wrong.is_none(),
            seconds: None,
            text: cut(wrong.unwrap_or_default()),
        }
    }

    /// Whether it is about this very backup.
    fn is_of(&self, identity: &SetIdentity) -> bool {
        self.set == identity.set && self.stripes == identity.imprint
    }
}

/// Segments of one timeline that were verified together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WalResult {
    #[serde(serialize_with = "to_text", deserialize_with = "segment")]
    pub first: SegmentName,
    #[serde(serialize_with = "to_text", deserialize_with = "segment")]
    pub last: SegmentName,
    /// Tells the last segment from all copies of it.
    pub imprint: String,
    #[serde(flatten)]
    pub by: Witnessed,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    #[serde(flatten)]
    pub by: Witnessed,
    /// The backup that it was about, as far as one is known.
    #[serde(default)]
    pub label: Option<String>,
    pub exit_code: u8,
    pub number: u32,
    pub text: String,
}

impl FailedRun {
    pub fn new(
        by: Witnessed,
        label: Option<&str>,
        (exit_code, number, text): (u8, u32, &str),
    ) -> FailedRun {
        FailedRun {
            by,
            label: label.map(cut),
            exit_code,
            number,
            text: cut(text),
        }
    }
}

/// One record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Record {
    version: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sets: Vec<SetResult>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wal: Vec<WalResult>,
    /// The last run that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<FailedRun>,
    /// The first run after it that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mended: Option<Witnessed>,
}

/// Why a record counts for nothing.
#[derive(Debug, PartialEq, Eq)]
enum Unreadable {
    NoFile,
    NoRecord,
    Newer(u32),
}

impl Record {
    /// The bytes are anybody's, so the reason repeats none of them.
    fn parse(bytes: Option<&[u8]>) -> Result<Record, Unreadable> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let bytes = bytes.ok_or(Unreadable::NoFile)?;
        let head: Head = serde_json::from_slice(bytes).map_err(|_| Unreadable::NoRecord)?;
        if head.version > VERSION {
            return Err(Unreadable::Newer(head.version));
        }
        let mut record: Record = serde_json::from_slice(bytes).map_err(|_| Unreadable::NoRecord)?;
        record.cut();
        Ok(record)
    }

    /// Keeps the newest results of those that are too many, and each set once: the last entry counts.
    fn cut(&mut self) {
        let mut seen = BTreeSet::new();
        self.sets.reverse();
        self.sets.retain(|result| seen.insert(result.set));
        self.sets.sort_by_key(|result| -result.by.at_us);
        self.sets.truncate(RESULTS_MAX);
        self.wal.sort_by_key(|range| -range.by.at_us);
        self.wal.truncate(RANGES_MAX);
        for result in &mut self.sets {
            result.text = cut(&result.text);
            result.by.host = cut(&result.by.host);
            result.stripes = cut(&result.stripes);
        }
        for range in &mut self.wal {
            range.by.host = cut(&range.by.host);
            range.imprint = cut(&range.imprint);
        }
        if let Some(failed) = &mut self.failed {
            failed.text = cut(&failed.text);
            failed.by.host = cut(&failed.by.host);
            failed.label = failed.label.as_deref().map(cut);
        }
    }

    /// The bytes of a record that is short enough to be read again.
    fn encode(&self) -> Vec<u8> {
        let mut record = self.clone();
        record.version = VERSION;
        record.cut();
        loop {
            let mut bytes = serde_json::to_vec(&record).unwrap_or_default();
            bytes.push(b'\n');
            if bytes.len() <= LEN_MAX || record.sets.is_empty() {
                return bytes;
            }
            record.sets.truncate(record.sets.len() / 2);
        }
    }

    /// Adds what another place of the same target says. Of two results for one set the newer counts, and of two of one
    /// time the bad one.
    fn merge(&mut self, other: Record) {
        for result in other.sets {
            let rank = |result: &SetResult| (result.by.at_us, !result.good);
            match self.sets.iter_mut().find(|own| own.set == result.set) {
                Some(own) if rank(&result) > rank(own) => *own = result,
                Some(_) => {}
                None => self.sets.push(result),
            }
        }
        self.wal.extend(other.wal);
        let at = |failed: &Option<FailedRun>| failed.as_ref().map(|failed| failed.by.at_us);
        if at(&other.failed) > at(&self.failed) {
            self.failed = other.failed;
            self.mended = other.mended;
        }
    }

    /// A host whose clock is ahead does not make its results look newer than the place's own clock says.
    fn not_after(&mut self, changed_us: i64) {
        let sets = self.sets.iter_mut().map(|result| &mut result.by);
        let wal = self.wal.iter_mut().map(|range| &mut range.by);
        sets.chain(wal)
            .for_each(|by| by.at_us = by.at_us.min(changed_us).max(-TIME_MAX_US));
    }

    fn add(&mut self, news: &News) {
        for result in &news.sets {
            self.sets.retain(|own| own.set != result.set);
            self.sets.push(result.clone());
        }
        for (first, last) in &news.unsound {
            let overlaps = |own: &WalResult| own.first <= *last && *first <= own.last;
            self.wal.retain(|own| !overlaps(own));
        }
        for range in &news.wal {
            // Each covers what the one that it grew from covers.
            self.wal
                .retain(|own| own.first != range.first || own.last > range.last);
            self.wal.push(range.clone());
        }
        if let Some(failed) = &news.failed {
            self.failed = Some(failed.clone());
            self.mended = None;
        } else if self.failed.is_some() && self.mended.is_none() {
            self.mended.clone_from(&news.mended);
        }
    }
}

/// The part that a run adds to a record.
#[derive(Debug, Clone, Default)]
pub struct News {
    pub sets: Vec<SetResult>,
    pub wal: Vec<WalResult>,
    /// The first and the last segment of WAL that is not good: no earlier result counts for it.
    pub unsound: Vec<(SegmentName, SegmentName)>,
    pub failed: Option<FailedRun>,
    /// A run that did not fail.
    pub mended: Option<Witnessed>,
    /// All labels at the place, if they are known: results for others are left out.
    pub labels: Option<BTreeSet<Label>>,
}

/// Everything that the records of one database say.
#[derive(Debug, Default)]
pub struct Status {
    records: BTreeMap<Task, Record>,
    /// The records that are not understood, and why.
    pub unreadable: Vec<String>,
}

impl Status {
    /// The last result for a backup, if it is about this very backup and not dated later than now.
    pub fn of_set(&self, task: Task, entry: &BackupEntry, now_us: i64) -> Option<&SetResult> {
        let identity = entry.identity()?;
        let record = self.records.get(&task)?;
        let of_it = |result: &&SetResult| result.is_of(&identity);
        let found = record.sets.iter().find(of_it)?;
        is_past(&found.by, now_us).then_some(found)
    }

    /// The last run that failed, and whether one was known to succeed after it.
    pub fn failed(&self, task: Task) -> Option<(&FailedRun, bool)> {
        let record = self.records.get(&task)?;
        Some((record.failed.as_ref()?, record.mended.is_some()))
    }

    /// The verified ranges of WAL that are not dated later than now.
    pub fn wal(&self, now_us: i64) -> impl Iterator<Item = &WalResult> {
        let record = self.records.get(&Task::Verify).into_iter();
        let ranges = record.flat_map(|record| &record.wal);
        ranges.filter(move |range| is_past(&range.by, now_us))
    }

    fn of(found: Vec<FoundRecord>) -> Status {
        let mut status = Status::default();
        for record in found {
            let Some(task) = Task::ALL.into_iter().find(|t| t.file() == record.name) else {
                continue;
            };
            match Record::parse(record.bytes.as_deref()) {
                Ok(mut read) => {
                    read.not_after(record.changed_ns / 1000);
                    status.records.entry(task).or_default().merge(read);
                }
                Err(why) => status.unreadable.push(format!("{}: {why}", record.at)),
            }
        }
        status
    }
}

fn is_past(by: &Witnessed, now_us: i64) -> bool {
    by.at_us.saturating_sub(now_us) <= CLOCKS_DIFFER_US
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::NoFile => {
                write!(f, "it is not a regular file of at most {LEN_MAX} bytes")
            }
            Unreadable::NoRecord => f.write_str("it is damaged or not a record"),
            Unreadable::Newer(version) => write!(f, "a newer version wrote it (form {version})"),
        }
    }
}

impl Shelf {
    /// The content of all records at the place.
    ///
    /// Errors: the place cannot be read.
    pub fn status(&self) -> Result<Status, Error> {
        let names = Task::ALL.map(Task::file);
        let names = names.each_ref().map(String::as_str);
        Ok(Status::of(self.place.records(&names, LEN_MAX)?))
    }

    /// Adds to a record. One that is damaged is replaced.
    ///
    /// Errors: the place cannot be written by this user; [`Error::Nothing`] if it has nothing of the database;
    /// [`Error::NewerRecord`].
    pub fn record(&self, task: Task, news: &News) -> Result<(), Error> {
        let name = task.file();
        let mut record = Record::default();
        let found = match self.place.records(&[&name], LEN_MAX) {
            // Who may only write has nothing to lose there: the last failure counts.
            Err(_) if news.failed.is_some() && !task.has_results() => Vec::new(),
            found => found?,
        };
        for found in found {
            match Record::parse(found.bytes.as_deref()) {
                Ok(read) => record.merge(read),
                Err(Unreadable::Newer(form)) => {
                    return Err(Error::NewerRecord { at: found.at, form });
                }
                Err(Unreadable::NoFile | Unreadable::NoRecord) => {}
            }
        }
        let before = record.clone();
        record.add(news);
        if let Some(labels) = &news.labels {
            record.sets.retain(|result| labels.contains(&result.label));
        }
        match record == before {
            true => Ok(()),
            false => self.place.put_record(&name, &record.encode()),
        }
    }

    /// The identities of these backups as they are now.
    ///
    /// Errors: the place cannot be read.
    pub fn identities(&self, labels: &[Label]) -> Result<Vec<SetIdentity>, Error> {
        let mut found = self.place.look()?;
        found.labels.retain(|label, _| labels.contains(label));
        let listing = self.listing(found)?;
        Ok(listing
            .sets
            .iter()
            .filter_map(BackupEntry::identity)
            .collect())
    }
}

/// A text that is short enough for a record.
fn cut(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

fn to_text<S: Serializer>(value: &impl ToString, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&value.to_string())
}

fn to_moment<S: Serializer>(us: &i64, to: S) -> Result<S::Ok, S::Error> {
    let time = Timestamp::from_microsecond(*us).unwrap_or_default();
    to.serialize_str(&time.to_string())
}

/// The value of a text. The error does not repeat the text.
fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom("another form is expected"))
}

fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    parsed(from, |text| {
        let us = Timestamp::from_str(text).ok()?.as_microsecond();
        (us.abs() <= TIME_MAX_US).then_some(us)
    })
}

fn label<'de, D: Deserializer<'de>>(from: D) -> Result<Label, D::Error> {
    parsed(from, |text| text.parse().ok())
}

fn set<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
    parsed(from, |text| text.parse().ok())
}

fn segment<'de, D: Deserializer<'de>>(from: D) -> Result<SegmentName, D::Error> {
    parsed(from, |text| text.parse().ok())
}

fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    Ok(seconds.filter(|s| s.is_finite() && *s >= 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY_US: i64 = 86_400_000_000;

    fn by(at_us: i64) -> Witnessed {
        Witnessed {
            at_us,
            host: "h".into(),
        }
    }

    fn result(set: u128, at_us: i64, good: bool) -> SetResult {
        let identity = SetIdentity {
            label: format!("20270131T020000Z-full-{set:08x}").parse().unwrap(),
            set: Uuid::from_u128(set),
            imprint: "aa".into(),
        };
        SetResult::new(&identity, &by(at_us), (!good).then_some("a block"))
    }

    fn failed(at_us: i64) -> Option<FailedRun> {
        Some(FailedRun::new(by(at_us), None, (3, 3201, "no\u{1b}[2J")))
    }

    fn full() -> Record {
        Record {
            version: VERSION,
            sets: vec![result(1, 3 * DAY_US, true), result(2, 2 * DAY_US, false)],
            wal: vec![WalResult {
                first: "000000010000000000000001".parse().unwrap(),
                last: "000000010000000000000009".parse().unwrap(),
                imprint: "bb".into(),
                by: by(DAY_US),
            }],
            failed: failed(5),
            mended: Some(by(6)),
        }
    }

    fn found(task: Task, bytes: &[u8], changed_us: i64) -> FoundRecord {
        FoundRecord {
            name: task.file(),
            at: "/t/db/record".into(),
            changed_ns: changed_us * 1000,
            bytes: Some(bytes.to_vec()),
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_and_names_its_times_with_their_zone() {
        let bytes = full().encode();
        assert_eq!(Record::parse(Some(&bytes)), Ok(full()));
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains("\"at\":\"1970-01-04T00:00:00Z\""), "{text}");
        // A later version of this form may say more.
        let more = text.replacen('{', "{\"more\":[1],", 1);
        assert_eq!(Record::parse(Some(more.as_bytes())), Ok(full()));
    }

    #[test]
    fn the_newest_results_stay_where_there_are_too_many() {
        let record = Record {
            sets: (0..9000).map(|n| result(n, n as i64, true)).collect(),
            ..full()
        };
        let bytes = record.encode();
        assert!(bytes.len() <= LEN_MAX, "{}", bytes.len());
        let read = Record::parse(Some(&bytes)).unwrap();
        assert_eq!(read.sets.len(), RESULTS_MAX);
        assert_eq!(read.sets[0].by.at_us, 8999);
    }

    #[test]
    fn a_damaged_result_counts_until_the_same_set_is_found_good_again() {
        let mut record = full();
        let news = |good, at_us| News {
            sets: vec![result(2, at_us, good)],
            ..News::default()
        };
        let good = |record: &Record| {
            let found = record.sets.iter().find(|r| r.set == Uuid::from_u128(2));
            found.unwrap().good
        };
        record.add(&news(true, 9));
        assert!(
            good(&record),
            "by order of writing, whatever the clock says"
        );
        record.add(&news(false, 1));
        assert!(!good(&record));
        // Another place of the target is older, or as old.
        for (at_us, is_good) in [(0, false), (1, false), (2, true)] {
            let mut both = record.clone();
            let sets = vec![result(2, at_us, true)];
            both.merge(Record {
                sets,
                ..Record::default()
            });
            assert_eq!(good(&both), is_good, "{at_us}");
        }
    }

    #[test]
    fn wal_that_is_found_damaged_has_no_earlier_result() {
        let name = |n: u32| format!("0000000100000000{n:08X}").parse().unwrap();
        let range = |first, last| WalResult {
            first: name(first),
            last: name(last),
            imprint: "bb".into(),
            by: by(DAY_US),
        };
        let mut record = Record {
            wal: vec![range(1, 4), range(5, 9), range(10, 12)],
            ..Record::default()
        };
        record.add(&News {
            wal: vec![range(10, 14)],
            unsound: vec![(name(8), name(9))],
            ..News::default()
        });
        assert_eq!(record.wal, [range(1, 4), range(10, 14)]);
    }

    #[test]
    fn a_failure_stays_until_a_newer_one_and_is_known_to_be_mended() {
        let mut record = Record::default();
        let mended = |at_us| News {
            mended: Some(by(at_us)),
            ..News::default()
        };
        record.add(&mended(1));
        assert_eq!(record, Record::default(), "there is nothing to mend");
        record.add(&News {
            failed: failed(2),
            ..News::default()
        });
        record.add(&mended(3));
        record.add(&mended(4));
        assert_eq!(record.mended, Some(by(3)));
        record.add(&News {
            failed: failed(5),
            ..mended(5)
        });
        assert_eq!((record.failed, record.mended), (failed(5), None));
    }

    #[test]
    fn what_is_no_record_is_named_and_counts_for_nothing() {
        let newer = b"{\"version\":2,\"sets\":7}";
        let deep = "[".repeat(200_000);
        let text = String::from_utf8(full().encode()).unwrap();
        let wrong = |from: &str, to: &str| text.replace(from, to);
        for (bytes, why) in [
            (&b""[..], "damaged"),
            (b"\0\0\0", "damaged"),
            (b"null", "damaged"),
            (b"{}", "damaged"),
            (b"{\"version\":-1}", "damaged"),
            (newer, "newer version"),
            (deep.as_bytes(), "damaged"),
            (&text.as_bytes()[..text.len() / 2], "damaged"),
            (wrong("-full-", "-half-").as_bytes(), "damaged"),
            (wrong("1970-01-04T", "19970-01-04T").as_bytes(), "damaged"),
            (wrong("1970-01-04T", "9970-01-04T").as_bytes(), "damaged"),
            (wrong("1970-01-04T", "x").as_bytes(), "damaged"),
            (wrong("\"good\":true", "\"good\":1").as_bytes(), "damaged"),
        ] {
            let status = Status::of(vec![found(Task::Verify, bytes, DAY_US)]);
            assert!(status.records.is_empty());
            assert_eq!(status.unreadable.len(), 1, "{why}");
            let told = &status.unreadable[0];
            assert!(told.starts_with("/t/db/record: "), "{told}");
            assert!(told.contains(why), "{told}");
        }
        let mut long = found(Task::Drill, b"", 0);
        long.bytes = None;
        let status = Status::of(vec![long]);
        assert!(status.unreadable[0].contains("regular file"));
    }

    #[test]
    fn a_fast_clock_makes_nothing_look_newer_than_the_place_says_or_than_now() {
        let record = Record {
            sets: vec![result(1, 900 * DAY_US, true)],
            ..full()
        };
        let bytes = record.encode();
        let read = |changed_us| {
            let status = Status::of(vec![found(Task::Verify, &bytes, changed_us)]);
            status.records[&Task::Verify].sets[0].by.clone()
        };
        assert_eq!(read(10 * DAY_US).at_us, 10 * DAY_US);
        let far = read(1000 * DAY_US);
        assert_eq!(far.at_us, 900 * DAY_US);
        assert!(!is_past(&far, 800 * DAY_US));
        assert!(is_past(&far, 900 * DAY_US - CLOCKS_DIFFER_US));
        assert!(is_past(&by(i64::MIN), i64::MAX) && !is_past(&by(i64::MAX), i64::MIN));
    }

    proptest! {
        /// Goal: a record is anybody's bytes. None of them is a panic, and what is read fits into a record again.
        #[test]
        fn no_bytes_are_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            at in 0_usize..700,
            cut in 0_usize..900,
        ) {
            let whole = full().encode();
            let mut changed = whole.clone();
            let at = at.min(changed.len());
            changed.splice(at..at, bytes.iter().copied());
            let mut flipped = whole.clone();
            for (i, byte) in bytes.iter().take(3).enumerate() {
                let place = (at + i * 31) % flipped.len();
                flipped[place] ^= byte;
            }
            let short = &whole[..cut.min(whole.len())];
            for bytes in [&bytes[..], &changed, &flipped, short] {
                if let Ok(read) = Record::parse(Some(bytes)) {
                    let again = read.encode();
                    prop_assert!(again.len() <= LEN_MAX);
                    prop_assert_eq!(Record::parse(Some(&again)), Ok(read));
                }
                let status = Status::of(vec![found(Task::Verify, bytes, DAY_US)]);
                prop_assert_eq!(status.unreadable.len() + status.records.len(), 1);
                let told = status.unreadable.concat();
                prop_assert!(!told.contains(char::is_control));
            }
        }
    }
}
