//! Which admission is better for this load: every newcomer, or only those used clearly more often than their victims?
//!
//! With lasting favourites, frequencies win; if scans follow each other closely or a working set moves, recency does.
//! So two small caches without content see a fixed share of all slots, one with each admission, and their hits decide
//! for the real cache.
//!
//! Invariants
//! - A slot is in the sample for ever or never, and its neighbours with it: a long read is only served fast if all of
//!   it is cached; a partly cached one counts half.
//! - A copy exists only if it would have been read and written, and costs the fast side's time for that. Without either
//!   rule, readers that follow each other closely make admitting everything look better than it is.
//! - Every switch costs content, so frequencies decide unless admitting everything saves clearly more.
//!
//! Leaves to others: admitting in the real cache (`order.rs`), and the two lists (`valued.rs`).

use std::ops::RangeInclusive;

use longshore_balance::constants::keep;

use super::super::Slot;
use super::base::Base;
use super::queue::SlotMap;
use super::valued::{Admission, ValuedList};
use crate::model::Nanos;

/// For a cache of `slots` slots: one in how many slots is in the sample, and the room for them.
fn sampled_of(slots: usize) -> (u64, usize) {
    let one_in = slots.div_ceil(keep::SHADOW_SLOTS).max(1);
    (one_in as u64, (slots / one_in).max(1))
}

fn samples(one_in: u64, slot: Slot) -> bool {
    let group = slot.0 / keep::SHADOW_GROUP;
    let mixed = (group ^ group >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 32).is_multiple_of(one_in)
}

/// The cost of a copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fill {
    /// Until it can be used.
    pub delay_ns: Nanos,
    /// Of the fast side's time for a slot, in µs.
    pub us: f32,
}

pub struct Contest {
    /// One in this many slots is in the sample.
    one_in: u64,
    /// Two caches: every newcomer; by frequency.
    caches: [ValuedList; 2],
    /// When recently admitted slots become usable.
    coming: [SlotMap<Nanos>; 2],
    saved: [f64; 2],
    uses: u32,
    better: Admission,
    /// Of the current request.
    sampled: Vec<Slot>,
}

impl Contest {
    /// `build` makes an empty base list for that many slots.
    pub fn new(slots: usize, build: &dyn Fn(usize) -> Box<dyn Base>) -> Contest {
        let (one_in, sample) = sampled_of(slots);
        let cache = |frequent| ValuedList::new(build(sample), sample, true, frequent);
        Contest {
            one_in,
            caches: [cache(false), cache(true)],
            coming: Default::default(),
            saved: [0.0; 2],
            uses: 0,
            better: Admission::ByUses,
            sampled: Vec::new(),
        }
    }

    /// A request used these slots; copies of all would have saved `saved_us`.
    pub fn observe(&mut self, slots: RangeInclusive<u64>, saved_us: f32, now: Nanos, fill: Fill) {
        let one_in = self.one_in;
        self.sampled.clear();
        self.sampled
            .extend(slots.map(Slot).filter(|slot| samples(one_in, *slot)));
        if self.sampled.is_empty() {
            return;
        }
        let each = saved_us / self.sampled.len() as f32;
        for ((cache, saved), coming) in self
            .caches
            .iter_mut()
            .zip(&mut self.saved)
            .zip(&mut self.coming)
        {
            let there = |slot: &&Slot| {
                cache.contains(**slot) && coming.get(*slot).is_none_or(|at| *at <= now)
            };
            let hits = self.sampled.iter().filter(there).count();
            let part = hits as f64 / self.sampled.len() as f64;
            // A request that is there in part saves between nothing, as it waits for the rest, and that part: the mean.
            let whole = if part == 1.0 { 1.0 } else { 0.0 };
            *saved += f64::from(saved_us) * (part + whole) / 2.0;
            for slot in &self.sampled {
                cache.touch(*slot, each);
                if cache.contains(*slot) {
                    continue;
                }
                // Admitted or refused as the real cache would decide. The first of the two caches counts no uses.
                if let Ok(gone) = cache.place(*slot, each, Admission::ByUses, &mut |_| true) {
                    *saved -= f64::from(fill.us);
                    if let Some(gone) = gone {
                        coming.remove(&gone);
                    }
                    coming.insert(*slot, now.saturating_add(fill.delay_ns));
                }
            }
        }
        self.uses += 1;
        if self.uses >= keep::SHADOW_ROUND {
            let [all, frequent] = self.saved;
            self.better = match all > frequent * keep::SHADOW_CLEARLY {
                true => Admission::Everything,
                false => Admission::ByUses,
            };
            self.saved = self.saved.map(|saved| saved * keep::SHADOW_KEPT);
            self.uses = 0;
        }
    }

    /// Sets the number of slots of the real cache. Slots that leave the sample age out, since nobody uses them.
    pub fn resize(&mut self, slots: usize) {
        let (one_in, sample) = sampled_of(slots);
        self.one_in = one_in;
        for (cache, coming) in self.caches.iter_mut().zip(&mut self.coming) {
            cache.resize(sample);
            while cache.len() > sample
                && let Some(gone) = cache.evict(&mut |_| true)
            {
                coming.remove(&gone);
            }
        }
    }

    /// A slot was resident before a restart.
    pub fn restore(&mut self, slot: Slot) {
        if samples(self.one_in, slot) {
            self.caches
                .iter_mut()
                .for_each(|cache| _ = cache.restore(slot));
        }
    }

    /// The admission that saves more of this load's time.
    pub fn better(&self) -> Admission {
        self.better
    }
}
