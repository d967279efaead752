//! What a cache would do: the same policies as in the daemon, and their rivals, over modelled devices in virtual time.
//!
//! [`sim`] runs a load, made up or recorded ([`trace`]); [`grid`] judges a policy over many. [`Choice`] names every
//! policy that can be compared, of which the daemon has the few that a user may want at work.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod choice;
pub mod grid;
mod rivals;
pub mod sim;
pub mod trace;

pub use choice::{Choice, FilterChoice, SharedReads};
pub use rivals::OrthusPace;
