//! Goal: each of the 22 published figures has a command that works, a page that sets ours next to the published values,
//! and a row in docs/lab.md.
//! Method: the real program with samples of a few megabytes; the answers of `--json`, the files and the page are compared.
//! Not covered: whether the figures are right for a machine; one small size shows nothing about that.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longshore_kit::program::{answer, command, end, text};
use serde_json::Value;
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_longshore-lab");
const FIGURES: usize = 22;

/// A directory that the servers' user can enter, with a short name.
fn stage() -> TempDir {
    let shared = Path::new("/dev/shm");
    let dir = match shared.exists() {
        true => tempfile::tempdir_in(shared).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

fn run(dir: &TempDir, line: &str, code: i32) -> Value {
    let mut command = command(LAB, line.split_whitespace().chain(["--json"]));
    answer(&end(command.current_dir(dir.path()), code))
}

/// The cells of a report's table.
fn rows(report: &Value, section: usize) -> Vec<Vec<String>> {
    let rows = report["sections"][section]["table"]["row_values"].as_array();
    let cell = |cell: &Value| match cell {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let row = |row: &Value| row.as_array().unwrap().iter().map(cell).collect();
    rows.unwrap().iter().map(row).collect()
}

#[test]
fn every_figure_has_a_command_that_works_small_and_a_row_in_the_page() {
    let dir = stage();
    let list = run(&dir, "lab figures --list", 0);
    let list = rows(&list, 0);
    assert_eq!(list.len(), FIGURES);

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let page = fs::read_to_string(root.join("docs/lab.md")).unwrap();
    let told: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| S"))
        .collect();
    assert_eq!(told.len(), FIGURES, "docs/lab.md");
    for (row, told) in list.iter().zip(told) {
        let expected = format!("| {} | {} | {} |", row[0], row[1], row[2]);
        assert!(
            told.starts_with(&expected),
            "docs/lab.md: {told}\nwanted: {expected}"
        );
        assert!(
            told.len() > expected.len() + 20,
            "{told}: what can it not show?"
        );
    }

    let line = "lab figures --quick --size 3M --rounds 1 --phase 1 --work w --dir a --dir b --dir c --dir d --out out";
    let overview = run(&dir, line, 0);
    assert_eq!(overview["sections"].as_array().unwrap().len(), FIGURES);
    let read = |name: String| fs::read_to_string(dir.path().join("out").join(&name)).expect(&name);
    let index = read("index.html".into());
    assert_eq!(index.matches("<article>").count(), FIGURES);
    let mut missing = Vec::new();
    for row in &list {
        let id = &row[0];
        let report: Value = serde_json::from_str(&read(format!("{id}.json"))).unwrap();
        let summary = report["summary"].as_str().unwrap();
        assert!(summary.starts_with("Quick run"), "{id}: {summary}");
        let (html, markdown) = (read(format!("{id}.html")), read(format!("{id}.md")));
        assert!(index.contains(&format!("href=\"{id}.html\"")), "{id}");
        let compared = rows(&report, 0);
        assert!(!compared.is_empty(), "{id}");
        for row in &compared {
            assert!(
                html.contains(&row[3]) && markdown.contains(&row[3]),
                "{id}: {row:?}"
            );
            let is_hardware = row[0].contains("ardware") && !row[0].contains("oftware");
            if row[3] == "not measured here" && !is_hardware {
                missing.push(format!("{id}: {}", row[0]));
            }
        }
        let is_modelled = id.starts_with("S4");
        assert_eq!(summary.contains("Modelled"), is_modelled, "{id}: {summary}");
        let says_why = summary.contains("Not here: QAT_DEFLATE in hardware");
        let lacks = compared
            .iter()
            .any(|row| row[0].contains("ardware") && row[3].starts_with("not"));
        assert!(!lacks || says_why, "{id}: {summary}");
    }
    // No run of moments can have it.
    missing.retain(|row| !row.contains("Latency"));
    assert!(missing.is_empty(), "{missing:?}");
    let left: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|d| fs::read_dir(dir.path().join(d)).unwrap())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_figure_is_made_as_it_is_asked_for() {
    let dir = stage();
    let make = |id: &str| {
        let line = format!(
            "lab figure {id} --quick --size 3M --rounds 3 --phase 1 --work w --dir a --out out"
        );
        run(&dir, &line, 0)
    };
    let called = |report: &Value, what: &str| {
        let mut rows = rows(report, 0).into_iter();
        rows.find(|row| row[0].starts_with(what)).expect(what)
    };
    // A number that was published for hardware is no verdict on software.
    let report = make("s0.f5");
    assert!(report["title"].as_str().unwrap().starts_with("S0.F5"));
    let low = called(
        &report,
        "QAT_DEFLATE LOW in software smaller than MS_XPRESS, STAE",
    );
    assert!(low[0].ends_with("(published for hardware)"), "{low:?}");
    assert_eq!(
        (low[1].as_str(), low[3].as_str()),
        ("about 13.0 %", "another machine")
    );
    // Four volumes are not four files in one directory.
    let report = make("s3.f4");
    let layouts = called(&report, "4 devices on one volume by 4 on four");
    assert_eq!(layouts[3], "not measured here");
    let summary = report["summary"].as_str().unwrap();
    assert!(
        summary.contains("Not here: 4 devices on four volumes (1 directory"),
        "{summary}"
    );
    // The sign: LOW is larger here, and the publication says smaller.
    let report = make("s2.c");
    let low = called(&report, "QAT_DEFLATE LOW smaller");
    assert!(
        low[2].starts_with('-') && low[3] == "CONTRADICTS",
        "{low:?}"
    );
    let summary = report["summary"].as_str().unwrap();
    assert!(
        summary.contains("QAT_DEFLATE LOW smaller than MS_XPRESS: published smaller"),
        "{summary}"
    );
    assert!(
        !summary.contains("chance may decide"),
        "three rounds: {summary}"
    );
    for form in ["html", "md", "json"] {
        assert!(
            dir.path().join(format!("out/S0.F5.{form}")).exists(),
            "{form}"
        );
    }

    let mut wrong = command(LAB, ["lab", "figure", "S9.F1"]);
    let refused = wrong.current_dir(dir.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("no figure is called S9.F1") && said.contains("lab figures --list"),
        "{said}"
    );
}
