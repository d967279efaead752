//! A server with something in it, backups of it, and what is in them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_test_servers::{Installation, Options, Server};
use serde_json::Value;

use crate::common::{answer, expect, longshore, text};

pub use crate::judge::*;

pub struct Stage {
    pub server: Server,
    pub dir: tempfile::TempDir,
}

impl Stage {
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
        Stage::of(server)
    }

    pub fn of(server: Server) -> Stage {
        let dir = tempfile::Builder::new()
            .prefix("lsback")
            .tempdir_in("/tmp")
            .unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        server.user().own(dir.path());
        Stage { server, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `longshore backup` of the server to the file `name`, not yet run.
    pub fn backup(&self, name: &str) -> Command {
        let mut command = longshore(["backup"]);
        command.arg(self.server.url());
        command.args(["--algorithm", "LZ4", "--to"]);
        command.arg(self.path(name));
        command
    }

    /// Restores a backup and starts a server on it.
    pub fn restored(&self, name: &str) -> (PathBuf, Server) {
        let target = self.path(&format!("{name}.restored"));
        let media = self.path(name);
        let args = [
            "restore".as_ref(),
            media.as_os_str(),
            "--to".as_ref(),
            target.as_os_str(),
        ];
        expect(0, args);
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o700)).unwrap();
        self.server.user().own(&target);
        let server = Server::adopt(self.server.installation(), &target);
        server.start();
        (target, server)
    }
}

/// The paths in a backup.
pub fn paths(media: &Path) -> BTreeSet<String> {
    let output = expect(0, ["list", "--files", "--json", media.to_str().unwrap()]);
    let mut found = BTreeSet::new();
    collect(&answer(&output)["files"], &mut found);
    assert!(!found.is_empty(), "{}", text(&output.stdout));
    found
}

fn collect(files: &Value, found: &mut BTreeSet<String>) {
    for file in files.as_array().into_iter().flatten() {
        found.insert(file["path"].as_str().unwrap().to_owned());
    }
}
