//! The tree that is read against the tree that `std::fs` sees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, Host, Stat, Storage, Via};

use crate::{
    Change, Entry, EntryKind, Error, Source, SourceOptions, SourceSpec, SourceSummary, open,
};

fn files(paths: &[&Path]) -> SourceSpec {
    SourceSpec::Files(paths.iter().map(|path| path.to_path_buf()).collect())
}

fn opened(paths: &[&Path]) -> Box<dyn Source> {
    open(
        Arc::new(Host::new()),
        &files(paths),
        &SourceOptions::default(),
    )
    .unwrap()
}

/// All entries of a volume, by path.
fn stream(source: &dyn Source, volume: usize) -> BTreeMap<PathBuf, Entry> {
    let mut entries = BTreeMap::new();
    while let Some(entry) = source.next(volume).unwrap() {
        assert!(
            entry
                .path
                .components()
                .all(|c| matches!(c, std::path::Component::Normal(_)))
        );
        if let Some(parent) = entry.path.parent().filter(|p| !p.as_os_str().is_empty()) {
            let parent: Option<&Entry> = entries.get(parent);
            assert!(
                volume > 0 || parent.is_some(),
                "{:?} comes before its directory",
                entry.path
            );
        }
        let path = entry.path.clone();
        assert!(entries.insert(path, entry).is_none(), "a path came twice");
    }
    entries
}

/// A file's bytes as a reader gets them, in pieces that do not fit its length.
fn read(entry: &Entry) -> (Vec<u8>, Option<Change>) {
    let Some(content) = &entry.content else {
        assert_eq!(entry.len, 0);
        return (Vec::new(), None);
    };
    let mut bytes = vec![0xAA; entry.len as usize];
    for (i, piece) in bytes.chunks_mut(1000).enumerate() {
        content.read_at(piece, i as u64 * 1000, Via::Cache).unwrap();
    }
    (bytes, content.settle().unwrap())
}

fn finish(source: Box<dyn Source>) -> Vec<String> {
    let SourceSummary { warnings } = source.finish().unwrap();
    warnings
}

fn odd_names() -> [OsString; 4] {
    [
        b"with space".to_vec(),
        b"new\nline".to_vec(),
        b"\xff\xfe not UTF-8".to_vec(),
        b"-x*'\"\\".to_vec(),
    ]
    .map(OsString::from_vec)
}

#[test]
fn a_tree_is_read_as_std_sees_it() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    fs::write(top.join("a/one"), vec![7; 100_001]).unwrap();
    fs::write(top.join("a/b/empty"), b"").unwrap();
    for name in odd_names() {
        fs::create_dir(top.join("a/b/c").join(&name)).unwrap();
        fs::write(top.join("a/b/c").join(&name).join(&name), name.as_bytes()).unwrap();
    }
    fs::set_permissions(top.join("a/one"), fs::Permissions::from_mode(0o4640)).unwrap();
    fs::set_permissions(top.join("a/b"), fs::Permissions::from_mode(0o1711)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(top.join("a/one"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    symlink("/nowhere/\n", top.join("a/link")).unwrap();
    symlink("b", top.join("a/dirlink")).unwrap();

    let source = opened(&[top]);
    let entries = stream(&*source, 0);
    let mut expected = Vec::new();
    let mut todo = vec![top.to_path_buf()];
    while let Some(at) = todo.pop() {
        for found in fs::read_dir(at).unwrap() {
            let path = found.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                todo.push(path.clone());
            }
            expected.push(path.strip_prefix(top).unwrap().to_path_buf());
        }
    }
    expected.sort();
    assert_eq!(entries.keys().cloned().collect::<Vec<_>>(), expected);
    for (path, entry) in &entries {
        let real = top.join(path);
        let meta = fs::symlink_metadata(&real).unwrap();
        assert_eq!(
            (entry.mode, entry.uid, entry.gid),
            (meta.mode() & 0o7777, meta.uid(), meta.gid())
        );
        assert_eq!(
            entry.mtime_ns,
            meta.mtime() * 1_000_000_000 + meta.mtime_nsec()
        );
        match &entry.kind {
            EntryKind::File => assert_eq!(read(entry), (fs::read(&real).unwrap(), None)),
            EntryKind::Dir => assert!(meta.is_dir()),
            EntryKind::Symlink { target } => assert_eq!(*target, fs::read_link(&real).unwrap()),
            EntryKind::HardLink { .. } => panic!("no file here has two names"),
        }
    }
    assert_eq!(finish(source), Vec::<String>::new());
}

#[test]
fn a_second_name_of_a_file_is_a_link_to_the_first() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("x"), b"shared").unwrap();
    fs::hard_link(dir.path().join("x"), dir.path().join("y")).unwrap();
    fs::hard_link(dir.path().join("x"), dir.path().join("d/z")).unwrap();
    let source = opened(&[dir.path()]);
    let entries = stream(&*source, 0);
    let (links, plain): (Vec<_>, Vec<_>) = entries
        .values()
        .filter(|entry| entry.kind != EntryKind::Dir)
        .partition(|entry| matches!(entry.kind, EntryKind::HardLink { .. }));
    assert_eq!((links.len(), plain.len()), (2, 1));
    assert_eq!(read(plain[0]).0, b"shared");
    for link in links {
        assert_eq!(
            link.kind,
            EntryKind::HardLink {
                target: plain[0].path.clone()
            }
        );
    }
}

#[test]
fn holes_are_known_and_read_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    file.set_len(10 << 20).unwrap();
    file.write_all_at(b"x", 4 << 20).unwrap();
    drop(file);
    let source = opened(&[dir.path()]);
    let entry = source.next(0).unwrap().unwrap();
    let content = entry.content.as_ref().unwrap();
    let data = content.next_data(0).unwrap().unwrap();
    assert!(
        data.contains(&(4 << 20)) && data.end - data.start <= 64 << 10,
        "{data:?}"
    );
    assert_eq!(content.next_data(data.end).unwrap(), None);
    let (bytes, change) = read(&entry);
    assert_eq!(
        (bytes.iter().filter(|&&b| b != 0).count(), change),
        (1, None)
    );
}

#[test]
fn what_is_no_file_is_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let source = opened(&[dir.path()]);
    assert!(stream(&*source, 0).is_empty());
    let warnings = finish(source);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("2 sockets, FIFOs or devices were left out: "),
        "{warnings:?}"
    );
    assert!(warnings[0].contains("fifo") && warnings[0].contains("socket"));

    let fifo = dir.path().join("fifo");
    let refused = open(
        Arc::new(Host::new()),
        &files(&[&fifo]),
        &SourceOptions::default(),
    );
    assert!(matches!(refused.err(), Some(Error::NotAFile { path }) if path == fifo));
}

#[test]
fn logs_of_databases_in_use_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("a-wal", "1"),
        ("b-journal", "1"),
        ("c-wal", ""),
        ("d", "1"),
    ] {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let source = opened(&[dir.path()]);
    assert_eq!(stream(&*source, 0).len(), 4);
    let warnings = finish(source);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("2 SQLite logs"), "{warnings:?}");
}

#[test]
fn a_file_that_is_written_while_it_is_read_is_told_modified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    for when in ["before the first read", "after it"] {
        fs::write(&path, vec![1; 5000]).unwrap();
        let source = opened(&[dir.path()]);
        let entry = source.next(0).unwrap().unwrap();
        let content = entry.content.as_ref().unwrap();
        let mut piece = [0; 100];
        if when == "after it" {
            content.read_at(&mut piece, 0, Via::Cache).unwrap();
        }
        pause_for_a_new_timestamp();
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all_at(b"new", 4000)
            .unwrap();
        assert_eq!(read(&entry).1, Some(Change::Modified), "{when}");
    }
}

#[test]
fn a_file_that_gets_shorter_is_filled_with_zeros_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, vec![1; 5000]).unwrap();
    let source = opened(&[dir.path()]);
    let entry = source.next(0).unwrap().unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(2500)
        .unwrap();
    let (bytes, change) = read(&entry);
    assert_eq!(bytes, [vec![1; 2500], vec![0; 2500]].concat());
    assert_eq!(change, Some(Change::Shrunk));
}

#[test]
fn a_file_that_is_gone_or_replaced_by_a_link_is_zeros_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let (path, secret) = (dir.path().join("d/f"), dir.path().join("secret"));
    fs::write(&secret, b"secret").unwrap();
    for replacement in ["nothing", "link", "parent link", "directory"] {
        let _ = fs::remove_file(dir.path().join("d"));
        let _ = fs::remove_dir_all(dir.path().join("d"));
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(&path, b"123456").unwrap();
        let source = opened(&[dir.path()]);
        let entry = stream(&*source, 0).remove(Path::new("d/f")).unwrap();
        fs::remove_file(&path).unwrap();
        match replacement {
            "link" => symlink(&secret, &path).unwrap(),
            "parent link" => {
                fs::remove_dir(dir.path().join("d")).unwrap();
                fs::create_dir_all(dir.path().join("e")).unwrap();
                fs::write(dir.path().join("e/f"), b"secret").unwrap();
                symlink("e", dir.path().join("d")).unwrap();
            }
            "directory" => fs::create_dir(&path).unwrap(),
            _ => {}
        }
        assert_eq!(
            read(&entry),
            (vec![0; 6], Some(Change::Vanished)),
            "{replacement}"
        );
    }
}

#[test]
fn a_file_deleted_while_it_is_read_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, vec![9; 5000]).unwrap();
    let source = opened(&[dir.path()]);
    let entry = source.next(0).unwrap().unwrap();
    entry
        .content
        .as_ref()
        .unwrap()
        .read_at(&mut [0; 10], 0, Via::Cache)
        .unwrap();
    pause_for_a_new_timestamp();
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&entry), (vec![9; 5000], None));
}

#[test]
fn a_settled_content_refuses_to_be_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), b"1").unwrap();
    let source = opened(&[dir.path()]);
    let content = source.next(0).unwrap().unwrap().content.unwrap();
    assert_eq!(content.settle().unwrap(), None);
    let refused = content.read_at(&mut [0], 0, Via::Cache);
    assert!(matches!(refused, Err(Error::Ended { .. })));
}

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

/// The host with another list of mounts, each a device of its own.
#[derive(Debug)]
struct OtherMounts {
    /// Holds a file `mountinfo`.
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

#[test]
fn a_directory_that_vanishes_during_the_walk_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..3 {
        fs::create_dir(dir.path().join(format!("d{i}"))).unwrap();
    }
    let gone = VanishingDirs {
        below: fs::canonicalize(dir.path()).unwrap(),
    };
    let source = open(
        Arc::new(gone),
        &files(&[dir.path()]),
        &SourceOptions::default(),
    )
    .unwrap();
    assert!(stream(&*source, 0).is_empty());
    let warnings = finish(source);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("3 directories vanished before they were read"),
        "{warnings:?}"
    );
}

/// The host, but every directory is removed between being looked at and being opened.
#[derive(Debug)]
struct VanishingDirs {
    below: PathBuf,
}

impl Storage for VanishingDirs {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = Host::new().dir(path)?;
        Ok(if path == self.below {
            Arc::new(VanishingDir(dir))
        } else {
            dir
        })
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Host::new().create_dir_all(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Host::new().stat(path)
    }
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Host::new().canonical(path)
    }
}

#[derive(Debug)]
struct VanishingDir(Arc<dyn Dir>);

impl Dir for VanishingDir {
    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>> {
        if name.as_os_str().is_empty() {
            return Ok(Arc::new(VanishingDir(self.0.clone())));
        }
        self.0.remove_dir(name)?;
        self.0.dir(name)
    }
    fn open(
        &self,
        name: &Path,
        how: longshore_io::OpenHow,
    ) -> io::Result<Arc<dyn longshore_io::File>> {
        self.0.open(name, how)
    }
    fn stat(&self, name: &Path) -> io::Result<Stat> {
        self.0.stat(name)
    }
    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>> {
        self.0.list()
    }
    fn read_link(&self, name: &Path) -> io::Result<PathBuf> {
        self.0.read_link(name)
    }
    fn create_dir(&self, name: &Path) -> io::Result<()> {
        self.0.create_dir(name)
    }
    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        self.0.symlink(target, name)
    }
    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()> {
        self.0.hard_link(existing, name)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, name: &Path) -> io::Result<()> {
        self.0.remove_file(name)
    }
    fn remove_dir(&self, name: &Path) -> io::Result<()> {
        self.0.remove_dir(name)
    }
    fn set_attributes(&self, name: &Path, attributes: &longshore_io::Attributes) -> io::Result<()> {
        self.0.set_attributes(name, attributes)
    }
    fn sync(&self, name: &Path) -> io::Result<()> {
        self.0.sync(name)
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

/// The clock of a file system ticks every few milliseconds.
fn pause_for_a_new_timestamp() {
    std::thread::sleep(std::time::Duration::from_millis(25));
}
