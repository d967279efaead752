//! Serves by size and by what is in flight: small and shallow by the fast side, large and deep by both.
//!
//! The fast side is worth its latency as long as little waits for it. A small read goes there until another one there
//! would add less to what both sides get done than it would on the slow side. A long read is cut so that both sides
//! end at the same time; while small ones are about, the fast side is given no more of it than keeps it busy
//! until the next one comes.
//!
//! How much that is, is found by looking: a long read that finds the fast side idle says that the allowance was too
//! small, one that finds it busy that it may shrink.

use super::belief::Belief;
use super::shared::Shared;
use super::steered::{Balance, balance};
use super::watch::Watch;
use super::{Asked, Filter, SMALL_BYTES, Sides, keep_what_was_held, plan};
use crate::model::Nanos;
use crate::policy::{
    Ended, Gauges, LINE_BYTES, Load, ReadPlan, Reason, Side, View, Write, WritePlan,
};

/// A stream is bulk after so much.
const STREAM_BYTES: u64 = 512 << 10;
/// A part of a cut request is not worth a command below this.
const PART_BYTES: u64 = 16 << 10;
/// A long read as databases make them: where the allowance begins.
const TYPICAL_BYTES: f64 = 512.0 * 1024.0;
/// A long read finds the fast side busy with so many bandwidth-delay products in flight.
const BUSY: f64 = 1.4;
/// Of long reads, how many may find it idle, times the square of the slow side's share of the bandwidth: where the slow
/// side does most of the work, a moment's idleness of the fast one costs little.
const IDLE_SHARE: f64 = 0.7;
/// By how much the allowance grows with each that does, in bandwidth-delay products.
const STEP: f64 = 0.25;
/// The most it grows to, in the fast side's shares of a typical long read over the square of the slow side's share of
/// the bandwidth: more keeps small reads waiting for little, less costs most where the slow side does little.
const MOST: f64 = 0.42;
/// How often a copy is used before it is void or evicted, for all that is known.
const REUSE: f64 = 1.0;

pub struct Aware {
    fast: Belief,
    slow: Belief,
    watch: Watch,
    /// Decides while the devices are not what is believed of them.
    fallback: Shared<Balance>,
    told: Sides,
    /// How often the fast side is found busy, 0 to 1.
    busy: f64,
    /// What reads find in flight on each side, on the average.
    usual: [Usual; 2],
    /// Of the bytes that are read, how many small reads read, 0 to 1.
    small_share: f64,
    small: Seen,
    bulk: Seen,
    /// Bytes in flight on the fast side up to which long reads are served there while small ones are about, in
    /// bandwidth-delay products.
    allowance: f64,
    allowance_most: f64,
    /// Of long reads, how many may find the fast side idle.
    idle_share: f64,
}

/// When requests of a kind come.
#[derive(Debug, Default)]
struct Seen {
    last: Option<Nanos>,
    /// How far apart, in ns, lately.
    gap: f64,
}

impl Seen {
    /// They are about when the last one is not longer ago than this many of their usual gaps…
    const GAPS: f64 = 16.0;
    /// …and at least so long, and at most, in ns.
    const LEAST: f64 = 1e6;
    const MOST: f64 = 20e6;

    fn note(&mut self, now: Nanos) {
        if let Some(last) = self.last {
            let gap = now.saturating_sub(last) as f64;
            self.gap += (gap.min(Seen::MOST) - self.gap) / 16.0;
        }
        self.last = Some(now);
    }

    fn about(&self, now: Nanos) -> bool {
        let quiet = (Seen::GAPS * self.gap).clamp(Seen::LEAST, Seen::MOST);
        let since = |last| now.saturating_sub(last) as f64;
        self.last.is_some_and(|last| since(last) <= quiet)
    }
}

/// A load, averaged.
#[derive(Debug, Clone, Copy, Default)]
struct Usual {
    bytes: f64,
    requests: f64,
    written: f64,
}

impl Usual {
    fn note(&mut self, load: Load) {
        self.bytes += (load.in_flight_bytes as f64 - self.bytes) / 64.0;
        self.written += (load.written_bytes as f64 - self.written) / 64.0;
        self.requests += (load.in_flight_requests as f64 - self.requests) / 64.0;
    }

    fn load(self) -> Load {
        Load {
            in_flight_bytes: self.bytes as u64,
            in_flight_requests: self.requests.round() as u64,
            written_bytes: self.written as u64,
        }
    }
}

impl Aware {
    pub fn new(sides: Sides) -> Aware {
        let share = sides.fast.rate / (sides.fast.rate + sides.slow.rate);
        let typical = TYPICAL_BYTES * share / sides.fast.bandwidth_delay_bytes.max(1.0);
        Aware {
            fast: Belief::new(sides.fast),
            slow: Belief::new(sides.slow),
            watch: Watch::new(sides.slow.lone_us(LINE_BYTES)),
            fallback: balance(sides),
            told: sides,
            busy: 0.0,
            usual: [Usual::default(); 2],
            small_share: 0.0,
            small: Seen::default(),
            bulk: Seen::default(),
            allowance_most: 1.0 + MOST * typical / (1.0 - share).powi(2),
            idle_share: IDLE_SHARE * (1.0 - share).powi(2),
            allowance: 1.0 + typical,
        }
    }

    fn alarmed(&self) -> bool {
        self.fast.alarmed() || self.slow.alarmed()
    }

    fn small(&mut self, view: &View, asked: &Asked) -> ReadPlan {
        self.small.note(view.now);
        let (fast, slow) = (&self.fast, &self.slow);
        let len = asked.len;
        let (fast_us, slow_us) = (
            fast.loaded_us(len, view.fast),
            slow.loaded_us(len, view.slow),
        );
        // With n under way a side gets n / loaded done, and loaded² = lone² + queue² with a queue that grows with n. So one
        // more raises that by lone² / loaded³: the side where this is more serves best, once the fast one is busy. While
        // it is so seldom, or long reads fill it anyway, the sooner answer is the better.
        let crowded = match self.bulk.about(view.now) {
            true => 0.0,
            false => (2.0 * self.busy - 1.0).max(0.0),
        };
        let handicap = (slow.lone_us(len) / fast.lone_us(len))
            .max(1.0)
            .powf(crowded * 2.0 / 3.0);
        let goes_fast = fast_us * handicap <= slow_us;
        let reason = if goes_fast {
            Reason::Hit
        } else {
            Reason::Budget
        };
        let admit = self.worth_a_fill(view, len);
        plan(asked, goes_fast, admit, reason)
    }

    fn bulk(&mut self, view: &View, asked: &Asked) -> ReadPlan {
        self.bulk.note(view.now);
        let mut bytes = self.even_cut(view, asked.len);
        if self.small.about(view.now) {
            let busy = self.fast.told().bandwidth_delay_bytes;
            let in_flight = self.fast.told().link_bytes(view.fast);
            let step = match in_flight < BUSY * busy {
                true => STEP,
                false => -STEP * self.idle_share,
            };
            self.allowance = (self.allowance + step).clamp(1.0, self.allowance_most);
            // A slow side that is idle too would only be late with what it is given.
            let slow = self.slow.told();
            if slow.read_bytes(view.slow) >= slow.bandwidth_delay_bytes {
                bytes = bytes.min(self.allowance * busy - in_flight);
            }
        }
        let admit = self.worth_a_fill(view, asked.len);
        // Whole lines, so that neither part reads a line for the other.
        let mut fast_bytes = (bytes.max(0.0) as u64).min(asked.held_bytes) & !(LINE_BYTES - 1);
        if fast_bytes < PART_BYTES {
            fast_bytes = 0;
        }
        if asked.len - fast_bytes < PART_BYTES {
            fast_bytes = asked.held_bytes;
        }
        ReadPlan {
            join_bytes: self.slow.told().join_bytes(),
            fast_bytes,
            ..plan(asked, true, admit, Reason::Bulk)
        }
    }

    /// Whether a copy would save more than it costs: the time by which what is queued on the fast side waits longer, or
    /// what may come meanwhile. It may be void before it is used.
    fn worth_a_fill(&self, view: &View, len: u64) -> bool {
        let (fast, slow) = (&self.fast, &self.slow);
        let [usual_fast, usual_slow] = self.usual.map(Usual::load);
        let saves = |len| slow.cost_us(len, usual_slow) - fast.cost_us(len, usual_fast);
        // What is written at once may be read in small pieces.
        let lines = len as f64 / LINE_BYTES as f64;
        let in_pieces = self.small_share * lines * saves(LINE_BYTES).max(0.0);
        let saved_us = saves(len).max(in_pieces);
        let fast = fast.told();
        let others = self.busy + fast.waiting(view.fast);
        let filling_us = others * len as f64 * fast.write_harm_us;
        REUSE * saved_us > filling_us
    }

    /// Bytes for the fast side so that both sides end together.
    fn even_cut(&self, view: &View, len: u64) -> f64 {
        // What is learnt of a side is learnt of reads as long as those it gets: the parts, not the whole.
        let fast = self.cut_for(view, len, [len, len]) as u64;
        self.cut_for(view, len, [fast.max(1), len.saturating_sub(fast).max(1)])
    }

    /// The same, by what is believed of reads of these lengths.
    fn cut_for(&self, view: &View, len: u64, parts: [u64; 2]) -> f64 {
        let (fast, slow) = (&self.fast, &self.slow);
        let (fast, slow) = (
            fast.outlook(parts[0], view.fast),
            slow.outlook(parts[1], view.slow),
        );
        let (fast_us, slow_us) = (fast.loaded_us(0, view.fast), slow.loaded_us(0, view.slow));
        let share = fast.rate / (fast.rate + slow.rate);
        let cut = share * (len as f64 + (slow_us - fast_us) * slow.rate);
        // Neither side does anything before its commands are taken.
        cut.clamp(0.0, len as f64)
    }
}

impl Filter for Aware {
    fn read(&mut self, view: &View, asked: &Asked) -> ReadPlan {
        let fast = self.fast.told();
        let busy = fast.read_bytes(view.fast) >= fast.bandwidth_delay_bytes;
        self.busy += (f64::from(u8::from(busy)) - self.busy) / 64.0;
        self.usual[0].note(view.fast);
        self.usual[1].note(view.slow);
        let is_small = asked.len <= SMALL_BYTES && asked.run_bytes <= STREAM_BYTES;
        // Weighed by length: long reads move the average further.
        let weight = (asked.len as f64 / (64.0 * TYPICAL_BYTES)).min(1.0);
        self.small_share += (f64::from(u8::from(is_small)) - self.small_share) * weight;
        let ours = match is_small {
            true => self.small(view, asked),
            false => self.bulk(view, asked),
        };
        if self.alarmed() {
            let theirs = self.fallback.read(view, asked);
            let reason = if asked.held_bytes > 0 {
                Reason::Drift
            } else {
                theirs.reason
            };
            return ReadPlan { reason, ..theirs };
        }
        self.watch.read(asked);
        match self.watch.only(view, &self.fast, &self.slow) {
            None => ours,
            Some(side) => plan(asked, side == Side::Fast, ours.admit, Reason::Guard),
        }
    }

    fn write(&mut self, view: &View, write: &Write) -> WritePlan {
        match self.worth_a_fill(view, write.len) {
            true => keep_what_was_held(write),
            false => WritePlan {
                admit: false,
                reason: Reason::NotAdmitted,
            },
        }
    }

    fn ended(&mut self, ended: &Ended) {
        self.watch.ended(ended);
        self.fallback.ended(ended);
        match ended.side {
            Side::Fast => self.fast.learn(ended),
            Side::Slow => self.slow.learn(ended),
        }
    }

    fn sides(&self) -> &Sides {
        &self.told
    }

    fn saved_us(&self, view: &View, asked: &Asked) -> f64 {
        let fast = self.fast.loaded_us(asked.len, view.fast);
        let slow = self.slow.loaded_us(asked.len, view.slow);
        (slow - fast).max(0.0)
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            budget_bytes: Some(self.allowance * self.fast.told().bandwidth_delay_bytes),
            drift: Some([self.fast.drift(), self.slow.drift()]),
            alarmed: self.alarmed(),
            only: self.watch.present(),
            ..Gauges::default()
        }
    }
}
