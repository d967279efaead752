//! How much in flight is enough: more is tried now and then, and kept if it brought more.
//!
//! The bandwidth-delay product says how much a device needs if whoever feeds it is always there in time. Feeders
//! are not: they compute, read and sleep. So the depth, a multiple of that product, is found by trying, as TCP Vegas
//! does: after each round of requests one step more is tried; it stays when the throughput rose by 2 % or more;
//! it goes again when it did not. A depth whose requests take a quarter longer without more throughput loses a step.
//!
//! Source: Brakmo and Peterson, TCP Vegas, 1995.

/// Throughput that a step more must bring.
const GAIN: f64 = 1.02;
/// Growth of the service time that costs a step, if throughput did not rise.
const STRETCH: f64 = 1.25;
/// Rounds without a trial after one that failed; doubled each time up to the most.
const REST: u32 = 4;
const REST_MAX: u32 = 64;

/// A number of steps within bounds, adapted once in each round.
#[derive(Debug, Clone)]
pub struct Depth {
    steps: u32,
    least: u32,
    most: u32,
    before: Option<Round>,
    /// The last round was one step deeper, to see.
    trying: bool,
    rest: u32,
    rest_next: u32,
}

/// What a round brought.
#[derive(Debug, Clone, Copy)]
struct Round {
    rate: f64,
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

    /// A round has ended: so much was delivered by the device per second, a request took so long in the mean.
    pub fn round(&mut self, rate_bytes_per_s: f64, service_us: f64) {
        if !(rate_bytes_per_s.is_finite() && service_us.is_finite()) {
            return;
        }
        let now = Round {
            rate: rate_bytes_per_s,
            service_us,
        };
        let Some(before) = self.before else {
            self.before = Some(now);
            return self.try_more();
        };
        if self.trying {
            self.trying = false;
            if now.rate >= before.rate * GAIN {
                self.rest_next = REST;
                self.before = Some(now);
                return self.try_more();
            }
            self.steps = self.steps.saturating_sub(1).max(self.least);
            self.rest = self.rest_next;
            self.rest_next = (self.rest_next * 2).min(REST_MAX);
            // The round before the trial stays the measure.
            return;
        }
        if now.service_us > before.service_us * STRETCH && now.rate < before.rate * GAIN {
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
