//! Programs that run next to a study and end with it, however it ends.
//!
//! Invariants
//! - A shell waits at a pipe from this process: when the pipe closes, by the end of the study or of the process, even by
//!   `kill -9`, it ends the program with its signal.
//! - Dropping one waits until its program has ended.
//!
//! Leaves to others: which programs (`cluster.rs`, `mod.rs`).

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};
use longshore_io::child;

/// `$1` is the signal; the program and its arguments follow.
const WATCH: &str = r#"
signal=$1; shift
exec 3<&0
"$@" 3<&- </dev/null &
program=$!
{ read -r _ <&3; kill -$signal $program 2>/dev/null; } &
wait $program
status=$?
kill $! 2>/dev/null
exit $status
"#;

/// A running program.
#[derive(Debug)]
pub struct Watched {
    child: Child,
    /// Closed to end the program.
    pipe: Option<ChildStdin>,
}

/// The user and the group that a program runs as.
pub type Ids = (u32, u32);

impl Watched {
    /// Starts `program` with the words, its output going to `output`. `signal` is such as `TERM`.
    pub fn start(
        program: &Path,
        words: &[String],
        signal: &str,
        user: Option<Ids>,
        output: impl Into<Stdio>,
    ) -> Result<Watched> {
        let mut command = shell(user)?;
        command
            .args(["-c", WATCH, "sh", signal])
            .arg(program)
            .args(words);
        let output = output.into();
        let started = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn();
        let mut child = started.with_context(|| format!("cannot start {}", program.display()))?;
        let pipe = child.stdin.take();
        Ok(Watched { child, pipe })
    }

    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .map_or(true, |status| status.is_some())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ended = self.child.wait();
    }
}

/// The shell, as a user.
fn shell(user: Option<Ids>) -> Result<Command> {
    as_user(Path::new("/bin/sh"), user)
}

/// A program with a clean environment, as a user.
pub fn as_user(program: &Path, user: Option<Ids>) -> Result<Command> {
    use std::os::unix::process::CommandExt;
    let owners: Vec<u32> = user.iter().map(|(uid, _)| *uid).collect();
    let mut command = child::program(program, &owners)?;
    command
        .env("LC_ALL", "C")
        .env("PGTZ", "UTC")
        .current_dir("/")
        // Ctrl-C must reach only us; we end the program.
        .process_group(0);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    Ok(command)
}
