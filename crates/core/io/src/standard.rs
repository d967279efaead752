//! Standard input and output as byte streams whose waits can be cancelled.
//!
//! If the other end of a pipe is silent, a plain `read` or `write` blocks for ever, and a signal does not end it. So
//! each call waits until the system reports that it would not block, and checks ten times a second whether its run was
//! cancelled.
//!
//! Invariants
//! - Writing to a pipe or a socket never blocks: each call writes at most what there is room for.
//! - The descriptors' flags stay unchanged, because they are shared with the program that started this one.
//!
//! Leaves to others: when to cancel (the caller sets the flag), and what the bytes mean.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};

/// The longest time until a wait notices that it was cancelled: a tenth of a second.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Bytes that a pipe reported as ready takes without blocking, on every kernel (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Means the descriptor's own position.
const HERE: u64 = u64::MAX;

/// Reads 1 byte or more from standard input; 0 at its end. Errors: `Interrupted` once `cancel` is set.
pub fn read_input(buf: &mut [u8], cancel: &AtomicBool) -> io::Result<usize> {
    read(rustix::stdio::stdin(), buf, cancel)
}

/// Writes all of `buf` to standard output. Errors: `Interrupted` once `cancel` is set; part of `buf` may have been
/// written.
pub fn write_output(buf: &[u8], cancel: &AtomicBool) -> io::Result<()> {
    let fd = rustix::stdio::stdout();
    let way = Way::to(fd)?;
    let mut rest = buf;
    while !rest.is_empty() {
        match write(fd, rest, way, cancel)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => rest = &rest[n..],
        }
    }
    Ok(())
}

/// How to write without a wait that cannot be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In one call: files do not block for ever.
    Whole,
    /// As much as there is room for.
    NoWait,
    /// In small pieces, for pipes before Linux 6.5, which lack `NoWait`.
    Pieces,
}

impl Way {
    fn to(fd: BorrowedFd) -> io::Result<Way> {
        let mode = rustix::fs::fstat(fd)?.st_mode;
        Ok(match FileType::from_raw_mode(mode) {
            FileType::Fifo | FileType::Socket => Way::NoWait,
            FileType::CharacterDevice => Way::Pieces,
            _ => Way::Whole,
        })
    }
}

/// Waits until the descriptor is ready, or broken; the next call reports which.
fn wait(fd: BorrowedFd, events: PollFlags, cancel: &AtomicBool) -> io::Result<()> {
    while !cancel.load(Relaxed) {
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn read(fd: BorrowedFd, buf: &mut [u8], cancel: &AtomicBool) -> io::Result<usize> {
    loop {
        wait(fd, PollFlags::IN, cancel)?;
        match rustix::io::read(fd, &mut *buf) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            read => return Ok(read?),
        }
    }
}

fn write(fd: BorrowedFd, buf: &[u8], way: Way, cancel: &AtomicBool) -> io::Result<usize> {
    loop {
        wait(fd, PollFlags::OUT, cancel)?;
        let written = match way {
            Way::Whole => rustix::io::write(fd, buf),
            Way::Pieces => rustix::io::write(fd, &buf[..buf.len().min(PIECE)]),
            Way::NoWait => {
                let flags = ReadWriteFlags::NOWAIT;
                match rustix::io::pwritev2(fd, &[IoSlice::new(buf)], HERE, flags) {
                    // A sandbox that does not know the call may return EPERM; if the refusal is genuine, the plain
                    // call repeats it.
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                        return write(fd, buf, Way::Pieces, cancel);
                    }
                    written => written,
                }
            }
        };
        match written {
            Err(Errno::INTR | Errno::AGAIN) => {}
            written => return Ok(written?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    /// Sets the flag, most likely after the call has begun to wait; the call must end in either case.
    fn cancelled<T>(call: impl FnOnce(&AtomicBool) -> T) -> T {
        let cancel = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                cancel.store(true, Relaxed);
            });
            call(&cancel)
        })
    }

    #[test]
    fn a_read_from_a_silent_pipe_ends_when_it_is_cancelled() {
        let (from, _to) = pipe();
        let ended = cancelled(|cancel| read(from.as_fd(), &mut [0; 10], cancel));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_write_to_a_full_pipe_ends_when_it_is_cancelled() {
        for way in [Way::NoWait, Way::Pieces] {
            let (_from, to) = pipe();
            let ended = cancelled(|cancel| {
                loop {
                    if let Err(e) = write(to.as_fd(), &[1; 100_000], way, cancel) {
                        return e;
                    }
                }
            });
            assert_eq!(ended.kind(), io::ErrorKind::Interrupted, "{way:?}");
        }
    }

    #[test]
    fn all_bytes_come_through_in_their_order() {
        let never = AtomicBool::new(false);
        let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i / 7) as u8).collect();
        for way in [Way::NoWait, Way::Pieces, Way::Whole] {
            let (from, to) = pipe();
            let reader = std::thread::spawn(move || {
                let mut found = Vec::new();
                File::from(from).read_to_end(&mut found).unwrap();
                found
            });
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let n = write(to.as_fd(), rest, way, &never).unwrap();
                rest = &rest[n..];
            }
            drop(to);
            assert!(reader.join().unwrap() == bytes, "{way:?}");
        }
    }

    #[test]
    fn the_end_and_a_reader_that_has_gone_are_told() {
        let never = AtomicBool::new(false);
        let (from, to) = pipe();
        drop(to);
        assert_eq!(read(from.as_fd(), &mut [0; 10], &never).unwrap(), 0);
        let (from, to) = pipe();
        drop(from);
        for way in [Way::NoWait, Way::Pieces] {
            let gone = write(to.as_fd(), b"bytes", way, &never).unwrap_err();
            assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe, "{way:?}");
        }
    }

    #[test]
    fn each_kind_of_output_is_written_in_its_way() {
        let (_from, to) = pipe();
        assert_eq!(Way::to(to.as_fd()).unwrap(), Way::NoWait);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Way::to(file.as_fd()).unwrap(), Way::Whole);
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(Way::to(null.as_fd()).unwrap(), Way::Pieces);
    }
}
