//! Goal: a backup that holds its WAL is restored with an archive that has only later WAL, or not even that: it is
//! consistent by itself, and nothing is skipped.
//! Method: backups of a real primary and a standby, whose archive then loses segments; restored servers are asked for
//! their rows.

use std::path::{Path, PathBuf};

use longshore_kit::{Server, representatives};

use crate::common::{answer, expect, longshore, text};
use crate::named::{Main, markers, meanwhile};
use crate::stage::{check, end, succeed};

/// The names of the segments that a set holds, ascending.
fn segments(media: &Path) -> Vec<String> {
    let output = expect(0, ["list", "--files", "--json", media.to_str().unwrap()]);
    let files = answer(&output)["files"].clone();
    let names = files.as_array().into_iter().flatten();
    let mut names: Vec<String> = names
        .filter_map(|file| file["path"].as_str()?.strip_prefix("pg_wal/"))
        .filter(|name| name.len() == 24)
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

/// A backup of `server` with its WAL, during which the primary starts more segments.
fn backed_up(main: &Main, server: &Server, name: &str) -> PathBuf {
    let primary = &main.stage.server;
    let media = main.stage.path(&format!("{name}.bak"));
    let mut backup = longshore(["backup", "--algorithm", "LZ4"]);
    backup.arg(server.url()).arg("--to").arg(&media);
    meanwhile(&mut backup, || {
        for _ in 0..3 {
            primary.psql("create table if not exists more (i int); insert into more values (1)");
            primary.psql("select pg_switch_wal()");
        }
        primary.psql("insert into more select generate_series(1, 100); checkpoint");
        let end = primary.psql("select pg_current_wal_lsn()");
        if server.psql("select pg_is_in_recovery()") == "t" {
            let caught_up = format!("select pg_last_wal_replay_lsn() >= '{end}'");
            server.wait_for(&caught_up, "t");
            // A backup of a standby ends at this checkpoint or later: in the middle of a segment.
            server.psql("checkpoint");
        }
    });
    media
}

/// Goal: a set with its WAL is consistent by itself. Later WAL comes from the archive, starting with the segment in
/// which the set ends: a standby's set holds that segment in part, and a server that replayed only the part would stop
/// there.
/// Method: all of the set's segments but the last are removed from the archive, then the last.
#[test]
fn the_wal_in_a_set_and_later_archived_wal_are_one() {
    for installation in representatives() {
        let main = Main::new(&installation);
        let stage = &main.stage;
        let primary = &stage.server;
        primary.psql("alter system set wal_keep_size = '512MB'; select pg_reload_conf()");
        let data = stage.path("standby");
        succeed(
            primary
                .command("pg_basebackup")
                .args(["--checkpoint=fast", "--write-recovery-conf", "-D"])
                .arg(&data),
        );
        let standby = stage.adopt(&data);
        standby.start();
        for (server, name) in [(primary, "primary"), (&standby, "standby")] {
            let what = format!("PostgreSQL {}, {name}", installation.major);
            let media = backed_up(&main, server, name);
            let held = segments(&media);
            let (last, before) = held.split_last().unwrap();
            assert!(before.len() >= 2, "{what}: {held:?}");
            let moment = main.mark(1);
            main.archived(primary);
            primary.psql("delete from marker");
            main.archived(primary);

            let restore = |name: &str, more: &[&str]| {
                let data = stage.path(name);
                let mut command = stage.restore(std::slice::from_ref(&media), &data);
                command.arg("--no-archiving").args(more);
                (data, command)
            };
            let (data, mut alone) = restore("alone", &[]);
            succeed(&mut alone);
            let fetched = stage.path("fetched");
            let mut get = main.command("wal get");
            succeed(get.arg(last).arg(&fetched).args(["--database", "main"]));
            let same = std::fs::read(data.join("pg_wal").join(last)).unwrap()
                == std::fs::read(&fetched).unwrap();
            assert_eq!(same, name == "primary", "{what}");
            let server = stage.adopt(&data);
            server.start();
            assert_eq!(markers(&server), "", "{what}");
            check(&server, &data);

            let gone = |name: &str| {
                let dir = stage.path("log/main").join(&name[..16]);
                std::fs::rename(dir.join(format!("{name}.zst")), stage.path("aside"))
            };
            for name in before {
                // Some were removed with those of the previous set.
                drop(gone(name));
            }
            let archive = stage.path("log/main");
            let archive = archive.to_str().unwrap();
            let target = ["--wal-archive", archive, "--target-lsn", &moment.lsn];
            let (data, mut on) = restore("on", &target);
            succeed(&mut on);
            let server = stage.adopt(&data);
            server.start();
            server.wait_for("select pg_get_wal_replay_pause_state()", "paused");
            assert_eq!(markers(&server), "1", "{what}");

            gone(last).unwrap();
            drop(server);
            std::fs::remove_dir_all(stage.path("on")).unwrap();
            let (data, mut on) = restore("on", &target);
            let said = text(&end(&mut on, 5).stderr);
            assert!(said.contains("in which the backup ends"), "{what}: {said}");
            let server = stage.adopt(&data);
            match (name, server.try_start()) {
                ("primary", Ok(())) => {
                    server.wait_for("select pg_get_wal_replay_pause_state()", "paused");
                    assert_eq!(markers(&server), "1", "{what}");
                }
                // A part is no segment: the end of the WAL is unknown.
                ("standby", Err(log)) => assert!(log.contains(last.as_str()), "{log}"),
                (_, started) => panic!("{what}: {started:?}"),
            }
            drop(server);
            std::fs::remove_dir_all(stage.path("alone")).unwrap();
            std::fs::remove_dir_all(stage.path("on")).unwrap();
        }
    }
}
