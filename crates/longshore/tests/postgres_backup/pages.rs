//! Pages that are damaged in the origin.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use longshore_kit::{Stop, installations};

use crate::common::{answer, text};
use crate::stage::{Stage, end, paths};

/// Changes bytes of a table's file while the server is down.
pub fn damage(stage: &Stage, table: &str, block: u64, at: u64, bytes: &[u8]) -> PathBuf {
    let server = &stage.server;
    let name = server.psql(&format!("select pg_relation_filepath('{table}')"));
    let path = server.data_dir().join(name);
    server.stop(Stop::Fast);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(bytes, block * 8192 + at).unwrap();
    server.start();
    path
}

#[test]
fn a_damaged_page_is_named_and_marks_the_set_and_ends_the_backup_only_on_request() {
    for installation in installations() {
        let stage = Stage::new(&installation, &[]);
        stage
            .server
            .psql("create table t as select g, repeat('x', 500) from generate_series(1, 5000) g");
        let path = damage(&stage, "t", 7, 4000, b"!");
        let block = format!("{}: block 7 is damaged", path.display());

        let output = end(stage.backup("bad.bak").arg("--json"), 5);
        let report = answer(&output);
        assert_eq!(report["damaged"], true);
        let warnings = report["run"]["warnings"].to_string();
        assert!(warnings.contains(&block), "{warnings}");
        assert!(paths(&stage.path("bad.bak")).len() > 100);

        let output = end(stage.backup("not.bak").arg("--fail-on-bad-page"), 3);
        assert!(text(&output.stderr).contains(&block));
        assert!(!stage.path("not.bak").exists());
    }
}

/// A header with a false LSN does not hide the damage: no page is newer than the WAL.
#[test]
fn a_damaged_header_does_not_hide_a_page() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    stage
        .server
        .psql("create table t as select g, repeat('x', 500) from generate_series(1, 5000) g");
    damage(&stage, "t", 3, 0, &[0xff; 8]);
    damage(&stage, "t", 4, 0, &[0; 24]);
    let output = end(stage.backup("bad.bak").arg("--json"), 5);
    let warnings = answer(&output)["run"]["warnings"].to_string();
    assert!(warnings.contains("block 3 is damaged"), "{warnings}");
    assert!(warnings.contains("block 4 is damaged"), "{warnings}");
}
