//! Retention: which backups and which WAL may be removed. Calculation only; time is an argument.
//!
//! Rules keep full backups; a kept backup also keeps those it needs, and a differential stays as long as its full
//! backup. Everything that no rule keeps may be removed, with exceptions that no rule can override.
//!
//! Rules count within each branch separately ([`crate::branch`]), in the order of its LSNs: the backups of a copy, of
//! another cluster with the same name or of an abandoned future do not count instead of others.
//!
//! Invariants
//! - Backups and WAL that a kept backup needs are kept.
//! - The newest complete and unmarked backup of each branch is kept, and the newest one with all its stripes; so is
//!   everything that is in use, being written by a live program, unexpired, or that cannot be judged.
//! - A backup that a verification or a drill found not to be good is counted by no rule, with everything built on it. It
//!   goes as soon as all that rules keep is newer, and not before.
//! - A backup of a source that has lost its content is counted by no rule, unless the policy says so: those with content stay.
//! - Backups that lack stripes are kept, and those that may need them: their directory may be unreachable for a while.
//! - If no whole full backup is left, nothing is removed; if none is left of a branch, nothing of that branch.
//! - A clock that was or is ahead costs no backup, nor do backups that were not made. A backup from the future stays
//!   and does not count. Days are counted back from the newest full backup if all are older, and one stretch without
//!   full backups that is much longer than any other does not count ([`UNUSUAL`]). A clock that is ahead by less than
//!   that costs as much as it is ahead.
//! - WAL without gaps stays since the newest good full backup of each branch, and since the newest with all its stripes.
//! - A backup stays with all WAL since while it alone leads to the timeline with which the archive goes on (`leading.rs`).
//! - No WAL is removed while the need of a kept backup is unknown, and no WAL of a cluster that has no kept backup
//!   here. A foreign backup is kept and may count again, so what it needs stays, too.
//!
//! Leaves to others: which backups are of one branch (`branch.rs`), and removing them (`expire.rs`).

use std::collections::{BTreeMap, BTreeSet};

use longshore_wal::needs::{ClusterNeed, Range};
use uuid::Uuid;

use crate::branch::branches;
use crate::chain::{Health, SetFacts, chain, is_good};
use crate::emptied::{emptied_in, is_counted};
use crate::label::BackupKind;
pub use crate::verdict::{Decision, Keep, LogNeed, Remove, RetentionVerdict};

/// A stretch between two full backups, or since the newest, is not counted among the days to be kept if it is longer
/// than this many times any other within these days. It cannot be known whether no backups were made or a clock was
/// ahead when the newer one was made; in both cases the days mean nothing. As many backups as usual must then be made
/// before the older ones are removed. Until then this costs space, and it costs nothing if backups are made at their
/// usual interval.
pub const UNUSUAL: i64 = 4;

/// The retention rules; a rule that is `None` keeps nothing. Several rules keep what any of them keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// The newest full backups, this many, 1 or more.
    pub keep_full: Option<u32>,
    /// Everything that is needed to go back to any moment of the last days, this many.
    pub keep_days: Option<u32>,
    /// WAL without gaps since this many full backups ago, 1 or more, and since the newest good one in any case; older ones
    /// keep only the WAL that makes them consistent. `None`: since the oldest kept one.
    pub keep_wal: Option<u32>,
    /// Whether backups of a source that has lost its content ([`crate::emptied`]) are counted as all others.
    pub counts_emptied: bool,
}

impl Policy {
    /// Whether any rule allows backups to be removed.
    pub fn is_empty(&self) -> bool {
        self.keep_full.is_none() && self.keep_days.is_none()
    }
}

/// Decides about every set of one database at one target, given in any order.
pub fn decide(sets: &[SetFacts], policy: &Policy, now_us: i64) -> Decision {
    let mut judge = Judge::new(sets, policy, now_us);
    judge.protect(now_us);
    match judge.lines.iter().all(|line| line.counted.is_empty()) {
        _ if policy.is_empty() => judge.keep_rest(&Keep::NoRule),
        true => judge.keep_rest(&Keep::NothingWhole),
        false => {
            judge.apply(policy, now_us);
            judge.follow();
        }
    }
    let verdicts: Vec<RetentionVerdict> = (0..sets.len()).map(|i| judge.verdict(i)).collect();
    let log = log_need(sets, &judge, policy);
    Decision { verdicts, log }
}

struct Judge<'a> {
    sets: &'a [SetFacts],
    /// The chain of each set, if it is intact.
    chains: Vec<Option<Vec<usize>>>,
    lines: Vec<BranchLine>,
    kept: BTreeMap<usize, Keep>,
    /// Full backups that rules do not count, each with the one that had the content.
    emptied: BTreeMap<usize, usize>,
    now_us: i64,
}

/// A branch, as rules see it.
struct BranchLine {
    /// Its sets, oldest first.
    sets: Vec<usize>,
    /// The full backups of it that rules count, newest first.
    counted: Vec<usize>,
    /// The oldest full backup that a rule keeps.
    oldest: Option<usize>,
}

impl BranchLine {
    /// Whether the set is not older than those that rules keep; `None` if it is not on this branch.
    fn is_young(&self, index: usize) -> Option<bool> {
        let position = |wanted: usize| self.sets.iter().position(|set| *set == wanted);
        let at = position(index)?;
        let oldest = self.oldest.and_then(position);
        Some(oldest.is_none_or(|oldest| at >= oldest))
    }
}

impl<'a> Judge<'a> {
    fn new(sets: &'a [SetFacts], policy: &Policy, now_us: i64) -> Judge<'a> {
        let whole = |i: usize| sets[i].is_whole().then(|| chain(sets, i).ok()).flatten();
        let chains: Vec<_> = (0..sets.len()).map(whole).collect();
        let found = branches(sets);
        let emptied: BTreeMap<usize, usize> = match policy.counts_emptied {
            true => BTreeMap::new(),
            false => found
                .iter()
                .flat_map(|branch| emptied_in(sets, &branch.sets, now_us).0)
                .collect(),
        };
        let is_counted = |i: &usize| {
            chains[*i].is_some() && is_counted(&sets[*i], now_us) && !emptied.contains_key(i)
        };
        let line = |sets: Vec<usize>| BranchLine {
            counted: sets.iter().rev().copied().filter(is_counted).collect(),
            oldest: None,
            sets,
        };
        let lines = found.into_iter().map(|b| line(b.sets)).collect();
        Judge {
            sets,
            chains,
            lines,
            kept: BTreeMap::new(),
            emptied,
            now_us,
        }
    }

    /// Keeps a set, and the sets that it needs.
    fn keep(&mut self, index: usize, why: Keep) {
        self.kept.entry(index).or_insert(why);
        for parent in self.ancestors(index) {
            let needed = Keep::NeededBy(self.sets[index].label.clone());
            self.kept.entry(parent).or_insert(needed);
        }
    }

    /// Whether it can be restored now, and it and all that it needs hold exactly what the source held.
    fn is_clean(&self, index: usize) -> bool {
        let is_past = self.sets[index].start_us <= self.now_us;
        is_past && self.chains[index].is_some() && is_good(self.sets, index)
    }

    /// The same, and parity holds nothing of it together.
    fn is_safe(&self, index: usize) -> bool {
        let mut links = self.chains[index].iter().flatten();
        self.is_clean(index) && links.all(|l| !self.sets[*l].is_degraded)
    }

    /// The sets that a set needs, as far as they can be found, even in a broken chain.
    fn ancestors(&self, index: usize) -> Vec<usize> {
        if let Some(links) = &self.chains[index] {
            return links[1..].to_vec();
        }
        let mut found = Vec::new();
        let mut parent = self.sets[index].parent;
        while let Some(id) = parent {
            let named = |i: &usize| self.sets[*i].id == Some(id) && !found.contains(i);
            // Of one set under several labels, the copies do not count.
            let all = (0..self.sets.len()).filter(named);
            let Some(next) = all.min_by_key(|i| !self.sets[*i].is_whole()) else {
                break;
            };
            found.push(next);
            parent = self.sets[next].parent;
        }
        found
    }

    /// Keeps the sets that no rule can remove.
    fn protect(&mut self, now_us: i64) {
        // One that parity holds together is good, and a little more damage would be its end.
        let newest = |line: &BranchLine| {
            let newest_first = || line.sets.iter().rev().copied();
            [
                newest_first().find(|i| self.is_clean(*i)),
                newest_first().find(|i| self.is_safe(*i)),
            ]
        };
        let last: Vec<[Option<usize>; 2]> = self.lines.iter().map(newest).collect();
        for (i, set) in self.sets.iter().enumerate() {
            match set.health {
                _ if set.in_use => self.keep(i, Keep::InUse),
                Health::Writing => self.keep(i, Keep::BeingWritten),
                Health::Unknown | Health::Foreign => self.keep(i, Keep::NotOurs),
                Health::Missing => self.keep(i, Keep::OutOfReach),
                Health::Whole { .. } if self.may_need_hidden(i) => self.keep(i, Keep::OutOfReach),
                Health::Whole { .. } if set.expires_us.is_some_and(|e| e > now_us) => {
                    self.keep(i, Keep::Unexpired);
                }
                Health::Whole { .. } if set.start_us > now_us => self.keep(i, Keep::NotYet),
                Health::Whole { .. } | Health::Broken | Health::Abandoned | Health::Removing => {}
            }
        }
        for i in 0..self.sets.len() {
            if self.sets[i].leads {
                self.keep(i, Keep::Leads);
            }
        }
        for [good, whole] in last {
            for (i, why) in [(good, Keep::LastGood), (whole, Keep::LastWhole)] {
                if let Some(i) = i {
                    self.keep(i, why);
                }
            }
        }
    }

    /// Whether a set depends on one that may become whole again, or on one that is not found, while there are sets with
    /// unknown identities.
    fn may_need_hidden(&self, index: usize) -> bool {
        let may_return = |s: &SetFacts| {
            matches!(
                s.health,
                Health::Missing | Health::Unknown | Health::Foreign
            )
        };
        let needed = self.ancestors(index);
        if needed.iter().any(|i| may_return(&self.sets[*i])) {
            return true;
        }
        let lowest = needed.last().copied().unwrap_or(index);
        let is_found = |id: Uuid| self.sets.iter().any(|s| s.id == Some(id));
        let hidden = |s: &SetFacts| s.id.is_none() && may_return(s);
        self.sets[lowest].parent.is_some_and(|id| !is_found(id)) && self.sets.iter().any(hidden)
    }

    fn apply(&mut self, policy: &Policy, now_us: i64) {
        for n in 0..self.lines.len() {
            let by_rule = self.by_rule(&self.lines[n], policy, now_us);
            let line = &mut self.lines[n];
            line.oldest = line.sets.iter().copied().find(|i| by_rule.contains_key(i));
            if line.counted.is_empty() {
                for i in line.sets.clone() {
                    self.keep(i, Keep::NothingWhole);
                }
            }
            for (i, why) in by_rule {
                // A rule's reason is more informative than a protection's.
                self.kept.remove(&i);
                self.keep(i, why);
            }
        }
    }

    /// The sets of a branch that rules keep.
    fn by_rule(&self, line: &BranchLine, policy: &Policy, now_us: i64) -> BTreeMap<usize, Keep> {
        let mut by_rule: BTreeMap<usize, Keep> = BTreeMap::new();
        for (n, i) in line.counted.iter().enumerate() {
            if policy
                .keep_full
                .is_some_and(|keep| n < keep.max(1) as usize)
            {
                by_rule.insert(*i, Keep::Count(n as u32 + 1));
            }
        }
        if let Some(before) = self.file_before(line) {
            by_rule.entry(before).or_insert(Keep::FileBefore);
        }
        if let Some(days) = policy.keep_days {
            let span_us = i64::from(days).saturating_mul(86_400_000_000);
            // If backups stopped long ago, or the clock is ahead, the days before now mean nothing.
            let newest_us = line.counted.iter().map(|i| self.sets[*i].finish_us).max();
            let from_us = newest_us.filter(|newest| *newest <= now_us.saturating_sub(span_us));
            let end_us = from_us.unwrap_or(now_us);
            let finished = line.counted.iter().map(|i| self.sets[*i].finish_us);
            let stretch_us = uncounted(end_us, finished.collect(), span_us);
            let first_day = end_us.saturating_sub(span_us);
            let cut = first_day.saturating_sub(stretch_us);
            let recent = |i: &&usize| self.sets[**i].finish_us > cut;
            for i in line.counted.iter().filter(recent) {
                let why = match self.sets[*i].finish_us > first_day {
                    true => Keep::Recent,
                    false => Keep::Stretched(stretch_us),
                };
                by_rule.entry(*i).or_insert(why);
            }
            let order = |i: &&usize| (self.sets[**i].finish_us, self.sets[**i].label.clone());
            let before = line.counted.iter().filter(|i| !recent(i)).max_by_key(order);
            if let Some(base) = before {
                by_rule.entry(*base).or_insert(Keep::Base);
            }
        }
        by_rule
    }

    /// The last backup of the file that the source was before, while that in its place has one counted backup: of a file that was
    /// replaced because it was damaged, the last one may be what was found not to be good.
    fn file_before(&self, line: &BranchLine) -> Option<usize> {
        let birth = |i: usize| self.sets[i].identity.origin.births_ns.last();
        let newest = *line.counted.first()?;
        let own = birth(newest)?;
        if line.counted.get(1).is_some_and(|i| birth(*i) == Some(own)) {
            return None;
        }
        let mut others = line.sets.iter().rev().copied();
        let is_other = |i: &usize| {
            let full = self.sets[*i].kind == BackupKind::Full && self.chains[*i].is_some();
            full && self.sets[*i].start_us <= self.now_us && birth(*i).is_some_and(|b| b != own)
        };
        match line.counted.get(1) {
            Some(before) if is_other(before) => Some(*before),
            Some(_) => None,
            None => others.find(is_other),
        }
    }

    /// Whether a set is not older than those that rules keep. For sets on no known branch, only the time decides.
    fn is_young(&self, index: usize) -> bool {
        let lines = self.lines.iter().filter_map(|line| line.is_young(index));
        let of_line = lines.reduce(|one, other| one || other);
        of_line.unwrap_or_else(|| {
            let oldest = self.lines.iter().filter_map(|line| line.oldest);
            let oldest_us = oldest.map(|i| self.sets[i].start_us).min();
            self.sets[index].start_us >= oldest_us.unwrap_or(i64::MIN)
        })
    }

    /// Sets that rules do not count are removed together with those they depend on.
    fn follow(&mut self) {
        let newest = self.lines.iter().filter_map(|line| line.counted.first());
        let newest_us = newest.map(|i| self.sets[*i].start_us).max();
        for i in 0..self.sets.len() {
            let set = &self.sets[i];
            let root = self.chains[i]
                .as_ref()
                .and_then(|links| links.last())
                .copied();
            let why = match (set.health, root) {
                // Nothing counts it, and it goes no earlier than any other of its age: a repair may make it good again.
                (Health::Whole { .. }, Some(root)) if self.sets[root].found_bad => {
                    self.is_young(root).then_some(Keep::FoundBad)
                }
                (Health::Whole { .. }, Some(root)) if self.emptied.contains_key(&root) => {
                    let with = &self.sets[self.emptied[&root]].label;
                    self.is_young(root).then(|| Keep::Emptied(with.clone()))
                }
                (Health::Whole { .. }, Some(root)) if root == i => set
                    .copy_only
                    .then_some(Keep::Recoverable)
                    .filter(|_| self.is_young(i)),
                (Health::Whole { .. }, Some(root)) => self
                    .kept
                    .contains_key(&root)
                    .then(|| Keep::OfKept(self.sets[root].label.clone())),
                (Health::Whole { .. } | Health::Broken, _) => {
                    self.is_young(i).then_some(Keep::Recoverable)
                }
                (Health::Abandoned, _) => {
                    (Some(set.start_us) >= newest_us).then_some(Keep::Recoverable)
                }
                (
                    Health::Writing
                    | Health::Missing
                    | Health::Unknown
                    | Health::Foreign
                    | Health::Removing,
                    _,
                ) => None,
            };
            if let Some(why) = why {
                self.keep(i, why);
            }
        }
    }

    fn keep_rest(&mut self, why: &Keep) {
        for (i, set) in self.sets.iter().enumerate() {
            if set.health != Health::Removing {
                self.kept.entry(i).or_insert_with(|| why.clone());
            }
        }
    }

    fn verdict(&self, index: usize) -> RetentionVerdict {
        if let Some(why) = self.kept.get(&index) {
            return RetentionVerdict::Keep(why.clone());
        }
        RetentionVerdict::Remove(match self.sets[index].health {
            Health::Removing => Remove::Begun,
            Health::Abandoned => Remove::Abandoned,
            Health::Whole { .. } if self.chains[index].is_some() => Remove::Surplus,
            Health::Whole { .. }
            | Health::Broken
            | Health::Missing
            | Health::Writing
            | Health::Unknown
            | Health::Foreign => Remove::Broken,
        })
    }
}

/// The length of the newest unusually long stretch before `end_us` in which no full backup was finished; 0 if there is
/// none. Backups before the days that are then kept are not compared: they are removed.
fn uncounted(end_us: i64, mut finished: Vec<i64>, span_us: i64) -> i64 {
    finished.iter_mut().for_each(|at| *at = (*at).min(end_us));
    finished.sort_unstable();
    let moments: Vec<i64> = [end_us]
        .into_iter()
        .chain(finished.into_iter().rev())
        .collect();
    let stretches: Vec<i64> = moments
        .windows(2)
        .map(|pair| pair[0].saturating_sub(pair[1]).max(0))
        .collect();
    let first_day = end_us.saturating_sub(span_us);
    let is_unusual = |k: usize| {
        let cut = first_day.saturating_sub(stretches[k]);
        let others = (0..stretches.len()).filter(|j| *j != k && (*j < k || moments[*j + 1] > cut));
        // The stretch since the newest backup is not over.
        let is_known = others.clone().any(|j| j > 0);
        let longest = others.map(|j| stretches[j]).max().unwrap_or(0);
        is_known && stretches[k] > longest.saturating_mul(UNUSUAL)
    };
    let within = (0..stretches.len()).take_while(|k| moments[*k] > first_day);
    within
        .filter(|k| is_unusual(*k))
        .map(|k| stretches[k])
        .next()
        .unwrap_or(0)
}

fn log_need(sets: &[SetFacts], judge: &Judge, policy: &Policy) -> LogNeed {
    // If a set is not whole, its media did not show where its WAL begins.
    let is_unsure = |i: &usize| match sets[*i].health {
        Health::Whole { .. } => false,
        Health::Broken | Health::Missing | Health::Writing | Health::Unknown => true,
        // It may count again, under another name or without a stripe too many.
        Health::Foreign => sets[*i].id.is_none(),
        Health::Abandoned | Health::Removing => sets[*i].in_use,
    };
    let mut need = LogNeed {
        all: judge.kept.keys().any(is_unsure),
        clusters: BTreeMap::new(),
    };
    // A foreign backup adds to what is needed of a cluster's WAL, and does not show that the cluster is this one.
    let systems: BTreeSet<u64> = judge
        .kept
        .keys()
        .filter(|i| sets[**i].health != Health::Foreign)
        .filter_map(|i| Some(sets[*i].log?.system))
        .collect();
    for system in systems {
        let of_system = |i: &usize| sets[*i].log.filter(|l| l.system == system);
        let ranges: Vec<Range> = judge
            .kept
            .keys()
            .filter_map(of_system)
            .map(|log| Range {
                timelines: (
                    log.first_timeline.min(log.last_timeline),
                    log.first_timeline.max(log.last_timeline),
                ),
                first: log.first_lsn,
                last: log.last_lsn,
            })
            .collect();
        let oldest = ranges.iter().map(|r| r.first).min();
        let is_kept = |i: &&usize| judge.kept.contains_key(i);
        let first = |i: &usize| Some(of_system(i)?.first_lsn);
        // The newest kept ones of each branch.
        let firsts = |line: &BranchLine, n: u32| {
            let kept = line.counted.iter().filter(is_kept);
            kept.filter_map(first).take(n.max(1) as usize).min()
        };
        // The newest good ones: a marked one, or one that parity holds together, may not be what a recovery can begin with.
        let good_firsts = |line: &BranchLine| {
            let counted = || line.counted.iter().filter(is_kept);
            let all = || line.sets.iter().rev().filter(is_kept);
            let good = [
                counted().find(|i| judge.is_clean(**i)),
                counted().find(|i| judge.is_safe(**i)),
                all().find(|i| judge.is_clean(**i)),
                all().find(|i| judge.is_safe(**i)),
            ];
            good.into_iter().flatten().filter_map(first).min()
        };
        // A differential that leads there begins after its full backup.
        let leading = judge.kept.keys().filter(|i| sets[**i].leads);
        let leading = leading.filter_map(first).min();
        let from = match policy.keep_wal {
            Some(n) => {
                let lines = || judge.lines.iter();
                let newest = lines().filter_map(|line| firsts(line, n)).min();
                let good = lines().filter_map(good_firsts).min();
                newest
                    .or(oldest)
                    .into_iter()
                    .chain(good)
                    .chain(leading)
                    .min()
            }
            None => oldest,
        };
        let from = from.unwrap_or(0);
        need.clusters.insert(system, ClusterNeed { from, ranges });
    }
    need
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_pg::Lsn;

    use crate::chain::tests::{diff, full};
    use crate::shelf::BackupEntry;
    use crate::state::BackupState;
    use longshore_wal::LogRange;

    const DAY: i64 = 86_400;

    fn count(n: u32) -> Policy {
        Policy {
            keep_full: Some(n),
            ..Policy::default()
        }
    }

    fn days(n: u32) -> Policy {
        Policy {
            keep_days: Some(n),
            ..Policy::default()
        }
    }

    fn kept(sets: &[SetFacts], policy: Policy, now: i64) -> Vec<bool> {
        let decision = decide(sets, &policy, now * 1_000_000);
        (0..sets.len()).map(|i| decision.is_kept(i)).collect()
    }

    /// Goal: a list of signers with a mistake in it, which makes strangers of the machine's own backups, costs no WAL.
    #[test]
    fn a_backup_that_is_refused_for_its_signature_is_no_reason_to_remove_anything() {
        let entry = |is_strangers| BackupEntry {
            label: "20270131T020000Z-full-1a2b3c4d".parse().unwrap(),
            state: BackupState::Foreign {
                what: String::new(),
                is_strangers,
                shown: None,
            },
            devices: Vec::new(),
            is_bare: false,
            doubles: Vec::new(),
            bytes: 0,
            readers: Vec::new(),
            objects: Vec::new(),
            imprint: String::new(),
            stamps: Vec::new(),
            found_bad: None,
        };
        assert_eq!(entry(true).facts().health, Health::Unknown);
        assert_eq!(entry(false).facts().health, Health::Foreign);
        assert!(entry(true).is_strangers() && !entry(false).is_strangers());
    }

    #[test]
    fn the_newest_full_backups_stay_with_their_differentials() {
        let a = full(1);
        let b = full(3);
        let sets = [a.clone(), diff(2, &a), b.clone(), diff(4, &b)];
        assert_eq!(kept(&sets, count(1), 9), [false, false, true, true]);
        assert_eq!(kept(&sets, count(2), 9), [true; 4]);
        let decision = decide(&sets, &count(1), 9_000_000);
        assert_eq!(
            decision.verdicts[0],
            RetentionVerdict::Remove(Remove::Surplus)
        );
        assert_eq!(decision.verdicts[2], RetentionVerdict::Keep(Keep::Count(1)));
        // A full backup is never removed before its differential.
        assert_eq!(decision.removals(&sets), [1, 0]);
    }

    #[test]
    fn days_keep_the_base_of_their_oldest_moment() {
        let sets = [full(DAY), full(3 * DAY), full(5 * DAY), full(9 * DAY)];
        assert_eq!(
            kept(&sets, days(7), 10 * DAY + 1),
            [false, true, true, true],
            "on day 3 the database was as the second backup has it"
        );
    }

    #[test]
    fn a_clock_that_runs_ahead_costs_no_backup() {
        let sets = [full(4 * DAY), full(6 * DAY), full(8 * DAY), full(10 * DAY)];
        assert_eq!(
            kept(&sets, days(3), 9999 * DAY),
            [false, true, true, true],
            "as on the day of the last one, with the base of its oldest moment"
        );
        assert_eq!(kept(&sets, days(3), 11 * DAY)[1..], [true; 3]);
        // With two backups no interval is usual.
        let two = [full(4 * DAY), full(10 * DAY)];
        assert_eq!(kept(&two, days(3), 9999 * DAY), [true; 2]);
    }

    /// Goal: a full backup made with a clock that was ahead, or after a long time without backups, costs none of the
    /// others until it and its successors are as many as usual.
    #[test]
    fn the_days_of_a_stretch_without_backups_are_not_counted() {
        let nightly: Vec<SetFacts> = (1..=30).map(|day| full(day * DAY)).collect();
        for ahead in [5, 20, 29, 30, 31, 400] {
            let now = (30 + ahead) * DAY + 5;
            let mut sets = nightly.clone();
            assert_eq!(kept(&sets, days(30), now), [true; 30], "{ahead} by itself");
            sets.push(full(now - 3));
            let decision = decide(&sets, &days(30), now * 1_000_000);
            let held = |i: usize| {
                matches!(
                    decision.verdicts[i],
                    RetentionVerdict::Keep(Keep::Stretched(_))
                )
            };
            assert!((0..31).all(|i| decision.is_kept(i)), "{ahead}");
            assert_eq!(held(0), ahead > 1, "{ahead}");
            assert!(!held(30));
            // As many nights later they are removed, except for the base.
            for night in 1..=30 {
                sets.push(full(now + night * DAY));
            }
            let found = kept(&sets, days(30), now + 30 * DAY + 3);
            assert_eq!(found.iter().filter(|kept| **kept).count(), 31, "{ahead}");
        }
    }

    /// Goal: backups at their usual interval are kept for exactly the days.
    #[test]
    fn usual_stretches_are_counted() {
        let at = |days: &[i64]| days.iter().map(|d| full(d * DAY)).collect::<Vec<_>>();
        let weekly = at(&[0, 7, 14, 21, 28]);
        assert_eq!(
            kept(&weekly, days(7), 28 * DAY + 5),
            [false, false, false, true, true]
        );
        let monthly = at(&[0, 31, 59, 90, 120]);
        assert_eq!(
            kept(&monthly, days(20), 120 * DAY + 5),
            [false, false, false, true, true]
        );
        // Five nights a week, and a holiday.
        let workdays = at(&[0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 15]);
        let found = kept(&workdays, days(7), 15 * DAY + 5);
        assert_eq!(found, [[false; 6].as_slice(), &[true; 5]].concat());
    }

    /// Goal: a file that replaced another may be another machine's; the only backup of the other file is not given up
    /// at once.
    #[test]
    fn the_last_backup_of_the_file_before_stays_until_the_one_after_it_has_two() {
        let of = |at: i64, births: &[i64]| {
            let mut set = full(at);
            set.identity.origin.births_ns = births.to_vec();
            set
        };
        let sets = [of(1, &[7]), of(2, &[7]), of(3, &[7, 8]), of(4, &[7, 8, 8])];
        let decision = decide(&sets[..3], &count(1), 9_000_000);
        assert_eq!(
            decision.verdicts[0],
            RetentionVerdict::Remove(Remove::Surplus)
        );
        assert_eq!(
            decision.verdicts[1],
            RetentionVerdict::Keep(Keep::FileBefore)
        );
        assert_eq!(kept(&sets, count(1), 9), [false, false, false, true]);
        // It was replaced because it was damaged.
        let mut bad = sets.clone();
        (bad[0].found_bad, bad[1].found_bad) = (true, true);
        let decision = decide(&bad[..3], &count(1), 9_000_000);
        assert_eq!(
            decision.verdicts[1],
            RetentionVerdict::Keep(Keep::FileBefore)
        );
        assert_eq!(kept(&bad, count(1), 9), [false, false, false, true]);
        // If the old file is backed up again, both count separately.
        let sets = [of(2, &[7]), of(3, &[7, 8]), of(4, &[7, 8, 7])];
        assert_eq!(kept(&sets, count(1), 9), [false, true, true]);
    }

    #[test]
    fn backups_of_one_name_from_two_places_are_counted_by_themselves() {
        let of = |at: i64, name: &str| {
            let mut set = full(at);
            set.identity.origin.name = name.to_owned();
            set
        };
        let sets = [
            of(1, "web1 sqlite:/a"),
            of(2, "web1 sqlite:/a"),
            of(3, "web2 sqlite:/a"),
        ];
        assert_eq!(kept(&sets, count(1), 9), [false, true, true]);
        assert_eq!(kept(&sets, days(1), 99 * DAY), [true; 3]);
    }

    #[test]
    fn a_backup_of_the_future_stays_and_takes_no_other_s_place() {
        let ahead = full(9999 * DAY);
        let sets = [full(1), full(2), ahead.clone(), diff(3, &ahead), full(4)];
        let decision = decide(&sets, &count(1), 9_000_000);
        assert_eq!(decision.verdicts[2], RetentionVerdict::Keep(Keep::NotYet));
        assert_eq!(decision.verdicts[4], RetentionVerdict::Keep(Keep::Count(1)));
        assert_eq!(
            kept(&sets, count(1), 9),
            [false, false, true, true, true],
            "its differential, too"
        );
        let decision = decide(&sets[..3], &count(1), 9_000_000);
        assert_eq!(decision.verdicts[1], RetentionVerdict::Keep(Keep::Count(1)));
        assert_eq!(kept(&sets[2..3], count(1), 9), [true]);
    }

    #[test]
    fn nothing_is_removed_without_a_rule_or_without_a_good_backup() {
        let mut sets = [full(1), full(2)];
        assert_eq!(kept(&sets, Policy::default(), 9 * DAY), [true; 2]);
        sets[0].health = Health::Broken;
        sets[1].health = Health::Abandoned;
        assert_eq!(kept(&sets, count(1), 9), [true; 2]);
    }

    #[test]
    fn the_last_good_backup_outlives_newer_ones_that_are_not() {
        let a = full(1);
        let mut b = full(2);
        b.health = Health::Whole { clean: false };
        let mut c = full(3);
        c.health = Health::Broken;
        let mut d = diff(4, &b);
        d.health = Health::Whole { clean: true };
        let sets = [a, b, c, d];
        let decision = decide(&sets, &count(1), 9_000_000);
        assert_eq!(decision.verdicts[0], RetentionVerdict::Keep(Keep::LastGood));
        assert_eq!(decision.verdicts[1], RetentionVerdict::Keep(Keep::Count(1)));
        assert!(decision.is_kept(2) && decision.is_kept(3));
    }

    #[test]
    fn a_whole_backup_outlives_newer_ones_that_parity_holds_together() {
        let a = full(1);
        let mut b = full(2);
        b.is_degraded = true;
        let c = diff(3, &b);
        let sets = [a, b, c];
        let decision = decide(&sets, &count(1), 9_000_000);
        assert_eq!(
            decision.verdicts[0],
            RetentionVerdict::Keep(Keep::LastWhole)
        );
        assert_eq!(decision.verdicts[1], RetentionVerdict::Keep(Keep::Count(1)));
        assert!(decision.is_kept(2));
    }

    /// Goal: nights of backups of an empty source remove no backup with content, and go once others have content.
    #[test]
    fn a_backup_of_a_source_that_lost_its_content_takes_no_place_of_one_that_has_it() {
        let of = |at: i64, plain_bytes: u64| {
            let mut set = full(at);
            set.plain_bytes = plain_bytes;
            set.identity.origin.births_ns = vec![7];
            set
        };
        let mut sets = vec![of(1, 500), of(2, 500), of(3, 0), of(4, 0), of(5, 0)];
        let emptied = RetentionVerdict::Keep(Keep::Emptied(sets[1].label.clone()));
        let decision = decide(&sets, &count(2), 9_000_000);
        let counted = |n: u32| RetentionVerdict::Keep(Keep::Count(n));
        assert_eq!(decision.verdicts[..2], [counted(2), counted(1)]);
        assert_eq!(decision.verdicts[2..4], [emptied.clone(), emptied]);
        assert!(decision.is_kept(4));
        let confirmed = Policy {
            counts_emptied: true,
            ..count(2)
        };
        let bare = [false, false, false, true, true];
        assert_eq!(kept(&sets, confirmed, 9), bare);
        sets.extend([of(6, 500), of(7, 500)]);
        let again = [false, false, false, false, false, true, true];
        assert_eq!(kept(&sets, count(2), 9), again);
    }

    /// Goal: after a recovery to an earlier moment the one backup that leads to the new timeline stays, with all WAL since.
    #[test]
    fn the_backup_that_alone_leads_to_the_latest_timeline_stays_with_its_wal() {
        let mut sets = vec![
            logged(1, 100, 110),
            logged(2, 200, 210),
            logged(3, 300, 310),
        ];
        let rules = Policy {
            keep_wal: Some(1),
            ..count(2)
        };
        assert_eq!(kept(&sets, rules, 9), [false, true, true]);
        sets[0].leads = true;
        let decision = decide(&sets, &rules, 9_000_000);
        assert_eq!(decision.verdicts[0], RetentionVerdict::Keep(Keep::Leads));
        let system = sets[0].log.unwrap().system;
        let clusters: Vec<_> = decision.log.clusters().collect();
        assert_eq!(clusters, [(system, Lsn(100))]);
        assert!(decision.log.needs(system, 2, Lsn(150), Lsn(160)));
    }

    /// Goal: a backup that is known not to be good takes no good one's place, and is removed no earlier than before.
    #[test]
    fn a_backup_that_was_found_bad_counts_for_no_rule_and_goes_no_earlier() {
        let mut bad = full(5);
        bad.found_bad = true;
        let on_bad = diff(6, &bad);
        let sets = [full(1), full(2), full(3), bad, on_bad];
        let decision = decide(&sets, &count(1), 9_000_000);
        let verdict = |i: usize| decision.verdicts[i].clone();
        assert_eq!(verdict(1), RetentionVerdict::Remove(Remove::Surplus));
        assert_eq!(verdict(2), RetentionVerdict::Keep(Keep::Count(1)));
        assert_eq!(verdict(3), RetentionVerdict::Keep(Keep::FoundBad));
        assert_eq!(verdict(4), RetentionVerdict::Keep(Keep::FoundBad));
        let days = Policy {
            keep_days: Some(1),
            ..Policy::default()
        };
        let two_days = 2 * 86_400;
        assert!(kept(&sets, days, two_days)[2]);
        // Once what a rule keeps is newer, it goes with what is built on it.
        let [.., bad, on_bad] = sets;
        let newer = [bad.clone(), on_bad, full(7)];
        assert_eq!(kept(&newer, count(1), 9), [false, false, true]);
        // Alone, it is no reason to remove anything.
        assert_eq!(kept(&[full_of_none(), bad], count(1), 9), [true, true]);
    }

    fn full_of_none() -> SetFacts {
        SetFacts {
            health: Health::Broken,
            ..full(1)
        }
    }

    #[test]
    fn backups_in_use_unexpired_being_written_or_strange_are_kept() {
        let mut sets = vec![full(1), full(2), full(3), full(4), full(5), full(6)];
        sets[0].in_use = true;
        sets[1].expires_us = Some(i64::MAX);
        sets[2].health = Health::Writing;
        sets[3].health = Health::Unknown;
        assert_eq!(
            kept(&sets, count(1), 9),
            [true, true, true, true, false, true]
        );
    }

    #[test]
    fn unreachable_backups_stay_with_their_dependents_and_all_wal() {
        let a = full(1);
        let mut b = diff(2, &a);
        b.log = logged(2, 100, 150).log;
        let mut c = logged(4, 300, 350);
        // A set whose header was not read.
        let away = SetFacts {
            health: Health::Missing,
            id: None,
            ..a.clone()
        };
        let mut sets = [away, b, logged(3, 200, 250), c.clone()];
        let decision = decide(&sets, &count(1), 9_000_000);
        for i in 0..2 {
            assert_eq!(
                decision.verdicts[i],
                RetentionVerdict::Keep(Keep::OutOfReach)
            );
        }
        assert_eq!(
            decision.verdicts[2],
            RetentionVerdict::Remove(Remove::Surplus)
        );
        assert!(decision.log.needs(1, 1, Lsn(0), Lsn(10)));
        // A set that needs nothing hidden is removed by the rules.
        c.start_us = 1;
        sets[1] = c;
        assert!(!decide(&sets, &count(1), 9_000_000).is_kept(1));
    }

    #[test]
    fn the_chain_of_a_backup_in_use_is_kept() {
        let a = full(1);
        let mut b = diff(2, &a);
        b.in_use = true;
        assert_eq!(kept(&[a, b, full(3)], count(1), 9), [true; 3]);
    }

    #[test]
    fn unfinished_and_broken_backups_are_removed_once_a_newer_one_exists() {
        let mut sets = [full(1), full(2), full(3), full(4)];
        sets[0].health = Health::Broken;
        sets[1].health = Health::Abandoned;
        sets[3].health = Health::Abandoned;
        assert_eq!(kept(&sets, count(1), 9), [false, false, true, true]);
    }

    #[test]
    fn a_removal_once_begun_is_ended_whatever_the_rules() {
        let mut sets = [full(1), full(2)];
        sets[0].health = Health::Removing;
        assert_eq!(kept(&sets, Policy::default(), 9), [false, true]);
        sets[0].in_use = true;
        assert_eq!(kept(&sets, Policy::default(), 9), [true, true]);
    }

    fn logged(at: i64, first: u64, last: u64) -> SetFacts {
        let log = LogRange {
            system: 1,
            first_timeline: 1,
            first_lsn: first,
            last_timeline: 1,
            last_lsn: last,
        };
        SetFacts {
            log: Some(log),
            ..full(at)
        }
    }

    #[test]
    fn wal_is_kept_from_the_oldest_kept_backup_on_and_removed_only_of_known_clusters() {
        let sets = [
            logged(1, 100, 150),
            logged(2, 300, 350),
            logged(3, 500, 550),
        ];
        let need = decide(&sets, &count(2), 9_000_000).log;
        let needs = |start, end| need.needs(1, 1, Lsn(start), Lsn(end));
        assert!(!needs(200, 300) && needs(200, 301) && needs(400, 500));
        assert!(need.needs(2, 1, Lsn(0), Lsn(10)), "another cluster's log");
        assert!(need.needs(1, 9, Lsn(400), Lsn(500)), "a later timeline");
        let one = Policy {
            keep_wal: Some(1),
            ..count(2)
        };
        let need = decide(&sets, &one, 9_000_000).log;
        let needs = |start, end| need.needs(1, 1, Lsn(start), Lsn(end));
        assert!(!needs(200, 300) && needs(300, 340) && needs(350, 360));
        assert!(!needs(351, 500) && needs(351, 501) && needs(600, 700));
        assert!(!need.needs(1, 2, Lsn(300), Lsn(340)), "not its timeline");
    }

    /// Goal: rules count for each branch and each cluster, in the order of the LSNs.
    #[test]
    fn a_copy_another_cluster_and_a_wrong_clock_cost_no_backup() {
        use crate::branch::tests::{note, of_server};
        // A copy that wrote last, a recreated cluster, and production's own older backup.
        let mut anew = of_server(4, 5, 3);
        anew.log.as_mut().unwrap().system = 2;
        anew.identity.lineage.as_mut().unwrap().system = 2;
        let sets = [
            of_server(1, 10, 1),
            of_server(2, 20, 1),
            of_server(3, 30, 2),
            anew,
        ];
        assert_eq!(kept(&sets, count(1), 9), [false, true, true, true]);
        // The first one's clock was ahead, and was corrected.
        let mut sets = [of_server(8, 10, 1), of_server(5, 20, 1)];
        let first = sets[0].clone();
        assert_eq!(kept(&sets, count(1), 9), [true, true], "not known");
        note(&mut sets[1], &first);
        assert_eq!(kept(&sets, count(1), 9), [false, true]);
    }

    /// Of two branches of one cluster, neither's newer backups take WAL from the other.
    #[test]
    fn wal_is_kept_since_the_newest_full_backups_of_each_branch() {
        use crate::branch::tests::of_server;
        let sets = [
            of_server(1, 10, 1),
            of_server(2, 20, 2),
            of_server(3, 30, 2),
            of_server(4, 40, 1),
        ];
        let policy = Policy {
            keep_full: Some(2),
            keep_wal: Some(1),
            ..Policy::default()
        };
        let log = decide(&sets, &policy, 9_000_000).log;
        assert!(log.needs(1, 1, Lsn(34), Lsn(36)));
        assert!(!log.needs(1, 1, Lsn(24), Lsn(26)));
    }

    #[test]
    fn no_wal_is_removed_while_a_damaged_backup_is_kept() {
        let mut sets = [logged(1, 100, 150), logged(2, 300, 350), full(3)];
        sets[2].health = Health::Broken;
        let need = decide(&sets, &count(1), 9_000_000).log;
        assert!(need.needs(1, 1, Lsn(0), Lsn(10)));
        // It is removed when it is older than the kept ones; then it needs nothing.
        sets[2].start_us = 0;
        let decision = decide(&sets, &count(1), 9_000_000);
        assert!(!decision.is_kept(2));
        assert!(!decision.log.needs(1, 1, Lsn(0), Lsn(10)));
        sets[2].in_use = true;
        let need = decide(&sets, &count(1), 9_000_000).log;
        assert!(need.needs(1, 1, Lsn(0), Lsn(10)));
    }

    /// Goal: a backup that only counts nowhere just now, for a stripe too many or for its name, loses nothing that it
    /// needs, and nothing that needs it goes.
    #[test]
    fn a_foreign_backup_keeps_its_wal_its_base_and_its_differentials() {
        let mut sets = vec![
            logged(1, 100, 150),
            logged(4, 300, 350),
            logged(5, 500, 550),
        ];
        let needed = SetFacts {
            log: logged(2, 200, 210).log,
            ..diff(2, &sets[0])
        };
        let later = SetFacts {
            log: logged(3, 220, 230).log,
            ..diff(3, &needed)
        };
        sets.extend([needed, later]);
        let all = sets.clone();
        // Its stripes agree, so its header is known.
        sets[3].health = Health::Foreign;
        let decision = decide(&sets, &count(1), 9_000_000);
        assert_eq!(
            [0, 3, 4].map(|i| decision.is_kept(i)),
            [true; 3],
            "{:?}",
            decision.verdicts
        );
        assert!(!decision.is_kept(1));
        let needs = |start, end| decision.log.needs(1, 1, Lsn(start), Lsn(end));
        assert!(!decision.log.all && needs(100, 151) && needs(400, 401) && !needs(0, 100));
        // Nothing is known of it: neither its WAL nor whether others need it.
        sets[3].id = None;
        sets[3].parent = None;
        sets[3].log = None;
        let decision = decide(&sets, &count(1), 9_000_000);
        assert!(decision.log.all);
        assert_eq!(
            decision.verdicts[4],
            RetentionVerdict::Keep(Keep::OutOfReach)
        );
        // Without it the rules alone decide.
        let decision = decide(&all, &count(1), 9_000_000);
        assert!(!decision.is_kept(4) && !decision.log.needs(1, 1, Lsn(400), Lsn(401)));
    }

    /// Goal: where newer backups are marked, or lack stripes, the last good one can still be brought forward.
    #[test]
    fn wal_stays_since_the_newest_good_backup_whatever_was_made_since() {
        let good = logged(1, 100, 150);
        let later = SetFacts {
            log: logged(2, 200, 250).log,
            ..diff(2, &good)
        };
        let (mut marked, mut newest) = (logged(3, 300, 350), logged(4, 500, 550));
        let policy = Policy {
            keep_wal: Some(1),
            ..count(4)
        };
        let needed = |sets: &[SetFacts]| {
            let log = decide(sets, &policy, 9_000_000).log;
            let needs = |at: u64| log.needs(1, 1, Lsn(at), Lsn(at + 1));
            (50..600).find(|at| needs(*at) && (*at..600).all(needs))
        };
        let sets = |marked: &SetFacts, newest: &SetFacts| {
            [good.clone(), later.clone(), marked.clone(), newest.clone()]
        };
        assert_eq!(needed(&sets(&marked, &newest)), Some(500));
        newest.health = Health::Whole { clean: false };
        assert_eq!(needed(&sets(&marked, &newest)), Some(300));
        marked.health = Health::Whole { clean: false };
        assert_eq!(needed(&sets(&marked, &newest)), Some(100));
        (marked.health, newest.health) = (good.health, good.health);
        (marked.is_degraded, newest.is_degraded) = (true, true);
        assert_eq!(needed(&sets(&marked, &newest)), Some(100));
    }

    /// Goal: a stranger's backup in the directory is no reason to remove WAL of a cluster of which nothing else is here.
    #[test]
    fn a_foreign_backup_shows_no_cluster() {
        let mut other = logged(1, 100, 150);
        other.log.as_mut().unwrap().system = 2;
        other.health = Health::Foreign;
        let sets = [other, logged(2, 300, 350), logged(3, 500, 550)];
        let need = decide(&sets, &count(1), 9_000_000).log;
        assert!(need.of(2).is_none() && need.needs(2, 1, Lsn(0), Lsn(10)));
        assert!(!need.needs(1, 1, Lsn(300), Lsn(310)));
    }

    #[test]
    fn no_wal_is_removed_while_a_backup_is_being_written() {
        let mut sets = [logged(1, 100, 150), logged(2, 300, 350)];
        sets[0].health = Health::Writing;
        let need = decide(&sets, &count(1), 9_000_000).log;
        assert!(need.needs(1, 1, Lsn(0), Lsn(10)));
    }
}
