//! Which admission is better for this load: every newcomer, or only those used clearly more often than their victims?
//!
//! Where places are used with lasting favourites, frequencies win; where scans follow each other closely or a working
//! set moves, recency does. So two small caches without content see a fixed share of all slots, one admitting this
//! way and one the other, and their hits decide for the real one.
//!
//! Invariants
//! - A slot is in the sample or not, for ever, and its neighbours with it: a long read is served quickly only where all
//!   of it is held, and what is held of it in part counts half.
//! - A copy is there only when it would have been read and written, and costs the fast side's time for that. Without
//!   either, readers who follow each other closely make admitting everything look better than it is.
//! - Every change of mind costs content, so frequencies decide unless admitting everything saves clearly more.

use std::ops::RangeInclusive;

use super::{Base, Slot, SlotMap, Valued};
use crate::model::Nanos;

/// Slots that each of the two caches has at most.
const SAMPLE_SLOTS: usize = 512;
/// Neighbours that are sampled together.
const GROUP_SLOTS: u64 = 8;
/// Sampled requests between two decisions.
const ROUND: u32 = 128;
/// What a round leaves of the rounds before it.
const KEEP: f64 = 0.75;
/// What admitting everything must save more.
const CLEARLY: f64 = 1.05;

/// One of so many slots is in the sample of a cache of so many `slots`, and there is room for so many of them.
fn sampled_of(slots: usize) -> (u64, usize) {
    let one_in = slots.div_ceil(SAMPLE_SLOTS).max(1);
    (one_in as u64, (slots / one_in).max(1))
}

fn samples(one_in: u64, slot: Slot) -> bool {
    let group = slot.0 / GROUP_SLOTS;
    let mixed = (group ^ group >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 32).is_multiple_of(one_in)
}

/// What a copy costs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fill {
    /// Until it can be used, in ns.
    pub delay: Nanos,
    /// Of the fast side's time for a slot, in µs.
    pub us: f32,
}

pub struct Contest {
    /// One of so many slots is in the sample.
    one_in: u64,
    /// Every newcomer; by frequency.
    caches: [Valued; 2],
    /// When what came in lately can be used.
    coming: [SlotMap<Nanos>; 2],
    saved: [f64; 2],
    uses: u32,
    everything: bool,
    /// Of the request at hand.
    sampled: Vec<Slot>,
}

impl Contest {
    /// `build` makes an empty base list for so many slots.
    pub fn new(slots: usize, build: &dyn Fn(usize) -> Box<dyn Base>) -> Contest {
        let (one_in, sample) = sampled_of(slots);
        let cache = |frequent| Valued::plain(build(sample), sample, true, frequent);
        Contest {
            one_in,
            caches: [cache(false), cache(true)],
            coming: Default::default(),
            saved: [0.0; 2],
            uses: 0,
            everything: false,
            sampled: Vec::new(),
        }
    }

    /// A request used these slots; copies of all would have saved so much.
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
            let whole = if part == 1.0 { 1.0 } else { 0.0 };
            *saved += f64::from(saved_us) * (part + whole) / 2.0;
            for slot in &self.sampled {
                cache.touch(*slot, each);
                if cache.contains(*slot) {
                    continue;
                }
                // Refused or not, it was decided as the real cache would.
                if let Ok(gone) = cache.place(*slot, each, &mut |_| true) {
                    *saved -= f64::from(fill.us);
                    if let Some(gone) = gone {
                        coming.remove(&gone);
                    }
                    coming.insert(*slot, now.saturating_add(fill.delay));
                }
            }
        }
        self.uses += 1;
        if self.uses >= ROUND {
            let [all, frequent] = self.saved;
            self.everything = all > frequent * CLEARLY;
            self.saved = self.saved.map(|saved| saved * KEEP);
            self.uses = 0;
        }
    }

    /// The real cache may have so many slots now. What is no more in the sample goes as nobody uses it.
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

    /// Whether every newcomer should come in.
    pub fn everything(&self) -> bool {
        self.everything
    }
}
