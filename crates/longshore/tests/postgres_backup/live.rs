//! Backups under a workload.

use std::process::Stdio;

use longshore_test_servers::installations;

use crate::common::{Guarded, from_env};
use crate::stage::{Stage, check, dump, succeed};

/// Tables and databases come and go, grow, shrink and are rewritten.
const CHURN: &str = r"
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
checkpoint;
";

/// Goal: a backup taken under writes and DDL restores to a cluster that is whole, and to a state that existed.
/// Method: pgbench's bank keeps the sum of balances equal to the sum of its history in every committed state; so
/// must the restored one be. Its heaps, indexes and pages are checked by PostgreSQL's tools.
#[test]
fn a_cluster_backed_up_under_load_comes_back_whole() {
    for installation in installations() {
        let stage = Stage::new(&installation, &[("checkpoint_timeout", "30s")]);
        let server = &stage.server;
        succeed(server.command("pgbench").args(["-i", "-q", "-s", "3"]));
        let script = stage.path("churn.sql");
        std::fs::write(&script, CHURN).unwrap();
        for round in 0..from_env("LONGSHORE_PG_ROUNDS", 1) {
            let mut bank = server.command("pgbench");
            bank.args(["-n", "-c", "3", "-T", "600", "-f"]);
            let churn = bank
                .arg(&script)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let churn = Guarded(churn.spawn().unwrap());
            let mut bank = server.command("pgbench");
            bank.args(["-n", "-c", "3", "-T", "600"]);
            let bank = bank.stdout(Stdio::null()).stderr(Stdio::null());
            let bank = Guarded(bank.spawn().unwrap());
            server.wait_for("select count(*) > 50 from pgbench_history", "t");
            let name = format!("live{round}.bak");
            succeed(stage.backup(&name).args(["--max-rate", "40MB"]));
            drop((bank, churn));
            let (target, restored) = stage.restored(&name);
            let sums = restored.psql(
                "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history),
                        (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history),
                        (select sum(tbalance) from pgbench_tellers) = (select sum(delta) from pgbench_history)",
            );
            assert_eq!(sums, "t|t|t", "PostgreSQL {}", installation.major);
            check(&restored, &target);
        }
    }
}

/// Goal: what was committed before the backup began is all there, and nothing but it in a quiet cluster.
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
    for installation in installations() {
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
