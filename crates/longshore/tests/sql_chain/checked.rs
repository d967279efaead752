//! Goal: DBCC CHECKDB of a cluster has the server check all its databases, tells damage as an error, and installs nothing.
//! Method: `longshore sql` on a real server whose tables are sound, whose index lacks rows, and whose table has a page that is none.
//! Not covered: other majors than the newest here.

use std::time::{Duration, Instant};

use longshore_kit::{Installation, Stop, installations};

use crate::stage::Stage;

const DONE: &str =
    "DBCC execution completed. If DBCC printed error messages, contact your system administrator.";

/// The newest installation that has the extension.
fn installed() -> Option<Installation> {
    let mut all = installations();
    all.retain(|i| i.bin_dir.join("pg_amcheck").exists());
    all.pop()
}

fn found(count: u32) -> String {
    format!("CHECKDB found 0 allocation errors and {count} consistency errors in database 'main'.")
}

#[test]
fn a_cluster_is_checked_in_all_its_databases() {
    let Some(installation) = installed() else {
        return;
    };
    let stage = Stage::new(&installation);
    let server = &stage.server;
    server.psql("create database shop");
    let (number, said) = stage.refused("DBCC CHECKDB (main)");
    assert_eq!(number, 50_002, "{said}");
    for part in [
        "CREATE EXTENSION amcheck",
        "longshore drill main",
        "and 2 others",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let extensions = "select count(*) from pg_extension where extname = 'amcheck'";
    assert_eq!(server.psql(extensions), "0");

    server.psql_in(
        "postgres",
        "create schema \"Own\"; create extension amcheck schema \"Own\"",
    );
    server.psql_in(
        "shop",
        "create extension amcheck; create table ware (id int primary key)",
    );
    let (_, said) = stage.refused("DBCC CHECKDB (main)");
    assert!(said.contains("database template1 lacks"), "{said}");
    server.psql_in("template1", "create extension amcheck");
    let said = stage.done("DBCC CHECKDB (main); SELECT @@ERROR");
    let lines: Vec<&str> = said.lines().collect();
    let sound = found(0);
    assert_eq!(
        lines[..3],
        ["DBCC results for 'main'.", &sound, DONE],
        "{said}"
    );
    assert!(
        stage
            .done("DBCC CHECKDB (main) WITH NO_INFOMSGS")
            .trim()
            .is_empty()
    );

    // An index whose check would call a user's function is not checked, and that is said.
    server.psql_in(
        "shop",
        "create function twice(i int) returns int language sql immutable as 'select i * 2'; \
         create index by_twice on ware (twice(id))",
    );
    let said = stage.done("DBCC CHECKDB (main) WITH NO_INFOMSGS");
    assert!(said.contains("1 indexes were not checked"), "{said}");

    // An index without the newest rows of its table.
    server.psql("create index by_i on large (i)");
    server.psql("update pg_index set indisready = false where indexrelid = 'by_i'::regclass");
    server.psql("insert into large values (20001, 'unseen')");
    server.psql("update pg_index set indisready = true where indexrelid = 'by_i'::regclass");
    let (number, said) = stage.refused("DBCC CHECKDB (main)");
    assert_eq!(number, 50_000, "{said}");
    for part in [
        "PostgreSQL found damage: postgres: public.by_i: ",
        "lacks matching index tuple",
        &found(1),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    stage.done("DBCC CHECKDB (main, NOINDEX)");

    // The header of a table's page.
    let file = server.psql("checkpoint; select pg_relation_filepath('large')");
    server.stop(Stop::Fast);
    let path = server.data_dir().join(file.trim());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3 * 8192..][..24].fill(0xFF);
    std::fs::write(&path, bytes).unwrap();
    server.start();
    let (number, said) = stage.refused("DBCC CHECKDB (main) WITH PHYSICAL_ONLY");
    assert_eq!(number, 50_000, "{said}");
    assert!(said.contains("postgres: public.large: "), "{said}");
    assert!(said.contains(&found(1)), "{said}");
}

/// Goal: a table that somebody has locked keeps a check waiting until a cancel, and is left as it is.
#[test]
fn a_cancelled_check_of_a_cluster_ends_soon() {
    let Some(installation) = installed() else {
        return;
    };
    let stage = Stage::new(&installation);
    let server = &stage.server;
    for database in ["postgres", "template1"] {
        server.psql_in(database, "create extension amcheck");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| server.psql("begin; lock table large; select pg_sleep(8); commit"));
        let locked = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and granted \
                      and relation = 'large'::regclass";
        server.wait_for(locked, "1");
        let mut command = stage.command(&["sql", "-Q", "DBCC CHECKDB (main)", "-t", "1"]);
        let began = Instant::now();
        let output = command.output().unwrap();
        let said = crate::common::text(&output.stdout) + &crate::common::text(&output.stderr);
        assert!(began.elapsed() < Duration::from_secs(6), "{said}");
        assert!(!said.contains("CHECKDB found"), "{said}");
        let waiting = "select count(*) from pg_stat_activity where application_name like 'longshore%' \
                       and state = 'active'";
        server.wait_for(waiting, "0");
    });
}
