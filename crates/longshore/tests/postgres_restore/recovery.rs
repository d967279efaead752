//! Goal: recovery to each kind of target reaches it exactly.
//! Method: real servers write one row per moment, and exactly the rows up to the target come back.

use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{Installation, Options, Server, installations, place, representatives};

use crate::common::longshore;
use crate::named::archived;
use crate::stage::{Stage, check, refused, succeed};

/// A server that archives its WAL, a backup, and markers 1 to 3 with a name for each moment.
struct History {
    stage: Stage,
    media: Vec<PathBuf>,
    archive: String,
    /// After marker 2: time, LSN, transaction of marker 2.
    time: String,
    lsn: String,
    xid: String,
}

impl History {
    fn new(installation: &Installation) -> History {
        let archive = place::dir("lsarch").keep();
        let program = crate::common::BINARY;
        let archive_command = format!("{program} wal push %p --archive {}/wal", archive.display());
        let conf = [
            ("archive_mode", "on"),
            ("archive_command", &archive_command),
        ];
        succeed(longshore(["wal", "create", "--archive"]).arg(archive.join("wal")));
        longshore_kit::User::of_servers().own(&archive);
        let stage = Stage::new(installation, &conf);
        let media = stage.back_up("full", &[]);
        let server = &stage.server;
        server.psql("insert into marker values (1); select pg_create_restore_point('after one')");
        let xid =
            server.psql("begin; insert into marker values (2); select txid_current(); commit");
        let time = server.psql("select clock_timestamp() at time zone 'UTC'");
        let lsn = server.psql("select pg_current_wal_lsn()");
        server.psql("select pg_sleep(0.05); insert into marker values (3)");
        archived(server);
        History {
            archive: archive.join("wal").display().to_string(),
            stage,
            media,
            time: format!("{time}+00"),
            lsn,
            xid,
        }
    }

    fn recovered(&self, name: &str, target: &[&str]) -> (PathBuf, Server) {
        let more = [&["--wal-archive", &self.archive], target].concat();
        self.stage.restored(&self.media, name, &more)
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let above = std::path::Path::new(&self.archive).parent();
        let _ = above.map(std::fs::remove_dir_all);
    }
}

fn markers(server: &Server) -> String {
    server.psql("select string_agg(i::text, ' ' order by i) from marker")
}

/// The oldest and the newest major reach every target; those between share the targets, unless `LONGSHORE_ALL_MAJORS` is
/// set.
#[test]
fn each_kind_of_target_is_reached_exactly() {
    let all = installations();
    let whole = representatives();
    let between = all.len().saturating_sub(whole.len()).max(1);
    for (number, installation) in all.iter().enumerate() {
        let has_all = whole.contains(installation);
        let history = History::new(installation);
        let (time, lsn, xid) = (
            history.time.as_str(),
            history.lsn.as_str(),
            history.xid.as_str(),
        );
        let cases: [(&str, &[&str], &str); 7] = [
            ("time", &["--target-time", time], "1 2"),
            ("lsn", &["--target-lsn", lsn], "1 2"),
            ("xid", &["--target-xid", xid], "1 2"),
            (
                "exclusive",
                &["--target-xid", xid, "--target-exclusive"],
                "1",
            ),
            ("name", &["--target-name", "after one"], "1"),
            ("immediate", &["--target-immediate"], ""),
            ("end", &["--target-timeline", "latest"], "1 2 3"),
        ];
        let own = |case: usize| has_all || case % between == number % between;
        for (name, target, expected) in (0..)
            .zip(cases)
            .filter_map(|(i, case)| own(i).then_some(case))
        {
            let (data, server) = history.recovered(name, target);
            server.wait_for(
                "select pg_is_in_recovery() and not pg_is_wal_replay_paused()",
                "f",
            );
            assert_eq!(markers(&server), expected, "{} {name}", installation.major);
            assert!(!data.join("standby.signal").exists());
        }

        if Some(installation) == all.last() {
            let promote = ["--target-lsn", lsn, "--target-action", "promote"];
            let (data, server) = history.recovered("promoted", &promote);
            server.wait_for("select pg_is_in_recovery()", "f");
            assert_eq!(markers(&server), "1 2");
            server.psql("insert into marker values (4)");
            let segment = server.psql("select pg_walfile_name(pg_current_wal_lsn())");
            assert!(&segment[..8] > "00000001", "{segment}");
            check(&server, &data);
        }
    }
}

#[test]
fn a_shutdown_at_the_target_and_a_standby() {
    for installation in installations().iter().rev().take(1) {
        let history = History::new(installation);
        let data = history.stage.path("stopped");
        let lsn = history.lsn.as_str();
        let target = [
            "--wal-archive",
            &history.archive,
            "--target-lsn",
            lsn,
            "--target-action",
            "shutdown",
        ];
        succeed(history.stage.restore(&history.media, &data).args(target));
        let server = history.stage.adopt(&data);
        match server.try_start() {
            Ok(()) => server.wait_for_end(),
            Err(log) => assert!(log.contains("shutdown at recovery target"), "{log}"),
        }
        let (_, standby) = history.recovered("standby", &["--standby"]);
        standby.wait_for("select count(*) from marker", "3");
        assert_eq!(standby.psql("select pg_is_in_recovery()"), "t");
    }
}

#[test]
fn a_target_before_the_backup_is_refused_and_the_right_set_is_chosen() {
    for installation in installations().iter().rev().take(1) {
        let history = History::new(installation);
        let stage = &history.stage;
        stage.back_up("full", &["--append"]);
        let data = stage.path("data");
        let restore = |more: &[&str]| {
            let mut command = stage.restore(&history.media, &data);
            command.args(["--wal-archive", &history.archive]).args(more);
            command
        };
        let said = refused(&mut restore(&[
            "--target-lsn",
            &history.lsn,
            "--position",
            "2",
        ]));
        assert!(said.contains("is before that"), "{said}");
        let said = refused(&mut restore(&["--target-time", "2001-01-01 00:00:00+00"]));
        assert!(said.contains("no set on the media"), "{said}");
        let said = refused(&mut restore(&["--target-time", "2030-01-01 00:00:00"]));
        assert!(said.contains("zone"), "{said}");
        let said = refused(&mut restore(&["--target-time", "2230-01-01 00:00:00+00"]));
        assert!(said.contains("is in the future"), "{said}");
        let said = refused(&mut restore(&["--target-immediate", "--target-xid", "7"]));
        assert!(said.contains("cannot be used with"), "{said}");
        assert!(!data.exists());
        succeed(&mut restore(&["--target-lsn", &history.lsn]));
        let server = stage.adopt(&data);
        server.start();
        server.wait_for("select pg_get_wal_replay_pause_state()", "paused");
        assert_eq!(markers(&server), "1 2");
    }
}

/// Goal: the lowest LSN that a backup can be recovered to is its end, not a byte before.
/// Method: the refusal of a much lower LSN names the end.
#[test]
fn a_backup_serves_targets_from_its_very_end_on() {
    for installation in representatives() {
        let history = History::new(&installation);
        let stage = &history.stage;
        let restore = |name: &str, lsn: &str, more: &[&str]| {
            let mut command = stage.restore(&history.media, &stage.path(name));
            command.args(["--wal-archive", &history.archive, "--position", "1"]);
            command
                .args(["--no-archiving", "--target-lsn", lsn])
                .args(more);
            command
        };
        let said = refused(&mut restore("none", "0/1", &[]));
        let (_, end) = said.split_once("consistent from ").unwrap();
        let end = end.split_whitespace().next().unwrap();
        let (high, low) = end.split_once('/').unwrap();
        let low = u32::from_str_radix(low, 16).unwrap();
        let early = format!("{high}/{:X}", low - 1);
        assert!(refused(&mut restore("none", &early, &[])).contains("is before that"));
        assert!(!stage.path("none").exists());
        for (name, more) in [("at", &[][..]), ("up-to", &["--target-exclusive"])] {
            succeed(&mut restore(name, end, more));
            let server = stage.adopt(&stage.path(name));
            server.start();
            server.wait_for("select pg_get_wal_replay_pause_state()", "paused");
            assert_eq!(markers(&server), "", "{} {name}", installation.major);
        }
    }
}

/// Goal: nothing relies on the usual sizes and names: segments of 64 MiB, pages without checksums, an archive and a
/// restored directory whose paths a shell and a server would misread, a restore point with quotes.
#[test]
fn unusual_segments_and_names_are_recovered() {
    for installation in representatives() {
        let dir = place::dir("lsarch");
        let archive = dir.path().join("it's 5%p \u{e9}\u{1f980} \\ $HOME");
        succeed(longshore(["wal", "create", "--archive"]).arg(&archive));
        longshore_kit::User::of_servers().own(dir.path());
        let word = archive.display().to_string();
        let word = word.replace('\'', "'\\''").replace('%', "%%");
        let program = crate::common::BINARY;
        let push = format!("{program} wal push %p --archive '{word}' --async");
        let push = push.replace('\\', "\\\\");
        let options = Options {
            conf: &[("archive_mode", "on"), ("archive_command", &push)],
            wal_segment_mib: 64,
            checksums: false,
            ..Options::default()
        };
        let stage = Stage::with(&installation, options);
        let server = &stage.server;
        assert_eq!(server.psql("show wal_segment_size"), "64MB");
        server.psql("create table marker (i int); insert into marker values (0)");
        let media = stage.back_up("full", &[]);
        server
            .psql("insert into marker values (1); select pg_create_restore_point('it''s \"one\"')");
        server.psql("insert into marker values (2)");
        archived(server);
        let target = stage.path("it's 6%p \u{fc}");
        let mut restore = stage.restore(&media, &target);
        restore.arg("--wal-archive").arg(&archive);
        succeed(restore.args(["--no-archiving", "--target-name", "it's \"one\""]));
        let copy = stage.adopt(&target);
        copy.start();
        copy.wait_for("select pg_get_wal_replay_pause_state()", "paused");
        assert_eq!(markers(&copy), "0 1", "PostgreSQL {}", installation.major);
    }
}

/// Goal: no row comes back that was committed after the target. The server's clock dates commits, so it dates the
/// backup too, even if the clock of the machine that makes the backup is behind: local and sent.
#[test]
fn a_backup_is_complete_by_the_servers_clock() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    stage.server.psql("insert into marker values (1)");
    let half_an_hour_ago = "select to_char(clock_timestamp() at time zone 'UTC' - interval '30 min', \
                            'YYYY-MM-DD HH24:MI:SS')";
    let target = stage.server.psql(half_an_hour_ago) + "+00";
    for (name, more) in [("local", &[][..]), ("sent", &["--remote", "--with-wal"])] {
        let set = stage.path(name);
        let mut backup = longshore(["backup", &stage.server.url(), "--to"]);
        backup.arg(&set).args(more);
        let mut behind = Command::new("faketime");
        behind.args(["-f", "-1h"]);
        behind.arg(backup.get_program()).args(backup.get_args());
        let set_variables = backup
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        behind.envs(set_variables);
        let made = behind.output().expect("faketime is missing: make setup");
        assert!(
            made.status.success(),
            "{}",
            crate::common::text(&made.stderr)
        );
        let to = stage.path("restored");
        let said = refused(stage.restore(&[set], &to).args([
            "--target-time",
            &target,
            "--restore-command",
            "false",
        ]));
        assert!(said.contains("before the target"), "{name}: {said}");
    }
}

/// Goal: a backup made on a later timeline holds the history that leads to it, so that it needs no archive.
#[test]
fn a_set_of_a_later_timeline_holds_its_history() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let stage = Stage::new(&installation, &[]);
    let media = stage.back_up("full", &[]);
    let (data, second) = stage.restored(&media, "second", &[]);
    second.wait_for("select pg_is_in_recovery()", "f");
    let history = Path::new("pg_wal/00000002.history");
    let own = std::fs::read(data.join(history)).unwrap();
    let later = stage.path("later.bak");
    succeed(
        longshore(["backup"])
            .arg(second.url())
            .arg("--to")
            .arg(&later),
    );
    let target = stage.path("third");
    succeed(&mut stage.restore(&[later], &target));
    // The restore's own remark comes after it.
    let restored = std::fs::read(target.join(history)).unwrap();
    assert!(restored.starts_with(&own));
}

/// Goal: a copy opens with all rows although its origin was a delayed standby or is to become one, and runs no command that is
/// meant for its origin; a standby keeps its settings.
#[test]
fn a_copy_does_without_the_delay_and_the_commands_of_its_origin() {
    for installation in installations().iter().rev().take(1) {
        let history = History::new(installation);
        let stage = &history.stage;
        let ended = stage.path("ended");
        let touch = format!("touch {}", ended.display());
        stage.server.psql(&format!(
            "alter system set recovery_end_command = '{touch}'"
        ));
        stage.server.append_conf("recovery_min_apply_delay = '1d'");
        let media = stage.back_up("delayed", &[]);
        stage.server.psql("insert into marker values (4)");
        archived(&stage.server);
        let conf =
            |data: &Path| std::fs::read_to_string(data.join("postgresql.auto.conf")).unwrap();

        let standby = stage.path("standby");
        let more = ["--wal-archive", &history.archive, "--json", "--standby"];
        let said = succeed(stage.restore(&media, &standby).args(more));
        assert_eq!(
            longshore_kit::program::answer(&said)["notes"].to_string(),
            "[]"
        );
        assert!(conf(&standby).contains(&touch) && !conf(&standby).contains("delay = '0'"));

        let data = stage.path("copy");
        let said = succeed(stage.restore(&media, &data).args(&more[..3]));
        let notes = longshore_kit::program::answer(&said)["notes"].to_string();
        assert!(
            notes.contains("recovery_end_command, recovery_min_apply_delay"),
            "{notes}"
        );
        assert!(
            conf(&data).ends_with("archive_cleanup_command = ''\n"),
            "{}",
            conf(&data)
        );
        let copy = stage.adopt(&data);
        copy.start();
        copy.wait_for("select pg_is_in_recovery()", "f");
        assert_eq!(markers(&copy), "1 2 3 4");
        assert!(!ended.exists(), "the origin's command ran");
    }
}
