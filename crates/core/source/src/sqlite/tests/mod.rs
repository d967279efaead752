//! Snapshots of databases that other processes use at the same time.

mod hot;
mod lock;
mod refusals;
mod rounds;
mod stage;
mod unlocked;
mod untouched;
