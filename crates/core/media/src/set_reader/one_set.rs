//! The stripes that hold one backup set, of those that agree in media set and generation, and the missing ones.
//!
//! Invariants
//! - All stripes that are read hold one set, as far as their set headers can be read.
//! - Of two sets that could be read, none is chosen: the caller names the stripes of one.
//!
//! Leaves to others: whether enough stripes are left (`set_reader.rs`).

use uuid::Uuid;

use crate::error::Error;
use crate::header::MediaHeader;
use crate::member::Member;

/// A device whose stripe belongs to another backup set.
pub(super) struct Stranger {
    pub device_index: usize,
    pub name: String,
    pub why: String,
}

/// A set's stripes, the devices of others, and its identifier.
type OneSet = (Vec<Member>, Vec<Stranger>, Option<Uuid>);

/// The stripes of the set that most of them hold, and its identifier. Media that were copied, and then written at both places,
/// agree in the media set and its generation, and hold different sets: the others are strangers, and nobody may replace them.
/// `enough`: stripes that make a set readable.
///
/// Errors: [`Error::WrittenApart`] if another set is held as often, or could be read as well.
pub(super) fn of_one_set(members: Vec<Member>, enough: usize) -> Result<OneSet, Error> {
    let sets: Vec<Option<Uuid>> = members.iter().map(Member::set_uuid).collect();
    let count = |set: &Uuid| sets.iter().filter(|other| **other == Some(*set)).count();
    let set = sets.iter().flatten().copied().max_by_key(count);
    let Some(set) = set else {
        return Ok((members, Vec::new(), None));
    };
    let is_rival =
        |other: &Uuid| *other != set && (count(other) >= enough || count(other) == count(&set));
    if let Some(rival) = sets.iter().flatten().copied().find(is_rival) {
        let held_by = |set: Uuid| {
            let held = members
                .iter()
                .zip(&sets)
                .filter(|(_, held)| **held == Some(set));
            held.map(|(member, _)| member.device.clone()).collect()
        };
        return Err(Error::WrittenApart {
            first: held_by(set),
            first_set: set,
            second: held_by(rival),
            second_set: rival,
        });
    }
    let (mut own, mut strangers) = (Vec::new(), Vec::new());
    for (member, held) in members.into_iter().zip(&sets) {
        match (member.device_index, held) {
            (Some(device_index), Some(held)) if *held != set => {
                let why = format!("it holds backup set {held}, and others hold {set}");
                strangers.push(Stranger {
                    device_index,
                    name: member.device,
                    why,
                });
            }
            _ => own.push(member),
        }
    }
    Ok((own, strangers, Some(set)))
}

/// The families that no stripe has.
pub(super) fn missing(members: &[Member], header: &MediaHeader) -> Vec<u16> {
    (1..=header.all_count())
        .filter(|f| members.iter().all(|m| m.header.family != *f))
        .collect()
}
