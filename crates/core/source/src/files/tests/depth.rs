//! Deep and wide trees within the limits.

use std::fs;
use std::path::Path;

use super::{opened, read, stream};
/// Makes nested directories named `name`, and a file in the innermost.
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
    // With the tree's own path in front, longer than the system accepts.
    deep(dir.path(), 20, &"n".repeat(203));
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    let (path, leaf) = entries.last_key_value().unwrap();
    assert!(path.as_os_str().len() > 4080);
    assert_eq!(read(leaf), (b"deep".to_vec(), None));
    let told = source.finish().unwrap();
    assert!(told.warnings.is_empty() && !told.damaged);
}

#[test]
fn entries_that_no_backup_can_name_are_left_out_and_reported_and_the_rest_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    deep(dir.path(), 100, &"n".repeat(200));
    fs::write(dir.path().join("other"), b"here").unwrap();
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    let longest = entries.keys().map(|path| path.as_os_str().len()).max();
    assert_eq!(longest, Some(20 * 201 - 1));
    assert_eq!(read(&entries[Path::new("other")]), (b"here".to_vec(), None));
    let told = source.finish().unwrap();
    assert!(told.damaged && told.left_out.is_some());
    assert!(
        told.warnings[0].starts_with("1 names"),
        "{:?}",
        told.warnings
    );
    assert!(told.warnings[0].len() < 400, "{:?}", told.warnings);
}

#[test]
fn a_tree_too_deep_to_follow_is_left_empty_there_and_told() {
    let dir = tempfile::tempdir().unwrap();
    deep(dir.path(), 300, "n");
    fs::write(dir.path().join("other"), b"here").unwrap();
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    // The root's own level is one of 256; the last directory is listed and left empty.
    assert_eq!(entries.len(), 256 + 1);
    assert_eq!(read(&entries[Path::new("other")]), (b"here".to_vec(), None));
    let told = source.finish().unwrap();
    assert!(told.damaged && told.left_out.is_some());
    assert!(
        told.warnings[0].starts_with("1 directories are deeper"),
        "{:?}",
        told.warnings
    );
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
    // Other tests of this process hold descriptors too.
    let open_now = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open_now < 1000, "{open_now} descriptors");
}
