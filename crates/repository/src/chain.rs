//! Chains: which backups a backup cannot do without.
//!
//! A full backup stands alone. A differential one holds what differs from its parent, so it needs the parent, and
//! the parent's parent, down to a full one. One link that is missing or damaged makes everything that hangs on it
//! worthless.

use longshore_pg::Witness;
use uuid::Uuid;

use crate::identity::Identity;
use crate::label::{Kind, Label};

/// The part of a database's log that a set needs to become consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub first_timeline: u32,
    /// Replay begins here.
    pub first_lsn: u64,
    pub last_timeline: u32,
    /// The database is consistent here.
    pub last_lsn: u64,
}

/// How a set stands, as far as chains and retention care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Complete on all families. `clean`: holds exactly what the source held.
    Whole { clean: bool },
    /// What is on its stripes cannot be read any more.
    Broken,
    /// Complete once. Stripes are not where they should be: lost, or only out of reach just now.
    Missing,
    /// Never completed, and nobody works on it any more.
    Abandoned,
    /// Somebody is writing it.
    Writing,
    /// Not to be judged by us: written by a newer version, or out of reach.
    Unknown,
    /// Not a backup of this database, or several mixed up under one name.
    Foreign,
    /// Its removal has begun.
    Removing,
}

/// What is known of one backup below a target.
#[derive(Debug, Clone)]
pub struct SetFacts {
    pub label: Label,
    pub health: Health,
    pub kind: Kind,
    /// The set's identity; `None` where its header cannot be read, as for the following.
    pub id: Option<Uuid>,
    pub parent: Option<Uuid>,
    pub copy_only: bool,
    /// Microseconds since the Unix epoch; of a whole set from its media, else from its label.
    pub start_us: i64,
    pub finish_us: i64,
    /// Not to be removed before, whatever the retention says.
    pub expires_us: Option<i64>,
    /// `None` for sources without a log.
    pub log: Option<LogRange>,
    /// Which branch it is of.
    pub identity: Identity,
    /// A running restore, verification or backup needs it.
    pub in_use: bool,
}

impl SetFacts {
    pub fn is_whole(&self) -> bool {
        matches!(self.health, Health::Whole { .. })
    }

    pub fn is_clean(&self) -> bool {
        self.health == Health::Whole { clean: true }
    }

    /// The WAL by which its branch is told.
    pub fn witness(&self) -> Option<&Witness> {
        self.identity.lineage.as_ref()?.witness.as_ref()
    }
}

/// Why a backup cannot be restored although it is there itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenChain {
    #[error("{label} needs backup set {parent}, which is not here")]
    ParentMissing { label: Label, parent: Uuid },
    #[error("{label} needs {parent}, which is not whole")]
    ParentBroken { label: Label, parent: Label },
    #[error("{label} needs {parent}, which is a backup of another cluster")]
    ParentForeign { label: Label, parent: Label },
    #[error("{label} needs itself: the chain of its parents never ends")]
    Endless { label: Label },
}

/// The sets that the one at `index` needs, itself first, the full backup last.
///
/// Errors: the first link that does not hold.
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
            label: Label::new(at * 1_000_000, Kind::Full),
            health: Health::Whole { clean: true },
            kind: Kind::Full,
            id: Some(Uuid::new_v4()),
            parent: None,
            copy_only: false,
            start_us: at * 1_000_000,
            finish_us: at * 1_000_000 + 1,
            expires_us: None,
            log: None,
            identity: Identity::default(),
            in_use: false,
        }
    }

    pub(crate) fn diff(at: i64, of: &SetFacts) -> SetFacts {
        SetFacts {
            label: Label::new(at * 1_000_000, Kind::Differential),
            kind: Kind::Differential,
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
