//! Goal: a standby that archives continues to do so after a failover to another one, while the old primary goes on; a
//! server that was set back is refused.
//! Method: real servers of the oldest and the newest major version here: a primary, two standbys and a copy that was
//! set back, with one archive.

use std::path::Path;

use longshore_kit::{Installation, Server, Stop, representatives};

use super::stage::*;

/// A standby that streams from `of`.
fn standby(of: &Server, installation: &Installation, name: &str) -> Server {
    let data = beside(of, name);
    let mut copy = of.command("pg_basebackup");
    let output = copy
        .args(["--checkpoint=fast", "--write-recovery-conf", "-D", &data])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    Server::adopt(installation, Path::new(&data))
}

fn push(server: &Server, archive: &str, name: &str) -> std::process::Output {
    let file = format!("pg_wal/{name}");
    run(
        server,
        &["wal", "push", &file, "--archive", archive, "--json"],
    )
}

/// Goal: a standby with `archive_mode = always` continues to archive after an ordinary failover to another standby,
/// even if the old primary archived the whole segment in which the timelines part; a server that was set back is
/// still refused, with the same history file in its `pg_wal`.
#[test]
fn a_standby_continues_archiving_after_a_failover_to_another() {
    for installation in representatives() {
        let keep = [("archive_mode", "on"), ("wal_keep_size", "200MB")];
        let old = server(&installation, &keep);
        let archive = new_archive(&old, "archive");
        let push_command =
            format!("archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}'");
        old.append_conf(&push_command);
        old.start();
        work(&old, 2);
        archived(&old, &archive);
        old.stop(Stop::Fast);
        let set_back = Server::adopt(&installation, &copy(&old, "set-back"));
        old.start();
        let new = standby(&old, &installation, "new");
        new.start();
        let third = standby(&new, &installation, "third");
        third.append_conf("archive_mode = always\narchive_command = 'false'");
        third.start();
        old.psql("insert into t (filler) values ('on all of them')");
        let end = old.psql("select pg_current_wal_lsn()");
        let there = format!("select pg_last_wal_replay_lsn() >= '{end}'");
        new.wait_for(&there, "t");
        third.wait_for(&there, "t");
        let name = old.psql("select pg_walfile_name(pg_current_wal_insert_lsn())");

        new.psql("select pg_promote()");
        // The old primary does not know, and archives the segment to its end.
        old.psql(
            "insert into t (filler) select repeat(md5(g::text), 8) from generate_series(1, 500) g",
        );
        archived(&old, &archive);
        old.stop(Stop::Fast);
        new.psql("insert into t (filler) values ('after the failover')");
        let last = "select count(*) from t where filler = 'after the failover'";
        third.wait_for(last, "1");
        let ready = format!(
            "select count(*) from pg_ls_dir('pg_wal/archive_status') n where n = '{name}.ready'"
        );
        third.wait_for(&ready, "1");
        let own = std::fs::read(third.data_dir().join("pg_wal").join(&name)).unwrap();
        let whole = unpacked(&archive, &name);
        assert!(
            own != whole,
            "PostgreSQL {}: nothing to tell apart",
            installation.major
        );

        let output = push(&third, &archive, &name);
        assert_eq!(code(&output), 0, "{}", text(&output));
        let answer = longshore_kit::program::answer(&output);
        let history =
            std::fs::read_to_string(third.data_dir().join("pg_wal/00000002.history")).unwrap();
        let fork = history.split_whitespace().nth(1).unwrap();
        assert_eq!(answer["left_at"], fork, "{answer}");
        assert!(
            text(&output).contains("left the timeline at"),
            "{}",
            text(&output)
        );
        assert!(unpacked(&archive, &name) == whole);
        // By itself, and all that comes then.
        third.append_conf(&push_command);
        third.psql("select pg_reload_conf()");
        new.psql("select pg_switch_wal()");
        third.wait_for(
            "select count(*) from pg_ls_dir('pg_wal/archive_status') n where n like '%.ready'",
            "0",
        );
        let output = run(&third, &["wal", "list", "--verify", "--archive", &archive]);
        assert_eq!(code(&output), 0, "{}", text(&output));

        // A copy of the old primary continues to write under the same names.
        set_back.append_conf("archive_command = 'false'");
        set_back.start();
        while set_back.psql("select pg_walfile_name(pg_current_wal_insert_lsn())") <= name {
            work(&set_back, 1);
        }
        let place = set_back.data_dir().join("pg_wal/00000002.history");
        std::fs::write(&place, &history).unwrap();
        set_back.user().own(&place);
        let output = push(&set_back, &archive, &name);
        assert_eq!(code(&output), 7, "{}", text(&output));
        assert!(
            text(&output).contains("archive_mode = always"),
            "{}",
            text(&output)
        );
    }
}
