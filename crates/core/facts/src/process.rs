//! The resources that this process and its children have used.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use super::machine::kib_of;

/// Resources that a process with all its threads has used since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    pub cpu_user: Duration,
    pub cpu_system: Duration,
    /// Peak resident memory, in bytes.
    pub rss_max_bytes: u64,
}

impl ProcessUsage {
    /// User and system time together.
    pub fn cpu(&self) -> Duration {
        self.cpu_user + self.cpu_system
    }
}

pub(super) fn time(t: libc::timeval) -> Duration {
    Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
}

fn usage_of(who: libc::c_int) -> io::Result<libc::rusage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: getrusage demands a place for one `rusage`, which is a local variable.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `assume_init` demands a structure that was filled: getrusage does so whenever it returns 0.
    Ok(unsafe { usage.assume_init() })
}

/// CPU time of the children that have ended and were waited for, with theirs.
pub fn children_cpu() -> io::Result<Duration> {
    let usage = usage_of(libc::RUSAGE_CHILDREN)?;
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Resources that this process has used so far.
pub fn process_usage() -> io::Result<ProcessUsage> {
    let usage = usage_of(libc::RUSAGE_SELF)?;
    // `ru_maxrss` survives exec, so it may be the peak of the shell that started us.
    let status = fs::read_to_string("/proc/self/status")?;
    let rss_max_bytes = kib_of(&status, "VmHWM")
        .unwrap_or_else(|| usage.ru_maxrss.unsigned_abs().saturating_mul(1024));
    let (cpu_user, cpu_system) = (time(usage.ru_utime), time(usage.ru_stime));
    Ok(ProcessUsage {
        cpu_user,
        cpu_system,
        rss_max_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{Clock, HostClock};

    #[test]
    fn work_and_memory_of_any_thread_are_counted() {
        let before = process_usage().unwrap();
        let work = || {
            let memory = vec![1u8; 64 << 20];
            let start = HostClock.thread_cpu();
            while HostClock.thread_cpu() - start < Duration::from_millis(50) {}
            std::hint::black_box(memory);
        };
        std::thread::spawn(work).join().unwrap();
        let after = process_usage().unwrap();
        assert!(after.cpu() - before.cpu() >= Duration::from_millis(40));
        assert!(after.rss_max_bytes >= 64 << 20);
    }

    #[test]
    fn work_of_a_child_is_counted_once_it_was_waited_for() {
        let before = children_cpu().unwrap();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("/bin/sh");
        assert!(child.args(["-c", work]).status().unwrap().success());
        assert!(children_cpu().unwrap() > before);
    }
}
