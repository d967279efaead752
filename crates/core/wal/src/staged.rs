//! Files that appear under their name complete and durable, or not at all.
//!
//! A file is written as `NAME.tmp` and renamed at the end. Its writer holds its lock, so two processes never write one
//! file; the next writer recognises a killed writer's file (its lock is free) and removes it.
//!
//! Where locks may not reach all writers ([`DirRead::keeps_locks`]: NFS, FUSE), that would remove a file that another
//! host is writing, and give the name to half of its successor. There each writer has a separate file, `NAME.ID.tmp`,
//! no writer waits for another, and a hard link gives the name, which only one of them gets. A later writer of that
//! name removes a killed writer's file if it was not changed for 15 minutes.
//!
//! Invariants
//! - Bytes are durable before the name is, and the name before success is reported.
//! - Only the holder of the lock on `NAME.tmp` gives or refuses `NAME`; without locks only the file's own writer writes
//!   it.
//!
//! Leaves to others: what is written, and whether a name may be replaced (the caller chooses `publish` or
//! `publish_new`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, OpenHow, is_stale};
use uuid::Uuid;

/// The suffix of a file that is being written.
pub(super) const ENDING: &str = ".tmp";

/// A file being written. If it is dropped before [`StagedFile::publish`], nothing is left.
pub(super) struct StagedFile {
    dir: Arc<dyn Dir>,
    temporary: PathBuf,
    pub(super) file: Arc<dyn File>,
    published: bool,
    /// Whether its lock excludes all other writers of the name.
    is_alone: bool,
}

impl StagedFile {
    /// Begins `dir/name`; `None` while another process writes it.
    pub(super) fn begin(dir: Arc<dyn Dir>, name: &str) -> io::Result<Option<StagedFile>> {
        if !dir.keeps_locks(Path::new(""))? {
            return StagedFile::begin_beside_others(dir, name).map(Some);
        }
        let temporary = PathBuf::from(format!("{name}{ENDING}"));
        match dir.open(&temporary, OpenHow::CreateNew) {
            Ok(file) => {
                // Another process may have taken it for abandoned between the two calls.
                if !file.try_lock()? || !is_still(&*dir, &temporary, &*file)? {
                    return Ok(None);
                }
                Ok(Some(StagedFile {
                    dir,
                    temporary,
                    file,
                    published: false,
                    is_alone: true,
                }))
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                remove_abandoned(&*dir, &temporary)?;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn begin_beside_others(dir: Arc<dyn Dir>, name: &str) -> io::Result<StagedFile> {
        let temporary = PathBuf::from(format!("{name}.{}{ENDING}", Uuid::new_v4().simple()));
        let file = dir.open(&temporary, OpenHow::CreateNew)?;
        let staged = StagedFile {
            dir,
            temporary,
            file,
            published: false,
            is_alone: false,
        };
        // The file system's own time, because the hosts' clocks may differ.
        let now_ns = staged.file.stat()?.mtime_ns;
        for other in staged.dir.list()? {
            let other = PathBuf::from(other?);
            let is_of_name = other
                .to_str()
                .and_then(|other| other.strip_prefix(name)?.strip_prefix('.'))
                .and_then(|other| other.strip_suffix(ENDING))
                .is_some_and(|id| Uuid::parse_str(id).is_ok());
            if is_of_name
                && let Ok(stat) = staged.dir.stat(&other)
                && is_stale(stat.mtime_ns, now_ns)
            {
                // Its writer, if it is alive, fails and tries again.
                let _gone = staged.dir.remove_file(&other);
            }
        }
        Ok(staged)
    }

    /// Like [`StagedFile::publish`], but an existing file is not replaced: `AlreadyExists`. Another writer's file can get
    /// the name between two calls only if locks reach no other writer and the file system has no hard links.
    pub(super) fn publish_new(self, name: &Path) -> io::Result<()> {
        if self.is_alone {
            return self.publish(name);
        }
        self.file.sync()?;
        match self.dir.hard_link(&self.temporary, name) {
            // The drop removes the temporary name.
            Ok(()) => self.dir.sync(Path::new("")),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
            Err(_) => match self.dir.stat(name) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(_) => self.publish(name),
            },
        }
    }

    /// Gives the file its name, replacing an existing file, and makes everything durable.
    pub(super) fn publish(mut self, name: &Path) -> io::Result<()> {
        self.file.sync()?;
        self.dir.rename(&self.temporary, name)?;
        self.published = true;
        self.dir.sync(Path::new(""))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.published {
            // If this cannot be removed now, the next writer of this name removes it.
            let _left = self.dir.remove_file(&self.temporary);
        }
    }
}

/// Whether a process is writing `dir/name` now.
pub(super) fn is_being_written(dir: &dyn Dir, name: &Path) -> io::Result<bool> {
    let mut temporary = name.as_os_str().to_owned();
    temporary.push(ENDING);
    match dir.open(Path::new(&temporary), OpenHow::ReadWrite) {
        Ok(file) => Ok(!file.try_lock()?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes a temporary file unless a process is writing it.
pub(super) fn remove_abandoned(dir: &dyn Dir, temporary: &Path) -> io::Result<()> {
    // A free lock proves nothing where locks may not reach the writer.
    if !dir.keeps_locks(Path::new(""))? {
        return Ok(());
    }
    let opened = dir.open(temporary, OpenHow::ReadWrite);
    let gone = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    };
    match opened {
        Ok(file) if file.try_lock()? && is_still(dir, temporary, &*file)? => {
            dir.remove_file(temporary).or_else(gone)
        }
        Ok(_) => Ok(()),
        Err(e) => gone(e),
    }
}

/// Whether the name still refers to the open file, which may have been renamed or removed since it was opened.
fn is_still(dir: &dyn Dir, name: &Path, file: &dyn File) -> io::Result<bool> {
    match dir.stat(name) {
        Ok(named) => {
            let open = file.stat()?;
            Ok((named.dev, named.ino) == (open.dev, open.ino))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{Attributes, SimDisk, Storage, Via};

    use super::*;

    fn names(disk: &SimDisk) -> Vec<String> {
        let paths = disk.paths().into_iter();
        let mut names: Vec<String> = paths.map(|p| p.display().to_string()).collect();
        names.retain(|name| name.starts_with("/d/"));
        names
    }

    /// Goal: two writers of one name that do not see each other's locks leave one complete file, and one of them gets
    /// an error.
    #[test]
    fn writers_whose_locks_do_not_meet_leave_one_complete_file() {
        for first in [true, false] {
            let disk = SimDisk::new(1).set_keeps_locks(false);
            disk.write_file("/d/other", b"").unwrap();
            let dir = disk.dir(Path::new("/d")).unwrap();
            let one = StagedFile::begin(dir.clone(), "name").unwrap().unwrap();
            one.file.write_all_at(b"half of", 0, Via::Cache).unwrap();
            let other = StagedFile::begin(dir.clone(), "name").unwrap().unwrap();
            other
                .file
                .write_all_at(b"the whole", 0, Via::Cache)
                .unwrap();
            one.file.write_all_at(b"half of it", 0, Via::Cache).unwrap();
            let (wins, loses) = match first {
                true => (one, other),
                false => (other, one),
            };
            wins.publish_new(Path::new("name.gz")).unwrap();
            let late = loses.publish_new(Path::new("name.gz")).unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::AlreadyExists);
            let expected: &[u8] = if first { b"half of it" } else { b"the whole" };
            assert_eq!(disk.read_file("/d/name.gz").unwrap(), expected);
            assert_eq!(names(&disk), ["/d/name.gz", "/d/other"]);
        }
    }

    /// Goal: where locks do not show which writer is alive, only age makes a file abandoned, and only files of that
    /// name are checked.
    #[test]
    fn files_of_a_killed_writer_are_removed_by_age_if_locks_show_nothing() {
        let disk = SimDisk::new(1).set_keeps_locks(false);
        let id = Uuid::from_u128(7).simple();
        let (mine, others) = (format!("/d/name.{id}.tmp"), format!("/d/names.{id}.tmp"));
        for path in [mine.as_str(), others.as_str(), "/d/name.tmp"] {
            disk.write_file(path, b"x").unwrap();
        }
        let dir = disk.dir(Path::new("/d")).unwrap();
        remove_abandoned(&*dir, Path::new("name.tmp")).unwrap();
        drop(StagedFile::begin(dir.clone(), "name").unwrap().unwrap());
        assert_eq!(names(&disk).len(), 3);
        let old = Attributes {
            mtime_ns: Some(-1_000_000_000_000_000),
            ..Attributes::default()
        };
        for path in [&mine, &others] {
            let name = Path::new(path).file_name().unwrap();
            dir.set_attributes(Path::new(name), &old).unwrap();
        }
        drop(StagedFile::begin(dir.clone(), "name").unwrap().unwrap());
        assert_eq!(names(&disk), ["/d/name.tmp".to_owned(), others]);
    }
}
