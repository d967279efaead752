//! The findings about backups with detached keys: whether each place of keys has them.
//!
//! Invariants
//! - A set that lost its keys in one place is a fault as long as it was not shredded: the other place is all that opens it.
//!
//! Leaves to others: what the places say (`key_places.rs` of the program).

use longshore_media::Folder;
use longshore_repository::{BackupEntry, Listing};

use super::notes::{Finding, Notes};
use crate::commands::detached;
use crate::context::Context;
use crate::key_places::{self, KeyLook, KeyState};

const WHAT: &str = "keys";

/// The findings of a check about detached keys. `newest`: the last good backup.
pub fn look(
    listing: &Listing,
    newest: Option<&str>,
    (target, context): (&str, &Context),
    notes: &mut Notes,
) {
    let detached = listing
        .sets
        .iter()
        .filter_map(|e| Some((e, detached::set_of(e)?)));
    let detached: Vec<_> = detached.collect();
    if detached.is_empty() {
        return;
    }
    let places = match detached::places_of(target, context) {
        Ok(places) => places,
        Err(failure) => return notes.bad(WHAT, failure.text),
    };
    if places.len() == 1 {
        let text = format!(
            "{} alone has the keys of {} backups: who removes a small file there destroys one. Name a second place in `keys` of \
             [target.{target}], and run `longshore key rewrap`",
            places[0].name(),
            detached.len()
        );
        notes.look(WHAT, text);
    }
    let mut good = 0;
    for (entry, set) in detached {
        let look = KeyLook::of(&set, &places, &entry.objects);
        good += u64::from(judged(entry, &look, newest, notes));
    }
    if good > 0 {
        notes.good(
            WHAT,
            format!("{good} backups have their detached keys in each place"),
        );
    }
}

/// The findings about the detached keys of copies at the target `copy`.
pub fn of_copies(found: &Listing, (copy, context): (&str, &Context), notes: &mut Notes) {
    let sets = found.sets.iter();
    let detached: Vec<_> = sets
        .filter_map(|e| Some((e, detached::set_of(e)?)))
        .collect();
    if detached.is_empty() {
        return;
    }
    let places = match detached::places_of(copy, context) {
        Ok(places) => places,
        Err(failure) => return notes.bad(WHAT, format!("{copy}: {}", failure.text)),
    };
    let all = key_places::all(context, &[]).unwrap_or_default();
    // Without places of its own, the first target's have its keys, and these are judged there.
    let has_own = !key_places::texts_of(context, copy).is_empty();
    let mut own = Notes::default();
    for (entry, set) in detached {
        let look = KeyLook::of(&set, &places, &entry.objects);
        let elsewhere = || KeyLook::of(&set, &all, &entry.objects).state;
        if look.state == KeyState::Missing && elsewhere() == KeyState::Detached {
            // They open it, as long as its original's expire leaves them there.
            let text = format!(
                "{}: its keys are in places of other targets alone: run `longshore key rewrap --target {copy}`, or copy the files to {}",
                entry.label,
                places
                    .iter()
                    .map(Folder::name)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            own.look(WHAT, text);
        } else if has_own || look.state != KeyState::Detached {
            judged(entry, &look, None, &mut own);
        }
    }
    let (_, findings) = own.judged();
    for Finding { what, grade, text } in findings {
        notes.note(what, grade, format!("{copy}: {text}"));
    }
}

/// Tells what is wrong with the keys of one backup. Returns whether they are where they should be.
fn judged(entry: &BackupEntry, look: &KeyLook, newest: Option<&str>, notes: &mut Notes) -> bool {
    let label = &entry.label;
    for why in &look.unread {
        notes.bad(
            WHAT,
            format!("{label}: its keys cannot be looked at: {why}"),
        );
    }
    match look.state {
        KeyState::Missing => notes.bad(
            WHAT,
            format!("{label}: its keys are detached, and no key object of it is left: nothing opens it"),
        ),
        KeyState::Shredded if newest == Some(label.as_str()) => notes.bad(
            WHAT,
            format!("{label}, the last good backup, was shredded: make a full backup"),
        ),
        KeyState::Shredded => notes.look(WHAT, format!("{label} {}", look.state.text())),
        KeyState::Detached if look.is_marked => notes.bad(
            WHAT,
            format!("{label} was shredded, and key objects of it are there again: run `longshore key shred {label} --yes`"),
        ),
        KeyState::Detached if !look.lacking.is_empty() => notes.bad(
            WHAT,
            format!(
                "{label}: {} lacks a key object that another place has: run `longshore key rewrap`, or copy the file there",
                look.lacking.join(", ")
            ),
        ),
        KeyState::Detached => return look.unread.is_empty(),
        KeyState::Unknown if look.unread.is_empty() => notes.look(
            WHAT,
            format!("{label}: its keys are detached, and no place of keys is configured here"),
        ),
        KeyState::Unknown => {}
    }
    false
}
