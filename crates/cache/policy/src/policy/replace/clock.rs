//! CLOCK, as a queue: a slot that reaches the back and was used since its last visit goes to the front again.
//!
//! Source: Corbató, 1968; the queue is the clock's circle, its back the hand.

use super::super::Slot;
use super::queue::Queue;
use super::single::Single;

#[derive(Default)]
pub struct Clock {
    /// Marked 1: used.
    queue: Queue,
}

impl Single for Clock {
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
}
