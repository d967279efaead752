//! What the finished requests of a device of unknown kind say: a rate and a fixed time.
//!
//! Two numbers describe a device: its rate while it has enough work, and its latency, the time a request needs beyond
//! its own transfer when no other request is ahead of it. Both are learnt from finished requests, as BBR does. The rate
//! is the best seen lately over the life of a request, because a device that lacks work looks slower than it is and
//! never faster. The latency is the lowest seen lately, because a queue only adds to it.
//!
//! As soon as request sizes differ enough, a line is fitted through all requests (bytes delivered meanwhile against
//! time taken) to separate the two: its slope is the time for a byte, its intercept the fixed time.
//!
//! Invariants
//! - *Lately* means the present and the previous of two windows, so a device that became slower is noticed after one
//!   and a half windows.
//! - Rates and times are never negative, and no division is by zero, also for a device that delivered nothing.
//!
//! Leaves to others: when to forget (`estimate.rs`), and what the numbers say of a request (`outlook.rs`).
//!
//! Source: Cardwell et al., BBR, 2016; Little's law.

use crate::Outlook;
use crate::constants::fit::{REQUESTS_LEAST, SPREAD_LEAST, WINDOW};

/// The measurements of one device.
#[derive(Debug, Clone, Default)]
pub struct Fit {
    now: Best,
    last: Best,
    line: Line,
}

/// A line fitted through requests; older requests weigh less.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    weight: f64,
    bytes: f64,
    us: f64,
    bytes_bytes: f64,
    bytes_us: f64,
}

impl Line {
    /// The weight that a request keeps when the next one arrives.
    const KEEP: f64 = 1.0 - 1.0 / WINDOW as f64;

    fn add(&mut self, bytes: f64, us: f64) {
        let keep = |sum: f64, new: f64| sum * Line::KEEP + new;
        self.weight = keep(self.weight, 1.0);
        self.bytes = keep(self.bytes, bytes);
        self.us = keep(self.us, us);
        self.bytes_bytes = keep(self.bytes_bytes, bytes * bytes);
        self.bytes_us = keep(self.bytes_us, bytes * us);
    }

    /// Microseconds for a byte, and the fixed microseconds; `None` while the sizes differ too little.
    fn fit(&self) -> Option<(f64, f64)> {
        let (bytes, us) = (self.bytes / self.weight, self.us / self.weight);
        let variance = self.bytes_bytes / self.weight - bytes * bytes;
        let together = self.bytes_us / self.weight - bytes * us;
        if !(self.weight > REQUESTS_LEAST && variance > (bytes * SPREAD_LEAST).powi(2)) {
            return None;
        }
        let slope = (together / variance).clamp(0.0, us / bytes);
        Some((slope, (us - slope * bytes).max(0.0)))
    }
}

/// The best values of a window.
#[derive(Debug, Clone, Copy, Default)]
struct Best {
    count: u32,
    rate: Option<f64>,
    latency_us: Option<f64>,
    fixed_us: Option<f64>,
}

impl Fit {
    /// Learns from a request: its bytes, those that the device delivered from its submission to its completion, its own
    /// included, and the µs between the two.
    pub fn learn(&mut self, len_bytes: u64, delivered_bytes: u64, took_us: f64) {
        let rate = delivered_bytes as f64 / took_us;
        self.line.add(delivered_bytes as f64, took_us);
        if self.now.count == WINDOW {
            (self.last, self.now) = (self.now, Best::default());
        }
        let least = |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old.min(new)));
        let now = &mut self.now;
        now.count += 1;
        now.rate = Some(now.rate.map_or(rate, |old| old.max(rate)));
        now.latency_us = least(now.latency_us, took_us);
        let known = self.last.rate.unwrap_or(0.0).max(now.rate.unwrap_or(0.0));
        let own_us = len_bytes as f64 / known.max(RATE_LEAST);
        now.fixed_us = least(now.fixed_us, (took_us - own_us).max(0.0));
    }

    /// The bytes per µs while the device had enough work; `None` before the first request.
    pub fn rate(&self) -> Option<f64> {
        let (now, last) = (self.now.rate, self.last.rate);
        now.into_iter().chain(last).reduce(f64::max)
    }

    /// The outlook on the device by these requests.
    pub fn outlook(&self) -> Outlook {
        let Some(seen) = self.rate() else {
            return Outlook::UNKNOWN;
        };
        let least = |of: fn(&Best) -> Option<f64>| {
            let both = of(&self.now).into_iter().chain(of(&self.last));
            both.reduce(f64::min).unwrap_or(0.0)
        };
        let (byte_us, fixed_us) = self
            .line
            .fit()
            .unwrap_or_else(|| (1.0 / seen.max(RATE_LEAST), least(|best| best.fixed_us)));
        Outlook {
            base_us: fixed_us,
            rate_bytes_per_us: 1.0 / byte_us,
            bandwidth_delay_bytes: seen * least(|best| best.latency_us),
            ..Outlook::UNKNOWN
        }
    }
}

/// Bytes per µs of a device that delivered nothing: no division by zero.
const RATE_LEAST: f64 = 1e-6;
