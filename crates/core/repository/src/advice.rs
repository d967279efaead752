//! Advice for a person whose backup cannot be read: the backup to take instead.
//!
//! Invariants
//! - A backup is proposed only if it has all that it needs, and no result says that any of it is not good.
//! - It is older, and of the same branch: backups of other clusters are nobody's replacement.
//!
//! Leaves to others: the command that restores it (the programs), and whether its blocks are readable, which shows only
//! when they are read.

use crate::Error;
use crate::branch;
use crate::chain::is_good;
use crate::label::Label;
use crate::shelf::{Shelf, was_backup};

impl Shelf {
    /// The newest backup before `label` on its branch that is good as far as that is known ([`is_good`]); with `None`, the
    /// newest before the latest one. Whether its blocks are readable shows only when they are read.
    pub fn sound_before(&self, label: Option<&str>) -> Result<Option<Label>, Error> {
        let listing = self.list()?;
        let facts = listing.facts();
        let end = match label {
            Some(label) => listing.sets.iter().position(|s| s.label.as_str() == label),
            None => self
                .choose(&listing, None)
                .ok()
                .or_else(|| listing.sets.iter().rposition(was_backup)),
        };
        let Some(end) = end else {
            return Ok(None);
        };
        let branches = branch::branches(&facts);
        let own = branches.iter().find(|b| b.sets.contains(&end));
        let before: Vec<usize> = match (own, branch::living(&branches).as_slice()) {
            (Some(own), _) => own.sets.iter().copied().take_while(|i| *i != end).collect(),
            // It cannot be read, so its branch is unknown.
            (None, [one]) => {
                let sets = branches[*one].sets.iter().copied();
                sets.filter(|i| facts[*i].start_us < facts[end].start_us)
                    .collect()
            }
            (None, _) => Vec::new(),
        };
        let is_whole = |i: &usize| facts[*i].is_whole() && is_good(&facts, *i);
        let found = before.into_iter().rev().find(is_whole);
        Ok(found.map(|i| listing.sets[i].label.clone()))
    }
}
