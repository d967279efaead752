//! How often slots were used lately, resident or not: a count-min sketch that ages.
//!
//! Fixed memory: four bytes for each slot of the cache. Counts are upper estimates; when the counted uses reach
//! [`USES`] for each slot, all counts are halved.
//!
//! Source: Einziger, Friedman and Manes, TinyLFU, ACM TOS 2017.

use longshore_balance::constants::keep::{COUNTED_LEAST, COUNTS, USES};

use super::super::Slot;

#[derive(Debug)]
pub struct Frequency {
    /// A power of two of them.
    counts: Vec<u8>,
    uses: usize,
    period: usize,
}

impl Frequency {
    /// For a cache of that many slots.
    pub fn new(slots: usize) -> Frequency {
        let slots = slots.max(COUNTED_LEAST);
        Frequency {
            counts: vec![0; slots.saturating_mul(COUNTS).next_power_of_two()],
            uses: 0,
            period: slots.saturating_mul(USES),
        }
    }

    /// Two almost independent positions.
    fn places(&self, slot: Slot) -> [usize; 2] {
        let mask = self.counts.len() - 1;
        let mixed = (slot.0 ^ slot.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        [mixed as usize & mask, (mixed >> 32) as usize & mask]
    }

    pub fn count(&mut self, slot: Slot) {
        for place in self.places(slot) {
            self.counts[place] = self.counts[place].saturating_add(1);
        }
        self.uses += 1;
        if self.uses >= self.period {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.uses /= 2;
        }
    }

    /// A slot kept from an earlier session: assumed to be used as often as the mean slot.
    pub fn presume(&mut self, slot: Slot) {
        for place in self.places(slot) {
            self.counts[place] = self.counts[place].max(USES as u8);
        }
    }

    /// Uses of a slot lately.
    pub fn of(&self, slot: Slot) -> u8 {
        let [a, b] = self.places(slot);
        self.counts[a].min(self.counts[b])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_never_below_the_truth_seldom_above_it_and_age() {
        let mut frequency = Frequency::new(1000);
        for round in 1..=3 {
            for slot in 0..500 {
                frequency.count(Slot(slot * 7919));
            }
            let of = |slot: u64| frequency.of(Slot(slot * 7919));
            assert!((0..500).all(|slot| of(slot) >= round));
            let above = (0..500).filter(|slot| of(*slot) > round).count();
            assert!(above < 50, "{above}");
        }
        assert!(
            (0..10_000)
                .filter(|n| frequency.of(Slot(n << 40 | 1)) > 0)
                .count()
                < 1000
        );
        // As many uses of one slot as fill two periods: no count overflows, all others are halved twice.
        (0..32_000).for_each(|_| frequency.count(Slot(1)));
        let halved = (0..500).filter(|slot| frequency.of(Slot(slot * 7919)) <= 1);
        assert!(halved.count() > 450 && frequency.of(Slot(1)) >= 127);
    }
}
