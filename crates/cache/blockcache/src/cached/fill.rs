//! Fills: copies into the cache, by separate threads.
//!
//! Invariants
//! - No client waits for the cache device: fills wait in a short queue, and are dropped if it is full. Without filler
//!   threads, the client's own thread fills before it answers.
//! - A dropped fill releases its claims.

use std::sync::atomic::Ordering::SeqCst;

use crossbeam_channel::{Receiver, TrySendError};
use longshore_policy::model::Op;
use longshore_policy::policy::{EndedRequest, Purpose, Side};

use super::shared::{CachedBackend, Job, Shared};
use crate::meter::add;

impl CachedBackend {
    /// Queues a fill, or drops it.
    pub(super) fn offer(&self, job: Job) {
        match &*self.jobs.read() {
            None if self.shared.closed.load(SeqCst) => {}
            None => self.shared.fill(job),
            Some(jobs) => {
                if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
                    jobs.try_send(job)
                {
                    add(&self.shared.meter.fills_dropped, 1);
                }
            }
        }
    }
}

impl Shared {
    pub(super) fn fill_all(&self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            self.fill(job);
        }
    }

    fn fill(&self, job: Job) {
        let store = job.claims.store();
        let begun = self.clock.now();
        let entered = store.state.gauge.load();
        let len_bytes = job.claims.bytes();
        store.fill(|| self.view(&store), job.claims, &job.bytes, job.start);
        store.ended(&EndedRequest {
            now: self.now(),
            side: Side::Fast,
            op: Op::Write,
            purpose: Purpose::Fill,
            len_bytes,
            took_us: (self.clock.now() - begun).as_secs_f64() * 1e6,
            before: entered,
        });
    }
}
