//! Goal: `lab device-check`, and the script that runs it on another machine, check everything that they announce, and
//! their answer is no if the device is missing or wrong.
//! Method: the real program without a library, and with a double of a GPU.
//! Not covered: a real GPU; the double's figures mean nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use longshore_double_nvcomp::stage::install;
use serde_json::Value;

use crate::stage::{BINARY, Stage};

fn checks(report: &Value) -> Vec<(String, String)> {
    let sections = report["sections"].as_array().unwrap();
    let section = sections.iter().find(|s| s["heading"] == "Checks").unwrap();
    let rows = section["table"]["row_values"].as_array().unwrap();
    let text = |cell: &Value| cell.as_str().unwrap().to_owned();
    rows.iter().map(|r| (text(&r[0]), text(&r[1]))).collect()
}

#[test]
fn without_a_library_the_check_says_so_and_the_answer_is_no() {
    let stage = Stage::new();
    let mut command = stage.command(&["lab", "device-check", "--quick", "--json"]);
    command.env("LONGSHORE_NVCOMP", "/nowhere/libnvcomp.so.5");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report = longshore_kit::program::answer(&output);
    assert_eq!(checks(&report), [("self-test".into(), "NO".into())]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("cannot load /nowhere/libnvcomp.so.5"),
        "{text}"
    );
}

#[test]
fn a_gpu_that_makes_wrong_data_is_told() {
    let stage = Stage::new();
    let double = install(&stage.path("")).unwrap();
    let mut command = stage.command(&["lab", "device-check", "--quick"]);
    let output = command
        .env("LONGSHORE_CUDA", double.cuda)
        .env("LONGSHORE_NVCOMP", double.nvcomp)
        .env("LONGSHORE_DOUBLE_NVCOMP", "flip=3")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("does not inflate to the original"), "{text}");
}

#[test]
fn a_check_keeps_its_sample_leaves_its_stripe_and_ends_in_the_time_asked_for() {
    let stage = Stage::new();
    let double = install(&stage.path("")).unwrap();
    let report = |line: &str, code: i32| -> Value {
        let line = format!("lab device-check --quick --json {line}");
        let mut command = stage.command(&line.split(' ').collect::<Vec<_>>());
        command.env("LONGSHORE_CUDA", &double.cuda);
        let output = command.env("LONGSHORE_NVCOMP", &double.nvcomp).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        longshore_kit::program::answer(&output)
    };
    // An older file of the stripe's name is replaced.
    stage.write("gpu.bak", b"older");
    report(
        "--work kept --stripe gpu.bak --html c.html --markdown c.md",
        0,
    );
    let unpacked = std::process::Command::new("gzip")
        .arg("-dc")
        .arg(stage.path("gpu.bak"))
        .output()
        .unwrap();
    assert!(unpacked.status.success() && unpacked.stdout.len() >= 8 << 20);
    assert!(!stage.names("kept").is_empty());
    let page = |name: &str| fs::read_to_string(stage.path(name)).unwrap();
    assert!(page("c.html").contains("<html") && page("c.html").contains("Checks"));
    assert!(page("c.md").contains("## Checks"));

    let short = report("--work other --seconds 1", 1);
    assert!(
        short.to_string().contains("not tried: no time left"),
        "{short}"
    );
    assert!(checks(&short).iter().any(|(_, passed)| passed == "NO"));
}

/// Goal: the bundle's script does all its steps, before anyone spends time on a real machine.
/// Method: a bundle with the double in the library's place. Its numbers mean nothing.
#[test]
fn the_bundles_script_checks_everything_there_is_to_check() {
    let stage = Stage::new();
    fs::create_dir(stage.path("lib")).unwrap();
    let double = install(&stage.path("lib")).unwrap();
    // Outside the bundle, like a driver's library.
    let driver = stage.path("libcuda.so.1");
    fs::rename(double.cuda, &driver).unwrap();
    let lab = Path::new(BINARY).with_file_name("longshore-lab");
    symlink(lab, stage.path("longshore-lab")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/device-check-run.sh");
    fs::copy(script, stage.path("run.sh")).unwrap();
    let ran = std::process::Command::new("sh")
        .args(["run.sh", "found", "240", "--quick"])
        .current_dir(stage.path(""))
        .env("LONGSHORE_CUDA", driver)
        .output()
        .unwrap();
    let summary = fs::read_to_string(stage.path("found/summary.txt")).unwrap();
    let log = fs::read_to_string(stage.path("found/device-check.log")).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{summary}\n{log}");
    for line in [
        "device check: passed",
        "gzip: restores the 8388608 bytes that were backed up",
        "python3 and zlib: restores the 8388608 bytes that were backed up",
        "after kill -9: passed",
    ] {
        assert!(summary.contains(line), "{line}\n{summary}");
    }
    let report = fs::read(stage.path("found/device-check.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let checks = checks(&report);
    assert!(
        checks.iter().all(|(_, passed)| passed == "yes"),
        "{checks:?}"
    );
    for expected in ["damaged results are detected", "the gather kernel is used"] {
        assert!(
            checks.iter().any(|(what, _)| what == expected),
            "{checks:?}"
        );
    }
    // No table has an empty cell.
    for section in report["sections"].as_array().unwrap() {
        for row in section["table"]["row_values"].as_array().unwrap() {
            let row = row.as_array().unwrap();
            assert!(row.iter().all(|cell| !cell.is_null()), "{row:?}");
        }
    }
    let markdown = fs::read_to_string(stage.path("found/device-check.md")).unwrap();
    assert!(markdown.contains("Whole backups to NUL"), "{markdown}");
}
