//! Asks a program something, within limits on its time and on what it says.
//!
//! The program and the programs that it starts are one process group, which is ended when the answer is there or is no
//! longer wanted. So nothing waits for a process in the background that keeps the program's output open.
//!
//! Invariants
//! - The group is killed on every way out of [`ask`], errors too, and always before its leader is reaped: a reaped
//!   number could belong to somebody else.
//! - Memory is bounded: standard output ends the call when it exceeds the caller's limit, and of standard error only
//!   the end is kept.
//! - A wait notices cancellation and the time limit within `LOOK`.
//!
//! Leaves to others: which program may be started and with which environment (`child.rs`), and what an answer means.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::{Clock, HostClock};

/// The time between two looks at whether the program ended.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of one read.
const READ: usize = 4096;
/// The most memory that is taken for an answer before there is one.
const ROOM_MAX: usize = 64 << 10;
/// The time that a killed program has to be gone. One that changed its user, or waits for a file system that is away, may
/// take for ever.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Of what the program says of errors, only the end is kept.
const ERRORS_MAX: usize = 4 << 10;

/// The output of a program until it ended.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub output: Vec<u8>,
    /// The end of its standard error.
    pub errors: Vec<u8>,
}

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error("it cannot be started: {0}")]
    Start(io::Error),
    #[error("it did not end within {} seconds", .0.as_secs())]
    TooLong(Duration),
    #[error("it printed more than {0} bytes")]
    TooMuch(usize),
    #[error("the answer is no longer wanted")]
    Cancelled,
    #[error("its output cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The most bytes that a program is told: a pipe takes as many without waiting for the program.
pub const TOLD_MAX: usize = 4096;

/// Runs a program until it ends. It has no input, and becomes the leader of a process group.
pub fn ask(
    command: &mut Command,
    limit: Duration,
    output_max: usize,
    cancel: &AtomicBool,
) -> Result<Said, Unanswered> {
    command.stdin(Stdio::null());
    run(command, None, (limit, output_max), cancel)
}

/// [`ask`] of a program that is told something on its standard input: at most [`TOLD_MAX`] bytes. Its answer is in one place
/// in memory, for callers who erase it.
pub fn tell(
    command: &mut Command,
    told: &[u8],
    limits: (Duration, usize),
    cancel: &AtomicBool,
) -> Result<Said, Unanswered> {
    if told.len() > TOLD_MAX {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "it would be told too much");
        return Err(Unanswered::Start(error));
    }
    command.stdin(Stdio::piped());
    run(command, Some(told), limits, cancel)
}

fn run(
    command: &mut Command,
    told: Option<&[u8]>,
    (limit, output_max): (Duration, usize),
    cancel: &AtomicBool,
) -> Result<Said, Unanswered> {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(Unanswered::Start)?;
    let mut group = Group {
        child,
        is_reaped: false,
    };
    if let (Some(told), Some(mut input)) = (told, group.child.stdin.take()) {
        match input.write_all(told) {
            // A program that does not want it says why by its end.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    let mut output = Pipe::new(group.child.stdout.take(), output_max)?;
    // More than that is not read before the rest is dropped, so its memory does not grow.
    let mut errors = Pipe::new(group.child.stderr.take(), ROOM_MAX)?;
    let started = HostClock.now();
    loop {
        // Looked at first: what the program wrote is in the pipes when it ended.
        let has_ended = group.has_ended()?;
        output.drain()?;
        errors.drain()?;
        let spare = errors.bytes.len().saturating_sub(ERRORS_MAX);
        errors.bytes.drain(..spare);
        if output.bytes.len() > output_max {
            return Err(Unanswered::TooMuch(output_max));
        }
        if has_ended {
            break;
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(Unanswered::Cancelled);
        }
        if HostClock.now() - started >= limit {
            return Err(Unanswered::TooLong(limit));
        }
        wait(&[&output, &errors])?;
    }
    Ok(Said {
        status: group.end()?,
        output: std::mem::take(&mut output.bytes),
        // A copy: its own memory holds what was dropped of it, and is erased.
        errors: errors.bytes.clone(),
    })
}

/// Ends, with all of its group, when it is dropped.
struct Group {
    child: Child,
    is_reaped: bool,
}

impl Group {
    /// Whether the program ended. It is not reaped: its number is the group's, and stays its own.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let program = WaitId::Pid(Pid::from_child(&self.child));
        Ok(waitid(program, options)?.is_some())
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        // There may be nobody left.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.is_reaped = true;
        let killed = HostClock.now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if HostClock.now() - killed >= GONE_WITHIN {
                // It is left behind: until this process ends, nobody else gets its number.
                let why = "it cannot be ended";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            HostClock.sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once it was reaped, the number may be somebody else's.
        if !self.is_reaped {
            let _ = self.end();
        }
    }
}

/// The program's output that is still read; `None` once its end was seen.
struct Pipe<R> {
    source: Option<R>,
    bytes: Vec<u8>,
    /// One read ends once there are more bytes.
    most: usize,
}

impl<R> Drop for Pipe<R> {
    /// Bytes that nobody took may have been a key.
    fn drop(&mut self) {
        self.bytes.clear();
        // Its memory has what was dropped of it, too.
        self.bytes.resize(self.bytes.capacity(), 0);
        std::hint::black_box(&self.bytes);
    }
}

impl<R: Read + AsFd> Pipe<R> {
    /// `most`: bytes that are wanted.
    fn new(source: Option<R>, most: usize) -> io::Result<Pipe<R>> {
        if let Some(source) = &source {
            rustix::io::ioctl_fionbio(source, true)?;
        }
        // One read more fits, too, so that no copy is left where the memory grew.
        let bytes = Vec::with_capacity(most.min(ROOM_MAX) + READ);
        Ok(Pipe {
            source,
            bytes,
            most,
        })
    }

    /// Reads what is there, but not without end.
    fn drain(&mut self) -> io::Result<()> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        let mut buf = [0; READ];
        for _ in 0..64 {
            match source.read(&mut buf) {
                Ok(0) => {
                    self.source = None;
                    break;
                }
                Ok(n) => {
                    self.bytes.extend_from_slice(&buf[..n]);
                    if self.bytes.len() > self.most {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        // It may have been a key.
        buf.fill(0);
        std::hint::black_box(&buf);
        Ok(())
    }
}

/// Whether something can be waited for until it says more.
trait Open {
    fn fd(&self) -> Option<PollFd<'_>>;
}

impl<R: AsFd> Open for Pipe<R> {
    fn fd(&self) -> Option<PollFd<'_>> {
        let source = self.source.as_ref()?;
        Some(PollFd::new(source, PollFlags::IN))
    }
}

fn wait(pipes: &[&dyn Open]) -> io::Result<()> {
    let mut open: Vec<_> = pipes.iter().filter_map(|pipe| pipe.fd()).collect();
    let look = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.as_nanos() as i64,
    };
    match poll(&mut open, Some(&look)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    static NO: AtomicBool = AtomicBool::new(false);
    const LONG: Duration = Duration::from_secs(3600);

    fn shell(script: &str) -> Command {
        let mut command = crate::child::program(Path::new("/bin/sh"), &[]).unwrap();
        command.args(["-c", script]);
        command
    }

    fn is_alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        // A zombie waits for its parent, which need not be us.
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_process_that_keeps_the_output_open_is_not_waited_for_and_ended() {
        let said = ask(
            &mut shell("sleep 3600 & echo $!; echo why >&2; exit 3"),
            LONG,
            100,
            &NO,
        );
        let said = said.unwrap();
        assert_eq!(said.status.code(), Some(3));
        assert_eq!(said.errors, b"why\n");
        let pid = String::from_utf8(said.output).unwrap();
        // SIGKILL is on its way.
        while is_alive(&pid) {
            HostClock.sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("sleep 3600 & echo $! > {0}/pid; wait", dir.path().display());
        let limit = Duration::from_millis(300);
        let late = ask(&mut shell(&script), limit, 100, &NO);
        assert!(matches!(late, Err(Unanswered::TooLong(_))), "{late:?}");
        // A machine that is busy may not have come that far.
        if let Ok(pid) = std::fs::read_to_string(dir.path().join("pid")) {
            while !pid.is_empty() && is_alive(&pid) {
                HostClock.sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn what_a_program_is_told_it_reads_and_one_that_does_not_read_it_is_not_waited_for() {
        let told = vec![b'k'; TOLD_MAX];
        let of = |script: &str| tell(&mut shell(script), &told, (LONG, TOLD_MAX), &NO);
        assert_eq!(of("exec cat").unwrap().output, told);
        // Its end of the pipe is closed, or stays open in a program that reads nothing.
        for script in ["exec 0<&-; exit 4", "exit 4", "sleep 3600 & exit 4"] {
            assert_eq!(of(script).unwrap().status.code(), Some(4), "{script}");
        }
        let much = of("cat; echo");
        assert!(
            matches!(much, Err(Unanswered::TooMuch(TOLD_MAX))),
            "{much:?}"
        );
        let limit = Duration::from_millis(300);
        let late = tell(&mut shell("exec sleep 3600"), &told, (limit, 10), &NO);
        assert!(matches!(late, Err(Unanswered::TooLong(_))), "{late:?}");
        let long = tell(&mut shell("cat"), &[0; TOLD_MAX + 1], (LONG, 10), &NO);
        assert!(matches!(long, Err(Unanswered::Start(_))), "{long:?}");
    }

    #[test]
    fn what_is_said_is_bounded_and_an_unwanted_answer_is_not_waited_for() {
        let much = ask(&mut shell("exec yes"), LONG, 10_000, &NO);
        assert!(matches!(much, Err(Unanswered::TooMuch(10_000))), "{much:?}");
        let said = ask(
            &mut shell("yes | head -c 100000 >&2; echo end >&2"),
            LONG,
            10,
            &NO,
        )
        .unwrap();
        assert!(said.errors.len() <= ERRORS_MAX && said.errors.ends_with(b"end\n"));
        let unwanted = ask(
            &mut shell("exec sleep 3600"),
            LONG,
            10,
            &AtomicBool::new(true),
        );
        assert!(
            matches!(unwanted, Err(Unanswered::Cancelled)),
            "{unwanted:?}"
        );
    }
}
