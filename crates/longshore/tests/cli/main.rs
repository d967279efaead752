//! The program as people and scripts use it: through its own binary.

mod accelerator;
mod certificates;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod configured;
mod copies;
mod demo;
mod device_check;
mod differential;
mod dry_run;
mod effects;
mod encrypted;
mod errors;
mod exits;
mod interrupt;
mod journal;
mod journey;
mod json;
mod lab;
mod limits;
mod mistakes;
mod origins;
mod output;
mod owners;
mod parity;
mod past;
mod promises;
mod reader;
mod readme;
mod replacing;
mod repository;
mod runs;
mod stage;
mod status;
mod stock;
