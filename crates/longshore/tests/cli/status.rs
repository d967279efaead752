//! Goal: what runs found out is remembered at the target: shown by `info`, judged by `check`, and not done twice.
//! Method: the program runs over a configured database and a tree at a target of two directories; records are read, dated
//! back and replaced, targets cloned, made read-only and given to another user, and runs killed.
//! Not covered: PostgreSQL (`postgres_restore/results.rs`), buckets (`bucket.rs`), and what a record counts for in general
//! (`repository/tests/status.rs`).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::repository::configured;
use crate::stage::{Ran, Stage, damage};

const RECORD: &str = ".longshore-status-verify";

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

/// The results for `sales` that `info` knows.
fn results(stage: &Stage) -> Value {
    json(&stage.line("info sales --json"))["databases"][0]["results"].clone()
}

fn labels(stage: &Stage) -> Vec<String> {
    let told = json(&stage.line("info sales --json"));
    let backups = told["databases"][0]["backups"].as_array().unwrap();
    let label = |backup: &Value| backup["label"].as_str().unwrap().to_owned();
    backups.iter().map(label).collect()
}

/// The value of a metric of `sales`; `None` if it is not there.
fn metric(stage: &Stage, name: &str) -> Option<f64> {
    let text = stage.line("info sales --prometheus").out;
    let begin = format!("longshore_{name}{{");
    let line = text.lines().find(|line| line.starts_with(&begin))?;
    Some(line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

fn record(stage: &Stage) -> PathBuf {
    stage.path("disk1/sales").join(RECORD)
}

/// Changes the record as its own text, with the times of its file as they were.
fn edit(stage: &Stage, change: impl Fn(&str) -> String) {
    let path = record(stage);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, change(&text)).unwrap();
}

/// Dates all results back to the year 2020.
fn years_ago(stage: &Stage) {
    edit(stage, |text| {
        let mut parts = text.split("\"at\":\"20");
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |text, part| text + "\"at\":\"2020" + &part[2..])
    });
}

/// Backups with these options, each in a second of its own: labels have no shorter times.
fn back_up(stage: &Stage, options: &[&str]) {
    for option in options {
        let line = format!("backup sales {option}");
        stage.line(line.trim_end()).exits(0);
        std::thread::sleep(Duration::from_millis(1100));
    }
}

/// Goal: a backup that lost all its stripes is a failure where anything knows that it was complete, and no expire removes what
/// is left of it in silence.
#[test]
fn a_backup_that_lost_all_its_stripes_is_no_run_that_did_not_end() {
    let stage = configured();
    back_up(&stage, &["", "", "", ""]);
    let all = labels(&stage);
    stage
        .line(&format!("verify --database sales --label {}", all[0]))
        .exits(0);
    stage.line("check sales").exits(0);
    for label in &all[..2] {
        for disk in 1..=2 {
            let stripe = format!("disk{disk}/sales/{label}/family-{disk}.bak");
            std::fs::remove_file(stage.path(stripe)).unwrap();
        }
    }
    stage
        .line("check sales")
        .exits(1)
        .says(&format!(
            "{}: all its stripes are missing, and it was complete: it was read",
            all[0]
        ))
        .says(&format!(
            "{}: all its stripes are missing, and it was complete: this machine made it",
            all[1]
        ));
    // Another target of the same name of a backup is another place: the history knows nothing of a backup there.
    let other = stage.path("other");
    for label in &all[..2] {
        std::fs::create_dir_all(other.join("sales").join(label)).unwrap();
    }
    let config = stage.path("no-config/longshore/longshore.toml");
    let configured = std::fs::read_to_string(&config).unwrap();
    let moved = configured.replace("target = \"nightly\"", "target = \"other\"")
        + &format!("[target.other]\ndirectories = [\"{}\"]\n", other.display());
    assert_ne!(moved.matches("\"other\"").count(), 0, "{configured}");
    std::fs::write(&config, moved).unwrap();
    stage.line("check sales").says(&format!(
        "WARN  backup     {}: nothing is below this name",
        all[1]
    ));
    std::fs::write(&config, configured).unwrap();
    // Without a history nobody knows.
    let history = stage.path("history.db");
    std::fs::rename(&history, stage.path("elsewhere.db")).unwrap();
    stage.line("check sales").exits(1).says(&format!(
        "WARN  backup     {}: nothing is below this name",
        all[1]
    ));
    stage
        .line("expire sales")
        .exits(5)
        .says(&format!("{} removed: nothing was below this name", all[1]));
    assert_eq!(labels(&stage), [&all[..1], &all[2..]].concat());
    stage.line("info sales").says("MISSING");
}

/// The numbers of verified, known and damaged backups in an answer of `verify --all`.
fn counts(stage: &Stage, line: &str, code: i32) -> (u64, u64, u64) {
    let ran = stage.line(&format!("{line} --json")).exits(code);
    let told = json(&ran);
    assert_eq!(told["valid"], code == 0, "{told}");
    let number = |name: &str| told["databases"][0][name].as_u64().unwrap();
    (
        number("verified_count"),
        number("known_count"),
        number("damaged_count"),
    )
}

#[test]
fn results_are_recorded_at_the_target_and_shown_and_judged_by_anybody() {
    let stage = configured();
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("backup sales").exits(0);
    stage
        .line("info sales")
        .says("no backup that is here was verified")
        .says("no backup that is here was drilled");
    assert_eq!(results(&stage)["unverified"], 1);
    assert_eq!(metric(&stage, "last_verified_timestamp_seconds"), None);
    assert_eq!(metric(&stage, "backups_unverified"), Some(1.0));
    stage.line("check sales").exits(0);
    stage
        .line("check sales --max-verify-age 1")
        .exits(1)
        .says("no backup that is there was verified: run `longshore verify --all");
    stage
        .line("check sales --max-drill-age 1")
        .exits(1)
        .says("drill sales");
    stage.line("verify --database sales").exits(0);
    stage.line("drill sales --work work").exits(0);
    // Another host has no history of these runs.
    let elsewhere = |line: &str| stage.line(&format!("--catalog none {line}"));
    let label = &labels(&stage)[0];
    elsewhere("info sales")
        .says(&format!("last verified     {label}, "))
        .says(&format!("last drilled      {label}, "))
        .says("at risk now");
    elsewhere("check sales --max-verify-age 1 --max-drill-age 1")
        .exits(0)
        .says("was verified")
        .says("was drilled");
    let told = results(&stage);
    assert_eq!(told["unverified"], 0);
    assert_eq!(told["last_verified"]["label"], label.as_str());
    assert_eq!(told["last_drilled"]["good"], true);
    assert!(told["last_drilled"]["elapsed_s"].as_f64().unwrap() > 0.0);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(told["last_verified"]["host"], host.trim());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_secs_f64();
    for name in [
        "last_verified_timestamp_seconds",
        "last_drill_timestamp_seconds",
    ] {
        let at = metric(&stage, name).unwrap();
        assert!((now - 600.0..=now).contains(&at), "{name} {at} {now}");
    }
    assert!(metric(&stage, "drill_seconds").unwrap() > 0.0);
    years_ago(&stage);
    stage
        .line("check sales --max-verify-age 1000")
        .exits(1)
        .says("was verified");
    // A second backup has no result, and the record is nothing to look at.
    stage.line("backup sales").exits(0);
    assert_eq!(results(&stage)["unverified"], 1);
    stage.line("check sales").exits(0);
    stage.line("expire sales --keep-full 1").exits(0);
    assert_eq!(
        results(&stage)["last_verified"],
        Value::Null,
        "its backup is gone"
    );
    stage.line("backup sales --verify").exits(0);
    assert_eq!(
        results(&stage)["last_verified"]["label"],
        labels(&stage)[1].as_str()
    );
}

/// Goal: the lines about results fit a terminal of 80 columns, whatever a record says.
#[test]
fn what_is_told_of_results_fits_a_terminal_and_repeats_no_escapes() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("verify --database sales").exits(0);
    std::fs::remove_file(stage.path("app.db")).unwrap();
    stage.line("backup sales").exits(3);
    let failed = stage.path("disk1/sales/.longshore-status-backup");
    let text = std::fs::read_to_string(&failed).unwrap();
    let long = format!("\"text\":\"{}\\u001b[2J ", "word ".repeat(60));
    std::fs::write(&failed, text.replacen("\"text\":\"", &long, 1)).unwrap();
    let out = stage.line("info sales").exits(0).out;
    let begin = out.find("at risk now").unwrap();
    let end = out.find("in all").unwrap();
    assert!(out[begin..end].contains("last run FAILED"), "{out}");
    for line in out[begin..end].lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(!out.contains('\u{1b}'), "{out}");
}

/// Goal: a target that is so full that it takes no record of a failure hides none on the machine that had it.
#[test]
fn a_failed_run_without_a_record_is_told_from_the_history() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let gone = stage.path("gone.db");
    std::fs::rename(stage.path("app.db"), &gone).unwrap();
    stage.line("backup sales").exits(3);
    std::fs::rename(&gone, stage.path("app.db")).unwrap();
    std::fs::remove_file(stage.path("disk1/sales/.longshore-status-backup")).unwrap();
    stage
        .line("check sales")
        .exits(5)
        .says("by this machine's history, and no record at the target says so");
    // Another machine's backup ends it, although this one's history does not know of it.
    stage.line("backup sales --catalog none").exits(0);
    stage.line("check sales").exits(0);
}

#[test]
fn a_failed_run_is_told_until_one_of_its_kind_succeeds() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let gone = stage.path("gone.db");
    std::fs::rename(stage.path("app.db"), &gone).unwrap();
    stage.line("backup sales").exits(3);
    assert!(metric(&stage, "last_failed_backup_timestamp_seconds").is_some());
    assert_eq!(metric(&stage, "failed_runs"), Some(1.0));
    stage.line("info sales").says("last run FAILED   backup, ");
    std::fs::rename(&gone, stage.path("app.db")).unwrap();
    stage
        .line("check sales")
        .exits(5)
        .says("WARN")
        .says("failed: backup, ");
    // A mistake in the command line is none of the database's.
    stage.line("backup sales --append").exits(2);
    // Nor does a clock that was far ahead keep the failure alive.
    let failed = stage.path("disk1/sales/.longshore-status-backup");
    let text = std::fs::read_to_string(&failed).unwrap();
    std::fs::write(&failed, text.replace("\"at\":\"20", "\"at\":\"21")).unwrap();
    stage.line("check sales").exits(5).says("failed: backup, ");
    std::thread::sleep(Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    stage.line("check sales").exits(0);
    assert_eq!(metric(&stage, "failed_runs"), Some(0.0));
    assert_eq!(results(&stage)["last_failed"][0]["mended"], true);
    // Another kind of run; its failure says nothing about backups.
    let label = labels(&stage).pop().unwrap();
    let stripe = stage.path(format!("disk1/sales/{label}/family-1.bak"));
    let sound = std::fs::read(&stripe).unwrap();
    damage(&stripe);
    stage.line("verify --database sales").exits(1);
    let told = results(&stage);
    assert_eq!(told["all"][0]["good"], false, "{told}");
    assert_eq!(told["last_failed"][0]["task"], "verify", "{told}");
    stage
        .line("info sales")
        .says("NOT GOOD")
        .says("verify found");
    stage
        .line("check sales")
        .exits(1)
        .says("was found not to be good by verify");
    assert_eq!(metric(&stage, "backups_found_damaged"), Some(1.0));
    // Mended: it is another stripe now, of which nothing is known.
    std::fs::write(&stripe, sound).unwrap();
    assert_eq!(metric(&stage, "backups_found_damaged"), Some(0.0));
    stage.line("verify --database sales").exits(0);
    stage.line("check sales").exits(0);
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("drill sales --work work/nothing/here").exits(2);
    assert_eq!(metric(&stage, "last_failed_drill_timestamp_seconds"), None);
}

/// Goal: a verification of one backup says nothing about another that was found damaged.
#[test]
fn a_good_backup_does_not_mend_the_failure_of_another() {
    let stage = configured();
    back_up(&stage, &[""; 2]);
    let names = labels(&stage);
    let stripe = stage.path(format!("disk1/sales/{}/family-1.bak", names[0]));
    let sound = std::fs::read(&stripe).unwrap();
    damage(&stripe);
    let verify = |label: &str, code| {
        let line = format!("verify --database sales --label {label}");
        stage.line(&line).exits(code);
        results(&stage)["last_failed"][0]["mended"] == true
    };
    assert!(!verify(&names[0], 1));
    assert!(!verify(&names[1], 0));
    assert_eq!(metric(&stage, "failed_runs"), Some(1.0));
    std::fs::write(&stripe, &sound).unwrap();
    assert!(verify(&names[0], 0));
    // Of two that are damaged, one alone is not enough.
    let other = stage.path(format!("disk1/sales/{}/family-1.bak", names[1]));
    let both = [&stripe, &other].map(|path| (path, std::fs::read(path).unwrap()));
    both.iter().for_each(|(path, _)| damage(path));
    let line = "verify --all --database sales";
    assert_eq!(counts(&stage, line, 1), (0, 0, 2));
    for (path, bytes) in both {
        std::fs::write(path, bytes).unwrap();
    }
    assert!(!verify(&names[0], 0) && !verify(&names[1], 0));
    assert_eq!(counts(&stage, line, 0), (0, 2, 0));
    assert_eq!(results(&stage)["last_failed"][0]["mended"], true);
    // A backup that is gone cannot be mended, nor is it anything to look at.
    damage(&stripe);
    assert!(!verify(&names[0], 1));
    for disk in ["disk1", "disk2"] {
        std::fs::remove_dir_all(stage.path(format!("{disk}/sales/{}", names[0]))).unwrap();
    }
    assert_eq!(results(&stage)["last_failed"][0]["mended"], true);
    stage.line("check sales").exits(0);
}

/// Goal: a failure is mended by a run that read what it had failed at, and by no earlier result for that.
#[test]
fn verify_all_reads_again_what_a_later_run_could_not_read() {
    let stage = configured();
    back_up(&stage, &["", "--incremental", ""]);
    let line = "verify --all --database sales";
    assert_eq!(counts(&stage, line, 0), (3, 0, 0));
    let names = labels(&stage);
    // An error of a disk, some seconds after everything was found good.
    let fail = |label: &str, more: &str| {
        std::thread::sleep(Duration::from_millis(10));
        edit(&stage, |text| {
            let mut record: Value = serde_json::from_str(text).unwrap();
            let now = jiff::Timestamp::now().to_string();
            let failed = format!(
                "{{\"at\":\"{now}\",\"host\":\"h\",\"label\":\"{label}\",\"unread\":true{more},\"exit_code\":4,\"number\":3201,\"text\":\"a disk\"}}"
            );
            record["failed"] = serde_json::from_str(&failed).unwrap();
            record["mended"] = Value::Null;
            record.to_string()
        });
        assert_eq!(metric(&stage, "failed_runs"), Some(1.0));
    };
    // Whatever the failed run needed: its error may be that of a base.
    for (label, more, wanted) in [
        (&names[2], "", (1, 2, 0)),
        (&names[1], "", (2, 1, 0)),
        (&names[2], ",\"more\":true", (3, 0, 0)),
    ] {
        fail(label, more);
        assert_eq!(counts(&stage, line, 0), wanted, "{label}{more}");
        assert_eq!(metric(&stage, "failed_runs"), Some(0.0));
        assert_eq!(counts(&stage, line, 0), (0, 3, 0));
    }
}

#[test]
fn a_drill_that_ends_at_a_damaged_backup_leaves_a_bad_result_for_it() {
    let stage = configured();
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("backup sales").exits(0);
    stage.line("drill sales --work work").exits(0);
    let label = &labels(&stage)[0];
    let stripe = stage.path(format!("disk1/sales/{label}/family-1.bak"));
    let sound = std::fs::read(&stripe).unwrap();
    damage(&stripe);
    stage.line("drill sales --work work").exits(4);
    let told = results(&stage);
    let bad = told["all"].as_array().unwrap().iter();
    let bad: Vec<_> = bad.filter(|row| row["good"] == false).collect();
    assert_eq!(bad.len(), 1, "{told}");
    assert_eq!(
        (&bad[0]["task"], &bad[0]["label"]),
        (&"drill".into(), &label.as_str().into())
    );
    assert_eq!(told["last_failed"][0]["label"], label.as_str(), "{told}");
    assert_eq!(told["last_drilled"], Value::Null, "{told}");
    assert_eq!(metric(&stage, "backups_found_damaged"), Some(1.0));
    let again = format!("longshore drill sales --target nightly --label {label}");
    let checked = stage.line("check sales").exits(1).out;
    assert!(
        checked.contains("was found not to be good by drill"),
        "{checked}"
    );
    assert!(checked.contains(&again), "{checked}");
    // The damage may be the source's.
    assert!(checked.contains("'PRAGMA integrity_check'`"), "{checked}");
    std::fs::write(&stripe, sound).unwrap();
    let again = again.strip_prefix("longshore ").unwrap();
    stage.line(&format!("{again} --work work")).exits(0);
    stage.line("check sales").exits(0);
    // No damage: the directory cannot be written to.
    let closed = stage.path("work");
    std::fs::remove_dir_all(&closed).unwrap();
    std::fs::write(&closed, b"").unwrap();
    let ran = stage.line("drill sales --work work");
    assert!(ran.code > 1, "{}", ran.err);
    assert_eq!(metric(&stage, "backups_found_damaged"), Some(0.0));
}

/// Goal: a backup that a drill could not restore is read again, with all that it needs, whatever was known before.
#[test]
fn verify_all_reads_again_what_a_later_drill_found_damaged() {
    let stage = configured();
    back_up(&stage, &["", "--incremental", ""]);
    std::fs::create_dir(stage.path("work")).unwrap();
    let line = "verify --all --database sales";
    assert_eq!(counts(&stage, line, 0), (3, 0, 0));
    let names = labels(&stage);
    let drilled = stage.path("disk1/sales/.longshore-status-drill");
    for (name, wanted) in [(&names[1], (2, 1, 0)), (&names[0], (1, 2, 0))] {
        stage
            .line(&format!("drill sales --work work --label {name}"))
            .exits(0);
        let text = std::fs::read_to_string(&drilled).unwrap();
        std::fs::write(&drilled, text.replace("\"good\":true", "\"good\":false")).unwrap();
        assert_eq!(counts(&stage, line, 0), wanted, "{name}");
        // It is newer than the drill now.
        assert_eq!(counts(&stage, line, 0), (0, 3, 0));
        std::fs::remove_file(&drilled).unwrap();
    }
}

#[test]
fn expire_and_copy_that_fail_are_told_until_one_succeeds() {
    let stage = configured();
    let path = stage.path("no-config/longshore/longshore.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let other = stage.path("disk3");
    text += &format!("[target.off]\ndirectories = [\"{}\"]\n", other.display());
    std::fs::write(&path, &text).unwrap();
    stage.line("backup sales").exits(0);
    stage.line("copy sales --to off").exits(4);
    let told = results(&stage);
    assert_eq!(told["last_failed"][0]["task"], "copy", "{told}");
    let why = told["last_failed"][0]["text"].as_str().unwrap();
    assert!(why.starts_with("to target off: "), "{why}");
    stage.line("check sales").exits(5).says("failed: copy, ");
    // Another place says nothing about that one, and one backup nothing about all.
    let near = stage.path("disk4");
    std::fs::create_dir(&near).unwrap();
    let text = text + &format!("[target.near]\ndirectories = [\"{}\"]\n", near.display());
    std::fs::write(&path, text).unwrap();
    stage.line("copy sales --to near").exits(0);
    stage.line("check sales").exits(5).says("failed: copy, ");
    std::fs::create_dir(&other).unwrap();
    let label = &labels(&stage)[0];
    stage
        .line(&format!("copy sales --to off --label {label}"))
        .exits(0);
    stage.line("check sales").exits(5).says("failed: copy, ");
    stage.line("copy sales --to off").exits(0);
    stage.line("check sales").exits(0);
    // A copy is a backup of its own: nobody has verified it.
    stage.line("verify --database sales").exits(0);
    assert_eq!(results(&stage)["unverified"], 0);
    let copied = json(&stage.line("info sales --target off --json"));
    let copied = &copied["databases"][0]["results"];
    assert_eq!(
        (&copied["unverified"], &copied["last_verified"]),
        (&1.into(), &Value::Null)
    );
    // Something that is held by another expire.
    let lease = stage.path("disk1/sales/.longshore-lease-expire.b.1.x");
    std::fs::write(&lease, "host other\n").unwrap();
    stage.line("expire sales").exits(4);
    stage.line("check sales").exits(5).says("failed: expire, ");
    std::fs::remove_file(&lease).unwrap();
    stage.line("expire sales").exits(0);
    stage.line("check sales").exits(0);
}

#[test]
fn verify_all_reads_what_no_earlier_run_has_found_good() {
    let stage = configured();
    back_up(&stage, &[""; 2]);
    stage.line("backup sales --incremental").exits(0);
    stage.line("backup docs").exits(0);
    let of_sales = "verify --all --database sales";
    // The latest first, with the full one that it needs.
    stage.line("verify --database sales").exits(0);
    let first = json(&stage.line(&format!("{of_sales} --json")).exits(0));
    let first = &first["databases"][0];
    assert_eq!(
        (&first["verified_count"], &first["known_count"]),
        (&1.into(), &2.into())
    );
    assert!(first["plain_bytes"].as_u64().unwrap() > 2 << 20, "{first}");
    // The sets that the next one needs are known, and not read again.
    stage.line("backup sales --incremental").exits(0);
    let next = json(&stage.line(&format!("{of_sales} --json")).exits(0));
    let next = &next["databases"][0];
    assert_eq!(
        (&next["verified_count"], &next["known_count"]),
        (&1.into(), &3.into())
    );
    assert!(next["plain_bytes"].as_u64().unwrap() < 1 << 20, "{next}");
    assert_eq!(counts(&stage, of_sales, 0), (0, 4, 0));
    let all = json(&stage.line("verify --all --json").exits(0));
    assert_eq!(all["databases"].as_array().unwrap().len(), 2, "{all}");
    stage
        .line("verify --all --target nightly")
        .exits(0)
        .says("docs at target nightly");
    assert_eq!(
        counts(&stage, "verify --all --database sales --again", 0),
        (4, 0, 0)
    );
    let aged = "verify --all --database sales --older-than 30";
    assert_eq!(counts(&stage, aged, 0), (0, 4, 0));
    years_ago(&stage);
    assert_eq!(counts(&stage, of_sales, 0), (0, 4, 0));
    assert_eq!(counts(&stage, aged, 0), (4, 0, 0));
    // A clone of the target has the record, and no result.
    for dir in ["disk1", "disk2"] {
        let copied = Command::new("cp")
            .arg("-a")
            .args([stage.path(dir), stage.path(format!("clone-{dir}"))])
            .status();
        assert!(copied.unwrap().success());
        std::fs::rename(stage.path(dir), stage.path(format!("old-{dir}"))).unwrap();
        std::fs::rename(stage.path(format!("clone-{dir}")), stage.path(dir)).unwrap();
    }
    assert!(record(&stage).exists());
    assert_eq!(results(&stage)["unverified"], 4);
    assert_eq!(counts(&stage, of_sales, 0), (4, 0, 0));
    // A hand that dates results later than now gains nothing.
    edit(&stage, |text| text.replace("\"at\":\"20", "\"at\":\"21"));
    let ahead = results(&stage)["last_verified"]["age_s"].as_i64().unwrap();
    assert!(ahead >= 0, "the file's own time counts: {ahead}");
}

#[test]
fn verify_all_names_each_damaged_backup_and_what_depends_on_it() {
    let stage = configured();
    back_up(&stage, &["", ""]);
    stage.line("backup sales --incremental").exits(0);
    stage.line("backup sales --incremental").exits(0);
    let names = labels(&stage);
    damage(&stage.path(format!("disk1/sales/{}/family-1.bak", names[1])));
    let ran = stage.line("verify --all --database sales --json").exits(1);
    let told = json(&ran);
    let rows = told["databases"][0]["backups"].as_array().unwrap();
    let verdicts: Vec<_> = rows
        .iter()
        .map(|row| row["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(
        verdicts,
        ["good", "damaged", "damaged", "damaged"],
        "{told}"
    );
    let why = rows[2]["why"].as_str().unwrap();
    assert_eq!(why, format!("it needs {}, which is damaged", names[1]));
    assert_eq!(results(&stage)["unverified"], 3);
    stage.line("check sales").exits(1).says(&names[1]);
    stage
        .line("verify --all --database sales")
        .exits(1)
        .says("DAMAGED")
        .says("1 known to be good");
    // A stripe that is gone is told, too.
    std::fs::remove_file(stage.path(format!("disk2/sales/{}/family-2.bak", names[0]))).unwrap();
    stage
        .line("verify --all --database sales")
        .exits(1)
        .says("family 2 of 2 is missing");
    for line in [
        "verify --all a.bak",
        "verify --all --database sales --label x",
        "verify --database sales --again",
        "verify --all --again --older-than 3",
        "verify",
    ] {
        stage.line(line).exits(2);
    }
    stage
        .line("verify --all --database nobody --target nightly")
        .exits(0);
    stage.line("verify --all --target nowhere").exits(2);
}

/// Goal: a differential whose own bytes are known to be good is not called good when what it needs is not.
#[test]
fn verify_all_believes_no_differential_whose_base_is_lost() {
    let stage = configured();
    back_up(&stage, &["", "--incremental"]);
    let line = "verify --all --database sales";
    assert_eq!(counts(&stage, line, 0), (2, 0, 0));
    let full = &labels(&stage)[0];
    damage(&stage.path(format!("disk1/sales/{full}/family-1.bak")));
    assert_eq!(counts(&stage, line, 1), (0, 0, 2));
    stage
        .line(line)
        .exits(1)
        .says(&format!("it needs {full}, which is damaged"));
    for disk in ["disk1", "disk2"] {
        std::fs::remove_dir_all(stage.path(format!("{disk}/sales/{full}"))).unwrap();
    }
    assert_eq!(counts(&stage, line, 1), (0, 0, 1));
    stage.line(line).exits(1).says("it cannot be restored");
}

/// Goal: nobody knows whether a stripe that cannot be opened now is damaged: the backup is neither valid nor damaged.
#[test]
fn verify_all_tells_what_cannot_be_judged_from_damage() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let label = &labels(&stage)[0];
    let stripe = stage.path(format!("disk1/sales/{label}/family-1.bak"));
    let away = stage.path("away");
    std::fs::rename(&stripe, &away).unwrap();
    std::os::unix::fs::symlink("family-1.bak", &stripe).unwrap();
    let line = "verify --all --database sales";
    let told = json(&stage.line(&format!("{line} --json")).exits(4));
    let database = &told["databases"][0];
    assert_eq!(told["valid"], false, "{told}");
    assert_eq!(
        (&database["closed_count"], &database["damaged_count"]),
        (&1.into(), &0.into())
    );
    assert_eq!(database["backups"][0]["verdict"], "closed", "{told}");
    stage.line(line).exits(4).says("cannot be judged");
    assert_eq!(metric(&stage, "failed_runs"), Some(1.0));
    std::fs::remove_file(&stripe).unwrap();
    std::fs::rename(&away, &stripe).unwrap();
    // Nor does anybody know it of what needs such a one.
    std::thread::sleep(Duration::from_millis(1100));
    stage.line("backup sales --incremental").exits(0);
    std::fs::rename(&stripe, &away).unwrap();
    std::os::unix::fs::symlink("family-1.bak", &stripe).unwrap();
    let told = json(&stage.line(&format!("{line} --json")).exits(4));
    let rows = told["databases"][0]["backups"].as_array().unwrap().iter();
    let verdicts: Vec<_> = rows.map(|row| row["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["closed", "closed"], "{told}");
    assert_eq!(metric(&stage, "backups_found_damaged"), Some(0.0));
    std::fs::remove_file(&stripe).unwrap();
    std::fs::rename(&away, &stripe).unwrap();
    assert_eq!(counts(&stage, line, 0), (2, 0, 0));
    assert_eq!(metric(&stage, "failed_runs"), Some(0.0));
}

/// Goal: a copy of a backup's directory, made by hand, is neither the backup nor a reason to believe it.
#[test]
fn verify_all_believes_no_copied_directory() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let line = "verify --all --database sales";
    assert_eq!(counts(&stage, line, 0), (1, 0, 0));
    let own = labels(&stage).pop().unwrap();
    // Of one second, and before the other in the list: it is taken for the backup, and the other for its copy.
    let copy = format!("{}-00000000", own.rsplit_once('-').unwrap().0);
    for disk in ["disk1", "disk2"] {
        let at = |label: &str| stage.path(format!("{disk}/sales/{label}"));
        let copied = Command::new("cp")
            .arg("-a")
            .args([at(&own), at(&copy)])
            .status();
        assert!(copied.unwrap().success());
    }
    damage(&stage.path(format!("disk1/sales/{copy}/family-1.bak")));
    let told = json(&stage.line(&format!("{line} --json")).exits(1));
    let rows = told["databases"][0]["backups"].as_array().unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (&row["label"], &row["verdict"]))
        .collect();
    assert_eq!(found.len(), 2, "{told}");
    let damaged = Value::from("damaged");
    assert!(found.contains(&(&copy.as_str().into(), &damaged)), "{told}");
    assert!(found.contains(&(&own.as_str().into(), &damaged)), "{told}");
    for disk in ["disk1", "disk2"] {
        std::fs::remove_dir_all(stage.path(format!("{disk}/sales/{copy}"))).unwrap();
    }
    // Its stripes are those that were verified: the damage of others says nothing about them.
    assert_eq!(counts(&stage, line, 0), (0, 1, 0));
    assert_eq!(metric(&stage, "backups_found_damaged"), Some(0.0));
    assert_eq!(metric(&stage, "failed_runs"), Some(0.0));
    damage(&stage.path(format!("disk1/sales/{own}/family-1.bak")));
    assert_eq!(counts(&stage, line, 1), (0, 0, 1));
}

/// Goal: a backup that is lost while a run reads others has a row; one that was removed has none.
#[test]
fn verify_all_names_what_is_lost_while_it_runs() {
    let stage = configured();
    back_up(&stage, &[""; 5]);
    let names = labels(&stage);
    let at = |disk: u32, label: usize| stage.path(format!("disk{disk}/sales/{}", names[label]));
    let line = "verify --all --database sales --max-rate 1M --json";
    let words: Vec<_> = line.split(' ').collect();
    let mut command = stage.command(&words);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(90);
    while !std::fs::read_to_string(record(&stage)).is_ok_and(|text| text.contains("\"good\":true"))
    {
        assert!(Instant::now() < deadline, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(10));
    }
    for disk in [1, 2] {
        std::fs::remove_dir_all(at(disk, 2)).unwrap();
    }
    std::fs::remove_file(at(2, 3).join("family-2.bak")).unwrap();
    // Nobody can judge this one now.
    let last = at(2, 4).join("family-2.bak");
    std::fs::remove_file(&last).unwrap();
    std::os::unix::fs::symlink("family-2.bak", &last).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["valid"], false, "{told}");
    let rows = told["databases"][0]["backups"].as_array().unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["label"].as_str().unwrap(),
                row["verdict"].as_str().unwrap(),
            )
        })
        .collect();
    let wanted = [(0, "good"), (1, "good"), (3, "damaged"), (4, "closed")];
    assert_eq!(found, wanted.map(|(i, verdict)| (&*names[i], verdict)));
    let why = rows[2]["why"].as_str().unwrap();
    assert!(
        why.contains("was whole when this run began") && why.contains("family 2 of 2"),
        "{why}"
    );
    assert_eq!(results(&stage)["last_failed"][0]["label"], *names[3]);
}

/// Goal: no expire removes all backups: a database that is gone altogether was lost.
#[test]
fn verify_all_calls_nothing_valid_when_the_database_vanishes() {
    let stage = configured();
    back_up(&stage, &[""; 3]);
    let words = "verify --all --database sales --max-rate 1M --json".split(' ');
    let mut command = stage.command(&words.collect::<Vec<_>>());
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(90);
    while !std::fs::read_to_string(record(&stage)).is_ok_and(|text| text.contains("\"good\":true"))
    {
        assert!(Instant::now() < deadline, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(10));
    }
    for disk in ["disk1", "disk2"] {
        std::fs::rename(
            stage.path(format!("{disk}/sales")),
            stage.path(disk).join("was"),
        )
        .unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told["valid"], false, "{told}");
    let rows = told["databases"][0]["backups"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[2]["verdict"]), (3, &"damaged".into()));
    let why = rows[2]["why"].as_str().unwrap();
    assert!(why.contains("so are all other backups"), "{why}");
}

/// Goal: an interrupted run loses at most the backup that it was reading.
#[test]
fn verify_all_goes_on_after_an_interruption_and_a_kill() {
    let stage = configured();
    back_up(&stage, &[""; 3]);
    let deadline = Instant::now() + Duration::from_secs(90);
    for (signal, at_least) in [(libc::SIGKILL, 1), (libc::SIGINT, 2)] {
        let line = "verify --all --database sales --max-rate 1M --json";
        let words: Vec<_> = line.split(' ').collect();
        let mut command = stage.command(&words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        loop {
            let text = std::fs::read_to_string(record(&stage)).unwrap_or_default();
            if text.matches("\"good\":true").count() >= at_least {
                break;
            }
            assert!(Instant::now() < deadline, "nothing is recorded");
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(10));
        }
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet.
        unsafe { libc::kill(child.id() as i32, signal) };
        let output = child.wait_with_output().unwrap();
        if signal == libc::SIGINT {
            assert_eq!(output.status.code(), Some(130));
            let told: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(told["databases"][0]["left_count"], 1, "{told}");
        }
        // The lease of a killed reader is dead at once.
        assert_eq!(results(&stage)["unverified"], 3 - at_least as u64);
    }
    assert_eq!(
        counts(&stage, "verify --all --database sales", 0),
        (1, 2, 0)
    );
    assert_eq!(results(&stage)["last_failed"].as_array().unwrap().len(), 0);
    let names = stage.all_names("disk1/sales");
    assert!(
        !names.iter().any(|name| name.contains(".new-")),
        "{names:?}"
    );
}

/// Runs a line with a directory mounted read-only; `None` if this user cannot mount.
fn on_read_only(stage: &Stage, dir: &Path, line: &str) -> Option<Ran> {
    let script = "mount --bind \"$0\" \"$0\" || exit 111; mount -o remount,ro,bind \"$0\" || exit 111; exec \"$@\"";
    let words: Vec<_> = line.split(' ').collect();
    let run = stage.command(&words);
    let mut inside = Command::new("unshare");
    inside.args(["-m", "sh", "-c", script]).arg(dir);
    inside.arg(run.get_program()).args(run.get_args());
    for (key, value) in run.get_envs() {
        match value {
            Some(value) => inside.env(key, value),
            None => inside.env_remove(key),
        };
    }
    let output = inside.current_dir(stage.path("")).output().unwrap();
    let ran = Ran::of(&output);
    (ran.code != 111 && !ran.err.starts_with("unshare:")).then_some(ran)
}

#[test]
fn a_target_that_takes_no_records_is_verified_with_a_note() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    for line in ["verify --database sales", "verify --all --database sales"] {
        let Some(ran) = on_read_only(&stage, &stage.path("disk1"), line) else {
            eprintln!("left out: this user cannot mount");
            return;
        };
        assert_eq!(ran.code, 0, "{line}: {} {}", ran.out, ran.err);
        assert!(
            ran.err.contains("note: the result is not recorded"),
            "{}",
            ran.err
        );
        assert_eq!(results(&stage)["unverified"], 1);
    }
    // A failure is told as it is, and nothing else.
    let label = &labels(&stage)[0];
    damage(&stage.path(format!("disk2/sales/{label}/family-2.bak")));
    let ran = on_read_only(&stage, &stage.path("disk1"), "verify --database sales").unwrap();
    assert_eq!(ran.code, 1, "{} {}", ran.out, ran.err);
}

/// Goal: damage that a run finds while the target takes no record is recorded as soon as it does.
#[test]
fn a_bad_result_that_could_not_be_recorded_is_recorded_later() {
    let stage = configured();
    back_up(&stage, &[""; 2]);
    let names = labels(&stage);
    damage(&stage.path(format!("disk1/sales/{}/family-1.bak", names[0])));
    // No file takes the name of a directory.
    std::fs::create_dir(record(&stage)).unwrap();
    std::fs::write(record(&stage).join("file"), b"").unwrap();
    let words = "verify --all --database sales --max-rate 1M".split(' ');
    let mut command = stage.command(&words.collect::<Vec<_>>());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let note = told.find(|line| {
        let line = line.as_ref().unwrap();
        line.contains("the result is not recorded")
    });
    assert!(note.is_some());
    std::fs::remove_dir_all(record(&stage)).unwrap();
    told.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let told = results(&stage);
    let found = told["all"].as_array().unwrap().iter();
    let found: Vec<_> = found.map(|row| row["good"] == true).collect();
    assert_eq!(found, [false, true], "{told}");
}

#[test]
fn a_record_that_is_not_understood_is_named_and_in_nobodys_way() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    for bytes in [
        &b"{\"version\":1,\"sets\":\"secret\"}"[..],
        &[0xff; 4096],
        &vec![b' '; 3 << 20],
    ] {
        std::fs::write(record(&stage), bytes).unwrap();
        stage.line("info sales").exits(0).says("unreadable record");
        let checked = stage.line("check sales").exits(5).says("unreadable record");
        // Nobody knows what it said: none is not 0.
        for name in ["backups_unverified", "backups_found_damaged", "failed_runs"] {
            assert_eq!(metric(&stage, name), None, "{name}");
        }
        assert_eq!(metric(&stage, "records_unreadable"), Some(1.0));
        assert!(!checked.out.contains("secret"), "{}", checked.out);
        for line in ["list --target nightly", "expire sales", "backup docs"] {
            stage.line(line).exits(0);
        }
        stage.line("verify --database sales").exits(0);
        assert_eq!(results(&stage)["unverified"], 0);
        assert_eq!(metric(&stage, "backups_unverified"), Some(0.0));
        assert_eq!(metric(&stage, "records_unreadable"), Some(0.0));
        stage.line("check sales").exits(0);
    }
    // Damage that another record has is no less true.
    let label = labels(&stage).pop().unwrap();
    damage(&stage.path(format!("disk1/sales/{label}/family-1.bak")));
    stage.line("verify --database sales").exits(1);
    let drilled = stage.path("disk1/sales/.longshore-status-drill");
    std::fs::write(&drilled, b"?").unwrap();
    assert_eq!(metric(&stage, "records_unreadable"), Some(1.0));
    assert_eq!(metric(&stage, "backups_found_damaged"), Some(1.0));
    assert_eq!(metric(&stage, "failed_runs"), Some(1.0));
    assert_eq!(metric(&stage, "backups_unverified"), None);
    std::fs::remove_file(&drilled).unwrap();
    // One of a newer version stays.
    std::fs::write(record(&stage), b"{\"version\":7}").unwrap();
    let ran = stage.line("verify --database sales").exits(1);
    assert!(
        ran.err.contains("a newer version of longshore wrote"),
        "{}",
        ran.err
    );
    assert_eq!(std::fs::read(record(&stage)).unwrap(), b"{\"version\":7}");
}
