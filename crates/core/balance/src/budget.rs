//! Budgets: may this request go to that device now, or is it served sooner elsewhere?
//!
//! A device is busy when `rate × unloaded latency` bytes are in flight on it, its bandwidth-delay product (BDP). More
//! than β times the BDP only lengthens the device's queue. So a [`Budget`] is β × BDP bytes; the bytes in flight are an
//! argument. A customer that cuts its requests asks how many bytes still fit. A customer whose requests are whole lets
//! an [`InFlight`] count them: it admits a request, or refuses it, and a refusal is not a failure: the caller serves
//! the request elsewhere.
//!
//! Invariants
//! - A request is admitted only if it fits the budget at that moment, or the device is idle.
//! - Every admitted byte is given back exactly once, by dropping its [`Permit`].
//! - A lower budget refuses new requests; it never revokes a permit. A budget of 0 refuses everything.
//!
//! Source: Little's law.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that may be in flight on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub limit_bytes: u64,
}

impl Budget {
    pub fn new(limit_bytes: u64) -> Budget {
        Budget { limit_bytes }
    }

    /// β × BDP: `depth` times the bytes that keep the device busy.
    pub fn of(depth: f64, bandwidth_delay_bytes: f64) -> Budget {
        Budget::new((depth * bandwidth_delay_bytes) as u64)
    }

    /// The smaller of two.
    pub fn within(self, limit_bytes: u64) -> Budget {
        Budget::new(self.limit_bytes.min(limit_bytes))
    }

    /// How many bytes still fit next to those in flight.
    pub fn room_bytes(self, in_flight_bytes: u64) -> u64 {
        self.limit_bytes.saturating_sub(in_flight_bytes)
    }

    /// Whether a request of `len_bytes` fits. An idle device takes a request of any size: a request larger than the
    /// budget must be served somewhere.
    pub fn admits(self, len_bytes: u64, in_flight_bytes: u64) -> bool {
        let idle = in_flight_bytes == 0 && self.limit_bytes > 0;
        idle || len_bytes <= self.room_bytes(in_flight_bytes)
    }
}

/// The bytes in flight on one device. Clones share one count.
#[derive(Debug, Clone, Default)]
pub struct InFlight {
    bytes: Arc<AtomicU64>,
}

impl InFlight {
    /// Admits a request of `len_bytes` (1 or more), or refuses it at once. Never blocks.
    pub fn try_admit(&self, len_bytes: u64, budget: Budget) -> Option<Permit> {
        let admit = |now: u64| {
            let sum = now.checked_add(len_bytes)?;
            budget.admits(len_bytes, now).then_some(sum)
        };
        self.bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, admit)
            .ok()?;
        Some(Permit {
            bytes: self.bytes.clone(),
            len_bytes,
        })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// The right to have its bytes in flight, until dropped.
#[derive(Debug)]
pub struct Permit {
    bytes: Arc<AtomicU64>,
    len_bytes: u64,
}

impl Permit {
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.len_bytes, Ordering::AcqRel);
    }
}
