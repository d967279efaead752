//! What tests of several crates share: each of these exists once.
//!
//! - [`program`]: runs the program, waits for it, measures it;
//! - [`schema`]: the page of all answers of `--json`, and answers that are as it says;
//! - [`help`]: what the help of a program's options must say;
//! - [`random`]: numbers and content from a seed;
//! - [`alloc`]: an allocator that counts;
//! - [`cells`]: pages of SQLite from a seed;
//! - [`pages`]: pages of PostgreSQL from a seed;
//! - [`place`]: directories for servers and their backups;
//! - [`port`]: ports for servers;
//! - [`tree`]: directories as values that can be compared;
//! - [`postgres`]: PostgreSQL servers, and what judges them.
//!
//! Tests alone use this crate, and it uses no other crate of the workspace.

pub mod alloc;
pub mod cells;
pub mod help;
pub mod pages;
pub mod place;
pub mod port;
pub mod postgres;
pub mod program;
pub mod random;
pub mod schema;
pub mod tree;

pub use postgres::{
    Installation, Options, PATIENCE, Server, Stop, User, installations, representatives,
};
pub use random::Random;
