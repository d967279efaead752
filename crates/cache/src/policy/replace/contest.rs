//! Which admission is better for this load: every newcomer, or only those used clearly more often than their victims?
//!
//! Where places are used with lasting favourites, frequencies win; where scans follow each other closely or a working
//! set moves, recency does. So two small caches without content see a fixed share of all slots, one admitting this
//! way and one the other, and their hits decide for the real one.
//!
//! Invariants
//! - A slot is in the sample or not, for ever; a sample's hit ratio is that of the whole, but for chance.
//! - Fills cost, so frequencies decide unless admitting everything saves clearly more.

use super::{Base, Slot, Valued};

/// Slots that each of the two caches has at most.
const SAMPLE_SLOTS: usize = 512;
/// Sampled uses between two decisions.
const ROUND: u32 = 512;
/// What admitting everything must save more.
const CLEARLY: f64 = 1.03;

pub struct Contest {
    /// One of so many slots is in the sample.
    one_in: u64,
    /// Every newcomer; by frequency.
    caches: [Valued; 2],
    saved: [f64; 2],
    uses: u32,
    everything: bool,
}

impl Contest {
    /// `build` makes an empty base list for so many slots.
    pub fn new(slots: usize, build: &dyn Fn(usize) -> Box<dyn Base>) -> Contest {
        let one_in = slots.div_ceil(SAMPLE_SLOTS).max(1);
        let sample = (slots / one_in).max(1);
        let cache = |frequent| Valued::plain(build(sample), sample, true, frequent);
        Contest {
            one_in: one_in as u64,
            caches: [cache(false), cache(true)],
            saved: [0.0; 2],
            uses: 0,
            everything: false,
        }
    }

    fn samples(&self, slot: Slot) -> bool {
        let mixed = (slot.0 ^ slot.0 >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32).is_multiple_of(self.one_in)
    }

    /// A slot was used; a copy would have saved so much.
    pub fn observe(&mut self, slot: Slot, saved_us: f32) {
        if !self.samples(slot) {
            return;
        }
        for (cache, saved) in self.caches.iter_mut().zip(&mut self.saved) {
            let hit = cache.contains(slot);
            cache.touch(slot, saved_us);
            match hit {
                true => *saved += f64::from(saved_us),
                false => _ = cache.place(slot, saved_us, &mut |_| true),
            }
        }
        self.uses += 1;
        if self.uses >= ROUND {
            let [all, frequent] = self.saved;
            self.everything = all > frequent * CLEARLY;
            self.saved = self.saved.map(|saved| saved / 2.0);
            self.uses = 0;
        }
    }

    /// A slot was resident before a restart.
    pub fn restore(&mut self, slot: Slot) {
        if self.samples(slot) {
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
