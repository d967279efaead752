//! The order in which a cache's content leaves: a valued list, and the contest that chooses its admission.
//!
//! Invariants
//! - The contest sees every read and every restored slot, also of slots that the list does not admit.
//!
//! Leaves to others: who leaves and who comes in (`valued.rs`), and which admission serves this load better
//! (`contest.rs`).

use std::ops::RangeInclusive;

use super::super::Slot;
use super::contest::{Contest, Fill};
use super::kind::BaseKind;
use super::valued::{Admission, SlotRefusal, ValuedList};

use crate::model::Nanos;

pub struct ValueOrder {
    list: ValuedList,
    /// `None`: there is nothing to choose, because the list does not count uses.
    contest: Option<Contest>,
}

impl ValueOrder {
    /// A list of `kind`. `valued`: worth is used; `frequent`: frequencies too, if they are better.
    pub fn new(kind: BaseKind, slots: usize, valued: bool, frequent: bool) -> ValueOrder {
        let contest = || Contest::new(slots, &|slots| kind.build(slots));
        ValueOrder {
            list: ValuedList::new(kind.build(slots), slots, valued, frequent),
            contest: frequent.then(contest),
        }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn slots(&self) -> usize {
        self.list.slots()
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.list.contains(slot)
    }

    /// A request read these slots; copies of all of them saved `saved_us`, or would have.
    pub fn read(&mut self, slots: RangeInclusive<u64>, saved_us: f64, now: Nanos, fill: Fill) {
        if let Some(contest) = &mut self.contest {
            contest.observe(slots.clone(), saved_us as f32, now, fill);
        }
        let each = saved_us / (slots.end() - slots.start() + 1) as f64;
        for slot in slots.map(Slot) {
            self.list.touch(slot, each as f32);
        }
    }

    /// Notes a use of a resident slot for which no copy saves time.
    pub fn touch_unvalued(&mut self, slot: Slot) {
        self.list.touch_unvalued(slot);
    }

    /// Restores a slot as before a restart; false if there is no room.
    pub fn restore(&mut self, slot: Slot) -> bool {
        if let Some(contest) = &mut self.contest {
            contest.restore(slot);
        }
        self.list.restore(slot)
    }

    /// As [`ValuedList::place`], with the admission that the contest finds better.
    pub fn place(
        &mut self,
        slot: Slot,
        saved_us: f32,
        may_go: &mut dyn FnMut(Slot) -> bool,
    ) -> Result<Option<Slot>, SlotRefusal> {
        let admission = match &self.contest {
            Some(contest) => contest.better(),
            None => Admission::ByUses,
        };
        self.list.place(slot, saved_us, admission, may_go)
    }

    /// Evicts one without a newcomer: the cache must shrink.
    pub fn evict(&mut self, may_go: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        self.list.evict(may_go)
    }

    pub fn forget(&mut self, slot: Slot) {
        self.list.forget(slot);
    }

    pub fn resize(&mut self, slots: usize) {
        self.list.resize(slots);
        if let Some(contest) = &mut self.contest {
            contest.resize(self.list.slots());
        }
    }

    pub fn order(&self) -> Vec<Slot> {
        self.list.order()
    }
}
