//! Sample data and studies through the command line.

use crate::stage::Stage;

#[test]
fn sample_databases_have_the_size_asked_for_and_the_same_bytes_every_time() {
    let stage = Stage::new();
    for kind in ["tprocc", "stae"] {
        let line = format!("lab sample {kind} --size 3M {kind}.db --json");
        let ran = stage.line(&line).exits(0);
        let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let bytes = value["bytes"].as_u64().unwrap();
        assert!(
            (bytes as f64 / f64::from(3 << 20) - 1.0).abs() < 0.02,
            "{bytes}"
        );
        stage.line(&line).exits(2).says("exists");
        let first = std::fs::read(stage.path(format!("{kind}.db"))).unwrap();
        stage.line(&format!("{line} --replace")).exits(0);
        let second = std::fs::read(stage.path(format!("{kind}.db"))).unwrap();
        assert!(first == second);
    }
    stage
        .line("lab sample stae --size 4M --files 2 --dir x --dir y")
        .exits(0);
    assert_eq!(stage.names("x"), ["stae-1.db"]);
    assert_eq!(stage.names("y"), ["stae-2.db"]);
}

/// Goal: the bench measures everything that it promises, about the program itself too.
/// Method: the whole bench over a few megabytes. Whether goals are met does not matter here.
#[test]
fn the_bench_measures_parts_pipeline_memory_and_ceilings() {
    let stage = Stage::new();
    let ran = stage
        .line("lab bench --quick --size 4M --work kept --html out/bench.html --markdown out/bench.md --json")
        .exits(0);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let sections = report["sections"].as_array().unwrap();
    let rows = |heading: &str| {
        let section = sections.iter().find(|s| s["heading"] == heading);
        let rows = &section.unwrap_or_else(|| panic!("{heading} is missing"))["table"]["rows"];
        rows.as_array().unwrap().clone()
    };
    for (heading, count) in [
        ("The single steps", 11),
        ("To NUL, warm cache", 8),
        ("To disk", 4),
        ("Cold cache", 1),
        ("Restore to disk", 8),
        ("Peak memory", 8),
        ("Ceilings", 2),
        ("QAT_DEFLATE against MS_XPRESS", 3),
        ("Levels of DEFLATE and MS_XPRESS", 6),
    ] {
        let rows = rows(heading);
        assert_eq!(rows.len(), count, "{heading}");
        for row in rows {
            let missing = row.as_array().unwrap()[1].is_null();
            assert!(!missing, "{heading}: {row}");
        }
    }
    // A process of this program has some megabytes resident, and at most what it prints.
    for row in rows("Peak memory") {
        let (peak, bound) = (row[1].as_f64().unwrap(), row[2].as_f64().unwrap());
        assert!(peak > 3.0 && peak < bound, "{row}");
    }
    assert_eq!(stage.names("out"), ["bench.html", "bench.md"]);
    let markdown = std::fs::read_to_string(stage.path("out/bench.md")).unwrap();
    assert!(markdown.contains("## Peak memory"));
    assert_eq!(stage.names("kept").len(), 1, "only the sample is kept");
}

#[test]
fn a_study_that_cannot_begin_says_why() {
    let stage = Stage::new();
    stage.line("lab sweep").exits(2).says("--dir");
    stage
        .line("lab sweep --dir d --source no-such.db")
        .exits(3)
        .says("no-such.db");
    stage.write("file", b"x");
    stage
        .line("lab sweep --dir file --quick --size 3M")
        .exits(6)
        .says("file");
}
