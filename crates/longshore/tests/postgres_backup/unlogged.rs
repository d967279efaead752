//! Goal: unlogged relations that are created while a backup runs come back empty. The limit that `docs/postgres.md`
//! names, for an index that is built across the backup's end, is as described.
//! Method: real servers; unlogged tables are created all the while, or an index build is held by a lock, and restored
//! servers are asked for their rows.

use std::io::Write;
use std::process::Stdio;

use longshore_kit::{Server, installations, representatives};

use crate::common::{Guarded, expect};
use crate::live::archived;
use crate::stage::{Stage, check, succeed};

const PLENTY: &str = "from generate_series(1, 400) g";

/// Goal: tables created unlogged during a backup come back empty, and the server starts.
/// Method: a backup slow enough for that, and unlogged tables and indexes created all the while.
#[test]
fn tables_made_unlogged_during_a_backup_come_back_empty() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        server.psql(&format!(
            "create table t as select g, repeat('x', 500) {PLENTY}"
        ));
        let mut backup = stage.backup("made.bak");
        let mut backup = Guarded(backup.args(["--max-rate", "8MB"]).spawn().unwrap());
        let mut made = 0;
        while backup.0.try_wait().unwrap().is_none() {
            server.psql(&format!(
                "create unlogged table u{made} as select g, repeat('x', 500) {PLENTY}; create index on u{made} (g)"
            ));
            made += 1;
        }
        assert!(backup.0.wait().unwrap().success() && made > 1);
        let (target, copy) = stage.restored("made.bak");
        let there = copy.psql("select relname from pg_class where relname ~ '^u\\d+$'");
        assert!(!there.is_empty());
        for table in there.lines() {
            assert_eq!(copy.psql(&format!("select count(*) from {table}")), "0");
        }
        check(&copy, &target);
    }
}

/// The limit that docs/postgres.md names: an index of an unlogged table that is being built when the backup ends has no
/// init fork yet. The copy starts; a recovery beyond the index finds its file in the way.
#[test]
fn an_unlogged_index_built_across_the_end_of_a_backup() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let archive = longshore_kit::place::of(longshore_kit::User::of_servers(), "lsarch");
    let copy_out = format!("cp %p {}/%f", archive.path().display());
    let conf = [("archive_mode", "on"), ("archive_command", &*copy_out)];
    let stage = Stage::new(&installation, &conf);
    let server = &stage.server;
    server.psql(
        "create unlogged table u as select 1 as i;
         create function waits(int) returns int immutable language plpgsql as
             'begin perform pg_advisory_lock_shared(1); return $1; end'",
    );
    let mut psql = server.command("psql");
    let mut holder = Guarded(
        psql.arg("-q")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut lines = holder.0.stdin.take().unwrap();
    lines.write_all(b"select pg_advisory_lock(1);\n").unwrap();
    server.wait_for(
        "select count(*) from pg_locks where locktype = 'advisory' and granted",
        "1",
    );
    let mut psql = server.command("psql");
    let mut builder = Guarded(
        psql.args(["-c", "create index on u (waits(i))"])
            .spawn()
            .unwrap(),
    );
    server.wait_for(
        "select count(*) from pg_locks where locktype = 'advisory' and not granted",
        "1",
    );
    succeed(&mut stage.backup("across.bak"));
    drop(lines);
    assert!(builder.0.wait().unwrap().success());
    server.psql("select pg_create_restore_point('beyond')");
    archived(server);

    let target = stage.path("beyond");
    let fetch = format!("cp {}/%f \"%p\"", archive.path().display());
    let media = stage.path("across.bak");
    let args = [
        "restore",
        media.to_str().unwrap(),
        "--to",
        target.to_str().unwrap(),
    ];
    let more = [
        "--restore-command",
        &fetch,
        "--target-name",
        "beyond",
        "--target-action",
        "promote",
    ];
    expect(0, [&args[..], &more].concat());
    let copy = Server::adopt(&installation, &target);
    copy.append_conf("archive_mode = off");
    let log = match copy.try_start() {
        Err(log) => log,
        Ok(()) => {
            // It accepts connections before the end of its recovery.
            copy.wait_for_end();
            copy.log()
        }
    };
    let (_, rest) = log.split_once("could not create file \"").expect(&log);
    let (name, rest) = rest.split_once('"').unwrap();
    assert!(rest.starts_with(": File exists"), "{log}");
    std::fs::remove_file(target.join(name)).unwrap();
    copy.start();
    copy.wait_for("select pg_is_in_recovery()", "f");
    assert_eq!(copy.psql("select count(*) from u"), "0");
    check(&copy, &target);

    // Last, because its WAL goes into its origin's archive.
    let (target, copy) = stage.restored("across.bak");
    assert_eq!(copy.psql("select count(*) from u"), "0");
    check(&copy, &target);
}
