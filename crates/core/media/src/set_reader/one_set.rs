//! The stripes that hold one backup set, of those that agree in media set and generation, and the missing ones.
//!
//! Invariants
//! - All stripes that are read hold one set, as far as their set headers can be read.
//!
//! Leaves to others: whether enough stripes are left (`set_reader.rs`).

use uuid::Uuid;

use crate::header::MediaHeader;
use crate::member::Member;

/// A device whose stripe belongs to another backup set.
pub(super) struct Stranger {
    pub device_index: usize,
    pub name: String,
    pub why: String,
}

/// The stripes of the set that most of them hold, and its identifier. Media that were copied, and then written at both places,
/// agree in the media set and its generation, and hold different sets: the others are strangers, and nobody may replace them.
pub(super) fn of_one_set(members: Vec<Member>) -> (Vec<Member>, Vec<Stranger>, Option<Uuid>) {
    let sets: Vec<Option<Uuid>> = members.iter().map(Member::set_uuid).collect();
    let count = |set: Uuid| sets.iter().filter(|other| **other == Some(set)).count();
    // Of several that are held as often, the first.
    let set = sets
        .iter()
        .flatten()
        .copied()
        .rev()
        .max_by_key(|set| count(*set));
    let (mut own, mut strangers) = (Vec::new(), Vec::new());
    for (member, held) in members.into_iter().zip(&sets) {
        match (member.device_index, held) {
            (Some(device_index), Some(held)) if Some(*held) != set => {
                let why = format!("it holds backup set {held}, and others hold another one");
                strangers.push(Stranger {
                    device_index,
                    name: member.device,
                    why,
                });
            }
            _ => own.push(member),
        }
    }
    (own, strangers, set)
}

/// The families that no stripe has.
pub(super) fn missing(members: &[Member], header: &MediaHeader) -> Vec<u16> {
    (1..=header.all_count())
        .filter(|f| members.iter().all(|m| m.header.family != *f))
        .collect()
}
