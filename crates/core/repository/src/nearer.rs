//! A backup that is read partly where it was made and partly at a copy: each stripe that is at home is read there, and only
//! the lost ones come from the copy.
//!
//! Invariants
//! - Stripes of two targets are read as one set only if their headers and trailers say that they are one: the same media
//!   set, every family once, the same set header, and trailers that agree with the copy's and with one another's sums.
//! - All sets that are read are leased, at both targets.
//! - Where anything of this is not so, or not known, a set is read at the copy as a whole.
//!
//! Leaves to others: whether the copy is of the backup that is meant (the callers), and damage inside a stripe, which the
//! restore finds by the stored checksums.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_io::Storage;
use longshore_media::{BackupDevice, DeviceSpec, MediaSet, SetSummary};

use crate::label::Label;
use crate::place::Protection;
use crate::shelf::{BackupEntry, BackupLease, Shelf};
use crate::state::BackupState;

/// The part of a set that is read at a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromCopy {
    pub label: Label,
    /// Of so many.
    pub families: Vec<u16>,
    pub count: u16,
}

impl FromCopy {
    /// For messages: `all of LABEL`, `family 2 of LABEL`.
    pub fn text(&self) -> String {
        let families: Vec<String> = self.families.iter().map(u16::to_string).collect();
        match self.families.len() == usize::from(self.count) {
            true => format!("all of {}", self.label),
            false => format!("family {} of {}", families.join(", "), self.label),
        }
    }
}

impl BackupLease {
    /// The same backup with what `own` has of its sets in place of this copy's stripes, and what is still read at the copy.
    pub fn nearer(mut self, own: &Shelf) -> (BackupLease, Vec<FromCopy>) {
        let labels = self.parents.iter().map(|(label, _)| label);
        let labels: Vec<Label> = labels.chain([&self.label]).cloned().collect();
        for label in &labels {
            match own.place.protect(label) {
                Ok(Protection::Held(hold)) => self.hold_too(hold),
                Ok(Protection::Needless) | Err(_) => {}
                Ok(Protection::Impossible(why)) => self.unprotected = Some(why),
            }
        }
        // Sets that were there before the leases were taken may be gone by now.
        let listing = own.list().unwrap_or_default();
        let there: HashMap<&Label, &BackupEntry> =
            listing.sets.iter().map(|set| (&set.label, set)).collect();
        let mut from_copy = Vec::new();
        let mut replace = |label: &Label, devices: &mut Vec<DeviceSpec>| {
            let (nearer, families) = there
                .get(label)
                .and_then(|set| joined(set, devices, &own.storage))
                .unwrap_or_else(|| (devices.clone(), (1..=devices.len() as u16).collect()));
            if !families.is_empty() {
                from_copy.push(FromCopy {
                    label: label.clone(),
                    families,
                    count: devices.len() as u16,
                });
            }
            *devices = nearer;
        };
        replace(&self.label, &mut self.devices);
        for (label, devices) in &mut self.parents {
            replace(label, devices);
        }
        (self, from_copy)
    }
}

impl BackupLease {
    /// Whether nothing that `own` has left of the backup contradicts this copy of it. Media keep their identifier when a
    /// set is appended or replaces all others, so the sets are compared, too, where their headers can be read.
    pub fn is_like(&self, own: &BackupEntry, storage: &Arc<dyn Storage>) -> bool {
        if let BackupState::Missing { .. } = own.state {
            return joined(own, &self.devices, storage).is_some();
        }
        let devices: Vec<_> = own.devices.iter().map(|d| d.open(storage)).collect();
        let sets = MediaSet::open(&devices).and_then(|media| media.sets());
        match sets.as_ref().ok().and_then(|sets| sets.last()) {
            Some(last) => Some(last.header.set) == self.facts.id,
            None => true,
        }
    }
}

/// The stripes of a set that is whole in `copy`, as many as possible of those that `own` has, and the families that come
/// from the copy. `None`: nothing shows that they are one set.
fn joined(
    own: &BackupEntry,
    copy: &[DeviceSpec],
    storage: &Arc<dyn Storage>,
) -> Option<(Vec<DeviceSpec>, Vec<u16>)> {
    let lost = match &own.state {
        BackupState::Complete(_) => Vec::new(),
        BackupState::Missing { families, .. } => families.clone(),
        _ => return None,
    };
    let (media, theirs) = opened(copy, storage)?;
    let of_family = |family: &u16| {
        let index = usize::from(*family).checked_sub(1)?;
        let stripes = media.stripes();
        Some(copy[stripes.get(index)?.device_index?].clone())
    };
    let come: Option<Vec<DeviceSpec>> = lost.iter().map(of_family).collect();
    let mut devices = own.devices.clone();
    devices.extend(come?);
    let (_, joined) = opened(&devices, storage)?;
    let is_one = joined.header == theirs.header && joined.trailer == theirs.trailer;
    is_one.then_some((devices, lost))
}

/// The set of these stripes, if it is whole.
fn opened(devices: &[DeviceSpec], storage: &Arc<dyn Storage>) -> Option<(MediaSet, SetSummary)> {
    let devices: Vec<Arc<dyn BackupDevice>> = devices.iter().map(|d| d.open(storage)).collect();
    let media = MediaSet::open(&devices).ok()?;
    let set = media.set(0).ok()?;
    set.trailer.is_some().then_some((media, set))
}
