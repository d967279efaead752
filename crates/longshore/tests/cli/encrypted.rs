//! Goal: a machine makes backups that it cannot read, whoever has an identity reads them, and nobody is told a secret.
//! Method: the program runs over a configured database and files; what is restored is compared with the source.
//! Not covered: changed media (`encrypted.rs` of media), and parents that were exchanged (`encrypted.rs` of the pipeline).

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::repository::configured;
use crate::stage::{Ran, Stage};

/// A new identity in the file of this name; its recipient.
fn recipient(stage: &Stage, file: &str) -> String {
    let ran = stage.line(&format!("key new {file}")).exits(0);
    let mode = std::fs::metadata(stage.path(file)).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    ran.out.trim().to_owned()
}

/// Adds lines to the configuration.
fn configure(stage: &Stage, more: &str) {
    let file = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}{more}")).unwrap();
}

fn same(stage: &Stage, one: &str, two: &str) -> bool {
    std::fs::read(stage.path(one)).unwrap() == std::fs::read(stage.path(two)).unwrap()
}

fn answer(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_machine_with_the_recipient_alone_makes_what_the_identity_opens() {
    let stage = configured();
    let to = recipient(&stage, "id");
    assert!(to.starts_with("age1pq1"), "{to}");
    let again = stage.line("key recipient id --json").exits(0);
    assert_eq!(answer(&again)["recipients"][0], to.as_str());
    let line = format!("backup app.db --to a.bak --to b.bak --verify --encrypt-to {to}");
    stage.line(&line).exits(0).says("yes");
    stage.line("list a.bak b.bak").exits(0).says("encrypted");
    let listed = stage.line("list a.bak b.bak --json").exits(0);
    assert_eq!(answer(&listed)["sets"][0]["encrypted"], true);
    // Nothing but headers without the identity, and nothing is left behind.
    for line in [
        "restore a.bak b.bak --to out",
        "verify a.bak b.bak",
        "list a.bak b.bak --files",
    ] {
        let refused = stage.line(line).exits(4);
        refused.says("50123").says("--identity FILE");
    }
    for option in ["--identity id", "--require-encryption"] {
        let line = format!("list a.bak b.bak {option}");
        stage.line(&line).exits(2).says("needs --files");
    }
    assert!(!stage.path("out").exists() || stage.names("out").is_empty());
    let other = recipient(&stage, "other");
    assert_ne!(other, to);
    stage
        .line("restore a.bak b.bak --to out --identity other")
        .exits(4);
    stage
        .line("restore a.bak b.bak --to out --identity other --identity id")
        .exits(0);
    assert!(same(&stage, "app.db", "out/app.db"));
    stage
        .line("verify a.bak b.bak --identity id --require-encryption")
        .exits(0);
    stage
        .line("list a.bak b.bak --files --identity id")
        .exits(0)
        .says("app.db");
    let line = "restore a.bak b.bak --to one --only app.db --identity id";
    stage.line(line).exits(0);
    assert!(same(&stage, "app.db", "one/app.db"));
    // Through a pipe, and into another program's hands.
    let line = format!("longshore backup app.db --to - --encrypt-to {to} | cat > piped.bak");
    stage.shell(&line).exits(0);
    stage
        .shell("cat piped.bak | longshore restore - --to piped --identity id")
        .exits(0);
    assert!(same(&stage, "app.db", "piped/app.db"));
    // The classic form, for programs that know no other.
    let classic = stage.line("key new classic --classic").exits(0);
    assert!(!classic.out.starts_with("age1pq1"), "{}", classic.out);
    let line = format!(
        "backup app.db --to c.bak --encrypt-to {}",
        classic.out.trim()
    );
    stage.line(&line).exits(0);
    stage
        .line("restore c.bak --to classic-out --identity classic")
        .exits(0);
    let mixed = format!("{line} --init --encrypt-to {to}");
    stage.line(&mixed).exits(2).says("weakest");
}

#[test]
fn a_target_encrypts_for_its_recipients_and_its_upkeep_needs_no_identity() {
    let stage = configured();
    let to = recipient(&stage, "id");
    configure(
        &stage,
        &format!(
            "[target.open]\ndirectories = [\"{0}\"]\nrecipients = []\n[target.far]\ndirectories = [\"{1}\", \"{2}\"]\n\
             [encryption]\nrecipients = [\"{to}\"]\n",
            stage.write("open/x", b"").parent().unwrap().display(),
            stage.write("far1/x", b"").parent().unwrap().display(),
            stage.write("far2/x", b"").parent().unwrap().display(),
        ),
    );
    stage.line("config check").exits(0);
    let made = stage.line("backup sales --verify").exits(0);
    made.says("yes");
    stage.line("backup sales --target open").exits(0);
    let list = |line: &str| answer(&stage.line(line).exits(0))["sets"][0]["encrypted"].clone();
    assert_eq!(list("list --database sales --label latest --json"), true);
    let line = "list --database sales --label latest --target open --json";
    assert_eq!(list(line), false);
    let says = |line: &str| stage.line(line).exits(0).err;
    let line = format!("backup app.db --to key.bak --encrypt-to {to} --identity id");
    assert!(says(&line).contains("--identity has no effect"));
    let line = format!("{line} --init --verify");
    assert!(!says(&line).contains("no effect"));
    let verbose = says("backup sales --verbose");
    assert!(verbose.contains("Encryption=1"), "{verbose}");
    // An older backup has the same recipients.
    let closed = stage.line("restore --database sales --to out").exits(4);
    let closed = closed.says("50123").says("--identity FILE");
    assert!(!closed.err.contains("earlier backup"), "{}", closed.err);
    // The daily work of a host without any identity.
    stage.line("info sales").exits(0);
    stage.line("check sales").exits(0);
    let recipients = |target: &str| {
        let line = format!("metrics sales --target {target}");
        let told = stage.line(&line).exits(0).out;
        let of = format!("longshore_recipients{{database=\"sales\",target=\"{target}\"}} ");
        let value = told.lines().find_map(|line| line.strip_prefix(&of));
        value.map(str::to_owned)
    };
    assert_eq!(recipients("nightly").as_deref(), Some("1"));
    assert_eq!(recipients("open").as_deref(), Some("0"));
    let label = stage.names("disk1/sales")[0].clone();
    let line = format!("copy sales --label {label} --to far");
    stage.line(&line).exits(0);
    stage.line("backup sales").exits(0);
    stage.line("backup sales").exits(0);
    stage
        .line("expire sales --keep-full 2")
        .exits(0)
        .says("2 backups");
    // A differential backup reads its base's index, which this machine can while it has its history.
    stage.line("backup sales --differential").exits(0);
    stage.line("backup sales --incremental").exits(0);
    // The run has the key of its own set alone; the ones before it are on the same media.
    let own = "backup app.db --to chain.bak --page-sums";
    stage.line(own).exits(0);
    for _ in 0..2 {
        let line = format!("{own} --append --incremental --base chain.bak --verify");
        stage.line(&line).exits(0).says("yes");
    }
    for name in ["history.db", "history.db.key"] {
        std::fs::remove_file(stage.path(name)).unwrap();
    }
    stage.line("catalog rebuild --target nightly").exits(0);
    stage
        .line("backup sales --differential")
        .exits(4)
        .says("no identity was given")
        .says("the history of this machine");
    stage
        .line("backup sales --differential --identity id")
        .exits(0);
    stage
        .line("backup sales --differential --or-full")
        .exits(0)
        .says("full");
    stage.line("backup sales --differential").exits(0);
    stage
        .line("restore --database sales --to out --identity id")
        .exits(0);
    stage
        .line("restore --database sales --target far --to copied --identity id")
        .exits(0);
    assert!(same(&stage, "out/app.db", "copied/app.db"));
    std::fs::create_dir(stage.path("work")).unwrap();
    stage.line("drill sales --work work").exits(4);
    stage
        .line("drill sales --work work --identity id")
        .exits(0)
        .says("is good");
    // From the environment, as a container has it.
    let mut command = stage.command(&["drill", "sales", "--work", "work"]);
    command.env("LONGSHORE_ENCRYPTION_IDENTITIES", stage.path("id"));
    Ran::of(&command.output().unwrap()).exits(0);
}

/// Goal: a machine without an identity finds rot in its encrypted backups, and takes nothing for verified that it did not
/// open.
#[test]
fn stored_bytes_are_checked_without_an_identity_and_are_no_verification() {
    let stage = configured();
    let to = recipient(&stage, "id");
    stage.line("backup app.db --to plain.bak").exits(0);
    configure(&stage, &format!("[encryption]\nrecipients = [\"{to}\"]\n"));
    stage.line("backup sales").exits(0);
    stage.line("backup sales --differential").exits(0);
    let line = "verify --database sales --stored";
    let good = stage.line(line).exits(0).says("nothing was decoded");
    assert!(!good.out.contains("is valid"), "{}", good.out);
    let told = answer(&stage.line(&format!("{line} --json")).exits(0));
    assert_eq!(
        (
            &told["stored_only"],
            &told["valid"],
            &told["sets"][0]["chain_sets"]
        ),
        (&true.into(), &true.into(), &Value::Null)
    );
    let runs = answer(&stage.line("history --runs --json").exits(0));
    let tasks = |task: &str| {
        let all = runs["rows"].as_array().unwrap().iter();
        all.filter(|run| run["task"] == task).count()
    };
    assert_eq!((tasks("scrub"), tasks("verify")), (2, 0), "{runs}");
    // No result was recorded, so the next run has all to do.
    let all = stage.line("verify --all --database sales --identity id --json");
    let told = answer(&all.exits(0));
    assert_eq!(told["databases"][0]["verified_count"], 2, "{told}");
    // Bytes all over the stripe count: blocks, and the index, which nobody here can read.
    let label = stage.line("info sales --json").exits(0);
    let sets = answer(&label)["databases"][0]["backups"].clone();
    let label = sets[0]["label"].as_str().unwrap().to_owned();
    // The larger stripe has blocks; the other one may have none.
    let stripes = [1, 2].map(|n| stage.path(format!("disk{n}/sales/{label}/family-{n}.bak")));
    let len = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len();
    let stripe = stripes.into_iter().max_by_key(len).unwrap();
    let whole = std::fs::read(&stripe).unwrap();
    let line = format!("{line} --label {label}");
    let last = whole.len() - 1;
    for step in 0..=40 {
        let mut bytes = whole.clone();
        bytes[last * step / 40] ^= 1;
        std::fs::write(&stripe, bytes).unwrap();
        let bad = stage.line(&line);
        assert!(
            matches!(bad.code, 1 | 4),
            "byte {}: {}",
            last * step / 40,
            bad.out
        );
    }
    let mut bytes = whole.clone();
    bytes[last / 2] ^= 1;
    std::fs::write(&stripe, bytes).unwrap();
    stage.line(&line).exits(1).says("DAMAGED");
    std::fs::write(&stripe, &whole).unwrap();
    stage.line(&line).exits(0);
    // Damage that was found is not mended by less than a verification.
    let check = stage.line("check sales");
    assert_ne!(check.code, 0, "{}", check.out);
    stage
        .line(&format!(
            "verify --database sales --label {label} --identity id"
        ))
        .exits(0);
    // Where encryption is required, stored checksums of another set prove nothing.
    stage.line("verify --stored plain.bak").exits(0);
    stage
        .line("verify --stored plain.bak --require-encryption")
        .exits(4);
}

/// Goal: a timer that has no identity does not report that all backups are valid.
#[test]
fn verify_all_calls_nothing_valid_that_it_could_not_open() {
    let stage = configured();
    let to = recipient(&stage, "id");
    stage.line("backup sales").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    stage
        .line(&format!("backup sales --encrypt-to {to}"))
        .exits(0);
    let line = "verify --all --database sales";
    let verify = |more: &str, code: i32| {
        let told = answer(&stage.line(&format!("{line} --json {more}")).exits(code));
        assert_eq!(told["valid"], code == 0, "{told}");
        told["databases"][0].clone()
    };
    let seen = |told: &Value| {
        let rows = told["backups"].as_array().unwrap().iter();
        let verdicts: Vec<_> = rows.map(|row| row["verdict"].as_str().unwrap()).collect();
        verdicts.join(" ")
    };
    let told = verify("", 4);
    assert_eq!(seen(&told), "good closed", "{told}");
    assert_eq!(
        (&told["closed_count"], &told["left_count"]),
        (&1.into(), &0.into())
    );
    let why = told["backups"][1]["why"].as_str().unwrap();
    assert!(
        why.contains("cannot open the encrypted backup set"),
        "{why}"
    );
    stage
        .line(line)
        .exits(4)
        .says("1 NOT OPENED")
        .says(why)
        .says("--identity FILE");
    let info = answer(&stage.line("info sales --json"));
    let failed = &info["databases"][0]["results"]["last_failed"][0];
    assert_eq!(
        (&failed["exit_code"], &failed["mended"]),
        (&4.into(), &false.into())
    );
    assert_eq!(seen(&verify("--identity id", 0)), "known good");
    // One that is not encrypted is not believed where that is required.
    let told = verify("--identity id --require-encryption", 1);
    assert_eq!(seen(&told), "damaged known", "{told}");
    assert_eq!(seen(&verify("", 0)), "known known");
    // An earlier result does not count for a backup that a later run could not open.
    assert_eq!(seen(&verify("--again", 4)), "good closed");
    for _ in 0..2 {
        assert_eq!(seen(&verify("", 4)), "known closed");
    }
    assert_eq!(seen(&verify("--identity id", 0)), "known good");
    assert_eq!(seen(&verify("", 0)), "known known");
}

#[test]
fn where_encryption_is_required_nothing_else_is_made_or_read() {
    let stage = configured();
    stage.line("backup sales").exits(0);
    stage.line("backup app.db --to plain.bak").exits(0);
    stage
        .line("verify plain.bak --require-encryption")
        .exits(4)
        .says("50124");
    for line in [
        "restore plain.bak --to out --require-encryption",
        "list plain.bak --files --require-encryption",
    ] {
        stage.line(line).exits(4).says("50124");
    }
    let drilled = stage.line("drill sales --require-encryption").exits(4);
    drilled.says("is not encrypted");
    stage
        .line("backup app.db --to base.bak --page-sums")
        .exits(0);
    let to = recipient(&stage, "id");
    let line = format!(
        "backup app.db --to diff.bak --differential --base base.bak --require-encryption --encrypt-to {to}"
    );
    stage.line(&line).exits(4).says("50124");
    stage
        .line("backup app.db --to new.bak --require-encryption")
        .exits(2)
        .says("nobody");
    configure(&stage, "[encryption]\nrequire = true\n");
    let told = stage.line("check sales").exits(1);
    told.says("it is not encrypted, and must be");
    stage
        .line("backup app.db --to new.bak")
        .exits(2)
        .says("--encrypt-to");
    stage
        .line("restore --database sales --to out")
        .exits(4)
        .says("is not encrypted");
    stage.line("restore plain.bak --to out").exits(4);
    stage
        .line("restore plain.bak --to out --only app.db")
        .exits(4);
    stage.line("list plain.bak --files").exits(4);
    stage
        .shell("cat plain.bak | longshore restore - --to out || [ $? = 4 ]")
        .exits(0);
    assert!(!stage.path("out").exists() || stage.names("out").is_empty());
    let sql = "BACKUP DATABASE sales TO DISK = 'sql.bak'";
    let refused = stage.run(&["sql", "-b", "-Q", sql]);
    assert_ne!(refused.code, 0, "{refused:?}");
}

/// Goal: a person who knows no recipient can write backups to the target, and these expire none of the machine's own.
#[test]
fn a_plain_backup_counts_for_nothing_where_encryption_is_required() {
    let stage = configured();
    let to = recipient(&stage, "id");
    let file = stage.path("no-config/longshore/longshore.toml");
    let plain = std::fs::read_to_string(&file).unwrap();
    let require = format!("[encryption]\nrecipients = [\"{to}\"]\nrequire = true\n");
    configure(&stage, &require);
    let strict = std::fs::read_to_string(&file).unwrap();
    for _ in 0..3 {
        stage.line("backup sales").exits(0);
    }
    let own = stage.names("disk1/sales");
    let was = std::fs::read(stage.path("app.db")).unwrap();
    std::fs::write(&file, plain).unwrap();
    let database = rusqlite::Connection::open(stage.path("app.db")).unwrap();
    database.execute_batch("DELETE FROM item").unwrap();
    drop(database);
    for _ in 0..2 {
        stage.line("backup sales").exits(0);
    }
    std::fs::write(&file, strict).unwrap();

    let all = stage.names("disk1/sales");
    let theirs: Vec<&String> = all.iter().filter(|name| !own.contains(name)).collect();
    let told = answer(&stage.line("info sales --json").exits(0));
    let told = &told["databases"][0];
    let foreign = |row: &&Value| row["state"] == "foreign";
    let rows = told["backups"].as_array().unwrap();
    assert_eq!(rows.iter().filter(foreign).count(), 2, "{told}");
    let good = told["last_good"].as_str().unwrap();
    assert!(own.iter().any(|label| label == good), "{good}");
    let mut checked = stage.line("check sales").exits(1);
    for label in &theirs {
        checked = checked.says(&format!(
            "{label}: foreign: it is not encrypted, and must be"
        ));
    }
    let restored = stage.line("restore --database sales --to out --identity id");
    restored.exits(5).says("is skipped").says("not encrypted");
    assert!(std::fs::read(stage.path("out/app.db")).unwrap() == was);
    // Two full ones are kept: of the machine's own.
    stage.line("expire sales").exits(0);
    let left = stage.names("disk1/sales");
    let is_left = |label: &&String| left.contains(*label);
    assert_eq!(own.iter().filter(is_left).count(), 2, "{left:?}");
    assert!(theirs.iter().all(|label| left.contains(*label)), "{left:?}");
    // Where theirs have later seconds than the base, they are told as newer ones that are not used.
    let made = stage.line("backup sales --differential --identity id");
    assert!(matches!(made.code, 0 | 5), "{made:?}");
    stage.line("drill sales --identity id").exits(0);
}

/// Goal: where a recipient is required of everything, as the key of an escrow, nothing is written that it could not open.
#[test]
fn nothing_is_written_without_a_recipient_that_everything_must_have() {
    let stage = configured();
    let (to, third) = (recipient(&stage, "id"), recipient(&stage, "third"));
    let escrow = recipient(&stage, "escrow");
    stage.write(
        "escrow.pub",
        format!("# of the notary\n{escrow}\n").as_bytes(),
    );
    let file = stage.path("escrow.pub").display().to_string();
    let open = stage.write("open/x", b"").parent().unwrap().to_owned();
    configure(
        &stage,
        &format!(
            "[target.open]\ndirectories = [\"{}\"]\nrecipients = []\n\
             [encryption]\nrecipients = [\"{to}\"]\nrequire_recipients = [\"@{file}\"]\n",
            open.display()
        ),
    );
    let told = stage.line("config check");
    assert_ne!(told.code, 0);
    told.says("require_recipients");
    let refused = |line: &str| {
        let ran = stage.line(line).exits(2);
        ran.says("`require_recipients` in [encryption] has @")
            .says("add it to `recipients`")
    };
    refused("backup sales").says("not for it");
    refused("backup app.db --to a.bak");
    refused(&format!("backup app.db --to a.bak --encrypt-to {third}"));
    // A plain backup has no recipient.
    refused("backup sales --target open").says("for nobody");
    for sql in [
        "BACKUP DATABASE sales TO DISK = 'sql.bak'",
        "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'six Random words'; CREATE CERTIFICATE c WITH SUBJECT = 'c'; \
         BACKUP DATABASE sales TO DISK = 'sql.bak' WITH COMPRESSION, ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = c)",
    ] {
        let ran = stage.run(&["sql", "-b", "-Q", sql]);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(
            (ran.out.clone() + &ran.err).contains("require_recipients"),
            "{ran:?}"
        );
    }
    for path in ["a.bak", "sql.bak", "disk1/sales", "open/sales"] {
        assert!(!stage.path(path).exists(), "{path}");
    }
    let both = format!("--encrypt-to {to} --encrypt-to {escrow}");
    stage
        .line(&format!("backup app.db --to a.bak {both}"))
        .exits(0);
    stage
        .line("restore a.bak --to out --identity escrow")
        .exits(0);
    assert!(same(&stage, "app.db", "out/app.db"));
    // Key objects are for it, too; the required one alone suffices.
    let wrap = "key rewrap a.bak --identity id --encrypt-to";
    refused(&format!("{wrap} {third}"));
    stage
        .line(&format!("{wrap} {third} --encrypt-to {escrow}"))
        .exits(0);
    stage.line(&format!("{wrap} {escrow}")).exits(0);
    // As the configuration has it, in whatever order, and as a text.
    let config = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let list = format!("\nrecipients = [\"{escrow}\", \"{to}\"]\n");
    let text = text.replace(&format!("\nrecipients = [\"{to}\"]\n"), &list);
    std::fs::write(&config, text.replace(&format!("@{file}"), &escrow)).unwrap();
    // The target whose backups are for nobody is left.
    let told = stage.line("config check");
    assert!(!told.out.contains("[encryption]: `require"), "{}", told.out);
    told.says("[target.open]: `require_recipients`");
    stage.line("backup sales").exits(0);
    let restore = "restore --database sales --to again --identity escrow";
    stage.line(restore).exits(0);
    let ran = stage
        .line(&format!("backup app.db --to b.bak --encrypt-to {to}"))
        .exits(2);
    let long = ran.err.split_whitespace().map(str::len).max();
    assert!(long < Some(100), "{}", ran.err);
    // A passphrase is no key that could be compared.
    stage.write("words", b"six random words are enough here\n");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(stage.path("words"), mode).unwrap();
    let mut command = stage.command(&["backup", "app.db", "--to", "b.bak"]);
    let words = format!("passphrase:{}", stage.path("words").display());
    command.env("LONGSHORE_ENCRYPTION_REQUIRE_RECIPIENTS", words);
    let ran = Ran::of(&command.output().unwrap());
    ran.exits(2).says("passphrases are not compared");
    assert!(!stage.path("b.bak").exists());
}

/// Goal: the root that a witness noted when a backup was made is compared with what is restored, by whatever command tells it.
#[test]
fn an_encrypted_set_has_one_root_in_every_answer_and_a_plain_one_has_none() {
    let stage = configured();
    let to = recipient(&stage, "id");
    let restored = |label: &str, more: &str| {
        let line = format!("restore --database sales --label {label} --to {label} --json {more}");
        answer(&stage.line(&line).exits(0))
    };
    let root = |value: &Value| value.as_str().map(str::to_owned);
    let mut roots = Vec::new();
    for (encrypt, identity) in [
        (String::new(), ""),
        (format!("--encrypt-to {to}"), "--identity id"),
        (format!("--encrypt-to {to}"), "--identity id"),
    ] {
        // Labels have seconds.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let made = answer(
            &stage
                .line(&format!("backup sales --json {encrypt}"))
                .exits(0),
        );
        let label = made["label"].as_str().unwrap();
        let info = answer(&stage.line("info sales --json").exits(0));
        let rows = info["databases"][0]["backups"].as_array().unwrap();
        let row = rows.iter().find(|row| row["label"] == label).unwrap();
        let own = root(&row["root"]);
        let listed = [1, 2].map(|n| format!("disk{n}/sales/{label}/family-{n}.bak"));
        let listed = answer(
            &stage
                .line(&format!("list {} --json", listed.join(" ")))
                .exits(0),
        );
        assert_eq!(root(&listed["sets"][0]["root"]), own);
        let preview = restored(label, &format!("--dry-run {identity}"));
        assert_eq!(root(&preview["sets"][0]["root"]), own);
        assert_eq!(root(&restored(label, identity)["root"]), own);
        roots.push(own);
    }
    let [None, Some(one), Some(other)] = &roots[..] else {
        panic!("{roots:?}");
    };
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    assert!(one.len() == 64 && one.chars().all(is_digit) && one != other);
}

/// Goal: a variable or an option that a script has emptied takes no escrow away, and makes no backup that is not encrypted.
#[test]
fn an_empty_variable_or_option_requires_nobody_and_encrypts_for_nobody_in_no_case() {
    let stage = configured();
    let (to, escrow) = (recipient(&stage, "id"), recipient(&stage, "escrow"));
    let plain = "backup app.db --to b.bak";
    let nobody = stage.run(&["backup", "app.db", "--to", "b.bak", "--encrypt-to", ""]);
    nobody.exits(2).says("age1");
    configure(
        &stage,
        &format!("[encryption]\nrequire_recipients = [\"{escrow}\"]\n"),
    );
    let sealed = format!("{plain} --encrypt-to {to}");
    for line in [plain, &sealed] {
        for value in ["", " ", "  "] {
            let words: Vec<&str> = line.split(' ').collect();
            let mut command = stage.command(&words);
            command.env("LONGSHORE_ENCRYPTION_REQUIRE_RECIPIENTS", value);
            let ran = Ran::of(&command.output().unwrap());
            ran.exits(2).says("has an empty recipient");
        }
        stage.line(line).exits(2).says("`require_recipients`");
    }
    let mut checked = stage.command(&["config", "check"]);
    checked.env("LONGSHORE_ENCRYPTION_REQUIRE_RECIPIENTS", "");
    let checked = Ran::of(&checked.output().unwrap());
    assert_ne!(checked.code, 0, "{checked:?}");
    for (option, value) in [("--encrypt-to", ""), ("--encrypt-to", " ")] {
        let both = ["backup", "app.db", "--to", "b.bak", "--encrypt-to", &escrow];
        let ran = stage.run(&[&both[..], &[option, value]].concat());
        ran.exits(2);
    }
    assert!(!stage.path("b.bak").exists());
}

#[test]
fn statements_encrypt_and_open_as_the_configuration_says() {
    let stage = configured();
    let to = recipient(&stage, "id");
    let id = stage.path("id").display().to_string();
    configure(
        &stage,
        &format!(
            "[encryption]\nrecipients = [\"{to}\"]\nidentities = [\"{id}\"]\nrequire = true\n"
        ),
    );
    let sql = "DBCC TRACEON(3604, 3213); BACKUP DATABASE sales TO DISK = 'sql.bak' WITH COMPRESSION; \
               BACKUP DATABASE sales TO DISK = 'sql.bak' WITH COMPRESSION; \
               RESTORE VERIFYONLY FROM DISK = 'sql.bak'";
    let ran = stage.run(&["sql", "-b", "-Q", sql]).exits(0);
    assert!(ran.out.contains("Encryption=1"), "{}", ran.out);
    let listed = stage.line("list sql.bak --json").exits(0);
    assert_eq!(answer(&listed)["sets"][1]["encrypted"], true);
    stage.line("restore sql.bak --to out").exits(0);
    assert!(same(&stage, "app.db", "out/app.db"));
    let listed = stage.run(&[
        "sql",
        "-b",
        "-Q",
        "RESTORE FILELISTONLY FROM DISK = 'sql.bak'",
    ]);
    listed.exits(0).says("app.db");
    let copy = stage.path("copied").display().to_string();
    std::fs::create_dir(&copy).unwrap();
    let sql = format!(
        "RESTORE DATABASE again FROM DISK = 'sql.bak' WITH MOVE 'app.db' TO '{copy}/again.db'"
    );
    stage.run(&["sql", "-b", "-Q", &sql]).exits(0);
    assert!(same(&stage, "app.db", "copied/again.db"));
}

/// Goal: a machine that only restores can run statements, and a statement of one session does not open what another wrote.
#[test]
fn statements_without_a_recipient_run_and_write_no_backup() {
    let stage = configured();
    configure(&stage, "[encryption]\nrequire = true\n");
    stage.run(&["sql", "-b", "-Q", "SELECT 1"]).exits(0);
    let sql = "BACKUP DATABASE sales TO DISK = 'sql.bak'";
    let refused = stage.run(&["sql", "-b", "-Q", sql]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(!stage.path("sql.bak").exists());
    let other = configured();
    let to = recipient(&other, "id");
    configure(&other, &format!("[encryption]\nrecipients = [\"{to}\"]\n"));
    let sql =
        "BACKUP DATABASE sales TO DISK = 'sql.bak'\nGO\nRESTORE VERIFYONLY FROM DISK = 'sql.bak'";
    let refused = other.run(&["sql", "-b", "-Q", sql]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(other.path("sql.bak").exists());
}

/// The limit of core files of a run that waits for its input or for whoever takes its output, once it is 0 or `wait` has passed.
/// `None`: no limit but 0 can be set here.
fn core_limit(stage: &Stage, line: &str, wait: std::time::Duration) -> Option<String> {
    use std::process::Stdio;
    let words: Vec<&str> = line.split_whitespace().collect();
    let program = stage.command(&words);
    let mut shell = std::process::Command::new("bash");
    shell
        .args(["-c", "ulimit -S -c 4 || exit 99; exec \"$@\"", "-"])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(stage.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for (key, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    let mut child = shell.spawn().unwrap();
    let name = format!("/proc/{}/comm", child.id());
    let limits = format!("/proc/{}/limits", child.id());
    let until = std::time::Instant::now() + wait;
    let limit = loop {
        // Before that it is the shell, with the limit of whoever runs this test.
        let is_begun = std::fs::read_to_string(&name).is_ok_and(|name| name.trim() == "longshore");
        let text = std::fs::read_to_string(&limits).unwrap();
        let row = text
            .lines()
            .find_map(|row| row.strip_prefix("Max core file size"));
        let soft = row
            .and_then(|row| row.split_whitespace().next())
            .unwrap()
            .to_owned();
        let is_over = is_begun && (soft == "0" || std::time::Instant::now() > until);
        match child.try_wait().unwrap() {
            Some(status) if status.code() == Some(99) => {
                eprintln!("skipped: core files cannot be allowed here");
                return None;
            }
            Some(status) => panic!("{line}: {status}"),
            None if is_over => break soft,
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    Some(limit)
}

/// Goal: what is in memory with a key is in no file after a crash, whichever command has it.
#[test]
fn a_process_with_a_key_leaves_no_memory_in_a_file() {
    let stage = configured();
    let to = recipient(&stage, "id");
    let signer = stage.line("key new --signing signing").exits(0);
    assert!(signer.out.starts_with("lssigner1"));
    let minute = std::time::Duration::from_secs(60);
    for line in [
        "restore - --to out --identity id",
        &format!("backup app.db --to - --encrypt-to {to}"),
        "sql",
    ] {
        let Some(limit) = core_limit(&stage, line, minute) else {
            return;
        };
        assert_eq!(limit, "0", "{line}");
    }
    // Without a key a crash may be looked into.
    let second = std::time::Duration::from_secs(1);
    for line in ["restore - --to out", "backup app.db --to -"] {
        assert_eq!(
            core_limit(&stage, line, second).as_deref(),
            Some("4096"),
            "{line}"
        );
    }
}

#[test]
fn files_with_secrets_are_read_from_their_owner_alone_and_never_repeated() {
    let stage = configured();
    recipient(&stage, "id");
    stage.line("key new id").exits(2).says("never overwritten");
    let text = std::fs::read_to_string(stage.path("id")).unwrap();
    let secret = text.lines().last().unwrap().to_owned();
    let set_mode = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(stage.path(name), mode).unwrap();
    };
    stage.line("backup app.db --to a.bak").exits(0);
    let mut said = Vec::new();
    set_mode("id", 0o640);
    let refused = stage.line("verify a.bak --identity id").exits(2);
    said.push(refused.says("others may read").says("chmod 600"));
    set_mode("id", 0o600);
    // A secret where a recipient belongs, and files that hold something else.
    let line = format!("backup app.db --to b.bak --encrypt-to {secret}");
    said.push(stage.line(&line).exits(2).says("secret"));
    stage.write("broken", format!("{}x\n", &secret[..60]).as_bytes());
    set_mode("broken", 0o600);
    said.push(stage.line("verify a.bak --identity broken").exits(2));
    stage.write("empty", b"# nothing\n");
    set_mode("empty", 0o600);
    said.push(stage.line("verify a.bak --identity empty").exits(2));
    said.push(stage.line("verify a.bak --identity missing").exits(2));
    stage.write("short", b"too short\n");
    set_mode("short", 0o600);
    said.push(
        stage
            .line("backup app.db --to b.bak --encrypt-to passphrase:short")
            .exits(2),
    );
    said.push(
        stage
            .line(&format!("verify a.bak --identity {secret}"))
            .exits(2),
    );
    said.push(stage.line(&format!("key new {secret}")).exits(2));
    said.push(stage.line(&format!("key recipient {secret}")).exits(2));
    stage.write(
        "wrong.toml",
        format!("[encryption]\nidentities = \"{secret}\"\n").as_bytes(),
    );
    said.push(stage.line("info --config wrong.toml").exits(2));
    let line = "verify a.bak --identity passphrase:swordfish-and-so-on";
    let refused = stage.line(line).exits(2);
    assert!(!refused.err.contains("swordfish"), "{}", refused.err);
    stage.write(
        "list",
        stage.line("key recipient id").exits(0).out.as_bytes(),
    );
    set_mode("list", 0o666);
    let line = "backup app.db --to b.bak --encrypt-to @list";
    stage.line(line).exits(2).says("others may write");
    for ran in &said {
        assert!(!ran.err.contains(&secret[20..40]), "{}", ran.err);
        assert!(!ran.err.contains("too short\n"), "{}", ran.err);
    }
    assert!(!stage.path("b.bak").exists());
}

#[test]
fn a_passphrase_opens_what_it_encrypted() {
    let stage = configured();
    for (file, text) in [
        ("pass", "six words or more"),
        ("wrong", "six words or less"),
    ] {
        stage.write(file, format!("{text}\nnot this line\n").as_bytes());
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(stage.path(file), mode).unwrap();
    }
    let line = "backup app.db --to a.bak --to b.bak --to c.bak --encrypt-to passphrase:pass";
    stage.line(line).exits(0);
    stage
        .line("restore a.bak b.bak c.bak --to out --identity passphrase:wrong")
        .exits(4);
    stage
        .line("restore a.bak b.bak c.bak --to out --identity passphrase:pass")
        .exits(0);
    assert!(same(&stage, "app.db", "out/app.db"));
}

/// Goal: an editor's invisible bytes are in no passphrase, and a file with them opens what its words have encrypted.
#[test]
fn a_passphrase_with_a_byte_order_mark_encrypts_nothing_and_opens_what_its_words_encrypted() {
    let stage = configured();
    for (file, text) in [
        ("plain", "six words or more\n"),
        ("marked", "\u{feff}six words or more\r\n"),
    ] {
        stage.write(file, text.as_bytes());
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(stage.path(file), mode).unwrap();
    }
    let line = "backup app.db --to a.bak --encrypt-to passphrase:";
    let refused = stage.line(&format!("{line}marked")).exits(2);
    refused.says("byte order mark");
    assert!(!stage.path("a.bak").exists());
    stage.line(&format!("{line}plain")).exits(0);
    stage
        .line("restore a.bak --to out --identity passphrase:marked")
        .exits(0);
    assert!(same(&stage, "app.db", "out/app.db"));
}

/// Goal: whoever can write the configuration can name a recipient more, and is not trusted without a word.
#[test]
fn a_configuration_that_others_can_change_is_told_where_it_names_recipients() {
    let stage = configured();
    let file = stage.path("no-config/longshore/longshore.toml");
    let open = |mode: u32| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(0o666);
    // It says nothing of who can read.
    stage.line("config check").exits(0);
    stage.line("backup sales").exits(0);
    let to = recipient(&stage, "id");
    let own = stage.line("key new --signing own").exits(0);
    for more in [
        format!("recipients = [\"{to}\"]\n"),
        format!("signers = [\"{}\"]\n", own.out.trim()),
    ] {
        let plain = std::fs::read_to_string(&file).unwrap();
        configure(&stage, &format!("[encryption]\n{more}"));
        let told = stage.line("config check");
        assert_ne!(told.code, 0, "{told:?}");
        told.says("others can change it");
        let told = stage.line("backup sales").exits(0);
        told.says("others can change it").says("chmod go-w");
        open(0o644);
        let quiet = stage.line("backup sales").exits(0);
        assert!(!quiet.err.contains("others can change"), "{quiet:?}");
        open(0o666);
        std::fs::write(&file, plain).unwrap();
    }
}

/// Goal: a differential whose base is for another identity is not called damaged, and no rule gives it up.
#[test]
fn a_differential_whose_base_stays_closed_is_not_opened_and_not_bad() {
    let stage = Stage::new();
    stage.database("app.db", 2);
    std::fs::create_dir(stage.path("disk1")).unwrap();
    let (one, other) = (recipient(&stage, "one"), recipient(&stage, "other"));
    let configured = |to: &str| {
        let text = format!(
            "[database.sales]\nurl = \"sqlite:{}\"\n[target.t]\ndirectories = [\"{}\"]\n[defaults]\ntarget = \"t\"\n\
             [encryption]\nrecipients = [\"{to}\"]\n",
            stage.path("app.db").display(),
            stage.path("disk1").display()
        );
        stage.write("no-config/longshore/longshore.toml", text.as_bytes());
    };
    configured(&one);
    stage.line("backup sales").exits(0);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    configured(&other);
    stage.line("backup sales --differential").exits(0);
    let closed = stage.line("verify --database sales --identity other");
    closed.exits(4).says("50123");
    let all = stage.line("verify --database sales --all --identity other");
    all.exits(4).says("NOT OPENED");
    let told = answer(&stage.line("info sales --json").exits(0));
    let rows = told["databases"][0]["backups"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["restorable"] == true), "{told}");
    stage
        .line("verify --database sales --identity other --identity one")
        .exits(0);
}
