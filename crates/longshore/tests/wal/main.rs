//! The WAL archive with real servers of all installed major versions.

mod archiving;
mod archiving_buckets;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod encrypted;
mod failover;
mod kept;
mod outage;
mod owed;
mod owed_page;
mod owed_sealed;
mod receiving;
mod receiving_buckets;
mod restores;
mod sending;
#[path = "../common/served.rs"]
mod served;
mod set_back;
mod shared;
mod spaces;
mod stage;
mod standbys;
