//! The contract between a database adaptor and the pipeline.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::{Stat, Via, Xattr};
use longshore_pg::{Lineage, Lsn, Timeline};

use crate::{Error, OwnLog};

/// Which adaptor made a backup. The number is written to media and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SourceKind {
    Files = 1,
    Sqlite = 2,
    Postgres = 3,
}

/// A place with its own I/O capacity: a mount point, or a directory mapped to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The mount point or mapped directory.
    pub path: PathBuf,
}

/// Which database it is, and where replay of its log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStart {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: Timeline,
    pub first: Lsn,
}

/// How far the log is needed to make the copy consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    pub timeline: Timeline,
    pub last: Lsn,
    /// The log from first to last was among the entries.
    pub included: bool,
    /// The log before `last` ends with the record of this backup's end, as a primary's does.
    pub is_marked: bool,
}

/// What a source knows before anything is read.
#[derive(Debug, Clone)]
pub struct Description {
    pub kind: SourceKind,
    /// The database's name for people: a file stem, a directory's name, or as configured.
    pub database: String,
    /// Where the database's log stands; `None` for sources without one.
    pub log: Option<LogStart>,
    /// The server's history of the log's timeline; `None` on the first one, and where it cannot be read.
    pub history: Option<Vec<u8>>,
    /// Which branch of a cluster's life it is of; `None` for sources that have none.
    pub lineage: Option<Lineage>,
    /// The server's own copy of its log; `None` for sources without one.
    pub own_log: Option<OwnLog>,
    /// Page size in bytes, 0 where the source has none.
    pub page_bytes: u32,
    /// Bytes expected, for progress; `None` where only the walk will tell.
    pub expected_bytes: Option<u64>,
    /// Memory in bytes that the source holds while it is read, beyond what every walk needs.
    pub memory_bytes: u64,
    /// How it is told what differs from the base; `None` where everything is stored.
    pub differing: Option<&'static str>,
    /// When the server that is backed up was started, in microseconds since the Unix epoch.
    pub server_started_us: Option<i64>,
    /// Canonical paths of directories here, everything below which belongs to the source.
    pub trees: Vec<PathBuf>,
    /// At least one. `Source::next` takes an index into it.
    pub volumes: Vec<Volume>,
    /// Things the operator should know now, e.g. that commits wait during this backup.
    pub notices: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Dir,
    /// The target as stored; any bytes but NUL.
    Symlink {
        target: PathBuf,
    },
    /// Another name of an earlier `File` entry of the same volume, by that entry's path.
    HardLink {
        target: PathBuf,
    },
}

/// One name to back up.
pub struct Entry {
    /// Relative to the restore target; only normal components.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Length of a file in bytes when it was looked at; 0 for other kinds. Exactly this many
    /// bytes are backed up, whatever the file does meanwhile.
    pub len: u64,
    /// The file is made of pages of so many bytes, which change one by one: a power of two that divides `len`. Sums of
    /// them are kept, and where a base holds a file of this path, only pages that differ are stored.
    pub page_bytes: Option<u32>,
    /// Extended attributes in the order of their names, at most
    /// [`XATTRS_BYTES_MAX`](longshore_io::XATTRS_BYTES_MAX). None of a hard link: its file has them.
    pub xattrs: Vec<Xattr>,
    /// Present for files with `len > 0`.
    pub content: Option<Arc<dyn Content>>,
}

impl Entry {
    /// With the attributes of `stat`, and no bytes.
    pub fn named(path: PathBuf, kind: EntryKind, stat: &Stat) -> Entry {
        Entry {
            path,
            kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            mtime_ns: stat.mtime_ns,
            len: 0,
            page_bytes: None,
            xattrs: Vec::new(),
            content: None,
        }
    }
}

/// What a file did while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Its bytes or length changed; what was read may mix old and new.
    Modified,
    /// It ended early; the missing bytes were read as zeros.
    Shrunk,
    /// It was gone before it could be opened; all of it was read as zeros.
    Vanished,
}

/// The bytes of one file. Nothing is opened before the first read, so that entries are cheap.
pub trait Content: Send + Sync {
    /// Fills `buf` from `offset`. Bytes the file no longer has are zeros (see [`Change`]).
    /// Errors: [`Error::Io`] when the file cannot be read.
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> Result<(), Error>;

    /// Of a file of pages that a base holds: the first range at or after `offset` that has to be read to know whether it
    /// differs from the base, in whole pages. What is before it is certain to be what the base holds; so is everything
    /// where this is `None`.
    fn next_doubtful(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        Ok(Some(offset..u64::MAX))
    }

    /// A page that [`Content::next_doubtful`] passed over was read all the same, and is not what the base holds.
    /// Errors: [`Error::Base`] when that must not be.
    fn explain(&self, _page: &[u8], _offset: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the range can be read from memory at once. Opens the file.
    fn is_cached(&self, range: Range<u64>) -> bool;

    /// The first range at or after `offset` that may hold data, cut to the entry's length; `None`
    /// when only a hole follows. Opens the file where it must.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error>;

    /// To be called once, after everything was read: what the file did meanwhile. Closes
    /// descriptors unless the source must keep them.
    fn settle(&self) -> Result<Option<Change>, Error>;
}

/// What a source learned by the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceSummary {
    /// For the operator: skipped special files, how much the WAL grew, who waited.
    pub warnings: Vec<String>,
    /// Something in the copy is damaged at its origin, e.g. a page whose checksum is wrong. The warnings say what.
    pub damaged: bool,
    /// The first of the names that the source holds and the copy does not, for they cannot be named in it or lie too
    /// deep; `damaged` then, too.
    pub left_out: Option<PathBuf>,
    pub log: Option<LogEnd>,
    /// A moment at which the copy was complete, by the server's own clock, which commits are dated by; microseconds since
    /// the Unix epoch. `None`: there is no server, or it could not be asked.
    pub complete_us: Option<i64>,
}

/// An opened database or directory.
pub trait Source: Send + Sync {
    fn description(&self) -> &Description;

    /// The next entry of volume `volume` (an index into [`Description::volumes`]), `None` at its
    /// end. Called under a lock; does no bulk reading.
    fn next(&self, volume: usize) -> Result<Option<Entry>, Error>;

    /// Called once, when every volume has ended and every content was settled: what can be known only now
    /// (PostgreSQL's label, its control file, the log) may follow. When it returns true, `next` has
    /// further entries for volume 0.
    fn epilogue(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Ends the snapshot, after every content was settled.
    fn finish(self: Box<Self>) -> Result<SourceSummary, Error>;
}
