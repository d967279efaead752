//! Runs of the lab with `--json`, and the tables of its reports, for several tests.

use longshore_kit::program::{answer, command, end};
use serde_json::Value;
use tempfile::TempDir;

pub const LAB: &str = env!("CARGO_BIN_EXE_longshore-lab");

/// The answer of a command line in this directory, which ends with this exit code.
#[track_caller]
pub fn run(dir: &TempDir, line: &str, code: i32) -> Value {
    let mut command = command(LAB, line.split_whitespace().chain(["--json"]));
    answer(&end(command.current_dir(dir.path()), code))
}

/// The cells of a report's table.
#[track_caller]
pub fn rows(report: &Value, section: usize) -> Vec<Vec<String>> {
    let rows = report["sections"][section]["table"]["row_values"].as_array();
    let cell = |cell: &Value| match cell {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let row = |row: &Value| row.as_array().unwrap().iter().map(cell).collect();
    rows.unwrap().iter().map(row).collect()
}
