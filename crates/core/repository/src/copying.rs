//! Copies of backups at a second target: which ones are made, and how one is.
//!
//! A copy is the same set under the same label, byte for byte. The set's identifier in its headers says that two are the
//! same, never the label alone.
//!
//! Invariants
//! - Nothing under a label of the second target is ever replaced; only a copy that was never completed is begun again.
//! - A differential is copied only where all that it needs is, or becomes, a part of the second target.
//! - A backup that the next expire at the second target would remove is not copied.
//! - While a copy is made, the source's chain is leased and the copy is a backup that is being written, so no expire
//!   removes either, nor WAL that either needs.
//!
//! Leaves to others: reading, checking and writing stripes (`longshore-media`), and copies of WAL (`longshore-wal`).

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_media::{BackupDevice, CopiedSet, Moved, copy_set};
use longshore_pg::Lsn;
use longshore_pg::wal::WalName;
use longshore_wal::{PushResult, StorageForm, WalArchive, WalToCopy, copy_wal};
use uuid::Uuid;

use crate::chain::{Health, SetFacts};
use crate::label::Label;
use crate::place::Removal;
use crate::reliance::Reliance;
use crate::retention::{Policy, decide};
use crate::shelf::{BackupState, Listing, NewBackup, Shelf};
use crate::target::WAL;
use crate::{BackupLease, Error};

/// The verdict about a backup of the first target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyStep {
    /// It is copied. `again`: a copy that was never completed is removed first.
    Copy { again: bool },
    /// The second target has it, under this label.
    There(Label),
    /// It is no backup, or none yet.
    NotWhole,
    /// The next expire there would remove it.
    Unkept,
    /// Another process is copying it.
    BeingCopied,
    /// It cannot be copied before somebody has acted; the text says why.
    Blocked(String),
}

/// Decides about each backup of `from`, in its order. `only`: these labels and what they need, if any are named.
/// `policy`: the rules of the second target.
pub fn plan(
    from: &Listing,
    to: &Listing,
    only: &[Label],
    policy: &Policy,
    now_us: i64,
) -> Vec<CopyStep> {
    let facts = from.facts();
    let wanted = wanted(&facts, only);
    let there = to.facts();
    let mut steps: Vec<CopyStep> = (0..facts.len())
        .map(|i| match wanted.contains(&i) {
            true => step(&facts[i], from, i, to),
            false => CopyStep::NotWhole,
        })
        .collect();
    block_orphans(&facts, &there, &mut steps);
    // Rules count all backups there. A backup that was named is copied whatever they say.
    if only.is_empty() {
        leave_unkept(&facts, &there, &mut steps, policy, now_us);
        block_orphans(&facts, &there, &mut steps);
    }
    steps
}

/// The indexes that are asked for: all, or the named ones with the backups they need.
fn wanted(facts: &[SetFacts], only: &[Label]) -> BTreeSet<usize> {
    if only.is_empty() {
        return (0..facts.len()).collect();
    }
    let mut wanted = BTreeSet::new();
    for (i, set) in facts.iter().enumerate() {
        if only.contains(&set.label) {
            wanted.insert(i);
            wanted.extend(crate::chain::chain(facts, i).unwrap_or_default());
        }
    }
    wanted
}

/// The step for one backup, without what it needs.
fn step(facts: &SetFacts, from: &Listing, index: usize, to: &Listing) -> CopyStep {
    let (Health::Whole { .. }, Some(complete)) = (facts.health, from.sets[index].complete()) else {
        return CopyStep::NotWhole;
    };
    let same = to.sets.iter().find(|set| {
        let other = set.complete();
        other.is_some_and(|c| c.header == complete.header && c.trailer == complete.trailer)
    });
    if let Some(same) = same {
        return CopyStep::There(same.label.clone());
    }
    let Some(found) = to.sets.iter().find(|set| set.label == facts.label) else {
        return CopyStep::Copy { again: false };
    };
    match &found.state {
        BackupState::Abandoned => CopyStep::Copy { again: true },
        BackupState::Writing { .. } => CopyStep::BeingCopied,
        BackupState::Complete(_) => CopyStep::Blocked(
            "another backup is there under the same label: move one of the two away by hand"
                .to_owned(),
        ),
        state => CopyStep::Blocked(format!(
            "its copy there cannot be restored ({}): bring back what is missing, or remove it by hand and copy again",
            state.text()
        )),
    }
}

/// A backup whose parent is not there and does not get there cannot be restored from there.
fn block_orphans(facts: &[SetFacts], there: &[SetFacts], steps: &mut [CopyStep]) {
    let at_target: BTreeSet<Uuid> = there
        .iter()
        .filter(|set| set.is_whole())
        .filter_map(|set| set.id)
        .collect();
    let index: HashMap<Uuid, usize> = facts
        .iter()
        .enumerate()
        .filter(|(_, set)| set.is_whole())
        .filter_map(|(i, set)| Some((set.id?, i)))
        .collect();
    // A chain is as long as the number of sets at most.
    for _ in 0..facts.len() {
        let mut changed = false;
        for i in 0..facts.len() {
            let (CopyStep::Copy { .. }, Some(parent)) = (&steps[i], facts[i].parent) else {
                continue;
            };
            let comes = index.get(&parent).map(|at| &steps[*at]);
            if at_target.contains(&parent) || matches!(comes, Some(CopyStep::Copy { .. })) {
                continue;
            }
            steps[i] = match comes {
                Some(CopyStep::Unkept) => CopyStep::Unkept,
                Some(CopyStep::BeingCopied) => CopyStep::BeingCopied,
                _ => CopyStep::Blocked(
                    "the backup that it needs is not at the second target, and cannot be copied there"
                        .to_owned(),
                ),
            };
            changed = true;
        }
        if !changed {
            return;
        }
    }
}

fn leave_unkept(
    facts: &[SetFacts],
    there: &[SetFacts],
    steps: &mut [CopyStep],
    policy: &Policy,
    now_us: i64,
) {
    let copied: Vec<usize> = (0..steps.len())
        .filter(|i| matches!(steps[*i], CopyStep::Copy { .. }))
        .collect();
    let labels: BTreeSet<&Label> = copied.iter().map(|i| &facts[*i].label).collect();
    // The remains of an earlier attempt are not counted next to the backup itself.
    let others = there.iter().filter(|set| !labels.contains(&set.label));
    let mut all: Vec<SetFacts> = others.cloned().collect();
    let first = all.len();
    all.extend(copied.iter().map(|i| SetFacts {
        in_use: false,
        ..facts[*i].clone()
    }));
    let decision = decide(&all, policy, now_us);
    for (n, i) in copied.iter().enumerate() {
        if !decision.is_kept(first + n) {
            steps[*i] = CopyStep::Unkept;
        }
    }
}

/// A place for a copy, with the source's lease. Held until the copy ends.
#[derive(Debug)]
pub struct BegunCopy {
    pub source: BackupLease,
    pub place: NewBackup,
}

impl Shelf {
    /// Leases a backup of a listing of this shelf, by its index, and makes a place for its copy on `to`. `again`: removes the
    /// remains of a copy there that was never completed.
    ///
    /// Errors: those of [`Shelf::lease`]; [`Error::LabelTaken`], [`Error::Busy`]; those of the place.
    pub fn begin_copy(
        &self,
        (listing, index): (&Listing, usize),
        to: &Shelf,
        again: bool,
    ) -> Result<BegunCopy, Error> {
        let source = self.lease_listed(listing, index)?;
        if again {
            to.remove_unfinished(&source.label)?;
        }
        let families = source.devices.len() as u16;
        let begun = to.place.begin_copy(&source.label, families)?;
        Ok(BegunCopy {
            source,
            place: NewBackup::of(begun),
        })
    }

    /// Removes what is under a label and was never completed.
    fn remove_unfinished(&self, label: &Label) -> Result<(), Error> {
        let Some(locked) = self.place.lock()? else {
            return Ok(());
        };
        let listing = self.listing(locked.look()?)?;
        let found = listing.sets.iter().find(|set| set.label == *label);
        let taken = || Error::LabelTaken {
            target: self.target.name.clone(),
            database: self.database.clone(),
            label: label.to_string(),
        };
        match found.map(|set| &set.state) {
            None => Ok(()),
            Some(BackupState::Abandoned) => match locked.remove(label)? {
                Removal::Done => Ok(()),
                Removal::InUse(_) | Removal::Retained(_) | Removal::Partly(_) => Err(taken()),
            },
            Some(_) => Err(taken()),
        }
    }

    /// Copies the stripes of a copy that [`Shelf::begin_copy`] began. When this returns, the copy is a backup of `to`.
    ///
    /// Errors: those of [`copy_set`]; [`Error::LeaseLost`].
    pub fn copy_stripes(&self, begun: &BegunCopy, moved: Moved<'_>) -> Result<CopiedSet, Error> {
        let open = |devices: &[longshore_media::DeviceSpec]| -> Vec<Arc<dyn BackupDevice>> {
            devices.iter().map(|d| d.open(&self.storage)).collect()
        };
        let (from, to) = (open(&begun.source.devices), open(&begun.place.devices));
        let ready = copy_set(&from, &to, moved)?;
        // Others may remove what is under a label whose lease was lost.
        begun.place.confirm()?;
        let copied = ready.complete()?;
        begun.place.confirm()?;
        Ok(copied)
    }
}

/// The time for which a copy of WAL waits for an expire of the second archive.
const EXPIRE_PATIENCE: Duration = Duration::from_secs(600);

/// WAL that is to be copied along with backups.
#[derive(Debug)]
pub struct WalPlan {
    pub todo: WalToCopy,
    from: WalArchive,
    /// The cluster, and the LSN from which the copied backups need its WAL.
    need: Option<(u64, Lsn)>,
}

impl Shelf {
    /// The WAL of the archive here that the archive at `to` lacks, for these backups and for all that are there; `None` if
    /// there is no archive here, or if both are one.
    ///
    /// Errors: those of the archives.
    pub fn plan_wal_copy(&self, to: &Shelf, copied: &[SetFacts]) -> Result<Option<WalPlan>, Error> {
        if self.wal_path() == to.wal_path() {
            return Ok(None);
        }
        let Some(from) = self.wal()? else {
            return Ok(None);
        };
        let system = from.identified()?.system;
        let logs = copied.iter().filter_map(|set| set.log);
        let first = logs
            .filter(|log| log.system == system)
            .map(|log| log.first_lsn);
        let need = first.min().map(|first| (system, Lsn(first)));
        let there = to.wal()?;
        let todo = from.lacking(there.as_ref(), need.map(|(_, first)| first))?;
        Ok(Some(WalPlan { todo, from, need }))
    }

    /// Copies WAL to the archive at `to`, which is made if it is missing. `label`: a backup that is being copied, if there
    /// is one: its need is recorded in the archive first, so that no expire removes what is copied. `each` is told of
    /// every file, and ends the copy with `false`.
    ///
    /// Errors: those of the archives, and `BeingExpired`.
    pub fn copy_wal(
        &self,
        to: &Shelf,
        plan: &WalPlan,
        label: Option<&Label>,
        form: &StorageForm,
        each: &mut dyn FnMut(WalName, PushResult) -> bool,
    ) -> Result<(), Error> {
        let archive = match &to.archive {
            Some(path) => WalArchive::open(&*to.storage, path)?,
            None => {
                let base = to.target.first_place().ok_or_else(|| Error::NoArchive {
                    target: to.target.name.clone(),
                    database: to.database.clone(),
                })?;
                let below = Path::new(&to.database).join(WAL);
                WalArchive::create(&*to.storage, &base, &below, &*to.clock)?
            }
        };
        if let (Some(label), Some((system, first))) = (label, plan.need) {
            Reliance::new(to, label).settle(&archive, system, first, EXPIRE_PATIENCE)?;
        }
        copy_wal(&plan.from, &archive, &plan.todo, form, &*self.clock, each)?;
        Ok(())
    }
}
