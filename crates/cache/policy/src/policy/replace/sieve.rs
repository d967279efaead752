//! SIEVE: a queue whose entries never move, and a hand that walks from its back to its front and takes the first slot
//! that was not used since its last visit.
//!
//! Source: Zhang et al., NSDI 2024.

use super::super::Slot;
use super::queue::Queue;
use super::single::Single;

#[derive(Default)]
pub struct Sieve {
    /// Marked 1: used.
    queue: Queue,
    /// The hand's position; `None`: at the back.
    hand: Option<Slot>,
}

impl Single for Sieve {
    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn used(&mut self, slot: Slot) {
        self.queue.set_mark(slot, 1);
    }

    fn next_to_go(&mut self, count: usize, out: &mut Vec<Slot>) {
        // Terminates after two rounds: every step clears a mark.
        let mut at = self.hand.or(self.queue.back());
        while let Some(slot) = at {
            match self.queue.mark(slot) {
                Some(mark) if *mark > 0 => *mark = 0,
                _ => break,
            }
            at = self.queue.newer(slot).or(self.queue.back());
        }
        self.hand = at;
        let wanted = out.len() + count;
        for _ in 0..4 * count {
            let Some(slot) = at else { break };
            if self.queue.mark(slot).is_some_and(|mark| *mark == 0) {
                out.push(slot);
            }
            at = self.queue.newer(slot).or(self.queue.back());
            if out.len() == wanted || at == self.hand {
                break;
            }
        }
    }

    /// Moves the hand off a slot that leaves.
    fn leave(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.queue.newer(slot);
        }
        self.queue.remove(slot);
    }
}
