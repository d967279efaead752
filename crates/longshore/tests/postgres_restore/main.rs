//! PostgreSQL clusters are restored: every installed major version, through the program, judged by PostgreSQL's own
//! server and tools.

#[path = "../common/mod.rs"]
mod common;

mod buckets;
mod chain;
mod configuration;
mod corruption;
mod database;
mod databases;
mod delta;
mod drill;
mod emergency;
mod encrypted;
mod faults;
mod full;
mod killed;
mod made_spaces;
mod named;
mod own_log;
mod pages;
mod recovery;
mod results;
mod servers;
mod stage;
mod subscriber;
mod timelines;
mod tutorial;
mod whole;
