//! Where an archive's files are, behind a door: a directory is the one place, a prefix in a bucket the other.
//!
//! A place knows names and bytes; `door.rs` has its promises.
//!
//! Invariants
//! - A location is read in one way: text that begins like an address is one, unless `file:` stands before it.
//! - The ending of a file's name belongs to the kind of place.
//!
//! Leaves to others: what a WAL file is, whose it is and whether it may get in; the code above this door decides it in
//! the same way for every place (`archive.rs`).

pub(super) mod buckets;
pub(super) mod directories;
mod door;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_bucket::{Address, Bucket, Key};
use longshore_io::{Dir, Storage};
use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, Timeline};

use self::buckets::Prefix;
use self::directories::Directory;
pub(super) use self::door::{Draft, Entry, Often, Place, Published, Stored, Wanted, read_mark};
use super::Error;

/// The endings of archived files' names in a directory, by algorithm; the last one is that of a copy of a bucket.
const ENDINGS: [&str; 6] = ["gz", "zst", "lz4", "xpress", "pages", IN_BUCKETS];

/// The ending in a bucket, whatever the algorithm: one name then has one key, which a store gives to one writer only.
const IN_BUCKETS: &str = "wal";

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

/// Whether the location of an archive names a server of the configuration, so that it means nothing without that.
pub fn is_at_named_server(path: &Path) -> bool {
    address(path).is_some_and(|address| address.server().is_some())
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
