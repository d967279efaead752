//! `longshore serve` through the wire: third-party clients, hostile ones, many at once.

mod clients;
mod ends;
mod guarded;
mod hostile;
mod locks;
mod logins;
mod many;
mod raw;
mod requests;
mod stage;

#[path = "../sql/answers.rs"]
mod answers;
#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/served.rs"]
mod served;
