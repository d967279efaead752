//! Workloads, sweeps and reports: how Longshore is measured, by anybody who wants to measure again.
//!
//! The lab goes through the front doors, as users do; only [`bench`] also times codecs, checksums and
//! files bare, to know what there is to reach. [`sample`] builds the databases, [`report`] shows what was found.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bench;
pub mod cache_figures;
pub mod compare;
pub mod device_check;
pub mod offload;
mod platform;
pub mod report;
pub mod sample;
mod scratch;
mod spread;
pub mod stock;
pub mod sweep;
mod taken;
