//! Serves by size and by what is in flight: small and shallow by the fast side, large and deep by the slow one.
//!
//! The fast side is worth its latency as long as little waits for it. So small requests go there while the bytes in
//! flight stay below a budget, β times its bandwidth-delay product; beyond it, wherever they would be done sooner.
//! Bulk requests go to the slow side while small ones are about; alone, they are cut so that both sides end
//! at the same time.

use super::{Ended, Filter, Load, Outlook, Serve, Side, View};
use crate::model::Nanos;

pub struct Aware {
    fast: Outlook,
    slow: Outlook,
    /// Bytes in flight on the fast side up to which small requests go there unasked.
    budget_bytes: f64,
    last_small: Option<Nanos>,
    /// How far apart small requests come, in ns; what is longer ago than some of that is over.
    small_gap: f64,
}

/// In flight on the fast side, times its bandwidth-delay product.
const BETA: f64 = 2.0;
/// Small requests are about when the last one is not longer ago than this many of their usual gaps…
const QUIET_GAPS: f64 = 16.0;
/// …nor than this.
const QUIET_MOST: f64 = 20e6;
/// A part of a cut request is not worth a command below this.
const PART_BYTES: u64 = 16 << 10;

impl Aware {
    pub fn new(fast: Outlook, slow: Outlook) -> Aware {
        Aware {
            fast,
            slow,
            budget_bytes: BETA * fast.bandwidth_delay_bytes,
            last_small: None,
            small_gap: 0.0,
        }
    }

    fn is_small(&self, len: u64) -> bool {
        len <= self.fast.command_bytes / 2
    }

    fn note_small(&mut self, now: Nanos) {
        if let Some(last) = self.last_small {
            let gap = (now.saturating_sub(last)) as f64;
            self.small_gap += (gap.min(QUIET_MOST) - self.small_gap) / 16.0;
        }
        self.last_small = Some(now);
    }

    fn small_are_about(&self, now: Nanos) -> bool {
        let quiet = (QUIET_GAPS * self.small_gap).min(QUIET_MOST);
        self.last_small
            .is_some_and(|last| (now.saturating_sub(last)) as f64 <= quiet.max(1e6))
    }

    /// What serving it there costs everybody, in µs: its own latency, and what those behind it wait longer.
    fn cost_us(outlook: &Outlook, load: Load, len: u64) -> f64 {
        let in_flight = load.in_flight_bytes as f64;
        let queued = (1.0 - outlook.bandwidth_delay_bytes / in_flight.max(1.0)).max(0.0);
        let waiting = load.in_flight_requests as f64 * queued;
        outlook.loaded_us(len, load.in_flight_bytes) + waiting * len as f64 / outlook.rate
    }

    /// Bytes for the fast side so that both sides end together.
    fn even_cut(&self, view: &View, len: u64) -> u64 {
        let fast = self.fast.base_us + view.fast.in_flight_bytes as f64 / self.fast.rate;
        let slow = self.slow.base_us + view.slow.in_flight_bytes as f64 / self.slow.rate;
        let rates = self.fast.rate + self.slow.rate;
        let share = self.fast.rate / rates * (len as f64 + (slow - fast) * self.slow.rate);
        share.clamp(0.0, len as f64) as u64
    }
}

impl Filter for Aware {
    fn serve(&mut self, view: &View, _offset: u64, len: u64) -> Serve {
        if self.is_small(len) {
            self.note_small(view.now);
            let fits = (view.fast.in_flight_bytes + len) as f64 <= self.budget_bytes;
            let sooner = || {
                let fast = Aware::cost_us(&self.fast, view.fast, len);
                fast <= Aware::cost_us(&self.slow, view.slow, len)
            };
            return Serve::On(if fits || sooner() {
                Side::Fast
            } else {
                Side::Slow
            });
        }
        let mut fast_bytes = self.even_cut(view, len);
        if self.small_are_about(view.now) {
            // What keeps the fast side busy, and no more: small requests must not wait behind it.
            let room = self.fast.bandwidth_delay_bytes - view.fast.in_flight_bytes as f64;
            fast_bytes = fast_bytes.min(room.max(0.0) as u64);
        }
        // Whole lines, so that neither part reads a line for the other.
        fast_bytes &= !4095;
        if fast_bytes < PART_BYTES {
            Serve::On(Side::Slow)
        } else if len - fast_bytes < PART_BYTES {
            Serve::On(Side::Fast)
        } else {
            Serve::Cut { fast_bytes }
        }
    }

    fn admits(&mut self, view: &View, len: u64) -> bool {
        // Worth a write when the fast side would have served it sooner.
        let fast_us = self.fast.loaded_us(len, view.fast.in_flight_bytes);
        let slow_us = self.slow.loaded_us(len, view.slow.in_flight_bytes);
        fast_us < slow_us
    }

    fn looked_up(&mut self, _now: Nanos, _len: u64, _hit: bool) {}

    fn ended(&mut self, _ended: &Ended) {}
}
