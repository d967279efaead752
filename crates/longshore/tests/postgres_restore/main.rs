//! PostgreSQL clusters come back: every major that is installed, through the program, judged by PostgreSQL's own server
//! and tools.

#[path = "../common/mod.rs"]
mod common;

mod delta;
mod killed;
mod recovery;
mod stage;
mod whole;
