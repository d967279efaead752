//! Goal: a cache is created, served, asked for its status, detached, attached and restarted, by commands alone.
//! Method: the program runs as an operator runs it, and the kernel's files about its process show threads and page
//! cache.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{answer, expect, longshore, text};
use crate::{Stage, have, run};

#[test]
fn a_cache_is_made_served_asked_detached_attached_and_warm_after_a_restart() {
    if !have(&["nbdkit", "nbdcopy", "qemu-io"]) {
        return;
    }
    let mut stage = Stage::new(16, 40);
    let (socket, backend) = (stage.text("socket"), stage.text("backend"));
    let told = expect(6, ["cache", "status", &socket]);
    assert!(text(&told.stderr).contains(&format!("cannot reach the cache at {socket}.control")));
    let nowhere = stage.text("nowhere/socket");
    let told = expect(2, ["cache", "serve", &backend, "--socket", &nowhere]);
    assert!(text(&told.stderr).contains("cannot open the directory of"));
    stage.serve(&["--policy", "none"]);
    let told = expect(7, ["cache", "serve", &backend, "--socket", &socket]);
    assert!(text(&told.stderr).contains("already exists"));
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

    let held = stage.held_at_rest();
    let status = stage.status();
    assert_eq!(status["cache_state"]["cache"], "attached");
    // Half of the backend is holes, which the client skips, and fills may be dropped.
    assert!(held >= 2 << 20, "{held}");
    assert!(status["counters"]["hits"].as_u64().unwrap() > 0);
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
    let metrics = ["cache", "status", &socket, "--prometheus", "--json"];
    let metrics = answer(&expect(0, metrics));
    assert!(metrics["text"].as_str().unwrap().contains("_held_bytes"));
    let told = answer(&expect(
        0,
        ["cache", "policy", &socket, "aware+arc", "--json"],
    ));
    assert_eq!(told["policy"], "aware+arc");
    assert_eq!(stage.status()["cache_state"]["policy"], "aware+arc");
    expect(7, ["cache", "policy", &socket, "best"]);
    let verified = answer(&expect(0, ["cache", "verify", &socket, "--json"]));
    assert_eq!(verified["differing"], 0);
    assert!(verified["compared"].as_u64().unwrap() * 4096 >= held);
    stage.stop();

    stage.serve(&["--policy", "none"]);
    let again = stage.status();
    assert_eq!(again["cache_state"]["held_bytes"].as_u64(), Some(held));
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

    answer(&expect(0, ["cache", "detach", &socket, "--json"]));
    assert_eq!(stage.status()["cache_state"]["cache"], "detached");
    expect(7, ["cache", "detach", &socket]);
    stage.reads_as_the_backend();
    let other = stage.text("other");
    expect(0, ["cache", "create", &other, "--size", "20M"]);
    let told = answer(&expect(0, ["cache", "attach", &socket, &other, "--json"]));
    assert_eq!(told["start"], "fresh");
    stage.reads_as_the_backend();
    assert!(stage.held_at_rest() > 2 << 20);
    stage.stop();
    // The first one missed what happened since.
    stage.serve(&["--policy", "none"]);
    assert_eq!(stage.status()["cache_state"]["held_bytes"], 0);
    stage.stop();
}

/// A client's requests, in order of time, as the simulator reads them.
#[test]
fn requests_of_clients_are_recorded_and_can_be_simulated() {
    if !have(&["nbdkit", "qemu-io"]) {
        return;
    }
    let mut stage = Stage::new(16, 40);
    stage.serve(&["--policy", "none"]);
    let (socket, trace) = (stage.text("socket"), stage.text("trace"));
    let there = stage.text("backend");
    let refused = expect(6, ["cache", "trace", &socket, "--to", &there]);
    assert!(
        text(&refused.stderr).contains("cannot write"),
        "{refused:?}"
    );
    let record = |to: &str, seconds: &str| {
        let mut command = longshore(["--json", "cache", "trace", &socket]);
        command.args(["--to", to, "--seconds", seconds]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let recording = command.spawn().unwrap();
        // The first line of the file is written when the recording has begun.
        while !fs::metadata(to).is_ok_and(|found| found.len() > 0) {
            std::thread::sleep(Duration::from_millis(10));
        }
        recording
    };
    let asked = [
        "read 1M 64k",
        "write -P 1 2M 8k",
        "flush",
        "write -z -u 4M 64k",
        "read 3M 4k",
    ];
    let wanted = |content: &str| {
        let has = |what: &str| content.contains(what);
        has(",R,1048576,65536,")
            && has(",W,2097152,8192,")
            && has(",F,0,0,")
            && (has(",T,4194304,65536,") || has(",Z,4194304,65536,"))
            && has(",R,3145728,4096,")
    };
    // On a slow machine the client may come too late.
    let whole = ["1", "4", "16", "64"].into_iter().any(|seconds| {
        let _before = fs::remove_file(&trace);
        let recording = record(&trace, seconds);
        let mut client = Command::new("qemu-io");
        client.args(["-f", "raw"]);
        client.args(asked.iter().flat_map(|one| ["-c", one]));
        run(client.arg(stage.uri()));
        let recorded = recording.wait_with_output().unwrap();
        assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
        let told = answer(&recorded);
        let content = fs::read_to_string(&trace).unwrap();
        assert!(content.starts_with("t_us,op,offset,len,host_lat_us\n"));
        assert_eq!(told["requests"], content.lines().count() - 1);
        wanted(&content)
    });
    assert!(whole, "{}", fs::read_to_string(&trace).unwrap());
    let study = [
        "cache", "simulate", "--json", "--policy", "none", "--pace", "closed",
    ];
    let told = answer(&expect(0, [&study[..], &["--trace", &trace]].concat()));
    assert!(
        told["policies"][0]["throughput_mb_s"].as_f64().unwrap() > 0.0,
        "{told}"
    );

    // A second recording replaces the first, and the first one reports that.
    let first = record(&stage.text("first"), "60");
    let second = record(&stage.text("second"), "0.5");
    assert_eq!(second.wait_with_output().unwrap().status.code(), Some(0));
    let first = first.wait_with_output().unwrap();
    assert_eq!(first.status.code(), Some(7), "{first:?}");
    assert!(
        text(&first.stdout).contains("the recording has ended"),
        "{first:?}"
    );
    stage.stop();
}

/// A model file as `cache calibrate` writes them, of a device whose lone 4 KiB read takes about `read_us`.
fn model(read_us: f64) -> String {
    format!(
        "longshore device model 1\nunits = 32\nchunk_bytes = 4096\nread_us = {read_us}\nfixed_us = 1\n\
         read_mb_s = 2000\ncommand_bytes = 131072\ncommand_us = 0.2\nnear_percent = 100\n"
    )
}

#[test]
fn devices_are_known_by_model_files_and_half_a_pair_or_an_invalid_model_is_refused() {
    if !have(&["nbdkit", "qemu-io"]) {
        return;
    }
    let mut stage = Stage::new(4, 20);
    let (quick, idle, wrong) = (stage.text("quick"), stage.text("idle"), stage.text("wrong"));
    fs::write(&quick, model(1e-3)).unwrap();
    fs::write(&idle, model(1e6)).unwrap();
    fs::write(&wrong, "longshore device model 1\nunits = none\n").unwrap();
    let (backend, socket) = (stage.text("backend"), stage.text("socket"));
    let serve = ["cache", "serve", &backend, "--socket", &socket];
    for more in [
        &["--fast-model", &quick][..],
        &["--slow-model", &quick],
        &["--fast-model", &quick, "--slow-model", &wrong],
        &["--fast-model", &quick, "--slow-model", "/nowhere"],
    ] {
        expect(2, [&serve[..], more].concat());
    }

    // Aware is the default, and trusts the model files: each hit is served by the side whose model is quicker.
    for (fast, slow, by_cache) in [(&quick, &idle, true), (&idle, &quick, false)] {
        stage.serve(&["--fast-model", fast, "--slow-model", slow]);
        assert_eq!(stage.status()["cache_state"]["policy"], "aware+lru");
        let read = || {
            let read = ["-r", "-f", "raw", "-c", "read 1M 4k"];
            run(Command::new("qemu-io").args(read).arg(stage.uri()));
            stage.status()["counters"].clone()
        };
        // Fills come after the reads that miss.
        expect(0, ["cache", "policy", &socket, "none"]);
        let held = (0..1000).any(|_| read()["hits"].as_u64() > Some(0));
        assert!(held, "what is read again and again is held");
        expect(0, ["cache", "policy", &socket, "aware"]);
        let before = stage.status()["counters"].clone();
        let after = read();
        let more = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
        assert!(more("hits") > 0, "{after}");
        assert_eq!(more("fast_bytes") > 0, by_cache, "{after}");
        assert_eq!(more("bypassed_bytes") > 0, !by_cache, "{after}");
        stage.stop();
    }
    // With a pair, one model replaces its side.
    stage.serve(&["--pair", "dram/ebs-gp3-base", "--fast-model", &idle]);
    assert_eq!(stage.status()["cache_state"]["policy"], "aware+lru");
    stage.stop();
}

/// Whether a process has a file open past the page cache, and its number of threads.
fn seen(pid: u32, path: &std::path::Path) -> (bool, usize) {
    let entries = |name: &str| fs::read_dir(format!("/proc/{pid}/{name}")).unwrap();
    let open = entries("fd").map(|entry| entry.unwrap());
    let open = open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == path));
    let flags = open.map(|entry| {
        let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().display());
        let info = fs::read_to_string(info).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        i32::from_str_radix(flags.unwrap().trim(), 8).unwrap()
    });
    let flags: Vec<i32> = flags.collect();
    assert!(!flags.is_empty(), "{} is not open", path.display());
    let is_direct = flags.iter().any(|flags| flags & libc::O_DIRECT != 0);
    (is_direct, entries("task").count())
}

#[test]
fn a_server_uses_the_cache_guard_plugin_threads_and_page_cache_asked_for() {
    if !have(&["nbdkit", "qemu-io"]) {
        return;
    }
    let mut stage = Stage::new(4, 20);
    let (backend, socket) = (stage.text("backend"), stage.text("socket"));
    let nowhere = stage.text("no-plugin.so");
    let serve = ["cache", "serve", &backend, "--socket", &socket];
    let refused = expect(2, [&serve[..], &["--plugin", &nowhere]].concat());
    assert!(text(&refused.stderr).contains(&nowhere), "{refused:?}");

    let (other, guard) = (stage.text("other"), stage.text("guard"));
    expect(
        0,
        ["cache", "create", &other, "--size", "30M", "--slot", "32K"],
    );
    let real = fs::canonicalize(stage.path("backend")).unwrap();
    let mut threads = Vec::new();
    for (count, more) in [
        ("2", &[][..]),
        ("40", &["--cache", &other, "--guard", &guard, "--buffered"]),
    ] {
        stage.serve(&[&["--policy", "none", "--threads", count], more].concat());
        let pid = stage.server.as_ref().unwrap().id();
        // nbdkit starts a connection's threads when it has a client.
        let mut client = Command::new("qemu-io");
        client.args(["-r", "-f", "raw", "-c", "read 0 4k", "-c", "sleep 60000"]);
        let mut client = client
            .arg(stage.uri())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let since = std::time::Instant::now();
        // The first direct transfer opens a descriptor of its own, when the client has read.
        let (is_direct, most) = loop {
            let (is_direct, most) = seen(pid, &real);
            let is_there = is_direct == more.is_empty() && most > count.parse().unwrap();
            if is_there || since.elapsed() > Duration::from_secs(60) {
                break (is_direct, most);
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert_eq!(is_direct, more.is_empty());
        client.kill().unwrap();
        client.wait().unwrap();
        threads.push(most);
        let asked = stage.status()["cache_state"].clone();
        assert_eq!(asked["cache"], "attached");
        let slot_bytes = if more.is_empty() { 16 << 10 } else { 32 << 10 };
        assert_eq!(asked["slot_bytes"], slot_bytes);
        assert_eq!(stage.path("guard").exists(), !more.is_empty());
        stage.stop();
    }
    assert!(threads[1] > 40 && threads[0] < 40, "{threads:?}");
}

#[test]
fn a_verification_drops_what_differs_only_if_asked() {
    if !have(&["nbdkit", "nbdcopy"]) {
        return;
    }
    let mut stage = Stage::new(4, 20);
    stage.serve(&["--policy", "none"]);
    stage.reads_as_the_backend();
    let held = stage.held_at_rest();
    assert!(held > 0);
    // Somebody writes to the backend behind the cache's back.
    let backend = fs::OpenOptions::new()
        .write(true)
        .open(stage.path("backend"));
    let noise = vec![0xa5; 2 << 20];
    std::os::unix::fs::FileExt::write_all_at(&backend.unwrap(), &noise, 0).unwrap();
    let socket = stage.text("socket");
    let verify = |more: &[&str], code: i32| {
        let words = ["cache", "verify", &socket, "--json"];
        let told = answer(&expect(code, [&words[..], more].concat()));
        told["differing"].as_u64().unwrap()
    };
    let differing = verify(&[], 1);
    assert!(differing > 0);
    assert_eq!(verify(&[], 1), differing, "nothing was dropped");
    assert_eq!(verify(&["--repair"], 1), differing);
    assert_eq!(verify(&[], 0), 0);
    stage.reads_as_the_backend();
    // The medium of the cache returns other bytes, which are not the backend's either.
    assert!(stage.held_at_rest() > 0);
    let cache = fs::OpenOptions::new().write(true).open(stage.path("cache"));
    let other = vec![0x5a; 6 << 20];
    std::os::unix::fs::FileExt::write_all_at(&cache.unwrap(), &other, 1 << 20).unwrap();
    for more in [&[][..], &["--repair"]] {
        let words = ["cache", "verify", &socket];
        let told = text(&expect(1, [&words[..], more].concat()).stdout);
        assert!(
            told.contains(" 0 differ\n") && told.contains("cannot be read"),
            "{told}"
        );
        assert_eq!(told.contains("were dropped"), !more.is_empty());
    }
    assert_eq!(verify(&[], 0), 0);
    stage.reads_as_the_backend();
    stage.stop();
}

#[test]
fn a_cache_is_not_created_in_a_file_that_is_not_empty_or_too_small() {
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

/// Goal: a file of the server that reaches its size limit (`ulimit -f`, `LimitFSIZE`) is a full disk, and no end of the
/// service: the cache is given up, a client that writes too far gets the error, and everything else is served.
#[test]
fn a_limit_on_the_size_of_files_does_not_end_the_server() {
    if !have(&["nbdkit", "nbdcopy", "qemu-io", "prlimit"]) {
        return;
    }
    let mut stage = Stage::new(16, 40);
    stage.serve_by(&["prlimit", "--fsize=51200"], &["--policy", "none"]);
    stage.reads_as_the_backend();
    let write = |at: &str| {
        let pattern = format!("write -P 0x5a {at} 4k");
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", "-c", &pattern, "-c", "flush"]);
        let output = command.arg(stage.uri()).output().unwrap();
        text(&output.stdout) + &text(&output.stderr)
    };
    let refused = write("3M");
    assert!(refused.contains("write failed"), "{refused}");
    let done = write("8k");
    assert!(done.contains("wrote 4096/4096"), "{done}");
    stage.reads_as_the_backend();
    assert_eq!(fs::read(stage.path("backend")).unwrap()[8 << 10], 0x5a);
    stage.status();
    stage.signal(libc::SIGTERM);
    assert!(!stage.log().contains("File size limit"), "{}", stage.log());
}
