//! The WAL archive with real servers, all majors that are installed.

mod archiving;
mod commands;
mod failover;
mod receiving;
mod restores;
mod set_back;
mod shared;
mod spaces;
mod stage;
