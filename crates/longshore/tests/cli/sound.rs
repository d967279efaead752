//! Goal: a backup that is known not to be good takes no good one's place: no rule counts it, no differential is built on it,
//! and nothing calls it the last good one or proposes it.
//! Method: the program runs over a configured database; a stripe of the newest full backup is damaged and verified.
//! A drill that can check a part of a database only says nothing against it.
//! Not covered: windows of a server's WAL, and recoveries (`repository/tests/recovering.rs`).

use serde_json::Value;

use crate::repository::configured;
use crate::stage::{Stage, damage};

fn labels(stage: &Stage) -> Vec<String> {
    stage.names("disk1/sales")
}

fn last_good(stage: &Stage) -> Value {
    let told: Value = serde_json::from_str(&stage.line("info sales --json").out).unwrap();
    told["databases"][0]["last_good"].clone()
}

/// Three full backups, the newest with a damaged stripe; their labels.
fn with_damage(stage: &Stage) -> Vec<String> {
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let all = labels(stage);
    let stripe = stage.path(format!("disk1/sales/{}/family-1.bak", all[2]));
    std::fs::copy(&stripe, stage.path("before.bak")).unwrap();
    damage(&stripe);
    all
}

#[test]
fn a_backup_that_was_found_damaged_takes_no_good_ones_place() {
    let stage = configured();
    let all = with_damage(&stage);
    assert_eq!(last_good(&stage), all[2].as_str(), "nobody knows yet");
    stage.line("verify --database sales").exits(1);
    assert_eq!(last_good(&stage), all[1].as_str());
    stage
        .line("check sales")
        .exits(1)
        .says("damaged")
        .says(&format!("the last good backup, {}", all[1]));
    // The differential is built on the good one, and the other is named.
    let line = stage.line("backup sales --differential").exits(5);
    line.says(&format!("{} was found not to be good by verify", all[2]));
    let with_diff = labels(&stage);
    let differential = with_diff.last().unwrap().clone();
    assert_eq!(last_good(&stage), differential.as_str());
    let told = stage.line("expire sales --keep-full 1").exits(0);
    told.says(&format!("{} goes: no rule keeps it", all[0]));
    assert_eq!(labels(&stage), &with_diff[1..]);
    let dry = stage.line("expire sales --keep-full 1 --dry-run");
    dry.says(&format!("{} stays: full backup number 1", all[1]))
        .says(&format!("{} stays: found not to be good", all[2]));
    stage.line("restore --database sales --to out").exits(0);
}

#[test]
fn a_differential_is_refused_where_only_damaged_backups_are_left_and_a_repair_lifts_that() {
    let stage = configured();
    let all = with_damage(&stage);
    stage.line("verify --database sales").exits(1);
    for label in &all[..2] {
        for disk in 1..=2 {
            std::fs::remove_dir_all(stage.path(format!("disk{disk}/sales/{label}"))).unwrap();
        }
    }
    assert_eq!(last_good(&stage), Value::Null);
    let refused = stage.line("backup sales --differential");
    assert_ne!(refused.code, 0);
    refused.says("was found not to be good by verify");
    assert_eq!(labels(&stage), &all[2..]);
    let stripe = stage.path(format!("disk1/sales/{}/family-1.bak", all[2]));
    std::fs::copy(stage.path("before.bak"), stripe).unwrap();
    stage.line("verify --database sales").exits(0);
    assert_eq!(last_good(&stage), all[2].as_str());
    stage.line("backup sales --differential").exits(0);
}

/// Gives the database an index; returns what damages it, so that backups are whole and what they hold is not.
pub fn with_index(stage: &Stage) -> impl FnOnce() -> std::fs::File {
    let path = stage.path("app.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "create table x (a, b); create index i on x (b);
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 20) insert into x select i, i from n",
        )
        .unwrap();
    let asked = "select rootpage, (select page_size from pragma_page_size) from sqlite_master where name = 'i'";
    let (page, size): (i64, i64) = connection
        .query_row(asked, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    drop(connection);
    move || {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        // The end of the page has the first entries.
        let at = (page * size - 12) as u64;
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 12], at).unwrap();
        file
    }
}

/// Goal: a restore that names no label tells that a drill has condemned the newest backup; and such a backup is content that no empty
/// one displaces.
#[test]
fn a_condemned_backup_is_told_by_a_restore_and_displaced_by_no_empty_one() {
    let stage = configured();
    let spoil = with_index(&stage);
    stage.line("backup sales").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let file = spoil();
    stage.line("backup sales").exits(0);
    stage.line("drill sales").exits(1);
    let all = labels(&stage);
    stage
        .line("restore --database sales --to out")
        .exits(5)
        .says(&format!("{} was found not to be good", all[1]))
        .says(&format!("--label {}", all[0]));
    stage
        .line("restore --database sales --only app.db --to part")
        .exits(5)
        .says(&format!("{} was found not to be good", all[1]));
    let named = format!("restore --database sales --label {} --to named", all[1]);
    stage.line(&named).exits(0);

    // The good one is gone, and the source is emptied.
    for disk in ["disk1", "disk2"] {
        std::fs::remove_dir_all(stage.path(format!("{disk}/sales/{}", all[0]))).unwrap();
    }
    file.set_len(0).unwrap();
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(1100));
        stage
            .line("backup sales --verify")
            .exits(5)
            .says("has lost its content");
        stage.line("expire sales --keep-full 1").exits(0);
    }
    assert!(labels(&stage).contains(&all[1]), "{:?}", labels(&stage));
}

#[test]
fn a_drill_that_lacks_what_only_the_application_has_gives_no_verdict_but_on_the_other_tables() {
    let stage = configured();
    let path = stage.path("app.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    let made = db.execute_batch(
        "CREATE TABLE word (a TEXT COLLATE nocase); CREATE INDEX word_a ON word(a); INSERT INTO word VALUES ('x');
         PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'nocase', 'german');",
    );
    made.unwrap();
    drop(db);
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("backup sales").exits(0);
    let drilled = stage.line("drill sales --work work --json").exits(5);
    let told: Value = serde_json::from_str(&drilled.out).unwrap();
    assert_eq!(told["sound"], true);
    let warning = told["warnings"][0].as_str().unwrap();
    let lacks = "word (no such collation sequence: german)";
    assert!(warning.contains(lacks), "{warning}");
    let results = || -> Value {
        let told: Value = serde_json::from_str(&stage.line("info sales --json").out).unwrap();
        told["databases"][0]["results"]["all"].clone()
    };
    assert_eq!(results(), Value::Array(Vec::new()), "no verdict");
    assert_ne!(last_good(&stage), Value::Null);
    // The backup counts, and a differential is built on it.
    stage.line("backup sales --differential").exits(0);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = (bytes.len() / 2) & !4095;
    bytes[middle..middle + 4096].fill(0x55);
    std::fs::write(&path, bytes).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    stage
        .line("drill sales --work work")
        .exits(1)
        .says("NOT GOOD");
    assert_eq!(results()[0]["good"], false);
}
