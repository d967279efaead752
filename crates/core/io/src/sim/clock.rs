//! The twin of [`crate::HostClock`].

use std::collections::HashMap;
use std::thread::{self, ThreadId};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// A clock that only a test moves.
///
/// A sleeping thread moves it to the moment of waking and goes on at once, so threads that sleep side
/// by side spend the same time, as real ones would.
#[derive(Debug, Default)]
pub struct SimClock {
    state: Mutex<SimState>,
}

#[derive(Debug, Default)]
struct SimState {
    now: Duration,
    wall_offset_ns: i64,
    cpu: HashMap<ThreadId, Duration>,
}

impl SimClock {
    /// A clock at 0 whose wall time is `wall_ns` nanoseconds after the Unix epoch.
    pub fn new(wall_ns: i64) -> Self {
        Self {
            state: Mutex::new(SimState {
                wall_offset_ns: wall_ns,
                ..SimState::default()
            }),
        }
    }

    /// Moves the time on.
    pub fn advance(&self, by: Duration) {
        self.state.lock().now += by;
    }

    /// Moves the time on, all of it spent computing by the calling thread.
    pub fn compute(&self, by: Duration) {
        let mut state = self.state.lock();
        state.now += by;
        *state.cpu.entry(thread::current().id()).or_default() += by;
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        self.state.lock().now
    }

    fn wall_ns(&self) -> i64 {
        let state = self.state.lock();
        let passed = i64::try_from(state.now.as_nanos()).unwrap_or(i64::MAX);
        state.wall_offset_ns.saturating_add(passed)
    }

    fn thread_cpu(&self) -> Duration {
        self.state
            .lock()
            .cpu
            .get(&thread::current().id())
            .copied()
            .unwrap_or_default()
    }

    fn sleep(&self, how_long: Duration) {
        let wake = self.now().saturating_add(how_long);
        // Another sleeper may have moved the clock beyond our own moment meanwhile.
        let mut state = self.state.lock();
        state.now = state.now.max(wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_moves_only_when_set_or_slept_on() {
        let clock = SimClock::new(1_000);
        assert_eq!((clock.now(), clock.wall_ns()), (Duration::ZERO, 1_000));
        clock.sleep(Duration::from_nanos(5));
        clock.advance(Duration::from_nanos(3));
        assert_eq!(
            (clock.now(), clock.wall_ns()),
            (Duration::from_nanos(8), 1_008)
        );
        clock.compute(Duration::from_nanos(2));
        assert_eq!(
            (clock.now(), clock.thread_cpu()),
            (Duration::from_nanos(10), Duration::from_nanos(2))
        );
    }
}
