//! I/O priority of threads (`ioprio_set`). Schedulers such as BFQ and mq-deadline follow it; `none` ignores it.

use std::io;
use std::marker::PhantomData;

/// Constants of Linux, `ioprio.h`.
const WHO_PROCESS: i32 = 1;
const CLASS_SHIFT: i32 = 13;
const IDLE: i32 = 3;
/// Best effort, the last of its eight levels: a small share next to other processes.
const LOW: i32 = 2 << CLASS_SHIFT | 7;

/// Lowers the I/O priority of the thread that made it until it is dropped, and of threads that this thread starts
/// meanwhile.
#[derive(Debug)]
pub struct LowIoPriority {
    before: i32,
    /// Must be dropped on the thread that made it.
    here: PhantomData<*const ()>,
}

impl LowIoPriority {
    /// Sets the last of best effort's eight levels. A thread in the idle class (served only when nothing else uses the
    /// disk) stays in it.
    ///
    /// # Errors
    /// The system has no I/O priorities or forbids the change.
    pub fn take() -> io::Result<LowIoPriority> {
        let before = get()?;
        if before >> CLASS_SHIFT != IDLE {
            set(LOW)?;
        }
        let here = PhantomData;
        Ok(LowIoPriority { before, here })
    }
}

impl Drop for LowIoPriority {
    fn drop(&mut self) {
        if let Err(error) = set(self.before) {
            tracing::warn!(%error, "the I/O priority could not be restored");
        }
    }
}

fn get() -> io::Result<i32> {
    // SAFETY: the call demands three integers and touches no memory; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value as i32),
    }
}

fn set(value: i32) -> io::Result<()> {
    // SAFETY: the call demands three integers and touches no memory; the kernel refuses a value that is no priority.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_thread_and_those_it_starts_meanwhile_get_the_priority_and_then_the_old_one_again() {
        // In a thread of its own, because the priority stays set.
        let ours = || {
            // Three cases: the priority this test was started with, another level, and idle, which is already lower.
            for (before, meanwhile) in [
                (get().unwrap(), LOW),
                (2 << CLASS_SHIFT | 2, LOW),
                (IDLE << CLASS_SHIFT, IDLE << CLASS_SHIFT),
            ] {
                set(before).unwrap();
                let before = get().unwrap();
                let low = LowIoPriority::take().unwrap();
                assert_eq!(get().unwrap(), meanwhile);
                assert_eq!(thread::spawn(|| get().unwrap()).join().unwrap(), meanwhile);
                drop(low);
                assert_eq!(get().unwrap(), before);
            }
        };
        thread::spawn(ours).join().unwrap();
    }
}
