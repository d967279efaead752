//! Goal: targets work as people use them: backup and restore by name, expire, info, check, drill.
//! Method: the program runs over a configured database and a tree at a target of two directories.
//! Not covered: PostgreSQL (`postgres_backup`, `postgres_restore`) and buckets (`bucket.rs`).

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::stage::{Ran, Stage, damage, rows};

/// A database `sales` and a tree `docs`, a target of two directories, a retention of two full backups.
pub fn configured() -> Stage {
    let stage = Stage::new();
    stage.database("app.db", 2);
    stage.write("tree/a/b", b"content");
    for dir in ["disk1", "disk2"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let path = |name: &str| stage.path(name).display().to_string();
    let text = format!(
        "[database.sales]\nurl = \"sqlite:{}\"\n[database.docs]\nurl = \"files:{}\"\n\
         [target.nightly]\ndirectories = [\"{}\", \"{}\"]\n[retention.two]\nkeep_full = 2\n\
         [defaults]\nalgorithm = \"LZ4\"\ntarget = \"nightly\"\nretention = \"two\"\n",
        path("app.db"),
        path("tree"),
        path("disk1"),
        path("disk2"),
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    stage
}

fn labels(stage: &Stage, database: &str) -> Vec<String> {
    stage.names(format!("disk1/{database}"))
}

fn stripe(stage: &Stage, directory: u32, label: &str) -> PathBuf {
    stage.path(format!(
        "disk{directory}/sales/{label}/family-{directory}.bak"
    ))
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_configured_database_goes_out_and_comes_back_by_its_name_alone() {
    let stage = configured();
    stage.line("backup sales --verify").exits(0).says("LZ4");
    stage.line("backup docs").exits(0);
    let label = &labels(&stage, "sales")[0];
    assert!(stripe(&stage, 1, label).exists() && stripe(&stage, 2, label).exists());
    // Nothing but stripes is left: no lease, no temporary.
    assert_eq!(
        stage.names(format!("disk1/sales/{label}")),
        ["family-1.bak"]
    );
    stage.line("restore --database sales --to out").exits(0);
    assert_eq!(rows(&stage.path("out/app.db")).len(), 2048);
    stage
        .line("verify --database sales --label latest")
        .exits(0);
    let by_label = format!("restore --database sales --target nightly --label {label} --to out2");
    stage.line(&by_label).exits(0);
    stage
        .line("list --target nightly")
        .exits(0)
        .says("sales at")
        .says("docs at");
    stage
        .line(&format!("list --database sales --label {label}"))
        .exits(0)
        .says("family 2");
    stage
        .line("list --database docs --files")
        .exits(0)
        .says("a/b");
    assert_eq!(
        stage.names(format!("disk1/sales/{label}")),
        ["family-1.bak"]
    );
}

#[test]
fn a_failed_or_refused_backup_leaves_nothing_at_the_target() {
    let stage = configured();
    std::fs::remove_file(stage.path("app.db")).unwrap();
    stage.line("backup sales").exits(3);
    stage.line("backup docs --append").exits(2);
    stage
        .line("backup docs --database ../x")
        .exits(2)
        .says("directory");
    stage.line("backup docs --database .x").exits(2);
    for dir in ["disk1", "disk2"] {
        for database in stage.names(dir) {
            assert_eq!(
                stage.names(format!("{dir}/{database}")),
                Vec::<String>::new()
            );
        }
    }
}

#[test]
fn expire_keeps_what_the_retention_says_and_shows_it_before() {
    let stage = configured();
    for _ in 0..4 {
        stage.line("backup sales").exits(0);
    }
    stage.line("backup docs").exits(0);
    let before = labels(&stage, "sales");
    // After the line with the source's path, everything fits a terminal.
    let told = stage.line("info sales").exits(0);
    for line in told.out.lines().skip(1) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(told.out.matches("goes: no rule").count(), 2);
    let dry = stage.line("expire sales --dry-run --json").exits(0);
    let dry = json(&dry);
    assert_eq!(dry["databases"][0]["removed_count"], 2);
    let backups = dry["databases"][0]["backups"].as_array().unwrap();
    let fates: Vec<_> = backups
        .iter()
        .map(|b| b["fate"].as_str().unwrap())
        .collect();
    // In order of time, although labels of the same second are ordered by chance.
    assert_eq!(
        fates,
        ["would_be_removed", "would_be_removed", "kept", "kept"]
    );
    assert_eq!(labels(&stage, "sales"), before);
    stage
        .line("expire")
        .exits(0)
        .says("2 backups")
        .says("full backup number 2");
    // Labels of the same second are ordered by chance; the media tell which was first.
    let left = labels(&stage, "sales");
    assert_eq!(left.len(), 2);
    assert_eq!(left, stage.names("disk2/sales"));
    assert_eq!(labels(&stage, "docs").len(), 1);
    stage.line("restore --database sales --to out").exits(0);
    stage.line("expire sales --keep-full 1").exits(0);
    assert_eq!(labels(&stage, "sales").len(), 1);
    stage
        .line("expire sales --keep-full 1")
        .exits(0)
        .says("0 backups");
}

/// Goal: a manual copy of a backup replaces no other backup, and is named.
#[test]
fn a_backup_under_two_labels_is_one() {
    for copy in [
        "20200101T000000Z-full-deadbeef",
        "20990101T000000Z-full-deadbeef",
    ] {
        is_one_with(copy);
    }
}

fn is_one_with(copy: &str) {
    let stage = configured();
    for _ in 0..2 {
        stage.line("backup sales").exits(0);
    }
    stage.line("check sales").exits(0);
    let before = labels(&stage, "sales");
    let label = &before[1];
    for disk in 1..=2 {
        std::fs::create_dir(stage.path(format!("disk{disk}/sales/{copy}"))).unwrap();
        std::fs::copy(stripe(&stage, disk, label), stripe(&stage, disk, copy)).unwrap();
    }
    let of = format!("it is a copy of {label}");
    stage.line("check sales").exits(1).says(copy).says(&of);
    stage.line("info sales").says(copy).says("foreign");
    stage.line("expire sales").says(copy);
    let after = labels(&stage, "sales");
    assert!(
        before.iter().all(|label| after.contains(label)),
        "{after:?}"
    );
    assert_eq!(after.len(), 3);
    // The backup itself is as it was.
    let line = format!("restore --database sales --label {label} --to out");
    stage.line(&line).exits(0);
    let line = format!("restore --database sales --label {copy} --to out2");
    stage.line(&line).says(&of);
    // If the backup itself is gone, the copy is the backup.
    for disk in 1..=2 {
        std::fs::remove_dir_all(stage.path(format!("disk{disk}/sales/{label}"))).unwrap();
    }
    let line = format!("restore --database sales --label {copy} --to out3");
    stage.line(&line).exits(0);
}

/// Goal: `cp -a` of one directory of a target into another makes no backup foreign, and is told.
#[test]
fn a_directory_that_was_copied_into_another_is_named_and_costs_nothing() {
    let stage = configured();
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
    }
    let before = labels(&stage, "sales");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([stage.path("disk1/sales"), stage.path("disk2/")])
        .status();
    assert!(copied.unwrap().success());
    stage
        .line("check sales")
        .exits(5)
        .says("1 stripe is there twice, such as")
        .says("disk2/sales");
    let info = json(&stage.line("info sales --json").exits(0));
    let backups = info["databases"][0]["backups"].as_array().unwrap();
    assert!(backups.iter().all(|b| b["state"] == "complete"), "{info}");
    stage.line("info sales").exits(0).says("there twice");
    stage.line("restore --database sales --to out").exits(0);
    assert_eq!(rows(&stage.path("out/app.db")), rows(&stage.path("app.db")));
    // The rules count it as they did before, and both stripes of what goes are gone.
    stage.line("expire sales").exits(0).says("1 backup (");
    for disk in ["disk1/sales", "disk2/sales"] {
        let left = stage.names(disk);
        let gone = before.iter().filter(|label| !left.contains(label));
        assert_eq!(gone.count(), 1, "{disk}: {left:?}");
    }
}

/// Goal: what would fail every run, or pass for the latest backup, is not green.
#[test]
fn check_and_config_check_find_a_bad_catalog_and_a_directory_that_is_named_twice() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("check sales").exits(0);
    std::fs::write(stage.path("history.db"), vec![7; 10_000]).unwrap();
    stage.line("check sales").exits(1).says("history.db");
    let disk = stage.path("disk1").display().to_string();
    std::os::unix::fs::symlink(&disk, stage.path("link")).unwrap();
    let link = stage.path("link").display().to_string();
    let text = format!("[target.t]\ndirectories = [\"{disk}\", \"{link}\"]\n");
    stage.write("twice.toml", text.as_bytes());
    let twice = stage.line("--config twice.toml config check").exits(1);
    twice.says("are the same directory");
}

#[test]
fn expire_refuses_what_would_be_a_guess() {
    let stage = configured();
    stage.line("backup docs").exits(0);
    for (line, code) in [
        ("expire nobody", 0),
        ("expire docs --keep-full 0", 2),
        ("expire docs --target nowhere", 2),
        ("--config /dev/null expire", 2),
        ("--config /dev/null expire docs", 2),
        ("--config /dev/null expire docs --keep-full 1", 2),
    ] {
        stage.line(line).exits(code);
    }
    let plain = format!(
        "[target.t]\ndirectories = [\"{}\"]\n",
        stage.path("disk1").display()
    );
    stage.write("plain.toml", plain.as_bytes());
    stage
        .line("--config plain.toml expire docs --target t")
        .exits(2)
        .says("no retention is configured for docs");
    // One of two directories is missing: the set is incomplete, and nothing is removed.
    stage
        .line("--config plain.toml expire docs --target t --keep-full 1")
        .exits(5)
        .says("no restorable backup");
    assert_eq!(labels(&stage, "docs").len(), 1);
    std::fs::rename(stage.path("disk2"), stage.path("away")).unwrap();
    stage
        .line("expire docs")
        .exits(4)
        .says("disk2")
        .says("mounted");
    assert_eq!(labels(&stage, "docs").len(), 1);
}

/// Goal: a host that shares a disk with another one, and knows nothing of its databases, has no rules for them.
#[test]
fn an_expire_of_a_whole_target_leaves_another_hosts_databases_alone() {
    let stage = configured();
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
        stage.line("backup docs --database years").exits(0);
    }
    for line in [
        "expire --target nightly",
        "expire --target nightly --keep-full 1",
    ] {
        stage
            .line(&format!("{line} --dry-run"))
            .exits(0)
            .says("years at target nightly is left alone")
            .says("longshore expire years --target nightly");
        let told = json(&stage.line(&format!("{line} --json")).exits(0));
        assert_eq!(told["left_alone"], serde_json::json!(["years"]), "{told}");
        assert_eq!(told["databases"].as_array().unwrap().len(), 1, "{told}");
        assert_eq!(labels(&stage, "years").len(), 3, "{line}");
    }
    assert_eq!(labels(&stage, "sales").len(), 1);
    stage.line("expire years --target nightly").exits(0);
    assert_eq!(labels(&stage, "years").len(), 2);
    // Rules that somebody has written for this very target.
    let config = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("[retention.two]", "retention = \"one\"\n[retention.two]");
    std::fs::write(&config, text + "[retention.one]\nkeep_full = 1\n").unwrap();
    let told = json(&stage.line("expire --target nightly --json").exits(0));
    assert_eq!(told["left_alone"], serde_json::json!([]), "{told}");
    assert_eq!(labels(&stage, "years").len(), 1);
}

#[test]
fn a_target_that_is_away_does_not_keep_the_others_from_their_turn() {
    let stage = configured();
    // In order of their names: the one that fails is in the middle.
    let path = |name: &str| stage.path(name).display().to_string();
    let mut text =
        String::from("[retention.one]\nkeep_full = 1\n[defaults]\nretention = \"one\"\n");
    for name in ["a", "b", "c"] {
        std::fs::create_dir(stage.path(format!("of-{name}"))).unwrap();
        text += &format!(
            "[database.{name}]\nurl = \"files:{}\"\ntarget = \"{name}\"\n\
             [target.{name}]\ndirectories = [\"{}\"]\n",
            path("tree"),
            path(&format!("of-{name}")),
        );
    }
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    for name in ["a", "a", "b", "b", "c", "c"] {
        stage.line(&format!("backup {name}")).exits(0);
    }
    let count = |name: &str| stage.names(format!("of-{name}/{name}")).len();
    std::fs::rename(stage.path("of-b"), stage.path("away")).unwrap();
    stage
        .line("info")
        .exits(4)
        .says("a at target a")
        .says("c at target c");
    let metrics = stage.line("info --prometheus").exits(4).out;
    assert!(metrics.contains("longshore_backups{database=\"c\",target=\"c\"} 2\n"));
    stage
        .line("check")
        .exits(1)
        .says("FAIL  target     target b: cannot open")
        .says("c\n  ok");
    let told = json(&stage.line("expire --json").exits(4));
    assert_eq!((count("a"), count("c")), (1, 1));
    assert_eq!(told["databases"].as_array().unwrap().len(), 2);
    let failure = &told["failures"][0];
    assert_eq!(
        (&failure["database"], &failure["exit_code"]),
        (&"b".into(), &4.into())
    );
    assert!(
        failure["error"]["text"].as_str().unwrap().contains("of-b"),
        "{failure}"
    );
    std::fs::rename(stage.path("away"), stage.path("of-b")).unwrap();
    assert_eq!(count("b"), 2);
    stage.line("expire").exits(0);
    assert_eq!(count("b"), 1);
}

#[test]
fn the_name_and_the_description_of_a_backup_are_shown_where_it_is_listed() {
    let stage = configured();
    let words = [
        "backup",
        "sales",
        "--name",
        "before the move",
        "--description",
        "asked for by Ada",
    ];
    stage
        .run(&words)
        .exits(0)
        .says("full backup 20")
        .says(" of sales at target ");
    for line in ["info sales", "list --database sales"] {
        let told = stage.line(line).exits(0);
        let expected = "-full-";
        let shown = told
            .out
            .lines()
            .find(|line| line.contains("asked for by Ada"));
        let shown = shown.unwrap_or_else(|| panic!("{line}: {}", told.out));
        assert!(
            shown.contains(expected) && shown.contains("the move"),
            "{shown}"
        );
    }
    let told = json(&stage.line("info sales --json").exits(0));
    let backup = &told["databases"][0]["backups"][0];
    assert_eq!(backup["name"], "before the move");
    assert_eq!(backup["description"], "asked for by Ada");
    let told = json(&stage.line("backup sales --json").exits(0));
    assert_eq!(told["type"], "full");
    assert!(told["label"].as_str().unwrap().contains("-full-") && told["target"].is_string());
    assert!(told["start_us"].as_i64() <= told["finish_us"].as_i64());
    assert_eq!(told["first_lsn"], Value::Null);
}

#[test]
fn info_shows_states_sizes_and_the_outlook() {
    let stage = configured();
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let labels = labels(&stage, "sales");
    std::fs::remove_file(stripe(&stage, 2, &labels[1])).unwrap();
    stage.write("disk1/sales/notes", b"mine");
    let told = stage.line("info sales").exits(0);
    for part in [
        "MISSING",
        "family 2 of 2 is missing",
        "notes is unknown here",
        "last good backup",
        "two",
    ] {
        assert!(told.out.contains(part), "{part}: {}", told.out);
    }
    let told = json(&stage.line("info --json").exits(0));
    let sales = told["databases"]
        .as_array()
        .unwrap()
        .iter()
        .find(|d| d["database"] == "sales");
    let sales = sales.unwrap();
    assert_eq!(sales["backups"].as_array().unwrap().len(), 3);
    assert_eq!(sales["last_good"], labels[2].as_str());
    assert_eq!(sales["backups"][1]["restorable"], false);
    assert!(sales["backups"][0]["plain_bytes"].as_u64().unwrap() > 1 << 20);
    let metrics = stage.line("info sales --prometheus").exits(0).out;
    let labels = "{database=\"sales\",target=\"nightly\"}";
    assert!(
        metrics.contains(&format!("longshore_backups{labels} 3\n")),
        "{metrics}"
    );
    assert!(metrics.contains(&format!("longshore_backups_restorable{labels} 2\n")));
    for line in metrics.lines().filter(|l| !l.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    stage.line("info nobody").exits(0).says("no backup");
    stage.line("info --target nowhere").exits(2);
}

/// Goal: a monitor learns that the newest run was killed, although an older backup is good and young; and it is told so
/// until a backup is complete.
/// Goal: a target that lost its newest backup tells nothing of it, and the history of the machine that made it does.
#[test]
fn a_newest_backup_that_somebody_removed_or_exchanged_fails_the_check() {
    let stage = configured();
    for _ in 0..2 {
        stage.line("backup sales").exits(0);
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    let labels = labels(&stage, "sales");
    let code = stage.line("check sales").code;
    let moved = |from: &str, to: &str| {
        for dir in ["disk1", "disk2"] {
            let at = |name: &str| stage.path(format!("{dir}/sales/{name}"));
            std::fs::rename(at(from), stage.path(format!("{dir}-{to}"))).unwrap();
        }
    };
    let back = |from: &str, to: &str| {
        for dir in ["disk1", "disk2"] {
            let at = stage.path(format!("{dir}/sales/{to}"));
            std::fs::rename(stage.path(format!("{dir}-{from}")), at).unwrap();
        }
    };
    moved(&labels[1], "new");
    let told = stage.line("check sales").exits(1);
    told.says(&format!(
        "{}: the newest backup that this machine made",
        labels[1]
    ))
    .says("is not at the target any longer");
    let elsewhere = stage.line("check sales --catalog none").exits(code);
    assert!(
        !elsewhere.out.contains("the newest backup that"),
        "{}",
        elsewhere.out
    );
    // Another machine went on with the database: its newer backup is good, and its retention may have removed this one.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("--catalog other.db backup sales").exits(0);
    let others = stage.names("disk1/sales").pop().unwrap();
    let told = stage.line("check sales");
    assert!(!told.out.contains("the newest backup that"), "{}", told.out);
    for dir in ["disk1", "disk2"] {
        std::fs::remove_dir_all(stage.path(format!("{dir}/sales/{others}"))).unwrap();
    }
    stage.line("check sales").exits(1);
    // The older one in its place.
    moved(&labels[0], "old");
    back("old", &labels[1]);
    stage.line("check sales").exits(1).says("another backup is");
    moved(&labels[1], "old");
    back("old", &labels[0]);
    back("new", &labels[1]);
    stage.line("check sales").exits(code);
}

#[test]
fn a_newest_backup_that_was_killed_is_a_warning_until_another_is_complete() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("check sales").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let good = labels(&stage, "sales");
    let mut slow = stage.command(&["backup", "sales", "--max-rate", "200K"]);
    let mut slow = slow.stderr(std::process::Stdio::null()).spawn().unwrap();
    let begun = (0..600).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let all = labels(&stage, "sales");
        let label = all.into_iter().find(|label| !good.contains(label))?;
        let dir = stage.path(format!("disk1/sales/{label}"));
        // A stripe is there, under the name that it has while it is written.
        let is_stripe = |name: &std::ffi::OsString| name.to_string_lossy().contains("family-");
        let mut names = std::fs::read_dir(dir).ok()?.flatten();
        names.any(|e| is_stripe(&e.file_name())).then_some(label)
    });
    slow.kill().unwrap();
    slow.wait().unwrap();
    let begun = begun.expect("a second label");
    let told = stage
        .line("check sales")
        .exits(5)
        .says(&format!("WARN  backup     {begun}: "))
        .says("the newest run did not complete; run `longshore backup sales`");
    assert!(told.out.contains("ok    age"), "{}", told.out);
    let told = json(&stage.line("check sales --json").exits(5));
    assert_eq!(told["databases"][0]["grade"], "look", "{told}");
    let metrics = stage.line("metrics sales").exits(0).out;
    let state = |state: &str, value: u8| {
        let labels = format!("database=\"sales\",target=\"nightly\",state=\"{state}\"");
        let line = format!("longshore_backup_state{{{labels}}} {value}\n");
        assert!(metrics.contains(&line), "{metrics}");
    };
    state("INCOMPLETE", 1);
    state("complete", 0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    let told = stage.line("check sales").exits(0);
    assert!(!told.out.contains("did not complete"), "{}", told.out);
}

/// Goal: the file of metrics is whole or the old one, everybody may read it, and a target that is away is told in it.
#[test]
fn metrics_go_to_a_file_as_a_whole_and_say_which_target_is_away() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let file = stage.path("collected/longshore.prom");
    let written = || std::fs::read_to_string(&file).unwrap();
    stage
        .line("metrics --output collected/longshore.prom")
        .exits(0);
    let first = written();
    assert_eq!(stage.names("collected"), ["longshore.prom"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644);
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        "longshore_backups{database=\"sales\",target=\"nightly\"} 1".to_owned(),
        "longshore_families_lost{database=\"sales\",target=\"nightly\"} 0".to_owned(),
        "longshore_recipients{database=\"sales\",target=\"nightly\"} 0".to_owned(),
        "longshore_stopped{database=\"sales\",target=\"nightly\"} 0".to_owned(),
        "longshore_up{database=\"docs\",target=\"nightly\"} 1".to_owned(),
        format!("longshore_build_info{{version=\"{version}\"}} 1"),
    ] {
        assert!(first.lines().any(|l| l == line), "{line}: {first}");
    }
    let told = stage.line("metrics").exits(0).out;
    let older = stage.line("info --prometheus").exits(0).out;
    let kept = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("_age_seconds{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(kept(&told), kept(&first));
    assert_eq!(kept(&told), kept(&older));
    // A stripe that is lost.
    let label = &labels(&stage, "sales")[0];
    std::fs::rename(stripe(&stage, 2, label), stage.path("kept")).unwrap();
    let told = json(&stage.line("metrics sales --json").exits(0));
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("longshore_families_lost{database=\"sales\",target=\"nightly\"} 1\n"));
    let missing =
        "longshore_backup_state{database=\"sales\",target=\"nightly\",state=\"MISSING\"} 1";
    assert!(text.lines().any(|line| line == missing), "{text}");
    std::fs::rename(stage.path("disk1"), stage.path("away")).unwrap();
    stage
        .line("metrics --output collected/longshore.prom")
        .exits(4)
        .says("disk1");
    let away = written();
    for database in ["sales", "docs"] {
        let line = format!("longshore_up{{database=\"{database}\",target=\"nightly\"}} 0\n");
        assert!(away.contains(&line), "{away}");
    }
    assert!(!away.contains("longshore_backups{"), "{away}");
    // A place without room for the file is named.
    stage.write("plain", b"a file");
    stage.line("metrics --output plain/x.prom").exits(6);
    stage.line("metrics --output collected/..").exits(2);
}

#[test]
fn the_history_of_a_whole_target_is_learned_again() {
    let stage = configured();
    for name in ["sales", "sales", "docs"] {
        stage.line(&format!("backup {name}")).exits(0);
    }
    let label = &labels(&stage, "sales")[0];
    std::fs::remove_file(stripe(&stage, 2, label)).unwrap();
    std::fs::remove_file(stage.path("history.db")).unwrap();
    let rebuild = || {
        stage
            .line("catalog rebuild --target nightly --json")
            .exits(5)
    };
    let told = json(&rebuild());
    assert_eq!(
        (&told["added"], &told["known"]),
        (&2.into(), &0.into()),
        "{told}"
    );
    let unreadable = told["unreadable"][0].as_str().unwrap();
    assert!(
        unreadable.contains(label.as_str()) && unreadable.contains("family 2 of 2"),
        "{told}"
    );
    assert_eq!(json(&rebuild())["known"], 2);
    let rows = json(&stage.line("history --json").exits(0));
    let mut names: Vec<_> = rows["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["database"])
        .collect();
    names.sort_by_key(|name| name.to_string());
    assert_eq!(names, ["docs", "sales"]);
}

#[test]
fn check_and_a_backup_report_one_that_a_clock_dated_in_the_future() {
    let stage = configured();
    let ahead = |by: &str| {
        stage
            .shell(&format!("faketime -f {by} longshore backup sales"))
            .exits(0);
    };
    // Hosts' clocks differ a little.
    ahead("+30min");
    stage.line("check sales").exits(0);
    // These are the only backups: nothing shows that there is a current one.
    for disk in ["disk1/sales", "disk2/sales"] {
        std::fs::remove_dir_all(stage.path(disk)).unwrap();
        std::fs::create_dir(stage.path(disk)).unwrap();
    }
    ahead("+2d");
    let first = &labels(&stage, "sales")[0];
    let told = format!("the last good backup, {first}, is dated 1 d 23 h ahead");
    let told = stage.line("check sales").exits(1).says("FAIL").says(&told);
    assert!(told.out.contains("correct the clock"), "{}", told.out);
    // Next to a good one, which labels make the older one, and which says so.
    let made = stage.line("backup sales").exits(5);
    made.says(&format!("{first} at target nightly"))
        .says("later than now")
        .says("counts as the older");
    stage
        .line("check sales")
        .exits(1)
        .says("FAIL")
        .says(&format!("{first} is dated 1 d 23 h ahead of now"));
    let names: Vec<String> = labels(&stage, "sales");
    assert_eq!(names.len(), 2, "nothing was removed");
}

/// Goal: a monitor hears of a disk that became read-only before the next backup fails.
#[test]
fn check_says_that_a_target_is_read_only() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("backup docs").exits(0);
    stage.line("check").exits(0);
    let script = "mount --bind \"$0\" \"$0\" || exit 111; mount -o remount,ro,bind \"$0\" || exit 111; exec \"$@\"";
    let disk = stage.path("disk1");
    let mut inside = std::process::Command::new("unshare");
    inside.args(["-m", "sh", "-c", script]).arg(&disk);
    let check = stage.command(&["check", "sales"]);
    inside.arg(check.get_program()).args(check.get_args());
    for (key, value) in check.get_envs() {
        match value {
            Some(value) => inside.env(key, value),
            None => inside.env_remove(key),
        };
    }
    let output = inside.current_dir(stage.path("")).output().unwrap();
    let ran = Ran::of(&output);
    if ran.code == 111 || ran.err.starts_with("unshare:") {
        eprintln!("left out: this user cannot mount");
        return;
    }
    assert_eq!(ran.code, 1, "{} {}", ran.out, ran.err);
    assert!(ran.out.contains("is read-only"), "{}", ran.out);
}

#[test]
fn check_answers_with_its_exit_code() {
    let stage = configured();
    stage
        .line("check sales")
        .exits(1)
        .says("FAIL")
        .says("no good backup");
    stage.line("backup sales").exits(0);
    stage.line("check sales").exits(0).says("ok ");
    stage.line("check").exits(1).says("docs");
    stage.line("backup docs").exits(0);
    stage.line("check").exits(0);
    let told = json(&stage.line("check --json").exits(0));
    assert_eq!(told["databases"][0]["grade"], "good");
    stage.line("check sales --max-age 1").exits(0);
    stage.write("disk1/sales/notes", b"mine");
    stage.line("check sales").exits(5).says("WARN");
    std::fs::remove_file(stage.path("disk1/sales/notes")).unwrap();
    let label = &labels(&stage, "sales")[0];
    let lost = stripe(&stage, 1, label);
    let bytes = std::fs::read(&lost).unwrap();
    std::fs::remove_file(&lost).unwrap();
    stage
        .line("check sales")
        .exits(1)
        .says("family 1 of 2 is missing");
    std::fs::write(&lost, bytes).unwrap();
    std::fs::rename(stage.path("app.db"), stage.path("gone.db")).unwrap();
    stage.line("check sales").exits(1).says("app.db");
    stage
        .line("check nobody")
        .exits(2)
        .says("name a configured one (docs, sales)");
    stage.line("--config /dev/null check").exits(2);
}

#[test]
fn a_drill_proves_a_backup_or_finds_what_is_wrong_and_leaves_nothing() {
    let stage = configured();
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("backup sales").exits(0);
    stage.line("backup docs").exits(0);
    stage
        .line("drill sales --work work")
        .exits(0)
        .says("integrity_check")
        .says("is good");
    let told = json(&stage.line("drill docs --work work --json").exits(0));
    assert_eq!(
        (&told["sound"], &told["action"]),
        (&Value::Bool(true), &"drill".into())
    );
    assert_eq!(stage.names("work"), Vec::<String>::new());
    // The history records the drills' restores.
    stage
        .line("history --restores")
        .exits(0)
        .says("longshore-drill");
    // The database was damaged before it was backed up.
    let mut bytes = std::fs::read(stage.path("app.db")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0x55);
    stage.write("app.db", &bytes);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    stage
        .line("drill sales --work work")
        .exits(1)
        .says("NOT GOOD");
    // The media are damaged.
    let newest = labels(&stage, "sales").pop().unwrap();
    damage(&stripe(&stage, 1, &newest));
    stage.line("drill sales --work work").exits(4).says("3189");
    stage.line("drill nobody --work work").exits(4).says("3201");
    stage.line("drill sales --work nowhere").exits(2);
    assert_eq!(stage.names("work"), Vec::<String>::new());
}

/// Makes a backup of the tree while a file of it grows.
fn mark(stage: &Stage) {
    stage.write("tree/log", &vec![b'x'; 4 << 20]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = std::fs::OpenOptions::new();
            let mut log = log.append(true).open(stage.path("tree/log")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                log.write_all(b"another line\n").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let marked = stage.line("backup docs --max-rate 8M");
        stop.store(true, Ordering::Relaxed);
        marked.exits(5).says("log ");
    });
}

/// Goal: a backup that a restore takes, and that may not be what the source held, is not green.
#[test]
fn check_tells_of_a_newest_backup_that_is_marked() {
    let stage = configured();
    stage.line("backup docs").exits(0);
    stage.line("check docs").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    mark(&stage);
    let newest = labels(&stage, "docs").pop().unwrap();
    stage
        .line("check docs")
        .exits(5)
        .says(&format!("{newest}, the newest, is marked"))
        .says("longshore backup docs");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup docs").exits(0);
    stage.line("check docs").exits(0);
}

#[test]
fn a_drill_does_not_call_a_marked_set_good() {
    let stage = configured();
    std::fs::create_dir(stage.path("work")).unwrap();
    mark(&stage);
    stage
        .line("drill docs --work work")
        .exits(1)
        .says("the set is marked")
        .says("NOT GOOD");
    assert_eq!(stage.names("work"), Vec::<String>::new());
}

#[test]
fn config_check_says_what_it_means_and_never_a_password() {
    let stage = configured();
    stage
        .line("config check")
        .exits(0)
        .says("each backup gets 2 stripes")
        .says("an expire keeps the newest 2 full backups");
    let secret = "[database.pg]\nurl = \"postgres://u:hunter2@h/d\"\npassword_env = \"PGSECRET\"\n";
    stage.write("pg.toml", secret.as_bytes());
    for command in [
        "config check",
        "config check --json",
        "check --archive-wait 0",
    ] {
        let mut run = stage.command(&["--config", "pg.toml"]);
        let output = run
            .args(command.split(' '))
            .env("PGSECRET", "hunter3")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(!said.contains("hunter"), "{said}");
    }
    let ran = stage.line("--config pg.toml backup pg --to x.bak").exits(2);
    assert!(ran.err.contains("PGSECRET is not set"), "{}", ran.err);
    stage.write("bad.toml", b"[retention.x]\nkeep_dyas = 3\n");
    let ran = stage.line("--config bad.toml config check").exits(2);
    assert!(ran.err.contains("did you mean `keep_days`?"), "{}", ran.err);
}

#[test]
fn the_environment_overrides_the_file() {
    let stage = configured();
    let mut run = stage.command(&["config", "check"]);
    run.env("LONGSHORE_DATABASE_SALES_LEVEL", "7")
        .env("LONGSHORE_RETENTION_TWO_KEEP_FULL", "9");
    let said = String::from_utf8(run.output().unwrap().stdout).unwrap();
    assert!(
        said.contains("level 7") && said.contains("newest 9 full"),
        "{said}"
    );
    let mut run = stage.command(&["config", "check"]);
    let output = run
        .env("LONGSHORE_TARGET_NIGHTLY_DIRECTORIE", "/x")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("did you mean `directories`?"), "{said}");
}

#[test]
fn a_backup_that_runs_is_not_taken_for_rubbish() {
    let stage = configured();
    stage.write("tree/big", &vec![7; 6 << 20]);
    for _ in 0..2 {
        stage.line("backup docs").exits(0);
    }
    let mut run = stage.command(&["backup", "docs", "--max-rate", "1M"]);
    let mut child = run.spawn().unwrap();
    let began = std::time::Instant::now();
    while !stage
        .line("list --database docs")
        .exits(0)
        .out
        .contains("writing")
    {
        assert!(began.elapsed().as_secs() < 60, "it does not begin");
        assert!(child.try_wait().unwrap().is_none(), "it ended first");
    }
    // It runs meanwhile, however long the others take.
    let send = |signal| {
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    };
    send(libc::SIGSTOP);
    let told = stage.line("expire docs --keep-full 1").exits(0);
    assert!(told.out.contains("being written"), "{}", told.out);
    stage.line("list --database docs").exits(0).says("writing");
    send(libc::SIGCONT);
    assert!(child.wait().unwrap().success());
    stage.line("verify --database docs").exits(0);
}

#[test]
fn a_backup_that_is_being_restored_survives_an_expire() {
    let stage = configured();
    stage.write("tree/big", &vec![7; 6 << 20]);
    stage.line("backup docs").exits(0);
    let old = labels(&stage, "docs").pop().unwrap();
    let mut run = stage.command(&["restore", "--database", "docs", "--max-rate", "1M"]);
    let mut child = run.args(["--to", "back"]).spawn().unwrap();
    let began = std::time::Instant::now();
    // The backup holds the lease, and writes.
    let target = stage.path("back");
    while !target.exists() {
        assert!(began.elapsed().as_secs() < 60, "it does not begin");
        assert!(child.try_wait().unwrap().is_none(), "it ended first");
    }
    // It runs meanwhile, however long the others take.
    let send = |signal| {
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    };
    send(libc::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup docs").exits(0);
    let told = stage.line("expire docs --keep-full 1").exits(0);
    assert!(told.out.contains("in use"), "{}", told.out);
    assert!(labels(&stage, "docs").contains(&old));
    send(libc::SIGCONT);
    assert!(child.wait().unwrap().success());
    assert_eq!(
        std::fs::read(stage.path("back/big")).unwrap(),
        vec![7; 6 << 20]
    );
    stage.line("expire docs --keep-full 1").exits(0);
    assert!(!labels(&stage, "docs").contains(&old));
}

/// `config check` also checks what the file names, and does not affect other commands.
#[test]
fn config_check_finds_what_would_not_work() {
    let stage = configured();
    let path = |name: &str| stage.path(name).display().to_string();
    std::fs::create_dir_all(stage.path("tree/backups")).unwrap();
    let text = format!(
        "[target.inside]\ndirectories = [\"{0}/backups\"]\n\
         [target.gone]\ndirectories = [\"{1}\"]\n\
         [database.tree]\nurl = \"files:{0}\"\ntarget = \"inside\"\n\
         [database.none]\nurl = \"sqlite:{1}.db\"\npassword_file = \"{1}.secret\"\n\
         [database.pg]\nurl = \"postgres://u:hunter2@h:99999/d\"\n\
         [database.odd]\nurl = \"postgres:u:hunter2@h\"\n\
         [retention.r]\nkeep_full = 2\nkeep_wal = 3\n",
        path("tree"),
        path("nowhere/x"),
    );
    stage.write("odd.toml", text.as_bytes());
    let ran = stage.line("--config odd.toml config check --json").exits(1);
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let found: Vec<_> = answer["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f.as_str().unwrap().to_owned())
        .collect();
    for (table, what) in [
        ("[database.tree]", "its backups would be in its source"),
        ("[target.gone]", "No such file"),
        ("[database.none]", "nowhere/x.db"),
        ("[database.none]", "nowhere/x.secret"),
        ("[database.pg]", "a port is a number from 1 to 65535"),
        ("[database.odd]", "write a server as postgres://"),
        ("[retention.r]", "keep_wal = 3 is above keep_full = 2"),
    ] {
        assert!(
            found
                .iter()
                .any(|f| f.starts_with(table) && f.contains(what)),
            "{table} {what}: {found:?}"
        );
    }
    assert_eq!(found.len(), 7, "{found:?}");
    let ran = stage
        .line("--config odd.toml config check")
        .exits(1)
        .says("FAIL  [retention.r]");
    assert!(
        !format!("{}{}", ran.out, ran.err).contains("hunter"),
        "{}",
        ran.out
    );
    let ran = stage
        .line("backup postgres:u:hunter2@h --to x.bak")
        .exits(3);
    assert!(
        !ran.err.contains("hunter") && ran.err.contains("postgres://USER@HOST"),
        "{}",
        ran.err
    );

    // A name that looks like something else in a log is refused.
    stage.write("name.toml", b"[database.\"a\\nb\"]\nurl = \"sqlite:/a\"\n");
    let ran = stage.line("--config name.toml config check").exits(2);
    assert!(ran.err.contains("control characters"), "{}", ran.err);
    let target = [
        "backup",
        "app.db",
        "--target",
        "nightly",
        "--database",
        "a\u{1b}[2Jb",
    ];
    let output = stage.command(&target).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("control characters") && !said.contains('\u{1b}'),
        "{said}"
    );

    // A `LONGSHORE_` variable that is unknown.
    let output = stage
        .command(&["config", "check"])
        .env("LONGSHORE_CATALOGUE", "/x")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean `LONGSHORE_CATALOG`?"), "{said}");
}

/// What a configuration names and is not there: a variable, an archive's directory, a server's files. Links are followed.
#[test]
fn config_check_follows_links_and_finds_what_a_variable_an_archive_and_a_server_lack() {
    let stage = configured();
    let path = |name: &str| stage.path(name).display().to_string();
    std::fs::create_dir_all(stage.path("tree/backups")).unwrap();
    std::os::unix::fs::symlink(stage.path("tree"), stage.path("link")).unwrap();
    let text = format!(
        "[target.linked]\ndirectories = [\"{0}/backups\"]\n\
         [target.outer]\ndirectories = [\"{1}\"]\n\
         [database.linked]\nurl = \"files:{1}\"\ntarget = \"linked\"\n\
         [database.inner]\nurl = \"files:{1}/backups\"\ntarget = \"outer\"\n\
         [database.secret]\nurl = \"sqlite:{2}\"\npassword_env = \"SECRET_OF_OURS\"\n\
         [database.pg]\nurl = \"postgres://h\"\n[database.pg.wal]\narchive = \"{3}/pg/log\"\n\
         [retention.days]\nkeep_full = 2\nkeep_wal = 3\nkeep_days = 30\n\
         [serve]\ncertificate = \"{3}/c\"\nkey = \"{3}/k\"\ndirectories = [\"{3}/d\"]\n\
         logins = \"{3}/state/logins\"\nbackup_directory = \"{3}/b/new\"\n",
        path("link"),
        path("tree"),
        path("app.db"),
        path("nowhere"),
    );
    stage.write("odd.toml", text.as_bytes());
    for value in [None, Some("")] {
        let mut check = stage.command(&["--config", "odd.toml", "config", "check", "--json"]);
        check.envs(value.map(|value| ("SECRET_OF_OURS", value)));
        let output = check.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = answer["problems"].as_array().unwrap();
        let found: Vec<_> = found.iter().map(|f| f.as_str().unwrap()).collect();
        for (table, what) in [
            ("[database.linked]", "its backups would be in its source"),
            (
                "[database.inner]",
                "its source would be in the directory of its backups",
            ),
            ("[database.secret]", "SECRET_OF_OURS is not set"),
            ("[database.pg]", "nowhere/pg: No such file"),
            ("[serve]", "nowhere/c: No such file"),
            ("[serve]", "nowhere/k: No such file"),
            ("[serve]", "nowhere/d: No such file"),
            ("[serve]", "nowhere/state: No such file"),
            ("[serve]", "nowhere/b: No such file"),
        ] {
            let is_it = |f: &&str| f.starts_with(table) && f.contains(what);
            assert!(found.iter().any(is_it), "{table} {what}: {found:?}");
        }
        assert_eq!(found.len(), 9, "{found:?}");
    }
}
