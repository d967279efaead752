//! Goal: what docs/security.md says that others see and can do is so, neither less nor more: a limit that nobody measured may be
//! wider than the page says, or may have gone.
//! Method: each test plays one of the page's parties: a reader of media without a key, a writer to a target, the holder of an identity,
//! a person with a copy of the history.
//! Not covered: sizes of blocks (`encrypted.rs` of media), blocks with other contents (`set.rs` of `longshore-crypt`), archives (`sealed.rs`
//! of its archive), and statements (`keys.rs` of `tsql`).

use std::path::Path;

use serde_json::Value;

use crate::repository::configured;
use crate::stage::{Ran, Stage, damage};

fn answer(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

fn line(stage: &Stage, line: &str) -> String {
    stage.line(line).exits(0).out.trim().to_owned()
}

fn configure(stage: &Stage, more: &str) {
    let file = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}{more}")).unwrap();
}

fn has(path: &Path, what: &str) -> bool {
    let bytes = std::fs::read(path).unwrap();
    let what = what.as_bytes();
    bytes.windows(what.len()).any(|found| found == what)
}

fn same(stage: &Stage, one: &str, two: &str) -> bool {
    std::fs::read(stage.path(one)).unwrap() == std::fs::read(stage.path(two)).unwrap()
}

/// Takes half of the rows, so that the next backup has other contents.
fn halve(stage: &Stage) {
    let database = rusqlite::Connection::open(stage.path("app.db")).unwrap();
    let half = "DELETE FROM item WHERE id % 2 = 0; VACUUM";
    database.execute_batch(half).unwrap();
}

/// A signer of this machine, in a configuration that encrypts for `id` and requires its signature.
fn signing(stage: &Stage) {
    let to = line(stage, "key new id");
    let signer = line(stage, "key new --signing own");
    let file = stage.path("own").display().to_string();
    configure(
        stage,
        &format!(
            "[encryption]\nrecipients = [\"{to}\"]\nsign = \"{file}\"\nsigners = [\"{signer}\"]\nrequire_signature = true\n"
        ),
    );
}

#[test]
fn without_a_key_an_encrypted_backup_shows_its_header_and_the_kinds_of_its_recipients() {
    let stage = configured();
    let to = line(&stage, "key new id --classic");
    stage
        .shell("(umask 077; echo six words of some length > phrase)")
        .exits(0);
    let made = format!("backup app.db --to a.bak --encrypt-to {to} --encrypt-to passphrase:phrase");
    stage.line(&made).exits(0);
    let listed = answer(&stage.line("list a.bak --json").exits(0));
    let set = &listed["sets"][0];
    let kinds = ["age (X25519)", "a passphrase"].map(Value::from);
    assert_eq!(set["recipients"].as_array().unwrap()[..], kinds, "{set}");
    let stripe = stage.path("a.bak");
    for member in ["machine", "user", "origin", "database"] {
        let shown = set[member].as_str().unwrap();
        assert!(!shown.is_empty() && has(&stripe, shown), "{member}: {set}");
    }
    for member in ["start_us", "finish_us", "plain_bytes", "stored_bytes"] {
        assert!(set[member].as_i64().unwrap() > 0, "{member}: {set}");
    }
    // For whom it is, nobody can tell.
    assert!(!has(&stripe, &to));
    // An identity that is not its own tells no more.
    line(&stage, "key new other --classic");
    stage.line("list a.bak --files --identity other").exits(4);
}

#[test]
fn without_a_key_a_key_of_a_program_is_named_by_its_id() {
    let stage = configured();
    let program = stage.write("service", b"#!/bin/sh\nrev\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let command = program.display();
    configure(
        &stage,
        &format!("[encryption]\nwrap_command = [\"{command}\"]\n"),
    );
    stage
        .line("backup app.db --to a.bak --encrypt-to command:vault/backups")
        .exits(0);
    let listed = answer(&stage.line("list a.bak --json").exits(0));
    assert_eq!(listed["sets"][0]["recipients"][0], "command:vault/backups");
    assert!(has(&stage.path("a.bak"), "vault/backups"));
}

#[test]
fn passwords_in_files_are_in_a_backup_as_they_are_unless_it_is_encrypted() {
    let stage = Stage::new();
    let to = line(&stage, "key new id");
    let secret = "primary_conninfo = 'host=main password=wide-open-4711'";
    stage.write("tree/postgresql.auto.conf", secret.as_bytes());
    stage
        .line("backup files:tree -a NONE --to plain.bak")
        .exits(0);
    let sealed = format!("backup files:tree -a NONE --to sealed.bak --encrypt-to {to}");
    stage.line(&sealed).exits(0);
    assert!(has(&stage.path("plain.bak"), "wide-open-4711"));
    assert!(!has(&stage.path("sealed.bak"), "wide-open-4711"));
    stage
        .line("restore sealed.bak --to out --identity id")
        .exits(0);
    assert!(has(&stage.path("out/postgresql.auto.conf"), secret));
}

#[test]
fn a_state_of_all_stripes_that_somebody_puts_back_is_a_valid_backup() {
    let stage = configured();
    signing(&stage);
    let made = "backup app.db --to a.bak --to b.bak --init";
    stage.line(made).exits(0);
    for stripe in ["a.bak", "b.bak"] {
        std::fs::copy(stage.path(stripe), stage.path(format!("old-{stripe}"))).unwrap();
    }
    std::fs::copy(stage.path("app.db"), stage.path("old.db")).unwrap();
    halve(&stage);
    stage.line(made).exits(0);
    for stripe in ["a.bak", "b.bak"] {
        std::fs::rename(stage.path(format!("old-{stripe}")), stage.path(stripe)).unwrap();
    }
    // Required signatures or not: it was written by the one who signs.
    stage.line("verify a.bak b.bak --identity id").exits(0);
    stage
        .line("restore a.bak b.bak --to out --identity id")
        .exits(0);
    assert!(same(&stage, "old.db", "out/app.db"));
}

#[test]
fn a_damaged_newer_label_stops_a_restore_that_names_none() {
    let stage = configured();
    signing(&stage);
    stage.line("backup sales").exits(0);
    let first = stage.names("disk1/sales")[0].clone();
    std::fs::copy(stage.path("app.db"), stage.path("old.db")).unwrap();
    // Labels have seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    halve(&stage);
    stage.line("backup sales").exits(0);
    let all = stage.names("disk1/sales");
    let newer = all.iter().find(|label| **label != first).unwrap();
    for disk in [1, 2] {
        let stripe = stage.path(format!("disk{disk}/sales/{newer}/family-{disk}.bak"));
        let mut bytes = std::fs::read(&stripe).unwrap();
        // The header: nobody can tell whose set this was.
        bytes[40] ^= 1;
        std::fs::write(&stripe, bytes).unwrap();
    }
    let restore = "restore --database sales --identity id";
    let stopped = stage.line(&format!("{restore} --to out"));
    assert!(!matches!(stopped.code, 0 | 5), "{}", stopped.out);
    stopped.says(newer);
    assert!(!stage.path("out/app.db").exists());
    stage
        .line(&format!("{restore} --to out --label {first}"))
        .exits(0);
    assert!(same(&stage, "old.db", "out/app.db"));
}

#[test]
fn an_identity_opens_every_backup_for_it_whenever_it_was_made() {
    let stage = configured();
    let to = line(&stage, "key new id");
    std::fs::copy(stage.path("app.db"), stage.path("before.db")).unwrap();
    for name in ["one.bak", "two.bak"] {
        let made = format!("backup app.db --to {name} --encrypt-to {to}");
        stage.line(&made).exits(0);
        halve(&stage);
    }
    std::fs::copy(stage.path("id"), stage.path("stolen")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(stage.path("stolen"), mode).unwrap();
    // Made after the theft.
    std::fs::copy(stage.path("app.db"), stage.path("after.db")).unwrap();
    let made = format!("backup app.db --to three.bak --encrypt-to {to}");
    stage.line(&made).exits(0);
    for (name, as_it_was) in [("one", "before.db"), ("three", "after.db")] {
        let line = format!("restore {name}.bak --to {name} --identity stolen");
        stage.line(&line).exits(0);
        assert!(same(&stage, as_it_was, &format!("{name}/app.db")), "{name}");
    }
}

#[test]
fn without_its_key_objects_a_backup_opens_for_the_recipients_on_its_media_alone() {
    let stage = configured();
    let (old, new) = (line(&stage, "key new old"), line(&stage, "key new new"));
    stage
        .line(&format!("backup app.db --to a.bak --encrypt-to {old}"))
        .exits(0);
    stage
        .line(&format!(
            "key rewrap a.bak --identity old --encrypt-to {new}"
        ))
        .exits(0);
    stage
        .line("restore a.bak --to with --identity new")
        .exits(0);
    let names = stage.names(".").into_iter();
    let objects: Vec<String> = names.filter(|name| name.ends_with(".lsk")).collect();
    assert_eq!(objects.len(), 1);
    std::fs::remove_file(stage.path(&objects[0])).unwrap();
    stage
        .line("restore a.bak --to without --identity new")
        .exits(4)
        .says("50123");
    stage
        .line("restore a.bak --to without --identity old")
        .exits(0);
    assert!(same(&stage, "app.db", "without/app.db"));
}

#[test]
fn without_its_detached_keys_a_backup_opens_for_nobody_and_a_forged_mark_calls_it_shredded() {
    let stage = configured();
    let to = line(&stage, "key new id");
    std::fs::create_dir(stage.path("keys")).unwrap();
    let keys = stage.path("keys").display().to_string();
    let file = stage.path("no-config/longshore/longshore.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config.replacen(
        "[target.nightly]\n",
        &format!("[target.nightly]\nkeys = [\"{keys}\"]\n"),
        1,
    );
    std::fs::write(&file, config).unwrap();
    configure(&stage, &format!("[encryption]\nrecipients = [\"{to}\"]\n"));
    stage.line("backup sales").exits(0);
    let mut names = stage.names("keys").into_iter();
    let object = names.find(|name| name.ends_with(".lsk")).unwrap();
    std::fs::remove_file(stage.path("keys").join(&object)).unwrap();
    let restore = "restore --database sales --to none --identity id";
    stage.line(restore).exits(4).says("50123");
    let check = || stage.line("check sales").exits(1);
    check().says("no key object of it is left");
    // The mark has no proof.
    let mark = format!("{}.shredded", &object[..37]);
    stage.write(format!("keys/{mark}"), b"x");
    let told = check().says("the last good backup, was shredded");
    assert!(
        !told.out.contains("no key object of it is left"),
        "{}",
        told.out
    );
    stage.line("info sales").exits(0).says("shredded");
}

#[test]
fn a_copy_of_the_history_has_names_and_sizes_of_files_of_encrypted_backups() {
    let stage = configured();
    let to = line(&stage, "key new id");
    stage
        .line(&format!("backup sales --encrypt-to {to}"))
        .exits(0);
    // Without the service key, as a thief of one file has it.
    std::fs::copy(stage.path("history.db"), stage.path("stolen.db")).unwrap();
    let query = "SELECT logical_name, file_size FROM msdb.dbo.backupfile";
    let mut command = stage.command(&["sql", "-b", "-Q", query]);
    command.env("LONGSHORE_CATALOG", stage.path("stolen.db"));
    let told = Ran::of(&command.output().unwrap()).exits(0);
    let len = std::fs::metadata(stage.path("app.db")).unwrap().len();
    told.says("app.db").says(&len.to_string());
    // The contents are not there.
    let row = "item number 7";
    assert!(has(&stage.path("app.db"), row) && !has(&stage.path("stolen.db"), row));
}

/// Goal: whoever writes to a target can say that a damaged backup was found good; a run that reads it again is not misled.
#[test]
fn a_forged_result_of_an_earlier_run_is_believed_until_again_is_asked_for() {
    let stage = configured();
    let to = line(&stage, "key new id");
    configure(&stage, &format!("[encryption]\nrecipients = [\"{to}\"]\n"));
    stage.line("backup sales").exits(0);
    let verify = "verify --all --database sales --identity id";
    let label = stage.names("disk1/sales")[0].clone();
    let stripes = [1, 2].map(|n| stage.path(format!("disk{n}/sales/{label}/family-{n}.bak")));
    let len = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len();
    damage(&stripes.into_iter().max_by_key(len).unwrap());
    stage.line(verify).exits(1);
    // The attacker makes a good result of the bad one, and takes the failure away.
    let record = stage.path("disk1/sales/.longshore-status-verify");
    let mut result: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    for set in result["sets"].as_array_mut().unwrap() {
        set["good"] = true.into();
    }
    let members = result.as_object_mut().unwrap();
    members.remove("failed");
    members.remove("mended");
    std::fs::write(&record, result.to_string()).unwrap();
    stage.line(verify).exits(0).says("1 known to be good");
    stage.line(&format!("{verify} --again")).exits(1);
}

#[test]
fn where_signatures_are_required_a_rebuilt_history_leaves_strangers_out() {
    let stage = configured();
    let file = stage.path("no-config/longshore/longshore.toml");
    let plain = std::fs::read_to_string(&file).unwrap();
    signing(&stage);
    let strict = std::fs::read_to_string(&file).unwrap();
    stage.line("backup sales").exits(0);
    // The stranger knows the recipient, and neither signs nor has this machine's history.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    std::fs::write(&file, plain).unwrap();
    let to = line(&stage, "key recipient id");
    let strange = "LONGSHORE_CATALOG=$PWD/strange.db longshore backup sales --encrypt-to";
    stage.shell(&format!("{strange} {to}")).exits(0);
    std::fs::write(&file, &strict).unwrap();
    let info = answer(&stage.line("info sales --json"));
    let backups = info["databases"][0]["backups"].as_array().unwrap().clone();
    let states = |state: &str| backups.iter().filter(|b| b["state"] == state).count();
    assert_eq!((backups.len(), states("foreign")), (2, 1), "{info}");
    let count = |catalog: &str| {
        let run = |line: &str| {
            let mut command = stage.command(&line.split(' ').collect::<Vec<_>>());
            command.env("LONGSHORE_CATALOG", stage.path(catalog));
            Ran::of(&command.output().unwrap())
        };
        run("catalog rebuild --target nightly");
        let history = answer(&run("history --json").exits(0));
        history["rows"].as_array().unwrap().len()
    };
    assert_eq!(count("strict.db"), 1);
    let lenient = strict.replace("require_signature = true\n", "");
    std::fs::write(&file, lenient).unwrap();
    assert_eq!(count("lenient.db"), 2);
}

/// Goal: the page's way to erase a database's backups: its own identity is destroyed, and no copy of a stripe opens.
#[test]
fn a_database_whose_identity_is_destroyed_is_unreadable_everywhere_and_others_are_not() {
    let stage = configured();
    let [own, other, third] =
        ["own", "other", "third"].map(|f| line(&stage, &format!("key new {f}")));
    let dir = |name: &str| {
        std::fs::create_dir(stage.path(name)).unwrap();
        stage.path(name).display().to_string()
    };
    configure(
        &stage,
        &format!(
            "[target.erasable]\ndirectories = [\"{}\"]\nrecipients = [\"{own}\"]\n[target.far]\ndirectories = [\"{}\"]\n\
             [encryption]\nrecipients = [\"{other}\"]\n",
            dir("erasable"),
            dir("far"),
        ),
    );
    stage.line("backup sales --target erasable").exits(0);
    let wrap = "key rewrap --database sales --target erasable --identity own --encrypt-to";
    stage.line(&format!("{wrap} {third}")).exits(0);
    let copy = "copy sales --from erasable --to far";
    stage.line(copy).exits(0);
    stage.line("backup docs").exits(0);
    let restored = |target: &str, identity: &str, to: &str| {
        let line =
            format!("restore --database sales --target {target} --to {to} --identity {identity}");
        stage.line(&line)
    };
    for target in ["erasable", "far"] {
        restored(target, "own", &format!("{target}-1")).exits(0);
        restored(target, "third", &format!("{target}-2")).exits(0);
    }
    // An identity that a key object let in counts like the first one.
    std::fs::remove_file(stage.path("own")).unwrap();
    restored("far", "third", "far-3").exits(0);
    std::fs::remove_file(stage.path("third")).unwrap();
    for target in ["erasable", "far"] {
        restored(target, "other", "none").exits(4).says("50123");
    }
    assert!(!stage.path("none/app.db").exists());
    // The upkeep goes on, and other databases have their own.
    stage.line("info sales --target far").exits(0);
    let docs = "restore --database docs --to docs-out --identity other";
    stage.line(docs).exits(0);
    assert!(same(&stage, "tree/a/b", "docs-out/a/b"));
}
