//! Runs the program: starts it, waits for it, checks its end, measures it.
//!
//! Cargo tells a program's path only to the tests of its own crate, so each caller names it.
//!
//! Invariants
//! - [`command`] starts a run without input and without the user's history and configuration.
//! - An answer in JSON is compared with `docs/json.md` by [`end`], [`answer`] and [`Ran`].
//! - [`wait`] and [`measure`] kill a child that does not end in time, and the test fails; [`end`] waits without a
//!   limit.
//!
//! Leaves to others: the text of `docs/json.md` as a schema (`schema.rs`), and the places of files (`place.rs`).

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::schema::{check_if_answer, checked};

/// The program, without a user's history and configuration, and without input.
pub fn command<S: AsRef<OsStr>>(
    program: impl AsRef<Path>,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .args(args)
        .env("LONGSHORE_CATALOG", "none")
        .env_remove("LONGSHORE_CONFIG")
        .stdin(Stdio::null());
    hears_interrupts(&mut command);
    command
}

/// Shells start background jobs with SIGINT ignored, `nohup` with SIGHUP, and the program keeps that; a test that
/// sends a signal must not depend on how it was started.
pub fn hears_interrupts(command: &mut Command) {
    // SAFETY: between fork and exec the closure must only make system calls: it does, and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        })
    };
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The answer of a run with `--json`, which is as its page says.
#[track_caller]
pub fn answer(output: &Output) -> Value {
    checked(&text(&output.stdout))
}

pub fn succeed(command: &mut Command) -> Output {
    end(command, 0)
}

/// Runs to the end; panics if the exit code differs, or an answer is not as its page says.
#[track_caller]
pub fn end(command: &mut Command, code: i32) -> Output {
    let output = command.output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{command:?}\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    check_if_answer(&output.stdout);
    output
}

/// The result of a finished program.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Panics if there is an answer that is not as its page says.
    #[track_caller]
    pub fn of(output: &Output) -> Ran {
        check_if_answer(&output.stdout);
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Checks the exit code and returns the run.
    #[track_caller]
    pub fn exits(self, code: i32) -> Ran {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.out, self.err
        );
        self
    }

    #[track_caller]
    pub fn says(self, part: &str) -> Ran {
        assert!(
            self.out.contains(part) || self.err.contains(part),
            "{part:?} is missing\nstdout: {}\nstderr: {}",
            self.out,
            self.err
        );
        self
    }
}

/// Waits for a child, and kills it if it does not end: a hung run must fail the test, not stop it.
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

/// Waits until a child handles a signal: an earlier signal would end it by default.
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

/// A child that is killed when the test ends, whatever happens.
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped_already = self.0.wait();
    }
}

/// The resources that a run used, as the system counted them.
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
    #[track_caller]
    pub fn answer(&self) -> Value {
        assert!(!self.stdout.is_empty(), "no answer: {}", self.stderr);
        checked(&text(&self.stdout))
    }
}

/// The largest resident set of a process so far; 0 once it has ended.
fn highest_resident(pid: libc::pid_t) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Runs to the end, or kills a run that does not end in time.
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
    // SAFETY: `zeroed` demands a type for which zeros are valid, as `rusage` is.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    let mut resident_bytes = 0;
    let code = loop {
        resident_bytes = resident_bytes.max(highest_resident(pid));
        // SAFETY: wait4 demands room for a status and for one `rusage`, which are local variables; the child is waited
        // for nowhere else.
        let ended = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage) };
        assert!(ended >= 0, "{}", std::io::Error::last_os_error());
        if ended == pid {
            break libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        }
        if began.elapsed() > patience {
            // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still
            // its own.
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
