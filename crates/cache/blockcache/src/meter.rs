//! Requests in flight on each device, and counters of finished work, which any thread may read at any time.
//!
//! Invariants
//! - A request is counted until its guard is dropped, also if it fails or panics, so a gauge returns to zero.
//! - Counters only grow. A reader may see two counters of different moments; nothing decides by their difference.
//! - A counter is defined once, with its meaning: its snapshot and its help cannot differ.
//!
//! Leaves to others: what the numbers mean to a policy (`longshore-policy`), and showing them (`status.rs`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use longshore_policy::policy::Load;
use serde::Serialize;

/// The bytes in flight on one device.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    bytes: AtomicU64,
    written: AtomicU64,
    requests: AtomicU64,
}

/// The operation of a request on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

impl Gauge {
    pub(crate) fn load(&self) -> Load {
        Load {
            in_flight_bytes: self.bytes.load(Relaxed),
            in_flight_requests: self.requests.load(Relaxed),
            written_bytes: self.written.load(Relaxed),
        }
    }

    /// Counts `len_bytes` as in flight until the result is dropped.
    pub(crate) fn enter(&self, way: Way, len_bytes: u64) -> RequestGuard<'_> {
        let written = if way == Way::Write { len_bytes } else { 0 };
        let before = Load {
            in_flight_bytes: self.bytes.fetch_add(len_bytes, Relaxed),
            in_flight_requests: self.requests.fetch_add(1, Relaxed),
            written_bytes: self.written.fetch_add(written, Relaxed),
        };
        RequestGuard {
            gauge: self,
            len_bytes,
            written,
            before,
        }
    }
}

pub(crate) struct RequestGuard<'a> {
    gauge: &'a Gauge,
    pub len_bytes: u64,
    written: u64,
    /// In flight when it was submitted.
    pub before: Load,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.gauge.bytes.fetch_sub(self.len_bytes, Relaxed);
        self.gauge.written.fetch_sub(self.written, Relaxed);
        self.gauge.requests.fetch_sub(1, Relaxed);
    }
}

/// Latencies, in buckets by powers of two of a microsecond.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; Histogram::BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Up to 1 µs, 2 µs, 4 µs … 8 s, and longer.
    pub(crate) const BUCKETS: usize = 25;

    pub(crate) fn add(&self, took: Duration) {
        let us = took.as_micros() as u64;
        let bucket = (u64::BITS - us.saturating_sub(1).leading_zeros()) as usize;
        let bucket = if us == 0 { 0 } else { bucket };
        self.buckets[bucket.min(Self::BUCKETS - 1)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> Latency {
        Latency {
            sum_us: self.sum_ns.load(Relaxed) / 1000,
            counts: self.buckets.iter().map(|b| b.load(Relaxed)).collect(),
        }
    }
}

/// How long requests took: how many up to 1 µs, 2 µs, 4 µs …; the last bucket holds all longer ones.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Latency {
    pub sum_us: u64,
    pub counts: Vec<u64>,
}

/// Defines the counters once: their atomics, their snapshot, and what they mean.
macro_rules! counters {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Meter {
            $(pub $name: AtomicU64,)*
            pub read_latency: Histogram,
            pub write_latency: Histogram,
            pub fast_latency: Histogram,
            pub slow_latency: Histogram,
        }

        /// The counters at one moment, since the process began to serve.
        #[derive(Debug, Clone, Default, Serialize)]
        pub struct Counters {
            $($(#[doc = $text])* pub $name: u64,)*
            /// Latency of clients' reads.
            pub read_latency: Latency,
            /// Latency of clients' writes.
            pub write_latency: Latency,
            /// Latency of reads from the cache device.
            pub fast_latency: Latency,
            /// Latency of reads from the backend.
            pub slow_latency: Latency,
        }

        impl Meter {
            pub(crate) fn read(&self) -> Counters {
                Counters {
                    $($name: self.$name.load(Relaxed),)*
                    read_latency: self.read_latency.read(),
                    write_latency: self.write_latency.read(),
                    fast_latency: self.fast_latency.read(),
                    slow_latency: self.slow_latency.read(),
                }
            }
        }

        impl Counters {
            /// Name, meaning and value of each counter.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($text),*), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Clients' reads.
    reads,
    /// Bytes of clients' reads.
    read_bytes,
    /// Lookups of reads in the cache, in runs of up to 1 MiB.
    read_runs,
    /// Lookups that the cache held whole.
    hits,
    /// Lookups that the cache held in part.
    part_hits,
    /// Bytes that the cache device served.
    fast_bytes,
    /// Cached bytes that the backend served, by decision of the policy.
    bypassed_bytes,
    /// Reads of the backend that were avoided because another client was reading the same bytes.
    joined,
    /// Clients' writes.
    writes,
    /// Bytes of clients' writes.
    write_bytes,
    /// Ranges that clients zeroed or trimmed.
    zeroed,
    /// Flushes, and writes with a flush (FUA).
    flushes,
    /// Fills that were written to the cache device.
    fills,
    /// Bytes of fills.
    fill_bytes,
    /// Fills that were dropped because the cache device was too slow.
    fills_dropped,
    /// Fills that a write invalidated, or that the policy finally refused.
    fills_refused,
    /// Reads whose cached bytes were overwritten or evicted meanwhile; the backend served them.
    outdated_reads,
    /// Reads whose cached bytes were damaged; the backend served them.
    damaged_reads,
    /// Errors of the cache device, in reads, writes and syncs.
    cache_errors,
    /// Errors of the backend, as clients saw them.
    backend_errors,
    /// Writes that waited until the cache had durably dropped the overwritten lines.
    clearings,
    /// Checkpoints, each of which makes the cache's content durable.
    checkpoints,
    /// Lines that a verification found to differ from the backend.
    verify_differences,
    /// Lines that a verification could not read from the cache device as they were written.
    verify_unreadable,
}

/// Counters are independent of each other: relaxed, since a status may be of two moments.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_bucket_that_its_microseconds_name() {
        let histogram = Histogram::default();
        for (us, bucket) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 2),
            (5, 3),
            (1 << 40, 24),
        ] {
            let before = histogram.read().counts[bucket];
            histogram.add(Duration::from_micros(us));
            assert_eq!(histogram.read().counts[bucket], before + 1, "{us} us");
        }
    }

    #[test]
    fn bytes_that_enter_a_gauge_leave_it() {
        let gauge = Gauge::default();
        let first = gauge.enter(Way::Read, 10);
        let second = gauge.enter(Way::Write, 5);
        assert_eq!(second.before.in_flight_bytes, 10);
        assert_eq!(gauge.load().in_flight_bytes, 15);
        assert_eq!(gauge.load().written_bytes, 5);
        drop((first, second));
        assert_eq!(gauge.load(), Load::default());
    }
}
