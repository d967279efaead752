//! Backups with detached keys at a target: where their keys are, and what an expire or a copy does with them.
//!
//! Invariants
//! - An expire removes the keys of a set only where no other configured target has the set, by its identifier and under any label, and
//!   all of them could be asked.
//! - A mark next to the keys says of each target that it has the set, until an expire at that target removed it: a target that is not
//!   mounted, or that this configuration does not know, keeps the keys of its copies.
//! - A copy takes keys along only to a target that has places of its own for them.
//!
//! Leaves to others: files in the places (`longshore-media`), removing stripes (`longshore-repository`).

use longshore_crypt::KeyObject;
use longshore_media::{Folder, ObjectName, found, have_all};
use longshore_repository::{BackupEntry, BackupState, ExpireReport, Fate, Label, Listing, Shelf};
use longshore_terminal::failure::Failure;
use longshore_terminal::text::plain;
use uuid::Uuid;

use super::devices;
use super::shelves::Row;
use crate::context::Context;
use crate::key_places::{self, KeyLook, KeyState};

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
    let all = key_places::all(context, &[]).unwrap_or_default();
    for (row, entry) in rows.iter_mut().zip(&listing.sets) {
        row.keys =
            set_of(entry).map(
                |set| match KeyLook::of(&set, &places, &entry.objects).state {
                    // Readers look at the places of all targets.
                    KeyState::Missing => KeyLook::of(&set, &all, &entry.objects).state,
                    state => state,
                },
            );
    }
}

/// The text of a target's mark. The places belong to it: another machine may have another target of that name.
fn holder(target: &str, context: &Context) -> String {
    let places = context.config.target.get(target).map(|target| {
        let directories = target.directories.iter().map(|d| d.display().to_string());
        let all: Vec<String> = directories.chain(target.buckets.iter().cloned()).collect();
        all.join(" ")
    });
    format!("target {target}: {}", places.unwrap_or_default())
}

/// Marks in these places that `target` has the set. A mark that cannot be left is told: it guards against a later mishap, and is no part of
/// the backup.
pub fn hold(set: &[u8; 16], places: &[Folder], (target, context): (&str, &Context)) {
    let holder = holder(target, context);
    for place in places {
        if let Err(error) = place.hold(set, &holder) {
            let text = format!(
                "{}: no mark could be left that target {target} has set {}: {}",
                place.name(),
                Uuid::from_bytes(*set),
                Failure::from(error).text
            );
            context.output.warn(&plain(&text));
        }
    }
}

/// Removes the keys of backups that an expire has removed, unless another target has the same set. Returns whether something deserves a
/// look.
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
    let own = holder(&shelf.target.name, context);
    for (place, (_, set)) in places.iter().flat_map(|p| sets.iter().map(move |s| (p, s))) {
        // A mark that stays keeps the keys, and is told below.
        let _stays = place.release(set, &own);
    }
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
        match has((label, &set), &others, (shelf, expired), (&places, context)) {
            Has::Nobody => {}
            Has::Listed(who) => {
                context.output.note(&format!(
                    "the keys of {label} are kept: {who} has the backup, too"
                ));
                continue;
            }
            Has::Marked(why) => {
                let id = Uuid::from_bytes(set);
                context.output.note(&format!(
                    "the keys of {label} are kept: {}. If it has no copy any longer: longshore key shred {id} --yes",
                    plain(&why)
                ));
                continue;
            }
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

/// The holder of a set's stripes, besides the ones that an expire removed.
enum Has {
    Nobody,
    Listed(String),
    /// A place of keys says so, or cannot be asked.
    Marked(String),
}

/// Whether a backup at a target may be this set. It is known by its identifier: a label is the name of a directory, and whoever can rename
/// that gives it to another set. Only where no header can be read the label decides.
fn may_be(entry: &BackupEntry, (label, set): (&Label, &[u8; 16])) -> bool {
    match &entry.state {
        BackupState::Complete(complete) => complete.header.set.as_bytes() == set,
        BackupState::Foreign {
            shown: Some(shown), ..
        } => shown.header.set.as_bytes() == set,
        BackupState::Unknown { .. } => true,
        _ => entry.label == *label,
    }
}

fn has(
    (label, set): (&Label, &[u8; 16]),
    others: &[(String, Listing)],
    (shelf, expired): (&Shelf, &ExpireReport),
    (places, context): (&[Folder], &Context),
) -> Has {
    let is_it = |entry: &BackupEntry| may_be(entry, (label, set));
    for (target, listing) in others {
        if listing.sets.iter().any(is_it) {
            return Has::Listed(format!("target {target}"));
        }
    }
    let here = expired.listing.sets.iter().zip(&expired.fates);
    let mut here = here.filter(|(_, fate)| **fate != Fate::Removed);
    if let Some((entry, _)) = here.find(|(entry, _)| entry.label != *label && is_it(entry)) {
        return Has::Listed(format!("{} of target {}", entry.label, shelf.target.name));
    }
    for place in places {
        match place.holders(set) {
            Ok(holders) => {
                if let Some(holder) = holders.first() {
                    return Has::Marked(format!("{} says that {holder} has it", place.name()));
                }
            }
            Err(error) => {
                let error = Failure::from(error).text;
                return Has::Marked(format!(
                    "{} cannot be asked who else has it: {error}",
                    place.name()
                ));
            }
        }
    }
    let copies = context.config.copies_of(&shelf.database);
    let bare = |(target, listing): &&(String, Listing)| {
        listing.sets.is_empty() && copies.iter().any(|copy| copy == target)
    };
    // Backups that were copied before there were marks.
    match others.iter().find(bare) {
        Some((target, _)) => Has::Marked(format!(
            "copies go to target {target}, and nothing is there now: its disk may not be mounted"
        )),
        None => Has::Nobody,
    }
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
    let all = key_places::all(context, &[])?;
    let (shredded, sets): (Vec<_>, Vec<_>) =
        sets.into_iter().partition(|set| is_shredded(set, &all));
    for set in &shredded {
        context.output.note(&format!(
            "set {} was shredded: no key of it is copied",
            Uuid::from_bytes(*set)
        ));
    }
    for set in &sets {
        let has = |place: &&Folder| place.objects(set).is_ok_and(|names| !names.is_empty());
        let having: Vec<Folder> = all.iter().filter(has).cloned().collect();
        hold(set, &having, (target, context));
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
    let mut brought = 0;
    for set in sets {
        let objects = found(&all, &set).objects.into_iter();
        let is_object =
            |bytes: &Vec<u8>| KeyObject::decode(bytes).is_ok_and(|object| object.set == set);
        for bytes in objects.filter(is_object) {
            let name = ObjectName::of(&set, &bytes);
            if have_all(&own, &name) {
                continue;
            }
            own.iter()
                .try_for_each(|place| place.write(&name, &bytes))?;
            brought += 1;
        }
        hold(&set, &own, (target, context));
    }
    Ok(brought)
}

/// Whether a mark says that somebody destroyed the keys of the set on purpose: what is left of them is not multiplied.
pub fn is_shredded(set: &[u8; 16], places: &[Folder]) -> bool {
    let marked = |place: &Folder| place.shredded(set).is_ok_and(|mark| mark.is_some());
    places.iter().any(marked)
}
