//! What a dispatcher knows, and its decisions: who gets a block, which calls are given up, which block is done again.
//!
//! Invariants
//! - A block is admitted only within the budget of its lane, and in hybrid mode only if no CPU would wait for it.
//! - A call is given up before it exceeds its bound, but never in the look after this process was stopped.
//!
//! Leaves to others: the threads (`puller.rs`, `mod.rs`), budgets (`lane.rs`), and the parcels themselves (`desk.rs`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_balance::constants::accelerator::{EPOCH_US, SLACK_QUARTERS};
use longshore_balance::constants::guard::MARGIN;
use longshore_balance::{Guard, Permit, Serve};
use longshore_io::{Buffer, Clock};
use parking_lot::{Condvar, Mutex};

use super::check::Before;
use super::desk::{Desk, DeskNotice};
use super::in_service::InService;
use super::lane::Lane;
use super::terms::{LOOK, Mode, Terms};
use crate::{Fault, Job, Task};

/// A block may hold up the writer for this many times the slowest of a hundred calls.
const HEDGE_CALLS: u32 = 4;
/// After this many usual times without a look, this process was stopped: much longer than a busy machine takes.
const STOPPED_LOOKS: u32 = 50;
/// A self-test may load libraries and start a device.
pub(super) const PROBE_BOUND: Duration = Duration::from_secs(30);

/// The part of a parcel that stays at the desk while a device works.
pub(crate) struct ParcelRest<T> {
    pub(super) lane: usize,
    pub(super) permit: Option<Permit>,
    pub(super) task: Task,
    pub(super) input: Arc<Buffer>,
    pub(super) input_range: Range<usize>,
    pub(super) output_range: Range<usize>,
    pub(super) before: Before,
    pub(super) tag: T,
}

impl<T> DeskNotice for ParcelRest<T> {
    fn returned(&mut self) {
        self.permit = None;
    }
}

/// The answer to [`Dispatcher::admit`](super::Dispatcher::admit).
pub enum Admission {
    /// Put the block.
    Yes(AdmitRight),
    /// The device must do the block but has no room yet: call [`Dispatcher::wait_for_room`](super::Dispatcher::wait_for_room), then ask again.
    Full,
    /// Compress the block yourself.
    No,
}

/// The right to put one block.
pub struct AdmitRight {
    pub(super) lane: usize,
    pub(super) permit: Permit,
}

/// A dispatcher without its threads: whom to give a block, and what the devices hold.
pub(super) struct Inner<T: Send + 'static> {
    pub(super) terms: Terms,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) lanes: Vec<Lane>,
    pub(super) desk: Desk<ParcelRest<T>, Job, Fault>,
    pub(super) guard: Mutex<Guard>,
    /// The block that the writer waits for, and since when.
    pub(super) head: Mutex<Option<(u64, Duration)>>,
    pub(super) looked: Mutex<WatchdogClock>,
    pub(super) room: (Mutex<()>, Condvar),
    pub(super) done_bytes: AtomicU64,
    pub(super) software: Work,
    /// The CPUs' reading, checking and sealing of blocks that devices compress.
    pub(super) fed: Work,
}

/// When the watchdog last looked for calls that hang.
pub(super) struct WatchdogClock {
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
pub(super) struct Work {
    bytes: AtomicU64,
    us: AtomicU64,
}

impl Work {
    /// `len_bytes` of 0: more work on bytes that were already counted.
    pub(super) fn add(&self, len_bytes: u64, took: Duration) {
        self.bytes.fetch_add(len_bytes, Ordering::Relaxed);
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

impl<T: Send + 'static> Inner<T> {
    /// A dispatcher without threads; `None` if no accelerator serves these terms.
    pub(super) fn new(
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

    pub(super) fn admit(&self, len_bytes: u64, remaining_bytes: Option<u64>) -> Admission {
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
        let device_alone = serve == Serve::First || self.cpus_would_add_little(len_bytes);
        let lanes = self.lanes.iter().enumerate();
        let fit = lanes.filter(|(_, lane)| lane.is_ready() && len_bytes <= lane.input_bytes_max());
        let Some((loaded_us, lane)) = fit.map(|(i, lane)| (lane.loaded_us(len_bytes), i)).min()
        else {
            return Admission::No;
        };
        let latest_us = self.lanes[lane].latest_us(len_bytes);
        let rest = remaining_bytes.map(|rest| rest.saturating_add(len_bytes));
        // Only the CPUs' blocks need buffers that can wait for a late block.
        let slack = self.terms.slack_bytes.filter(|_| !device_alone);
        if self.terms.mode == Mode::Hybrid && self.comes_too_late(latest_us, rest, slack) {
            return Admission::No;
        }
        match self.lanes[lane].try_admit(len_bytes, device_alone) {
            Some(permit) => Admission::Yes(AdmitRight { lane, permit }),
            None if self.lanes[lane].most_bytes() == 0 => Admission::No,
            None if device_alone => Admission::Full,
            // Nobody waits for a device that may be slow.
            None if !self.lanes[lane].is_measured() => Admission::No,
            // A core does not feed the device while it compresses: the device's waiting blocks must last that long.
            None if self.core_us(len_bytes).is_some_and(|us| loaded_us < us) => Admission::Full,
            None => Admission::No,
        }
    }

    /// Whether the devices take nearly all blocks that the CPUs can feed them: then a core that compresses only keeps
    /// blocks from them. Of `K` cores, devices that do `a` blocks per second need `a × f`, where `f` is the time to
    /// feed one block; the rest compresses `(K - a × f) / c` blocks per second.
    fn cpus_would_add_little(&self, len_bytes: u64) -> bool {
        let (Some(feed_us), Some(core_us)) = (self.fed.us_for(len_bytes), self.core_us(len_bytes))
        else {
            return false;
        };
        let blocks_per_us = self.devices_per_s() / len_bytes as f64 / 1e6;
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

    pub(super) fn now_us(&self) -> u64 {
        self.clock.now().as_micros() as u64
    }

    /// How long all CPUs together take for that many bytes; `None` before they did any.
    fn software_us(&self, bytes: u64) -> Option<u64> {
        let one = self.software.us_for(bytes)?;
        Some((one / self.terms.cpus.max(1) as f64) as u64)
    }

    pub(super) fn software_did(&self, len_bytes: u64, took: Duration) {
        self.software.add(len_bytes, took);
        self.progressed(len_bytes as usize);
    }

    pub(super) fn end(&self) {
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
    pub(super) fn give_up(&self, now: Duration) -> Vec<usize> {
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
    pub(super) fn set_limit(&self, lane: usize) {
        let lost = (self.desk.lost_jobs(lane), self.desk.lost_calls(lane));
        let core_us = self.core_us(self.terms.buffer_bytes as u64);
        self.lanes[lane].set_limit(lost, core_us, &self.terms);
    }

    /// Updates every budget; lanes out of service give up their waiting blocks.
    pub(super) fn tick_lanes(&self) {
        for (i, lane) in self.lanes.iter().enumerate() {
            self.set_limit(i);
            if !lane.is_ready() {
                self.desk.flush(i);
            }
        }
    }

    pub(super) fn progressed(&self, plain_len: usize) {
        self.done_bytes
            .fetch_add(plain_len as u64, Ordering::Relaxed);
    }

    /// How long one core takes for that many bytes; `None` before any were done.
    fn core_us(&self, bytes: u64) -> Option<u64> {
        let us = self.software_us(bytes)?;
        Some(us.saturating_mul(self.terms.cpus as u64))
    }

    pub(super) fn hedge(&self, now: Duration, head: Option<u64>) {
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
