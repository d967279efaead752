//! A device-aware block cache: a small fast device in front of a big one, below an unmodified database.
//!
//! The fast device is not faster for every request: large and deep reads are served sooner by many slow
//! units behind a wide link. What to keep, and where to serve what is kept, is therefore decided from the
//! size of a request and from what is in flight.
//!
//! The room holds the [`model`] of a device and how one is [`calibrate`]d, the [`policy`], which the daemon runs too, a
//! simulator ([`sim`]) with recorded loads ([`trace`]), and the [`grid`] that judges a policy.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod calibrate;
pub mod grid;
pub mod model;
pub mod policy;
pub mod sim;
pub mod trace;
