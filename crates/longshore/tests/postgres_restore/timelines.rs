//! Goal: a copy that archives does not lead a restore away from what its original wrote, and a fail-over needs no option.
//! Method: a copy is promoted and archives into its original's archive, with the original running on, or stopped before.

use std::time::{Duration, UNIX_EPOCH};

use longshore_kit::{Stop, installations};

use crate::common::{answer, text};
use crate::named::{Main, markers};

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
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stdout));
        let said = answer(&output)["error"].to_string();
        assert!(said.contains("two timelines that part at"), "{said}");
        assert!(said.contains("--target-timeline 1"), "{said}");
        assert!(!data.exists());
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
