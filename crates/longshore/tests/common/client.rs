//! Goal: tests talk to the server through third-party clients of SQL Server: small programs over drivers
//! (`tests/clients`), installed by `scripts/setup.sh`.
//! Not covered: this file has no tests. A client that is missing is skipped with a message, unless
//! `LONGSHORE_REQUIRE_TOOLS` is set; go-sqlcmd and Microsoft's driver for ODBC are skipped in any case, since no script
//! installs them unasked.
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

/// A file below a directory of a directory.
fn below(above: &Path, path: &str) -> Option<PathBuf> {
    let all = std::fs::read_dir(above).into_iter().flatten();
    let mut places = all.flatten().map(|entry| entry.path().join(path));
    places.find(|place| place.exists())
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
        Client::python("pymssql", "pymssql_client.py")
    }

    /// A program over a Python module.
    fn python(module: &str, program: &str) -> Option<Client> {
        let python = work("venv/bin/python3");
        let has = Command::new(&python)
            .args(["-c", &format!("import {module}")])
            .stderr(Stdio::null())
            .status();
        let needs = match has {
            Ok(status) if status.success() => python.clone(),
            _ => work("venv").join(module),
        };
        Client::find(python, vec![source(program)], &needs)
    }

    /// Over ODBC.
    pub fn odbc() -> Option<Client> {
        Client::python("pyodbc", "odbc_client.py")
    }

    pub fn sqlalchemy() -> Option<Client> {
        Client::python("sqlalchemy", "sqlalchemy_client.py")
    }

    /// FreeTDS's driver for ODBC. `None`: it is not installed and not required.
    pub fn freetds_driver() -> Option<PathBuf> {
        let found = below(Path::new("/usr/lib"), "odbc/libtdsodbc.so");
        let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
        assert!(
            found.is_some() || !required,
            "libtdsodbc.so is missing: run `make setup`"
        );
        if found.is_none() {
            println!("skipped: libtdsodbc.so is missing");
        }
        found
    }

    /// Microsoft's driver for ODBC, which comes with its module for Python, if that is installed.
    pub fn microsoft_driver() -> Option<PathBuf> {
        let module = "site-packages/mssql_python_odbc/libs/linux/debian_ubuntu";
        let Some(module) = below(&work("venv/lib"), module) else {
            println!("skipped: there is no driver of Microsoft's for ODBC");
            return None;
        };
        let machine = match std::env::consts::ARCH {
            "aarch64" => "arm64",
            machine => machine,
        };
        let libraries = module.join(machine).join("lib");
        let all = std::fs::read_dir(&libraries)
            .into_iter()
            .flatten()
            .flatten();
        let found = all
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains("libmsodbcsql"));
        assert!(
            found.is_some(),
            "no libmsodbcsql is in {}: run `SETUP_MICROSOFT_ODBC=1 make setup`",
            libraries.display()
        );
        found
    }

    /// A session of JDBC over Microsoft's driver.
    pub fn jdbc_session() -> Option<Client> {
        Client::java_session("mssql-jdbc.jar")
    }

    /// The same over jTDS.
    pub fn jtds() -> Option<Client> {
        Client::java_session("jtds.jar")
    }

    fn java_session(jar: &str) -> Option<Client> {
        let classes = work("clients/jdbc");
        let path = format!("{0}:{0}/{jar}", classes.display());
        let args = ["-Xmx256m", "-cp", &path, "Session"].map(PathBuf::from);
        let needs = match classes.join(jar).exists() {
            true => classes.join("Session.class"),
            false => classes.join(jar),
        };
        Client::find("java".into(), args.into(), &needs)
    }

    pub fn knex() -> Option<Client> {
        let needs = work("clients/node_modules/knex");
        Client::find("node".into(), vec![source("knex.js")], &needs)
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

    /// The program with what it must know of a server.
    pub fn command(&self, server: &Server, env: &[(&str, &str)]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env("NODE_PATH", work("clients/node_modules"))
            .env("NODE_NO_WARNINGS", "1")
            // Java decodes its environment, and so the password, in the locale's encoding.
            .env("LC_ALL", "C.UTF-8")
            .env("TDS_PORT", server.port.to_string())
            .env("TDS_USER", USER)
            .env("TDS_PASSWORD", PASSWORD)
            .envs(env.iter().copied());
        command
    }

    /// The lines of its output.
    pub fn run(&self, server: &Server, env: &[(&str, &str)], input: &str) -> Vec<Value> {
        let mut child = self
            .command(server, env)
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
