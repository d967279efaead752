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
mod inner;
mod lane;
#[cfg(test)]
mod notice_contract;
mod puller;
#[cfg(test)]
mod simulation;
mod standing;
mod sync;
mod terms;
#[cfg(test)]
mod threads;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{Buffer, Clock};

use crate::{EngineState, Fault, Job, Outcome, Task};
pub use check::{Before, Verify};
use desk::{FinishedParcel, Parcel};
pub use finisher::{FinishedBlock, Finisher};
pub use in_service::InService;
pub use inner::{Admission, AdmitRight};
use inner::{Inner, ParcelRest};
pub use lane::EngineUse;
use lane::NAP;
pub use terms::{Mode, Terms};

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

/// A block on its way to a finisher.
pub struct Finish<T>(FinishedParcel<ParcelRest<T>, Job, Fault>);

impl<T> Finish<T> {
    pub fn sequence(&self) -> u64 {
        self.0.sequence
    }
}

/// See the module's head.
pub struct Dispatcher<T: Send + 'static> {
    inner: Arc<Inner<T>>,
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
                puller::spawn_puller(&inner, i);
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
                puller::spawn_puller(inner, lane);
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
