//! Files that appear under their name whole and durable, or not at all.
//!
//! A file is written as `NAME.tmp` and renamed at the end. Whoever writes it holds its lock, so two processes never
//! write one file, and what a killed one left is recognised (nobody holds it) and removed by the next.
//!
//! Where locks may not reach all writers ([`Dir::keeps_locks`]: NFS, FUSE), that would remove a file that another host
//! writes, and give the name to half of its successor. There each writer has a file of its own, `NAME.ID.tmp`, nobody waits
//! for anybody, and a hard link gives the name, which only one of them gets. What a killed writer left is removed by a
//! later writer of that name when it was not changed for 15 minutes.
//!
//! Invariants
//! - Bytes are durable before the name is, the name before success is told.
//! - Only the holder of the lock on `NAME.tmp` gives or refuses `NAME`; without locks only the file's own writer writes it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, OpenHow};
use uuid::Uuid;

use crate::lease::is_stale;

/// Ending of a file that is being written.
pub(super) const ENDING: &str = ".tmp";

/// A file being written. Dropped before [`Staged::publish`] it leaves nothing behind.
pub(super) struct Staged {
    dir: Arc<dyn Dir>,
    temporary: PathBuf,
    pub(super) file: Arc<dyn File>,
    published: bool,
    /// Whether its lock keeps all other writers of the name away.
    is_alone: bool,
}

impl Staged {
    /// Begins `dir/name`; `None` while another process writes it.
    pub(super) fn begin(dir: Arc<dyn Dir>, name: &str) -> io::Result<Option<Staged>> {
        if !dir.keeps_locks(Path::new(""))? {
            return Staged::begin_beside_others(dir, name).map(Some);
        }
        let temporary = PathBuf::from(format!("{name}{ENDING}"));
        match dir.open(&temporary, OpenHow::CreateNew) {
            Ok(file) => {
                // Somebody may have taken it for abandoned between the two calls.
                if !file.try_lock()? || !is_still(&*dir, &temporary, &*file)? {
                    return Ok(None);
                }
                Ok(Some(Staged {
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

    fn begin_beside_others(dir: Arc<dyn Dir>, name: &str) -> io::Result<Staged> {
        let temporary = PathBuf::from(format!("{name}.{}{ENDING}", Uuid::new_v4().simple()));
        let file = dir.open(&temporary, OpenHow::CreateNew)?;
        let staged = Staged {
            dir,
            temporary,
            file,
            published: false,
            is_alone: false,
        };
        // The file system's own time: hosts need not agree.
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
                // Its writer, if it lives, fails and tries again.
                let _gone = staged.dir.remove_file(&other);
            }
        }
        Ok(staged)
    }

    /// As [`Staged::publish`], but what has the name is not replaced: `AlreadyExists` then. Another writer's file may get
    /// it between two calls only where locks reach nobody and the file system has no hard links.
    pub(super) fn publish_new(self, name: &Path) -> io::Result<()> {
        if self.is_alone {
            return self.publish(name);
        }
        self.file.sync()?;
        match self.dir.hard_link(&self.temporary, name) {
            // The drop removes the other name.
            Ok(()) => self.dir.sync(Path::new("")),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
            Err(_) => match self.dir.stat(name) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(_) => self.publish(name),
            },
        }
    }

    /// Gives the file its name, replacing what has it, and makes everything durable.
    pub(super) fn publish(mut self, name: &Path) -> io::Result<()> {
        self.file.sync()?;
        self.dir.rename(&self.temporary, name)?;
        self.published = true;
        self.dir.sync(Path::new(""))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.published {
            // What cannot be removed now, the next writer of this name removes.
            let _left = self.dir.remove_file(&self.temporary);
        }
    }
}

/// Whether somebody writes `dir/name` now.
pub(super) fn is_being_written(dir: &dyn Dir, name: &Path) -> io::Result<bool> {
    let mut temporary = name.as_os_str().to_owned();
    temporary.push(ENDING);
    match dir.open(Path::new(&temporary), OpenHow::ReadWrite) {
        Ok(file) => Ok(!file.try_lock()?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes a temporary file unless somebody writes it.
pub(super) fn remove_abandoned(dir: &dyn Dir, temporary: &Path) -> io::Result<()> {
    // That nobody holds it says nothing where locks may not reach its writer.
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

/// Whether the name still means the open file: it may have been renamed or removed since it was opened.
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

    /// Goal: two writers of one name whose locks do not reach each other leave one whole file, and one of them is told.
    #[test]
    fn writers_whose_locks_do_not_meet_leave_one_whole_file() {
        for first in [true, false] {
            let disk = SimDisk::new(1).set_keeps_locks(false);
            disk.write_file("/d/other", b"").unwrap();
            let dir = disk.dir(Path::new("/d")).unwrap();
            let one = Staged::begin(dir.clone(), "name").unwrap().unwrap();
            one.file.write_all_at(b"half of", 0, Via::Cache).unwrap();
            let other = Staged::begin(dir.clone(), "name").unwrap().unwrap();
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

    /// Goal: where no lock tells who lives, a file is abandoned only by its age, and only those of the name are looked at.
    #[test]
    fn what_a_killed_writer_left_goes_by_its_age_where_locks_tell_nothing() {
        let disk = SimDisk::new(1).set_keeps_locks(false);
        let id = Uuid::from_u128(7).simple();
        let (mine, others) = (format!("/d/name.{id}.tmp"), format!("/d/names.{id}.tmp"));
        for path in [mine.as_str(), others.as_str(), "/d/name.tmp"] {
            disk.write_file(path, b"x").unwrap();
        }
        let dir = disk.dir(Path::new("/d")).unwrap();
        remove_abandoned(&*dir, Path::new("name.tmp")).unwrap();
        drop(Staged::begin(dir.clone(), "name").unwrap().unwrap());
        assert_eq!(names(&disk).len(), 3);
        let old = Attributes {
            mtime_ns: Some(-1_000_000_000_000_000),
            ..Attributes::default()
        };
        for path in [&mine, &others] {
            let name = Path::new(path).file_name().unwrap();
            dir.set_attributes(Path::new(name), &old).unwrap();
        }
        drop(Staged::begin(dir.clone(), "name").unwrap().unwrap());
        assert_eq!(names(&disk), ["/d/name.tmp".to_owned(), others]);
    }
}
