//! The WAL archive through its door.

mod faults;
mod hostile;
mod listing;
mod support;
mod taking;
