//! Goal: `kill -9` at any moment of a restore leaves nothing that a server starts and that is not whole.
//! Method: kill restores at random moments, into nothing and over an old cluster, and let a real server try.

use std::time::Duration;

use longshore_kit::{Stop, installations};

use crate::common::{Random, from_env};
use crate::stage::{Stage, succeed};

#[test]
fn a_killed_restore_leaves_nothing_that_starts_half() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    stage.server.psql("insert into marker values (1)");
    let old = stage.back_up("old", &[]);
    stage
        .server
        .psql("delete from marker; insert into marker values (2)");
    let new = stage.back_up("new", &[]);
    let data = stage.path("data");
    let mut random = Random(from_env("LONGSHORE_SEED", 7));
    let begin = std::time::Instant::now();
    succeed(&mut stage.restore(&old, &data));
    let whole = begin.elapsed();
    let (mut started, mut refused) = (0, 0);
    for round in 0..from_env("LONGSHORE_ROUNDS", 12) {
        // Over an old cluster, or over what the killed restore before left.
        let mut child = stage.restore(&new, &data).arg("--replace").spawn().unwrap();
        let wait = whole.mul_f64((random.next() % 1200) as f64 / 1000.0);
        std::thread::sleep(wait.max(Duration::from_millis(1)));
        child.kill().unwrap();
        child.wait().unwrap();
        let server = stage.adopt(&data);
        match server.try_start() {
            Ok(()) => {
                started += 1;
                let content = server.psql("select count(*), max(t) from small");
                assert_eq!(content, "20000|row 9999", "round {round}");
                let marker = server.psql("select string_agg(i::text, ' ') from marker");
                assert!(marker == "1" || marker == "2", "round {round}: {marker}");
                succeed(
                    server
                        .command("pg_amcheck")
                        .args(["--install-missing", "--all"]),
                );
                server.stop(Stop::Fast);
            }
            Err(log) => {
                refused += 1;
                let stands = data.join("global/pg_control").exists();
                assert!(!stands, "round {round}: {log}");
            }
        }
        if round % 3 == 2 {
            succeed(stage.restore(&old, &data).arg("--replace"));
        }
    }
    println!("{started} servers started, {refused} did not");
    succeed(stage.restore(&new, &data).arg("--replace"));
    let server = stage.adopt(&data);
    server.start();
    assert_eq!(server.psql("select i from marker"), "2");
}
