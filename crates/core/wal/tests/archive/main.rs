//! The WAL archive through its door.

mod ahead;
mod ahead_buckets;
mod buckets;
mod copying;
mod faults;
mod following;
mod golden;
mod hostile;
mod keeping;
mod left;
mod links;
mod listing;
mod owing;
mod owing_faults;
mod page;
mod sealed;
mod support;
mod taking;
