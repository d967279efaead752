//! Independent programs as witnesses.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Whether a program is installed. If `LONGSHORE_REQUIRE_TOOLS` is set, a missing one is a failure; otherwise the test
/// reports that it skips the check.
pub fn has(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .is_ok();
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(found || !required, "{program} is not installed");
    if !found {
        eprintln!("left out: {program} is not installed");
    }
    found
}

pub fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// A file of the independent reader (`tests/reader`).
pub fn reader(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../tests/reader")
        .join(file)
}

/// Runs a Python program without leaving bytecode behind.
pub fn python(program: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg("-B").arg(program);
    command
}
