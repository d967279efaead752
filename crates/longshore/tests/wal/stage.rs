//! Goal: the tests of archiving have a server, an archive of its WAL, and the program as the server would run it.
//! Method: real servers with segments of 1 MiB; gzip unpacks segments, which knows nothing of us.
//! Not covered: this file has no tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use longshore_kit::{Installation, Options, PATIENCE, Server};
use serde_json::Value;

pub use crate::common::BINARY;

/// Goes before the program in a server's command: the server's HOME is that of the user who runs the tests.
pub const SHELL: &str = "HOME=/nonexistent";

/// A cluster with segments of 1 MiB; `conf` comes last.
pub fn server(installation: &Installation, conf: &[(&str, &str)]) -> Server {
    let options = Options {
        conf,
        wal_segment_mib: 1,
        ..Options::default()
    };
    Server::create(installation, options)
}

/// The program, as the server's user and in its data directory, without a user's configuration.
pub fn longshore(server: &Server, args: &[&str]) -> Command {
    let mut command = server.command_at(Path::new(BINARY));
    command
        .current_dir(server.data_dir())
        .env_remove("XDG_CONFIG_HOME")
        .args(args)
        .stdin(Stdio::null());
    command
}

pub fn run(server: &Server, args: &[&str]) -> Output {
    longshore(server, args).output().unwrap()
}

/// `wal receive` from the server into the archive, by the slot `s`.
pub fn receive(server: &Server, archive: &str, more: &[&str]) -> Command {
    let url = server.url();
    let mut command = longshore(server, &["wal", "receive", &url]);
    command.args(["--slot", "s", "--create-slot", "--archive", archive]);
    command.args(more);
    command
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A directory next to the data directory.
pub fn beside(server: &Server, name: &str) -> String {
    server.socket_dir().join(name).display().to_string()
}

/// A new archive next to the data directory.
pub fn new_archive(server: &Server, name: &str) -> String {
    let path = beside(server, name);
    let output = run(server, &["wal", "create", "--archive", &path]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    path
}

/// The answer of `wal list`.
pub fn list(server: &Server, archive: &str) -> Value {
    let output = run(server, &["wal", "list", "--json", "--archive", archive]);
    assert!(!output.stdout.is_empty(), "{}", text(&output));
    longshore_kit::program::answer(&output)
}

/// The names of the segments that an archive has, from its directories.
pub fn segments(archive: &str) -> Vec<String> {
    let mut names = Vec::new();
    for dir in std::fs::read_dir(archive).unwrap() {
        let path = dir.unwrap().path();
        if path.is_dir() && path.file_name().unwrap().len() == 16 {
            for file in std::fs::read_dir(path).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                names.extend(
                    name.strip_suffix(".gz")
                        .filter(|n| n.len() == 24)
                        .map(str::to_owned),
                );
            }
        }
    }
    names.sort();
    names
}

/// The path at which an archive keeps a segment.
pub fn stored(archive: &str, name: &str) -> PathBuf {
    Path::new(archive)
        .join(&name[..16])
        .join(format!("{name}.gz"))
}

/// A segment unpacked by gzip, which knows nothing of us.
pub fn unpacked(archive: &str, name: &str) -> Vec<u8> {
    let output = Command::new("gzip")
        .arg("-dc")
        .arg(stored(archive, name))
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", text(&output));
    output.stdout
}

/// Writes rows and switches segments, `rounds` times.
pub fn work(server: &Server, rounds: u32) {
    server.psql("create table if not exists t (id serial, filler text)");
    for _ in 0..rounds {
        server.psql(
            "insert into t (filler) select repeat(md5(random()::text), 8) from generate_series(1, 3000); \
             select pg_switch_wal();",
        );
    }
}

/// Switches the current segment, and waits until the server's archiver has stored everything. Returns the segment's
/// name.
pub fn archived(server: &Server, archive: &str) -> String {
    server.psql("insert into t (filler) values ('the last of its segment')");
    let last = server.psql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    server.psql("select pg_switch_wal()");
    // Each query is a connection, and that wakes the postmaster, which starts an archiver that was killed.
    let ready = "select count(*) from pg_ls_dir('pg_wal/archive_status') n where n like '%.ready'";
    server.wait_for(ready, "0");
    wait_until("archived", server, || stored(archive, &last).exists());
    last
}

pub fn rows(server: &Server) -> u64 {
    server.psql("select count(*) from t").parse().unwrap()
}

/// Files that the archiver has not pushed yet.
pub const READY: &str =
    "select count(*) from pg_ls_dir('pg_wal/archive_status') n where n like '%.ready'";

/// Waits for `done`, at most [`PATIENCE`].
pub fn wait_until(what: &str, server: &Server, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what}\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A copy of the data directory of a stopped server, owned by the servers' user.
pub fn copy(server: &Server, name: &str) -> PathBuf {
    let to = server.socket_dir().join(name);
    let copied = server
        .command_at(Path::new("/bin/cp"))
        .args(["-a", &server.data_dir().display().to_string()])
        .arg(&to)
        .status()
        .unwrap();
    assert!(copied.success());
    to
}

/// Appends settings to a data directory's configuration and puts an empty file next to it.
pub fn recover(server: &Server, data: &Path, settings: &str, signal: &str) {
    let conf = data.join("postgresql.auto.conf");
    let before = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{before}\n{settings}\n")).unwrap();
    std::fs::write(data.join(signal), "").unwrap();
    server.user().own(&data.join(signal));
}
