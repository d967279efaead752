//! Goal: a cache serves whole block devices, refuses devices in use, and notices that a device was changed between two
//! starts.
//! Method: loop devices of the system, with ext4, XFS or btrfs where they are installed. That needs root and a system
//! that permits loop devices; if the tests' tools are required (`LONGSHORE_REQUIRE_TOOLS`) the test fails without them,
//! otherwise it reports that it was skipped.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use longshore_blockcache::{Backend, Error, OpenedBackend, Start, create, open};
use longshore_io::{Host, HostClock};

use crate::{LINE, settings};

/// Reports that this cannot be tested here.
fn skip(why: &str) {
    let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
    assert!(!required, "{why}, but LONGSHORE_REQUIRE_TOOLS is set");
    println!("skipped: {why}");
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// A loop device, removed when dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(image: &Path) -> Option<Loop> {
        let shown = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output();
        let shown = shown.ok().filter(|output| output.status.success())?;
        let name = String::from_utf8(shown.stdout).unwrap();
        Some(Loop(PathBuf::from(name.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _gone = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// A place for guards on another file system than the caches' files.
fn apart() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Two images of the same size and content, and a cache.
fn stage() -> (tempfile::TempDir, [PathBuf; 3]) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let paths = ["a", "b", "cache"].map(|name| dir.path().join(name));
    for image in &paths[..2] {
        fs::write(image, vec![7; 8 << 20]).unwrap();
        assert!(run("mkfs.ext4", &["-q", "-F", &image.to_string_lossy()]));
    }
    fs::write(&paths[2], vec![0; 16 << 20]).unwrap();
    (dir, paths)
}

fn serve(
    device: &Path,
    guard: Option<PathBuf>,
    cache: Option<&Path>,
) -> Result<OpenedBackend, Error> {
    let backend = Backend {
        path: device.to_owned(),
        guard,
    };
    let clock = Arc::new(HostClock);
    open(&Host::new(), &backend, cache, settings("none"), clock)
}

/// A child that another test has just forked holds a device until it becomes another program.
fn when_free<T>(mut open: impl FnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match open() {
            Err(Error::InUse { .. }) if Instant::now() < until => thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn serve_again(device: &Path, guard: Option<PathBuf>, cache: Option<&Path>) -> OpenedBackend {
    when_free(|| serve(device, guard.clone(), cache))
}

#[test]
fn a_device_in_use_is_refused_its_guard_must_be_named_and_another_one_in_its_place_is_noticed() {
    let (dir, [a, b, image]) = stage();
    let (Some(first), Some(fast)) = (Loop::new(&a), Loop::new(&image)) else {
        return skip("loop devices are not permitted here");
    };
    let guard = Some(dir.path().join("guard"));
    let alone = |path: &Path| {
        let mut how = fs::OpenOptions::new();
        how.read(true).custom_flags(libc::O_EXCL).open(path)
    };
    let mounted = alone(&fast.0).unwrap();
    let made = create(&Host::new(), &fast.0, None, 16 << 10, false);
    assert!(matches!(made, Err(Error::InUse { .. })), "{made:?}");
    drop(mounted);
    when_free(|| create(&Host::new(), &fast.0, None, 16 << 10, false));

    for cache in [None, Some(&*fast.0)] {
        let refused = serve(&first.0, None, cache).map(drop);
        assert!(matches!(refused, Err(Error::NoGuard { .. })), "{refused:?}");
    }
    let start = |device: &Path| {
        let opened = serve_again(device, guard.clone(), Some(&fast.0));
        (opened.cached, opened.cache.unwrap().unwrap())
    };
    let (cached, how) = start(&first.0);
    assert_eq!(how, Start::Fresh);
    assert!(alone(&first.0).is_err() && alone(&fast.0).is_err());
    cached.read(&mut [0; LINE], 0).unwrap();
    cached.stop().unwrap();
    drop(cached);
    let (cached, how) = start(&first.0);
    assert_eq!(
        (how, cached.status().held_bytes),
        (Start::Warm, LINE as u64)
    );
    cached.stop().unwrap();
    drop((cached, first));

    let other = Loop::new(&b).unwrap();
    let (cached, how) = start(&other.0);
    assert_eq!(
        (how, cached.status().held_bytes),
        (Start::BackendChanged, 0)
    );
}

/// A mounted file system, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &Path, at: PathBuf, options: &str) -> Option<Mounted> {
        fs::create_dir_all(&at).unwrap();
        let done = Command::new("mount")
            .arg("-o")
            .arg(options)
            .arg(device)
            .arg(&at)
            .status();
        done.is_ok_and(|status| status.success())
            .then_some(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg(&self.0).status();
    }
}

/// The action of another program on the device while nothing is served.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    Nothing,
    LooksAtIt,
    ChangesAFile,
    /// The machine loses power before it unmounts.
    ChangesAFileAndCrashes,
    /// Writes everywhere, with a program that is not a file system.
    WritesToTheBareDevice,
    /// Writes one line, as software RAID does whose member still has an old superblock at its beginning.
    WritesOneLine,
}

/// Changes one byte in a line far behind all superblocks.
fn changes_a_line(device: &Path) {
    const AT: u64 = 45 << 20;
    let mut how = fs::OpenOptions::new();
    let bare = how.read(true).write(true).open(device).unwrap();
    let mut line = vec![0; LINE];
    bare.read_exact_at(&mut line, AT).unwrap();
    line[9] ^= 1;
    bare.write_all_at(&line, AT).unwrap();
    bare.sync_all().unwrap();
}

/// The whole device of a file system is cached; the server stops, or is killed; the deed; and how the next one starts.
/// `None`: this file system is not available here.
fn after(make: &[&str], clean: bool, deed: Deed) -> Option<Start> {
    const LEN: usize = 320 << 20;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| dir.path().join(name);
    let (image, cache) = (path("image"), path("cache"));
    fs::File::create(&image)
        .unwrap()
        .set_len(LEN as u64)
        .unwrap();
    let text = image.to_string_lossy().into_owned();
    if !run(make[0], &[&make[1..], &[&text]].concat()) {
        return None;
    }
    let device = Loop::new(&image)?;
    let mount = |options| Mounted::new(&device.0, path("mounted"), options);
    // A file of 4 MiB, whose position is looked up before anything is served.
    let mounted = mount("rw")?;
    let file = mounted.0.join("file");
    fs::write(&file, vec![1; 4 << 20]).unwrap();
    drop(mounted);
    create(&Host::new(), &cache, Some(64 << 20), 64 << 10, false).unwrap();
    let apart = apart();
    let guard = Some(apart.path().join("guard"));
    let serve = || {
        let opened = serve_again(&device.0, guard.clone(), Some(&cache));
        (opened.cached, opened.cache.unwrap().unwrap())
    };
    let (cached, how) = serve();
    assert_eq!(how, Start::Fresh);
    let mut bytes = vec![0; 1 << 20];
    for mib in 0..48 {
        cached.read(&mut bytes, mib << 20).unwrap();
    }
    match clean {
        true => cached.stop().unwrap(),
        false => cached.checkpoint(true).unwrap(),
    }
    drop(cached);
    match deed {
        Deed::Nothing => {}
        Deed::LooksAtIt => {
            let mounted = mount("ro")?;
            assert_eq!(fs::read(mounted.0.join("file")).unwrap()[0], 1);
        }
        Deed::ChangesAFile => {
            let mounted = mount("rw")?;
            let file = fs::OpenOptions::new()
                .write(true)
                .open(mounted.0.join("file"));
            file.unwrap().write_all_at(&[2; LINE], 1 << 20).unwrap();
        }
        Deed::ChangesAFileAndCrashes => {
            let mounted = mount("rw")?;
            let file = fs::OpenOptions::new()
                .write(true)
                .open(mounted.0.join("file"))
                .unwrap();
            file.write_all_at(&[2; LINE], 1 << 20).unwrap();
            file.sync_all().unwrap();
            assert!(run("sync", &[]));
            let then = path("then");
            assert!(run(
                "cp",
                &["--sparse=always", &text, &then.to_string_lossy()]
            ));
            drop(file);
            drop(mounted);
            // Through the device, whose pages would otherwise be older than its file.
            let mut how = fs::OpenOptions::new();
            let bare = how.write(true).open(&device.0).unwrap();
            let then = fs::File::open(then).unwrap();
            for mib in 0..LEN as u64 >> 20 {
                then.read_exact_at(&mut bytes, mib << 20).unwrap();
                bare.write_all_at(&bytes, mib << 20).unwrap();
            }
            bare.sync_all().unwrap();
        }
        Deed::WritesOneLine => changes_a_line(&device.0),
        Deed::WritesToTheBareDevice => {
            let bare = fs::OpenOptions::new().write(true).open(&device.0).unwrap();
            for line in (1..(48 << 20) / LINE as u64 / 8).map(|n| n * 8 + 5) {
                bare.write_all_at(&[9; 16], line * LINE as u64 + 100)
                    .unwrap();
            }
            bare.sync_all().unwrap();
        }
    }
    let (cached, how) = serve();
    let (mut held, mut line, mut truth) = (0, vec![0; LINE], vec![0; LINE]);
    let bare = fs::File::open(&device.0).unwrap();
    for at in cached
        .held()
        .into_iter()
        .flat_map(|range| range.step_by(LINE))
    {
        cached.read(&mut line, at).unwrap();
        bare.read_exact_at(&mut truth, at).unwrap();
        assert!(line == truth, "{deed:?}: stale at {at}, {how:?}");
        held += 1;
    }
    assert_eq!(held > 0, how.is_believed(), "{deed:?}, {how:?}");
    Some(how)
}

const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F"];
const XFS: &[&str] = &["mkfs.xfs", "-q", "-f"];
const BTRFS: &[&str] = &["mkfs.btrfs", "-q", "-f"];

/// Goal: fstab by UUID, or a rescue system, mounts the device once while nothing is served: the cache begins empty.
#[test]
fn a_device_that_was_mounted_directly_between_two_starts_is_noticed() {
    for make in [EXT4, XFS, BTRFS] {
        for clean in [true, false] {
            for deed in [
                Deed::Nothing,
                Deed::LooksAtIt,
                Deed::ChangesAFile,
                Deed::ChangesAFileAndCrashes,
                Deed::WritesToTheBareDevice,
                Deed::WritesOneLine,
            ] {
                let Some(how) = after(make, clean, deed) else {
                    skip(&format!("{} or its mount cannot be had here", make[0]));
                    break;
                };
                let same = deed == Deed::Nothing || deed == Deed::LooksAtIt;
                let at = format!("{}, clean {clean}, {deed:?}: {how:?}", make[0]);
                println!("{at}");
                match (same, clean, deed) {
                    // Even mounted read-only, XFS may write to its log.
                    _ if make == XFS && deed == Deed::LooksAtIt && how == Start::ContentChanged => {
                    }
                    (true, true, _) => assert_eq!(how, Start::Warm, "{at}"),
                    (true, false, _) => assert_eq!(how, Start::AfterCrash, "{at}"),
                    (_, _, Deed::WritesToTheBareDevice) => {
                        assert!(
                            matches!(how, Start::LinesDiffer | Start::ContentChanged),
                            "{at}"
                        );
                    }
                    (_, _, Deed::WritesOneLine) => assert_eq!(how, Start::LinesDiffer, "{at}"),
                    // After a crash the head of XFS's log is unknown, so a mount without an unmount shows by its bytes only.
                    (_, false, Deed::ChangesAFileAndCrashes) if make == XFS => {
                        assert_eq!(how, Start::LinesDiffer, "{at}");
                    }
                    _ => assert_eq!(how, Start::ContentChanged, "{at}"),
                }
            }
        }
    }
}

/// A database on the bare device, an encrypted container: nothing shows whether another program wrote to it.
#[test]
fn a_cache_starts_empty_if_its_backend_shows_nothing() {
    let (dir, [_, b, image]) = stage();
    fs::write(&b, vec![7; 8 << 20]).unwrap();
    create(&Host::new(), &image, Some(16 << 20), 16 << 10, true).unwrap();
    let Some(device) = Loop::new(&b) else {
        return skip("loop devices are not permitted here");
    };
    let (_dir, apart) = (dir, apart());
    let start = || {
        let guard = Some(apart.path().join("guard"));
        let opened = serve_again(&device.0, guard, Some(&image));
        (opened.cached, opened.cache.unwrap().unwrap())
    };
    for clean in [true, false] {
        let (cached, _) = start();
        cached.read(&mut [0; LINE], 0).unwrap();
        match clean {
            true => cached.stop().unwrap(),
            false => cached.checkpoint(true).unwrap(),
        }
        drop(cached);
        let (cached, how) = start();
        assert_eq!((how, cached.status().held_bytes), (Start::Unproved, 0));
    }
}

/// Goal: two names of one disk cannot be served with one guard, and a file below a loop device cannot be served at all: two
/// servers would not see each other's writes.
#[test]
fn a_backend_is_not_served_twice_through_two_loop_devices_or_below_one() {
    let (dir, [a, _, cache]) = stage();
    let (Some(first), Some(second)) = (Loop::new(&a), Loop::new(&a)) else {
        return skip("loop devices are not permitted here");
    };
    let guard = Some(dir.path().join("guard"));
    let served = serve_again(&first.0, guard.clone(), None);
    let in_use = |refused: Result<OpenedBackend, Error>, path: PathBuf| match refused.map(drop) {
        Err(Error::InUse { path: told }) => assert_eq!(told, path),
        other => panic!("{other:?}"),
    };
    let lock = fs::canonicalize(dir.path()).unwrap().join("guard.lock");
    in_use(serve(&second.0, guard.clone(), None), lock);
    let other = Some(dir.path().join("another guard"));
    in_use(serve(&second.0, other, None), fs::canonicalize(&a).unwrap());
    drop(served);
    drop(serve_again(&second.0, guard, None));
    in_use(serve(&a, None, Some(&cache)), fs::canonicalize(&a).unwrap());
    drop((first, second));
    // Nor is a cache below two loop devices used twice, nor made again.
    let (Some(fast), Some(again)) = (Loop::new(&cache), Loop::new(&cache)) else {
        return skip("loop devices are not permitted here");
    };
    when_free(|| create(&Host::new(), &fast.0, None, 16 << 10, false));
    let served = serve_again(&a, None, Some(&fast.0));
    assert!(matches!(served.cache, Some(Ok(Start::Fresh))));
    for path in [&again.0, &cache] {
        let made = create(&Host::new(), path, None, 16 << 10, true);
        assert!(
            matches!(made, Err(Error::InUse { .. })),
            "{path:?}: {made:?}"
        );
    }
    drop((served, fast, again));
    let reader = fs::File::open(&a).unwrap();
    drop(serve_again(&a, None, None));
    drop(reader);
}

/// Goal: of a block device as much is used as was asked for, or all of it.
#[test]
fn a_cache_uses_the_part_of_a_block_device_that_was_asked_for() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = dir.path().join("image");
    fs::write(&image, vec![0; 48 << 20]).unwrap();
    let Some(device) = Loop::new(&image) else {
        return skip("loop devices are not permitted here");
    };
    let make = |size| {
        when_free(
            || match create(&Host::new(), &device.0, size, 16 << 10, true) {
                Err(Error::InUse { path }) => Err(Error::InUse { path }),
                made => Ok(made),
            },
        )
    };
    let whole = make(None).unwrap().end();
    assert!(whole > 47 << 20, "{whole}");
    let part = make(Some(24 << 20)).unwrap().end();
    assert!(part <= 24 << 20 && part > 22 << 20, "{part}");
    let before = fs::read(&image).unwrap();
    let beyond = make(Some(49 << 20));
    assert!(matches!(beyond, Err(Error::Beyond { .. })), "{beyond:?}");
    assert!(fs::read(&image).unwrap() == before);
}
