//! Goal: `wal get` gives a recovering server no record that creates a tablespace in the files of another cluster.
//! Method: the origin runs next to it. pg_waldump tells where a record is.

use std::path::Path;

use longshore_kit::{Server, Stop, installations, representatives};

use super::stage::*;

/// Makes the tablespace `name`.
fn make(server: &Server, name: &str) {
    let place = server.socket_dir().join(name);
    std::fs::create_dir(&place).unwrap();
    server.user().own(&place);
    let place = place.display();
    server.psql(&format!("create tablespace {name} location '{place}'"));
}

fn insert_place(server: &Server) -> u64 {
    let place = server.psql("select pg_current_wal_insert_lsn() - '0/0'");
    place.parse().unwrap()
}

/// The LSN of the first record after `from` that creates a tablespace, and its length.
fn record(server: &Server, from: u64) -> (u64, u64) {
    let start = from - from % SEGMENT;
    let start = format!("{:X}/{:X}", start >> 32, start & 0xffff_ffff);
    let mut dump = server.command("pg_waldump");
    dump.args(["--rmgr=Tablespace", "--start", &start, "--path"]);
    // It ends where the WAL ends, and calls that an error.
    let output = dump.arg(server.data_dir().join("pg_wal")).output().unwrap();
    let said = text(&output);
    let records = said.lines().filter(|line| line.contains("CREATE"));
    let mut records = records.map(|line| {
        let after = |key: &str| line.split(key).nth(1).unwrap().trim_start();
        let (high, low) = after("lsn: ").split_once('/').unwrap();
        let low = low.split(',').next().unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let total = after("len (rec/tot):").split('/').nth(1).unwrap();
        let total = total.split(',').next().unwrap().trim();
        ((hex(high) << 32) + hex(low), total.parse().unwrap())
    });
    let found = records.find(|(at, _)| *at >= from);
    found.unwrap_or_else(|| panic!("{from:#x}: {said}"))
}

/// Writes WAL until about `room` bytes of the segment are left.
fn fill(server: &Server, room: u64) {
    // The overhead of a record around its message.
    const AROUND: u64 = 56;
    loop {
        let left = SEGMENT - insert_place(server) % SEGMENT;
        let Some(bytes) = left.checked_sub(room).filter(|bytes| *bytes > 8) else {
            return;
        };
        let bytes = match bytes {
            0..4000 => bytes.saturating_sub(AROUND),
            // Pages have headers.
            _ => bytes - bytes / 64 - AROUND,
        };
        let message = format!("select pg_logical_emit_message(false, 'x', repeat('x', {bytes}))");
        server.psql(&message);
        if bytes < 4000 {
            return;
        }
    }
}

const SEGMENT: u64 = 1 << 20;

/// Creates tablespaces until the record of one begins in a segment and ends in the next. Returns its name, and the
/// LSN.
fn make_across(server: &Server) -> (String, u64) {
    // Bytes between the command's first record and the searched one.
    let mut ahead = 0;
    for attempt in 0..100 {
        let name = format!("across{attempt}");
        fill(server, ahead + 32);
        let from = insert_place(server);
        make(server, &name);
        let (at, len) = record(server, from);
        if at / SEGMENT != (at + len - 1) / SEGMENT {
            for other in 0..attempt {
                server.psql(&format!("drop tablespace across{other}"));
            }
            return (name, at);
        }
        // Dropping it now would cause a checkpoint, and full page images in the WAL after it.
        ahead = at - from;
    }
    panic!("no record lies across the end of a segment");
}

#[test]
fn a_record_across_two_segments_does_not_get_past_the_check() {
    let all = installations();
    // Another major version's tool cannot read the WAL.
    let all = all.iter().filter(|i| i.bin_dir.join("pg_waldump").exists());
    for installation in all {
        let conf = [
            ("archive_mode", "on"),
            ("autovacuum", "off"),
            ("wal_keep_size", "200MB"),
        ];
        let server = server(installation, &conf);
        let archive = new_archive(&server, "archive");
        server.append_conf(&format!(
            "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}'"
        ));
        server.start();
        work(&server, 1);
        server.stop(Stop::Fast);
        let data = copy(&server, "copy");
        server.start();
        let (name, at) = make_across(&server);
        work(&server, 1);
        archived(&server, &archive);

        let settings = format!(
            "archive_mode = off\nrestore_command = '{SHELL} {BINARY} wal get %f %p --archive {archive}'"
        );
        recover(&server, &data, &settings, "recovery.signal");
        let copy = Server::adopt(installation, &data);
        // It may be open for reading before it reaches the record.
        let _ended_already = copy.try_start();
        copy.wait_for_end();
        let log = copy.log();
        assert!(log.contains("would write into them"), "{log}");
        // In the segment in which the record ends.
        let file = format!("{:024X}", (1u128 << 64) + u128::from(at / SEGMENT + 1));
        let refused = format!("{file} creates");
        assert!(log.contains(&refused), "{refused}: {log}");

        server.psql(&format!("drop tablespace {name}"));
        copy.start();
        copy.wait_for("select pg_is_in_recovery()", "f");
        let made = format!("select count(*) from pg_tablespace where spcname = '{name}'");
        assert_eq!(copy.psql(&made), "1", "PostgreSQL {}", installation.major);
    }
}

#[test]
fn a_segment_that_makes_a_tablespace_in_a_servers_files_is_given_only_when_asked_for() {
    let Some(installation) = representatives().pop() else {
        return;
    };
    let server = server(&installation, &[("archive_mode", "on")]);
    let archive = new_archive(&server, "archive");
    server.append_conf(&format!(
        "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive}'"
    ));
    server.start();
    work(&server, 1);
    let name = server.psql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    make(&server, "made");
    archived(&server, &archive);
    let oid = server.psql("select oid from pg_tablespace where spcname = 'made'");

    // A data directory as the command sees it: the one around pg_wal.
    let data = server.socket_dir().join("other");
    for dir in ["", "pg_wal", "pg_tblspc"] {
        std::fs::create_dir(data.join(dir)).unwrap();
        server.user().own(&data.join(dir));
    }
    let to = data.join("pg_wal/RECOVERYXLOG").display().to_string();
    let get = |more: &[&str]| {
        let args = ["wal", "get", &name, &to, "--archive", &archive];
        let output = run(&server, &[&args[..], more].concat());
        (code(&output), text(&output))
    };
    let (refused, said) = get(&[]);
    assert_eq!(refused, 200, "{said}");
    assert!(said.contains("--tablespaces-as-logged"), "{said}");
    let place = server.socket_dir().join("made");
    assert!(said.contains(&place.display().to_string()), "{said}");
    assert_eq!(get(&["--tablespaces-as-logged"]).0, 0);
    assert!(Path::new(&to).exists());
    // A cluster whose link leads there has created it before.
    std::os::unix::fs::symlink(&place, data.join("pg_tblspc").join(&oid)).unwrap();
    let (given, said) = get(&[]);
    assert_eq!(given, 0, "{said}");
}
