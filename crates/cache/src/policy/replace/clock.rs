//! CLOCK, as a queue: what comes to the back and was used since it was last seen goes to the front again.
//!
//! Source: Corbató, 1968; the queue is the clock's circle, its back the hand.

use super::queue::Queue;
use super::{Base, Slot};

#[derive(Default)]
pub struct Clock {
    /// Marked 1: used.
    queue: Queue,
}

impl Base for Clock {
    fn len(&self) -> usize {
        self.queue.len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.queue.contains(slot)
    }

    fn touch(&mut self, slot: Slot) {
        if let Some(mark) = self.queue.mark(slot) {
            *mark = 1;
        }
    }

    fn wants(&mut self, _slot: Slot) -> bool {
        true
    }

    fn victims(&mut self, _incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        // Ends after one round: every step clears a mark.
        while let Some(back) = self.queue.back() {
            match self.queue.mark(back) {
                Some(mark) if *mark > 0 => *mark = 0,
                _ => break,
            }
            self.queue.refresh(back);
        }
        let unused = self.queue.oldest_first().take(4 * count);
        let unused = unused.filter(|(_, mark)| *mark == 0).take(count);
        out.extend(unused.map(|(slot, _)| slot));
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
