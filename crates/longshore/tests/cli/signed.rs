//! Goal: where signatures are required, a target that others can write to holds nothing of theirs: it is neither restored
//! nor counted, and the machine's own backups are.
//! Method: a stranger knows the recipient and writes encrypted backups to the target, with a key of his own and without one.
//! Not covered: changed signatures (`encrypted.rs` of media), and WAL (`wal/encrypted.rs`, `sealed.rs` of its archive).

use serde_json::Value;

use crate::repository::configured;
use crate::stage::{Ran, Stage};

/// A backup by a program that is not the machine's own: it has a history of its own.
const STRANGE: &str = "LONGSHORE_CATALOG=$PWD/strange.db longshore backup sales";

fn line(stage: &Stage, line: &str) -> String {
    stage.line(line).exits(0).out.trim().to_owned()
}

fn answer(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

fn backups(stage: &Stage) -> Vec<Value> {
    let info = answer(&stage.line("info sales --json"));
    info["databases"][0]["backups"].as_array().unwrap().clone()
}

fn texts<'a>(rows: &'a [Value], member: &str) -> Vec<&'a str> {
    let texts = rows.iter().map(|row| row[member].as_str().unwrap_or("-"));
    texts.collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_forged_backup_is_neither_restored_nor_counted_where_signatures_are_required() {
    let stage = configured();
    let file = stage.path("no-config/longshore/longshore.toml");
    let plain = std::fs::read_to_string(&file).unwrap();
    let (to, own) = (
        line(&stage, "key new id"),
        line(&stage, "key new --signing own"),
    );
    let stranger = line(&stage, "key new --signing stranger");
    assert!(own.starts_with("lssigner1") && stranger != own, "{own}");
    assert_eq!(line(&stage, "key recipient own"), own);
    let path = |name: &str| stage.path(name).display().to_string();
    for disk in ["disk3", "disk4"] {
        std::fs::create_dir(stage.path(disk)).unwrap();
    }
    let more = format!(
        "[target.second]\ndirectories = [\"{}\", \"{}\"]\n[encryption]\nrecipients = [\"{to}\"]\n",
        path("disk3"),
        path("disk4")
    );
    let write = |encryption: &str| {
        let text = encryption.replace("OWN", &path("own"));
        let text = text.replace("STRANGER", &path("stranger"));
        std::fs::write(&file, format!("{plain}{more}{text}")).unwrap();
    };
    let strict = format!("sign = \"OWN\"\nsigners = [\"{own}\"]\nrequire_signature = true\n");
    write(&strict);
    stage.line("config check").exits(0);
    stage.line("backup sales").exits(0);
    stage.line("backup sales --differential").exits(0);
    let rows = backups(&stage);
    assert_eq!(
        texts(&rows, "signature"),
        ["trusted", "trusted"],
        "{rows:?}"
    );
    assert_eq!(texts(&rows, "signer"), [&*own, &*own]);
    let genuine = stage.names("disk1/sales");
    let was = std::fs::read(stage.path("app.db")).unwrap();

    // The stranger's are newer, and have other contents. Labels have seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let database = rusqlite::Connection::open(stage.path("app.db")).unwrap();
    database
        .execute_batch("DELETE FROM item WHERE id % 2 = 0")
        .unwrap();
    drop(database);
    write("sign = \"STRANGER\"\n");
    for _ in 0..2 {
        stage.shell(STRANGE).exits(0);
    }
    write("");
    stage.shell(STRANGE).exits(0);
    let all = stage.names("disk1/sales");
    let theirs = all.iter().find(|label| !genuine.contains(label)).unwrap();
    // One of the machine's own under its own label, which the stranger has signed again, is refused likewise: see
    // `encrypted.rs` of media. A plain one is no better.
    std::fs::write(&file, &plain).unwrap();
    stage.shell(STRANGE).exits(0);

    write(&strict);
    let rows = backups(&stage);
    let foreign = |rows: &[Value]| {
        texts(rows, "state")
            .iter()
            .filter(|s| **s == "foreign")
            .count()
    };
    assert_eq!((rows.len(), foreign(&rows)), (6, 4), "{rows:?}");
    let restored = stage.line("restore --database sales --to out --identity id");
    restored.exits(5).says("is skipped").says("not trusted");
    assert!(std::fs::read(stage.path("out/app.db")).unwrap() == was);
    stage.line("drill sales --identity id").exits(0);
    stage.line("verify --database sales --identity id").exits(0);
    let named = stage.line(&format!(
        "restore --database sales --label {theirs} --to no"
    ));
    assert_ne!(named.code, 0, "{}", named.out);
    named.says("foreign");
    let stripes: Vec<_> = ["disk1", "disk2"]
        .map(|disk| stage.path(disk).join("sales").join(theirs))
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).unwrap())
        .map(|entry| entry.unwrap().path().display().to_string())
        .filter(|path| path.ends_with(".bak"))
        .collect();
    let stripes = stripes.join(" ");
    for command in [
        "verify",
        "verify --stored",
        "list --files",
        "restore --to no",
        "restore --to no --only app.db",
        "restore --to no --dry-run",
    ] {
        let identity = if command.contains("--stored") {
            ""
        } else {
            "--identity id"
        };
        let refused = stage.line(&format!("{command} {stripes} {identity}"));
        refused.exits(4).says("50125");
    }
    assert!(!stage.path("no").exists());

    // The next backup builds on the machine's own, copies are of them, and others do not expire them.
    stage
        .line("backup sales --differential")
        .exits(5)
        .says("is not used as the base");
    let rows = backups(&stage);
    let is_new = |row: &&Value| !all.iter().any(|label| row["label"] == **label);
    let needed = rows.iter().find(is_new).unwrap()["needed"].as_array();
    let is_own = |label: &Value| genuine.iter().any(|own| *label == **own);
    assert!(needed.unwrap().iter().all(is_own), "{needed:?}");
    stage
        .line("copy sales --to second")
        .exits(5)
        .says("is not copied");
    let copied = stage.names("disk3/sales");
    let forged = all.iter().filter(|label| !genuine.contains(label));
    assert!(!copied.is_empty(), "nothing was copied");
    assert!(
        forged.clone().all(|label| !copied.contains(label)),
        "{copied:?}"
    );
    stage.line("expire sales --keep-full 1").exits(0);
    let left = stage.names("disk1/sales");
    assert!(genuine.iter().all(|label| left.contains(label)), "{left:?}");
    stage.line("check sales").says("foreign");

    // A machine that requires signatures and cannot make one makes no backup that it would not take.
    write(&format!(
        "signers = [\"{own}\"]\nrequire_signature = true\n"
    ));
    stage
        .line("backup sales")
        .exits(2)
        .says("key new --signing");
    write(&format!(
        "sign = \"STRANGER\"\nsigners = [\"{own}\"]\nrequire_signature = true\n"
    ));
    stage.line("backup sales").exits(2).says("would be refused");
    write("require_signature = true\n");
    stage.line("info sales").exits(2).says("nobody is trusted");
    write(&format!("signers = [\"{to}\"]\n"));
    stage.line("config check").says("lssigner1");
}

/// Goal: a stranger chooses the time of his label, and is not the newest backup for whoever watches, either. A stripe that he
/// puts among the machine's own removes none of their WAL.
#[test]
fn a_strangers_label_hides_no_backup_that_failed_and_his_stripe_makes_none_foreign() {
    let stage = configured();
    let file = stage.path("no-config/longshore/longshore.toml");
    let plain = std::fs::read_to_string(&file).unwrap();
    let (to, own) = (
        line(&stage, "key new id"),
        line(&stage, "key new --signing own"),
    );
    let write = |rest: &str| {
        let text = format!("{plain}[encryption]\nrecipients = [\"{to}\"]\n{rest}\n");
        std::fs::write(&file, text).unwrap();
    };
    let strict = format!(
        "sign = \"{}\"\nsigners = [\"{own}\"]\nrequire_signature = true",
        stage.path("own").display()
    );
    write(&strict);
    stage.line("backup sales").exits(0);
    let genuine = stage.names("disk1/sales");
    write("");
    stage.shell(STRANGE).exits(0);
    write(&strict);
    let all = stage.names("disk1/sales");
    let theirs = all.iter().find(|label| !genuine.contains(label)).unwrap();
    let chosen = "20991231T000000Z-full-00000000";
    let at = |disk: &str, label: &str| stage.path(disk).join("sales").join(label);
    for disk in ["disk1", "disk2"] {
        std::fs::rename(at(disk, theirs), at(disk, chosen)).unwrap();
    }
    stage
        .line("metrics sales")
        .says("target=\"nightly\",state=\"complete\"} 1");
    // A run of the machine's own that was killed since.
    let killed = at("disk1", "20980101T000000Z-full-00000000");
    std::fs::create_dir(&killed).unwrap();
    std::fs::write(killed.join("family-1.bak.longshore-new"), b"begun").unwrap();
    stage
        .line("check sales")
        .says("the newest run did not complete");
    std::fs::remove_dir_all(&killed).unwrap();

    let state = || {
        let rows = backups(&stage);
        let row = rows.iter().find(|row| row["label"] == *genuine[0]);
        row.unwrap()["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(), "complete");
    let stripe = std::fs::read_dir(at("disk2", chosen)).unwrap();
    let stripe = stripe.map(|entry| entry.unwrap().path());
    let stripe = stripe.filter(|path| path.extension().is_some_and(|e| e == "bak"));
    for path in stripe {
        let name = path.file_name().unwrap();
        std::fs::copy(&path, at("disk2", &genuine[0]).join(name)).unwrap();
    }
    assert_eq!(state(), "unknown");
}

#[test]
fn options_say_who_signs_and_whose_signatures_count() {
    let stage = configured();
    let (to, own) = (
        line(&stage, "key new id"),
        line(&stage, "key new --signing own"),
    );
    let stranger = line(&stage, "key new --signing stranger");
    let made = answer(&stage.line("key new --signing third --json"));
    let third = line(&stage, "key recipient third");
    assert_eq!(
        (&made["signer"], &made["recipients"]),
        (&third.into(), &Value::Array(vec![]))
    );
    stage
        .line(&format!(
            "backup app.db --to signed.bak --encrypt-to {to} --sign own"
        ))
        .exits(0);
    stage
        .line(&format!("backup app.db --to other.bak --encrypt-to {to}"))
        .exits(0);
    stage
        .line(&format!("backup sales --encrypt-to {to} --sign own"))
        .exits(0);
    let strict = format!("--signer {own} --require-signature");
    let trusted = format!("is signed by {own} (trusted)");
    let commands = [
        "verify --identity id",
        "restore --to out --identity id",
        "list --files --identity id",
    ];
    for command in commands {
        let (verb, rest) = command.split_once(' ').unwrap();
        stage
            .line(&format!("{verb} signed.bak {rest} {strict}"))
            .exits(0);
        stage
            .line(&format!("{verb} other.bak {rest} {strict}"))
            .exits(4)
            .says("50125")
            .says("it is not signed");
        let others = format!("--signer {stranger} --require-signature");
        stage
            .line(&format!("{verb} signed.bak {rest} {others}"))
            .exits(4)
            .says("50125")
            .says("who is not trusted");
        stage
            .line(&format!("{verb} signed.bak {rest} --require-signature"))
            .exits(2)
            .says("nobody is trusted");
    }
    let verified = format!("verify signed.bak --identity id --signer {own}");
    stage.line(&verified).exits(0).says(&trusted);
    stage
        .line(&format!("verify --stored signed.bak {strict}"))
        .exits(0)
        .says(&trusted);
    stage
        .line(&format!("list signed.bak --signer {own}"))
        .exits(0)
        .says(&trusted);
    stage.line("list signed.bak").exits(0).says("(not trusted)");
    stage
        .line("list signed.bak --require-signature")
        .exits(2)
        .says("needs --files");
    stage
        .line(&format!("drill sales --identity id {strict}"))
        .exits(0);
    let others = format!("--signer {stranger} --require-signature");
    let refused = stage.line(&format!("drill sales --identity id {others}"));
    assert_ne!(refused.code, 0, "{}", refused.out);
    refused.says("who is not trusted");
}

/// Goal: no backup is made that would be refused, and no key is shown.
#[test]
fn a_signing_key_that_cannot_be_used_or_would_count_for_nothing_is_refused() {
    let stage = Stage::new();
    stage.database("app.db", 1);
    let (to, own) = (
        line(&stage, "key new id"),
        line(&stage, "key new --signing own"),
    );
    let stranger = line(&stage, "key new --signing stranger");
    let strict = format!("--signer {own} --require-signature");
    let others = format!("--signer {stranger} --require-signature");
    let backup = format!("backup app.db --to new.bak --encrypt-to {to}");
    for (line, what) in [
        ("backup app.db --to new.bak --sign own", "cannot be signed"),
        (&*format!("{backup} {strict}"), "key new --signing"),
        (
            &*format!("{backup} --sign own {others}"),
            "would be refused",
        ),
        (&*format!("{backup} --sign id"), "no signing key"),
        ("key new own --signing", "never overwritten"),
    ] {
        stage.line(line).exits(2).says(what);
    }
    let secret = std::fs::read_to_string(stage.path("own")).unwrap();
    let secret = secret.lines().last().unwrap();
    assert!(
        secret.starts_with("LONGSHORE-SIGNING-KEY-1"),
        "{}",
        secret.len()
    );
    for wrong in [
        format!("{backup} --sign {secret}"),
        format!("{backup} --signer {secret} {strict}"),
    ] {
        let refused = stage.line(&wrong).exits(2);
        assert!(!format!("{}{}", refused.out, refused.err).contains(secret));
    }
    stage.shell("chmod 644 own").exits(0);
    stage
        .line(&format!("{backup} --sign own"))
        .exits(2)
        .says("chmod 600");
    assert!(!stage.path("new.bak").exists());
}

/// A batch of T-SQL; it ends with this code.
fn sql(stage: &Stage, statement: &str, code: i32) -> Ran {
    std::fs::write(stage.path("script.sql"), statement).unwrap();
    let ran = stage.run(&["sql", "-b", "-e", "-i", "script.sql"]);
    assert_eq!(ran.code, code, "{}{}", ran.out, ran.err);
    ran
}

#[test]
fn statements_sign_and_refuse_as_the_configuration_says() {
    let stage = configured();
    let file = stage.path("no-config/longshore/longshore.toml");
    let plain = std::fs::read_to_string(&file).unwrap();
    let (to, own) = (
        line(&stage, "key new id"),
        line(&stage, "key new --signing own"),
    );
    stage
        .line(&format!(
            "backup app.db --to theirs.bak --encrypt-to {to} --database sales"
        ))
        .exits(0);
    let path = |name: &str| stage.path(name).display().to_string();
    let write = |recipients: &str| {
        let text = format!(
            "{plain}[encryption]\nidentities = [\"{}\"]\nsign = \"{}\"\nsigners = [\"{own}\"]\n\
             require_signature = true\n{recipients}",
            path("id"),
            path("own")
        );
        std::fs::write(&file, text).unwrap();
    };
    write(&format!("recipients = [\"{to}\"]\n"));
    let disk = |name: &str| format!("DISK = '{}'", path(name));
    sql(
        &stage,
        &format!("BACKUP DATABASE sales TO {}", disk("own.bak")),
        0,
    );
    stage.line("verify own.bak").exits(0).says("(trusted)");
    let verify = |name: &str| format!("RESTORE VERIFYONLY FROM {}", disk(name));
    sql(&stage, &verify("own.bak"), 0);
    let refused = sql(&stage, &verify("theirs.bak"), 1);
    assert!(format!("{}{}", refused.out, refused.err).contains("it is not signed"));
    // Where nothing is encrypted there is nothing to sign.
    write("");
    let plain = format!("BACKUP DATABASE sales TO {}", disk("plain.bak"));
    let refused = sql(&stage, &plain, 1);
    let told = format!("{}{}", refused.out, refused.err);
    assert!(told.contains("cannot be signed"), "{told}");
    assert!(!stage.path("plain.bak").exists());
}
