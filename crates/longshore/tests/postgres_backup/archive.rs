//! Backups whose WAL is in an archive.

use longshore_kit::representatives;

use crate::common::{longshore, text};
use crate::stage::{Stage, end, paths, succeed};

/// Goal: if an archive is named, a backup succeeds only once all of its WAL is there; backups outside the archive's
/// own target hold their WAL too, and survive an expire of the archive.
/// Method: PostgreSQL archives with this program. Then one needed segment never arrives: archiving stops after a
/// backup's start.
/// backup's start.
#[test]
fn a_backup_waits_for_its_log_in_the_archive_and_names_what_is_missing() {
    for installation in representatives() {
        let stage = Stage::new(&installation, &[("archive_mode", "on")]);
        let server = &stage.server;
        let archive = stage.path("wal");
        // By root, `wal create` makes no directory of its own in the servers' user's.
        std::fs::create_dir(&archive).unwrap();
        succeed(longshore(["wal", "create", "--archive"]).arg(&archive));
        server.user().own(&archive);
        let program = crate::common::BINARY;
        // The servers' user may not be able to enter the directory of the build.
        let copy = stage.path("longshore");
        std::fs::copy(program, &copy).unwrap();
        let push = format!(
            "HOME={} {} --catalog none wal push --archive {} %p",
            stage.dir.path().display(),
            copy.display(),
            archive.display()
        );
        let set = |command: &str| {
            server.psql(&format!(
                "alter system set archive_command = '{}'; select pg_reload_conf()",
                command.replace('\'', "''")
            ));
        };
        set(&push);
        let mut backup = stage.backup("archived.bak");
        succeed(backup.arg("--wal-archive").arg(&archive));
        // No expire that removes WAL from the archive knows of these media, so they hold their WAL as well.
        let in_set = paths(&stage.path("archived.bak"));
        assert!(in_set.iter().any(|path| path.starts_with("pg_wal/0")));

        set("false");
        let mut backup = stage.backup("lost.bak");
        backup.arg("--wal-archive").arg(&archive);
        let output = end(backup.args(["--wal-wait", "1"]), 3);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("segment 0000000100000000"), "{stderr}");
        assert!(!stage.path("lost.bak").exists());

        // Another cluster's archive proves nothing.
        let archives = [("archive_mode", "on"), ("archive_command", "false")];
        let other = Stage::new(&installation, &archives);
        let mut backup = other.backup("other.bak");
        let output = end(backup.arg("--wal-archive").arg(&archive), 4);
        assert!(text(&output.stderr).contains("belongs to system"));
        // A directory that is no archive is refused before anything is read.
        let mut backup = other.backup("none.bak");
        let output = end(backup.arg("--wal-archive").arg(other.dir.path()), 4);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("is not a WAL archive") && stderr.contains("longshore wal create"));
        assert!(!stderr.contains("percent processed"), "{stderr}");
    }
}
