//! 2Q: new slots wait in a queue; only a slot requested again after it left that queue is kept by recency.
//!
//! Source: Johnson and Shasha, VLDB 1994, the full version with its 25 % and 50 %.

use super::super::Slot;
use super::base::{Base, Residents};
use super::queue::{Queue, chained};

pub struct TwoQ {
    /// New, in order of arrival.
    new: Queue,
    /// Proven, by recency.
    proven: Queue,
    /// Not resident: recently left `new`.
    ghosts: Queue,
    slots: usize,
}

impl TwoQ {
    pub fn new(slots: usize) -> TwoQ {
        TwoQ {
            new: Queue::default(),
            proven: Queue::default(),
            ghosts: Queue::default(),
            slots,
        }
    }

    fn new_goes(&self) -> bool {
        self.new.len() > self.slots / 4 || self.proven.len() == 0
    }
}

impl Residents for TwoQ {
    fn len(&self) -> usize {
        self.new.len() + self.proven.len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.new.contains(slot) || self.proven.contains(slot)
    }

    fn order(&self) -> Vec<Slot> {
        chained([&self.new, &self.proven]).collect()
    }
}

impl Base for TwoQ {
    fn touch(&mut self, slot: Slot) {
        self.proven.refresh(slot);
    }

    fn wants(&mut self, _slot: Slot) -> bool {
        true
    }

    fn victims(&mut self, _incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        let lists = match self.new_goes() {
            true => [&self.new, &self.proven],
            false => [&self.proven, &self.new],
        };
        out.extend(chained(lists).take(count));
    }

    fn evict(&mut self, slot: Slot, _incoming: Option<Slot>) {
        if self.new.remove(slot) {
            self.ghosts.push_front(slot);
            while self.ghosts.len() > (self.slots / 2).max(1) {
                self.ghosts.pop_back();
            }
        } else {
            self.proven.remove(slot);
        }
    }

    fn insert(&mut self, slot: Slot) {
        if self.contains(slot) {
            return;
        }
        match self.ghosts.remove(slot) {
            true => self.proven.push_front(slot),
            false => self.new.push_front(slot),
        }
    }

    fn forget(&mut self, slot: Slot) {
        self.new.remove(slot);
        self.proven.remove(slot);
    }

    fn resize(&mut self, slots: usize) {
        self.slots = slots.max(1);
    }
}
