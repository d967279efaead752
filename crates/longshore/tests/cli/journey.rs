//! Goal: there and back: a restore returns what was backed up, through stripes, pipes, positions and moves, and the
//! history knows of it.
//! Method: the real program on SQLite databases and trees; `cmp`, `diff` and SQLite compare the results.
//! Not covered: PostgreSQL clusters.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::stage::{Stage, rows};

#[test]
fn a_database_goes_out_in_stripes_of_any_algorithm_and_comes_back_byte_for_byte() {
    let stage = Stage::new();
    let source = stage.database("app.db", 6);
    for algorithm in ["NONE", "MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4", "PAGES"] {
        for level in ["LOW", "HIGH"] {
            let name = format!("{algorithm}-{level}");
            let stripes = format!("{name}-1.bak {name}-2.bak {name}-3.bak");
            let to = stripes.replace(' ', " --to ");
            stage
                .line(&format!(
                    "backup app.db --to {to} -a {algorithm} --level {level} --verify"
                ))
                .exits(0)
                .says("Backup of app finished: ");
            stage
                .line(&format!("verify {stripes}"))
                .exits(0)
                .says("The backup set on file 1 is valid.")
                .says("Verification of app finished: ");
            // Any order will do.
            stage
                .line(&format!(
                    "restore {name}-3.bak {name}-1.bak {name}-2.bak --to {name}"
                ))
                .exits(0)
                .says("Restore of app finished: ");
            let restored = stage.path(&name).join("app.db");
            assert_eq!(
                std::fs::read(&source).unwrap(),
                std::fs::read(restored).unwrap()
            );
        }
    }
}

#[test]
fn a_database_in_use_comes_back_as_one_committed_moment() {
    let stage = Stage::new();
    let source = stage.database("app.db", 4);
    let writer = rusqlite::Connection::open(&source).unwrap();
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    writer
        .execute("INSERT INTO item VALUES (1000000, 'in the log', x'00')", [])
        .unwrap();
    writer
        .execute_batch("BEGIN; DELETE FROM item WHERE id < 500")
        .unwrap();
    stage.line("backup app.db --to a.bak").exits(0);
    writer.execute_batch("ROLLBACK").unwrap();
    stage.line("restore a.bak --to out").exits(0);
    let restored = rows(&stage.path("out/app.db"));
    assert_eq!(restored.len(), 4 * 1024 + 1);
    drop(writer);
    assert_eq!(restored, rows(&source));
    assert_eq!(stage.names("out"), ["app.db"]);
}

#[test]
fn a_tree_with_odd_names_comes_back_as_diff_sees_it() {
    let stage = Stage::new();
    let odd = OsStr::from_bytes(b"caf\xe9 \n x");
    stage.write("tree/empty", b"");
    stage.write("tree/with space/deep/er", &[7; 3_000_000]);
    stage.write(std::path::Path::new("tree").join(odd), b"latin-1 name");
    std::os::unix::fs::symlink("../elsewhere", stage.path("tree/link")).unwrap();
    std::fs::hard_link(
        stage.path("tree/with space/deep/er"),
        stage.path("tree/same"),
    )
    .unwrap();
    for name in ["tree/again", "tree/with space/deep/too"] {
        std::fs::hard_link(stage.path("tree/same"), stage.path(name)).unwrap();
    }
    let dated = Command::new("touch")
        .args(["--no-dereference", "--date=@1000000000"])
        .arg(stage.path("tree/link"))
        .status();
    assert!(dated.unwrap().success());
    stage.line("backup tree --to a.bak --to b.bak").exits(0);
    stage.line("restore a.bak b.bak --to out").exits(0);
    let seen = |name: &str| std::fs::symlink_metadata(stage.path(name)).unwrap();
    assert_eq!(seen("out/link").mtime(), 1_000_000_000);
    assert_eq!(seen("out/same").nlink(), 4);
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([stage.path("tree"), stage.path("out")])
        .output()
        .unwrap();
    assert!(
        diff.status.success(),
        "{}",
        String::from_utf8_lossy(&diff.stdout)
    );
    let listed = stage.line("list a.bak b.bak --files").exits(0);
    assert!(
        !listed.out.contains("caf\u{e9} \n"),
        "a newline in a name starts no line"
    );

    // One odd name alone, given as raw bytes, on a device with an odd name.
    let mut only = stage.command(&["restore", "a.bak", "b.bak", "--to", "one", "--only"]);
    assert!(only.arg(odd).status().unwrap().success());
    assert_eq!(stage.names("one").len(), 1);
    let device = OsStr::from_bytes(b"odd\xff.bak");
    let mut to = stage.command(&["backup", "app", "--to"]);
    stage.write("app", b"x");
    assert!(to.arg(device).status().unwrap().success());
    assert!(stage.path(device).exists());
}

#[test]
fn an_empty_tree_comes_back_as_an_empty_directory() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("tree")).unwrap();
    stage.line("backup tree --to a.bak").exits(0);
    stage.line("restore a.bak --to out/there").exits(0);
    assert_eq!(stage.names("out"), ["there"]);
    assert!(stage.names("out/there").is_empty());
}

/// Goal: the limit on open files does not limit how many small files a backup takes.
/// Method: a limit far below the number of files in one block, and a few for each worker.
#[test]
fn thousands_of_small_files_need_few_descriptors() {
    let stage = Stage::new();
    for i in 0..6000 {
        stage.write(format!("tree/{i}"), format!("file {i}").as_bytes());
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    let limit = 64 + 8 * cores;
    for line in [
        "backup tree --to a.bak",
        "verify a.bak",
        "restore a.bak --to out",
    ] {
        stage
            .shell(&format!("ulimit -n {limit} && longshore {line}"))
            .exits(0);
    }
    stage.shell("diff -r tree out").exits(0);
}

#[test]
fn a_backup_through_a_pipe_puts_nothing_but_the_stripe_on_standard_output() {
    let stage = Stage::new();
    stage.database("app.db", 3);
    stage
        .shell("longshore backup app.db --to - --verbose | longshore restore - --to out")
        .exits(0)
        .says("Backup of app finished: ")
        .says("BufferCount:");
    stage.shell("cmp app.db out/app.db").exits(0);
    // With --json too: stock gzip finds the database and nothing else.
    stage
        .shell("longshore backup app.db --to - --json 2>answer | gzip -dc | cmp - app.db")
        .exits(0);
    let answer = std::fs::read_to_string(stage.path("answer")).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["status"], "ok");
}

#[test]
fn sets_are_appended_listed_and_restored_by_position() {
    let stage = Stage::new();
    stage.write("file", b"first");
    stage
        .line("backup file --to a.bak --to b.bak --name one")
        .exits(0);
    stage.write("file", b"second");
    stage
        .line("backup file --to a.bak --to b.bak")
        .exits(4)
        .says("--append");
    stage
        .line("backup file --to a.bak --to b.bak --append --name two")
        .exits(0);
    stage
        .line("list a.bak b.bak")
        .exits(0)
        .says("one")
        .says("two");
    stage.line("restore a.bak b.bak --to last").exits(0);
    stage
        .line("restore a.bak b.bak --to first --position 1")
        .exits(0);
    assert_eq!(std::fs::read(stage.path("last/file")).unwrap(), b"second");
    assert_eq!(std::fs::read(stage.path("first/file")).unwrap(), b"first");
    stage
        .line("restore a.bak b.bak --to x --position 3")
        .exits(4)
        .says("3287");

    stage
        .line("backup file --to a.bak --to b.bak --init --retain-days 5")
        .exits(0);
    stage.line("list a.bak b.bak --position 1").exits(0);
    stage.line("list a.bak b.bak --position 2").exits(4);
    stage
        .line("backup file --to a.bak --to b.bak --init")
        .exits(4)
        .says("4030");
    stage
        .line("backup file --to a.bak --to b.bak --init --skip")
        .exits(0);
    stage.line("backup file --to a.bak --format").exits(0);
    stage.line("list a.bak b.bak").exits(4).says("3258");
}

#[test]
fn a_restore_moves_replaces_and_never_overwrites_unasked() {
    let stage = Stage::new();
    stage.write("tree/sub/a", b"a");
    stage.write("tree/sub/b", b"b");
    stage.line("backup tree --to t.bak").exits(0);
    stage.write("out/other", b"mine");
    let restore = "restore t.bak --to out --move sub=copy";
    stage.line(restore).exits(0);
    assert_eq!(stage.names("out"), ["copy", "other"]);
    stage.write("out/copy/a", b"changed");
    stage.line(restore).exits(6).says("3142");
    assert_eq!(std::fs::read(stage.path("out/copy/a")).unwrap(), b"changed");
    stage.line(&format!("{restore} --replace")).exits(0);
    assert_eq!(std::fs::read(stage.path("out/copy/a")).unwrap(), b"a");
    stage.line("restore t.bak --to one --only sub/b").exits(0);
    assert_eq!(stage.names("one/sub"), ["b"]);
    stage
        .line("restore t.bak --to two --only sub/c")
        .exits(2)
        .says("3234");
    stage
        .line("restore t.bak --to two --move sub=../up")
        .exits(2)
        .says("3156");
    assert!(!stage.path("two/sub").exists() && !stage.path("up").exists());
}

#[test]
fn history_knows_backups_and_restores_and_is_relearned_from_media() {
    let stage = Stage::new();
    stage.write("file", b"content");
    stage.line("history").exits(0);
    assert!(!stage.path("history.db").exists(), "asking creates nothing");
    stage
        .line("backup file --to a.bak --to b.bak -a ZSTD")
        .exits(0);
    stage.line("restore a.bak b.bak --to out").exits(0);
    let backups = stage.line("history --json").exits(0);
    stage.line("history").exits(0).says("ZSTD").says("a.bak");
    stage.line("history --restores").exits(0).says("out");
    stage.line("history --database other").exits(0);
    let before: serde_json::Value = serde_json::from_str(&backups.out).unwrap();
    assert_eq!(before["rows"].as_array().map(Vec::len), Some(1));

    std::fs::remove_file(stage.path("history.db")).unwrap();
    stage
        .line("catalog rebuild b.bak a.bak")
        .exits(0)
        .says("1 backup sets added");
    stage
        .line("catalog rebuild b.bak a.bak")
        .exits(0)
        .says("0 backup sets added, 1 already known");
    let after = stage.line("history --json").exits(0);
    let after: serde_json::Value = serde_json::from_str(&after.out).unwrap();
    for fact in [
        "set",
        "database",
        "size_bytes",
        "compressed_bytes",
        "algorithm",
        "file_count",
    ] {
        assert!(!before["rows"][0][fact].is_null(), "{fact}");
        assert_eq!(before["rows"][0][fact], after["rows"][0][fact], "{fact}");
    }
}
