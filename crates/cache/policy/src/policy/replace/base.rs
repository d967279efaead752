//! The contract of a base list.

use super::super::Slot;

/// The slots that a base knows to be resident. All methods only look.
pub trait Residents {
    /// Slots that are resident.
    fn len(&self) -> usize;

    /// Whether the slot was inserted, and not evicted or forgotten since.
    fn contains(&self, slot: Slot) -> bool;

    /// All resident slots, roughly in the order of eviction.
    fn order(&self) -> Vec<Slot>;
}

/// A replacement policy over slots.
///
/// Its owner asks `wants` for a slot that is not resident. If the slot may come in and there is no room, the owner
/// takes one of `victims`, `evict`s it and `insert`s the new slot. A call with a slot in the wrong state is an error
/// of the owner and changes nothing. No call fails. The tests in `contract.rs` check this text for every base.
pub trait Base: Residents + Send {
    /// A resident slot was used.
    fn touch(&mut self, slot: Slot);

    /// May this slot come in? It is not resident, was requested, and would be filled.
    fn wants(&mut self, slot: Slot) -> bool;

    /// Adds up to `count` resident slots to `out`, the preferred victim for `incoming` first. May move entries as the
    /// policy does to find it; a second call in a row returns the same.
    fn victims(&mut self, incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>);

    /// Evicts a resident slot to make room for `incoming`; it may leave a ghost.
    fn evict(&mut self, slot: Slot, incoming: Option<Slot>);

    /// Admits a slot. There is room.
    fn insert(&mut self, slot: Slot);

    /// Drops a resident slot whose content is void, without a ghost.
    fn forget(&mut self, slot: Slot);

    /// Sets the number of slots, 1 or more; the owner evicts the excess.
    fn resize(&mut self, slots: usize);
}
