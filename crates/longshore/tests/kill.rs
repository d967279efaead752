//! Goal: a run that is killed or interrupted at any moment leaves no invalid backup that looks valid, no half restore
//! that can start, and older sets unchanged; the next run succeeds.
//! Method: the real program as a child with a rate limit, killed at moments spread over its life and, as often, around
//! its end, where it syncs and renames. Then the same program judges the remains.
//! Not covered: what a power cut does to unsynced bytes (the pipeline's `power_cut.rs`).

mod common;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::*;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    New,
    Append,
    Init,
    Restore,
    Replace,
}

fn tree(seed: u64) -> Tree {
    let file = |name: &str, len: usize| (PathBuf::from(name), content(seed + len as u64, len));
    [
        file("big", 3_000_000),
        file("sub/one", 90_000),
        file("two", 5),
    ]
    .into()
}

/// A directory with a source, media, and a target, as `act` needs them.
struct World {
    act: Act,
    dir: tempfile::TempDir,
}

impl World {
    fn new(act: Act) -> World {
        let dir = tempfile::tempdir().unwrap();
        let world = World { act, dir };
        put(&world.at("a"), &tree(1));
        put(&world.at("b"), &tree(1000));
        std::fs::create_dir(world.at("media")).unwrap();
        match act {
            Act::New => {}
            Act::Append | Act::Init => world.backup_now("a", &[]),
            // The source has one name at the top: a restore of it is complete or absent.
            Act::Restore | Act::Replace => {
                std::fs::create_dir(world.at("c")).unwrap();
                std::fs::rename(world.at("b"), world.at("c/db")).unwrap();
                world.backup_now("c", &[]);
            }
        }
        if act == Act::Replace {
            put(&world.at("out/db"), &tree(1));
        }
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn stripes(&self) -> Vec<PathBuf> {
        (0..3).map(|i| self.at(&format!("media/{i}.bak"))).collect()
    }

    fn backup(&self, source: &str, more: &[&str]) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["backup".into(), self.at(source).into()];
        for stripe in self.stripes() {
            args.extend(["--to".into(), stripe.into()]);
        }
        args.extend(["--quiet", "--max-transfer-size", "64K"].map(Into::into));
        args.extend(more.iter().map(Into::into));
        args
    }

    fn backup_now(&self, source: &str, more: &[&str]) {
        expect(0, self.backup(source, more));
    }

    fn reading(&self, what: &str, more: &[&str]) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![what.into()];
        args.extend(self.stripes().into_iter().map(Into::into));
        args.push("--quiet".into());
        args.extend(more.iter().map(Into::into));
        args
    }

    /// The restored content, or `None` if the restore is refused. Never half of it.
    fn restored(&self, position: Option<&str>, at: &str) -> Option<Tree> {
        let target = tempfile::tempdir_in(self.dir.path()).unwrap();
        let to = target.path().join("t");
        let mut args = self.reading("restore", &["--to", to.to_str().unwrap()]);
        if let Some(position) = position {
            args.extend(["--position".into(), position.into()]);
        }
        let output = longshore(&args).output().unwrap();
        match output.status.code() {
            Some(0) => Some(read(&to)),
            Some(4) => {
                let left = read(&to);
                assert!(left.is_empty(), "{at}: left {:?}", left.keys());
                None
            }
            other => panic!("{at}: {other:?} {}", text(&output.stderr)),
        }
    }

    fn verifies(&self, more: &[&str]) -> bool {
        let output = longshore(self.reading("verify", more)).output().unwrap();
        output.status.success()
    }

    /// The act at a pace that takes about half a second.
    fn start(&self) -> Child {
        let pace = ["--max-rate", "8M"];
        let args = match self.act {
            Act::New => self.backup("b", &pace),
            Act::Append => self.backup("b", &["--append", pace[0], pace[1]]),
            Act::Init => self.backup("b", &["--init", pace[0], pace[1]]),
            Act::Restore | Act::Replace => {
                let out = self.at("out");
                let mut args = self.reading("restore", &pace);
                args.extend(["--to".into(), out.into()]);
                if self.act == Act::Replace {
                    args.push("--replace".into());
                }
                args
            }
        };
        longshore(args).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The conditions that hold whenever and however the act ended. `done`: it reported success.
    fn judge(&self, done: bool, at: &str) {
        let (old, new) = (tree(1), tree(1000));
        match self.act {
            Act::New => {
                let got = self.restored(None, at);
                assert!(!done || got.is_some(), "{at}: a finished backup is lost");
                if self.verifies(&[]) {
                    assert!(got.is_some(), "{at}: verifies and does not restore");
                }
                assert!(got.is_none_or(|got| got == new), "{at}: wrong bytes");
                self.backup_now("b", &["--format"]);
            }
            Act::Append => {
                let first = self.restored(Some("1"), at);
                assert!(first.as_ref() == Some(&old), "{at}: the older set");
                assert!(self.verifies(&["--position", "1"]), "{at}: the older set");
                let got = self.restored(Some("2"), at);
                assert!(!done || got.is_some(), "{at}: a finished backup is lost");
                if self.verifies(&["--position", "2"]) {
                    assert!(got.is_some(), "{at}: verifies and does not restore");
                }
                assert!(got.is_none_or(|got| got == new), "{at}: wrong bytes");
                self.backup_now("b", &["--append"]);
                assert!(self.verifies(&[]), "{at}: after the next append");
                assert!(
                    self.restored(Some("1"), at) == Some(old),
                    "{at}: afterwards"
                );
            }
            Act::Init => {
                let got = self.restored(None, at);
                assert!(got.is_some(), "{at}: both sets are lost");
                assert!(
                    got == Some(new) || (!done && got == Some(old)),
                    "{at}: wrong bytes"
                );
                assert!(self.verifies(&[]), "{at}");
                self.backup_now("b", &["--init"]);
            }
            Act::Restore | Act::Replace => {
                let there = read(&self.at("out/db"));
                if done || !there.is_empty() {
                    let whole = there == new || (self.act == Act::Replace && !done && there == old);
                    assert!(whole, "{at}: half a restore: {:?}", there.keys());
                } else if self.act == Act::Replace {
                    let kept = read(&self.at("out/.longshore-restoring/old/db"));
                    assert!(kept == old, "{at}: what was displaced is lost");
                }
                let out = self.at("out");
                let again = ["--replace", "--to", out.to_str().unwrap()];
                expect(0, self.reading("restore", &again));
                assert!(read(&self.at("out/db")) == new, "{at}: the next restore");
                let names = std::fs::read_dir(&out).unwrap().count();
                assert_eq!(names, 1, "{at}: something is left beside the database");
            }
        }
        if !matches!(self.act, Act::Restore | Act::Replace) {
            assert!(
                self.restored(None, at) == Some(tree(1000)),
                "{at}: the next run"
            );
            assert_eq!(self.left(), 3, "{at}: something is left beside the stripes");
        }
    }

    fn left(&self) -> usize {
        std::fs::read_dir(self.at("media")).unwrap().count()
    }
}

fn send(child: &Child, signal: libc::c_int) {
    // SAFETY: `kill` demands a process that is ours: the child was not waited for yet, so the number is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// The duration of an undisturbed act: the shortest of a few runs, because the machine may be busy.
fn duration(act: Act) -> Duration {
    let once = |_| {
        let world = World::new(act);
        let began = Instant::now();
        let mut child = world.start();
        assert!(wait(&mut child, PATIENCE, "undisturbed").success());
        began.elapsed()
    };
    (0..3).map(once).min().unwrap()
}

/// Moments spread over a run, every other one near its end.
fn moments(whole: Duration, count: u64, random: &mut Random) -> Vec<Duration> {
    let us = whole.as_micros() as u64;
    (0..count)
        .map(|i| {
            Duration::from_micros(match i % 2 {
                0 => us * i / count + random.below(us / count),
                _ => us - us / 8 + random.below(us / 7),
            })
        })
        .collect()
}

fn strike(act: Act, signal: libc::c_int, after: Duration) -> (World, ExitStatus) {
    let world = World::new(act);
    let mut child = world.start();
    std::thread::sleep(after);
    send(&child, signal);
    let status = wait(
        &mut child,
        PATIENCE,
        &format!("{act:?} after signal {signal}"),
    );
    (world, status)
}

/// Each act is killed at four moments, or at a fifth of `LONGSHORE_KILLS`.
#[test]
fn killed_at_any_moment_nothing_half_valid_is_left() {
    let count = from_env("LONGSHORE_KILLS", 20) / 5;
    let mut random = Random(count);
    for act in [Act::New, Act::Append, Act::Init, Act::Restore, Act::Replace] {
        let whole = duration(act);
        let mut killed = 0;
        // The machine may be quicker now than when it was timed: then there are more rounds.
        let rounds = (0..8).flat_map(|_| moments(whole, count, &mut random));
        for (i, after) in (0..).zip(rounds.collect::<Vec<_>>()) {
            if i >= count && killed * 3 >= count {
                break;
            }
            let (world, status) = strike(act, libc::SIGKILL, after);
            let at = format!("{act:?} killed after {after:?} of {whole:?}");
            killed += u64::from(status.signal() == Some(libc::SIGKILL));
            assert!(
                status.success() || status.signal().is_some(),
                "{at}: {status}"
            );
            world.judge(status.success(), &at);
        }
        assert!(
            killed * 3 >= count,
            "{act:?}: only {killed} of {count} were killed"
        );
    }
}

#[test]
fn interrupted_at_any_moment_nothing_is_left_at_all() {
    let mut random = Random(9);
    for act in [Act::New, Act::Append, Act::Init, Act::Restore, Act::Replace] {
        let whole = duration(act);
        let mut interrupted = 0;
        // If the machine is busier or quieter now than when it was timed, the act has not begun, or is over, at most
        // of the moments. Then there are more rounds, spread over more time and over less.
        let spread = [1.0, 2.0, 0.5, 4.0, 1.0, 8.0, 0.25, 16.0]
            .into_iter()
            .cycle();
        let mut rounds = spread
            .take(32)
            .flat_map(|times| moments(whole.mul_f64(times), 4, &mut random));
        for (i, after) in rounds.by_ref().enumerate() {
            if i >= 4 && interrupted > 0 {
                break;
            }
            let (world, status) = strike(act, libc::SIGINT, after);
            let at = format!("{act:?} interrupted after {after:?} of {whole:?}: {status}");
            // Before the program has read its options, the signal ends it as any program.
            let early = status.signal() == Some(libc::SIGINT);
            assert!(early || matches!(status.code(), Some(0 | 130)), "{at}");
            interrupted += u64::from(status.code() == Some(130));
            if !status.success() {
                let staging = world.at("out/.longshore-restoring");
                assert!(!staging.exists(), "{at}");
                let media = if act == Act::New { 0 } else { 3 };
                assert_eq!(world.left(), media, "{at}: temporary stripes");
                match act {
                    Act::Append => assert!(world.verifies(&[]), "{at}"),
                    Act::Restore => assert!(!world.at("out/db").exists(), "{at}"),
                    Act::Replace => assert!(read(&world.at("out/db")) == tree(1), "{at}"),
                    Act::New | Act::Init => {}
                }
            }
            world.judge(status.success(), &at);
        }
        assert!(
            interrupted >= 1,
            "{act:?}: only {interrupted} were interrupted"
        );
    }
}

#[test]
fn a_run_that_waits_for_its_limits_ends_when_interrupted() {
    let world = World::new(Act::New);
    for limit in [["--max-rate", "1000"], ["--max-cpu", "0.001"]] {
        let mut child = longshore(world.backup("b", &limit))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_handler(&child, libc::SIGINT);
        send(&child, libc::SIGINT);
        let status = wait(&mut child, PATIENCE, "interrupted");
        assert_eq!(status.code(), Some(130), "{limit:?}");
        assert_eq!(world.left(), 0, "{limit:?}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_backup() {
    let world = World::new(Act::New);
    let source: &Path = &world.at("b");
    let mut child = longshore([
        "backup".as_ref(),
        source.as_os_str(),
        "--to".as_ref(),
        "-".as_ref(),
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    drop(child.stdout.take());
    let status = wait(&mut child, PATIENCE, "pipe");
    assert_eq!(status.code(), Some(4), "{status}");
}
