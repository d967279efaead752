//! Goal: whatever is killed while a cluster is written to, archived and backed up, every backup that looks valid is
//! restored, every marker that the server acknowledged is there at its moment, and no segment is missing.
//! Method: the program, the server, its archiver and its pushes are killed at random moments from a seed. Then moments
//! are recovered, and a server shows the markers. Four rounds kill each of them once; LONGSHORE_PG_ROUNDS asks for more.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_kit::{Server, installations};

use crate::common::{Random, answer, from_env, text};
use crate::named::{Main, Moment, reached};
use crate::stage::succeed;

/// The processes whose command line contains all of these words.
fn processes(words: &[&str]) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let fits = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = text(&line);
        words.iter().all(|word| line.contains(word))
    };
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(fits).collect()
}

fn kill(pids: &[i32]) {
    for pid in pids {
        // SAFETY: `kill` demands two integers and touches no memory; a process that is gone is an error that does not
        // matter.
        unsafe { libc::kill(*pid, libc::SIGKILL) };
    }
}

/// The server's archiver: a child process with that name.
fn archiver(server: &Server) -> Vec<i32> {
    let Some(pid) = server.pid() else {
        return Vec::new();
    };
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let pids = children.split_whitespace().filter_map(|n| n.parse().ok());
    let is_archiver = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        text(&line).contains("archiver")
    };
    pids.filter(is_archiver).collect()
}

#[test]
fn kills_of_everything_lose_nothing_that_was_acknowledged() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let main = Main::new(&installation);
    let server = &main.stage.server;
    let seed = from_env("LONGSHORE_SEED", 20_261_121);
    let mut random = Random(seed);
    let mut moments: Vec<(u32, Moment)> = Vec::new();
    server.psql("create extension amcheck");
    main.back_up();
    let config = main.stage.path("longshore.toml");
    let config = config.to_str().unwrap();
    let (mut backups, mut killed) = (1, 0);
    let mut victims = Vec::new();
    for round in 0..from_env("LONGSHORE_PG_ROUNDS", 4) as u32 {
        if victims.is_empty() {
            victims = vec![0, 1, 2, 3];
            random.shuffle(&mut victims);
        }
        let victim = victims.pop();
        let mut backup = main.command("backup main --wal-wait 60 --max-rate 40M");
        let mut child = backup
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let after = Duration::from_millis(random.below(900));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // WAL is written all the time; a failed insert is not acknowledged, and not counted.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = server.try_psql(
                        "postgres",
                        "insert into small select (select max(i) from small) + i, md5(i::text) \
                         from generate_series(1, 2000) i; select pg_switch_wal()",
                    );
                }
            });
            std::thread::sleep(after);
            match victim {
                Some(0) => child.kill().unwrap(),
                Some(1) => server.kill9(),
                Some(2) => kill(&archiver(server)),
                _ => kill(&processes(&["wal", "push", config])),
            }
            stop.store(true, Ordering::Relaxed);
        });
        if !server.is_running() {
            server.start();
        }
        match child.wait().unwrap().success() {
            true => backups += 1,
            false => killed += 1,
        }
        // A server that lost a process restarts by itself.
        server.wait_for("select 1", "1");
        moments.push((round + 1, main.mark(round + 1)));
    }
    main.archived(server);
    println!("seed {seed}: {backups} backups were completed, {killed} were not");

    let info = answer(&succeed(&mut main.command("info main --json")));
    let info = &info["databases"][0];
    let sets = info["backups"].as_array().unwrap();
    let complete = sets.iter().filter(|s| s["restorable"] == true).count();
    assert_eq!(complete, backups, "{info}");
    for set in sets {
        assert!(
            ["complete", "INCOMPLETE"].contains(&set["state"].as_str().unwrap()),
            "{set}"
        );
    }
    let wal = &info["wal"];
    assert_eq!(
        (&wal["gaps"], &wal["inconsistent"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    succeed(&mut main.command("wal list --verify --database main"));
    succeed(&mut main.command("verify --database main"));

    let some = [moments.len() / 2, moments.len() - 1];
    for (marker, moment) in some.map(|i| moments[i].clone()) {
        let name = format!("marker {marker}");
        let (_, restored) = main.restored(&name, &["--target-lsn", &moment.lsn]);
        let expected: Vec<String> = (1..=marker).map(|n| n.to_string()).collect();
        assert_eq!(reached(&restored), expected.join(" "), "seed {seed}");
        succeed(
            restored
                .command("pg_amcheck")
                .args(["--heapallindexed", "-d", "postgres"]),
        );
    }
}
