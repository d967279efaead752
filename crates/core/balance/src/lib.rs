//! Loaded estimates, in-flight budgets and a no-regret guard: may this request go to that device now, or is it served
//! sooner elsewhere?
//!
//! The newer of two devices is not simply the faster one. So each is measured, and each request goes to where it is
//! served best. The dispatcher of accelerators and policy `aware` of the block cache decide with the same parts:
//!
//! | question | answered by | from |
//! |---|---|---|
//! | when would that device finish this request? | [`Estimate`] | its [`Outlook`], told or fitted, corrected by finished requests; the [`Load`] |
//! | is the device still the one that was measured? | [`Drift`], in every estimate | expected against measured |
//! | may it go there now? | [`Budget`] | the bytes in flight against a limit; [`InFlight`] counts them for those who do not |
//! | how much in flight is enough? | [`Depth`], [`Allowance`] | whether more of it brought more; whether the device is found idle |
//! | is using both better than one? | [`Guard`] | progress with each choice |
//! | how long does a request take at worst? | [`Spread`] | a histogram |
//!
//! A *device* is anything with a queue. Bytes, microseconds since some fixed moment, bytes per second; an [`Outlook`]
//! counts in bytes per microsecond. All chosen numbers are in [`constants`].
//!
//! Invariants
//! - Arithmetic only: no clock, no I/O, no threads of its own. Time is an argument, so a test can replay any
//!   schedule, and a clock that stands still or jumps harms nothing.
//! - No input makes it panic, divide by zero or answer with something that is not a number.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod budget;
pub mod constants;
mod depth;
mod drift;
mod estimate;
mod fit;
mod guard;
mod outlook;
mod spread;

pub use budget::{Budget, InFlight, Permit};
pub use depth::{Allowance, Depth, Idling};
pub use drift::{Band, Drift, DriftAlarm};
pub use estimate::{Completion, Estimate, Trust};
pub use guard::{Guard, Serve};
pub use outlook::{Load, Outlook};
pub use spread::Spread;
