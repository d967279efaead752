//! Goal: a comparison has rows for the accelerator that is here, says who compressed and with what versions, and compares
//! on a database of many files.
//! Method: the real program with a double of a QAT device and its library, which follows a script; a PostgreSQL server
//! where one is installed.
//! Not covered: real devices.

use std::fs;
use std::path::Path;

use longshore_kit::program::{answer, command, end};
use qatzip::stage as double;
use serde_json::Value;
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_longshore-lab");

/// A directory that a server's user can enter, with a short name.
fn stage() -> TempDir {
    longshore_kit::place::dir("lab")
}

/// The report of a comparison on a machine whose devices are those of `sys` below `dir`.
fn compare(dir: &Path, words: &str) -> Value {
    let line = format!("lab compare --quick --size 3M --json {words}");
    let mut command = command(LAB, line.split_whitespace());
    command
        .current_dir(dir)
        .env("LONGSHORE_SYSFS", dir.join("sys"))
        .env("LONGSHORE_QATZIP", dir.join("libqatzip.so.3"))
        .env("LONGSHORE_CUDA", "off");
    answer(&end(&mut command, 0))
}

/// The section with this heading.
fn section<'a>(report: &'a Value, heading: &str) -> &'a Value {
    let mut sections = report["sections"].as_array().unwrap().iter();
    let found = sections.find(|s| s["heading"] == heading);
    found.unwrap_or_else(|| panic!("no {heading}: {report}"))
}

fn rows(section: &Value) -> &Vec<Value> {
    section["table"]["row_values"].as_array().unwrap()
}

#[test]
fn a_device_has_rows_in_hardware_and_hybrid_and_its_versions_are_told() {
    let dir = stage();
    let sys = dir.path().join("sys");
    double::machine(&sys).unwrap();
    double::install(dir.path(), "").unwrap();
    let debug = sys.join("kernel/debug/qat_4xxx_0000:6b:00.0/version");
    fs::create_dir_all(&debug).unwrap();
    fs::write(debug.join("fw"), "1.0.40\n").unwrap();
    let report = compare(dir.path(), "");
    for name in ["tprocc", "stae"] {
        let names: Vec<&str> = rows(section(&report, name))
            .iter()
            .map(|row| row[0].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), 12, "{names:?}");
        // A busy machine lets software do blocks that the device's double is too late for; the name then says so.
        for name in &names[10..] {
            assert!(name.starts_with("QAT_DEFLATE LOW"), "{names:?}");
            assert!(name.contains("hardware"), "{names:?}");
        }
    }
    let machine = rows(section(&report, "The machine"));
    let row = machine.iter().find(|row| row[0] == "Accelerator").unwrap();
    let told = row[1].as_str().unwrap();
    for part in [
        "qatzip: 1 × QAT 4xxx",
        "library libqatzip.so.3 (API 2.3)",
        "firmware 1.0.40",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let headline = report["summary"].as_str().unwrap();
    assert!(
        headline.contains("Not this machine's own libraries or devices"),
        "{headline}"
    );
    let databases = rows(section(&report, "Databases"));
    assert_eq!((databases.len(), &databases[0][2]), (2, &1.0.into()));
}

#[test]
fn a_comparison_on_a_cluster_reads_many_files_and_leaves_none() {
    if longshore_kit::installations().is_empty() {
        eprintln!("skipped: a cluster");
        return;
    }
    let dir = stage();
    let report = compare(dir.path(), "--database postgres --work w");
    let databases = rows(section(&report, "Databases"));
    let row = &databases[0];
    assert_eq!(row[0], "tprocc in PostgreSQL");
    assert!(row[2].as_f64() > Some(500.0), "{row}");
    assert_eq!(row[5].as_f64(), Some(9.0), "{row}");
    assert_eq!(rows(section(&report, "tprocc in PostgreSQL")).len(), 10);
    let left: Vec<_> = fs::read_dir(dir.path().join("w"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["tprocc-3145728.db"]);
}
