//! The results of a run: throughput, latencies, hits and the use of each device.
//!
//! Invariants
//! - Figures count only what ended within the measured time. Latencies are in µs of virtual time.
//! - A ratio of nothing is 0, never a division by zero.
//!
//! Leaves to others: comparing runs (`grid`), and showing them (the program).

use longshore_policy::model::{Nanos, Op};
use longshore_policy::policy::Side;

/// Latencies in µs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latencies {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Latencies {
    fn of(mut all: Vec<f64>) -> Latencies {
        if all.is_empty() {
            return Latencies::default();
        }
        all.sort_by(f64::total_cmp);
        let at = |q: f64| all[((all.len() - 1) as f64 * q) as usize];
        Latencies {
            count: all.len() as u64,
            mean: all.iter().sum::<f64>() / all.len() as f64,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        }
    }
}

/// One run's figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// 10^6 bytes per second, over all requests.
    pub throughput_mb_s: f64,
    /// Reads up to half of the fast device's largest command.
    pub small_reads: Latencies,
    pub bulk_reads: Latencies,
    pub writes: Latencies,
    pub flushes: Latencies,
    /// Of reads, by requests and by bytes.
    pub hit_ratio: f64,
    pub hit_ratio_bytes: f64,
    /// Share of the requested bytes.
    pub fast_share: f64,
    /// Bytes written into the cache for each byte served.
    pub fill_ratio: f64,
    /// Virtual time before anything was counted.
    pub warmed_up: Nanos,
    /// For a warm-up until steady: whether the run was steady when counting began.
    pub steady: bool,
}

/// Counts while a run goes on.
pub(super) struct Tally {
    from: Nanos,
    small_max: u64,
    small: Vec<f64>,
    bulk: Vec<f64>,
    writes: Vec<f64>,
    flushes: Vec<f64>,
    bytes: u64,
    /// Hits and all lookups; by requests, then by bytes.
    hits: [u64; 2],
    lookups: [u64; 2],
    served: [u64; 2],
    filled: u64,
}

impl Tally {
    pub fn new(from: Nanos, small_max: u64) -> Tally {
        Tally {
            from,
            small_max,
            small: Vec::new(),
            bulk: Vec::new(),
            writes: Vec::new(),
            flushes: Vec::new(),
            bytes: 0,
            hits: [0; 2],
            lookups: [0; 2],
            served: [0; 2],
            filled: 0,
        }
    }

    /// Counts from this moment.
    pub fn begin(&mut self, now: Nanos) {
        self.from = now;
    }

    pub fn looked_up(&mut self, now: Nanos, held_bytes: u64, len_bytes: u64) {
        if now < self.from {
            return;
        }
        self.lookups[0] += 1;
        self.hits[0] += u64::from(held_bytes == len_bytes);
        self.lookups[1] += len_bytes;
        self.hits[1] += held_bytes;
    }

    pub fn served(&mut self, now: Nanos, side: Side, len_bytes: u64) {
        if now >= self.from {
            self.served[usize::from(side == Side::Slow)] += len_bytes;
        }
    }

    pub fn filled(&mut self, now: Nanos, len_bytes: u64) {
        if now >= self.from {
            self.filled += len_bytes;
        }
    }

    pub fn ended(&mut self, now: Nanos, op: Op, len_bytes: u64, took_us: f64) {
        if now < self.from {
            return;
        }
        self.bytes += len_bytes;
        match op {
            Op::Write => self.writes.push(took_us),
            Op::Read if len_bytes <= self.small_max => self.small.push(took_us),
            Op::Read => self.bulk.push(took_us),
        }
    }

    pub fn flushed(&mut self, now: Nanos, took_us: f64) {
        if now >= self.from {
            self.flushes.push(took_us);
        }
    }

    pub fn outcome(self, measured: Nanos) -> Outcome {
        let share = |a: u64, b: u64| a as f64 / b.max(1) as f64;
        Outcome {
            throughput_mb_s: self.bytes as f64 / (measured as f64 / 1000.0),
            small_reads: Latencies::of(self.small),
            bulk_reads: Latencies::of(self.bulk),
            writes: Latencies::of(self.writes),
            flushes: Latencies::of(self.flushes),
            hit_ratio: share(self.hits[0], self.lookups[0]),
            hit_ratio_bytes: share(self.hits[1], self.lookups[1]),
            fast_share: share(self.served[0], self.served[0] + self.served[1]),
            fill_ratio: share(self.filled, self.bytes),
            warmed_up: self.from,
            steady: true,
        }
    }
}
