//! Which backup a recovery begins with.
//!
//! The best choice is the newest backup that was complete before the target, on the timeline history that is followed:
//! it leaves the least WAL to replay, and every older backup needs all of that WAL, too.
//!
//! Facts about a target that are known before the replay: an LSN is exact. A time is after every backup that was
//! complete before it, and before every one that was begun after it. A transaction or a named point may be anywhere.
//!
//! Invariants
//! - Backups that are not whole are skipped and named, and so are those that are known not to be good, unless nothing else
//!   can be chosen or one of them was named.
//! - Where nothing says which cluster is meant, none of several is chosen: clocks say nothing about it.
//!
//! Leaves to others: whether an archive has the WAL from there to the target (`longshore_wal::proof`), and branches
//! (`branch.rs`).

use std::collections::BTreeMap;

use longshore_pg::lineage::WitnessResult;
use longshore_pg::wal::History;
use longshore_pg::{Lsn, Recovery, RecoveryTarget, Timeline, recovery};
use longshore_wal::WalArchive;
use longshore_wal::proof::Reach;

use crate::branch::{self, Branch};
use crate::chain::{SetFacts, chain, is_sound};
use crate::label::Label;

/// A backup that is newer than the chosen one, and why it was not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedBackup {
    pub label: Label,
    pub why: String,
}

/// The backup to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreStart {
    /// Its index among those given.
    pub index: usize,
    pub passed: Vec<SkippedBackup>,
    pub reach: Reach,
}

/// Why there is no such backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoChoice {
    pub passed: Vec<SkippedBackup>,
    /// Whole backups that were complete only after the target.
    pub later: usize,
    /// Whether backups of several branches or clusters were possible, and nothing shows which one is meant.
    pub several: bool,
}

/// The end of replay, for messages.
pub fn target_text(target: Option<&RecoveryTarget>) -> String {
    match target {
        None => "the end of the WAL".to_owned(),
        Some(RecoveryTarget::Immediate) => "its own end".to_owned(),
        Some(RecoveryTarget::Time(us)) => recovery::time(*us),
        Some(RecoveryTarget::Lsn(lsn)) => lsn.to_string(),
        Some(RecoveryTarget::Xid(xid)) => format!("transaction {xid}"),
        Some(RecoveryTarget::Name(name)) => format!("restore point {name:?}"),
    }
}

/// The timeline histories to follow in the archive, by the timeline from which each starts. Each is read once.
struct Ways<'a> {
    archive: Option<&'a WalArchive>,
    recovery: &'a Recovery,
    known: BTreeMap<Timeline, Result<History, String>>,
}

impl Ways<'_> {
    /// Whether a backup that ended there can be brought forward along the history that is followed; otherwise why not.
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
                "it ended on timeline {timeline} at {last}, and timeline {} does not continue from there",
                history.timeline()
            )),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Which backups belong to the WAL that is followed.
struct BranchMembers<'a> {
    archive: Option<&'a WalArchive>,
    branches: Vec<Branch>,
    /// By the set's index: what the archive holds at its witness's LSN; each is read once.
    found: BTreeMap<usize, Option<bool>>,
}

impl BranchMembers<'_> {
    /// Whether the archive holds the WAL of this set: `Some(false)` if it holds other WAL at the same LSN.
    fn holds(&mut self, facts: &[SetFacts], index: usize) -> Option<bool> {
        let archive = self.archive?;
        let witness = facts[index].witness()?;
        *self
            .found
            .entry(index)
            .or_insert_with(|| match witness.check(archive.wal_reader()) {
                WitnessResult::Same => Some(true),
                WitnessResult::Other => Some(false),
                WitnessResult::Gone | WitnessResult::Unreadable(_) => None,
            })
    }

    /// Why a set cannot be used because of its branch. Sets of a branch whose WAL is found in the archive take
    /// precedence over sets of a branch about which nothing is known.
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
                    "the archive holds the WAL of another branch instead".to_owned(),
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
            // The timeline that is followed decides where possible.
            .filter(|b| {
                let log = facts[self.branches[*b].tip()].log;
                log.is_some_and(|log| {
                    let last = log.last();
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

/// The indexes of the branches with at least one set whose WAL is in the archive.
pub(crate) fn held(facts: &[SetFacts], branches: &[Branch], archive: &WalArchive) -> Vec<usize> {
    let mut belonging = BranchMembers {
        archive: Some(archive),
        branches: Vec::new(),
        found: BTreeMap::new(),
    };
    // Sets that branches share decide nothing.
    let own = |b: usize| {
        let others = move || branches.iter().enumerate().filter(move |(i, _)| *i != b);
        let sets = branches[b].sets.iter().copied();
        sets.filter(move |set| !others().any(|(_, other)| other.sets.contains(set)))
    };
    let mut is_held = |b: &usize| own(*b).any(|set| belonging.holds(facts, set) == Some(true));
    (0..branches.len()).filter(|b| is_held(b)).collect()
}

/// Why a set's branch prevents its use.
enum Obstacle {
    Passed(String),
    Several,
}

/// Chooses among these backups the one with which the recovery begins. Those of one cluster are tried in the order of
/// their LSNs. `state` describes a backup that is not whole. `only`: no backup except the one with this label may be
/// chosen. `cluster`: the one that is meant where no archive is followed, if that is known.
pub fn choose(
    facts: &[SetFacts],
    state: impl Fn(usize) -> String,
    only: Option<&str>,
    recovery: &Recovery,
    archive: Option<&WalArchive>,
    cluster: Option<u64>,
) -> Result<RestoreStart, NoChoice> {
    let attempt = |only_sound| {
        let which = (only, only_sound);
        choose_among(facts, &state, which, recovery, archive, cluster)
    };
    if only.is_none() && facts.iter().any(|set| set.found_bad) {
        let chosen = attempt(true);
        if chosen.is_ok() {
            return chosen;
        }
    }
    attempt(false)
}

/// [`choose`]. The flag: none that is known not to be good.
fn choose_among(
    facts: &[SetFacts],
    state: &impl Fn(usize) -> String,
    (only, only_sound): (Option<&str>, bool),
    recovery: &Recovery,
    archive: Option<&WalArchive>,
    cluster: Option<u64>,
) -> Result<RestoreStart, NoChoice> {
    let followed = archive.and_then(WalArchive::identity).map(|i| i.system);
    let mut candidates = Candidates {
        facts,
        target: recovery.target.as_ref(),
        system: followed.or(cluster),
        ways: Ways {
            archive,
            recovery,
            known: BTreeMap::new(),
        },
        belonging: BranchMembers {
            archive,
            branches: branch::branches(facts),
            found: BTreeMap::new(),
        },
    };
    let mut none = NoChoice {
        passed: Vec::new(),
        later: 0,
        several: false,
    };
    for i in branch::in_order(facts).into_iter().rev() {
        let set = &facts[i];
        if only.is_some_and(|only| set.label.as_str() != only) {
            continue;
        }
        let is_bad = only_sound && chain(facts, i).is_ok() && !is_sound(facts, i);
        match candidates.verdict(i, state, only.is_some()) {
            Verdict::Skip => {}
            Verdict::Take if is_bad => none.passed.push(SkippedBackup {
                label: set.label.clone(),
                why:
                    "a verification or a drill found it, or a backup that it needs, not to be good"
                        .to_owned(),
            }),
            Verdict::Later => none.later += 1,
            Verdict::Passed(why) => none.passed.push(SkippedBackup {
                label: set.label.clone(),
                why,
            }),
            Verdict::Several => {
                none.several = true;
                return Err(none);
            }
            Verdict::Take => {
                return Ok(RestoreStart {
                    index: i,
                    passed: none.passed,
                    reach: candidates.reach(set),
                });
            }
        }
    }
    Err(none)
}

/// Whether a recovery can begin with a backup.
enum Verdict {
    /// It is not whole, and could not have been complete before the target.
    Skip,
    /// It is whole, but ends after the target.
    Later,
    /// It cannot be used, for this reason.
    Passed(String),
    /// Several branches could be meant.
    Several,
    Take,
}

/// The backups of a choice, and what is known about the WAL after them.
struct Candidates<'a> {
    facts: &'a [SetFacts],
    target: Option<&'a RecoveryTarget>,
    /// The cluster whose WAL is followed, if that is known.
    system: Option<u64>,
    ways: Ways<'a>,
    belonging: BranchMembers<'a>,
}

impl Candidates<'_> {
    fn verdict(
        &mut self,
        index: usize,
        state: &impl Fn(usize) -> String,
        is_named: bool,
    ) -> Verdict {
        let set = &self.facts[index];
        if !set.is_whole() {
            return match begins_after(set, self.target) {
                true => Verdict::Skip,
                false => Verdict::Passed(state(index)),
            };
        }
        if ends_after(set, self.target) {
            return Verdict::Later;
        }
        if let Some(why) = obstacle(self.facts, index, self.system, &mut self.ways) {
            return Verdict::Passed(why);
        }
        match self.belonging.obstacle(self.facts, index, &mut self.ways) {
            Some(Obstacle::Passed(why)) => Verdict::Passed(why),
            // A backup that was named is the one meant, unless the archive contradicts.
            Some(Obstacle::Several) if !is_named => Verdict::Several,
            None if !is_named && self.has_rival(set) => Verdict::Several,
            Some(Obstacle::Several) | None => Verdict::Take,
        }
    }

    /// Whether a backup of another cluster could be meant as well, as nothing says which one is.
    fn has_rival(&self, set: &SetFacts) -> bool {
        let system = set.log.map(|log| log.system);
        let is_rival = |other: &SetFacts| {
            let of_other = other.log.is_some_and(|log| Some(log.system) != system);
            of_other && other.is_whole() && !ends_after(other, self.target)
        };
        self.system.is_none() && self.facts.iter().any(is_rival)
    }

    /// How far a recovery from this backup gets.
    fn reach(&mut self, set: &SetFacts) -> Reach {
        let system = self.system.or(set.log.map(|log| log.system));
        reach(self.facts, set, system, self.target, &mut self.ways)
    }
}

/// Why this backup, which is whole, cannot be used.
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
            "it is of the cluster {}, the WAL of {system}",
            log.system
        ));
    }
    let (timeline, last) = log.last();
    ways.pass(timeline, last).err()
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

/// The bounds that the other backups on the way set for the LSN of a time.
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
        let (first, last) = (log.first(), log.last());
        if set.finish_us <= *us && ways.pass(last.0, last.1).is_ok() {
            reach.certain = reach.certain.max(last.1);
        }
        if set.start_us > *us && ways.pass(first.0, first.1).is_ok() {
            reach.possible = reach.possible.min(first.1);
        }
    }
    reach.possible = reach.possible.max(reach.certain);
    reach
}
