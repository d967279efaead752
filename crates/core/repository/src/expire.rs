//! Expiry: removes the backups that no retention rule covers.
//!
//! The place of a backup says first that its removal has begun; from then on it no longer counts as a backup. Then it
//! is checked whether a program has borrowed it meanwhile; then its stripes are removed.
//!
//! Invariants
//! - A crash leaves a removal that the next expire finishes, never half a backup under its name.
//! - Differentials are removed before the backups they depend on. A backup in use, or one that cannot be removed, keeps
//!   its whole chain.
//! - One expire at a time works on a shelf.
//! - WAL is removed last: a backup without its WAL is worthless, while WAL without backups only takes space. The WAL
//!   that may go is decided again, from what is there then.
//!
//! Leaves to others: the rules (`retention.rs`), removing in directories and buckets (`place.rs`), and WAL files
//! (`reliance.rs`).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::chain::{SetFacts, chain};
use crate::place::{LeftUploads, Removal};
use crate::retention::{Decision, LogNeed, Policy, RetentionVerdict, decide};
use crate::shelf::{Listing, Shelf};
use longshore_wal::Need;

/// The decisions and the results of an expire.
#[derive(Debug)]
pub struct ExpireReport {
    pub listing: Listing,
    pub decision: Decision,
    /// For each set of the listing.
    pub fates: Vec<Fate>,
    pub log: LogFate,
    /// A dry run does not look for them.
    pub uploads: LeftUploads,
}

/// The result for the database's WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFate {
    /// There is no WAL.
    None,
    /// WAL that no kept backup needs was removed, or would be in a dry run.
    Removed {
        files: u64,
        stored_bytes: u64,
        /// Owners of records in the archive that keep WAL that no backup here needs.
        kept_for: Vec<Need>,
        /// Why the store keeps other WAL that nobody needs.
        retained: Option<String>,
    },
    /// All WAL is kept: it is unknown who else relies on the archive, or what they need.
    Undecided(String),
    /// All WAL is kept: the need of a kept backup is unknown, because it is being written, damaged, foreign or
    /// unreachable.
    Unsure,
    /// All WAL is kept: it belongs to a cluster that has no kept backup here.
    OtherCluster { system: u64 },
    /// The run ended before this step.
    Left,
}

/// The result for a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Kept,
    /// Removed, or would be in a dry run.
    Removed,
    /// It was to be removed, but a program uses it now.
    Spared {
        holder: String,
    },
    /// It was to be removed, and its store does not allow that now.
    Retained {
        why: String,
    },
    /// Its store let some of it be removed and not the rest: it is no backup any longer.
    Partly {
        why: String,
    },
    /// The run ended before this step.
    Left,
}

impl Shelf {
    /// Decides and, unless `dry`, removes. `cancel` ends it between two backups. `now_us` is asked after each listing:
    /// a backup that began while the listing was made is not one of the future.
    ///
    /// Errors: [`Error::Busy`] while another expire works here, and those of [`Shelf::list`].
    pub fn expire(
        &self,
        policy: &Policy,
        now_us: &dyn Fn() -> i64,
        dry: bool,
        cancel: &AtomicBool,
    ) -> Result<ExpireReport, Error> {
        let place = match dry {
            true => None,
            false => {
                self.check_stopped()?;
                self.place.lock()?
            }
        };
        let Some(place) = place else {
            let listing = self.list()?;
            let decision = decide(&self.facts_of(&listing)?, policy, now_us());
            let fates = fates(&decision, &listing, Fate::Removed);
            let log = self.expire_log(true, &|| Ok(decision.log.clone()))?;
            return Ok(ExpireReport {
                listing,
                decision,
                fates,
                log,
                uploads: LeftUploads::default(),
            });
        };
        let listing = self.listing(place.look()?)?;
        let facts = self.facts_of(&listing)?;
        let decision = decide(&facts, policy, now_us());
        let mut fates = fates(&decision, &listing, Fate::Left);
        for i in decision.removals(&facts) {
            if cancel.load(Ordering::Relaxed) {
                break;
            }
            if !matches!(fates[i], Fate::Left) {
                continue;
            }
            match place.remove(&listing.sets[i].label)? {
                Removal::Done => fates[i] = Fate::Removed,
                Removal::InUse(holder) => spare(&facts, i, &holder, &mut fates),
                Removal::Retained(why) => retain(&facts, i, why, &mut fates),
                Removal::Partly(why) => fates[i] = Fate::Partly { why },
            }
        }
        let uploads = match cancel.load(Ordering::Relaxed) {
            true => LeftUploads::default(),
            false => place.abort_left_uploads()?,
        };
        let log = if cancel.load(Ordering::Relaxed) {
            LogFate::Left
        } else {
            let need = || {
                let listing = self.listing(place.look()?)?;
                let standing = standing(self.facts_of(&listing)?, &facts, &fates);
                Ok(decide(&standing, policy, now_us()).log)
            };
            self.expire_log(false, &need)?
        };
        Ok(ExpireReport {
            listing,
            decision,
            fates,
            log,
            uploads,
        })
    }

    fn expire_log(
        &self,
        dry: bool,
        need: &dyn Fn() -> Result<LogNeed, Error>,
    ) -> Result<LogFate, Error> {
        match self.wal()? {
            Some(archive) if archive.identity().is_some() => {
                self.expire_archive(&archive, dry, need)
            }
            _ => Ok(LogFate::None),
        }
    }
}

fn fates(decision: &Decision, listing: &Listing, goes: Fate) -> Vec<Fate> {
    (0..listing.sets.len())
        .map(|i| match decision.verdicts[i] {
            RetentionVerdict::Keep(_) => Fate::Kept,
            RetentionVerdict::Remove(_) => goes.clone(),
        })
        .collect()
}

/// The sets that remain, as they are now, all of them to be kept. A set that was spared is in use, so its WAL is needed;
/// so is the WAL of a set that was added since, and of a whole one that this expire kept: a backup that was completed
/// meanwhile takes its place in the rules only at the next expire, which removes the older one first.
fn standing(now: Vec<SetFacts>, before: &[SetFacts], fates: &[Fate]) -> Vec<SetFacts> {
    let is_kept = |set: &SetFacts| {
        let mut before = before.iter().zip(fates);
        before.any(|(old, fate)| old.label == set.label && *fate == Fate::Kept)
    };
    now.into_iter()
        .map(|set| SetFacts {
            in_use: set.in_use || set.is_whole() || !is_kept(&set),
            ..set
        })
        .collect()
}

/// Keeps a set that is in use, and the sets it needs: the borrower may not have opened those yet.
fn spare(facts: &[SetFacts], index: usize, holder: &str, fates: &mut [Fate]) {
    for i in chain(facts, index).unwrap_or_else(|_| vec![index]) {
        if matches!(fates[i], Fate::Left) {
            let holder = holder.to_owned();
            fates[i] = Fate::Spared { holder };
        }
    }
}

/// Keeps a set that cannot be removed, and the sets it needs: without them it would be no backup.
fn retain(facts: &[SetFacts], index: usize, why: String, fates: &mut [Fate]) {
    for i in chain(facts, index).unwrap_or_default() {
        if i != index && matches!(fates[i], Fate::Left) {
            let label = &facts[index].label;
            let why = format!("{label} needs it, and cannot be removed now");
            fates[i] = Fate::Retained { why };
        }
    }
    fates[index] = Fate::Retained { why };
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_pg::Lsn;

    /// Goal: WAL goes only after the backups that need it, whatever was completed, or given back, since the decision.
    #[test]
    fn a_backup_that_stays_keeps_its_wal_whatever_came_since_the_decision() {
        use crate::branch::tests::of_server;
        let policy = Policy {
            keep_full: Some(1),
            ..Policy::default()
        };
        let (spared, kept) = (of_server(1, 10, 1), of_server(2, 20, 1));
        let before = [spared.clone(), kept.clone()];
        let decided = decide(&before, &policy, 9_000_000);
        assert_eq!(decided.removals(&before), [0]);
        let holder = "somebody".to_owned();
        // Its borrower has ended, and another backup was completed.
        for spared_fate in [Fate::Spared { holder }, Fate::Left] {
            let now = vec![spared.clone(), kept.clone(), of_server(3, 30, 1)];
            let fates = [spared_fate, Fate::Kept];
            let log = decide(&standing(now, &before, &fates), &policy, 9_000_000).log;
            assert!(!log.all);
            let timeline = 1;
            for set in &before {
                let first = set.log.unwrap().first_lsn;
                assert!(
                    log.needs(1, timeline, Lsn(first), Lsn(first + 1)),
                    "{first}"
                );
            }
            assert!(!log.needs(1, timeline, Lsn(5), Lsn(9)));
        }
    }

    #[test]
    fn a_backup_in_use_keeps_its_chain() {
        use crate::chain::tests::{diff, full};
        let a = full(1);
        let b = diff(2, &a);
        let facts = [a, b, full(3)];
        let mut fates = vec![Fate::Left, Fate::Left, Fate::Left];
        spare(&facts, 1, "somebody", &mut fates);
        assert!(matches!(fates[0], Fate::Spared { .. }));
        assert!(matches!(fates[1], Fate::Spared { .. }));
        assert_eq!(fates[2], Fate::Left);
    }

    #[test]
    fn a_backup_that_cannot_be_removed_keeps_its_chain() {
        use crate::chain::tests::{diff, full};
        let a = full(1);
        let b = diff(2, &a);
        let facts = [a, b, full(3)];
        let mut fates = vec![Fate::Left, Fate::Left, Fate::Left];
        retain(&facts, 1, "locked".to_owned(), &mut fates);
        assert!(matches!(&fates[0], Fate::Retained { why } if why.contains("needs it")));
        assert!(matches!(&fates[1], Fate::Retained { why } if why == "locked"));
        assert_eq!(fates[2], Fate::Left);
    }
}
