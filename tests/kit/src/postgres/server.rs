//! One cluster and the server that runs it.
//!
//! Invariants
//! - A server does not outlive its test: dropping it stops the server, and a watcher stops it if the test's process is
//!   killed.
//! - Every server runs as the servers' user, in a directory of its own and without the environment's `PG…` variables.
//! - No wait is endless: each has a limit, after which the test fails.
//!
//! Leaves to others: where PostgreSQL is installed (`installation.rs`), the content of new clusters (`template.rs`),
//! and the judgement of restored ones (`judge.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use super::template::{self, Shape};
use super::{Installation, PATIENCE, User};
use crate::place;
use crate::program::text;

/// Runs the server and ends it when standard input closes: the end of the test closes it, even by `kill -9`.
const WATCH: &str = r#"
exec 3<&0
"$@" 3<&- &
server=$!
{ read -r _ <&3; kill -QUIT $server 2>/dev/null; } &
wait $server
status=$?
kill $! 2>/dev/null
exit $status
"#;

/// The options of a new cluster.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Appended to `postgresql.conf`; the last entry of a name wins.
    pub conf: &'a [(&'a str, &'a str)],
    /// Whether pages carry checksums.
    pub checksums: bool,
    /// Whether the server syncs. Off by default: tests that only kill processes lose nothing without it.
    pub durable: bool,
    /// WAL segment size in MiB, a power of two from 1 to 1024.
    pub wal_segment_mib: u32,
    /// Whether the group may read the data directory (0750 and 0640).
    pub group_access: bool,
    /// Whether the server listens on a free port of 127.0.0.1, too.
    pub tcp: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            conf: &[],
            checksums: true,
            durable: false,
            wal_segment_mib: 16,
            group_access: false,
            tcp: false,
        }
    }
}

/// How a server is stopped; `pg_ctl`'s modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Smart,
    Fast,
    Immediate,
}

/// A cluster, running or not. Dropping it stops the server and removes everything.
///
/// A cluster trusts every local connection; its superuser is `postgres`.
#[derive(Debug)]
pub struct Server {
    installation: Installation,
    user: User,
    dir: TempDir,
    data_dir: PathBuf,
    port: u16,
    tcp: bool,
    running: Mutex<Option<Child>>,
}

impl Server {
    /// Makes a cluster; the server is not started.
    pub fn create(installation: &Installation, options: Options<'_>) -> Self {
        let mut server = Self::place(installation);
        server.tcp = options.tcp;
        if options.tcp {
            server.port = crate::port::free_port();
        }
        let shape = Shape {
            bin_dir: installation.bin_dir.clone(),
            checksums: options.checksums,
            wal_segment_mib: options.wal_segment_mib,
            group_access: options.group_access,
        };
        template::cluster(shape, &server.data_dir, |dir| {
            server.user.own(dir);
            server.make(&dir.join("data"), &options)
        });
        server.user.own(&server.data_dir);
        let mut conf = String::from(
            "shared_buffers = '16MB'\nmax_connections = 20\nmax_wal_senders = 5\n\
             autovacuum_naptime = '1h'\nlog_checkpoints = off\n",
        );
        if !options.durable {
            conf.push_str("fsync = off\n");
        }
        for (name, value) in options.conf {
            conf.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        server.append_conf(&conf);
        server
    }

    /// Makes the data directory by `initdb`.
    fn make(&self, data: &Path, options: &Options<'_>) -> PathBuf {
        let mut initdb = self.command("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "--pgdata"]);
        initdb.arg(data);
        initdb.arg(format!("--wal-segsize={}", options.wal_segment_mib));
        if options.checksums {
            initdb.arg("--data-checksums");
        } else if self.installation.major >= 18 {
            initdb.arg("--no-data-checksums");
        }
        if options.group_access {
            initdb.arg("--allow-group-access");
        }
        expect_success(&mut initdb);
        data.to_owned()
    }

    /// A server for an existing data directory, for example a restored one. It is used as it is, including permissions
    /// and owner, and is not removed at the end.
    pub fn adopt(installation: &Installation, data_dir: &Path) -> Self {
        let mut server = Self::place(installation);
        server.data_dir = data_dir.to_owned();
        server
    }

    /// A directory with a short name that the servers' user owns.
    fn place(installation: &Installation) -> Self {
        let user = User::of_servers();
        let dir = place::of(user, "lspg");
        Self {
            installation: installation.clone(),
            user,
            data_dir: dir.path().join("data"),
            dir,
            port: 5432,
            tcp: false,
            running: Mutex::new(None),
        }
    }

    /// Appends lines to `postgresql.conf`.
    pub fn append_conf(&self, lines: &str) {
        let path = self.data_dir.join("postgresql.conf");
        let conf = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{conf}\n{lines}\n")).unwrap();
    }

    /// Starts the server and waits until it accepts connections. Panics with the log if it does not.
    pub fn start(&self) {
        if let Err(reason) = self.try_start() {
            panic!("PostgreSQL {}: {reason}", self.installation.major);
        }
    }

    /// Starts the server and waits until it accepts connections; a recovering server, until it opens or pauses.
    ///
    /// # Errors
    /// The log, if the server ends before that.
    pub fn try_start(&self) -> Result<(), String> {
        let mut running = self.running.lock().unwrap();
        assert!(running.is_none(), "the server runs already");
        let log = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.log_path())
            .unwrap();
        let mut command = self.user.command(Path::new("/bin/sh"));
        command.args(["-c", WATCH, "sh"]);
        command.arg(self.installation.bin_dir.join("postgres"));
        command.arg("-D").arg(&self.data_dir);
        let listen = if self.tcp { "127.0.0.1" } else { "" };
        command.arg("-c").arg(format!("listen_addresses={listen}"));
        command.arg("-c").arg(format!(
            "unix_socket_directories={}",
            self.socket_dir().display()
        ));
        command.arg("-p").arg(self.port.to_string());
        command.args([
            "-c",
            "logging_collector=off",
            "-c",
            "log_destination=stderr",
        ]);
        let mut child = command
            .current_dir(self.dir.path())
            .env("TZ", "UTC")
            // Programs that the server starts must not look for settings in another user's home.
            .env("HOME", self.dir.path())
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let signal = |name: &str| self.data_dir.join(name).exists();
        let recovers = signal("recovery.signal") && !signal("standby.signal");
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return Err(format!("the server ended ({status})\n{}", self.log()));
            }
            if self.takes_connections() && (!recovers || self.has_recovered()) {
                *running = Some(child);
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                drop(child.stdin.take());
                let _ = child.wait();
                panic!("the server did not start in time\n{}", self.log());
            }
            std::thread::sleep(until_next_look(begin, 20));
        }
    }

    /// Since PostgreSQL 10 the last line of `postmaster.pid` shows it (`miscadmin.h`, PM_STATUS_READY).
    fn takes_connections(&self) -> bool {
        let pid = fs::read_to_string(self.data_dir.join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<&str> = pid.lines().collect();
        // A stale file of a killed server also has the status, but not this server's socket.
        let socket = format!(".s.PGSQL.{}", self.port);
        lines.get(7).is_some_and(|s| s.trim() == "ready")
            && lines.get(4).copied() == self.socket_dir().to_str()
            && self.pid().is_some_and(alive)
            && self.socket_dir().join(socket).exists()
    }

    /// A recovering server accepts connections as soon as it is consistent.
    fn has_recovered(&self) -> bool {
        let goes_on = "select pg_is_in_recovery() and not pg_is_wal_replay_paused()";
        self.try_psql("postgres", goes_on).as_deref() == Ok("f")
    }

    /// The server's process id in `postmaster.pid`; it may be stale.
    pub fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.data_dir.join("postmaster.pid")).ok()?;
        Pid::from_raw(text.lines().next()?.trim().parse().ok()?)
    }

    /// Stops the server and waits for its end.
    pub fn stop(&self, mode: Stop) {
        self.end(match mode {
            Stop::Smart => Signal::TERM,
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        });
    }

    /// Kills the server and all its processes, as if the power had failed.
    pub fn kill9(&self) {
        self.end(Signal::KILL);
    }

    fn end(&self, signal: Signal) {
        let Some(mut child) = self.running.lock().unwrap().take() else {
            return;
        };
        let mut left = Vec::new();
        if let Some(pid) = self.pid() {
            if signal == Signal::KILL {
                left = children(pid);
            }
            let _ = kill_process(pid, signal);
            for child in &left {
                let _ = kill_process(*child, signal);
            }
        }
        let begin = Instant::now();
        // A killed process keeps the shared memory until it is gone; until then no server can start.
        while child.try_wait().unwrap().is_none() || left.iter().any(|pid| alive(*pid)) {
            if begin.elapsed() > PATIENCE {
                let _ = child.kill();
                if !std::thread::panicking() {
                    panic!("the server did not stop in time\n{}", self.log());
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the server was started and has not ended since.
    pub fn is_running(&self) -> bool {
        let mut running = self.running.lock().unwrap();
        let child = running.as_mut();
        child.is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Waits until the server has ended by itself, as with `recovery_target_action = shutdown`.
    pub fn wait_for_end(&self) {
        let begin = Instant::now();
        while self.is_running() {
            assert!(begin.elapsed() < PATIENCE, "it still runs\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        *self.running.lock().unwrap() = None;
    }

    /// The answer to a query in the database `postgres`: columns separated by `|`, rows by line feeds. Panics on
    /// failure.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_in("postgres", sql)
    }

    /// The answer to a query in another database.
    pub fn psql_in(&self, database: &str, sql: &str) -> String {
        self.try_psql(database, sql)
            .unwrap_or_else(|e| panic!("{sql}\n{e}\n{}", self.log()))
    }

    /// The answer to a query, each statement in its own transaction.
    ///
    /// # Errors
    /// The error output of `psql`.
    pub fn try_psql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = self.command("psql");
        // Settings of a client count more than those of a database.
        psql.env("PGOPTIONS", "-c statement_timeout=0");
        psql.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
        ]);
        // By standard input: several statements of one -c would be one transaction.
        let script = self
            .dir
            .path()
            .join(format!("{:?}.sql", std::thread::current().id()));
        fs::write(&script, sql).unwrap();
        psql.stdin(fs::File::open(&script).unwrap());
        let output = run(&mut psql);
        let _ = fs::remove_file(&script);
        if output.status.success() {
            Ok(text(&output.stdout).trim_end().to_owned())
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Repeats the query until the answer is `expected`, for at most [`PATIENCE`].
    pub fn wait_for(&self, sql: &str, expected: &str) {
        let begin = Instant::now();
        loop {
            let found = self.try_psql("postgres", sql);
            if found.as_deref() == Ok(expected) {
                return;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{sql}: {found:?}, not {expected}\n{}",
                self.log()
            );
            std::thread::sleep(until_next_look(begin, 50));
        }
    }

    /// A tool of this installation (or of a newer one, if this one lacks it), run as the servers' user, with this
    /// server as its default. Panics if there is none.
    pub fn command(&self, tool: &str) -> Command {
        let program = self.installation.program(tool);
        let program = program.unwrap_or_else(|| panic!("{tool} is missing: run scripts/setup.sh"));
        let mut command = self.user.command(&program);
        self.prepare(&mut command);
        command
    }

    /// Any program, run as the servers' user, with this server as the default of libpq.
    pub fn command_at(&self, program: &Path) -> Command {
        let mut command = self.user.command(program);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .env("PGHOST", self.socket_dir())
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "postgres")
            .stdin(Stdio::null());
    }

    /// A connection string for libpq.
    pub fn url(&self) -> String {
        let host = self.socket_dir().display();
        format!(
            "postgresql://postgres@/postgres?host={host}&port={}",
            self.port
        )
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    pub fn user(&self) -> User {
        self.user
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The directory of the socket; short, owned by the servers' user, and free for a test's own files.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Everything that the server has logged, over all its starts.
    pub fn log(&self) -> String {
        text(&fs::read(self.log_path()).unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Signal::QUIT);
    }
}

/// The pause before a server is asked once more: a tenth of the wait so far. Each look costs a process and a session, which
/// take CPU time from what is waited for.
fn until_next_look(begin: Instant, least_ms: u64) -> Duration {
    (begin.elapsed() / 10).clamp(Duration::from_millis(least_ms), Duration::from_millis(200))
}

/// Runs a command to its end. Panics if that takes longer than [`PATIENCE`].
fn run(command: &mut Command) -> Output {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pid = Pid::from_child(&child);
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if wait.recv_timeout(PATIENCE).is_err() {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = child.wait_with_output().unwrap();
        let _ = done.send(());
        output
    })
}

fn expect_success(command: &mut Command) {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

fn alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

fn children(pid: Pid) -> Vec<Pid> {
    let raw = pid.as_raw_nonzero();
    let path = format!("/proc/{raw}/task/{raw}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    let ids = text.split_whitespace().filter_map(|n| n.parse().ok());
    ids.filter_map(Pid::from_raw).collect()
}
