//! Goal: a full, failing or removed disk ends a run with a clear error, in time, and leaves nothing that looks valid
//! and is not.
//! Method: the shipped pipeline on a simulated disk. Every kind of call fails, once and for good, at its first,
//! second, ... time until the run succeeds; then the disk is healed and the media and the target are checked.
//! Not covered: power cuts (`power_cut.rs`) and killed processes (the command line's `kill.rs`).

mod common;

#[path = "../../io/tests/contract/clock.rs"]
mod clock_contract;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::forge::{Claims, write};
use common::pieces::differing;
use common::*;
use longshore_codec::Algorithm;
use longshore_crypt::{Identities, Identity, Keyring, Recipients};
use longshore_io::{Clock, Fault, Gate, HostClock, Op, SimDisk, Storage};
use longshore_kit::random::noise;
use longshore_media::{DeviceSpec, Error as MediaError};
use longshore_pipeline::{BackupReport, Disposition, Error, LandingError, SourceSpec, Tuning};

/// A run that takes longer hangs. Runs take milliseconds; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `act` and fails the test if it does not return.
fn in_time<T: Send + 'static>(at: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _nobody_waits = send.send(act());
    });
    match receive.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{at}: hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("{at}: ended without a value"),
        },
    }
}

fn put(disk: &SimDisk, root: &str, tree: &Tree) {
    for (name, bytes) in tree {
        disk.write_file(Path::new(root).join(name), bytes).unwrap();
    }
}

/// The files below `root`, without staging.
fn read(disk: &SimDisk, root: &str) -> Tree {
    let staging = Path::new(root).join(".longshore-restoring");
    let below = |p: &PathBuf| p.starts_with(root) && !p.starts_with(&staging);
    disk.paths()
        .into_iter()
        .filter(below)
        .filter_map(|p| {
            let bytes = disk.read_file(&p).ok()?;
            Some((p.strip_prefix(root).ok()?.to_path_buf(), bytes))
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    New,
    Append,
    Init,
    Restore,
    /// A restore of the last of three sets; the first is on separate media.
    Chain,
}

const ACTS: [Act; 5] = [Act::New, Act::Append, Act::Init, Act::Restore, Act::Chain];

/// A disk on which `act` is tried: with an old set in place if the act needs one.
#[derive(Clone)]
struct World {
    disk: SimDisk,
    act: Act,
    stripes: usize,
}

impl World {
    fn new(act: Act, stripes: usize, seed: u64) -> World {
        let disk = SimDisk::new(seed);
        disk.mount("/m0").unwrap();
        disk.mount("/m1").unwrap();
        disk.mount("/out").unwrap();
        put(&disk, "/a", &tree(1));
        put(&disk, "/b", &tree(1000));
        for dir in ["/m0/d", "/m1/d"] {
            disk.write_file(Path::new(dir).join("neighbour"), b"stays")
                .unwrap();
        }
        let world = World { disk, act, stripes };
        if act == Act::Chain {
            world.forge_chain();
            world.disk.settle();
        } else if act != Act::New {
            world.backup("/a", Disposition::New).unwrap();
            world.disk.settle();
        }
        world
    }

    fn devices(&self) -> Vec<DeviceSpec> {
        ["/m0/d/a.bak", "/m1/d/b.bak", "/m1/d/c.bak"][..self.stripes]
            .iter()
            .map(|p| DeviceSpec::File(p.into()))
            .collect()
    }

    fn bases(&self) -> Vec<DeviceSpec> {
        vec![DeviceSpec::File("/m0/d/base.bak".into())]
    }

    /// Three sets; the last one is `tree(1)`.
    fn forge_chain(&self) {
        let storage: Arc<dyn Storage> = Arc::new(self.disk.clone());
        let (first, last) = (tree(1000), tree(1));
        // Halfway between: some of the bytes of each.
        let mut between = first.clone();
        for (name, bytes) in &mut between {
            let half = bytes.len() / 2;
            bytes[..half].copy_from_slice(&last[name][..half]);
        }
        let mut claims = Claims::new(None);
        let blocks = differing(&first, &Tree::new());
        write(&storage, &self.bases(), &claims, &blocks, |i| i);
        for (tree, base) in [(&between, &first), (&last, &between)] {
            claims = Claims::new(Some(claims.set));
            let blocks = differing(tree, base);
            write(&storage, &self.devices(), &claims, &blocks, |i| i);
        }
    }

    fn backup(&self, source: &str, disposition: Disposition) -> Result<u32, Error> {
        let spec = SourceSpec::Files(vec![source.into()]);
        let mut request = backup_request(spec, self.devices(), Algorithm::Lz4);
        request.disposition = disposition;
        request.tuning = Tuning {
            buffer_count: None,
            buffer_bytes: Some(64 << 10),
        };
        backup(&context_on(Arc::new(self.disk.clone())), request).map(|r| r.position)
    }

    fn restore(&self, position: u32, target: &str) -> Result<Tree, Error> {
        let mut request = restore_request(self.devices(), Path::new(target));
        request.position = position;
        if self.act == Act::Chain {
            request.bases = self.bases();
        }
        restore(&context_on(Arc::new(self.disk.clone())), request)?;
        Ok(read(&self.disk, target))
    }

    fn run(&self) -> Result<(), Error> {
        match self.act {
            Act::New => self.backup("/b", Disposition::New).map(drop),
            Act::Append => self.backup("/b", Disposition::Append).map(drop),
            Act::Init => self
                .backup("/b", Disposition::Init { skip: false })
                .map(drop),
            Act::Restore | Act::Chain => self.restore(0, "/out/db").map(drop),
        }
    }

    fn names(&self) -> Vec<PathBuf> {
        self.disk.paths()
    }

    /// Runs the act under a watchdog; the disk is healed afterwards.
    fn try_it(&self, at: &str) -> Result<(), Error> {
        let world = self.clone();
        let result = in_time(at, move || world.run());
        self.disk.heal();
        if let Err(e) = &result {
            assert!(!matches!(e, Error::Panicked { .. }), "{at}: {e}");
            assert!(
                !matches!(e, Error::Cancelled),
                "{at}: the reason was lost: {e}"
            );
            assert!(
                !e.to_string().is_empty() && !e.hint().is_empty(),
                "{at}: {e:?}"
            );
        }
        result
    }

    /// Checks the healed disk after `result`. `tidy`: nothing prevented the cleanup.
    fn judge(&self, result: &Result<(), Error>, before: &[PathBuf], tidy: bool, at: &str) {
        let (old, new) = (tree(1), tree(1000));
        let done = result.is_ok();
        let mut stands = Tree::new();
        let left = || -> Vec<_> {
            let is_new = |p: &PathBuf| !before.contains(p);
            self.names().into_iter().filter(is_new).collect()
        };
        if !done && tidy && !matches!(self.act, Act::Restore | Act::Chain) {
            assert_eq!(left(), Vec::<PathBuf>::new(), "{at}: left behind");
        }
        match self.act {
            Act::New => match self.restore(0, "/out/x") {
                Ok(got) => assert_eq!(got, new, "{at}"),
                Err(e) => assert!(!done, "{at}: reported success, but: {e}"),
            },
            Act::Append => {
                assert_eq!(
                    self.restore(1, "/out/old").unwrap(),
                    old,
                    "{at}: the older set"
                );
                match self.restore(2, "/out/x") {
                    Ok(got) => assert_eq!(got, new, "{at}"),
                    Err(e) => assert!(!done, "{at}: reported success, but: {e}"),
                }
            }
            Act::Init => {
                let got = self.restore(0, "/out/x").unwrap();
                assert!(
                    got == new || (!done && got == old),
                    "{at}: neither old nor new"
                );
            }
            Act::Restore | Act::Chain => {
                let got = read(&self.disk, "/out/db");
                if done {
                    assert_eq!(got, old, "{at}");
                } else if tidy {
                    assert_eq!(left(), Vec::<PathBuf>::new(), "{at}: left behind");
                } else {
                    // It may have failed among the last renames: files that have their names are complete.
                    let is_whole = |(name, bytes)| old.get(name) == Some(bytes);
                    assert!(
                        got.iter().all(is_whole),
                        "{at}: half a file among {:?}",
                        got.keys()
                    );
                    stands = got;
                }
            }
        }
        // The next run succeeds with any remains, or refuses because of existing files and leaves them.
        if !done {
            let again = match self.act {
                Act::New => self.backup("/b", Disposition::Format).map(drop),
                _ => self.run(),
            };
            if let Err(e) = again {
                assert!(!stands.is_empty(), "{at}: the run after it: {e}");
                assert_eq!(read(&self.disk, "/out/db"), stands, "{at}: after {e}");
            }
            let (position, expected) = match self.act {
                Act::Restore => (1, &old),
                Act::Chain => (2, &old),
                _ => (0, &new),
            };
            assert_eq!(
                &self.restore(position, "/out/again").unwrap(),
                expected,
                "{at}"
            );
        }
        for dir in ["/m0/d", "/m1/d"] {
            let neighbour = self.disk.read_file(Path::new(dir).join("neighbour"));
            assert_eq!(neighbour.unwrap(), b"stays", "{at}");
        }
    }
}

/// 1, 2, 3, then fewer numbers, until the fault comes too late to hit.
fn times() -> impl Iterator<Item = u64> {
    (1..=8).chain((9..400).step_by(13))
}

/// Makes calls fail by `fault(n)` for growing n and checks each run. Returns how many runs failed.
fn fail_everywhere(
    act: Act,
    stripes: usize,
    what: &str,
    tidy: bool,
    fault: impl Fn(u64) -> Fault,
) -> usize {
    let (mut failed, mut passed) = (0, 0);
    for n in times() {
        let at = format!("{act:?} x{stripes}, {what}, time {n}");
        let world = World::new(act, stripes, n);
        let before = world.names();
        world.disk.inject(fault(n));
        let result = world.try_it(&at);
        // A set whose names could not all be completed is kept for the next run to finish.
        let kept = matches!(&result, Err(Error::Media(MediaError::Io { action, .. })) if *action == "complete");
        world.judge(&result, &before, tidy && !kept, &at);
        match result {
            Err(_) => (failed, passed) = (failed + 1, 0),
            Ok(()) => passed += 1,
        }
        if passed >= 4 {
            break;
        }
    }
    failed
}

#[test]
fn one_failing_call_of_any_kind_ends_a_run_cleanly_or_does_not_matter() {
    use Op::*;
    let mut failed = BTreeMap::new();
    for act in ACTS {
        for stripes in [1, 3] {
            for op in [
                Open,
                Read,
                Stat,
                List,
                Create,
                Write,
                SetLen,
                Sync,
                CreateDir,
                Rename,
                RemoveFile,
                RemoveDir,
                SetAttributes,
                SyncDir,
            ] {
                let what = format!("one EIO in {op:?}");
                let fault = |n| Fault::errno(libc::EIO).on(op).nth(n).times(1);
                // The cleanup itself may be what fails.
                let tidy = !matches!(
                    op,
                    RemoveFile | RemoveDir | Open | Stat | List | SetAttributes | SetLen
                );
                *failed.entry(format!("{op:?}")).or_insert(0) +=
                    fail_everywhere(act, stripes, &what, tidy, fault);
            }
        }
    }
    // The faults must have hit: otherwise this test would prove nothing.
    for op in [
        "Open", "Read", "Write", "Create", "Sync", "SyncDir", "Rename",
    ] {
        assert!(
            failed[op] >= 2,
            "{op} failed only {} runs: {failed:?}",
            failed[op]
        );
    }
}

#[test]
fn a_disk_that_fails_for_good_at_any_moment_leaves_nothing_that_looks_valid() {
    for act in ACTS {
        for stripes in [1, 3] {
            for place in ["/m0", "/m1", "/out"] {
                let what = format!("{place} dead");
                fail_everywhere(act, stripes, &what, false, |n| {
                    Fault::errno(libc::EIO).below(place).nth(n)
                });
            }
        }
    }
}

#[test]
fn a_full_disk_ends_a_backup_wherever_it_is_met() {
    for act in [Act::New, Act::Append, Act::Init] {
        for stripes in [1, 3] {
            let whole = World::new(act, stripes, 1);
            whole.run().unwrap();
            let most = whole.disk.read_file("/m0/d/a.bak").unwrap().len() as u64 / 4096 + 4;
            let held = if act == Act::New { 0 } else { most };
            let mut full = 0;
            for pages in (0..most + held).step_by(5) {
                let at = format!("{act:?} x{stripes}, room for {pages} pages");
                let world = World::new(act, stripes, pages);
                let before = world.names();
                world.disk.set_capacity("/m0", pages * 4096).unwrap();
                let result = world.try_it(&at);
                if let Err(e) = &result {
                    full += 1;
                    assert!(is_io(e, libc::ENOSPC), "{at}: {e:?}");
                    assert!(e.to_string().contains("/m0/d/a.bak"), "{at}: {e}");
                }
                world.judge(&result, &before, true, &at);
            }
            // With several stripes, a ready stripe may have taken most of the blocks.
            let enough = if stripes == 1 { 3 } else { 1 };
            assert!(
                full >= enough,
                "{act:?} x{stripes}: the disk was full only {full} times"
            );
        }
    }
}

#[test]
fn a_target_that_fills_up_ends_a_restore_and_is_left_as_it_was() {
    let failed = fail_everywhere(Act::Restore, 3, "ENOSPC", true, |n| {
        Fault::errno(libc::ENOSPC)
            .on(Op::Write)
            .below("/out")
            .nth(n)
    });
    assert!(failed >= 5, "only {failed} runs met the full disk");
    let world = World::new(Act::Restore, 3, 1);
    world.disk.set_capacity("/out", 400 << 10).unwrap();
    let refused = world.try_it("too small").unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Landing(LandingError::TargetFull {
                needed: 770_906,
                ..
            })
        ),
        "{refused:?}"
    );
    assert!(!world.names().contains(&"/out/db".into()));
}

#[test]
fn a_restore_that_fails_removes_the_directories_made_for_it_and_no_others() {
    for target in ["/out/empty", "/out/empty/a/b", "/out/kept", "/out/kept/x"] {
        for op in [Op::CreateDir, Op::Create, Op::Write, Op::Sync] {
            let mut failed = 0;
            for n in 1..6 {
                let at = format!("{target}, time {n} of {op:?}");
                let world = World::new(Act::Restore, 1, n);
                let neighbour = Path::new("/out/kept/neighbour");
                world.disk.write_file(neighbour, b"stays").unwrap();
                world.disk.create_dir_all(Path::new("/out/empty")).unwrap();
                let before = world.names();
                let fault = Fault::errno(libc::ENOSPC).on(op).below("/out").nth(n);
                world.disk.inject(fault);
                let result = world.restore(1, target);
                world.disk.heal();
                match result {
                    Ok(_) => assert!(world.names().contains(&target.into()), "{at}"),
                    Err(_) => {
                        failed += 1;
                        assert_eq!(world.names(), before, "{at}");
                    }
                }
            }
            assert!(failed > 0, "{target}: {op:?} was not met");
        }
    }
}

fn is_io(e: &Error, errno: i32) -> bool {
    let mut source = std::error::Error::source(e);
    while let Some(e) = source {
        if let Some(io) = e.downcast_ref::<std::io::Error>() {
            return io.raw_os_error() == Some(errno);
        }
        source = e.source();
    }
    false
}

#[test]
fn short_writes_are_completed_everywhere() {
    for act in ACTS {
        for stripes in [1, 3] {
            for seed in 0..3 {
                let at = format!("{act:?} x{stripes}, short writes, seed {seed}");
                let world = World::new(act, stripes, seed);
                let before = world.names();
                world.disk.inject(Fault::short_write());
                let result = world.try_it(&at);
                assert!(result.is_ok(), "{at}: {result:?}");
                world.judge(&result, &before, true, &at);
            }
        }
    }
}

#[test]
fn a_media_directory_that_vanishes_is_never_a_success() {
    for act in [Act::New, Act::Append, Act::Init] {
        for stripes in [1, 3] {
            let whole = World::new(act, stripes, 1);
            let first = whole.disk.steps();
            whole.run().unwrap();
            // A removal after the last step there cannot be noticed.
            let history = whole.disk.history();
            let last = history.iter().rposition(|(_, p)| p.starts_with("/m0/d"));
            let steps = last.unwrap() as u64 - first;
            assert!(steps >= 5, "only {steps} steps");
            for step in 0..steps {
                let at = format!("{act:?} x{stripes}, directory gone at step {step} of {steps}");
                let world = World::new(act, stripes, step);
                let from = world.disk.steps() + step;
                world.disk.remove_tree_at(from, "/m0/d");
                let result = world.try_it(&at);
                // The number of steps depends on which stripe was ready. Once the stripe has its name, a removal
                // cannot be distinguished from one after success: only the last syncs follow.
                let history = world.disk.history();
                let last = history.iter().rposition(|(_, p)| p.starts_with("/m0/d"));
                let touched = last.is_some_and(|last| last as u64 >= from + 3);
                assert!(result.is_err() || !touched, "{at}: reported success");
            }
        }
    }
}

#[test]
fn appending_to_a_file_that_was_removed_meanwhile_is_an_error() {
    // On a busy machine the backup may end before the file is removed: then try once more, slower.
    let rates = [3 << 20, 1 << 20, 1 << 18];
    let mut results = rates.into_iter().map(append_while_its_file_goes);
    let result = results.find(Result::is_err);
    assert!(matches!(result, Some(Err(Error::Media(_)))), "{result:?}");
}

fn append_while_its_file_goes(rate_bytes_per_s: u64) -> Result<BackupReport, Error> {
    let dir = tempfile::tempdir().unwrap();
    let (source, media) = (dir.path().join("source"), dir.path().join("media"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&media).unwrap();
    std::fs::write(source.join("file"), content(1, 2 << 20)).unwrap();
    let request = backup_request(
        SourceSpec::Files(vec![source]),
        stripes(&media, 1),
        Algorithm::Lz4,
    );
    backup(&context(), request.clone()).unwrap();
    let written = |media: &Path| -> u64 {
        let files = std::fs::read_dir(media).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let before = written(&media);
    let mut again = request;
    again.disposition = Disposition::Append;
    again.limits.rate_bytes_per_s = Some(rate_bytes_per_s);
    let remover = std::thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_secs(60);
        while written(&media) == before {
            assert!(Instant::now() < deadline, "nothing is appended");
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(media).unwrap();
    });
    let result = in_time("append", move || backup(&context(), again));
    remover.join().unwrap();
    result
}

#[test]
fn a_restore_target_that_vanishes_is_never_a_success() {
    let whole = World::new(Act::Restore, 3, 1);
    let first = whole.disk.steps();
    whole.run().unwrap();
    let steps = whole.disk.steps() - first;
    // The last rename and its sync say that the old names are given up. Later steps only remove them.
    let history = whole.disk.history();
    let last = history.iter().rposition(|(op, _)| *op == Op::Rename);
    let tidying = (history.len() - 1 - last.unwrap() - 2) as u64;
    for step in 1..steps - tidying - 1 {
        let at = format!("target gone at step {step} of {steps}");
        let world = World::new(Act::Restore, 3, step);
        let from = world.disk.steps() + step;
        world.disk.remove_tree_at(from, "/out/db");
        assert!(world.try_it(&at).is_err(), "{at}: reported success");
    }
}

#[test]
fn an_unreadable_place_of_the_source_is_named_and_ends_the_backup() {
    for act in [Act::New, Act::Append, Act::Init] {
        for stripes in [1, 3] {
            for (file, offset) in [
                ("big", 0),
                ("big", 65_536),
                ("big", 300_000),
                ("big", 699_999),
                ("mid", 70_000),
                ("sub/two", 2),
            ] {
                let at = format!("{act:?} x{stripes}, {file} unreadable at {offset}");
                let world = World::new(act, stripes, offset);
                let before = world.names();
                let path = Path::new("/b").join(file);
                let bad = Fault::errno(libc::EIO).on(Op::Read).below(&path);
                world.disk.inject(bad.at_bytes(offset..offset + 1));
                let result = world.try_it(&at);
                let Err(Error::Source(e)) = &result else {
                    panic!("{at}: {result:?}")
                };
                assert!(e.to_string().contains(path.to_str().unwrap()), "{at}: {e}");
                // A file is read buffer by buffer.
                let buffer = format!("at byte {}", offset - offset % (64 << 10));
                assert!(e.to_string().ends_with(&buffer), "{at}: {e}");
                world.judge(&result, &before, true, &at);
            }
        }
    }
}

#[test]
fn a_slow_device_among_three_gets_fewer_blocks() {
    let disk = SimDisk::new(1);
    let bytes = noise(7, 24 << 20);
    disk.write_file("/a/file", &bytes).unwrap();
    let devices: Vec<_> = ["/m/slow", "/m/b", "/m/c"]
        .map(|p| DeviceSpec::File(p.into()))
        .into();
    disk.write_file("/m/neighbour", b"").unwrap();
    // The slow stripe moves again when the others have written 10 times, 2 MiB each: with a third each they never
    // would.
    let written = Arc::new((Mutex::new(0), Condvar::new()));
    for other in ["/m/b.longshore-new", "/m/c.longshore-new"] {
        let written = written.clone();
        let count = Fault::meanwhile(move || {
            *written.0.lock().unwrap() += 1;
            written.1.notify_all();
        });
        disk.inject(count.on(Op::Write).below(other));
    }
    let wait = Fault::meanwhile(move || {
        let writes = written.0.lock().unwrap();
        drop(written.1.wait_while(writes, |writes| *writes < 10).unwrap());
    });
    disk.inject(wait.on(Op::Write).below("/m/slow.longshore-new"));
    let context = context_on(Arc::new(disk.clone()));
    let request = backup_request(
        SourceSpec::Files(vec!["/a".into()]),
        devices.clone(),
        Algorithm::Lz4,
    );
    in_time("slow device", {
        let context = context.clone();
        move || backup(&context, request).unwrap()
    });
    let len = |p: &str| disk.read_file(p).unwrap().len();
    let (slow, others) = (len("/m/slow"), len("/m/b") + len("/m/c"));
    // Writes are at most 2 MiB.
    assert!(slow * 2 < others, "{slow} {others}");
    disk.heal();
    restore(&context, restore_request(devices, Path::new("/out"))).unwrap();
    assert!(disk.read_file("/out/file").unwrap() == bytes);
}

#[test]
fn two_buffers_and_four_volumes_slowest_first_do_not_deadlock() {
    for buffers in [1, 2] {
        for cached in [false, true] {
            let disk = SimDisk::new(3);
            let mut request = backup_request(
                SourceSpec::Files(vec!["/src".into()]),
                vec![DeviceSpec::File("/m/a.bak".into())],
                Algorithm::QatDeflate,
            );
            disk.write_file("/m/neighbour", b"").unwrap();
            for volume in 0..4u64 {
                let dir = format!("/src/v{volume}");
                for file in 0..6 {
                    let bytes = content(volume * 10 + file, 150_000);
                    disk.write_file(format!("{dir}/f{file}"), &bytes).unwrap();
                }
                let slow = Duration::from_millis(8 >> (2 * volume));
                disk.inject(Fault::delay(slow).on(Op::Read).below(&dir));
                request
                    .volume_map
                    .push((dir.into(), format!("volume {volume}")));
            }
            disk.set_cached("/src", cached);
            request.tuning = Tuning {
                buffer_count: Some(buffers),
                buffer_bytes: Some(64 << 10),
            };
            let devices = request.devices.clone();
            let at = format!("{buffers} buffers, cached {cached}");
            let context = context_on(Arc::new(disk.clone()));
            let report = in_time(&at, {
                let context = context.clone();
                move || backup(&context, request).unwrap()
            });
            assert!(report.run.plan.volumes.len() >= 4, "{:?}", report.run.plan);
            let mut request = restore_request(devices, Path::new("/out"));
            request.tuning.buffer_count = Some(buffers);
            in_time(&at, move || restore(&context, request).unwrap());
            assert_eq!(read(&disk, "/out"), read(&disk, "/src"), "{at}");
        }
    }
}

/// Goal: a worker that waits for a buffer keeps no other one from computing.
/// Method: the first block is slow to read, and a single stripe takes blocks in order. Meanwhile as many others finish as
/// may compute at once, and each wants a buffer that only the first block's end makes free.
#[test]
fn workers_that_wait_for_a_buffer_leave_their_turn_to_others() {
    const BLOCK: usize = 64 << 10;
    let disk = SimDisk::new(5);
    disk.write_file("/m/neighbour", b"").unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let others = Gate::inside_max(cores);
    disk.write_file("/src/a", &noise(1, BLOCK)).unwrap();
    for n in 0..4 * others {
        let bytes = noise(2 + n as u64, BLOCK);
        disk.write_file(format!("/src/b{n:03}"), &bytes).unwrap();
    }
    let delay = |path: &str, millis| {
        let slow = Fault::delay(Duration::from_millis(millis));
        disk.inject(slow.on(Op::Read).below(path));
    };
    delay("/src/a", 400);
    // All workers read at the same time, so each gets one block.
    for n in 0..others {
        delay(&format!("/src/b{n:03}"), 40);
    }
    let devices = vec![DeviceSpec::File("/m/a.bak".into())];
    let source = SourceSpec::Files(vec!["/src".into()]);
    let mut request = backup_request(source, devices.clone(), Algorithm::Lz4);
    request.tuning = Tuning {
        buffer_count: Some(others + 1),
        buffer_bytes: Some(BLOCK),
    };
    let context = context_on(Arc::new(disk.clone()));
    let report = in_time("turns", {
        let context = context.clone();
        move || backup(&context, request).unwrap()
    });
    assert_eq!(report.run.plan.workers, others + 1);
    restore(&context, restore_request(devices, Path::new("/out"))).unwrap();
    assert!(read(&disk, "/out") == read(&disk, "/src"));
}

#[test]
fn two_databases_can_be_backed_up_at_once_and_one_media_set_by_one_only() {
    let dir = tempfile::tempdir().unwrap();
    let database = |name: &str, rows: u32| {
        let path = dir.path().join(name);
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; CREATE TABLE t (a, b);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO t SELECT i, hex(randomblob(200)) FROM n;"
        ))
        .unwrap();
        (path, db)
    };
    let databases = [database("one.db", 20_000), database("two.db", 30_000)];
    let both = |place: &dyn Fn(usize) -> PathBuf| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = databases
                .iter()
                .enumerate()
                .map(|(i, (path, _))| {
                    let devices = stripes(&place(i), 2);
                    let spec = SourceSpec::Sqlite(path.clone());
                    let request = backup_request(spec, devices, Algorithm::Zstd);
                    scope.spawn(move || backup(&context(), request))
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap())
                .collect::<Vec<_>>()
        })
    };
    for round in 0..5 {
        let place = |i: usize| dir.path().join(format!("media {round} {i}"));
        (0..2).for_each(|i| std::fs::create_dir(place(i)).unwrap());
        for (i, result) in both(&place).into_iter().enumerate() {
            result.unwrap();
            let target = dir.path().join(format!("out {round} {i}"));
            restore(&context(), restore_request(stripes(&place(i), 2), &target)).unwrap();
            let (path, live) = &databases[i];
            let copy = rusqlite::Connection::open(target.join(path.file_name().unwrap())).unwrap();
            let sum = "SELECT count(*), group_concat(b) FROM t";
            let rows = |db: &rusqlite::Connection| {
                db.query_row(sum, [], |r| {
                    Ok((r.get::<_, u32>(0)?, r.get::<_, String>(1)?))
                })
                .unwrap()
            };
            assert!(rows(live) == rows(&copy), "round {round}, database {i}");
        }
        let shared = dir.path().join(format!("shared {round}"));
        std::fs::create_dir(&shared).unwrap();
        let results = both(&|_| shared.clone());
        let won = results.iter().filter(|r| r.is_ok()).count();
        assert_eq!(won, 1, "{results:?}");
        let lost = results.into_iter().find_map(Result::err).unwrap();
        assert!(
            matches!(
                &lost,
                Error::Media(MediaError::Busy { .. } | MediaError::Exists { .. })
            ),
            "{lost:?}"
        );
        assert!(verify(&context(), stripes(&shared, 2)).unwrap().is_valid());
    }
}

#[test]
fn a_run_held_back_by_its_limits_ends_when_it_is_cancelled() {
    for (rate, cpu) in [(Some(1000), None), (None, Some(0.001))] {
        for restoring in [false, true] {
            let disk = SimDisk::new(1);
            disk.write_file("/a/file", &noise(1, 8 << 20)).unwrap();
            disk.write_file("/m/neighbour", b"").unwrap();
            let devices = vec![DeviceSpec::File("/m/a.bak".into())];
            let context = context_on(Arc::new(disk.clone()));
            let mut request = backup_request(
                SourceSpec::Files(vec!["/a".into()]),
                devices.clone(),
                Algorithm::Zstd,
            );
            if restoring {
                backup(&context, request.clone()).unwrap();
            }
            let before = disk.paths();
            request.limits.rate_bytes_per_s = rate;
            request.limits.cpu_percent = cpu;
            let cancel = context.cancel.clone();
            let canceller = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                cancel.store(true, Ordering::Relaxed);
            });
            let at = format!("rate {rate:?}, cpu {cpu:?}, restoring {restoring}");
            let result = in_time(&at, move || match restoring {
                false => backup(&context, request).map(drop),
                true => {
                    let mut again = restore_request(devices, Path::new("/out"));
                    again.limits = request.limits;
                    restore(&context, again).map(drop)
                }
            });
            canceller.join().unwrap();
            assert!(matches!(result, Err(Error::Cancelled)), "{at}: {result:?}");
            let left: Vec<_> = disk
                .paths()
                .into_iter()
                .filter(|p| !before.contains(p) && p != Path::new("/out"))
                .collect();
            assert_eq!(left, Vec::<PathBuf>::new(), "{at}");
        }
    }
}

/// A clock that cancels the run when it is asked for the date for the `at`th time, from 1. No thread of the run exists
/// at its last question before the seal, so nothing but the run itself can notice.
#[derive(Debug)]
struct CancelAt {
    at: usize,
    cancel: Arc<AtomicBool>,
    asked: AtomicUsize,
    disk: SimDisk,
    /// The disk's steps so far, at each question.
    steps: Mutex<Vec<usize>>,
}

impl CancelAt {
    fn new(at: usize, disk: &SimDisk) -> CancelAt {
        CancelAt {
            at,
            cancel: Arc::new(AtomicBool::new(false)),
            asked: AtomicUsize::new(0),
            disk: disk.clone(),
            steps: Mutex::new(Vec::new()),
        }
    }
}

impl Clock for CancelAt {
    fn now(&self) -> Duration {
        HostClock.now()
    }

    fn wall_ns(&self) -> i64 {
        self.steps.lock().unwrap().push(self.disk.history().len());
        if self.asked.fetch_add(1, Ordering::Relaxed) + 1 == self.at {
            self.cancel.store(true, Ordering::Relaxed);
        }
        HostClock.wall_ns()
    }

    fn thread_cpu(&self) -> Duration {
        HostClock.thread_cpu()
    }

    fn sleep(&self, how_long: Duration) {
        HostClock.sleep(how_long);
    }
}

#[test]
fn a_clock_that_cancels_keeps_the_contract_of_all_clocks() {
    clock_contract::keeps_its_contract(&CancelAt::new(1, &SimDisk::new(1)));
}

/// Goal: a backup that is cancelled after its last block was written, and before its seal, is no backup.
/// Method: a first run finds the last question for the date before any stripe gets its name; a second run is cancelled
/// there.
#[test]
fn a_backup_that_is_cancelled_between_its_last_block_and_its_seal_is_none() {
    for act in [Act::New, Act::Append, Act::Init] {
        for stripes in [1, 3] {
            let at = format!("{act:?}, {stripes} stripes");
            let disposition = match act {
                Act::New => Disposition::New,
                Act::Append => Disposition::Append,
                _ => Disposition::Init { skip: false },
            };
            let run = |world: &World, clock: &Arc<CancelAt>| {
                let mut context = context_on(Arc::new(world.disk.clone()));
                context.clock = clock.clone();
                context.cancel = clock.cancel.clone();
                let source = SourceSpec::Files(vec!["/b".into()]);
                let mut request = backup_request(source, world.devices(), Algorithm::Lz4);
                request.disposition = disposition;
                request.tuning.buffer_bytes = Some(64 << 10);
                backup(&context, request)
            };
            let world = World::new(act, stripes, 7);
            let (old, before) = (world.disk.history().len(), world.disk.paths());
            let clock = Arc::new(CancelAt::new(usize::MAX, &world.disk));
            run(&world, &clock).unwrap();
            // Blocks are in the files when the last question comes, trailers and names are still to come.
            let history = world.disk.history();
            let steps = clock.steps.lock().unwrap().clone();
            let writes =
                |range: &[(Op, PathBuf)]| range.iter().filter(|(op, _)| *op == Op::Write).count();
            let is_before_seal = |&&steps: &&usize| {
                let named = history[old..steps].iter().any(|(op, _)| *op == Op::Rename);
                !named && writes(&history[steps..]) >= stripes
            };
            let question = steps.iter().take_while(is_before_seal).count();
            let at_last = steps[question - 1];
            assert!(
                writes(&history[old..at_last]) >= stripes,
                "{at}: no block was written yet"
            );

            let world = World::new(act, stripes, 7);
            assert_eq!(world.disk.paths(), before, "{at}");
            let clock = Arc::new(CancelAt::new(question, &world.disk));
            let result = run(&world, &clock);
            assert!(matches!(result, Err(Error::Cancelled)), "{at}: {result:?}");
            assert_eq!(world.disk.paths(), before, "{at}");
            if act != Act::New {
                let context = context_on(Arc::new(world.disk.clone()));
                let report = verify(&context, world.devices()).unwrap();
                assert!(
                    report.is_valid() && report.sets.len() == 1,
                    "{at}: {report:?}"
                );
            }
        }
    }
}

/// Goal: with all of a backup's threads, a device that fails for good, at any moment, costs its stripe where that is
/// tolerated: the backup succeeds, says so, and is restored with and without the device; and no run hangs.
/// Method: three data stripes and one with parity on file systems of their own; one of them fails from each of many steps on,
/// in plain and in encrypted sets.
#[test]
fn a_backup_goes_on_without_a_device_where_that_is_tolerated() {
    const DIRS: [&str; 4] = ["/d0", "/d1", "/d2", "/d3"];
    let devices = || -> Vec<DeviceSpec> {
        let device = |dir: &&str| DeviceSpec::File(Path::new(dir).join("s.bak"));
        DIRS.iter().map(device).collect()
    };
    let world = |seed: u64| {
        let disk = SimDisk::new(seed);
        DIRS.iter().for_each(|dir| disk.mount(dir).unwrap());
        disk.mount("/out").unwrap();
        for n in 0..6 {
            disk.write_file(format!("/a/{n}"), &noise(n, 700_000))
                .unwrap();
        }
        disk
    };
    let identity = Identity::new_x25519().unwrap();
    let to = Recipients::new(vec![identity.recipient()], false).unwrap();
    let context = |disk: &SimDisk| {
        let mut context = context_on(Arc::new(disk.clone()));
        let identities = Identities::new(vec![identity.clone()]);
        context.keyring = Arc::new(Keyring::new(identities, false));
        context
    };
    let run = |disk: &SimDisk, tolerated: u16, encrypts: bool| {
        let source = SourceSpec::Files(vec!["/a".into()]);
        let mut request = backup_request(source, devices(), Algorithm::None);
        (request.parity, request.tolerated) = (1, tolerated);
        request.encrypt_to = encrypts.then(|| to.clone());
        request.tuning.buffer_bytes = Some(64 << 10);
        let context = context(disk);
        in_time("a backup", move || backup(&context, request))
    };
    let whole = world(1);
    let before = whole.steps();
    run(&whole, 1, false).unwrap();
    let steps = whole.steps() - before;
    let (mut degraded, mut refused) = (0, 0);
    for dead in DIRS {
        for step in (0..=steps).step_by(3) {
            let at = format!("{dead} from step {step} of {steps}");
            let disk = world(step);
            let fault = Fault::errno(5).below(dead);
            disk.inject(fault.from_step(disk.steps() + step));
            let report = match run(&disk, 1, step % 2 == 1) {
                Ok(report) => report,
                Err(error) => {
                    // It never began.
                    assert!(step < 8, "{at}: {error}");
                    refused += 1;
                    continue;
                }
            };
            degraded += usize::from(report.degraded);
            let told = report.run.degraded().count();
            assert_eq!(told, usize::from(report.degraded), "{at}");
            for (target, is_back) in [("/out/gone", false), ("/out/back", true)] {
                if is_back {
                    disk.heal();
                }
                let mut request = restore_request(devices(), Path::new(target));
                request.position = 0;
                restore(&context(&disk), request).unwrap_or_else(|e| panic!("{at}: {e}"));
                for n in 0..6 {
                    let name = format!("{target}/{n}");
                    let found = disk
                        .read_file(&name)
                        .unwrap_or_else(|e| panic!("{at}: {name}: {e}"));
                    assert!(found == noise(n, 700_000), "{at}: {name}");
                }
            }
            let disk = world(step);
            let fault = Fault::errno(5).below(dead);
            disk.inject(fault.from_step(disk.steps() + step));
            if report.degraded {
                let refused = run(&disk, 0, step % 2 == 1);
                assert!(refused.is_err() || step + 8 > steps, "{at}: not tolerated");
            }
        }
    }
    assert!(
        degraded > 3 * refused.max(5),
        "{degraded} losses, {refused} refusals"
    );
}
