//! Drift: is the device still the one that was measured?
//!
//! A plan rests on what was measured; a device that throttles, ages or is shared breaks it silently. Each request
//! says what it was expected to take and what it took. The logarithm of their ratio is averaged; when the average
//! leaves a band, that is said once, and again only after it came back into half the band.

/// Weight of a new request in the average.
const ALPHA: f64 = 1.0 / 16.0;
/// Requests before anything is said.
const SETTLED: u32 = 32;

/// Watches one device.
#[derive(Debug, Clone)]
pub struct Drift {
    band: f64,
    mean: f64,
    seen: u32,
    alarmed: bool,
}

/// The device takes this many times what was expected of it; below 1 it became faster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drifted {
    pub factor: f64,
}

impl Drift {
    /// Says so when a device takes `factor` (above 1) times what is expected, or the inverse of it.
    pub fn new(factor: f64) -> Drift {
        Drift {
            band: factor.max(1.01).ln(),
            mean: 0.0,
            seen: 0,
            alarmed: false,
        }
    }

    pub fn observe(&mut self, expected_us: u64, measured_us: u64) -> Option<Drifted> {
        let ratio = (measured_us.max(1) as f64 / expected_us.max(1) as f64).ln();
        self.mean += (ratio - self.mean) * ALPHA;
        self.seen = self.seen.saturating_add(1);
        if self.alarmed {
            self.alarmed = self.mean.abs() > self.band / 2.0;
            return None;
        }
        self.alarmed = self.seen >= SETTLED && self.mean.abs() > self.band;
        self.alarmed.then(|| Drifted {
            factor: self.mean.exp(),
        })
    }
}
