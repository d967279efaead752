//! The service time of a storage device, as a queueing model in virtual time.
//!
//! Three stations in sequence and a constant: a command server, `units` that each serve one chunk at a time, and a
//! link; then a fixed latency that occupies nothing. A request longer than the device's largest command is split into
//! several commands. Chunks are tied to units by their address, so two requests for one chunk queue. Some devices have limits
//! of bytes and of commands that a burst may exceed; a command waits for both before the command server takes it.
//!
//! Invariants
//! - Time is an argument and never goes back; nothing here reads a clock. One seed and one schedule give one run.
//! - Each station serves in order of arrival. A completion is reported exactly once.
//! - Bytes in flight are those of requests submitted and not yet completed.
//!
//! Sources: DaMoN 2019, "Exploiting Intel Optane SSD for Microsoft SQL Server"; Little's law. The parameters of a
//! profile are calibrated or provisional, as [`Profile::standing`] says.

mod device;
mod estimate;
mod profile;
mod stations;
mod steady;

pub use device::{Completion, Device, Op, Order, Request};
pub use profile::{Credit, PAIRS, PROFILES, Pair, Profile, ProfileTrust, Tail, WriteBuffer};
pub use steady::Steady;

/// Virtual time, in ns since the run began.
pub type Nanos = u64;

#[cfg(test)]
mod tests;
