//! Where backups live together: targets, chains, the WAL archive, retention.
//!
//! A *target* is a named list of directories. Each backup to it is a new media set, one family for each
//! directory, below the database's name and a label. WAL lies beside them, one object for each segment in the
//! same standard containers, outside media sets. `docs/repository.md` defines all names.

pub mod chain;
mod label;
pub mod retention;
pub mod wal;

pub use label::{Kind, Label};
