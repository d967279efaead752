//! Where an archive's files are, behind a door: a directory is the one place, a prefix in a bucket the other.
//!
//! A place knows names and bytes.
//!
//! Invariants, the promises of every place
//! - A file has its name only when it is complete and durable.
//! - No file of WAL is ever replaced: of two writers of one name one is told that the other was first.
//! - `None` means that there certainly is no such file. A place that does not answer is an error.
//!
//! Leaves to others: what a WAL file is, whose it is and whether it may get in; the code above this door decides it in
//! the same way for every place (`archive.rs`).

pub(super) mod buckets;
pub(super) mod directories;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_bucket::{Address, Bucket, Key};
use longshore_io::{Clock, Dir, Stat, Storage};
use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, Timeline};

use self::buckets::Prefix;
use self::directories::Directory;
use super::Error;
use super::form::IDENTITY_NAME;
use super::identity::Mark;

/// The endings of archived files' names in a directory, by algorithm; the last one is that of a copy of a bucket.
const ENDINGS: [&str; 5] = ["gz", "zst", "lz4", "xpress", IN_BUCKETS];

/// The ending in a bucket, whatever the algorithm: one name then has one key, which a store gives to one writer only.
const IN_BUCKETS: &str = "wal";

/// In a bucket: says that the archive has no cluster's WAL yet. [`IDENTITY_NAME`] is created next to it, and replaces
/// nothing.
const UNCLAIMED_NAME: &str = "longshore-wal.new";

/// A name in a listing.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: OsString,
    /// 0 for directories, and where no lengths were asked for.
    pub len_bytes: u64,
}

/// How a file will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Its beginning, its end and perhaps a block.
    Parts,
    All,
}

/// Whether a short file may be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Often {
    /// Its name is its writer's own, or all writers write the same.
    Once,
    Again,
}

/// The fate of a file that was to get its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// It has the name. `surely`: no other file has it under another ending.
    Ours { surely: bool },
    /// Another file had the name first.
    Theirs,
}

/// A file of the archive, opened. Any number of threads may read it at once.
pub(super) trait Stored: Debug + Send + Sync {
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
pub(super) trait Draft {
    /// Writes at `at`, which is a multiple of the alignment where the bytes before end there.
    fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes the bytes durable, if the place does that before the name is given.
    fn sync(&self) -> io::Result<()>;

    /// Gives it its name in its directory, unless another file has that. Durable when it returns.
    fn publish(self: Box<Self>, file: &str) -> Result<Published, Error>;
}

/// The files of one archive. All names are relative to it; any number of threads and processes may use one. The tests in
/// `place/tests.rs` check the text of these traits for every place.
pub(super) trait Place: Debug + Send + Sync {
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
pub(super) type Keep<'a> = &'a dyn Fn(Option<Mark>) -> Option<Mark>;

/// The directory or the prefix under an archive, for those who hold leases there.
#[derive(Debug, Clone)]
pub enum Ground {
    Directory(Arc<dyn Dir>),
    Bucket(Bucket, Key),
}

impl Ground {
    /// The endings that a WAL file's name may have.
    pub(super) fn endings(&self) -> &'static [&'static str] {
        match self {
            Ground::Directory(_) => &ENDINGS,
            Ground::Bucket(..) => &[IN_BUCKETS],
        }
    }

    /// The ending of a new file's name; `own` is that of its form.
    pub(super) fn ending(&self, own: &'static str) -> &'static str {
        match self {
            Ground::Directory(_) => own,
            Ground::Bucket(..) => IN_BUCKETS,
        }
    }

    /// Whether a file's name has one ending only: then a file that is given its name cannot meet another one under
    /// another ending.
    pub(super) fn has_one_name(&self) -> bool {
        matches!(self, Ground::Bucket(..))
    }

    /// What identifies an archive in a bucket without a request: the server, the bucket and the prefix.
    pub(super) fn origin(&self) -> Option<String> {
        match self {
            Ground::Directory(_) => None,
            Ground::Bucket(bucket, key) => Some(bucket.origin(key)),
        }
    }

    pub(super) fn place(&self, path: &Path) -> Arc<dyn Place> {
        let path = path.to_owned();
        match self {
            Ground::Directory(dir) => Arc::new(Directory {
                path,
                dir: dir.clone(),
            }),
            Ground::Bucket(bucket, key) => Arc::new(Prefix {
                bucket: bucket.clone(),
                key: key.clone(),
            }),
        }
    }

    /// Finds what is at `below` in `base`.
    ///
    /// Errors: `NotAnArchive` if there is no such directory; `LinkBelow`, `Store`, `Io`.
    pub(super) fn find(storage: &dyn Storage, base: &Path, below: &Path) -> Result<Ground, Error> {
        match address(&base.join(below)) {
            Some(address) => Ground::of_address(&address, storage),
            None => directories::find(storage, base, below).map(Ground::Directory),
        }
    }

    fn of_address(address: &Address, storage: &dyn Storage) -> Result<Ground, Error> {
        let (bucket, key) = address.place(storage)?;
        Ok(Ground::Bucket(bucket, key))
    }

    /// Like [`Ground::find`], and makes what is missing.
    pub(super) fn make(storage: &dyn Storage, base: &Path, below: &Path) -> Result<Ground, Error> {
        match address(&base.join(below)) {
            None => directories::make(storage, base, below).map(Ground::Directory),
            Some(address) => {
                let ground = Ground::of_address(&address, storage)?;
                if let Ground::Bucket(bucket, key) = &ground {
                    buckets::check(bucket, key)?;
                }
                Ok(ground)
            }
        }
    }
}

/// Where an archive is, as an operator writes it: a directory, or `s3://BUCKET/PREFIX` (`az://`, `gs://`). `file:` before a text that
/// begins like an address makes it a path.
///
/// Errors: `Store` for an address that is none.
pub fn location(text: &OsStr) -> Result<PathBuf, Error> {
    let path = PathBuf::from(text);
    if let Some(address) = address(&path) {
        address.parts()?;
        return Ok(address.to_string().into());
    }
    let rest = path.to_str().and_then(|text| text.strip_prefix("file:"));
    match rest.map(Path::new).filter(|rest| is_in_bucket(rest)) {
        Some(rest) => Ok(Path::new(".").join(rest)),
        None => Ok(path),
    }
}

/// Whether this is the location of an archive in a bucket.
pub fn is_in_bucket(path: &Path) -> bool {
    address(path).is_some()
}

/// [`Ground::origin`] of the archive at this location, which is not opened for that.
///
/// Errors: `Store`.
pub(super) fn origin(location: &Path, storage: &dyn Storage) -> Result<Option<String>, Error> {
    let origin = address(location).map(|address| address.origin(storage));
    Ok(origin.transpose()?)
}

/// The address that this path is the text of: no path begins like one.
fn address(path: &Path) -> Option<Address> {
    Address::of(path.to_str()?.trim_end_matches('/'))
}

/// The directory of a file, relative to the archive's own.
pub(super) fn directory_of(name: WalName) -> PathBuf {
    let directory = |segment: SegmentName| directory(segment.timeline, segment.high);
    name.segment().map(directory).unwrap_or_default().into()
}

/// The directory of 2^32 bytes of WAL: 256 segments of 16 MiB.
pub(super) fn directory(timeline: Timeline, high: u32) -> String {
    format!("{:08X}{high:08X}", timeline.number())
}

/// The mark of the archive at `path`; `None` if it is none.
pub(super) fn read_mark(place: &dyn Place, path: &Path) -> Result<Option<Mark>, Error> {
    match read_mark_at(place, path, IDENTITY_NAME)? {
        Some(mark) => Ok(Some(mark)),
        None => read_mark_at(place, path, UNCLAIMED_NAME),
    }
}

fn read_mark_at(place: &dyn Place, path: &Path, name: &str) -> Result<Option<Mark>, Error> {
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
