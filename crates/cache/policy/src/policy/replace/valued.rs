//! Device-valued replacement over any base list: of the base's next victims, the one whose copy saves least is
//! evicted.
//!
//! A slot's copy saves the time by which the fast side answered its accesses sooner than the slow one would have: that
//! one number includes request size and parallelism. Its worth is that saving divided by the average saving of all
//! accesses at that time, averaged over its last accesses: a queue raises the saving of every access while it lasts,
//! not only of those that happen to come then. How often and how recently a slot is used is left to the base. A slot
//! that would replace one worth much more stays out. If worth alone keeps it out, the other slot then loses some of
//! its worth, so that an unused slot does not stay for ever; counts of uses age by themselves.
//!
//! Invariants
//! - If all accesses are worth the same and frequencies are not used, this equals the base list, decision by decision.
//! - Worth is kept for resident slots only.
//!
//! Leaves to others: whether counted uses or every newcomer serve this load better (`contest.rs`, asked by `order.rs`).

use longshore_balance::constants::{keep, time};

use super::super::Slot;
use super::base::Base;
use super::frequency::Frequency;
use super::queue::SlotMap;

/// Which newcomers are admitted to a full list, besides what their worth says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Everything,
    /// Those used clearly more often than their victims, if the list counts uses.
    ByUses,
}

/// A base list whose victims are chosen by worth.
pub struct ValuedList {
    base: Box<dyn Base>,
    slots: usize,
    /// For each resident slot, 1 is usual; `None`: the base alone decides.
    worth: Option<SlotMap<f32>>,
    /// The recent saving of accesses, in µs.
    typical: Option<f32>,
    /// `None`: uses are not counted.
    frequency: Option<Frequency>,
    victims: Vec<Slot>,
}

impl ValuedList {
    /// Over an empty `base`. `valued`: worth is used; `frequent`: uses are counted.
    pub fn new(base: Box<dyn Base>, slots: usize, valued: bool, frequent: bool) -> ValuedList {
        ValuedList {
            base,
            slots: slots.max(1),
            worth: valued.then(SlotMap::default),
            typical: None,
            frequency: frequent.then(|| Frequency::new(slots)),
            victims: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.base.len()
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.base.contains(slot)
    }

    /// Notes a use of a slot; if it is resident, its copy saved `saved_us`, or would have.
    pub fn touch(&mut self, slot: Slot, saved_us: f32) {
        if let Some(frequency) = &mut self.frequency {
            frequency.count(slot);
        }
        let typical = self.typical.get_or_insert(saved_us);
        *typical += (saved_us - *typical) * keep::TYPICAL_WEIGHT;
        self.base.touch(slot);
        let now = self.relative(saved_us);
        if let Some(all) = self.worth.as_mut().filter(|_| self.base.contains(slot)) {
            let worth = all.entry(slot).or_insert(now);
            *worth += (now - *worth) * keep::WORTH_WEIGHT;
        }
    }

    /// Notes a use of a resident slot for which no copy saves time.
    pub fn touch_unvalued(&mut self, slot: Slot) {
        self.base.touch(slot);
    }

    /// Restores a slot as before a restart; false if there is no room.
    pub fn restore(&mut self, slot: Slot) -> bool {
        let room = self.base.len() < self.slots;
        if room {
            if let Some(frequency) = &mut self.frequency {
                frequency.presume(slot);
            }
            self.base.insert(slot);
        }
        room || self.base.contains(slot)
    }

    /// For a slot that is not resident, whose access would have saved `saved_us`: whether it comes in, and which
    /// victim leaves. `may_go` says whether a slot can be evicted now.
    pub fn place(
        &mut self,
        slot: Slot,
        saved_us: f32,
        admission: Admission,
        may_go: &mut dyn FnMut(Slot) -> bool,
    ) -> Result<Option<Slot>, SlotRefusal> {
        if !self.base.wants(slot) {
            return Err(SlotRefusal);
        }
        let own = self.relative(saved_us);
        let mut gone = None;
        if self.base.len() >= self.slots {
            let victim = self.choose(Some(slot), may_go).ok_or(SlotRefusal)?;
            let by_uses = self.frequency.is_some() && admission == Admission::ByUses;
            let enough = match by_uses {
                true => {
                    let mut worth = own / self.worth_of(victim).max(f32::MIN_POSITIVE);
                    if (1.0 / keep::ALIKE..keep::ALIKE).contains(&worth) {
                        worth = 1.0;
                    }
                    worth * self.uses(slot, 0) > keep::CLEARLY * self.uses(victim, keep::DOUBT)
                }
                // A list without worth admits every slot.
                false => self.worth.is_none() || own >= keep::TOLERANCE * self.worth_of(victim),
            };
            if !enough {
                // Counts of uses age by themselves; worth does not.
                let worth = self.worth.as_mut().filter(|_| !by_uses);
                if let Some(worth) = worth.and_then(|all| all.get_mut(&victim)) {
                    *worth *= keep::WORTH_KEPT;
                }
                return Err(SlotRefusal);
            }
            self.let_go(victim, Some(slot));
            gone = Some(victim);
        }
        self.base.insert(slot);
        if let Some(worth) = &mut self.worth {
            worth.insert(slot, own);
        }
        Ok(gone)
    }

    /// Evicts one without a newcomer: the cache must shrink.
    pub fn evict(&mut self, may_go: &mut dyn FnMut(Slot) -> bool) -> Option<Slot> {
        let victim = self.choose(None, may_go)?;
        self.let_go(victim, None);
        Some(victim)
    }

    pub fn forget(&mut self, slot: Slot) {
        self.base.forget(slot);
        if let Some(worth) = &mut self.worth {
            worth.remove(&slot);
        }
    }

    pub fn resize(&mut self, slots: usize) {
        self.slots = slots.max(1);
        self.base.resize(self.slots);
        if self.frequency.is_some() {
            let mut frequency = Frequency::new(self.slots);
            let resident = self.base.order();
            resident
                .into_iter()
                .for_each(|slot| frequency.presume(slot));
            self.frequency = Some(frequency);
        }
    }

    pub fn order(&self) -> Vec<Slot> {
        self.base.order()
    }

    fn choose(
        &mut self,
        incoming: Option<Slot>,
        may_go: &mut dyn FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        self.victims.clear();
        self.base
            .victims(incoming, keep::VICTIMS, &mut self.victims);
        let mut chosen: Option<(Slot, f32)> = None;
        for slot in self.victims.iter().copied() {
            let worth = self.worth_of(slot);
            // The first slot that can go is the base's choice; another one must be worth clearly less.
            if chosen.is_none_or(|(_, limit)| worth < limit) && may_go(slot) {
                let limit = if chosen.is_none() {
                    worth / keep::ALIKE
                } else {
                    worth
                };
                chosen = Some((slot, limit));
                if self.worth.is_none() {
                    break;
                }
            }
        }
        chosen.map(|(slot, _)| slot)
    }

    fn worth_of(&self, slot: Slot) -> f32 {
        let worth = self.worth.as_ref();
        let worth = worth.and_then(|all| all.get(&slot)).copied();
        worth.unwrap_or(1.0)
    }

    /// An access's saving, divided by the average saving at this time.
    fn relative(&self, saved_us: f32) -> f32 {
        let typical = self.typical.unwrap_or(saved_us);
        (saved_us + time::LEAST_US as f32) / (typical + time::LEAST_US as f32)
    }

    /// Recent uses plus `more`; 1 without frequencies.
    fn uses(&self, slot: Slot, more: u8) -> f32 {
        let uses = |f: &Frequency| f32::from(f.of(slot)) + f32::from(more);
        self.frequency.as_ref().map_or(1.0, uses)
    }

    fn let_go(&mut self, slot: Slot, incoming: Option<Slot>) {
        self.base.evict(slot, incoming);
        if let Some(worth) = &mut self.worth {
            worth.remove(&slot);
        }
    }
}

/// The slot stays out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRefusal;
