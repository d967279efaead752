//! SIEVE: a queue that nothing moves in, and a hand that walks from its back to its front and takes the first slot
//! that was not used since it last came by.
//!
//! Source: Zhang et al., NSDI 2024.

use super::queue::Queue;
use super::{Base, Slot};

#[derive(Default)]
pub struct Sieve {
    /// Marked 1: used.
    queue: Queue,
    /// Where the hand stands; `None`: at the back.
    hand: Option<Slot>,
}

impl Sieve {
    /// The hand leaves a slot that goes.
    fn leave(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.queue.newer(slot);
        }
        self.queue.remove(slot);
    }
}

impl Base for Sieve {
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
        // Ends after two rounds: every step clears a mark.
        let mut at = self.hand.or(self.queue.back());
        while let Some(slot) = at {
            match self.queue.mark(slot) {
                Some(mark) if *mark > 0 => *mark = 0,
                _ => break,
            }
            at = self.queue.newer(slot).or(self.queue.back());
        }
        self.hand = at;
        for _ in 0..4 * count {
            let Some(slot) = at else { break };
            if self.queue.mark(slot).is_some_and(|mark| *mark == 0) {
                out.push(slot);
            }
            at = self.queue.newer(slot).or(self.queue.back());
            if out.len() == count || at == self.hand {
                break;
            }
        }
    }

    fn evict(&mut self, slot: Slot, _incoming: Option<Slot>) {
        self.leave(slot);
    }

    fn insert(&mut self, slot: Slot) {
        self.queue.push_front(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.leave(slot);
    }

    fn resize(&mut self, _slots: usize) {}

    fn order(&self) -> Vec<Slot> {
        self.queue.oldest_first().map(|(slot, _)| slot).collect()
    }
}
