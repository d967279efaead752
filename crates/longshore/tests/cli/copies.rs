//! Goal: backups are copied to other targets by name, and a restore finds the copy when the first target lacks stripes.
//! Method: the program runs over a configured database, a target of two directories and one of one.
//! Not covered: PostgreSQL and its WAL (`wal/copies.rs`), and buckets (`copying.rs` of the repository).

use std::path::PathBuf;

use serde_json::Value;

use crate::sound::with_index;
use crate::stage::{Ran, Stage, damage, rows};

/// A database with a target, and a second target for copies.
fn configured() -> Stage {
    let stage = Stage::new();
    stage.database("app.db", 2);
    for dir in ["disk1", "disk2", "away"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    write_configuration(&stage, "copies = [\"offsite\"]\n");
    stage
}

fn write_configuration(stage: &Stage, of_database: &str) {
    let path = |name: &str| stage.path(name).display().to_string();
    let text = format!(
        "[database.sales]\nurl = \"sqlite:{}\"\n{of_database}\
         [target.nightly]\ndirectories = [\"{}\", \"{}\"]\n\
         [target.offsite]\ndirectories = [\"{}\"]\nretention = \"long\"\n\
         [retention.two]\nkeep_full = 2\n[retention.long]\nkeep_full = 3\n\
         [defaults]\ntarget = \"nightly\"\nretention = \"two\"\n",
        path("app.db"),
        path("disk1"),
        path("disk2"),
        path("away"),
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

fn fates(answer: &Value) -> Vec<&str> {
    let backups = answer["databases"][0]["backups"].as_array().unwrap();
    backups
        .iter()
        .map(|b| b["fate"].as_str().unwrap())
        .collect()
}

/// A database whose backups are copied to two targets, the first of which is `old`.
fn with_an_old_copy() -> Stage {
    let stage = configured();
    std::fs::create_dir(stage.path("old")).unwrap();
    write_configuration(&stage, "copies = [\"old\", \"offsite\"]\n");
    let config = stage.path("no-config/longshore/longshore.toml");
    let path = stage.path("old");
    let text = std::fs::read_to_string(&config).unwrap()
        + &format!("[target.old]\ndirectories = [\"{}\"]\n", path.display());
    std::fs::write(&config, text).unwrap();
    stage
}

/// Goal: where two copies have backups of two databases under one name, the time of neither says which is meant.
#[test]
fn of_two_databases_at_two_copies_none_is_read_instead() {
    let stage = with_an_old_copy();
    stage.line("backup sales").exits(0);
    stage.line("copy sales --to old").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.database("other.db", 1);
    stage
        .line("backup sqlite:other.db --database sales --target offsite")
        .exits(0);
    std::fs::rename(stage.path("disk1"), stage.path("unplugged")).unwrap();
    stage
        .line("restore --database sales --to out")
        .exits(4)
        .says("have backups of two databases under the name sales");
    assert!(!stage.path("out").exists());
    stage
        .line("restore --database sales --target old --to out")
        .exits(0);
}

/// Goal: a copy that has backups of two databases itself is not skipped for another place: only a person knows which is
/// meant.
#[test]
fn a_copy_with_backups_of_two_databases_ends_the_search() {
    let stage = with_an_old_copy();
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.database("other.db", 1);
    stage
        .line("backup sqlite:other.db --database sales --target old")
        .exits(5);
    let labels = stage.names("old/sales");
    let (first, other) = (&labels[0], &labels[1]);
    std::fs::rename(stage.path("disk1"), stage.path("unplugged")).unwrap();
    for line in [
        "restore --database sales --to out",
        "verify --database sales",
        "drill sales",
    ] {
        stage
            .line(line)
            .exits(4)
            .says("target old holds backups of sales from 2 branches or clusters")
            .says(&format!("--label {first}"))
            .says(&format!("--label {other}"))
            .says(&format!("target offsite has {first}"))
            .says("target nightly is away");
    }
    assert!(!stage.path("out").exists());
    let line = format!("restore --database sales --label {other} --to out");
    stage.line(&line).exits(5);
    assert_eq!(
        rows(&stage.path("out/other.db")),
        rows(&stage.path("other.db"))
    );
}

fn stripe(stage: &Stage, place: &str, label: &str, family: u32) -> PathBuf {
    stage.path(format!("{place}/sales/{label}/family-{family}.bak"))
}

#[test]
fn what_a_copy_lacks_is_copied_once_and_restored_from_there() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let dry = stage.line("--json copy --dry-run").exits(0);
    assert_eq!(fates(&json(&dry)), ["would_be_copied"]);
    assert_eq!(stage.names("away"), Vec::<String>::new());
    let copied = stage.line("--json copy sales").exits(0);
    let answer = json(&copied);
    assert_eq!(fates(&answer), ["copied"]);
    let label = &stage.names("disk1/sales")[0];
    for family in [1, 2] {
        let first = std::fs::read(stripe(&stage, &format!("disk{family}"), label, family)).unwrap();
        let copy = std::fs::read(stripe(&stage, "away", label, family)).unwrap();
        assert_eq!(first, copy);
    }
    assert_eq!(answer["databases"][0]["copied"], 1);
    assert_eq!(fates(&json(&stage.line("--json copy").exits(0))), ["there"]);
    stage
        .line("copy")
        .exits(0)
        .says("0 backups (0 B) copied, 1 were there");
    std::fs::remove_dir_all(stage.path("disk1")).unwrap();
    stage
        .line("restore --database sales --to out --target offsite")
        .exits(0);
    assert_eq!(rows(&stage.path("out/app.db")), rows(&stage.path("app.db")));
    // A target that is named is the only one that is asked.
    stage
        .line("restore --database sales --to two --target nightly")
        .exits(4)
        .says("cannot open the directory");
}

/// Goal: while the target is away, readers take the newest backup that any copy has, say which, and say that the target alone
/// knows of a newer one; a copy that is away, too, or has an older backup, is skipped.
#[test]
fn while_the_target_is_away_the_nearest_copy_is_read_and_named() {
    let stage = configured();
    for dir in ["old", "lost"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    write_configuration(&stage, "copies = [\"lost\", \"old\", \"offsite\"]\n");
    let config = stage.path("no-config/longshore/longshore.toml");
    let mut text = std::fs::read_to_string(&config).unwrap();
    for dir in ["old", "lost"] {
        let path = stage.path(dir);
        text += &format!("[target.{dir}]\ndirectories = [\"{}\"]\n", path.display());
    }
    std::fs::write(&config, text).unwrap();
    stage.line("backup sales").exits(0);
    stage.line("copy sales --to old").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    stage.line("copy sales --to offsite").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    let labels = stage.names("away/sales");
    let (older, copied) = (&labels[0], &labels[1]);
    std::fs::rename(stage.path("disk1"), stage.path("unplugged")).unwrap();
    std::fs::remove_dir(stage.path("lost")).unwrap();

    let says =
        format!("{copied} is read from its copy at target offsite, the newest that a copy has");
    for line in [
        "restore --database sales --to out",
        "restore --database sales --only app.db --to part",
        "restore --database sales --dry-run --to nowhere",
        "verify --database sales",
        "list --database sales --files",
    ] {
        stage
            .line(line)
            .exits(5)
            .says(&says)
            .says("target nightly is away")
            .says("a newer backup may be at target nightly alone");
    }
    for to in ["out", "part"] {
        let restored = stage.path(format!("{to}/app.db"));
        assert_eq!(rows(&restored), rows(&stage.path("app.db")));
    }
    stage.line("drill sales").exits(5).says(&says);
    // The result of the verification belongs to the copy that was read.
    let record = stage.path("away/sales/.longshore-status-verify");
    assert!(
        std::fs::read_to_string(record)
            .unwrap()
            .contains(copied.as_str())
    );
    // Of a label that several copies have, the first one's counts.
    stage
        .line(&format!(
            "restore --database sales --label {older} --to older"
        ))
        .exits(5)
        .says(&format!("{older} is read from its copy at target old"));
    let newest = &stage.names("disk2/sales")[2];
    stage
        .line(&format!(
            "restore --database sales --label {newest} --to none"
        ))
        .exits(4)
        .says("cannot open the directory");
    assert!(!stage.path("none").exists());
    // Once it is back, the target decides again.
    std::fs::rename(stage.path("unplugged"), stage.path("disk1")).unwrap();
    let said = stage
        .line("--json restore --database sales --to back")
        .exits(0);
    assert_eq!(json(&said)["chosen"]["label"], newest.as_str());
}

#[test]
fn a_backup_that_lacks_a_stripe_is_restored_from_its_copy_and_says_so() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    let label = stage.names("disk1/sales")[0].clone();
    std::fs::remove_file(stripe(&stage, "disk2", &label, 2)).unwrap();
    // The stripe that is at home is read there.
    let theirs = stripe(&stage, "away", &label, 1);
    let whole = std::fs::read(&theirs).unwrap();
    damage(&theirs);
    for (line, to) in [("", "out"), ("--only app.db ", "part")] {
        stage
            .line(&format!("restore --database sales {line}--to {to}"))
            .exits(5)
            .says("is restored from its copy at target offsite")
            .says(&format!("which gives family 2 of {label}"))
            .says("family 2 of 2 is missing");
        let restored = stage.path(format!("{to}/app.db"));
        assert_eq!(rows(&restored), rows(&stage.path("app.db")));
    }
    std::fs::write(&theirs, whole).unwrap();
    // A target that is named is the only one that is asked.
    stage
        .line("restore --database sales --target nightly --to two")
        .exits(4)
        .says("family 2 of 2 is missing");
    stage
        .line("verify --database sales")
        .exits(4)
        .says("family 2 of 2 is missing");
    // An older backup is no copy of this one.
    std::fs::remove_dir_all(stage.path("away/sales")).unwrap();
    // Its disk is mounted.
    std::fs::create_dir(stage.path("away/sales")).unwrap();
    stage.line("restore --database sales --to three").exits(4);
    assert!(!stage.path("three").exists());
    // The remains block a copy back, and are never replaced.
    let before = std::fs::read(stripe(&stage, "disk1", &label, 1)).unwrap();
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(5).says("family 2 of 2 is missing");
    stage
        .line("copy sales --from offsite --to nightly")
        .exits(0);
    assert_eq!(
        std::fs::read(stripe(&stage, "disk1", &label, 1)).unwrap(),
        before
    );
}

#[test]
fn damage_is_not_copied_and_other_backups_are() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("backup sales").exits(0);
    let labels = stage.names("disk1/sales");
    damage(&stripe(&stage, "disk1", &labels[0], 1));
    let ran = stage.line("--json copy").exits(4);
    let answer = json(&ran);
    let mut found = fates(&answer);
    found.sort_unstable();
    assert_eq!(found, ["copied", "failed"]);
    assert_eq!(answer["failures"][0]["database"], "sales");
    assert_eq!(stage.names("away/sales").len(), 1);
}

/// Goal: whoever reads that a backup is damaged reads, too, that another target has it whole.
#[test]
fn check_tells_of_a_whole_copy_of_a_backup_that_was_found_damaged() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    let label = stage.names("disk1/sales").remove(0);
    damage(&stripe(&stage, "disk1", &label, 1));
    stage.line("verify --database sales").exits(1);
    let whole = format!("target offsite has a copy of {label} that nothing found damaged");
    stage
        .line("check sales")
        .exits(1)
        .says(&whole)
        .says("longshore restore --database sales --target offsite --label");
    let copy = stage.path(format!("away/sales/{label}/family-1.bak"));
    damage(&copy);
    stage
        .line("verify --database sales --target offsite")
        .exits(1);
    let told = stage.line("check sales").exits(1);
    assert!(!told.out.contains(&whole), "{}", told.out);
}

/// Two backups, the second with a damaged index, the first one copied; their labels.
fn with_a_spoilt_one(stage: &Stage) -> Vec<String> {
    let spoil = with_index(stage);
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    spoil();
    stage.line("backup sales").exits(0);
    stage.names("disk1/sales")
}

/// Goal: a drill judges what a backup holds, so a copy of a condemned one takes no good copy's place.
#[test]
fn a_copy_of_a_condemned_backup_is_told_and_displaces_no_good_copy() {
    let stage = configured();
    let all = with_a_spoilt_one(&stage);
    stage.line("drill sales").exits(1);
    let told = format!("{} was found not to be good by drill", all[1]);
    stage.line("copy sales --dry-run").exits(5).says(&told);
    stage.line("copy sales").exits(5).says(&told);
    stage.line("copy sales").exits(0);
    // The copy is whole, byte for byte, and that says nothing about what it holds.
    stage
        .line("verify --database sales --target offsite")
        .exits(0);
    stage
        .line("expire sales --target offsite --keep-full 1")
        .exits(0)
        .says(&format!("{} stays: full backup number 1", all[0]))
        .says(&format!("{} stays: found not to be good", all[1]));
    assert_eq!(stage.names("away/sales"), all);
    let checked = stage.line("check sales").exits(1);
    assert!(
        !checked.out.contains("nothing found damaged"),
        "{}",
        checked.out
    );
    // It is known where the copies alone are left.
    for disk in ["disk1", "disk2"] {
        std::fs::rename(stage.path(disk), stage.path(format!("{disk}.gone"))).unwrap();
    }
    stage
        .line("restore --database sales --target offsite --to out")
        .exits(5)
        .says(&format!("{} was found not to be good", all[1]))
        .says(&format!("--label {}", all[0]));
}

/// Goal: a good drill of a copy lifts what a drill at home found in the content, and not what it found in stripes there.
#[test]
fn a_good_drill_of_a_copy_lifts_a_finding_in_the_content_at_home() {
    for (of_content, stays) in [(true, false), (false, true)] {
        let stage = configured();
        stage.line("backup sales").exits(0);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        stage.line("backup sales").exits(0);
        stage.line("copy sales").exits(0);
        stage.line("drill sales").exits(0);
        let label = stage.names("disk1/sales").remove(1);
        let record = stage.path("disk1/sales/.longshore-status-drill");
        let text = std::fs::read_to_string(&record).unwrap();
        let mut found: Value = serde_json::from_str(&text).unwrap();
        found["sets"][0]["good"] = false.into();
        found["sets"][0]["content"] = of_content.into();
        std::fs::write(&record, found.to_string()).unwrap();
        let condemned = format!("{label} stays: found not to be good");
        let expire = "expire sales --target nightly --keep-full 1 --dry-run";
        stage.line(expire).says(&condemned);
        stage.line("drill sales --target offsite").exits(0);
        let after = stage.line(expire);
        assert_eq!(after.out.contains(&condemned), stays, "{}", after.out);
    }
}

/// Goal: a drill after the copy counts for the copy as well, also where the drill could tell only one of the two places.
#[test]
fn a_drill_condemns_what_was_copied_before_it_wherever_it_ran() {
    let stage = configured();
    let all = with_a_spoilt_one(&stage);
    stage.line("copy sales").exits(0);
    let expire = "expire sales --target offsite --keep-full 1 --dry-run";
    stage.line(expire).says(&format!("{} goes", all[0]));
    let record = stage.path("away/sales/.longshore-status-drill");
    let at_home = stage.path("disk1/sales/.longshore-status-drill");
    let stays = format!("{} stays: full backup number 1", all[0]);
    stage.line("drill sales").exits(1);
    stage.line(expire).says(&stays);
    std::fs::remove_file(&at_home).unwrap();
    stage.line(expire).says(&stays);
    stage.line("drill sales").exits(1);
    std::fs::remove_file(&record).unwrap();
    stage.line(expire).says(&stays);
    let checked = stage.line("check sales").exits(1);
    assert!(
        !checked.out.contains("nothing found damaged"),
        "{}",
        checked.out
    );
    assert!(!record.exists());
    stage.line("copy sales").exits(0);
    assert!(record.exists());
    // A drill of the copy counts at home.
    std::fs::remove_file(&record).unwrap();
    std::fs::remove_file(&at_home).unwrap();
    stage.line("drill sales --target offsite").exits(1);
    stage
        .line("expire sales --target nightly --keep-full 1 --dry-run")
        .says(&stays);
}

#[test]
fn check_fails_for_a_copy_that_was_found_damaged() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    let before = stage.line("check sales").code;
    assert_ne!(before, 1);
    let label = stage.names("disk1/sales").remove(0);
    let copy = stage.path(format!("away/sales/{label}/family-1.bak"));
    let whole = std::fs::read(&copy).unwrap();
    damage(&copy);
    stage
        .line("verify --database sales --target offsite")
        .exits(1);
    stage
        .line("check sales")
        .exits(1)
        .says(&format!("offsite: {label} "))
        .says("longshore copy sales --to offsite");
    std::fs::write(&copy, whole).unwrap();
    stage
        .line("verify --database sales --target offsite")
        .exits(0);
    stage.line("check sales").exits(before);
}

#[test]
fn each_target_keeps_by_its_own_retention_and_info_and_check_know_copies() {
    let stage = configured();
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
        stage.line("copy").exits(0);
    }
    stage
        .line("expire")
        .exits(0)
        .says("sales at target offsite");
    assert_eq!(stage.names("disk1/sales").len(), 2);
    assert_eq!(stage.names("away/sales").len(), 3);
    stage
        .line("info")
        .exits(0)
        .says("sales at target nightly")
        .says("sales at target offsite")
        .says("retention         long");
    stage.line("check").exits(0).says("offsite: 2 of 2 backups");
    std::fs::remove_dir_all(stage.path("away/sales")).unwrap();
    stage.line("check").exits(0).says("offsite: 0 of 2 backups");
    // With this age the backup itself is too old, too, after a second at the latest.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage
        .line("check --max-age 0")
        .exits(1)
        .says("WARN  copies     offsite lacks 2 backups")
        .says("longshore copy sales --to offsite");
    std::fs::remove_dir(stage.path("away")).unwrap();
    stage
        .line("check")
        .exits(5)
        .says("cannot open the directory");
}

#[test]
fn a_named_backup_is_copied_whatever_retention_says_and_a_rate_is_kept() {
    let stage = configured();
    for _ in 0..4 {
        stage.line("backup sales").exits(0);
    }
    let labels = stage.names("disk1/sales");
    // Three belong there.
    let all = stage.line("copy --dry-run").exits(0);
    all.says("3 backups").says("would remove it");
    let line = format!("copy sales --to offsite --label {}", labels[0]);
    stage.line(&line).exits(0).says("1 backups");
    assert_eq!(stage.names("away/sales"), labels[..1]);
    // A megabyte of more than two may pass at once.
    let begin = std::time::Instant::now();
    stage.line("copy --max-rate 800K").exits(0);
    assert!(begin.elapsed() > std::time::Duration::from_millis(800));
}

#[test]
fn a_place_that_protects_nothing_and_a_label_that_is_not_there_are_refused() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage
        .line("copy sales --to nightly")
        .exits(2)
        .says("have a place in common");
    stage
        .line("copy sales --label 20200101T000000Z-full-00000000")
        .exits(4)
        .says("holds no backup 20200101T000000Z-full-00000000");
    stage.line("copy sales --label latest").exits(2);
    stage
        .line("copy sales --to nowhere")
        .exits(2)
        .says("there is no [target.nowhere]");
    write_configuration(&stage, "");
    stage
        .line("copy")
        .exits(2)
        .says("no configured database has copies");
    stage
        .line("copy sales")
        .exits(2)
        .says("no target is named for copies of sales");
    // Copies that are inherited, by a database whose own target is one of them.
    write_configuration(&stage, "target = \"offsite\"\n");
    let config = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text + "copies = [\"offsite\"]\n").unwrap();
    stage
        .line("config check")
        .exits(2)
        .says("is the target of the backups themselves");
    for (copies, what) in [
        ("[\"nowhere\"]", "there is no [target.nowhere]"),
        ("[\"nightly\"]", "is the target of the backups themselves"),
        ("[\"offsite\", \"offsite\"]", "is named twice"),
    ] {
        write_configuration(&stage, &format!("copies = {copies}\n"));
        stage.line("config check").exits(2).says(what);
    }
}

#[test]
fn one_place_under_another_name_is_refused_before_an_expire_removes_the_originals() {
    let stage = configured();
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
    }
    std::fs::remove_dir(stage.path("away")).unwrap();
    std::os::unix::fs::symlink(stage.path("disk2"), stage.path("away")).unwrap();
    let by_name = [
        "expire sales --target offsite",
        "expire --target offsite",
        "expire sales --target nightly",
    ];
    for line in ["copy", "expire", "info", "expire sales --keep-full 1"]
        .into_iter()
        .chain(by_name)
    {
        stage.line(line).exits(2).says("have a place in common");
    }
    stage.line("check").exits(1).says("have a place in common");
    stage.line("config check").says("have a place in common");
    assert_eq!(stage.names("disk1/sales").len(), 3);
}

#[test]
fn a_backup_that_cannot_be_read_is_told_and_never_left_out_in_silence() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let label = stage.names("disk1/sales")[0].clone();
    let lost = stripe(&stage, "disk2", &label, 2);
    std::fs::rename(&lost, stage.path("kept")).unwrap();
    stage.line("copy").exits(5).says("family 2 of 2 is missing");
    stage
        .line(&format!("copy sales --label {label}"))
        .exits(4)
        .says("family 2 of 2 is missing");
    std::fs::rename(stage.path("kept"), &lost).unwrap();
    stage.line("copy").exits(0);
    // An empty mount point has no backups, which is no success.
    std::fs::remove_dir_all(stage.path("disk1/sales")).unwrap();
    std::fs::remove_dir_all(stage.path("disk2/sales")).unwrap();
    stage.line("copy").exits(5).says("holds no backup of sales");
}

#[test]
fn a_restore_takes_no_other_set_for_the_copy_and_tells_of_a_newer_one() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    // Labels of one second are not in the order of time.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    let labels = stage.names("disk1/sales");
    // Another backup's stripes under the newest label, which proves nothing.
    let (older, newest) = (&labels[0], &labels[1]);
    let away = |label: &str| stage.path(format!("away/sales/{label}"));
    std::fs::remove_dir_all(away(newest)).unwrap();
    std::fs::rename(away(older), away(newest)).unwrap();
    let lost = stripe(&stage, "disk2", newest, 2);
    std::fs::rename(&lost, stage.path("kept")).unwrap();
    stage
        .line("restore --database sales --to out")
        .exits(4)
        .says("nothing shows that it is the same one");
    assert!(!stage.path("out").exists());
    std::fs::rename(stage.path("kept"), &lost).unwrap();
    // A target that lost all of a backup does not know that it was complete once.
    std::fs::remove_dir_all(stage.path("away/sales")).unwrap();
    std::fs::create_dir(stage.path("away/sales")).unwrap();
    stage.line("copy").exits(0);
    for disk in ["disk1", "disk2"] {
        std::fs::remove_dir_all(stage.path(format!("{disk}/sales/{newest}"))).unwrap();
    }
    stage
        .line("restore --database sales --to two")
        .exits(5)
        .says(&format!("target offsite has a newer backup, {newest}"));
}

#[test]
fn a_rule_for_once_is_about_the_databases_own_target() {
    let stage = configured();
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
    }
    stage.line("copy").exits(0);
    stage.line("expire sales --keep-full 1").exits(0);
    assert_eq!(stage.names("disk1/sales").len(), 1);
    assert_eq!(stage.names("away/sales").len(), 3);
    stage
        .line("expire sales --keep-full 1 --target offsite")
        .exits(0);
    assert_eq!(stage.names("away/sales").len(), 1);
}

#[test]
fn a_copy_from_the_only_copy_has_nowhere_to_go() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    stage
        .line("copy sales --from offsite")
        .exits(2)
        .says("no target is named for copies of sales");
}

#[test]
fn two_copies_of_one_backup_at_once_are_one_copy_and_no_failure() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let start = || {
        let mut command = stage.command(&["copy", "--max-rate", "300K"]);
        command.stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let both = [start(), start()];
    for child in both {
        Ran::of(&child.wait_with_output().unwrap()).exits(0);
    }
    assert_eq!(stage.names("away/sales").len(), 1);
    stage
        .line("verify --database sales --target offsite")
        .exits(0);
}

#[test]
fn a_second_database_under_one_name_is_told_where_the_copies_lie() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    // Another host's configuration: another file, another first target, the same name and the same target for copies.
    stage.database("other.db", 2);
    let config = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    for dir in ["disk3", "disk4"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let text = text
        .replace("app.db", "other.db")
        .replace("disk1", "disk3")
        .replace("disk2", "disk4");
    std::fs::write(&config, text).unwrap();
    stage.line("backup sales").exits(0);
    stage
        .line("copy")
        .exits(5)
        .says("target offsite")
        .says("2 branches");
    // The first database has no newer backup there: it may have been given up.
    stage.line("check").exits(5).says("offsite: ");
}

/// Goal: media keep their identifier when they are written over, so a copy that was is still another backup.
#[test]
fn a_copy_that_was_written_over_is_not_taken_for_the_backup() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("copy").exits(0);
    let label = stage.names("disk1/sales")[0].clone();
    let copied = |n: u32| stage.path(format!("away/sales/{label}/family-{n}.bak"));
    let (one, two) = (stage.path("one.bak"), stage.path("two.bak"));
    std::fs::rename(copied(1), &one).unwrap();
    std::fs::rename(copied(2), &two).unwrap();
    let lost = stripe(&stage, "disk2", &label, 2);
    std::fs::rename(&lost, stage.path("kept")).unwrap();
    let source = format!("sqlite:{}", stage.path("app.db").display());
    for how in ["--append", "--init"] {
        let line = format!("backup {source} --database sales --to one.bak --to two.bak {how}");
        stage.line(&line).exits(0);
        std::fs::copy(&one, copied(1)).unwrap();
        std::fs::copy(&two, copied(2)).unwrap();
        stage
            .line("restore --database sales --to out")
            .exits(4)
            .says("nothing shows that it is the same one");
        assert!(!stage.path("out").exists(), "{how}");
    }
}

#[test]
fn a_stopped_database_is_refused_to_backups_copies_and_expires_until_it_is_started() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    let told = json(&stage.line("--json stop sales --target offsite").exits(0));
    assert_eq!(told["databases"][0]["target"], "offsite");
    // Only the copies' target is stopped.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage.line("backup sales").exits(0);
    let refused = stage.line("copy sales").exits(4);
    refused
        .says("of sales at target offsite are stopped: by ")
        .says("longshore start DATABASE");
    assert_eq!(stage.names("away/sales"), [".longshore-stopped"]);
    let words = ["stop", "sales", "--reason", "the disk\nis replaced"];
    stage
        .run(&words)
        .exits(0)
        .says("sales at target nightly: stopped by ");
    for place in ["disk1", "disk2"] {
        let word = stage.path(format!("{place}/sales/.longshore-stopped"));
        let word = std::fs::read_to_string(word).unwrap();
        assert!(
            word.ends_with(": the disk is replaced\n") && word.lines().count() == 1,
            "{word}"
        );
    }
    let before = stage.names("disk1/sales");
    for line in ["backup sales", "expire sales --keep-full 1", "copy sales"] {
        let refused = stage.line(line);
        assert_ne!(refused.code, 0, "{line}");
        refused
            .says("are stopped: by ")
            .says("the disk is replaced");
    }
    let told = json(&stage.line("--json backup sales").exits(4));
    assert_eq!(told["error"]["number"], 3023);
    assert_eq!(stage.names("disk1/sales"), before);
    // Everybody who looks is told, by whom and why.
    let told = stage.line("info sales").exits(0).out;
    let (at, word) = told.split_once("STOPPED").expect(&told);
    assert!(at.starts_with("sales at target nightly") && word.contains("the disk is replaced"));
    assert!(word.contains("longshore start sales"), "{told}");
    assert!(word.lines().take(3).all(|l| l.len() <= 80), "{told}");
    let told = json(&stage.line("info sales --json").exits(0));
    for (row, reason) in [(0, Some("the disk is replaced")), (1, None)] {
        let word = told["databases"][row]["stopped"].as_str().expect("both");
        assert!(word.starts_with("by ") && reason.is_none_or(|reason| word.ends_with(reason)));
    }
    let told = stage.line("check sales").exits(5);
    told.says("WARN  stopped    no backup, copy or expire begins at nightly: stopped by ")
        .says("the disk is replaced; `longshore start sales`")
        .says("WARN  copies     offsite: no copy or expire begins there: stopped by ");
    let told = stage.line("metrics sales").exits(0).out;
    for target in ["nightly", "offsite"] {
        let line = format!("longshore_stopped{{database=\"sales\",target=\"{target}\"}} 1\n");
        assert!(told.contains(&line), "{told}");
    }
    // Reading goes on, and nothing of it looks like a stray.
    for line in [
        "info sales",
        "verify --database sales",
        "expire sales --keep-full 1 --dry-run",
        "restore --database sales --to out",
    ] {
        let ran = stage.line(line).exits(0);
        assert!(!ran.out.contains("longshore-stopped"), "{}", ran.out);
    }
    // Each directory has the word: one that comes back later keeps it.
    std::fs::remove_file(stage.path("disk1/sales/.longshore-stopped")).unwrap();
    stage.line("backup sales").exits(4);
    let told = json(&stage.line("--json start").exits(0));
    assert_eq!(told["databases"][0]["was_changed"], true);
    assert_eq!(told["databases"][0]["stopped"], Value::Null);
    stage.line("start sales").exits(0).says("was not stopped");
    let told = json(&stage.line("info sales --json").exits(0));
    assert_eq!(told["databases"][0]["stopped"], Value::Null);
    let told = stage.line("metrics sales").exits(0).out;
    assert!(told.contains("longshore_stopped{database=\"sales\",target=\"nightly\"} 0\n"));
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
    stage.line("expire sales --keep-full 1").exits(0);
    stage.line("check sales").exits(0);
}
