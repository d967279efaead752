//! The contract of every place: its promises about names and bytes.
//!
//! Invariants, the promises of every place
//! - A file has its name only when it is complete and durable.
//! - No file of WAL is ever replaced: of two writers of one name one is told that the other was first.
//! - `None` means that there certainly is no such file. A place that does not answer is an error.
//!
//! Leaves to others: the places (`directories.rs`, `buckets.rs`), and finding one (`../place.rs`).

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Clock, Stat};

use crate::Error;
use crate::form::IDENTITY_NAME;
use crate::identity::Mark;

/// In a bucket: says that the archive has no cluster's WAL yet. [`IDENTITY_NAME`] is created next to it, and replaces
/// nothing.
pub(super) const UNCLAIMED_NAME: &str = "longshore-wal.new";

/// A name in a listing.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: OsString,
    /// 0 for directories, and where no lengths were asked for.
    pub len_bytes: u64,
    /// Its last change by the place's clock, the same in each list until it is replaced; 0 as the length.
    pub changed_ns: i64,
}

/// How a file will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Its beginning, its end and perhaps a block.
    Parts,
    All,
}

/// Whether a short file may be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Often {
    /// Its name is its writer's own, or all writers write the same.
    Once,
    Again,
}

/// The fate of a file that was to get its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Published {
    /// It has the name. `surely`: no other file has it under another ending.
    Ours { surely: bool },
    /// Another file had the name first.
    Theirs,
}

/// A file of the archive, opened. Any number of threads may read it at once.
pub(crate) trait Stored: Debug + Send + Sync {
    /// Bytes of the stored file, as it is stored: compressed and with its container. Every read that ends there or
    /// before succeeds, and every read beyond it fails. It does not change while the file is open: nothing in an archive
    /// is written once it has its name, and a file of the same name that came later is another file.
    fn len(&self) -> Result<u64, Error>;

    /// Fills `buf`; a file that is too short is an error, however many bytes it lacks. An empty `buf` is filled anywhere
    /// up to the end.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error>;

    /// Identifies the file and this content of it: the same each time for one file, and different for a file of the same
    /// name that replaced it.
    fn stat(&self) -> Result<Stat, Error>;
}

/// A file on its way into the archive. If it is dropped before it was published, nothing is left.
pub(crate) trait Draft {
    /// Writes at `at`, which is a multiple of the alignment where the bytes before end there.
    fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes the bytes durable, if the place does that before the name is given.
    fn sync(&self) -> io::Result<()>;

    /// Gives it its name in its directory, unless another file has that. Durable when it returns.
    fn publish(self: Box<Self>, file: &str) -> Result<Published, Error>;
}

/// The files of one archive. All names are relative to it; any number of threads and processes may use one. The tests in
/// `place/tests.rs` check the text of these traits for every place.
pub(crate) trait Place: Debug + Send + Sync {
    /// The names directly in the directory `below`; nothing if there is no such directory. Shows each file whose writer
    /// was told of success before.
    fn list(&self, below: &Path, lengths: bool) -> Result<Vec<Entry>, Error>;

    /// Opens a file; `None` if there is none.
    fn open(&self, file: &Path, wanted: Wanted) -> Result<Option<Arc<dyn Stored>>, Error>;

    /// Begins the file `name` in the directory `below`, which is made if need be; `None` while another process writes
    /// it. The caller then looks for the name: only writers that began later are noticed when the draft is published.
    fn begin(&self, below: &Path, name: &str) -> Result<Option<Box<dyn Draft>>, Error>;

    /// Writes a short file, durably.
    fn write(&self, file: &Path, bytes: &[u8], often: Often) -> Result<(), Error>;

    /// Writes the mark, unless `keep` accepts the one that is there, which is then returned. Of two first writers, both
    /// return the mark of one.
    fn mark(&self, mark: Mark, clock: &dyn Clock, keep: Keep<'_>) -> Result<Option<Mark>, Error>;

    /// Removes a file; one that is not there is removed already.
    fn remove(&self, file: &Path) -> Result<(), Error>;

    /// Makes the names in the directory `below`, and its own, durable. `emptied`: removes the directory if nothing is
    /// left in it.
    fn settle(&self, below: &Path, emptied: bool) -> Result<(), Error>;
}

/// Decides by the present mark whether another one is needed.
pub(crate) type Keep<'a> = &'a dyn Fn(Option<Mark>) -> Option<Mark>;

/// The mark of the archive at `path`; `None` if it is none.
pub(crate) fn read_mark(place: &dyn Place, path: &Path) -> Result<Option<Mark>, Error> {
    match read_mark_at(place, path, IDENTITY_NAME)? {
        Some(mark) => Ok(Some(mark)),
        None => read_mark_at(place, path, UNCLAIMED_NAME),
    }
}

pub(super) fn read_mark_at(
    place: &dyn Place,
    path: &Path,
    name: &str,
) -> Result<Option<Mark>, Error> {
    let Some(file) = place.open(Path::new(name), Wanted::All)? else {
        return Ok(None);
    };
    let len = file.len()?.min(Mark::LEN_MAX as u64) as usize;
    let mut bytes = [0; Mark::LEN_MAX];
    file.read_exact_at(&mut bytes[..len], 0)?;
    match Mark::decode(&bytes[..len]) {
        Some(mark) => Ok(Some(mark)),
        None => Err(Error::IdentityDamaged {
            path: PathBuf::from(path).join(name),
        }),
    }
}
