//! The contract between a database adaptor and the pipeline.
//!
//! A source is described once, then gives entries volume by volume, and each entry's content is read in extents and
//! settled. `tests/contract/suite.rs` runs over all adaptors.
//!
//! Invariants
//! - A source never writes to what it reads.
//! - Bytes that it returns belong to the snapshot, or the content reports a change when it is settled.
//! - An entry has exactly the length that it was listed with, even if its file changes.
//! - Each path comes once.
//!
//! Leaves to others: order of reading, threads and memory (the pipeline).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_codec::Layout;
use longshore_io::{Stat, Via, Xattr};
use longshore_pg::{Lineage, Lsn, Timeline};

use crate::{Error, OwnLog, StandbyState};

/// The adaptor that made a backup. The number is written to media and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SourceKind {
    Files = 1,
    Sqlite = 2,
    Postgres = 3,
}

/// A unit with its own I/O capacity: a mount point, or a directory mapped to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The mount point or mapped directory.
    pub path: PathBuf,
}

/// Identifies the PostgreSQL cluster and the LSN at which replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStart {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: Timeline,
    pub first: Lsn,
}

/// The WAL needed to make the copy consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    pub timeline: Timeline,
    pub last: Lsn,
    /// Whether the WAL from first to last was among the entries.
    pub included: bool,
    /// Whether the WAL before `last` ends with the record of this backup's end, as on a primary.
    pub is_marked: bool,
}

/// Facts about a source that are known before anything is read.
#[derive(Debug, Clone)]
pub struct Description {
    pub kind: SourceKind,
    /// The database's name for people: a file stem, a directory name, or the configured name.
    pub database: String,
    /// The start of the backup in the WAL; `None` for sources without WAL.
    pub log: Option<LogStart>,
    /// The server's history file of that timeline; `None` on timeline 1, and if it cannot be read.
    pub history: Option<Vec<u8>>,
    /// The branch of the cluster that the source is on; `None` for other sources.
    pub lineage: Option<Lineage>,
    /// The server's own copy of its WAL; `None` for sources without WAL.
    pub own_log: Option<OwnLog>,
    /// Page size in bytes; 0 if the source has no pages.
    pub page_bytes: u32,
    /// Expected bytes, for progress; `None` if only the walk can tell.
    pub expected_bytes: Option<u64>,
    /// Roughly the bytes that will be read, where the walk changes what it finds: for progress, and for the size of the
    /// parts in which a stripe is sent to an object store.
    pub about_bytes: Option<u64>,
    /// Bytes of memory that the source holds during the backup, beyond the needs of every walk.
    pub memory_bytes: u64,
    /// How differences from the base are found; `None` if everything is stored.
    pub differing: Option<&'static str>,
    /// How much is known of the layouts of tables; `None` if nobody wanted to know.
    pub layouts: Option<LayoutCount>,
    /// When the server was started, in microseconds since the Unix epoch.
    pub server_started_us: Option<i64>,
    /// Canonical paths of local directories that belong to the source with everything below them.
    pub trees: Vec<PathBuf>,
    /// At least one. `Source::next` takes an index into it.
    pub volumes: Vec<Volume>,
    /// Notices for the operator at the start, e.g. that commits wait during this backup.
    pub notices: Vec<String>,
}

/// How much a server said of the layouts of its tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayoutCount {
    /// Relations whose layout is known.
    pub relations: u64,
    /// Databases that answered.
    pub databases: u64,
    /// Databases that nobody may connect to, that refused, or that did not answer in time.
    pub databases_not_asked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Dir,
    /// The target as stored; any bytes except NUL.
    Symlink {
        target: PathBuf,
    },
    /// Another name of an earlier `File` entry of the same volume; `target` is that entry's path.
    HardLink {
        target: PathBuf,
    },
}

/// One name to back up.
pub struct Entry {
    /// Relative to the restore target; normal components only.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Length of the file in bytes when it was listed; 0 for other kinds. Exactly this many bytes are backed up, even
    /// if the file changes.
    pub len: u64,
    /// The file is compared in pages of this size, a power of two from 512 to 65,536; the last one ends with the file. Page
    /// sums are kept, and if a base has a file of this path, only pages that differ are stored.
    pub page_bytes: Option<u32>,
    /// How the rows in the file's pages are probably laid out; a hint, which may be wrong.
    pub layout: Option<Arc<Layout>>,
    /// Extended attributes, sorted by name, at most [`XATTRS_BYTES_MAX`](longshore_io::XATTRS_BYTES_MAX). Empty for a
    /// hard link: its file has them.
    pub xattrs: Vec<Xattr>,
    /// Present for files with `len > 0`.
    pub content: Option<Arc<dyn Content>>,
}

impl Entry {
    /// An entry with the attributes of `stat` and no bytes.
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
            layout: None,
            xattrs: Vec::new(),
            content: None,
        }
    }
}

/// How a file changed while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Its bytes or its length changed; the copy may mix old and new bytes.
    Modified,
    /// It became shorter; the missing bytes were read as zeros.
    Shrunk,
    /// It no longer existed when it was opened; all of it was read as zeros.
    Vanished,
}

/// The bytes of one file. Nothing is opened before the first read, so entries are cheap. A backup asks for the data from
/// the file's begin to its end and reads each range once; that is all that a stream can give.
pub trait Content: Send + Sync {
    /// Fills `buf` from `offset`, of a file of pages with whole ones; many threads may read at once. Bytes the file no longer
    /// has are zeros (see [`Change`]).
    /// Errors: [`Error::Io`] when the file cannot be read.
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> Result<(), Error>;

    /// For a file of pages that a base has: the first range at or after `offset`, in whole pages, that must be read to
    /// know whether it differs from the base. Pages before the range certainly equal the base's; if the result is
    /// `None`, all do.
    fn next_doubtful(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        Ok(Some(offset..u64::MAX))
    }

    /// Called for a page that [`Content::next_doubtful`] skipped, but that was read anyway and differs from the base.
    /// Errors: [`Error::Base`] if nothing explains the difference.
    fn explain(&self, _page: &[u8], _offset: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the range can be read from memory at once. Opens the file.
    fn is_cached(&self, range: Range<u64>) -> bool;

    /// The first range at or after `offset` that may hold data, cut to the entry's length; `None` if only a hole
    /// follows. Opens the file if necessary.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error>;

    /// Must be called once, after everything was read: how the file changed meanwhile. Closes descriptors unless the
    /// source must keep them.
    fn settle(&self) -> Result<Option<Change>, Error>;
}

/// Facts about a source that are known at the end of the backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceSummary {
    /// Losses of the copy, and reasons why it may differ from the source.
    pub warnings: Vec<String>,
    /// Facts that are worth knowing although nothing is wrong: sockets that were left out, the log's growth.
    pub notes: Vec<String>,
    /// Whether something is damaged in the source, e.g. a page with a wrong checksum. The warnings give details.
    pub damaged: bool,
    /// The first name that the source has and the copy lacks, because its path is too long or too deep; `damaged` is
    /// then set too.
    pub left_out: Option<PathBuf>,
    /// The first name that was listed and gone before it was looked at; `damaged` is then set too.
    pub vanished: Option<PathBuf>,
    pub log: Option<LogEnd>,
    /// A time at which the copy was complete, by the server's clock, which also dates commits; microseconds since the
    /// Unix epoch. `None`: there is no server, or it could not be asked.
    pub complete_us: Option<i64>,
    /// How the replay of a standby is; `None`: the source is no standby, or could not be asked.
    pub standby: Option<StandbyState>,
}

/// The directory whose content a source's entries are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SourceRoot {
    /// A source of which nothing like it is kept.
    #[default]
    Unknown,
    /// The entries are single files, or of several paths.
    None,
    /// A directory: what it has besides its content.
    Dir { stat: Stat, xattrs: Vec<Xattr> },
}

/// An opened database or directory. The tests in `tests/contract/suite.rs` check the text of this trait, [`Entry`] and
/// [`Content`].
pub trait Source: Send + Sync {
    /// The facts known when the source was opened. Constant; reads nothing.
    fn description(&self) -> &Description;

    /// The directory whose content the entries are, as it was when the source was opened. Constant; reads nothing.
    fn root(&self) -> SourceRoot {
        SourceRoot::Unknown
    }

    /// The next entry of volume `volume` (an index into [`Description::volumes`]); `None` at its end, from then on, and for
    /// a volume that there is not. Each path comes once. Called under a lock; does no bulk reading.
    fn next(&self, volume: usize) -> Result<Option<Entry>, Error>;

    /// Called once, when every volume has ended and every content was settled. Prepares entries that are only known
    /// now (PostgreSQL's backup label, control file, WAL). If it returns true, `next` has more entries for volume 0.
    fn epilogue(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Ends the snapshot. Must be called after every content was settled.
    fn finish(self: Box<Self>) -> Result<SourceSummary, Error>;
}

/// How much a database's own check looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckDepth {
    /// Pages and rows, NOT NULL and UNIQUE, and whether each index has what its table has.
    Full,
    /// Pages and rows only.
    Physical,
}

/// The result of a cluster's check of itself.
#[derive(Debug, Clone, Default)]
pub struct ClusterCheck {
    /// Damage, in the server's words, with its database and relation.
    pub findings: Vec<String>,
    /// Databases without the extension amcheck. If there are any, nothing was checked.
    pub without_extension: Vec<String>,
    /// Indexes that were not checked: that would call functions of users.
    pub indexes_left_out: u64,
}
