//! Time as an argument: the only place that reads a clock.
//!
//! Decisions ask a [`Clock`], so that a test can drive them with a simulated one without waiting.

use std::fmt::Debug;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Something that knows the time. All methods may be called from several threads at a time, and none fails. Callers
/// compare times of one clock only. The tests in `tests/contract/clock.rs` check this text for every clock.
pub trait Clock: Send + Sync + Debug {
    /// Time since some fixed moment in the past. Never goes back, even if the wall clock is set.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_clock_advances_by_its_sleep_and_sleeping_uses_no_cpu() {
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
}
