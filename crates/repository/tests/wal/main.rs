//! The WAL archive through its door.

mod faults;
mod hostile;
mod listing;
mod page;
mod support;
mod taking;
