//! The images a power cut can leave, chosen among all possible outcomes.
//!
//! Any subset of what was not synced may be there, down to single sectors of a write, as far as a journaling file
//! system allows it.
//!
//! Invariants
//! - Every image is what was durable, with some of the later changes applied in their order.
//! - The first image lost everything that was not durable. The second, if it differs, kept all of it. No two outcomes
//!   are the same.
//! - The choice comes from the disk's seed and step, so a failing image can be made again.
//!
//! Leaves to others: what is durable (`state.rs`), and running programs on an image (the tests).

use std::collections::{BTreeMap, BTreeSet};

use super::content::{Change, Content, SECTOR};
use super::random::Random;
use super::state::{Data, State, replay};
use super::tree::{Ino, TreeChange, closed, without};

/// One outcome for everything that was not durable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Outcome {
    /// Per file system, which entries of the journal are there.
    entries: BTreeMap<u64, Vec<bool>>,
    /// Per file, the fate of each change.
    changes: BTreeMap<Ino, Vec<Fate>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Lost,
    Kept,
    /// Only this many of the first sectors.
    Cut(u64),
    /// Some sectors, chosen by this seed.
    Torn(u64),
}

pub(super) fn images(state: &State, count_max: usize) -> Vec<State> {
    let mut random = Random::new(state.seed ^ state.steps.rotate_left(32));
    let nothing = outcome(state, |journal| vec![false; journal.len()], |_| Fate::Lost);
    let everything = outcome(state, |journal| vec![true; journal.len()], |_| Fate::Kept);
    let mut outcomes = vec![nothing.clone()];
    if everything != nothing {
        outcomes.push(everything);
    }
    let mut seen: BTreeSet<Outcome> = outcomes.iter().cloned().collect();
    // If few outcomes are possible, random ones soon repeat; this bounds the search.
    for _ in 0..count_max * 4 {
        if outcomes.len() >= count_max || outcomes.len() < 2 {
            break;
        }
        let mut for_names = Random::new(random.next());
        let entries = |journal: &[TreeChange]| survivors(journal, &mut for_names);
        let by_chance = outcome(state, entries, |change| fate(change, &mut random));
        if seen.insert(by_chance.clone()) {
            outcomes.push(by_chance);
        }
    }
    outcomes
        .iter()
        .map(|outcome| image(state, outcome, random.next()))
        .collect()
}

fn outcome(
    state: &State,
    mut entries: impl FnMut(&[TreeChange]) -> Vec<bool>,
    mut fate: impl FnMut(&Change) -> Fate,
) -> Outcome {
    let doubtful = state
        .files
        .iter()
        .filter(|(_, data)| !data.pending.is_empty());
    Outcome {
        entries: state
            .journals
            .iter()
            .map(|(dev, journal)| (*dev, entries(journal)))
            .collect(),
        changes: doubtful
            .map(|(ino, data)| (*ino, data.pending.iter().map(&mut fate).collect()))
            .collect(),
    }
}

/// Which changes of names survive: the first ones, all but one, one, or any, each with what it takes.
fn survivors(journal: &[TreeChange], random: &mut Random) -> Vec<bool> {
    let len = journal.len() as u64;
    let one = random.below(len.max(1)) as usize;
    match random.below(4) {
        0 => {
            let count = random.below(len + 1) as usize;
            (0..journal.len()).map(|i| i < count).collect()
        }
        1 => without(journal, |i| i == one),
        2 => closed(journal, |i, _| i == one),
        _ => without(journal, |_| random.below(2) == 0),
    }
}

fn fate(change: &Change, random: &mut Random) -> Fate {
    let sectors = match change {
        Change::Write { offset, bytes } => {
            (offset + bytes.len() as u64).div_ceil(SECTOR) - offset / SECTOR
        }
        Change::SetLen(_) => 1,
    };
    match random.below(6) {
        0 if sectors > 1 => Fate::Cut(1 + random.below(sectors - 1)),
        1 if sectors > 1 => Fate::Torn(random.next()),
        2 | 3 => Fate::Lost,
        _ => Fate::Kept,
    }
}

fn image(state: &State, outcome: &Outcome, seed: u64) -> State {
    let mut names = state.durable.clone();
    for (dev, journal) in &state.journals {
        let kept = outcome.entries.get(dev).map_or(&[][..], Vec::as_slice);
        replay(journal, kept, &mut names);
    }
    names.forget_nameless();
    let files = names.nodes().filter_map(|(ino, _)| {
        let data = state.files.get(&ino)?;
        let fates = outcome.changes.get(&ino).map_or(&[][..], Vec::as_slice);
        let live = after(data, fates);
        Some((
            ino,
            Data {
                durable: live.clone(),
                live,
                pending: Vec::new(),
            },
        ))
    });
    State {
        files: files.collect(),
        durable: names.clone(),
        live: names,
        now_ns: state.now_ns,
        ino_last: state.ino_last,
        dev_last: state.dev_last,
        cached: state.cached.clone(),
        tells_holes: state.tells_holes,
        locks_need_writing: state.locks_need_writing,
        locks_are_kept: state.locks_are_kept,
        ..State::new(seed)
    }
}

fn after(data: &Data, fates: &[Fate]) -> Content {
    let mut content = data.durable.clone();
    for (change, fate) in data.pending.iter().zip(fates) {
        match (fate, change) {
            (Fate::Lost, _) => {}
            (Fate::Cut(count), Change::Write { offset, bytes }) => {
                let mut left = *count;
                content.apply_torn(*offset, bytes, || {
                    let kept = left > 0;
                    left = left.saturating_sub(1);
                    kept
                });
            }
            (Fate::Torn(seed), Change::Write { offset, bytes }) => {
                let mut random = Random::new(*seed);
                content.apply_torn(*offset, bytes, || random.below(2) == 0);
            }
            (_, change) => content.apply(change),
        }
    }
    content
}
