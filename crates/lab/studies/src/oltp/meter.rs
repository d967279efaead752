//! The CPU use of the machine and of this program while the phases run.
//!
//! Invariants
//! - Readings only grow, and are taken by a thread of their own, also while nothing is backed up.
//! - Between two readings the use is even. Outside of them nothing is known, and the answer is `None`, never 0.
//! - A percentage is of the time of all processors that are online, in the same seconds: at work, idle, or given to other
//!   machines by a hypervisor. Time that was given away is no work.
//!
//! Leaves to others: which spans are asked about (`findings.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use longshore_facts as facts;
use longshore_io::Clock;

/// Between two readings: some for each second.
const EVERY: Duration = Duration::from_millis(200);

/// CPU seconds until a moment of the wall clock.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuReading {
    pub at_s: f64,
    /// Of all processors that are online: at work, given to other machines, and in all.
    pub busy_s: f64,
    pub stolen_s: f64,
    pub all_s: f64,
    /// Of this process.
    pub own_s: f64,
}

impl CpuReading {
    fn take(clock: &dyn Clock) -> Option<CpuReading> {
        let machine = facts::cpu_times().ok()?;
        let own = facts::process_usage().ok()?;
        Some(CpuReading {
            at_s: clock.wall_ns() as f64 / 1e9,
            busy_s: machine.busy.as_secs_f64(),
            stolen_s: machine.stolen.as_secs_f64(),
            all_s: (machine.busy + machine.idle + machine.stolen).as_secs_f64(),
            own_s: own.cpu().as_secs_f64(),
        })
    }
}

/// The use in a span, in percent of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuShare {
    pub machine_percent: f64,
    /// That a hypervisor gave to other machines.
    pub stolen_percent: f64,
    /// Of this process, which makes the backups and not the load.
    pub own_percent: f64,
}

/// Readings in their order.
#[derive(Debug, Clone, Default)]
pub struct CpuMeter(Vec<CpuReading>);

impl CpuMeter {
    #[cfg(test)]
    pub fn of(readings: Vec<CpuReading>) -> CpuMeter {
        CpuMeter(readings)
    }

    /// Does the work, and reads meanwhile.
    ///
    /// Errors: those of the work, and of starting a thread.
    pub fn during<T>(clock: &dyn Clock, work: impl FnOnce() -> Result<T>) -> Result<(T, CpuMeter)> {
        let is_over = AtomicBool::new(false);
        // Before the work begins, or its first moments would have no use.
        let first = CpuReading::take(clock);
        let read = || {
            let mut readings: Vec<CpuReading> = first.into_iter().collect();
            loop {
                let last = is_over.load(Ordering::Relaxed);
                readings.extend(CpuReading::take(clock));
                if last {
                    return CpuMeter(readings);
                }
                clock.sleep(EVERY);
            }
        };
        std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().spawn_scoped(scope, read)?;
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            let meter = reader.join().unwrap_or_default();
            Ok((done?, meter))
        })
    }

    /// The reading at a moment, between the two that were taken.
    fn at(&self, at_s: f64) -> Option<CpuReading> {
        let after = self.0.partition_point(|reading| reading.at_s < at_s);
        let b = self.0.get(after)?;
        if b.at_s <= at_s {
            return Some(*b);
        }
        let a = self.0.get(after.checked_sub(1)?)?;
        let part = (at_s - a.at_s) / (b.at_s - a.at_s);
        let mix = |a: f64, b: f64| a + part * (b - a);
        Some(CpuReading {
            at_s,
            busy_s: mix(a.busy_s, b.busy_s),
            stolen_s: mix(a.stolen_s, b.stolen_s),
            all_s: mix(a.all_s, b.all_s),
            own_s: mix(a.own_s, b.own_s),
        })
    }

    /// The use between two moments of the wall clock.
    pub fn share(&self, from_s: f64, to_s: f64) -> Option<CpuShare> {
        let (from, to) = (self.at(from_s)?, self.at(to_s)?);
        let all_s = to.all_s - from.all_s;
        if all_s <= 0.0 {
            return None;
        }
        Some(CpuShare {
            machine_percent: 100.0 * (to.busy_s - from.busy_s) / all_s,
            stolen_percent: 100.0 * (to.stolen_s - from.stolen_s) / all_s,
            own_percent: 100.0 * (to.own_s - from.own_s) / all_s,
        })
    }

    /// The processors that were online between two moments, by the time that they had: what percentages are of.
    pub fn processors(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let (from, to) = (self.at(from_s)?, self.at(to_s)?);
        let processors = (to.all_s - from.all_s) / (to_s - from_s);
        (processors.is_finite() && processors > 0.0).then_some(processors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_use_between_its_ends_and_none_where_nothing_was_read() {
        let reading = |at_s: f64, busy_s: f64, own_s: f64| CpuReading {
            at_s,
            busy_s,
            stolen_s: at_s / 2.0,
            all_s: 2.0 * at_s,
            own_s,
        };
        let meter = CpuMeter::of(vec![
            reading(10.0, 0.0, 0.0),
            reading(11.0, 1.0, 0.5),
            reading(13.0, 5.0, 0.5),
        ]);
        let share = |from_s, to_s| {
            meter
                .share(from_s, to_s)
                .map(|s| (s.machine_percent, s.own_percent))
        };
        assert_eq!(share(10.0, 11.0), Some((50.0, 25.0)));
        assert_eq!(share(11.0, 12.0), Some((100.0, 0.0)));
        assert_eq!(share(10.5, 11.5), Some((75.0, 12.5)));
        assert_eq!(
            (share(9.0, 11.0), share(12.0, 14.0), share(11.0, 11.0)),
            (None, None, None)
        );
        assert_eq!(CpuMeter::default().share(0.0, 1.0), None);
        // Two processors, of which a quarter was given to other machines: that is time, and no work.
        assert_eq!(meter.processors(10.0, 12.0), Some(2.0));
        let stolen = meter.share(10.0, 12.0).map(|s| s.stolen_percent);
        assert_eq!(stolen, Some(25.0));
        let unknown = [(9.0, 11.0), (12.0, 14.0), (11.0, 11.0)];
        for (from_s, to_s) in unknown {
            assert_eq!(meter.processors(from_s, to_s), None, "{from_s} {to_s}");
        }
    }

    #[test]
    fn readings_span_the_work_and_its_error_is_told() {
        let clock = longshore_io::HostClock;
        let now_s = || clock.wall_ns() as f64 / 1e9;
        let (span, meter) = CpuMeter::during(&clock, || {
            let from_s = now_s();
            clock.sleep(3 * EVERY);
            Ok((from_s, now_s()))
        })
        .unwrap();
        let share = meter.share(span.0, span.1).unwrap();
        assert!(
            (0.0..=100.001).contains(&share.machine_percent),
            "{share:?}"
        );
        let failed = CpuMeter::during(&clock, || -> Result<()> { anyhow::bail!("no") });
        assert_eq!(failed.unwrap_err().to_string(), "no");
    }
}
