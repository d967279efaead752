//! Goal: tests act in the middle of an operation on media: a hook runs once, directly after a file of a given name was
//! opened in a given mode.
//! Method: the real file system; every other call is handed on unchanged.
//! Not covered: this file has no tests; `changes.rs` holds it to the contract of storages.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use longshore_io::{
    Attributes, Dir, DirAttributes, DirChange, DirIdentity, DirRead, DirSync, File, Host, OpenHow,
    Stat, Storage,
};

type Hook = Box<dyn FnOnce() + Send>;

/// Runs a hook once, directly after a file of this name was opened in this mode.
#[derive(Clone)]
pub struct Interposed {
    host: Arc<Host>,
    when: Arc<Mutex<Option<(PathBuf, OpenHow, Hook)>>>,
}

impl Interposed {
    pub fn after_opening(
        name: &str,
        how: OpenHow,
        hook: impl FnOnce() + Send + 'static,
    ) -> Arc<dyn Storage> {
        Arc::new(Interposed {
            host: Arc::new(Host::new()),
            when: Arc::new(Mutex::new(Some((name.into(), how, Box::new(hook))))),
        })
    }
}

impl std::fmt::Debug for Interposed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interposed")
    }
}

impl Storage for Interposed {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(InterposedDir {
            dir: self.host.dir(path)?,
            when: self.clone(),
        }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.host.create_dir_all(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.host.stat(path)
    }
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.host.canonical(path)
    }
}

#[derive(Debug)]
struct InterposedDir {
    dir: Arc<dyn Dir>,
    when: Interposed,
}

impl DirIdentity for InterposedDir {}

impl DirRead for InterposedDir {
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let opened = self.dir.open(name, how);
        let mut when = self.when.when.lock().unwrap();
        if when
            .as_ref()
            .is_some_and(|(n, h, _)| n == name && *h == how)
            && let Some((_, _, hook)) = when.take()
        {
            drop(when);
            hook();
        }
        opened
    }

    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>> {
        self.dir.dir(name)
    }

    fn stat(&self, name: &Path) -> io::Result<Stat> {
        self.dir.stat(name)
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>> {
        self.dir.list()
    }

    fn read_link(&self, name: &Path) -> io::Result<PathBuf> {
        self.dir.read_link(name)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.dir.free_bytes()
    }

    fn keeps_locks(&self, name: &Path) -> io::Result<bool> {
        self.dir.keeps_locks(name)
    }
}

impl DirChange for InterposedDir {
    fn create_dir(&self, name: &Path) -> io::Result<()> {
        self.dir.create_dir(name)
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        self.dir.symlink(target, name)
    }

    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()> {
        self.dir.hard_link(existing, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.dir.rename(from, to)
    }

    fn remove_file(&self, name: &Path) -> io::Result<()> {
        self.dir.remove_file(name)
    }

    fn remove_dir(&self, name: &Path) -> io::Result<()> {
        self.dir.remove_dir(name)
    }
}

impl DirAttributes for InterposedDir {
    fn set_attributes(&self, name: &Path, attributes: &Attributes) -> io::Result<()> {
        self.dir.set_attributes(name, attributes)
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        self.dir.give(owner)
    }
}

impl DirSync for InterposedDir {
    fn sync(&self, name: &Path) -> io::Result<()> {
        self.dir.sync(name)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}
