//! Goal: tests change files, or fail a step, at the moment when a backup reads them.
//! Method: the machine's storage calls a hook before each step, with the step and its path. It only reads: every call
//! that would write is refused, so a source that writes fails its test.
//! Not covered: this file has no tests.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{
    Attributes, Dir, DirAttributes, DirChange, DirIdentity, DirRead, DirSync, File, FileAttributes,
    FileLock, FileRead, FileWrite, Host, OpenHow, Stat, Storage, Via,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Stat,
    Open,
    List,
    /// A read from this offset.
    Read(u64),
}

type Hook = Arc<dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync>;

/// `hook` may change the files, or fail the step. It gets the path as the system knows it.
pub fn hooked(
    hook: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + 'static,
) -> Arc<dyn Storage> {
    Arc::new(Hooked(Arc::new(hook)))
}

#[derive(Clone)]
struct Hooked(Hook);

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

impl Storage for Hooked {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(HookedDir {
            dir: Host::new().dir(path)?,
            path: path.into(),
            hook: self.clone(),
        }))
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

/// Only reads: it refuses whatever a source must not do.
#[derive(Debug)]
struct HookedDir {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    hook: Hooked,
}

impl HookedDir {
    fn call(&self, step: Step, name: &Path) -> io::Result<()> {
        (self.hook.0)(step, &self.path.join(name))
    }
}

/// A backup never writes: no other method may be called.
fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl DirIdentity for HookedDir {}

impl DirRead for HookedDir {
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        if how != OpenHow::Read {
            return refused();
        }
        self.call(Step::Open, name)?;
        Ok(Arc::new(HookedFile {
            file: self.dir.open(name, how)?,
            path: self.path.join(name),
            hook: self.hook.clone(),
        }))
    }

    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>> {
        self.call(Step::Open, name)?;
        Ok(Arc::new(HookedDir {
            dir: self.dir.dir(name)?,
            path: self.path.join(name),
            hook: self.hook.clone(),
        }))
    }

    fn stat(&self, name: &Path) -> io::Result<Stat> {
        self.call(Step::Stat, name)?;
        self.dir.stat(name)
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>> {
        self.call(Step::List, Path::new(""))?;
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

impl DirChange for HookedDir {
    fn create_dir(&self, _name: &Path) -> io::Result<()> {
        refused()
    }

    fn symlink(&self, _target: &Path, _name: &Path) -> io::Result<()> {
        refused()
    }

    fn hard_link(&self, _existing: &Path, _name: &Path) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_file(&self, _name: &Path) -> io::Result<()> {
        refused()
    }

    fn remove_dir(&self, _name: &Path) -> io::Result<()> {
        refused()
    }
}

impl DirAttributes for HookedDir {
    fn set_attributes(&self, _name: &Path, _attributes: &Attributes) -> io::Result<()> {
        refused()
    }
}

impl DirSync for HookedDir {
    fn sync(&self, _name: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_all(&self) -> io::Result<()> {
        refused()
    }
}

#[derive(Debug)]
struct HookedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    hook: Hooked,
}

impl FileRead for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
        (self.hook.0)(Step::Read(offset), &self.path)?;
        self.file.read_at(buf, offset, via)
    }

    fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        self.file.is_cached(range)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.file.next_data(offset)
    }
}

impl FileWrite for HookedFile {
    fn write_at(&self, _buf: &[u8], _offset: u64, _via: Via) -> io::Result<usize> {
        refused()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _range: Range<u64>) -> io::Result<()> {
        refused()
    }

    fn free_unwritten(&self) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }
}

impl FileAttributes for HookedFile {}

impl FileLock for HookedFile {
    fn try_lock(&self) -> io::Result<bool> {
        refused()
    }
}
