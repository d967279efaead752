//! Chooses the backup on a shelf that a differential one builds on.
//!
//! Invariants
//! - A base is complete and unmarked with its whole chain, is not copy-only, and has page sums. No result says that a
//!   link of that chain is not good.
//! - A server's base is of the server's own branch. A backup whose branch is unknown is a base only if no other
//!   backup's branch is proved by WAL, and the same server process made it, or it is of the same data directory and the WAL
//!   that would decide is gone. The one that the server was restored from is a base
//!   only while no newer one may be the server's own.
//! - The base of a source without WAL is of a source of that kind and name. More need not be proved: all of its pages
//!   are compared.
//! - No expire removes the base while the lease is held.
//!
//! Leaves to others: the relation of a backup to the server (`branch.rs`), chains (`chain.rs`), and leases
//! (`shelf.rs`).

use longshore_pg::Relation;
use longshore_pg::lineage::{Doubt, Proof};

use crate::Error;
use crate::branch;
use crate::chain::{SetFacts, chain};
use crate::identity::Origin;
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
    /// Whether the backup was made from the same data directory on the same machine.
    pub same_home: bool,
}

/// The source of a differential backup.
#[derive(Debug, Clone, Copy)]
pub enum BaseOf<'a> {
    /// A server, and the sets with a known relation to it; all others are refused.
    Server(&'a [Candidate]),
    /// A source without WAL.
    Plain(&'a Origin),
}

impl Shelf {
    /// The newest backup that a differential one of this source can build on: clean, not copy-only, with its whole chain;
    /// with `full_only`, a full one. Of a server: of its own branch. A backup whose relation to the server is unknown is
    /// used only if the same server process made it and no other backup's relation is proved.
    ///
    /// Errors: [`Error::NoBase`], and those of [`Shelf::lease`].
    pub fn lease_base(&self, full_only: bool, source: BaseOf) -> Result<BaseLease, Error> {
        let listing = self.list()?;
        let facts = listing.facts();
        let (mut passed_over, mut reasons) = (Vec::new(), Vec::new());
        let order = branch::in_order(&facts);
        let is_fit = |i: &usize| fitness(&listing, *i, full_only).is_ok();
        let fits: Vec<usize> = order.iter().copied().filter(is_fit).collect();
        let any_proved = match source {
            BaseOf::Server(known) => fits.iter().any(|i| {
                candidate(&facts[*i], known).is_some_and(|c| c.relation.is_proved_by_log())
            }),
            BaseOf::Plain(_) => false,
        };
        let mut newer_is_unknown = false;
        for i in order.into_iter().rev() {
            let set = &listing.sets[i];
            let fit = fitness(&listing, i, full_only).and_then(|()| match source {
                BaseOf::Server(known) => {
                    let candidate = candidate(&facts[i], known);
                    let ends = continues(candidate, any_proved, newer_is_unknown);
                    let is_unknown = |c: &Candidate| matches!(c.relation, Relation::Unknown(_));
                    newer_is_unknown |= candidate.is_some_and(is_unknown);
                    ends
                }
                BaseOf::Plain(origin) if facts[i].identity.origin.is_same(origin) => Ok(()),
                BaseOf::Plain(_) => Err(BaseRefusal::Meant("is of another source".into())),
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

fn candidate<'a>(set: &SetFacts, known: &'a [Candidate]) -> Option<&'a Candidate> {
    let id = *set.id?.as_bytes();
    known.iter().find(|candidate| candidate.set == id)
}

/// Whether the server continues the backup. `any_proved`: WAL proves one. `newer_is_unknown`: a newer one may be the
/// server's own, so that a differential on the one that the server was restored from would grow for ever.
fn continues(
    candidate: Option<&Candidate>,
    any_proved: bool,
    newer_is_unknown: bool,
) -> Result<(), BaseRefusal> {
    let Some(candidate) = candidate else {
        return Err(BaseRefusal::Meant("is not of a cluster".into()));
    };
    match &candidate.relation {
        Relation::Proved(Proof::Restored) if newer_is_unknown => Err(BaseRefusal::Wrong(
            "is the backup that the server was restored from, and newer ones may be the server's own".into(),
        )),
        Relation::Proved(_) => Ok(()),
        Relation::Refuted(what) => Err(BaseRefusal::Wrong(format!("is of another branch: {what}"))),
        Relation::Unknown(_) if candidate.same_run && !any_proved => Ok(()),
        // A restart recycles the WAL in which the backup ended. Backups of one directory are presumed to follow one another
        // (`branch.rs`), and pages are compared by content.
        Relation::Unknown(Doubt::LogGone { .. }) if candidate.same_home && !any_proved => Ok(()),
        Relation::Unknown(what) => Err(BaseRefusal::Wrong(format!(
            "is not known to be of this server's branch: {what}"
        ))),
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
    if complete.header.sum_key.is_none() {
        let what = "holds no page sums: it was made by an earlier version, or without --page-sums and moved here";
        return Err(BaseRefusal::Meant(what.into()));
    }
    let links = chain(&facts, index).map_err(|e| BaseRefusal::Wrong(format!("cannot be: {e}")))?;
    for link in &links {
        let Some(why) = &listing.sets[*link].found_bad else {
            continue;
        };
        return Err(BaseRefusal::Wrong(match *link == index {
            true => why.clone(),
            false => format!("needs {}, which {why}", facts[*link].label),
        }));
    }
    match links.into_iter().find(|link| !facts[*link].is_clean()) {
        Some(link) if link == index => Err(BaseRefusal::Wrong("is marked as damaged".into())),
        Some(link) => Err(BaseRefusal::Wrong(format!(
            "needs {}, which is marked as damaged",
            facts[link].label
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use longshore_pg::lineage::Contradiction;
    use longshore_pg::{Lsn, Timeline};

    use super::*;

    /// Goal: a restart, after which the server no longer has the WAL in which the base ended, takes no base away; another
    /// directory, or a contradiction, does.
    #[test]
    fn a_backup_of_the_same_directory_is_a_base_after_the_wal_of_its_end_is_recycled() {
        let timeline = Timeline::new(1).unwrap();
        let gone = Relation::Unknown(Doubt::LogGone {
            timeline,
            at: Lsn(0x4000_0000),
        });
        let judged = |relation: &Relation, same_home, any_proved| {
            let candidate = Candidate {
                set: [1; 16],
                relation: relation.clone(),
                same_run: false,
                same_home,
            };
            continues(Some(&candidate), any_proved, false).is_ok()
        };
        assert!(judged(&gone, true, false));
        assert!(!judged(&gone, false, false), "it may be a copy's");
        assert!(!judged(&gone, true, true), "another one is proved");
        let refuted = Relation::Refuted(Contradiction::Recorded);
        assert!(!judged(&refuted, true, false));
        let unknown = Relation::Unknown(Doubt::NotCompared);
        assert!(!judged(&unknown, true, false));
    }
}
