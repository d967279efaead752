//! Least recently used.

use super::queue::Queue;
use super::{Base, Slot};

#[derive(Default)]
pub struct Lru {
    queue: Queue,
}

impl Base for Lru {
    fn len(&self) -> usize {
        self.queue.len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.queue.contains(slot)
    }

    fn touch(&mut self, slot: Slot) {
        self.queue.refresh(slot);
    }

    fn wants(&mut self, _slot: Slot) -> bool {
        true
    }

    fn victims(&mut self, _incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        out.extend(self.queue.oldest_first().take(count).map(|(slot, _)| slot));
    }

    fn evict(&mut self, slot: Slot, _incoming: Option<Slot>) {
        self.queue.remove(slot);
    }

    fn insert(&mut self, slot: Slot) {
        self.queue.push_front(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.queue.remove(slot);
    }

    fn resize(&mut self, _slots: usize) {}

    fn order(&self) -> Vec<Slot> {
        self.queue.oldest_first().map(|(slot, _)| slot).collect()
    }
}
