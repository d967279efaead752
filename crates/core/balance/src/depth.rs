//! How much in flight is enough: the size of a [`Budget`], as a multiple of the bandwidth-delay product (BDP).
//!
//! The BDP is enough only if the device's feeders always deliver in time. Feeders do not: they compute, read and sleep.
//! So the multiple is learnt, in one of two ways.
//!
//! - [`Depth`]: by trial, as TCP Vegas does, where throughput is all that counts. After each round of requests one more
//!   step is tried; it is kept if throughput rose by 2 % or more, and dropped if not. A depth loses a step when
//!   requests take a quarter longer without more throughput.
//! - [`Allowance`]: by sight, where each byte in flight makes a more urgent request wait. It grows when a request finds
//!   the device idle, and shrinks when a request finds it busy.
//!
//! Invariants
//! - A depth stays within its two bounds, an allowance between 1 product and its maximum, whatever is measured.
//! - A step that was tried and did not pay is given back after one round, and the wait before the next trial doubles.
//!
//! Leaves to others: the BDP itself (`estimate.rs`), when a round ends, and admitting requests (`budget.rs`).
//!
//! Source: Brakmo and Peterson, TCP Vegas, 1995.

use crate::Budget;
use crate::constants::depth::{GAIN, REST, REST_MAX, STRETCH};

/// A number of steps within bounds, adapted once in each round.
#[derive(Debug, Clone)]
pub struct Depth {
    steps: u32,
    least: u32,
    most: u32,
    before: Option<Round>,
    /// The last round was one step deeper, as a trial.
    trying: bool,
    rest: u32,
    rest_next: u32,
}

/// The measurements of one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    rate_bytes_per_s: f64,
    service_us: f64,
}

impl Depth {
    /// Starts at `least` (1 or more), never above `most`.
    pub fn new(least: u32, most: u32) -> Depth {
        let least = least.max(1);
        Depth {
            steps: least,
            least,
            most: most.max(least),
            before: None,
            trying: false,
            rest: 0,
            rest_next: REST,
        }
    }

    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Ends a round: the throughput of the device, and the mean service time of a request.
    pub fn round(&mut self, rate_bytes_per_s: f64, service_us: f64) {
        if !(rate_bytes_per_s.is_finite() && service_us.is_finite()) {
            return;
        }
        let now = Round {
            rate_bytes_per_s,
            service_us,
        };
        let Some(before) = self.before else {
            self.before = Some(now);
            return self.try_more();
        };
        if self.trying {
            self.trying = false;
            if now.rate_bytes_per_s >= before.rate_bytes_per_s * GAIN {
                self.rest_next = REST;
                self.before = Some(now);
                return self.try_more();
            }
            self.steps = self.steps.saturating_sub(1).max(self.least);
            self.rest = self.rest_next;
            self.rest_next = (self.rest_next * 2).min(REST_MAX);
            // The round before the trial stays the reference.
            return;
        }
        if now.service_us > before.service_us * STRETCH
            && now.rate_bytes_per_s < before.rate_bytes_per_s * GAIN
        {
            self.steps = self.steps.saturating_sub(1).max(self.least);
        }
        self.before = Some(now);
        match self.rest {
            0 => self.try_more(),
            _ => self.rest -= 1,
        }
    }

    fn try_more(&mut self) {
        if self.steps < self.most {
            self.steps += 1;
            self.trying = true;
        }
    }
}

/// A multiple of the bandwidth-delay product that grows while the device is found idle too often.
#[derive(Debug, Clone)]
pub struct Allowance {
    products: f64,
    terms: Idling,
}

/// How an [`Allowance`] moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Idling {
    /// The device is busy with this many products in flight.
    pub busy: f64,
    /// The share of requests that may find it idle, 0 to 1.
    pub idle_share: f64,
    /// The growth in products with each request that finds it idle.
    pub step: f64,
    /// The most products, 1 or more.
    pub most: f64,
}

impl Allowance {
    pub fn new(products: f64, terms: Idling) -> Allowance {
        Allowance { products, terms }
    }

    /// A request came and found that many bytes in flight.
    pub fn found(&mut self, in_flight_bytes: f64, bandwidth_delay_bytes: f64) {
        let Idling {
            busy,
            idle_share,
            step,
            most,
        } = self.terms;
        let step = match in_flight_bytes < busy * bandwidth_delay_bytes {
            true => step,
            false => -step * idle_share,
        };
        self.products = (self.products + step).min(most).max(1.0);
    }

    pub fn budget(&self, bandwidth_delay_bytes: f64) -> Budget {
        Budget::of(self.products, bandwidth_delay_bytes)
    }
}
