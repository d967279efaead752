//! Time as an argument: the only place that reads a clock.
//!
//! Decisions ask a [`Clock`], so that a test can drive them with a [`SimClock`] without waiting.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::LazyLock;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// Something that knows the time.
pub trait Clock: Send + Sync + Debug {
    /// Time since some fixed moment before. Never goes back, not even when the wall clock is set.
    fn now(&self) -> Duration;

    /// The date and time of day: nanoseconds since the Unix epoch. May jump.
    fn wall_ns(&self) -> i64;

    /// CPU time that the calling thread has used, user and system.
    fn thread_cpu(&self) -> Duration;

    /// Blocks the calling thread for at least `how_long`.
    fn sleep(&self, how_long: Duration);
}

/// The clocks of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    fn wall_ns(&self) -> i64 {
        let ns = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => ns(since),
            Err(before) => -ns(before.duration()),
        }
    }

    fn thread_cpu(&self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    }

    fn sleep(&self, how_long: Duration) {
        thread::sleep(how_long);
    }
}

/// A clock that only a test moves.
///
/// Whoever sleeps moves it to the moment of waking and goes on at once, so threads that sleep side
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
    fn the_host_clock_moves_by_what_it_sleeps_and_sleeping_is_no_work() {
        let (start, cpu) = (HostClock.now(), HostClock.thread_cpu());
        HostClock.sleep(Duration::from_millis(30));
        assert!(HostClock.now() - start >= Duration::from_millis(30));
        assert!(HostClock.thread_cpu() - cpu < Duration::from_millis(20));
        assert!(HostClock.wall_ns() > 1_600_000_000_000_000_000);
    }

    #[test]
    fn the_host_clock_counts_the_work_of_the_calling_thread_alone() {
        let burn = || {
            let start = HostClock.thread_cpu();
            while HostClock.thread_cpu() - start < Duration::from_millis(20) {}
        };
        let before = HostClock.thread_cpu();
        thread::spawn(burn).join().unwrap();
        assert!(HostClock.thread_cpu() - before < Duration::from_millis(20));
    }

    #[test]
    fn a_simulated_clock_moves_only_when_told_or_slept_on() {
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
