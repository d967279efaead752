//! A device-aware block cache: a small fast SSD in front of a large slow disk, transparent to the database.
//!
//! The fast device is not faster for every request: many slow units with a wide link serve large and deep reads
//! sooner. So what is cached, and where cached data is served, is decided by the size of a request and by the bytes in
//! flight.
//!
//! The room holds the [`model`] of a device and how one is [`calibrate`]d, and the [`policy`] of a cache at work. Policies
//! to compare it with and a simulator are the lab's.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod calibrate;
pub mod model;
pub mod policy;
