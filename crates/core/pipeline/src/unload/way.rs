//! Where a block to be written is decoded: directly into the buffer that the disk reads, or into one that no disk
//! accesses, from which it is copied without going through the caches.
//!
//! Which of the two takes less CPU time depends on the machine's caches and on the algorithm. A copy costs a pass over
//! the plain bytes; a buffer that comes back from a disk may have left the core's cache, so decoding into it is
//! slower.
//!
//! Invariants
//! - The choice changes CPU time only: both ways write the same bytes.
//! - Each way is measured on the run's own blocks before one is preferred, and the other is tried again from time to
//!   time.
//! - Earlier blocks fade, so a change of the data is noticed.
//!
//! Leaves to others: decoding and the copy (`decode.rs`), and measuring CPU time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Blocks for each way before one is preferred.
const FIRST: u64 = 16;
/// One block in this many uses the way that is not preferred.
const AGAIN: u64 = 64;
/// The factor by which each block reduces the weight of earlier ones.
const FADE: f64 = 0.97;

/// How a block gets into the buffer that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Decoded directly into that buffer.
    Straight,
    /// Decoded into a buffer that stays in the core's cache, and copied.
    Copied,
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Straight => Way::Copied,
            Way::Copied => Way::Straight,
        }
    }
}

/// CPU time and bytes, both decaying.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    seconds: f64,
    bytes: f64,
}

/// Chooses between the ways, for all workers of a run.
#[derive(Debug, Default)]
pub struct Ways {
    chosen: AtomicU64,
    /// For [`Way::Straight`] and [`Way::Copied`].
    costs: Mutex<[Cost; 2]>,
}

impl Ways {
    /// The way for the next block.
    pub fn choose(&self) -> Way {
        let n = self.chosen.fetch_add(1, Ordering::Relaxed);
        if n < 2 * FIRST {
            return if n.is_multiple_of(2) {
                Way::Straight
            } else {
                Way::Copied
            };
        }
        let preferred = self.preferred();
        if n.is_multiple_of(AGAIN) {
            preferred.other()
        } else {
            preferred
        }
    }

    /// Records the CPU time that a block of `bytes` plain bytes took on one thread: decoding, checking, and the copy
    /// if there was one.
    pub fn took(&self, way: Way, cpu: Duration, bytes: usize) {
        let cost = &mut self.costs.lock()[way as usize];
        cost.seconds = cost.seconds * FADE + cpu.as_secs_f64();
        cost.bytes = cost.bytes * FADE + bytes as f64;
    }

    fn preferred(&self) -> Way {
        let [straight, copied] = *self.costs.lock();
        // Compares seconds per byte without a division by zero.
        if straight.seconds * copied.bytes <= copied.seconds * straight.bytes {
            Way::Straight
        } else {
            Way::Copied
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ways chosen for `blocks` blocks, if each takes this many microseconds.
    fn choices(ways: &Ways, blocks: u64, us: impl Fn(Way) -> u64) -> Vec<Way> {
        let choose = |_| {
            let way = ways.choose();
            ways.took(way, Duration::from_micros(us(way)), 1 << 20);
            way
        };
        (0..blocks).map(choose).collect()
    }

    fn share(ways: &[Way], way: Way) -> f64 {
        ways.iter().filter(|w| **w == way).count() as f64 / ways.len() as f64
    }

    #[test]
    fn both_ways_are_tried_and_the_cheaper_one_is_kept() {
        for cheaper in [Way::Straight, Way::Copied] {
            let ways = Ways::default();
            let ways = choices(&ways, 1032, |way| if way == cheaper { 900 } else { 1000 });
            assert_eq!(share(&ways[..32], cheaper), 0.5);
            assert!(share(&ways[32..], cheaper) > 0.98, "{cheaper:?}");
            assert!(
                share(&ways[32..], cheaper) < 1.0,
                "the other is tried again"
            );
        }
    }

    #[test]
    fn changed_files_are_noticed() {
        let ways = Ways::default();
        choices(
            &ways,
            1000,
            |way| {
                if way == Way::Straight { 900 } else { 1000 }
            },
        );
        // Another program takes the shared cache.
        let later = choices(
            &ways,
            1000,
            |way| {
                if way == Way::Straight { 1200 } else { 1000 }
            },
        );
        assert!(share(&later[500..], Way::Copied) > 0.95);
    }

    #[test]
    fn blocks_of_nothing_decide_nothing_and_divide_by_nothing() {
        let ways = Ways::default();
        for _ in 0..100 {
            ways.took(ways.choose(), Duration::ZERO, 0);
        }
        assert_eq!(ways.preferred(), Way::Straight);
    }
}
