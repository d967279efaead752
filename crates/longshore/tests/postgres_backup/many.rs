//! Goal: the memory of a backup and a restore does not grow with the number of relations.
//! Method: a real server's directory with 20,000 relation files that no catalog knows; the resident memory of the
//! program is measured from outside and compared with the bound that it prints.
//! Not covered: a million relations, unless `LONGSHORE_PG_FILES` asks for them.

use std::fs;
use std::process::Command;
use std::time::Duration;

use longshore_kit::{Stop, installations};

use crate::common::{from_env, longshore, measure};
use crate::stage::{Stage, succeed};

/// A database of relation files that no catalog knows, as a crash during their creation leaves them: a server ignores
/// them.
fn strew(stage: &Stage, count: u64) {
    let server = &stage.server;
    server.psql("create database many");
    let oid = server.psql("select oid from pg_database where datname = 'many'");
    let dir = server.data_dir().join("base").join(oid);
    // Every hundredth has a page, every fiftieth an init fork.
    let page = [0; 8192];
    for i in 0..count {
        let number = 3_000_000_000 + i;
        let content: &[u8] = if i % 100 == 0 { &page } else { &[] };
        fs::write(dir.join(number.to_string()), content).unwrap();
        if i % 50 == 1 {
            fs::write(dir.join(format!("{number}_init")), b"").unwrap();
        }
    }
    server.user().own(&dir);
}

/// Runs a command that answers in JSON, and compares the largest resident set of its process, as the system counted
/// it, with the bound that it prints.
fn within_bound(what: &str, command: &mut Command) {
    let used = measure(command.arg("--json"), Duration::from_secs(3600));
    assert_eq!(used.code, Some(0), "{what}: {}", used.stderr);
    let bound = find(&used.answer(), "memory_bytes").unwrap();
    println!(
        "{what}: {:.1} MiB resident of {:.1} MiB planned, {:.1} s, {:.1} s of CPU",
        used.resident_bytes as f64 / 1048576.0,
        bound as f64 / 1048576.0,
        used.wall.as_secs_f64(),
        used.cpu.as_secs_f64()
    );
    assert!(used.resident_bytes > 1 << 20, "nothing was seen");
    assert!(used.resident_bytes < bound, "{what}");
}

/// Goal: a million relations fit into the memory that the plan names: a full backup, one that differs from it, and the
/// restores of both.
/// Method: a backup with very many files and one without, measured from outside; `LONGSHORE_PG_FILES` gives the
/// number. The two are not compared with each other: how many of the pool's buffers are ever touched depends on
/// scheduling.
#[test]
fn memory_does_not_grow_with_the_number_of_relations() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let count = from_env("LONGSHORE_PG_FILES", 20_000);
    let stage = Stage::new(&installation, &[]);
    within_bound("a backup without them", &mut stage.backup("few"));
    strew(&stage, count);
    within_bound("a full backup", &mut stage.backup("many"));
    let mut differing = stage.backup("diff");
    differing
        .args(["--differential", "--base"])
        .arg(stage.path("many"));
    within_bound("a differential one", &mut differing);

    let oid = stage
        .server
        .psql("select oid from pg_database where datname = 'many'");
    stage.server.stop(Stop::Fast);
    for chain in [&["many"][..], &["diff", "many"]] {
        let target = stage.path("restored");
        let mut restore = longshore(["restore", "--to"]);
        restore.arg(&target).arg(stage.path(chain[0]));
        for base in &chain[1..] {
            restore.arg("--base").arg(stage.path(base));
        }
        within_bound(&format!("a restore of {chain:?}"), &mut restore);
        let names = fs::read_dir(target.join("base").join(&oid)).unwrap();
        let strewn = names
            .flatten()
            .filter(|name| name.file_name().to_string_lossy().starts_with("300"));
        // An unlogged one has its init fork only.
        assert_eq!(strewn.count() as u64, count);
        fs::remove_dir_all(&target).unwrap();
    }
    succeed(longshore(["verify"]).arg(stage.path("many")));
}

/// A number anywhere in an answer.
fn find(value: &serde_json::Value, name: &str) -> Option<u64> {
    match value {
        serde_json::Value::Object(map) => map
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .or_else(|| map.values().find_map(|inner| find(inner, name))),
        serde_json::Value::Array(all) => all.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}
