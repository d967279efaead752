//! `longshore serve` through the wire: other people's clients, hostile ones, many at once.

mod clients;
mod ends;
mod hostile;
mod many;
mod raw;
mod stage;

#[path = "../sql/answers.rs"]
mod answers;
#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/served.rs"]
mod served;
