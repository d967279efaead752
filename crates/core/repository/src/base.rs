//! Chooses the backup on a shelf that a differential one builds on.
//!
//! Invariants
//! - A base is complete and unmarked with its whole chain, is not copy-only, and is of a cluster.
//! - A base is of the server's own branch. A backup whose branch is unknown is a base only if the same server process
//!   made it and no other backup's branch is proved.
//! - No expire removes the base while the lease is held.
//!
//! Leaves to others: the relation of a backup to the server (`branch.rs`), chains (`chain.rs`), and leases
//! (`shelf.rs`).

use longshore_pg::Relation;

use crate::Error;
use crate::branch;
use crate::chain::chain;
use crate::label::BackupKind;
use crate::shelf::{BackupEntry, BackupLease, Listing, Shelf};

/// The base of a new differential backup. No expire removes it while the lease is held.
#[derive(Debug)]
pub struct BaseLease {
    pub lease: BackupLease,
    /// Newer backups that were expected to be the base and were not suitable, for messages.
    pub passed_over: Vec<String>,
}

/// Why a backup is not suitable as the base.
enum BaseRefusal {
    /// Not suitable by its nature, as expected.
    Meant(String),
    /// Not suitable because something is wrong with it.
    Wrong(String),
}

/// The relation of a backup to the server being backed up, as needed for the choice of a base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The set's UUID.
    pub set: [u8; 16],
    pub relation: Relation,
    /// Whether the backup was made from the server process that is still running, which cannot have been reset since.
    pub same_run: bool,
}

impl Shelf {
    /// The newest backup that a differential one can build on: clean, not copy-only, with its whole chain, and of the
    /// server's own branch; with `full_only`, a full one. A backup whose relation to the server is unknown is used
    /// only if the same server process made it and no other backup's relation is proved. `candidates`: the sets with a
    /// known relation; all others are refused.
    ///
    /// Errors: [`Error::NoBase`], and those of [`Shelf::lease`].
    pub fn lease_base(
        &self,
        full_only: bool,
        candidates: &[Candidate],
    ) -> Result<BaseLease, Error> {
        let listing = self.list()?;
        let facts = listing.facts();
        let (mut passed_over, mut reasons) = (Vec::new(), Vec::new());
        let candidate = |i: usize| {
            let id = *facts[i].id?.as_bytes();
            candidates.iter().find(|candidate| candidate.set == id)
        };
        let order = branch::in_order(&facts);
        let is_fit = |i: &usize| fitness(&listing, *i, full_only).is_ok();
        let any_proved = order
            .iter()
            .filter(|i| is_fit(i))
            .any(|i| candidate(*i).is_some_and(|c| c.relation.is_proved()));
        for i in order.into_iter().rev() {
            let set = &listing.sets[i];
            let fit = fitness(&listing, i, full_only).and_then(|()| match candidate(i) {
                None => Err(BaseRefusal::Meant("is not of a cluster".into())),
                Some(Candidate {
                    relation, same_run, ..
                }) => match relation {
                    Relation::Proved(_) => Ok(()),
                    Relation::Refuted(what) => {
                        Err(BaseRefusal::Wrong(format!("is of another branch: {what}")))
                    }
                    Relation::Unknown(_) if *same_run && !any_proved => Ok(()),
                    Relation::Unknown(what) => Err(BaseRefusal::Wrong(format!(
                        "is not known to be of this server's branch: {what}"
                    ))),
                },
            });
            match fit {
                Ok(()) => {
                    let lease = self.lease(Some(set.label.as_str()))?;
                    return Ok(BaseLease { lease, passed_over });
                }
                Err(BaseRefusal::Meant(what)) => reasons.push(format!("{} {what}", set.label)),
                Err(BaseRefusal::Wrong(what)) => {
                    passed_over.push(format!("{} {what}", set.label));
                    reasons.push(format!("{} {what}", set.label));
                }
            }
        }
        Err(Error::NoBase {
            target: self.target.name.clone(),
            database: self.database.clone(),
            reasons: match reasons.is_empty() {
                true => "there is no backup".to_owned(),
                false => reasons.join("; "),
            },
        })
    }
}

fn fitness(listing: &Listing, index: usize, full_only: bool) -> Result<(), BaseRefusal> {
    let set: &BackupEntry = &listing.sets[index];
    let facts = listing.facts();
    let Some(complete) = set.complete() else {
        return Err(BaseRefusal::Wrong(format!("is {}", set.state.word())));
    };
    if full_only && facts[index].kind != BackupKind::Full {
        return Err(BaseRefusal::Meant("is differential itself".into()));
    }
    if complete.header.copy_only {
        return Err(BaseRefusal::Meant("is copy-only".into()));
    }
    if facts[index].log.is_none() {
        return Err(BaseRefusal::Meant("is not of a cluster".into()));
    }
    let links = chain(&facts, index).map_err(|e| BaseRefusal::Wrong(format!("cannot be: {e}")))?;
    match links.into_iter().find(|link| !facts[*link].is_clean()) {
        Some(link) if link == index => Err(BaseRefusal::Wrong("is marked as damaged".into())),
        Some(link) => Err(BaseRefusal::Wrong(format!(
            "needs {}, which is marked as damaged",
            facts[link].label
        ))),
        None => Ok(()),
    }
}
