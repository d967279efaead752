//! A directory with the databases `shop` and `stock`, a login, and the server over them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::answers::shop;
use crate::common::longshore_in;
pub use crate::served::{PASSWORD, Server, USER, add_login};

pub struct Stage {
    pub dir: tempfile::TempDir,
    /// Environment variables for the server, in addition to the configuration.
    pub env: Vec<(&'static str, String)>,
    /// The server's initial soft limit of open files, which it may raise.
    pub open_files: Option<u32>,
}

impl Stage {
    pub fn new() -> Stage {
        let stage = Stage {
            dir: shop(),
            env: Vec::new(),
            open_files: None,
        };
        stage.add_login(USER, PASSWORD);
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = longshore_in(self.dir.path(), args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn add_login(&self, name: &str, password: &str) {
        add_login(&mut self.command(&["serve", "--add-login", name]), password);
    }

    /// Adds pages of noise, so that a throttled backup takes long enough.
    pub fn grow(&self) {
        let db = rusqlite::Connection::open(self.path("shop.db")).unwrap();
        db.execute_batch(
            "CREATE TABLE noise (bytes BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 64)
             INSERT INTO noise SELECT randomblob(131072) FROM n;
             PRAGMA wal_checkpoint(TRUNCATE)",
        )
        .unwrap();
    }

    pub fn server(&self, args: &[&str]) -> Server {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut command = self.command(&all);
        if let Some(limit) = self.open_files {
            command = lowered(&command, limit);
        }
        Server::start(&mut command)
    }

    /// The files that an incomplete backup may have left.
    pub fn leftovers(&self, name: &str) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| n.contains(name))
            .collect()
    }
}

/// The same command from a shell that lowers its soft limit of open files.
fn lowered(command: &Command, open_files: u32) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -Sn {open_files} && exec \"$0\" \"$@\"");
    shell.args(["-c", &script]).arg(command.get_program());
    shell.args(command.get_args()).stdin(Stdio::null());
    if let Some(dir) = command.get_current_dir() {
        shell.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}
