//! A plain file, read without a lock or snapshot.

use std::io;
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Dir, File, InUse, OpenHow, Stat};

use rustix::io::Errno;

use crate::Error;

/// A file open for plain reading.
pub(crate) struct Reading {
    file: Arc<dyn File>,
    stat: Stat,
}

impl Reading {
    /// Opens `name` in `dir`; `path` is its path for messages. Errors: [`Error::InUse`] while a snapshot has claimed
    /// the file.
    pub(crate) fn open(dir: &dyn Dir, name: &Path, path: &Path) -> Result<Self, Error> {
        let file = dir.open(name, OpenHow::Read).map_err(refused(path))?;
        let stat = file.stat().map_err(refused(path))?;
        Ok(Self { file, stat })
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// The file's attributes when it was opened.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }
}

/// The error for a file that cannot be opened.
pub(crate) fn refused(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| match InUse::is(&source) {
        true => Error::InUse { path: path.into() },
        false => Error::Io {
            action: "open",
            path: path.into(),
            source,
        },
    }
}

/// Whether there is no file of that name.
pub(crate) fn is_missing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || Errno::from_io_error(e) == Some(Errno::LOOP)
}

/// Whether the file no longer exists, or has become shorter.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    is_missing(error) || error.kind() == io::ErrorKind::UnexpectedEof
}
