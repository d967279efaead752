//! Goal: a copy that archives does not lead a restore away from what its original wrote, and a fail-over needs no option.
//! Method: a copy is promoted and archives into its original's archive, with the original running on, or stopped before.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use longshore_kit::{Stop, installations};

use crate::common::{answer, text};
use crate::drill::drillable;
use crate::named::{Main, markers};
use crate::stage::{judged, succeed};

#[test]
fn a_copy_that_archives_is_told_and_not_followed_silently() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.mark(1);
    main.back_up();
    main.mark(2);
    main.archived(&main.stage.server);
    let check = |wanted: i32| {
        let output = main
            .command("check main --archive-wait 30")
            .output()
            .unwrap();
        let said = text(&output.stdout);
        assert_eq!(output.status.code() == Some(1), wanted == 1, "{said}");
        said
    };
    let said = check(0);
    assert!(
        said.contains("timeline   1, which a restore follows"),
        "{said}"
    );

    // The archive is named where the copy is made.
    let copy = main.stage.path("copy");
    let line = format!("restore --database main --to {}", copy.display());
    let output = main.command(&line).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("archives a new timeline"), "{said}");
    assert!(said.contains("--no-archiving"), "{said}");
    let copy = main.stage.adopt(&copy);
    copy.start();
    copy.wait_for("select pg_is_in_recovery()", "f");
    copy.psql("select pg_switch_wal()");
    main.archived(&copy);
    copy.stop(Stop::Fast);

    main.mark(3);
    main.archived(&main.stage.server);
    let said = check(1);
    assert!(said.contains("FAIL  timeline"), "{said}");
    let told = text(&main.command("info main").output().unwrap().stdout);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(" UTC, on timeline 2 last verified"), "{told}");
    assert!(said.contains("--target-timeline 1"), "{said}");
    for more in [&[][..], &["--dry-run"]] {
        let (data, mut command) = main.restore("lost", more);
        refused_for_two_timelines(&mut command, &data);
    }
    let way = ["--target-timeline", "1", "--no-archiving"];
    let (told, server) = main.restored("kept", &way);
    assert_eq!(told["timeline"], 1);
    server.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&server), "1 2 3");
}

#[test]
fn after_a_fail_over_the_new_timeline_is_followed_without_an_option() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.mark(1);
    main.back_up();
    let two = main.mark(2);
    // The new primary never got this one.
    main.mark(3);
    main.archived(&main.stage.server);
    main.stage.server.stop(Stop::Fast);
    // The checkpoint that opens a timeline tells its time in whole seconds, and a transaction of that same second is told.
    let second = || UNIX_EPOCH.elapsed().unwrap().as_secs();
    let stopped = second();
    while second() == stopped {
        std::thread::sleep(Duration::from_millis(20));
    }
    let way = ["--target-lsn", &two.lsn, "--target-action", "promote"];
    let (_, promoted) = main.restored("promoted", &way);
    promoted.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&promoted), "1 2");
    promoted.psql("insert into marker values (20)");
    main.archived(&promoted);
    promoted.stop(Stop::Fast);
    let (told, server) = main.restored("again", &["--no-archiving"]);
    assert_eq!(told["timeline"], 2);
    server.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&server), "1 2 20");
}

/// Goal: a recovery to an earlier moment leaves newer backups of a future that was given up. The one backup that leads to the new
/// timeline stays with its WAL, whatever the rules count, and nobody calls the others good enough.
#[test]
fn after_a_recovery_the_backup_that_leads_to_the_new_timeline_outlives_newer_ones() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.mark(1);
    let leading = main.back_up();
    let two = main.mark(2);
    let three = main.mark(3);
    main.archived(&main.stage.server);
    let given_up = [main.back_up(), main.back_up()];
    main.archived(&main.stage.server);
    main.stage.server.stop(Stop::Fast);
    let way = ["--target-lsn", &two.lsn, "--target-action", "promote"];
    let earlier = ["--target-timeline", "current", "--label", &leading];
    let (_, promoted) = main.restored("promoted", &[&way[..], &earlier].concat());
    promoted.wait_for("select pg_is_in_recovery()", "f");
    promoted.psql("insert into marker values (20)");
    main.archived(&promoted);
    promoted.stop(Stop::Fast);

    let info = answer(&main.command("info main --json").output().unwrap());
    let wal = &info["databases"][0]["wal"];
    let told = wal["gaps_unknown"].as_str().unwrap_or_default();
    assert!(told.contains("goes on with timeline 2"), "{wal}");
    assert!(wal["recoverable_from"].is_null(), "{wal}");
    let checked = main
        .command("check main --archive-wait 0")
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(1));
    let said = text(&checked.stdout);
    assert!(said.contains("goes on with timeline 2"), "{said}");
    let expired = succeed(&mut main.command("expire main --keep-full 1 --json"));
    let labels = main.labels();
    assert!(labels.contains(&leading), "{}", text(&expired.stdout));
    assert!(!labels.contains(&given_up[0]) && labels.contains(&given_up[1]));
    let (data, mut command) = main.restore("plain", &[]);
    assert_eq!(command.output().unwrap().status.code(), Some(4));
    assert!(!data.exists());
    // A moment of the hours that the recovery cut off is asked for, and the moment itself once more.
    let between = ["--label", &leading, "--no-archiving", "--target-time"];
    let (data, mut command) = main.restore("hours", &[&between[..], &[&three.time]].concat());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stdout));
    assert!(
        answer(&output)["error"]
            .to_string()
            .contains("--target-timeline 1")
    );
    assert!(!data.exists());
    let (_, mut command) = main.restore("once-more", &[&between[..], &[&two.time]].concat());
    judged(&mut command);
    let (told, server) = main.restored("again", &["--target-timeline", "2", "--no-archiving"]);
    assert_eq!(told["timeline"], 2);
    server.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&server), "1 2 20");
    server.stop(Stop::Fast);

    // Without the history a server would end on timeline 1, and say nothing.
    let archive = main.stage.path("log/main");
    let history = std::fs::read_dir(&archive).unwrap().flatten();
    let history = history.map(|entry| entry.path());
    let is_it = |path: &std::path::PathBuf| path.display().to_string().contains("00000002.history");
    let history = history.into_iter().find(is_it).unwrap();
    std::fs::rename(&history, main.stage.path("away")).unwrap();
    let (data, mut command) = main.restore("cut", &["--label", &leading]);
    let output = command.output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("00000002.history is missing"), "{said}");
    assert!(!data.exists());
    let (_, mut command) = main.restore("near", &["--label", &leading, "--target-immediate"]);
    judged(&mut command);
}

/// Goal: a backup of a copy does not make the copy's data what a plain restore takes, while its original goes on.
#[test]
fn a_backup_of_a_copy_leads_no_restore_away_from_the_original() {
    let Some(installation) = drillable().pop() else {
        return;
    };
    let main = Main::new(&installation);
    main.mark(1);
    let first = main.back_up();
    main.archived(&main.stage.server);
    let (_, copy) = main.restored("copy", &[]);
    copy.wait_for("select pg_is_in_recovery()", "f");
    copy.psql("insert into marker values (10)");
    main.archived(&copy);
    std::thread::sleep(Duration::from_millis(1000));
    let output = main
        .command("backup main")
        .env("LONGSHORE_DATABASE_MAIN_URL", copy.url())
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 5)), "{said}");
    main.archived(&copy);
    copy.stop(Stop::Fast);
    let (_, mut command) = main.restore("of-the-copy", &["--no-archiving", "--dry-run"]);
    let before = command.output().unwrap();
    assert_eq!(before.status.code(), Some(0), "{}", text(&before.stdout));

    main.mark(2);
    main.archived(&main.stage.server);
    let (data, mut command) = main.restore("lost", &["--no-archiving"]);
    refused_for_two_timelines(&mut command, &data);
    // The same of its media, of a drill, and told before anybody restores.
    let media = |disk: &str| main.stage.path(disk).join("main").join(&first);
    let family = |disk: &str| files_of(&media(disk)).remove(0);
    let (one, two) = (family("disk1"), family("disk2"));
    let mut command = main.command("restore --json");
    command.arg(one).arg(two).arg("--to").arg(&data);
    command
        .arg("--wal-archive")
        .arg(main.stage.path("log/main"));
    refused_for_two_timelines(&mut command, &data);
    let mut drill = main.command(&format!("drill main --label {first}"));
    drill.arg("--bin-dir").arg(&installation.bin_dir);
    let output = drill.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("two timelines that part at"), "{said}");
    let output = main
        .command("check main --archive-wait 0")
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("a restore would be refused"), "{said}");

    let (_, server) = main.restored("kept", &["--target-timeline", "1", "--no-archiving"]);
    server.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(&server), "1 2");
}

/// The restore to `data` is refused, since timeline 1 has newer transactions than the latest one.
fn refused_for_two_timelines(command: &mut Command, data: &Path) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stdout));
    let said = answer(&output)["error"].to_string();
    assert!(said.contains("two timelines that part at"), "{said}");
    assert!(said.contains("--target-timeline 1"), "{said}");
    assert!(!data.exists());
}

fn files_of(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Goal: a restore over a data directory removes no transaction that only its pg_wal has, unless that is asked for.
/// Method: the server crashes after a commit that is not archived; on the archived timeline, and on one that the archive does not
/// know.
#[test]
fn a_restore_over_a_crashed_cluster_keeps_what_only_its_pg_wal_has() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    let data = server.data_dir().display().to_string();
    main.mark(1);
    main.back_up();
    let one = main.mark(2);
    main.archived(server);
    // After a clean stop, the archive has all transactions.
    main.mark(3);
    server.stop(Stop::Fast);
    let over = |more: &str| {
        let line = format!("restore --database main --no-archiving --json --to {data} {more}");
        main.command(&line).output().unwrap()
    };
    let refused = |more: &str| {
        let output = over(more);
        assert_eq!(
            output.status.code(),
            Some(6),
            "{more}: {}",
            text(&output.stdout)
        );
        let said = answer(&output)["error"].to_string();
        assert!(said.contains("has transactions that the archive"), "{said}");
        assert!(said.contains("--discard-wal"), "{said}");
        said
    };
    let clean = over("--replace --dry-run");
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean.stdout));

    server.start();
    main.archives("wal-push-that-fails");
    main.mark(4);
    let segment = server.psql("select pg_walfile_name(pg_current_wal_lsn())");
    server.stop(Stop::Immediate);
    for more in ["--replace", "--delta", "--replace --dry-run"] {
        let said = refused(more);
        assert!(said.contains(&segment), "{said}");
    }
    let earlier = over(&format!("--replace --dry-run --target-lsn {}", one.lsn));
    assert_eq!(earlier.status.code(), Some(5), "{}", text(&earlier.stdout));
    let file = server.data_dir().join("pg_wal").join(&segment);
    succeed(&mut main.push(&file, &main.stage.path("log/main")));
    let whole = over("--replace");
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stdout));
    server.start();
    server.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(server), "1 2 3 4");

    // Its new timeline is nowhere else.
    main.mark(5);
    server.stop(Stop::Immediate);
    let said = refused("--delta");
    assert!(said.contains("00000002.history"), "{said}");
    // A copy opens its own timeline 2 at the same LSN, and archives it.
    let (_, copy) = main.restored("copy", &[]);
    copy.wait_for("select pg_is_in_recovery()", "f");
    copy.psql("insert into marker values (10), (11), (12)");
    main.archived(&copy);
    main.archived(&copy);
    copy.stop(Stop::Fast);
    let said = refused("--delta");
    assert!(
        said.contains("another server's WAL under these names"),
        "{said}"
    );
    let gone = over("--delta --discard-wal");
    assert_eq!(gone.status.code(), Some(0), "{}", text(&gone.stdout));
    server.start();
    server.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(markers(server), "1 2 3 4 10 11 12");
}
