//! Requests in, I/O on two devices out.
//!
//! The policy decides where a cached read is served: by the cache device, by the backend, or split between both at the
//! same time. Missing bytes come from the backend and, if the policy wants them, go to a fill. A write goes to the
//! backend, and its bytes, if the policy wants them, to a fill.
//!
//! The modules, each with its invariants in its head: `read`, `write`, `flush` (clients' requests, and checkpoints),
//! `fill` (copies into the cache), `lifecycle` (threads; attach, resize, detach, stop), `insight` (operators'
//! requests). With `together`, a miss waits for another client's read of the same bytes. `buffers` has the memory of the
//! requests, and `shared` the state that all of them share.
//!
//! Invariants
//! - Bytes that a client reads were on the backend, or were written to it, while the read was in flight.
//! - A client's request fails only if the backend fails it (or as [`Store::secure`](crate::store::Store::secure) says),
//!   and then it always fails.
//! - Memory: the buffers of requests, allocated once, and the table of slots.
//! - A cache device that hangs holds no request but those that are in it, and some buffers are never in it.
//!
//! Leaves to others: the table of slots and its durability (`store`, `journal`), decisions (`longshore-policy`), and
//! clients' protocols (`longshore-serving`).

mod buffers;
mod fill;
mod flush;
mod insight;
mod joined;
mod lifecycle;
mod read;
mod shared;
mod together;
mod write;

pub use flush::CHECKPOINT_EVERY;
pub use insight::Verification;
pub(crate) use shared::policy;
pub use shared::{CachedBackend, Settings};

#[cfg(test)]
mod tests;
