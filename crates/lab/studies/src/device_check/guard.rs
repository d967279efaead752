//! Steps that may hang or take too long, each on its own thread, so that the report is written in any case.
//!
//! Invariants
//! - A step that exceeds its limit is abandoned with its thread: the device may still use its memory. From then on no
//!   step uses the device.
//! - No step starts when the time is over. A step that fails or panics is a line of the report.
//!
//! Leaves to others: what a step does, and the report (`device_check/mod.rs`).

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::Builder;
use std::time::Duration;

use anyhow::Result;
use longshore_io::Clock;

/// How a step ended.
#[derive(Debug)]
pub enum Step<T> {
    Done(T),
    /// The reason, in words for the report.
    Not(String),
}

impl<T> Step<T> {
    pub fn done(self) -> Option<T> {
        match self {
            Step::Done(value) => Some(value),
            Step::Not(_) => None,
        }
    }
}

/// The remaining time, and whether the device still answers.
pub struct Guard {
    clock: Arc<dyn Clock>,
    end: Duration,
    hung: Option<String>,
}

impl Guard {
    pub fn new(clock: &Arc<dyn Clock>, all: Duration) -> Guard {
        Guard {
            end: clock.now() + all,
            clock: Arc::clone(clock),
            hung: None,
        }
    }

    /// The step that did not return.
    pub fn hung(&self) -> Option<&str> {
        self.hung.as_deref()
    }

    /// Runs `work` for at most `limit`, unless the time is over or the device hangs.
    pub fn step<T: Send + 'static>(
        &mut self,
        name: &str,
        limit: Duration,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Step<T> {
        if let Some(step) = &self.hung {
            return Step::Not(format!("not tried: the device hangs in: {step}"));
        }
        if self.clock.now() >= self.end {
            return Step::Not("not tried: no time left".into());
        }
        let (sender, receiver) = mpsc::channel();
        let started = Builder::new().spawn(move || {
            // The receiver may be gone.
            let _ = sender.send(work());
        });
        if let Err(error) = started {
            return Step::Not(format!("not tried: no thread can be started: {error}"));
        }
        match receiver.recv_timeout(limit) {
            Ok(Ok(value)) => Step::Done(value),
            Ok(Err(error)) => Step::Not(format!("failed: {error:#}")),
            Err(RecvTimeoutError::Timeout) => {
                self.hung = Some(name.to_owned());
                Step::Not(format!("did not return within {} s", limit.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Step::Not("ended in a panic".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::HostClock;

    #[test]
    fn a_step_that_hangs_ends_all_later_ones_but_not_the_report() {
        let clock: Arc<dyn Clock> = Arc::new(HostClock);
        let mut guard = Guard::new(&clock, Duration::from_secs(60));
        assert_eq!(
            guard.step("one", Duration::from_secs(9), || Ok(1)).done(),
            Some(1)
        );
        let Step::Not(why) = guard.step("bad", Duration::from_secs(9), || -> Result<()> {
            anyhow::bail!("no such device")
        }) else {
            panic!("a failure is not done");
        };
        assert_eq!(why, "failed: no such device");
        let never = || -> Result<()> {
            loop {
                std::thread::park();
            }
        };
        assert!(
            guard
                .step("two", Duration::from_millis(20), never)
                .done()
                .is_none()
        );
        assert_eq!(guard.hung(), Some("two"));
        assert!(
            guard
                .step("three", Duration::from_secs(9), || Ok(3))
                .done()
                .is_none()
        );
    }

    #[test]
    fn nothing_starts_when_the_time_is_over() {
        let clock: Arc<dyn Clock> = Arc::new(HostClock);
        let mut guard = Guard::new(&clock, Duration::ZERO);
        assert!(
            guard
                .step("one", Duration::from_secs(9), || Ok(1))
                .done()
                .is_none()
        );
    }
}
