//! The independent reader, written from docs/format.md alone, restores what the program wrote.

use std::path::Path;

use crate::stage::{BINARY, Stage};

#[test]
fn the_independent_reader_restores_every_algorithm_without_our_code() {
    let stage = Stage::new();
    stage.database("tree/app.db", 3);
    stage.write("tree/with space/empty", b"");
    stage.write("tree/zeros", &vec![0; 2 << 20]);
    std::os::unix::fs::symlink("nowhere", stage.path("tree/link")).unwrap();
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let reader = reader.display();
    assert!(Path::new(BINARY).exists());
    for algorithm in ["NONE", "MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4"] {
        let to = format!("--to {algorithm}-1 --to {algorithm}-2 --to {algorithm}-3");
        stage.write("tree/version", b"one");
        stage
            .line(&format!("backup tree {to} -a {algorithm}"))
            .exits(0);
        stage.shell("rm -rf first && cp -a tree first").exits(0);
        stage.write("tree/version", b"two");
        stage
            .line(&format!("backup tree {to} -a {algorithm} --append"))
            .exits(0);
        let stripes = format!("{algorithm}-3 {algorithm}-1 {algorithm}-2");
        stage
            .shell(&format!("python3 {reader} verify {stripes}"))
            .exits(0);
        stage
            .shell(&format!(
                "rm -rf out && python3 {reader} restore --position 1 --to out {stripes}
                 diff -r --no-dereference first out"
            ))
            .exits(0);
    }
}
