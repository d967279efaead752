//! Filters: where a hit is served, and whether a miss is filled.
//!
//! Invariants
//! - A filter decides each request once, before it is sent, and never fails or waits; one schedule gives one run.
//! - A filter that does not define a method behaves as a classic cache does.
//! - A hit that is whole is never filled, and no plan gives the fast side bytes that it does not hold.
//!
//! Leaves to others: which slots are kept (`replace`). Here are the filters that a cache at work can have; a comparison
//! of policies makes its own and gives them to [`Policy::with`](super::Policy::with).

mod aware;
mod balance;
mod door;
mod fixed;
mod mixer;
mod shared;
#[cfg(test)]
mod tests;
mod watch;

pub use door::{Filter, ReadRequest, Sides, plan};
pub use mixer::Mixer;
pub use shared::{SharedFilter, Steer};

use super::FilterChoice;

impl FilterChoice {
    pub fn build(self, sides: Sides) -> Box<dyn Filter> {
        match self {
            FilterChoice::None => Box::new(fixed::Classic(sides)),
            FilterChoice::Slow => Box::new(fixed::NoCache(sides)),
            FilterChoice::Balance => Box::new(balance::balance(sides)),
            FilterChoice::Aware => Box::new(aware::Aware::new(sides)),
        }
    }
}
