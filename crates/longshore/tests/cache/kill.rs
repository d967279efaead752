//! The server is killed at any moment, and starts again.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Random, from_env};
use crate::{Stage, have};

/// Goal: kill -9 under load leaves a warm cache without a stale byte.
/// Method: fio writes and reads at random through four connections; the server is killed at a random moment. The next
/// server must serve exactly the content of the backend's file, and verify finds no line that differs.
#[test]
fn a_server_killed_under_load_comes_back_warm_and_right() {
    if !have(&["nbdkit", "fio", "nbdcopy"]) {
        return;
    }
    let mut stage = Stage::new(32, 40);
    let mut random = Random(from_env("LONGSHORE_SEED", 1));
    let mut warm = 0;
    for round in 0..from_env("LONGSHORE_ROUNDS", 6) {
        let policy = if round % 2 == 0 { "none" } else { "aware" };
        stage.serve(&["--policy", policy]);
        stage.reads_as_the_backend();
        let status = stage.status();
        assert_eq!(status["counters"]["damaged_reads"], 0, "round {round}");
        let socket = stage.text("socket");
        crate::expect(0, ["cache", "verify", &socket]);
        let mut load = Command::new("fio");
        load.args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randrw",
            "--bs=4k",
            "--iodepth=8",
            "--numjobs=4",
        ]);
        load.args([
            "--time_based",
            "--runtime=30",
            "--size=32M",
            "--fdatasync=32",
            "--randrepeat=0",
        ]);
        load.arg(format!("--uri={}", stage.uri()))
            .current_dir(stage.dir.path());
        let mut load = load
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(600 + random.below(900)));
        stage.signal(libc::SIGKILL);
        let _failed_rightly = load.wait().unwrap();
        stage.serve(&["--policy", "slow"]);
        warm += stage.status()["cache_state"]["held_bytes"]
            .as_u64()
            .unwrap();
        stage.reads_as_the_backend();
        stage.stop();
    }
    assert!(warm > 0, "nothing was warm after any kill");
}
