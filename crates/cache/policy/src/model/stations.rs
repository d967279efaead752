//! The stations of a device: a server with a queue in front of it, and a limit that may be exceeded for a while.

use super::{Credit, Nanos};

/// Serves one request at a time, in order of arrival. Calls must come in order of arrival.
#[derive(Debug, Clone, Copy, Default)]
pub struct Server {
    free_at: Nanos,
}

impl Server {
    /// When a request that arrives at `at` and takes `service` is done.
    pub fn serve(&mut self, at: Nanos, service: Nanos) -> Nanos {
        self.free_at = self.free_at.max(at) + service;
        self.free_at
    }
}

/// A token bucket. Calls must come in order of time.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    credit: Credit,
    /// Below 0: what was granted in advance.
    held: f64,
    at: Nanos,
}

impl Bucket {
    /// A full one.
    pub fn new(credit: Credit) -> Bucket {
        Bucket {
            credit,
            held: credit.most,
            at: 0,
        }
    }

    /// Takes away all that it holds.
    pub fn empty(&mut self) {
        self.held = 0.0;
    }

    /// When `cost` units, asked for at `now`, may pass.
    pub fn take(&mut self, now: Nanos, cost: f64) -> Nanos {
        let came = (now - self.at) as f64 / 1000.0 * self.credit.per_us;
        self.held = (self.held + came).min(self.credit.most) - cost;
        self.at = now;
        now + ((-self.held).max(0.0) / self.credit.per_us * 1000.0).round() as Nanos
    }
}
