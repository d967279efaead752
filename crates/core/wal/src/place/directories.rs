//! The archive as a directory.
//!
//! Invariants
//! - Below a target no symbolic link is followed: a user who can write there must not decide where WAL goes.
//! - A file has its name only when it is complete and synced, and is never replaced by another.
//!
//! Leaves to others: staging a file (`staged.rs`), and what a file's content means (`archive.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, Clock, Dir, File, FileKind, OpenHow, Stat, Storage, Via};
use uuid::Uuid;

use super::super::identity::Mark;
use super::super::staged::{ENDING, StagedFile};
use super::super::waiting::{WAIT_MAX, WAIT_STEP};
use super::door::{
    Draft, Entry, Keep, Often, Place, Published, Stored, Wanted, read_mark, read_mark_at,
};
use crate::Error;
use crate::form::IDENTITY_NAME;

/// Claims the archive for a cluster until [`IDENTITY_NAME`] does; used only where locks may not reach all writers.
const CLAIM_NAME: &str = "longshore-wal.claim";

#[derive(Debug)]
pub(crate) struct Directory {
    /// For messages.
    pub(super) path: PathBuf,
    pub(super) dir: Arc<dyn Dir>,
}

/// Opens the directory `below` in `base`. Symbolic links are followed up to `base` only.
///
/// Errors: `NotAnArchive` if there is none; `LinkBelow`, `Io`.
pub(super) fn find(
    storage: &dyn Storage,
    base: &Path,
    below: &Path,
) -> Result<Arc<dyn Dir>, Error> {
    let path = base.join(below);
    let dir = storage.dir(base);
    let dir = match below.as_os_str().is_empty() {
        true => dir,
        false => dir.and_then(|base| base.dir(below)),
    };
    match dir {
        Ok(dir) => Ok(dir),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::NotAnArchive { path }),
        Err(e) => match link_below(storage, base, below) {
            Some(link) => Err(Error::LinkBelow { path: link }),
            None => Err(Error::io("open", path)(e)),
        },
    }
}

/// Makes the directories `below` in `base`, which must exist. Symbolic links below it are not followed.
///
/// Errors: `LinkBelow`, `Io`.
pub(super) fn make(
    storage: &dyn Storage,
    base: &Path,
    below: &Path,
) -> Result<Arc<dyn Dir>, Error> {
    let dir = storage.dir(base).map_err(Error::io("open", base))?;
    if let Some(path) = link_below(storage, base, below) {
        return Err(Error::LinkBelow { path });
    }
    let mut at = PathBuf::new();
    for part in below.components() {
        let parent = at.clone();
        at.push(part);
        // The process that created it, or its identity file below, may have been killed before the name was durable.
        let made = match dir.create_dir(&at) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true),
        }
        .and_then(|made| dir.sync(&parent).map(|()| made))
        .map_err(Error::io("create", base.join(&at)))?;
        if made && let Some(owner) = intruded(&*dir, &at, &parent) {
            // Fails if another process has put something there meanwhile.
            let _kept = dir.remove_dir(&at);
            return Err(Error::OthersDirectory {
                path: base.join(&at),
                owner,
            });
        }
    }
    let made = match below.as_os_str().is_empty() {
        true => Ok(dir),
        false => dir.dir(below),
    };
    made.map_err(Error::io("open", base.join(below)))
}

/// The owner of a directory in which root has just made another one. The owner could not use it. The owner that
/// the file system gave decides: with a root that is squashed it is not root.
fn intruded(dir: &dyn Dir, made: &Path, around: &Path) -> Option<String> {
    let owner = |of: &Path| dir.stat(of).ok().map(|stat| stat.uid);
    let uid = owner(around).filter(|uid| *uid != 0)?;
    let name = || longshore_facts::name_of(uid).unwrap_or_else(|_| format!("#{uid}"));
    (owner(made) == Some(0)).then(name)
}

/// The first part of `below` in `base` that is a symbolic link.
fn link_below(storage: &dyn Storage, base: &Path, below: &Path) -> Option<PathBuf> {
    let dir = storage.dir(base).ok()?;
    let mut at = PathBuf::new();
    for part in below.components() {
        at.push(part);
        if dir
            .stat(&at)
            .is_ok_and(|stat| stat.kind == FileKind::Symlink)
        {
            return Some(base.join(at));
        }
    }
    None
}

/// The result of a creation, where one that was there before is as good.
fn is_there(created: io::Result<()>) -> io::Result<()> {
    match created {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created,
    }
}

impl Directory {
    /// Assigns the archive to the cluster in the claim, which only one of several first writers got. That may be
    /// another writer, which may have been killed.
    ///
    /// A claim is removed only once the identity file exists. So if the identity file, read after the claim, does not
    /// exist yet, the claim that was read is the only one there ever was.
    fn settle_claim(&self) -> Result<(), Error> {
        let path = self.path.join(IDENTITY_NAME);
        let claimed = read_mark_at(self, &self.path, CLAIM_NAME)?;
        let read = read_mark(self, &self.path)?;
        if read.and_then(Mark::identity).is_none() {
            let (Some(claimed), Some(staged)) = (
                claimed,
                StagedFile::begin(self.dir.clone(), IDENTITY_NAME)
                    .map_err(Error::io("create", &path))?,
            ) else {
                let busy = io::Error::from(io::ErrorKind::ResourceBusy);
                return Err(Error::io("write", path)(busy));
            };
            staged
                .file
                .write_all_at(claimed.encode().as_bytes(), 0, Via::Cache)
                .and_then(|()| staged.publish(Path::new(IDENTITY_NAME)))
                .map_err(Error::io("store", path))?;
        }
        // A claim that is left no longer has a meaning.
        let _left = self.dir.remove_file(Path::new(CLAIM_NAME));
        Ok(())
    }

    /// Writes a file into a directory that is created if missing. No locks are used: every writer has a different name.
    /// Other users of the archive can read and write there, too.
    fn write_once(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let (place, name) = (file.parent(), file.file_name());
        let (place, name) = (place.unwrap_or(Path::new("")), name.unwrap_or_default());
        let own = self.dir.stat(Path::new(""))?;
        let is_made = match self.dir.create_dir(place) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true)?,
        };
        let dir = self.dir.dir(place)?;
        if is_made {
            let like = Attributes {
                mode: Some(own.mode & 0o7777),
                owner: Some((own.uid, own.gid)),
                mtime_ns: None,
            };
            // By the open directory: the archive's owner may exchange the name.
            dir.set_attributes(Path::new(""), &like)?;
        }
        let mut temporary = name.to_owned();
        temporary.push(format!(".{}{ENDING}", Uuid::new_v4().simple()));
        let temporary = PathBuf::from(temporary);
        let written = (|| {
            let file = dir.open(&temporary, OpenHow::CreateNew)?;
            match file.give((own.uid, own.gid)) {
                // The mode lets the archive's other users read it all the same.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                given => {
                    given?;
                }
            }
            file.write_all_at(bytes, 0, Via::Cache)?;
            file.set_mode(own.mode & 0o666)?;
            file.sync()?;
            dir.rename(&temporary, Path::new(name))
        })();
        if written.is_err() {
            // If this cannot be removed now, it has no meaning, and no size.
            let _left = dir.remove_file(&temporary);
        }
        written?;
        dir.sync(Path::new(""))?;
        self.dir.sync(Path::new(""))
    }

    /// Writes a file directly in the archive, over one that is there. While another process writes it, nothing is done.
    fn write_again(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let name = file.to_str().unwrap_or_default();
        let Some(staged) = StagedFile::begin(self.dir.clone(), name)? else {
            return Ok(());
        };
        staged.file.write_all_at(bytes, 0, Via::Cache)?;
        staged.publish(file)
    }
}

impl Place for Directory {
    fn list(&self, below: &Path, lengths: bool) -> Result<Vec<Entry>, Error> {
        let path = || self.path.join(below);
        let dir = match self.dir.dir(below) {
            _ if below.as_os_str().is_empty() => self.dir.clone(),
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("open", path())(e)),
        };
        let mut entries = Vec::new();
        for name in dir.list().map_err(Error::io("list", path()))? {
            let name = name.map_err(Error::io("list", path()))?;
            let (mut len_bytes, mut changed_ns) = (0, 0);
            if lengths {
                match dir.stat(Path::new(&name)) {
                    Ok(stat) => {
                        len_bytes = stat.len;
                        changed_ns = stat.ctime_ns.max(stat.mtime_ns);
                    }
                    // It was removed meanwhile.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(Error::io("look at", path().join(name))(e)),
                }
            }
            entries.push(Entry {
                name,
                len_bytes,
                changed_ns,
            });
        }
        Ok(entries)
    }

    fn open(&self, file: &Path, _wanted: Wanted) -> Result<Option<Arc<dyn Stored>>, Error> {
        let path = || self.path.join(file);
        match self.dir.open(file, OpenHow::Read) {
            Ok(file) => Ok(Some(Arc::new(StoredFile { path: path(), file }))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("open", path())(e)),
        }
    }

    fn begin(&self, below: &Path, name: &str) -> Result<Option<Box<dyn Draft>>, Error> {
        let path = self.path.join(below);
        let parent = match below.as_os_str().is_empty() {
            true => self.dir.clone(),
            false => {
                is_there(self.dir.create_dir(below)).map_err(Error::io("create", &path))?;
                self.dir.dir(below).map_err(Error::io("open", &path))?
            }
        };
        let begun = StagedFile::begin(parent.clone(), name).map_err(Error::io("create", &path))?;
        Ok(begun.map(|staged| -> Box<dyn Draft> {
            Box::new(FileDraft {
                staged,
                parent,
                own: self.dir.clone(),
                path,
            })
        }))
    }

    fn write(&self, file: &Path, bytes: &[u8], often: Often) -> Result<(), Error> {
        let written = match often {
            Often::Once => self.write_once(file, bytes),
            Often::Again => self.write_again(file, bytes),
        };
        written.map_err(Error::io("write", self.path.join(file)))
    }

    fn mark(&self, mark: Mark, clock: &dyn Clock, keep: Keep<'_>) -> Result<Option<Mark>, Error> {
        let path = self.path.join(IDENTITY_NAME);
        let began = clock.now();
        let read = || read_mark(self, &self.path);
        let staged = loop {
            if let Some(found) = keep(read()?) {
                return Ok(Some(found));
            }
            let begun = StagedFile::begin(self.dir.clone(), IDENTITY_NAME);
            match begun.map_err(Error::io("create", &path))? {
                // Another process may have finished between the check and the lock.
                Some(staged) if keep(read()?).is_none() => break staged,
                _ if clock.now().saturating_sub(began) < WAIT_MAX => clock.sleep(WAIT_STEP),
                _ => {
                    let busy = io::Error::from(io::ErrorKind::ResourceBusy);
                    return Err(Error::io("write", path)(busy));
                }
            }
        };
        let written = staged
            .file
            .write_all_at(mark.encode().as_bytes(), 0, Via::Cache);
        let keeps_locks = self.dir.keeps_locks(Path::new(""));
        let stored = match (written.and(keeps_locks), mark) {
            (Ok(true), _) => staged.publish(Path::new(IDENTITY_NAME)),
            (Ok(false), Mark::Unclaimed) => exclusively(staged, IDENTITY_NAME),
            (Ok(false), Mark::Of(_)) => {
                exclusively(staged, CLAIM_NAME).map_err(Error::io("store", &path))?;
                self.settle_claim()?;
                Ok(())
            }
            (Err(e), _) => Err(e),
        };
        stored.map_err(Error::io("store", path))?;
        Ok(read()?.filter(|found| *found != mark))
    }

    fn remove(&self, file: &Path) -> Result<(), Error> {
        match self.dir.remove_file(file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::io("remove", self.path.join(file))),
        }
    }

    fn settle(&self, below: &Path, emptied: bool) -> Result<(), Error> {
        if !below.as_os_str().is_empty() {
            let synced = self.dir.sync(below);
            synced.map_err(Error::io("sync", self.path.join(below)))?;
            if emptied {
                // Not empty: another process writes there, or it holds other files.
                let _stays = self.dir.remove_dir(below);
            }
        }
        let synced = self.dir.sync(Path::new(""));
        synced.map_err(Error::io("sync", &self.path))
    }
}

/// Gives the file its name unless another file has it.
fn exclusively(staged: StagedFile, name: &str) -> io::Result<()> {
    is_there(staged.publish_new(Path::new(name)))
}

#[derive(Debug)]
struct StoredFile {
    path: PathBuf,
    file: Arc<dyn File>,
}

impl Stored for StoredFile {
    fn len(&self) -> Result<u64, Error> {
        let stat = self.file.stat();
        Ok(stat.map_err(Error::io("read", &self.path))?.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.file
            .read_exact_at(buf, offset, Via::Cache)
            .map_err(Error::io_at("read", &self.path, offset))
    }

    fn stat(&self) -> Result<Stat, Error> {
        let stat = self.file.stat();
        stat.map_err(Error::io("look at", &self.path))
    }
}

struct FileDraft {
    staged: StagedFile,
    parent: Arc<dyn Dir>,
    own: Arc<dyn Dir>,
    /// The parent's, for messages.
    path: PathBuf,
}

impl Draft for FileDraft {
    /// Without the page cache: an archive is seldom read soon after it was written.
    fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.staged.file.write_all_at(bytes, at, Via::Direct)
    }

    fn sync(&self) -> io::Result<()> {
        self.staged.file.sync()
    }

    fn publish(self: Box<Self>, file: &str) -> Result<Published, Error> {
        let FileDraft {
            staged,
            parent,
            own,
            path,
        } = *self;
        let published = staged
            .publish_new(Path::new(file))
            .and_then(|()| own.sync(Path::new("")));
        match published {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Published::Theirs),
            published => {
                published.map_err(Error::io("store", path))?;
                let surely = parent.keeps_locks(Path::new("")).unwrap_or(false);
                Ok(Published::Ours { surely })
            }
        }
    }
}
