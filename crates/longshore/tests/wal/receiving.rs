//! Goal: the streamed WAL is what the server wrote, over kills of either side and over a promotion.
//! Method: the server also archives to another archive by archive_command; the two must agree.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use longshore_kit::{Installation, Server, Stop, installations, representatives};

use super::stage::*;
use crate::common::journal::{Entry, Units, field};

fn receiver(server: &Server, archive: &str) -> Child {
    let mut command = receive(server, archive, &["--status-interval=1"]);
    command
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(server.socket_dir().join("receiver.log")).unwrap());
    command.spawn().unwrap()
}

/// Waits until every commit is durable at the receiver, according to the server.
fn caught_up(server: &Server) {
    let place = server.psql("select pg_switch_wal(); select pg_current_wal_flush_lsn()");
    let place = place.lines().last().unwrap();
    let sql =
        format!("select count(*) from pg_stat_replication where flush_lsn >= '{place}'::pg_lsn");
    server.wait_for(&sql, "1");
}

#[test]
fn a_stream_survives_kills_of_both_sides_and_a_promotion() {
    for installation in installations() {
        let major = installation.major;
        let server = server(
            &installation,
            &[("archive_mode", "on"), ("wal_keep_size", "200MB")],
        );
        let (pushed, streamed) = (
            new_archive(&server, "pushed"),
            new_archive(&server, "streamed"),
        );
        server.append_conf(&format!(
            "archive_command = '{SHELL} {BINARY} wal push %p --archive {pushed}'"
        ));
        server.start();
        let mut child = receiver(&server, &streamed);
        work(&server, 3);
        // The receiver dies in the middle of a segment.
        child.kill().unwrap();
        child.wait().unwrap();
        work(&server, 3);
        child = receiver(&server, &streamed);
        caught_up(&server);
        // The server dies; the receiver tries again by itself.
        server.kill9();
        std::thread::sleep(Duration::from_millis(300));
        server.start();
        work(&server, 3);
        caught_up(&server);
        // A promotion: the same cluster goes on from its archive with the next timeline.
        server.stop(Stop::Fast);
        let settings =
            format!("restore_command = '{SHELL} {BINARY} wal get %f %p --archive {pushed}'");
        recover(&server, server.data_dir(), &settings, "recovery.signal");
        server.start();
        server.wait_for("select pg_is_in_recovery()", "f");
        work(&server, 3);
        caught_up(&server);
        let last = archived(&server, &pushed);
        caught_up(&server);
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        assert!(child.wait().unwrap().success(), "a stop is no failure");

        let both = segments(&streamed);
        let log = std::fs::read_to_string(server.socket_dir().join("receiver.log")).unwrap();
        assert!(both.contains(&last), "PostgreSQL {major}: {both:?}\n{log}");
        assert!(both.iter().any(|n| n.starts_with("00000002")), "{both:?}");
        assert!(
            std::path::Path::new(&streamed)
                .join("00000002.history.gz")
                .exists()
        );
        let mut compared = 0;
        for name in &both {
            if stored(&pushed, name).exists() {
                compared += 1;
                assert!(
                    unpacked(&streamed, name) == unpacked(&pushed, name),
                    "PostgreSQL {major}: {name} differs"
                );
            }
        }
        assert!(compared >= 10, "{compared} of {both:?}");
        for run in list(&server, &streamed)["runs"].as_array().unwrap() {
            assert!(run["segments"].as_u64().unwrap() > 0);
        }
        assert_eq!(
            list(&server, &streamed)["gap_count"],
            0,
            "{}",
            list(&server, &streamed)
        );
    }
}

/// Goal: an archive whose timeline 2 belongs to another server gets nothing of this server's timeline 2.
#[test]
fn a_history_of_another_branch_in_the_archive_ends_the_receiver() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let server = server(&installation, &[]);
    server.start();
    server.stop(Stop::Fast);
    recover(&server, server.data_dir(), "", "standby.signal");
    server.start();
    server.psql("select pg_promote()");
    server.wait_for("select pg_is_in_recovery()", "f");
    let streamed = new_archive(&server, "streamed");
    let history = "00000002.history";
    let other = beside(&server, "other");
    std::fs::create_dir(&other).unwrap();
    let file = format!("{other}/{history}");
    std::fs::write(&file, "1\t0/100000\tanother branch\n").unwrap();
    server.user().own(other.as_ref());
    let output = run(&server, &["wal", "push", &file, "--archive", &streamed]);
    assert_eq!(code(&output), 0, "{}", text(&output));

    let place = server.psql("select pg_current_wal_flush_lsn()");
    let received = || {
        let mut command = receive(&server, &streamed, &["--once", "--until", &place]);
        command.output().unwrap()
    };
    let output = received();
    assert_eq!(code(&output), 7, "{}", text(&output));
    assert!(text(&output).contains(history), "{}", text(&output));
    assert_eq!(segments(&streamed), [] as [&str; 0]);
    // With the server's own it goes on, and once more.
    let archived = std::path::Path::new(&streamed).join(format!("{history}.gz"));
    std::fs::remove_file(&archived).unwrap();
    for _ in 0..2 {
        let output = received();
        assert_eq!(code(&output), 0, "{}", text(&output));
    }
    let told = std::process::Command::new("gzip")
        .arg("-dc")
        .arg(&archived)
        .output()
        .unwrap();
    let own = std::fs::read(server.data_dir().join("pg_wal").join(history)).unwrap();
    assert_eq!(told.stdout, own);
}

/// Goal: a receiver that was away until the server dropped the slot's WAL reports it, and leaves no silent gap in the
/// archive.
#[test]
fn a_slot_whose_wal_is_gone_is_reported_and_not_skipped() {
    for installation in representatives() {
        let conf = [
            ("min_wal_size", "2MB"),
            ("max_wal_size", "2MB"),
            ("wal_keep_size", "0"),
            ("wal_recycle", "off"),
        ];
        let server = server(&installation, &conf);
        let streamed = new_archive(&server, "streamed");
        server.start();
        let received = || {
            let place = server.psql("select pg_current_wal_flush_lsn()");
            let mut command = receive(&server, &streamed, &["--once", "--until", &place]);
            command.output().unwrap()
        };
        // Where it begins; then some log behind that.
        for _ in 0..2 {
            let output = received();
            assert_eq!(code(&output), 0, "{}", text(&output));
            work(&server, 1);
        }
        let before = segments(&streamed);
        assert!(!before.is_empty());
        server.psql("alter system set max_slot_wal_keep_size = '1MB'; select pg_reload_conf()");
        server.wait_for("show max_slot_wal_keep_size", "1MB");
        work(&server, 6);
        server.psql("checkpoint; select pg_switch_wal(); checkpoint");
        let lost = "select wal_status from pg_replication_slots";
        server.wait_for(lost, "lost");
        let output = received();
        assert_eq!(code(&output), 3, "{}", text(&output));
        assert!(text(&output).contains("Drop the slot"), "{}", text(&output));
        assert_eq!(segments(&streamed), before);
        assert_eq!(list(&server, &streamed)["gap_count"], 0);
    }
}

/// Goal: a new archive begins with the WAL that its slot has kept, not with the server's last. Servers before 15 do not
/// tell a slot's place.
#[test]
fn a_new_archive_begins_where_its_slot_does() {
    let tells = |installation: &Installation| installation.major >= 15;
    for installation in representatives().into_iter().filter(tells) {
        let server = server(&installation, &[]);
        let streamed = new_archive(&server, "streamed");
        server.start();
        work(&server, 1);
        server.psql("select pg_create_physical_replication_slot('s', true)");
        let first = server.psql("select pg_walfile_name(restart_lsn) from pg_replication_slots");
        work(&server, 3);
        let place = server.psql("select pg_current_wal_flush_lsn()");
        let output = receive(&server, &streamed, &["--once", "--until", &place])
            .arg("--json")
            .output();
        let output = output.unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output));
        let told = longshore_kit::program::answer(&output);
        assert!(told["segments"].as_u64().unwrap() > 0, "{told}");
        assert_eq!(segments(&streamed)[0], first);
        assert_eq!(list(&server, &streamed)["gap_count"], 0);
    }
}

#[test]
fn commits_before_the_loss_of_the_server_are_in_the_partial_segment() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let server = server(&installation, &[]);
    let streamed = new_archive(&server, "streamed");
    server.start();
    work(&server, 1);
    server.stop(Stop::Fast);
    let data = copy(&server, "copy");
    server.start();
    let mut child = receiver(&server, &streamed);
    work(&server, 2);
    caught_up(&server);
    server.psql("insert into t (filler) values ('the last word')");
    let place = server.psql("select pg_current_wal_flush_lsn()");
    let sql =
        format!("select count(*) from pg_stat_replication where flush_lsn >= '{place}'::pg_lsn");
    server.wait_for(&sql, "1");
    server.kill9();
    child.kill().unwrap();
    child.wait().unwrap();
    let settings = format!(
        "restore_command = '{SHELL} {BINARY} wal get %f %p --archive {streamed} --partial'"
    );
    recover(&server, &data, &settings, "recovery.signal");
    let restored = Server::adopt(&installation, &data);
    restored.start();
    restored.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(
        restored.psql("select count(*) from t where filler = 'the last word'"),
        "1"
    );
}

/// Goal: a restore to the end brings the commits that a receiver made durable in the segment that it was filling.
#[test]
fn a_restore_goes_on_into_the_segment_that_a_receiver_was_filling() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let server = server(&installation, &[]);
    server.start();
    let config = beside(&server, "longshore.toml");
    let target = beside(&server, "target");
    std::fs::create_dir(&target).unwrap();
    server.user().own(target.as_ref());
    let text_of = format!(
        "[database.main]\nurl = {:?}\ntarget = \"t\"\n[target.t]\ndirectories = [{target:?}]\n",
        server.url()
    );
    std::fs::write(&config, text_of).unwrap();
    let main = ["--database", "main", "--config", &config];
    let succeeds = |args: &[&str]| {
        let output = run(&server, args);
        assert_eq!(code(&output), 0, "{}", text(&output));
        text(&output)
    };
    succeeds(&[&["wal", "create"][..], &main].concat());
    let archive = format!("{target}/main/wal");
    work(&server, 1);
    let mut child = receiver(&server, &archive);
    work(&server, 1);
    caught_up(&server);
    succeeds(&["backup", "main", "--with-wal", "--config", &config]);
    work(&server, 2);
    caught_up(&server);
    server.psql("insert into t (filler) values ('the last word')");
    let place = server.psql("select pg_current_wal_flush_lsn()");
    let sql =
        format!("select count(*) from pg_stat_replication where flush_lsn >= '{place}'::pg_lsn");
    server.wait_for(&sql, "1");
    server.kill9();
    child.kill().unwrap();
    child.wait().unwrap();
    // The directory has no commit that the receiver lacks.
    std::fs::remove_file(server.data_dir().join("postmaster.pid")).unwrap();
    let own = server.data_dir().display().to_string();
    let over = [
        "restore",
        "--replace",
        "--dry-run",
        "--no-archiving",
        "--to",
        &own,
    ];
    succeeds(&[&over[..], &main].concat());
    let labels = std::fs::read_dir(format!("{target}/main")).unwrap();
    let labels = labels.map(|label| label.unwrap().path().join("family-1.bak"));
    let stripe = labels.into_iter().find(|stripe| stripe.exists()).unwrap();
    let of_stripes = [stripe.to_str().unwrap(), "--wal-archive", &archive];
    for (name, from) in [("restored", &main[..]), ("of-stripes", &of_stripes)] {
        let data = beside(&server, name);
        let restore = ["restore", "--no-archiving", "--to", &data];
        let said = succeeds(&[&restore[..], from].concat());
        let is_told = said.contains("which a receiver was filling");
        assert_eq!(is_told, name == "restored", "{said}");
        let restored = Server::adopt(&installation, Path::new(&data));
        restored.start();
        restored.wait_for("select pg_is_in_recovery()", "f");
        let found = restored.psql("select count(*) from t where filler = 'the last word'");
        assert_eq!(found, "1", "{name}");
    }
}

/// The sizes of an archive's segments by their file names.
fn sizes(archive: &str) -> std::collections::BTreeMap<String, u64> {
    let mut sizes = std::collections::BTreeMap::new();
    for dir in std::fs::read_dir(archive).unwrap() {
        let dir = dir.unwrap();
        if dir.file_name().len() != 16 {
            continue;
        }
        for file in std::fs::read_dir(dir.path()).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            sizes.insert(name, file.metadata().unwrap().len());
        }
    }
    sizes
}

#[test]
fn a_receiver_uses_the_slot_the_form_the_target_and_the_interval_asked_for() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let server = server(&installation, &[]);
    server.start();
    work(&server, 1);
    let config = beside(&server, "longshore.toml");
    let mut text_of = format!(
        "[database.main]\nurl = {:?}\ntarget = \"one\"\n",
        server.url()
    );
    for name in ["one", "two"] {
        let dir = beside(&server, name);
        std::fs::create_dir(&dir).unwrap();
        server.user().own(dir.as_ref());
        text_of += &format!("[target.{name}]\ndirectories = [{dir:?}]\n");
    }
    std::fs::write(&config, text_of).unwrap();
    let main = ["--database", "main", "--config", &config];
    let at_two = [&main[..], &["--target", "two"]].concat();
    for place in [&main[..], &at_two] {
        let output = run(&server, &[&["wal", "create"], place].concat());
        assert_eq!(code(&output), 0, "{}", text(&output));
    }
    let slots = || {
        server
            .psql("select string_agg(slot_name, ' ' order by slot_name) from pg_replication_slots")
    };
    let received = |slot: &str, more: &[&str]| {
        // There is something to receive: the segment before was switched.
        server.psql("insert into t (filler) values ('more')");
        let place = server.psql("select pg_current_wal_flush_lsn()");
        let args = [
            "wal", "receive", "--once", "--until", &place, "--slot", slot,
        ];
        run(&server, &[&args[..], more].concat())
    };
    let plain = [&main[..], &["--algorithm", "ZSTD"]].concat();
    let small = [&at_two[..], &["--algorithm", "ZSTD", "--level", "19"]].concat();
    assert_ne!(
        code(&received("a", &plain)),
        0,
        "the slot is not made unasked"
    );
    assert_eq!(slots(), "");
    for (slot, options) in [("a", &plain), ("b", &small)] {
        let output = received(slot, &[&options[..], &["--create-slot"]].concat());
        assert_eq!(code(&output), 0, "{}", text(&output));
    }
    assert_eq!(slots(), "a b");
    work(&server, 3);
    for (slot, options) in [("a", &plain), ("b", &small)] {
        let output = received(slot, options);
        assert_eq!(code(&output), 0, "{}", text(&output));
    }
    let (one, two) = (
        sizes(&beside(&server, "one/main/wal")),
        sizes(&beside(&server, "two/main/wal")),
    );
    let both: Vec<_> = one.keys().filter(|name| two.contains_key(*name)).collect();
    assert!(
        both.len() >= 2 && both.iter().all(|name| name.ends_with(".zst")),
        "{both:?}"
    );
    let sum = |of: &std::collections::BTreeMap<String, u64>| -> u64 {
        both.iter().map(|name| of[*name]).sum()
    };
    assert!(sum(&two) < sum(&one), "{one:?} {two:?}");

    // One tells how far it is every second, the other once an hour.
    let follow = |slot: &str, options: &[&str], seconds: &str| {
        let log = beside(&server, &format!("{slot}.log"));
        let args = [
            "wal",
            "receive",
            "--slot",
            slot,
            "--status-interval",
            seconds,
        ];
        let mut command = longshore(&server, &[&args[..], options].concat());
        command
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap());
        (command.spawn().unwrap(), log)
    };
    let (url, archive) = (server.url(), beside(&server, "two/main/wal"));
    let named = [url.as_str(), "--archive", &archive];
    let (often, seldom) = (follow("a", &plain, "1"), follow("b", &named, "3600"));
    let reports = |log: &str| {
        let log = std::fs::read_to_string(log).unwrap();
        log.matches("durable up to").count()
    };
    wait_until("three reports", &server, || reports(&often.1) >= 3);
    assert_eq!(reports(&seldom.1), 0);
    for (mut child, _) in [often, seldom] {
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        assert!(child.wait().unwrap().success());
    }
}

/// Goal: entries of a unit's journal tell which WAL a backup has and how far a receiver is.
#[test]
fn entries_of_a_backup_and_of_a_receiver_have_their_lsns() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let server = server(&installation, &[]);
    server.start();
    work(&server, 1);
    let streamed = new_archive(&server, "streamed");
    let mut units = Units::new(server.socket_dir().join("journal"));
    units.user = server.user().ids();
    let (url, to) = (server.url(), beside(&server, "a.bak"));
    let backup = longshore(&server, &["--quiet", "backup", &url, "--to", &to]);
    let Some(told) = units.run(&backup, server.data_dir()) else {
        return;
    };
    assert_eq!((told.code, &*told.err), (0, ""), "{:#?}", told.entries);
    let bytes = |entry: &Entry, name: &str| -> u64 {
        let lsn = field(entry, name);
        let sql = format!("select '{lsn}'::pg_lsn - '0/0'::pg_lsn");
        server.psql(&sql).parse().unwrap()
    };
    let end = told.entries.last().unwrap();
    assert!(bytes(end, "LONGSHORE_FIRST_LSN") < bytes(end, "LONGSHORE_LAST_LSN"));
    assert_eq!(field(end, "LONGSHORE_TIMELINE"), "1");
    // Those who read or restore the backup are told of the same WAL.
    let restored = beside(&server, "restored");
    for line in [&["verify", &to][..], &["restore", &to, "--to", &restored]] {
        let quiet: Vec<_> = ["--quiet"].iter().chain(line).copied().collect();
        let told = units.run(&longshore(&server, &quiet), server.data_dir());
        let told = told.unwrap();
        assert_eq!(told.code, 0, "{line:?}: {:#?}", told.entries);
        let last = told.entries.last().unwrap();
        for name in ["FIRST_LSN", "LAST_LSN", "TIMELINE"].map(|n| format!("LONGSHORE_{n}")) {
            assert_eq!(field(last, &name), field(end, &name), "{line:?}");
        }
    }
    let again = beside(&server, "again");
    let said = longshore(&server, &["restore", &to, "--to", &again]).output();
    let said = said.unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let lsn = field(end, "LONGSHORE_LAST_LSN");
    let wal = format!(" to {lsn} on timeline 1, to {again}\n");
    assert!(said.contains("WAL ") && said.contains(&wal), "{said}");
    work(&server, 1);
    let place = server.psql("select pg_current_wal_flush_lsn()");
    let mut receiver = receive(&server, &streamed, &["--once", "--until", &place]);
    receiver.arg("--quiet");
    let told = units.run(&receiver, server.data_dir()).unwrap();
    assert_eq!((told.code, &*told.err), (0, ""), "{:#?}", told.entries);
    let is_run = |entry: &&Entry| field(entry, "PRIORITY") == "6";
    let runs: Vec<_> = told.entries.iter().filter(is_run).collect();
    let messages: Vec<_> = runs.iter().map(|e| field(e, "MESSAGE")).collect();
    let [begin, started, end] = messages[..] else {
        panic!("{messages:#?}");
    };
    let what = format!("wal receive of {streamed}");
    assert_eq!(begin, format!("{what} begins"));
    assert!(started.starts_with("receiving from "), "{started}");
    let head = format!("{what} finished: Received up to ");
    assert!(end.starts_with(&head), "{end}");
    assert!(
        runs.iter()
            .all(|e| field(e, "LONGSHORE_TASK") == "wal_receive")
    );
    let sql = format!("select '{place}'::pg_lsn - '0/0'::pg_lsn");
    let wanted: u64 = server.psql(&sql).parse().unwrap();
    assert!(bytes(runs[2], "LONGSHORE_LAST_LSN") >= wanted);
}
