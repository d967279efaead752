//! Which backup a recovery begins with, and whether the log from there to its target is there.
//!
//! The newest backup that was complete before the target, on the way that is followed, is the one to take: it leaves
//! the least to replay, and every older one needs all of its log, too. What is not whole is passed over, and named.
//!
//! What can be known of a target beforehand: a place in the log is known. A moment lies behind every backup that was
//! complete before it, and before every one that was begun after it. A transaction or a named point may be anywhere.
//! Whether the log goes on beyond a moment is told by the last transaction in it; as clocks may be set back that is
//! a warning's reason, not a refusal's.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;

use longshore_pg::lineage::Found;
use longshore_pg::wal::{History, Records, WalName, latest_end};
use longshore_pg::{
    Lsn, Recovery, RecoveryTarget, SegmentName, Timeline, TimelineChoice, Witness, recovery,
};

use crate::branch::{self, Branch};
use crate::chain::{LogRange, SetFacts, chain};
use crate::label::Label;
use crate::wal::{self, WalArchive};

/// The parts of the log that a recovery needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Replay gets here whatever comes; [`Lsn`] of the highest value: to the archive's end.
    pub certain: Lsn,
    /// It goes no further than this.
    pub possible: Lsn,
}

impl Reach {
    /// What is known without other backups than the one that begins, which is consistent at `last`.
    pub fn of(target: Option<&RecoveryTarget>, last: Lsn) -> Reach {
        let to_end = Lsn(u64::MAX);
        match target {
            None => Reach {
                certain: to_end,
                possible: to_end,
            },
            Some(RecoveryTarget::Immediate) => Reach {
                certain: last,
                possible: last,
            },
            // Replay ends at the first record that begins there or later.
            Some(RecoveryTarget::Lsn(lsn)) => Reach {
                certain: Lsn(lsn.0.saturating_add(1)),
                possible: Lsn(lsn.0.saturating_add(1)),
            },
            Some(RecoveryTarget::Time(_) | RecoveryTarget::Xid(_) | RecoveryTarget::Name(_)) => {
                Reach {
                    certain: last,
                    possible: to_end,
                }
            }
        }
    }
}

/// A backup that is newer than the one that was taken, and why it was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    pub label: Label,
    pub why: String,
}

/// The backup to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Among those given.
    pub index: usize,
    pub passed: Vec<Passed>,
    pub reach: Reach,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoChoice {
    pub passed: Vec<Passed>,
    /// Whole backups that were complete only after the target.
    pub later: usize,
    /// Backups of several branches could be it, and nothing tells which is meant.
    pub several: bool,
}

/// What ends replay, for people.
pub fn target_text(target: Option<&RecoveryTarget>) -> String {
    match target {
        None => "the end of the log".to_owned(),
        Some(RecoveryTarget::Immediate) => "its own moment".to_owned(),
        Some(RecoveryTarget::Time(us)) => recovery::time(*us),
        Some(RecoveryTarget::Lsn(lsn)) => lsn.to_string(),
        Some(RecoveryTarget::Xid(xid)) => format!("transaction {xid}"),
        Some(RecoveryTarget::Name(name)) => format!("restore point {name:?}"),
    }
}

/// The ways through the archive, by the timeline that they are sought from. Read once each.
struct Ways<'a> {
    archive: Option<&'a WalArchive>,
    recovery: &'a Recovery,
    known: BTreeMap<Timeline, Result<History, String>>,
}

impl Ways<'_> {
    /// Whether a backup that ended there can be brought forward on the way that is followed; else why not.
    fn pass(&mut self, timeline: Timeline, last: Lsn) -> Result<(), String> {
        let Some(archive) = self.archive else {
            return Ok(());
        };
        let choice = self.recovery.timeline;
        let way = self.known.entry(timeline).or_insert_with(|| {
            let way = archive.way(choice, timeline);
            way.map_err(|e| e.to_string())
        });
        match way {
            Ok(history) if history.passes(timeline, last) => Ok(()),
            Ok(history) => Err(format!(
                "it ended on timeline {timeline} at {last}, from where timeline {} does not come",
                history.timeline()
            )),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Which backups belong to the log that is followed.
struct Belonging<'a> {
    archive: Option<&'a WalArchive>,
    branches: Vec<Branch>,
    /// By the set's index: what the archive holds at its witness's place; read once each.
    found: BTreeMap<usize, Option<bool>>,
}

impl Belonging<'_> {
    /// Whether the archive holds the WAL of this set: `Some(false)` where it holds other WAL in its place.
    fn holds(&mut self, facts: &[SetFacts], index: usize) -> Option<bool> {
        let archive = self.archive?;
        let witness = facts[index].witness()?;
        *self
            .found
            .entry(index)
            .or_insert_with(|| match witness.check(archive.wal_reader()) {
                Found::Same => Some(true),
                Found::Other => Some(false),
                Found::Gone | Found::Unreadable(_) => None,
            })
    }

    /// Why a set cannot be taken, as far as its branch goes. Sets of a branch whose WAL is found in the archive are taken
    /// before those of another of which nothing is known.
    fn obstacle(
        &mut self,
        facts: &[SetFacts],
        index: usize,
        ways: &mut Ways<'_>,
    ) -> Option<Obstacle> {
        match self.holds(facts, index) {
            Some(true) => return None,
            Some(false) => {
                return Some(Obstacle::Passed(
                    "the archive holds the WAL of another branch in its place".to_owned(),
                ));
            }
            None => {}
        }
        let of_system = |b: &Branch| b.system == facts[index].log.map(|log| log.system);
        let own: Vec<usize> = (0..self.branches.len())
            .filter(|b| of_system(&self.branches[*b]))
            .collect();
        let (mut is_held, mut any_held) = (false, false);
        for b in &own {
            let sets = self.branches[*b].sets.clone();
            let held = sets.iter().any(|set| self.holds(facts, *set) == Some(true));
            any_held |= held;
            is_held |= held && sets.contains(&index);
        }
        if is_held {
            return None;
        }
        if any_held {
            return Some(Obstacle::Passed(
                "nothing proves that the archive's WAL is of its branch".to_owned(),
            ));
        }
        let living: Vec<usize> = own
            .iter()
            .copied()
            .filter(|b| self.branches[*b].given_up_for.is_none())
            // The timeline that is followed has the say where it can.
            .filter(|b| {
                let log = facts[self.branches[*b].tip()].log;
                log.is_some_and(|log| {
                    let last = (timeline(log.last_timeline), Lsn(log.last_lsn));
                    ways.pass(last.0, last.1).is_ok()
                })
            })
            .collect();
        match living.as_slice() {
            [] | [_] => None,
            _ => Some(Obstacle::Several),
        }
    }
}

/// The branches of which the archive holds the WAL of at least one set, by their indexes.
pub(crate) fn held(facts: &[SetFacts], branches: &[Branch], archive: &WalArchive) -> Vec<usize> {
    let mut belonging = Belonging {
        archive: Some(archive),
        branches: Vec::new(),
        found: BTreeMap::new(),
    };
    // What branches share tells nothing.
    let own = |b: usize| {
        let others = move || branches.iter().enumerate().filter(move |(i, _)| *i != b);
        let sets = branches[b].sets.iter().copied();
        sets.filter(move |set| !others().any(|(_, other)| other.sets.contains(set)))
    };
    let mut is_held = |b: &usize| own(*b).any(|set| belonging.holds(facts, set) == Some(true));
    (0..branches.len()).filter(|b| is_held(b)).collect()
}

/// Why a set's branch keeps it from being taken.
enum Obstacle {
    Passed(String),
    Several,
}

/// The backup that this recovery begins with, of these. Those of one cluster are tried in the order of their LSNs. `state` tells how one stands that is not
/// whole. `only`: none but the one with this label may be taken.
pub fn choose(
    facts: &[SetFacts],
    state: impl Fn(usize) -> String,
    only: Option<&str>,
    recovery: &Recovery,
    archive: Option<&WalArchive>,
) -> Result<Choice, NoChoice> {
    let target = recovery.target.as_ref();
    let mut system = archive.and_then(WalArchive::identity).map(|i| i.system);
    let mut ways = Ways {
        archive,
        recovery,
        known: BTreeMap::new(),
    };
    let mut passed = Vec::new();
    let mut later = 0;
    let mut belonging = Belonging {
        archive,
        branches: branch::branches(facts),
        found: BTreeMap::new(),
    };
    for i in branch::in_order(facts).into_iter().rev() {
        let set = &facts[i];
        if only.is_some_and(|only| set.label.as_str() != only) {
            continue;
        }
        if !set.is_whole() && begins_after(set, target) {
            continue;
        }
        if set.is_whole() && ends_after(set, target) {
            later += 1;
            continue;
        }
        let obstacle = match set.is_whole() {
            true => obstacle(facts, i, system, &mut ways),
            false => Some(state(i)),
        };
        // One that is named is meant, unless the archive says otherwise.
        let obstacle = match obstacle {
            None => match belonging.obstacle(facts, i, &mut ways) {
                Some(Obstacle::Passed(why)) => Some(why),
                Some(Obstacle::Several) if only.is_none() => {
                    let several = true;
                    return Err(NoChoice {
                        passed,
                        later,
                        several,
                    });
                }
                Some(Obstacle::Several) | None => None,
            },
            obstacle => obstacle,
        };
        match obstacle {
            None => {
                system = system.or(set.log.map(|log| log.system));
                return Ok(Choice {
                    index: i,
                    passed,
                    reach: reach(facts, set, system, target, &mut ways),
                });
            }
            Some(why) => passed.push(Passed {
                label: set.label.clone(),
                why,
            }),
        }
    }
    Err(NoChoice {
        passed,
        later,
        several: false,
    })
}

/// Why this one, which is whole, cannot be taken.
fn obstacle(
    facts: &[SetFacts],
    index: usize,
    system: Option<u64>,
    ways: &mut Ways<'_>,
) -> Option<String> {
    let set = &facts[index];
    if let Err(broken) = chain(facts, index) {
        return Some(broken.to_string());
    }
    let Some(log) = set.log else {
        return Some("it was not made from a PostgreSQL cluster".to_owned());
    };
    if let Some(system) = system.filter(|system| *system != log.system) {
        return Some(format!(
            "it is of the cluster {}, the log of {system}",
            log.system
        ));
    }
    ways.pass(timeline(log.last_timeline), Lsn(log.last_lsn))
        .err()
}

/// Whether it cannot have been complete before the target.
fn begins_after(set: &SetFacts, target: Option<&RecoveryTarget>) -> bool {
    matches!(target, Some(RecoveryTarget::Time(us)) if set.start_us > *us)
}

fn ends_after(set: &SetFacts, target: Option<&RecoveryTarget>) -> bool {
    match target {
        Some(RecoveryTarget::Time(us)) => set.finish_us > *us,
        Some(RecoveryTarget::Lsn(lsn)) => set.log.is_some_and(|log| log.last_lsn > lsn.0),
        None
        | Some(RecoveryTarget::Immediate | RecoveryTarget::Xid(_) | RecoveryTarget::Name(_)) => {
            false
        }
    }
}

/// What the other backups on the way tell of where a moment lies in the log.
fn reach(
    facts: &[SetFacts],
    chosen: &SetFacts,
    system: Option<u64>,
    target: Option<&RecoveryTarget>,
    ways: &mut Ways<'_>,
) -> Reach {
    let last = chosen.log.map_or(0, |log| log.last_lsn);
    let mut reach = Reach::of(target, Lsn(last));
    let Some(RecoveryTarget::Time(us)) = target else {
        return reach;
    };
    for set in facts.iter().filter(|set| set.is_whole()) {
        let Some(log) = set.log.filter(|log| Some(log.system) == system) else {
            continue;
        };
        let (first, last) = (Lsn(log.first_lsn), Lsn(log.last_lsn));
        if set.finish_us <= *us && ways.pass(timeline(log.last_timeline), last).is_ok() {
            reach.certain = reach.certain.max(last);
        }
        if set.start_us > *us && ways.pass(timeline(log.first_timeline), first).is_ok() {
            reach.possible = reach.possible.min(first);
        }
    }
    reach.possible = reach.possible.max(reach.certain);
    reach
}

/// As media tell it; 0, which no server writes, is taken for the first.
fn timeline(number: u32) -> Timeline {
    Timeline(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
}

impl WalArchive {
    /// Reads WAL of a timeline, for comparisons.
    pub fn wal_reader(&self) -> impl FnMut(Timeline, Lsn, &mut [u8]) -> io::Result<()> + use<'_> {
        move |timeline, at, buf| {
            let Some(identity) = self.identity() else {
                return Err(io::ErrorKind::NotFound.into());
            };
            let size = identity.segment_size;
            let mut done = 0;
            while done < buf.len() {
                let place = Lsn(at.0 + done as u64);
                let within = place.0 % size.bytes();
                let len = (size.bytes() - within).min((buf.len() - done) as u64) as usize;
                let name = SegmentName::holding(timeline, place, size);
                let file = self.open_file(WalName::Segment(name));
                let file = file.map_err(|e| match e {
                    wal::Error::Missing { .. } => io::ErrorKind::NotFound.into(),
                    e => io::Error::other(e),
                })?;
                file.read_at(&mut buf[done..done + len], within)
                    .map_err(io::Error::other)?;
                done += len;
            }
            Ok(())
        }
    }

    /// Refuses an archive that holds another branch's log at the place of a backup's witness. One that holds nothing there is
    /// judged by what a recovery needs.
    ///
    /// Errors: `NotTheBackups`.
    pub fn check_witness(&self, witness: Option<&Witness>) -> Result<(), wal::Error> {
        let (Some(witness), Some(identity)) = (witness, self.identity()) else {
            return Ok(());
        };
        match witness.check(self.wal_reader()) {
            Found::Same | Found::Gone | Found::Unreadable(_) => Ok(()),
            Found::Other => Err(wal::Error::NotTheBackups {
                archive: self.path().to_owned(),
                name: SegmentName::holding(witness.timeline, witness.start, identity.segment_size),
            }),
        }
    }

    /// Proves that the log from a backup to where its recovery certainly gets is there. Returns what is missing beyond,
    /// where the target may or may not lie.
    ///
    /// `included`: the backup holds the log up to its last place itself. A primary's holds all of the segment that this lies
    /// in; a standby's does not, and a replay that goes on takes that one from the archive. Nobody knows here whose
    /// it is.
    ///
    /// What is there must also be one log: each segment follows the one before, from the first that the archive has of
    /// the backup's own on, for a server takes those from the archive, too.
    ///
    /// Errors: `ReplayGap`, `EndsBefore`, `OtherWay`, `OtherCluster`, `BrokenLink`, and as [`WalArchive::runs`] and
    /// [`WalArchive::history`].
    pub fn prove(
        &self,
        log: &LogRange,
        included: bool,
        recovery: &Recovery,
        reach: Reach,
    ) -> Result<Proven, wal::Error> {
        let identity = self.identified()?;
        if identity.system != log.system {
            return Err(wal::Error::OtherCluster {
                path: "the backup".into(),
                archive: self.path().to_owned(),
                expected: identity.system,
                found: log.system,
            });
        }
        let last = Lsn(log.last_lsn);
        let timeline = timeline(log.last_timeline);
        let history = self.way(recovery.timeline, timeline)?;
        if !history.passes(timeline, last) {
            return Err(wal::Error::OtherWay {
                archive: self.path().to_owned(),
                timeline,
                last,
                followed: history.timeline(),
            });
        }
        let size = identity.segment_size.bytes();
        let behind = Lsn(last.0.div_ceil(size).saturating_mul(size));
        let from = match included {
            true => behind,
            false => Lsn(log.first_lsn),
        };
        let end = self.end(&history)?.max(last);
        // A standby waits for what is not there yet, or streams it.
        let certain = match recovery.standby {
            true => last,
            false => reach.certain,
        };
        if certain > end && certain != Lsn(u64::MAX) {
            return Err(wal::Error::EndsBefore {
                archive: self.path().to_owned(),
                end,
                target: certain,
            });
        }
        let known = certain.min(end);
        let missing = self.missing(&history, from, known)?;
        if !missing.is_empty() {
            return Err(wal::Error::ReplayGap {
                archive: self.path().to_owned(),
                missing: texts(&missing),
            });
        }
        self.check_links(&history, from, known)?;
        if included {
            self.check_own(&history, Lsn(log.first_lsn), behind, known)?;
        }
        let possible = reach.possible.min(end);
        let doubtful = self.missing(&history, known.max(from), possible)?;
        let broken = match doubtful.is_empty() {
            true => match self.check_links(&history, known.max(from).min(possible), possible) {
                Err(broken @ wal::Error::BrokenLink { .. }) => Some(broken.to_string()),
                Err(wal::Error::Missing { .. }) | Ok(()) => None,
                Err(e) => return Err(e),
            },
            false => None,
        };
        let in_part = match included && known.max(possible) > last {
            true => self.missing(&history, last, behind)?,
            false => Vec::new(),
        };
        let (mut not_reached, mut instead) = (None, None);
        if let (Some(RecoveryTarget::Time(us)), false) = (&recovery.target, recovery.standby) {
            let reaches = |last_end: &LastEnd| last_end.reaches(*us, recovery.exclusive);
            let last_end = self.last_end(&history, known, end);
            not_reached = last_end.filter(|last_end| !reaches(last_end));
            if not_reached.is_some() && history.timeline() != timeline {
                let own = self.way(TimelineChoice::Current, timeline)?;
                let last_end = self.last_end(&own, last, self.end(&own)?);
                instead = last_end.filter(reaches).map(|_| timeline);
            }
        }
        let read_ahead = recovery.target.is_some() && !recovery.standby;
        let not_ahead = read_ahead
            && (!doubtful.is_empty()
                || broken.is_some()
                || !self.answers_ahead(&history, known.max(from), end)?);
        Ok(Proven {
            timeline: history.timeline(),
            end,
            not_ahead,
            doubtful: texts(&doubtful),
            broken,
            in_part: texts(&in_part),
            not_reached,
            instead,
        })
    }

    /// Whether a server that reads ahead of this place gets all it asks for, or the archive's end. What is missing counts as
    /// far as the archive goes, for nobody knows how far ahead is read; what cannot be replayed, in the next segment.
    ///
    /// Errors: `NothingYet`, `Io`.
    fn answers_ahead(&self, history: &History, from: Lsn, end: Lsn) -> Result<bool, wal::Error> {
        let size = self.identified()?.segment_size.bytes();
        if !self.missing(history, from, end)?.is_empty() {
            return Ok(false);
        }
        let last = Lsn(from.0.saturating_sub(1));
        let next = Lsn(from.0.div_ceil(size).saturating_mul(size));
        let to = Lsn(next.0.saturating_add(size)).min(end);
        if to <= next {
            return Ok(true);
        }
        let follows = match self.check_links(history, last, to) {
            // The last one is the backup's own.
            Ok(()) | Err(wal::Error::Missing { .. }) => true,
            Err(_) => false,
        };
        let mut names = self.segments(history, next, to)?.into_iter();
        Ok(follows && names.all(|name| self.crc_of(name, size).is_ok()))
    }

    /// What the archive has of the log that a backup holds itself must lead to what comes behind: a server replays it
    /// instead of the backup's.
    fn check_own(
        &self,
        history: &History,
        first: Lsn,
        behind: Lsn,
        known: Lsn,
    ) -> Result<(), wal::Error> {
        let size = self.identified()?.segment_size.bytes();
        let missing = self.missing(history, first, behind)?;
        // Behind the last one that is missing.
        let from = missing.iter().map(|span| {
            let last = span.last.start(self.identified()?.segment_size);
            Ok(Lsn(last.0.saturating_add(size)))
        });
        let from = from.collect::<Result<Vec<Lsn>, wal::Error>>()?;
        let from = from.into_iter().max().unwrap_or(first);
        // One more segment, where it is there: the border behind the backup's own.
        let to = Lsn(behind.0.saturating_add(size)).min(known.max(behind));
        match from < to {
            true => self.check_links(history, from, to),
            false => Ok(()),
        }
    }

    /// When the last transaction of the log from `start` to `end` ended, on the way of `history`. `None` where too much of
    /// it would have to be read to know, or it cannot be.
    fn last_end(&self, history: &History, start: Lsn, end: Lsn) -> Option<LastEnd> {
        let size = self.identified().ok()?.segment_size;
        let last = Lsn(end.0.checked_sub(1)? / size.bytes() * size.bytes());
        let places = (0..LOOK_MAX).map_while(|n| last.0.checked_sub(n * size.bytes()));
        for at in places.map(Lsn) {
            if at.0.saturating_add(size.bytes()) <= start.0 {
                return Some(LastEnd::None);
            }
            let behind = Lsn(at.0.saturating_add(size.bytes())).min(end);
            let name = *self.segments(history, at, behind).ok()?.first()?;
            let file = self.open_file(WalName::Segment(name)).ok()?;
            let read = |lsn: Lsn, buf: &mut [u8]| match lsn.0.checked_sub(at.0) {
                Some(offset) if offset + buf.len() as u64 <= size.bytes() => {
                    file.read_at(buf, offset).map_err(io::Error::other)
                }
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
            if let Some(moment) = latest_end(Records::of_segment(read, at).ok()?) {
                return Some(LastEnd::At(moment));
            }
        }
        None
    }
}

/// The most segments at the end of the log that are read for the last transaction.
const LOOK_MAX: u64 = 16;

/// When the last transaction of some log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastEnd {
    /// Microseconds since 1970.
    At(i64),
    /// None did.
    None,
}

impl LastEnd {
    /// Whether it ends a recovery to this moment: replay stops before the first transaction that ended behind the moment,
    /// or at it where the moment itself is excluded.
    fn reaches(self, us: i64, exclusive: bool) -> bool {
        match self {
            LastEnd::None => false,
            LastEnd::At(moment) => moment > us || (exclusive && moment == us),
        }
    }
}

fn texts(spans: &[wal::Span]) -> String {
    let texts: Vec<String> = spans.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// What the archive has for a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// The one that is followed.
    pub timeline: Timeline,
    /// Where the archive ends on the way there.
    pub end: Lsn,
    /// Whether a server that reads ahead may ask, before its target, for what the archive must refuse behind it.
    pub not_ahead: bool,
    /// Segments that are missing where the target may lie; empty: none.
    pub doubtful: String,
    /// Where the archive's log does not go on, before the target may be reached.
    pub broken: Option<String>,
    /// The segment in which a backup that holds its log ends, where that may go on beyond it and the archive lacks it.
    pub in_part: String,
    /// How the archive ends, where it ends before the moment that is the target.
    pub not_reached: Option<LastEnd>,
    /// The backup's own timeline, where that moment lies on it, and another one is followed.
    pub instead: Option<Timeline>,
}

impl Proven {
    /// What the operator should know before the server is started.
    pub fn warning(&self) -> Option<String> {
        let mut texts = Vec::new();
        if !self.in_part.is_empty() {
            texts.push(format!(
                "the archive lacks {}, in which the backup ends: recovery goes on beyond it if the backup was a primary's, \
                 which has all of it, and does not begin if it was a standby's",
                self.in_part
            ));
        }
        if !self.doubtful.is_empty() {
            texts.push(format!(
                "the archive lacks {}: recovery stops there if its target lies behind",
                self.doubtful
            ));
        }
        if let Some(broken) = &self.broken {
            texts.push(format!(
                "{broken}: recovery stops there if its target lies behind"
            ));
        }
        if let Some(last_end) = self.not_reached {
            let ends = match last_end {
                LastEnd::At(moment) => {
                    format!("with a transaction of {}", recovery::time(moment))
                }
                LastEnd::None => "without a transaction behind the backup".to_owned(),
            };
            let advice = match self.instead {
                Some(own) => format!(
                    "The latest timeline, {}, is followed, perhaps a restored copy's; the target lies on the backup's own: \
                     --target-timeline {own}",
                    self.timeline
                ),
                None => "Where the original still runs, have it archive the rest (select pg_switch_wal()); else recover \
                         to the end, without a target"
                    .to_owned(),
            };
            texts.push(format!(
                "the archive ends {ends}, before the target: a server that does not find the target ends recovery with an error. \
                 {advice}"
            ));
        }
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_at_the_very_moment_ends_only_a_recovery_that_excludes_it() {
        for (moment, included, excluded) in
            [(99, false, false), (100, false, true), (101, true, true)]
        {
            let end = LastEnd::At(moment);
            assert_eq!(
                (end.reaches(100, false), end.reaches(100, true)),
                (included, excluded),
                "{moment}"
            );
        }
        assert!(!LastEnd::None.reaches(i64::MIN, true));
    }
}
