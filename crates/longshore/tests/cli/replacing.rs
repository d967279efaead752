//! Goal: a restore with --replace does not touch databases in use, archives, sets at targets, and what the run itself
//! needs.
//! Method: the test's own process is the program that uses the database.

use std::path::Path;
use std::process::Stdio;

use rusqlite::{Connection, ErrorCode};

use crate::stage::{Ran, Stage};

/// A database of one row, and its backup.
fn staged(mode: &str) -> Stage {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("srv")).unwrap();
    let db = open(&stage.path("srv/app.db"));
    db.pragma_update(None, "journal_mode", mode).unwrap();
    db.execute_batch("CREATE TABLE note (text); INSERT INTO note VALUES ('old')")
        .unwrap();
    drop(db);
    stage.line("backup sqlite:srv/app.db --to app.bak").exits(0);
    stage
}

fn open(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(std::time::Duration::ZERO).unwrap();
    db
}

fn note(db: &Connection, text: &str) -> rusqlite::Result<usize> {
    db.execute("INSERT INTO note VALUES (?1)", [text])
}

fn notes(path: &Path) -> Vec<String> {
    let db = open(path);
    let mut rows = db.prepare("SELECT text FROM note ORDER BY rowid").unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

const RESTORE: &str = "restore app.bak --to srv --replace";

#[test]
fn a_database_that_a_program_uses_is_not_replaced_and_loses_no_commit() {
    for mode in ["wal", "delete"] {
        for is_writing in [false, true] {
            let stage = staged(mode);
            let path = stage.path("srv/app.db");
            let user = open(&path);
            note(&user, "before").unwrap();
            if is_writing {
                user.execute_batch("BEGIN IMMEDIATE").unwrap();
            }
            stage.line(RESTORE).exits(6).says("3101").says("in use");
            note(&user, "after").unwrap();
            if is_writing {
                user.execute_batch("COMMIT").unwrap();
            }
            drop(user);
            assert_eq!(notes(&path), ["old", "before", "after"], "{mode}");
            assert_eq!(stage.names("srv"), ["app.db"], "{mode}");
            stage.line(RESTORE).exits(0);
            assert_eq!(notes(&path), ["old"], "{mode}");
        }
    }
}

#[test]
fn a_reader_and_another_name_of_the_file_keep_a_database_from_being_replaced_too() {
    let stage = staged("wal");
    let path = stage.path("srv/app.db");
    std::fs::hard_link(&path, stage.path("alias.db")).unwrap();
    let user = open(&stage.path("alias.db"));
    user.execute_batch("BEGIN; SELECT * FROM note").unwrap();
    stage.line(RESTORE).exits(6).says("3101");
    drop(user);
    stage.line(RESTORE).exits(0);
    assert_eq!(notes(&stage.path("alias.db")), ["old"]);
}

/// Goal: a lock says enough, where the system does not tell that a file is open elsewhere.
#[test]
fn a_lock_on_its_log_alone_keeps_a_database_from_being_replaced() {
    let stage = staged("wal");
    let memory = stage.path("srv/app.db-shm");
    std::fs::write(&memory, [0; 136]).unwrap();
    let reader = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&memory)
        .unwrap();
    rustix::fs::fcntl_lock(&reader, rustix::fs::FlockOperation::LockShared).unwrap();
    stage
        .line(RESTORE)
        .exits(6)
        .says("3101")
        .says("a lock on its log");
    drop(reader);
    stage.line(RESTORE).exits(0);
}

#[test]
fn a_tree_with_a_database_in_use_is_not_replaced() {
    for place in ["srv", "srv/deep/er"] {
        let stage = staged("wal");
        let there = stage.path("host").join(place);
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::rename(stage.path("srv"), &there).unwrap();
        stage.line("backup files:host --to tree.bak").exits(0);
        let path = there.join("app.db");
        let user = open(&path);
        note(&user, "before").unwrap();
        let restore = "restore tree.bak --to host --replace";
        let named = format!("{place}/app.db");
        stage.line(restore).exits(6).says("3101").says(&named);
        drop(user);
        assert_eq!(notes(&path), ["old", "before"]);
        stage.line(restore).exits(0);
        assert_eq!(notes(&path), ["old"]);
    }
}

/// The database has no first page yet, and its journal shows what it is.
#[test]
fn the_first_transaction_of_a_new_database_keeps_it_from_being_replaced() {
    let stage = staged("delete");
    let path = stage.path("srv/app.db");
    std::fs::remove_file(&path).unwrap();
    let user = open(&path);
    user.execute_batch("BEGIN; CREATE TABLE note (text); INSERT INTO note VALUES ('new')")
        .unwrap();
    assert_eq!(path.metadata().unwrap().len(), 0);
    assert!(stage.path("srv/app.db-journal").exists());
    stage.line(RESTORE).exits(6).says("3101").says("in use");
    user.execute_batch("COMMIT").unwrap();
    drop(user);
    assert_eq!(notes(&path), ["new"]);
}

/// A restored file that has the name of a log would be taken for it.
#[test]
fn a_file_with_the_name_of_a_log_in_use_replaces_nothing() {
    let stage = staged("wal");
    stage.write("tree/app.db-wal", b"no log at all");
    // A log alone is warned of.
    stage.line("backup files:tree --to log.bak").exits(5);
    let path = stage.path("srv/app.db");
    let user = open(&path);
    note(&user, "before").unwrap();
    let restore = "restore log.bak --to srv --replace";
    stage.line(restore).exits(6).says("3101").says("app.db");
    note(&user, "after").unwrap();
    assert_eq!(notes(&path), ["old", "before", "after"]);
}

/// The program leaves while the restore waits for it.
#[test]
fn a_program_that_is_about_to_leave_does_not_end_a_restore() {
    let stage = staged("delete");
    let user = open(&stage.path("srv/app.db"));
    let words: Vec<_> = RESTORE.split(' ').collect();
    let mut restore = stage.command(&words).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    drop(user);
    assert!(restore.wait().unwrap().success());
}

#[test]
fn a_user_who_gives_up_commits_can_replace_a_database_in_use() {
    let stage = staged("wal");
    let path = stage.path("srv/app.db");
    let user = open(&path);
    note(&user, "lost").unwrap();
    stage
        .line("restore app.bak --to srv --replace-in-use")
        .exits(2);
    stage.line(&format!("{RESTORE} --replace-in-use")).exits(0);
    assert_eq!(notes(&path), ["old"]);
}

/// A program that opens the database during the restore waits, and afterwards does not continue with an unlinked file.
#[test]
fn nobody_commits_to_a_database_while_it_is_replaced() {
    let stage = staged("delete");
    let path = stage.path("srv/app.db");
    let db = open(&path);
    db.execute_batch(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 32)
         INSERT INTO note SELECT randomblob(131072) FROM n",
    )
    .unwrap();
    drop(db);
    stage
        .line("backup sqlite:srv/app.db --to large.bak")
        .exits(0);
    let words = [
        "restore",
        "large.bak",
        "--to",
        "srv",
        "--replace",
        "--max-rate",
        "1M",
    ];
    let mut restore = stage
        .command(&words)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let staging = stage.path("srv/.longshore-restoring/new/app.db");
    while !staging.exists() {
        assert!(restore.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let late = open(&path);
    let mut waited = 0;
    while restore.try_wait().unwrap().is_none() {
        let refused = note(&late, "late").unwrap_err();
        assert_ne!(refused.sqlite_error_code(), None, "{refused}");
        waited += usize::from(refused.sqlite_error_code() == Some(ErrorCode::DatabaseBusy));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(waited > 10, "{waited}");
    assert!(restore.wait().unwrap().success());
    let refused = note(&late, "late").unwrap_err();
    assert_eq!(
        refused.sqlite_error_code(),
        Some(ErrorCode::NotADatabase),
        "{refused}"
    );
    note(&open(&path), "new").unwrap();
}

#[test]
fn nothing_is_restored_over_the_files_of_a_server_that_may_run() {
    let stage = Stage::new();
    stage.write("data/base/1", b"old");
    stage.line("backup files:data --to data.bak").exits(0);
    stage.write("data/postmaster.pid", b"1234\n");
    stage
        .line("restore data.bak --to data --replace")
        .exits(6)
        .says("1234");
    stage
        .line("restore data.bak --to . --move base=data --replace")
        .exits(6)
        .says("1234");
    assert_eq!(std::fs::read(stage.path("data/base/1")).unwrap(), b"old");
    assert!(stage.path("data/postmaster.pid").exists());
}

#[test]
fn a_restore_replaces_neither_what_it_reads_nor_archives_nor_sets_nor_its_own_files() {
    let stage = Stage::new();
    stage.write("tree/a", b"a");
    stage.write("tree/b", b"b");
    stage.line("backup files:tree --to tree.bak").exits(0);
    let whole = std::fs::read(stage.path("tree.bak")).unwrap();
    std::fs::hard_link(stage.path("tree.bak"), stage.path("alias.bak")).unwrap();
    stage.write("wal/longshore-wal", b"archive");
    stage.write("wal/000000010000000000000001.zst", b"segment");
    let label = "20270131T020000Z-full-1a2b3c4d";
    stage.write(format!("target/shop/{label}/family-1.bak"), &whole);
    let refused = |words: &str| {
        stage
            .line(&format!("restore tree.bak {words} --replace"))
            .exits(6)
            .says("3156");
    };
    refused("--to . --move a=tree.bak");
    refused("--to . --move a=alias.bak");
    refused("--to wal");
    refused("--to wal/deeper");
    refused("--to wal --move a=000000010000000000000001.zst");
    refused("--to . --move a=wal");
    refused("--to . --move a=target");
    refused("--to target --move a=shop");
    refused(&format!("--to target/shop/{label} --move a=family-1.bak"));
    refused("--to . --move a=history.db");
    assert_eq!(std::fs::read(stage.path("tree.bak")).unwrap(), whole);
    assert_eq!(
        std::fs::read(stage.path("wal/longshore-wal")).unwrap(),
        b"archive"
    );
    let stripe = format!("target/shop/{label}/family-1.bak");
    assert_eq!(std::fs::read(stage.path(&stripe)).unwrap(), whole);
    // A restore may replace what it does not read, as it was told.
    stage
        .line("restore alias.bak --to elsewhere --move a=tree.bak --replace")
        .exits(0);
}

#[test]
fn a_backup_is_written_neither_into_an_archive_nor_over_a_set_nor_over_own_files() {
    let stage = Stage::new();
    stage.write("tree/a", b"a");
    stage.line("backup files:tree --to tree.bak").exits(0);
    stage.write("wal/longshore-wal", b"archive");
    stage.write("wal/000000010000000000000001.zst", b"segment");
    let stripe = "target/shop/20270131T020000Z-full-1a2b3c4d/family-1.bak";
    stage.write(stripe, &std::fs::read(stage.path("tree.bak")).unwrap());
    std::os::unix::fs::symlink(stage.path("wal"), stage.path("link")).unwrap();
    let before = std::fs::read(stage.path(stripe)).unwrap();
    for device in [
        "wal/new.bak",
        "wal/000000010000000000000001.zst",
        "link/new.bak",
        "wal/longshore-wal",
    ] {
        for how in ["", "--append", "--init", "--format"] {
            let line = format!("backup files:tree --to {device} {how}");
            stage.line(&line).exits(2).says("3201").says("WAL archive");
        }
    }
    for how in ["--append", "--init --skip", "--format"] {
        let line = format!("backup files:tree --to {stripe} {how}");
        stage.line(&line).exits(2).says("3201");
        stage
            .line(&format!("backup files:tree --to history.db {how}"))
            .exits(2)
            .says("3201");
    }
    // A second stripe would make the set one that cannot be read.
    let second = stripe.replace("family-1", "family-2");
    for how in ["", "--append", "--init", "--format"] {
        let line = format!("backup files:tree --to {second} {how}");
        stage.line(&line).exits(2).says("3201");
    }
    assert!(!stage.path(&second).exists());
    assert_eq!(std::fs::read(stage.path(stripe)).unwrap(), before);
    assert_eq!(
        stage.names("wal"),
        ["000000010000000000000001.zst", "longshore-wal"]
    );
}

/// Goal: by its name alone, whoever's target it is, an object of a target or an archive in a bucket is no device, however it
/// is disposed of; and no request is made to learn that.
#[test]
fn a_backup_is_written_neither_over_a_set_nor_into_an_archive_in_a_bucket() {
    let stage = Stage::new();
    stage.write("tree/a", b"a");
    let set = "s3://bucket/p/shop/20270131T020000Z-full-1a2b3c4d";
    for object in [
        format!("{set}/family-1.bak"),
        format!("{set}/family-2.bak"),
        format!("{set}/.removing"),
        set.to_uppercase().replace("S3://BUCKET", "s3://bucket") + "/FAMILY-1.BAK",
        "S3://bucket/p/shop/.longshore-relies-1".to_owned(),
        "s3://bucket/wal/longshore-wal".to_owned(),
        "s3://bucket/wal/0000000100000000/000000010000000000000001.zst".to_owned(),
        "s3://bucket/wal/needs/1a2b3c4d5e6f4a7e9e8c1f6f3a0f7f11.1a2b3c4d5e6f4a7e9e8c1f6f3a0f7f12"
            .to_owned(),
        "s3://bucket/wal/needs/known".to_owned(),
        "s3://bucket/wal/refused".to_owned(),
    ] {
        for how in ["", "--init", "--init --skip", "--format"] {
            let line = format!("backup files:tree --to {object} {how}");
            let said = stage.line(&line).exits(2).says("error 3201");
            said.says("longshore backup --target NAME");
        }
    }
    // A name of another form is somebody's own.
    let line = "backup files:tree --to s3://bucket/p/shop/1.bak --format";
    let mut command = stage.command(&line.split(' ').collect::<Vec<_>>());
    command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    Ran::of(&command.output().unwrap()).says("LONGSHORE_ALLOW_HTTP");
}

/// The first one is stopped in the middle, so that it holds its directory however long the second one takes.
#[test]
fn of_two_restores_into_one_directory_the_second_is_refused() {
    let stage = Stage::new();
    stage.write("tree/big", &vec![7; 6 << 20]);
    stage.line("backup tree --to a.bak").exits(0);
    let slow = ["restore", "a.bak", "--max-rate", "1M", "--to", "back"];
    let mut child = stage.command(&slow).spawn().unwrap();
    let began = std::time::Instant::now();
    let staged = stage.path("back/.longshore-restoring/new");
    while !staged.exists() {
        assert!(began.elapsed().as_secs() < 60, "it does not begin");
        assert!(child.try_wait().unwrap().is_none(), "it ended first");
    }
    let send = |signal| {
        // SAFETY: `kill` demands the id of a process that is ours: the child was not waited for yet, so it is still its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    };
    send(libc::SIGSTOP);
    let second = stage.line("restore a.bak --to back");
    send(libc::SIGCONT);
    let first = child.wait().unwrap();
    second.exits(6).says("another restore");
    assert!(first.success());
    let back = std::fs::read(stage.path("back/big")).unwrap();
    assert_eq!(back, vec![7; 6 << 20]);
}

#[test]
fn format_overwrites_neither_the_log_nor_the_journal_of_a_database() {
    for (mode, side) in [("wal", "srv/app.db-wal"), ("delete", "srv/app.db-journal")] {
        let stage = staged(mode);
        let user = open(&stage.path("srv/app.db"));
        user.execute_batch("PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE note SET text = 'x'")
            .unwrap();
        note(&user, &"y".repeat(100_000)).unwrap();
        if mode == "wal" {
            user.execute_batch("COMMIT").unwrap();
        }
        let before = std::fs::read(stage.path(side)).unwrap();
        stage
            .line(&format!("backup files:app.bak --to {side} --format"))
            .exits(4);
        assert_eq!(std::fs::read(stage.path(side)).unwrap(), before);
    }
}

#[test]
fn a_size_of_buffers_that_a_set_does_not_have_is_said_to_have_no_effect() {
    let stage = Stage::new();
    stage.write("tree/a", b"a");
    stage
        .line("backup files:tree --to tree.bak --max-transfer-size 256K")
        .exits(0);
    let none = "MAXTRANSFERSIZE has no effect here";
    for command in ["verify tree.bak", "restore tree.bak --to out --replace"] {
        stage
            .line(&format!("{command} --max-transfer-size 1M"))
            .exits(0)
            .says(none);
        let same = stage
            .line(&format!("{command} --max-transfer-size 256K"))
            .exits(0);
        let plain = stage.line(command).exits(0);
        assert!(!same.err.contains(none) && !plain.err.contains(none));
    }
}

/// SQLite takes what has these names for the history's own log, and removes it when it makes the history.
#[test]
fn nothing_is_written_where_a_history_has_its_log_even_before_there_is_a_history() {
    let stage = staged("delete");
    std::fs::create_dir(stage.path("state")).unwrap();
    for catalog in ["state/new.db", "nowhere/new.db"] {
        for suffix in ["wal", "journal", "shm"] {
            stage
                .line(&format!(
                    "backup sqlite:srv/app.db --to {catalog}-{suffix} --catalog {catalog}"
                ))
                .exits(2)
                .says("3201");
        }
    }
    stage
        .line("restore app.bak --to state --move app.db=new.db-journal --catalog state/new.db")
        .exits(6)
        .says("3156");
    // The restore failed, which is in the history now, whose log is its own.
    assert_eq!(stage.all_names("state"), ["new.db"]);
}
