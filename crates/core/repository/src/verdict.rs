//! The decision about every set of one database at one target: which stay, which go, why, and which WAL stays with them.
//!
//! Invariants
//! - A set is removed before those that it needs.
//! - What is not known to be needless is needed: WAL of a cluster that no kept backup is of stays.
//!
//! Leaves to others: deciding (`retention.rs`), and the reasons' words (the program).

use std::collections::BTreeMap;

use longshore_pg::Lsn;
use longshore_wal::needs::ClusterNeed;

use crate::chain::{SetFacts, chain};
use crate::label::Label;

/// Why a backup stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// No rule allows its removal.
    NoRule,
    /// There is no whole full backup, so nothing is removed.
    NothingWhole,
    /// Its number among the newest full backups, from 1.
    Count(u32),
    /// Finished within the days to be kept.
    Recent,
    /// Finished within those days, without counting a stretch of this many microseconds without full backups.
    Stretched(i64),
    /// The base for the oldest moment within those days.
    Base,
    NeededBy(Label),
    /// The newest backup of the file that was replaced, until its successor has two: until then both files may exist.
    FileBefore,
    /// Its full backup is kept.
    OfKept(Label),
    /// The newest that is complete and unmarked.
    LastGood,
    /// A recovery from it comes to the timeline with which the archive goes on, and from no newer one.
    Leads,
    /// The newest of these without lost or damaged stripes, where parity holds the newest together.
    LastWhole,
    Unexpired,
    InUse,
    BeingWritten,
    NotOurs,
    /// Stripes of it, or of a backup it needs, are not in their place; they may only be unreachable.
    OutOfReach,
    /// Cannot be restored, but is not older than the kept backups.
    Recoverable,
    /// A verification or a drill found it, or its full backup, not to be good. It is not older than the kept backups.
    FoundBad,
    /// The source had lost the content of the named backup. It is not older than the kept backups.
    Emptied(Label),
    /// Begun in the future: a clock was wrong, and rules cannot determine its position among the others.
    NotYet,
}

/// Why a backup is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remove {
    /// No rule keeps it.
    Surplus,
    /// It was never completed.
    Abandoned,
    /// It cannot be restored, and is older than all kept backups.
    Broken,
    /// Its removal had begun before.
    Begun,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetentionVerdict {
    Keep(Keep),
    Remove(Remove),
}

/// The verdict for each set, in the order given.
#[derive(Debug, Clone)]
pub struct Decision {
    pub verdicts: Vec<RetentionVerdict>,
    pub log: LogNeed,
}

impl Decision {
    pub fn is_kept(&self, index: usize) -> bool {
        matches!(self.verdicts[index], RetentionVerdict::Keep(_))
    }

    /// Indexes of the sets to be removed, in the necessary order: each after those that depend on it.
    pub fn removals(&self, sets: &[SetFacts]) -> Vec<usize> {
        let mut gone: Vec<usize> = (0..sets.len()).filter(|i| !self.is_kept(*i)).collect();
        gone.sort_by_key(|i| {
            let depth = chain(sets, *i).map_or(usize::MAX, |links| links.len());
            (std::cmp::Reverse(depth), sets[*i].label.clone())
        });
        gone
    }
}

/// Which WAL the kept backups need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogNeed {
    /// The need of a kept backup is unknown, because it is being written, damaged, foreign or unreachable: no WAL is
    /// removed.
    pub all: bool,
    pub(crate) clusters: BTreeMap<u64, ClusterNeed>,
}

impl LogNeed {
    /// Whether WAL from `start` up to, not including, `end` must stay.
    pub fn needs(&self, system: u64, timeline: u32, start: Lsn, end: Lsn) -> bool {
        let Some(cluster) = self.clusters.get(&system) else {
            return true;
        };
        self.all || cluster.needs(timeline, start, end)
    }

    /// The need for a cluster's WAL; `None` if no kept backup is from it.
    pub(crate) fn of(&self, system: u64) -> Option<&ClusterNeed> {
        self.clusters.get(&system)
    }

    /// Whether WAL must stay for a backup whose need is known.
    pub(crate) fn surely_needs(&self, system: u64, timeline: u32, start: Lsn, end: Lsn) -> bool {
        let cluster = self.clusters.get(&system);
        cluster.is_some_and(|cluster| cluster.needs(timeline, start, end))
    }

    /// The clusters of kept backups, and the LSN from which the WAL of each is kept without gaps.
    pub fn clusters(&self) -> impl Iterator<Item = (u64, Lsn)> + '_ {
        self.clusters.iter().map(|(s, n)| (*s, Lsn(n.from)))
    }
}
