//! Goal: the cache works as its users run it: `longshore cache serve` and stock clients of the protocol. The modules
//! show one side each; this file has their common stage.
//! Method: real processes on files of a scratch directory. The oracle is the backend's file.
//! Not covered: real devices.

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod demo;
mod journey;
mod kill;
mod ready;
mod studies;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{answer, expect};
use serde_json::Value;

/// Whether all these programs are installed; if not, the test is skipped by name, or fails if they are required.
fn have(tools: &[&str]) -> bool {
    let here = |tool: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        !std::env::split_paths(&path).any(|dir| dir.join(tool).exists())
    };
    let missing: Vec<_> = tools.iter().filter(here).collect();
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(
        missing.is_empty() || !required,
        "{missing:?} are missing; run scripts/setup.sh"
    );
    if !missing.is_empty() {
        println!("skipped: {missing:?} are missing");
    }
    missing.is_empty()
}

/// A backend, a cache, and the server on them.
struct Stage {
    dir: tempfile::TempDir,
    server: Option<Child>,
}

impl Stage {
    /// A backend of `backend_mib` MiB, the first half of it noise, and a cache of `cache_mib` MiB.
    fn new(backend_mib: usize, cache_mib: usize) -> Stage {
        let stage = Stage {
            dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
            server: None,
        };
        let mut random = common::Random(1);
        let noise: Vec<u8> = (0..backend_mib << 16)
            .flat_map(|_| random.next().to_le_bytes())
            .collect();
        fs::write(stage.path("backend"), noise).unwrap();
        let backend = fs::OpenOptions::new()
            .write(true)
            .open(stage.path("backend"))
            .unwrap();
        backend.set_len((backend_mib << 20) as u64).unwrap();
        let size = format!("{cache_mib}M");
        expect(
            0,
            [
                "cache",
                "create",
                stage.text("cache").as_str(),
                "--size",
                &size,
                "--slot",
                "16K",
            ],
        );
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.text("socket"))
    }

    fn serve(&mut self, more: &[&str]) {
        self.serve_by(&[], more);
    }

    /// The same, started by another program with its options.
    fn serve_by(&mut self, by: &[&str], more: &[&str]) {
        let plugin = std::env::current_exe()
            .unwrap()
            .with_file_name("liblongshore_nbd.so");
        let mut command = common::longshore(["cache", "serve"]);
        command.arg(self.path("backend"));
        if !more.contains(&"--cache") {
            command.arg("--cache").arg(self.path("cache"));
        }
        command
            .arg("--socket")
            .arg(self.path("socket"))
            .arg("--plugin")
            .arg(plugin)
            .args(more);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        if let Some((program, options)) = by.split_first() {
            let mut other = Command::new(program);
            other.args(options).arg(command.get_program());
            other.args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => other.env(name, value),
                    None => other.env_remove(name),
                };
            }
            command = other;
        }
        let server = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.server = Some(server);
        let since = Instant::now();
        // nbdkit listens before the plugin does.
        let answers = |name: &str| std::os::unix::net::UnixStream::connect(self.path(name)).is_ok();
        while !answers("socket.control") || !answers("socket") {
            assert!(since.elapsed() < Duration::from_secs(30), "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&mut self, signal: i32) {
        let mut server = self.server.take().unwrap();
        // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its
        // own.
        unsafe { libc::kill(server.id() as i32, signal) };
        server.wait().unwrap();
    }

    fn stop(&mut self) {
        self.signal(libc::SIGTERM);
        assert!(self.log().contains("stopped cleanly"), "{}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The bytes held once pending fills are done: fills continue after the reads that caused them.
    fn held_at_rest(&self) -> u64 {
        let since = Instant::now();
        let (mut held, mut same) = (None, 0);
        while same < 10 {
            let found = self.status()["cache_state"]["held_bytes"].as_u64();
            same = if found == held { same + 1 } else { 0 };
            held = found;
            assert!(since.elapsed() < Duration::from_secs(120), "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        held.unwrap()
    }

    fn status(&self) -> Value {
        let socket = self.text("socket");
        answer(&expect(0, ["cache", "status", socket.as_str(), "--json"]))
    }

    /// Compares everything that a client reads with the backend's file.
    fn reads_as_the_backend(&self) {
        run(Command::new("nbdcopy")
            .arg(self.uri())
            .arg(self.path("copy")));
        same(&self.path("copy"), &self.path("backend"));
        fs::remove_file(self.path("copy")).unwrap();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _gone = server.kill();
            let _ended = server.wait();
        }
    }
}

fn same(a: &Path, b: &Path) {
    assert!(
        fs::read(a).unwrap() == fs::read(b).unwrap(),
        "{} and {} differ",
        a.display(),
        b.display()
    );
}

/// Runs a program to its end and returns its output.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = common::text(&output.stdout) + &common::text(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}");
    text
}
