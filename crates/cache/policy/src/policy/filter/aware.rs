//! Serves by size and by the bytes in flight: small and shallow reads from the fast side, large and deep ones from
//! both.
//!
//! The fast side's latency is its advantage as long as few requests wait for it. A small read goes there until another
//! one there would add less to the total throughput than on the slow side. A long read is cut so that both sides
//! finish at the same time. While small reads are frequent, the fast side gets no more of a long read than keeps it
//! busy until the next one arrives.
//!
//! That amount, the allowance, is learnt: if a long read finds the fast side idle, the allowance was too small; if it
//! finds it busy, the allowance may shrink.
//!
//! Invariants
//! - Decisions depend only on the arguments and on what earlier calls reported. No clock is read, and nothing waits.
//! - The fast side is never given more bytes of a read than it holds.
//! - A part of a long read has at least `PART_BYTES`, or it is not split off. The fast part ends at a line, unless the
//!   fast side serves all that it holds.
//! - While the measured latency of a side differs from its outlook, `balance.rs` decides about reads, and the gauges
//!   say so.
//!
//! Leaves to others: the arithmetic of estimates and allowances (`longshore-balance`); the guard that turns a side off
//! (`watch.rs`); carrying the plans out (`longshore-blockcache`).

use longshore_balance::constants::cache;
use longshore_balance::{Allowance, Band, Budget, Completion, Estimate, Idling, Trust};

use super::balance::{Balance, balance};
use super::door::{Filter, ReadRequest, Sides, keep_what_was_held, plan};
use super::shared::SharedFilter;
use super::watch::SideGuard;
use crate::model::{Nanos, Op};
use crate::policy::{
    EndedRequest, Gauges, LINE_BYTES, Load, Outlook, Purpose, ReadPlan, Reason, Side, View, Write,
    WritePlan,
};

pub struct Aware {
    fast: Estimate,
    slow: Estimate,
    watch: SideGuard,
    /// Decides while the devices differ from their outlooks.
    fallback: SharedFilter<Balance>,
    told: Sides,
    /// How often the fast side is found busy, 0 to 1.
    busy: f64,
    /// The average load that reads find on each side.
    usual: [Usual; 2],
    /// The share of small reads among the bytes read, 0 to 1.
    small_share: f64,
    small: ArrivalTimes,
    bulk: ArrivalTimes,
    /// Bytes in flight on the fast side up to which long reads are served there while small reads are frequent.
    allowance: Allowance,
}

/// The arrival times of one kind of request.
#[derive(Debug, Default)]
struct ArrivalTimes {
    last: Option<Nanos>,
    /// Their recent distance, in ns.
    gap: f64,
}

impl ArrivalTimes {
    fn note(&mut self, now: Nanos) {
        if let Some(last) = self.last {
            let gap = now.saturating_sub(last) as f64;
            self.gap += (gap.min(cache::QUIET_MOST_NS) - self.gap) * cache::GAP_WEIGHT;
        }
        self.last = Some(now);
    }

    fn about(&self, now: Nanos) -> bool {
        let quiet = (cache::GAPS * self.gap).clamp(cache::QUIET_LEAST_NS, cache::QUIET_MOST_NS);
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
        let towards = |mean: &mut f64, new: u64| *mean += (new as f64 - *mean) * cache::READ_WEIGHT;
        towards(&mut self.bytes, load.in_flight_bytes);
        towards(&mut self.written, load.written_bytes);
        towards(&mut self.requests, load.in_flight_requests);
    }

    fn load(self) -> Load {
        Load {
            in_flight_bytes: self.bytes as u64,
            in_flight_requests: self.requests.round() as u64,
            written_bytes: self.written as u64,
        }
    }
}

/// What is known of a device: its outlook, until its reads say otherwise.
fn estimate(outlook: Outlook) -> Estimate {
    let trust = Trust {
        small_bytes: cache::SMALL_BYTES,
        weight: cache::CORRECTION_WEIGHT,
        factors: [cache::FACTOR_LEAST, cache::FACTOR_MOST],
    };
    let band = Band {
        factor: cache::DRIFT,
        weight: cache::CORRECTION_WEIGHT,
        settled: 0,
        lasting_us: cache::ALARM_US,
    };
    Estimate::told(outlook, trust, band)
}

impl Aware {
    pub fn new(sides: Sides) -> Aware {
        let share = sides.fast.rate_bytes_per_us
            / (sides.fast.rate_bytes_per_us + sides.slow.rate_bytes_per_us);
        let typical =
            cache::TYPICAL_BYTES as f64 * share / sides.fast.bandwidth_delay_bytes.max(1.0);
        let idling = Idling {
            busy: cache::BUSY,
            idle_share: cache::IDLE_SHARE * (1.0 - share).powi(2),
            step: cache::STEP,
            most: 1.0 + cache::MOST * typical / (1.0 - share).powi(2),
        };
        Aware {
            fast: estimate(sides.fast),
            slow: estimate(sides.slow),
            watch: SideGuard::new(sides.slow.lone_us(LINE_BYTES)),
            fallback: balance(sides),
            told: sides,
            busy: 0.0,
            usual: [Usual::default(); 2],
            small_share: 0.0,
            small: ArrivalTimes::default(),
            bulk: ArrivalTimes::default(),
            allowance: Allowance::new(1.0 + typical, idling),
        }
    }

    fn budget(&self) -> Budget {
        self.allowance.budget(self.told.fast.bandwidth_delay_bytes)
    }

    fn alarmed(&self) -> bool {
        self.fast.alarmed() || self.slow.alarmed()
    }

    fn small(&mut self, view: &View, asked: &ReadRequest) -> ReadPlan {
        self.small.note(view.now);
        let (fast, slow) = (&self.fast, &self.slow);
        let len_bytes = asked.len_bytes;
        let (fast_us, slow_us) = (
            fast.loaded_us(len_bytes, view.fast),
            slow.loaded_us(len_bytes, view.slow),
        );
        // With n in flight a side completes n / loaded, and loaded² = lone² + queue² with a queue that grows with n.
        // So one more raises that by lone² / loaded³, and two thirds is the exponent that compares the sides: once the
        // fast side is busy, the side with the larger value serves best. If it is seldom busy, or long reads fill it
        // anyway, the sooner answer is better.
        let crowded = match self.bulk.about(view.now) {
            true => 0.0,
            false => ((self.busy - cache::CROWDED_FROM) / (1.0 - cache::CROWDED_FROM)).max(0.0),
        };
        let handicap = (slow.lone_us(len_bytes) / fast.lone_us(len_bytes))
            .max(1.0)
            .powf(crowded * 2.0 / 3.0);
        let goes_fast = fast_us * handicap <= slow_us;
        let reason = if goes_fast {
            Reason::Hit
        } else {
            Reason::Budget
        };
        let admit = self.worth_a_fill(view, len_bytes);
        plan(asked, goes_fast, admit, reason)
    }

    fn bulk(&mut self, view: &View, asked: &ReadRequest) -> ReadPlan {
        self.bulk.note(view.now);
        let mut bytes = self.even_cut(view, asked.len_bytes);
        if self.small.about(view.now) {
            let Sides { fast, slow } = &self.told;
            let in_flight = fast.link_bytes(view.fast);
            self.allowance.found(in_flight, fast.bandwidth_delay_bytes);
            // A slow side that is also idle would only be late with its part.
            if slow.read_bytes(view.slow) >= slow.bandwidth_delay_bytes {
                let room = self.budget().room_bytes(in_flight.ceil() as u64);
                bytes = bytes.min(room as f64);
            }
        }
        let admit = self.worth_a_fill(view, asked.len_bytes);
        // Whole lines, so that neither part reads a line for the other.
        let mut fast_bytes = (bytes.max(0.0) as u64).min(asked.held_bytes) & !(LINE_BYTES - 1);
        if fast_bytes < cache::PART_BYTES {
            fast_bytes = 0;
        }
        if asked.len_bytes - fast_bytes < cache::PART_BYTES {
            fast_bytes = asked.held_bytes;
        }
        ReadPlan {
            join_bytes: self.told.slow.join_bytes(),
            fast_bytes,
            ..plan(asked, true, admit, Reason::Bulk)
        }
    }

    /// Whether a copy would save more than it costs: the longer wait of the requests queued on the fast side, or of
    /// requests that arrive meanwhile. The copy is assumed to be used once: later uses are as uncertain as this one.
    fn worth_a_fill(&self, view: &View, len_bytes: u64) -> bool {
        let (fast, slow) = (&self.fast, &self.slow);
        let [usual_fast, usual_slow] = self.usual.map(Usual::load);
        let saves =
            |len_bytes| slow.cost_us(len_bytes, usual_slow) - fast.cost_us(len_bytes, usual_fast);
        // Data written at once may be read in small pieces.
        let lines = len_bytes as f64 / LINE_BYTES as f64;
        let in_pieces = self.small_share * lines * saves(LINE_BYTES).max(0.0);
        let saved_us = saves(len_bytes).max(in_pieces);
        let fast = &self.told.fast;
        let others = self.busy + fast.waiting(view.fast);
        let filling_us = others * len_bytes as f64 * fast.write_harm_us;
        saved_us > filling_us
    }

    /// Bytes for the fast side so that both sides finish together.
    fn even_cut(&self, view: &View, len_bytes: u64) -> f64 {
        // A side's corrections are learnt from reads as long as those it gets: the parts, not the whole.
        let fast = self.cut_for(view, len_bytes, [len_bytes, len_bytes]) as u64;
        self.cut_for(
            view,
            len_bytes,
            [fast.max(1), len_bytes.saturating_sub(fast).max(1)],
        )
    }

    /// The same, by the corrected outlooks for reads of these lengths.
    fn cut_for(&self, view: &View, len_bytes: u64, parts: [u64; 2]) -> f64 {
        let (fast, slow) = (&self.fast, &self.slow);
        let (fast, slow) = (
            fast.outlook(parts[0], view.fast),
            slow.outlook(parts[1], view.slow),
        );
        let (fast_us, slow_us) = (fast.loaded_us(0, view.fast), slow.loaded_us(0, view.slow));
        let share = fast.rate_bytes_per_us / (fast.rate_bytes_per_us + slow.rate_bytes_per_us);
        let cut = share * (len_bytes as f64 + (slow_us - fast_us) * slow.rate_bytes_per_us);
        // Neither side starts before its commands are taken.
        cut.clamp(0.0, len_bytes as f64)
    }
}

impl Filter for Aware {
    fn read(&mut self, view: &View, asked: &ReadRequest) -> ReadPlan {
        let fast = &self.told.fast;
        let busy = fast.read_bytes(view.fast) >= fast.bandwidth_delay_bytes;
        self.busy += (f64::from(u8::from(busy)) - self.busy) * cache::READ_WEIGHT;
        self.usual[0].note(view.fast);
        self.usual[1].note(view.slow);
        let is_small =
            asked.len_bytes <= cache::SMALL_BYTES && asked.run_bytes <= cache::TYPICAL_BYTES;
        // Weighed by length: long reads move the average further.
        let typicals = asked.len_bytes as f64 / cache::TYPICAL_BYTES as f64;
        let weight = (typicals * cache::READ_WEIGHT).min(1.0);
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
        match self.worth_a_fill(view, write.len_bytes) {
            true => keep_what_was_held(write),
            false => WritePlan {
                admit: false,
                reason: Reason::NotAdmitted,
            },
        }
    }

    fn ended(&mut self, ended: &EndedRequest) {
        self.watch.ended(ended);
        self.fallback.ended(ended);
        if ended.op != Op::Read || ended.purpose != Purpose::Client {
            return;
        }
        let estimate = match ended.side {
            Side::Fast => &mut self.fast,
            Side::Slow => &mut self.slow,
        };
        estimate.learn(&Completion {
            now_us: ended.now / 1000,
            len_bytes: ended.len_bytes,
            took_us: ended.took_us,
            before: ended.before,
            // Requests end about in the order in which they began.
            delivered_bytes: ended.before.in_flight_bytes.saturating_add(ended.len_bytes),
        });
    }

    fn sides(&self) -> &Sides {
        &self.told
    }

    fn saved_us(&self, view: &View, asked: &ReadRequest) -> f64 {
        let fast = self.fast.loaded_us(asked.len_bytes, view.fast);
        let slow = self.slow.loaded_us(asked.len_bytes, view.slow);
        (slow - fast).max(0.0)
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            budget_bytes: Some(self.budget().limit_bytes as f64),
            drift: Some([self.fast.drift(), self.slow.drift()]),
            alarmed: self.alarmed(),
            only: self.watch.present(),
            ..Gauges::default()
        }
    }
}
