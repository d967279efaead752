//! Goal: `tune` advises settings that were measured, which the programs then take, and leaves nothing at the places.
//! Method: the real program on a few megabytes; what it writes goes through `config check` and a backup.
//! Not covered: whether the settings are the best for a machine; the tests of `longshore-studies` have machines whose best is
//! known.

use std::fs;

use serde_json::Value;

use crate::stage::Stage;

fn with_sample() -> Stage {
    let stage = Stage::new();
    stage.line("lab sample stae --size 6M app.db").exits(0);
    stage
}

fn prose(report: &Value) -> String {
    let prose = report["sections"][0]["prose"].as_array().unwrap();
    let told: Vec<&str> = prose.iter().filter_map(Value::as_str).collect();
    told.join("\n")
}

#[test]
fn the_settings_that_it_finds_are_a_configuration_and_a_command_that_work() {
    let stage = with_sample();
    let a = stage.path("a");
    let line = format!(
        "tune app.db --to {} --to ./b --time 20 --algorithm ZSTD --algorithm QAT_DEFLATE --write new/tuned.toml --json \
         --html pages/s.html --markdown pages/s.md",
        a.display(),
    );
    let ran = stage.line(&line).exits(0);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["action"], "lab_report");
    for place in ["a", "b"] {
        assert!(stage.names(place).is_empty(), "nothing is left in {place}");
    }
    let rows = report["sections"][1]["table"]["row_values"]
        .as_array()
        .unwrap();
    // The defaults twice, ZSTD, and stripes or buffers.
    assert!(rows.len() >= 4, "{rows:?}");
    for row in rows {
        let setting = row[0].as_str().unwrap();
        assert!(
            setting.starts_with("ZSTD") || setting.starts_with("QAT_DEFLATE"),
            "{row}"
        );
        assert!(row[1].as_f64().unwrap() > 0.0, "{row}");
    }
    let told = prose(&report);
    assert!(
        told.contains("longshore backup app.db --to /") && told.contains("--algorithm "),
        "{told}"
    );
    assert!(
        told.contains("Run it again after a change of disks"),
        "{told}"
    );
    assert_eq!(stage.names("pages"), ["s.html", "s.md"]);

    let written = fs::read_to_string(stage.path("new/tuned.toml")).unwrap();
    let lines = &report["sections"][0]["table"]["row_values"];
    let lines: Vec<&str> = lines
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row[0].as_str())
        .collect();
    let told: Vec<&str> = written.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, told);
    let database = format!(
        "{written}\n[database.app]\nurl = \"sqlite:{}\"\n",
        stage.path("app.db").display()
    );
    stage.write("whole.toml", database.as_bytes());
    stage.line("--config whole.toml config check").exits(0);
    stage.line("--config whole.toml backup app").exits(0);

    // The file is the reader's now.
    let again = stage.line(&line).exits(2).says("is not replaced");
    assert!(
        !again.err.contains("MB/s"),
        "nothing was measured: {}",
        again.err
    );
}

#[test]
fn a_purpose_decides_what_is_compared_and_a_window_what_is_left_out() {
    let stage = with_sample();
    let found = |more: &str| -> Value {
        let ran = stage.line(&format!("tune app.db --to p --time 60 --json {more}"));
        serde_json::from_str(&ran.exits(0).out).unwrap()
    };
    let size = found("--purpose size");
    assert!(
        size["summary"]
            .as_str()
            .unwrap()
            .contains("the least space"),
        "{size}"
    );
    let told = prose(&size);
    assert!(!told.contains("--algorithm NONE"), "{told}");

    let workload = found("--purpose workload");
    let told = prose(&workload);
    assert!(
        told.contains("--low-io-priority") && told.contains("--max-cpu 50"),
        "{told}"
    );

    // No machine makes a backup in a hundred thousandth of a second.
    let short = found("--within 0.00001");
    let summary = short["summary"].as_str().unwrap();
    assert!(summary.contains("No setting is sure to keep"), "{summary}");
    assert!(stage.names("p").is_empty());
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_reason() {
    let stage = with_sample();
    stage
        .line("tune app.db --to d --to s3://bucket/x")
        .exits(2)
        .says("and not both");
    stage
        .line("tune no-such.db --to d")
        .exits(3)
        .says("no-such.db");
    stage.write("file", b"x");
    stage.line("tune app.db --to file").exits(6).says("file");
    stage.line("tune app.db").exits(2).says("--to");
    stage.line("help tune").exits(0).says("Examples:");
}
