//! Chains: which other backups a backup needs.
//!
//! A full backup needs no other. A differential one holds the differences from its parent, so it needs the parent, and
//! the parent's parent, down to a full one. A missing or damaged link makes every backup that depends on it worthless.
//!
//! Invariants
//! - A chain ends with a full backup, all its sets are whole and of one cluster, or the first broken link is named.
//! - A chain is found among the sets that were given; a circle of parents ends as an error.
//! - A backup that a recorded result says is not good makes everything that is built on it unsound.
//!
//! Leaves to others: finding sets and their health (`shelf.rs`), and what a broken chain means for retention
//! (`retention.rs`) or for a restore (`recover.rs`).

use longshore_pg::Witness;
use longshore_wal::LogRange;
use uuid::Uuid;

use crate::identity::Identity;
use crate::label::{BackupKind, Label};

/// The state of a set, as far as chains and retention need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Complete on all families. `clean`: holds exactly what the source held.
    Whole { clean: bool },
    /// Its stripes can no longer be read.
    Broken,
    /// Complete once. Stripes are not in their place: lost, or only unreachable now.
    Missing,
    /// Never completed, and no program is writing it.
    Abandoned,
    /// A program is writing it.
    Writing,
    /// Cannot be judged: written by a newer version, or unreachable.
    Unknown,
    /// Not a backup of this database, or several mixed under one name.
    Foreign,
    /// Its removal has begun.
    Removing,
}

/// The known facts about one backup at a target.
#[derive(Debug, Clone)]
pub struct SetFacts {
    pub label: Label,
    pub health: Health,
    pub kind: BackupKind,
    /// The set's identity; `None` if its header cannot be read, as for the fields below.
    pub id: Option<Uuid>,
    pub parent: Option<Uuid>,
    pub copy_only: bool,
    /// Microseconds since the Unix epoch; for a whole set from its media, otherwise from its label.
    pub start_us: i64,
    pub finish_us: i64,
    /// Bytes of the files that the set holds, as the source has them; 0 if they are unknown.
    pub plain_bytes: u64,
    /// Must not be removed before this time, whatever the retention rules are.
    pub expires_us: Option<i64>,
    /// `None` for sources without WAL.
    pub log: Option<LogRange>,
    /// Identifies its branch.
    pub identity: Identity,
    /// A running restore, verification or backup needs it.
    pub in_use: bool,
    /// Whether parity stands for stripes that are lost or damaged, so that less damage than before would lose it.
    pub is_degraded: bool,
    /// Whether the last verification or the last drill of these very stripes found them not to be good.
    pub found_bad: bool,
    /// Whether it may be the only one from which a recovery comes to the timeline with which the archive goes on
    /// ([`crate::shelf::Shelf::facts_of`]).
    pub leads: bool,
}

impl SetFacts {
    pub fn is_whole(&self) -> bool {
        matches!(self.health, Health::Whole { .. })
    }

    pub fn is_clean(&self) -> bool {
        self.health == Health::Whole { clean: true }
    }

    /// The WAL that identifies its branch.
    pub fn witness(&self) -> Option<&Witness> {
        self.identity.lineage.as_ref()?.witness.as_ref()
    }
}

/// Whether a backup has its whole chain, and no result says that a link of it is not good. Only such a backup is counted,
/// built on, or proposed.
pub fn is_sound(sets: &[SetFacts], index: usize) -> bool {
    chain(sets, index).is_ok_and(|links| links.iter().all(|link| !sets[*link].found_bad))
}

/// Whether a backup is sound, and it and all that it needs hold exactly what the source held.
pub fn is_good(sets: &[SetFacts], index: usize) -> bool {
    let unmarked = |links: Vec<usize>| links.iter().all(|link| sets[*link].is_clean());
    is_sound(sets, index) && chain(sets, index).is_ok_and(unmarked)
}

/// Why a backup cannot be restored although it exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenChain {
    #[error("{label} needs backup set {parent}, which is not here")]
    ParentMissing { label: Label, parent: Uuid },
    #[error("{label} needs {parent}, which is damaged or incomplete")]
    ParentBroken { label: Label, parent: Label },
    #[error("{label} needs {parent}, which is a backup of another cluster")]
    ParentForeign { label: Label, parent: Label },
    #[error("{label} needs itself: the chain of its parents is a circle")]
    Endless { label: Label },
}

/// The sets that the one at `index` needs: itself first, the full backup last.
///
/// Errors: the first broken link.
pub fn chain(sets: &[SetFacts], index: usize) -> Result<Vec<usize>, BrokenChain> {
    let mut links = vec![index];
    let mut at = index;
    while let Some(parent) = sets[at].parent {
        let label = || sets[at].label.clone();
        let here = |s: &SetFacts| s.id == Some(parent);
        let whole = |s: &SetFacts| here(s) && s.is_whole();
        let Some(next) = sets.iter().position(whole) else {
            return Err(match sets.iter().find(|s| here(s)) {
                Some(found) => BrokenChain::ParentBroken {
                    label: label(),
                    parent: found.label.clone(),
                },
                None => BrokenChain::ParentMissing {
                    label: label(),
                    parent,
                },
            });
        };
        if sets[next].log.map(|l| l.system) != sets[at].log.map(|l| l.system) {
            return Err(BrokenChain::ParentForeign {
                label: label(),
                parent: sets[next].label.clone(),
            });
        }
        if links.contains(&next) {
            return Err(BrokenChain::Endless { label: label() });
        }
        links.push(next);
        at = next;
    }
    Ok(links)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn full(at: i64) -> SetFacts {
        SetFacts {
            label: Label::new(at * 1_000_000, BackupKind::Full),
            health: Health::Whole { clean: true },
            kind: BackupKind::Full,
            id: Some(Uuid::new_v4()),
            parent: None,
            copy_only: false,
            start_us: at * 1_000_000,
            finish_us: at * 1_000_000 + 1,
            plain_bytes: 0,
            expires_us: None,
            log: None,
            identity: Identity::default(),
            in_use: false,
            is_degraded: false,
            found_bad: false,
            leads: false,
        }
    }

    pub(crate) fn diff(at: i64, of: &SetFacts) -> SetFacts {
        SetFacts {
            label: Label::new(at * 1_000_000, BackupKind::Differential),
            kind: BackupKind::Differential,
            parent: of.id,
            log: of.log,
            ..full(at)
        }
    }

    #[test]
    fn a_chain_goes_down_to_its_full_backup() {
        let a = full(1);
        let b = diff(2, &a);
        let c = diff(3, &b);
        let sets = [c, b, a];
        assert_eq!(chain(&sets, 0), Ok(vec![0, 1, 2]));
        assert_eq!(chain(&sets, 1), Ok(vec![1, 2]));
        assert_eq!(chain(&sets, 2), Ok(vec![2]));
    }

    #[test]
    fn the_link_that_does_not_hold_is_named() {
        let a = full(1);
        let b = diff(2, &a);
        let c = diff(3, &b);
        let missing = BrokenChain::ParentMissing {
            label: b.label.clone(),
            parent: a.id.unwrap(),
        };
        assert_eq!(chain(&[c.clone(), b.clone()], 0), Err(missing));
        let mut broken = a.clone();
        broken.health = Health::Broken;
        let expected = BrokenChain::ParentBroken {
            label: b.label.clone(),
            parent: a.label.clone(),
        };
        assert_eq!(chain(&[c, b.clone(), broken], 0), Err(expected));
        let mut other = a.clone();
        other.log = Some(LogRange {
            system: 7,
            first_timeline: 1,
            first_lsn: 1,
            last_timeline: 1,
            last_lsn: 2,
        });
        let foreign = chain(&[b, other], 0);
        assert!(matches!(foreign, Err(BrokenChain::ParentForeign { .. })));
    }

    #[test]
    fn a_chain_that_bites_its_tail_ends() {
        let mut a = full(1);
        let b = diff(2, &a);
        a.parent = b.id;
        let endless = chain(&[a, b], 0);
        assert!(matches!(endless, Err(BrokenChain::Endless { .. })));
        let mut alone = full(1);
        alone.parent = alone.id;
        assert!(matches!(
            chain(&[alone], 0),
            Err(BrokenChain::Endless { .. })
        ));
    }
}
