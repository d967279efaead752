//! Fills: copies into the cache, by separate threads.
//!
//! Invariants
//! - No client waits for the cache device: fills wait in a short queue, and are dropped if it is full. Without filler
//!   threads, the client's own thread fills before it answers.
//! - A dropped fill releases its claims.

use super::*;
use crate::store::Claims;
use crossbeam_channel::{Receiver, TrySendError};

/// Waiting fills for each filler thread; further ones are dropped.
const JOBS_PER_FILLER: usize = 8;

/// Buffers that this many threads hold together with their queue.
pub(super) fn buffers(fillers: usize) -> usize {
    (JOBS_PER_FILLER + 1) * fillers
}

/// The length of the queue for this many threads.
pub(super) fn queue(fillers: usize) -> usize {
    JOBS_PER_FILLER * fillers
}

/// A fill in the queue.
pub(super) struct Job {
    pub claims: Claims,
    pub bytes: Buffer,
    pub start: u64,
}

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
