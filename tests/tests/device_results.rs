//! The report of a device check replaces the text between its marks in docs/accelerators.md, any number of times, and
//! changes nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const BEGIN: &str = "<!-- device check: written by make device-results -->\n";
const END: &str = "<!-- end of device check -->\n";

#[test]
fn a_report_replaces_the_last_one_between_the_marks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/accelerators.md")).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();

    let copy = TempDir::new().unwrap();
    for dir in ["docs", "scripts"] {
        fs::create_dir(copy.path().join(dir)).unwrap();
    }
    let script = copy.path().join("scripts/device-results.sh");
    fs::copy(root.join("scripts/device-results.sh"), &script).unwrap();
    fs::write(copy.path().join("docs/accelerators.md"), &page).unwrap();
    for value in ["12.5", "13.5"] {
        let report = copy.path().join("report.md");
        let text =
            format!("# GPU compression\n\n## Checks\n\n| speed |\n|---|\n| {value} & \\1 |\n");
        fs::write(&report, &text).unwrap();
        let status = Command::new("bash").arg(&script).arg(&report).status();
        assert!(status.unwrap().success());
        let found = fs::read_to_string(copy.path().join("docs/accelerators.md")).unwrap();
        // Below a heading of the third level.
        let inside = text.replace("\n## ", "\n##### ").replacen("# ", "#### ", 1);
        let expected = format!("{before}{BEGIN}\n{inside}\n{END}{after}");
        assert!(found == expected, "{found}");
    }
}
