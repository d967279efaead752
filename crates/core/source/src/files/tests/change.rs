//! Goal: files and directories that change, shrink, vanish or are replaced during a backup are told, and nothing
//! outside the source is read in their place.
//! Method: real files that the test changes between the source's calls; a storage whose directories vanish between two
//! calls.
//! Not covered: changes that leave a file's size, time and identity alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use longshore_io::{
    Dir, DirAttributes, DirChange, DirIdentity, DirRead, DirSync, Host, Stat, Storage, Via,
};

use super::{files, finish, opened, read, stream};
use crate::{Change, EntryKind, Error, Source, SourceOptions, open};

#[test]
fn a_file_that_is_written_while_it_is_read_is_reported_as_modified() {
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

/// Goal: a link of the backup never leads to zeros or to another file's bytes.
#[test]
fn a_file_whose_first_name_is_gone_is_read_by_another_one_or_stored_with_that() {
    for replacement in ["nothing", "a file"] {
        for is_walked in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let tree = dir.path().join("tree");
            fs::write(dir.path().join("aside"), b"shared").unwrap();
            for name in ["a", "b"] {
                fs::create_dir_all(tree.join(name)).unwrap();
                fs::hard_link(dir.path().join("aside"), tree.join(name).join("f")).unwrap();
            }
            let source = opened(&[&tree]);
            let first = loop {
                let entry = source.next(0).unwrap().unwrap();
                if entry.kind == EntryKind::File {
                    break entry;
                }
            };
            let what = format!("{replacement}, {is_walked}");
            let rest = |source: &dyn Source| {
                let mut found = None;
                while let Some(entry) = source.next(0).unwrap() {
                    found = Some(entry).filter(|entry| entry.path.ends_with("f"));
                }
                found.unwrap()
            };
            let walked = is_walked.then(|| rest(&*source));
            fs::remove_file(tree.join(&first.path)).unwrap();
            if replacement == "a file" {
                fs::write(tree.join(&first.path), b"another").unwrap();
            }
            let (bytes, change) = read(&first);
            match walked {
                Some(second) => {
                    let target = first.path.clone();
                    assert_eq!(second.kind, EntryKind::HardLink { target }, "{what}");
                    assert_eq!((&*bytes, change), (&b"shared"[..], None), "{what}");
                }
                None => {
                    assert!(change.is_some(), "{what}");
                    let second = rest(&*source);
                    assert_eq!(second.kind, EntryKind::File, "{what}");
                    assert_eq!(read(&second), (b"shared".to_vec(), None), "{what}");
                }
            }
        }
    }
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

/// The names that are not visited yet, after the first entry of `dir` was taken.
fn unvisited(source: &dyn Source, dir: &Path) -> Vec<PathBuf> {
    let first = source.next(0).unwrap().unwrap();
    let names = fs::read_dir(dir).unwrap().map(|name| name.unwrap().path());
    let mut names: Vec<PathBuf> = names.filter(|path| !path.ends_with(&first.path)).collect();
    names.sort();
    pause_for_a_new_timestamp();
    names
}

/// Goal: a file or directory that is renamed after its directory was listed is in the backup, and the old name is told.
#[test]
fn a_name_that_is_renamed_before_it_is_looked_at_comes_under_the_new_one_and_is_told() {
    for kind in ["file", "directory"] {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            let path = dir.path().join(name);
            let file = match kind {
                "file" => path,
                _ => {
                    fs::create_dir(&path).unwrap();
                    path.join("f")
                }
            };
            fs::write(file, name).unwrap();
        }
        let source = opened(&[dir.path()]);
        let left = unvisited(&*source, dir.path());
        fs::rename(&left[0], dir.path().join("new")).unwrap();
        fs::remove_file(&left[1])
            .or_else(|_| fs::remove_dir_all(&left[1]))
            .unwrap();
        let mut entries = BTreeMap::new();
        while let Some(entry) = source.next(0).unwrap() {
            entries.insert(entry.path.clone(), entry);
        }
        let renamed = match kind {
            "file" => Path::new("new"),
            _ => Path::new("new/f"),
        };
        let old = left[0].file_name().unwrap().to_str().unwrap();
        assert_eq!(read(&entries[renamed]).0, old.as_bytes(), "{kind}");
        assert!(entries.contains_key(Path::new(left[2].file_name().unwrap())));
        let summary = source.finish().unwrap();
        let told = &summary.warnings[0];
        assert!(told.starts_with("2 names vanished"), "{told}");
        for gone in &left[..2] {
            let name = fs::canonicalize(dir.path())
                .unwrap()
                .join(gone.file_name().unwrap());
            assert!(told.contains(&format!("{name:?}")), "{told}");
        }
        assert_eq!(summary.warnings.len(), 1, "{:?}", summary.warnings);
        assert!(summary.damaged);
        assert!(
            left[..2]
                .iter()
                .any(|gone| gone.file_name() == summary.vanished.as_ref().unwrap().file_name())
        );
    }
}

/// Goal: a name that is gone and made again while its directory is walked is in the backup.
#[test]
fn a_name_that_is_made_again_comes() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    let source = opened(&[dir.path()]);
    let left = unvisited(&*source, dir.path());
    left.iter().for_each(|path| fs::remove_file(path).unwrap());
    let second = source.next(0).unwrap();
    assert!(second.is_none());
    assert!(finish(source)[0].starts_with("2 names vanished"));

    let source = opened(&[dir.path()]);
    let first = source.next(0).unwrap().unwrap();
    fs::remove_file(dir.path().join(&first.path)).unwrap();
    fs::write(dir.path().join(&first.path), "again").unwrap();
    // Its bytes are read later, and tell of the change; it comes once.
    assert!(source.next(0).unwrap().is_none());
    assert!(finish(source).is_empty());
}

/// Goal: a directory in which names are made faster than they are read ends, and each name comes once.
#[test]
fn a_directory_that_changes_all_the_time_is_listed_a_few_times_and_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("0"), "").unwrap();
    let source = opened(&[dir.path()]);
    let mut found = Vec::new();
    while let Some(entry) = source.next(0).unwrap() {
        found.push(entry.path);
        pause_for_a_new_timestamp();
        fs::write(dir.path().join(found.len().to_string()), "").unwrap();
    }
    assert_eq!(found, ["0", "1", "2", "3"].map(PathBuf::from));
    let summary = source.finish().unwrap();
    assert!(summary.warnings[0].starts_with("1 directories changed at each look"));
    assert!(!summary.damaged);
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

/// The host, except that every directory below `below` is removed between its stat and its open.
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

#[test]
fn a_storage_whose_directories_vanish_is_like_any_other_elsewhere() {
    crate::storage_suite::keeps_its_contract(&|| {
        let below = PathBuf::from("/nowhere");
        let storage = Arc::new(VanishingDirs { below });
        crate::storage_suite::Place::in_a(tempfile::tempdir().unwrap(), storage)
    });
}

/// Breaks the contract on purpose: what is below it is removed when it is opened.
#[derive(Debug)]
struct VanishingDir(Arc<dyn Dir>);

impl DirIdentity for VanishingDir {}

impl DirRead for VanishingDir {
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

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }

    fn keeps_locks(&self, name: &Path) -> io::Result<bool> {
        self.0.keeps_locks(name)
    }
}

impl DirChange for VanishingDir {
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
}

impl DirAttributes for VanishingDir {
    fn set_attributes(&self, name: &Path, attributes: &longshore_io::Attributes) -> io::Result<()> {
        self.0.set_attributes(name, attributes)
    }
}

impl DirSync for VanishingDir {
    fn sync(&self, name: &Path) -> io::Result<()> {
        self.0.sync(name)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// A file system's clock ticks every few milliseconds.
fn pause_for_a_new_timestamp() {
    std::thread::sleep(std::time::Duration::from_millis(25));
}
