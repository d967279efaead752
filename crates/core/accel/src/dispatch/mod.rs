//! The dispatcher: does an accelerator or the CPU compress this buffer, and what happens if the accelerator fails?
//!
//! Workers ask ([`Dispatcher::admit`]) and put admitted blocks into the lane of an accelerator. The lane has one
//! thread for each call that the device serves at a time; these threads pull batches and call the engine. Every job
//! that comes back, done or not, goes to *finishers*: threads of the caller that hold the right to compute. They check
//! the results and do the missing ones in software ([`Finisher`]). So all CPU work stays under the caller's ceiling,
//! and the threads that may hang only wait for the device.
//!
//! Invariants
//! - Every block that was put is finished exactly once, whatever the engines do (`desk.rs`).
//! - No result of an accelerator is used unchecked (`check.rs`).
//! - A call that hangs keeps its thread and its buffers until the process ends; nobody joins it. An accelerator never
//!   holds more than its allowance, including hung calls, so the rest of the pool remains available.
//! - Time comes from the caller's clock; the owner of the dispatcher calls [`Dispatcher::tick`] about ten times a
//!   second.
//!
//! Leaves to others: one accelerator within a run (`lane.rs`), what outlives a run (`standing.rs`), and the engines
//! (`devices`).
//!
//! Locks: the desk's, an accelerator's, a lane's. No thread holds two of these at a time.

mod check;
mod desk;
mod finisher;
mod in_service;
mod lane;
#[cfg(test)]
mod notice_contract;
#[cfg(test)]
mod simulation;
mod standing;
#[cfg(test)]
mod threads;

mod sync {
    pub use std::sync::{Condvar, Mutex, MutexGuard};
}

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_balance::constants::accelerator::{EPOCH_US, SLACK_QUARTERS};
use longshore_balance::constants::guard::MARGIN;
use longshore_balance::{Guard, Permit, Serve};
use longshore_codec::Algorithm;
use longshore_io::{Buffer, Clock};
use parking_lot::{Condvar, Mutex};

use crate::{EngineState, Fault, Job, Outcome, Task};
pub use check::{Before, Verify};
use desk::{Desk, DeskNotice, FinishedParcel, Parcel};
pub use finisher::{FinishedBlock, Finisher};
pub use in_service::InService;
pub use lane::EngineUse;
use lane::{Lane, NAP};
pub(crate) use standing::HUNG_MAX;

/// Which of the two compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The device; the CPU does the blocks that the device does not do, and all blocks while it is out of service.
    Hardware,
    /// The device is kept exactly full, and the CPU takes the rest.
    Hybrid,
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Terms {
    pub algorithm: Algorithm,
    pub mode: Mode,
    pub verify: Verify,
    /// A call is given up before it takes longer than this.
    pub hang_bound: Duration,
    /// Bytes of one buffer.
    pub buffer_bytes: usize,
    /// An accelerator may hold the input or output sides of this many buffers: waiting, at work and in hung calls
    /// together. In hybrid mode it may hold all of them only while it serves alone, otherwise half: the rest is for
    /// the CPUs' blocks that wait behind its own.
    pub allowance_buffers: usize,
    /// CPUs that compute at the same time.
    pub cpus: usize,
    /// Bytes of blocks that can wait for an earlier block of the device; `None`: no block waits for another.
    pub slack_bytes: Option<u64>,
}

/// The usual time between two calls of [`Dispatcher::tick`]. So a block may hold up the writer for at least this long.
const LOOK: Duration = Duration::from_millis(100);
/// A block may hold up the writer for this many times the slowest of a hundred calls.
const HEDGE_CALLS: u32 = 4;
/// After this many usual times without a look, this process was stopped: much longer than a busy machine takes.
const STOPPED_LOOKS: u32 = 50;
/// A self-test may load libraries and start a device.
const PROBE_BOUND: Duration = Duration::from_secs(30);

/// The work of one block, as a worker puts it.
pub struct Offer<T> {
    pub sequence: u64,
    pub task: Task,
    pub input: Arc<Buffer>,
    pub input_range: Range<usize>,
    pub output: Buffer,
    pub output_range: Range<usize>,
    pub before: Before,
    /// Returned with the result.
    pub tag: T,
}

/// The part of a parcel that stays at the desk while a device works.
pub(crate) struct ParcelRest<T> {
    lane: usize,
    permit: Option<Permit>,
    task: Task,
    input: Arc<Buffer>,
    input_range: Range<usize>,
    output_range: Range<usize>,
    before: Before,
    tag: T,
}

impl<T> DeskNotice for ParcelRest<T> {
    fn returned(&mut self) {
        self.permit = None;
    }
}

/// A block on its way to a finisher.
pub struct Finish<T>(FinishedParcel<ParcelRest<T>, Job, Fault>);

impl<T> Finish<T> {
    pub fn sequence(&self) -> u64 {
        self.0.sequence
    }
}

/// The answer to [`Dispatcher::admit`].
pub enum Admission {
    /// Put the block.
    Yes(AdmitRight),
    /// The device must do the block but has no room yet: call [`Dispatcher::wait_for_room`], then ask again.
    Full,
    /// Compress the block yourself.
    No,
}

/// The right to put one block.
pub struct AdmitRight {
    lane: usize,
    permit: Permit,
}

/// See the module's head.
pub struct Dispatcher<T: Send + 'static> {
    inner: Arc<Inner<T>>,
}

struct Inner<T: Send + 'static> {
    terms: Terms,
    clock: Arc<dyn Clock>,
    lanes: Vec<Lane>,
    desk: Desk<ParcelRest<T>, Job, Fault>,
    guard: Mutex<Guard>,
    /// The block that the writer waits for, and since when.
    head: Mutex<Option<(u64, Duration)>>,
    looked: Mutex<WatchdogClock>,
    room: (Mutex<()>, Condvar),
    done_bytes: AtomicU64,
    software: Work,
    /// The CPUs' reading, checking and sealing of blocks that devices compress.
    fed: Work,
}

/// When the watchdog last looked for calls that hang.
struct WatchdogClock {
    last: Duration,
    /// When this process last resumed after it was stopped, together with the threads to which calls return.
    resumed: Duration,
}

impl WatchdogClock {
    /// Notes a look at `now`; returns the time since which calls can have returned.
    fn at(&mut self, now: Duration, bound: Duration) -> Duration {
        if now.saturating_sub(self.last) > bound.max(STOPPED_LOOKS * LOOK) {
            self.resumed = now;
        }
        self.last = now;
        self.resumed
    }
}

/// One kind of CPU work.
#[derive(Default)]
struct Work {
    bytes: AtomicU64,
    us: AtomicU64,
}

impl Work {
    /// `len` of 0: more work on bytes that were already counted.
    fn add(&self, len: u64, took: Duration) {
        self.bytes.fetch_add(len, Ordering::Relaxed);
        let us = took.as_micros() as u64;
        self.us.fetch_add(us, Ordering::Relaxed);
    }

    /// The time of one core for that many bytes; `None` before any were done.
    fn us_for(&self, bytes: u64) -> Option<f64> {
        let did = self.bytes.load(Ordering::Relaxed);
        let us = self.us.load(Ordering::Relaxed);
        (did > 0).then(|| bytes as f64 * us as f64 / did as f64)
    }
}

impl<T: Send + 'static> Dispatcher<T> {
    /// Starts the threads of every accelerator that serves these terms; `None` if none does.
    pub fn start(
        accelerators: &[Arc<InService>],
        terms: Terms,
        clock: Arc<dyn Clock>,
    ) -> Option<Dispatcher<T>> {
        let inner = Arc::new(Inner::new(accelerators, terms, clock)?);
        for (i, lane) in inner.lanes.iter().enumerate() {
            for _ in 0..lane.calls_max() {
                lane::spawn_puller(&inner, i);
            }
        }
        Some(Dispatcher { inner })
    }

    /// May a block of `len_bytes` go to a device now? `remaining_bytes`: the bytes still to be read after it, if
    /// known. Never blocks.
    pub fn admit(&self, len_bytes: usize, remaining_bytes: Option<u64>) -> Admission {
        self.inner.admit(len_bytes as u64, remaining_bytes)
    }

    /// Waits until a device may have room, some milliseconds at most. The caller must not hold the right to compute.
    pub fn wait_for_room(&self) {
        let (lock, room) = &self.inner.room;
        room.wait_for(&mut lock.lock(), NAP);
    }

    /// Hands a block over. [`Dispatcher::next`] will return it whatever happens to the device.
    pub fn put(&self, admitted: AdmitRight, offer: Offer<T>) {
        let inner = &*self.inner;
        let AdmitRight { lane, permit } = admitted;
        let job = Job {
            sequence: offer.sequence,
            task: offer.task,
            input: offer.input.clone(),
            input_range: offer.input_range.clone(),
            output: offer.output,
            output_range: offer.output_range.clone(),
            outcome: Outcome::Pending,
        };
        let parcel = Parcel {
            sequence: offer.sequence,
            bytes: permit.len_bytes(),
            kept: ParcelRest {
                lane,
                permit: Some(permit),
                task: offer.task,
                input: offer.input,
                input_range: offer.input_range,
                output_range: offer.output_range,
                before: offer.before,
                tag: offer.tag,
            },
            job,
        };
        inner
            .desk
            .put(lane, parcel, inner.lanes[lane].batch().start);
    }

    /// The next block to be finished, by [`Finisher::settle`]. Waits; `None` after the last one.
    pub fn next(&self) -> Option<Finish<T>> {
        self.inner.desk.finish().map(Finish)
    }

    /// A block to be finished, if one is available now.
    pub fn try_next(&self) -> Option<Finish<T>> {
        self.inner.desk.try_finish().map(Finish)
    }

    /// Reports that the CPU compressed a block that was not admitted, and the time taken.
    pub fn software_did(&self, len_bytes: usize, took: Duration) {
        self.inner.software_did(len_bytes as u64, took);
    }

    /// Reports that a core read and checked a block that it put, or (`len_bytes` 0) sealed one that came back, and the
    /// time taken.
    pub fn fed(&self, len_bytes: usize, took: Duration) {
        self.inner.fed.add(len_bytes as u64, took);
    }

    /// Declares that no more blocks will be put.
    pub fn end(&self) {
        self.inner.end();
    }

    /// The run has failed: finishers end at once.
    pub fn abort(&self) {
        self.inner.desk.abort();
        self.inner.room.1.notify_all();
    }

    /// Gives up calls that hang, retries suspended accelerators, and takes back the block for which the writer waits
    /// (`head`) if the wait is too long.
    pub fn tick(&self, head: Option<u64>) {
        let inner = &self.inner;
        let now = inner.clock.now();
        for lane in inner.give_up(now) {
            // The hung call keeps its thread, so the lane gets another.
            if inner.lanes[lane].state() != EngineState::Off {
                lane::spawn_puller(inner, lane);
            }
        }
        inner.tick_lanes();
        inner.hedge(now, head);
        inner.room.1.notify_all();
    }

    /// The counters of each accelerator so far.
    pub fn uses(&self) -> Vec<EngineUse> {
        let inner = &self.inner;
        let lanes = inner.lanes.iter().enumerate();
        lanes
            .map(|(i, lane)| lane.snapshot(inner.desk.queued_bytes(i)))
            .collect()
    }
}

impl<T: Send + 'static> Drop for Dispatcher<T> {
    /// Idle threads end; those in a call end when it returns.
    fn drop(&mut self) {
        self.inner.desk.abort();
    }
}

impl<T: Send + 'static> Inner<T> {
    /// A dispatcher without threads; `None` if no accelerator serves these terms.
    fn new(
        accelerators: &[Arc<InService>],
        terms: Terms,
        clock: Arc<dyn Clock>,
    ) -> Option<Inner<T>> {
        let lanes: Vec<Lane> = accelerators
            .iter()
            .filter(|a| a.serves(terms.algorithm))
            .map(|a| Lane::new(a.clone(), &terms))
            .collect();
        if lanes.is_empty() {
            return None;
        }
        Some(Inner {
            desk: Desk::new(lanes.len()),
            guard: Mutex::new(Guard::new(EPOCH_US)),
            head: Mutex::new(None),
            looked: Mutex::new(WatchdogClock {
                last: clock.now(),
                resumed: Duration::ZERO,
            }),
            room: (Mutex::new(()), Condvar::new()),
            done_bytes: AtomicU64::new(0),
            software: Work::default(),
            fed: Work::default(),
            terms,
            clock,
            lanes,
        })
    }

    fn admit(&self, len: u64, remaining_bytes: Option<u64>) -> Admission {
        let serve = match self.terms.mode {
            Mode::Hardware => Serve::First,
            Mode::Hybrid => {
                let done = self.done_bytes.load(Ordering::Relaxed);
                let could = [self.devices_per_s(), self.software_per_s()];
                self.guard.lock().judge(self.now_us(), done, could)
            }
        };
        if serve == Serve::Second {
            return Admission::No;
        }
        let device_alone = serve == Serve::First || self.cpus_would_add_little(len);
        let lanes = self.lanes.iter().enumerate();
        let fit = lanes.filter(|(_, lane)| lane.is_ready() && len <= lane.input_bytes_max());
        let Some((loaded_us, lane)) = fit.map(|(i, lane)| (lane.loaded_us(len), i)).min() else {
            return Admission::No;
        };
        let latest_us = self.lanes[lane].latest_us(len);
        let rest = remaining_bytes.map(|rest| rest.saturating_add(len));
        // Only the CPUs' blocks need buffers that can wait for a late block.
        let slack = self.terms.slack_bytes.filter(|_| !device_alone);
        if self.terms.mode == Mode::Hybrid && self.comes_too_late(latest_us, rest, slack) {
            return Admission::No;
        }
        match self.lanes[lane].try_admit(len, device_alone) {
            Some(permit) => Admission::Yes(AdmitRight { lane, permit }),
            None if self.lanes[lane].most_bytes() == 0 => Admission::No,
            None if device_alone => Admission::Full,
            // Nobody waits for a device that may be slow.
            None if !self.lanes[lane].is_measured() => Admission::No,
            // A core does not feed the device while it compresses: the device's waiting blocks must last that long.
            None if self.core_us(len).is_some_and(|us| loaded_us < us) => Admission::Full,
            None => Admission::No,
        }
    }

    /// Whether the devices take nearly all blocks that the CPUs can feed them: then a core that compresses only keeps
    /// blocks from them. Of `K` cores, devices that do `a` blocks per second need `a × f`, where `f` is the time to
    /// feed one block; the rest compresses `(K - a × f) / c` blocks per second.
    fn cpus_would_add_little(&self, len: u64) -> bool {
        let (Some(feed_us), Some(core_us)) = (self.fed.us_for(len), self.core_us(len)) else {
            return false;
        };
        let blocks_per_us = self.devices_per_s() / len as f64 / 1e6;
        let cores_left = self.terms.cpus as f64 - blocks_per_us * feed_us;
        let more_per_us = cores_left / core_us.max(1) as f64;
        // As for the guard, a gain within the margin is none.
        blocks_per_us + more_per_us < blocks_per_us * MARGIN
    }

    /// The devices' rate if they were always fed, in bytes per second.
    fn devices_per_s(&self) -> f64 {
        let ready = self.lanes.iter().filter(|lane| lane.is_ready());
        ready.map(Lane::rate_if_full).sum()
    }

    /// The CPUs' rate alone, in bytes per second.
    fn software_per_s(&self) -> f64 {
        const MUCH: u64 = 1 << 30;
        let us = self.software_us(MUCH);
        us.map_or(0.0, |us| MUCH as f64 * 1e6 / us.max(1) as f64)
    }

    /// Whether the CPUs would have to wait for a block that a device finishes `loaded_us` from now. At the end of a
    /// run they would if they finish the `rest` earlier; before, if no buffer of the `slack` is left that does not
    /// wait for that block.
    fn comes_too_late(&self, loaded_us: u64, rest: Option<u64>, slack: Option<u64>) -> bool {
        let slack = slack.map(|bytes| bytes / 4 * SLACK_QUARTERS);
        let bounds = rest.into_iter().chain(slack);
        let soonest_us = bounds.filter_map(|bytes| self.software_us(bytes)).min();
        soonest_us.is_some_and(|us| loaded_us > us)
    }

    fn now_us(&self) -> u64 {
        self.clock.now().as_micros() as u64
    }

    /// How long all CPUs together take for that many bytes; `None` before they did any.
    fn software_us(&self, bytes: u64) -> Option<u64> {
        let one = self.software.us_for(bytes)?;
        Some((one / self.terms.cpus.max(1) as f64) as u64)
    }

    fn software_did(&self, len: u64, took: Duration) {
        self.software.add(len, took);
        self.progressed(len as usize);
    }

    fn end(&self) {
        let block_us = self.core_us(self.terms.buffer_bytes as u64);
        let lanes = self.lanes.iter();
        let steal_above = lanes.map(|lane| match self.terms.mode {
            Mode::Hardware => u64::MAX,
            // A core takes a block that the device would not reach before that core is done.
            Mode::Hybrid => block_us.map_or(0, |us| lane.bytes_within(us)),
        });
        self.desk.end(steal_above.collect());
    }

    /// Gives up calls that would exceed their bound before the next look; returns the lanes that lost one, one entry
    /// for each.
    fn give_up(&self, now: Duration) -> Vec<usize> {
        let resumed = self.looked.lock().at(now, self.terms.hang_bound);
        let lanes = self.desk.abandon(|_, started_us, jobs| {
            let elapsed = now.saturating_sub(resumed.max(Duration::from_micros(started_us)));
            let bound = match jobs {
                0 => self.terms.hang_bound.max(PROBE_BOUND),
                _ => self.terms.hang_bound,
            };
            // The next look comes too late for a call that passes its bound before it; a bound that is shorter than a
            // look keeps at least half of its time.
            elapsed + LOOK.min(bound / 2) > bound
        });
        for lane in &lanes {
            self.lanes[*lane].hung(now);
        }
        lanes
    }

    /// Sets a lane's budget from its measurements and its lost calls.
    fn set_limit(&self, lane: usize) {
        let lost = (self.desk.lost_jobs(lane), self.desk.lost_calls(lane));
        let core_us = self.core_us(self.terms.buffer_bytes as u64);
        self.lanes[lane].set_limit(lost, core_us, &self.terms);
    }

    /// Updates every budget; lanes out of service give up their waiting blocks.
    fn tick_lanes(&self) {
        for (i, lane) in self.lanes.iter().enumerate() {
            self.set_limit(i);
            if !lane.is_ready() {
                self.desk.flush(i);
            }
        }
    }

    fn progressed(&self, plain_len: usize) {
        self.done_bytes
            .fetch_add(plain_len as u64, Ordering::Relaxed);
    }

    /// How long one core takes for that many bytes; `None` before any were done.
    fn core_us(&self, bytes: u64) -> Option<u64> {
        let us = self.software_us(bytes)?;
        Some(us.saturating_mul(self.terms.cpus as u64))
    }

    fn hedge(&self, now: Duration, head: Option<u64>) {
        let mut waited = self.head.lock();
        match (head, *waited) {
            (Some(head), Some((same, since))) if head == same => {
                let patience = self.lanes.iter().filter_map(Lane::slow_call).max();
                let measured = || self.lanes.iter().any(Lane::is_measured);
                let bound = match (patience, self.terms.mode) {
                    (Some(p99), _) => HEDGE_CALLS * p99,
                    // The first block of a device that may be slow.
                    (None, Mode::Hybrid) if !measured() => LOOK,
                    (None, _) => self.terms.hang_bound,
                };
                if now.saturating_sub(since) > bound.max(LOOK) && self.desk.hedge(head) {
                    tracing::debug!(sequence = head, "a block is done again: the writer waits");
                }
            }
            (Some(head), _) => *waited = Some((head, now)),
            (None, _) => *waited = None,
        }
    }
}
