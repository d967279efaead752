//! Threads that fail together: the first error wins, and no thread keeps waiting.
//!
//! Invariants
//! - The caller gets the first error, not one that followed from it.
//! - A thread that fails or panics closes the pools and lifts the limits, so every other thread sees it at its next
//!   wait.
//! - A thread that the system cannot start fails the run; nobody waits for work that it would have done.
//!
//! Leaves to others: starting threads, and what they do (`load`, `unload`). A thread that waits for something else than
//! a pool, a turn or the rate must look at `has_failed` itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use longshore_io::{Gate, Pool, Throttle};
use parking_lot::Mutex;

use crate::{Error, RunContext};

/// Remembers the first failure of a run and wakes threads that wait for buffers, for their turn, or for the rate
/// limit.
pub struct Crew {
    first: Mutex<Option<Error>>,
    failed: AtomicBool,
    pools: Vec<Pool>,
    pub gate: Gate,
    pub throttle: Option<Throttle>,
}

impl Crew {
    /// When a thread fails, `pools` are closed and limits are lifted.
    pub fn new(pools: Vec<Pool>, gate: Gate, throttle: Option<Throttle>) -> Crew {
        Crew {
            first: Mutex::new(None),
            failed: AtomicBool::new(false),
            pools,
            gate,
            throttle,
        }
    }

    pub fn fail(&self, error: Error) {
        self.first.lock().get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        for pool in &self.pools {
            pool.close();
        }
        self.gate.set_ceiling(None);
        if let Some(throttle) = &self.throttle {
            throttle.set_rate(None);
        }
    }

    /// Fails the run if it was cancelled; waiting threads do not check this themselves.
    pub fn heed(&self, context: &RunContext) {
        if let Err(cancelled) = context.check_cancel() {
            self.fail(cancelled);
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Starts a thread that the run cannot do without: if the system has none to give, the run fails and waiting
    /// threads are woken.
    pub fn start<'scope, T: Send + 'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, T>> {
        let started = Builder::new().spawn_scoped(scope, work);
        started
            .map_err(|source| self.fail(Error::Thread { source }))
            .ok()
    }

    /// Starts a thread that does one of the run's works: [`Crew::start`] of [`Crew::work`].
    pub fn hire<'scope, T: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        thread: &'static str,
        work: impl FnOnce() -> Result<T, Error> + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, Option<T>>> {
        self.start(scope, move || self.work(thread, work))
    }

    /// Runs a thread's work; an error or a panic fails the run.
    pub fn work<T>(
        &self,
        thread: &'static str,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Option<T> {
        struct Alarm<'a>(&'a Crew, &'static str);
        impl Drop for Alarm<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.fail(Error::Panicked { thread: self.1 });
                }
            }
        }
        let alarm = Alarm(self, thread);
        let result = work();
        drop(alarm);
        result.map_err(|e| self.fail(e)).ok()
    }

    /// The first failure, if any.
    pub fn verdict(&self) -> Result<(), Error> {
        self.first.lock().take().map_or(Ok(()), Err)
    }
}

/// Waits for threads whose result is only whether they failed.
pub fn join_all<'scope>(handles: impl IntoIterator<Item = ScopedJoinHandle<'scope, Option<()>>>) {
    for handle in handles {
        join(handle);
    }
}

/// Waits for a thread whose panic, if any, [`Crew::work`] has already reported.
pub fn join<T>(handle: ScopedJoinHandle<'_, Option<T>>) -> Option<T> {
    handle.join().ok().flatten()
}
