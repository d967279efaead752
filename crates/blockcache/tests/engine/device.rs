//! Block devices, as loop devices of the system. Needs root and a system that permits them; says so where not.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use longshore_blockcache::{Backend, Error, Opened, Start, create, open};
use longshore_io::{Host, HostClock};

use crate::{LINE, settings};

/// A loop device, gone with this.
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

/// Two images of the same size and content, and a cache.
fn stage() -> (tempfile::TempDir, [PathBuf; 3]) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let paths = ["a", "b", "cache"].map(|name| dir.path().join(name));
    for image in &paths[..2] {
        fs::write(image, vec![7; 8 << 20]).unwrap();
    }
    fs::write(&paths[2], vec![0; 16 << 20]).unwrap();
    (dir, paths)
}

fn serve(device: &Path, guard: Option<PathBuf>, cache: Option<&Path>) -> Result<Opened, Error> {
    let backend = Backend {
        path: device.to_owned(),
        guard,
    };
    let clock = Arc::new(HostClock);
    open(&Host::new(), &backend, cache, settings("none"), clock)
}

#[test]
fn a_device_in_use_is_refused_its_guard_must_be_named_and_another_one_in_its_place_is_noticed() {
    let (dir, [a, b, image]) = stage();
    let (Some(first), Some(fast)) = (Loop::new(&a), Loop::new(&image)) else {
        println!("skipped: loop devices are not permitted here");
        return;
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
    create(&Host::new(), &fast.0, None, 16 << 10, false).unwrap();

    for cache in [None, Some(&*fast.0)] {
        let refused = serve(&first.0, None, cache).map(drop);
        assert!(matches!(refused, Err(Error::NoGuard { .. })), "{refused:?}");
    }
    let start = |device: &Path| {
        let opened = serve(device, guard.clone(), Some(&fast.0)).unwrap();
        (opened.engine, opened.cache.unwrap().unwrap())
    };
    let (engine, how) = start(&first.0);
    assert_eq!(how, Start::Fresh);
    assert!(alone(&first.0).is_err() && alone(&fast.0).is_err());
    engine.read(&mut [0; LINE], 0).unwrap();
    engine.stop().unwrap();
    drop(engine);
    let (engine, how) = start(&first.0);
    assert_eq!(
        (how, engine.status().held_bytes),
        (Start::Warm, LINE as u64)
    );
    engine.stop().unwrap();
    drop((engine, first));

    let other = Loop::new(&b).unwrap();
    let (engine, how) = start(&other.0);
    assert_eq!(
        (how, engine.status().held_bytes),
        (Start::BackendChanged, 0)
    );
}
