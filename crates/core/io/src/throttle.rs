//! A ceiling on a rate in bytes per second: a token bucket over a [`Clock`].
//!
//! Tokens arrive at the rate and are saved up to a burst. A caller that takes more than there are goes into debt and
//! sleeps until the debt is paid. So a request larger than the burst is served too.
//!
//! Invariants
//! - Over any span of `t` seconds at most `burst + rate × t` bytes pass.
//! - Callers are served in the order of arrival.
//! - The rate can change at any time; sleepers notice within a tenth of a second. Removing the limit releases all of
//!   them, which is how a run is aborted.
//!
//! Leaves to others: the rate and the burst, and which bytes are counted (the callers).

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// Sleepers read the rate again at this interval.
const NAP: Duration = Duration::from_millis(100);

/// Lets bytes through at a limited rate.
pub struct Throttle {
    clock: Arc<dyn Clock>,
    burst_bytes: f64,
    state: Mutex<State>,
}

struct State {
    rate_bytes_per_s: Option<NonZeroU64>,
    /// Both count bytes from the start. A request passes when `supplied` has reached the request's end in `demanded`.
    /// Exact up to 2^53 bytes, far more than a day at any device's speed.
    supplied: f64,
    demanded: f64,
    seen: Duration,
}

impl Throttle {
    /// Lets at most `rate_bytes_per_s` pass (`None`: no limit) after a first `burst_bytes`.
    pub fn new(
        clock: Arc<dyn Clock>,
        rate_bytes_per_s: Option<NonZeroU64>,
        burst_bytes: u64,
    ) -> Self {
        let burst_bytes = burst_bytes as f64;
        let seen = clock.now();
        let state = State {
            rate_bytes_per_s,
            supplied: burst_bytes,
            demanded: 0.0,
            seen,
        };
        Self {
            clock,
            burst_bytes,
            state: Mutex::new(state),
        }
    }

    /// Blocks until `bytes` may pass.
    pub fn take(&self, bytes: u64) {
        let mut state = self.state.lock();
        self.supply(&mut state);
        state.demanded += bytes as f64;
        let mine = state.demanded;
        while let Some(rate) = state.rate_bytes_per_s
            && state.supplied < mine
        {
            let wait = Duration::try_from_secs_f64((mine - state.supplied) / rate.get() as f64);
            drop(state);
            // At least a microsecond: a shortage of less than one token must not become a busy loop.
            self.clock
                .sleep(wait.unwrap_or(NAP).clamp(Duration::from_micros(1), NAP));
            state = self.state.lock();
            self.supply(&mut state);
        }
    }

    /// Changes the rate from now on; `None` removes the limit.
    pub fn set_rate(&self, rate_bytes_per_s: Option<NonZeroU64>) {
        let mut state = self.state.lock();
        self.supply(&mut state);
        state.rate_bytes_per_s = rate_bytes_per_s;
    }

    /// The present rate; `None` is no limit.
    pub fn rate_bytes_per_s(&self) -> Option<NonZeroU64> {
        self.state.lock().rate_bytes_per_s
    }

    fn supply(&self, state: &mut State) {
        let now = self.clock.now();
        let passed = now.saturating_sub(state.seen);
        state.seen = now;
        let full = state.demanded + self.burst_bytes;
        state.supplied = match state.rate_bytes_per_s {
            Some(rate) => full.min(state.supplied + rate.get() as f64 * passed.as_secs_f64()),
            None => full,
        };
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("rate_bytes_per_s", &self.rate_bytes_per_s())
            .field("burst_bytes", &self.burst_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::HostClock;
    use crate::sim::SimClock;
    use std::thread;
    use std::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    fn sim(rate: u64, burst: u64) -> (Arc<SimClock>, Throttle) {
        let clock = Arc::new(SimClock::new(0));
        let throttle = Throttle::new(clock.clone(), NonZeroU64::new(rate), burst);
        (clock, throttle)
    }

    #[track_caller]
    fn about(found: Duration, expected_s: f64) {
        let found = found.as_secs_f64();
        assert!(
            (found - expected_s).abs() < 1e-3,
            "{found} s, not {expected_s}"
        );
    }

    #[test]
    fn after_the_burst_bytes_pass_at_the_rate() {
        let (clock, throttle) = sim(1000, 500);
        throttle.take(500);
        assert_eq!(clock.now(), Duration::ZERO);
        for _ in 0..100 {
            throttle.take(70);
        }
        about(clock.now(), 7.0);
    }

    #[test]
    fn a_request_larger_than_the_burst_passes_in_its_time() {
        let (clock, throttle) = sim(1000, 10);
        throttle.take(5010);
        about(clock.now(), 5.0);
    }

    #[test]
    fn idle_time_saves_up_one_burst_and_no_more() {
        let (clock, throttle) = sim(1000, 300);
        throttle.take(300);
        clock.advance(60 * SECOND);
        throttle.take(300);
        assert_eq!(clock.now(), 60 * SECOND);
        throttle.take(200);
        about(clock.now(), 60.2);
    }

    #[test]
    fn no_limit_costs_no_time_and_leaves_no_savings() {
        let (clock, throttle) = sim(1000, 0);
        throttle.set_rate(None);
        throttle.take(u64::from(u32::MAX));
        clock.advance(SECOND);
        throttle.set_rate(NonZeroU64::new(100));
        assert_eq!(clock.now(), SECOND);
        throttle.take(100);
        about(clock.now(), 2.0);
    }

    #[test]
    fn threads_side_by_side_share_the_rate() {
        let clock = Arc::new(HostClock);
        let throttle = Arc::new(Throttle::new(clock, NonZeroU64::new(10_000), 0));
        let start = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| throttle.take(100)));
            }
        });
        assert!(start.elapsed() >= Duration::from_millis(200));
    }

    #[test]
    fn lifting_the_limit_wakes_a_sleeper_that_would_wait_for_days() {
        let clock = Arc::new(HostClock);
        let throttle = Arc::new(Throttle::new(clock, NonZeroU64::new(1), 0));
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| throttle.take(1 << 40));
            thread::sleep(Duration::from_millis(20));
            throttle.set_rate(None);
        });
        assert!(start.elapsed() < 10 * SECOND);
    }
}
