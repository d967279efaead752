//! Goal: unusual clusters come back: odd names and locations, linked WAL, later timelines, group access, backups at the
//! same time.
//! Method: real servers; each restored one is started and asked for its rows.
//! Not covered: names in the encodings of other locales.

use std::os::unix::fs::{PermissionsExt, symlink};

use longshore_kit::{Options, Server, Stop, installations, representatives};

use crate::common::{BINARY, expect, longshore, text};
use crate::session::send;
use crate::stage::{Stage, check, dump, end, paths, same, succeed};

/// A tablespace's location and the names of databases, relations and the cluster may be anything that PostgreSQL
/// accepts: `tablespace_map` escapes line ends and backslashes, and a restore has to find the same location in it.
#[test]
fn names_and_places_may_be_odd() {
    for installation in representatives() {
        let major = installation.major;
        let stage = Stage::new(&installation, &[("cluster_name", "x/../y z")]);
        let server = &stage.server;
        let space = stage.path("a \\ b\nc \"d\" \u{e9}");
        std::fs::create_dir(&space).unwrap();
        server.user().own(&space);
        let location = space.to_str().unwrap();
        server.psql(&format!(
            "create tablespace \"odd\n\\ space\" location '{location}'"
        ));
        server.psql("create database \"a\"\"b'c\\d \u{fc} /..\" tablespace \"odd\n\\ space\"");
        server.psql("create table \"t\n'\"\"\" (i) tablespace \"odd\n\\ space\" as select generate_series(1, 100)");
        if major >= 15 {
            server.psql(
                "set allow_in_place_tablespaces = on; create tablespace in_place location '';
                 create table p (i) tablespace in_place as select generate_series(1, 100)",
            );
        }
        let before = dump(server);
        succeed(&mut stage.backup("odd.bak"));
        let (media, target) = (stage.path("odd.bak"), stage.path("odd"));
        let moved = stage.path("moved \\ to\nhere");
        let oid = server.psql("select oid from pg_tablespace where spcname like 'odd%'");
        let map = format!("{oid}={}", moved.display());
        expect(
            0,
            [
                "restore".as_ref(),
                media.as_os_str(),
                "--to".as_ref(),
                target.as_os_str(),
                "--tablespace-map".as_ref(),
                map.as_ref(),
            ],
        );
        let copy = Server::adopt(&installation, &target);
        if major >= 15 {
            // Recovery refuses directories in place of links without it, in every copy of such a cluster.
            copy.append_conf("allow_in_place_tablespaces = on");
        }
        copy.start();
        let as_dumped = |path: &str| path.replace('\\', "\\\\");
        let (here, there) = (as_dumped(location), as_dumped(moved.to_str().unwrap()));
        let after = dump(&copy).replace(&there, &here);
        same(&after, &before);
        check(&copy, &target);
    }
}

/// The WAL may be on a volume of its own. A copy has it inside, and its origin's link is not followed.
#[test]
fn a_linked_log_becomes_a_directory() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        server.stop(Stop::Fast);
        let (wal, elsewhere) = (server.data_dir().join("pg_wal"), stage.path("wal"));
        std::fs::rename(&wal, &elsewhere).unwrap();
        symlink(&elsewhere, &wal).unwrap();
        server.user().own(&wal);
        server.start();
        server.psql("create table t as select generate_series(1, 1000)");
        succeed(&mut stage.backup("linked.bak"));
        let (target, copy) = stage.restored("linked.bak");
        let inside = target.join("pg_wal").symlink_metadata().unwrap();
        assert!(inside.is_dir());
        assert_eq!(copy.psql("select count(*) from t"), "1000");
        check(&copy, &target);
    }
}

/// A cluster that was promoted is on a later timeline; the history files that led there belong to its WAL.
#[test]
fn a_promoted_cluster_comes_back_with_its_history() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        server.psql("create table t as select generate_series(1, 1000)");
        server.stop(Stop::Fast);
        std::fs::write(server.data_dir().join("standby.signal"), "").unwrap();
        server.user().own(&server.data_dir().join("standby.signal"));
        server.start();
        server.psql("select pg_promote()");
        server.psql("insert into t values (0); checkpoint");
        succeed(&mut stage.backup("second.bak"));
        succeed(stage.backup("sent.bak").arg("--remote"));
        for name in ["second.bak", "sent.bak"] {
            let paths = paths(&stage.path(name));
            assert!(
                paths.contains("pg_wal/00000002.history"),
                "{name}: {paths:?}"
            );
        }
        let (target, copy) = stage.restored("second.bak");
        assert_eq!(copy.psql("select count(*) from t"), "1001");
        assert_eq!(
            copy.psql("select timeline_id from pg_control_checkpoint()"),
            "3",
            "it opens on a timeline of its own"
        );
        check(&copy, &target);
    }
}

/// A member of the cluster's group may back up a cluster that was created with group access, and no other.
#[test]
fn the_group_may_read_where_the_cluster_lets_it() {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !is_root {
        eprintln!("skipped: only root can be another user");
        return;
    }
    for installation in installations().into_iter().rev().take(1) {
        for group_access in [true, false] {
            let options = Options {
                group_access,
                ..Options::default()
            };
            let server = Server::create(&installation, options);
            server.start();
            let stage = Stage::of(server);
            let program = stage.path("longshore");
            // Another thread's new process could hold a descriptor that this one writes to: "text file busy".
            succeed(
                std::process::Command::new("cp").args([std::path::Path::new(BINARY), &program]),
            );
            std::fs::set_permissions(stage.dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
            let group = std::fs::metadata(stage.server.data_dir()).unwrap();
            let group = std::os::unix::fs::MetadataExt::gid(&group);
            let mut backup = std::process::Command::new("setpriv");
            backup.args(["--reuid=12345", "--clear-groups"]);
            backup.arg(format!("--regid={group}"));
            backup.arg(&program).args(["--catalog", "none", "backup"]);
            backup.arg(stage.server.url()).arg("--verbose");
            backup.arg("--to").arg(stage.path("group.bak"));
            let output = succeed(backup.current_dir("/").env("HOME", "/"));
            let said = text(&output.stdout) + &text(&output.stderr);
            // Out of reach, the server sends its files itself.
            assert_eq!(
                said.contains("sends its files itself"),
                !group_access,
                "{said}"
            );
            if group_access {
                let (target, copy) = stage.restored("group.bak");
                let mode = target.metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o700, "the test's own");
                check(&copy, &target);
            }
        }
    }
}

/// Several backups of one server do not know of each other: two of ours and PostgreSQL's own at once.
#[test]
fn backups_may_run_at_once() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[("max_wal_senders", "8")]);
        let server = &stage.server;
        server
            .psql("create table t as select g, repeat('x', 500) from generate_series(1, 10000) g");
        let running: Vec<_> = ["one.bak", "two.bak"]
            .map(|name| {
                let mut backup = stage.backup(name);
                backup.args(["--max-rate", "5MB"]);
                (name, crate::common::Guarded(backup.spawn().unwrap()))
            })
            .into();
        server.wait_for(
            "select count(*) from pg_stat_activity where application_name = 'longshore' \
             and state = 'idle' and query like '%_lsn()%'",
            "2",
        );
        let mut own = server.command("pg_basebackup");
        succeed(own.args(["--checkpoint=fast", "-D"]).arg(stage.path("own")));
        for (name, mut backup) in running {
            assert!(backup.0.wait().unwrap().success(), "{name}");
            let (target, copy) = stage.restored(name);
            assert_eq!(copy.psql("select count(*) from t"), "10000");
            check(&copy, &target);
        }
        server.wait_for("select count(*) from pg_replication_slots", "0");
    }
}

/// One media set has one writer, whatever the servers do.
#[test]
fn two_backups_into_one_media_set_do_not_mix() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let mut slow = stage.backup("one.bak");
    slow.args(["--max-rate", "4MB"]);
    let mut slow = crate::common::Guarded(slow.spawn().unwrap());
    stage.server.wait_for(
        "select count(*) from pg_stat_activity where application_name = 'longshore' \
         and state = 'idle' and query like '%_lsn()%'",
        "1",
    );
    // This backup holds the media meanwhile, however long the other takes.
    let pending = stage.path("one.bak.longshore-new");
    while !pending.metadata().is_ok_and(|meta| meta.len() > 0) {
        assert!(slow.0.try_wait().unwrap().is_none(), "it ended first");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    send(&slow, libc::SIGSTOP);
    let refused = end(&mut stage.backup("one.bak"), 4);
    send(&slow, libc::SIGCONT);
    assert!(!text(&refused.stderr).is_empty());
    assert!(slow.0.wait().unwrap().success());
    let media = stage.path("one.bak");
    succeed(longshore(["verify"]).arg(&media));
}
