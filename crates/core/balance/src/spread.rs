//! How long requests take: quantiles from a histogram of fixed size.
//!
//! Buckets grow by an eighth of a power of two, so a quantile is at most 12.5 % above the true one, never below.
//! Old requests fade: when the histogram holds many, all counts are halved.

use crate::constants::spread::FADE_AT;

/// Steps in each power of two.
const STEPS: u64 = 8;
/// Its logarithm.
const STEPS_LOG: u64 = STEPS.ilog2() as u64;
/// Up to 2^40 µs, 12 days.
const BUCKETS: usize = (40 * STEPS) as usize;

/// Times of requests.
#[derive(Debug, Clone)]
pub struct Spread {
    counts: Vec<u32>,
    total: u64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread {
            counts: vec![0; BUCKETS],
            total: 0,
        }
    }
}

impl Spread {
    pub fn add(&mut self, us: u64) {
        self.counts[bucket(us)] += 1;
        self.total += 1;
        if self.total >= FADE_AT {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().map(|count| u64::from(*count)).sum();
        }
    }

    /// How many requests it remembers.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The time that a share of `quantile` (0 to 1) of the requests did not exceed; `None` without requests.
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        let wanted = (self.total as f64 * quantile.clamp(0.0, 1.0))
            .ceil()
            .max(1.0) as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        })?;
        Some(upper(at))
    }
}

fn bucket(us: u64) -> usize {
    if us < 2 * STEPS {
        return us as usize;
    }
    let power = u64::from(us.ilog2());
    let step = (us >> (power - STEPS_LOG)) - STEPS;
    (((power - STEPS_LOG + 1) * STEPS + step) as usize).min(BUCKETS - 1)
}

/// The largest time in a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let (power, step) = (bucket / STEPS + STEPS_LOG - 1, bucket % STEPS);
    ((STEPS + step + 1) << (power - STEPS_LOG)) - 1
}
