//! Filters: where a hit is served, and whether a miss is filled.

mod aware;
mod belief;
mod capped;
mod fixed;
mod orthus;
mod shared;
mod steered;
#[cfg(test)]
mod tests;
mod watch;

use crate::model::Nanos;
use shared::Shared;

use super::{Ended, FilterChoice, Gauges, Outlook, ReadPlan, Reason, View, Write, WritePlan};

/// A client's read, with what the policy found out about it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// 1 or more.
    pub len: u64,
    /// At most `len`.
    pub held_bytes: u64,
    /// Bytes in a row that end with this read, itself included.
    pub run_bytes: u64,
}

/// Decides where hits are served and what is admitted. What a filter does not say, it does as a classic cache does.
pub trait Filter: Send {
    fn read(&mut self, view: &View, asked: &Asked) -> ReadPlan;

    fn write(&mut self, _view: &View, write: &Write) -> WritePlan {
        keep_what_was_held(write)
    }

    fn ended(&mut self, _ended: &Ended) {}

    /// What is believed of both devices.
    fn sides(&self) -> &Sides;

    /// By how much sooner, in µs, the fast side would answer this read now; 0 or more, and finite.
    fn saved_us(&self, view: &View, asked: &Asked) -> f64 {
        self.sides().saved_us(view, asked)
    }

    /// See [`crate::policy::Policy::pace`].
    fn pace(&self) -> Nanos {
        0
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

pub fn build(choice: FilterChoice, fast: Outlook, slow: Outlook) -> Box<dyn Filter> {
    let sides = Sides { fast, slow };
    match choice {
        FilterChoice::None => Box::new(fixed::Classic(sides)),
        FilterChoice::Slow => Box::new(fixed::NoCache(sides)),
        FilterChoice::Split(share) => Box::new(Shared::new(share, sides, fixed::Never)),
        FilterChoice::Bcache => Box::new(capped::Bcache::new(sides)),
        FilterChoice::Throttle {
            requests_per_s,
            mb_per_s,
        } => Box::new(capped::Throttle::new(requests_per_s, mb_per_s * 1e6, sides)),
        FilterChoice::Profile => Box::new(steered::profiled(sides)),
        FilterChoice::Orthus(pace) => Box::new(orthus::Orthus::new(pace, sides)),
        FilterChoice::Balance => Box::new(steered::balance(sides)),
        FilterChoice::Aware => Box::new(aware::Aware::new(sides)),
    }
}

/// Reads longer than this are bulk on any device.
const SMALL_BYTES: u64 = 64 << 10;

/// What is believed of both devices.
#[derive(Debug, Clone, Copy)]
pub struct Sides {
    pub fast: Outlook,
    pub slow: Outlook,
}

impl Sides {
    pub fn saved_us(&self, view: &View, asked: &Asked) -> f64 {
        let fast = self.fast.loaded_us(asked.len, view.fast);
        let slow = self.slow.loaded_us(asked.len, view.slow);
        let saved = slow - fast;
        if saved.is_finite() {
            saved.max(0.0)
        } else {
            0.0
        }
    }
}

/// A plan for a read: the fast side serves all that is held, or nothing of it.
fn plan(asked: &Asked, fast: bool, admit: bool, reason: Reason) -> ReadPlan {
    let whole = asked.held_bytes == asked.len;
    ReadPlan {
        join_bytes: 0,
        fast_bytes: if fast { asked.held_bytes } else { 0 },
        join: false,
        admit: admit && !whole,
        reason: match asked.held_bytes {
            0 => Reason::filled(admit),
            _ => reason,
        },
    }
}

/// A classic cache's answer to a write: what it held it keeps, what it did not it does not take in.
fn keep_what_was_held(write: &Write) -> WritePlan {
    let admit = write.held_bytes > 0;
    WritePlan {
        admit,
        reason: Reason::filled(admit),
    }
}

/// Mixes two sides evenly by a share, after Bresenham.
#[derive(Debug, Clone, Copy)]
pub struct Mixer {
    share: f64,
    /// What the fast side is owed.
    owed: f64,
}

impl Mixer {
    /// `share`: 0 to 1.
    pub fn new(share: f64) -> Mixer {
        let share = share.clamp(0.0, 1.0);
        Mixer { share, owed: 0.0 }
    }

    /// Whether the next one goes to the fast side.
    pub fn draw(&mut self) -> bool {
        self.owed += self.share;
        if self.owed < 1.0 - 1e-9 {
            return false;
        }
        self.owed -= 1.0;
        true
    }

    pub fn set_share(&mut self, share: f64) {
        self.share = share.clamp(0.0, 1.0);
    }

    pub fn share(&self) -> f64 {
        self.share
    }
}
