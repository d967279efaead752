//! Filters that protect the fast side from overload, as products do: bcache's, and a throttle.
//!
//! Invariants
//! - They follow the products' sources and defaults, which each filter names, and are tuned neither for nor against the
//!   comparison.
//! - One schedule gives one run: shares are spread evenly, not by chance, and time is an argument.
//!
//! Leaves to others: policies that the daemon can have (`longshore-policy`).

use longshore_policy::model::Nanos;
use longshore_policy::policy::filter::{Filter, ReadRequest, Sides, plan};
use longshore_policy::policy::{EndedRequest, Purpose, ReadPlan, Reason, Side, View};

/// bcache, with its defaults: long streams bypass the cache, and so does a share of all requests while a side is
/// congested.
///
/// Source: Linux, drivers/md/bcache: `sequential_cutoff` 4 MiB, `congested_read_threshold_us` 2000,
/// `congested_write_threshold_us` 20000.
pub struct Bcache {
    sides: Sides,
    /// Below 0: congested; each unit is one more sector that bypasses.
    congestion: f64,
    /// Accumulates the share that bypasses, so that bypasses are evenly spread.
    owed: f64,
}

const CUTOFF_BYTES: u64 = 4 << 20;
const CONGESTED_READ_US: f64 = 2_000.0;
const CONGESTED_WRITE_US: f64 = 20_000.0;
/// bcache's CONGESTED_MAX.
const CONGESTED_MAX: f64 = 1024.0;

impl Bcache {
    pub fn new(sides: Sides) -> Bcache {
        Bcache {
            sides,
            congestion: 0.0,
            owed: 0.0,
        }
    }

    fn bypasses(&mut self, asked: &ReadRequest) -> bool {
        if asked.run_bytes >= CUTOFF_BYTES {
            return true;
        }
        // The congestion of the cache device fades by one with each request.
        self.congestion = (self.congestion - 1.0).max(0.0);
        self.owed += self.congestion / CONGESTED_MAX;
        let bypasses = self.owed >= 1.0;
        if bypasses {
            self.owed -= 1.0;
        }
        bypasses
    }
}

impl Filter for Bcache {
    fn read(&mut self, _view: &View, asked: &ReadRequest) -> ReadPlan {
        match self.bypasses(asked) {
            true => plan(asked, false, false, Reason::Bulk),
            false => plan(asked, true, true, Reason::Always),
        }
    }

    fn ended(&mut self, ended: &EndedRequest) {
        if ended.side != Side::Fast {
            return;
        }
        let limit = match ended.purpose {
            Purpose::Client | Purpose::Joined => CONGESTED_READ_US,
            Purpose::Fill => CONGESTED_WRITE_US,
        };
        if ended.took_us > limit {
            self.congestion = (self.congestion + ended.took_us / limit).min(CONGESTED_MAX);
        }
    }

    fn sides(&self) -> &Sides {
        &self.sides
    }
}

/// Caps on the fast side: requests and bytes per second; requests above a cap go to the slow side and fill nothing.
pub struct Throttle {
    sides: Sides,
    requests: Bucket,
    bytes: Bucket,
}

/// A token bucket: a fixed amount per second, and at most a hundredth of that at once.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    per_ns: f64,
    most: f64,
    level: f64,
    at: Nanos,
}

impl Bucket {
    fn new(per_second: f64) -> Bucket {
        let most = (per_second / 100.0).max(1.0);
        Bucket {
            per_ns: per_second / 1e9,
            most,
            level: most,
            at: 0,
        }
    }

    fn fill(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.at) as f64;
        self.at = self.at.max(now);
        self.level = (self.level + passed * self.per_ns).min(self.most);
    }

    /// Goes into debt, so that a request larger than the bucket is not refused for ever.
    fn has_some(&self) -> bool {
        self.level > 0.0
    }
}

impl Throttle {
    pub fn new(requests_per_s: f64, bytes_per_s: f64, sides: Sides) -> Throttle {
        Throttle {
            sides,
            requests: Bucket::new(requests_per_s),
            bytes: Bucket::new(bytes_per_s),
        }
    }
}

impl Filter for Throttle {
    fn read(&mut self, view: &View, asked: &ReadRequest) -> ReadPlan {
        self.requests.fill(view.now);
        self.bytes.fill(view.now);
        if !(self.requests.has_some() && self.bytes.has_some()) {
            return plan(asked, false, false, Reason::Throttled);
        }
        if asked.held_bytes > 0 {
            self.requests.level -= 1.0;
            self.bytes.level -= asked.held_bytes as f64;
        }
        plan(asked, true, true, Reason::Hit)
    }

    fn sides(&self) -> &Sides {
        &self.sides
    }
}
