//! One emulated device: its rate, its latency, and when it has taken what was given to it.
//!
//! Invariants
//! - Requests pass one after another at the rate: over any span of `t` seconds no more than `rate × t` bytes, without a
//!   burst. Their latencies do not add up.
//! - All that passed is accounted by the rate alone, whatever the clock and the real file did. What the real file took beyond
//!   that is accounted, too: by requests, and by the time of syncs.
//!
//! Leaves to others: which files are on it (`storage.rs`).

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_io::Clock;

/// The stated speed of an emulated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRate {
    /// Read and written together.
    pub bytes_per_s: NonZeroU64,
    /// Of each request, after its bytes have passed.
    pub latency: Duration,
}

impl DeviceRate {
    /// The time that so many bytes take.
    fn time_of(self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_s.get() as f64)
    }
}

impl fmt::Display for DeviceRate {
    /// `200 MB/s`, or `200 MB/s and 0.5 ms`; MB are 2^20 bytes, as in all reports.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |number: f64| {
            let text = format!("{number:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let rate = self.bytes_per_s.get() as f64 / f64::from(1 << 20);
        write!(f, "{} MB/s", short(rate))?;
        match self.latency {
            Duration::ZERO => Ok(()),
            latency => write!(f, " and {} ms", short(latency.as_secs_f64() * 1e3)),
        }
    }
}

/// The bytes that have passed a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PaceAccount {
    pub bytes: u64,
    pub requests: u64,
    /// Requests for which the real storage took longer than the device would have.
    pub late: u64,
    /// The time for which the device was at work, by its rate.
    pub busy: Duration,
    /// The time that real syncs took after the device was through with all that was given to it.
    pub late_syncs: Duration,
}

/// A device at work. Its methods may be called from several threads at once.
#[derive(Debug)]
pub struct DevicePace {
    clock: Arc<dyn Clock>,
    rate: DeviceRate,
    state: Mutex<PaceState>,
}

#[derive(Debug, Default)]
struct PaceState {
    /// On the clock: when all that was given to the device has passed.
    free_at: Duration,
    account: PaceAccount,
}

impl DevicePace {
    pub fn new(clock: Arc<dyn Clock>, rate: DeviceRate) -> DevicePace {
        DevicePace {
            clock,
            rate,
            state: Mutex::default(),
        }
    }

    pub fn rate(&self) -> DeviceRate {
        self.rate
    }

    pub fn account(&self) -> PaceAccount {
        self.state().account
    }

    /// The account since the last call; a new one begins.
    pub fn take_account(&self) -> PaceAccount {
        std::mem::take(&mut self.state().account)
    }

    fn state(&self) -> MutexGuard<'_, PaceState> {
        // No step between two locks can leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a real transfer, which says how many bytes it moved, and comes back when the device would be through with
    /// them, had it begun at the same time.
    pub fn pass(&self, transfer: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        let begun = self.clock.now();
        let bytes = transfer()?;
        let through = self.take(begun, bytes as u64);
        if self.clock.now() > through {
            self.state().account.late += 1;
        }
        self.wait_until(through);
        Ok(bytes)
    }

    /// Does a real sync, and comes back when all that was given to the device has passed, too.
    pub fn sync(&self, real: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let begun = self.clock.now();
        let synced = real();
        let ended = self.clock.now();
        let mut state = self.state();
        // The device would have been through by then, with the request for it behind all others.
        let through = state.free_at.max(begun) + self.rate.latency;
        state.account.late_syncs += ended.saturating_sub(through);
        drop(state);
        self.drain();
        synced
    }

    /// Comes back when all that was given to the device has passed.
    pub fn drain(&self) {
        let through = self.state().free_at;
        self.wait_until(through);
    }

    /// The time on the clock at which a request that came at `begun` will have passed.
    fn take(&self, begun: Duration, bytes: u64) -> Duration {
        let takes = self.rate.time_of(bytes);
        let mut state = self.state();
        state.free_at = state.free_at.max(begun) + takes;
        state.account.bytes += bytes;
        state.account.requests += 1;
        state.account.busy += takes;
        state.free_at + self.rate.latency
    }

    fn wait_until(&self, through: Duration) {
        loop {
            match through.saturating_sub(self.clock.now()) {
                Duration::ZERO => return,
                left => self.clock.sleep(left),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::SimClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn device(bytes_per_s: u64, latency_ms: u64) -> (Arc<SimClock>, DevicePace) {
        let clock = Arc::new(SimClock::new(0));
        let rate = DeviceRate {
            bytes_per_s: NonZeroU64::new(bytes_per_s).unwrap(),
            latency: Duration::from_millis(latency_ms),
        };
        (clock.clone(), DevicePace::new(clock, rate))
    }

    #[test]
    fn bytes_pass_at_the_rate_and_idle_time_is_not_saved_up() {
        let (clock, device) = device(1000, 0);
        device.pass(|| Ok(500)).unwrap();
        assert_eq!(clock.now(), SECOND / 2);
        clock.advance(60 * SECOND);
        let begun = clock.now();
        for _ in 0..10 {
            device.pass(|| Ok(300)).unwrap();
        }
        assert_eq!(clock.now() - begun, 3 * SECOND);
        let account = device.account();
        assert_eq!((account.bytes, account.requests), (3500, 11));
        assert_eq!(account.busy, 7 * SECOND / 2);
    }

    #[test]
    fn the_real_transfer_runs_meanwhile_and_counts_where_it_is_slower() {
        let (clock, device) = device(1000, 0);
        let slow = |real: Duration| {
            let moved = device.pass(|| {
                clock.advance(real);
                Ok(1000)
            });
            moved.unwrap();
            clock.now()
        };
        assert_eq!(slow(SECOND / 4), SECOND);
        assert_eq!(slow(5 * SECOND), 6 * SECOND);
        // The slow transfer gave the device no credit.
        assert_eq!(slow(Duration::ZERO), 7 * SECOND);
        assert_eq!(device.account().late, 1);
        // One that failed moved nothing.
        let failed = device.pass(|| Err(io::ErrorKind::StorageFull.into()));
        assert!(failed.is_err());
        assert_eq!((clock.now(), device.account().bytes), (7 * SECOND, 3000));
    }

    #[test]
    fn latencies_of_requests_that_wait_together_do_not_add_up() {
        let (clock, device) = device(1000, 200);
        let take = || device.take(Duration::ZERO, 1000);
        let (first, second) = (take(), take());
        assert_eq!((first, second), (SECOND * 6 / 5, SECOND * 11 / 5));
        device.wait_until(second);
        assert_eq!(clock.now(), second);
    }

    #[test]
    fn a_drain_waits_for_requests_of_others() {
        let (clock, device) = device(1000, 0);
        device.take(Duration::ZERO, 4000);
        device.drain();
        assert_eq!(clock.now(), 4 * SECOND);
        device.drain();
        assert_eq!(clock.now(), 4 * SECOND);
    }

    #[test]
    fn a_sync_that_takes_longer_than_the_device_is_accounted_and_a_quick_one_is_not() {
        let (clock, device) = device(1000, 0);
        device.take(Duration::ZERO, 3000);
        let sync = |real: Duration| {
            device
                .sync(|| {
                    clock.advance(real);
                    Ok(())
                })
                .unwrap();
            (clock.now(), device.account().late_syncs)
        };
        // The device needs three seconds, so a second of syncing is hidden behind them.
        assert_eq!(sync(SECOND), (3 * SECOND, Duration::ZERO));
        assert_eq!(sync(5 * SECOND), (8 * SECOND, 5 * SECOND));
        assert_eq!(device.take_account().late_syncs, 5 * SECOND);
        assert_eq!(device.account(), PaceAccount::default());
        let failed = device.sync(|| Err(io::ErrorKind::StorageFull.into()));
        assert!(failed.is_err());
    }

    #[test]
    fn a_rate_is_told_as_people_say_it() {
        let told = |mib: f64, latency_us| {
            let rate = DeviceRate {
                bytes_per_s: NonZeroU64::new((mib * f64::from(1 << 20)) as u64).unwrap(),
                latency: Duration::from_micros(latency_us),
            };
            rate.to_string()
        };
        assert_eq!(told(200.0, 0), "200 MB/s");
        assert_eq!(told(1.5, 500), "1.5 MB/s and 0.5 ms");
    }
}
