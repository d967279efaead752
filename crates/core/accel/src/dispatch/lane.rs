//! One accelerator within one run: its budget and its counters.
//!
//! Invariants
//! - The bytes in flight are bounded by the lane's budget, which shrinks by what calls hold that never returned.
//! - A call that takes too long costs the device its standing, not the run its data: software compresses the same
//!   blocks.
//!
//! Leaves to others: which blocks go to an accelerator (`inner.rs`), its threads (`puller.rs`), checking results
//! (`check.rs`), and what outlives a run (`standing.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_balance::constants::accelerator::{
    ALONE, MEASURED, ROUND, STEPS_LEAST, STEPS_MOST, UNFED_HALVES,
};
use longshore_balance::{Budget, Completion, Depth, InFlight, Load, Permit};
use longshore_codec::Algorithm;
use parking_lot::Mutex;

use super::desk::NotDone;
use super::in_service::InService;
use super::terms::{LOOK, Mode, Terms};
use crate::engine::RUN_TIME;
use crate::{Engine, EngineState, Fault};

/// How long a lane out of service, or a worker without room, waits before its next check.
pub const NAP: Duration = Duration::from_millis(20);
/// A part of a batch waits for the rest for this part of a slow call's time.
const PATIENCE_PART: u32 = 4;
/// A lane without work wakes at most this often.
const PATIENCE_LEAST: Duration = Duration::from_millis(2);
/// The time that all calls together may be expected to take is the bound of one call divided by this: a call is given
/// up only if it takes far longer than expected.
const BOUND_PARTS: f64 = 2.0;
/// The call that is taken for the slowest one of a device: ninety-nine of a hundred are faster.
const SLOW_CALL: f64 = 0.99;
/// The fastest device for which there are enough buffers in hybrid mode does the work of this many cores.
const DEVICE_CORES: usize = 20;
/// Buffers next to these for each CPU, in hybrid mode: one that it fills, one that waits.
const CPU_BUFFERS: usize = 2;
/// Batches for each call that a device takes at once: one at work, one that waits.
const ROUNDS: usize = 2;
/// A batch may end at so many times its start, so that the last block of one need not wait for the next.
const BATCH_STRETCH: u64 = 2;
/// The quantile of calls that a block is expected to wait for: half of them are faster.
const TYPICAL_CALL: f64 = 0.5;

pub struct Lane {
    pub(super) accelerator: Arc<InService>,
    in_flight: InFlight,
    /// The bytes that it may hold whatever is worth while: its allowance without what hung calls hold.
    most_bytes: AtomicU64,
    /// The bytes that it may hold while CPUs also compress; and the maximum, twice that in hybrid mode.
    shared_bytes: u64,
    allowance_bytes: u64,
    buffer_bytes: u64,
    /// The time that all calls together may be expected to take: far below the bound at which one is given up.
    calls_within_s: f64,
    /// Bytes in flight while CPUs also compress: enough to keep the device busy; more only lengthens its queue.
    enough_bytes: AtomicU64,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    blocks: u64,
    plain_bytes: u64,
    payload_bytes: u64,
    calls: u64,
    service_us: u64,
    verified: u64,
    verify_failures: u64,
    recomputed: u64,
    hedged: u64,
    stolen: u64,
    faults: BTreeMap<&'static str, u64>,
    alarms: Vec<String>,
    round: Round,
    depth: Option<Depth>,
}

#[derive(Default)]
struct Round {
    calls: u64,
    began_us: u64,
    bytes: u64,
    service_us: u64,
}

/// The counters of one accelerator in a run, and its standing.
#[derive(Debug, Clone)]
pub struct EngineUse {
    pub name: &'static str,
    pub state: EngineState,
    /// Why it is not ready; empty if it is.
    pub reason: String,
    /// Blocks whose result was used.
    pub blocks: u64,
    pub plain_bytes: u64,
    pub payload_bytes: u64,
    pub calls: u64,
    /// Call times: the mean, and the 99th percentile.
    pub service_us_mean: u64,
    pub service_us_p99: Option<u64>,
    /// Measured while it had enough work.
    pub rate_bytes_per_s: Option<f64>,
    pub queued_bytes: u64,
    pub in_flight_bytes: u64,
    pub in_flight_bytes_max: u64,
    /// Results that were decoded again, and those that were wrong.
    pub verified: u64,
    pub verify_failures: u64,
    /// Blocks that were given to the accelerator and then done by software.
    pub recomputed: u64,
    /// Of these: blocks for which the writer waited, and blocks that idle CPUs took.
    pub hedged: u64,
    pub stolen: u64,
    /// By kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Facts that an operator must know.
    pub alarms: Vec<String>,
}

impl InService {
    /// Whether it supports this algorithm and may be ready now or later.
    pub fn serves(&self, algorithm: Algorithm) -> bool {
        self.engine().caps().algorithm == algorithm
            && !matches!(self.state().0, EngineState::Absent | EngineState::Off)
    }

    /// Buffers of `buffer_bytes` that keep it busy: a batch for each call, and as many waiting. In hybrid mode, also
    /// the amount that a device as fast as [`DEVICE_CORES`] cores does while the CPUs compress.
    pub fn buffers_busy(&self, mode: Mode, buffer_bytes: usize, cpus: usize) -> usize {
        let caps = self.engine().caps();
        let batch = caps.batch_bytes.start.div_ceil(buffer_bytes.max(1)).max(1);
        let least = match mode {
            Mode::Hardware => 0,
            Mode::Hybrid => DEVICE_CORES + CPU_BUFFERS * cpus,
        };
        (ROUNDS * batch * caps.calls_max.max(1)).max(least)
    }
}

impl Lane {
    pub fn new(accelerator: Arc<InService>, terms: &Terms) -> Lane {
        accelerator.known().standing.begin_run();
        let busy = accelerator.buffers_busy(terms.mode, terms.buffer_bytes, terms.cpus);
        let (shared, most) = match terms.mode {
            Mode::Hardware => (busy, busy),
            Mode::Hybrid => (
                busy.min(terms.allowance_buffers.div_ceil(2)),
                ALONE as usize * busy,
            ),
        };
        let bytes = |buffers: usize| {
            buffers.min(terms.allowance_buffers) as u64 * terms.buffer_bytes as u64
        };
        let lane = Lane {
            shared_bytes: bytes(shared),
            allowance_bytes: bytes(most),
            buffer_bytes: terms.buffer_bytes as u64,
            calls_within_s: terms.hang_bound.as_secs_f64() / BOUND_PARTS,
            enough_bytes: AtomicU64::new(0),
            accelerator,
            in_flight: InFlight::default(),
            most_bytes: AtomicU64::new(0),
            counts: Mutex::new(Counts {
                depth: Some(Depth::new(STEPS_LEAST, STEPS_MOST)),
                ..Counts::default()
            }),
        };
        lane.set_limit((0, 0), None, terms);
        lane
    }

    pub(super) fn engine(&self) -> &dyn Engine {
        &**self.accelerator.engine()
    }

    pub fn calls_max(&self) -> usize {
        self.engine().caps().calls_max.max(1)
    }

    pub fn input_bytes_max(&self) -> u64 {
        self.engine().caps().input_bytes_max as u64
    }

    pub fn state(&self) -> EngineState {
        self.accelerator.known().standing.state()
    }

    pub fn is_ready(&self) -> bool {
        self.state() == EngineState::Ready
    }

    /// Bytes of one call.
    pub fn batch(&self) -> Range<u64> {
        let batch = &self.engine().caps().batch_bytes;
        // A small allowance, and the smallest budget, must still fill a batch.
        let share = (self.shared_bytes / (ROUNDS * self.calls_max()) as u64).max(1);
        // An unmeasured device begins with one buffer: it may be slow, and the writer waits for its blocks.
        let (calls, rate) = {
            let known = self.accelerator.known();
            (
                u32::try_from(known.service.count()).unwrap_or(u32::MAX),
                known.estimate.rate_bytes_per_s(),
            )
        };
        let trusted = self.buffer_bytes.saturating_mul(2u64.saturating_pow(calls));
        // A slow device must not seem to hang because its batches are large, and a batch may end at more than its start.
        let ends = BATCH_STRETCH as f64 * self.calls_max() as f64;
        let in_time = rate.map_or(0, |rate| (rate * self.calls_within_s / ends) as u64);
        let most = share.min(trusted).min(in_time.max(self.buffer_bytes));
        let start = (batch.start as u64).min(most).max(1);
        start..(batch.end as u64).min(BATCH_STRETCH * start).max(start)
    }

    /// Admits a block: up to the bytes that keep the device busy while CPUs compress, or more if it is `alone`.
    pub fn try_admit(&self, len_bytes: u64, alone: bool) -> Option<Permit> {
        let enough = self.enough_bytes.load(Ordering::Relaxed);
        let limit = match alone {
            true => enough.saturating_mul(ALONE),
            false => enough,
        };
        let budget = Budget::new(limit).within(self.most_bytes());
        self.in_flight.try_admit(len_bytes, budget)
    }

    /// The bytes that it may hold at most; 0 if hung calls hold all of them.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// When a block put now would be done, by the device's rate; 0 before the first measurement, so that the device
    /// gets measured.
    pub fn loaded_us(&self, len_bytes: u64) -> u64 {
        let ahead = Load::of(self.with_batches(len_bytes) - len_bytes);
        let known = self.accelerator.known();
        known.estimate.loaded_us(len_bytes, ahead) as u64
    }

    /// The latest time at which it would be done: a rate does not describe a device that takes a fixed time for each
    /// call, whatever the call carries.
    pub fn latest_us(&self, len_bytes: u64) -> u64 {
        let round = self.batch().end.max(1) * self.calls_max() as u64;
        let rounds = self.with_batches(len_bytes).div_ceil(round);
        let call_us = self.accelerator.known().service.quantile_us(TYPICAL_CALL);
        self.loaded_us(len_bytes).max(rounds * call_us.unwrap_or(0))
    }

    /// Bytes in flight including this block: a block travels with a batch, and a batch ends as a whole.
    fn with_batches(&self, len_bytes: u64) -> u64 {
        (self.in_flight.bytes() + len_bytes).next_multiple_of(self.batch().start)
    }

    /// Bytes per second if it were always fed; 0 before the first measurement.
    pub fn rate_if_full(&self) -> f64 {
        let in_flight = self.batch().end * self.calls_max() as u64;
        let known = self.accelerator.known();
        known.estimate.rate_with(in_flight)
    }

    /// Whether any call has succeeded.
    pub fn is_measured(&self) -> bool {
        self.accelerator.known().service.count() > 0
    }

    pub fn delivered_bytes(&self) -> u64 {
        self.accelerator.known().delivered_bytes
    }

    /// The bytes that it does within that time.
    pub fn bytes_within(&self, us: u64) -> u64 {
        let rate = self.accelerator.known().estimate.rate_bytes_per_s();
        rate.map_or(0, |rate| (rate * us as f64 / 1e6) as u64)
    }

    /// The 99th percentile of its calls, once that is known.
    pub fn slow_call(&self) -> Option<Duration> {
        let known = self.accelerator.known();
        let p99 = known.service.quantile_us(SLOW_CALL);
        let believed = known.service.count() >= MEASURED;
        p99.filter(|_| believed).map(Duration::from_micros)
    }

    /// How long a part of a batch waits for the rest.
    pub fn patience(&self) -> Duration {
        let patience = self.slow_call().unwrap_or_default() / PATIENCE_PART;
        // Waiting for a batch never makes the writer wait long enough for a hedge.
        patience.clamp(PATIENCE_LEAST, LOOK / 2)
    }

    /// Sets the bytes that may be in flight. Jobs in hung calls count as held for ever. `core_us`: the time of one
    /// core for a buffer.
    pub fn set_limit(
        &self,
        (lost_jobs, lost_calls): (usize, usize),
        core_us: Option<u64>,
        terms: &Terms,
    ) {
        let lost = lost_jobs as u64 * terms.buffer_bytes as u64;
        let left = self.allowance_bytes.saturating_sub(lost);
        if lost_calls > 0 && left < self.batch().start {
            let reason = "calls that never returned hold all of its buffers; reset the device";
            self.accelerator.known().standing.off(reason.into());
        }
        let wanted = match terms.mode {
            Mode::Hardware => u64::MAX,
            // CPUs compress meanwhile: one buffer is enough to measure the device.
            Mode::Hybrid if !self.is_measured() => 1,
            Mode::Hybrid => {
                let bdp = self.accelerator.known().estimate.bdp_bytes();
                let steps = self.counts.lock().depth.as_ref().map_or(0, Depth::steps);
                // At least one batch for each call and one to follow.
                let least = (self.calls_max() as u64 + 1) * self.batch().start;
                // The bytes that the device does while all cores that could feed it compress, and half more.
                let unfed = self.bytes_within(core_us.unwrap_or(0));
                let unfed = unfed.saturating_mul(UNFED_HALVES) / 2;
                // A depth that helps is found in steps of half a bandwidth-delay product.
                let busy = Budget::of(1.0 + f64::from(steps) / 2.0, bdp).limit_bytes;
                least.max(unfed).max(busy).min(self.shared_bytes.min(left))
            }
        };
        self.enough_bytes.store(wanted, Ordering::Relaxed);
        self.most_bytes.store(left, Ordering::Relaxed);
    }

    /// Counts a call that was given up.
    pub fn hung(&self, now: Duration) {
        self.fault(now, Fault::Hung);
    }

    /// Counts a fault and updates the standing.
    pub fn fault(&self, now: Duration, fault: Fault) {
        let health = self.engine().health();
        let (before, after, reason) = {
            let mut known = self.accelerator.known();
            let before = known.standing.state();
            known.standing.fault(now, fault, &health);
            let reason = known.standing.reason().to_owned();
            (before, known.standing.state(), reason)
        };
        let name = self.engine().caps().name;
        let mut counts = self.counts.lock();
        *counts.faults.entry(fault_name(fault)).or_default() += 1;
        let text = match (before, after) {
            (EngineState::Ready, EngineState::Suspended) => {
                format!("{name} is suspended: {reason}")
            }
            (EngineState::Off, _) => return,
            (_, EngineState::Off) => format!("{name} is no longer used: {reason}"),
            _ if fault == Fault::Corrupt => {
                format!("{name} gave a wrong result; software compressed that block instead")
            }
            _ => return,
        };
        tracing::warn!(
            number = RUN_TIME,
            engine = name,
            fault = fault_name(fault),
            "{text}"
        );
        if counts.alarms.len() < ALARMS_MAX {
            counts.alarms.push(text);
        }
    }

    /// Whether this result must be decoded again.
    pub fn take_sample(&self, sequence: u64, terms: &Terms) -> bool {
        let fresh = self.accelerator.known().standing.take_fresh();
        terms.verify.takes(sequence, fresh)
    }

    /// Counts a result that passed its checks and is used.
    pub fn used(&self, plain_bytes: usize, payload_bytes: usize, verified: bool) {
        self.accelerator.known().standing.served();
        let mut counts = self.counts.lock();
        counts.blocks += 1;
        counts.plain_bytes += plain_bytes as u64;
        counts.payload_bytes += payload_bytes as u64;
        counts.verified += u64::from(verified);
    }

    /// Counts a result that failed its checks.
    pub fn refused(&self, now: Duration) {
        self.counts.lock().verify_failures += 1;
        self.fault(now, Fault::Corrupt);
    }

    /// Counts a block that had been put here and that software did.
    pub fn recomputed(&self, why: Option<NotDone<Fault>>) {
        let mut counts = self.counts.lock();
        counts.recomputed += 1;
        counts.hedged += u64::from(why == Some(NotDone::Hedged));
        counts.stolen += u64::from(why == Some(NotDone::Stolen));
    }

    /// Learns from a call that succeeded.
    pub fn learn(&self, bytes: u64, (began_us, now_us): (u64, u64), delivered_before: u64) {
        let latency_us = now_us.saturating_sub(began_us);
        let drifted = {
            let mut known = self.accelerator.known();
            known.service.add(latency_us);
            known.delivered_bytes = known.delivered_bytes.saturating_add(bytes);
            let delivered_bytes = known.delivered_bytes.saturating_sub(delivered_before);
            let drifted = known.estimate.learn(&Completion {
                now_us,
                len_bytes: bytes,
                took_us: latency_us as f64,
                // The estimate knows that other calls are in flight.
                before: Load::default(),
                delivered_bytes,
            });
            drifted.filter(|d| d.factor > 1.0)
        };
        let mut counts = self.counts.lock();
        counts.calls += 1;
        counts.service_us += latency_us;
        if let Some(drifted) = drifted
            && counts.alarms.len() < ALARMS_MAX
        {
            let name = self.engine().caps().name;
            let text = format!("{name} takes {:.1} times as long as before", drifted.factor);
            tracing::warn!(number = RUN_TIME, engine = name, "{text}");
            counts.alarms.push(text);
        }
        let round = &mut counts.round;
        if round.calls == 0 {
            round.began_us = began_us;
        }
        round.calls += 1;
        round.bytes += bytes;
        round.service_us += latency_us;
        if round.calls == ROUND {
            let ended = std::mem::take(round);
            let elapsed_us = now_us.saturating_sub(ended.began_us).max(1);
            let rate = ended.bytes as f64 * 1e6 / elapsed_us as f64;
            let service_us = ended.service_us as f64 / ended.calls as f64;
            if let Some(depth) = &mut counts.depth {
                depth.round(rate, service_us);
            }
        }
    }

    pub fn snapshot(&self, queued_bytes: u64) -> EngineUse {
        let (state, reason) = self.accelerator.state();
        let (service_us_p99, rate_bytes_per_s) = {
            let known = self.accelerator.known();
            let p99 = known.service.quantile_us(SLOW_CALL);
            (p99, known.estimate.rate_bytes_per_s())
        };
        let counts = self.counts.lock();
        EngineUse {
            name: self.engine().caps().name,
            state,
            reason,
            blocks: counts.blocks,
            plain_bytes: counts.plain_bytes,
            payload_bytes: counts.payload_bytes,
            calls: counts.calls,
            service_us_mean: counts.service_us.checked_div(counts.calls).unwrap_or(0),
            service_us_p99,
            rate_bytes_per_s,
            queued_bytes,
            in_flight_bytes: self.in_flight.bytes(),
            in_flight_bytes_max: self.most_bytes(),
            verified: counts.verified,
            verify_failures: counts.verify_failures,
            recomputed: counts.recomputed,
            hedged: counts.hedged,
            stolen: counts.stolen,
            faults: counts.faults.clone(),
            alarms: counts.alarms.clone(),
        }
    }
}

/// Alarms kept for the report; all of them are logged.
const ALARMS_MAX: usize = 16;

fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::Busy => "busy",
        Fault::Device { .. } => "device",
        Fault::NoRoom => "no room",
        Fault::Short => "short",
        Fault::Corrupt => "corrupt",
        Fault::Hung => "hung",
        Fault::Memory => "memory",
        Fault::Down => "down",
    }
}
