//! Restore chains in T-SQL, on real servers: full, differential and log sets, to a moment; rows made between the backups
//! decide. Every statement is a program of its own, so that nothing is carried over but what is kept.

#[path = "../common/client.rs"]
mod client;
mod clients;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/judge.rs"]
mod judge;
mod refused;
mod restored;
#[path = "../common/served.rs"]
mod served;
mod stage;
