//! Loaded estimates: when would a request be done by that device, given what is in flight on it?
//!
//! Two numbers describe a device: the rate at which it delivers while it has enough to do, and the time that a
//! request needs beyond its own transfer when nothing is ahead of it. Both are taken from requests as they end,
//! as BBR does: the rate is the best that was delivered lately over the life of a request, because a device that
//! lacks work looks slow and never fast; the latency is the least seen lately, because a queue only adds.
//! *Lately* is the present and the last of two windows, so that a device that has become slower is believed after
//! one window and a half.
//!
//! What a request adds to both is told apart by a line through all of them, bytes delivered meanwhile against time
//! taken, as soon as they differ enough in size: its slope is the time for a byte, its start the time besides.
//!
//! Source: Cardwell et al., BBR, 2016; Little's law.

/// Requests in a window.
const WINDOW: u32 = 32;

/// What is known of one device.
#[derive(Debug, Clone, Default)]
pub struct Estimate {
    delivered_bytes: u64,
    now: Best,
    last: Best,
    line: Line,
}

/// A line through requests, the older the lighter.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    weight: f64,
    bytes: f64,
    us: f64,
    bytes_bytes: f64,
    bytes_us: f64,
}

impl Line {
    /// Weight that a request keeps when the next one comes.
    const KEEP: f64 = 1.0 - 1.0 / WINDOW as f64;

    fn add(&mut self, bytes: f64, us: f64) {
        let keep = |sum: f64, new: f64| sum * Line::KEEP + new;
        self.weight = keep(self.weight, 1.0);
        self.bytes = keep(self.bytes, bytes);
        self.us = keep(self.us, us);
        self.bytes_bytes = keep(self.bytes_bytes, bytes * bytes);
        self.bytes_us = keep(self.bytes_us, bytes * us);
    }

    /// Microseconds for a byte, and besides; `None` while sizes differ too little to tell.
    fn fit(&self) -> Option<(f64, f64)> {
        let (bytes, us) = (self.bytes / self.weight, self.us / self.weight);
        let variance = self.bytes_bytes / self.weight - bytes * bytes;
        let together = self.bytes_us / self.weight - bytes * us;
        if !(self.weight > 2.5 && variance > (bytes * 0.1).powi(2)) {
            return None;
        }
        let slope = (together / variance).clamp(0.0, us / bytes);
        Some((slope, (us - slope * bytes).max(0.0)))
    }
}

/// The best of a window.
#[derive(Debug, Clone, Copy, Default)]
struct Best {
    count: u32,
    rate: Option<f64>,
    latency_us: Option<u64>,
    fixed_us: Option<u64>,
}

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    pub len_bytes: u64,
    /// From submission to the end.
    pub latency_us: u64,
    /// [`Estimate::delivered_bytes`] when it was submitted.
    pub delivered_before: u64,
}

impl Estimate {
    /// All bytes of requests that have ended: what a request notes when it is submitted.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// A request has ended well. One that failed teaches nothing.
    pub fn learn(&mut self, finished: Finished) {
        let latency_us = finished.latency_us.max(1);
        self.delivered_bytes = self.delivered_bytes.saturating_add(finished.len_bytes);
        let delivered = self
            .delivered_bytes
            .saturating_sub(finished.delivered_before);
        let rate = delivered as f64 * 1e6 / latency_us as f64;
        self.line.add(delivered as f64, latency_us as f64);
        if self.now.count == WINDOW {
            (self.last, self.now) = (self.now, Best::default());
        }
        let least = |old: Option<u64>, new: u64| Some(old.map_or(new, |old| old.min(new)));
        let now = &mut self.now;
        now.count += 1;
        now.rate = Some(now.rate.map_or(rate, |old| old.max(rate)));
        now.latency_us = least(now.latency_us, latency_us);
        let known = self.last.rate.unwrap_or(0.0).max(now.rate.unwrap_or(0.0));
        let own_us = (finished.len_bytes as f64 * 1e6 / known.max(1.0)) as u64;
        now.fixed_us = least(now.fixed_us, latency_us.saturating_sub(own_us));
    }

    /// Forgets what was measured: the device is another one now.
    pub fn forget(&mut self) {
        *self = Estimate {
            delivered_bytes: self.delivered_bytes,
            ..Estimate::default()
        };
    }

    /// Delivered while it had enough to do; `None` before the first request has ended.
    pub fn rate_bytes_per_s(&self) -> Option<f64> {
        let (a, b) = (self.now.rate, self.last.rate);
        a.into_iter().chain(b).reduce(f64::max)
    }

    /// The least time from submission to the end, its own transfer included.
    pub fn unloaded_us(&self) -> Option<u64> {
        let (a, b) = (self.now.latency_us, self.last.latency_us);
        a.into_iter().chain(b).min()
    }

    /// When a request submitted now would be done, in microseconds from now: what is ahead of it, itself, and the
    /// time the device needs besides. `None` before anything was measured.
    pub fn loaded_us(&self, len_bytes: u64, in_flight_bytes: u64) -> Option<u64> {
        let bytes = in_flight_bytes.saturating_add(len_bytes) as f64;
        if let Some((slope, fixed_us)) = self.line.fit() {
            return Some((fixed_us + slope * bytes) as u64);
        }
        let rate = self.rate_bytes_per_s()?.max(1.0);
        let (a, b) = (self.now.fixed_us, self.last.fixed_us);
        let fixed_us = a.into_iter().chain(b).min().unwrap_or(0);
        Some(fixed_us.saturating_add((bytes * 1e6 / rate) as u64))
    }

    /// What it would deliver with so many bytes in flight all the time, or has delivered lately, if that is more: a
    /// device that is fed too little shows less than it can.
    pub fn rate_with(&self, in_flight_bytes: u64) -> Option<f64> {
        let seen = self.rate_bytes_per_s()?;
        let us = self.loaded_us(in_flight_bytes, 0)?.max(1);
        Some(seen.max(in_flight_bytes as f64 * 1e6 / us as f64))
    }

    /// The bandwidth-delay product: what must be in flight to keep the device busy.
    pub fn bdp_bytes(&self) -> Option<u64> {
        let rate = self.rate_bytes_per_s()?;
        Some((rate * self.unloaded_us()? as f64 / 1e6) as u64)
    }
}
