//! Goal: the exit codes 0 to 6 are each caused by a command, together with the message that explains the code.
//! Method: the real program in a scratch directory, on files, SQLite databases and damaged media.
//! Not covered: 7 and 200, of WAL archives (`wal/failover.rs`, `postgres_restore/buckets.rs`), 130, of signals
//! (`interrupt.rs`), and 70, of bugs.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::stage::{Stage, damage};

fn stage_with_backup() -> Stage {
    let stage = Stage::new();
    stage.database("app.db", 3);
    stage.line("backup app.db --to a.bak --to b.bak").exits(0);
    stage
}

#[test]
fn help_and_version_are_not_failures() {
    let stage = Stage::new();
    for args in ["--help", "-h", "--version", "backup --help", "help restore"] {
        assert!(!stage.line(args).exits(0).out.is_empty(), "{args}");
    }
    let mut version = stage.command(&["--version"]);
    let output = version.env("LONGSHORE_ISAL", "off").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("isa-l not found"), "{said}");
}

#[test]
fn damage_is_the_answer_no_and_not_a_failure_to_answer() {
    let stage = stage_with_backup();
    damage(&stage.path("b.bak"));
    let ran = stage
        .line("verify a.bak b.bak")
        .exits(1)
        .says("3189")
        .says("b.bak");
    assert!(ran.err.contains("hint: "));
    stage
        .line("restore a.bak b.bak --to out")
        .exits(4)
        .says("3189");
    assert!(!stage.path("out/app.db").exists());
    // Not even a label survives.
    let mut bytes = std::fs::read(stage.path("a.bak")).unwrap();
    bytes[30] ^= 0x10;
    stage.write("a.bak", &bytes);
    stage
        .line("verify a.bak b.bak")
        .exits(1)
        .says("3241")
        .says("a.bak");
}

#[test]
fn an_unknown_argument_is_a_usage_error() {
    let stage = stage_with_backup();
    for line in [
        "",
        "unload",
        "backup",
        "backup app.db",
        "backup app.db --to x.bak --targt y",
        "backup app.db --to x.bak --algorithm RAR",
        "backup app.db --to x.bak --algorithm ZSTD --level 99",
        "backup app.db --to x.bak --max-transfer-size 100K",
        "backup app.db --to x.bak --buffer-count 0",
        "backup app.db --to x.bak --max-cpu 0",
        "backup app.db --to x.bak --append --init",
        "backup app.db --to x.bak --skip",
        "backup app.db --to x.bak --quiet --verbose",
        "backup app.db --to nul: --verify",
        "backup app.db --target nightly",
        "restore a.bak b.bak",
        "restore --to out",
        "restore a.bak b.bak --to out --position 0",
        "list a.bak b.bak --label-only --files",
        "--config nowhere.toml list a.bak b.bak",
    ] {
        let ran = stage.line(line).exits(2);
        assert!(ran.out.is_empty(), "{line}: {}", ran.out);
        assert!(!ran.err.is_empty(), "{line}");
        assert!(!stage.path("x.bak").exists(), "{line}");
    }
}

#[test]
fn a_source_that_cannot_be_read_is_named() {
    let stage = Stage::new();
    stage
        .line("backup nowhere.db --to x.bak")
        .exits(3)
        .says("nowhere.db")
        .says("hint: ");
    stage.line("backup sqlite:nowhere.db --to x.bak").exits(3);
    stage.write("text.db", b"this is no database, however it is called");
    stage
        .line("backup sqlite:text.db --to x.bak")
        .exits(3)
        .says("text.db");
    assert!(!stage.path("x.bak").exists());
}

#[test]
fn media_that_do_not_fit_together_are_named_with_their_message_number() {
    let stage = stage_with_backup();
    stage.line("backup app.db --to c.bak --to d.bak").exits(0);
    stage.write("empty.bak", b"");
    stage.write(
        "text.bak",
        b"no stripe at all, whatever its name may say, is in this file",
    );
    for (devices, number, names) in [
        ("a.bak d.bak", "3258", "d.bak"),
        ("a.bak a.bak", "3227", "a.bak"),
        ("a.bak nowhere.bak", "3201", "nowhere.bak"),
        ("a.bak empty.bak", "3254", "empty.bak"),
        ("a.bak text.bak", "3241", "text.bak"),
    ] {
        let ran = stage.line(&format!("list {devices}")).exits(4);
        let first = ran.err.lines().next().unwrap_or_default();
        let head = format!("longshore: error {number}: ");
        assert!(
            first.starts_with(&head) && first.contains(names),
            "{devices}: {}",
            ran.err
        );
        assert!(ran.err.contains("\nhint: "), "{}", ran.err);
        stage.line(&format!("restore {devices} --to out")).exits(4);
        assert!(!stage.path("out").exists() || stage.names("out").is_empty());
    }
    // One stripe tells of the sets, and is no backup.
    for list in ["list b.bak", "list b.bak --files"] {
        stage
            .line(list)
            .exits(5)
            .says("these stripes were not named: family 1.");
    }
    for refused in ["verify b.bak", "restore b.bak --to out"] {
        let ran = stage.line(refused).exits(4);
        ran.says("3132").says("family 1");
    }
    assert!(!stage.path("out").exists() || stage.names("out").is_empty());
    stage
        .line("backup app.db --to no/such/directory/x.bak")
        .exits(4)
        .says("no/such/directory");
}

#[test]
fn a_history_that_cannot_be_written_is_a_warning_and_the_backup_stands() {
    let stage = Stage::new();
    stage.write("file", b"content");
    stage.write(
        "history.db",
        b"something else entirely, and quite a lot of it, really",
    );
    stage
        .line("backup file --to a.bak")
        .exits(5)
        .says("3009")
        .says("file is not a database");
    let verified = stage.line("verify a.bak").exits(0);
    verified.says("note: this run is not in the history (3009)");
    stage.line("restore a.bak --to out").exits(5).says("3009");
    assert_eq!(std::fs::read(stage.path("out/file")).unwrap(), b"content");
    stage.line("backup file --to b.bak --catalog none").exits(0);
}

#[test]
fn a_file_that_changes_meanwhile_marks_the_set_or_fails_the_backup() {
    let stage = Stage::new();
    stage.write("tree/quiet", b"still");
    stage.write("tree/log", &vec![b'x'; 4 << 20]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = std::fs::OpenOptions::new()
                .append(true)
                .open(stage.path("tree/log"))
                .unwrap();
            while !stop.load(Ordering::Relaxed) {
                log.write_all(b"another line\n").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let marked = stage.line("backup tree --to a.bak --max-rate 8M");
        let failed = stage.line("backup tree --to b.bak --max-rate 8M --on-change fail");
        stop.store(true, Ordering::Relaxed);
        marked.exits(5).says("log ");
        failed.exits(3).says("log ");
    });
    assert!(!stage.path("b.bak").exists());
    stage.line("list a.bak").exits(0).says("marked");
    stage
        .line("verify a.bak")
        .exits(0)
        .says("files changed while it was made");
    stage.line("restore a.bak --to out").exits(5);
    assert_eq!(std::fs::read(stage.path("out/quiet")).unwrap(), b"still");
}

#[test]
fn a_target_that_refuses_is_not_the_medias_fault() {
    let stage = stage_with_backup();
    stage.write("out/app.db", b"mine");
    stage
        .line("restore a.bak b.bak --to out")
        .exits(6)
        .says("3142")
        .says("--replace");
    assert_eq!(std::fs::read(stage.path("out/app.db")).unwrap(), b"mine");
    stage.write("plain", b"a file, not a directory");
    stage.line("restore a.bak b.bak --to plain/out").exits(6);
}

#[test]
fn a_rebuild_says_what_it_could_not_learn() {
    let stage = Stage::new();
    stage.write("file", b"content");
    stage.line("backup file --to a.bak -a ZSTD").exits(0);
    let first_end = std::fs::metadata(stage.path("a.bak")).unwrap().len() as usize;
    stage
        .line("backup file --to a.bak -a ZSTD --append")
        .exits(0);
    let mut bytes = std::fs::read(stage.path("a.bak")).unwrap();
    bytes[first_end + 60] ^= 0x10;
    std::fs::write(stage.path("a.bak"), bytes).unwrap();
    std::fs::remove_file(stage.path("history.db")).unwrap();
    stage
        .line("catalog rebuild a.bak")
        .exits(5)
        .says("1 backup sets added")
        .says("not added")
        .says("a.bak");
    let answer = stage.line("catalog rebuild a.bak --json").exits(5);
    let answer: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(
        answer["unreadable"].as_array().map(Vec::len),
        Some(1),
        "{answer}"
    );
}

#[test]
fn format_overwrites_neither_what_is_backed_up_nor_a_database() {
    let stage = Stage::new();
    stage.database("other.db", 3);
    std::fs::write(stage.path("plain"), "kept").unwrap();
    for to in ["plain", "other.db"] {
        let before = std::fs::read(stage.path(to)).unwrap();
        let said = stage
            .line(&format!("backup plain --to {to} --format"))
            .exits(4)
            .err;
        assert!(said.contains("error 3201"), "{said}");
        assert_eq!(std::fs::read(stage.path(to)).unwrap(), before);
    }
}
