//! The common part of lists with one queue: everything except the effect of a use and the choice of victims.

use super::super::Slot;
use super::base::{Base, Residents};
use super::queue::{Queue, chained};

/// A list that is one queue; this makes it a [`Base`], whose tests check it.
pub trait Single: Send {
    /// All resident slots; nothing else is in it.
    fn queue(&self) -> &Queue;

    /// The same, for the common part's changes.
    fn queue_mut(&mut self) -> &mut Queue;

    /// As [`Base::touch`].
    fn used(&mut self, slot: Slot);

    /// As [`Base::victims`], for any incoming slot.
    fn next_to_go(&mut self, count: usize, out: &mut Vec<Slot>);

    /// A slot leaves, for any reason.
    fn leave(&mut self, slot: Slot) {
        self.queue_mut().remove(slot);
    }
}

impl<List: Single> Residents for List {
    fn len(&self) -> usize {
        self.queue().len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.queue().contains(slot)
    }

    fn order(&self) -> Vec<Slot> {
        chained([self.queue()]).collect()
    }
}

impl<List: Single> Base for List {
    fn touch(&mut self, slot: Slot) {
        self.used(slot);
    }

    fn wants(&mut self, _slot: Slot) -> bool {
        true
    }

    fn victims(&mut self, _incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        self.next_to_go(count, out);
    }

    fn evict(&mut self, slot: Slot, _incoming: Option<Slot>) {
        self.leave(slot);
    }

    fn insert(&mut self, slot: Slot) {
        if !self.contains(slot) {
            self.queue_mut().push_front(slot);
        }
    }

    fn forget(&mut self, slot: Slot) {
        self.leave(slot);
    }

    fn resize(&mut self, _slots: usize) {}
}
