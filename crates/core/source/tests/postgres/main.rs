//! The changes of a cluster while it is read, moment by moment, and the possible answers of a server.
//!
//! Real servers are used in `crates/longshore/tests/postgres_backup`. Events that are too rare for a real server are
//! simulated here: the server is a script on a socket, its data directory is made by hand, and a hook in the storage
//! changes files between two system calls.

mod changing;
mod cluster;
mod contract;
mod double;
mod hooked;
mod hostile;
mod log;
mod pages;
mod standby;
#[path = "../contract/suite.rs"]
mod suite;
