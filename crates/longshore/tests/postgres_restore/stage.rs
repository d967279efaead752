//! A server with something in it, its backups, and servers on what was restored.

use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_test_servers::{Installation, Options, Server};

use crate::common::{longshore, text};

pub use crate::judge::*;

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

    /// A tablespace of this name, and its directory.
    pub fn tablespace(&self, name: &str) -> PathBuf {
        tablespace(&self.server, name)
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

/// A tablespace of this name in a directory of its own.
pub fn tablespace(server: &Server, name: &str) -> PathBuf {
    let place = server.socket_dir().join(name);
    std::fs::create_dir(&place).unwrap();
    server.user().own(&place);
    server.psql(&format!(
        "create tablespace {name} location '{}'",
        place.display()
    ));
    place
}

/// Runs what must be refused; returns what was said.
pub fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    text(&output.stderr)
}
