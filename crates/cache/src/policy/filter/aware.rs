//! Serves by size and by what is in flight: small and shallow by the fast side, large and deep by the slow one.
//!
//! The fast side is worth its latency as long as little waits for it. So small requests go there while the bytes in
//! flight stay below a budget, β times its bandwidth-delay product; beyond it, wherever they would be done sooner.
//! Bulk requests go to the slow side while small ones are about; alone, they are cut so that both sides end
//! at the same time.

use super::{Asked, Filter, Sides, keep_what_was_held, plan};
use crate::model::Nanos;
use crate::policy::{
    Ended, Gauges, LINE_BYTES, Load, Outlook, ReadPlan, Reason, View, Write, WritePlan,
};

pub struct Aware {
    sides: Sides,
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
/// A request longer than half of this is bulk on any device.
const BULK_BYTES: u64 = 128 << 10;
/// A stream is bulk after so much.
const STREAM_BYTES: u64 = 512 << 10;
/// A part of a cut request is not worth a command below this.
const PART_BYTES: u64 = 16 << 10;

impl Aware {
    pub fn new(sides: Sides) -> Aware {
        Aware {
            sides,
            budget_bytes: BETA * sides.fast.bandwidth_delay_bytes,
            last_small: None,
            small_gap: 0.0,
        }
    }

    /// A long request, or one of a stream, is bulk.
    fn is_small(&self, asked: &Asked) -> bool {
        let bulk_bytes = self.sides.fast.command_bytes.min(BULK_BYTES);
        asked.len <= bulk_bytes / 2 && asked.run_bytes <= STREAM_BYTES
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
        outlook.loaded_us(len, load) + waiting * len as f64 / outlook.rate
    }

    /// Bytes for the fast side so that both sides end together.
    fn even_cut(&self, view: &View, len: u64) -> u64 {
        let fast =
            self.sides.fast.base_us + view.fast.in_flight_bytes as f64 / self.sides.fast.rate;
        let slow =
            self.sides.slow.base_us + view.slow.in_flight_bytes as f64 / self.sides.slow.rate;
        let rates = self.sides.fast.rate + self.sides.slow.rate;
        let share =
            self.sides.fast.rate / rates * (len as f64 + (slow - fast) * self.sides.slow.rate);
        share.clamp(0.0, len as f64) as u64
    }
}

impl Filter for Aware {
    fn read(&mut self, view: &View, asked: &Asked) -> ReadPlan {
        let len = asked.len;
        let fast_us = self.sides.fast.loaded_us(len, view.fast);
        let slow_us = self.sides.slow.loaded_us(len, view.slow);
        // Worth a write when the fast side would have served it sooner.
        let admit = fast_us < slow_us;
        if self.is_small(asked) {
            self.note_small(view.now);
            if (view.fast.in_flight_bytes + len) as f64 <= self.budget_bytes {
                return plan(asked, true, admit, Reason::Hit);
            }
            let fast = Aware::cost_us(&self.sides.fast, view.fast, len);
            let slow = Aware::cost_us(&self.sides.slow, view.slow, len);
            return plan(asked, fast <= slow, admit, Reason::Budget);
        }
        let mut fast_bytes = self.even_cut(view, len).min(asked.held_bytes);
        if self.small_are_about(view.now) {
            // What keeps the fast side busy, and no more: small requests must not wait behind it.
            let room = self.sides.fast.bandwidth_delay_bytes - view.fast.in_flight_bytes as f64;
            fast_bytes = fast_bytes.min(room.max(0.0) as u64);
        }
        // Whole lines, so that neither part reads a line for the other.
        fast_bytes &= !(LINE_BYTES - 1);
        if fast_bytes < PART_BYTES {
            fast_bytes = 0;
        } else if asked.held_bytes - fast_bytes < PART_BYTES {
            fast_bytes = asked.held_bytes;
        }
        ReadPlan {
            fast_bytes,
            ..plan(asked, true, admit, Reason::Bulk)
        }
    }

    fn write(&mut self, _view: &View, write: &Write) -> WritePlan {
        keep_what_was_held(write)
    }

    fn ended(&mut self, _ended: &Ended) {}

    fn saved_us(&self, view: &View, asked: &Asked) -> f64 {
        self.sides.saved_us(view, asked)
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            budget_bytes: Some(self.budget_bytes),
            ..Gauges::default()
        }
    }
}
