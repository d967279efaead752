//! The interface between a restore and everything that receives its files.
//!
//! Invariants
//! - Names and data come in any order and from several threads; nothing has its final name before
//!   [`Destination::finish`].
//! - An error at any point leaves the target as it was, but for a staging directory that the next restore removes. A
//!   delta is the exception: it changes existing files, and leaves a data directory that cannot start until a later
//!   delta is complete.
//! - Several roots are sealed before any of them is switched; a switch that fails takes its names back.
//!
//! Leaves to others: directories of files (`mod.rs`), clusters (`cluster`), and which bytes are wanted (the pipeline).

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Attributes, File};
use longshore_media::{Entry, Extent};

use super::attributes::LostAttributes;
use crate::error::Error;
use crate::path_list::PathList;

/// The part of the destination that a restore replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Each topmost name of the set separately; other names in the target stay.
    Names { side_files: bool },
    /// Like [`Scope::Names`], for plain files that never replace anything.
    Space,
    /// The target as a whole. Without `last`, nothing in it can be started.
    Directory { last: &'static str },
}

/// Which existing files may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacePolicy {
    No,
    /// All except a database in use.
    Unused,
    /// All, even those in use.
    Anything,
}

/// Bytes of a file of which several sets have parts.
#[derive(Clone, Copy)]
pub struct FilePiece<'a> {
    pub path: &'a Path,
    /// Length of the whole file.
    pub len_bytes: u64,
    pub parts: &'a [(Extent, &'a [u8])],
}

/// Where a restore puts what it reads. Called from many threads at once, in any order. Nothing is seen before the end; one
/// that is dropped before leaves what stood there (a delta: a directory that cannot start). The caller puts each byte
/// once and nothing after an error. `tests/contract.rs` checks this of every destination.
pub trait Destination: Send + Sync {
    /// A name without data, or whose data is in other blocks.
    fn put_name(&self, entry: &Entry) -> Result<(), Error>;

    /// One block's part of a file: `parts` are its extents with their bytes.
    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error>;

    /// Pieces come before and after the file's own entry, which only [`Destination::complete`] receives.
    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error>;

    /// Called when all pieces of a file, if any, were put. `crc32c` is the checksum of the whole file.
    fn complete(&self, entry: &Entry, crc32c: u32) -> Result<(), Error>;

    /// Records of what could not be restored; complete after [`Destination::finish`] has returned.
    fn lost(&self) -> Vec<Arc<LostAttributes>>;

    /// Called when everything was put: completes it, makes it durable and gives it its names. Returns what was changed and
    /// removed of what stood there; `None` if nothing could be.
    fn finish(self: Box<Self>) -> Result<Option<DeltaResult>, Error>;
}

/// The content that is restored to a directory.
pub trait RootContent {
    /// Creates a name without data: a directory, a link, an empty file. Its parents are created if they did not come
    /// yet. Several threads may call it, each name once. Errors name the path in the target.
    fn put_name(&self, entry: &Entry) -> Result<(), Error>;

    /// Writes parts of a file. They may come in any order and from several threads, each byte once; the file is created by
    /// the first call. Errors name the path in the target.
    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error>;

    /// Like [`Destination::put_piece`].
    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error>;

    /// Like [`Destination::complete`].
    fn complete(&self, entry: &Entry) -> Result<(), Error>;

    /// Like [`Destination::lost`].
    fn lost(&self) -> Arc<LostAttributes>;

    /// Whether a name was restored. Must be called before `move_in`.
    fn holds(&self, name: &Path) -> bool;

    /// The attributes that a restored directory will have; empty for one that is not among the entries.
    fn attributes_of(&self, dir: &Path) -> Attributes;
}

/// Files and attributes that a restore adds to those of the backup.
pub trait RootFiles {
    /// Adds a file of our own to the restored ones. It must be written before `seal`.
    fn add_file(&self, name: &Path) -> Result<Arc<dyn File>, Error>;

    /// Opens a restored file, to be written before `seal`.
    fn open_added(&self, name: &Path) -> Result<Arc<dyn File>, Error>;

    /// Sets attributes of a file that was added or restored. Must be called before `seal`.
    fn set_added(&self, name: &Path, attributes: &Attributes) -> Result<(), Error>;

    /// Removes a file that was added or restored, before `seal`. A name that does not exist is an error.
    fn remove_added(&self, name: &Path) -> Result<(), Error>;

    /// Sets attributes of the directory itself; they are durable at the latest with the names that `move_in` gives.
    fn set_root(&self, attributes: &Attributes) -> Result<(), Error>;

    /// The file system that holds it, and its free bytes. `None`: it is changed in place, and its own files make room.
    fn volume(&self) -> Option<(u64, u64)>;
}

/// The switch from the existing names to the restored ones.
pub trait RootSwitch {
    /// Completes files and directories and makes everything durable. Returns the names whose attributes would prevent
    /// their move, with those attributes.
    fn seal(&mut self) -> Result<LateAttributes, Error>;

    /// Moves everything that is replaced as a whole out of the way; it can no longer be started.
    fn displace(&self) -> Result<(), Error>;

    /// Gives everything its name. If that fails, names already moved go back, so that no incomplete restore is
    /// visible.
    fn move_in(&mut self, closed: &LateAttributes) -> Result<(), Error>;

    /// From then on, only this restore can put displaced files back: the last step that can fail.
    fn give_up_displaced(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// From now on dropping keeps the names that were moved in.
    fn stand(&mut self);

    /// The changes that a delta made; `None` if everything is written.
    fn delta(&self) -> Option<DeltaResult> {
        None
    }
}

/// One directory of several that are restored together and switched together at the end.
pub trait Root: RootContent + RootFiles + RootSwitch + Send + Sync {}

impl<T: RootContent + RootFiles + RootSwitch + Send + Sync> Root for T {}

/// The changes that a restore made among existing files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeltaResult {
    /// Bytes that a delta wrote because they differed; `None`: everything was written.
    pub rewritten_bytes: Option<u64>,
    /// Names that were removed because the set does not have them, each with everything below it.
    pub removed: PathList,
}

impl DeltaResult {
    /// Adds what was changed in another directory of the same restore.
    pub fn add(&mut self, other: DeltaResult) {
        let more = other.rewritten_bytes.unwrap_or(0);
        self.rewritten_bytes = self.rewritten_bytes.or(other.rewritten_bytes.map(|_| 0));
        self.rewritten_bytes = self.rewritten_bytes.map(|bytes| bytes + more);
        self.removed.append(other.removed);
    }
}

/// Names whose attributes are set after their move: a directory that its owner may not write to cannot be moved.
#[derive(Default)]
pub struct LateAttributes(pub HashMap<OsString, Attributes>);
