//! Device-valued replacement over any base list: of those that the base would let go next, the one goes whose copy
//! saves least.
//!
//! What a slot's copy saves is the time by which the fast side answered its accesses sooner than the slow one would
//! have, averaged over its last accesses: its size and the parallelism around it in one number, in µs. How often and
//! how lately a slot is used is the base's business. A slot that would replace one worth much more than itself stays
//! out; the other then loses some of its worth, so that what is never used again does not stay for ever.
//!
//! Invariants
//! - If all accesses are worth the same, this is the base list, decision by decision.
//! - Worth is kept for resident slots only.

use super::{Base, Slot, SlotMap};

/// Victims that are compared.
const SAMPLE: usize = 16;
/// Weight of a new access in a slot's average.
const ALPHA: f32 = 0.25;
/// A newcomer may be worth so much less than the one it replaces.
const TOLERANCE: f32 = 0.5;
/// What a slot keeps of its worth when it kept another out.
const KEEP: f32 = 0.9;

pub struct Valued {
    base: Box<dyn Base>,
    slots: usize,
    /// Of each resident slot, in µs; `None`: the base alone decides.
    worth: Option<SlotMap<f32>>,
    victims: Vec<Slot>,
}

impl Valued {
    /// `valued`: whether worth is looked at.
    pub fn new(base: Box<dyn Base>, slots: usize, valued: bool) -> Valued {
        Valued {
            base,
            slots: slots.max(1),
            worth: valued.then(SlotMap::default),
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

    /// A resident slot was used, and its copy saved `saved_us`, or would have.
    pub fn touch(&mut self, slot: Slot, saved_us: f32) {
        self.base.touch(slot);
        if let Some(all) = self.worth.as_mut().filter(|_| self.base.contains(slot)) {
            let worth = all.entry(slot).or_insert(saved_us);
            *worth += (saved_us - *worth) * ALPHA;
        }
    }

    /// A resident slot was used in a way that no copy saves time for.
    pub fn touch_unvalued(&mut self, slot: Slot) {
        self.base.touch(slot);
    }

    /// A slot comes back as it was before a restart; false if there is no room.
    pub fn restore(&mut self, slot: Slot) -> bool {
        let room = self.base.len() < self.slots;
        if room {
            self.base.insert(slot);
        }
        room || self.base.contains(slot)
    }

    /// A slot that is not resident, whose access would have saved `saved_us`: whether it comes in, and for whom.
    /// `may_go` says whether a slot can be let go now.
    pub fn place(
        &mut self,
        slot: Slot,
        saved_us: f32,
        may_go: &mut dyn FnMut(Slot) -> bool,
    ) -> Result<Option<Slot>, Refused> {
        if !self.base.wants(slot) {
            return Err(Refused);
        }
        let mut gone = None;
        if self.base.len() >= self.slots {
            let victim = self.choose(Some(slot), may_go).ok_or(Refused)?;
            if let Some(worth) = self.worth.as_mut().and_then(|all| all.get_mut(&victim))
                && saved_us < *worth * TOLERANCE
            {
                *worth *= KEEP;
                return Err(Refused);
            }
            self.let_go(victim, Some(slot));
            gone = Some(victim);
        }
        self.base.insert(slot);
        if let Some(worth) = &mut self.worth {
            worth.insert(slot, saved_us);
        }
        Ok(gone)
    }

    /// Lets one go for nobody: the cache shall be smaller.
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
        self.base.victims(incoming, SAMPLE, &mut self.victims);
        let mut least: Option<(Slot, f32)> = None;
        for slot in self.victims.iter().copied() {
            let worth = self.worth.as_ref();
            let worth = worth.and_then(|all| all.get(&slot)).copied().unwrap_or(0.0);
            if least.is_none_or(|(_, best)| worth < best) && may_go(slot) {
                least = Some((slot, worth));
                if self.worth.is_none() {
                    break;
                }
            }
        }
        least.map(|(slot, _)| slot)
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
pub struct Refused;
