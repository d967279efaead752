//! Goal: servers whose settings make a backup impossible are refused with the setting's name; an upgraded server, which
//! only seems to be such a case, is backed up.
//! Method: real servers with `wal_level = minimal`, without full page writes on the primary, and after `pg_upgrade`.
//! Not covered: the upgrade, if fewer than two installations have `pg_upgrade`.

use longshore_kit::{Server, Stop, installations, representatives};

use crate::common::text;
use crate::live::place;
use crate::session::{begun, said, send, slow};
use crate::stage::{Stage, check, dump, end, same, succeed};
use crate::standby::{caught_up, standby};

/// WAL that is insufficient for replay is refused before anything is read, for local and sent backups.
#[test]
fn a_server_with_a_minimal_log_is_refused() {
    for installation in representatives() {
        let conf = [("wal_level", "minimal"), ("max_wal_senders", "0")];
        let stage = Stage::new(&installation, &conf);
        let output = end(&mut stage.backup("minimal.bak"), 3);
        let said = text(&output.stderr);
        assert!(said.contains("wal_level"), "{said}");
        end(stage.backup("minimal.bak").arg("--remote"), 3);
        assert!(!stage.path("minimal.bak").exists());
    }
}

/// Goal: a standby whose primary does not log full pages cannot be backed up, whether or not the primary did when the
/// backup began.
#[test]
fn a_standby_of_a_primary_that_logs_no_whole_pages_is_refused() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[("wal_keep_size", "256MB")]);
        let primary = &stage.server;
        primary.psql(
            "create table t as select g, repeat('x', 500) p from generate_series(1, 20000) g",
        );
        let standby = standby(&stage, &installation);
        caught_up(primary, &standby.server);
        let backup = begun(&standby, &mut slow(&standby, "during.bak"));
        send(&backup, libc::SIGSTOP);
        primary.psql("alter system set full_page_writes = off; select pg_reload_conf()");
        primary.wait_for("show full_page_writes", "off");
        // The checkpointer writes the setting to the WAL.
        primary.psql("checkpoint; update t set p = 'y' where g % 10 = 0");
        caught_up(primary, &standby.server);
        send(&backup, libc::SIGCONT);
        let stderr = said(backup, 3);
        assert!(stderr.contains("full_page_writes"), "{stderr}");
        standby.server.psql("checkpoint");
        let output = end(&mut standby.backup("after.bak"), 3);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("full_page_writes"), "{stderr}");
        for name in ["during.bak", "after.bak"] {
            assert!(!standby.path(name).exists(), "{name}");
        }
        // The primary logs full pages during a backup, whatever the setting.
        succeed(&mut stage.backup("primary.bak"));
        let (target, copy) = stage.restored("primary.bak");
        assert_eq!(copy.psql("select count(*) from t where p = 'y'"), "2000");
        check(&copy, &target);
    }
}

/// Goal: an upgraded cluster is like any other, including what the upgrade left in its tablespaces; no backup from
/// before the upgrade is a base.
#[test]
fn an_upgraded_cluster_comes_back_and_starts_a_chain_of_its_own() {
    let newest: Vec<_> = installations()
        .into_iter()
        .rev()
        .filter(|i| i.bin_dir.join("pg_upgrade").exists())
        .take(2)
        .collect();
    let [new, old] = &newest[..] else { return };
    let stage = Stage::new(old, &[]);
    let space = place(&stage, "space");
    stage.server.psql(&format!(
        "create tablespace space location '{}';
         create table far tablespace space as select generate_series(1, 5000) i;
         create table t as select g, md5(g::text) from generate_series(1, 5000) g",
        space.display()
    ));
    succeed(&mut stage.backup("old.bak"));
    let options = longshore_kit::Options {
        wal_segment_mib: 1,
        ..Default::default()
    };
    let upgraded = Server::create(new, options);
    stage.server.stop(Stop::Fast);
    let mut upgrade = upgraded.command("pg_upgrade");
    upgrade.current_dir(upgraded.socket_dir());
    upgrade.args(["-U", "postgres", "-b"]).arg(&old.bin_dir);
    upgrade.arg("-B").arg(&new.bin_dir);
    upgrade.arg("-d").arg(stage.server.data_dir());
    upgrade.arg("-D").arg(upgraded.data_dir());
    succeed(&mut upgrade);
    upgraded.start();
    let after = Stage::of(upgraded);
    let server = &after.server;
    assert_eq!(std::fs::read_dir(&space).unwrap().count(), 2);
    let mut based = after.backup("no.bak");
    based.args(["--differential", "--base"]);
    let output = end(based.arg(stage.path("old.bak")), 3);
    assert!(text(&output.stderr).contains("another cluster"));
    succeed(&mut after.backup("full"));
    server.psql("update t set md5 = 'x' where g % 1000 = 0; insert into far values (0)");
    succeed(&mut after.differing("diff", "--differential", "full"));
    let before = dump(server);
    let (target, moved) = (after.path("back"), after.path("moved"));
    let mut restore = crate::common::longshore(["restore", "--to"]);
    restore.arg(&target).arg(after.path("diff"));
    restore.arg("--base").arg(after.path("full"));
    let map = format!("{}={}", space.display(), moved.display());
    succeed(restore.args(["--tablespace-map", &map]));
    assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 1);
    let copy = Server::adopt(new, &target);
    copy.start();
    let found = dump(&copy).replace(moved.to_str().unwrap(), space.to_str().unwrap());
    same(&found, &before);
    check(&copy, &target);
}
