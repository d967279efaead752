//! Goal: what runs found out about a cluster's backups and its WAL is remembered: each segment is verified once, and the
//! data at risk is what was not archived.
//! Method: a real server that archives; answers are read, a segment is damaged, an archive cloned.
//! Not covered: databases without WAL (`cli/status.rs`).

use std::process::Command;

use longshore_kit::representatives;
use longshore_media::Container;
use serde_json::Value;

use crate::common::{answer, end, text};
use crate::named::Main;

fn verified(main: &Main, more: &str, code: i32) -> Value {
    let line = format!("verify --all --database main --json {more}");
    let told = answer(&end(&mut main.command(&line), code));
    assert_eq!(told["valid"], code == 0, "{told}");
    told["databases"][0].clone()
}

/// Verified and known segments.
fn segments(database: &Value) -> (u64, u64) {
    let number = |name: &str| database["wal"][name].as_u64().unwrap();
    (number("verified_count"), number("known_count"))
}

#[test]
fn verify_all_reads_each_segment_once() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    main.back_up();
    for n in 0..3 {
        main.mark(n);
        main.archived(server);
    }
    let first = verified(&main, "", 0);
    let (read, known) = segments(&first);
    assert!(read >= 4 && known == 0, "{first}");
    assert_eq!(
        (&first["verified_count"], &first["known_count"]),
        (&1.into(), &0.into())
    );
    let again = verified(&main, "", 0);
    assert_eq!(segments(&again), (0, read), "{again}");
    let later = main.mark(9);
    main.archived(server);
    main.back_up_as("--incremental");
    main.archived(server);
    let more = verified(&main, "", 0);
    let (new, known) = segments(&more);
    assert!(new >= 1 && known == read, "{more}");
    assert_eq!(
        (&more["verified_count"], &more["known_count"]),
        (&1.into(), &1.into())
    );
    let all = new + known;
    assert_eq!(segments(&verified(&main, "--again", 0)), (all, 0));
    // Nothing but what was not archived is at risk.
    let info = answer(&end(&mut main.command("info main --json"), 0));
    let told = &info["databases"][0];
    let until = told["recoverable_until_us"].as_i64().unwrap();
    assert!(
        until >= told["last_good_finish_us"].as_i64().unwrap(),
        "{told}"
    );
    let archived = told["wal"]["archived_until_us"].as_i64().unwrap();
    assert!(archived <= until && archived > until - 60_000_000, "{told}");
    assert!(told["at_risk_s"].as_i64().unwrap() < 600, "{told}");
    let metrics = text(&end(&mut main.command("info main --prometheus"), 0).stdout);
    assert!(
        metrics.contains("longshore_last_recoverable_timestamp_seconds{"),
        "{metrics}"
    );
    // A copy of the archive is another one: no segment of it was read.
    let (log, clone) = (main.stage.path("log"), main.stage.path("clone"));
    let copied = Command::new("cp").arg("-a").args([&log, &clone]).status();
    assert!(copied.unwrap().success());
    std::fs::rename(&log, main.stage.path("was")).unwrap();
    std::fs::rename(&clone, &log).unwrap();
    assert_eq!(segments(&verified(&main, "", 0)), (all, 0));
    // One that was replaced is read again, and none of those around it.
    let path = main.segment(&later.lsn);
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(segments(&verified(&main, "", 0)), (1, all - 1));
    assert_eq!(segments(&verified(&main, "", 0)), (0, all));
}

/// Goal: damage in the WAL stays known until the WAL is read again, whatever is said of backups meanwhile.
#[test]
fn damaged_wal_is_told_until_it_was_read_again() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.back_up();
    let marks: Vec<_> = (0..3)
        .map(|n| {
            let moment = main.mark(n);
            main.archived(&main.stage.server);
            moment
        })
        .collect();
    let (all, _) = segments(&verified(&main, "", 0));
    assert!(all >= 3);
    // In the midst of a range that was found good, and of which the last segment is as it was.
    let path = main.segment(&marks[1].lsn);
    let sound = std::fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let bad = verified(&main, "", 1);
    let name = path.file_name().unwrap().to_str().unwrap();
    let damaged = bad["wal"]["damaged_segments"][0].as_str().unwrap();
    assert!(damaged.contains(&name[..24]), "{bad}");
    let is_told = || {
        let checked = main.command("check main --archive-wait 0").output();
        let checked = text(&checked.unwrap().stdout);
        let info = answer(&end(&mut main.command("info main --json"), 0));
        let failed = &info["databases"][0]["results"]["last_failed"][0];
        assert_eq!(failed["task"], "verify", "{info}");
        let is_told = checked.contains("failed: verify, ");
        assert_eq!(failed["mended"], !is_told, "{info} {checked}");
        is_told
    };
    assert!(is_told());
    let is_named = || {
        let checked = main
            .command("check main --archive-wait 0")
            .output()
            .unwrap();
        let told = text(&checked.stdout);
        let mut wrong = told.lines().filter(|line| line.contains("FAIL"));
        let is_named = wrong.any(|line| line.contains("found damaged"));
        let info = answer(&end(&mut main.command("info main --json"), 0));
        let unsound = &info["databases"][0]["wal"]["unsound"];
        assert_eq!(
            unsound.as_array().unwrap().len(),
            usize::from(is_named),
            "{info}"
        );
        is_named
    };
    assert!(is_named());
    end(&mut main.command("verify --database main"), 0);
    assert!(is_told(), "the backup says nothing about the WAL");
    let again = verified(&main, "", 1);
    assert_eq!(again["wal"]["damaged_segments"][0], damaged, "{again}");
    // The archive is not there: its WAL was not read.
    let (log, away) = (main.stage.path("log/main"), main.stage.path("log/away"));
    std::fs::rename(&log, &away).unwrap();
    std::fs::create_dir(&log).unwrap();
    assert_eq!(verified(&main, "", 0)["wal"], Value::Null);
    assert!(is_told());
    std::fs::remove_dir(&log).unwrap();
    std::fs::rename(&away, &log).unwrap();
    std::fs::write(&path, sound).unwrap();
    let mended = verified(&main, "", 0);
    assert!(segments(&mended).0 >= 1, "{mended}");
    assert!(!is_told() && !is_named());
}

/// The file of a segment as a version with one more feature writes it.
fn of_newer_version(bytes: &[u8]) -> Vec<u8> {
    let container = Container::detect(bytes).unwrap();
    let at = container.preamble().len();
    let len = container.framed_len_at(&bytes[at..]).unwrap();
    let (kind, body) = container.parse(&bytes[at..at + len]).unwrap();
    let mut body = body.to_vec();
    body[7] |= 0x80;
    let mut newer = bytes.to_vec();
    container.put(kind, &[&body], &mut newer[at..at + len]);
    newer
}

/// Goal: nobody knows whether WAL of a newer version is good: it is neither valid nor damaged.
#[test]
fn wal_of_a_newer_version_is_not_called_damaged() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.back_up();
    let moment = main.mark(1);
    main.archived(&main.stage.server);
    let (all, _) = segments(&verified(&main, "", 0));
    let path = main.segment(&moment.lsn);
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, of_newer_version(&sound)).unwrap();
    for _ in 0..2 {
        let told = verified(&main, "", 4);
        let wal = &told["wal"];
        assert_eq!(
            wal["closed_segments"].as_array().unwrap().len(),
            1,
            "{told}"
        );
        assert_eq!(
            wal["damaged_segments"].as_array().unwrap().len(),
            0,
            "{told}"
        );
        assert_eq!(segments(&told), (0, all - 1), "{told}");
    }
    let info = answer(&end(&mut main.command("info main --json"), 0));
    let failed = &info["databases"][0]["results"]["last_failed"][0];
    assert_eq!(failed["mended"], false, "{info}");
    std::fs::write(&path, sound).unwrap();
    assert_eq!(segments(&verified(&main, "", 0)), (1, all - 1));
}

/// Goal: the files of a copy are as old as the copy, whatever is in them.
#[test]
fn a_copy_of_the_archive_does_not_say_when_its_wal_was_archived() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.back_up();
    main.mark(1);
    main.archived(&main.stage.server);
    end(&mut main.command("copy main --to other"), 0);
    let info = |more: &str| {
        let line = format!("info main --json {more}");
        answer(&end(&mut main.command(&line), 0))["databases"][0].clone()
    };
    let own = info("");
    assert_eq!(own["recoverable_until_us"], own["wal"]["archived_until_us"]);
    let told = text(&end(&mut main.command("info main"), 0).stdout);
    assert!(told.contains("what was not archived by"), "{told}");
    let copy = info("--target other");
    assert!(copy["wal"]["recoverable_from"].is_string(), "{copy}");
    assert_eq!(copy["wal"]["archived_until_us"], Value::Null, "{copy}");
    assert_eq!(copy["recoverable_until_us"], copy["last_good_finish_us"]);
}

#[test]
fn a_drill_of_a_cluster_is_remembered_with_its_time() {
    let installations = representatives().into_iter();
    let mut drillable = installations.filter(|i| i.bin_dir.join("pg_amcheck").exists());
    let Some(installation) = drillable.next() else {
        return;
    };
    let main = Main::new(&installation);
    main.back_up();
    main.archived(&main.stage.server);
    std::fs::create_dir(main.stage.path("work")).unwrap();
    let drill = |code: i32| {
        let mut drill = main.command("drill main");
        drill.arg("--bin-dir").arg(&installation.bin_dir);
        drill.arg("--work").arg(main.stage.path("work"));
        end(&mut drill, code)
    };
    let results = || {
        let info = answer(&end(&mut main.command("info main --json"), 0));
        info["databases"][0]["results"].clone()
    };
    drill(0);
    let told = results();
    assert!(
        told["last_drilled"]["elapsed_s"].as_f64().unwrap() > 0.0,
        "{told}"
    );
    assert_eq!(
        told["last_verified"],
        Value::Null,
        "a drill is no verification"
    );
    // The WAL that makes the backup consistent goes: a drill finds it bad, and that is remembered, too.
    std::fs::rename(main.stage.path("log/main"), main.stage.path("log/away")).unwrap();
    std::fs::create_dir(main.stage.path("log/main")).unwrap();
    let output = drill(1);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("NOT GOOD"), "{said}");
    let told = results();
    assert_eq!(told["last_drilled"], Value::Null, "{told}");
    assert_eq!(told["last_failed"][0]["task"], "drill", "{told}");
}
