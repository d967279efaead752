//! S3-FIFO: a small queue for new slots, a main queue for those used there, ghosts of the others.
//!
//! Invariants
//! - A slot is in one of the two queues or a ghost, never two of these.
//! - A ghost that returns goes to the main queue. There are at most as many ghosts as the main queue has room for.
//! - The search for a victim ends: a slot leaves the small queue once, and each round of the main one lowers all
//!   counts.
//!
//! Leaves to others: evicting when there is no room (the owner, see [`Base`]), and what a copy is worth (`valued.rs`).
//!
//! Source: Yang et al., SOSP 2023, with its 10 % and its counters up to 3.

use super::super::Slot;
use super::base::{Base, Residents};
use super::queue::{Queue, chained};

/// Uses are counted up to here.
const USES_MAX: u8 = 3;
/// With this many uses in the small queue, a slot goes to the main one.
const USES_TO_STAY: u8 = 2;

pub struct S3Fifo {
    small: Queue,
    main: Queue,
    ghosts: Queue,
    slots: usize,
}

impl S3Fifo {
    pub fn new(slots: usize) -> S3Fifo {
        S3Fifo {
            small: Queue::default(),
            main: Queue::default(),
            ghosts: Queue::default(),
            slots,
        }
    }

    fn small_goes(&self) -> bool {
        self.small.len() > 0
            && (self.small.len() >= (self.slots / 10).max(1) || self.main.len() == 0)
    }

    /// Moves slots that earned to stay, until the next victim is one that did not.
    fn settle(&mut self) {
        // Terminates: a slot leaves the small queue once, and each round of the main one lowers all counts.
        loop {
            let small = self.small_goes();
            let queue = if small {
                &mut self.small
            } else {
                &mut self.main
            };
            let Some(back) = queue.back() else { return };
            let uses = queue.mark(back).map_or(0, |mark| *mark);
            if small && uses >= USES_TO_STAY {
                self.small.remove(back);
                self.main.push_front(back);
            } else if !small && uses > 0 {
                self.main.refresh(back);
                if let Some(mark) = self.main.mark(back) {
                    *mark = uses - 1;
                }
            } else {
                return;
            }
        }
    }
}

impl Residents for S3Fifo {
    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn contains(&self, slot: Slot) -> bool {
        self.small.contains(slot) || self.main.contains(slot)
    }

    fn order(&self) -> Vec<Slot> {
        chained([&self.small, &self.main]).collect()
    }
}

impl Base for S3Fifo {
    fn touch(&mut self, slot: Slot) {
        let mark = match self.small.mark(slot) {
            Some(mark) => Some(mark),
            None => self.main.mark(slot),
        };
        if let Some(mark) = mark {
            *mark = (*mark + 1).min(USES_MAX);
        }
    }

    fn wants(&mut self, _slot: Slot) -> bool {
        true
    }

    fn victims(&mut self, _incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        self.settle();
        let (queue, stays) = match self.small_goes() {
            true => (&self.small, USES_TO_STAY),
            false => (&self.main, 1),
        };
        let going = queue.oldest_first().take(4 * count);
        let going = going.filter(|(_, uses)| *uses < stays).take(count);
        out.extend(going.map(|(slot, _)| slot));
    }

    fn evict(&mut self, slot: Slot, _incoming: Option<Slot>) {
        if self.small.remove(slot) {
            self.ghosts.push_front(slot);
            while self.ghosts.len() > (self.slots - self.slots / 10).max(1) {
                self.ghosts.pop_back();
            }
        } else {
            self.main.remove(slot);
        }
    }

    fn insert(&mut self, slot: Slot) {
        if self.contains(slot) {
            return;
        }
        match self.ghosts.remove(slot) {
            true => self.main.push_front(slot),
            false => self.small.push_front(slot),
        }
    }

    fn forget(&mut self, slot: Slot) {
        self.small.remove(slot);
        self.main.remove(slot);
    }

    fn resize(&mut self, slots: usize) {
        self.slots = slots.max(1);
    }
}
