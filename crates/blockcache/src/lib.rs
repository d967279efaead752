//! A block cache at work: a small fast device in front of a big one, below an unmodified database.
//!
//! Inclusive and write-through: whatever the cache holds, the backend holds, too, and a write is acknowledged when the
//! backend has it. So the cache can be lost at any moment, and must never be believed when it may be stale. What is
//! held and where it is served is decided by a policy of `longshore_cache`.
//!
//! Its parts, each with its invariants in its head: `directory` (which lines are valid, what is under way; no I/O),
//! `journal` (the durable table of slots), `store` (one attached cache and how it fails), `engine` (requests), `tape`
//! (what clients ask, recorded). `guard` keeps, beside the backend, which cache may be believed; `open` comes back to
//! one, and asks `content` and `watch` whether the backend is still what it was.
//!
//! Assumptions about storage: a sync makes durable what was written before it; a sector of 512 bytes is written whole
//! or not at all; the cache device's and the backend's syncs know nothing of each other.
//!
//! Of the cache device nothing else is assumed: bits that rot and writes that it confirmed and lost are found by sums, by
//! a second copy of the table, or by gaps in it (`journal`).
//!
//! What is not noticed for certain: changes of the backend by others while it is served; few blocks of a block device
//! that somebody wrote without mounting it; after a crash, few blocks of a file that were written within half a minute.
//! A cache device put back, as a whole, to an earlier state of the same session, and both copies of the very last commit
//! lost before a crash, are noticed by the lines that are compared at a start, as far as these are among them.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod content;
pub mod control;
mod directory;
mod engine;
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
mod why;

use directory::Worth;
pub use engine::{BUFFER_BYTES, CHECKPOINT_EVERY, Engine, Settings};
pub use error::Error;
pub use geometry::{Geometry, LINE, Lines};
pub use meter::{Counters, Latency};
pub use open::{Backend, Opened, SAMPLE, attach, create, open};
pub use shadow::{Comparison, Done};
pub use start::Start;
pub use status::Status;
pub use tape::{HEAD as TRACE_HEAD, Taken};
pub use why::{Asked, Line};
