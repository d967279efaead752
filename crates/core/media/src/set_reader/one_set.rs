//! The stripes that hold one backup set, of those that agree in media set and generation, and the missing ones.
//!
//! Invariants
//! - All stripes that are read hold one set, as far as their set headers can be read.
//! - Stripes are of one media set and one generation, each family once.
//! - Of two sets that could be read, none is chosen: the caller names the stripes of one.
//!
//! Leaves to others: whether enough stripes are left (`set_reader.rs`).

use uuid::Uuid;

use crate::error::Error;
use crate::header::MediaHeader;
use crate::member::Member;
use crate::record::RecordError;

/// Media set and generation, by which stripes know each other.
pub(super) type MediaIdentity = (Uuid, u32);

pub(super) fn identity(header: &MediaHeader) -> MediaIdentity {
    (header.media_set, header.generation)
}

pub(super) fn spell((set, generation): MediaIdentity) -> String {
    if generation == 0 {
        set.to_string()
    } else {
        format!("{set} (generation {generation})")
    }
}

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

/// The stripes in the order of their families, if all are of one media set.
///
/// Errors: [`Error::DeviceCount`] if there is none, [`Error::Foreign`], [`Error::FamilyTwice`], and [`Error::Damaged`] for one that
/// is otherwise than the others.
pub(super) fn agreeing(mut members: Vec<Member>) -> Result<Vec<Member>, Error> {
    let Some(first) = members.first() else {
        return Err(Error::DeviceCount { given: 0 });
    };
    let expected = identity(&first.header);
    let counts = |header: &MediaHeader| (header.family_count, header.parity_count);
    // Parity stripes have a container of their own.
    let kind = |header: &MediaHeader| {
        let container = (!header.is_parity()).then_some(header.container);
        (container, header.compressed, header.encrypted)
    };
    let data = members.iter().find(|m| !m.header.is_parity());
    let data = data.map(|m| kind(&m.header));
    for member in &members[1..] {
        let found = identity(&member.header);
        if found != expected || counts(&member.header) != counts(&first.header) {
            return Err(Error::Foreign {
                device: member.device.clone(),
                other: first.device.clone(),
                found: spell(found),
                expected: spell(expected),
            });
        }
        // The first family's header decides what may be appended to all of them.
        let is_alike = match member.header.is_parity() {
            true => {
                member.header.compressed == first.header.compressed
                    && member.header.encrypted == first.header.encrypted
            }
            false => Some(kind(&member.header)) == data,
        };
        if !is_alike {
            let offset = member.header.container.preamble().len() as u64;
            return Err(member.damaged(offset, RecordError::Field));
        }
    }
    members.sort_by_key(|m| m.header.family);
    if let Some(w) = members
        .windows(2)
        .find(|w| w[0].header.family == w[1].header.family)
    {
        return Err(Error::FamilyTwice {
            first: w[0].device.clone(),
            second: w[1].device.clone(),
            family: w[0].header.family,
        });
    }
    Ok(members)
}
