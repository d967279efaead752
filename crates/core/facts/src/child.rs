//! The resources that another program used, measured from outside.
//!
//! Invariants
//! - CPU time is the kernel's account and exact, with threads and reaped children.
//! - Peak memory is the program's own, never this process's at the time of the fork. It is sampled, so growth in a
//!   program's last moments may be missed.
//! - The program is always waited for. Standard output is kept if the command pipes it.
//!
//! Leaves to others: what the numbers are compared with (the studies).

use std::fs;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::machine::kib_of;
use super::process::{ProcessUsage, time};

/// The interval at which peak memory is sampled. Growth in a program's last moments may be missed.
const LOOK: Duration = Duration::from_millis(5);

/// A program that has ended.
#[derive(Debug)]
pub struct EndedChild {
    pub status: ExitStatus,
    /// By the kernel's accounting, including threads and reaped children. `rss_max_bytes` is the program's own.
    pub usage: ProcessUsage,
    /// Everything the program wrote to standard output, if the command pipes it.
    pub stdout: Vec<u8>,
}

/// Starts a program, waits until it ends and returns what it used. Blocks.
pub fn run_to_end(command: &mut Command) -> io::Result<EndedChild> {
    let mut child = command.spawn()?;
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let pipe = child.stdout.take();
    let (ended, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let watch = thread::Builder::new().spawn_scoped(scope, || {
            // The kernel's `ru_maxrss` of a child starts at this process's resident size at the time of the fork,
            // because exec keeps that mark. The value read here belongs to the new program.
            while !ended.load(Relaxed) {
                peak.fetch_max(rss_max_bytes(pid).unwrap_or(0), Relaxed);
                thread::park_timeout(LOOK);
            }
        });
        let watch = match watch {
            Ok(watch) => watch,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error);
            }
        };
        let mut stdout = Vec::new();
        let heard = pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut stdout));
        let waited = wait(pid);
        ended.store(true, Relaxed);
        watch.thread().unpark();
        let (status, usage) = waited?;
        heard?;
        Ok(EndedChild {
            status,
            usage: ProcessUsage {
                cpu_user: time(usage.ru_utime),
                cpu_system: time(usage.ru_stime),
                rss_max_bytes: peak.load(Relaxed),
            },
            stdout,
        })
    })
}

/// The program's peak resident memory; `None` for a process that has ended.
fn rss_max_bytes(pid: libc::pid_t) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    kib_of(&status, "VmHWM")
}

fn wait(pid: libc::pid_t) -> io::Result<(ExitStatus, libc::rusage)> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::uninit());
    loop {
        // SAFETY: wait4 demands room for a status and for one `rusage`, which are local variables, and a child that
        // nothing else waits for, as this one is.
        if unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) } == pid {
            // SAFETY: `assume_init` demands a structure that was filled: wait4 does so whenever it returns a process.
            return Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn work_output_and_status_of_a_child_are_seen() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo $i; exit 3",
        ]);
        let ended = run_to_end(command.stdout(Stdio::piped())).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(ended.stdout, b"100000\n");
        // On any machine that much work takes more than no time.
        assert!(ended.usage.cpu() >= Duration::from_micros(500));
    }

    #[test]
    fn the_peak_is_the_childs_own_and_not_ours() {
        let ours = std::hint::black_box(vec![1u8; 64 << 20]);
        let peak = |script: &str| {
            let ended = run_to_end(Command::new("sh").args(["-c", script]));
            ended.unwrap().usage.rss_max_bytes
        };
        assert!((500_000..20 << 20).contains(&peak("sleep 0.1")));
        // The shell keeps the value of a variable.
        let large = "x=$(head -c 30000000 /dev/zero | tr '\\0' a); sleep 0.1";
        assert!(peak(large) > 30_000_000);
        drop(ours);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let missing = run_to_end(&mut Command::new("/no/such/program"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
