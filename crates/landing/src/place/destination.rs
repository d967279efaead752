//! Where a restore puts what it reads: the door that everything which receives a restore stands behind.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Attributes, File};
use longshore_media::{Entry, Extent};

use super::attributes::Lost;
use crate::error::Error;

/// What a restore replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Each topmost name of the set by itself; what else stands in the target stays.
    Names { side_files: bool },
    /// As [`Scope::Names`], of plain files that never replace anything.
    Space,
    /// The target as a whole. Nothing in it can be started without `last`.
    Directory { last: &'static str },
}

/// What may happen to what stands in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacing {
    No,
    /// Not a database that somebody uses.
    Unused,
    /// Whoever uses it.
    Anything,
}

/// Bytes of a file that several sets have parts of.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    pub path: &'a Path,
    /// Of the whole file.
    pub len: u64,
    pub parts: &'a [(Extent, &'a [u8])],
}

/// Where a restore puts what it reads. Called from many threads at once, in any order.
pub trait Destination: Send + Sync {
    /// A name without data, or whose data comes with other blocks.
    fn put_name(&self, entry: &Entry) -> Result<(), Error>;

    /// One block's part of a file: `parts` are its extents with their bytes.
    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error>;

    /// Pieces come before and after the file's own entry, which only [`Destination::complete`] sees.
    fn put_piece(&self, piece: &Piece) -> Result<(), Error>;

    /// All pieces of a file were put, if there are any. `crc32c` is that of the whole file.
    fn complete(&self, entry: &Entry, crc32c: u32) -> Result<(), Error>;

    /// Where is noted what could not be restored; whole when [`Destination::finish`] has returned.
    fn lost(&self) -> Vec<Arc<Lost>>;

    /// Everything was put: completes it, makes it durable and gives it its names. Says how many bytes were written
    /// because they differed from what stood there; `None` where all were.
    fn finish(self: Box<Self>) -> Result<Option<u64>, Error>;
}

/// One directory of several that are restored together, and change over together at the end.
pub trait Root: Send + Sync {
    fn put_name(&self, entry: &Entry) -> Result<(), Error>;
    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error>;

    /// As [`Destination::put_piece`].
    fn put_piece(&self, piece: &Piece) -> Result<(), Error>;

    /// As [`Destination::complete`].
    fn complete(&self, entry: &Entry) -> Result<(), Error>;

    /// As [`Destination::lost`].
    fn lost(&self) -> Arc<Lost>;

    /// A file of our own among what is restored. Write to it before `seal`.
    fn add_file(&self, name: &Path) -> Result<Arc<dyn File>, Error>;

    /// A restored file, to be written to before `seal`.
    fn open_added(&self, name: &Path) -> Result<Arc<dyn File>, Error>;

    fn set_added(&self, name: &Path, attributes: &Attributes) -> Result<(), Error>;
    fn remove_added(&self, name: &Path) -> Result<(), Error>;

    /// Whether a name was restored. Before `move_in`.
    fn holds(&self, name: &Path) -> bool;

    /// What a restored directory will have; nothing for one that was not among the entries.
    fn attributes_of(&self, dir: &Path) -> Attributes;

    /// Sets attributes of the directory itself; durable with the names that `move_in` gives, at the latest.
    fn set_root(&self, attributes: &Attributes) -> Result<(), Error>;

    /// The file system that holds it, and its free bytes.
    fn volume(&self) -> Option<(u64, u64)>;

    /// Completes files and directories and makes everything durable. Returns the names that their attributes would keep
    /// from being moved, with those attributes.
    fn seal(&mut self) -> Result<Closed, Error>;

    /// Moves out of the way what is replaced as a whole; it can no longer be started.
    fn displace(&self) -> Result<(), Error>;

    /// Gives everything its name. What was moved before a failure goes back, so that nothing half restored is seen.
    fn move_in(&mut self, closed: &Closed) -> Result<(), Error>;

    /// What was displaced goes back to its place by nobody's hand but this one's: the last step that can fail.
    fn give_up_displaced(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// From now on dropping keeps what was moved in.
    fn stand(&mut self);

    /// Bytes that were written because they differed; `None` where all are written.
    fn rewritten_bytes(&self) -> Option<u64> {
        None
    }
}

/// Names whose attributes are set when they stand: a directory that its owner may not write to cannot be moved.
#[derive(Default)]
pub struct Closed(pub HashMap<OsString, Attributes>);
