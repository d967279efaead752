//! Where the time went: waits, one-second samples, and the bottleneck.
//!
//! Invariants
//! - All threads of a run add to one set of counters, without locks.
//! - Every wait is counted at one place only, so that the sums can be compared: the bottleneck is named from them, and
//!   a report never guesses.
//!
//! Leaves to others: showing the numbers (the program), and deciding by them (`choice.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longshore_facts as facts;
use longshore_io::Clock;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

use crate::plan::Sizes;
use crate::{Observer, Progress};

/// Counters that all threads of a run add to. Times are in microseconds, summed over threads.
#[derive(Debug, Default)]
pub struct Counters {
    pub plain_bytes: AtomicU64,
    pub stored_bytes: AtomicU64,
    pub entries: AtomicU64,
    /// Blocks with data.
    pub blocks: AtomicU64,
    pub expected_bytes: AtomicU64,
    /// Bytes compared in based files.
    /// Roughly the bytes of the source, for progress alone; 0 where that is not known either.
    pub about_bytes: AtomicU64,
    pub scanned_bytes: AtomicU64,
    /// Bytes that differed in based files.
    pub changed_bytes: AtomicU64,
    /// Workers without a free buffer: the target is too slow.
    pub buffer_wait_us: AtomicU64,
    /// Workers waiting for their turn to compute.
    pub cpu_wait_us: AtomicU64,
    /// Workers waiting until an accelerator has room.
    pub device_wait_us: AtomicU64,
    /// Workers held back by `--max-rate`.
    pub rate_wait_us: AtomicU64,
    /// Time spent reading uncached bytes (backup), or stripes (restore).
    pub read_us: AtomicU64,
    pub reads: AtomicU64,
    /// Time for checksums, compression or decompression, and reads from the page cache.
    pub compute_us: AtomicU64,
    /// Time in the devices' (backup) or files' (restore) writes.
    pub write_us: AtomicU64,
    pub writes: AtomicU64,
    /// Bytes read without the page cache because they were not in it.
    pub cold_bytes: AtomicU64,
}

/// Adds the time since `from` to a counter and returns the present time.
pub fn lap(clock: &dyn Clock, from: Duration, counter: &AtomicU64) -> Duration {
    let now = clock.now();
    counter.fetch_add((now - from).as_micros() as u64, Ordering::Relaxed);
    now
}

/// CPU time of this process so far; zero if the system does not report it.
pub fn process_cpu() -> Duration {
    facts::process_usage().map_or(Duration::ZERO, |u| u.cpu())
}

/// [`Counters`] at the end of a run.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Waits {
    pub buffer_wait_us: u64,
    pub cpu_wait_us: u64,
    pub device_wait_us: u64,
    pub rate_wait_us: u64,
    pub read_us: u64,
    pub compute_us: u64,
    pub write_us: u64,
    pub cold_bytes: u64,
}

/// The bottleneck of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Source,
    /// All CPUs were busy in this program.
    Cpu,
    /// All CPUs that the run may use were busy: `--max-cpu`.
    CpuCeiling,
    /// The buffers were too few for all CPUs to work: BUFFERCOUNT, or the memory that the run may use.
    Buffers,
    /// `--max-rate`.
    Rate,
    /// The accelerator.
    Engine,
    Target,
}

impl Limit {
    /// The word of `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Limit::Source => "source",
            Limit::Cpu => "cpu",
            Limit::CpuCeiling => "cpu_ceiling",
            Limit::Buffers => "buffers",
            Limit::Rate => "rate",
            Limit::Engine => "engine",
            Limit::Target => "target",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Limit::Source => "the source (reading)",
            Limit::Cpu => "the CPUs (compression and checksums)",
            Limit::CpuCeiling => "the CPU limit (--max-cpu)",
            Limit::Buffers => "the buffers (BUFFERCOUNT: too few for all CPUs)",
            Limit::Rate => "the rate limit (--max-rate)",
            Limit::Engine => "the accelerator",
            Limit::Target => "the target (writing)",
        }
    }
}

/// One second of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Milliseconds since the run began.
    pub at_ms: u64,
    /// Percent of the whole machine, all programs included.
    pub cpu_percent: Option<f64>,
    pub read_bytes_per_s: u64,
    pub write_bytes_per_s: u64,
    /// Mean of this second's uncached reads; `None` if there were none.
    pub read_latency_us: Option<u64>,
    pub write_latency_us: Option<u64>,
}

impl Counters {
    fn load(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    pub fn waits(&self) -> Waits {
        Waits {
            buffer_wait_us: Self::load(&self.buffer_wait_us),
            cpu_wait_us: Self::load(&self.cpu_wait_us),
            device_wait_us: Self::load(&self.device_wait_us),
            rate_wait_us: Self::load(&self.rate_wait_us),
            read_us: Self::load(&self.read_us),
            compute_us: Self::load(&self.compute_us),
            write_us: Self::load(&self.write_us),
            cold_bytes: Self::load(&self.cold_bytes),
        }
    }

    /// Bytes still to be read, if known.
    pub fn remaining(&self) -> Option<u64> {
        let expected = Self::load(&self.expected_bytes);
        let left = expected.saturating_sub(Self::load(&self.plain_bytes));
        (expected > 0).then_some(left)
    }

    pub fn progress(&self) -> Progress {
        let known = Self::load(&self.expected_bytes);
        let expected = if known > 0 {
            known
        } else {
            Self::load(&self.about_bytes)
        };
        let plain_bytes = Self::load(&self.plain_bytes);
        let compared = Self::load(&self.scanned_bytes);
        let equal = compared.saturating_sub(Self::load(&self.changed_bytes));
        Progress {
            plain_bytes,
            done_bytes: plain_bytes.saturating_add(equal),
            stored_bytes: Self::load(&self.stored_bytes),
            expected_bytes: (expected > 0).then_some(expected),
            entries: Self::load(&self.entries),
        }
    }

    /// Names the bottleneck from where the threads' time went.
    pub fn limit(&self, elapsed: Duration, sizes: &Sizes, work: RunKind) -> Limit {
        let wall = elapsed.as_micros().max(1) as f64;
        let w = self.waits();
        let computing = w.compute_us as f64 / (wall * sizes.cpus as f64);
        let workers = match work {
            RunKind::Backup => sizes.workers,
            RunKind::Restore | RunKind::Verify => sizes.decoders(),
        };
        let of_workers = |us: u64| us as f64 / (wall * workers as f64);
        let ceiling = sizes.cpu_ceiling.is_some();
        let is_short_of_buffers = sizes.workers < sizes.cpus;
        let target_us = match work {
            // A backup's workers run out of buffers if the stripes' writers are too slow.
            RunKind::Backup => w.buffer_wait_us,
            RunKind::Restore => w.write_us,
            RunKind::Verify => 0,
        };
        if of_workers(w.rate_wait_us) > 0.25 {
            Limit::Rate
        } else if ceiling && (computing > 0.75 || of_workers(w.cpu_wait_us) > 0.25) {
            Limit::CpuCeiling
        } else if computing > 0.8 {
            Limit::Cpu
        } else if is_short_of_buffers && of_workers(w.compute_us) > 0.8 {
            Limit::Buffers
        } else {
            // A backup's workers read, wait and compute in turn: a short run may have no waits.
            let compute_us = match work {
                RunKind::Backup => w.compute_us,
                RunKind::Restore | RunKind::Verify => 0,
            };
            let computed = match is_short_of_buffers {
                true => Limit::Buffers,
                false => Limit::Cpu,
            };
            let spent = [
                (w.device_wait_us, Limit::Engine),
                (target_us, Limit::Target),
                (compute_us, computed),
                (w.read_us, Limit::Source),
            ];
            let longest = spent.into_iter().max_by_key(|(us, _)| *us);
            longest.map_or(Limit::Source, |(_, limit)| limit)
        }
    }
}

/// The kind of run: the same wait has different causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    Backup,
    Restore,
    Verify,
}

/// Watches the counters of a run from a separate thread.
pub struct Sampler {
    ended: Mutex<bool>,
    wake: Condvar,
    stop: AtomicBool,
}

impl Sampler {
    pub fn new() -> Sampler {
        Sampler {
            ended: Mutex::new(false),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }

    /// Ends [`Sampler::watch`].
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        *self.ended.lock() = true;
        self.wake.notify_all();
    }

    /// Reports progress and calls `each_time` ten times a second, and takes a sample every second, until ended.
    pub fn watch(
        &self,
        clock: &dyn Clock,
        counters: &Counters,
        observer: &dyn Observer,
        each_time: impl Fn(),
    ) -> Vec<Sample> {
        let start = clock.now();
        let mut samples = Vec::new();
        let mut last = Snapshot::take(clock, counters);
        loop {
            {
                let mut ended = self.ended.lock();
                if !*ended {
                    self.wake.wait_for(&mut ended, Duration::from_millis(100));
                }
            }
            each_time();
            observer.progress(&counters.progress());
            let stop = self.stop.load(Ordering::Relaxed);
            if stop || clock.now() - last.at >= Duration::from_secs(1) {
                let now = Snapshot::take(clock, counters);
                samples.extend(last.sample_to(&now, start));
                last = now;
            }
            if stop {
                return samples;
            }
        }
    }
}

struct Snapshot {
    at: Duration,
    cpu: Option<facts::CpuTimes>,
    plain: u64,
    stored: u64,
    reads: (u64, u64),
    writes: (u64, u64),
}

impl Snapshot {
    fn take(clock: &dyn Clock, c: &Counters) -> Snapshot {
        Snapshot {
            at: clock.now(),
            cpu: facts::cpu_times().ok(),
            plain: Counters::load(&c.plain_bytes),
            stored: Counters::load(&c.stored_bytes),
            reads: (Counters::load(&c.reads), Counters::load(&c.read_us)),
            writes: (Counters::load(&c.writes), Counters::load(&c.write_us)),
        }
    }

    fn sample_to(&self, now: &Snapshot, start: Duration) -> Option<Sample> {
        let seconds = (now.at - self.at).as_secs_f64();
        // The last moments of a run are too short for a meaningful rate.
        if seconds < 0.05 {
            return None;
        }
        let rate = |a: u64, b: u64| ((b - a) as f64 / seconds) as u64;
        let mean = |a: (u64, u64), b: (u64, u64)| (b.1 - a.1).checked_div(b.0 - a.0);
        let cpu = self.cpu.as_ref().zip(now.cpu.as_ref());
        Some(Sample {
            at_ms: (now.at - start).as_millis() as u64,
            cpu_percent: cpu.map(|(a, b)| 100.0 * b.busy_share_since(a)),
            read_bytes_per_s: rate(self.plain, now.plain),
            write_bytes_per_s: rate(self.stored, now.stored),
            read_latency_us: mean(self.reads, now.reads),
            write_latency_us: mean(self.writes, now.writes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Demand;
    use crate::{Limits, Tuning};

    /// A counter, and the seconds in it for each thread.
    type Spent = (fn(&Counters) -> &AtomicU64, f64);

    /// The bottleneck of a run of ten seconds with these seconds in its counters.
    fn limit(work: RunKind, limits: Limits, spent: &[Spent]) -> Limit {
        let sizes = Sizes::decide(&Demand {
            algorithm: longshore_codec::Algorithm::Zstd,
            tuning: &Tuning::default(),
            limits: &limits,
            devices: 1,
            volumes: 1,
            buffer_bytes_of_media: None,
            streams: 1,
        });
        limit_of(&sizes, work, spent)
    }

    fn limit_of(sizes: &Sizes, work: RunKind, spent: &[Spent]) -> Limit {
        let counters = Counters::default();
        for (counter, seconds) in spent {
            let of_cpus = std::ptr::eq(counter(&counters), &raw const counters.compute_us);
            let threads = match work {
                RunKind::Backup if !of_cpus => sizes.workers,
                _ => sizes.decoders(),
            };
            let us = seconds * 1e6 * threads as f64;
            counter(&counters).store(us as u64, Ordering::Relaxed);
        }
        counters.limit(Duration::from_secs(10), sizes, work)
    }

    #[test]
    fn the_limit_is_what_was_waited_for() {
        let compute = |seconds| -> Spent { (|c| &c.compute_us, seconds) };
        let read = |seconds| -> Spent { (|c| &c.read_us, seconds) };
        let none = Limits::default();
        let backup = |spent: &[Spent]| limit(RunKind::Backup, none, spent);
        assert_eq!(backup(&[compute(9.0), read(4.0)]), Limit::Cpu);
        assert_eq!(backup(&[compute(5.0), read(4.0)]), Limit::Source);
        assert_eq!(
            backup(&[read(3.0), (|c| &c.buffer_wait_us, 4.0)]),
            Limit::Target
        );
        let short = [compute(2.0), (|c: &Counters| &c.buffer_wait_us, 0.1)];
        assert_eq!(backup(&short), Limit::Cpu);
        assert_eq!(
            backup(&[
                read(3.0),
                (|c| &c.device_wait_us, 4.0),
                (|c| &c.buffer_wait_us, 1.0)
            ]),
            Limit::Engine
        );
        assert_eq!(
            backup(&[read(3.0), (|c| &c.rate_wait_us, 4.0)]),
            Limit::Rate
        );
        // A restore waits for its writes; a verification writes nothing.
        let writing: [Spent; 2] = [read(3.0), (|c| &c.write_us, 4.0)];
        assert_eq!(limit(RunKind::Restore, none, &writing), Limit::Target);
        assert_eq!(limit(RunKind::Verify, none, &writing), Limit::Source);
        // Only a few threads decode, whatever the others do.
        let held: [Spent; 2] = [read(30.0), (|c| &c.rate_wait_us, 4.0)];
        assert_eq!(limit(RunKind::Verify, none, &held), Limit::Rate);
        assert_eq!(limit(RunKind::Restore, none, &held), Limit::Rate);
        let half = Limits {
            cpu_percent: Some(50.0),
            ..Limits::default()
        };
        let waiting: [Spent; 1] = [(|c| &c.cpu_wait_us, 4.0)];
        assert_eq!(limit(RunKind::Backup, half, &waiting), Limit::CpuCeiling);
    }

    #[test]
    fn cpus_that_no_buffer_reaches_are_not_the_limit() {
        let mut sizes = Sizes::decide(&Demand {
            algorithm: longshore_codec::Algorithm::Zstd,
            tuning: &Tuning {
                buffer_count: Some(1),
                ..Tuning::default()
            },
            limits: &Limits::default(),
            devices: 1,
            volumes: 1,
            buffer_bytes_of_media: None,
            streams: 1,
        });
        assert_eq!(sizes.workers, 1);
        sizes.cpus = 4;
        let busy: [Spent; 2] = [(|c| &c.compute_us, 9.0), (|c| &c.read_us, 1.0)];
        for work in [RunKind::Backup, RunKind::Restore, RunKind::Verify] {
            assert_eq!(limit_of(&sizes, work, &busy), Limit::Buffers);
        }
        let half: [Spent; 2] = [(|c| &c.compute_us, 5.0), (|c| &c.read_us, 4.0)];
        assert_eq!(limit_of(&sizes, RunKind::Backup, &half), Limit::Buffers);
        let reading: [Spent; 2] = [(|c| &c.compute_us, 4.0), (|c| &c.read_us, 5.0)];
        assert_eq!(limit_of(&sizes, RunKind::Backup, &reading), Limit::Source);
        sizes.cpus = 1;
        assert_eq!(limit_of(&sizes, RunKind::Backup, &busy), Limit::Cpu);
    }

    #[test]
    fn a_sample_is_what_happened_since_the_one_before() {
        let snapshot = |seconds: f64, bytes: (u64, u64), reads, writes| Snapshot {
            at: Duration::from_secs_f64(seconds),
            cpu: None,
            plain: bytes.0,
            stored: bytes.1,
            reads,
            writes,
        };
        let before = snapshot(10.0, (5000, 600), (10, 900), (7, 70));
        let now = snapshot(12.0, (9000, 800), (14, 1100), (7, 70));
        let sample = before.sample_to(&now, Duration::from_secs(9)).unwrap();
        assert_eq!(sample.at_ms, 3000);
        assert_eq!(
            (sample.read_bytes_per_s, sample.write_bytes_per_s),
            (2000, 100)
        );
        assert_eq!(
            (sample.read_latency_us, sample.write_latency_us),
            (Some(50), None)
        );
        let soon = snapshot(12.01, (9999, 999), (15, 1200), (8, 80));
        assert!(now.sample_to(&soon, Duration::ZERO).is_none());
    }
}
