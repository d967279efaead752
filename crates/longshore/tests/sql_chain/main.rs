//! Restore chains in T-SQL, on real servers: full, differential and log sets, to a moment; rows made between the
//! backups show the result. Every statement runs in a new process, so only persisted state is carried over.

mod checked;
#[path = "../common/client.rs"]
mod client;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod refused;
mod restored;
#[path = "../common/served.rs"]
mod served;
mod stage;
