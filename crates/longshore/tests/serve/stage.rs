//! A directory with the databases `shop` and `stock`, a login, and the server over them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::answers::fill;
use crate::common::longshore;

pub const USER: &str = "ada";
pub const PASSWORD: &str = "Harbour-7 'ü";

pub struct Stage {
    pub dir: tempfile::TempDir,
    /// Of the server's environment, beside the configuration.
    pub env: Vec<(&'static str, String)>,
    /// The server begins with so few, and may ask for more.
    pub open_files: Option<u32>,
}

impl Stage {
    pub fn new() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        for (name, rows) in [("shop", 500), ("stock", 20)] {
            fill(&dir.path().join(format!("{name}.db")), rows);
        }
        let url = |name: &str| format!("url = \"sqlite:{}/{name}.db\"\n", dir.path().display());
        let config = format!(
            "[database.shop]\n{}[database.stock]\n{}",
            url("shop"),
            url("stock")
        );
        std::fs::write(dir.path().join("longshore.toml"), config).unwrap();
        let stage = Stage {
            dir,
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
        let mut command = longshore(args);
        command
            .current_dir(self.dir.path())
            .env("LONGSHORE_CONFIG", self.path("longshore.toml"))
            .env("LONGSHORE_CATALOG", self.path("state/catalog.db"))
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn add_login(&self, name: &str, password: &str) {
        let mut command = self.command(&["serve", "--add-login", name]);
        command.env("LONGSHORE_LOGIN_PASSWORD", password);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Pages of noise beside the wares, so that a backup takes its time where it is slowed down.
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
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let port = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "{said}");
            let address = line
                .trim()
                .strip_prefix("longshore: listening on 127.0.0.1:");
            if let Some(port) = address {
                break port.parse().unwrap();
            }
            said += &line;
        };
        // What it logs is of no use here, but a full pipe would stop it.
        let rest = std::thread::spawn(move || stderr.lines().map_while(Result::ok).collect());
        Server {
            child,
            port,
            log: Some(rest),
        }
    }

    /// What a backup that did not end may have left.
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

pub struct Server {
    child: Child,
    pub port: u16,
    log: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The names of its threads.
    pub fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        // One that ends meanwhile has no name any more.
        let names =
            tasks.filter_map(|t| std::fs::read_to_string(t.unwrap().path().join("comm")).ok());
        names.map(|name| name.trim_end().to_owned()).collect()
    }

    /// Asks it to end; its exit code and what it logged.
    pub fn stop(mut self) -> (Option<i32>, Vec<String>) {
        self.ask();
        let code = self.child.wait().unwrap().code();
        (code, self.log.take().unwrap().join().unwrap())
    }

    pub fn ask(&self) {
        // SAFETY: plain system call; the child is waited for later.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.log.is_some() {
            let _ended = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}
