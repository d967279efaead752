//! I/O priority of threads, as the kernel's `ioprio_set` has it. Schedulers such as BFQ and
//! mq-deadline heed it, `none` does not.

use std::io;

/// Constants of Linux, `ioprio.h`.
const WHO_PROCESS: i32 = 1;
const CLASS_SHIFT: i32 = 13;

/// How urgent the requests of a thread are to the I/O scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoPriority {
    /// As the system has it: by the nice value.
    Normal,
    /// Best effort, the last of its eight levels: a small share beside others.
    Low,
    /// Only when nobody else wants the disk. May starve.
    Idle,
}

/// Sets the priority of the calling thread, and of threads it starts from now on.
pub fn set_io_priority(priority: IoPriority) -> io::Result<()> {
    let value = match priority {
        IoPriority::Normal => 0,
        IoPriority::Low => 2 << CLASS_SHIFT | 7,
        IoPriority::Idle => 3 << CLASS_SHIFT,
    };
    // SAFETY: integers only; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn priority_of_this_thread() -> i64 {
        // SAFETY: integers only.
        unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) }
    }

    #[test]
    fn a_thread_and_those_it_starts_later_get_the_priority() {
        // In a thread of its own, for it leaves its mark.
        let ours = || {
            set_io_priority(IoPriority::Low).unwrap();
            assert_eq!(priority_of_this_thread(), 2 << 13 | 7);
            assert_eq!(
                thread::spawn(priority_of_this_thread).join().unwrap(),
                2 << 13 | 7
            );
            set_io_priority(IoPriority::Idle).unwrap();
            assert_eq!(priority_of_this_thread(), 3 << 13);
            set_io_priority(IoPriority::Normal).unwrap();
            assert_ne!(priority_of_this_thread() >> 13, 3);
        };
        thread::spawn(ours).join().unwrap();
    }
}
