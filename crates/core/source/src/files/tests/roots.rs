//! Goal: paths and mounts become volumes and names as documented: one directory gives its contents, several roots their
//! names, each mount a volume.
//! Method: real directories, and a storage that shows another list of mounts.
//! Not covered: real mounts, which need root.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use longshore_io::{Dir, Host, Stat, Storage};

use super::{files, opened, stream};
use crate::{Error, Source, SourceOptions, open};

#[test]
fn one_directory_gives_its_contents_and_several_roots_their_names() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["one/x", "two/x", "three"] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, path.as_os_str().as_bytes()).unwrap();
    }
    symlink("two", dir.path().join("alias")).unwrap();
    let keys = |source: &dyn Source| stream(source, 0).into_keys().collect::<Vec<_>>();
    let at = |name: &str| dir.path().join(name);

    let one = opened(&[&at("one")]);
    assert_eq!(
        (keys(&*one), one.description().database.as_str()),
        (vec!["x".into()], "one")
    );
    let file = opened(&[&at("three")]);
    assert_eq!(
        file.description().expected_bytes,
        Some(at("three").as_os_str().len() as u64)
    );
    assert_eq!(keys(&*file), [Path::new("three")]);
    let all = opened(&[&at("one/."), &at("alias"), &at("three")]);
    assert_eq!(
        keys(&*all),
        ["alias", "alias/x", "one", "one/x", "three"].map(PathBuf::from)
    );
}

#[test]
fn roots_that_would_share_a_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["a/same", "b/same"] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    let spec = files(&[&dir.path().join("a/same"), &dir.path().join("b/same")]);
    let refused = open(Arc::new(Host::new()), &spec, &SourceOptions::default())
        .err()
        .unwrap();
    assert!(matches!(&refused, Error::RootsCollide { name, .. } if name == Path::new("same")));
    assert!(
        refused
            .to_string()
            .ends_with("would both be backed up as same"),
        "{refused}"
    );
    let spec = files(&[Path::new("/"), dir.path()]);
    let refused = open(Arc::new(Host::new()), &spec, &SourceOptions::default())
        .err()
        .unwrap();
    assert!(matches!(refused, Error::Spec { .. }));
}

#[test]
fn a_mapped_directory_is_a_volume_with_a_stream_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["x", "disk1/a", "disk1/deep/b", "disk2/c", "disk1/again/d"] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"1").unwrap();
    }
    let map = |name: &str, volume: &str| (dir.path().join(name), volume.to_string());
    let options = SourceOptions {
        volume_map: vec![
            map("disk1", "one"),
            map("disk2", "two"),
            map("disk1/again", "two"),
        ],
        ..SourceOptions::default()
    };
    let source = open(Arc::new(Host::new()), &files(&[dir.path()]), &options).unwrap();
    let volumes = source.description().volumes.len();
    let mut streams: Vec<Vec<_>> = (0..volumes)
        .map(|v| stream(&*source, v).into_keys().collect())
        .collect();
    streams.sort();
    let expected = [
        vec!["disk1", "disk1/a", "disk1/deep", "disk1/deep/b"],
        vec!["disk1/again", "disk1/again/d", "disk2", "disk2/c"],
        vec!["x"],
    ];
    assert_eq!(
        streams,
        expected.map(|s| s.into_iter().map(PathBuf::from).collect::<Vec<_>>())
    );
    assert_eq!(source.next(volumes).unwrap().map(|e| e.path), None);
}

/// The host with another list of mounts, each on a separate device.
#[derive(Debug)]
struct OtherMounts {
    /// A directory that holds a file `mountinfo`.
    proc: PathBuf,
    mounts: Vec<PathBuf>,
}

impl Storage for OtherMounts {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Host::new().dir(if path == Path::new("/proc/self") {
            &self.proc
        } else {
            path
        })
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Host::new().create_dir_all(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let mut stat = Host::new().stat(path)?;
        if let Some(i) = self.mounts.iter().position(|mount| path.starts_with(mount)) {
            stat.dev = 1_000_000 + i as u64;
        }
        Ok(stat)
    }
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Host::new().canonical(path)
    }
}

#[test]
fn a_host_with_other_mounts_is_a_storage_like_any_other() {
    crate::storage_suite::keeps_its_contract(&|| {
        let storage = OtherMounts {
            proc: PathBuf::from("/nowhere"),
            mounts: Vec::new(),
        };
        crate::storage_suite::Place::in_a(tempfile::tempdir().unwrap(), Arc::new(storage))
    });
}

#[test]
fn a_mount_point_begins_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let top = fs::canonicalize(dir.path()).unwrap();
    for path in ["tree/a", "tree/my disk/b"] {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"1").unwrap();
    }
    let mount = top.join("tree/my disk");
    let escaped = mount.to_str().unwrap().replace(' ', "\\040");
    let line = format!("30 27 8:1 / {escaped} rw shared:1 - ext4 /dev/sda1 rw\n");
    fs::write(top.join("mountinfo"), line).unwrap();
    let storage = OtherMounts {
        proc: top.clone(),
        mounts: vec![mount.clone()],
    };
    let source = open(
        Arc::new(storage),
        &files(&[&top.join("tree")]),
        &SourceOptions::default(),
    )
    .unwrap();
    let paths: Vec<_> = source
        .description()
        .volumes
        .iter()
        .map(|v| v.path.clone())
        .collect();
    assert_eq!(paths, [top.join("tree"), mount]);
    assert_eq!(
        stream(&*source, 0).into_keys().collect::<Vec<_>>(),
        [Path::new("a")]
    );
    assert_eq!(
        stream(&*source, 1).into_keys().collect::<Vec<_>>(),
        [Path::new("my disk"), Path::new("my disk/b")]
    );
}
