//! Goal: WAL that is streamed into a bucket is what the server wrote, over kills of both sides and a promotion, although
//! nothing of a segment is kept on this host before the bucket has it.
//! Method: the server also archives to a directory by archive_command; the two must agree.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use longshore_kit::{Server, Stop, representatives};

use super::stage::*;
use crate::common::store::Store;

const ARCHIVE: &str = "s3://nightly/streamed";

fn reaching(store: &Store, mut command: Command) -> Command {
    command.envs(store.settings());
    command
}

fn run_there(store: &Store, server: &Server, args: &[&str]) -> Output {
    let mut command = reaching(store, longshore(server, args));
    command.args(["--archive", ARCHIVE]).output().unwrap()
}

fn created(store: &Store, server: &Server) {
    let output = run_there(store, server, &["wal", "create"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
}

fn receiver(store: &Store, server: &Server) -> Child {
    let mut command = reaching(store, receive(server, ARCHIVE, &["--status-interval=1"]));
    let log = std::fs::File::create(server.socket_dir().join("receiver.log")).unwrap();
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// The names of the segments that the store has, sorted by LSN.
fn segments_there(store: &Store) -> Vec<String> {
    let mut names: Vec<String> = objects(&store.object("streamed"))
        .into_iter()
        .filter_map(|(path, _)| {
            let name = Path::new(&path)
                .file_name()?
                .to_str()?
                .strip_suffix(".wal")?;
            (name.len() == 24).then(|| name.to_owned())
        })
        .collect();
    names.sort_by(|one, other| one[8..].cmp(&other[8..]));
    names
}

/// Ends the present segment; returns its name when the store has it.
fn streamed(store: &Store, server: &Server) -> String {
    server.psql("insert into t (filler) values ('the last of its segment')");
    let last = server.psql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    server.psql("select pg_switch_wal()");
    wait_until("streamed", server, || {
        // WAL that the server may forget is in the bucket, on whichever timeline.
        let forgotten = server.psql(
            "select coalesce(min(pg_walfile_name(restart_lsn - 1)), '') from pg_replication_slots",
        );
        let there = segments_there(store);
        if let (Some(forgotten), Some(first)) = (forgotten.get(8..), there.first()) {
            let is_there = forgotten < &first[8..] || there.iter().any(|n| n.ends_with(forgotten));
            assert!(is_there, "{forgotten} of {there:?}");
        }
        there.contains(&last)
    });
    last
}

#[test]
fn a_stream_into_a_bucket_survives_kills_of_both_sides_and_a_promotion() {
    for installation in representatives() {
        let major = installation.major;
        let Some(store) = Store::new() else { return };
        let server = server(&installation, &[("archive_mode", "on")]);
        let pushed = new_archive(&server, "pushed");
        created(&store, &server);
        server.append_conf(&format!(
            "archive_command = '{SHELL} {BINARY} wal push %p --archive {pushed}'"
        ));
        server.start();
        let mut child = receiver(&store, &server);
        work(&server, 3);
        streamed(&store, &server);
        // The receiver dies in the middle of a segment, of which nothing is left here.
        server.psql("insert into t (filler) values ('in the middle')");
        std::thread::sleep(Duration::from_millis(300));
        child.kill().unwrap();
        child.wait().unwrap();
        work(&server, 3);
        server.psql("checkpoint");
        child = receiver(&store, &server);
        streamed(&store, &server);
        // The server dies; the receiver tries again by itself.
        server.kill9();
        std::thread::sleep(Duration::from_millis(300));
        server.start();
        work(&server, 3);
        streamed(&store, &server);
        // A promotion: the same cluster goes on from its archive with the next timeline.
        server.stop(Stop::Fast);
        let settings =
            format!("restore_command = '{SHELL} {BINARY} wal get %f %p --archive {pushed}'");
        recover(&server, server.data_dir(), &settings, "recovery.signal");
        server.start();
        server.wait_for("select pg_is_in_recovery()", "f");
        work(&server, 3);
        let last = streamed(&store, &server);
        assert!(last.starts_with("00000002"), "{last}");
        archived(&server, &pushed);
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        assert!(child.wait().unwrap().success(), "a stop is no failure");

        let log = std::fs::read_to_string(server.socket_dir().join("receiver.log")).unwrap();
        let mut compared = 0;
        let there = segments_there(&store);
        for name in segments(&pushed) {
            if there.contains(&name) {
                compared += 1;
                let to = beside(&server, "got");
                let output = run_there(&store, &server, &["wal", "get", &name, &to]);
                assert_eq!(code(&output), 0, "{}", text(&output));
                assert!(
                    std::fs::read(&to).unwrap() == unpacked(&pushed, &name),
                    "PostgreSQL {major}: {name} differs"
                );
            }
        }
        assert!(compared >= 10, "PostgreSQL {major}: {compared}\n{log}");
        let output = run_there(&store, &server, &["wal", "list", "--verify", "--json"]);
        assert_eq!(code(&output), 0, "{}", text(&output));
        let listed = longshore_kit::program::answer(&output);
        assert_eq!(
            listed["gap_count"], 0,
            "PostgreSQL {major}: {listed}\n{log}"
        );
    }
}

/// Goal: the slot holds the server's WAL from the beginning, also if nobody reserved it when it was made; and where nobody
/// can know what it holds, the receiver says so.
#[test]
fn a_slot_that_holds_nothing_is_made_to_hold() {
    for installation in representatives() {
        let major = installation.major;
        let Some(store) = Store::new() else { return };
        let server = server(&installation, &[]);
        created(&store, &server);
        server.start();
        server.psql("select pg_create_physical_replication_slot('s')");
        let mut child = receiver(&store, &server);
        let holds = "select count(*) from pg_replication_slots where restart_lsn is not null";
        server.wait_for(holds, "1");
        child.kill().unwrap();
        child.wait().unwrap();
        let log = std::fs::read_to_string(server.socket_dir().join("receiver.log")).unwrap();
        assert_eq!(log.contains("the archive is empty"), major < 15, "{log}");
        // The server keeps what was written since, and the next receiver gets it.
        let first = server.psql("select pg_walfile_name(restart_lsn) from pg_replication_slots");
        work(&server, 3);
        server.psql("checkpoint");
        let mut child = receiver(&store, &server);
        server.wait_for("select count(*) from pg_stat_replication", "1");
        streamed(&store, &server);
        child.kill().unwrap();
        child.wait().unwrap();
        let there = segments_there(&store);
        assert_eq!(
            there[0] == first,
            major >= 15,
            "PostgreSQL {major}: {first} {there:?}"
        );
    }
}

/// Goal: a server that was set back gets nothing into the bucket: the server keeps the archive's last segment, so there
/// is something to compare, although the receiver keeps nothing.
#[test]
fn a_receiver_into_a_bucket_refuses_a_server_that_was_set_back() {
    for installation in representatives() {
        let major = installation.major;
        let Some(store) = Store::new() else { return };
        let origin = server(&installation, &[]);
        created(&store, &origin);
        origin.start();
        let receive_some = || {
            let mut child = receiver(&store, &origin);
            origin.wait_for("select count(*) from pg_stat_replication", "1");
            work(&origin, 1);
            streamed(&store, &origin);
            // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still
            // its own.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            let log = std::fs::read_to_string(origin.socket_dir().join("receiver.log")).unwrap();
            assert!(child.wait().unwrap().success(), "PostgreSQL {major}: {log}");
        };
        receive_some();
        origin.stop(Stop::Fast);
        let data = copy(&origin, "set-back");
        origin.start();
        // Between two receivers the server may forget what its slot does not hold.
        for _ in 0..3 {
            work(&origin, 1);
            origin.psql("checkpoint");
            receive_some();
        }
        origin.stop(Stop::Fast);
        let before = objects(&store.object("streamed"));
        assert!(before.len() >= 5, "{before:?}");

        let server = Server::adopt(&installation, &data);
        server.start();
        work(&server, 8);
        for _ in 0..2 {
            let place = server.psql("select pg_current_wal_flush_lsn()");
            let more = ["--once", "--until", &place];
            let output = reaching(&store, receive(&server, ARCHIVE, &more)).output();
            let output = output.unwrap();
            assert_eq!(code(&output), 7, "PostgreSQL {major}: {}", text(&output));
            work(&server, 1);
        }
        assert_eq!(objects(&store.object("streamed")), before);
    }
}

/// The objects below a prefix, with their lengths.
fn objects(below: &Path) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(objects(&path)),
            false => found.push((
                path.display().to_string(),
                std::fs::read(&path).unwrap().len(),
            )),
        }
    }
    found.sort();
    found
}
