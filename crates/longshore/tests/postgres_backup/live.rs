//! Goal: a backup under a workload restores to an intact cluster in a committed state; one of a quiet cluster, to
//! exactly what it was.
//! Method: real servers under pgbench and DDL; sums in the data, dumps, and PostgreSQL's own tools judge the restored
//! servers. `soak.rs` repeats it with random options.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use longshore_kit::{Server, installations, representatives};

use crate::common::{Guarded, expect, from_env};
use crate::copies::until_whole;
use crate::stage::{Stage, check, dump, same, succeed};

/// Tables are created, dropped, extended, truncated and rewritten.
pub const TABLES: &str = r"
\set n random(1, 1000000000)
begin;
create table churn_:n as select g, repeat('x', 200) t from generate_series(1, 2000) g;
create unique index on churn_:n (g);
commit;
delete from churn_:n where g % 2 = 0;
vacuum churn_:n;
truncate churn_:n;
insert into churn_:n select g, 'y' from generate_series(1, 500) g;
vacuum full churn_:n;
drop table churn_:n;
create table kept_:n as select :n as n;
checkpoint;
";

/// Relations change their kind and their location, and databases are created in every possible way.
pub const PLACES: &str = r"
\set n random(1, 1000000000)
create unlogged table moved_:n as select g, repeat('u', 300) t from generate_series(1, 500) g;
create index on_moved_:n on moved_:n (g);
create temp table temp_:n as select g from generate_series(1, 1000) g;
alter table moved_:n set logged;
alter table moved_:n set tablespace churn;
cluster moved_:n using on_moved_:n;
alter table moved_:n set unlogged;
alter table moved_:n set tablespace pg_default;
drop table temp_:n;
create database first_:n template template0 /* wal_log */;
alter database first_:n set tablespace churn;
create database second_:n template template0 /* file_copy */ tablespace churn;
drop database first_:n;
drop table moved_:n;
";

/// Whether pgbench's bank is in a committed state, checked in three ways.
pub const SUMS: &str = "
    select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
           (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history),
           (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)";

/// The script for a major version: 14 copies databases in one way only.
pub fn places_of(script: &str, major: u32) -> String {
    match major {
        14 => script.to_owned(),
        _ => script
            .replace("/* wal_log */", "strategy wal_log")
            .replace("/* file_copy */", "strategy file_copy"),
    }
}

/// `pgbench` with a script, or with its own bank, until the test drops it.
pub fn load(stage: &Stage, script: Option<(&str, &str)>, clients: u32) -> Guarded {
    load_at(stage, script, clients, None)
}

/// The same, with at most this rate of transactions per second.
pub fn load_at(
    stage: &Stage,
    script: Option<(&str, &str)>,
    clients: u32,
    rate: Option<&str>,
) -> Guarded {
    let mut command = stage.server.command("pgbench");
    command.args(["-n", "-c", &clients.to_string(), "-T", "600"]);
    if let Some(rate) = rate {
        command.args(["-R", rate]);
    }
    if let Some((name, text)) = script {
        let path = stage.path(name);
        std::fs::write(&path, text).unwrap();
        command.arg("-f").arg(path);
    }
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    Guarded(silent.spawn().unwrap())
}

/// A directory that the server may write to.
pub fn place(stage: &Stage, name: &str) -> PathBuf {
    let path = stage.path(name);
    std::fs::create_dir(&path).unwrap();
    stage.server.user().own(&path);
    path
}

/// The backup `name`, restored as `target` with its tablespace next to it, and a server on it.
fn restored(stage: &Stage, name: &str, target: &str, more: &[&str]) -> (PathBuf, Server) {
    let (media, target) = (stage.path(name), stage.path(target));
    let map = format!(
        "{}={}.space",
        stage.path("space").display(),
        target.display()
    );
    let media = media.to_str().unwrap();
    let args = ["restore", media, "--to", target.to_str().unwrap()];
    expect(0, [&args, &["--tablespace-map", &map][..], more].concat());
    // No file that came or went during the backup is missing or extra: the manifest lists what was stored.
    let mut verify = stage.server.command("pg_verifybackup");
    succeed(verify.arg("--no-parse-wal").arg(&target));
    let server = Server::adopt(stage.server.installation(), &target);
    // The copy's WAL is its own, and would overwrite its origin's in the archive.
    server.append_conf("archive_mode = off");
    server.start();
    (target, server)
}

/// Goal: a backup taken under writes and DDL restores to an intact cluster in a state that existed; with more WAL, to
/// exactly the state of its origin at that LSN.
/// Method: pgbench's bank keeps the sum of balances equal to the sum of its history in every committed state; so must
/// the restored one. Then the origin is brought to rest, a restore point is named and a dump made; the server itself
/// replays a second restore to that name, from an archive made by `cp`, and its dump is the same. PostgreSQL's tools
/// check heaps, indexes and pages of both. The oldest and the newest major have one round each with clients that keep to
/// a rate; `LONGSHORE_PG_ROUNDS` asks for more, without one.
#[test]
fn a_cluster_backed_up_under_load_is_restored_completely() {
    for installation in representatives() {
        let major = installation.major;
        let archive = longshore_kit::place::of(longshore_kit::User::of_servers(), "lsarch");
        let archive = archive.path();
        let conf = [
            ("checkpoint_timeout", "30s"),
            ("archive_mode", "on"),
            (
                "archive_command",
                &format!("cp %p {}/%f", archive.display()),
            ),
        ];
        let stage = Stage::with_long_segments(&installation, &conf);
        let server = &stage.server;
        let space = place(&stage, "space");
        let location = space.display();
        server.psql(&format!("create tablespace churn location '{location}'"));
        succeed(server.command("pgbench").args(["-i", "-q", "-s", "3"]));
        let places = places_of(PLACES, major);
        let rounds = from_env("LONGSHORE_PG_ROUNDS", 0);
        // All that the clients write is replayed, dumped and checked.
        let (bank_rate, tables_rate) = match rounds {
            0 => (Some("200"), Some("10")),
            _ => (None, None),
        };
        for round in 0..rounds.max(1) {
            let bank = load_at(&stage, None, 3, bank_rate);
            let tables = load_at(&stage, Some(("tables.sql", TABLES)), 3, tables_rate);
            let changes = load(&stage, Some(("places.sql", &places)), 1);
            server.wait_for("select count(*) > 50 from pgbench_history", "t");
            let name = format!("live{round}.bak");
            until_whole(|| {
                let _none_the_first_time = std::fs::remove_file(stage.path(&name));
                let mut backup = stage.backup(&name);
                backup.args(["--max-rate", "40MB"]);
                backup
            });
            // Every script has run at least once, so none is wrong for this major version. On a busy machine that
            // would take long next to the other clients: a database is copied with checkpoints before and after.
            drop((bank, tables));
            for step in ["first|second", "second"] {
                let made = "select count(*) > 0 from pg_database where datname ~";
                server.wait_for(&format!("{made} '^({step})'"), "t");
            }
            drop(changes);
            server.wait_for(
                "select count(*) from pg_stat_activity where application_name = 'pgbench'",
                "0",
            );
            server.psql(&format!("select pg_create_restore_point('rest {round}')"));
            let before = dump(server);
            archived(server);

            let (target, copy) = restored(&stage, &name, &format!("copy{round}"), &[]);
            assert_eq!(copy.psql(SUMS), "t|t|t", "PostgreSQL {major}");
            check(&copy, &target);
            remove(&target);

            let fetch = format!("cp {}/%f \"%p\"", archive.display());
            let point = format!("rest {round}");
            let more = ["--restore-command", &fetch, "--target-name", &point];
            let more = [&more[..], &["--target-action", "promote"]].concat();
            let (target, copy) = restored(&stage, &name, &format!("rest{round}"), &more);
            copy.wait_for("select pg_is_in_recovery()", "f");
            let moved = format!("{}.space", target.display());
            let after = dump(&copy).replace(&moved, space.to_str().unwrap());
            same(&after, &before);
            check(&copy, &target);
            remove(&target);
            server.psql("select pg_switch_wal()");
        }
    }
}

/// Closes the segment in use and waits until it is in the archive.
pub fn archived(server: &Server) {
    let segment = server.psql("select pg_walfile_name(pg_switch_wal() - 1)");
    server.wait_for(
        &format!("select last_archived_wal >= '{segment}' from pg_stat_archiver"),
        "t",
    );
}

/// Removes a restored cluster that was judged: many rounds need its space.
fn remove(target: &Path) {
    std::fs::remove_dir_all(target).unwrap();
    std::fs::remove_dir_all(format!("{}.space", target.display())).unwrap();
}

/// Goal: everything committed before the backup began is restored, and nothing else if the cluster is quiet.
#[test]
fn a_quiet_cluster_comes_back_as_it_was() {
    for installation in installations() {
        let stage = Stage::new(&installation, &[]);
        stage.server.psql(
            "create table t as select g, md5(g::text) m from generate_series(1, 50000) g;
             create index on t (m); create sequence s; select nextval('s');
             create materialized view v as select count(*) from t;
             create role somebody; create database other;",
        );
        stage
            .server
            .psql_in("other", "create table t as select 1 as one");
        // Prepared transactions live in files of their own once a checkpoint has been.
        succeed(&mut stage.backup("quiet.bak"));
        let before = dump(&stage.server);
        let (target, restored) = stage.restored("quiet.bak");
        assert_eq!(dump(&restored), before, "PostgreSQL {}", installation.major);
        check(&restored, &target);
    }
}

/// Goal: a prepared transaction that waits for its second phase is in the backup and can be committed.
#[test]
fn prepared_transactions_survive() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[("max_prepared_transactions", "5")]);
        stage.server.psql(
            "create table t (i int);
             begin; insert into t values (1); prepare transaction 'first';
             checkpoint;
             begin; insert into t values (2); prepare transaction 'second';",
        );
        succeed(&mut stage.backup("prepared.bak"));
        let (_, restored) = stage.restored("prepared.bak");
        restored.psql("commit prepared 'first'");
        restored.psql("commit prepared 'second'");
        assert_eq!(restored.psql("select sum(i) from t"), "3");
    }
}

#[test]
fn a_backup_of_a_server_shows_percent_total_and_the_time_that_is_left() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let fill = "create table big as select i, repeat('x', 500) x from generate_series(1, 50000) i; checkpoint";
    stage.server.psql(fill);
    let bytes: f64 = stage
        .server
        .psql("select sum(pg_database_size(oid)) from pg_database")
        .parse()
        .unwrap();
    for more in [&[][..], &["--remote"]] {
        let mut backup = stage.backup("p.bak");
        backup.args(["--format", "--max-rate", "20M"]).args(more);
        let said = crate::common::text(&succeed(&mut backup).stderr);
        let lines = said
            .lines()
            .filter(|line| line.contains(" percent processed. "));
        let lines: Vec<&str> = lines.filter(|line| line.ends_with(" left")).collect();
        assert!(lines.len() >= 2, "{more:?}: {said}");
        let total = lines[0]
            .split(" of ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        let total: f64 = total.parse().unwrap();
        let expected = bytes / f64::from(1 << 20);
        assert!(
            (total - expected).abs() < expected / 4.0,
            "{total}, not {expected}: {said}"
        );
    }
    let told = succeed(stage.backup("p.bak").args(["--format", "--json"]));
    let told = crate::common::answer(&told);
    let lsn = |name: &str| told[name].as_str().unwrap().to_owned();
    assert!(lsn("first_lsn") < lsn("last_lsn"), "{told}");
    assert_eq!(told["timeline"], 1);
    let said = crate::common::text(&succeed(stage.backup("p.bak").arg("--format")).stdout);
    let what = said
        .lines()
        .find(|line| line.starts_with("full backup of "));
    assert!(what.is_some_and(|line| line.contains(", WAL 0/")), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("Backup of ") && last.ends_with(" on media"),
        "{said}"
    );
}
