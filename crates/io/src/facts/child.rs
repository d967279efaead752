//! What another program has used, measured from outside.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use super::process::{ProcessUsage, time};

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// By the kernel's account, threads and reaped children included. `rss_max_bytes` is never less than
    /// what *this* process had resident when it started the other: exec keeps the mark.
    pub usage: ProcessUsage,
    /// Everything it wrote to standard output, where the command pipes that.
    pub stdout: Vec<u8>,
}

/// Starts a program, waits for its end and says what it has used. Blocks.
pub fn run_to_end(command: &mut Command) -> io::Result<Ended> {
    let mut child = command.spawn()?;
    let mut stdout = Vec::new();
    let heard = match child.stdout.take() {
        Some(mut pipe) => pipe.read_to_end(&mut stdout),
        None => Ok(0),
    };
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::uninit());
    loop {
        // SAFETY: both places take what the call writes. The child is ours and `Child` has not waited for it.
        if unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    heard?;
    // SAFETY: the call succeeded, so it is written.
    let usage = unsafe { usage.assume_init() };
    Ok(Ended {
        status: ExitStatus::from_raw(status),
        usage: ProcessUsage {
            cpu_user: time(usage.ru_utime),
            cpu_system: time(usage.ru_stime),
            rss_max_bytes: usage.ru_maxrss.unsigned_abs().saturating_mul(1024),
        },
        stdout,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;
    use std::time::Duration;

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
        assert!(ended.usage.cpu() >= Duration::from_millis(10));
        assert!(ended.usage.rss_max_bytes > 500_000);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let missing = run_to_end(&mut Command::new("/no/such/program"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
