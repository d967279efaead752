//! Shared by the tests of the real program: its path, and the kit's ways to run it.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part"
)]

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

pub mod journal;
pub mod store;

pub use longshore_kit::program::{
    Guarded, Ran, Used, answer, end, hears_interrupts, measure, succeed, text, wait,
    wait_for_handler,
};
pub use longshore_kit::random::{Random, content, from_env};
pub use longshore_kit::tree::{Tree, fingerprint, put, read};

pub const BINARY: &str = env!("CARGO_BIN_EXE_longshore");

/// The program, without a user's history.
pub fn longshore<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    longshore_kit::program::command(BINARY, args)
}

/// The program in a directory with a configuration, and with the history in that directory.
pub fn longshore_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = longshore(args);
    command
        .current_dir(dir)
        .env("LONGSHORE_CONFIG", dir.join("longshore.toml"))
        .env("LONGSHORE_CATALOG", dir.join("state/catalog.db"));
    command
}

/// Runs to the end. Panics if the exit code is not `expected`.
pub fn expect<S: AsRef<OsStr>>(expected: i32, args: impl IntoIterator<Item = S>) -> Output {
    end(&mut longshore(args), expected)
}
