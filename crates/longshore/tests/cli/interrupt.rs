//! Ctrl-C and its relatives leave nothing half-valid.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::stage::Stage;

/// Starts a run that lasts long, waits until it is at work, interrupts it, and returns its exit code.
fn interrupted(stage: &Stage, line: &str, signal: i32, at_work: impl Fn() -> bool) -> Option<i32> {
    let args: Vec<_> = line.split_whitespace().collect();
    let mut child = stage
        .command(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !at_work() {
        assert!(Instant::now() < deadline, "{line}: never at work");
        assert!(
            child.try_wait().unwrap().is_none(),
            "{line}: ended by itself"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&child, signal);
    child.wait().unwrap().code()
}

/// Whether a process with this `/proc` status has a handler for the signal.
fn catches(status: &str, signal: i32) -> bool {
    let line = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let mask = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
    mask & (1 << (signal - 1)) != 0
}

fn send(child: &Child, signal: i32) {
    // SAFETY: plain system call; the child was not waited for yet, so the id is still its own.
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
fn a_second_interrupt_ends_at_once_what_waits_for_a_silent_pipe() {
    let stage = Stage::new();
    let mut child = stage
        .command(&["restore", "-", "--to", "out"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    // A signal before the handler is in place would end the program by itself.
    while !catches(&std::fs::read_to_string(&status).unwrap(), libc::SIGINT) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    send(&child, libc::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the pipe is still open"
    );
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interrupted_append_leaves_the_older_set_whole() {
    let stage = Stage::new();
    stage.write("small", b"kept");
    stage.write("tree/file", &vec![3; 30 << 20]);
    stage.line("backup small --to a.bak").exits(0);
    let before = std::fs::read(stage.path("a.bak")).unwrap();
    let line = "backup tree --to a.bak --append --max-rate 2M";
    let started = Instant::now();
    let code = interrupted(&stage, line, libc::SIGINT, || {
        started.elapsed() > Duration::from_millis(700)
    });
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
