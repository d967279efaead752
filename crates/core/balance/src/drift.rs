//! Drift: does the device still behave as measured?
//!
//! A plan rests on measurements; a device that throttles, ages or is shared breaks the plan silently. Each request
//! reports by how much it missed its expected time. The logarithm of measured over expected time is averaged. An
//! average outside the band raises the alarm, and an average inside half the band ends it. A band can ask for a
//! number of requests before the first alarm, and for a time that either state must last.

use crate::constants::drift::BACK;

/// The expectations that a device must miss, and for how long, before it counts as another device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// Measured over expected time, above 1; its inverse counts as well.
    pub factor: f64,
    /// Weight of a new request in the average, 0 to 1.
    pub weight: f64,
    /// Requests before the first alarm.
    pub settled: u32,
    /// µs for which the average must stay outside the band, and then inside half of it.
    pub lasting_us: u64,
}

/// Watches one device.
#[derive(Debug, Clone)]
pub struct Drift {
    band: Band,
    limit: f64,
    mean: f64,
    seen: u32,
    /// Since when, in µs, the average has been where it would change the alarm.
    since_us: Option<u64>,
    alarmed: bool,
}

/// The device takes this many times the expected time; below 1 it became faster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriftAlarm {
    pub factor: f64,
}

impl Drift {
    pub fn new(band: Band) -> Drift {
        Drift {
            band,
            limit: band.factor.ln(),
            mean: 0.0,
            seen: 0,
            since_us: None,
            alarmed: false,
        }
    }

    /// Learns from a request that ended at `now_us`: `error` is the natural logarithm of its measured over its
    /// expected time. Returns what it found if this request raised the alarm.
    pub fn observe(&mut self, now_us: u64, error: f64) -> Option<DriftAlarm> {
        if !error.is_finite() {
            return None;
        }
        self.mean += (error - self.mean) * self.band.weight;
        self.seen = self.seen.saturating_add(1);
        let changes = match self.alarmed {
            false => self.seen >= self.band.settled && self.mean.abs() > self.limit,
            true => self.mean.abs() < self.limit * BACK,
        };
        if !changes {
            self.since_us = None;
            return None;
        }
        let since_us = *self.since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) < self.band.lasting_us {
            return None;
        }
        self.alarmed = !self.alarmed;
        self.since_us = None;
        self.alarmed.then(|| DriftAlarm {
            factor: self.factor(),
        })
    }

    /// Recent ratio of measured to expected time.
    pub fn factor(&self) -> f64 {
        self.mean.exp()
    }

    pub fn alarmed(&self) -> bool {
        self.alarmed
    }
}
