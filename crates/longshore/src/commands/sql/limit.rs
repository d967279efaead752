//! The time that a batch may take (`-t`).
//!
//! Invariants
//! - A batch that ends in time hears nothing of its limit.
//! - A flag that a limit has set is cleared again: the next batch runs.
//! - The process's own flag, which Ctrl-C sets, is read and never cleared: a session with a limit has a flag of its own.
//!
//! Leaves to others: what a cancelled statement does (`longshore-tsql`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most time until a Ctrl-C is heard.
const LOOK: Duration = Duration::from_millis(20);

/// A limit that runs. Dropped without [`TimeLimit::end`] it still ends.
pub struct TimeLimit {
    ended: Arc<(Mutex<bool>, Condvar)>,
    passed: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
    cancel: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TimeLimit {
    /// Sets `cancel`, the session's, after `limit`, and when `interrupt`, the process's, is set. `None`: there is no thread
    /// for it.
    pub fn begin(
        limit: Duration,
        interrupt: Arc<AtomicBool>,
        cancel: Arc<AtomicBool>,
    ) -> Option<TimeLimit> {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let passed = Arc::new(AtomicBool::new(false));
        let (waits, tells) = (ended.clone(), passed.clone());
        let (asked, flag) = (interrupt.clone(), cancel.clone());
        let begun = Instant::now();
        let wait = move || {
            let (is_ended, changed) = &*waits;
            let mut guard = is_ended.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                let left = limit.saturating_sub(begun.elapsed());
                let is_interrupted = asked.load(Ordering::Relaxed);
                if left.is_zero() || is_interrupted {
                    tells.store(!is_interrupted, Ordering::Relaxed);
                    flag.store(true, Ordering::Relaxed);
                    return;
                }
                let waited = changed.wait_timeout(guard, left.min(LOOK));
                guard = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        // Also an interrupt from before this batch.
        cancel.fetch_or(interrupt.load(Ordering::Relaxed), Ordering::Relaxed);
        let builder = std::thread::Builder::new().name("limit".into());
        let thread = builder.spawn(wait).ok()?;
        Some(TimeLimit {
            ended,
            passed,
            interrupt,
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

    /// Ends the limit. Returns whether it had passed; then the session's flag is clear again, unless the process's is set.
    pub fn end(mut self) -> bool {
        self.join();
        let is_interrupted = self.interrupt.load(Ordering::Relaxed);
        self.cancel.store(is_interrupted, Ordering::Relaxed);
        self.passed.load(Ordering::Relaxed)
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

    fn waits_for(flag: &AtomicBool) {
        while !flag.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_limit_that_passes_sets_the_flag_and_clears_it_at_its_end() {
        let (interrupt, cancel) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let begin = |limit| TimeLimit::begin(limit, interrupt.clone(), Arc::clone(&cancel));
        let limit = begin(Duration::from_millis(1)).unwrap();
        waits_for(&cancel);
        assert!(limit.end());
        assert!(!cancel.load(Ordering::Relaxed));
        let limit = begin(Duration::from_secs(3600)).unwrap();
        assert!(!limit.end());
        assert!(!cancel.load(Ordering::Relaxed) && !interrupt.load(Ordering::Relaxed));
    }

    #[test]
    fn an_interrupt_reaches_the_session_and_stays() {
        let (interrupt, cancel) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let begin = |limit| TimeLimit::begin(limit, interrupt.clone(), Arc::clone(&cancel));
        // Before the limit, in it, and after it has passed.
        let limit = begin(Duration::from_secs(3600)).unwrap();
        interrupt.store(true, Ordering::Relaxed);
        waits_for(&cancel);
        assert!(!limit.end());
        assert!(cancel.load(Ordering::Relaxed) && interrupt.load(Ordering::Relaxed));
        interrupt.store(false, Ordering::Relaxed);
        cancel.store(false, Ordering::Relaxed);
        let limit = begin(Duration::from_millis(1)).unwrap();
        waits_for(&cancel);
        interrupt.store(true, Ordering::Relaxed);
        assert!(limit.end());
        assert!(cancel.load(Ordering::Relaxed) && interrupt.load(Ordering::Relaxed));
    }
}
