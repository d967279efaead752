//! Backups with detached keys at a target: where their keys are, and what an expire or a copy does with them.
//!
//! Invariants
//! - An expire removes the keys of a set only where no other configured target has the set, and all of them could be asked.
//! - A copy takes keys along only to a target that has places of its own for them.
//!
//! Leaves to others: files in the places (`longshore-media`), removing stripes (`longshore-repository`).

use longshore_media::{Folder, ObjectName, found, have_all};
use longshore_repository::{BackupEntry, ExpireReport, Fate, Listing, Shelf};
use longshore_terminal::failure::Failure;
use longshore_terminal::text::plain;
use uuid::Uuid;

use super::devices;
use super::shelves::Row;
use crate::context::Context;
use crate::key_places::{self, KeyLook};

/// The identifier of a set with detached keys.
pub fn set_of(entry: &BackupEntry) -> Option<[u8; 16]> {
    let complete = entry.complete()?;
    let header = &complete.header;
    header.keys_detached.then(|| *header.set.as_bytes())
}

/// The places in which the keys of a target's backups are: its own, or all that are configured.
///
/// Errors: those of [`key_places::named`].
pub fn places_of(target: &str, context: &Context) -> Result<Vec<Folder>, Failure> {
    match key_places::texts_of(context, target) {
        [] => key_places::all(context, &[]),
        own => key_places::named(context, own),
    }
}

/// Fills in where the keys of these backups are, which are at a target.
pub fn judge(rows: &mut [Row], listing: &Listing, (target, context): (&str, &Context)) {
    if listing.sets.iter().all(|set| set_of(set).is_none()) {
        return;
    }
    // The configuration was checked when it was read; what a place says is told below.
    let places = places_of(target, context).unwrap_or_default();
    for (row, entry) in rows.iter_mut().zip(&listing.sets) {
        row.keys = set_of(entry).map(|set| KeyLook::of(&set, &places, &entry.objects).state);
    }
}

/// Removes the keys of backups that an expire has removed, unless another configured target has the same set. Returns whether something
/// deserves a look.
pub fn forget(shelf: &Shelf, expired: &ExpireReport, context: &Context) -> bool {
    let removed = expired.listing.sets.iter().zip(&expired.fates);
    let removed = removed.filter(|(_, fate)| **fate == Fate::Removed);
    let sets = removed.filter_map(|(entry, _)| Some((entry, set_of(entry)?)));
    let sets: Vec<_> = sets.collect();
    if sets.is_empty() {
        return false;
    }
    let places = match key_places::all(context, &[]) {
        Ok(places) if !places.is_empty() => places,
        _ => return false,
    };
    let others = match others(shelf, context) {
        Ok(others) => others,
        Err(why) => {
            let names: Vec<String> = sets
                .iter()
                .map(|(_, set)| Uuid::from_bytes(*set).to_string())
                .collect();
            let text = format!(
                "the keys of removed backups are kept, as copies of these may be at a target that cannot be asked ({}); once there is none: \
                 longshore key shred {} --yes",
                plain(&why),
                names.join(" ")
            );
            context.output.warn(&text);
            return true;
        }
    };
    let mut look = false;
    for (entry, set) in sets {
        let label = &entry.label;
        let has = |(_, listing): &&(String, Listing)| {
            listing.sets.iter().any(|other| other.label == *label)
        };
        if let Some((target, _)) = others.iter().find(has) {
            context.output.note(&format!(
                "the keys of {label} are kept: target {target} has the backup, too"
            ));
            continue;
        }
        for place in &places {
            let removed = place.objects(&set).and_then(|names| {
                let all = names
                    .iter()
                    .try_for_each(|name| place.remove(name).map(drop));
                all.and_then(|()| place.unmark(&set))
            });
            if let Err(error) = removed {
                let (place, error) = (place.name(), Failure::from(error));
                let text = format!(
                    "the keys of {label} are not removed from {place}: {}",
                    error.text
                );
                context.output.warn(&text);
                look = true;
            }
        }
    }
    look
}

/// The backups of the database at all other configured targets. Errors: why one of them cannot be listed.
fn others(shelf: &Shelf, context: &Context) -> Result<Vec<(String, Listing)>, String> {
    let others = context.config.target.keys();
    let others = others.filter(|name| **name != shelf.target.name);
    let listed = |name: &String| {
        let list = || -> Result<Listing, Failure> {
            let target = devices::target(context, name)?;
            Ok(devices::shelf(context, &target, &shelf.database)?.list()?)
        };
        match list() {
            Ok(listing) => Ok((name.clone(), listing)),
            Err(failure) => Err(format!("target {name}: {}", failure.text)),
        }
    };
    others.map(listed).collect()
}

/// Brings the keys of these backups to the places of the target of their copies, if it has any. Returns how many objects a place lacked.
///
/// Errors: a place cannot be written.
pub fn copied(entries: &[&BackupEntry], target: &str, context: &Context) -> Result<u64, Failure> {
    let sets = entries.iter().filter_map(|entry| set_of(entry));
    let sets: Vec<[u8; 16]> = sets.collect();
    if sets.is_empty() {
        return Ok(0);
    }
    let own = match key_places::texts_of(context, target) {
        [] => {
            context.output.note(&format!(
                "{} copies have detached keys, and the keys stay where they are: the copies open only with these. Name places of their \
                 own in `keys` of [target.{target}]; else an expire on a machine that does not know this target removes them with the \
                 backups that were copied",
                sets.len()
            ));
            return Ok(0);
        }
        own => key_places::named(context, own)?,
    };
    let all = key_places::all(context, &[])?;
    let mut brought = 0;
    for set in sets {
        for bytes in found(&all, &set).objects {
            let name = ObjectName::of(&set, &bytes);
            if have_all(&own, &name) {
                continue;
            }
            own.iter()
                .try_for_each(|place| place.write(&name, &bytes))?;
            brought += 1;
        }
    }
    Ok(brought)
}
