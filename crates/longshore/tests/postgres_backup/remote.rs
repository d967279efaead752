//! Goal: a cluster that its server sends comes back as it was, with the same files in the set as one that the program
//! reads itself.
//! Method: real servers; dumps are compared, and the server's own choice of files is the reference for ours.
//! Not covered: a server on another machine; a foreign `postmaster.pid` stands for one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use longshore_kit::{Options, Server, installations, representatives};

use crate::common::{longshore, text};
use crate::stage::{Stage, check, dump, end, paths, same, succeed};

#[test]
fn a_cluster_sent_by_its_server_comes_back_as_it_was() {
    for installation in installations() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        server.psql(
            "create table t as select g, md5(g::text) m from generate_series(1, 50000) g; create index on t (m);
             create unlogged table u as select 1; create table tiny (i int); checkpoint",
        );
        let before = dump(server);
        succeed(stage.backup("sent.bak").arg("--remote"));
        succeed(&mut stage.backup("read.bak"));
        let names = |name: &str| -> BTreeSet<String> {
            // Each has segments of its own, and says of each that it need not be archived again.
            let is_log = |path: &String| {
                path.starts_with("pg_wal/0") || path.starts_with("pg_wal/archive_status/0")
            };
            let all = paths(&stage.path(name));
            assert_eq!(all.iter().filter(|path| is_log(path)).count() % 2, 0);
            // The list of databases is ours; the server does not send it.
            all.into_iter()
                .filter(|path| !is_log(path) && path != "longshore-databases")
                .collect()
        };
        // The server's own choice of files is the reference for ours.
        let (sent, read) = (names("sent.bak"), names("read.bak"));
        let differing: Vec<_> = sent.symmetric_difference(&read).collect();
        assert!(
            differing.is_empty(),
            "PostgreSQL {}: {differing:?}",
            installation.major
        );
        let (target, restored) = stage.restored("sent.bak");
        same(&dump(&restored), &before);
        check(&restored, &target);
    }
}

/// Also if the location has a name that archives and maps have to escape.
#[test]
fn sent_tablespaces_are_stored_where_read_ones_are() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let location = stage.path("a \\ b\nc");
        std::fs::create_dir(&location).unwrap();
        stage.server.user().own(&location);
        stage.server.psql(&format!(
            "create tablespace space location '{}';
             create table s (i) tablespace space as select generate_series(1, 200000);
             create database far tablespace space",
            location.display()
        ));
        let before = dump(&stage.server);
        succeed(stage.backup("sent.bak").arg("--remote"));
        succeed(&mut stage.backup("read.bak"));
        let table = stage.server.psql("select pg_relation_filepath('s')");
        let oid = stage
            .server
            .psql("select oid from pg_tablespace where spcname = 'space'");
        for name in ["sent.bak", "read.bak"] {
            let paths = paths(&stage.path(name));
            assert!(paths.contains(&table), "{name}: {table}");
            assert!(paths.contains("tablespace_map"));
            let (target, moved) = (stage.path("data"), stage.path("moved \\ to\nhere"));
            let mut restore = longshore(["restore", "--to"]);
            restore.arg(&target).arg(stage.path(name));
            let map = format!("{oid}={}", moved.display());
            succeed(restore.args(["--tablespace-map", &map]));
            let copy = Server::adopt(&installation, &target);
            copy.start();
            let as_dumped = |path: &Path| path.to_str().unwrap().replace('\\', "\\\\");
            let found = dump(&copy).replace(&as_dumped(&moved), &as_dumped(&location));
            same(&found, &before);
            check(&copy, &target);
            drop(copy);
            fs::remove_dir_all(&target).unwrap();
            fs::remove_dir_all(&moved).unwrap();
        }
    }
}

/// If a server's files are out of reach, it is asked to send them; a role without the right is told what is missing.
#[test]
fn a_server_elsewhere_sends_its_files_without_being_told() {
    for installation in representatives() {
        let server = Server::create(
            &installation,
            Options {
                wal_segment_mib: 1,
                ..Options::default()
            },
        );
        server.start();
        let stage = Stage::of(server);
        let server = &stage.server;
        // The directory of that name here belongs to a server with another start time: another machine's.
        let pid_file = server.data_dir().join("postmaster.pid");
        let pid = fs::read_to_string(&pid_file).unwrap();
        let mut lines: Vec<&str> = pid.lines().collect();
        lines[2] = "1000000000";
        fs::write(&pid_file, lines.join("\n") + "\n").unwrap();
        let output = succeed(stage.backup("away.bak").arg("--verbose"));
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains("the server sends its files itself"), "{said}");
        fs::write(&pid_file, &pid).unwrap();
        server.psql("create role weak login; grant pg_read_all_settings to weak");
        let url = server.url().replace("//postgres@", "//weak@");
        let mut command = crate::common::longshore(["backup", url.as_str(), "--remote", "--to"]);
        let output = end(command.arg(stage.path("weak.bak")), 3);
        assert!(text(&output.stderr).contains("42501") || text(&output.stderr).contains("28000"));
        assert!(!stage.path("weak.bak").exists());
    }
}
