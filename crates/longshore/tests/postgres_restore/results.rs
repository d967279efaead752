//! Goal: what runs found out about a cluster's backups and its WAL is remembered: each segment is verified once, and the
//! data at risk is what was committed after the archived WAL ends.
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
    let committed = told["wal"]["committed_until_us"].as_i64().unwrap();
    assert_eq!(committed, until, "{told}");
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

/// Goal: data counts as safe up to the last transaction in the WAL, however late its file came; the files of a copy are as
/// old as the copy, whatever is in them.
#[test]
fn the_end_of_the_archived_wal_is_told_by_the_wal_and_not_by_its_files() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.back_up();
    let clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    let before: i64 = main.stage.server.psql(clock).parse().unwrap();
    main.mark(1);
    main.archived(&main.stage.server);
    end(&mut main.command("copy main --to other"), 0);
    let info = |more: &str| {
        let line = format!("info main --json {more}");
        answer(&end(&mut main.command(&line), 0))["databases"][0].clone()
    };
    let own = info("");
    let until = |told: &Value| told["recoverable_until_us"].as_i64().unwrap();
    // The server goes on by itself: whoever vacuums may commit later.
    let written = own["wal"]["archived_until_us"].as_i64().unwrap();
    assert!((before..=written).contains(&until(&own)), "{before} {own}");
    // A file that came late holds nothing new.
    let newest = main
        .stage
        .server
        .psql("select last_archived_wal from pg_stat_archiver");
    let path = main.stage.path("log/main").join(&newest[..16]);
    let path = path.join(format!("{newest}.zst"));
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let late = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    file.set_modified(late).unwrap();
    let later = info("");
    assert_eq!(until(&later), until(&own), "{later}");
    assert!(
        later["wal"]["archived_until_us"].as_i64().unwrap() > written,
        "{later}"
    );
    let told = text(&end(&mut main.command("info main"), 0).stdout);
    assert!(told.contains("what was committed after"), "{told}");
    let copy = info("--target other");
    assert!(copy["wal"]["recoverable_from"].is_string(), "{copy}");
    assert_eq!(copy["wal"]["archived_until_us"], Value::Null, "{copy}");
    assert_eq!(
        copy["recoverable_until_us"],
        copy["wal"]["committed_until_us"]
    );
}

/// Goal: a segment that is there by its name alone ends the stretch that can be recovered, is counted for monitors, and is
/// named with the command that brings a whole one back.
#[test]
fn segments_that_no_recovery_crosses_end_what_can_be_recovered() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let config = main.stage.path("longshore.toml");
    let text_of = std::fs::read_to_string(&config).unwrap();
    let with_copies = text_of.replace("target = \"t\"", "target = \"t\"\ncopies = [\"other\"]");
    std::fs::write(&config, with_copies).unwrap();
    main.back_up();
    let moments: Vec<_> = (0..3)
        .map(|n| {
            let moment = main.mark(n);
            main.archived(&main.stage.server);
            moment
        })
        .collect();
    end(&mut main.command("copy main"), 0);
    let path = main.segment(&moments[1].lsn);
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let whole = std::fs::read(&path).unwrap();
    let info = || {
        answer(&end(&mut main.command("info main --json --target t"), 0))["databases"][0].clone()
    };
    let sound = info();
    assert!(sound["wal"]["windows"][0]["goes_on"].as_bool().unwrap());
    assert_eq!(sound["wal"]["unsound_count"], 0, "{sound}");
    let told = || {
        let checked = main
            .command("check main --archive-wait 0")
            .output()
            .unwrap();
        text(&checked.stdout)
    };
    let wrong = |what: &str| {
        let told = told();
        let mut lines = told.lines().filter(|line| line.contains("FAIL"));
        let line = lines.find(|line| line.contains(what));
        line.unwrap_or_else(|| panic!("{what}: {told}")).to_owned()
    };
    let ended = |count: u64| {
        let told = info();
        let wal = &told["wal"];
        assert_eq!(wal["windows"][0]["goes_on"], false, "{told}");
        assert_eq!(wal["gaps"].as_array().unwrap().len(), 0, "{told}");
        assert_eq!(wal["recoverable_from"], Value::Null, "{told}");
        assert_eq!(wal["unsound_count"], count, "{told}");
        let metrics = text(&end(&mut main.command("metrics main"), 0).stdout);
        let line =
            format!("longshore_wal_segments_damaged{{database=\"main\",target=\"t\"}} {count}\n");
        assert!(metrics.contains(&line), "{metrics}");
    };
    std::fs::write(&path, b"").unwrap();
    ended(1);
    let line = wrong("is empty");
    let from = main.stage.path("disk3/main/wal").join(&name[..16]);
    let from = from.join(path.file_name().unwrap());
    let command = format!(
        "cp -p --remove-destination {} {}",
        from.display(),
        path.display()
    );
    assert!(line.contains(&command), "{line}");
    let listed = main
        .command("wal list --database main --json")
        .output()
        .unwrap();
    let listed = answer(&listed);
    assert_eq!(listed["damaged_segments"][0], *name, "{listed}");
    assert!(listed["gap_count"].as_u64().unwrap() >= 1, "{listed}");
    let mended = Command::new("sh").arg("-c").arg(&command).status();
    assert!(mended.unwrap().success());
    assert!(!told().contains("no recovery crosses it"));
    assert_eq!(info()["wal"]["unsound_count"], 0);
    // Damage inside of the file: a verification finds it, and names the one segment, not those that it read along with it.
    let mut bytes = whole;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    verified(&main, "--target t", 1);
    ended(1);
    let line = wrong("found damaged");
    assert!(line.contains(&format!("{name}, found damaged")), "{line}");
    assert!(line.contains("Target other has it whole: `cp "), "{line}");
}

/// Goal: a moment can be given back as it was printed.
#[test]
fn the_earliest_moment_that_is_printed_is_one_that_can_be_restored() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.back_up();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    main.mark(1);
    main.archived(&main.stage.server);
    let told = text(&end(&mut main.command("info main"), 0).stdout);
    let line = told
        .lines()
        .find(|line| line.contains("every moment since"));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    let moment = line.split("since ").nth(1).unwrap();
    let moment = moment.split(" can be").next().unwrap();
    assert!(moment.ends_with(" UTC"), "{line}");
    let (_, mut restore) = main.restore("copy", &["--target-time", moment, "--dry-run"]);
    end(&mut restore, 0);
}

/// Goal: a backup that nobody archives the WAL for is refused before it waits; `check` sees an archive_command that archives
/// nothing without a round trip, and has nothing against one that archives elsewhere where no archive is configured.
#[test]
fn archiving_that_leads_nowhere_is_told_at_once() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    main.back_up();
    let set = |command: &str| {
        server.psql(&format!(
            "alter system set archive_command = '{command}'; select pg_reload_conf()"
        ));
        server.psql("select pg_sleep(0.3)");
    };
    set("");
    let before = main.labels();
    let refused = text(&end(&mut main.command("backup main"), 3).stderr);
    assert!(refused.contains("archive_command is empty"), "{refused}");
    assert!(refused.contains("--with-wal"), "{refused}");
    assert_eq!(main.labels(), before, "nothing was begun");
    set("/bin/true");
    main.fill_segments();
    main.archived(server);
    let checked = || {
        let output = main
            .command("check main --archive-wait 0")
            .output()
            .unwrap();
        text(&output.stdout)
    };
    let told = checked();
    assert!(
        told.contains("FAIL  archiver   archive_command said that it archived"),
        "{told}"
    );
    // No archive is configured: the server's own archiving is its own matter.
    let config = main.stage.path("longshore.toml");
    let whole = std::fs::read_to_string(&config).unwrap();
    let (before, rest) = whole.split_once("[database.main.wal]").unwrap();
    let (_, targets) = rest.split_once("[target.t]").unwrap();
    std::fs::write(&config, format!("{before}[target.t]{targets}")).unwrap();
    let told = checked();
    assert!(
        told.contains("ok    archive    archive_command archives elsewhere"),
        "{told}"
    );
    assert!(!told.contains("FAIL"), "{told}");
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
