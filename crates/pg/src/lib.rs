//! What PostgreSQL is: its numbers and names, the layouts of its files, and a connection to its server.
//!
//! Facts only: what to copy, keep or restore is decided above. Majors whose layouts are not in the tables here
//! are refused by name, never guessed.

pub mod client;
mod lsn;
mod segment;
pub mod wal;

pub use lsn::Lsn;
pub use segment::{SegmentName, SegmentSize, Timeline};
