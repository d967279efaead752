//! Sources that had content and have lost it: a database file of 0 bytes, the mount point of a tree whose file system is
//! not mounted. A backup of them is whole and of no use, and retention must not count it in place of those with content.
//!
//! Invariants
//! - The verdict comes from the sets alone: their bytes, and when their file or root was made. The same sets give the
//!   same verdict everywhere.
//! - A set is compared with the newest earlier one that is not emptied itself, so that a second empty backup confirms
//!   nothing. Where no set with content is left, nothing is emptied.
//! - Content is content: a set that was found not to be good has it, too, and so has one that was made aside.
//! - Only sources without WAL are judged: a cluster is never empty. Rules count full backups alone, so for them only these are
//!   judged, and of these only those that they count. [`losses`] judges whatever is newest.
//! - A differential is judged by the bytes of the files that it describes, not by those that it holds. One of which nobody
//!   can tell these shows nothing.
//!
//! Leaves to others: what follows from the verdict (`retention.rs`, `backup`, `check`).

use std::collections::BTreeMap;

use crate::branch::{Branch, branches};
use crate::chain::{SetFacts, is_sound};
use crate::identity::Origin;
use crate::label::{BackupKind, Label};

/// Another file or root than before that has less than one of so many parts of the bytes stands in the place of the source.
pub const SHRUNK: u64 = 10;

/// A full backup with content, which a later one is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    pub label: Label,
    pub plain_bytes: u64,
    /// When its file or root was made, in nanoseconds since the Unix epoch, if that is known.
    pub birth_ns: Option<i64>,
}

impl Filled {
    pub fn of(set: &SetFacts) -> Filled {
        Filled {
            label: set.label.clone(),
            plain_bytes: set.plain_bytes,
            birth_ns: set.identity.origin.birth(),
        }
    }

    /// Whether a later full backup of so many bytes, of a file or root made at that time, shows that the content is gone:
    /// nothing is left, or little of it in another file or root.
    pub fn is_lost_in(&self, plain_bytes: u64, birth_ns: Option<i64>) -> bool {
        let is_other = self.birth_ns.is_some() && birth_ns.is_some() && self.birth_ns != birth_ns;
        let is_little = plain_bytes < self.plain_bytes / SHRUNK;
        self.plain_bytes > 0 && (plain_bytes == 0 || is_other && is_little)
    }
}

/// Whether rules count a set, if the source had its content.
pub(crate) fn is_counted(set: &SetFacts, now_us: i64) -> bool {
    let is_full = set.kind == BackupKind::Full && !set.copy_only;
    set.is_whole() && is_full && set.start_us <= now_us && !set.found_bad
}

/// Whether a set shows what content its source had.
fn has_content(set: &SetFacts, now_us: i64) -> bool {
    set.log.is_none() && set.is_whole() && set.kind == BackupKind::Full && set.start_us <= now_us
}

/// The emptied sets among those of a branch, given oldest first, each with the one that had the content; and the newest
/// with content.
pub(crate) fn emptied_in(
    sets: &[SetFacts],
    order: &[usize],
    now_us: i64,
) -> (BTreeMap<usize, usize>, Option<usize>) {
    let (mut emptied, mut last) = (BTreeMap::new(), None::<usize>);
    let full = |i: &usize| has_content(&sets[*i], now_us);
    for i in order.iter().copied().filter(full) {
        let birth_ns = sets[i].identity.origin.birth();
        match last {
            Some(with) if Filled::of(&sets[with]).is_lost_in(sets[i].plain_bytes, birth_ns) => {
                if is_counted(&sets[i], now_us) {
                    emptied.insert(i, with);
                }
            }
            _ => last = Some(i),
        }
    }
    (emptied, last)
}

/// The emptied sets, each with the one that had the content.
pub fn emptied(sets: &[SetFacts], now_us: i64) -> BTreeMap<usize, usize> {
    let all = branches(sets).into_iter();
    all.flat_map(|branch| emptied_in(sets, &branch.sets, now_us).0)
        .collect()
}

/// The bytes of a differential that were not counted, since they are too many for a source without content.
pub const MANY: u64 = u64::MAX;

/// A branch whose newest set shows that its source had lost its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The sets without content, newest first; at least one.
    pub lost: Vec<usize>,
    /// Bytes that the newest of them describes.
    pub left: u64,
    /// The newest set with content, and its bytes.
    pub filled: Filled,
}

/// The losses that the newest sets of branches show. `described`: the bytes of all files that a differential describes, or
/// [`MANY`]; `None`: nobody knows.
pub fn losses(
    sets: &[SetFacts],
    now_us: i64,
    described: impl Fn(usize) -> Option<u64>,
) -> Vec<Loss> {
    let all = branches(sets).into_iter();
    all.filter_map(|branch| loss(sets, &branch.sets, now_us, &described))
        .collect()
}

/// The same of one branch, whose sets are given oldest first.
fn loss(
    sets: &[SetFacts],
    order: &[usize],
    now_us: i64,
    described: &impl Fn(usize) -> Option<u64>,
) -> Option<Loss> {
    let found = since_filled(sets, order, now_us, described)?;
    (!found.lost.is_empty()).then_some(found)
}

/// The newest sets of a branch as long as they have no content, if there are any, and the newest one before them that has it.
fn since_filled(
    sets: &[SetFacts],
    order: &[usize],
    now_us: i64,
    described: &impl Fn(usize) -> Option<u64>,
) -> Option<Loss> {
    let (_, last) = emptied_in(sets, order, now_us);
    let full = Filled::of(&sets[last?]);
    let is_judged =
        |i: &usize| sets[*i].log.is_none() && sets[*i].is_whole() && sets[*i].start_us <= now_us;
    let since = order.iter().rev().copied().take_while(|i| Some(*i) != last);
    let mut found = Loss {
        lost: Vec::new(),
        left: 0,
        filled: full.clone(),
    };
    let mut has_content = false;
    for i in since.filter(is_judged) {
        let bytes = match sets[i].kind {
            BackupKind::Full => Some(sets[i].plain_bytes),
            BackupKind::Differential => described(i),
        };
        let Some(bytes) = bytes else { continue };
        if full.is_lost_in(bytes, sets[i].identity.origin.birth()) {
            if !has_content {
                if found.lost.is_empty() {
                    found.left = bytes;
                }
                found.lost.push(i);
            }
            continue;
        }
        has_content = true;
        if is_sound(sets, i) {
            let is_counted = bytes != MANY;
            found.filled = Filled {
                plain_bytes: if is_counted { bytes } else { full.plain_bytes },
                ..Filled::of(&sets[i])
            };
            break;
        }
    }
    Some(found)
}

/// The newest set with content on the branch of a full one that has it.
pub fn newest_filled(
    sets: &[SetFacts],
    full: &Filled,
    now_us: i64,
    described: impl Fn(usize) -> Option<u64>,
) -> Option<Filled> {
    let has_it = |branch: &Branch| branch.sets.iter().any(|i| sets[*i].label == full.label);
    let branch = branches(sets).into_iter().find(has_it)?;
    Some(since_filled(sets, &branch.sets, now_us, &described)?.filled)
}

/// The set that a new full backup of this source is compared with. `birth_ns`: when its file or root was made.
pub fn filled(
    sets: &[SetFacts],
    origin: &Origin,
    birth_ns: Option<i64>,
    now_us: i64,
) -> Option<Filled> {
    let tip = |branch: &Branch| sets[branch.tip()].identity.origin.clone();
    let is_own = |branch: &Branch| branch.system.is_none() && tip(branch).is_same(origin);
    let own: Vec<Branch> = branches(sets).into_iter().filter(is_own).collect();
    // Two files that are backed up in turn are two branches.
    let same = own.iter().find(|branch| tip(branch).birth() == birth_ns);
    let branch = match own.as_slice() {
        [one] => one,
        _ => same?,
    };
    let (_, last) = emptied_in(sets, &branch.sets, now_us);
    Some(Filled::of(&sets[last?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::tests::full;

    const NOW: i64 = 99_000_000;

    fn of(at: i64, plain_bytes: u64, birth: i64) -> SetFacts {
        let mut set = full(at);
        set.plain_bytes = plain_bytes;
        set.identity.origin.births_ns = vec![birth];
        set
    }

    fn judged(sets: &[SetFacts]) -> Vec<(usize, usize)> {
        emptied(sets, NOW).into_iter().collect()
    }

    #[test]
    fn a_set_without_content_is_emptied_however_many_there_are_until_one_has_content() {
        let mut sets = vec![of(1, 0, 7), of(2, 500, 7), of(3, 0, 7), of(4, 0, 8)];
        assert_eq!(judged(&sets), [(2, 1), (3, 1)]);
        sets.push(of(5, 1, 7));
        sets.push(of(6, 0, 7));
        assert_eq!(judged(&sets), [(2, 1), (3, 1), (5, 4)]);
        let newest = |sets: &[SetFacts]| -> Vec<usize> {
            let all = losses(sets, NOW, |_| None).into_iter();
            all.map(|loss| loss.lost[0]).collect()
        };
        assert_eq!(newest(&sets), [5]);
        assert!(newest(&sets[..5]).is_empty());
        assert_eq!(newest(&sets[..4]), [3]);
        // Without one that had content, there is nothing to lose.
        assert_eq!(judged(&[of(1, 0, 7), of(2, 0, 7)]), []);
    }

    #[test]
    fn another_root_with_little_is_emptied_and_one_that_was_cleared_is_not() {
        assert_eq!(judged(&[of(1, 500, 7), of(2, 49, 8)]), [(1, 0)]);
        assert_eq!(judged(&[of(1, 500, 7), of(2, 50, 8)]), []);
        assert_eq!(judged(&[of(1, 500, 7), of(2, 1, 7)]), []);
        let mut unknown = of(2, 1, 0);
        unknown.identity.origin.births_ns.clear();
        assert_eq!(judged(&[of(1, 500, 7), unknown]), []);
    }

    #[test]
    fn sets_that_rules_do_not_count_are_not_judged_and_show_what_there_was() {
        let mut bad = of(2, 500, 7);
        bad.found_bad = true;
        assert_eq!(judged(&[of(1, 0, 7), bad.clone(), of(3, 0, 7)]), [(2, 1)]);
        let found = filled(&[bad], &Origin::default(), Some(7), NOW).unwrap();
        assert_eq!(found.plain_bytes, 500);
        let mut bad = of(2, 0, 7);
        bad.found_bad = true;
        assert_eq!(judged(&[of(1, 500, 7), bad, of(3, 500, 7)]), []);
        let mut aside = of(2, 500, 7);
        aside.copy_only = true;
        assert_eq!(judged(&[aside, of(3, 0, 7)]), [(1, 0)]);
        let mut early = of(200, 500, 7);
        early.start_us = NOW + 1;
        assert_eq!(judged(&[early, of(3, 0, 7)]), []);
        let mut aside = of(2, 0, 7);
        aside.copy_only = true;
        assert_eq!(judged(&[of(1, 500, 7), aside]), []);
    }

    #[test]
    fn a_new_backup_is_compared_with_the_newest_of_its_source_that_has_content() {
        let sets = [of(1, 500, 7), of(2, 0, 7), of(3, 0, 9)];
        let found = filled(&sets, &Origin::default(), Some(9), NOW).unwrap();
        assert_eq!(
            (found.label, found.plain_bytes),
            (sets[0].label.clone(), 500)
        );
        let other = Origin {
            name: "another".into(),
            ..Origin::default()
        };
        assert_eq!(filled(&sets, &other, Some(9), NOW), None);
    }

    #[test]
    fn differentials_are_judged_by_the_bytes_that_they_describe() {
        let full = of(1, 500, 7);
        let differential = |at, birth| SetFacts {
            kind: BackupKind::Differential,
            parent: full.id,
            ..of(at, 3, birth)
        };
        let sets = [
            full.clone(),
            differential(2, 7),
            differential(3, 8),
            differential(4, 8),
        ];
        let judged = |bytes: [Option<u64>; 3]| losses(&sets, NOW, |i| bytes[i - 1]);
        let found = judged([Some(510), Some(2), Some(1)]);
        assert_eq!((&*found[0].lost, found[0].left), (&[3, 2][..], 1));
        let filled = &found[0].filled;
        assert_eq!((&filled.label, filled.plain_bytes), (&sets[1].label, 510));
        // As many bytes as before are content, however few of them are new.
        assert_eq!(judged([Some(500), Some(500), Some(500)]), []);
        assert_eq!(judged([Some(0), Some(0), Some(500)]), [], "it came back");
        // A set of which nobody knows shows nothing, and hides nothing.
        assert_eq!(judged([None, None, None]), []);
        assert_eq!(judged([Some(510), Some(0), None])[0].lost, [2]);
    }
}
