//! One accelerator within one run: its budget, its threads, and what it did.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_balance::{Budget, Depth, Finished, Permit};
use parking_lot::Mutex;

use super::desk::{Generation, Pulled, Returned, Undone};
use super::{InService, Inner, MEASURED, Mode, Terms};
use crate::accel::RUN_TIME;
use crate::{Algorithm, Engine, Fault, Job, Outcome, State};

/// Calls after which the depth is looked at again.
const ROUND: u64 = 16;
/// Steps of the budget, halves of a bandwidth-delay product beyond the first: from 2 products to 6.
const STEPS: Range<u32> = 2..10;
/// While it is alone it may hold so many times what keeps it busy beside CPUs that compress: no block of theirs waits
/// behind, and its calls can fall into step, each with all that waits. More only touches memory that was not needed.
const ALONE: u64 = 2;
/// How long a lane out of service waits before it looks again.
const NAP: Duration = Duration::from_millis(20);

pub struct Lane {
    accelerator: Arc<InService>,
    pub budget: Budget,
    /// It may hold so much while CPUs compress besides; and at the very most, which is as much again in hybrid mode.
    shared_bytes: u64,
    allowance_bytes: u64,
    buffer_bytes: u64,
    /// What all calls together may be expected to take: far below the bound at which one is given up.
    calls_within_s: f64,
    /// In flight beside CPUs that compress: this keeps the device busy, more only lengthens its queue.
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

/// What one accelerator did in a run, and how it stands.
#[derive(Debug, Clone)]
pub struct EngineUse {
    pub name: &'static str,
    pub state: State,
    /// Why it is not ready; empty when it is.
    pub reason: String,
    /// Blocks whose result was used.
    pub blocks: u64,
    pub plain_bytes: u64,
    pub payload_bytes: u64,
    pub calls: u64,
    /// Of a call, in the mean and at the slowest of a hundred.
    pub service_us_mean: u64,
    pub service_us_p99: Option<u64>,
    /// As measured while it had enough to do.
    pub rate_bytes_per_s: Option<f64>,
    pub queued_bytes: u64,
    pub in_flight_bytes: u64,
    pub in_flight_bytes_max: u64,
    /// Results that were decoded again, and those that were not what they should have been.
    pub verified: u64,
    pub verify_failures: u64,
    /// Blocks that software did after the accelerator had been given them.
    pub recomputed: u64,
    /// Of these: because the writer waited, and because the CPUs had nothing else left to do.
    pub hedged: u64,
    pub stolen: u64,
    /// By kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What an operator should know.
    pub alarms: Vec<String>,
}

impl InService {
    /// Whether it can do this algorithm at all and may be ready now or later.
    pub fn serves(&self, algorithm: Algorithm) -> bool {
        self.engine().caps().algorithm == algorithm
            && !matches!(self.state().0, State::Absent | State::Off)
    }

    /// Buffers of `buffer_bytes` that keep it busy: a batch for each call, and as much again waiting.
    /// In hybrid mode, also what a device ten times as fast as two cores does while these compress.
    pub fn buffers_busy(&self, mode: Mode, buffer_bytes: usize, cpus: usize) -> usize {
        let caps = self.engine().caps();
        let batch = caps.batch_bytes.start.div_ceil(buffer_bytes.max(1)).max(1);
        let least = match mode {
            Mode::Hardware => 0,
            Mode::Hybrid => 20 + 2 * cpus,
        };
        (2 * batch * caps.calls_max.max(1)).max(least)
    }
}

impl Lane {
    pub fn new(accelerator: Arc<InService>, terms: &Terms) -> Lane {
        accelerator.known().standing.begin_run();
        let busy = accelerator.buffers_busy(terms.mode, terms.buffer_bytes, terms.cpus);
        let (shared, most) = match terms.mode {
            Mode::Hardware => (busy, busy),
            Mode::Hybrid => (busy.min(terms.allowance_buffers.div_ceil(2)), 2 * busy),
        };
        let bytes = |buffers: usize| {
            buffers.min(terms.allowance_buffers) as u64 * terms.buffer_bytes as u64
        };
        let lane = Lane {
            shared_bytes: bytes(shared),
            allowance_bytes: bytes(most),
            buffer_bytes: terms.buffer_bytes as u64,
            calls_within_s: terms.hang_bound.as_secs_f64() / 2.0,
            enough_bytes: AtomicU64::new(0),
            accelerator,
            budget: Budget::new(0),
            counts: Mutex::new(Counts {
                depth: Some(Depth::new(STEPS.start, STEPS.end)),
                ..Counts::default()
            }),
        };
        lane.set_limit((0, 0), None, terms);
        lane
    }

    fn engine(&self) -> &dyn Engine {
        &**self.accelerator.engine()
    }

    pub fn calls_max(&self) -> usize {
        self.engine().caps().calls_max.max(1)
    }

    pub fn input_bytes_max(&self) -> u64 {
        self.engine().caps().input_bytes_max as u64
    }

    pub fn state(&self) -> State {
        self.accelerator.known().standing.state()
    }

    pub fn is_ready(&self) -> bool {
        self.state() == State::Ready
    }

    /// Bytes of one call.
    pub fn batch(&self) -> Range<u64> {
        let batch = &self.engine().caps().batch_bytes;
        // A small allowance, and the smallest budget, must still fill a batch.
        let share = (self.shared_bytes / (2 * self.calls_max() as u64)).max(1);
        // A device that nobody knows begins with one buffer: it may be slow, and the writer waits for its blocks.
        let (calls, rate) = {
            let known = self.accelerator.known();
            (
                known.service.count().min(16),
                known.estimate.rate_bytes_per_s(),
            )
        };
        let trusted = self.buffer_bytes << calls;
        // A slow one is not to be taken for one that hangs, because its batches are large.
        let ends = 2.0 * self.calls_max() as f64;
        let in_time = rate.map_or(0, |rate| (rate * self.calls_within_s / ends) as u64);
        let most = share.min(trusted).min(in_time.max(self.buffer_bytes));
        let start = (batch.start as u64).min(most).max(1);
        start..(batch.end as u64).min(2 * start).max(start)
    }

    /// Room for a block: up to what keeps the device busy while CPUs compress, or more where it is `alone`.
    pub fn try_admit(&self, len_bytes: u64, alone: bool) -> Option<Permit> {
        let enough = self.enough_bytes.load(Ordering::Relaxed);
        let limit = match alone {
            true => enough.saturating_mul(ALONE),
            false => enough,
        };
        self.budget.try_admit_within(len_bytes, limit)
    }

    /// When a block put now would be done, by the device's rate; 0 while nothing was measured, so that it gets measured.
    pub fn loaded_us(&self, len_bytes: u64) -> u64 {
        let ahead = self.with_batches(len_bytes) - len_bytes;
        let known = self.accelerator.known();
        known.estimate.loaded_us(len_bytes, ahead).unwrap_or(0)
    }

    /// The same, but at the latest: a device that takes its time for each call, whatever it carries, is not described
    /// by its rate.
    pub fn latest_us(&self, len_bytes: u64) -> u64 {
        let round = self.batch().end.max(1) * self.calls_max() as u64;
        let rounds = self.with_batches(len_bytes).div_ceil(round);
        let call_us = self.accelerator.known().service.quantile_us(0.5);
        self.loaded_us(len_bytes).max(rounds * call_us.unwrap_or(0))
    }

    /// Bytes in flight with such a block: it travels with a batch, and a batch ends as one.
    fn with_batches(&self, len_bytes: u64) -> u64 {
        (self.budget.in_flight_bytes() + len_bytes).next_multiple_of(self.batch().start)
    }

    /// Bytes per second that it would do if it were always fed; 0 before anything was measured.
    pub fn rate_if_full(&self) -> f64 {
        let in_flight = self.batch().end * self.calls_max() as u64;
        let known = self.accelerator.known();
        known.estimate.rate_with(in_flight).unwrap_or(0.0)
    }

    /// Whether any call has gone well.
    pub fn is_measured(&self) -> bool {
        self.accelerator.known().service.count() > 0
    }

    pub fn delivered_bytes(&self) -> u64 {
        self.accelerator.known().estimate.delivered_bytes()
    }

    /// What it does within so much time.
    pub fn bytes_within(&self, us: u64) -> u64 {
        let rate = self.accelerator.known().estimate.rate_bytes_per_s();
        rate.map_or(0, |rate| (rate * us as f64 / 1e6) as u64)
    }

    /// What the slowest of a hundred calls takes, once that is known.
    pub fn slow_call(&self) -> Option<Duration> {
        let known = self.accelerator.known();
        let p99 = known.service.quantile_us(0.99);
        let believed = known.service.count() >= MEASURED;
        p99.filter(|_| believed).map(Duration::from_micros)
    }

    /// How long a part of a batch waits for the rest.
    pub fn patience(&self) -> Duration {
        let patience = self.slow_call().unwrap_or_default() / 4;
        patience.clamp(Duration::from_millis(2), Duration::from_millis(50))
    }

    /// Sets what may be in flight. Jobs in hung calls count as held for ever. `core_us`: what one core takes for a
    /// buffer.
    pub fn set_limit(
        &self,
        (lost_jobs, lost_calls): (usize, usize),
        core_us: Option<u64>,
        terms: &Terms,
    ) {
        let lost = lost_jobs as u64 * terms.buffer_bytes as u64;
        let left = self.allowance_bytes.saturating_sub(lost);
        if lost_calls > 0 && left < self.batch().start {
            let reason = "calls that never returned hold all buffers it may have; reset the device";
            self.accelerator.known().standing.off(reason.into());
        }
        let wanted = match terms.mode {
            Mode::Hardware => u64::MAX,
            // CPUs compress meanwhile: one buffer shows what it is.
            Mode::Hybrid if !self.is_measured() => 1,
            Mode::Hybrid => {
                let bdp = self.accelerator.known().estimate.bdp_bytes().unwrap_or(0);
                let steps = self.counts.lock().depth.as_ref().map_or(0, Depth::steps);
                // One batch for each call and one to follow, at least.
                let least = (self.calls_max() as u64 + 1) * self.batch().start;
                // What the device does while all cores that could feed it compress, and half as much again.
                let unfed = self.bytes_within(core_us.unwrap_or(0)).saturating_mul(3) / 2;
                let busy = (bdp / 2).saturating_mul(2 + u64::from(steps));
                least.max(unfed).max(busy).min(self.shared_bytes.min(left))
            }
        };
        self.enough_bytes.store(wanted, Ordering::Relaxed);
        self.budget.set_limit(left);
    }

    /// A call was given up.
    pub fn hung(&self, now: Duration) {
        self.fault(now, Fault::Hung);
    }

    /// Counts a fault and draws the consequence.
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
            (State::Ready, State::Suspended) => format!("{name} is suspended: {reason}"),
            (State::Off, _) => return,
            (_, State::Off) => format!("{name} is not used any more: {reason}"),
            _ if fault == Fault::Corrupt => {
                format!("{name} gave a wrong result; software did that block again")
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

    /// Whether this result is to be decoded again.
    pub fn take_sample(&self, sequence: u64, terms: &Terms) -> bool {
        let fresh = self.accelerator.known().standing.take_fresh();
        terms.verify.takes(sequence, fresh)
    }

    /// A result passed its checks and is used.
    pub fn used(&self, plain_bytes: usize, payload_bytes: usize, verified: bool) {
        self.accelerator.known().standing.served();
        let mut counts = self.counts.lock();
        counts.blocks += 1;
        counts.plain_bytes += plain_bytes as u64;
        counts.payload_bytes += payload_bytes as u64;
        counts.verified += u64::from(verified);
    }

    /// A result did not pass its checks.
    pub fn refused(&self, now: Duration) {
        self.counts.lock().verify_failures += 1;
        self.fault(now, Fault::Corrupt);
    }

    /// Software did a block that had been put here.
    pub fn recomputed(&self, why: Option<Undone<Fault>>) {
        let mut counts = self.counts.lock();
        counts.recomputed += 1;
        counts.hedged += u64::from(why == Some(Undone::Hedged));
        counts.stolen += u64::from(why == Some(Undone::Stolen));
    }

    /// A call went well.
    pub fn learn(&self, bytes: u64, (began_us, now_us): (u64, u64), delivered_before: u64) {
        let latency_us = now_us.saturating_sub(began_us);
        let drifted = {
            let mut known = self.accelerator.known();
            let expected = known.estimate.loaded_us(bytes, 0);
            known.service.add(latency_us);
            known.estimate.learn(Finished {
                len_bytes: bytes,
                latency_us,
                delivered_before,
            });
            // Calls side by side share the device, so that each may take as many times longer.
            let calls = self.calls_max() as u64;
            let drifted = expected.and_then(|us| known.drift.observe(us * calls, latency_us));
            if drifted.is_some() {
                known.estimate.forget();
            }
            drifted.filter(|d| d.factor > 1.0)
        };
        let mut counts = self.counts.lock();
        counts.calls += 1;
        counts.service_us += latency_us;
        if let Some(drifted) = drifted
            && counts.alarms.len() < ALARMS_MAX
        {
            let name = self.engine().caps().name;
            let text = format!("{name} takes {:.1} times what it took", drifted.factor);
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
            let p99 = known.service.quantile_us(0.99);
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
            in_flight_bytes: self.budget.in_flight_bytes(),
            in_flight_bytes_max: self.budget.limit_bytes(),
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

/// Starts a thread that serves a lane until the run ends. Nobody joins it: it may hang in a call.
pub fn spawn_puller<T: Send + 'static>(inner: &Arc<Inner<T>>, lane: usize) {
    let own = inner.clone();
    let name = format!("accel-{}", inner.lanes[lane].engine().caps().name);
    let spawned = std::thread::Builder::new()
        .name(name)
        .spawn(move || while serve(&own, lane) {});
    if let Err(error) = spawned {
        let reason = format!("no thread could be started for it: {error}");
        inner.lanes[lane].accelerator.known().standing.off(reason);
    }
}

/// One call, or a pause; false when this thread is not needed any more.
fn serve<T: Send + 'static>(inner: &Inner<T>, number: usize) -> bool {
    let lane = &inner.lanes[number];
    if !lane.is_ready() {
        inner.desk.flush(number);
        let now = inner.clock.now();
        if lane.accelerator.known().standing.take_probe(now) {
            return probe(inner, number);
        }
        return inner.desk.rest(number, NAP);
    }
    let delivered_before = lane.delivered_bytes();
    match inner
        .desk
        .pull(number, lane.batch(), lane.patience(), || inner.now_us())
    {
        Pulled::Ended => false,
        Pulled::Nothing => true,
        Pulled::Batch(generation, jobs) => call(inner, number, generation, jobs, delivered_before),
    }
}

fn probe<T: Send + 'static>(inner: &Inner<T>, number: usize) -> bool {
    let lane = &inner.lanes[number];
    let generation = inner.desk.open(number, inner.now_us());
    let health = catch_unwind(AssertUnwindSafe(|| lane.engine().self_test()));
    let returned = inner.desk.give_back(generation, Vec::new(), Fault::Down);
    if returned == Returned::Late {
        return false;
    }
    let mut known = lane.accelerator.known();
    match health {
        Ok(health) => known.standing.probed(inner.clock.now(), &health),
        Err(_) => known.standing.off("its self-test panicked".into()),
    }
    true
}

fn call<T: Send + 'static>(
    inner: &Inner<T>,
    number: usize,
    generation: Generation,
    jobs: Vec<Job>,
    delivered_before: u64,
) -> bool {
    let lane = &inner.lanes[number];
    let began_us = inner.now_us();
    let lent = jobs.len();
    let bytes: u64 = jobs.iter().map(|job| job.input_range.len() as u64).sum();
    let returned = catch_unwind(AssertUnwindSafe(|| lane.engine().run(jobs)));
    let now_us = inner.now_us();
    let now = inner.clock.now();
    let Ok(jobs) = returned else {
        let reason = "its code panicked; what it held is lost".into();
        lane.accelerator.known().standing.off(reason);
        inner.desk.give_back(generation, Vec::new(), Fault::Down);
        return false;
    };
    let mut faults: Vec<Fault> = Vec::new();
    let jobs: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            let fault = match job.outcome {
                Outcome::Done { .. } => None,
                Outcome::Recompute(fault) => Some(fault),
                // It broke its promise.
                Outcome::Pending => Some(Fault::Down),
            };
            faults.extend(fault);
            (job.sequence, job, fault.map(Undone::Fault))
        })
        .collect();
    if jobs.len() != lent {
        faults.push(Fault::Down);
    }
    // The lane must not look ready to those who hear of the fault.
    faults.iter().for_each(|fault| lane.fault(now, *fault));
    if faults.is_empty() {
        lane.learn(bytes, (began_us, now_us), delivered_before);
        inner.set_limit(number);
    }
    let returned = inner.desk.give_back(generation, jobs, Fault::Down);
    inner.room.1.notify_all();
    returned == Returned::InTime
}
