//! LARC: lazily adaptive; a slot is admitted when it is requested for a second time while the list of ghosts remembers
//! it. That list is shorter while hits are frequent, and longer while they are rare.
//!
//! Source: Huang et al., MSST 2013.

use super::super::Slot;
use super::base::{Base, Residents};
use super::queue::{Queue, chained};

pub struct Larc {
    queue: Queue,
    ghosts: Queue,
    slots: usize,
    ghosts_max: f64,
}

impl Larc {
    pub fn new(slots: usize) -> Larc {
        Larc {
            queue: Queue::default(),
            ghosts: Queue::default(),
            slots,
            ghosts_max: 0.1 * slots as f64,
        }
    }

    fn bounded(&self, ghosts: f64) -> f64 {
        let slots = self.slots as f64;
        ghosts.clamp((0.1 * slots).max(1.0), (0.9 * slots).max(1.0))
    }
}

impl Residents for Larc {
    fn len(&self) -> usize {
        self.queue.len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.queue.contains(slot)
    }

    fn order(&self) -> Vec<Slot> {
        chained([&self.queue]).collect()
    }
}

impl Base for Larc {
    fn touch(&mut self, slot: Slot) {
        if self.queue.refresh(slot) {
            let slots = self.slots as f64;
            let less = slots / (slots - self.ghosts_max).max(1.0);
            self.ghosts_max = self.bounded(self.ghosts_max - less);
        }
    }

    fn wants(&mut self, slot: Slot) -> bool {
        let more = self.slots as f64 / self.ghosts_max.max(1.0);
        self.ghosts_max = self.bounded(self.ghosts_max + more);
        if self.ghosts.contains(slot) {
            return true;
        }
        self.ghosts.push_front(slot);
        while self.ghosts.len() as f64 > self.ghosts_max {
            self.ghosts.pop_back();
        }
        false
    }

    fn victims(&mut self, _incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        out.extend(chained([&self.queue]).take(count));
    }

    fn evict(&mut self, slot: Slot, _incoming: Option<Slot>) {
        self.queue.remove(slot);
    }

    fn insert(&mut self, slot: Slot) {
        if self.contains(slot) {
            return;
        }
        self.ghosts.remove(slot);
        self.queue.push_front(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.queue.remove(slot);
    }

    fn resize(&mut self, slots: usize) {
        self.slots = slots.max(1);
        self.ghosts_max = self.bounded(self.ghosts_max);
    }
}
