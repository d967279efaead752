//! Where backups live together: targets, chains, the WAL archive, retention.
//!
//! A *target* is a named list of directories. Each backup to it is a new media set, one family for each
//! directory, below the database's name and a label. WAL lies beside them, one object for each segment in the
//! same standard containers, outside media sets. `docs/repository.md` defines all names.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod base;
pub mod branch;
pub mod chain;
mod error;
mod expire;
pub mod identity;
mod label;
pub mod lease;
pub mod recover;
mod reliance;
mod replay;
pub mod retention;
mod shelf;
pub mod target;
pub mod wal;

pub use error::Error;
pub use expire::{Expired, Fate, LogFate};
pub use label::{Kind, Label};
pub use reliance::Reliance;
pub use replay::Replay;
pub use shelf::{Berth, Complete, Listed, Listing, Loan, Shelf, State};
pub use target::Target;
