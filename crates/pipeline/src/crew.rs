//! Threads that fail together: the first error wins, and nobody is left waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use longshore_io::Pool;
use parking_lot::Mutex;

use crate::Error;

/// Remembers the first failure of a run and wakes those who wait for buffers.
pub struct Crew {
    first: Mutex<Option<Error>>,
    failed: AtomicBool,
    pools: Vec<Pool>,
}

impl Crew {
    /// `pools` are closed when a thread fails.
    pub fn new(pools: Vec<Pool>) -> Crew {
        Crew {
            first: Mutex::new(None),
            failed: AtomicBool::new(false),
            pools,
        }
    }

    pub fn fail(&self, error: Error) {
        self.first.lock().get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        for pool in &self.pools {
            pool.close();
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
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

    /// The first failure, if there was one.
    pub fn verdict(&self) -> Result<(), Error> {
        self.first.lock().take().map_or(Ok(()), Err)
    }
}

/// Waits for a thread whose panic, if any, [`Crew::work`] has already reported.
pub fn join<T>(handle: ScopedJoinHandle<'_, Option<T>>) -> Option<T> {
    handle.join().ok().flatten()
}
