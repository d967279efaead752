//! `longshore serve` through the wire: other people's clients, hostile ones, many at once.

mod clients;
mod ends;
mod hostile;
mod many;
mod raw;
mod stage;

#[path = "../sql/answers.rs"]
mod answers;
#[path = "../common/mod.rs"]
mod common;
