//! Goal: `restore --database NAME` to a moment takes the right backup of several and its WAL from the configured
//! archive, and refuses before anything is written.
//! Method: real servers; marker rows show what came back.

use std::path::Path;
use std::process::Command;

use longshore_kit::{Stop, installations, representatives};
use serde_json::Value;

use crate::common::{answer, longshore, read, text};
use crate::named::{Main, markers, reached};
use crate::stage::{Stage, end, judged, refused, succeed};

#[test]
fn the_right_backup_is_chosen_and_what_is_missing_is_named_before_anything_is_written() {
    for installation in installations().iter().rev().take(2) {
        let main = Main::new(installation);
        let zero = main.mark(0);
        let first = main.back_up();
        let two = main.mark(2);
        let second = main.back_up();
        let three = main.mark(3);
        let third = main.back_up();
        main.mark(4);
        main.archived(&main.stage.server);

        // The sets hold no WAL: the archive had all of it before they were valid.
        let listed = succeed(&mut main.command("list --files --database main"));
        assert!(!text(&listed.stdout).contains("pg_wal/0000"));

        let (told, server) = main.restored("two", &["--target-time", &two.time]);
        assert_eq!(told["label"], first.as_str());
        assert_eq!(
            told["archive"],
            main.stage.path("log/main").to_str().unwrap()
        );
        assert_eq!(reached(&server), "0 2");
        // A dry run names the WAL: from the backup's start to the archive's end.
        let (_, mut dry) = main.restore("dry", &["--target-time", &two.time, "--dry-run"]);
        let wal = answer(&succeed(&mut dry))["chosen"]["archive_wal"].clone();
        let name_of = |lsn: &str| {
            let sql = format!("select pg_walfile_name('{lsn}')");
            main.stage.server.psql(&sql)
        };
        let start = wal["start_lsn"].as_str().unwrap();
        assert_eq!(wal["first_segment"], name_of(start), "{wal}");
        assert!(main.segment(start).exists(), "{wal}");
        let end = told["archive_end_lsn"].as_str().unwrap();
        let long = format!("select '{end}'::pg_lsn - '{start}'::pg_lsn");
        assert_eq!(wal["bytes"].to_string(), main.stage.server.psql(&long));
        let last = wal["last_segment"].as_str().unwrap();
        let before = main
            .stage
            .server
            .psql(&format!("select '{end}'::pg_lsn - 1"));
        assert_eq!(last, name_of(&before), "{wal}");

        let (told, server) = main.restored("two by place", &["--target-lsn", &two.lsn]);
        assert_eq!(told["label"], first.as_str());
        assert_eq!(reached(&server), "0 2");
        let (told, server) = main.restored("three", &["--target-time", &three.time]);
        assert_eq!(
            (&told["label"], &told["passed_over"]),
            (&second.as_str().into(), &Value::Array(vec![]))
        );
        assert_eq!(reached(&server), "0 2 3");
        let at = ["--label", &third, "--target-immediate"];
        assert_eq!(reached(&main.restored("third", &at).1), "0 2 3");

        // One backup lost a stripe: the one before is used, and this one is named.
        let stripe = main
            .stage
            .path(&format!("disk2/main/{second}/family-2.bak"));
        std::fs::rename(&stripe, stripe.with_extension("away")).unwrap();
        let (told, server) = main.restored("older", &["--target-time", &three.time]);
        assert_eq!(told["label"], first.as_str());
        assert_eq!(told["passed_over"][0]["label"], second.as_str());
        assert!(
            told["passed_over"][0]["why"]
                .as_str()
                .unwrap()
                .contains("family 2 of 2 is missing")
        );
        assert_eq!(reached(&server), "0 2 3");
        std::fs::rename(stripe.with_extension("away"), &stripe).unwrap();

        let refused = |more: &[&str]| {
            let (data, mut command) = main.restore("refused", more);
            let output = command.output().unwrap();
            assert!(!output.status.success(), "{command:?}");
            assert!(!data.exists(), "something was written");
            answer(&output)["error"].to_string()
        };
        let said = refused(&["--target-time", &zero.time]);
        assert!(said.contains("3 were completed later"), "{said}");
        let said = refused(&["--label", &second, "--target-time", &two.time]);
        assert!(said.contains("one was completed later"), "{said}");
        let said = refused(&["--target-time", "2099-01-01 00:00:00Z"]);
        assert!(said.contains("is in the future"), "{said}");
        let said = refused(&["--target-time", "2020-01-01 00:00:00"]);
        assert!(said.contains("zone"), "{said}");
        let said = refused(&["--target-lsn", "7F/0"]);
        assert!(said.contains("ends at 0/"), "{said}");

        // A segment between the backup and the target is missing.
        let lost = main.segment(&two.lsn);
        std::fs::rename(&lost, lost.with_extension("away")).unwrap();
        let name = lost.file_stem().unwrap().to_str().unwrap();
        for target in [["--target-lsn", &two.lsn], ["--target-time", &three.time]] {
            let label = ["--label", &first];
            let said = refused(&[&label[..], &target[..]].concat());
            assert!(said.contains(name), "{target:?}: {said}");
        }
        // The second backup's WAL begins after it.
        let (told, server) = main.restored("behind", &["--target-time", &three.time]);
        assert_eq!(told["label"], second.as_str());
        assert_eq!(reached(&server), "0 2 3");
        std::fs::rename(lost.with_extension("away"), &lost).unwrap();

        // A missing archive is not treated as an empty one.
        std::fs::rename(main.stage.path("log"), main.stage.path("away")).unwrap();
        let said = refused(&["--target-time", &three.time]);
        assert!(said.contains("no archive"), "{said}");
        let said = refused(&[]);
        assert!(said.contains("no archive"), "{said}");
        std::fs::rename(main.stage.path("away"), main.stage.path("log")).unwrap();
    }
}

/// The most common disappointment: the mistake is in the server's current segment, which is not archived yet. The
/// server itself proves that such a recovery fails.
#[test]
fn a_target_time_after_the_last_archived_transaction_is_reported() {
    for installation in installations().iter().rev().take(2) {
        let main = Main::new(installation);
        main.mark(1);
        main.back_up();
        // Other records follow, but no transaction ends.
        main.stage.server.psql("checkpoint");
        main.archived(&main.stage.server);
        let none = main
            .stage
            .server
            .psql("select clock_timestamp() at time zone 'UTC'")
            + "+00";
        let warned = |name: &str, time: &str| {
            let (data, mut command) = main.restore(name, &["--target-time", time]);
            let told = answer(&end(&mut command, 5))["chosen"]["warning"].to_string();
            (data, told)
        };
        let (_, said) = warned("none", &none);
        assert!(
            said.contains("without a transaction after the backup"),
            "{said}"
        );

        let two = main.mark(2);
        main.archived(&main.stage.server);
        let (data, said) = warned("early", &two.time);
        assert!(said.contains("ends with a transaction of"), "{said}");
        assert!(said.contains("pg_switch_wal"), "{said}");
        let server = main.stage.adopt(&data);
        // It may open for readers before it finds out.
        let _either_way = server.try_start();
        server.wait_for_end();
        let log = server.log();
        assert!(
            log.contains("recovery ended before configured recovery target was reached"),
            "{log}"
        );

        // The commit that ends replay has arrived.
        main.mark(3);
        main.archived(&main.stage.server);
        let (told, server) = main.restored("reached", &["--target-time", &two.time]);
        assert!(told["warning"].is_null(), "{told}");
        assert_eq!(reached(&server), "1 2");
    }
}

/// The machine is lost, with its configuration and history; the backup's disks are mounted elsewhere.
#[test]
fn the_targets_directories_alone_bring_a_database_back() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.mark(1);
    let label = main.back_up();
    main.mark(2);
    main.archived(&main.stage.server);
    main.stage.server.stop(Stop::Immediate);
    let path = |name: &str| main.stage.path(name);
    for (old, new) in [
        ("disk1", "moved-a"),
        ("disk2", "moved-b"),
        ("log", "moved-c"),
    ] {
        std::fs::rename(path(old), path(new)).unwrap();
    }
    let config = format!(
        "[database.main]\nurl = \"postgres:///postgres\"\ntarget = \"t\"\n\
         [database.main.wal]\narchive = \"{}\"\n[target.t]\ndirectories = [\"{}\", \"{}\"]\n",
        path("moved-c/main").display(),
        path("moved-a").display(),
        path("moved-b").display(),
    );
    std::fs::write(path("longshore.toml"), config).unwrap();
    let (told, server) = main.restored("by name", &["--no-archiving"]);
    assert_eq!(told["label"], label.as_str());
    assert_eq!(reached(&server), "1 2");

    // Stripe by stripe, without any configuration.
    std::fs::remove_file(path("longshore.toml")).unwrap();
    let data = path("by stripe");
    let mut command = longshore(["restore", "--no-archiving", "--wal-archive"]);
    command.arg(path("moved-c/main")).arg("--to").arg(&data);
    for stripe in [
        "moved-b/main/LABEL/family-2.bak",
        "moved-a/main/LABEL/family-1.bak",
    ] {
        command.arg(path(&stripe.replace("LABEL", &label)));
    }
    succeed(&mut command);
    let server = main.stage.adopt(&data);
    server.start();
    assert_eq!(reached(&server), "1 2");
}

/// A differential backup serves like any other, as long as the full one below it is intact.
#[test]
fn a_chain_is_chosen_or_skipped_as_a_whole() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.mark(1);
    let old = main.back_up();
    let full = main.back_up();
    main.mark(2);
    let diff = main.back_up_as("--differential");
    let three = main.mark(3);
    // The first commit after a moment is what ends replay there.
    main.mark(4);
    main.archived(&main.stage.server);
    let to = ["--target-time", &three.time];
    let (told, server) = main.restored("chain", &to);
    assert_eq!(told["label"], diff.as_str());
    assert_eq!(reached(&server), "1 2 3");

    let stripe = main.stage.path(&format!("disk1/main/{full}/family-1.bak"));
    std::fs::remove_file(&stripe).unwrap();
    let (told, server) = main.restored("old", &to);
    assert_eq!(told["label"], old.as_str());
    let passed = told["passed_over"].as_array().unwrap();
    let why = |i: usize| passed[i]["why"].as_str().unwrap();
    assert_eq!(
        (&passed[0]["label"], &passed[1]["label"]),
        (&diff.as_str().into(), &full.as_str().into())
    );
    // The remains of the full backup do not tell which set it was.
    assert!(why(0).contains("needs backup set"), "{passed:?}");
    assert!(why(1).contains("family 1 of 2 is missing"), "{passed:?}");
    assert_eq!(reached(&server), "1 2 3");
}

/// Goal: after a promotion each timeline's backups serve their own timeline, and the default is the latest.
/// Method: a copy is recovered to the end of the WAL, which promotes it; both servers continue, and each archives.
#[test]
fn a_backup_of_another_timeline_is_not_taken() {
    for installation in installations().iter().rev().take(1) {
        let main = Main::new(installation);
        main.mark(1);
        let first = main.back_up();
        main.mark(2);
        main.archived(&main.stage.server);
        // Without recovery options: to the end of the WAL, on a new timeline.
        let (told, promoted) = main.restored("promoted", &[]);
        assert_eq!(told["label"], first.as_str());
        promoted.wait_for("select pg_is_in_recovery()", "f");
        assert_eq!(markers(&promoted), "1 2");
        promoted.psql("insert into marker values (20)");
        main.archived(&promoted);
        // The first server continues, as it should not.
        main.mark(3);
        let second = main.back_up();
        let four = main.mark(4);
        main.archived(&main.stage.server);

        let (data, mut command) = main.restore("latest", &["--target-lsn", &four.lsn]);
        // Recovery follows timeline 2, which the second backup is not on, and the first server has newer transactions.
        let output = command.output().unwrap();
        let said = answer(&output)["error"].to_string();
        assert!(said.contains("two timelines that part at"), "{said}");
        assert!(!data.exists());

        let (told, server) =
            main.restored("two", &["--target-timeline", "latest", "--no-archiving"]);
        assert_eq!(told["label"], first.as_str());
        let passed = &told["passed_over"][0];
        assert_eq!(passed["label"], second.as_str());
        assert!(
            passed["why"]
                .as_str()
                .unwrap()
                .contains("timeline 2 does not continue"),
            "{passed}"
        );
        server.wait_for("select pg_is_in_recovery()", "f");
        assert_eq!(markers(&server), "1 2 20");
        assert_eq!(server.psql("show archive_mode"), "off");
        assert!(!main.stage.path("log/main/00000003.history.zst").exists());
        server.stop(Stop::Fast);

        // The moment is on timeline 1 only, with a commit after it.
        main.mark(5);
        main.archived(&main.stage.server);
        let (_, mut command) = main.restore("astray", &["--target-time", &four.time]);
        let said = answer(&end(&mut command, 4))["error"].to_string();
        assert!(said.contains("--target-timeline 1"), "{said}");
        // A choice that does not lead there is a warning.
        let latest = ["--target-timeline", "latest", "--target-time", &four.time];
        let (_, mut command) = main.restore("led astray", &latest);
        let told = answer(&end(&mut command, 5))["chosen"].clone();
        let warning = told["warning"].to_string();
        assert_eq!(told["label"], first.as_str());
        assert!(warning.contains("--target-timeline 1"), "{warning}");
        let way = ["--target-timeline", "1", "--target-time", &four.time];
        let (told, server) = main.restored("there", &way);
        assert!(told["warning"].is_null(), "{told}");
        assert_eq!(reached(&server), "1 2 3 4");

        let way = ["--target-timeline", "1", "--target-lsn", &four.lsn];
        let (told, server) = main.restored("one", &way);
        assert_eq!(told["label"], second.as_str());
        assert_eq!(reached(&server), "1 2 3 4");
    }
}

#[test]
fn a_backup_is_valid_only_with_its_log_in_the_configured_archive() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.back_up();
    main.archives("wal list --nonsense");
    let said = refused(main.command("backup main").args(["--wal-wait", "1"]));
    assert!(said.contains("segment 0000000100000000"), "{said}");
    assert_eq!(main.labels().len(), 1);
    // Unless the backup holds its WAL.
    succeed(main.command("backup main").arg("--with-wal"));
    assert_eq!(main.labels().len(), 2);
    let (told, server) = main.restored("own", &["--target-immediate"]);
    assert!(told["label"].is_string());
    assert_eq!(reached(&server), "");
    let archive = main.stage.path("log/main");

    // The contents of another target do not decide about the WAL of this one's backups.
    main.archives("wal push %p --database main");
    succeed(&mut main.command("backup main --target other"));
    let listed = succeed(&mut main.command("list --files --database main --target other"));
    assert!(
        text(&listed.stdout).contains("pg_wal/0000"),
        "it needs the archive"
    );
    succeed(&mut main.command("backup main --target other"));
    main.archived(&main.stage.server);
    let before = read(&archive);
    let said = succeed(&mut main.command("expire main --target other --keep-full 1"));
    assert!(
        text(&said.stdout).contains("1 backup ("),
        "{}",
        text(&said.stdout)
    );
    let after = read(&archive);
    assert!(
        after == before,
        "log went: {:?}, then {:?}",
        before.keys(),
        after.keys()
    );
    let said = succeed(&mut main.command("expire main --keep-full 1"));
    assert!(
        text(&said.stdout).contains("WAL files"),
        "{}",
        text(&said.stdout)
    );
    assert!(read(&archive) != before);
}

/// Goal: a check does not report WAL that retention was told to remove, but reports any other missing WAL.
#[test]
fn wal_removed_by_retention_is_no_gap_and_any_other_missing_wal_is() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    for _ in 0..3 {
        main.back_up();
        main.fill_segments();
    }
    let last = main.mark(1);
    main.fill_segments();
    main.archived(server);
    let config = main.stage.path("longshore.toml");
    let text_of = std::fs::read_to_string(&config).unwrap();
    let text_of = text_of.replacen("target = ", "retention = \"r\"\ntarget = ", 1);
    let rule = "[retention.r]\nkeep_full = 3\nkeep_wal = 1\n";
    std::fs::write(&config, text_of + rule).unwrap();
    let removed = |rules: &str| -> usize {
        let line = format!("expire main --dry-run {rules}");
        let said = text(&succeed(&mut main.command(&line)).stdout);
        let count = said
            .split_once(" WAL files")
            .map_or("0", |(before, _)| before);
        count.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let (all, newest) = (
        removed("--keep-full 3"),
        removed("--keep-full 3 --keep-wal 1"),
    );
    assert!(all < newest, "{all} and {newest}");
    let said = text(&succeed(&mut main.command("expire main")).stdout);
    assert!(said.contains("WAL files"), "{said}");
    let checked = || {
        let output = main.command("check main --archive-wait 0").output();
        text(&output.unwrap().stdout)
    };
    let said = checked();
    assert!(said.contains("without a gap"), "{said}");
    std::fs::remove_file(main.segment(&last.lsn)).unwrap();
    let said = checked();
    assert!(
        said.contains("point-in-time recovery cannot cross this gap"),
        "{said}"
    );
}

/// Goal: the windows of time that can be recovered are what the WAL in the archive allows: each ends where a segment is
/// missing, and none is longer than what is known.
#[test]
fn windows_of_recoverable_time_end_at_gaps_and_at_the_last_backup() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    // From, to, and whether it goes on to the archive's end.
    let windows = || -> Vec<(String, String, bool)> {
        let output = succeed(&mut main.command("--json info main"));
        let info = answer(&output);
        let rows = info["databases"][0]["wal"]["windows"]
            .as_array()
            .unwrap()
            .clone();
        let text = |row: &Value, member: &str| row[member].as_str().unwrap().to_owned();
        for row in &rows {
            assert!(row["from_us"].as_i64() <= row["to_us"].as_i64(), "{row}");
        }
        let of = |row: &Value| (text(row, "from"), text(row, "to"), row["goes_on"] == true);
        rows.iter().map(of).collect()
    };
    let window = |from: &String, to: &String, goes_on| (from.clone(), to.clone(), goes_on);
    let first = main.back_up();
    main.fill_segments();
    let early = main.mark(1);
    main.fill_segments();
    let second = main.back_up();
    main.fill_segments();
    let lost = main.mark(2);
    main.fill_segments();
    main.archived(server);
    assert_eq!(windows(), [window(&first, &second, true)]);
    std::fs::remove_file(main.segment(&lost.lsn)).unwrap();
    assert_eq!(windows(), [window(&first, &second, false)]);
    let third = main.back_up();
    main.fill_segments();
    main.archived(server);
    let healed = [window(&first, &second, false), window(&third, &third, true)];
    assert_eq!(windows(), healed);
    std::fs::remove_file(main.segment(&early.lsn)).unwrap();
    let apart = [
        window(&first, &first, false),
        window(&second, &second, false),
        window(&third, &third, true),
    ];
    assert_eq!(windows(), apart);
}

/// Goal: a gap in the WAL is a failure until a newer full backup makes every later moment recoverable; from then on it
/// is no alarm, and a gap after that backup is one again.
#[test]
fn a_newer_full_backup_heals_a_gap_and_a_later_gap_is_an_alarm_again() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    let run = |line: &str| {
        let output = main.command(line).output().unwrap();
        (output.status.code(), text(&output.stdout))
    };
    let from = || {
        let output = succeed(&mut main.command("--json info main"));
        let info = longshore_kit::program::answer(&output);
        let wal = &info["databases"][0]["wal"];
        (
            wal["recoverable_from"].as_str().map(str::to_owned),
            wal["gaps"].as_array().unwrap().len(),
        )
    };
    let first = main.back_up();
    main.fill_segments();
    let lost = main.mark(1);
    main.fill_segments();
    main.archived(server);
    assert_eq!(from(), (Some(first), 0));
    std::fs::remove_file(main.segment(&lost.lsn)).unwrap();
    let check = "check main --archive-wait 0";
    let (code, said) = run(check);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("make a full backup now"), "{said}");
    let (quiet_code, quiet) = run(&format!("--quiet {check}"));
    assert_eq!(quiet_code, code, "{quiet}");
    assert!(quiet.contains("cannot cross this gap"), "{quiet}");
    assert!(!quiet.contains("  ok  "), "{quiet}");
    assert_eq!(from(), (None, 1));

    let second = main.back_up();
    main.fill_segments();
    let later = main.mark(2);
    main.fill_segments();
    main.archived(server);
    assert_eq!(from(), (Some(second.clone()), 1));
    let (code, said) = run(check);
    assert!(
        said.contains(&format!("can be recovered, from {second}")),
        "{said}"
    );
    assert!(said.contains("is missing, before these moments"), "{said}");
    assert!(!said.contains("FAIL"), "{code:?} {said}");
    let (_, quiet) = run(&format!("--quiet {check}"));
    assert!(!quiet.contains("gap"), "{quiet}");

    // After a push that was refused, nobody knows whether the server's later WAL is there.
    let name = server.psql(&format!("select pg_walfile_name('{}')", later.lsn));
    let mut other = std::fs::read(server.data_dir().join("pg_wal").join(&name)).unwrap();
    other[100_000] ^= 1;
    let altered = main.stage.path(&name);
    std::fs::write(&altered, other).unwrap();
    let archive = main.segment(&later.lsn);
    let archive = archive.parent().unwrap().parent().unwrap();
    end(&mut main.push(&altered, archive), 7);
    assert_eq!(from().0, None);
    let (code, said) = run(check);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains(&format!(
            "not every moment after the newest good backup, {second},"
        )),
        "{said}"
    );
    // The host's clock may be far behind: then the time at which its note was written counts. A note from before the
    // backup is no reason to doubt.
    let note = archive.join("refused");
    std::fs::write(&note, format!("{name} elsewhere 1\n")).unwrap();
    assert_eq!(from().0, None);
    let file = std::fs::File::options().write(true).open(&note).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(from().0, Some(second.clone()));
    std::fs::remove_file(&note).unwrap();
    assert_eq!(from().0, Some(second));

    std::fs::remove_file(main.segment(&later.lsn)).unwrap();
    let (code, said) = run(check);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot cross this gap"), "{said}");
    assert_eq!(from().0, None);
}

/// Goal: a backup whose WAL was kept only to its own end comes back to it, and any target before a gap is
/// reached: a server that reads ahead does not end at the gap.
#[test]
fn a_target_in_front_of_a_gap_is_reached() {
    if let Some(installation) = installations().pop() {
        let main = Main::new(&installation);
        let server = &main.stage.server;
        main.mark(1);
        main.back_up();
        let inside = main.mark(2);
        server.psql("select pg_switch_wal()");
        let behind = main.mark(3);
        server.psql("select pg_switch_wal()");
        main.mark(4);
        main.archived(server);

        let is_off = |data: &Path| {
            let conf = std::fs::read_to_string(data.join("postgresql.auto.conf")).unwrap();
            conf.contains("recovery_prefetch = 'off'")
        };
        let to_inside = ["--no-archiving", "--target-lsn", inside.lsn.as_str()];
        let (data, mut restore) = main.restore("no gap", &to_inside);
        let said = text(&succeed(&mut restore).stdout);
        assert!(!said.contains("recovery_prefetch"), "{said}");
        assert!(!is_off(&data));

        let reads_ahead = installation.major >= 15;
        let reach = |name: &str, more: &[&str], expected: &str| {
            let (data, mut restore) = main.restore(name, more);
            restore.args(["--no-archiving", "--target-action", "promote"]);
            let said = text(&judged(&mut restore).stdout);
            assert_eq!(said.contains("recovery_prefetch"), reads_ahead, "{said}");
            assert_eq!(is_off(&data), reads_ahead);
            let server = main.stage.adopt(&data);
            server.start();
            assert_eq!(reached(&server), expected, "{} {name}", installation.major);
        };
        std::fs::remove_file(main.segment(&behind.lsn)).unwrap();
        reach("inside", &["--target-lsn", &inside.lsn], "1 2");
        std::fs::remove_file(main.segment(&inside.lsn)).unwrap();
        reach("its own end", &["--target-immediate"], "1");
    }
}

/// Goal: if the newest backup cannot be read, the refusal says what to type instead, and that restores the cluster.
/// Method: a stripe of it is missing; or a byte within one is wrong, which shows only during the restore. A shell runs
/// the printed command, word for word.
#[test]
fn a_newest_backup_that_cannot_be_read_is_refused_with_the_command_for_the_one_before() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.mark(1);
    let sound = main.back_up();
    main.mark(2);
    let newest = main.back_up();
    main.mark(3);
    main.archived(&main.stage.server);
    let stripe = main
        .stage
        .path(&format!("disk2/main/{newest}/family-2.bak"));
    let whole = std::fs::read(&stripe).unwrap();
    for (name, damage) in [
        ("it's gone", None),
        ("a flipped bit", Some(whole.len() / 2)),
        ("a flipped bit in its header", Some(200)),
    ] {
        match damage {
            None => std::fs::remove_file(&stripe).unwrap(),
            Some(at) => {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x10;
                std::fs::write(&stripe, bytes).unwrap();
            }
        }
        let (data, mut restore) = main.restore(name, &["--label", "latest", "--no-archiving"]);
        let output = restore.output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stdout));
        let error = answer(&output)["error"].clone();
        let hint = error["hint"].as_str().unwrap();
        assert!(
            error.to_string().contains(&newest) || damage.is_some(),
            "{error}"
        );
        let (_, command) = hint.split_once(": longshore ").expect(hint);
        assert!(command.ends_with(&format!("--label {sound}")), "{hint}");
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("{} {command}", crate::common::BINARY));
        let told = answer(&succeed(&mut shell))["chosen"].clone();
        assert_eq!(told["label"], sound.as_str());
        let server = main.stage.adopt(&data);
        server.start();
        assert_eq!(
            reached(&server),
            "1 2 3",
            "to the end of the log all the same"
        );
    }
}

/// Goal: the role of docs/postgres.md is enough for a check, too, and without its rights the check says which are missing.
#[test]
fn a_check_by_a_role_with_few_rights_looks_at_the_log_or_says_what_it_lacks() {
    for installation in representatives() {
        let main = Main::new(&installation);
        let server = &main.stage.server;
        main.back_up();
        let functions = match installation.major {
            14 => "pg_start_backup(text, boolean, boolean), pg_stop_backup(boolean, boolean)",
            _ => "pg_backup_start(text, boolean), pg_backup_stop(boolean)",
        };
        server.psql(&format!(
            "create role keeper login replication; grant pg_read_all_settings to keeper;
             grant execute on function {functions} to keeper"
        ));
        let config = main.stage.path("longshore.toml");
        let as_keeper = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, as_keeper.replace("//postgres@", "//keeper@")).unwrap();
        // It also reports that nothing is ever removed.
        let checked = || {
            let output = main.command("check main --archive-wait 60").output();
            let output = output.unwrap();
            (output.status.code(), text(&output.stdout))
        };
        let (code, said) = checked();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("pg_create_restore_point(text)"), "{said}");
        let output = main
            .command("check main --archive-wait 0")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stdout));
        server.psql(
            "grant execute on function pg_create_restore_point(text), pg_switch_wal() to keeper",
        );
        let (code, said) = checked();
        assert_eq!(code, Some(5), "{said}");
        assert!(said.contains("arrived"), "{said}");
    }
}

/// Goal: two clusters that share a name, without an archive, are two databases for a recovery, too: the newest by the clock
/// may be the other one.
#[test]
fn of_two_clusters_under_one_name_a_recovery_takes_none_by_the_clock() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let (one, other) = (
        Stage::new(&installation, &[]),
        Stage::new(&installation, &[]),
    );
    let disk = one.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let config = format!("[target.t]\ndirectories = [\"{}\"]\n", disk.display());
    std::fs::write(one.path("longshore.toml"), &config).unwrap();
    let command = |line: &str| {
        let mut command = longshore(["--config"]);
        command.arg(one.path("longshore.toml"));
        command.args(line.split_whitespace());
        command
    };
    let back_up = |stage: &Stage| {
        let url = stage.server.url();
        let mut backup = command("--json backup --database main --target t --with-wal");
        let made = judged(backup.arg(url));
        answer(&made)["label"].as_str().unwrap().to_owned()
    };
    // The finding of `check` about the age of the backups of this server.
    let age = |stage: &Stage| {
        let database = format!(
            "[database.main]\nurl = \"{}\"\ntarget = \"t\"\n{config}",
            stage.server.url()
        );
        std::fs::write(one.path("check.toml"), database).unwrap();
        let mut check = longshore(["--config"]);
        check.arg(one.path("check.toml"));
        check.args(["check", "main", "--archive-wait", "0"]);
        let said = text(&check.output().unwrap().stdout);
        let found = said.lines().find(|line| line.contains("  age  "));
        found.unwrap_or(&said).to_owned()
    };
    let first = back_up(&one);
    let none = age(&other);
    assert!(none.contains("FAIL"), "{none}");
    other.server.psql("insert into marker values (7)");
    let second = back_up(&other);
    assert!(age(&one).contains(&first), "{}", age(&one));
    assert!(age(&other).contains(&second), "{}", age(&other));
    let mut restore = command("restore --database main --target t --target-immediate --to");
    let said = refused(restore.arg(one.path("out")));
    assert!(said.contains("it is unknown which one is meant"), "{said}");
    assert!(said.contains(&first), "{said}");
    assert!(!one.path("out").exists());
    let line = "restore --database main --target t --target-immediate --target-action promote \
                --no-archiving --to";
    let mut restore = command(line);
    judged(restore.arg(one.path("out")).args(["--label", &first]));
    let server = one.adopt(&one.path("out"));
    server.start();
    server.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&server), "");
}
