//! Workloads, sweeps and reports: the measurements of Longshore, repeatable by anybody.
//!
//! The lab uses the same interfaces as users; only [`bench`] also times codecs, checksums and files by themselves, to
//! know the limits. [`sample`] builds the databases, [`report`] shows the findings, and [`figures`] sets them next to
//! published ones.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod advice;
pub mod bench;
pub mod cache_figures;
mod cold;
pub mod compare;
mod curves;
pub mod device_check;
pub mod figures;
mod heat;
mod labels;
mod limits;
pub mod network;
pub mod offload;
pub mod oltp;
mod over_time;
pub mod paced;
mod platform;
pub mod report;
pub mod sample;
mod scratch;
mod spread;
pub mod stock;
pub mod sweep;
mod timing;
pub mod tune;
mod volumes;
