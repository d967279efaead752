//! Goal: a backup whose keys are detached opens by its key objects and an identity, and by nothing else; it can be destroyed by them alone,
//! wherever its stripes are; and nothing takes its keys by mistake.
//! Method: the program runs over a configured database with two places of keys and a target of copies; files are moved, copied, renamed and
//! mixed as people and attackers do.
//! Not covered: places in buckets (`bucket/keys.rs`).

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::stage::{Ran, Stage};

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

fn made(stage: &Stage, file: &str) -> String {
    let ran = stage.line(&format!("key new {file}")).exits(0);
    ran.out.trim().to_owned()
}

/// A database that is encrypted for the identity `id`, with keys in `keys1` and `keys2`. `copies`: more of the table of its copies.
fn stage(copies: &str) -> (Stage, String) {
    let stage = Stage::new();
    stage.database("app.db", 1);
    for dir in ["disk1", "disk2", "away", "keys1", "keys2", "keys3"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let id = made(&stage, "id");
    let path = |name: &str| stage.path(name).display().to_string();
    let copies = copies.replace("KEYS3", &path("keys3"));
    let text = format!(
        "[database.sales]\nurl = \"sqlite:{}\"\ncopies = [\"offsite\"]\n\
         [target.nightly]\ndirectories = [\"{}\", \"{}\"]\nkeys = [\"{}\", \"{}\"]\n\
         [target.offsite]\ndirectories = [\"{}\"]\n{copies}\
         [retention.one]\nkeep_full = 1\n\
         [defaults]\ntarget = \"nightly\"\nretention = \"one\"\n\
         [encryption]\nrecipients = [\"{id}\"]\n",
        path("app.db"),
        path("disk1"),
        path("disk2"),
        path("keys1"),
        path("keys2"),
        path("away"),
    );
    stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    (stage, id)
}

fn objects(stage: &Stage, dir: &str) -> Vec<String> {
    let names = stage.names(dir).into_iter();
    names.filter(|name| name.ends_with(".lsk")).collect()
}

fn labels(stage: &Stage, target: &str) -> Vec<String> {
    let info = json(&stage.line(&format!("info sales --target {target} --json")));
    let rows = info["databases"][0]["backups"].as_array().unwrap().clone();
    let label = |row: &Value| row["label"].as_str().unwrap().to_owned();
    rows.iter().map(label).collect()
}

/// The word of `info` for the keys of each backup.
fn keys(stage: &Stage, target: &str) -> Vec<String> {
    let info = json(&stage.line(&format!("info sales --target {target} --json")));
    let rows = info["databases"][0]["backups"].as_array().unwrap().clone();
    let of = |row: &Value| row["keys"].as_str().unwrap_or("none").to_owned();
    rows.iter().map(of).collect()
}

fn same(stage: &Stage, to: &str) {
    let read = |name: &str| std::fs::read(stage.path(name)).unwrap();
    assert!(read(&format!("{to}/app.db")) == read("app.db"), "{to}");
}

fn next_second() {
    std::thread::sleep(std::time::Duration::from_millis(1100));
}

#[test]
fn a_backup_opens_by_its_detached_keys_alone_until_it_is_shredded() {
    let (stage, _) = stage("");
    stage.line("backup sales --verify").exits(0);
    stage.line("backup sales --differential").exits(0);
    for dir in ["keys1", "keys2"] {
        assert_eq!(objects(&stage, dir).len(), 2, "{dir}");
        assert_eq!(objects(&stage, dir), objects(&stage, "keys1"));
    }
    let all = labels(&stage, "nightly");
    for label in &all {
        assert!(objects(&stage, &format!("disk1/sales/{label}")).is_empty());
    }
    assert_eq!(keys(&stage, "nightly"), ["detached", "detached"]);
    stage.line("info sales").says("its keys are detached");
    let restore = |how: &str, to: &str| {
        let line = format!("restore --database sales --identity id --to {to} {how}");
        stage.line(&line)
    };
    restore("", "first").exits(0);
    same(&stage, "first");
    stage.line("drill sales --identity id").exits(0);
    // Each place alone is enough, and without both a refusal says where it looked.
    std::fs::rename(stage.path("keys1"), stage.path("safe1")).unwrap();
    restore("", "second").exits(0);
    std::fs::rename(stage.path("keys2"), stage.path("safe2")).unwrap();
    let refused = restore("", "none").exits(4).says("50123");
    refused
        .says("its keys are detached")
        .says("keys1")
        .says("keys2");
    assert!(!stage.path("none/app.db").exists());
    for line in [
        "restore --database sales --identity id --to third --keys safe2",
        "verify --database sales --identity id --keys safe1",
        "drill sales --identity id --keys safe2",
        "list --database sales --files --identity id --keys safe1",
    ] {
        let (without, _) = line.split_once(" --keys").unwrap();
        stage.line(line).exits(0);
        assert_ne!(stage.line(without).code, 0, "{without}");
    }
    same(&stage, "third");
    for (safe, dir) in [("safe1", "keys1"), ("safe2", "keys2")] {
        std::fs::rename(stage.path(safe), stage.path(dir)).unwrap();
    }
    // Upkeep needs no key.
    stage.line("verify --database sales --stored").exits(0);
    stage.line("copy sales").exits(0).says("detached keys");
    shreds(&stage, &all);
}

/// The full backup is destroyed, with what needs it and its copies.
fn shreds(stage: &Stage, all: &[String]) {
    let shred = format!("key shred {}", all[0]);
    let told = stage.line(&shred).exits(2).says("--yes");
    told.says(&all[1]).says("keys2");
    assert_eq!(
        objects(stage, "keys1").len(),
        2,
        "nothing is destroyed without --yes"
    );
    let done = json(&stage.line(&format!("{shred} --yes --json")).exits(5));
    let set = &done["sets"][0];
    assert_eq!(
        (&set["fate"], &set["removed_count"]),
        (&"shredded".into(), &2.into()),
        "{done}"
    );
    assert_eq!(set["needed_by"][0], all[1].as_str());
    let said = done["notes"].to_string();
    assert!(
        said.contains("versions that a bucket keeps") && said.contains("snapshots"),
        "{done}"
    );
    assert_eq!(keys(stage, "nightly"), ["shredded", "detached"]);
    assert_eq!(keys(stage, "offsite"), ["shredded", "detached"]);
    stage
        .line("list --database sales")
        .exits(0)
        .says("shredded");
    for target in ["nightly", "offsite"] {
        for label in all {
            let line = format!(
                "restore --database sales --target {target} --label {label} --to none --identity id"
            );
            stage.line(&line).exits(4).says("50123");
        }
    }
    // A second run has nothing to do, and says so.
    let again = json(&stage.line(&format!("{shred} --yes --json")).exits(5));
    assert_eq!(again["sets"][0]["removed_count"], 0);
    assert_eq!(again["sets"][0]["fate"], "shredded");
    let check = stage.line("check sales --json");
    assert!(check.out.contains("shredded"), "{}", check.out);
    assert!(
        !check.out.contains("no key object of it is left"),
        "{}",
        check.out
    );
}

#[test]
fn keys_are_detached_where_they_are_told_and_nothing_is_left_of_a_backup_that_cannot() {
    let (stage, id) = stage("");
    let to = format!("backup app.db --to a.bak --encrypt-to {id}");
    stage
        .line(&format!("{to} --keys-detached"))
        .exits(2)
        .says("--keys");
    let plain = stage.line("backup tree --to t.bak --keys-detached --keys keys1 --config none");
    assert_eq!(plain.code, 2);
    std::fs::write(stage.path("empty.toml"), "").unwrap();
    let plain = "--config empty.toml backup app.db --to t.bak --keys-detached --keys keys1";
    stage.line(plain).exits(2).says("not encrypted");
    // A place that is away fails the backup before its data moves, and takes away what the other place has.
    for line in [
        format!("{to} --keys-detached --keys keys1 --keys gone"),
        format!("{to} --keys-detached --keys keys1 --keys app.db"),
    ] {
        assert_ne!(stage.line(&line).code, 0, "{line}");
        assert!(objects(&stage, "keys1").is_empty(), "{line}");
        assert!(!stage.path("a.bak").exists(), "{line}");
    }
    let alone = stage
        .line(&format!("{to} --keys-detached --keys keys1"))
        .exits(0);
    alone.says("one place alone");
    // The same place twice is one.
    let line = format!(
        "backup app.db --to b.bak --encrypt-to {id} --keys-detached --keys keys3 --keys ./keys3/"
    );
    stage.line(&line).exits(0);
    let listed = json(&stage.line("list a.bak --json").exits(0));
    let set = &listed["sets"][0];
    assert_eq!(
        (&set["encrypted"], &set["keys_detached"]),
        (&true.into(), &true.into())
    );
    assert_eq!(set["recipients"], Value::Array(Vec::new()));
    stage.line("list a.bak").says("its keys are detached");
    // By default they are on the media, and whoever names a place for them is not left to believe that they are there.
    stage
        .line(&format!("{to} --keys keys1 --init"))
        .exits(2)
        .says("add --keys-detached");
    stage
        .line(&format!("backup app.db --to c.bak --encrypt-to {id}"))
        .exits(0);
    let listed = json(&stage.line("list c.bak --json").exits(0));
    assert_eq!(listed["sets"][0]["keys_detached"], false);
    // WAL has no such keys: the option is refused, and not ignored.
    for line in [
        "wal push --keys-detached x",
        "wal receive --keys-detached --archive keys1",
    ] {
        stage.line(line).exits(2).says("--keys-detached");
    }
    // A set at no target is shredded by its identifier.
    let id = set["set"].as_str().unwrap();
    let done = json(
        &stage
            .line(&format!("key shred {id} --keys keys1 --yes --json"))
            .exits(5),
    );
    assert_eq!(done["sets"][0]["removed_count"], 1, "{done}");
    stage.line("restore a.bak --to none --identity id").exits(4);
    stage.line("key shred nonsense --yes").exits(2);
    next_second();
    stage.line("backup sales").exits(0);
    let attached = {
        let config = stage.path("no-config/longshore/longshore.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        let lines = text
            .lines()
            .map(|l| l.split("keys = ").next().unwrap().to_owned() + "\n");
        std::fs::write(&config, lines.collect::<String>()).unwrap();
        next_second();
        stage.line("backup sales").exits(0);
        labels(&stage, "nightly").pop().unwrap()
    };
    let refused = stage.line(&format!("key shred {attached} --yes")).exits(2);
    refused.says("its slots are on its media");
}

#[test]
fn a_place_that_lost_a_key_fails_the_check_and_a_shredded_backup_does_not() {
    let (stage, id) = stage("");
    stage.line("backup sales").exits(0);
    let findings = |code: i32| {
        let check = stage.line("check sales --json").exits(code);
        let all = json(&check)["databases"][0]["findings"]
            .as_array()
            .unwrap()
            .clone();
        let own = all.iter().filter(|f| f["what"] == "keys");
        own.map(|f| f["grade"].as_str().unwrap().to_owned() + ": " + f["text"].as_str().unwrap())
            .collect::<Vec<_>>()
            .join("\n")
    };
    let code = stage.line("check sales").code;
    assert_ne!(code, 1);
    assert!(findings(code).contains("good: 1 backups have their detached keys in each place"));
    let name = objects(&stage, "keys1")[0].clone();
    let object = std::fs::read(stage.path("keys1").join(&name)).unwrap();
    std::fs::remove_file(stage.path("keys1").join(&name)).unwrap();
    assert!(findings(1).contains("keys1 lacks a key object"));
    // Rot is as bad as absence.
    std::fs::write(stage.path("keys1").join(&name), &object[1..]).unwrap();
    assert!(findings(1).contains("keys1 lacks a key object"));
    let wrap = format!("key rewrap --database sales --identity id --encrypt-to {id}");
    stage.line(&wrap).exits(0);
    assert_eq!(
        findings(code),
        "good: 1 backups have their detached keys in each place"
    );
    for dir in ["keys1", "keys2"] {
        for name in objects(&stage, dir) {
            std::fs::remove_file(stage.path(dir).join(name)).unwrap();
        }
    }
    assert!(findings(1).contains("no key object of it is left"));
    assert_eq!(keys(&stage, "nightly"), ["missing"]);
    for dir in ["keys1", "keys2"] {
        std::fs::write(stage.path(dir).join(&name), &object).unwrap();
    }
    let old = labels(&stage, "nightly").pop().unwrap();
    next_second();
    stage.line("backup sales").exits(0);
    stage.line(&format!("key shred {old} --yes")).exits(0);
    let told = findings(5);
    assert!(
        told.contains("look: ") && told.contains("shredded"),
        "{told}"
    );
    // Keys that somebody brings back from a copy are no longer what the mark says.
    std::fs::write(stage.path("keys2").join(&name), &object).unwrap();
    assert!(findings(1).contains("are there again"));
    std::fs::rename(stage.path("keys2"), stage.path("gone")).unwrap();
    assert!(findings(1).contains("cannot be looked at"));
}

#[test]
fn an_expire_takes_the_keys_with_the_backup_and_never_those_of_a_copy() {
    let (stage, _) = stage("");
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
    next_second();
    stage.line("backup sales").exits(0);
    let first = labels(&stage, "nightly")[0].clone();
    stage
        .line("expire sales --target nightly")
        .exits(0)
        .says("are kept: target offsite");
    assert_eq!(labels(&stage, "nightly").len(), 1);
    assert_eq!(objects(&stage, "keys1").len(), 2, "the copy needs them");
    let restore = "restore --database sales --target offsite --identity id --to of-copy";
    stage.line(restore).exits(0);
    same(&stage, "of-copy");
    // A target that cannot be asked may have a copy.
    std::fs::rename(stage.path("away"), stage.path("unmounted")).unwrap();
    next_second();
    stage.line("backup sales").exits(0);
    stage
        .line("expire sales --target nightly")
        .exits(5)
        .says("cannot be asked");
    assert_eq!(objects(&stage, "keys1").len(), 3);
    std::fs::rename(stage.path("unmounted"), stage.path("away")).unwrap();
    // The last one takes them along.
    stage.line("copy sales").exits(0);
    stage
        .line("expire sales --target offsite --keep-full 1")
        .exits(0);
    assert_eq!(labels(&stage, "offsite").len(), 1);
    assert!(!labels(&stage, "offsite").contains(&first));
    let left = objects(&stage, "keys1");
    assert_eq!(
        left.len(),
        2,
        "of the newest, and of the one whose removal was not told: {left:?}"
    );
}

#[test]
fn a_copy_has_keys_of_its_own_only_where_its_target_has_places() {
    let (stage, _) = stage("keys = [\"KEYS3\"]\n");
    stage.line("backup sales").exits(0);
    let copied = json(&stage.line("copy sales --json").exits(0));
    assert_eq!(copied["databases"][0]["key_object_count"], 1, "{copied}");
    assert_eq!(objects(&stage, "keys3"), objects(&stage, "keys1"));
    let again = json(&stage.line("copy sales --json").exits(0));
    assert_eq!(again["databases"][0]["key_object_count"], 0);
    // The copy's own place is looked at, too.
    let name = objects(&stage, "keys3").pop().unwrap();
    let lost = stage.path("keys3").join(&name);
    let kept = stage.path(&name);
    std::fs::rename(&lost, &kept).unwrap();
    stage
        .line("check sales")
        .exits(5)
        .says("offsite: ")
        .says("in places of other targets alone");
    for dir in ["keys1", "keys2"] {
        std::fs::rename(stage.path(dir).join(&name), stage.path(dir).join("away")).unwrap();
    }
    stage.line("check sales").exits(1).says(&format!(
        "offsite: {}: its keys",
        labels(&stage, "offsite")[0]
    ));
    std::fs::rename(&kept, &lost).unwrap();
    for dir in ["keys1", "keys2"] {
        std::fs::remove_dir_all(stage.path(dir)).unwrap();
    }
    let restore = "restore --database sales --target offsite --identity id --to of-copy";
    stage.line(restore).exits(0);
    same(&stage, "of-copy");
}

#[test]
fn a_further_recipient_gets_its_object_where_the_keys_are() {
    let (stage, _) = stage("");
    let new = made(&stage, "new");
    stage.line("backup sales").exits(0);
    let wrap = format!("key rewrap --database sales --identity id --encrypt-to {new}");
    stage.line(&wrap).exits(0);
    let label = labels(&stage, "nightly").pop().unwrap();
    for dir in ["keys1", "keys2"] {
        assert_eq!(objects(&stage, dir).len(), 2, "{dir}");
    }
    for dir in ["disk1", "disk2"] {
        assert!(objects(&stage, &format!("{dir}/sales/{label}")).is_empty());
    }
    let restore = "restore --database sales --identity new --to";
    stage.line(&format!("{restore} out")).exits(0);
    same(&stage, "out");
    // One place has an older state, without the further recipient: the other one serves, and the command mends it.
    let [id, further]: [String; 2] = objects(&stage, "keys2").try_into().unwrap();
    let opens = |name: &str| {
        std::fs::create_dir_all(stage.path("one")).unwrap();
        std::fs::copy(stage.path("keys2").join(name), stage.path("one").join(name)).unwrap();
        let line = format!("list --database sales --files --identity new --key-object one/{name}");
        stage.line(&line).code == 0
    };
    assert!(opens(&id) && opens(&further), "both places are whole");
    std::fs::remove_file(stage.path("keys1").join(&further)).unwrap();
    std::fs::remove_file(stage.path("keys1").join(&id)).unwrap();
    stage.line(&format!("{restore} again")).exits(0);
    stage.line(&wrap).exits(0);
    assert_eq!(
        objects(&stage, "keys1"),
        objects(&stage, "keys2"),
        "each place has both"
    );
    // Elsewhere on request.
    stage.line(&format!("{wrap} --keys keys3")).exits(0);
    assert_eq!(objects(&stage, "keys3").len(), 1);
    // A shredded set is not opened again by anybody.
    stage
        .line(&format!("key shred {label} --keys keys3 --yes"))
        .exits(0);
    stage.line(&wrap).exits(4);
    stage.line(&format!("{restore} none")).exits(4);
}

/// Goal: neither a disk that is away nor the name of a directory takes the keys of a copy, also on a machine that does not know its target.
#[test]
fn the_keys_of_a_copy_stay_while_its_disk_is_away_or_its_backup_has_another_name() {
    let (stage, _) = stage("");
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
    next_second();
    stage.line("backup sales").exits(0);
    // An empty mount point can be asked, and says that nothing is there.
    std::fs::rename(stage.path("away"), stage.path("unmounted")).unwrap();
    std::fs::create_dir(stage.path("away")).unwrap();
    stage
        .line("expire sales --target nightly")
        .exits(0)
        .says("says that target offsite");
    // Copies of before there were marks.
    let marks = |dir: &str| {
        let names = stage.names(dir).into_iter();
        names
            .filter(|name| name.ends_with(".held"))
            .collect::<Vec<_>>()
    };
    for dir in ["keys1", "keys2"] {
        for name in marks(dir) {
            std::fs::remove_file(stage.path(dir).join(name)).unwrap();
        }
    }
    next_second();
    stage.line("backup sales").exits(0);
    stage
        .line("expire sales --target nightly")
        .exits(0)
        .says("nothing is there now");
    std::fs::remove_dir(stage.path("away")).unwrap();
    std::fs::rename(stage.path("unmounted"), stage.path("away")).unwrap();
    let restore = "restore --database sales --target offsite --identity id --to of-copy";
    stage.line(restore).exits(0);
    same(&stage, "of-copy");
    assert_eq!(objects(&stage, "keys1").len(), 3);

    // The next one lies under another name when it is removed, and no mark is there, as of a copy by other means.
    stage.line("copy sales").exits(0);
    for dir in ["keys1", "keys2"] {
        for name in marks(dir) {
            std::fs::remove_file(stage.path(dir).join(name)).unwrap();
        }
    }
    let label = labels(&stage, "nightly").pop().unwrap();
    let other = label[..label.len() - 8].to_owned() + "11111111";
    for dir in ["disk1", "disk2"] {
        let at = |label: &str| stage.path(format!("{dir}/sales/{label}"));
        std::fs::rename(at(&label), at(&other)).unwrap();
    }
    next_second();
    stage.line("backup sales").exits(0);
    stage
        .line("expire sales --target nightly")
        .exits(0)
        .says("target offsite has the backup, too");
    stage
        .line(&format!(
            "restore --database sales --target offsite --label {label} --identity id --to second"
        ))
        .exits(0);
}

#[test]
fn a_shred_tells_of_success_only_where_something_was_and_every_place_was_there() {
    let (stage, _) = stage("");
    stage.line("backup sales").exits(0);
    stage.line("copy sales").exits(0);
    let label = labels(&stage, "nightly").pop().unwrap();
    std::fs::rename(stage.path("keys2"), stage.path("unmounted")).unwrap();
    std::fs::create_dir(stage.path("keys2")).unwrap();
    let shred = format!("key shred {label} --yes --json");
    let done = json(&stage.line(&shred).exits(4));
    assert_eq!(done["sets"][0]["fate"], "unknown", "{done}");
    let why = done["sets"][0]["unread"].to_string();
    assert!(
        why.contains("not mounted") && why.contains("keys2"),
        "{done}"
    );
    assert!(
        stage.names("keys2").is_empty(),
        "no mark hides the next look"
    );
    std::fs::remove_dir(stage.path("keys2")).unwrap();
    std::fs::rename(stage.path("unmounted"), stage.path("keys2")).unwrap();
    // Keys that are left are multiplied by nobody.
    let brought = json(&stage.line("copy sales --json").exits(0));
    assert_eq!(brought["databases"][0]["key_object_count"], 0);
    let new = made(&stage, "new");
    let wrap = format!("key rewrap --database sales --identity id --encrypt-to {new}");
    stage.line(&wrap).exits(4).says("was shredded");
    assert_eq!(
        objects(&stage, "keys1").len() + objects(&stage, "keys2").len(),
        1
    );
    let done = json(&stage.line(&shred).exits(0));
    assert_eq!(done["sets"][0]["fate"], "shredded", "{done}");
    // An identifier with a wrong digit, and a backup whose slots are on its media, are not shredded.
    let nobody = "d5eb2265-0000-4000-8000-000000950386";
    let done = json(
        &stage
            .line(&format!("key shred {nobody} --yes --json"))
            .exits(4),
    );
    assert_eq!(done["sets"][0]["fate"], "unknown", "{done}");
    assert!(
        !stage
            .names("keys1")
            .iter()
            .any(|name| name.contains("d5eb2265"))
    );
}

#[test]
fn a_shred_by_label_means_the_set_that_was_made_under_it() {
    let (stage, _) = stage("");
    stage.line("backup sales").exits(0);
    next_second();
    stage.line("backup sales").exits(0);
    let [old, new]: [String; 2] = labels(&stage, "nightly").try_into().unwrap();
    for dir in ["disk1", "disk2"] {
        let at = |label: &str| stage.path(format!("{dir}/sales/{label}"));
        for (from, to) in [(old.as_str(), "x"), (&new, &old), ("x", &new)] {
            std::fs::rename(at(from), at(to)).unwrap();
        }
    }
    let refused = stage.line(&format!("key shred {old} --yes")).exits(2);
    let refused = refused.says("history of this machine").says(&new);
    let (_, set) = refused.err.split_once(" is set ").unwrap();
    let set = set[..36].to_owned();
    // Without a history, the time in the label.
    for (label, why) in [(&new, "its header says"), (&old, "as ")] {
        let line = format!("--catalog none key shred {label} --yes");
        stage.line(&line).exits(2).says(why);
    }
    assert_eq!(objects(&stage, "keys1").len(), 2, "nothing was destroyed");
    // The identifier is the set's own.
    stage
        .line(&format!("key shred {set}"))
        .exits(2)
        .says(&format!("set {set} of sales, begun at"));
    stage.line(&format!("key shred {set} --yes")).exits(0);
}

#[test]
fn keys_go_nowhere_near_the_stripes() {
    let (stage, id) = stage("");
    let to = format!("backup app.db --encrypt-to {id} --keys-detached --keys");
    for (keys, device) in [
        ("disk1", "a.bak"),
        ("disk2/below", "a.bak"),
        (".", "a.bak"),
        ("keys1", "keys1/a.bak"),
    ] {
        std::fs::create_dir_all(stage.path(keys)).unwrap();
        let line = format!("{to} {keys} --to {device}");
        stage
            .line(&line)
            .exits(2)
            .says("is no place for detached keys");
        assert!(!stage.path(device).exists(), "{line}");
    }
    stage
        .line("config check")
        .says("the keys of its backups are in")
        .exits(0);
}

/// Goal: a place that somebody filled hides no keys of another place.
#[test]
fn a_place_full_of_files_hides_no_keys_of_another() {
    let (stage, _) = stage("");
    stage.line("backup sales").exits(0);
    let name = objects(&stage, "keys2")[0].clone();
    std::fs::remove_file(stage.path("keys1").join(&name)).unwrap();
    for number in 0..300 {
        let junk = format!("{}{number:016x}.lsk", &name[..38]);
        let bytes = format!("{number}");
        std::fs::write(stage.path("keys1").join(junk), bytes).unwrap();
    }
    assert!(objects(&stage, "keys1").len() > 256);
    stage
        .line("restore --database sales --identity id --to out")
        .exits(0);
    same(&stage, "out");
}

/// Goal: what people and attackers do to key objects opens nothing that is not theirs, and destroys nothing that is read elsewhere.
#[test]
fn mixed_renamed_and_copied_key_objects_open_their_own_set_alone() {
    let (stage, id) = stage("");
    let one = |name: &str, keys: &str| {
        stage
            .line(&format!(
                "backup app.db --to {name} --encrypt-to {id} --keys-detached --keys {keys}"
            ))
            .exits(0);
    };
    one("a.bak", "keys1");
    one("b.bak", "keys2");
    let (a, b) = (
        objects(&stage, "keys1")[0].clone(),
        objects(&stage, "keys2")[0].clone(),
    );
    std::fs::create_dir(stage.path("mixed")).unwrap();
    let restore = |keys: &str, to: &str| {
        let config = "--config empty.toml";
        stage.line(&format!(
            "{config} restore a.bak --identity id --keys {keys} --to {to}"
        ))
    };
    std::fs::write(stage.path("empty.toml"), "").unwrap();
    // The object of another set, under its own name and under the name of this set's.
    std::fs::copy(stage.path("keys2").join(&b), stage.path("mixed").join(&b)).unwrap();
    restore("mixed", "none").exits(4);
    std::fs::copy(stage.path("keys2").join(&b), stage.path("mixed").join(&a)).unwrap();
    restore("mixed", "none").exits(4);
    let digits = |name: &str| name[5..37].to_owned();
    let renamed = b.replace(&digits(&b), &digits(&a));
    std::fs::copy(
        stage.path("keys2").join(&b),
        stage.path("mixed").join(&renamed),
    )
    .unwrap();
    restore("mixed", "none").exits(4);
    // Under another name it is not looked at, and a person names it.
    std::fs::remove_file(stage.path("mixed").join(&a)).unwrap();
    std::fs::copy(stage.path("keys1").join(&a), stage.path("mixed/kept.lsk")).unwrap();
    restore("mixed", "none").exits(4);
    let named =
        "--config empty.toml restore a.bak --identity id --key-object mixed/kept.lsk --to named";
    stage.line(named).exits(0);
    same(&stage, "named");
    // A copy of media and keys by other means is a backup like the first, which a shred that does not know it leaves.
    std::fs::copy(stage.path("a.bak"), stage.path("copy.bak")).unwrap();
    std::fs::create_dir(stage.path("kept")).unwrap();
    std::fs::copy(stage.path("keys1").join(&a), stage.path("kept").join(&a)).unwrap();
    let listed = json(&stage.line("list a.bak --json").exits(0));
    let set = listed["sets"][0]["set"].as_str().unwrap();
    let shred = stage.line(&format!("key shred {set} --yes")).exits(5);
    shred.says("no configured target has its stripes");
    restore("keys1", "none").exits(4);
    let line = "--config empty.toml restore copy.bak --identity id --keys kept --to of-copy";
    stage.line(line).exits(0);
    same(&stage, "of-copy");
    assert!(
        Path::new(&stage.path("keys2")).join(&b).exists(),
        "another set's stays"
    );
}

/// Goal: a shred takes the keys from those who come later. A restore that has the key goes on to its end, and the shred names it.
#[test]
fn a_restore_that_runs_while_its_backup_is_shredded_ends_with_the_key_that_it_has() {
    let (stage, _) = stage("");
    std::fs::remove_file(stage.path("app.db")).unwrap();
    stage.database("app.db", 12);
    stage.line("backup sales -a NONE").exits(0);
    let label = labels(&stage, "nightly").pop().unwrap();
    let line = "restore --database sales --identity id --to out --max-rate 2000000";
    let mut restore = stage.command(&line.split(' ').collect::<Vec<_>>());
    let mut restore = restore
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It writes only what it has opened.
    let written = || {
        let entries = std::fs::read_dir(stage.path(".")).unwrap().flatten();
        let of_restore = |name: &str| name.contains("out") && name != "out.log";
        let dirs = entries.filter(|e| of_restore(&e.file_name().to_string_lossy()));
        let files = dirs.flat_map(|dir| std::fs::read_dir(dir.path()).into_iter().flatten());
        files
            .flatten()
            .any(|file| file.metadata().is_ok_and(|m| m.len() > 0))
    };
    while !written() {
        assert!(
            restore.try_wait().unwrap().is_none(),
            "it was too fast to be met"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let told = stage.line(&format!("key shred {label} --yes")).exits(5);
    told.says("goes on with the key that it has");
    let ended =
        longshore_kit::program::wait(&mut restore, std::time::Duration::from_secs(120), "restore");
    assert!(ended.success(), "{ended}");
    same(&stage, "out");
    stage
        .line("restore --database sales --identity id --to none")
        .exits(4);
}
