//! Goal: the tests of restores have a server with some content, its backups, and servers on restored directories.
//! Method: real servers; the warnings of an answer decide which exit code is right.
//! Not covered: this file has no tests.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use longshore_kit::{Installation, Options, Server};

use crate::common::{BINARY, longshore, text};

pub use crate::common::{end, succeed};
pub use longshore_kit::postgres::judge::*;

/// A running server and a directory for media and restores.
pub struct Stage(longshore_kit::postgres::Stage);

impl Deref for Stage {
    type Target = longshore_kit::postgres::Stage;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Stage {
    /// A server with some tables; `conf` on top of what every test server has.
    pub fn new(installation: &Installation, conf: &[(&str, &str)]) -> Stage {
        let stage = longshore_kit::postgres::Stage::new(BINARY, installation, conf);
        stage.server.psql(
            "create table small (i int primary key, t text);
             insert into small select i, 'row ' || i from generate_series(1, 20000) i;
             create table marker (i int);
             create table empty ();
             create unlogged table unlogged as select generate_series(1, 100) i;
             create index on small (t);
             checkpoint;",
        );
        Stage(stage)
    }

    /// A server of any shape, without tables.
    pub fn with(installation: &Installation, options: Options<'_>) -> Stage {
        Stage(longshore_kit::postgres::Stage::with(
            BINARY,
            installation,
            options,
        ))
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

    /// Restores, starts and judges: the content is complete, indexes are intact, and page checksums are right after a
    /// clean stop.
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

/// Runs to the end: with a warning the exit code is 5, without one it is 0.
pub fn judged(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    longshore_kit::schema::check_if_answer(&output.stdout);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
    let in_answer = answer["warnings"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    let expected = match in_answer || err.contains("longshore: warning:") {
        true => 5,
        false => 0,
    };
    let code = output.status.code();
    assert_eq!(code, Some(expected), "{command:?}\n{out}{err}");
    output
}

/// Runs a command that must be refused; returns its message.
pub fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    text(&output.stderr)
}
