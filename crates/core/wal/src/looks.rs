//! Segments that the archive has by their names alone: what a look shows without reading their blocks.
//!
//! Invariants
//! - A segment that a restore can use is never told here. One that is told would stop a replay.
//! - The cost is one listing, and in a directory the opening of each file. Ends are read only of a file whose length is
//!   suspicious; in a bucket nothing is opened, since each request costs money.
//!
//! Leaves to others: damage inside of a file (`read.rs`), and what is missing (`list.rs`).

use std::io;
use std::path::{Path, PathBuf};

use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;

use super::object::LEAST_LEN;
use super::place::{Wanted, is_in_bucket};
use super::{Error, WalArchive};

/// A copy that was cut off by a full disk ends at such a border; one good file in so many does, too.
const BLOCK_BYTES: u64 = 512;

/// A segment of which the file is there, and no replay gets over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableSegment {
    pub name: SegmentName,
    /// Its file, with the archive's directory or bucket.
    pub path: PathBuf,
    /// The fault, as the second half of a sentence.
    pub what: String,
}

/// The outcome of a look at one file.
enum Look {
    Usable,
    Unusable(String),
    /// This user may not open it.
    Denied,
}

impl WalArchive {
    /// The segments that are too short, cannot be opened or were cut off, by timeline and LSN. A user who may open none
    /// of several learns nothing about them.
    ///
    /// Errors: `NothingYet`, `Io`, `Store`.
    pub fn unusable(&self) -> Result<Vec<UnusableSegment>, Error> {
        self.identified()?;
        let mut found = Vec::new();
        let (mut files, mut denied) = (0, 0);
        for (name, file, len) in self.segment_files()? {
            files += 1;
            let what = match self.look(name, &file, len)? {
                Look::Usable => continue,
                Look::Unusable(what) => what,
                Look::Denied => {
                    denied += 1;
                    "cannot be opened: permission denied".to_owned()
                }
            };
            found.push(UnusableSegment {
                name,
                path: self.path().join(file),
                what,
            });
        }
        if files > 1 && denied == files {
            found.clear();
        }
        Ok(found)
    }

    /// The file of this segment, if there is one, with the archive's directory or bucket.
    ///
    /// Errors: `Io`, `Store`.
    pub fn file_of(&self, name: SegmentName) -> Result<Option<PathBuf>, Error> {
        let files = self.segment_files()?.into_iter();
        let mut own = files.filter(|(other, ..)| *other == name);
        Ok(own.next().map(|(_, file, _)| self.path().join(file)))
    }

    fn look(&self, name: SegmentName, file: &Path, len: u64) -> Result<Look, Error> {
        if len < LEAST_LEN {
            return Ok(Look::Unusable(match len {
                0 => "is empty".to_owned(),
                len => format!("is only {len} bytes long"),
            }));
        }
        if is_in_bucket(self.path()) {
            return Ok(Look::Usable);
        }
        let opened = match self.place.open(file, Wanted::Parts) {
            // Retention has removed it meanwhile.
            Ok(None) => return Ok(Look::Usable),
            Ok(Some(opened)) => opened,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Look::Denied);
            }
            Err(e @ Error::Io { .. }) => return Ok(Look::Unusable(cause(&e))),
            Err(e) => return Err(e),
        };
        // Root opens it all the same; PostgreSQL does not run as root.
        if opened.stat()?.mode & 0o444 == 0 {
            return Ok(Look::Unusable(
                "has a mode that lets nobody read it".to_owned(),
            ));
        }
        if !len.is_multiple_of(BLOCK_BYTES) {
            return Ok(Look::Usable);
        }
        match self.find(WalName::Segment(name)) {
            Err(Error::Damaged { what, .. }) => Ok(Look::Unusable(format!("is damaged: {what}"))),
            _ => Ok(Look::Usable),
        }
    }
}

fn cause(error: &Error) -> String {
    let why = std::error::Error::source(error).map(ToString::to_string);
    format!("cannot be opened: {}", why.unwrap_or_default())
}
