//! Deep and wide trees within their bounds.

use std::fs;
use std::path::Path;

use super::{opened, read, stream};
use crate::Error;

/// Makes directories one in another, named by `name`, and a file in the last.
fn deep(top: &Path, levels: usize, name: &str) {
    let flags = rustix::fs::OFlags::DIRECTORY;
    let none = rustix::fs::Mode::empty();
    let mut at = rustix::fs::open(top, flags, none).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, name, rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        at = rustix::fs::openat(&at, name, flags, none).unwrap();
    }
    let how = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file =
        rustix::fs::openat(&at, "leaf", how, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    rustix::io::write(file, b"deep").unwrap();
}

#[test]
fn a_path_longer_than_the_system_takes_is_read_through_its_directories() {
    let dir = tempfile::tempdir().unwrap();
    deep(dir.path(), 100, &"n".repeat(200));
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    let (path, leaf) = entries.last_key_value().unwrap();
    assert!(path.as_os_str().len() > 20_000);
    assert_eq!(read(leaf), (b"deep".to_vec(), None));
}

#[test]
fn a_tree_too_deep_to_follow_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    deep(dir.path(), 300, "n");
    let source = opened(&[dir.path()]);
    let mut last = source.next(0);
    let mut count = 0;
    while let Ok(Some(_)) = last {
        count += 1;
        last = source.next(0);
    }
    assert_eq!(count, 255);
    assert!(matches!(
        last.err(),
        Some(Error::TooDeep {
            levels_max: 256,
            ..
        })
    ));
}

#[test]
fn entries_that_wait_hold_no_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..1500 {
        fs::create_dir(dir.path().join(i.to_string())).unwrap();
        fs::write(dir.path().join(format!("{i}/f")), b"1").unwrap();
    }
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    assert_eq!(entries.len(), 3000);
    // Other tests of this process hold some too.
    let open_now = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open_now < 1000, "{open_now} descriptors");
}
