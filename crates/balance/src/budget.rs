//! In-flight budgets: may this request go to that device now, or is it served sooner elsewhere?
//!
//! A device is busy when `rate × unloaded latency` bytes are in flight on it, its bandwidth-delay
//! product (BDP). More than β times that only lengthens its queue. So a [`Budget`] admits up to its limit, which
//! its owner sets to β × BDP, and refuses the rest; a refusal is no failure, the caller serves the request
//! elsewhere.
//!
//! Invariants
//! - A request is admitted only if it fits the limit at that moment, or the device is idle.
//! - Every admitted byte is given back exactly once, by dropping its [`Permit`].
//! - Lowering the limit refuses new requests; it never revokes a permit. A limit of 0 refuses everything.
//!
//! Source: Little's law.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in flight on one device, and how many may be. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct Budget {
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    limit_bytes: AtomicU64,
    in_flight_bytes: AtomicU64,
}

impl Budget {
    pub fn new(limit_bytes: u64) -> Budget {
        let counts = Counts {
            limit_bytes: AtomicU64::new(limit_bytes),
            in_flight_bytes: AtomicU64::new(0),
        };
        Budget {
            counts: Arc::new(counts),
        }
    }

    /// Admits a request of `len_bytes` (1 or more), or refuses it at once. Never blocks.
    pub fn try_admit(&self, len_bytes: u64) -> Option<Permit> {
        self.try_admit_within(len_bytes, u64::MAX)
    }

    /// The same under a limit of the caller's, if that is lower than the budget's own.
    pub fn try_admit_within(&self, len_bytes: u64, limit_bytes: u64) -> Option<Permit> {
        let limit = self.limit_bytes().min(limit_bytes);
        let admit = |now: u64| {
            let sum = now.checked_add(len_bytes)?;
            // An idle device takes any size: a request above the budget must be served somewhere.
            (limit > 0 && (now == 0 || sum <= limit)).then_some(sum)
        };
        self.counts
            .in_flight_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, admit)
            .ok()?;
        Some(Permit {
            counts: self.counts.clone(),
            len_bytes,
        })
    }

    /// From now on.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.counts
            .limit_bytes
            .store(limit_bytes, Ordering::Relaxed);
    }

    pub fn limit_bytes(&self) -> u64 {
        self.counts.limit_bytes.load(Ordering::Relaxed)
    }

    pub fn in_flight_bytes(&self) -> u64 {
        self.counts.in_flight_bytes.load(Ordering::Acquire)
    }
}

/// The right to have so many bytes in flight, until dropped.
#[derive(Debug)]
pub struct Permit {
    counts: Arc<Counts>,
    len_bytes: u64,
}

impl Permit {
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counts
            .in_flight_bytes
            .fetch_sub(self.len_bytes, Ordering::AcqRel);
    }
}
