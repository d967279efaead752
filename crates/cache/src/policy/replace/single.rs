//! What lists of one queue have in common: everything but what a use changes and who goes next.

use super::queue::{Queue, chained};
use super::{Base, Slot};

/// A list that is one queue. It is a [`Base`] by that.
pub trait Single: Send {
    fn queue(&self) -> &Queue;

    fn queue_mut(&mut self) -> &mut Queue;

    /// As [`Base::touch`].
    fn used(&mut self, slot: Slot);

    /// As [`Base::victims`], whoever comes in.
    fn next_to_go(&mut self, count: usize, out: &mut Vec<Slot>);

    /// A slot goes, for whatever reason.
    fn leave(&mut self, slot: Slot) {
        self.queue_mut().remove(slot);
    }
}

impl<List: Single> Base for List {
    fn len(&self) -> usize {
        self.queue().len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.queue().contains(slot)
    }

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
        self.queue_mut().push_front(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.leave(slot);
    }

    fn resize(&mut self, _slots: usize) {}

    fn order(&self) -> Vec<Slot> {
        chained([self.queue()]).collect()
    }
}
