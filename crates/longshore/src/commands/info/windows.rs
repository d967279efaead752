//! The stretches of time of which every moment can be recovered.
//!
//! WAL has no index by time. A moment is placed by the backups alone: each knows the LSN and the time of its own end.
//!
//! Invariants
//! - A window is never longer than what is known: it ends with the last backup whose end the WAL reaches. Later WAL is told
//!   apart (`goes_on`), or is lost in a gap.
//! - Two windows are not joined across a gap.
//!
//! Leaves to others: which segments are missing (`longshore-wal`), and which backups can be restored (`info.rs`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use longshore_pg::wal::History;
use longshore_pg::{Lsn, Timeline};
use longshore_repository::branch::Branch;
use longshore_repository::chain::SetFacts;
use longshore_wal::{Error, LogRange, Replay, WalArchive};
use serde::Serialize;

/// A stretch of time of which every moment can be recovered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoverableWindow {
    /// The number of the branch.
    pub branch: usize,
    /// The timeline that recovery follows.
    pub timeline: u32,
    /// The backup with which it begins.
    pub from: String,
    pub from_us: i64,
    /// The last backup whose end can be reached: every moment up to there can be recovered.
    pub to: String,
    pub to_us: i64,
    /// How far the WAL goes without a gap.
    pub end_lsn: String,
    /// Whether that is the end of the archive. `false`: segments are missing there.
    pub goes_on: bool,
}

/// How far the WAL leads from a backup that can be restored.
pub struct Reach {
    set: usize,
    from: Lsn,
    timeline: Timeline,
    end: Lsn,
    goes_on: bool,
}

impl Reach {
    /// `set`: a backup that the archive makes consistent, by its position.
    pub fn of(set: usize, log: &LogRange, replay: &Replay, archive: &WalArchive) -> Reach {
        let from = Lsn(log.last_lsn);
        let size = archive.identity().map(|identity| identity.segment_size);
        let missing = replay.missing_to_end.iter();
        let gap = missing
            .filter_map(|span| Some(span.first.start(size?)))
            .min();
        Reach {
            set,
            from,
            timeline: replay.timeline,
            end: gap.unwrap_or(replay.end).max(from),
            goes_on: gap.is_none(),
        }
    }
}

/// The windows of all these backups: branch by branch, by timeline and LSN.
///
/// Errors: those of [`WalArchive::history`].
pub fn covered(
    archive: &WalArchive,
    facts: &[SetFacts],
    branches: &[Branch],
    reaches: &[Reach],
) -> Result<Vec<RecoverableWindow>, Error> {
    let mut windows = Vec::new();
    let mut histories = BTreeMap::new();
    for reach in reaches {
        if let Entry::Vacant(unread) = histories.entry(reach.timeline) {
            unread.insert(archive.history(reach.timeline)?);
        }
    }
    for (number, branch) in (1..).zip(branches) {
        // The time of another branch's backup says nothing about this one's WAL.
        let own: BTreeSet<usize> = branch.sets.iter().copied().collect();
        // Backups with the same gap, or the same end, after them are in one window.
        let mut alike: BTreeMap<(Timeline, Lsn, bool), Vec<&Reach>> = BTreeMap::new();
        for reach in reaches.iter().filter(|reach| own.contains(&reach.set)) {
            let key = (reach.timeline, reach.end, reach.goes_on);
            alike.entry(key).or_default().push(reach);
        }
        for ((timeline, end, goes_on), reaches) in alike {
            let Some(first) = reaches.iter().min_by_key(|reach| (reach.from, reach.set)) else {
                continue;
            };
            let is_passed = |set: &usize| {
                let log = facts[*set].log.filter(|log| log.last().1 <= end);
                let history: Option<&History> = histories.get(&timeline);
                log.zip(history).is_some_and(|(log, history)| {
                    let (left, lsn) = log.last();
                    history.passes(left, lsn)
                })
            };
            let passed = own.iter().copied().filter(is_passed);
            let last = passed.max_by_key(|set| facts[*set].log.map(|log| (log.last_lsn, *set)));
            let last = last.unwrap_or(first.set);
            windows.push(RecoverableWindow {
                branch: number,
                timeline: timeline.number(),
                from: facts[first.set].label.to_string(),
                from_us: facts[first.set].finish_us,
                to: facts[last].label.to_string(),
                to_us: facts[last].finish_us,
                end_lsn: end.to_string(),
                goes_on,
            });
        }
    }
    Ok(windows)
}
