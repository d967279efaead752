//! The findings about backups with detached keys: whether each place of keys has them.
//!
//! Invariants
//! - A set that lost its keys in one place is a fault as long as it was not shredded: the other place is all that opens it.
//!
//! Leaves to others: what the places say (`key_places.rs` of the program).

use longshore_repository::Listing;

use super::notes::Notes;
use crate::commands::detached;
use crate::context::Context;
use crate::key_places::{KeyLook, KeyState};

/// The findings of a check about detached keys. `newest`: the last good backup.
pub fn look(
    listing: &Listing,
    newest: Option<&str>,
    (target, context): (&str, &Context),
    notes: &mut Notes,
) {
    let what = "keys";
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
        Err(failure) => return notes.bad(what, failure.text),
    };
    if places.len() == 1 {
        let text = format!(
            "{} alone has the keys of {} backups: who removes a small file there destroys one. Name a second place in `keys` of \
             [target.{target}], and run `longshore key rewrap`",
            places[0].name(),
            detached.len()
        );
        notes.look(what, text);
    }
    let mut good = 0;
    for (entry, set) in detached {
        let (label, look) = (&entry.label, KeyLook::of(&set, &places, &entry.objects));
        for why in &look.unread {
            notes.bad(
                what,
                format!("{label}: its keys cannot be looked at: {why}"),
            );
        }
        match look.state {
            KeyState::Missing => notes.bad(
                what,
                format!("{label}: its keys are detached, and no key object of it is left: nothing opens it"),
            ),
            KeyState::Shredded if newest == Some(label.as_str()) => notes.bad(
                what,
                format!("{label}, the last good backup, was shredded: make a full backup"),
            ),
            KeyState::Shredded => notes.look(what, format!("{label} {}", look.state.text())),
            KeyState::Detached if look.is_marked => notes.bad(
                what,
                format!("{label} was shredded, and key objects of it are there again: run `longshore key shred {label} --yes`"),
            ),
            KeyState::Detached if !look.lacking.is_empty() => notes.bad(
                what,
                format!(
                    "{label}: {} lacks a key object that another place has: run `longshore key rewrap`, or copy the file there",
                    look.lacking.join(", ")
                ),
            ),
            KeyState::Detached => good += u64::from(look.unread.is_empty()),
            KeyState::Unknown if look.unread.is_empty() => notes.look(
                what,
                format!("{label}: its keys are detached, and no place of keys is configured here"),
            ),
            KeyState::Unknown => {}
        }
    }
    if good > 0 {
        notes.good(
            what,
            format!("{good} backups have their detached keys in each place"),
        );
    }
}
