//! Fills: copies into the cache, by threads of their own.
//!
//! Invariants
//! - No client waits for the cache device: fills wait in a short queue, and when it is full they are dropped. Without
//!   threads that fill, whoever asked does it, before the answer.
//! - A fill that is dropped gives up what it claimed.

use super::*;
use crate::store::Claims;
use crossbeam_channel::{Receiver, TrySendError};

/// Fills that wait for each thread that fills; what is more is dropped.
const JOBS_PER_FILLER: usize = 8;

/// Buffers that so many threads hold with their queue.
pub(super) fn buffers(fillers: usize) -> usize {
    (JOBS_PER_FILLER + 1) * fillers
}

/// Fills that wait for so many threads.
pub(super) fn queue(fillers: usize) -> usize {
    JOBS_PER_FILLER * fillers
}

/// A fill that waits for its turn.
pub(super) struct Job {
    pub claims: Claims,
    pub bytes: Buffer,
    pub start: u64,
}

impl Engine {
    /// Queues a fill, or lets it go.
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
        let entered = store.gauge.load();
        let len = job.claims.bytes();
        store.fill(|| self.view(&store), job.claims, &job.bytes, job.start);
        store.ended(&Ended {
            now: self.now(),
            side: Side::Fast,
            op: Op::Write,
            purpose: Purpose::Fill,
            len,
            took_us: (self.clock.now() - begun).as_secs_f64() * 1e6,
            before: entered,
        });
    }
}
