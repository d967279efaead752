//! Snapshots of databases that other processes use meanwhile.

mod lock;
mod refusals;
mod rounds;
mod stage;
mod unlocked;
mod untouched;
