//! Goal: the demonstration of the cache below a database leaves nothing but its log, also if it is interrupted at any
//! stage.
//! Method: the real script in a process group of its own, interrupted after certain lines of its output; mounts, loop
//! devices, processes and files are looked for then.
//! Not covered: mounts, where FUSE or loop devices are not available.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::{common, have};

/// Runs the script in a process group of its own, as a terminal does. Once it has printed `until`, interrupts it
/// `times` times. Bash loses an interrupt now and then, so an interrupt follows every two seconds until the script has
/// ended, as a person would press the key again. Returns its output.
fn demo(dir: &Path, until: &str, times: u32) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo-cache.sh");
    let plugin = std::env::current_exe()
        .unwrap()
        .with_file_name("liblongshore_nbd.so");
    let mut command = Command::new(script);
    command
        .arg(common::BINARY)
        .args([dir, &plugin])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    common::hears_interrupts(&mut command);
    let mut script = command.spawn().unwrap();
    let group = script.id() as i32;
    let mut said = String::new();
    let mut lines = BufReader::new(script.stdout.take().unwrap());
    let (end, ended) = mpsc::channel::<()>();
    let mut ended = Some(ended);
    std::thread::scope(|scope| {
        while lines.read_line(&mut said).unwrap() > 0 {
            if times == 0 || !said.contains(until) {
                continue;
            }
            let Some(ended) = ended.take() else { continue };
            scope.spawn(move || {
                for time in 1.. {
                    // SAFETY: `kill` demands a process group that is ours: its leader is waited for after this thread.
                    unsafe { libc::kill(-group, libc::SIGINT) };
                    let wait = if time < times { 50 } else { 2000 };
                    let told = ended.recv_timeout(Duration::from_millis(wait));
                    if told != Err(mpsc::RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
        }
        drop(end);
    });
    let status = script.wait().unwrap();
    assert_eq!(
        ended.is_none(),
        times > 0,
        "it never said {until:?}\n{said}"
    );
    assert_eq!(status.success(), times == 0, "{status}\n{said}");
    said
}

/// Nothing is left but the log: no mount, no loop device, no process and no file.
fn nothing_is_left(dir: &Path, what: &str) {
    let name = dir.to_str().unwrap();
    let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounted.contains(name), "{what}: {mounted}");
    for device in fs::read_dir("/sys/block").unwrap().flatten() {
        let file = device.path().join("loop/backing_file");
        let file = fs::read_to_string(file).unwrap_or_default();
        assert!(!file.contains(name), "{what}: {device:?} is {file}");
    }
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let at = fs::read_link(process.path().join("cwd")).unwrap_or_default();
        assert!(!at.starts_with(dir), "{what}: {process:?}");
    }
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|at| at.unwrap().file_name())
        .collect();
    names.retain(|name| name != "log");
    assert!(names.is_empty(), "{what}: {names:?}");
}

#[test]
fn the_demonstration_cleans_up_after_itself_also_when_it_is_interrupted() {
    if !have(&["nbdkit", "nbdcopy"]) {
        return;
    }
    let stage = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = stage.path().join("demo");
    for (until, times) in [
        ("== A backend", 1),
        ("cache serve backend", 1),
        ("SQLite on it: ", 1),
        ("SQLite on it: ", 4),
        ("What the cache did", 2),
    ] {
        // If mounting is not possible, the demonstration uses a plain client.
        let until = match demo_mounts() {
            true => until,
            false => until.trim_start_matches("SQLite on it: "),
        };
        demo(&dir, until, times);
        nothing_is_left(&dir, until);
    }
    let said = demo(&dir, "", 0);
    assert!(
        said.contains("what clients read is what the backend holds"),
        "{said}"
    );
    nothing_is_left(&dir, "the whole of it");
}

/// Whether FUSE and loop devices are available.
fn demo_mounts() -> bool {
    // SAFETY: `geteuid` demands nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let there = |path: &str| fs::OpenOptions::new().write(true).open(path).is_ok();
    root && there("/dev/fuse") && there("/dev/loop-control")
}
