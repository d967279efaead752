//! Goal: options and configuration say for whom WAL is encrypted, and who reads it; what nobody could read or compare
//! afterwards is refused.
//! Method: real segments of one server; the test runs the commands as the archiver would.
//! Not covered: recoveries (`postgres_restore/encrypted.rs`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use longshore_kit::Server;

use super::commands::{stopped, wal_files};
use super::stage::*;

const NO_ANSWER: i32 = 200;

/// Where an archive keeps a segment that is encrypted.
pub(super) fn sealed(archive: &str, name: &str) -> PathBuf {
    stored(archive, name).with_extension("zst")
}

fn exits(output: &Output, expected: i32) -> String {
    assert_eq!(code(output), expected, "{}", text(output));
    text(output)
}

/// A new identity in the file of this name, and its recipient.
pub(super) fn identity(server: &Server, name: &str) -> (String, String) {
    let file = beside(server, name);
    let made = run(server, &["key", "new", &file]);
    exits(&made, 0);
    let recipient = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    (file, recipient)
}

#[test]
fn options_say_for_whom_wal_is_encrypted_and_who_reads_it() {
    let Some(server) = stopped() else { return };
    let archive = new_archive(&server, "archive");
    let names = wal_files(&server);
    let (id, to) = identity(&server, "id");
    let push = |file: &str, more: &[&str]| {
        let args = ["wal", "push", file, "--archive", &archive];
        run(&server, &[&args[..], more].concat())
    };
    let path = |name: &str| format!("pg_wal/{name}");
    let get = |name: &str, more: &[&str]| {
        let args = ["wal", "get", name, "pg_wal/R", "--archive", &archive];
        run(&server, &[&args[..], more].concat())
    };
    let list = |more: &[&str]| {
        let args = ["wal", "list", "--archive", &archive];
        run(&server, &[&args[..], more].concat())
    };
    exits(&push(&path(&names[0]), &["--encrypt-to", &to]), 0);
    assert!(sealed(&archive, &names[0]).exists());
    let refused = exits(&get(&names[0], &[]), NO_ANSWER);
    assert!(refused.contains("50123"), "{refused}");
    exits(
        &get(&names[0], &["--identity", &id, "--require-encryption"]),
        0,
    );
    let own = std::fs::read(server.data_dir().join(path(&names[0]))).unwrap();
    let got = server.data_dir().join("pg_wal/R");
    assert!(std::fs::read(&got).unwrap() == own);

    // A segment that is not encrypted is read, unless it must be.
    exits(&push(&path(&names[1]), &[]), 0);
    assert!(stored(&archive, &names[1]).exists());
    exits(&get(&names[1], &["--identity", &id]), 0);
    let strict = ["--identity", &id, "--require-encryption"];
    let refused = exits(&get(&names[1], &strict), NO_ANSWER);
    assert!(refused.contains("50124"), "{refused}");
    exits(&list(&["--verify", "--identity", &id]), 0);
    exits(&list(&["--verify"]), 4);
    exits(&list(&[&["--verify"][..], &strict].concat()), 4);

    // Away from its data directory the program has nothing to compare by, but an identity.
    let elsewhere = beside(&server, "pg_wal");
    std::fs::create_dir(&elsewhere).unwrap();
    let file = Path::new(&elsewhere).join(&names[2]);
    std::fs::copy(server.data_dir().join(path(&names[2])), &file).unwrap();
    server.user().own(Path::new(&elsewhere));
    let file = file.to_str().unwrap();
    let refused = exits(&push(file, &["--encrypt-to", &to]), 2);
    assert!(refused.contains("pg_control"), "{refused}");
    assert!(!sealed(&archive, &names[2]).exists());
    exits(&push(file, &["--encrypt-to", &to, "--identity", &id]), 0);
    // It has no tags: the server itself cannot tell whether it is its own.
    exits(&push(&path(&names[2]), &["--encrypt-to", &to]), 4);
    exits(&push(&path(&names[2]), &["--identity", &id]), 0);

    let secret = beside(&server, "passphrase");
    std::fs::write(&secret, "six random words are enough here\n").unwrap();
    set_mode(&secret, 0o600);
    server.user().own(Path::new(&secret));
    let passphrase = format!("passphrase:{secret}");
    let refused = exits(&push(&path(&names[3]), &["--encrypt-to", &passphrase]), 2);
    assert!(
        refused.contains("each segment would take a second"),
        "{refused}"
    );
    let refused = exits(&push(&path(&names[3]), &["--require-encryption"]), 2);
    assert!(refused.contains("nobody is named"), "{refused}");

    // A recipient that everything must have.
    let (_, escrow) = identity(&server, "escrow");
    let file = path(&names[3]);
    let required = |more: &[&str]| {
        let args = ["wal", "push", &file, "--archive", &archive];
        let mut command = longshore(&server, &[&args[..], more].concat());
        command.env("LONGSHORE_ENCRYPTION_REQUIRE_RECIPIENTS", &escrow);
        command.output().unwrap()
    };
    for (more, what) in [
        (&[][..], "for nobody"),
        (&["--encrypt-to", &to], "not for it"),
    ] {
        let refused = exits(&required(more), 2);
        assert!(refused.contains(what), "{refused}");
    }
    // A variable that was emptied requires nobody in no case.
    let push_for = ["wal", "push", &file, "--archive", &archive];
    let mut emptied = longshore(&server, &[&push_for[..], &["--encrypt-to", &to]].concat());
    emptied.env("LONGSHORE_ENCRYPTION_REQUIRE_RECIPIENTS", "");
    let refused = exits(&emptied.output().unwrap(), 2);
    assert!(refused.contains("empty recipient"), "{refused}");
    assert!(!sealed(&archive, &names[3]).exists());
    exits(
        &required(&["--encrypt-to", &to, "--encrypt-to", &escrow]),
        0,
    );
    assert!(sealed(&archive, &names[3]).exists());

    // A receiver keeps the segment that is being filled.
    let refused = exits(&run_receive(&server, &archive, &["--encrypt-to", &to]), 2);
    assert!(refused.contains("unencrypted in"), "{refused}");
    let refused = exits(
        &run_receive(&server, &archive, &["--require-encryption"]),
        2,
    );
    assert!(refused.contains("nobody is named"), "{refused}");
    exits(
        &run_receive(&server, &archive, &["--identity", "nothing"]),
        2,
    );
}

/// The file of a new signing key of this name, and its signer.
pub(super) fn signing(server: &Server, name: &str) -> (String, String) {
    let file = beside(server, name);
    let made = run(server, &["key", "new", "--signing", &file]);
    exits(&made, 0);
    let signer = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    (file, signer)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn options_say_who_signs_wal_and_whose_signatures_count() {
    let Some(server) = stopped() else { return };
    let archive = new_archive(&server, "archive");
    let names = wal_files(&server);
    let (id, to) = identity(&server, "id");
    let (key, signer) = signing(&server, "key");
    let (other, stranger) = signing(&server, "other");
    let path = |name: &str| format!("pg_wal/{name}");
    let push = |name: &str, more: &[&str]| {
        let file = path(name);
        let args = [
            "wal",
            "push",
            &file,
            "--archive",
            &archive,
            "--encrypt-to",
            &to,
        ];
        run(&server, &[&args[..], more].concat())
    };
    let get = |name: &str, more: &[&str]| {
        let args = [
            "wal",
            "get",
            name,
            "pg_wal/R",
            "--archive",
            &archive,
            "--identity",
            &id,
        ];
        run(&server, &[&args[..], more].concat())
    };
    let strict = ["--signer", &signer, "--require-signature"];
    exits(
        &push(&names[0], &[&["--sign", &key][..], &strict].concat()),
        0,
    );
    exits(
        &push(&names[0], &[&["--sign", &key][..], &strict].concat()),
        0,
    );
    exits(&get(&names[0], &strict), 0);
    exits(&get(&names[0], &[]), 0);
    let theirs = ["--signer", &stranger, "--require-signature"];
    let refused = exits(&get(&names[0], &theirs), NO_ANSWER);
    assert!(
        refused.contains("50125") && refused.contains(&signer),
        "{refused}"
    );
    // So says a reader that was written from the page alone.
    let reader = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/reader/longshore_wal_reader.py"
    );
    let by_reader = |signer: &str| {
        let mut python = Command::new("python3");
        let file = sealed(&archive, &names[0]);
        python.arg("-B").arg(reader).arg(file);
        let read = python
            .args(["--identity", &id, "--signer", signer])
            .output();
        read.unwrap()
    };
    let has_it = Command::new("python3")
        .args(["-c", "import cryptography"])
        .output();
    if has_it.is_ok_and(|has_it| has_it.status.success()) {
        let read = by_reader(&signer);
        let own = std::fs::read(server.data_dir().join(path(&names[0]))).unwrap();
        assert!(
            read.status.success() && read.stdout == own,
            "{}",
            text(&read)
        );
        let refused = by_reader(&stranger);
        assert!(!refused.status.success(), "{}", text(&refused));
    }
    // Another writer's, and nobody's.
    exits(&push(&names[1], &["--sign", &other]), 0);
    exits(&push(&names[2], &[]), 0);
    let got = server.data_dir().join("pg_wal/R");
    std::fs::remove_file(&got).unwrap();
    for name in &names[1..3] {
        let refused = exits(&get(name, &strict), NO_ANSWER);
        assert!(refused.contains("50125"), "{refused}");
        assert!(!got.exists());
        // A file that no recovery would be given is not there already.
        let again = push(name, &[&["--sign", &key][..], &strict].concat());
        let refused = exits(&again, 4);
        assert!(refused.contains("50125"), "{refused}");
    }
    let list = |more: &[&str]| {
        let args = [
            "wal",
            "list",
            "--verify",
            "--archive",
            &archive,
            "--identity",
            &id,
        ];
        run(&server, &[&args[..], more].concat())
    };
    exits(&list(&[]), 0);
    let refused = exits(&list(&strict), 4);
    assert!(
        refused.contains("not taken for a trusted signer's"),
        "{refused}"
    );

    // Nothing is written that would be refused.
    let refused = exits(&push(&names[3], &strict), 2);
    assert!(refused.contains("key new --signing"), "{refused}");
    let refused = exits(
        &push(&names[3], &[&["--sign", &other][..], &strict].concat()),
        2,
    );
    assert!(refused.contains("would be refused"), "{refused}");
    let plain = [
        "wal",
        "push",
        &path(&names[3]),
        "--archive",
        &archive,
        "--sign",
        &key,
    ];
    let refused = exits(&run(&server, &plain), 2);
    assert!(refused.contains("cannot be signed"), "{refused}");
    for more in [&["--sign", &key][..], &strict] {
        let refused = exits(&run_receive(&server, &archive, more), 2);
        let is_named =
            refused.contains("cannot be signed") || refused.contains("key new --signing");
        assert!(is_named, "{refused}");
    }
}

/// Goal: what goes on to copies at once is what the machine archived, and nothing that a stranger put into the archive.
#[test]
fn a_strangers_segment_does_not_go_on_to_copies_at_once() {
    let Some(server) = stopped() else { return };
    let names = wal_files(&server);
    let (_, to) = identity(&server, "id");
    let (key, signer) = signing(&server, "key");
    let (other, _) = signing(&server, "other");
    let config = beside(&server, "longshore.toml");
    let place = |name: &str| beside(&server, name);
    for name in ["near", "far"] {
        let directory = PathBuf::from(place(name));
        std::fs::create_dir(&directory).unwrap();
        server.user().own(&directory);
    }
    let text = format!(
        "[database.main]\nurl = \"{}\"\ntarget = \"near\"\ncopies = [\"far\"]\n\
         [database.main.wal]\ncopy_at_once = true\n\
         [target.near]\ndirectories = [\"{}\"]\n[target.far]\ndirectories = [\"{}\"]\n\
         [encryption]\nrecipients = [\"{to}\"]\nsign = \"{key}\"\nsigners = [\"{signer}\"]\n\
         require_signature = true\n",
        server.url(),
        place("near"),
        place("far")
    );
    std::fs::write(&config, text).unwrap();
    let own = |args: &[&str]| run(&server, &[args, &["--config", &config]].concat());
    let path = |name: &str| format!("pg_wal/{name}");
    for target in ["near", "far"] {
        let create = ["wal", "create", "--database", "main", "--target", target];
        exits(&own(&create), 0);
    }
    let file = path(&names[0]);
    let push = ["wal", "push", &file, "--database", "main"];
    exits(&own(&push), 0);
    let follow = || exits(&own(&[&push[..], &["--only-follow"]].concat()), 0);
    let (near, far) = (place("near/main/wal"), place("far/main/wal"));
    // The push has started a process that does the same.
    for _ in 0..200 {
        follow();
        if sealed(&far, &names[0]).exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(sealed(&far, &names[0]).exists());
    let theirs = path(&names[1]);
    let args = ["wal", "push", &theirs, "--archive", &near];
    let strange = ["--encrypt-to", &to, "--sign", &other];
    exits(&run(&server, &[&args[..], &strange].concat()), 0);
    assert!(sealed(&near, &names[1]).exists());
    for _ in 0..3 {
        follow();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!sealed(&far, &names[1]).exists());
}

fn run_receive(server: &Server, archive: &str, more: &[&str]) -> Output {
    let mut command = receive(server, archive, &["--once"]);
    command.args(more).output().unwrap()
}

fn set_mode(file: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_configuration_says_whether_wal_is_encrypted() {
    let Some(server) = stopped() else { return };
    let archive = new_archive(&server, "archive");
    let names = wal_files(&server);
    let (id, to) = identity(&server, "id");
    let config = beside(&server, "longshore.toml");
    let directory = beside(&server, "t");
    std::fs::create_dir(&directory).unwrap();
    // `rest` begins in the table of the target.
    let configure = |wal: &str, rest: &str| {
        let text = format!(
            "[database.main]\nurl = \"{}\"\ntarget = \"t\"\n[database.main.wal]\narchive = \"{archive}\"\n{wal}\n\
             [target.t]\ndirectories = [\"{directory}\"]\n{rest}\n",
            server.url()
        );
        std::fs::write(&config, text).unwrap();
    };
    let recipients = format!("recipients = [\"{to}\"]\n");
    let encryption = |more: &str| format!("[encryption]\n{recipients}{more}");
    let push_to = |name: &str, place: &[&str]| {
        let file = format!("pg_wal/{name}");
        let args = ["wal", "push", &file, "--config", &config];
        run(&server, &[&args[..], place].concat())
    };
    let push = |name: &str| push_to(name, &["--database", "main"]);
    // Identities of the administrator, whom the server's user is not, hinder no push.
    configure(
        "",
        &encryption("identities = [\"/root/not-readable-here\"]"),
    );
    exits(&push(&names[0]), 0);
    assert!(sealed(&archive, &names[0]).exists());
    // The archive of a configured database is that, however it is named.
    configure("", &recipients);
    exits(&push_to(&names[3], &["--archive", &archive]), 0);
    assert!(sealed(&archive, &names[3]).exists());
    configure("encrypt = false", &encryption(""));
    exits(&push(&names[1]), 0);
    assert!(stored(&archive, &names[1]).exists());
    let checked = || {
        let args = ["check", "main", "--config", &config];
        text(&run(&server, &args))
    };
    assert!(!checked().contains("are not encrypted"));
    configure("encrypt = false", &encryption("require = true"));
    let said = checked();
    let expected = "and perhaps others are not encrypted";
    assert!(said.contains(expected), "{said}");
    for required in [
        "require = true".to_owned(),
        format!("require_recipients = [\"{to}\"]"),
    ] {
        configure("encrypt = false", &encryption(&required));
        let refused = exits(&push(&names[2]), 2);
        assert!(refused.contains("encrypt = false"), "{refused}");
        let told = text(&run(&server, &["config", "check", "--config", &config]));
        assert!(told.contains("pushes fail"), "{told}");
    }
    let more = format!("require = true\nidentities = [\"{id}\"]");
    configure("", &encryption(&more));
    exits(&push(&names[2]), 0);
    let args = ["wal", "get", &names[2], "pg_wal/R", "--database", "main"];
    let got = run(&server, &[&args[..], &["--config", &config]].concat());
    exits(&got, 0);
}
