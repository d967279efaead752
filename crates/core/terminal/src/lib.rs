//! What every program of this project shows and takes: exit codes, failures, tables, values of options, Ctrl-C.
//!
//! The programs say what is wanted and what happened; here is how that looks on a terminal and in JSON, so that two
//! programs look like one.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod failure;
pub mod files;
pub mod global;
pub mod interrupt;
pub mod journal;
pub mod numbers;
pub mod output;
pub mod pages;
pub mod program;
pub mod text;
pub mod values;
pub mod version;
