//! Goal: a backup that is known not to be good takes no good one's place: no rule counts it, no differential is built on it,
//! and nothing calls it the last good one or proposes it.
//! Method: the program runs over a configured database; a stripe of the newest full backup is damaged and verified.
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
