//! The time that a batch may take (`-t`).
//!
//! Invariants
//! - A batch that ends in time hears nothing of its limit.
//! - A flag that a limit has set is cleared again: the next batch runs.
//!
//! Leaves to others: what a cancelled statement does (`longshore-tsql`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A limit that runs. Dropped without [`TimeLimit::end`] it still ends.
pub struct TimeLimit {
    ended: Arc<(Mutex<bool>, Condvar)>,
    passed: Arc<AtomicBool>,
    cancel: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TimeLimit {
    /// Sets `cancel` after `limit`. `None`: there is no thread for it.
    pub fn begin(limit: Duration, cancel: Arc<AtomicBool>) -> Option<TimeLimit> {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let passed = Arc::new(AtomicBool::new(false));
        let (waits, tells, flag) = (ended.clone(), passed.clone(), cancel.clone());
        let wait = move || {
            let (is_ended, changed) = &*waits;
            let guard = is_ended.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = changed.wait_timeout_while(guard, limit, |ended| !*ended);
            let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !*guard {
                tells.store(true, Ordering::Relaxed);
                flag.store(true, Ordering::Relaxed);
            }
        };
        let builder = std::thread::Builder::new().name("limit".into());
        let thread = builder.spawn(wait).ok()?;
        Some(TimeLimit {
            ended,
            passed,
            cancel,
            thread: Some(thread),
        })
    }

    fn join(&mut self) {
        let (is_ended, changed) = &*self.ended;
        *is_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }

    /// Ends the limit. Returns whether it had passed; then the flag is clear again.
    pub fn end(mut self) -> bool {
        self.join();
        let passed = self.passed.load(Ordering::Relaxed);
        if passed {
            self.cancel.store(false, Ordering::Relaxed);
        }
        passed
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_passes_sets_the_flag_and_clears_it_at_its_end() {
        let cancel = Arc::new(AtomicBool::new(false));
        let limit = TimeLimit::begin(Duration::from_millis(1), cancel.clone()).unwrap();
        while !cancel.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        assert!(limit.end());
        assert!(!cancel.load(Ordering::Relaxed));
        let limit = TimeLimit::begin(Duration::from_secs(3600), cancel.clone()).unwrap();
        assert!(!limit.end());
        // A flag that somebody else has set stays.
        cancel.store(true, Ordering::Relaxed);
        let limit = TimeLimit::begin(Duration::from_secs(3600), cancel.clone()).unwrap();
        assert!(!limit.end());
        assert!(cancel.load(Ordering::Relaxed));
    }
}
