//! Goal: a program that keeps a key opens what it encrypted, gets the key through a pipe alone, and is run only if nobody else
//! can change it; its failures name the next step, and no secret.
//! Method: programs of the shell stand for a key service and write down all that they get; the recipes of docs/recipes.md run as
//! they stand there, with doubles of their programs.
//! Not covered: the services, modules and chips themselves, and a program that takes longer than its minute (`answer.rs` of io).

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::repository::configured;
use crate::stage::{Ran, Stage};

const KEY: &str = "arn:aws:kms:eu-west-1:123:key/prod-1";

fn program(stage: &Stage, name: &str, script: &str) -> PathBuf {
    let path = stage.write(name, format!("#!/bin/sh\n{script}\n").as_bytes());
    mode(stage, name, 0o755);
    path
}

fn mode(stage: &Stage, name: &str, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(stage.path(name), mode).unwrap();
}

fn configure(stage: &Stage, more: &str) {
    let file = stage.path("no-config/longshore/longshore.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let own = text.split("[encryption]").next().unwrap();
    std::fs::write(&file, format!("{own}[encryption]\n{more}")).unwrap();
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

fn same(stage: &Stage, one: &str, two: &str) -> bool {
    std::fs::read(stage.path(one)).unwrap() == std::fs::read(stage.path(two)).unwrap()
}

/// A key service that turns letters around, and a configuration with it.
fn with_service(more: &str) -> Stage {
    let stage = configured();
    let at = stage.path("").display().to_string();
    let script = format!(
        "{{ tr '\\0' ' ' < /proc/$$/cmdline; tr '\\0' '\\n' < /proc/$$/environ; }} >> {at}/log
case $1 in
wrap) tee {at}/seen | {{ printf 'ct:'; rev; }} ;;
unwrap) sed s/^ct:// | rev ;;
esac"
    );
    let path = program(&stage, "service", &script);
    let path = path.display();
    configure(
        &stage,
        &format!(
            "wrap_command = [\"{path}\", \"wrap\", \"key={{key}}\", \"set={{set}}\"]\nunwrap_command = [\"{path}\", \"unwrap\"]\n{more}"
        ),
    );
    stage
}

#[test]
fn a_program_keeps_the_key_of_a_backup_and_sees_it_in_a_pipe_alone() {
    let stage = with_service(&format!("recipients = [\"command:{KEY}\"]\n"));
    stage.line("config check").exits(0);
    let ran = stage
        .line("--json backup app.db --to a.bak --to b.bak --verify")
        .exits(0);
    let set = json(&ran)["set"].as_str().unwrap().to_owned();
    let key = std::fs::read_to_string(stage.path("seen")).unwrap();
    assert_eq!(key.len(), 44, "{key}");
    let log = std::fs::read_to_string(stage.path("log")).unwrap();
    for told in [
        format!("wrap key={KEY} set={set}"),
        format!("LONGSHORE_KEY_ID={KEY}\n"),
        format!("LONGSHORE_SET={set}\n"),
    ] {
        assert!(log.contains(&told), "{told}: {log}");
    }
    assert!(!log.contains(&key) && !ran.out.contains(&key) && !ran.err.contains(&key));
    assert!(
        !log.contains("XDG_CONFIG_HOME"),
        "the environment is not handed on"
    );
    for media in ["a.bak", "b.bak"] {
        let bytes = std::fs::read(stage.path(media)).unwrap();
        let has = |part: &[u8]| bytes.windows(part.len()).any(|found| found == part);
        assert!(has(KEY.as_bytes()) && !has(key.as_bytes()), "{media}");
    }
    // Nothing but the reading of contents asks the program.
    std::fs::remove_file(stage.path("log")).unwrap();
    stage.line("list a.bak b.bak").exits(0).says("encrypted");
    stage.line("verify a.bak b.bak --stored").exits(0);
    assert!(!stage.path("log").exists());
    let closed = stage.line("restore a.bak b.bak --to out").exits(4);
    closed.says(&format!("the key {KEY} of a command"));
    assert!(!stage.path("log").exists(), "no identity names the program");
    let open = |to: &str, id: &str| {
        stage.line(&format!(
            "restore a.bak b.bak --to {to} --identity command:{id}"
        ))
    };
    open("out", "another").exits(4).says(KEY);
    assert!(
        !stage.path("log").exists(),
        "a slot of another key is no reason to ask"
    );
    open("out", KEY).exits(0);
    assert!(same(&stage, "app.db", "out/app.db"));
    let log = std::fs::read_to_string(stage.path("log")).unwrap();
    assert!(log.contains(&format!("LONGSHORE_SET={set}\n")), "{log}");
    assert_eq!(
        log.matches("LONGSHORE_SET=").count(),
        1,
        "asked once: {log}"
    );
    // The reader that was written from the page alone asks the same program.
    if stage.shell("python3 -c 'import cryptography'").code == 0 {
        let reader = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/reader/longshore_reader.py"
        );
        let unwrap = format!("'{KEY} ./service unwrap'");
        let line = format!("python3 {reader} restore --unwrap {unwrap} --to read a.bak b.bak");
        stage.shell(&line).exits(0);
        assert!(same(&stage, "app.db", "read/app.db"));
    }
    // Differential backups, the target's upkeep and several recipients go on as with any other.
    let id = stage.line("key new id").exits(0).out.trim().to_owned();
    let line = format!("backup app.db --to two.bak --encrypt-to command:{KEY} --encrypt-to {id}");
    stage.line(&line).exits(0);
    std::fs::remove_file(stage.path("log")).unwrap();
    let both = format!("restore two.bak --to both --identity command:{KEY} --identity id");
    stage.line(&both).exits(0);
    assert!(
        !stage.path("log").exists(),
        "what is at hand opens it first"
    );
}

#[test]
fn a_program_that_fails_is_named_with_what_it_said_and_nothing_is_left() {
    let stage = with_service(&format!(
        "recipients = [\"command:{KEY}\"]\nidentities = [\"command:{KEY}\"]\n"
    ));
    stage.line("backup app.db --to good.bak").exits(0);
    let key = std::fs::read_to_string(stage.path("seen")).unwrap();
    let cases = [
        (
            "cat > /dev/null; echo AccessDenied >&2; exit 3",
            "AccessDenied",
            "AccessDenied",
        ),
        ("exit 9", "exit status: 9", "exit status: 9"),
        (
            "cat",
            "has the key in it, not wrapped",
            "something else than a key",
        ),
        (
            "cat > /dev/null",
            "printed 0 bytes",
            "something else than a key",
        ),
        ("yes", "more than 4096 bytes", "more than 4096 bytes"),
        ("cat >&2; exit 1", "(a long word)", "exit status: 1"),
    ];
    for (script, wraps, unwraps) in cases {
        program(&stage, "service", script);
        let refused = stage.line("backup app.db --to new.bak");
        assert_ne!(refused.code, 0, "{script}");
        let said = format!("{}{}", refused.out, refused.err);
        assert!(
            said.contains(wraps) && said.contains("wrap_command"),
            "{script}: {said}"
        );
        assert!(!said.contains(&key[..20]), "{script}: {said}");
        assert!(!stage.path("new.bak").exists(), "{script}");
        let refused = stage.line("restore good.bak --to out");
        assert_ne!(refused.code, 0, "{script}");
        let said = format!("{}{}", refused.out, refused.err);
        assert!(said.contains(unwraps), "{script}: {said}");
        assert!(!stage.path("out/app.db").exists(), "{script}");
    }
    // Another key than the one that was wrapped: the set's commitment decides.
    program(
        &stage,
        "service",
        "cat > /dev/null; head -c 32 /dev/zero | base64",
    );
    stage
        .line("restore good.bak --to out")
        .exits(4)
        .says("not for the identity");
}

#[test]
fn a_program_that_others_can_change_is_not_run_and_the_configuration_is_told() {
    let stage = with_service(&format!("recipients = [\"command:{KEY}\"]\n"));
    // The file that names it counts as the program itself does.
    let file = "no-config/longshore/longshore.toml";
    mode(&stage, file, 0o666);
    stage
        .line("config check")
        .exits(1)
        .says("longshore.toml names are not run");
    let refused = stage.line("backup app.db --to x.bak").exits(2);
    refused
        .says("longshore.toml names are not run")
        .says("chmod go-w");
    assert!(!stage.path("x.bak").exists());
    mode(&stage, file, 0o644);
    mode(&stage, "service", 0o777);
    stage.line("config check").exits(1).says("is not run");
    stage
        .line("backup app.db --to a.bak")
        .exits(2)
        .says("is not run");
    mode(&stage, "service", 0o644);
    stage.line("config check").exits(1).says("chmod a+x");
    std::fs::remove_file(stage.path("service")).unwrap();
    stage.line("config check").exits(1).says("is not run");
    stage
        .line("backup app.db --to a.bak")
        .exits(2)
        .says("is not run");
    assert!(!stage.path("a.bak").exists() && !stage.path("log").exists());
    configure(&stage, "wrap_command = [\"service\", \"wrap\"]\n");
    stage.line("config check").exits(2).says("absolute path");
    configure(&stage, "");
    let line = format!("backup app.db --to a.bak --encrypt-to command:{KEY}");
    stage
        .line(&line)
        .exits(2)
        .says("[encryption] has no `wrap_command`");
    let line = format!("verify a.bak --identity command:{KEY}");
    stage
        .line(&line)
        .exits(2)
        .says("[encryption] has no `unwrap_command`");
    // The script's name is known once the key's is.
    program(&stage, "k1.sh", "exec cat");
    mode(&stage, "k1.sh", 0o666);
    let named = stage.path("{key}.sh").display().to_string();
    configure(
        &stage,
        &format!("wrap_command = [\"/bin/sh\", \"{named}\"]\n"),
    );
    stage
        .line("backup app.db --to a.bak --encrypt-to command:k1")
        .exits(2)
        .says("is not run");
    assert!(!stage.path("a.bak").exists());
    configure(&stage, "wrap_command = [\"/bin/cat\"]\n");
    stage
        .line("backup app.db --to a.bak --encrypt-to command:")
        .exits(2)
        .says("512");
}

/// The TOML below a heading of docs/recipes.md.
fn recipe(heading: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("### {heading}\n")).unwrap();
    let (_, rest) = rest.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Runs a recipe with programs of the stage in the place of those that it names.
fn cook(stage: &Stage, heading: &str, programs: &[(&str, &str)]) {
    let mut text = recipe(heading).replacen("[encryption]\n", "", 1);
    for (named, double) in programs {
        assert!(text.contains(named), "{heading}: {named}");
        text = text.replace(named, double);
    }
    configure(stage, &text);
    stage.line("config check").exits(0);
    stage.line("backup app.db --to a.bak --format").exits(0);
    stage.line("restore a.bak --to out --replace").exits(0);
    assert!(same(stage, "app.db", "out/app.db"), "{heading}");
}

#[test]
fn the_recipes_of_key_services_run_as_they_stand() {
    let stage = configured();
    // Each double takes the arguments of the recipe, and of no other command.
    let vault = "case \"$*\" in
'write -address=https://vault.example:8200 -field=ciphertext transit/encrypt/longshore plaintext=-')
  printf 'vault:v1:'; base64 -d | base64 -w0 | rev ;;
'write -address=https://vault.example:8200 -field=plaintext transit/decrypt/longshore ciphertext=-')
  sed 's/^vault:v1://' | rev | base64 -d | base64 ;;
*) exit 2 ;;
esac";
    let vault = program(&stage, "vault", vault);
    let vault = vault.display().to_string();
    cook(&stage, "Vault", &[("/usr/bin/vault", &vault)]);
    let aws = "id='--key-id arn:aws:kms:eu-west-1:123456789012:key/0a1b2c3d'
context=\"--encryption-context longshore-set=$LONGSHORE_SET\"
case \"$*\" in
\"kms encrypt $id $context --plaintext file:///dev/stdin --query CiphertextBlob --output text\")
  base64 -d | { printf \"%s \" $LONGSHORE_SET; base64 -w0 | rev; } | base64 -w0 ;;
\"kms decrypt $id $context --ciphertext-blob file:///dev/stdin --query Plaintext --output text\")
  base64 -d | { read set text; [ $set = $LONGSHORE_SET ] || exit 254; echo $text; } | rev | base64 -d | base64 ;;
*) exit 2 ;;
esac";
    let aws = program(&stage, "aws", aws);
    let aws = aws.display().to_string();
    cook(&stage, "AWS KMS", &[("/usr/local/bin/aws", &aws)]);
    // A module's key is one in a file here; openssl is itself.
    let openssl = |args: &[&str]| {
        let ran = Command::new("openssl")
            .args(args)
            .current_dir(stage.path(""))
            .output();
        assert!(ran.unwrap().status.success(), "{args:?}");
    };
    let size = "rsa_keygen_bits:3072";
    openssl(&[
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        size,
        "-out",
        "private.pem",
    ]);
    openssl(&[
        "pkey",
        "-in",
        "private.pem",
        "-pubout",
        "-out",
        "public.pem",
    ]);
    let (public, private) = (stage.path("public.pem"), stage.path("private.pem"));
    let (public, private) = (public.display().to_string(), private.display().to_string());
    let providers = "\"-provider\", \"pkcs11\", \"-provider\", \"default\", ";
    let key = "pkcs11:object={key};type=private?pin-source=file:/etc/longshore/pin";
    let real = [
        (providers, ""),
        (key, &*private),
        ("/etc/longshore/backup.pub", &*public),
    ];
    cook(&stage, "PKCS#11 and TPM", &real);
}

#[test]
fn a_certificate_in_a_file_is_a_recipient() {
    let stage = configured();
    let openssl = |args: &[&str]| {
        let ran = Command::new("openssl")
            .args(args)
            .current_dir(stage.path(""))
            .output();
        assert!(ran.unwrap().status.success(), "{args:?}");
    };
    let make = |name: &str| {
        let (key, cert) = (format!("{name}.key"), format!("{name}.cer"));
        let of = [
            "req", "-x509", "-newkey", "rsa:3072", "-nodes", "-subj", "/CN=b", "-days", "30",
        ];
        openssl(&[&of[..], &["-keyout", &key, "-out", &cert]].concat());
    };
    make("good");
    make("other");
    let old = "CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'Verysecret-1'
GO
CREATE CERTIFICATE old WITH SUBJECT = 's', START_DATE = '2020-01-01', EXPIRY_DATE = '2021-01-01'
GO
BACKUP CERTIFICATE old TO FILE = 'old.cer'";
    stage.write("old.sql", old.as_bytes());
    stage.line("sql -i old.sql").exits(0);
    openssl(&[
        "x509", "-in", "good.cer", "-outform", "DER", "-out", "good.der",
    ]);
    for (i, file) in ["good.cer", "good.der"].into_iter().enumerate() {
        stage
            .line(&format!("backup app.db --to {i}.bak --encrypt-to @{file}"))
            .exits(0);
        stage
            .line(&format!("restore {i}.bak --to closed"))
            .exits(4)
            .says("thumbprint");
        stage
            .line(&format!("restore {i}.bak --to out{i} --identity good.key"))
            .exits(0);
        assert!(same(&stage, "app.db", &format!("out{i}/app.db")), "{file}");
        stage
            .line(&format!("restore {i}.bak --to closed --identity other.key"))
            .exits(4);
    }
    stage.write("noise", &[0xff; 99]);
    for (file, why) in [
        ("old.cer", "has expired"),
        ("good.key", "age recipient"),
        ("noise", "not a text"),
    ] {
        let refused = stage.line(&format!("backup app.db --to x.bak --encrypt-to @{file}"));
        refused.exits(2).says(why);
    }
    let hybrid = stage.line("key new id").exits(0).out.trim().to_owned();
    let line = format!("backup app.db --to x.bak --encrypt-to @good.cer --encrypt-to {hybrid}");
    stage.line(&line).exits(2).says("weakest");
    mode(&stage, "good.cer", 0o666);
    stage
        .line("backup app.db --to x.bak --encrypt-to @good.cer")
        .exits(2)
        .says("others may write");
    assert!(!stage.path("x.bak").exists());
}

#[test]
fn a_program_with_a_key_leaves_no_memory_in_a_file() {
    let stage = configured();
    let at = stage.path("").display().to_string();
    let path = program(&stage, "service", &format!("ulimit -c >> {at}/cores; rev"));
    let path = path.display();
    configure(
        &stage,
        &format!("wrap_command = [\"{path}\"]\nunwrap_command = [\"{path}\"]\n"),
    );
    let line = format!(
        "ulimit -c 4096; longshore backup app.db --to a.bak --encrypt-to command:{KEY} && longshore restore a.bak --to out --identity command:{KEY}"
    );
    stage.shell(&line).exits(0);
    let cores = std::fs::read_to_string(stage.path("cores")).unwrap();
    let of_each: Vec<&str> = cores.lines().collect();
    assert_eq!(of_each, ["0", "0"]);
}
