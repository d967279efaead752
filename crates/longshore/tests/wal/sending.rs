//! Goal: a server that gives its WAL to nobody is told by every look, also by those that wait for nothing, and a slot that nobody
//! reads, too.
//! Method: a real server with an archive, whose settings and slots are changed under `check` and the status page.
//! Not covered: files that wait for long (`owed.rs`), majors but the newest.

use longshore_kit::representatives;

use super::owed_page::metrics;
use super::served::Server as Page;
use super::stage::*;

#[test]
fn a_server_that_archives_nothing_is_told_by_looks_that_wait_for_nothing() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let server = server(&installation, &[("archive_mode", "on")]);
    let archive = new_archive(&server, "archive");
    server.start();
    server.psql("create role keeper login replication; grant pg_read_all_settings to keeper");
    let config = beside(&server, "longshore.toml");
    let write = |url: &str| {
        let text = format!(
            "[database.main]\nurl = \"{url}\"\n[database.main.wal]\narchive = \"{archive}\"\n"
        );
        std::fs::write(&config, text).unwrap();
    };
    let check = || {
        let args = ["--config", &config, "--catalog", "none", "check", "main"];
        let output = run(&server, &[&args[..], &["--archive-wait", "0"]].concat());
        (code(&output), text(&output))
    };
    write(&server.url().replace("postgres@", "keeper@"));
    work(&server, 2);
    for url in [server.url().replace("postgres@", "keeper@"), server.url()] {
        write(&url);
        let (code, said) = check();
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("archive_command is empty"), "{said}");
        assert!(!said.contains("succeeds"), "{said}");
    }
    let args = ["--catalog", "none", "--config", &config];
    let serve = ["serve", "--http", "127.0.0.1:0", "--refresh", "1"];
    let page = Page::start_page(&mut longshore(&server, &[&args[..], &serve].concat()));
    let shows = |exit: i32| {
        let line = format!("longshore_check_exit_code{{database=\"main\"}} {exit}\n");
        wait_until("the page has the verdict", &server, || {
            metrics(page.port).contains(&line)
        });
    };
    shows(1);

    server.append_conf(&format!(
        "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}'"
    ));
    server.psql("select pg_reload_conf()");
    archived(&server, &archive);
    // No target and no retention: warnings.
    let (code, said) = check();
    assert_eq!(code, 5, "{said}");
    assert!(
        said.contains("archive_command succeeds; 0 files wait"),
        "{said}"
    );
    shows(5);

    // The server of a command that never ends says nothing of it.
    let held = beside(&server, "held");
    std::fs::write(&held, b"").unwrap();
    server.append_conf(&format!(
        "archive_command = 'while [ -e {held} ]; do sleep 0.1; done; exit 1'"
    ));
    server.psql("select pg_reload_conf()");
    work(&server, 1);
    let (_, said) = check();
    assert!(
        said.contains("archive_command succeeded last ") && !said.contains("succeeds"),
        "{said}"
    );

    std::fs::remove_file(&held).unwrap();
    server.stop(longshore_kit::Stop::Immediate);
    server.append_conf("archive_mode = off");
    server.start();
    let (code, said) = check();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("archive_mode is off"), "{said}");
    shows(1);
}

#[test]
fn the_slot_of_the_shipped_unit_is_the_configured_one_and_told_where_nobody_reads_it() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let server = server(&installation, &[("archive_mode", "on")]);
    let archive = new_archive(&server, "archive");
    server.append_conf(&format!(
        "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}'"
    ));
    server.start();
    work(&server, 1);
    archived(&server, &archive);
    let config = beside(&server, "longshore.toml");
    let (archive2, to) = (beside(&server, "received"), server.url());
    let write = |archive: &str, slot: &str| {
        let text = format!(
            "[database.main]\nurl = \"{to}\"\n[database.main.wal]\narchive = \"{archive}\"\n{slot}"
        );
        std::fs::write(&config, text).unwrap();
    };
    let program = |words: &[&str]| {
        let args = ["--config", &config, "--catalog", "none"];
        let output = run(&server, &[&args[..], words].concat());
        (code(&output), text(&output))
    };
    let check = || program(&["check", "main", "--archive-wait", "0"]);
    write(&archive, "");
    assert_eq!(check().0, 5, "{}", check().1);

    // As the unit runs it; a receiver that has what was asked for ends, as one whose unit is stopped.
    let unit = include_str!("../../../../contrib/systemd/longshore-wal-receive@.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words: Vec<&str> = line.unwrap().split(' ').skip(1).collect();
    let words: Vec<&str> = words
        .iter()
        .map(|word| match *word {
            "%i" => "main",
            word => word,
        })
        .collect();
    let (created, said) = program(&["wal", "create", "--archive", &archive2]);
    assert_eq!(created, 0, "{said}");
    let slots = || {
        server
            .psql("select string_agg(slot_name, ' ' order by slot_name) from pg_replication_slots")
    };
    for (slot, all) in [("slot = \"mine\"\n", "mine"), ("", "longshore mine")] {
        write(&archive2, slot);
        server.psql("insert into t (filler) values ('more')");
        let place = server.psql("select pg_current_wal_flush_lsn()");
        let (code, said) = program(&[&words[..], &["--once", "--until", &place]].concat());
        assert_eq!(code, 0, "{said}");
        assert_eq!(slots(), all);
    }
    // The server sees a moment later that a receiver has ended.
    server.wait_for(
        "select count(*) from pg_replication_slots where active",
        "0",
    );
    server.wait_for("select count(*) from pg_stat_replication", "0");
    for slot in ["", "slot = \"mine\"\n"] {
        write(&archive, slot);
        let (code, said) = check();
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains("longshore: no receiver is connected"),
            "{said}"
        );
    }
    server.psql("select pg_drop_replication_slot('longshore')");
    write(&archive, "");
    let (code, said) = check();
    assert_eq!(code, 5, "{said}");
}
