//! A server, and a directory next to it for its backups and restores.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{Installation, Options, Server};
use crate::{place, program};

/// Tests add their own content and their own ways to back up and to restore.
pub struct Stage {
    pub program: &'static str,
    pub server: Server,
    pub dir: TempDir,
}

impl Stage {
    /// A running server with WAL segments of 1 MiB; `conf` on top of what every test server has.
    pub fn new(program: &'static str, installation: &Installation, conf: &[(&str, &str)]) -> Stage {
        let options = Options {
            conf,
            wal_segment_mib: 1,
            ..Options::default()
        };
        Stage::with(program, installation, options)
    }

    /// A running server of any shape.
    pub fn with(program: &'static str, installation: &Installation, options: Options<'_>) -> Stage {
        let server = Server::create(installation, options);
        server.start();
        Stage::of(program, server)
    }

    pub fn of(program: &'static str, server: Server) -> Stage {
        let dir = place::of(server.user(), "lsback");
        Stage {
            program,
            server,
            dir,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program, not yet run.
    pub fn longshore(&self, args: &[&str]) -> Command {
        program::command(self.program, args)
    }

    /// A server of the same major version on a restored directory, not yet started.
    pub fn adopt(&self, data: &Path) -> Server {
        Server::adopt(self.server.installation(), data)
    }
}
