//! ARC: one list for slots requested once, one for slots requested again, and ghosts of both, which move the border
//! between them.
//!
//! Invariants
//! - A slot is in one of the four lists, or in none.
//! - Slots requested once and their ghosts are at most as many as there are slots; all lists together at most twice as
//!   many.
//!
//! Leaves to others: evicting when there is no room (the owner, see [`Base`]), and what a copy is worth (`valued.rs`).
//!
//! Source: Megiddo and Modha, FAST 2003, figure 4.

use super::super::Slot;
use super::base::{Base, Residents};
use super::queue::{Queue, chained};

pub struct Arc {
    once: Queue,
    again: Queue,
    once_ghosts: Queue,
    again_ghosts: Queue,
    /// The target length of `once`.
    target: f64,
    slots: usize,
}

impl Arc {
    pub fn new(slots: usize) -> Arc {
        Arc {
            once: Queue::default(),
            again: Queue::default(),
            once_ghosts: Queue::default(),
            again_ghosts: Queue::default(),
            target: 0.0,
            slots,
        }
    }

    /// Whether the next victim comes from `once`.
    fn once_goes(&self, incoming: Option<Slot>) -> bool {
        let once = self.once.len() as f64;
        let returns = incoming.is_some_and(|slot| self.again_ghosts.contains(slot));
        let known = returns || incoming.is_some_and(|slot| self.once_ghosts.contains(slot));
        if self.again.len() == 0 || (!known && self.once.len() >= self.slots) {
            return true;
        }
        self.once.len() > 0 && (once > self.target || (returns && once == self.target))
    }

    fn trim(&mut self) {
        while self.once.len() + self.once_ghosts.len() > self.slots {
            if self.once_ghosts.pop_back().is_none() {
                break;
            }
        }
        let all = |arc: &Arc| arc.len() + arc.once_ghosts.len() + arc.again_ghosts.len();
        while all(self) > 2 * self.slots {
            if self.again_ghosts.pop_back().is_none() {
                break;
            }
        }
    }
}

impl Residents for Arc {
    fn len(&self) -> usize {
        self.once.len() + self.again.len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.once.contains(slot) || self.again.contains(slot)
    }

    fn order(&self) -> Vec<Slot> {
        chained([&self.once, &self.again]).collect()
    }
}

impl Base for Arc {
    fn touch(&mut self, slot: Slot) {
        if self.once.remove(slot) {
            self.again.push_front(slot);
        } else {
            self.again.refresh(slot);
        }
    }

    fn wants(&mut self, slot: Slot) -> bool {
        let (once, again) = (
            self.once_ghosts.len() as f64,
            self.again_ghosts.len() as f64,
        );
        if self.once_ghosts.contains(slot) {
            self.target = (self.target + (again / once).max(1.0)).min(self.slots as f64);
        } else if self.again_ghosts.contains(slot) {
            self.target = (self.target - (once / again).max(1.0)).max(0.0);
        }
        true
    }

    fn victims(&mut self, incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        let lists = match self.once_goes(incoming) {
            true => [&self.once, &self.again],
            false => [&self.again, &self.once],
        };
        out.extend(chained(lists).take(count));
    }

    fn evict(&mut self, slot: Slot, incoming: Option<Slot>) {
        let known =
            incoming.is_some_and(|s| self.once_ghosts.contains(s) || self.again_ghosts.contains(s));
        // With `once` alone in the cache, its ghosts would carry no information.
        let traceless = !known && self.once.len() >= self.slots;
        if self.once.remove(slot) {
            if !traceless {
                self.once_ghosts.push_front(slot);
            }
        } else if self.again.remove(slot) {
            self.again_ghosts.push_front(slot);
        }
    }

    fn insert(&mut self, slot: Slot) {
        if self.contains(slot) {
            return;
        }
        let known = self.once_ghosts.remove(slot) | self.again_ghosts.remove(slot);
        match known {
            true => self.again.push_front(slot),
            false => self.once.push_front(slot),
        }
        self.trim();
    }

    fn forget(&mut self, slot: Slot) {
        self.once.remove(slot);
        self.again.remove(slot);
    }

    fn resize(&mut self, slots: usize) {
        self.slots = slots.max(1);
        self.target = self.target.min(self.slots as f64);
        self.trim();
    }
}
