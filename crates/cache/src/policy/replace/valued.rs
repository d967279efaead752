//! Device-valued replacement over any base list: of those that the base would let go next, the one goes whose copy
//! saves least.
//!
//! What a slot's copy saves is the time by which the fast side answered its accesses sooner than the slow one would
//! have: its size and the parallelism around it in one number. Its worth is that over what accesses of any slot saved at
//! that time, averaged over its last accesses: a queue makes every access worth more while it lasts, not those that
//! happen to come then. How often and how lately a slot is used is the base's business. A slot that would replace one
//! worth much more than itself stays out. Where that is all that keeps it out, the other then loses some of its worth, so
//! that what is never used again does not stay for ever; counts of uses age by themselves.
//!
//! Invariants
//! - If all accesses are worth the same and frequencies are not looked at, this is the base list, decision by
//!   decision.
//! - Worth is kept for resident slots only.

use std::ops::RangeInclusive;

use super::contest::{Contest, Fill};
use super::frequency::Frequency;
use super::{Base, BaseKind, Slot, SlotMap};
use crate::model::Nanos;

/// Victims that are compared.
const SAMPLE: usize = 16;
/// Weight of a new access in a slot's average.
const ALPHA: f32 = 0.25;
/// The same in the average over all slots.
const SLOWLY: f32 = 1.0 / 256.0;
/// A newcomer may be worth so much less than the one it replaces.
const TOLERANCE: f32 = 0.5;
/// With frequencies, a newcomer must be worth so many times as much, the victim with so many uses more than it had:
/// counts are small numbers, and the least of many victims has had bad luck.
const CLEARLY: f32 = 2.0;
const DOUBT: u8 = 3;
/// Accesses whose worth differs by less than this factor are worth the same: a moment's queue says little.
const ALIKE: f32 = 3.0;
/// Savings below this, in µs, are none.
const LEAST_US: f32 = 1e-3;
/// What a slot keeps of its worth when it kept another out.
const KEEP: f32 = 0.9;

pub struct Valued {
    base: Box<dyn Base>,
    slots: usize,
    /// Of each resident slot, 1 for what is usual; `None`: the base alone decides.
    worth: Option<SlotMap<f32>>,
    /// What accesses save lately, in µs.
    typical: Option<f32>,
    frequency: Option<Frequency>,
    contest: Option<Box<Contest>>,
    victims: Vec<Slot>,
}

impl Valued {
    /// Of `kind`. `valued`: whether worth is looked at; `frequent`: frequencies too, where they are better.
    pub fn new(kind: BaseKind, slots: usize, valued: bool, frequent: bool) -> Valued {
        let contest = || Box::new(Contest::new(slots, &|slots| kind.build(slots)));
        Valued {
            contest: frequent.then(contest),
            ..Valued::plain(kind.build(slots), slots, valued, frequent)
        }
    }

    /// Without a contest: frequencies always, or never.
    pub fn plain(base: Box<dyn Base>, slots: usize, valued: bool, frequent: bool) -> Valued {
        Valued {
            base,
            slots: slots.max(1),
            worth: valued.then(SlotMap::default),
            typical: None,
            frequency: frequent.then(|| Frequency::new(slots)),
            contest: None,
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

    /// A slot was used; if it is resident, its copy saved `saved_us`, or would have.
    pub fn touch(&mut self, slot: Slot, saved_us: f32) {
        if let Some(frequency) = &mut self.frequency {
            frequency.count(slot);
        }
        let typical = self.typical.get_or_insert(saved_us);
        *typical += (saved_us - *typical) * SLOWLY;
        self.base.touch(slot);
        let now = self.relative(saved_us);
        if let Some(all) = self.worth.as_mut().filter(|_| self.base.contains(slot)) {
            let worth = all.entry(slot).or_insert(now);
            *worth += (now - *worth) * ALPHA;
        }
    }

    /// A request read these slots; copies of all of them saved so much, or would have.
    pub fn read(&mut self, slots: RangeInclusive<u64>, saved_us: f64, now: Nanos, fill: Fill) {
        if let Some(contest) = &mut self.contest {
            contest.observe(slots.clone(), saved_us as f32, now, fill);
        }
        let each = saved_us / (slots.end() - slots.start() + 1) as f64;
        for slot in slots.map(Slot) {
            self.touch(slot, each as f32);
        }
    }

    /// A resident slot was used in a way that no copy saves time for.
    pub fn touch_unvalued(&mut self, slot: Slot) {
        self.base.touch(slot);
    }

    /// A slot comes back as it was before a restart; false if there is no room.
    pub fn restore(&mut self, slot: Slot) -> bool {
        if let Some(contest) = &mut self.contest {
            contest.restore(slot);
        }
        let room = self.base.len() < self.slots;
        if room {
            if let Some(frequency) = &mut self.frequency {
                frequency.presume(slot);
            }
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
        let own = self.relative(saved_us);
        let mut gone = None;
        if self.base.len() >= self.slots {
            let victim = self.choose(Some(slot), may_go).ok_or(Refused)?;
            let frequencies = self.frequency.is_some();
            let everything = self.contest.as_ref().is_some_and(|c| c.everything());
            let by_uses = frequencies && !everything;
            let enough = match by_uses {
                true => {
                    let mut worth = own / self.worth_of(victim).max(f32::MIN_POSITIVE);
                    if (1.0 / ALIKE..ALIKE).contains(&worth) {
                        worth = 1.0;
                    }
                    worth * self.uses(slot, 0) > CLEARLY * self.uses(victim, DOUBT)
                }
                // A list whose slots have no worth takes in whatever comes.
                false => self.worth.is_none() || own >= TOLERANCE * self.worth_of(victim),
            };
            if !enough {
                // Counts of uses age by themselves; worth does not.
                let worth = self.worth.as_mut().filter(|_| !by_uses);
                if let Some(worth) = worth.and_then(|all| all.get_mut(&victim)) {
                    *worth *= KEEP;
                }
                return Err(Refused);
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
        if let Some(contest) = &mut self.contest {
            contest.resize(self.slots);
        }
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
        self.base.victims(incoming, SAMPLE, &mut self.victims);
        let mut chosen: Option<(Slot, f32)> = None;
        for slot in self.victims.iter().copied() {
            let worth = self.worth_of(slot);
            // The first that can go is the base's choice; another one must be worth clearly less.
            if chosen.is_none_or(|(_, limit)| worth < limit) && may_go(slot) {
                let limit = if chosen.is_none() {
                    worth / ALIKE
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

    /// What an access saves, over what accesses save at this time.
    fn relative(&self, saved_us: f32) -> f32 {
        let typical = self.typical.unwrap_or(saved_us);
        (saved_us + LEAST_US) / (typical + LEAST_US)
    }

    /// Uses lately and some more; 1 without frequencies.
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
pub struct Refused;
