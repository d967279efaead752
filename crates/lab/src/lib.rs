//! Workloads, sweeps and reports: how Longshore is measured, by anybody who wants to measure again.
//!
//! The lab goes through the front doors, as users do. [`sample`] builds the databases, [`report`] shows
//! what was found.

pub mod report;
pub mod sample;
