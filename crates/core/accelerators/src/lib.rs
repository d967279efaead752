//! Accelerators as an operator sees them: what is configured, what was found, what they do now, and what is missing.
//!
//! No byte of a backup passes here. The pipeline asks what is configured and publishes its counters ([`StatusFile`]); the
//! command line and T-SQL show them.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod doctor;
mod mode;
mod probe;
mod running;
mod status;

pub use mode::{OffloadMode, state_text};
pub use probe::Probe;
pub use running::{
    EngineCounters, ProgressFile, RunningBackup, RunningWork, StatusFile, running, running_work,
};
pub use status::{AcceleratorSettings, AcceleratorStatus, Reason, configure, configured, status};
