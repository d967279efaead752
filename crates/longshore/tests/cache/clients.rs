//! Goal: stock clients of the protocol (nbdinfo, qemu-io, fio) find what the cache promises and read back what they
//! wrote.
//! Method: the real server on files; the clients verify what they read, and the backend's file is compared then.
//! Not covered: power cuts and faults; machines without these tools.

use std::process::Command;

use crate::{Stage, have, run};

#[test]
fn nbdinfo_sees_everything_that_is_promised() {
    if !have(&["nbdkit", "nbdinfo"]) {
        return;
    }
    let mut stage = Stage::new(8, 20);
    stage.serve(&[]);
    let told = run(Command::new("nbdinfo").arg("--json").arg(stage.uri()));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let export = &told["exports"][0];
    assert_eq!(export["export-size"], 8 << 20);
    assert_eq!(export["is_read_only"], false);
    for able in [
        "can_flush",
        "can_fua",
        "can_multi_conn",
        "can_trim",
        "can_zero",
    ] {
        assert_eq!(export[able], true, "{able}");
    }
    let map = run(Command::new("nbdinfo").arg("--map").arg(stage.uri()));
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let map: Vec<_> = map.lines().map(words).collect();
    assert_eq!(map[0][..4], ["0", "4194304", "0", "data"]);
    assert_eq!(map[1][..4], ["4194304", "4194304", "3", "hole,zero"]);
    stage.stop();
}

/// Odd offsets and lengths, zeroes, discards, and FUA, each read back by qemu-io and from the backend's file.
#[test]
fn qemu_io_writes_zeroes_and_discards_at_odd_places() {
    if !have(&["nbdkit", "qemu-io", "nbdcopy"]) {
        return;
    }
    let mut stage = Stage::new(8, 20);
    for policy in ["none", "aware"] {
        stage.serve(&["--policy", policy]);
        let steps = [
            "read 0 8M",
            "write -P 1 512 5120",
            "read -P 1 512 5120",
            "write -f -P 2 1048064 3584",
            "read -P 2 1048064 3584",
            "write -P 3 65536 1M",
            "write -z 100864 70144",
            "read -P 0 100864 70144",
            "read -P 3 65536 35328",
            "write -z -u 2M 300k",
            "read -P 0 2M 300k",
            "discard 3M 128k",
            "write -P 4 3211264 512",
            "read -P 4 3211264 512",
            "write -P 5 8388096 512",
            "read -P 5 8388096 512",
            "flush",
        ];
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]);
        for step in steps {
            command.args(["-c", step]);
        }
        let said = run(command.arg(stage.uri()));
        assert!(!said.contains("verification failed"), "{said}");
        stage.reads_as_the_backend();
        stage.stop();
    }
}

/// Random reads and writes of several jobs at once that fio verifies, on a cache that is too small for them.
#[test]
fn fio_verifies_what_it_wrote() {
    if !have(&["nbdkit", "fio", "nbdcopy"]) {
        return;
    }
    let mut stage = Stage::new(32, 16);
    for policy in ["none", "balance", "aware"] {
        stage.serve(&["--policy", policy]);
        let mut command = Command::new("fio");
        command.args([
            "--name=verify",
            "--ioengine=nbd",
            "--rw=randrw",
            "--iodepth=16",
            "--size=8M",
        ]);
        command.args([
            "--bsrange=4k-64k",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--numjobs=3",
        ]);
        command.args(["--offset_increment=8M", "--randseed=7", "--fsync=50"]);
        run(command
            .arg(format!("--uri={}", stage.uri()))
            .current_dir(stage.dir.path()));
        stage.reads_as_the_backend();
        let status = stage.status();
        assert_eq!(status["counters"]["damaged_reads"], 0);
        stage.stop();
        assert!(
            stage.log().lines().all(|line| !line.contains(" ERROR ")),
            "{}",
            stage.log()
        );
    }
}
