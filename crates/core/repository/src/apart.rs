//! Whether the places of two targets are two, or one under two names: a server has several names, and a directory may be
//! mounted twice where the kernel does not tell.
//!
//! Invariants
//! - Two places are one only if a stripe of the same backup has the same length and the same time of its last change at
//!   both. A copy that was made in that moment, and one that a store replicated, have that, too: so a lease is written at one
//!   place and looked for at the other, and it alone decides.
//! - Nothing is written where no stripe raises the question.
//!
//! Leaves to others: places that are one by their names (`place.rs`), and leases (`lease.rs`).

use std::collections::BTreeMap;

use crate::Error;
use crate::label::Label;
use crate::lease::{Holder, Use};
use crate::place::{Found, Protection, Stamp};
use crate::shelf::{Listing, Shelf};

/// The question whether two places are one, where nothing could be written to answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The newest backup that looks the same at both.
    pub label: Label,
    /// Why nothing could be written.
    pub why: String,
}

type Stamps<'a> = BTreeMap<&'a Label, &'a [Stamp]>;

fn listed(listing: &Listing) -> Stamps<'_> {
    let sets = listing.sets.iter();
    sets.map(|set| (&set.label, &set.stamps[..])).collect()
}

fn found(found: &Found) -> Stamps<'_> {
    let labels = found.labels.iter();
    labels
        .map(|(label, files)| (label, &files.stamps[..]))
        .collect()
}

/// The newest backup of which both have a stripe of the same length and time.
fn newest_in_both(ours: &Stamps<'_>, theirs: &Stamps<'_>) -> Option<Label> {
    let is_same = |label: &Label, stamps: &[Stamp]| {
        let other = theirs.get(label).copied().unwrap_or_default();
        stamps.iter().any(|stamp| other.contains(stamp))
    };
    let both = ours.iter().filter(|(label, all)| is_same(label, all));
    both.map(|(label, _)| (*label).clone()).next_back()
}

impl Shelf {
    /// Makes sure that this place is not `other` under another name, by what was listed of both. `Some`: that could not be
    /// found out.
    ///
    /// Errors: `SamePlace`; those of a listing and of a lease.
    pub fn told_apart(
        &self,
        listing: &Listing,
        (other, theirs): (&Shelf, &Listing),
    ) -> Result<Option<Doubt>, Error> {
        match newest_in_both(&listed(listing), &listed(theirs)) {
            None => Ok(None),
            Some(label) => self.probed(other, label),
        }
    }

    /// The same, with a look at both.
    ///
    /// Errors: those of [`Shelf::told_apart`].
    pub fn looked_apart(&self, other: &Shelf) -> Result<Option<Doubt>, Error> {
        let (ours, theirs) = (self.place.look()?, other.place.look()?);
        match newest_in_both(&found(&ours), &found(&theirs)) {
            None => Ok(None),
            Some(label) => self.probed(other, label),
        }
    }

    /// Writes a lease at one place and looks for it at the other.
    fn probed(&self, other: &Shelf, label: Label) -> Result<Option<Doubt>, Error> {
        let (near, far) = match other.place.protect(&label) {
            // Somebody has removed it: that place was another one, or the next look will tell.
            Err(Error::NoSuchLabel { .. }) => return Ok(None),
            taken => match taken? {
                Protection::Held(hold) => (self, hold),
                Protection::Needless => return Ok(None),
                Protection::Impossible(why) => match self.place.protect(&label)? {
                    Protection::Held(hold) => (other, hold),
                    Protection::Needless => return Ok(None),
                    Protection::Impossible(_) => return Ok(Some(Doubt { label, why })),
                },
            },
        };
        let seen = near.place.look()?.labels.remove(&label);
        let us = Holder::anywhere(Use::Read);
        let is_us = |holder: &Holder| holder.is_same_process(&us);
        let is_one = seen.is_some_and(|files| files.holders.iter().any(is_us));
        drop(far);
        match is_one {
            false => Ok(None),
            true => Err(Error::SamePlace {
                one: self.target.name.clone(),
                other: other.target.name.clone(),
                place: self.place.home()?.display().to_string(),
            }),
        }
    }
}
