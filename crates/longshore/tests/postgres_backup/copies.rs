//! Goal: a backup reports databases that replay would create from directories that no longer exist: no base backup
//! holds them. A restored server starts nevertheless.
//! Method: real servers; databases are moved, copied and dropped while the backup is slowed or stopped. A restored
//! server is asked what is in it.
//! Not covered: every order of these events; some depend on chance, and the tests then try again.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};

use longshore_kit::{Server, installations, representatives};

use crate::common::{Guarded, longshore, text};
use crate::live::place;
use crate::session::{begun, said, send, slow};
use crate::stage::{Stage, check, end, paths, succeed};

pub const NOT_WHOLE: &str = "may be incomplete in this backup";
/// Even under a load that moves databases without pause, most backups are complete.
const TRIES: u32 = 20;

/// Backs up until no database was lost to a move.
pub fn until_whole(mut backup: impl FnMut() -> Command) {
    for _ in 0..TRIES {
        let output = backup().output().unwrap();
        let said = text(&output.stderr);
        match output.status.code() {
            Some(5) if said.contains(NOT_WHOLE) => {}
            code => return assert_eq!(code, Some(0), "{said}"),
        }
    }
    panic!("{TRIES} backups and none whole");
}

/// Goal: a restore does not lose a database silently. Method: databases are moved, copied, created and dropped while a
/// slow backup runs. Those whose origin disappeared are named, nothing else is, and the next backup is complete.
/// PostgreSQL's treatment of a named one depends on what was read before its origin disappeared; every other one must
/// be there.
#[test]
fn a_database_moved_meanwhile_is_named_and_the_set_marked() {
    let mut installations = installations();
    // The first major version has one way to copy a database, the last has two.
    if installations.len() > 2 {
        installations.drain(1..installations.len() - 1);
    }
    for installation in installations {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        let location = place(&stage, "space").display().to_string();
        server.psql(&format!("create tablespace other location '{location}'"));
        for name in ["there", "back", "gone", "stays", "template_of"] {
            server.psql(&format!("create database {name}"));
        }
        server.psql("create table t as select repeat('x', 900) from generate_series(1, 10000) g");
        let strategy = match installation.major {
            14 => "",
            _ => "strategy file_copy",
        };

        let backup = begun(&stage, &mut slow(&stage, "moved.bak"));
        for statement in [
            "alter database there set tablespace other".to_owned(),
            "alter database back set tablespace other".to_owned(),
            "alter database back set tablespace pg_default".to_owned(),
            "alter database gone set tablespace other".to_owned(),
            "drop database gone".to_owned(),
            format!("create database copied template template_of {strategy}"),
            "drop database template_of".to_owned(),
            format!("create database sound template stays {strategy}"),
            "alter database sound set tablespace other".to_owned(),
            "alter database stays rename to stayed".to_owned(),
        ] {
            server.psql(&statement);
        }
        let said = said(backup, 5);
        for name in ["there", "back", "copied"] {
            assert!(
                said.contains(&format!("database {name} {NOT_WHOLE}")),
                "{said}"
            );
        }
        assert_eq!(said.matches(NOT_WHOLE).count(), 3, "{said}");

        let map = format!("{location}={location}.moved");
        let restored = |name: &str, code: i32| {
            let target = stage.path(&format!("{name}.restored"));
            let mut restore = crate::common::longshore(["restore"]);
            restore.arg(stage.path(name)).arg("--to").arg(&target);
            end(restore.args(["--tablespace-map", &map]), code);
            let server = stage.serve(&target);
            let connects = |database: &str| {
                let mut psql = server.command("psql");
                psql.args(["-d", database, "-c", "select 1"]);
                psql.output().unwrap().status.success()
            };
            let found = ["there", "back", "copied", "sound", "stayed"].map(connects);
            server.stop(longshore_kit::Stop::Fast);
            std::fs::remove_dir_all(&target).unwrap();
            std::fs::remove_dir_all(format!("{location}.moved")).unwrap();
            found
        };
        let found = restored("moved.bak", 5);
        println!(
            "PostgreSQL {}, there, back, copied: {found:?}",
            installation.major
        );
        assert_eq!(found[3..], [true, true]);
        end(&mut stage.backup("next.bak"), 0);
        assert_eq!(restored("next.bak", 0), [true; 5]);
    }
}

/// A session that has rewritten a mapped index of the database `gone`, and ends the transaction on request.
struct Rewriting {
    session: Guarded,
    say: ChildStdin,
}

impl Rewriting {
    fn begin(server: &Server) -> Rewriting {
        let mut session = server.command("psql");
        session.args(["-XAtq", "-d", "gone"]);
        session.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = Guarded(session.spawn().unwrap());
        let mut say = session.0.stdin.take().unwrap();
        writeln!(
            say,
            "begin; reindex index pg_class_oid_index; select 'done';"
        )
        .unwrap();
        let mut line = String::new();
        let mut heard = BufReader::new(session.0.stdout.take().unwrap());
        heard.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
        Rewriting { session, say }
    }

    fn commit(mut self) {
        writeln!(self.say, "commit;").unwrap();
        drop(self.say);
        assert!(self.session.0.wait().unwrap().success());
    }
}

/// A backup that is held while its checkpoint is in progress.
fn held_in_its_checkpoint(server: &Server, command: &mut Command) -> Guarded {
    // A checkpoint rests after each page, so it is seen even where the machine is busy. CREATE DATABASE has left nothing to write.
    server.psql("create table if not exists pages (x text)");
    server.psql("insert into pages select repeat('x', 900) from generate_series(1, 2000)");
    command.arg("--spread-checkpoint");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut backup = Guarded(command.spawn().unwrap());
    let waits = "select count(*) from pg_stat_activity where application_name = 'longshore' \
                 and wait_event = 'CheckpointDone'";
    while server.psql(waits) != "1" {
        if backup.0.try_wait().unwrap().is_some() {
            panic!("it has ended before: {}", said(backup, 0));
        }
    }
    send(&backup, libc::SIGSTOP);
    backup
}

/// Goal: a database that is dropped while the backup begins, just after its pg_filenode.map was written, does not
/// prevent a restored server from starting: replay writes that map again, and does not create the directory for it.
/// Method: a transaction has rewritten a mapped index when the backup's checkpoint begins. The transaction ends, and
/// the database is dropped, while the checkpoint is in progress and the backup has read nothing.
#[test]
fn a_database_dropped_after_its_map_was_read_leaves_a_server_that_starts() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[("checkpoint_timeout", "1h")]);
        let server = &stage.server;
        server.psql("create database gone");
        server.psql("create table t as select repeat('x', 900) from generate_series(1, 20000) g");
        let rewriting = Rewriting::begin(server);
        let backup = held_in_its_checkpoint(server, &mut stage.backup("gone.bak"));
        rewriting.commit();
        server.psql("drop database gone");
        send(&backup, libc::SIGCONT);
        said(backup, 0);
        starts_without_it(&stage, &[]);
    }
}

/// The LSN at which replay of `gone.bak` begins.
fn start_of(stage: &Stage) -> String {
    let target = stage.path("late.restored");
    let mut restore = longshore(["restore"]);
    restore.arg(stage.path("gone.bak")).arg("--to").arg(&target);
    let space = stage.path("late.space");
    let map = format!("{}={}", stage.path("space").display(), space.display());
    succeed(restore.args(["--tablespace-map", &map]));
    let label = std::fs::read_to_string(target.join("backup_label")).unwrap();
    for dir in [target, space] {
        std::fs::remove_dir_all(dir).unwrap();
    }
    let start = label.strip_prefix("START WAL LOCATION: ");
    start.unwrap().split(' ').next().unwrap().to_owned()
}

/// A server on the restored `gone.bak` starts, and nothing of the database is in it.
fn starts_without_it(stage: &Stage, more: &[&str]) {
    let target = stage.path("gone.restored");
    let mut restore = longshore(["restore"]);
    restore.arg(stage.path("gone.bak")).arg("--to").arg(&target);
    succeed(restore.args(more));
    let installation = stage.server.installation();
    let copy = Server::adopt(installation, &target);
    copy.start();
    assert_eq!(copy.psql("select count(*) from t"), "20000");
    let gone = "select count(*) from pg_database where datname = 'gone'";
    assert_eq!(copy.psql(gone), "0", "PostgreSQL {}", installation.major);
    check(&copy, &target);
}

/// Goal: the same for a backup that the server sends.
/// Method: the server sends a tablespace first. The test does not read it while the database is dropped, except for
/// moments: a server waits for its sender to continue before it removes the directory. Whether the directory was gone
/// when the sender reached it is chance, and so is whether the backup begins before the map was written: a sender that
/// wakes late finds the drop's own checkpoint. So the test retries.
#[test]
fn a_database_dropped_after_its_map_was_sent_is_in_the_set() {
    for installation in representatives() {
        // No other checkpoint is in progress when the backup requests its own.
        let conf = [("checkpoint_timeout", "1h"), ("max_wal_size", "4GB")];
        let stage = Stage::new(&installation, &conf);
        let server = &stage.server;
        let location = place(&stage, "space").display().to_string();
        server.psql(&format!("create tablespace first location '{location}'"));
        server.psql(
            "do $$ begin for i in 1..400 loop execute format('create table sent_%s tablespace first as \
             select repeat(''x'', 900) from generate_series(1, 110)', i); end loop; end $$",
        );
        server.psql("create table t as select repeat('x', 900) from generate_series(1, 20000) g");
        let mut tries = 0;
        loop {
            server.psql("create database gone");
            let oid = server.psql("select oid from pg_database where datname = 'gone'");
            let rewriting = Rewriting::begin(server);
            let mut command = stage.backup("gone.bak");
            command.args(["--remote", "--max-rate", "16MB"]);
            let backup = held_in_its_checkpoint(server, &mut command);
            rewriting.commit();
            let mapped = server.psql("select pg_current_wal_insert_lsn()");
            let mut drop = server.command("psql");
            drop.args(["-XAtq", "-d", "postgres", "-c", "drop database gone"]);
            let mut drop = Guarded(drop.spawn().unwrap());
            let streamed =
                || server.psql("select backup_streamed from pg_stat_progress_basebackup");
            let waits = "select count(*) from pg_stat_activity where query like 'drop database%' \
                         and wait_event = 'ProcSignalBarrier'";
            while drop.0.try_wait().unwrap().is_none() {
                if server.psql(waits) == "1" {
                    let before = streamed();
                    send(&backup, libc::SIGCONT);
                    while drop.0.try_wait().unwrap().is_none() && streamed() == before {}
                    send(&backup, libc::SIGSTOP);
                }
            }
            assert!(drop.0.wait().unwrap().success());
            send(&backup, libc::SIGCONT);
            said(backup, 0);
            let files = format!("base/{oid}/");
            let sent = paths(&stage.path("gone.bak"));
            if !sent.iter().any(|path| path.starts_with(&files)) {
                if sent.contains(&format!("base/{oid}")) {
                    break;
                }
                let start = start_of(&stage);
                let late = server.psql(&format!("select '{start}'::pg_lsn >= '{mapped}'::pg_lsn"));
                assert_eq!(
                    late, "t",
                    "it begins at {start}, the map is before {mapped}"
                );
            }
            tries += 1;
            if tries == TRIES {
                eprintln!("not shown here: the database was never gone at the right moment");
                break;
            }
            std::fs::remove_file(stage.path("gone.bak")).unwrap();
        }
        let map = format!("{location}={location}.moved");
        starts_without_it(&stage, &["--tablespace-map", &map]);
    }
}
