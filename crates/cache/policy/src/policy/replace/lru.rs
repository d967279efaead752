//! Least recently used.

use super::super::Slot;
use super::queue::{Queue, chained};
use super::single::Single;

#[derive(Default)]
pub struct Lru {
    queue: Queue,
}

impl Single for Lru {
    fn queue(&self) -> &Queue {
        &self.queue
    }

    fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn used(&mut self, slot: Slot) {
        self.queue.refresh(slot);
    }

    fn next_to_go(&mut self, count: usize, out: &mut Vec<Slot>) {
        out.extend(chained([&self.queue]).take(count));
    }
}
