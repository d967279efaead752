//! Goal: a backup of a cluster holds the files that belong into it and leaves out those that PostgreSQL's own backup
//! leaves out.
//! Method: real servers with a file of every kind put into their directories; the paths in the set are compared with
//! the list of `010_pg_basebackup.pl`.
//! Not covered: the files' content.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use longshore_kit::{installations, representatives};

use crate::common::text;
use crate::stage::{Stage, paths, succeed};

/// The list in PostgreSQL's `010_pg_basebackup.pl`, and the names that another backup leaves behind.
const LEFT_OUT: &[&str] = &[
    "backup_label",
    "backup_label.old",
    "tablespace_map",
    "tablespace_map.old",
    "backup_manifest",
    "current_logfiles.tmp",
    "postgresql.auto.conf.tmp",
    "recovery.signal.no",
    "global/pg_internal.init",
    "global/pg_internal.init.123",
    "base/pgsql_tmp/pgsql_tmp.1",
    "pg_dynshmem/x",
    "pg_notify/x",
    "pg_replslot/x",
    "pg_serial/x",
    "pg_snapshots/x",
    "pg_stat_tmp/x",
    "pg_subtrans/x",
    "pg_wal/x",
    "pg_wal/archive_status/x",
];

#[test]
fn only_what_belongs_into_a_backup_is_in_it() {
    for installation in installations() {
        let major = installation.major;
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        let data = server.data_dir();
        server.psql(
            "create unlogged table u (i int primary key, t text); insert into u values (1, repeat('x', 9000));
             create table l (i int); insert into l values (1); vacuum l; checkpoint",
        );
        let file = |table: &str| server.psql(&format!("select pg_relation_filepath('{table}')"));
        let (unlogged, index, logged) = (file("u"), file("u_pkey"), file("l"));
        let database = logged.rsplit_once('/').unwrap().0.to_owned();
        let kept_name = "recovery.signal.no";
        for name in LEFT_OUT {
            let path = data.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if !path.exists() {
                std::fs::write(&path, b"x").unwrap();
            }
        }
        let temporary = ["t888_888", "t888888_888888_vm.1", "pgsql_tmp9"];
        for name in temporary {
            std::fs::write(data.join(&database).join(name), b"x").unwrap();
        }
        // Files with the number of an unlogged relation, of any fork and segment.
        for suffix in ["_fsm", "_vm", ".1"] {
            std::fs::write(data.join(format!("{unlogged}{suffix}")), b"x").unwrap();
        }
        let _socket = UnixListener::bind(data.join("a_socket")).unwrap();
        symlink("/etc/hostname", data.join("linked.conf")).unwrap();
        server.user().own(&data.join("linked.conf"));

        let output = stage.backup("a.bak").output().unwrap();
        let said = text(&output.stderr);
        assert!(
            said.contains("a_socket") && said.contains("linked.conf"),
            "{said}"
        );
        // The link may lead to something that the cluster needs; nothing of a socket could be in a backup.
        assert_eq!(output.status.code(), Some(5), "{said}");
        let paths = paths(&stage.path("a.bak"));
        let has = |path: &str| paths.contains(path);
        for name in LEFT_OUT.iter().filter(|name| **name != kept_name) {
            // The backup brings a label of its own.
            assert!(!has(name) || *name == "backup_label", "{major}: {name}");
        }
        for name in ["postmaster.pid", "postmaster.opts", "a_socket"] {
            assert!(!has(name), "{major}: {name}");
        }
        for name in temporary {
            assert!(!has(&format!("{database}/{name}")), "{major}: {name}");
        }
        for relation in [&unlogged, &index] {
            assert!(has(&format!("{relation}_init")), "{major}: {relation}");
            for suffix in ["", "_fsm", "_vm", ".1"] {
                assert!(
                    !has(&format!("{relation}{suffix}")),
                    "{major}: {relation}{suffix}"
                );
            }
        }
        for name in [
            kept_name,
            "linked.conf",
            "PG_VERSION",
            "global/pg_control",
            "global/pg_filenode.map",
            "backup_label",
            "postgresql.auto.conf",
            "pg_wal",
            "pg_wal/archive_status",
            "pg_replslot",
            &logged,
            &format!("{logged}_vm"),
        ] {
            assert!(has(name), "{major}: {name} is missing");
        }
        assert_eq!(has("pg_wal/summaries"), major >= 17);
        let wal = |path: &&String| path.starts_with("pg_wal/0");
        assert!(paths.iter().filter(wal).count() >= 1, "{major}: no log");
        assert_eq!(std::fs::read(data.join("backup_label")).unwrap(), b"x");
    }
}

/// Tablespaces are links and the files of this major below them, in-place ones directories, and one inside the data
/// directory is not copied twice.
#[test]
fn tablespaces_are_copied_once_and_only_for_this_major() {
    for installation in representatives() {
        let major = installation.major;
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        let outside = stage.path("outside");
        let inside = server.data_dir().join("inside");
        for dir in [&outside, &inside] {
            std::fs::create_dir(dir).unwrap();
            std::fs::create_dir(dir.join("PG_9_1")).unwrap();
            std::fs::write(dir.join("PG_9_1/other"), b"x").unwrap();
            server.user().own(dir);
        }
        server.psql(&format!(
            "create tablespace outside location '{}'; create tablespace inside location '{}';
             create table o (i) tablespace outside as select generate_series(1, 100);
             create table i (i) tablespace inside as select generate_series(1, 100)",
            outside.display(),
            inside.display()
        ));
        let mut kept: Vec<String> = ["o", "i"]
            .iter()
            .map(|t| server.psql(&format!("select pg_relation_filepath('{t}')")))
            .collect();
        if major >= 15 {
            server.psql(
                "set allow_in_place_tablespaces = on; create tablespace in_place location '';
                 create table p (i) tablespace in_place as select generate_series(1, 100)",
            );
            kept.push(server.psql("select pg_relation_filepath('p')"));
        }
        succeed(&mut stage.backup("spaces.bak"));
        let paths = paths(&stage.path("spaces.bak"));
        for path in &kept {
            assert!(paths.contains(path), "{major}: {path}");
            let filenode = path.rsplit_once('/').unwrap().1;
            let copies = paths
                .iter()
                .filter(|p| p.ends_with(&format!("/{filenode}")))
                .count();
            assert_eq!(copies, 1, "{major}: {path}");
        }
        assert!(!paths.iter().any(|p| p.contains("PG_9_1")), "{major}");
        assert!(paths.contains("inside") && paths.contains("tablespace_map"));
    }
}

/// A database directory behind a symbolic link would be omitted silently.
#[test]
fn linked_data_are_refused() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let link = stage.server.data_dir().join("base/4242");
    symlink(stage.dir.path(), &link).unwrap();
    let output = stage.backup("linked.bak").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("base/4242"));
    assert!(!stage.path("linked.bak").exists());
}
