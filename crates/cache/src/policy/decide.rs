//! The policy as its driver sees it: one filter and one replacement list behind one door.

use std::ops::RangeInclusive;

use crate::model::Nanos;

use super::filter::{self, Asked, Filter};
use super::replace::{Fill, Valued};
use super::streams::Streams;
use super::{Choice, Ended, Gauges, Outlook, Place, Read, ReadPlan, Slot, View, Write, WritePlan};

/// See the module. All calls are quick and none blocks.
pub struct Policy {
    filter: Box<dyn Filter>,
    content: Valued,
    streams: Streams,
    slot_bytes: u64,
    shares: bool,
    saved_us: f64,
    missed: Missed,
}

impl Policy {
    /// A policy for a cache of so many `slots` of `slot_bytes` (both 1 or more), empty at first. What it is told of
    /// the devices it takes for a first guess.
    pub fn new(
        choice: Choice,
        fast: Outlook,
        slow: Outlook,
        slots: usize,
        slot_bytes: u64,
    ) -> Policy {
        Policy {
            filter: filter::build(choice.filter, fast, slow),
            content: Valued::new(choice.base, slots, choice.valued, choice.frequent),
            streams: Streams::default(),
            slot_bytes: slot_bytes.max(1),
            shares: choice.shares,
            saved_us: 0.0,
            missed: Missed::default(),
        }
    }

    /// The slots that a range touches.
    pub fn slots_of(&self, offset: u64, len: u64) -> impl Iterator<Item = Slot> + use<> {
        let (first, last) = self.numbers_of(offset, len);
        (first..=last).map(Slot)
    }

    fn numbers_of(&self, offset: u64, len: u64) -> (u64, u64) {
        let last = offset.saturating_add(len.max(1) - 1);
        (offset / self.slot_bytes, last / self.slot_bytes)
    }

    /// Where to serve a client's read, and whether to fill.
    pub fn read(&mut self, view: &View, read: Read) -> ReadPlan {
        let asked = Asked {
            len: read.len,
            held_bytes: read.held_bytes.min(read.len),
            run_bytes: self.streams.follow(read.offset, read.len),
        };
        let plan = ReadPlan {
            join: self.shares,
            ..self.filter.read(view, &asked)
        };
        let saved = self.filter.saved_us(view, &asked);
        let (first, last) = self.numbers_of(read.offset, read.len);
        let sides = self.filter.sides();
        let slot = self.slot_bytes as f64;
        let fill = Fill {
            delay: (1000.0 * sides.slow.loaded_us(read.len, view.slow)) as u64,
            us: (sides.fast.write_harm_us * slot) as f32,
        };
        self.content.read(first..=last, saved, view.now, fill);
        if plan.admit {
            self.missed.note(first..=last, saved);
        }
        if plan.fast_bytes > 0 {
            self.saved_us += saved * plan.fast_bytes as f64 / read.len.max(1) as f64;
        }
        plan
    }

    /// Whether the cache keeps a copy of a client's write.
    pub fn write(&mut self, view: &View, write: Write) -> WritePlan {
        for slot in self.slots_of(write.offset, write.len) {
            self.content.touch_unvalued(slot);
        }
        self.filter.write(view, &write)
    }

    /// A plan said to fill, and this slot is next. `read_bytes` of it are wanted; `may_go` says whether a slot can be
    /// let go now: the driver refuses those that it reads or writes.
    pub fn place(
        &mut self,
        view: &View,
        slot: Slot,
        read_bytes: u64,
        may_go: &mut dyn FnMut(Slot) -> bool,
    ) -> Place {
        if self.content.contains(slot) {
            return Place::Here;
        }
        let asked = Asked {
            len: read_bytes.max(1),
            held_bytes: 0,
            run_bytes: 0,
        };
        let own = || self.filter.saved_us(view, &asked) as f32;
        let saved = self.missed.share_of(slot.0).unwrap_or_else(own);
        match self.content.place(slot, saved, may_go) {
            Ok(None) => Place::Here,
            Ok(Some(victim)) => Place::Evicting(victim),
            Err(_) => Place::Refused,
        }
    }

    /// A slot's content is void: it is not resident any more.
    pub fn dropped(&mut self, slot: Slot) {
        self.content.forget(slot);
    }

    /// A part of a request has ended on one side.
    pub fn ended(&mut self, ended: &Ended) {
        self.filter.ended(ended);
    }

    /// From now on there may be so many slots; while there are more, the driver calls [`Policy::evict`].
    pub fn resize(&mut self, slots: usize) {
        self.content.resize(slots);
    }

    /// Lets the least useful slot go, if one can; `None` when there are none, or none may.
    pub fn evict(&mut self, may_go: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.content.evict(may_go)
    }

    /// How many slots there may be.
    pub fn slots(&self) -> usize {
        self.content.slots()
    }

    /// How many slots are resident.
    pub fn resident(&self) -> usize {
        self.content.len()
    }

    /// All resident slots, roughly those first that would go first: what a warm restart, or another policy, is given
    /// one by one with [`Policy::restore`].
    pub fn order(&self) -> Vec<Slot> {
        self.content.order()
    }

    /// A slot that was resident before a restart is again; false if there is no room.
    pub fn restore(&mut self, slot: Slot) -> bool {
        self.content.restore(slot)
    }

    /// The time that this policy takes for some forty of its steps; 0: it takes none. Progress over shorter times
    /// says nothing about whether it still moves.
    pub fn pace(&self) -> Nanos {
        self.filter.pace()
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            saved_us: self.saved_us,
            ..self.filter.gauges()
        }
    }
}

/// Reads that are filled lately, and what a copy would have saved each of its slots: what a slot is worth depends on the
/// read that it belongs to.
struct Missed {
    reads: [(u64, u64, f32); MISSED],
    next: usize,
}

/// Fills follow their reads within about as many reads as there are clients.
const MISSED: usize = 64;

impl Default for Missed {
    fn default() -> Missed {
        Missed {
            reads: [(1, 0, 0.0); MISSED],
            next: 0,
        }
    }
}

impl Missed {
    fn note(&mut self, slots: RangeInclusive<u64>, saved_us: f64) {
        let (first, last) = (*slots.start(), *slots.end());
        let each = saved_us / (last - first + 1) as f64;
        self.reads[self.next] = (first, last, each as f32);
        self.next = (self.next + 1) % MISSED;
    }

    /// The newest read's that had this slot.
    fn share_of(&self, slot: u64) -> Option<f32> {
        let (newer, older) = self.reads.split_at(self.next);
        let mut newest_first = newer.iter().rev().chain(older.iter().rev());
        let found = newest_first.find(|(first, last, _)| (*first..=*last).contains(&slot));
        found.map(|(_, _, each)| *each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_worth_its_share_of_the_newest_read_that_missed_it() {
        let mut missed = Missed::default();
        assert_eq!(missed.share_of(0), None);
        missed.note(0..=7, 80.0);
        missed.note(4..=4, 3.0);
        assert_eq!(
            (missed.share_of(3), missed.share_of(4)),
            (Some(10.0), Some(3.0))
        );
        (0..MISSED as u64 - 1).for_each(|n| missed.note(100 + n..=100 + n, 1.0));
        assert_eq!((missed.share_of(3), missed.share_of(4)), (None, Some(3.0)));
    }
}
