//! Goal: Ctrl-C and similar signals end a run soon and leave nothing half-valid; a second one ends a run that hangs.
//! Method: the real program, slowed by a rate limit or held by a pipe, gets signals once it works; then its exit code
//! and the remaining files are looked at.
//! Not covered: kill -9 (`kill.rs`), and runs on servers.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{wait, wait_for_handler};
use crate::stage::Stage;

/// A run that takes longer is considered hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a run is working.
fn wait_until(child: &mut Child, line: &str, at_work: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !at_work() {
        assert!(Instant::now() < deadline, "{line}: never at work");
        assert!(
            child.try_wait().unwrap().is_none(),
            "{line}: ended by itself"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a long run, waits until it is working, interrupts it, and returns its exit code.
fn interrupted(stage: &Stage, line: &str, signal: i32, at_work: impl Fn() -> bool) -> Option<i32> {
    let mut child = start(stage, line, Stdio::null());
    wait_until(&mut child, line, at_work);
    send(&child, signal);
    wait(&mut child, PATIENCE, line).code()
}

fn start(stage: &Stage, line: &str, stderr: Stdio) -> Child {
    let args: Vec<_> = line.split_whitespace().collect();
    stage
        .command(&args)
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
}

fn send(child: &Child, signal: i32) {
    // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn an_interrupted_backup_leaves_the_directory_as_it_was() {
    let stage = Stage::new();
    stage.write("tree/file", &vec![3; 30 << 20]);
    std::fs::create_dir(stage.path("media")).unwrap();
    let line = "backup tree --to media/a.bak --to media/b.bak --max-rate 2M";
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let code = interrupted(&stage, line, signal, || !stage.names("media").is_empty());
        assert_eq!(code, Some(130));
        assert_eq!(stage.names("media"), [""; 0]);
    }
    let history = stage.line("history --json").exits(0);
    assert!(history.out.contains("\"rows\":[]"), "{}", history.out);
}

#[test]
fn an_interrupted_search_for_settings_leaves_nothing_at_the_place() {
    let stage = Stage::new();
    stage.line("lab sample stae --size 60M app.db").exits(0);
    std::fs::create_dir(stage.path("media")).unwrap();
    let line = "tune app.db --to media --time 600";
    let code = interrupted(&stage, line, libc::SIGINT, || {
        !stage.names("media").is_empty()
    });
    assert_eq!(code, Some(130));
    assert_eq!(stage.names("media"), [""; 0]);
}

/// Starts a run with pipes for standard input and output, interrupts it once it is working, and returns its exit code.
/// Our ends of the pipes stay open until it has ended.
fn interrupted_at_a_pipe(
    stage: &Stage,
    line: &str,
    feed: &[u8],
    at_work: impl Fn(&Child) -> bool,
) -> Option<i32> {
    let args: Vec<_> = line.split_whitespace().collect();
    let mut child = stage
        .command(&args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().write_all(feed).unwrap();
    wait_for_handler(&child, libc::SIGINT);
    let deadline = Instant::now() + PATIENCE;
    while !at_work(&child) {
        assert!(Instant::now() < deadline, "{line}: never at work");
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&child, libc::SIGINT);
    let deadline = Instant::now() + PATIENCE;
    // `wait` would close our end of its input, which would end it too.
    while child.try_wait().unwrap().is_none() {
        assert!(
            Instant::now() < deadline,
            "{line}: one interrupt is not enough"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait().unwrap().code()
}

/// Whether the child has written most of what its pipe holds, and nobody has read it. The size varies: a user with
/// many pipes gets small ones. A full pipe holds somewhat less if its pages are not full.
fn pipe_is_full(child: &Child) -> bool {
    let mut bytes: libc::c_int = 0;
    let pipe = child.stdout.as_ref().unwrap().as_raw_fd();
    // SAFETY: the calls demand an open descriptor, which is the borrowed child's, and the first one room for an int,
    // which outlives it.
    let (told, size) = unsafe {
        let told = libc::ioctl(pipe, libc::FIONREAD, &raw mut bytes);
        (told, libc::fcntl(pipe, libc::F_GETPIPE_SZ))
    };
    assert!(told == 0 && size > 0, "{}", std::io::Error::last_os_error());
    bytes > size / 2
}

#[test]
fn one_interrupt_ends_a_backup_into_an_unread_pipe() {
    let stage = Stage::new();
    stage.write("tree/file", &vec![3; 30 << 20]);
    let line = "backup tree --to - --algorithm NONE";
    assert_eq!(
        interrupted_at_a_pipe(&stage, line, b"", pipe_is_full),
        Some(130)
    );
    let history = stage.line("history --json").exits(0);
    assert!(history.out.contains("\"rows\":[]"), "{}", history.out);
}

#[test]
fn one_interrupt_ends_what_reads_a_silent_pipe() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("out")).unwrap();
    for line in ["restore - --to out", "verify -"] {
        let at_once = |_: &Child| true;
        assert_eq!(
            interrupted_at_a_pipe(&stage, line, b"", at_once),
            Some(130),
            "{line}"
        );
    }
    assert_eq!(stage.names("out"), [""; 0]);
}

#[test]
fn one_interrupt_ends_a_restore_whose_pipe_falls_silent_in_the_middle() {
    let stage = Stage::new();
    let bytes: Vec<u8> = (0..3u32 << 20).map(|i| (i / 5) as u8).collect();
    stage.write("tree/file", &bytes);
    stage
        .line("backup tree --to a.bak --algorithm NONE")
        .exits(0);
    let stripe = std::fs::read(stage.path("a.bak")).unwrap();
    std::fs::create_dir(stage.path("out")).unwrap();
    let begun = |_: &Child| !stage.names("out").is_empty();
    let half = &stripe[..stripe.len() / 2];
    let code = interrupted_at_a_pipe(&stage, "restore - --to out", half, begun);
    assert_eq!(code, Some(130));
    assert_eq!(stage.names("out"), [""; 0]);
}

#[test]
fn an_interrupted_append_leaves_the_older_set_complete() {
    let stage = Stage::new();
    stage.write("small", b"kept");
    stage.write("tree/file", &vec![3; 30 << 20]);
    stage
        .line("backup small --to a.bak --algorithm NONE")
        .exits(0);
    let before = std::fs::read(stage.path("a.bak")).unwrap();
    let line = "backup tree --to a.bak --append --algorithm NONE --max-rate 2M";
    let media = stage.path("a.bak");
    let grown = || std::fs::metadata(&media).unwrap().len() > before.len() as u64;
    let code = interrupted(&stage, line, libc::SIGINT, grown);
    assert_eq!(code, Some(130));
    stage.line("verify a.bak").exits(0);
    assert_eq!(std::fs::read(stage.path("a.bak")).unwrap(), before);
}

#[test]
fn an_interrupted_restore_leaves_nothing_in_its_target() {
    let stage = Stage::new();
    stage.write("tree/file", &vec![3; 30 << 20]);
    stage.line("backup tree --to a.bak").exits(0);
    std::fs::create_dir(stage.path("out")).unwrap();
    let line = "restore a.bak --to out --max-rate 2M";
    let code = interrupted(&stage, line, libc::SIGINT, || {
        !stage.names("out").is_empty()
    });
    assert_eq!(code, Some(130));
    assert_eq!(stage.names("out"), [""; 0]);
}

/// A pipe that accepts nothing more, with the end that nobody reads.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the call demands an open descriptor, which `writer` is.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![0; size as usize]).unwrap();
    (reader, writer)
}

/// Goal: a user who does not want to wait for the end of an interrupted run can interrupt it again.
/// Method: the run has cleaned up and hangs while it prints why it ended, as at a stopped terminal.
#[test]
fn a_second_interrupt_ends_a_run_that_hangs_in_its_end() {
    let stage = Stage::new();
    stage.write("tree/file", &vec![3; 30 << 20]);
    stage.line("backup tree --to whole.bak").exits(0);
    for dir in ["media", "out"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let runs = [
        (
            "backup tree --to media/a.bak --quiet --max-rate 2M",
            "media",
        ),
        ("restore whole.bak --to out --quiet --max-rate 2M", "out"),
    ];
    for (line, dir) in runs {
        let (_nobody_reads, full) = full_pipe();
        let mut child = start(&stage, line, full.into());
        wait_until(&mut child, line, || !stage.names(dir).is_empty());
        send(&child, libc::SIGINT);
        wait_until(&mut child, line, || stage.names(dir).is_empty());
        assert!(
            child.try_wait().unwrap().is_none(),
            "{line}: no need of a second"
        );
        send(&child, libc::SIGINT);
        assert_eq!(wait(&mut child, PATIENCE, line).code(), Some(130), "{line}");
    }
}

/// Goal: the second of two interrupts ends a run at once, and what remains is not valid.
/// Method: both signals are pending while the run is stopped, so that it does nothing between them.
#[test]
fn two_interrupts_at_once_end_a_run_without_tidying_and_leave_nothing_valid() {
    let stage = Stage::new();
    stage.write("tree/file", &vec![3; 30 << 20]);
    stage.line("backup tree --to whole.bak").exits(0);
    for dir in ["media", "out"] {
        std::fs::create_dir(stage.path(dir)).unwrap();
    }
    let twice = |line: &str, dir: &str| {
        let mut child = start(&stage, line, Stdio::null());
        wait_until(&mut child, line, || !stage.names(dir).is_empty());
        for signal in [libc::SIGSTOP, libc::SIGINT, libc::SIGTERM, libc::SIGCONT] {
            send(&child, signal);
        }
        assert_eq!(wait(&mut child, PATIENCE, line).code(), Some(130), "{line}");
        assert_ne!(
            stage.names(dir),
            [""; 0],
            "{line}: it took the time to tidy up"
        );
    };
    twice("backup tree --to media/a.bak --max-rate 2M", "media");
    stage.line("verify media/a.bak").exits(4);
    stage.line("backup tree --to media/a.bak").exits(0);
    stage.line("verify media/a.bak").exits(0);
    twice("restore whole.bak --to out --max-rate 2M", "out");
    assert_eq!(stage.names("out"), [".longshore-restoring"]);
    stage.line("restore whole.bak --to out").exits(0);
    assert_eq!(stage.names("out"), ["file"]);
}
