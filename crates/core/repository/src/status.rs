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
//! - A drill's finding in a set's content counts for the set wherever its stripes lie: all copies have that content.
//! - A result never counts as newer than the place's own clock says, also after others were written to its record, and
//!   one that is dated later than now does not count.
//! - A failed run is mended by a run that read what it had failed at, and that began after it. No result from before a
//!   verification that ended without an answer counts as having read it.
//! - WAL that was found not to be good stays so until a later run has read it, whatever an older record says.
//! - A record is anybody's bytes: at most [`LEN_MAX`] of it are read, and one that is not understood is named and
//!   counts for nothing.
//! - No lock is taken. If two programs write at one time, one of the two results may be lost: a backup is then verified
//!   once more, and never taken for verified. Damage and a failure are read back, and written again if they are lost.
//!
//! Leaves to others: reading and replacing files and objects (`place`), and what is worth an alarm (the programs).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use jiff::Timestamp;
use longshore_facts as facts;
use longshore_pg::{SegmentName, SegmentSize};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::Error;
use crate::label::Label;
use crate::place::FoundRecord;
use crate::shelf::{BackupEntry, SetIdentity, Shelf};
use crate::target::STATUS;

/// Longest record that is read or written, in bytes.
pub const LEN_MAX: usize = 1 << 20;

/// The most results, and ranges of WAL, in a record. Older ones are left out, good results first: these backups are verified
/// again.
const RESULTS_MAX: usize = 2500;
const RANGES_MAX: usize = 500;
const SEGMENTS_MAX: usize = 40_000;

/// Longest text in a record, in characters.
const TEXT_MAX: usize = 400;

/// The version of records that this program writes and reads.
const VERSION: u32 = 1;

/// Times after the year 2255, and as long before 1970, are nobody's: readers of JSON would round them.
const TIME_MAX_US: i64 = 1 << 53;

/// How often damage or a failure is written that is not there when it is read back.
const WRITES: usize = 3;

/// The exit code of a run that found damage: what it failed at was read, and has a result.
const FOUND_DAMAGE: u8 = 1;

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
    /// Whether the damage is in what the set holds, so that each copy of it has the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub content: bool,
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
            content: false,
        }
    }

    /// Whether it is of the same stripes and kind, so that the newer of the two counts: a finding in the content and a result of
    /// stripes say nothing about each other.
    fn is_kin(&self, other: &SetResult) -> bool {
        self.set == other.set && self.stripes == other.stripes && self.content == other.content
    }

    /// Whether it counts no longer once this one is written after it. Only a drill of the whole content, of whichever copy, says
    /// anything about an earlier finding in it; a result of other stripes stays.
    fn is_replaced_by(&self, later: &SetResult) -> bool {
        let has_content = later.good || later.content;
        let same_stripes = self.stripes == later.stripes;
        self.set == later.set
            && if self.content {
                has_content
            } else {
                same_stripes
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
    /// One for each segment, in order: tells it from all copies of it, and from what may have its name later.
    #[serde(serialize_with = "to_digits", deserialize_with = "digits", default)]
    pub imprints: Vec<u32>,
    /// The time and the host of the first of them that was read.
    #[serde(flatten)]
    pub by: Witnessed,
}

/// Segments of one timeline of which one is not good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsoundWal {
    #[serde(serialize_with = "to_text", deserialize_with = "segment")]
    pub first: SegmentName,
    #[serde(serialize_with = "to_text", deserialize_with = "segment")]
    pub last: SegmentName,
    #[serde(flatten)]
    pub by: Witnessed,
}

impl UnsoundWal {
    /// Whether a range has some of it, and was not verified later.
    fn refutes(&self, range: &WalResult) -> bool {
        self.overlaps(range) && range.by.at_us <= self.by.at_us
    }

    fn overlaps(&self, range: &WalResult) -> bool {
        range.first <= self.last && self.first <= range.last
    }
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    #[serde(flatten)]
    pub by: Witnessed,
    /// The backup that it was about, as far as one is known.
    #[serde(default)]
    pub label: Option<String>,
    /// The other target, of a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether it failed at other backups, too, or may have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Whether it failed at the WAL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wal: bool,
    /// Whether it ended before it had read what it failed at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
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
            to: None,
            more: false,
            wal: false,
            unread: exit_code != FOUND_DAMAGE,
            exit_code,
            number,
            text: cut(text),
        }
    }

    /// The same, at the WAL.
    pub fn of_wal(self) -> FailedRun {
        FailedRun { wal: true, ..self }
    }

    /// Adds that the run failed at this, too, or that an earlier one did and nothing has mended it.
    pub fn also(&mut self, other: &FailedRun) {
        // The other's label says nothing about a failure that names neither a backup nor the WAL.
        let (own_nothing, others_nothing) = (self.names_nothing(), other.names_nothing());
        self.more |= other.more || own_nothing != others_nothing;
        self.unread = (self.unread && !own_nothing) || (other.unread && !others_nothing);
        match (&self.label, &other.label) {
            (Some(own), Some(other)) => self.more |= own != other,
            (None, Some(_)) => self.label.clone_from(&other.label),
            (_, None) => {}
        }
        self.wal |= other.wal;
    }

    /// Whether it could not read this backup, so that an earlier result says nothing about it.
    pub fn doubts(&self, label: &Label, result: &Witnessed) -> bool {
        let names = self.more || self.label.as_deref() == Some(label.as_str());
        names && self.is_after(result)
    }

    /// Whether it could not read the WAL, so that an earlier result says nothing about it.
    pub fn doubts_wal(&self, result: &Witnessed) -> bool {
        self.wal && self.is_after(result)
    }

    fn is_after(&self, result: &Witnessed) -> bool {
        self.unread && result.at_us <= self.by.at_us
    }

    /// Whether a run that mended this one has read all that the other failed at.
    fn has_all_of(&self, other: &FailedRun) -> bool {
        let has_label = self.more || (self.label == other.label && !other.more);
        has_label && (self.wal || !other.wal) && self.to == other.to
    }

    /// Whether nobody knows which backup, or whether the WAL, it failed at.
    fn names_nothing(&self) -> bool {
        self.label.is_none() && !self.wal && !self.more
    }
}

/// A run that did not fail, and what it says about one that did.
#[derive(Debug, Clone)]
pub struct GoodRun {
    pub by: Witnessed,
    /// When it began: it says nothing about a failure after that.
    pub began_us: i64,
    /// The backups that it found good; `None`: all that are there.
    pub backups: Option<BTreeSet<Label>>,
    /// Whether it found all WAL good.
    pub wal: bool,
    /// The targets that it copied to; `None`: all that are configured.
    pub to: Option<BTreeSet<String>>,
}

impl GoodRun {
    fn mends(&self, failed: &FailedRun) -> bool {
        let has_read = match (&failed.label, &self.backups) {
            (_, None) => true,
            (_, Some(_)) if failed.more => false,
            (Some(label), Some(good)) => good.iter().any(|own| own.as_str() == label),
            (None, Some(_)) => true,
        };
        let has_reached = match (&failed.to, &self.to) {
            (Some(to), Some(reached)) => reached.contains(to),
            (None, _) | (_, None) => true,
        };
        let has_all = has_read && has_reached && (self.wal || !failed.wal);
        has_all && failed.by.at_us <= self.began_us
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
    /// WAL that was not good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unsound: Vec<UnsoundWal>,
    /// The last run that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<FailedRun>,
    /// The first run after it that mended it.
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

    /// Keeps the newest results of those that are too many, bad ones first, and each backup once: the last entry counts.
    fn cut(&mut self) {
        let mut seen = BTreeSet::new();
        self.sets.reverse();
        self.sets
            .retain(|own| seen.insert((own.set, own.stripes.clone(), own.content)));
        self.keep_results(RESULTS_MAX);
        self.wal.sort_by_key(|range| -range.by.at_us);
        self.wal.truncate(RANGES_MAX);
        let mut segments = 0;
        self.wal.retain(|range| {
            segments += range.imprints.len();
            segments <= SEGMENTS_MAX
        });
        self.unsound.sort_by_key(|lost| -lost.by.at_us);
        self.unsound.truncate(RANGES_MAX);
        for result in &mut self.sets {
            result.text = cut(&result.text);
            result.by.host = cut(&result.by.host);
            result.stripes = cut(&result.stripes);
        }
        for range in &mut self.wal {
            range.by.host = cut(&range.by.host);
        }
        for lost in &mut self.unsound {
            lost.by.host = cut(&lost.by.host);
        }
        if let Some(failed) = &mut self.failed {
            failed.text = cut(&failed.text);
            failed.by.host = cut(&failed.by.host);
            failed.label = failed.label.as_deref().map(cut);
            failed.to = failed.to.as_deref().map(cut);
        }
    }

    /// Keeps so many results, the newest first: a good one that is left out is read again, and a bad one forgotten.
    fn keep_results(&mut self, most: usize) {
        self.sets
            .sort_by_key(|result| (result.good, -result.by.at_us));
        self.sets.truncate(most);
        self.sets.sort_by_key(|result| -result.by.at_us);
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
            record.keep_results(record.sets.len() / 2);
        }
    }

    /// Adds what another place of the same target says. Of two results for one backup the newer counts, and of two of one
    /// time the bad one.
    fn merge(&mut self, task: Task, other: Record) {
        for result in other.sets {
            let rank = |result: &SetResult| (result.by.at_us, !result.good);
            match self.sets.iter_mut().find(|own| own.is_kin(&result)) {
                Some(own) if rank(&result) > rank(own) => *own = result,
                Some(_) => {}
                None => self.sets.push(result),
            }
        }
        for range in other.wal {
            let is_same = |own: &&mut WalResult| {
                (own.first, own.last) == (range.first, range.last) && own.imprints == range.imprints
            };
            match self.wal.iter_mut().find(is_same) {
                Some(own) if range.by.at_us > own.by.at_us => own.by = range.by,
                Some(_) => {}
                None => self.wal.push(range),
            }
        }
        for lost in other.unsound {
            let ends = (lost.first, lost.last);
            let is_same = |own: &&mut UnsoundWal| (own.first, own.last) == ends;
            match self.unsound.iter_mut().find(is_same) {
                Some(own) if lost.by.at_us > own.by.at_us => own.by = lost.by,
                Some(_) => {}
                None => self.unsound.push(lost),
            }
        }
        self.refute();
        self.merge_failed(task, (other.failed, other.mended));
    }

    /// The last failure of two places. A mended one says nothing about an older one of something else that is open.
    fn merge_failed(
        &mut self,
        task: Task,
        (failed, mended): (Option<FailedRun>, Option<Witnessed>),
    ) {
        let Some(failed) = failed else { return };
        let own = self.failed.take().map(|own| (own, self.mended.take()));
        let (run, mended) = match own {
            None => (failed, mended),
            // It was mended at one place only.
            Some((own, own_mended)) if own == failed => (own, own_mended.or(mended)),
            Some(own) => {
                let both = match failed.by.at_us > own.0.by.at_us {
                    true => ((failed, mended), own),
                    false => (own, (failed, mended)),
                };
                match both {
                    ((mut last, None), (earlier, None)) => {
                        if task == Task::Verify {
                            last.also(&earlier);
                        }
                        (last, None)
                    }
                    ((last, Some(_)), (earlier, None)) if !last.has_all_of(&earlier) => {
                        (earlier, None)
                    }
                    (last, _) => last,
                }
            }
        };
        self.failed = Some(run);
        self.mended = mended;
    }

    /// Keeps an earlier failure open that nothing has mended: only the last one has its text.
    fn keep_open(&mut self, before: &Record) {
        let is_open = before.mended.is_none() && self.failed != before.failed;
        let earlier = before.failed.as_ref().filter(|_| is_open);
        if let (Some(last), Some(earlier)) = (&mut self.failed, earlier) {
            last.also(earlier);
        }
    }

    /// Whether it has the damage and the failure in this part, or a later result.
    fn has_damage(&self, news: &News) -> bool {
        let has_set = |bad: &SetResult| {
            let is_later = |own: &SetResult| own.by.at_us > bad.by.at_us;
            let has_it = |own: &SetResult| {
                own.is_kin(bad) && !own.good || bad.is_replaced_by(own) && is_later(own)
            };
            self.sets.iter().any(has_it)
        };
        let has_wal = |lost: &UnsoundWal| {
            let holds = |own: &UnsoundWal| own.first <= lost.first && lost.last <= own.last;
            self.unsound.iter().any(holds)
        };
        let has_failed = |run: &FailedRun| {
            let own = self.failed.as_ref();
            own.is_some_and(|own| own.by.at_us >= run.by.at_us || own.text == run.text)
        };
        news.sets.iter().filter(|own| !own.good).all(has_set)
            && news.unsound.iter().all(has_wal)
            && news.failed.iter().all(has_failed)
    }

    /// Drops the verified ranges that have WAL which was not good later.
    fn refute(&mut self) {
        let unsound = &self.unsound;
        self.wal
            .retain(|range| !unsound.iter().any(|lost| lost.refutes(range)));
    }

    /// A host whose clock is ahead does not make its results look newer than the place's own clock says.
    fn not_after(&mut self, changed_us: i64) {
        let sets = self.sets.iter_mut().map(|result| &mut result.by);
        let wal = self.wal.iter_mut().map(|range| &mut range.by);
        let unsound = self.unsound.iter_mut().map(|lost| &mut lost.by);
        let failed = self.failed.iter_mut().map(|failed| &mut failed.by);
        sets.chain(wal)
            .chain(unsound)
            .chain(failed)
            .for_each(|by| by.at_us = by.at_us.min(changed_us).max(-TIME_MAX_US));
    }

    fn add(&mut self, news: &News) {
        for result in &news.sets {
            self.sets.retain(|own| !own.is_replaced_by(result));
            self.sets.push(result.clone());
        }
        for lost in &news.unsound {
            self.unsound
                .retain(|own| own.first < lost.first || lost.last < own.last);
            // By order of writing: the clock of this host, or of the one that found it good, may be wrong.
            let known = self.wal.iter().filter(|range| lost.overlaps(range));
            let known_us = known.map(|range| range.by.at_us).max();
            let mut lost = lost.clone();
            lost.by.at_us = known_us.map_or(lost.by.at_us, |us| us.max(lost.by.at_us));
            self.unsound.push(lost);
        }
        self.refute();
        for range in &news.wal {
            // The one that it grew from, and older ones of the same WAL.
            self.wal
                .retain(|own| own.first < range.first || own.last > range.last);
            self.wal.push(range.clone());
        }
        if let Some(failed) = &news.failed {
            self.failed = Some(failed.clone());
            self.mended = None;
        } else if let (Some(failed), Some(run), None) = (&self.failed, &news.good, &self.mended)
            && run.mends(failed)
        {
            self.mended = Some(run.by.clone());
        }
    }
}

/// The part that a run adds to a record.
#[derive(Debug, Clone, Default)]
pub struct News {
    pub sets: Vec<SetResult>,
    pub wal: Vec<WalResult>,
    /// WAL that is not good: no earlier result counts for it.
    pub unsound: Vec<UnsoundWal>,
    pub failed: Option<FailedRun>,
    /// A run that did not fail.
    pub good: Option<GoodRun>,
    /// All labels at the place, if they are known: earlier results for others are left out.
    pub labels: Option<LabelsThen>,
}

impl News {
    /// Whether an alarm would end if it were lost.
    fn has_damage(&self) -> bool {
        let is_bad = self.sets.iter().any(|result| !result.good);
        is_bad || !self.unsound.is_empty() || self.failed.is_some()
    }
}

/// The labels at a place at one time.
#[derive(Debug, Clone)]
pub struct LabelsThen {
    pub labels: BTreeSet<Label>,
    pub at_us: i64,
}

impl LabelsThen {
    /// Whether the backup of a result may be there: another host may have made it since.
    fn may_have(&self, result: &SetResult) -> bool {
        let later_us = result.by.at_us.saturating_add(CLOCKS_DIFFER_US);
        self.labels.contains(&result.label) || later_us >= self.at_us
    }
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
        let condemned = self.condemned(identity.set).is_some();
        let of_it = |result: &&SetResult| result.is_of(&identity) && (!result.content || condemned);
        let all = record.sets.iter().filter(of_it);
        let found = all.max_by_key(|result| (result.by.at_us, !result.good))?;
        is_past(&found.by, now_us).then_some(found)
    }

    /// What the last verification or the last drill of this very backup found to be wrong, or a drill in the content of a
    /// copy of it; `None`: nothing, or there was none. A time says nothing here: a bad result of a host whose clock is ahead
    /// counts.
    pub(crate) fn bad(&self, entry: &BackupEntry) -> Option<String> {
        let identity = entry.identity()?;
        let is_bad = |task: &Task| {
            let own = |own: &SetResult| own.is_of(&identity) && !own.good && !own.content;
            self.results_of(*task).iter().any(own)
        };
        let told = |task: Task| format!("was found not to be good by {}", task.word());
        let found = [Task::Verify, Task::Drill].into_iter().find(is_bad);
        found
            .or_else(|| self.condemned(identity.set).map(|_| Task::Drill))
            .map(told)
    }

    /// The last drill of a set, of whichever copy of it, if it found the content not to be good.
    fn condemned(&self, set: Uuid) -> Option<&SetResult> {
        self.last_of_content(set).filter(|last| !last.good)
    }

    /// The last drill that says anything about a set's content. Of two of one time the bad one counts.
    fn last_of_content(&self, set: Uuid) -> Option<&SetResult> {
        let of_it = |result: &&SetResult| result.set == set && (result.good || result.content);
        let all = self.results_of(Task::Drill).iter().filter(of_it);
        all.max_by_key(|result| (result.by.at_us, !result.good))
    }

    fn results_of(&self, task: Task) -> &[SetResult] {
        let record = self.records.get(&task);
        record.map_or(&[], |record| &record.sets)
    }

    /// Takes drills of another place into account, as far as they say anything about the content of sets.
    fn heed(&mut self, drills: &[SetResult]) {
        let sets = drills.to_vec();
        let other = Record {
            sets,
            ..Record::default()
        };
        let own = self.records.entry(Task::Drill).or_default();
        own.merge(Task::Drill, other);
    }

    /// When a backup under this label was last read, whatever was found: it was complete then, once at least. `None`: no
    /// record knows.
    pub(crate) fn was_read_us(&self, label: &Label) -> Option<i64> {
        let results = self.records.values().flat_map(|record| &record.sets);
        let of_it = results.filter(|result| result.label == *label);
        of_it.map(|result| result.by.at_us).max()
    }

    /// The last run that failed, and whether a later one mended it.
    pub fn failed(&self, task: Task) -> Option<(&FailedRun, bool)> {
        let record = self.records.get(&task)?;
        Some((record.failed.as_ref()?, record.mended.is_some()))
    }

    /// The last run that failed, unless a later one mended it.
    pub fn open(&self, task: Task) -> Option<&FailedRun> {
        let (failed, is_mended) = self.failed(task)?;
        (!is_mended).then_some(failed)
    }

    /// The verified ranges of WAL that are not dated later than now.
    pub fn wal(&self, now_us: i64) -> impl Iterator<Item = &WalResult> {
        let record = self.records.get(&Task::Verify).into_iter();
        let ranges = record.flat_map(|record| &record.wal);
        ranges.filter(move |range| is_past(&range.by, now_us))
    }

    /// WAL of this run of segments that was not good, and that no later run has read and found good.
    pub fn unsound_wal(
        &self,
        (first, last): (SegmentName, SegmentName),
        size: SegmentSize,
    ) -> Vec<&UnsoundWal> {
        let Some(record) = self.records.get(&Task::Verify) else {
            return Vec::new();
        };
        let is_open = |lost: &&UnsoundWal| {
            let mut name = lost.first.max(first);
            let end = lost.last.min(last);
            while name <= end {
                // All ranges that have some of it are later.
                let covers = |range: &&WalResult| range.first <= name && name <= range.last;
                match record.wal.iter().find(covers) {
                    Some(range) if range.last.next(size) > name => name = range.last.next(size),
                    Some(_) => return false,
                    None => return true,
                }
            }
            false
        };
        record.unsound.iter().filter(is_open).collect()
    }

    fn of(found: impl IntoIterator<Item = FoundRecord>) -> Status {
        let mut status = Status::default();
        for record in found {
            let Some(task) = Task::ALL.into_iter().find(|t| t.file() == record.name) else {
                continue;
            };
            match Record::parse(record.bytes.as_deref()) {
                Ok(mut read) => {
                    read.not_after(record.changed_ns / 1000);
                    status.records.entry(task).or_default().merge(task, read);
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

    /// The records with results for backups.
    ///
    /// Errors: the place cannot be read.
    pub(crate) fn results(&self) -> Result<Status, Error> {
        let names = [Task::Verify, Task::Drill].map(Task::file);
        let names = names.each_ref().map(String::as_str);
        Ok(Status::of(self.place.records(&names, LEN_MAX)?))
    }

    /// The results that say which backups are bad: the records' and those of copies that are heeded.
    ///
    /// Errors: the place cannot be read.
    pub(crate) fn judgements(&self) -> Result<Status, Error> {
        let mut status = self.results()?;
        status.heed(&self.heeded_results());
        Ok(status)
    }

    /// The same, which also counts what drills of the database's backups at another place found in their content. Records
    /// that cannot be read there say nothing.
    #[must_use]
    pub fn heeding(self, other: &Shelf) -> Shelf {
        let found = other.place.records(&[&Task::Drill.file()], LEN_MAX);
        Shelf {
            heeded: found.unwrap_or_default().into(),
            ..self
        }
    }

    /// The results of drills that it heeds, about the content of sets.
    fn heeded_results(&self) -> Vec<SetResult> {
        let status = Status::of(self.heeded.iter().cloned());
        let is_last = |result: &&SetResult| status.last_of_content(result.set) == Some(*result);
        let results = status.results_of(Task::Drill).iter();
        results.filter(is_last).cloned().collect()
    }

    /// Records what drills of a copy of these sets, which this shelf heeds, found in their content, so that it counts where only
    /// this place is left.
    ///
    /// Errors: those of [`Shelf::record`].
    pub fn record_heeded(&self, sets: &[Uuid]) -> Result<(), Error> {
        let mut results = self.heeded_results();
        results.retain(|heeded| sets.contains(&heeded.set));
        self.record_drilled(results)
    }

    /// Records what drills of copies found in the content of sets, as far as it is news here.
    ///
    /// Errors: those of [`Shelf::record`].
    pub fn record_drilled(&self, results: Vec<SetResult>) -> Result<(), Error> {
        let own = self.results()?;
        let is_news = |other: &SetResult| {
            let known = own.last_of_content(other.set);
            let is_later = known.is_none_or(|known| known.by.at_us < other.by.at_us);
            // A good result is about the stripes that were read: it only lifts a bad one.
            is_later && (!other.good || known.is_some_and(|known| !known.good))
        };
        let mut sets = results;
        sets.retain(|other| is_news(other));
        if sets.is_empty() {
            return Ok(());
        }
        let news = News {
            sets,
            ..News::default()
        };
        self.record(Task::Drill, &news)
    }

    /// Whether a drill found the content of this set, and so of all copies of it, not to be good. Records that cannot be read say
    /// nothing.
    pub fn condemns(&self, set: Uuid) -> bool {
        self.judgements()
            .is_ok_and(|status| status.condemned(set).is_some())
    }

    /// The same of the set of a backup.
    pub fn is_content_bad(&self, entry: &BackupEntry) -> bool {
        let set = entry.complete().map(|complete| complete.header.set);
        set.is_some_and(|set| self.condemns(set))
    }

    /// Adds to a record. One that is damaged is replaced.
    ///
    /// Errors: the place cannot be written by this user; [`Error::Nothing`] if it has nothing of the database;
    /// [`Error::NewerRecord`].
    pub fn record(&self, task: Task, news: &News) -> Result<(), Error> {
        for _ in 0..WRITES {
            self.record_once(task, news)?;
            if !news.has_damage() || self.has_recorded(task, news) {
                break;
            }
        }
        Ok(())
    }

    /// Whether no other program wrote over this damage. A user who may only write cannot know.
    fn has_recorded(&self, task: Task, news: &News) -> bool {
        self.status().map_or(true, |status| {
            let record = status.records.get(&task);
            !status.unreadable.is_empty() || record.is_some_and(|own| own.has_damage(news))
        })
    }

    fn record_once(&self, task: Task, news: &News) -> Result<(), Error> {
        let name = task.file();
        let mut record = Record::default();
        let found = match self.place.records(&[&name], LEN_MAX) {
            // Who may only write has nothing to lose there: the last failure counts.
            Err(_) if news.failed.is_some() && !task.has_results() => Vec::new(),
            found => found?,
        };
        for found in found {
            match Record::parse(found.bytes.as_deref()) {
                // The record's next time would make a result that is dated ahead newer with each run.
                Ok(mut read) => {
                    read.not_after(found.changed_ns / 1000);
                    record.merge(task, read);
                }
                Err(Unreadable::Newer(form)) => {
                    return Err(Error::NewerRecord { at: found.at, form });
                }
                Err(Unreadable::NoFile | Unreadable::NoRecord) => {}
            }
        }
        let before = record.clone();
        record.add(news);
        if task == Task::Verify {
            record.keep_open(&before);
        }
        if let Some(labels) = &news.labels {
            record.sets.retain(|result| labels.may_have(result));
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
        Ok(self
            .listed(labels)?
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

fn to_digits<S: Serializer>(values: &[u32], to: S) -> Result<S::Ok, S::Error> {
    let digits = values.iter().map(|value| format!("{value:08x}"));
    to.serialize_str(&digits.collect::<String>())
}

/// Numbers of eight hexadecimal digits each.
fn digits<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    parsed(from, |text| {
        let (parts, rest) = text.as_bytes().as_chunks::<8>();
        let value = |part: &[u8; 8]| {
            let text = std::str::from_utf8(part).ok()?;
            let is_plain = text.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(text, 16).ok().filter(|_| is_plain)
        };
        let values = parts.iter().map(value).collect::<Option<Vec<u32>>>()?;
        rest.is_empty().then_some(values)
    })
}

fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let seconds = Option::<f64>::deserialize(from)?;
    Ok(seconds.filter(|s| s.is_finite() && *s >= 0.0))
}
