//! Goal: SQLite databases and trees of files have differential backups, at targets and on devices, as clusters have.
//! Method: the program runs over a configured database and a tree that change between backups; what is restored is
//! compared with the source.
//! Not covered: which bytes are stored (`differing.rs` of the pipeline), and clusters (`postgres_backup`).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common::succeed;
use crate::repository::configured;
use crate::stage::{Ran, Stage, damage, rows};

fn change(stage: &Stage, sql: &str) {
    let db = rusqlite::Connection::open(stage.path("app.db")).unwrap();
    db.execute_batch(sql).unwrap();
}

fn table(stage: &Stage) -> String {
    let db = rusqlite::Connection::open(stage.path("app.db")).unwrap();
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 1";
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn labels(stage: &Stage) -> Vec<String> {
    match stage.path("disk1/sales").exists() {
        true => stage.names("disk1/sales"),
        false => Vec::new(),
    }
}

/// The label that the command has added.
fn added(stage: &Stage, line: &str) -> (String, Ran) {
    let before: BTreeSet<String> = labels(stage).into_iter().collect();
    let ran = stage.line(line).exits(0);
    let label = labels(stage).into_iter().find(|l| !before.contains(l));
    (label.expect("a new backup"), ran)
}

#[test]
fn a_database_at_a_target_has_differential_and_incremental_backups() {
    let stage = configured();
    let table = table(&stage);
    let delete = |rest: u32| {
        change(
            &stage,
            &format!("DELETE FROM {table} WHERE rowid % 50 = {rest}"),
        )
    };
    let (first, _) = added(&stage, "backup sales");
    delete(1);
    let (differential, ran) = added(&stage, "backup sales --differential");
    ran.says("differs from set").says("page sums");
    let before = rows(&stage.path("app.db"));
    delete(2);
    let (incremental, _) = added(&stage, "backup sales --incremental");
    // A stripe takes a block when its disk has time, so one of them may have none.
    let size = |label: &str| -> u64 {
        let stripes = [1, 2].map(|n| stage.path(format!("disk{n}/sales/{label}/family-{n}.bak")));
        stripes
            .map(|path| std::fs::metadata(path).unwrap().len())
            .iter()
            .sum()
    };
    assert!(size(&incremental) < size(&first));

    stage.line("restore --database sales --to newest").exits(0);
    assert!(rows(&stage.path("newest/app.db")) == rows(&stage.path("app.db")));
    let line = format!("restore --database sales --label {differential} --to older");
    stage.line(&line).exits(0);
    assert!(rows(&stage.path("older/app.db")) == before);
    std::fs::create_dir(stage.path("work")).unwrap();
    stage
        .line("drill sales --work work")
        .exits(0)
        .says("is good");
    let info = stage.line("info sales").exits(0);
    info.says(" full ").says(" diff ").says(" incr ");
    stage.line("verify --database sales").exits(0);
    stage.line("check sales").exits(0);

    // A backup that a retained one needs stays.
    stage.line("backup sales").exits(0);
    stage
        .line("expire sales --keep-full 2")
        .exits(0)
        .says("0 backups");
    stage.line("backup sales").exits(0);
    stage
        .line("expire sales --keep-full 2")
        .exits(0)
        .says("3 backups");
}

#[test]
fn a_tree_has_differential_backups_with_and_without_a_target() {
    let stage = configured();
    let refused = stage.line("backup docs --differential").exits(4);
    refused
        .says("no backup of docs that can be the base")
        .says("--or-full");
    stage
        .line("backup docs --differential --or-full")
        .exits(0)
        .says("full backup");
    stage.write("tree/a/c", b"more");
    stage
        .line("backup docs --differential")
        .exits(0)
        .says("1 files that the base has");
    stage.line("restore --database docs --to docs").exits(0);
    let read = |name: &str| std::fs::read(stage.path(name)).unwrap();
    assert_eq!(
        (read("docs/a/b"), read("docs/a/c")),
        (b"content".to_vec(), b"more".to_vec())
    );

    let files = format!("files:{}", stage.path("tree").display());
    stage
        .line(&format!("backup {files} --to full.bak"))
        .exits(0);
    let line = format!("backup {files} --to diff.bak --differential --base full.bak");
    stage.line(&line).exits(4).says("holds no page sums");
    let line = format!("backup {files} --to full.bak --init --page-sums");
    stage.line(&line).exits(0);
    stage.write("tree/a/b", b"new");
    let line = format!("backup {files} --to diff.bak --differential");
    stage.line(&line).exits(2).says("--base");
    stage.line(&format!("{line} --base full.bak")).exits(0);
    let line = format!("backup {files} --to full.bak --append --incremental");
    stage.line(&line).exits(0);
    stage.line("restore diff.bak --to alone").exits(4);
    stage
        .line("restore diff.bak --base full.bak --to both")
        .exits(0);
    assert_eq!(
        (read("both/a/b"), read("both/a/c")),
        (b"new".to_vec(), b"more".to_vec())
    );
    stage
        .line("restore full.bak --position 2 --to appended")
        .exits(0);
    assert_eq!(read("appended/a/b"), b"new");
}

/// Goal: a backup of another source under the same name is no base, and neither is a damaged one.
#[test]
fn the_base_is_a_sound_backup_of_the_same_source() {
    let stage = configured();
    let (first, _) = added(&stage, "backup sales");
    std::fs::rename(stage.path("app.db"), stage.path("other.db")).unwrap();
    let url = format!("sqlite:{}", stage.path("other.db").display());
    let line = format!("backup {url} --database sales --target nightly --differential");
    let refused = stage.line(&line).exits(4);
    refused.says("is of another source");
    std::fs::rename(stage.path("other.db"), stage.path("app.db")).unwrap();
    let (second, _) = added(&stage, "backup sales --differential");

    damage(&stage.path(format!("disk2/sales/{first}/family-2.bak")));
    let out = stage.line("restore --database sales --to out");
    assert_ne!(out.code, 0, "{}", out.out);
    std::fs::remove_file(stage.path(format!("disk1/sales/{first}/family-1.bak"))).unwrap();
    let out = stage.line("restore --database sales --to out");
    assert_ne!(out.code, 0, "{}", out.out);
    // Labels of one second are not in the order of time.
    let is_named = [first, second].iter().any(|label| out.err.contains(label));
    assert!(is_named, "{}", out.err);
    stage.line("backup sales --incremental").exits(4);
}

/// Goal: the independent reader, written from docs/format.md alone, restores the same files, with pages that are not whole.
#[test]
fn the_independent_reader_puts_a_chain_of_files_together() {
    let stage = Stage::new();
    for (name, len) in [("short", 100), ("whole", 16_384), ("odd", 50_001)] {
        stage.write(format!("tree/{name}"), &vec![b'x'; len]);
    }
    let files = format!("files:{}", stage.path("tree").display());
    stage
        .line(&format!("backup {files} --to full.bak --page-sums"))
        .exits(0);
    let mut odd = vec![b'x'; 50_001];
    odd[50_000] = b'y';
    stage.write("tree/odd", &odd);
    stage.write("tree/whole", &vec![b'x'; 16_383]);
    stage
        .line(&format!(
            "backup {files} --to diff.bak --differential --base full.bak"
        ))
        .exits(0);
    let reader =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reader/longshore_reader.py");
    let restore = |name: &str, more: &[&str]| {
        let mut command = Command::new("python3");
        command
            .arg(&reader)
            .args(["restore", "--to"])
            .arg(stage.path(format!("{name}.read")));
        command.args(more).arg(stage.path(format!("{name}.bak")));
        succeed(&mut command);
    };
    restore("full", &[]);
    let parent = stage.path("full.read");
    restore("diff", &["--parent", parent.to_str().unwrap()]);
    for name in ["short", "whole", "odd"] {
        let read = |dir: &str| std::fs::read(stage.path(format!("{dir}/{name}"))).unwrap();
        assert!(read("diff.read") == read("tree"), "{name}");
    }
}
