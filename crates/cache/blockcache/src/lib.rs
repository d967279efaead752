//! A block cache at work: a small fast *cache device* in front of a large slow *backend*, transparent to the database.
//!
//! The cache is inclusive and write-through: the backend holds everything that the cache holds, and a write is
//! acknowledged once the backend has it. So the cache can be lost at any moment, and must never be believed if it may
//! be stale. A policy of `longshore_policy` decides what is cached and where it is served.
//!
//! Its parts, each with its invariants in its head: `directory` (which lines are valid, which requests are in flight;
//! no I/O), `journal` (the durable table of slots), `store` (one attached cache and how it fails), `cached`
//! (requests), `tape` (recordings of clients' requests). `guard` records, next to the backend, which cache may be
//! believed; `open` reopens a cache, and asks `content` and `watch` whether the backend is unchanged.
//!
//! Assumptions about storage: a sync makes durable what was written before it; a sector of 512 bytes is written whole
//! or not at all; the cache device's and the backend's syncs know nothing of each other.
//!
//! Nothing else is assumed of the cache device: checksums, a second copy of the table, or gaps in it (`journal`)
//! reveal bits that rot and writes that the cache device confirmed and lost.
//!
//! Not detected: changes of the backend by others while it is served. Detected only if the lines compared at a start
//! include the affected ones: after a clean stop in the same boot, a file written to below its file system, or with its
//! time of change put back. Every other start compares all lines that it keeps, by checksums of 32 bits.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cached;
mod compare;
mod content;
pub mod control;
mod decisions;
mod directory;
mod disks;
mod error;
pub mod format;
mod geometry;
pub mod guard;
pub mod journal;
mod log_size;
mod mark;
mod meter;
mod open;
mod shadow;
mod start;
mod status;
mod store;
mod tape;
mod watch;

pub use cached::{CHECKPOINT_EVERY, CachedBackend, Settings, Verification};
pub use decisions::{Decision, RequestKind};
use directory::ByteTrust;
pub use error::Error;
pub use geometry::{BUFFER_BYTES, Geometry, LINE, Lines};
pub use meter::{Counters, Latency};
pub use open::{Backend, OpenedBackend, SAMPLE, attach, create, open};
pub use shadow::{Comparison, ShadowTotals};
pub use start::Start;
pub use status::Status;
pub use tape::{HEAD as TRACE_HEAD, TapeExtract};
