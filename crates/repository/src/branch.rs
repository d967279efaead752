//! Branches: which backups at a target follow one another, and which only look as if they did.
//!
//! A target may hold backups of several clusters under one name, and of several branches of one cluster: of production and
//! of a copy of it, of the time before a recovery and after it. Each branch is a line of backups in the order of their
//! LSNs. Labels' times never order the backups of a cluster: a clock may be wrong.
//!
//! A backup continues a line where that is proved ([`longshore_pg::lineage`]), or where nothing contradicts it and both
//! backups come from the same place: the same host, data directory and inode, with times or earlier listings in the same
//! order as the LSNs. The latter is said to be unproved. Everything else begins a line of its own, so that nothing is
//! mixed: retention then keeps more, and a restore asks which one is meant.

use std::collections::HashMap;

use longshore_media::{SetHeader, SetTrailer};
use longshore_pg::lineage::Verdict;
use longshore_pg::{Earlier, Lineage, Lsn, Relation, Timeline};

use crate::chain::SetFacts;

/// What tells the branch of a backup.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// `None` in sets of versions that stored none, and where there is no log.
    pub lineage: Option<Box<Lineage>>,
    /// Machine and source as the set's header names them: all that there is of older sets.
    pub whence: String,
}

impl Identity {
    pub fn of(header: &SetHeader) -> Identity {
        Identity {
            lineage: Lineage::decode(&header.lineage).map(Box::new),
            whence: format!("{}\0{}", header.machine, header.origin),
        }
    }
}

/// A set as one that a server or a later backup is compared with; `None` for sources without a log.
pub fn earlier(header: &SetHeader, trailer: &SetTrailer) -> Option<Earlier> {
    let timeline = Timeline::new(header.log.timeline)?;
    let end = (
        Timeline::new(trailer.log.timeline)?,
        Lsn(trailer.log.last_lsn),
    );
    let lineage = Lineage::decode(&header.lineage).unwrap_or_else(|| {
        Lineage::unrecorded(header.log.system, timeline, Lsn(header.log.first_lsn))
    });
    Some(Earlier {
        set: *header.set.as_bytes(),
        lineage,
        end,
    })
}

/// Backups that follow one another, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// PostgreSQL's system identifier; `None`: of sources without a log.
    pub system: Option<u64>,
    /// Indexes of its sets. Branches that fork from one another share what is older.
    pub sets: Vec<usize>,
    /// Whether each step between them is proved.
    pub proved: bool,
    /// The branch, by its index, that the same server went on with instead: after a recovery to an earlier moment, say.
    pub given_up_for: Option<usize>,
}

impl Branch {
    /// Its newest set.
    pub fn tip(&self) -> usize {
        self.sets[self.sets.len() - 1]
    }
}

/// How a set is tied to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tie {
    Proved,
    /// Nothing contradicts it, and both come from the same place.
    Presumed,
    None,
    Refuted,
}

/// The branches that these sets form. Sets that are not whole are in none: their headers may not be known.
pub fn branches(sets: &[SetFacts]) -> Vec<Branch> {
    let whole = || (0..sets.len()).filter(|i| sets[*i].is_whole());
    let mut found = Vec::new();
    let mut plain: Vec<usize> = whole().filter(|i| sets[*i].log.is_none()).collect();
    plain.sort_by_key(|i| (sets[*i].start_us, sets[*i].label.clone()));
    if !plain.is_empty() {
        found.push(Branch {
            system: None,
            sets: plain,
            proved: true,
            given_up_for: None,
        });
    }
    let mut systems: Vec<u64> = whole().filter_map(|i| Some(sets[i].log?.system)).collect();
    systems.sort_unstable();
    systems.dedup();
    for system in systems {
        let of_system = |i: &usize| sets[*i].log.is_some_and(|log| log.system == system);
        found.extend(lines(sets, whole().filter(of_system).collect(), system));
    }
    let given_up = given_up(sets, &found);
    for (branch, by) in found.iter_mut().zip(given_up) {
        branch.given_up_for = by;
    }
    found
}

/// The lines that the sets of one system form. A set is compared with those before it until one fits, and what it recorded
/// about others is looked up: a target may hold thousands.
fn lines(sets: &[SetFacts], mut order: Vec<usize>, system: u64) -> Vec<Branch> {
    order.sort_by_key(|i| {
        let first = sets[*i].log.map_or(0, |log| log.first_lsn);
        (first, sets[*i].start_us, sets[*i].label.clone())
    });
    let known: Vec<Option<Earlier>> = order.iter().map(|i| as_earlier(&sets[*i])).collect();
    let ids = known.iter().zip(0..);
    let places: HashMap<[u8; 16], usize> = ids
        .filter_map(|(known, at)| Some((known.as_ref()?.set, at)))
        .collect();
    // By position in the order: the set before, and how it is tied.
    let mut before: Vec<Option<(usize, Tie)>> = Vec::new();
    for at in 0..order.len() {
        let own = known[at].as_ref().map_or(&[][..], |own| &own.lineage.known);
        let noted = |verdict: Verdict| {
            let of_verdict = own.iter().filter(move |known| known.verdict == verdict);
            of_verdict.filter_map(|known| places.get(&known.set).copied())
        };
        let apart: Vec<usize> = noted(Verdict::Apart).collect();
        let is_below = |from: usize, wanted: &dyn Fn(usize) -> bool| {
            let line = std::iter::successors(Some(from), |next| Some(before[*next]?.0));
            line.into_iter().any(wanted)
        };
        // What follows a set follows all that this one follows.
        let fits = |from: &usize| apart.is_empty() || !is_below(*from, &|x| apart.contains(&x));
        let tie = |other: usize| tie(sets, &order, &known, (at, other));
        let proved = noted(Verdict::Follows).filter(|other| *other < at && fits(other));
        let proved = proved.filter(|other| tie(*other) == Tie::Proved).max();
        let nearest = (0..at).rev().find_map(|other| {
            let tie = tie(other);
            let is_tied = matches!(tie, Tie::Proved | Tie::Presumed);
            (is_tied && fits(&other)).then_some((other, tie))
        });
        let next = match (proved, nearest) {
            // One that comes after the proved one on the same line.
            (Some(proved), Some((near, tie))) if is_below(near, &|x| x == proved) => {
                Some((near, tie))
            }
            (Some(proved), _) => Some((proved, Tie::Proved)),
            (None, nearest) => nearest,
        };
        before.push(next);
    }
    let mut is_tip = vec![true; order.len()];
    for (other, _) in before.iter().flatten() {
        is_tip[*other] = false;
    }
    let branch = |tip: usize| {
        let (mut line, mut proved, mut at) = (vec![order[tip]], true, tip);
        while let Some((next, tie)) = before[at] {
            proved &= tie == Tie::Proved;
            line.push(order[next]);
            at = next;
        }
        line.reverse();
        Branch {
            system: Some(system),
            sets: line,
            proved,
            given_up_for: None,
        }
    };
    let tips = (0..order.len()).filter(|at| is_tip[*at]);
    tips.map(branch).collect()
}

/// The set as one that others are compared with; what it did not record is in its log range.
fn as_earlier(set: &SetFacts) -> Option<Earlier> {
    let log = set.log?;
    let first = Timeline::new(log.first_timeline)?;
    let lineage = set.identity.lineage.as_deref().cloned();
    Some(Earlier {
        set: *set.id?.as_bytes(),
        lineage: lineage
            .unwrap_or_else(|| Lineage::unrecorded(log.system, first, Lsn(log.first_lsn))),
        end: (Timeline::new(log.last_timeline)?, Lsn(log.last_lsn)),
    })
}

/// How a set is tied to one with a lower LSN; both by their positions in the order.
fn tie(
    sets: &[SetFacts],
    order: &[usize],
    known: &[Option<Earlier>],
    (at, other): (usize, usize),
) -> Tie {
    let (Some(own), Some(earlier)) = (&known[at], &known[other]) else {
        return Tie::None;
    };
    // The one with the lower LSN was made when the other was complete: the server was set back, or is a copy.
    if earlier.lineage.has_seen(own.set) {
        return Tie::Refuted;
    }
    match own.lineage.comes_from(earlier) {
        Relation::Proved(_) => Tie::Proved,
        Relation::Refuted(_) => Tie::Refuted,
        Relation::Unknown(_) => {
            let (set, other) = (&sets[order[at]], &sets[order[other]]);
            let is_later = own.lineage.has_seen(earlier.set) || set.start_us >= other.start_us;
            match is_later && is_same_home(set, other) {
                true => Tie::Presumed,
                false => Tie::None,
            }
        }
    }
}

fn is_same_home(one: &SetFacts, other: &SetFacts) -> bool {
    let home = |set: &SetFacts| set.identity.lineage.as_ref().and_then(|l| l.home);
    match (home(one), home(other)) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => one.identity.whence == other.identity.whence,
    }
}

/// For each branch the one that a server at the same place went on with, when the last backup of this one was already
/// there.
fn given_up(sets: &[SetFacts], branches: &[Branch]) -> Vec<Option<usize>> {
    let id = |branch: &Branch| Some(*sets[branch.tip()].id?.as_bytes());
    let tips: HashMap<[u8; 16], usize> = branches
        .iter()
        .zip(0..)
        .filter_map(|(branch, index)| Some((id(branch)?, index)))
        .collect();
    let home = |set: usize| sets[set].identity.lineage.as_ref().and_then(|l| l.home);
    let mut given_up = vec![None; branches.len()];
    for (by, branch) in branches.iter().enumerate() {
        for set in &branch.sets {
            let lineage = sets[*set].identity.lineage.as_ref();
            for known in lineage.iter().flat_map(|lineage| &lineage.known) {
                let Some(index) = tips.get(&known.set).copied() else {
                    continue;
                };
                let same = home(*set).is_some() && home(*set) == home(branches[index].tip());
                if index != by && same && given_up[index].is_none() {
                    given_up[index] = Some(by);
                }
            }
        }
    }
    given_up
}

/// The branches that a server still goes on with, by their indexes.
pub fn living(branches: &[Branch]) -> Vec<usize> {
    let lives = |i: &usize| branches[*i].given_up_for.is_none();
    (0..branches.len()).filter(lives).collect()
}

/// Indexes of all sets, oldest first: by their times, and among those of one cluster by their LSNs.
pub fn in_order(sets: &[SetFacts]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|i| (sets[*i].start_us, sets[*i].label.clone()));
    let mut systems: Vec<u64> = sets.iter().filter_map(|s| Some(s.log?.system)).collect();
    systems.sort_unstable();
    systems.dedup();
    for system in systems {
        let is_of = |i: &usize| sets[*i].log.is_some_and(|log| log.system == system);
        let slots: Vec<usize> = (0..order.len()).filter(|at| is_of(&order[*at])).collect();
        let mut of_system: Vec<usize> = slots.iter().map(|at| order[*at]).collect();
        of_system.sort_by_key(|i| sets[*i].log.map_or(0, |log| log.first_lsn));
        for (slot, set) in slots.into_iter().zip(of_system) {
            order[slot] = set;
        }
    }
    order
}

/// Whether backups are made of both branches: each has one of its own that is younger than the other's first own.
pub fn are_both_made(sets: &[SetFacts], one: &Branch, other: &Branch) -> bool {
    let own = |branch: &Branch, other: &Branch| -> Vec<i64> {
        let own = branch.sets.iter().filter(|set| !other.sets.contains(set));
        own.map(|set| sets[*set].start_us).collect()
    };
    let (a, b) = (own(one, other), own(other, one));
    let later = |a: &[i64], b: &[i64]| a.iter().max() > b.iter().min() && !b.is_empty();
    later(&a, &b) && later(&b, &a)
}

/// Pairs of neighbours on a branch whose times contradict their LSNs: the second one's clock was behind the first one's.
pub fn clock_contradictions(sets: &[SetFacts], branch: &Branch) -> Vec<(usize, usize)> {
    let pairs = branch.sets.windows(2).map(|pair| (pair[0], pair[1]));
    pairs
        .filter(|(one, next)| sets[*next].start_us < sets[*one].start_us)
        .collect()
}

/// One line for people: what is on the branch, and how it is named in a command.
pub fn text(sets: &[SetFacts], branch: &Branch) -> String {
    let tip = &sets[branch.tip()];
    let whence = tip.identity.whence.replace('\0', ", ");
    let count = branch.sets.len();
    let of = match (branch.system, tip.log) {
        (Some(system), Some(log)) => format!(
            "cluster {system}, timeline {}, to {}",
            log.last_timeline,
            Lsn(log.last_lsn)
        ),
        _ => "no cluster with a log".to_owned(),
    };
    let whence = match whence.trim_matches([',', ' ']) {
        "" => String::new(),
        whence => format!(", from {whence}"),
    };
    let recorded = match (&tip.identity.lineage, branch.system) {
        (None, Some(_)) => ", branch not recorded",
        _ => "",
    };
    let given_up = match branch.given_up_for {
        Some(_) => ", given up by its server",
        None => "",
    };
    let plural = if count == 1 { "" } else { "s" };
    format!(
        "{}: {of}, {count} backup{plural}{whence}{recorded}{given_up}",
        tip.label
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chain::LogRange;
    use crate::chain::tests::full;
    use longshore_pg::lineage::{Contradiction, Digest, Line, Proof, Witness};

    /// A full backup of the cluster 1 at this time and LSN, of the server at home `home`.
    fn set(at: i64, lsn: u64, home: u8) -> SetFacts {
        let timeline = Timeline::new(1).unwrap();
        let mut lineage = Lineage::unrecorded(1, timeline, Lsn(lsn));
        lineage.line = Some(Line::first());
        lineage.checkpoint = Lsn(lsn);
        lineage.next_xid = lsn;
        lineage.home = Some(Digest::of([&[home][..]]));
        lineage.witness = Some(Witness {
            timeline,
            start: Lsn(lsn * 8192),
            len: 100,
            page_bytes: 8192,
            before: None,
            digest: Digest::of([&[home][..], &lsn.to_le_bytes()]),
        });
        SetFacts {
            log: Some(LogRange {
                system: 1,
                first_timeline: 1,
                first_lsn: lsn,
                last_timeline: 1,
                last_lsn: lsn + 1,
            }),
            identity: Identity {
                lineage: Some(Box::new(lineage)),
                whence: "host\0postgres:".into(),
            },
            ..full(at)
        }
    }

    pub(crate) fn of_server(at: i64, lsn: u64, home: u8) -> SetFacts {
        set(at, lsn, home)
    }

    /// The set's server follows the other one.
    pub(crate) fn note(set: &mut SetFacts, other: &SetFacts) {
        relate(set, other, &FOLLOWS);
    }

    fn relate(set: &mut SetFacts, other: &SetFacts, relation: &Relation) {
        let lineage = set.identity.lineage.as_mut().unwrap();
        lineage.note(*other.id.unwrap().as_bytes(), relation);
    }

    fn found(sets: &[SetFacts]) -> Vec<Vec<usize>> {
        branches(sets).into_iter().map(|b| b.sets).collect()
    }

    const SEEN: Relation = Relation::Unknown(longshore_pg::lineage::Doubt::NotCompared);
    const FOLLOWS: Relation = Relation::Proved(Proof::Recorded);
    const APART: Relation = Relation::Refuted(Contradiction::Recorded);

    /// Goal: a copy that writes into its origin's target is a branch of its own, however the LSNs interleave.
    #[test]
    fn a_copy_is_a_branch_of_its_own() {
        let sets = [set(1, 10, 1), set(2, 20, 2), set(3, 30, 1), set(4, 40, 2)];
        assert_eq!(found(&sets), [[0, 2], [1, 3]]);
        assert_eq!(living(&branches(&sets)), [0, 1]);
    }

    #[test]
    fn a_server_that_moved_goes_on_where_its_log_proves_it() {
        let mut sets = [set(1, 10, 1), set(2, 20, 2)];
        assert_eq!(found(&sets).len(), 2);
        let first = sets[0].clone();
        relate(&mut sets[1], &first, &FOLLOWS);
        assert_eq!(found(&sets), [[0, 1]]);
        assert!(branches(&sets)[0].proved);
    }

    /// Goal: a clock that was ahead and is put right orders nothing.
    #[test]
    fn the_order_is_that_of_the_log() {
        let mut sets = [set(9, 10, 1), set(5, 20, 1), set(6, 30, 1)];
        assert_eq!(found(&sets).len(), 2, "unknown, and not mixed");
        let ahead = sets[0].clone();
        relate(&mut sets[1], &ahead, &SEEN);
        let both = branches(&sets);
        assert_eq!(both.len(), 1);
        assert_eq!(both[0].sets, [0, 1, 2]);
        assert_eq!(clock_contradictions(&sets, &both[0]), [(0, 1)]);
        assert_eq!(in_order(&sets), [0, 1, 2]);
    }

    /// Goal: a server that was set back has given up what it had backed up after that.
    #[test]
    fn a_server_that_was_set_back_leaves_a_branch() {
        let mut sets = [set(1, 10, 1), set(2, 30, 1), set(3, 20, 1), set(4, 40, 1)];
        let later = sets[1].clone();
        relate(&mut sets[2], &later, &APART);
        relate(&mut sets[3], &later, &APART);
        let both = branches(&sets);
        let lines: Vec<_> = both.iter().map(|b| b.sets.clone()).collect();
        assert_eq!(lines, [vec![0, 1], vec![0, 2, 3]]);
        assert_eq!(both[0].given_up_for, Some(1));
        assert_eq!(living(&both), [1]);
    }

    #[test]
    fn sets_that_record_nothing_are_told_apart_by_where_they_come_from() {
        let bare = |at, lsn, whence: &str| SetFacts {
            identity: Identity {
                lineage: None,
                whence: whence.into(),
            },
            ..set(at, lsn, 1)
        };
        let sets = [bare(1, 10, "a"), bare(2, 20, "b"), bare(3, 30, "a")];
        assert_eq!(found(&sets), [vec![1], vec![0, 2]]);
        // Nor in an order that the log contradicts.
        let sets = [bare(9, 10, "a"), bare(2, 20, "a")];
        assert_eq!(found(&sets).len(), 2);
    }

    /// Goal: a target with thousands of backups is judged at once, not by comparing each with each.
    #[test]
    fn thousands_of_sets_are_put_in_order_soon() {
        let began = std::time::Instant::now();
        let sets: Vec<SetFacts> = (0..10_000)
            .map(|n| set(n, 10 * n as u64 + 1, (n % 2) as u8))
            .collect();
        let both = branches(&sets);
        assert_eq!(both.len(), 2);
        assert!(both.iter().all(|branch| branch.sets.len() == 5_000));
        // Far less than a minute even on a busy machine; each with each takes longer.
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn every_whole_set_is_on_a_branch() {
        let mut sets = vec![full(1), full(2), set(3, 30, 1)];
        let mut other = set(4, 40, 1);
        other.log.as_mut().unwrap().system = 2;
        other.identity.lineage.as_mut().unwrap().system = 2;
        sets.push(other);
        assert_eq!(found(&sets), [vec![0, 1], vec![2], vec![3]]);
        assert_eq!(in_order(&sets), [0, 1, 2, 3]);
    }
}
