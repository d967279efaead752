//! In-flight budgets, loaded estimates and a no-regret guard: may this request go to that device now, or
//! is it served sooner elsewhere?
//!
//! | question | answered by | from |
//! |---|---|---|
//! | may it go there now? | [`Budget`] | bytes in flight against a limit |
//! | when would it be done there? | [`Estimate`] | rate and unloaded latency, as measured |
//! | how much in flight is enough? | [`Depth`] | whether more of it brought more |
//! | is using both better than one? | [`Guard`] | progress with each choice |
//! | is the device still the one that was measured? | [`Drift`] | expected against measured |
//! | how long does a request take at worst? | [`Spread`] | a histogram |
//!
//! A *device* is anything with a queue. Bytes, microseconds since some fixed moment, bytes per second.
//!
//! Invariants
//! - Arithmetic only: no clock, no I/O, no threads of its own. Time is an argument, so a test can replay any
//!   schedule, and a clock that stands still or jumps harms nothing.
//! - No input makes it panic, divide by zero or answer with something that is not a number.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod budget;
mod depth;
mod drift;
mod estimate;
mod guard;
mod spread;

pub use budget::{Budget, Permit};
pub use depth::Depth;
pub use drift::{Drift, Drifted};
pub use estimate::{Estimate, Finished};
pub use guard::{Guard, Serve};
pub use spread::Spread;
