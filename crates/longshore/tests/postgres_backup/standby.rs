//! Goal: a standby can be backed up instead of its primary, chains continue over standbys and promotions, and a
//! promotion during a backup makes it fail.
//! Method: real primaries and standbys; restored servers are compared with those that they came from, and checked by
//! PostgreSQL's tools.
//! Not covered: standbys of standbys.

use std::process::{Command, Stdio};

use longshore_kit::{Installation, Options, Server, Stop, installations, representatives};

use crate::common::{Guarded, answer, longshore, text, wait};
use crate::differential::{BEFORE, change, differential, some, ways};
use crate::session::send;
use crate::stage::{Stage, check, dump, end, same, succeed};

/// A standby that streams from `primary`; its directory lies in the primary's stage.
pub fn standby(primary: &Stage, installation: &Installation) -> Stage {
    let data = primary.path("standby");
    succeed(
        primary
            .server
            .command("pg_basebackup")
            .args(["--checkpoint=fast", "--write-recovery-conf", "-D"])
            .arg(&data),
    );
    let server = Server::adopt(installation, &data);
    server.start();
    Stage::of(server)
}

pub fn caught_up(primary: &Server, standby: &Server) {
    let end = primary.psql("select pg_current_wal_lsn()");
    standby.wait_for(&format!("select pg_last_wal_replay_lsn() >= '{end}'"), "t");
}

#[test]
fn a_standby_can_be_backed_up_instead_of_its_primary() {
    for installation in installations() {
        let primary = Stage::new(&installation, &[]);
        primary
            .server
            .psql("create table t as select g, md5(g::text) from generate_series(1, 20000) g");
        let standby = standby(&primary, &installation);
        primary
            .server
            .psql("insert into t select 0, 'x' from generate_series(1, 5000); checkpoint");
        caught_up(&primary.server, &standby.server);
        succeed(&mut standby.backup("standby.bak"));
        let (target, restored) = standby.restored("standby.bak");
        assert_eq!(restored.psql("select count(*) from t"), "25000");
        check(&restored, &target);
    }
}

#[test]
fn a_promotion_meanwhile_makes_the_backup_fail() {
    for installation in representatives() {
        let primary = Stage::new(&installation, &[]);
        let standby = standby(&primary, &installation);
        caught_up(&primary.server, &standby.server);
        let mut command = standby.backup("promoted.bak");
        command.args(["--max-rate", "4MB"]);
        command.stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let mut child = Guarded(command.spawn().unwrap());
        standby.server.wait_for(
            "select count(*) from pg_stat_activity where application_name = 'longshore' \
             and state = 'idle' and query like '%_lsn()%'",
            "1",
        );
        // However long that takes here, the backup does not end before.
        send(&child, libc::SIGSTOP);
        standby.server.psql("select pg_promote()");
        send(&child, libc::SIGCONT);
        let status = wait(&mut child.0, longshore_kit::PATIENCE, "the backup");
        let mut stderr = Vec::new();
        std::io::Read::read_to_end(child.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        assert_eq!(status.code(), Some(3), "{}", text(&stderr));
        assert!(!standby.path("promoted.bak").exists());
    }
}

/// A streaming standby made from the restored set in the file `name`: its files have the times that the set records.
fn restored_standby(primary: &Stage, name: &str, conf: &str) -> Server {
    let data = primary.path("standby");
    let mut restore = longshore(["restore", "--standby", "--to"]);
    succeed(restore.arg(&data).arg(primary.path(name)));
    let server = Server::adopt(primary.server.installation(), &data);
    let (host, port) = (primary.server.socket_dir().display(), primary.server.port());
    server.append_conf(&format!(
        "primary_conninfo = 'host={host} port={port} user=postgres'\n{conf}"
    ));
    server.start();
    server
}

/// A backup of `of` to the file `name` that differs from the newest set in the file `base`; files lie with the primary.
fn differing(primary: &Stage, of: &Server, [name, how, base]: [&str; 3]) -> Command {
    let mut command = longshore(["backup", "--json", "--algorithm", "LZ4"]);
    command.arg(of.url()).arg("--to").arg(primary.path(name));
    command.args([how, "--base"]).arg(primary.path(base));
    command
}

/// Goal: it makes no difference which sets of a chain are the primary's and which a standby's, also if the standby is
/// promoted, if its set begins before the base ends, and if the base is of the timeline that lost.
/// Method: the standby is the restored full backup, so its files are known to be the base's. Each restored chain is
/// dumped, compared with the server that it came from (sequences run ahead in the WAL), and checked by PostgreSQL's
/// tools.
#[test]
fn chains_continue_over_standbys_and_promotions() {
    for installation in representatives() {
        for conf in ways(&installation) {
            let keep = [("wal_keep_size", "512MB")];
            let primary = Stage::new(&installation, &[conf, &keep].concat());
            let server = &primary.server;
            server.psql(BEFORE);
            server.psql("create index bare_g on bare (g)");
            let full = answer(&succeed(primary.backup("full").arg("--json")));
            let full_bytes = full["plain_bytes"].as_u64().unwrap();
            let standby = restored_standby(&primary, "full", "");
            let take = |of: &Server, set: [&str; 3], same_server: bool| {
                let method = match same_server && !conf.is_empty() {
                    true => "WAL summaries",
                    false => "page sums",
                };
                let report = answer(&succeed(&mut differing(&primary, of, set)));
                let what = format!("PostgreSQL {}, {set:?}: {report}", installation.major);
                assert_eq!(differential(&report)["method"], method, "{what}");
                assert!(
                    report["plain_bytes"].as_u64().unwrap() < full_bytes / 2,
                    "{what}"
                );
            };
            let judged = |chain: &[&str], expected: &Server| {
                let target = primary.tree(chain);
                let copy = primary.serve(&target);
                same(&dump(&copy), &dump(expected));
                check(&copy, &target);
            };
            let restartpoint = || {
                server.psql("checkpoint");
                caught_up(server, &standby);
            };

            change(server, 1);
            restartpoint();
            take(&standby, ["diff", "--differential", "full"], false);
            judged(&["full", "diff"], &standby);

            // Without another checkpoint this backup begins where the last one began.
            take(&standby, ["early", "--incremental", "diff"], false);
            judged(&["full", "diff", "early"], &standby);

            change(server, 2);
            restartpoint();
            take(&standby, ["inc", "--incremental", "diff"], true);
            judged(&["full", "diff", "inc"], &standby);
            change(server, 3);
            take(server, ["inc2", "--incremental", "inc"], false);
            judged(&["full", "diff", "inc", "inc2"], server);

            caught_up(server, &standby);
            standby.psql("select pg_promote()");
            server.psql("create table lost (i int); checkpoint");
            succeed(&mut primary.backup("lost"));
            standby.psql("checkpoint");
            take(&standby, ["after", "--differential", "lost"], false);
            judged(&["lost", "after"], &standby);

            change(&standby, 5);
            take(&standby, ["promoted", "--incremental", "inc2"], false);
            judged(&["full", "diff", "inc", "inc2", "promoted"], &standby);
            take(&standby, ["again", "--incremental", "inc"], false);
            judged(&["full", "diff", "inc", "again"], &standby);
        }
    }
}

/// Goal: a standby's visibility map and its pages are of one moment in a chain, although its control file says that
/// hints are logged, as the base's did: for a while the primary ran without.
/// Method: as for primaries (`differential`). The standby's own setting is off, which is allowed: so replay gives such
/// a page no new LSN.
#[test]
fn a_map_of_a_standby_whose_primary_did_not_log_hints_for_a_while_is_of_its_pages() {
    for installation in some() {
        let options = Options {
            conf: &[("wal_log_hints", "on"), ("wal_keep_size", "512MB")],
            wal_segment_mib: 1,
            checksums: false,
            ..Options::default()
        };
        let primary = Stage::of(Server::create(&installation, options));
        let server = &primary.server;
        server.start();
        server.psql("create table t as select g from generate_series(1, 10000) g");
        server.psql("create index on t (g)");
        // Hint bits are set now: the coming VACUUM changes nothing else in the pages.
        server.psql("select count(*) from t");
        succeed(&mut primary.backup("full"));
        let standby = restored_standby(&primary, "full", "wal_log_hints = off");
        // The standby has been running since before it.
        succeed(&mut primary.backup("base"));
        for (setting, sql) in [("off", "vacuum t"), ("on", "checkpoint")] {
            server.psql(&format!("alter system set wal_log_hints = {setting}"));
            server.stop(Stop::Fast);
            server.start();
            server.psql(sql);
        }
        caught_up(server, &standby);
        let set = ["diff", "--differential", "base"];
        succeed(&mut differing(&primary, &standby, set));
        let restored = primary.serve(&primary.tree(&["base", "diff"]));
        restored.psql("delete from t where g <= 5000");
        let found = restored.psql(
            "set enable_seqscan = off; set enable_bitmapscan = off; select count(*) from t where g > 0",
        );
        assert!(
            found.ends_with("5000"),
            "PostgreSQL {}: {found}",
            installation.major
        );
    }
}

/// Goal: a standby whose replay cancels conflicting queries, as it may at any time, can still be backed up.
/// Method: it waits for no query; while a snapshot is open during its spread checkpoint, rows that the snapshot sees
/// are vacuumed.
#[test]
fn a_backup_that_replay_cancels_begins_again() {
    for installation in representatives() {
        let keep = [("wal_keep_size", "512MB"), ("checkpoint_timeout", "30s")];
        let primary = Stage::new(&installation, &keep);
        let server = &primary.server;
        succeed(&mut primary.backup("full"));
        let standby = restored_standby(&primary, "full", "max_standby_streaming_delay = 0");
        server
            .psql("create table t as select g, repeat('x', 300) from generate_series(1, 20000) g");
        server.psql("create table seen as select g from generate_series(1, 1000) g; checkpoint");
        caught_up(server, &standby);
        let mut backup = longshore(["backup", "--spread-checkpoint"]);
        backup
            .arg(standby.url())
            .arg("--to")
            .arg(primary.path("standby.bak"));
        backup.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Guarded(backup.spawn().unwrap());
        let waits = "select count(*) from pg_stat_activity where application_name = 'longshore' \
             and state = 'active' and query ~ 'backup' and wait_event ~ 'Checkpoint'";
        standby.wait_for(waits, "1");
        server.psql("delete from seen");
        server.psql("vacuum seen");
        caught_up(server, &standby);
        assert!(standby.log().contains("due to conflict with recovery"));
        let status = wait(&mut child.0, longshore_kit::PATIENCE, "the backup");
        let mut stderr = Vec::new();
        std::io::Read::read_to_end(child.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
        assert_eq!(status.code(), Some(0), "{}", text(&stderr));
        let target = primary.tree(&["standby.bak"]);
        let copy = primary.serve(&target);
        assert_eq!(copy.psql("select count(*) from t"), "20000");
        check(&copy, &target);
    }
}

/// Goal: a backup of a standby that gets no more from its primary, or replays no more, ends with a warning; one of a primary
/// that only does nothing does not.
/// Method: replay is paused, then the standby is started without a primary. The backup is made by its files and by the server
/// itself.
#[test]
fn a_backup_of_a_standby_that_does_not_go_on_warns() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let primary = Stage::new(&installation, &[]);
    primary.server.psql("create table t as select 1 as g");
    let standby = standby(&primary, &installation);
    caught_up(&primary.server, &standby.server);
    let warnings = |name: &str, code: i32, more: &[&str]| {
        let output = end(standby.backup(name).arg("--json").args(more), code);
        answer(&output)["warnings"].to_string()
    };
    let ways = [("files", &[][..]), ("sent", &["--remote"][..])];
    for (way, more) in ways {
        assert_eq!(warnings(&format!("good-{way}"), 0, more), "[]");
    }
    standby.server.psql("select pg_wal_replay_pause()");
    primary.server.psql("create table later (g int)");
    for (way, more) in ways {
        let said = warnings(&format!("paused-{way}"), 5, more);
        assert!(said.contains("replay is paused on this standby"), "{said}");
    }
    standby.server.psql("select pg_wal_replay_resume()");
    caught_up(&primary.server, &standby.server);

    standby.server.stop(Stop::Fast);
    let auto = standby.server.data_dir().join("postgresql.auto.conf");
    std::fs::write(&auto, "").unwrap();
    standby.server.start();
    for (way, more) in ways {
        let said = warnings(&format!("alone-{way}"), 5, more);
        assert!(said.contains("nobody streams to this standby"), "{said}");
    }
}
