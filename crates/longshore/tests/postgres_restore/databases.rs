//! Goal: a restore of some databases of a cluster recovers, with chains, tablespaces and targets, and the others are empty
//! until they are dropped; recovery settings stay as they were on request.
//! Method: real servers; `pg_verifybackup`, `pg_amcheck` and `pg_checksums` judge.
//! Not covered: `CREATE DATABASE … STRATEGY file_copy` after the backup from a database that is left empty.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longshore_kit::{Options, Server, installations, representatives};
use serde_json::Value;

use crate::common::{answer, longshore, text};
use crate::named::{Main, markers, reached};
use crate::stage::{Stage, check, end, judged, refused, succeed};

/// Names that a shell, SQL and a list of lines would each take apart.
const ODD: &str = "o\"d'd\nname $(x) \\";

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn oid(server: &Server, name: &str) -> u32 {
    let name = name.replace('\'', "''");
    let found = server.psql(&format!(
        "select oid from pg_database where datname = '{name}'"
    ));
    found.parse().unwrap()
}

/// Databases with the same table: kept, in a tablespace, with an odd name, a template.
fn filled(server: &Server) {
    for (name, more) in [
        ("kept", ""),
        ("big", "tablespace fast"),
        (ODD, ""),
        ("tmpl", "is_template true"),
    ] {
        server.psql(&format!("create database {} {more}", quoted(name)));
        server
            .try_psql(
                name,
                "create table t as select i, repeat('x', 200) x from generate_series(1, 20000) i; \
                 create index on t (i); create table toast as select repeat(md5(i::text), 500) x from generate_series(1, 50) i",
            )
            .unwrap();
    }
}

/// Changes most pages of every database, in ways that log most kinds of records.
fn change(server: &Server) {
    for name in ["kept", "big", ODD, "tmpl"] {
        server
            .try_psql(
                name,
                "update t set x = 'y' || i where i % 7 = 0; delete from t where i % 11 = 0; vacuum t; \
                 insert into t select i, 'z' from generate_series(20001, 21000) i; create index on t (x); \
                 create table more as select i from generate_series(1, 1000) i; truncate toast; analyze",
            )
            .unwrap();
    }
}

/// Every file of the database is as long as in the whole restore, and has no block.
fn is_empty(found: &Path, whole: &Path, oid: u32) -> usize {
    let (found, whole) = (found.join(oid.to_string()), whole.join(oid.to_string()));
    let mut files = 0;
    for file in fs::read_dir(&whole).unwrap() {
        let name = file.unwrap().file_name();
        let (is, was) = (found.join(&name).metadata(), whole.join(&name).metadata());
        let (is, was) = (is.unwrap(), was.unwrap());
        assert_eq!(is.len(), was.len(), "{name:?}");
        if name == "PG_VERSION" {
            assert!(is.blocks() > 0);
        } else {
            assert_eq!(is.blocks(), 0, "{name:?}");
            files += 1;
        }
    }
    files
}

#[test]
fn chosen_databases_come_back_from_a_chain_at_a_moment_and_the_others_are_empty() {
    for installation in representatives() {
        let main = Main::new(&installation);
        let server = &main.stage.server;
        main.stage.tablespace("fast");
        filled(server);
        main.back_up();
        change(server);
        main.mark(1);
        main.back_up_as("--incremental");
        server.psql_in("kept", "update t set x = 'last' where i = 1");
        change_after(server);
        let at = main.mark(2);
        server.psql_in("kept", "drop table t");
        main.mark(3);
        main.archived(server);

        let space =
            |name: &str| format!("{}={}", space_of(server), main.stage.path(name).display());
        let (whole_space, some_space) = (space("whole space"), space("some space"));
        let whole = ["--target-lsn", &at.lsn, "--tablespace-map", &whole_space];
        let (whole, mut command) = main.restore("whole", &whole);
        judged(&mut command);
        let options = [
            "--target-lsn",
            &at.lsn,
            "--tablespace-map",
            &some_space,
            "--db-include",
            "kept",
        ];
        let (data, mut dry) = main.restore("some", &[&options[..], &["--dry-run"]].concat());
        let told = answer(&judged(&mut dry));
        assert_eq!(names(&told), ["big", ODD, "tmpl"]);
        assert!(!data.exists());
        let (_, mut command) = main.restore("some", &options);
        let told = answer(&judged(&mut command));
        assert_eq!(names(&told), ["big", ODD, "tmpl"]);
        let said = told["run"]["notes"].to_string();
        assert!(said.contains("3 databases were left empty"), "{said}");
        for (name, base, other) in [
            (ODD, data.join("base"), whole.join("base")),
            ("tmpl", data.join("base"), whole.join("base")),
            (
                "big",
                version(&main, "some space"),
                version(&main, "whole space"),
            ),
        ] {
            assert!(is_empty(&base, &other, oid(server, name)) > 100, "{name:?}");
        }
        let verify = installation.program("pg_verifybackup").unwrap();
        succeed(server.command_at(&verify).arg("--no-parse-wal").arg(&data));

        let copy = main.stage.adopt(&data);
        copy.start();
        copy.psql("select pg_wal_replay_resume()");
        assert_eq!(reached(&copy), "1 2");
        assert_eq!(copy.psql_in("kept", "select x from t where i = 1"), "last");
        let refused = copy.try_psql("big", "select 1").unwrap_err();
        assert!(refused.contains("pg_filenode.map"), "{refused}");
        // The command of the note, as it stands; a template is none first.
        copy.psql("alter database tmpl is_template false");
        let drop = said.split(" for PORT: ").nth(1).unwrap();
        let (drop, _) = drop.split_once(" -d postgres").unwrap();
        let drop = drop.replace("\\\\", "\\").replace("\\\"", "\"");
        let run = |at: &Server| {
            let place = format!(
                "-h {} -p {} -U postgres -d postgres",
                at.socket_dir().display(),
                at.port()
            );
            let line = drop.replace("-p PORT", &place);
            assert_ne!(line, drop);
            let mut shell = at.command_at(Path::new("/bin/sh"));
            text(&succeed(shell.args(["-c", &line])).stdout)
        };
        // The original has the same OIDs.
        let count = || server.psql("select count(*) from pg_database");
        let before = count();
        assert_eq!(run(server), "");
        assert_eq!(count(), before);
        assert!(run(&copy).contains("DROP DATABASE"));
        assert_eq!(
            copy.psql("select count(*) from pg_database where oid >= 16384"),
            "1"
        );
        check(&copy, &data);
    }
}

/// Changes whose records come only from the archive.
fn change_after(server: &Server) {
    for name in ["big", ODD] {
        server
            .try_psql(
                name,
                "update t set x = 'again' where i % 5 = 0; delete from t where i % 3 = 0; vacuum full more; vacuum t; checkpoint; \
                 update t set x = 'more' where i % 4 = 0; drop table more; vacuum freeze t; reindex table t",
            )
            .unwrap();
    }
}

fn space_of(server: &Server) -> String {
    server.psql("select oid from pg_tablespace where spcname = 'fast'")
}

/// This version's directory in a tablespace.
fn version(main: &Main, space: &str) -> std::path::PathBuf {
    let mut names = fs::read_dir(main.stage.path(space)).unwrap();
    names.next().unwrap().unwrap().path()
}

fn names(told: &Value) -> Vec<&str> {
    let emptied = told["emptied"].as_array().unwrap().iter();
    emptied.map(|d| d["name"].as_str().unwrap()).collect()
}

#[test]
fn a_database_is_excluded_by_name_or_oid_and_what_cannot_be_is_refused() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let server = &stage.server;
    stage.tablespace("fast");
    filled(server);
    let media = stage.back_up("full", &[]);
    let restore = |name: &str, more: &[&str]| {
        let mut command = stage.restore(&media, &stage.path(name));
        let space = format!(
            "{}={}",
            space_of(server),
            stage.path(&format!("{name} space")).display()
        );
        command
            .args(["--json", "--tablespace-map", &space])
            .args(more);
        command
    };
    let number = oid(server, "big").to_string();
    let mut command = restore("some", &["--db-exclude", ODD, "--db-exclude", &number]);
    let told = answer(&judged(&mut command));
    assert_eq!(names(&told), ["big", ODD]);
    let copy = stage.adopt(&stage.path("some"));
    copy.start();
    for name in ["kept", "tmpl"] {
        assert_eq!(copy.psql_in(name, "select count(*) from t"), "20000");
    }
    assert!(copy.try_psql(ODD, "select 1").is_err());
    drop(copy);
    for (more, expected) in [
        (
            &["--db-exclude", "none"][..],
            "has no database none; it has",
        ),
        (&["--db-include", "99999"], "has no database 99999"),
        (&["--db-exclude", "postgres"], "is always restored"),
        (&["--db-exclude", "1"], "is always restored"),
        (&["--db-exclude", "kept", "--delta"], "cannot be used with"),
        (
            &["--db-include", "kept", "--db-exclude", "big"],
            "cannot be used with",
        ),
        (
            &["--db-include", "kept", "--only", "base"],
            "cannot be used with",
        ),
    ] {
        let output = restore("refused", more).output().unwrap();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(
            !output.status.success() && said.contains(expected),
            "{more:?}: {said}"
        );
        assert!(!stage.path("refused").exists(), "{more:?}");
    }
    // A pipe cannot be searched before it is read, and files have no databases.
    let one = stage.path("one.bak");
    succeed(longshore(["backup", &server.url(), "--remote", "--to"]).arg(&one));
    let mut pipe = longshore(["restore", "-", "--to", "/nowhere/x", "--db-include", "kept"]);
    let said = refused(pipe.stdin(fs::File::open(&one).unwrap()));
    assert!(
        said.contains("needs media that can be read twice"),
        "{said}"
    );
    let tree = stage.path("tree.bak");
    succeed(
        longshore(["backup", "--to"])
            .arg(&tree)
            .arg(file!().replace("crates/longshore/", "")),
    );
    let mut files = longshore(["restore", "--to", "/nowhere/x", "--db-include", "kept"]);
    let said = refused(files.arg(&tree));
    assert!(
        said.contains("not made from a PostgreSQL cluster"),
        "{said}"
    );
    // A set of --remote does not know names.
    let remote = |more: &str| {
        let mut command = longshore(["restore", "--json", "--to"]);
        let space = format!(
            "{}={}",
            space_of(server),
            stage.path("remote space").display()
        );
        command.arg(stage.path("remote")).arg(&one);
        command.args(["--tablespace-map", &space, "--db-exclude", more]);
        command
    };
    let said = text(&remote("big").output().unwrap().stdout);
    assert!(said.contains("big is no OID"), "{said}");
    let told = answer(&judged(&mut remote(&number)));
    assert_eq!(told["emptied"][0]["oid"].to_string(), number);
    let copy = stage.adopt(&stage.path("remote"));
    copy.start();
    assert_eq!(copy.psql_in("kept", "select count(*) from t"), "20000");
}

/// The limit: without full images of the pages that a VACUUM only marks, replay meets an empty page.
#[test]
fn a_cluster_that_does_not_log_hints_is_warned_of() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let options = Options {
        checksums: false,
        wal_segment_mib: 1,
        conf: &[("autovacuum", "off"), ("wal_keep_size", "100MB")],
        ..Options::default()
    };
    let stage = Stage::with(&installation, options);
    stage.server.psql("create database other");
    stage.server.psql_in(
        "other",
        "create table t as select generate_series(1, 5000) i",
    );
    stage.server.psql("checkpoint");
    let media = stage.back_up("full", &[]);
    let data = stage.path("data");
    let mut command = stage.restore(&media, &data);
    let output = end(command.args(["--db-exclude", "other"]), 5);
    let said = text(&output.stderr);
    assert!(
        said.contains("neither page checksums nor wal_log_hints"),
        "{said}"
    );
    // Nothing was vacuumed meanwhile.
    let copy = stage.adopt(&data);
    copy.start();
    assert!(copy.try_psql("other", "select 1").is_err());

    // The warning is about this.
    stage.server.psql_in("other", "vacuum t");
    stage.server.psql("select pg_switch_wal()");
    let fetch = format!("cp {}/pg_wal/%f %p", stage.server.data_dir().display());
    let late = stage.path("late");
    let mut command = stage.restore(&media, &late);
    let options = ["--db-exclude", "other", "--restore-command", &fetch];
    end(command.args(options), 5);
    let ended = stage.adopt(&late).try_start().unwrap_err();
    let expected = "WAL contains references to invalid pages";
    assert!(ended.contains(expected), "{ended}");
}

#[test]
fn recovery_settings_are_kept_or_left_out_on_request() {
    for installation in representatives() {
        let main = Main::new(&installation);
        let server = &main.stage.server;
        let program = crate::common::BINARY;
        let config = main.stage.path("longshore.toml");
        server.psql(&format!(
            "alter system set restore_command = '{program} --catalog none --config {} wal get %f %p --database main'",
            config.display()
        ));
        main.mark(1);
        let label = main.back_up();
        main.mark(2);
        main.archived(server);
        let conf = fs::read(server.data_dir().join("postgresql.auto.conf")).unwrap();

        // The WAL is in the archive alone, so only the settings of the cluster can find it.
        let (data, mut command) = main.restore("none", &["--recovery-settings", "none"]);
        let said = text(&command.output().unwrap().stdout);
        assert!(
            said.contains("does not hold its WAL") && !data.exists(),
            "{said}"
        );
        let (data, mut command) = main.restore("keep", &["--recovery-settings", "keep"]);
        let said = text(&judged(&mut command).stdout);
        assert!(said.contains("settings that were kept"), "{said}");
        assert_eq!(fs::read(data.join("postgresql.auto.conf")).unwrap(), conf);
        assert!(data.join("recovery.signal").exists());
        let copy = main.stage.adopt(&data);
        copy.start();
        assert_eq!(reached(&copy), "1 2");
        drop(copy);
        for option in [
            &["--target-immediate"][..],
            &["--standby"],
            &["--target-timeline", "latest"],
            &["--restore-command", "x"],
        ] {
            let (_, mut command) = main.restore("refused", &["--recovery-settings", "keep"]);
            let output = end(command.args(option), 2);
            assert!(
                text(&output.stdout).contains("--recovery-settings"),
                "{option:?}"
            );
        }
        let (_, mut command) =
            main.restore("refused", &["--label", &label, "--recovery-settings", "x"]);
        end(&mut command, 2);

        // As after a crash, on the same timeline, with the WAL of the set alone.
        main.back_up_as("--with-wal");
        let conf = fs::read(server.data_dir().join("postgresql.auto.conf")).unwrap();
        main.mark(3);
        main.archived(server);
        let (data, mut command) =
            main.restore("crash", &["--recovery-settings", "none", "--no-archiving"]);
        judged(&mut command);
        let found = fs::read(data.join("postgresql.auto.conf")).unwrap();
        assert!(found.starts_with(&conf));
        assert_eq!(found.len() - conf.len(), longshore_pg_no_archiving());
        assert!(!data.join("recovery.signal").exists());
        let copy = main.stage.adopt(&data);
        copy.start();
        assert_eq!(markers(&copy), "1 2");
        assert_eq!(
            copy.psql("select timeline_id from pg_control_checkpoint()"),
            "1"
        );
        check(&copy, &data);
        // A delta removes what an earlier restore requested.
        let (data, mut command) = main.restore("keep", &["--delta", "--recovery-settings", "none"]);
        judged(&mut command);
        assert!(!data.join("recovery.signal").exists());
    }
}

/// Bytes of the lines with which `--no-archiving` ends the file.
fn longshore_pg_no_archiving() -> usize {
    "\n# By longshore restore\narchive_mode = 'off'\n".len()
}
