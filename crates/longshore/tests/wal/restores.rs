//! Goal: of two restores of one backup, the first that archives owns the timeline; the other is refused with a reason,
//! however its WAL arrives. The two differ in nothing that PostgreSQL writes by itself.
//! Method: real servers, restored twice from one backup; their WAL is pushed and received, and archives, history files
//! and exit codes are compared.

use longshore_kit::{Installation, Server, Stop, representatives};
use longshore_pg::wal::restored_sets;

use super::stage::*;

/// A backup of a server that is stopped then.
fn backup(server: &Server, name: &str) -> String {
    let set = beside(server, name);
    let url = server.url();
    let args = [
        "--catalog",
        "none",
        "backup",
        &url,
        "--with-wal",
        "--to",
        &set,
    ];
    let output = run(server, &args);
    assert_eq!(code(&output), 0, "{}", text(&output));
    server.stop(Stop::Fast);
    set
}

/// A restored server, open; `archive` is where it archives to.
fn restored(
    server: &Server,
    (set, name): (&str, &str),
    more: &[&str],
    archive: Option<&str>,
) -> Server {
    let data = beside(server, name);
    let mut args = vec!["--catalog", "none", "restore", set, "--to", &data];
    args.extend(more);
    let output = run(server, &args);
    // An archive that has refused a server's WAL may not be that of the server that runs, which is said.
    let expected = if more.contains(&"--wal-archive") {
        5
    } else {
        0
    };
    assert_eq!(code(&output), expected, "{}", text(&output));
    let conf = std::path::Path::new(&data).join("postgresql.auto.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let archiving = match archive {
        None => "archive_mode = off".to_owned(),
        Some(archive) => format!(
            "archive_mode = on\narchive_command = '{SHELL} {BINARY} wal push %p --archive {archive} --async'"
        ),
    };
    std::fs::write(&conf, format!("{text}\n{archiving}\n")).unwrap();
    let restored = Server::adopt(server.installation(), std::path::Path::new(&data));
    restored.start();
    restored.wait_for("select pg_is_in_recovery()", "f");
    restored
}

fn history(server: &Server, timeline: u32) -> String {
    let name = format!("pg_wal/{timeline:08X}.history");
    std::fs::read_to_string(server.data_dir().join(name)).unwrap()
}

/// The server's own account of how it reached its timeline.
fn without_remarks(history: &str) -> Vec<&str> {
    let lines = history.lines();
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

fn push(server: &Server, name: &str, archive: &str, more: &[&str]) -> (i32, String) {
    let file = format!("pg_wal/{name}");
    let mut args = vec!["wal", "push", &file, "--archive", archive];
    args.extend(more);
    let output = run(server, &args);
    (code(&output), text(&output))
}

fn received(server: &Server, archive: &str) -> (i32, String) {
    let until = server.psql("select pg_switch_wal(); select pg_current_wal_flush_lsn()");
    let until = until.lines().last().unwrap();
    let output = receive(server, archive, &["--once", "--until", until]).output();
    let output = output.unwrap();
    (code(&output), text(&output))
}

fn every(installation: &Installation) {
    let major = installation.major;
    let server = server(installation, &[("wal_keep_size", "200MB")]);
    server.start();
    work(&server, 1);
    let set = backup(&server, "full.bak");
    let archive = new_archive(&server, "archive");

    let first = restored(&server, (&set, "first"), &[], Some(&archive));
    work(&first, 3);
    archived(&first, &archive);
    let second = restored(&server, (&set, "second"), &[], None);
    let (one, other) = (history(&first, 2), history(&second, 2));
    assert_ne!(one, other, "PostgreSQL {major}");
    assert_eq!(
        without_remarks(&one),
        without_remarks(&other),
        "PostgreSQL {major}: they differ anyway, and this shows nothing"
    );

    // Its WAL continues where the archive has none yet: its name and its LSN would fit.
    work(&second, 6);
    let stored_before = segments(&archive);
    let last = stored_before.last().unwrap();
    let own = std::fs::read_dir(second.data_dir().join("pg_wal")).unwrap();
    let mut own: Vec<_> = own
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.len() == 24 && name > last)
        .collect();
    own.sort();
    for more in [&[][..], &["--async"]] {
        for name in ["00000002.history", &own[0]] {
            let (code, said) = push(&second, name, &archive, more);
            assert_eq!(code, 7, "PostgreSQL {major}: {name}: {said}");
            assert!(said.contains("00000002.history"), "{said}");
            assert!(said.contains("longshore wal create"), "{said}");
        }
    }
    let (code, said) = received(&second, &archive);
    assert_eq!(code, 7, "{said}");
    assert_eq!(segments(&archive), stored_before);
    // An archive of its own gets the history with the first segment: nobody archived it at the promotion.
    let another = new_archive(&server, "another");
    let (code, said) = push(&second, &own[0], &another, &[]);
    assert_eq!(code, 0, "{said}");
    let stored = std::path::Path::new(&another).join("00000002.history.gz");
    assert!(stored.exists(), "PostgreSQL {major}");
    second.stop(Stop::Fast);

    // Recoveries from the archive know its timelines, and open on the same new one.
    let known = ["--wal-archive", &archive];
    let third = restored(&server, (&set, "third"), &known, None);
    third.stop(Stop::Fast);
    let fourth = restored(&server, (&set, "fourth"), &known, None);
    let (one, other) = (history(&third, 3), history(&fourth, 3));
    assert_ne!(one, other, "PostgreSQL {major}");
    assert_eq!(without_remarks(&one), without_remarks(&other));
    // They come from the backup, by the remark of the landing and of `wal get`.
    let listed = run(&server, &["list", &set, "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let uuid = listed["sets"][0]["set"].as_str().unwrap();
    let digits = u128::from_str_radix(&uuid.replace('-', ""), 16).unwrap();
    let timeline = longshore_pg::Timeline::new(3).unwrap();
    let sets = restored_sets(timeline, one.as_bytes());
    assert!(
        !sets.is_empty() && sets.iter().all(|set| *set == digits.to_be_bytes()),
        "{one}"
    );
    fourth.stop(Stop::Fast);

    // The one that has the timeline is restored from a backup of its own, and goes on in its archive: the remark that
    // its history of that timeline has got is about what comes after.
    let later = backup(&first, "later.bak");
    let fifth = restored(&first, (&later, "fifth"), &[], Some(&archive));
    work(&fifth, 2);
    archived(&fifth, &archive);
    assert_ne!(history(&fifth, 2), history(&first, 2));
    let (code, said) = push(&fifth, "00000002.history", &archive, &[]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = received(&fifth, &archive);
    assert_eq!(code, 0, "PostgreSQL {major}: {said}");
    let output = run(&fifth, &["wal", "list", "--verify", "--archive", &archive]);
    // All of it is sound, and the pushes of the other restore were refused.
    let said = text(&output);
    assert_eq!(super::stage::code(&output), 5, "{said}");
    assert!(said.contains("refused"), "{said}");
}

#[test]
fn two_restores_of_one_backup_are_distinguished_in_one_archive() {
    for installation in &representatives() {
        every(installation);
    }
}
