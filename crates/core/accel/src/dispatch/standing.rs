//! Whether an accelerator is in service: `Absent → Probing → Ready → Suspended → Ready | Off`.
//!
//! | fault | consequence |
//! |---|---|
//! | `Busy`, `NoRoom` | nothing: software does the job |
//! | `Device`, `Short`, `Memory`, `Down` | suspended; its self-test is tried after 1, 2, 4 … 60 seconds |
//! | `Hung` | the same; off when [`HUNG_MAX`] calls have never returned |
//! | `Corrupt` | an alarm; off at the second one within a run, until the process starts again |
//!
//! Invariants
//! - Off is final.
//! - Only a self-test that passed leads back to Ready.
//! - Pure: time is an argument.
//!
//! Leaves to others: running the self-test (`in_service.rs`), and finding a fault (`finisher.rs`, `threads.rs`).

use std::time::Duration;

use crate::engine::HUNG_MAX;
use crate::{EngineState, Fault, Health};

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Corrupt results within a run after which the device is no longer used.
const STRIKES_MAX: u32 = 2;
/// Results without a fault after which the back-off starts again from its first step.
const FORGIVEN_AFTER: u32 = 64;
/// Results that are fully verified after each start.
pub const FRESH: u32 = 256;

/// The standing of one accelerator.
#[derive(Debug, Clone)]
pub struct EngineStanding {
    state: EngineState,
    reason: String,
    retry: Duration,
    retry_at: Duration,
    /// A self-test is running.
    probing: bool,
    strikes: u32,
    hung: u32,
    good: u32,
    fresh: u32,
}

impl EngineStanding {
    pub fn new(health: &Health) -> EngineStanding {
        EngineStanding {
            state: health.state,
            reason: health.reason.clone(),
            retry: RETRY_FIRST,
            retry_at: Duration::ZERO,
            probing: false,
            strikes: 0,
            hung: 0,
            good: 0,
            fresh: FRESH,
        }
    }

    pub fn state(&self) -> EngineState {
        self.state
    }

    /// Empty if ready.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Begins a run: strikes count within one run.
    pub fn begin_run(&mut self) {
        self.strikes = 0;
    }

    /// Whether the next result is among the first after a start.
    pub fn take_fresh(&mut self) -> bool {
        let fresh = self.fresh > 0;
        self.fresh = self.fresh.saturating_sub(1);
        fresh
    }

    /// Whether the caller must run the self-test now; at most one caller gets true.
    pub fn take_probe(&mut self, now: Duration) -> bool {
        let waits = matches!(self.state, EngineState::Probing | EngineState::Suspended);
        let due = waits && !self.probing && now >= self.retry_at;
        self.probing |= due;
        due
    }

    #[cfg(test)]
    pub fn is_probing(&self) -> bool {
        self.probing
    }

    /// Records the self-test's result.
    pub fn probed(&mut self, now: Duration, health: &Health) {
        if !std::mem::take(&mut self.probing) || self.state == EngineState::Off {
            return;
        }
        match health.state {
            EngineState::Ready => {
                self.state = EngineState::Ready;
                self.reason.clear();
                self.fresh = FRESH;
                self.good = 0;
            }
            EngineState::Absent | EngineState::Off => self.off(health.reason.clone()),
            EngineState::Probing | EngineState::Suspended => {
                self.suspend(now, health.reason.clone())
            }
        }
    }

    /// Counts a result that was used.
    pub fn served(&mut self) {
        self.good = self.good.saturating_add(1);
        if self.good == FORGIVEN_AFTER {
            self.retry = RETRY_FIRST;
        }
    }

    /// Counts a fault; `health` is the engine's own report.
    pub fn fault(&mut self, now: Duration, fault: Fault, health: &Health) {
        if health.state == EngineState::Off {
            return self.off(health.reason.clone());
        }
        match fault {
            Fault::Busy | Fault::NoRoom => {}
            Fault::Corrupt => {
                self.good = 0;
                self.strikes += 1;
                if self.strikes >= STRIKES_MAX {
                    self.off(
                        "it gave wrong results twice; test the device before you use it again"
                            .into(),
                    );
                }
            }
            Fault::Hung => {
                self.probing = false;
                self.hung += 1;
                if self.hung >= HUNG_MAX {
                    let reason = format!("{HUNG_MAX} calls never returned; reset the device");
                    return self.off(reason);
                }
                self.suspend(now, "a call did not return in time".into());
            }
            Fault::Device { code } => self.suspend(now, format!("the device failed, code {code}")),
            Fault::Short => self.suspend(now, "it did not take all of its input".into()),
            Fault::Memory => self.suspend(now, "the device has no memory left".into()),
            Fault::Down => {
                let reason = Some(health.reason.clone()).filter(|r| !r.is_empty());
                self.suspend(now, reason.unwrap_or("it is not in service".into()));
            }
        }
    }

    /// Switches the accelerator off until the process starts again.
    pub fn off(&mut self, reason: String) {
        if self.state != EngineState::Off {
            self.state = EngineState::Off;
            self.reason = reason;
        }
    }

    fn suspend(&mut self, now: Duration, reason: String) {
        self.good = 0;
        // Faults of calls that were already in flight are not news.
        let known = self.state == EngineState::Suspended && now < self.retry_at;
        if self.state == EngineState::Off || known {
            return;
        }
        self.state = EngineState::Suspended;
        self.reason = reason;
        self.retry_at = now.saturating_add(self.retry);
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn ready() -> (EngineStanding, Health) {
        (
            EngineStanding::new(&Health::of(EngineState::Ready)),
            Health::of(EngineState::Ready),
        )
    }

    #[test]
    fn retries_come_after_1_2_4_and_at_most_60_seconds() {
        let (mut standing, well) = ready();
        let mut now = Duration::ZERO;
        standing.fault(now, Fault::Device { code: -2 }, &well);
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(standing.state(), EngineState::Suspended);
            assert!(!standing.take_probe(now + wait * S - S / 1000));
            now += wait * S;
            assert!(standing.take_probe(now), "after {wait} s");
            assert!(!standing.take_probe(now), "two at a time");
            standing.probed(now, &Health::of(EngineState::Suspended));
        }
        now += 60 * S;
        assert!(standing.take_probe(now));
        standing.probed(now, &well);
        assert_eq!(
            (standing.state(), standing.reason()),
            (EngineState::Ready, "")
        );
        // Nothing has been proved yet, so the next retry is not sooner.
        standing.fault(now, Fault::Device { code: -2 }, &well);
        assert!(!standing.take_probe(now + 59 * S));
        assert!(standing.take_probe(now + 60 * S));
        standing.probed(now, &well);
        (0..64).for_each(|_| standing.served());
        standing.fault(now, Fault::Device { code: -2 }, &well);
        assert!(standing.take_probe(now + S));
    }

    #[test]
    fn one_fault_for_each_of_many_jobs_counts_once() {
        let (mut standing, well) = ready();
        (0..100).for_each(|_| standing.fault(Duration::ZERO, Fault::Short, &well));
        assert!(standing.take_probe(S));
    }

    #[test]
    fn two_wrong_results_within_a_run_are_the_end_but_not_one_in_each() {
        let (mut standing, well) = ready();
        for _ in 0..3 {
            standing.begin_run();
            standing.fault(Duration::ZERO, Fault::Corrupt, &well);
            assert_eq!(standing.state(), EngineState::Ready);
        }
        standing.fault(Duration::ZERO, Fault::Corrupt, &well);
        assert_eq!(standing.state(), EngineState::Off);
        assert!(!standing.take_probe(1000 * S));
        standing.probed(1000 * S, &well);
        assert_eq!(standing.state(), EngineState::Off, "off is final");
    }

    #[test]
    fn eight_calls_that_never_return_are_the_end() {
        let (mut standing, well) = ready();
        let mut now = Duration::ZERO;
        for n in 1..=HUNG_MAX {
            assert_ne!(standing.state(), EngineState::Off, "before call {n}");
            standing.fault(now, Fault::Hung, &well);
            now += 100 * S;
            if standing.take_probe(now) {
                standing.probed(now, &well);
            }
        }
        assert_eq!(standing.state(), EngineState::Off);
    }

    #[test]
    fn a_busy_device_is_not_faulty() {
        let (mut standing, well) = ready();
        standing.fault(S, Fault::Busy, &well);
        standing.fault(S, Fault::NoRoom, &well);
        assert_eq!(standing.state(), EngineState::Ready);
    }

    #[test]
    fn the_first_results_after_each_start_are_fresh() {
        let (mut standing, well) = ready();
        assert_eq!((0..300).filter(|_| standing.take_fresh()).count(), 256);
        standing.fault(S, Fault::Down, &well);
        assert!(standing.take_probe(10 * S));
        standing.probed(10 * S, &well);
        assert!(standing.take_fresh());
    }

    #[test]
    fn an_engine_that_calls_itself_off_is_believed() {
        let (mut standing, _) = ready();
        standing.fault(S, Fault::Busy, &Health::of(EngineState::Off));
        assert_eq!(standing.state(), EngineState::Off);
    }
}
