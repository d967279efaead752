//! Goal: tests talk to the server through third-party clients of SQL Server: small programs over drivers
//! (`tests/clients`), installed by `scripts/setup.sh`.
//! Not covered: this file has no tests. A client that is missing is skipped with a message, unless
//! `LONGSHORE_REQUIRE_TOOLS` is set; go-sqlcmd is skipped in any case, since no script installs it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::text;
use crate::served::{PASSWORD, Server, USER};

pub struct Client {
    program: PathBuf,
    args: Vec<PathBuf>,
}

/// Below the repository.
fn work(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(".work").join(path)
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/clients")
        .join(name)
}

impl Client {
    /// `None`: the client is not installed and not required.
    fn find(program: PathBuf, args: Vec<PathBuf>, needs: &Path) -> Option<Client> {
        if needs.exists() {
            return Some(Client { program, args });
        }
        let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
        assert!(
            !required,
            "{} is missing: run `make setup`",
            needs.display()
        );
        println!("skipped: {} is missing", needs.display());
        None
    }

    pub fn tedious() -> Option<Client> {
        let needs = work("clients/node_modules/tedious");
        Client::find("node".into(), vec![source("tedious.js")], &needs)
    }

    pub fn pymssql() -> Option<Client> {
        let python = work("venv/bin/python3");
        let has = Command::new(&python)
            .args(["-c", "import pymssql"])
            .stderr(Stdio::null())
            .status();
        let needs = match has {
            Ok(status) if status.success() => python.clone(),
            _ => work("venv/pymssql"),
        };
        Client::find(python, vec![source("pymssql_client.py")], &needs)
    }

    pub fn go() -> Option<Client> {
        let program = work("clients/go-client");
        Client::find(program.clone(), Vec::new(), &program)
    }

    pub fn tiberius() -> Option<Client> {
        let program = work("clients/tiberius-client");
        Client::find(program.clone(), Vec::new(), &program)
    }

    /// Microsoft's driver for Java.
    pub fn jdbc() -> Option<Client> {
        let classes = work("clients/jdbc");
        let path = format!("{0}:{0}/mssql-jdbc.jar", classes.display());
        let args = ["-Xmx256m", "-cp", &path, "Client"].map(PathBuf::from);
        Client::find("java".into(), args.into(), &classes.join("Client.class"))
    }

    /// Microsoft's own command, go-sqlcmd, if it is installed; no script installs it.
    pub fn sqlcmd() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut places: Vec<_> = std::env::split_paths(&path).collect();
        places.insert(0, work("clients"));
        let mut programs = places.into_iter().map(|place| place.join("sqlcmd"));
        // The older sqlcmd, over ODBC, has no option `--version`.
        let found = programs.find(|program| {
            let version = Command::new(program).arg("--version").output();
            version.is_ok_and(|o| o.status.success() && text(&o.stdout).starts_with("sqlcmd:"))
        });
        if found.is_none() {
            println!("skipped: there is no go-sqlcmd");
        }
        found
    }

    /// The lines of its output.
    pub fn run(&self, server: &Server, env: &[(&str, &str)], input: &str) -> Vec<Value> {
        let mut command = Command::new(&self.program);
        let mut child = command
            .args(&self.args)
            .env("NODE_PATH", work("clients/node_modules"))
            .env("NODE_NO_WARNINGS", "1")
            // Java decodes its environment, and so the password, in the locale's encoding.
            .env("LC_ALL", "C.UTF-8")
            .env("TDS_PORT", server.port.to_string())
            .env("TDS_USER", USER)
            .env("TDS_PASSWORD", PASSWORD)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A refused client does not read its input.
        let _gone = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stdout);
        let lines: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let refused = lines.iter().any(|l| l.get("refused").is_some());
        assert!(
            output.status.success() || refused,
            "{said}{}",
            text(&output.stderr)
        );
        lines
    }
}
