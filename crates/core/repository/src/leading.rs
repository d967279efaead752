//! The backup that leads to the timeline with which an archive goes on.
//!
//! After a recovery to an earlier moment, or the promotion of a standby that was behind, the newest backups may be of the
//! future that was given up. Until a backup of the new timeline is made, an older one alone leads to it, and rules that
//! count would remove just that one.
//!
//! Invariants
//! - A backup on the latest timeline makes all this needless: then nothing is marked. One of another timeline of the same
//!   number does not: two copies of one cluster each call their new timeline 2, and the archive's WAL tells whose it is.
//! - Where the way to the latest timeline cannot be read, every good backup may be the one that leads there.
//!
//! Leaves to others: keeping what is marked, with its WAL (`retention.rs`).

use longshore_pg::{Lsn, Timeline};
use longshore_wal::WalArchive;

use crate::Error;
use crate::chain::{SetFacts, is_good};
use crate::shelf::{Listing, Shelf};

impl Shelf {
    /// The facts for retention: [`Listing::facts`], with the backups marked that alone lead to the latest timeline of the
    /// archive.
    ///
    /// Errors: those of [`Shelf::wal`], and of reading the names in the archive.
    pub fn facts_of(&self, listing: &Listing) -> Result<Vec<SetFacts>, Error> {
        let mut facts = listing.facts();
        if let Some(archive) = self.wal()? {
            mark(&archive, &mut facts)?;
        }
        Ok(facts)
    }
}

/// Marks the newest good backup from which a recovery comes to the latest timeline.
///
/// Errors: those of [`WalArchive::histories`].
fn mark(archive: &WalArchive, facts: &mut [SetFacts]) -> Result<(), longshore_wal::Error> {
    let Some(system) = archive.identity().map(|identity| identity.system) else {
        return Ok(());
    };
    let end = |set: &SetFacts| {
        let log = set.log.filter(|log| log.system == system)?;
        Some((Timeline::new(log.last_timeline)?, Lsn(log.last_lsn)))
    };
    let good = (0..facts.len()).filter(|i| is_good(facts, *i));
    let good: Vec<(usize, (Timeline, Lsn))> =
        good.filter_map(|i| Some((i, end(&facts[i])?))).collect();
    let Some(latest) = archive.histories()?.last().copied() else {
        return Ok(());
    };
    let is_own = |i: usize| archive.check_witness(facts[i].witness()).is_ok();
    let on_latest = good.iter().rev();
    let mut on_latest = on_latest.filter(|(_, (timeline, _))| *timeline >= latest);
    if on_latest.any(|(i, _)| is_own(*i)) {
        return Ok(());
    }
    match archive.history(latest) {
        Ok(history) => {
            let is_before = |(_, (timeline, lsn)): &(usize, (Timeline, Lsn))| {
                *timeline < latest && history.passes(*timeline, *lsn)
            };
            let leading = good.into_iter().filter(is_before);
            let newest = leading.max_by_key(|(i, (_, lsn))| (*lsn, facts[*i].finish_us));
            if let Some((i, _)) = newest {
                facts[i].leads = true;
            }
        }
        Err(_) => good.into_iter().for_each(|(i, _)| facts[i].leads = true),
    }
    Ok(())
}
