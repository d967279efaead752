//! Goal: a check of a standby says good only of what it compared: that its data is its primary's, and that its primary's WAL
//! arrives in the archive.
//! Method: a real primary with an archive and a standby that streams, under `check` with the standby's `url`.
//! Not covered: standbys of standbys, majors but the newest.

use std::path::Path;

use longshore_kit::{Server, Stop, representatives};

use super::stage::*;

#[test]
fn a_check_of_a_standby_finds_a_primary_that_does_not_archive_and_a_replay_that_does_not_go_on() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let primary = server(
        &installation,
        &[("archive_mode", "on"), ("wal_keep_size", "200MB")],
    );
    let archive = new_archive(&primary, "archive");
    primary.append_conf(&format!(
        "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}'"
    ));
    primary.start();
    let data = beside(&primary, "standby");
    let mut copy = primary.command("pg_basebackup");
    let made = copy
        .args(["--checkpoint=fast", "--write-recovery-conf", "-D", &data])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made));
    let standby = Server::adopt(&installation, Path::new(&data));
    standby.start();
    let caught_up = || {
        let end = primary.psql("select pg_current_wal_lsn()");
        standby.wait_for(&format!("select pg_last_wal_replay_lsn() >= '{end}'"), "t");
    };
    let config = beside(&primary, "longshore.toml");
    let write = |wal: &str| {
        let url = standby.url();
        std::fs::write(&config, format!("[database.main]\nurl = \"{url}\"\n{wal}")).unwrap();
    };
    let check = |wait: &str| {
        let args = ["--config", &config, "--catalog", "none", "check", "main"];
        let output = run(&standby, &[&args[..], &["--archive-wait", wait]].concat());
        (code(&output), text(&output))
    };

    // Without an archive nothing can be compared.
    write("");
    work(&primary, 2);
    archived(&primary, &archive);
    caught_up();
    let (_, said) = check("0");
    assert!(
        said.contains("WARN  archive    a standby: whether its primary archives was not looked at"),
        "{said}"
    );
    assert!(
        said.contains("ok    standby    replays what is streamed to it"),
        "{said}"
    );

    write(&format!("[database.main.wal]\narchive = \"{archive}\"\n"));
    let (_, said) = check("30");
    assert!(
        said.contains("ok    archive    a standby: its primary archives"),
        "{said}"
    );

    // The primary forgets its WAL.
    primary.append_conf("archive_command = '/bin/true'");
    primary.psql("select pg_reload_conf()");
    work(&primary, 3);
    caught_up();
    let (code, said) = check("1");
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("FAIL  archive    this standby has WAL up to"),
        "{said}"
    );
    assert!(said.contains("select * from pg_stat_archiver"), "{said}");

    standby.psql("select pg_wal_replay_pause()");
    let (_, said) = check("0");
    assert!(
        said.contains("WARN  standby    replay is paused on this standby"),
        "{said}"
    );
    standby.psql("select pg_wal_replay_resume()");

    standby.append_conf("primary_conninfo = ''");
    standby.stop(Stop::Fast);
    let auto = standby.data_dir().join("postgresql.auto.conf");
    std::fs::write(&auto, "").unwrap();
    standby.start();
    let (code, said) = check("0");
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains(
            "FAIL  standby    nobody streams to this standby, and it has no restore_command"
        ),
        "{said}"
    );
    assert!(
        said.contains("WARN  archive    a standby: whether its primary archives was not looked at"),
        "{said}"
    );
}
