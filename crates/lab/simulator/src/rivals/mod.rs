//! Policies of others, and simpler ones, to compare ours with.

mod capped;
mod orthus;
mod profiled;
#[cfg(test)]
#[path = "../../../../cache/policy/tests/filters/suite.rs"]
mod suite;
#[cfg(test)]
mod tests;

use longshore_policy::policy::EndedRequest;
use longshore_policy::policy::filter::{Mixer, SharedFilter, Sides, Steer};

pub(crate) use capped::{Bcache, Throttle};
pub(crate) use orthus::Orthus;
pub use orthus::OrthusPace;
pub(crate) use profiled::profiled;

/// A fixed share of the hits from the fast side, 0 to 1.
pub(crate) fn split(share: f64, sides: Sides) -> SharedFilter<Never> {
    SharedFilter::new(share, sides, Never)
}

/// A share that stays as it is.
pub(crate) struct Never;

impl Steer for Never {
    fn steer(&mut self, _ended: &EndedRequest, _sides: &Sides, _mixer: &mut Mixer) {}
}
