//! The commands of README.md run.
//!
//! Fenced blocks marked `sh run` are run one after the other in one directory that holds `app.db` and a
//! tree `data`; what they promise is what they do.

use std::path::Path;

use crate::stage::Stage;

#[test]
fn the_commands_of_the_readme_run_in_order() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let stage = Stage::new();
    stage.database("app.db", 4);
    stage.write("data/etc/app.conf", b"key = value\n");
    for dir in ["a", "b"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let mut blocks = 0;
    for block in text.split("\n```sh run\n").skip(1) {
        let commands = block.split("\n```").next().unwrap();
        stage.shell(commands).exits(0);
        blocks += 1;
    }
    assert!(blocks >= 4, "README.md has {blocks} blocks marked `sh run`");
}
