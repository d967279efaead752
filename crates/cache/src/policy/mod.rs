//! Where to serve what the cache holds, and whether to keep what it does not.
//!
//! A filter sees what a daemon sees: the request, what is in flight on both sides, and what earlier requests
//! took. It knows no device but by an [`Outlook`], which may be wrong.
//!
//! Invariants
//! - A filter decides about clean content only; what is being written is served by the side that has it.
//! - Time is an argument. No filter reads a clock or draws a random number that its seed does not decide.

mod aware;
mod fixed;
mod orthus;
mod outlook;

use crate::model::{Nanos, Op};
pub use aware::Aware;
pub use fixed::{Balance, Fixed, Split};
pub use orthus::Orthus;
pub use outlook::Outlook;

/// One of the two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Fast,
    Slow,
}

/// What is under way on one device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Load {
    pub in_flight_bytes: u64,
    pub in_flight_requests: u64,
}

/// What a decision may look at.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub now: Nanos,
    pub fast: Load,
    pub slow: Load,
}

/// Who serves a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serve {
    On(Side),
    /// The first so many bytes by the fast side, the rest by the slow one, at the same time.
    Cut {
        fast_bytes: u64,
    },
}

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub now: Nanos,
    /// Who served it; with a cut, both report.
    pub side: Side,
    pub op: Op,
    pub len: u64,
    pub took_us: f64,
    /// In flight on that side when it was submitted, without itself.
    pub before_bytes: u64,
}

/// Decides where hits are served and what is kept.
pub trait Filter: Send {
    /// Where a read that the cache could serve goes.
    fn serve(&mut self, view: &View, offset: u64, len: u64) -> Serve;

    /// Whether what a read missed should be written into the cache.
    fn admits(&mut self, view: &View, len: u64) -> bool;

    /// A read was looked up.
    fn looked_up(&mut self, now: Nanos, len: u64, hit: bool);

    fn ended(&mut self, ended: &Ended);
}

/// A filter by its name: `none`, `slow`, `split=P` (percent served by the fast side), `balance`, `orthus`,
/// `aware`.
pub fn named(name: &str, fast: Outlook, slow: Outlook) -> Option<Box<dyn Filter>> {
    Some(match name.split_once('=') {
        None => match name {
            "none" => Box::new(Fixed(Side::Fast)),
            "slow" => Box::new(Fixed(Side::Slow)),
            "balance" => Box::new(Balance::default()),
            "orthus" => Box::new(Orthus::default()),
            "aware" => Box::new(Aware::new(fast, slow)),
            _ => return None,
        },
        Some(("split", percent)) => {
            let percent: f64 = percent.parse().ok()?;
            let share = (0.0..=100.0)
                .contains(&percent)
                .then_some(percent / 100.0)?;
            Box::new(Split::new(share))
        }
        Some(_) => return None,
    })
}
