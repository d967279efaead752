//! The policy for its driver: one filter and one replacement list with one interface.
//!
//! Invariants
//! - The driver reports everything that happens, in the order in which it happens, and carries out what it is told.
//! - Calls are fast, none blocks, and none reads a clock: times are arguments.
//! - A slot that is filled is valued by its share of the read that missed it, if that read is still remembered.
//!
//! Leaves to others: where a hit is served (`filter`), the order of eviction (`replace`), and moving bytes (the
//! driver).

use std::ops::RangeInclusive;

use longshore_balance::constants::cache::CLIENTS;

use crate::model::Nanos;

use super::filter::{Filter, ReadRequest, Sides};
use super::replace::{Fill, ValueOrder};
use super::streams::Streams;
use super::{
    Choice, EndedRequest, FillDecision, Gauges, Outlook, Read, ReadPlan, Retention, Slot, View,
    Write, WritePlan,
};

/// See the module. All calls are fast and none blocks.
pub struct Policy {
    filter: Box<dyn Filter>,
    content: ValueOrder,
    streams: Streams,
    slot_bytes: u64,
    shares: bool,
    saved_us: f64,
    missed: RecentMisses,
}

impl Policy {
    /// A policy for a cache of `slots` slots of `slot_bytes` (both 1 or more), empty at first. Its outlooks on the
    /// devices are only a first guess.
    pub fn new(
        choice: Choice,
        fast: Outlook,
        slow: Outlook,
        slots: usize,
        slot_bytes: u64,
    ) -> Policy {
        let filter = choice.filter.build(Sides { fast, slow });
        Policy::with(filter, choice.keeping, slots, slot_bytes)
    }

    /// The same with any filter.
    pub fn with(
        filter: Box<dyn Filter>,
        keeping: Retention,
        slots: usize,
        slot_bytes: u64,
    ) -> Policy {
        Policy {
            filter,
            content: ValueOrder::new(keeping.base, slots, keeping.valued, keeping.frequent),
            streams: Streams::default(),
            slot_bytes: slot_bytes.max(1),
            shares: keeping.shares,
            saved_us: 0.0,
            missed: RecentMisses::default(),
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
        let asked = ReadRequest {
            len_bytes: read.len_bytes,
            held_bytes: read.held_bytes.min(read.len_bytes),
            run_bytes: self.streams.follow(read.offset, read.len_bytes),
        };
        let plan = ReadPlan {
            join: self.shares,
            ..self.filter.read(view, &asked)
        };
        let saved = self.filter.saved_us(view, &asked);
        let (first, last) = self.numbers_of(read.offset, read.len_bytes);
        let sides = self.filter.sides();
        let slot = self.slot_bytes as f64;
        let fill = Fill {
            delay_ns: (1000.0 * sides.slow.loaded_us(read.len_bytes, view.slow)) as u64,
            us: (sides.fast.write_harm_us * slot) as f32,
        };
        self.content.read(first..=last, saved, view.now, fill);
        if plan.admit {
            self.missed.note(first..=last, saved);
        }
        if plan.fast_bytes > 0 {
            self.saved_us += saved * plan.fast_bytes as f64 / read.len_bytes.max(1) as f64;
        }
        plan
    }

    /// Whether the cache keeps a copy of a client's write.
    pub fn write(&mut self, view: &View, write: Write) -> WritePlan {
        for slot in self.slots_of(write.offset, write.len_bytes) {
            self.content.touch_unvalued(slot);
        }
        self.filter.write(view, &write)
    }

    /// Called for each slot after a plan said to fill. `read_bytes` of the slot are wanted; `may_go` says whether a
    /// slot can be evicted now: the driver refuses slots that it reads or writes.
    pub fn place(
        &mut self,
        view: &View,
        slot: Slot,
        read_bytes: u64,
        may_go: &mut dyn FnMut(Slot) -> bool,
    ) -> FillDecision {
        if self.content.contains(slot) {
            return FillDecision::Here;
        }
        let asked = ReadRequest {
            len_bytes: read_bytes.max(1),
            held_bytes: 0,
            run_bytes: 0,
        };
        let own = || self.filter.saved_us(view, &asked) as f32;
        let saved = self.missed.share_of(slot.0).unwrap_or_else(own);
        match self.content.place(slot, saved, may_go) {
            Ok(None) => FillDecision::Here,
            Ok(Some(victim)) => FillDecision::Evicting(victim),
            Err(_) => FillDecision::Refused,
        }
    }

    /// A slot's content is void: the slot is no longer resident.
    pub fn dropped(&mut self, slot: Slot) {
        self.content.forget(slot);
    }

    /// A part of a request has ended on one side.
    pub fn ended(&mut self, ended: &EndedRequest) {
        self.filter.ended(ended);
    }

    /// Sets the number of slots; while there are more, the driver calls [`Policy::evict`].
    pub fn resize(&mut self, slots: usize) {
        self.content.resize(slots);
    }

    /// Evicts the least useful slot; `None` if there are none, or none may go.
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

    /// All resident slots, roughly in the order of eviction: a warm restart, or another policy, takes them one by one
    /// with [`Policy::restore`].
    pub fn order(&self) -> Vec<Slot> {
        self.content.order()
    }

    /// Makes a slot resident again that was so before a restart; false if there is no room.
    pub fn restore(&mut self, slot: Slot) -> bool {
        self.content.restore(slot)
    }

    /// The time that this policy takes for about forty of its steps; 0: it takes no steps. Progress over shorter times
    /// does not show whether the policy still moves.
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

/// Recently missed reads that are filled, and what a copy would have saved for each of their slots: the worth of a
/// slot depends on the read to which it belongs. Fills follow their reads within about as many reads as there are
/// clients.
struct RecentMisses {
    reads: [(u64, u64, f32); CLIENTS],
    next: usize,
}

impl Default for RecentMisses {
    fn default() -> RecentMisses {
        RecentMisses {
            reads: [(1, 0, 0.0); CLIENTS],
            next: 0,
        }
    }
}

impl RecentMisses {
    fn note(&mut self, slots: RangeInclusive<u64>, saved_us: f64) {
        let (first, last) = (*slots.start(), *slots.end());
        let each = saved_us / (last - first + 1) as f64;
        self.reads[self.next] = (first, last, each as f32);
        self.next = (self.next + 1) % CLIENTS;
    }

    /// The value of the newest read that included this slot.
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
        let mut missed = RecentMisses::default();
        assert_eq!(missed.share_of(0), None);
        missed.note(0..=7, 80.0);
        missed.note(4..=4, 3.0);
        assert_eq!(
            (missed.share_of(3), missed.share_of(4)),
            (Some(10.0), Some(3.0))
        );
        (0..CLIENTS as u64 - 1).for_each(|n| missed.note(100 + n..=100 + n, 1.0));
        assert_eq!((missed.share_of(3), missed.share_of(4)), (None, Some(3.0)));
    }
}
