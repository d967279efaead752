//! Goal: a chain restores, byte for byte, what a full backup of the same moment restores, whatever happened to LSNs,
//! file numbers, clocks, timelines and hints between its sets.
//! Method: real servers at rest; each differential is followed by a full backup, and both are restored and compared.
//! Not covered: servers under load, where no two backups are of one moment (`live.rs`).

use std::path::Path;
use std::process::Command;

use longshore_kit::{Options, Server, Stop};

use crate::common::{answer, longshore, text};
use crate::differential::{compare, differential, relevant, some, ways};
use crate::stage::{Stage, check, end, succeed};

/// Makes a differential on `base` and then a full backup of the resting server; returns the differential's report and
/// the directory of the restored chain, which is compared with the full one's.
fn equal(stage: &Stage, name: &str, base: &str) -> (serde_json::Value, std::path::PathBuf) {
    let whole = format!("{name}-whole");
    // A backup's own queries set hint bits in catalog pages: later backups find them set.
    succeed(&mut stage.backup(&format!("{name}-before")));
    let report = answer(&succeed(&mut stage.differing(name, "--differential", base)));
    succeed(&mut stage.backup(&whole));
    let target = stage.tree(&[base, name]);
    compare(&relevant(&target), &relevant(&stage.tree(&[&whole])));
    (report, target)
}

fn without_checksums(installation: &longshore_kit::Installation, conf: &[(&str, &str)]) -> Stage {
    let server = Server::create(
        installation,
        Options {
            conf,
            wal_segment_mib: 1,
            checksums: false,
            ..Options::default()
        },
    );
    server.start();
    Stage::of(server)
}

/// Goal: page changes without a WAL record are in the chain: hint bits, "all visible", free space.
#[test]
fn hints_and_maps_are_those_of_a_full_backup() {
    for installation in some() {
        for conf in ways(&installation) {
            let stage = without_checksums(&installation, conf);
            let server = &stage.server;
            server.psql(
                "create table t as select g, repeat('x', 90) p from generate_series(1, 10000) g",
            );
            succeed(&mut stage.backup("full"));
            server.psql("select count(*) from t");
            let (hinted, _) = equal(&stage, "hinted", "full");
            let changed = |report: &serde_json::Value| {
                differential(report)["changed_bytes"].as_u64().unwrap()
            };
            // A server may have extended the file by empty pages, which have no hints.
            let filled = "select 8192 * count(distinct (ctid::text::point)[0]) from t";
            let pages: u64 = server.psql(filled).parse().unwrap();
            assert!(changed(&hinted) >= pages, "every page of t got its hints");
            assert_eq!(differential(&hinted)["method"], "page sums");
            server.psql("vacuum t");
            let (_, target) = equal(&stage, "vacuumed", "full");
            let restored = stage.serve(&target);
            let seen = restored.psql("create extension pg_visibility; select all_visible from pg_visibility_map_summary('t')");
            assert_ne!(seen, "0", "PostgreSQL {}", installation.major);
        }
    }
}

/// Goal: a file number that belonged to another relation in the base brings none of its content back, although its
/// pages are older.
/// Method: the OID counter is set to the number of a relation in a tablespace that was dropped since the base; under
/// `wal_level = minimal` another relation is moved there, and its pages keep their LSNs.
#[test]
fn a_number_used_again_without_log_is_the_new_relation() {
    for installation in some() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        let space = stage.path("space");
        std::fs::create_dir(&space).unwrap();
        server.user().own(&space);
        server.psql(&format!(
            "create tablespace s location '{}'",
            space.display()
        ));
        server.psql(
            "create table kept as select g, repeat('kept', 30) p from generate_series(1, 20000) g",
        );
        server.psql("create table gone tablespace s as select g, repeat('gone', 30) p from generate_series(1, 20000) g");
        server.psql("vacuum");
        let number = server.psql("select pg_relation_filenode('gone')");
        succeed(&mut stage.backup("full"));
        server.psql("drop table gone");
        server.psql("checkpoint");
        let conf = server.data_dir().join("postgresql.conf");
        let replica = std::fs::read_to_string(&conf).unwrap();
        server.stop(Stop::Fast);
        let mut reset = server.command("pg_resetwal");
        reset.args(["-o", &number, "-D"]);
        succeed(reset.arg(server.data_dir()));
        server.append_conf("wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0");
        server.start();
        server.psql("alter table kept set tablespace s");
        assert_eq!(server.psql("select pg_relation_filenode('kept')"), number);
        server.stop(Stop::Fast);
        std::fs::write(&conf, replica).unwrap();
        server.start();
        server.psql("checkpoint");
        succeed(&mut stage.differing("diff", "--differential", "full"));
        let map = format!("{}={}", space.display(), stage.path("far").display());
        let target = stage.path("restored");
        let mut restore = longshore(["restore", "--tablespace-map", &map, "--to"]);
        restore.arg(&target).arg(stage.path("diff"));
        succeed(restore.arg("--base").arg(stage.path("full")));
        server.user().own(&stage.path("far"));
        let restored = stage.serve(&target);
        let found = restored.psql("select count(*), min(p), max(p) from kept");
        let kept = "kept".repeat(30);
        assert_eq!(found, format!("20000|{kept}|{kept}"));
        check(&restored, &target);
    }
}

/// Goal: a WAL reset, checksums enabled since the base, and a database created again are in the chain.
#[test]
fn resets_checksums_and_databases_made_again_are_those_of_a_full_backup() {
    for installation in some() {
        let stage = without_checksums(&installation, &[]);
        let server = &stage.server;
        server
            .psql("create table t as select g, repeat('x', 90) p from generate_series(1, 10000) g");
        server.psql("create database one oid = 50001");
        server.psql_in(
            "one",
            "create table o as select 'old' as t from generate_series(1, 3000)",
        );
        server.psql("create database two template one strategy file_copy");
        server.psql_in("two", "update o set t = 'new'");
        succeed(&mut stage.backup("full"));
        server.psql("drop database one");
        server.psql("create database one template two oid = 50001 strategy file_copy");
        // A file's time proves nothing.
        let version = |oid: &str| server.data_dir().join(format!("base/{oid}/PG_VERSION"));
        let time = std::fs::metadata(version("1")).unwrap().modified().unwrap();
        let file = std::fs::File::options().write(true).open(version("50001"));
        file.unwrap().set_modified(time).unwrap();
        let (_, target) = equal(&stage, "again", "full");
        let restored = stage.serve(&target);
        assert_eq!(restored.psql_in("one", "select distinct t from o"), "new");
        drop(restored);

        server.psql("update t set p = 'reset' where g % 100 = 0");
        server.stop(Stop::Fast);
        let mut reset = server.command("pg_resetwal");
        succeed(reset.arg("-D").arg(server.data_dir()));
        server.start();
        equal(&stage, "reset", "full");

        server.stop(Stop::Fast);
        let mut enable = server.command("pg_checksums");
        succeed(enable.arg("--enable").arg("-D").arg(server.data_dir()));
        server.start();
        let (_, target) = equal(&stage, "summed", "full");
        check(&stage.serve(&target), &target);
    }
}

/// Goal: a base of a clone brings none of the clone's rows into production's chain, although the clone's timeline has
/// the same number as production's, and neither clock nor names show a difference.
/// Method: two restores of one backup open on timeline 2 each and change the same pages; production's differential is
/// made on the clone's full.
#[test]
fn a_clone_s_backup_as_the_base_brings_no_row_of_the_clone() {
    for installation in some() {
        for conf in ways(&installation) {
            let origin = Stage::new(&installation, conf);
            let server = &origin.server;
            server.psql(
                "create table t as select g, repeat('x', 90) p from generate_series(1, 10000) g",
            );
            server.psql("vacuum");
            succeed(&mut origin.backup("origin"));
            server.stop(Stop::Fast);
            let opened = |name: &str, rows: &str| {
                let target = origin.path(name);
                let mut restore = longshore(["restore", "--to"]);
                succeed(restore.arg(&target).arg(origin.path("origin")));
                let stage = Stage::of(origin.serve(&target));
                let timeline = "select timeline_id from pg_control_checkpoint()";
                stage.server.wait_for("select pg_is_in_recovery()", "f");
                stage.server.psql("checkpoint");
                assert_eq!(stage.server.psql(timeline), "2");
                stage
                    .server
                    .psql(&format!("update t set p = '{rows}' where g % 3 = 0"));
                stage
            };
            let production = opened("production", "production");
            let clone = opened("clone", "clone");
            succeed(&mut clone.backup("full"));
            std::fs::rename(clone.path("full"), production.path("full")).unwrap();
            production
                .server
                .psql("update t set p = 'later' where g % 100 = 0");
            let (report, target) = equal(&production, "diff", "full");
            assert_eq!(differential(&report)["method"], "page sums", "{report}");
            let restored = production.serve(&target);
            let count = |rows| restored.psql(&format!("select count(*) from t where p = '{rows}'"));
            assert_eq!((count("clone"), count("later")), ("0".into(), "100".into()));
            check(&restored, &target);
        }
    }
}

/// Goal: if WAL summaries do not name the changes, the backup fails with a message, and a full one follows if that is
/// allowed.
/// Method: pages of a table at rest are changed on the disk, unknown to the server, together with their LSNs.
#[test]
fn summaries_that_miss_a_page_are_caught_by_a_sample() {
    for installation in some().into_iter().filter(|i| i.major >= 17) {
        let conf = [("summarize_wal", "on"), ("wal_log_hints", "on")];
        let stage = without_checksums(&installation, &conf);
        let server = &stage.server;
        server.psql(
            "create table t as select g, repeat('x', 400) p from generate_series(1, 60000) g",
        );
        server.psql("vacuum");
        succeed(&mut stage.backup("full"));
        let report = answer(&succeed(&mut stage.differing(
            "named",
            "--differential",
            "full",
        )));
        assert_eq!(differential(&report)["method"], "WAL summaries", "{report}");
        let read = differential(&report)["read_bytes"].as_u64().unwrap();
        let whole = server
            .psql("select pg_relation_size('t')")
            .parse::<u64>()
            .unwrap();
        assert!(0 < read && read < whole / 4, "{read} of {whole}");
        let name = server.psql("select pg_relation_filepath('t')");
        scribble(&server.data_dir().join(name));
        let output = end(&mut stage.differing("missed", "--differential", "full"), 3);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("WAL summaries do not name it"), "{said}");
        assert!(!stage.path("missed").exists());
        let mut command: Command = stage.differing("whole", "--differential", "full");
        let report = answer(&succeed(command.arg("--or-full")));
        assert!(differential(&report).is_null(), "{report}");
    }
}

/// Changes a byte in the middle of each page.
fn scribble(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes.chunks_mut(8192).for_each(|page| page[6000] ^= 1);
    std::fs::write(path, bytes).unwrap();
}
