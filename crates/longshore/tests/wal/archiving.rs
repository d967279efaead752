//! Goal: every file that the server hands to archive_command comes back through restore_command, on every major
//! version.
//! Method: real servers and the program as their command; a segment is taken away, and pushes are killed at random
//! moments. gzip unpacks the archive as a witness.

use longshore_kit::{Server, Stop, installations};

use super::stage::*;

#[test]
fn a_server_is_brought_forward_from_its_archive_and_a_lost_segment_stops_it() {
    for installation in installations() {
        let major = installation.major;
        let server = server(&installation, &[("archive_mode", "on")]);
        let archive = new_archive(&server, "archive");
        server.append_conf(&format!(
            "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive} --async'"
        ));
        server.start();
        work(&server, 1);
        server.stop(Stop::Fast);
        let data = copy(&server, "copy");
        server.start();
        work(&server, 12);
        let last = archived(&server, &archive);
        let rows = rows(&server);
        let facts = list(&server, &archive);
        assert_eq!(facts["status"], "ok", "{facts}");
        assert_eq!(facts["runs"].as_array().unwrap().len(), 1, "{facts}");
        assert_eq!(
            facts["system"],
            server.psql("select system_identifier from pg_control_system()")
        );
        let output = run(&server, &["wal", "list", "--verify", "--archive", &archive]);
        assert_eq!(code(&output), 0, "{}", text(&output));
        // The server's own file is the witness for the newest segment.
        let own = std::fs::read(server.data_dir().join("pg_wal").join(&last)).unwrap();
        assert_eq!(unpacked(&archive, &last), own, "PostgreSQL {major}: {last}");
        server.stop(Stop::Fast);

        // A segment in the middle is missing: recovery must not end before it as if that were the end.
        let names = segments(&archive);
        let lost = stored(&archive, &names[names.len() - 4]);
        std::fs::rename(&lost, lost.with_extension("lost")).unwrap();
        let settings = format!(
            "archive_mode = off\nrestore_command = '{SHELL} {BINARY} wal get %f %p --archive {archive} --async'"
        );
        recover(&server, &data, &settings, "recovery.signal");
        let restored = Server::adopt(&installation, &data);
        // It may take connections for a moment: it is consistent long before the gap.
        let _early = restored.try_start();
        restored.wait_for_end();
        assert!(
            restored.log().contains("is missing in the archive"),
            "{}",
            restored.log()
        );
        assert_eq!(list(&server, &archive)["status"], "warnings");
        drop(restored);

        // It is found again.
        std::fs::rename(lost.with_extension("lost"), &lost).unwrap();
        let restored = Server::adopt(&installation, &data);
        restored.start();
        restored.wait_for("select pg_is_in_recovery()", "f");
        assert_eq!(self::rows(&restored), rows, "PostgreSQL {major}");
        // The unused rest of the files fetched ahead is no more than a few segments, and no half of one.
        let left = std::fs::read_dir(data.join("pg_wal/longshore")).unwrap();
        assert!(left.count() < 8);
    }
}

#[test]
fn an_archiver_that_is_killed_over_and_over_loses_nothing() {
    let Some(installation) = installations().pop() else {
        return;
    };
    let server = server(&installation, &[("archive_mode", "on")]);
    let archive = new_archive(&server, "archive");
    server.append_conf(&format!(
        "archive_command = '{SHELL} {BINARY} wal push %p --archive {archive} --async --workers 3'"
    ));
    server.start();
    // Every process of ours that works for this archive, at random moments.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut killed = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                killed += kill_pushes(&archive);
                std::thread::sleep(std::time::Duration::from_millis(30 + killed % 70));
            }
            killed
        });
        work(&server, 15);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        killer.join().unwrap()
    });
    archived(&server, &archive);
    let output = run(&server, &["wal", "list", "--verify", "--archive", &archive]);
    assert_eq!(code(&output), 0, "{killed} killed: {}", text(&output));
    assert_eq!(list(&server, &archive)["runs"].as_array().unwrap().len(), 1);
    for name in segments(&archive) {
        let own = server.data_dir().join("pg_wal").join(&name);
        if let Ok(own) = std::fs::read(own) {
            assert_eq!(unpacked(&archive, &name), own, "{name}");
        }
    }
}

/// Kills the pushes that have `archive` among their words.
pub fn kill_pushes(archive: &str) -> u64 {
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|b| *b == 0);
        let ours = words.next() == Some(BINARY.as_bytes());
        if ours && words.any(|w| w == archive.as_bytes()) {
            // SAFETY: `kill` demands two integers and touches no memory; a process that is gone is an error that does
            // not matter.
            killed += u64::from(unsafe { libc::kill(pid, libc::SIGKILL) } == 0);
        }
    }
    killed
}
