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

use longshore_media::{BackupDevice, CopiedSet, DeviceSpec, Moved, Planned, copy_set_planned};
use longshore_pg::{Lsn, Timeline};
use longshore_wal::{StorageForm, WalArchive, WalCopied, WalToCopy, copy_wal};
use uuid::Uuid;

use crate::chain::{Health, SetFacts};
use crate::label::Label;
use crate::place::{Begun, Removal};
use crate::reliance::Reliance;
use crate::retention::{Decision, LogNeed, Policy, decide};
use crate::shelf::{BackupEntry, Listing, NewBackup, Shelf};
use crate::state::BackupState;
use crate::target::WAL;
use crate::{BackupLease, Error};

/// The verdict about a backup of the first target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyStep {
    /// It is copied. `again`: a copy that was never completed is removed first.
    Copy { again: bool },
    /// The second target has it, under this label.
    There(Label),
    /// It is no backup that can be restored.
    NotWhole,
    /// Other backups were named.
    NotAsked,
    /// The next expire there would remove it.
    Unkept,
    /// Another process is copying it.
    BeingCopied,
    /// It cannot be copied before somebody has acted; the text says why.
    Blocked(String),
}

/// The verdicts about a target's backups, and the WAL that the second target then needs.
#[derive(Debug, Clone)]
pub struct CopyPlan {
    /// One for each backup, in the order of the listing.
    pub steps: Vec<CopyStep>,
    wal: LogNeed,
    /// Whether any backup that is there, or is copied, needs WAL from an archive.
    needs_wal: bool,
}

impl CopyPlan {
    /// The indexes of the backups that are copied.
    pub fn copied(&self) -> Vec<usize> {
        let is_copied = |i: &usize| matches!(self.steps[*i], CopyStep::Copy { .. });
        (0..self.steps.len()).filter(is_copied).collect()
    }
}

/// Decides about each backup of `from`, in its order. `only`: these labels and what they need, if any are named.
/// `policy`: the rules of the second target.
pub fn plan(
    from: &Listing,
    to: &Listing,
    only: &[Label],
    policy: &Policy,
    now_us: i64,
) -> CopyPlan {
    let facts = from.facts();
    let wanted = wanted(&facts, only);
    let there = to.facts();
    let mut steps: Vec<CopyStep> = (0..facts.len())
        .map(|i| match wanted.contains(&i) {
            true => step(&facts[i], from, i, to),
            false => CopyStep::NotAsked,
        })
        .collect();
    block_orphans(&facts, &there, &mut steps);
    // Rules count all backups there. A backup that was named is copied whatever they say.
    if only.is_empty() {
        let (decision, first, copied) = outlook(&facts, &there, &steps, policy, now_us);
        for (n, i) in copied.iter().enumerate() {
            if !decision.is_kept(first + n) {
                steps[*i] = CopyStep::Unkept;
            }
        }
        block_orphans(&facts, &there, &mut steps);
    }
    let (decision, ..) = outlook(&facts, &there, &steps, policy, now_us);
    let is_copied = |i: &usize| matches!(steps[*i], CopyStep::Copy { .. });
    let ours = (0..steps.len()).filter(is_copied).map(|i| &from.sets[i]);
    let needs_wal = ours.chain(&to.sets).any(needs_archive);
    CopyPlan {
        steps,
        wal: decision.log,
        needs_wal,
    }
}

/// Whether a backup holds no WAL of its own though it needs some.
pub fn needs_archive(set: &BackupEntry) -> bool {
    let complete = set.complete();
    complete.is_some_and(|c| c.header.log.system != 0 && !c.trailer.log.included)
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
        // A copy has the same bytes whoever writes it, so what its ended writer sent and the store has not done yet does no
        // harm.
        BackupState::Abandoned
        | BackupState::Writing {
            has_ended: true, ..
        } => CopyStep::Copy { again: true },
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

/// The verdicts of the second target's rules once everything is copied, the index in them of the first that is copied, and
/// the indexes of these in `facts`.
fn outlook(
    facts: &[SetFacts],
    there: &[SetFacts],
    steps: &[CopyStep],
    policy: &Policy,
    now_us: i64,
) -> (Decision, usize, Vec<usize>) {
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
        is_degraded: false,
        ..facts[*i].clone()
    }));
    (decide(&all, policy, now_us), first, copied)
}

/// A place for a copy, with the source's lease. Held until the copy ends.
#[derive(Debug)]
pub struct BegunCopy {
    pub source: BackupLease,
    pub place: NewBackup,
}

impl Shelf {
    /// Leases a backup of a listing of this shelf, by its index, and makes a place for its copy on `to`. `again`: goes on with
    /// the remains of a copy there that was never completed, or removes them.
    ///
    /// Errors: those of [`Shelf::lease`]; [`Error::LabelTaken`], [`Error::Busy`]; those of the place.
    pub fn begin_copy(
        &self,
        (listing, index): (&Listing, usize),
        to: &Shelf,
        again: bool,
    ) -> Result<BegunCopy, Error> {
        to.check_stopped()?;
        let source = self.lease_listed(listing, index)?;
        // Parity may stand for stripes that the source lacks: the copy has them all.
        let found = &listing.sets[index];
        let is_degraded = found.complete().is_some_and(|c| !c.faults.is_empty());
        let families = match is_degraded {
            true => self.stripe_count(&source)?,
            false => source.devices.len(),
        };
        let families = u16::try_from(families).unwrap_or(u16::MAX);
        let kept = match again {
            true => to.adopt(&source.label, families)?,
            false => None,
        };
        let begun = match kept {
            Some(begun) => begun,
            None => {
                if again {
                    to.remove_unfinished(&source.label)?;
                }
                to.place.begin_copy(&source.label, families)?
            }
        };
        Ok(BegunCopy {
            source,
            place: NewBackup::of(begun),
        })
    }

    /// Whether a copy's stripes here and there are the same files, by hard links or a directory that is mounted twice: then
    /// one loss takes both.
    pub fn shares_files(&self, ours: &[DeviceSpec], theirs: &[DeviceSpec]) -> bool {
        let files = |devices: &[DeviceSpec]| -> Vec<(u64, u64)> {
            let file = |device: &DeviceSpec| match device {
                DeviceSpec::File(path) => self.storage.stat(path).ok(),
                _ => None,
            };
            let stats = devices.iter().filter_map(file);
            stats.map(|stat| (stat.dev, stat.ino)).collect()
        };
        let theirs = files(theirs);
        files(ours).iter().any(|file| theirs.contains(file))
    }

    /// A place for a copy of so many families whose remains are under this label, as far as they can be of that copy: none of
    /// its stripes is at another place, and nobody uses them.
    fn adopt(&self, label: &Label, families: u16) -> Result<Option<Begun>, Error> {
        let Some(locked) = self.place.lock()? else {
            return Ok(None);
        };
        let listing = self.listing(locked.look()?)?;
        let found = listing.sets.iter().find(|set| set.label == *label);
        let Some(found) = found.filter(|set| matches!(set.state, BackupState::Abandoned)) else {
            return Ok(None);
        };
        // Names that nobody knows are told, as where the remains are removed.
        let is_below = |stray: &String| stray.contains(label.as_str());
        if listing.strays.iter().any(is_below) {
            return Ok(None);
        }
        let own = (1..=families).map(|family| self.place.device(label, family));
        let own = own.collect::<Result<Vec<_>, _>>()?;
        match found.devices.iter().all(|device| own.contains(device)) {
            true => locked.adopt(label, families),
            false => Ok(None),
        }
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
        let removed = match found.map(|set| &set.state) {
            None => return Ok(()),
            Some(BackupState::Abandoned) => locked.remove(label)?,
            Some(BackupState::Writing {
                has_ended: true, ..
            }) => locked.take_over(label)?,
            Some(_) => return Err(taken()),
        };
        match removed {
            // Names that nobody knows stay, and with them the label.
            Removal::Done if locked.look()?.labels.contains_key(label) => Err(taken()),
            Removal::Done => Ok(()),
            Removal::InUse(_) | Removal::Retained(_) | Removal::Partly(_) => Err(taken()),
        }
    }

    /// Copies the stripes of a copy that [`Shelf::begin_copy`] began. When this returns, the copy is a backup of `to`.
    ///
    /// Errors: those of [`copy_set_planned`]; [`Error::LeaseLost`].
    pub fn copy_stripes(
        &self,
        begun: &BegunCopy,
        planned: Planned<'_>,
        moved: Moved<'_>,
    ) -> Result<CopiedSet, Error> {
        let open = |devices: &[DeviceSpec]| -> Vec<Arc<dyn BackupDevice>> {
            devices.iter().map(|d| d.open(&self.storage)).collect()
        };
        let (from, to) = (open(&begun.source.devices), open(&begun.place.devices));
        let ready = copy_set_planned(&from, &to, planned, moved)?;
        // Others may remove what is under a label whose lease was lost.
        begun.place.confirm()?;
        let copied = ready.complete()?;
        begun.place.confirm()?;
        Ok(copied)
    }
}

/// The time for which a copy of WAL waits for an expire of the second archive.
const EXPIRE_PATIENCE: Duration = Duration::from_secs(600);

impl Shelf {
    /// The WAL that the archive at `to` lacks for the backups that are there or get there; `None` if none of them needs any,
    /// or if both targets have one archive.
    ///
    /// Errors: [`Error::NoWalToCopy`]; those of the archives.
    pub fn plan_wal_copy(&self, to: &Shelf, plan: &CopyPlan) -> Result<Option<WalToCopy>, Error> {
        let Some(from) = self.wal_source(to, plan)? else {
            return Ok(None);
        };
        lacking(&from, to.wal()?.as_ref(), plan).map(Some)
    }

    /// The archive here, if the one at `to` is another and any backup needs one.
    fn wal_source(&self, to: &Shelf, plan: &CopyPlan) -> Result<Option<WalArchive>, Error> {
        if self.wal_path() == to.wal_path() {
            return Ok(None);
        }
        match self.wal()? {
            None if plan.needs_wal => Err(Error::NoWalToCopy {
                database: self.database.clone(),
                path: self.needed_wal_path()?,
            }),
            found => Ok(found),
        }
    }

    /// Copies WAL to the archive at `to`, which is made if it is missing. `first`: a backup that is being copied, if there
    /// is one: its need, and that of all that are copied, is recorded in the archive before the WAL there is looked at, so
    /// that no expire removes what is there or is copied.
    ///
    /// Errors: those of [`Shelf::plan_wal_copy`], and `BeingExpired`.
    pub fn copy_wal(
        &self,
        to: &Shelf,
        plan: &CopyPlan,
        first: Option<(&BegunCopy, &[SetFacts])>,
        form: &StorageForm,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<WalCopied, Error> {
        let Some(from) = self.wal_source(to, plan)? else {
            return Ok(WalCopied::default());
        };
        // No archive is made for nothing.
        let there = to.wal()?;
        if first.is_none() && lacking(&from, there.as_ref(), plan)?.is_empty() {
            return Ok(WalCopied::default());
        }
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
        let archive = archive.with_keyring(&to.keyring);
        if let Some((begun, copied)) = first {
            let system = from.identified()?.system;
            let logs = copied.iter().filter_map(|set| set.log);
            let of_system = logs.filter(|log| log.system == system);
            if let Some(lsn) = of_system.map(|log| log.first_lsn).min() {
                let reliance = Reliance::new(to, &begun.source.label);
                reliance.settle(&archive, system, Lsn(lsn), EXPIRE_PATIENCE)?;
            }
        }
        let todo = lacking(&from, Some(&archive), plan)?;
        let clock = &*self.clock;
        Ok(copy_wal(&from, &archive, &todo, form, clock, goes_on)?)
    }
}

/// The WAL of an archive that another one lacks and that a plan needs there.
fn lacking(
    from: &WalArchive,
    to: Option<&WalArchive>,
    plan: &CopyPlan,
) -> Result<WalToCopy, Error> {
    let system = from.identified()?.system;
    let needed = |timeline: Timeline, start, end| {
        let number = timeline.number();
        plan.wal.surely_needs(system, number, start, end)
    };
    Ok(from.lacking(to, &needed)?)
}
