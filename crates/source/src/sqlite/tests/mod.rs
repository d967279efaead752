//! Snapshots of databases that other processes use meanwhile.

mod hot;
mod lock;
mod refusals;
mod rounds;
mod stage;
mod unlocked;
mod untouched;
