//! A server with some content, its backups, and their content.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_kit::{Installation, Options, Server};
use serde_json::Value;

use crate::common::{BINARY, answer, expect, longshore, text};

pub use crate::common::{end, succeed};
pub use longshore_kit::postgres::judge::*;

pub struct Stage(longshore_kit::postgres::Stage);

impl Deref for Stage {
    type Target = longshore_kit::postgres::Stage;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Stage {
    pub fn new(installation: &Installation, conf: &[(&str, &str)]) -> Stage {
        Stage(longshore_kit::postgres::Stage::new(
            BINARY,
            installation,
            conf,
        ))
    }

    /// As [`Stage::new`], with WAL segments of 16 MiB: a server that archives and recovers hundreds of megabytes starts a
    /// command for each segment.
    pub fn with_long_segments(installation: &Installation, conf: &[(&str, &str)]) -> Stage {
        let options = Options {
            conf,
            ..Options::default()
        };
        let stage = longshore_kit::postgres::Stage::with(BINARY, installation, options);
        Stage(stage)
    }

    pub fn of(server: Server) -> Stage {
        Stage(longshore_kit::postgres::Stage::of(BINARY, server))
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
        let server = self.adopt(&target);
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
