//! What the tests of the real program share: running it, chance with a seed, content, comparisons.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The program, with a history of nobody.
pub fn longshore<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command
        .args(args)
        .env("LONGSHORE_CATALOG", "none")
        .env_remove("LONGSHORE_CONFIG")
        .stdin(Stdio::null());
    hears_interrupts(&mut command);
    command
}

/// Shells start what is in their background with SIGINT ignored, `nohup` with SIGHUP, and the program keeps to that; a
/// test that sends one must not depend on where it was started.
pub fn hears_interrupts(command: &mut Command) {
    // SAFETY: between fork and exec, the closure makes system calls only and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        })
    };
}

/// The program in a directory with a configuration, and with the history that lies there.
pub fn longshore_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = longshore(args);
    command
        .current_dir(dir)
        .env("LONGSHORE_CONFIG", dir.join("longshore.toml"))
        .env("LONGSHORE_CATALOG", dir.join("state/catalog.db"));
    command
}

/// Runs to the end. Panics when the exit code is another than `expected`.
pub fn expect<S: AsRef<OsStr>>(expected: i32, args: impl IntoIterator<Item = S>) -> Output {
    let mut command = longshore(args);
    let output = command.output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(expected),
        "{command:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The answer of a run with `--json`.
pub fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A number from the environment, so that a soak can ask for more than `make test`.
pub fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap())
}

/// Chance by a seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Bytes that compress about twofold, the same for the same seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(len + 32);
    while out.len() < len {
        let n = random.next();
        out.extend_from_slice(&n.to_le_bytes());
        out.extend_from_slice(b"customer");
        out.extend_from_slice(&[(n % 7) as u8; 8]);
    }
    out.truncate(len);
    out
}

pub type Tree = BTreeMap<PathBuf, Vec<u8>>;

pub fn put(root: &Path, tree: &Tree) {
    for (name, bytes) in tree {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Every file below `root`; names of directories and links too, with what they are.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        let bytes = if meta.is_dir() {
            let names = std::fs::read_dir(&path).unwrap();
            todo.extend(names.map(|e| e.unwrap().path()));
            continue;
        } else if meta.is_symlink() {
            format!("-> {:?}", std::fs::read_link(&path).unwrap()).into_bytes()
        } else {
            std::fs::read(&path).unwrap()
        };
        tree.insert(path.strip_prefix(root).unwrap().into(), bytes);
    }
    tree
}

/// Names, times and contents of everything below `root`: equal before and after means untouched.
pub fn fingerprint(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let mut what = format!(
            "{:o} {} {}:{} x{}",
            meta.mode(),
            meta.len(),
            meta.ctime(),
            meta.ctime_nsec(),
            meta.nlink()
        );
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_file() {
            let crc = longshore_io::crc32c(&std::fs::read(&path).unwrap());
            what.push_str(&format!(" {crc:08x}"));
        }
        all.insert(path, what);
    }
    all
}

/// Waits for a child, and kills it when it does not end: a run that hangs must fail the test, not stop it.
pub fn wait(child: &mut Child, patience: Duration, what: &str) -> std::process::ExitStatus {
    let began = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > patience {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{what}: hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a child handles a signal: one that comes before would end it by itself.
pub fn wait_for_handler(child: &Child, signal: i32) {
    let status = format!("/proc/{}/status", child.id());
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let status = std::fs::read_to_string(&status).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
        if mask & (1 << (signal - 1)) != 0 {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "no handler");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A child that ends with the test, whatever happens.
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped_already = self.0.wait();
    }
}

/// What a run used, as the system counted it.
#[derive(Debug)]
pub struct Used {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub wall: Duration,
    pub cpu: Duration,
    /// Largest resident set that was seen, looked at every 2 ms: the kernel keeps its own highest. Its figure for a child
    /// that has ended begins with what the parent had.
    pub resident_bytes: u64,
}

impl Used {
    pub fn answer(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|e| panic!("{e}: {} {}", text(&self.stdout), self.stderr))
    }
}

/// The largest resident set of a process until now; 0 once it has ended.
fn highest_resident(pid: libc::pid_t) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Runs to the end, or kills what does not end in time.
#[expect(
    clippy::zombie_processes,
    reason = "it is waited for by wait4, for its usage"
)]
pub fn measure(command: &mut Command, patience: Duration) -> Used {
    let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let began = std::time::Instant::now();
    let child = command
        .stdout(out.try_clone().unwrap())
        .stderr(err.try_clone().unwrap())
        .spawn()
        .unwrap();
    let pid = child.id() as libc::pid_t;
    // SAFETY: all zeros is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    let mut resident_bytes = 0;
    let code = loop {
        resident_bytes = resident_bytes.max(highest_resident(pid));
        // SAFETY: the pointers are valid for the call; the child is waited for nowhere else.
        let ended = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage) };
        assert!(ended >= 0, "{}", std::io::Error::last_os_error());
        if ended == pid {
            break libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        }
        if began.elapsed() > patience {
            // SAFETY: the child was not waited for, so its number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("{command:?}: not done after {patience:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let wall = began.elapsed();
    let read = |file: std::fs::File| {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    Used {
        code,
        stdout: read(out),
        stderr: text(&read(err)),
        wall,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        resident_bytes,
    }
}
