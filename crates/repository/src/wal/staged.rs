//! Files that appear under their name whole and durable, or not at all.
//!
//! A file is written as `NAME.tmp` and renamed at the end. Whoever writes it holds its lock, so two processes never
//! write one file, and what a killed one left is recognised (nobody holds it) and removed by the next.
//!
//! Invariants
//! - Bytes are durable before the name is, the name before success is told.
//! - Only the holder of the lock on `NAME.tmp` gives or refuses `NAME`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, OpenHow};

/// Ending of a file that is being written.
pub(super) const ENDING: &str = ".tmp";

/// A file being written. Dropped before [`Staged::publish`] it leaves nothing behind.
pub(super) struct Staged {
    dir: Arc<dyn Dir>,
    temporary: PathBuf,
    pub(super) file: Arc<dyn File>,
    published: bool,
}

impl Staged {
    /// Begins `dir/name`; `None` while another process writes it.
    pub(super) fn begin(dir: Arc<dyn Dir>, name: &str) -> io::Result<Option<Staged>> {
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
                }))
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                remove_abandoned(&*dir, &temporary)?;
                Ok(None)
            }
            Err(e) => Err(e),
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
