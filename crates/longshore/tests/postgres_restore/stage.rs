//! A server with something in it, its backups, and servers on what was restored.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use longshore_test_servers::{Installation, Options, Server, Stop};

use crate::common::{longshore, text};

/// A running server and a directory for media and restores.
pub struct Stage {
    pub server: Server,
    pub dir: tempfile::TempDir,
}

impl Stage {
    /// A server with some tables; `conf` on top of what every test server has.
    pub fn new(installation: &Installation, conf: &[(&str, &str)]) -> Stage {
        let server = Server::create(
            installation,
            Options {
                conf,
                wal_segment_mib: 1,
                ..Options::default()
            },
        );
        server.start();
        server.psql(
            "create table small (i int primary key, t text);
             insert into small select i, 'row ' || i from generate_series(1, 20000) i;
             create table marker (i int);
             create table empty ();
             create unlogged table unlogged as select generate_series(1, 100) i;
             create index on small (t);
             checkpoint;",
        );
        let dir = tempfile::Builder::new()
            .prefix("lsrest")
            .tempdir_in("/tmp")
            .unwrap();
        std::fs::set_permissions(
            dir.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        server.user().own(dir.path());
        Stage { server, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Two stripes.
    pub fn media(&self, name: &str) -> Vec<PathBuf> {
        vec![
            self.path(&format!("{name}.1.bak")),
            self.path(&format!("{name}.2.bak")),
        ]
    }

    /// A backup of the running server.
    pub fn back_up(&self, name: &str, more: &[&str]) -> Vec<PathBuf> {
        let media = self.media(name);
        let url = self.server.url();
        let mut args = vec![url.as_ref(), "--algorithm".as_ref(), "LZ4".as_ref()];
        for device in &media {
            args.push("--to".as_ref());
            args.push(device.as_os_str());
        }
        succeed(longshore(["backup"]).args(args).args(more));
        media
    }

    /// `longshore restore`, not yet run.
    pub fn restore(&self, media: &[PathBuf], target: &Path) -> Command {
        let mut command = longshore(["restore"]);
        command.args(media).arg("--to").arg(target);
        command
    }

    /// A server on a restored directory.
    pub fn adopt(&self, data: &Path) -> Server {
        Server::adopt(self.server.installation(), data)
    }

    /// Restores, starts and judges: all content there, indexes whole, and page checksums right after a clean stop.
    pub fn restored(&self, media: &[PathBuf], name: &str, more: &[&str]) -> (PathBuf, Server) {
        let target = self.path(name);
        succeed(self.restore(media, &target).args(more));
        let server = self.adopt(&target);
        server.start();
        (target, server)
    }
}

/// Everything `pg_dumpall` shows.
pub fn dump(server: &Server) -> String {
    let output = succeed(
        server
            .command("pg_dumpall")
            .args(["--no-sync", "--no-unlogged-table-data"]),
    );
    // Some versions write a random key into every dump.
    let text = text(&output.stdout);
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Panics at the first line in which two dumps differ.
pub fn same(found: &str, expected: &str) {
    for (i, (a, b)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(a, b, "line {i} of the dumps");
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// Indexes and heaps are whole, and so are all pages after a clean stop.
pub fn check(server: &Server, data: &Path) {
    succeed(
        server
            .command("pg_amcheck")
            .args(["--install-missing", "--heapallindexed", "--all"]),
    );
    server.stop(Stop::Fast);
    // Another major's tool looks for tablespaces by its own name.
    let is_own = server.installation().bin_dir.join("pg_checksums").exists();
    let has_spaces = data.join("pg_tblspc").read_dir().unwrap().next().is_some();
    if is_own || !has_spaces {
        succeed(
            server
                .command("pg_checksums")
                .arg("--check")
                .arg("-D")
                .arg(data),
        );
    }
}

pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// Runs what must be refused; returns what was said.
pub fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    text(&output.stderr)
}
