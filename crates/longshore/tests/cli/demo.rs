//! The script of `make demo` runs to its end, and its report tells what it did.

use std::path::Path;
use std::process::Command;

use crate::common::{BINARY, Ran};

#[test]
fn the_demo_runs_and_its_report_tells_what_it_did() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo.sh");
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("demo");
    let mut demo = Command::new("bash");
    demo.arg(script).arg(BINARY).arg(&to).arg("6M");
    let ran = Ran::of(&demo.output().unwrap()).exits(0);
    let ran = ran.says("lab compare --source app.db");
    ran.says("--after story.json")
        .says("cmp: app.db and rest/app.db are equal");
    let page = std::fs::read_to_string(to.join("report.html")).unwrap();
    for told in [
        "<h1>Longshore: a database in use, backed up and brought back</h1>",
        "Backup in use, 4 stripes, QAT_DEFLATE",
        "every byte as it was (cmp)",
        "How much is stored",
        "Time and size",
        "of those that store at most 10 % more than the smallest, it is the quickest",
        "No other is both quicker and smaller than these",
    ] {
        assert!(page.contains(told), "{told}");
    }
}
