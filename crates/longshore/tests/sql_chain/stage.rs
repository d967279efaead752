//! Goal: the tests of chains have a server that archives its WAL, the configuration that names it, and `longshore sql`.
//! Method: a real server; markers in its table tell where a restored one ended.
//! Not covered: this file has no tests.

use std::path::PathBuf;
use std::process::Command;

use longshore_kit::{Installation, Options, Server, User};

use crate::common::{BINARY, longshore, longshore_in, succeed, text};
use crate::served;

pub struct Stage {
    pub server: Server,
    pub dir: tempfile::TempDir,
    /// Of statements.
    pub environment: Vec<(&'static str, String)>,
}

impl Stage {
    pub fn new(installation: &Installation) -> Stage {
        let dir = longshore_kit::place::dir("lschain");
        let archive = dir.path().join("wal");
        succeed(longshore(["wal", "create", "--archive"]).arg(&archive));
        User::of_servers().own(dir.path());
        let command = format!("{BINARY} wal push %p --archive {}", archive.display());
        let conf = [("archive_mode", "on"), ("archive_command", &*command)];
        let server = Server::create(
            installation,
            Options {
                conf: &conf,
                wal_segment_mib: 1,
                ..Options::default()
            },
        );
        server.start();
        server.psql("create table marker (i int); create table large as select i, 'row ' || i t from generate_series(1, 20000) i");
        let environment = Vec::new();
        let stage = Stage {
            server,
            dir,
            environment,
        };
        stage.configure(&stage.server);
        stage
    }

    /// Makes this server the database `main`.
    pub fn configure(&self, server: &Server) {
        let config = format!(
            "[database.main]\nurl = \"{}\"\n[database.main.wal]\narchive = \"{}\"\n",
            server.url(),
            self.path("wal").display()
        );
        std::fs::write(self.path("longshore.toml"), config).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A copy of the stopped server's data directory.
    pub fn copied(&self, name: &str) -> PathBuf {
        let data = self.path(name);
        succeed(
            Command::new("cp")
                .arg("-a")
                .args([self.server.data_dir(), &data]),
        );
        data
    }

    /// A new WAL archive of the servers' user.
    pub fn archive(&self, name: &str) -> PathBuf {
        let archive = self.path(name);
        // By root, `wal create` makes no directory of its own in the servers' user's.
        std::fs::create_dir(&archive).unwrap();
        succeed(longshore(["wal", "create", "--archive"]).arg(&archive));
        User::of_servers().own(&archive);
        archive
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = longshore_in(self.dir.path(), args);
        command.env("TZ", "UTC");
        command.envs(self.environment.iter().cloned());
        command
    }

    /// `longshore serve` on the same databases.
    pub fn serve(&self) -> served::Server {
        let mut login = self.command(&["serve", "--add-login", served::USER]);
        served::add_login(&mut login, served::PASSWORD);
        served::Server::start(&mut self.command(&["serve", "--listen", "127.0.0.1:0"]))
    }

    /// A row, and a commit of its own.
    pub fn mark(&self, i: u32) {
        self.server
            .psql(&format!("insert into marker values ({i})"));
    }

    /// The moment, as STOPAT takes it.
    pub fn now(&self) -> String {
        let at = self.server.psql(
            "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')",
        );
        // Ticks of datetime2 are finer than the duration of a commit.
        self.server.psql("select pg_sleep(0.05)");
        at[..23].to_owned()
    }

    /// The output of statements; `HERE/` stands for the scratch directory.
    pub fn sql(&self, statements: &str) -> String {
        let script = self.path("script.sql");
        let here = self.dir.path().display().to_string();
        std::fs::write(&script, statements.replace("HERE/", &format!("{here}/"))).unwrap();
        let mut command = self.command(&["sql", "-W", "-s", "|", "-h", "-1", "-i"]);
        let output = command.arg(&script).output().unwrap();
        let said = text(&output.stdout);
        let aside = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}{aside}");
        said
    }

    /// Statements that must all succeed.
    pub fn done(&self, statements: &str) -> String {
        let said = self.sql(statements);
        assert!(!said.contains("Msg "), "{statements}\n{said}");
        said
    }

    /// The number of the first message of a statement that must fail, and its whole output.
    pub fn refused(&self, statement: &str) -> (u32, String) {
        let said = self.sql(statement);
        let number = said.split("Msg ").nth(1).and_then(|m| m.split(',').next());
        let number = number.and_then(|n| n.parse().ok());
        (
            number.unwrap_or_else(|| panic!("{statement}\n{said}")),
            said,
        )
    }

    /// A server on a restored directory, when it has recovered.
    pub fn recovered(&self, name: &str) -> Server {
        let server = Server::adopt(self.server.installation(), &self.path(name));
        server.start();
        server.wait_for("select pg_is_in_recovery()", "f");
        server
    }

    /// A full backup, then markers 1 to 5, each followed by a backup: log, differential, log, log, log. Returns the
    /// moments before marker 4 and before marker 5.
    pub fn history(&self) -> [String; 2] {
        self.done("BACKUP DATABASE main TO DISK = 'full.bak'");
        self.mark(1);
        self.done("BACKUP LOG main TO DISK = 'log1.bak'");
        self.mark(2);
        self.done("BACKUP DATABASE main TO DISK = 'diff.bak' WITH DIFFERENTIAL");
        self.mark(3);
        let before_4 = self.now();
        self.mark(4);
        self.done("BACKUP LOG main TO DISK = 'logs.bak' WITH COMPRESSION");
        let before_5 = self.now();
        self.mark(5);
        self.done("BACKUP LOG main TO DISK = 'logs.bak'");
        self.mark(6);
        [before_4, before_5]
    }
}

pub fn markers(server: &Server) -> String {
    server.psql("select string_agg(i::text, ' ' order by i) from marker")
}
