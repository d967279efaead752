//! Very many relations: what a backup holds in memory does not grow with them.

use std::fs;
use std::time::Duration;

use longshore_test_servers::{Stop, installations};

use crate::common::{from_env, longshore, measure};
use crate::stage::{Stage, succeed};

/// A database of relation files that no catalog knows, as a crash in the middle of their creation leaves them: a
/// server neither looks at them nor minds.
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

/// Goal: a million relations fit into the memory that the plan names.
/// Method: the largest resident set of the program, as the system counted it, of a backup with very many files
/// and of one without, against the printed bound; `LONGSHORE_PG_FILES` says how many. The two are not held against
/// each other: how many of the pool's buffers are ever touched depends on who is scheduled when.
#[test]
fn memory_does_not_grow_with_the_number_of_relations() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let count = from_env("LONGSHORE_PG_FILES", 20_000);
    let stage = Stage::new(&installation, &[]);
    let patience = Duration::from_secs(3600);
    let backup = |name: &str| {
        let used = measure(stage.backup(name).arg("--json"), patience);
        assert_eq!(used.code, Some(0), "{}", used.stderr);
        let bound = find(&used.answer(), "memory_bytes").unwrap();
        println!(
            "{name}: {:.1} MiB resident of {:.1} MiB planned, {:.1} s, {:.1} s of CPU",
            used.resident_bytes as f64 / 1048576.0,
            bound as f64 / 1048576.0,
            used.wall.as_secs_f64(),
            used.cpu.as_secs_f64()
        );
        assert!(used.resident_bytes > 1 << 20, "nothing was seen");
        assert!(used.resident_bytes < bound, "{name}");
    };
    backup("few.bak");
    strew(&stage, count);
    backup("many.bak");

    let (media, target) = (stage.path("many.bak"), stage.path("many"));
    let mut restore = longshore(["restore"]);
    restore.arg(&media).arg("--to").arg(&target).arg("--json");
    let used = measure(&mut restore, patience);
    assert_eq!(used.code, Some(0), "{}", used.stderr);
    println!(
        "restore: {:.1} MiB resident, {:.1} s",
        used.resident_bytes as f64 / 1048576.0,
        used.wall.as_secs_f64()
    );
    let oid = stage
        .server
        .psql("select oid from pg_database where datname = 'many'");
    let names = fs::read_dir(target.join("base").join(oid))
        .unwrap()
        .flatten();
    let strewn = names.filter(|name| name.file_name().to_string_lossy().starts_with("300"));
    // An unlogged one has its init fork only.
    assert_eq!(strewn.count() as u64, count);
    stage.server.stop(Stop::Fast);
    fs::remove_dir_all(&target).unwrap();
    succeed(longshore(["verify"]).arg(&media));
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
