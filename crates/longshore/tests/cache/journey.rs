//! From making a cache to its status, and through a restart.

use std::fs;
use std::process::Command;

use crate::common::{answer, expect};
use crate::{Stage, have, run};

#[test]
fn a_cache_is_made_served_asked_detached_attached_and_warm_after_a_restart() {
    if !have(&["nbdkit", "nbdcopy", "qemu-io"]) {
        return;
    }
    let mut stage = Stage::new(16, 40);
    stage.serve(&["--policy", "none"]);
    stage.reads_as_the_backend();
    let pattern = "write -P 0x5a 3M 256k";
    run(Command::new("qemu-io")
        .args(["-f", "raw", "-c", pattern, "-c", "flush"])
        .arg(stage.uri()));
    let written = fs::read(stage.path("backend")).unwrap();
    assert!(
        written[3 << 20..][..256 << 10]
            .iter()
            .all(|byte| *byte == 0x5a)
    );
    stage.reads_as_the_backend();

    let status = stage.status();
    assert_eq!(status["status"]["cache"], "attached");
    let held = status["status"]["held_bytes"].as_u64().unwrap();
    // Half of it is holes, which the client skips, and fills may be dropped.
    assert!(held >= 2 << 20, "{held}");
    assert!(status["counters"]["hits"].as_u64().unwrap() > 0);
    let socket = stage.text("socket");
    let prometheus = expect(0, ["cache", "status", &socket, "--prometheus"]);
    let prometheus = String::from_utf8(prometheus.stdout).unwrap();
    assert!(
        prometheus.contains(&format!("longshore_cache_held_bytes {held}\n")),
        "{prometheus}"
    );
    assert!(prometheus.contains("longshore_cache_decisions_total{reason=\"always\"}"));
    let why = answer(&expect(
        0,
        ["cache", "why", &socket, "--last", "3", "--json"],
    ));
    assert_eq!(why["lines"].as_array().unwrap().len(), 3);
    expect(0, ["cache", "policy", &socket, "aware+arc"]);
    assert_eq!(stage.status()["status"]["policy"], "aware+arc");
    expect(7, ["cache", "policy", &socket, "best"]);
    let verified = answer(&expect(0, ["cache", "verify", &socket, "--json"]));
    assert_eq!(verified["differing"], 0);
    assert!(verified["compared"].as_u64().unwrap() * 4096 >= held);
    stage.stop();

    stage.serve(&["--policy", "none"]);
    let again = stage.status();
    assert_eq!(again["status"]["held_bytes"].as_u64(), Some(held));
    stage.reads_as_the_backend();
    let fast_bytes = stage.status()["counters"]["fast_bytes"].as_u64().unwrap();
    assert!(fast_bytes >= held / 2, "{fast_bytes} of {held}");

    let told = answer(&expect(0, ["cache", "shadow", &socket, "--json"]));
    assert!(told["shadow"].is_null(), "{told}");
    expect(7, ["cache", "shadow", &socket, "best"]);
    expect(0, ["cache", "shadow", &socket, "slow"]);
    let resized = answer(&expect(0, ["cache", "resize", &socket, "24M", "--json"]));
    assert!(
        resized["capacity_bytes"].as_u64().unwrap() > 20 << 20,
        "{resized}"
    );
    assert!(fs::metadata(stage.path("cache")).unwrap().len() <= 24 << 20);
    expect(7, ["cache", "resize", &socket, "1M"]);
    stage.reads_as_the_backend();
    let told = answer(&expect(0, ["cache", "shadow", &socket, "--json"]));
    let (would, did) = (&told["shadow"]["would"], &told["shadow"]["did"]);
    assert_eq!(
        (&told["shadow"]["policy"], &would["fast_bytes"]),
        (&"slow+lru".into(), &0.into())
    );
    assert!(did["fast_bytes"].as_u64().unwrap() > 1 << 20, "{told}");
    expect(0, ["cache", "shadow", &socket, "--off"]);

    expect(0, ["cache", "detach", &socket]);
    assert_eq!(stage.status()["status"]["cache"], "detached");
    expect(7, ["cache", "detach", &socket]);
    stage.reads_as_the_backend();
    let other = stage.text("other");
    expect(0, ["cache", "create", &other, "--size", "20M"]);
    expect(0, ["cache", "attach", &socket, &other]);
    stage.reads_as_the_backend();
    assert!(stage.status()["status"]["held_bytes"].as_u64().unwrap() > 2 << 20);
    stage.stop();
    // The first one missed what happened since.
    stage.serve(&["--policy", "none"]);
    assert_eq!(stage.status()["status"]["held_bytes"], 0);
    stage.stop();
}

#[test]
fn what_is_not_empty_or_too_small_is_no_place_for_a_cache() {
    let stage = Stage::new(4, 20);
    let (backend, small) = (stage.text("backend"), stage.text("small"));
    let before = fs::read(stage.path("backend")).unwrap();
    expect(7, ["cache", "create", &backend]);
    assert!(fs::read(stage.path("backend")).unwrap() == before);
    expect(2, ["cache", "create", &small, "--size", "64K"]);
    expect(
        2,
        ["cache", "create", &small, "--size", "20M", "--slot", "5000"],
    );
    expect(4, ["cache", "create", "/nowhere/at/all", "--size", "20M"]);
    expect(6, ["cache", "status", &stage.text("socket")]);
}
