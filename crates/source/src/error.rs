//! Why a source cannot be read.

use std::path::PathBuf;

use longshore_pg::wal::NotRecords;
use longshore_pg::{ControlError, client};

use crate::majors::{MAJOR_MAX, MAJOR_MIN};

/// Every variant names the file an operator must look at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },

    /// Bytes that were there when the file was looked at cannot be read.
    #[error("cannot read {} at byte {offset}", path.display())]
    Read {
        path: PathBuf,
        offset: u64,
        source: std::io::Error,
    },

    /// What was given names no source.
    #[error("{text:?} names no source: {reason}")]
    Spec { text: String, reason: &'static str },

    /// A socket, FIFO or device where a file or directory was expected.
    #[error("{} is neither a file nor a directory", path.display())]
    NotAFile { path: PathBuf },

    /// A path alone that is the data directory of a server at work.
    #[error("a PostgreSQL server runs in {}, or was killed there: a copy of its files would be no backup", path.display())]
    RunningServer { path: PathBuf },

    /// Two roots would be restored to the same name.
    #[error("{} and {} would both be backed up as {}", first.display(), second.display(), name.display())]
    RootsCollide {
        name: PathBuf,
        first: PathBuf,
        second: PathBuf,
    },

    /// A directory tree deeper than this program follows, e.g. one that contains itself by a mount.
    #[error("{} lies deeper than {levels_max} directories", path.display())]
    TooDeep { path: PathBuf, levels_max: usize },

    /// A running snapshot and another reader in this process exclude each other.
    #[error("{} is being read by another backup in this process", path.display())]
    InUse { path: PathBuf },

    /// SQLite refused. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} {}", path.display())]
    Sqlite {
        action: &'static str,
        path: PathBuf,
        source: rusqlite::Error,
    },

    /// Not SQLite, or encrypted, or damaged in its first page.
    #[error("{} is not a readable SQLite database", path.display())]
    NotADatabase { path: PathBuf },

    /// Writers left no moment for a read transaction.
    #[error("{} stayed locked for {waited_s} seconds", path.display())]
    Busy { path: PathBuf, waited_s: u64 },

    /// A writer died in a transaction, and what it did cannot be left out without writing to the
    /// source, which a backup does not.
    #[error("{} has an unfinished transaction in its rollback journal, which has to be rolled back: {what}", path.display())]
    HotJournal { path: PathBuf, what: &'static str },

    /// The rollback journal of a writer that died no longer holds what it held.
    #[error("{} at byte {offset}: the rollback journal changed while it was read", path.display())]
    JournalChanged { path: PathBuf, offset: u64 },

    /// Its programs may come by another machine or another mount, which locks and shared memory do not reach: a copy
    /// would be torn, and a program that uses a write-ahead log would die.
    #[error("{} lies on a file system (network, FUSE) whose locks may not reach every program that writes to it", path.display())]
    LocksNotKept { path: PathBuf },

    /// The name now belongs to another file than the one opened.
    #[error("{} was replaced while it was being opened", path.display())]
    Replaced { path: PathBuf },

    /// A database that could only be read without a lock was written to meanwhile.
    #[error("{} was written to while it was read without a lock", path.display())]
    ChangedUnlocked { path: PathBuf },

    /// A writer that does not lock, or whose locks do not reach us.
    #[error("{} was written to while SQLite's lock on it was held", path.display())]
    ChangedLocked { path: PathBuf },

    /// The write-ahead log does not hold what its index promised.
    #[error("{} at byte {offset}: the write-ahead log does not match the snapshot", path.display())]
    WalDamaged { path: PathBuf, offset: u64 },

    /// More log than this program keeps an index of in memory.
    #[error("{}: {frames} pages of write-ahead log wait for a checkpoint, {frames_max} is the limit", path.display())]
    WalTooLong {
        path: PathBuf,
        frames: u32,
        frames_max: u32,
    },

    /// The write-ahead log grew more than was allowed while the snapshot held it.
    #[error("{} grew by {grown_bytes} bytes during the backup, {limit_bytes} is the limit", path.display())]
    WalLimit {
        path: PathBuf,
        grown_bytes: u64,
        limit_bytes: u64,
    },

    /// The connection could not be opened, or the server refused. The cause is in `source()`.
    #[error("cannot {action} the PostgreSQL server")]
    Server {
        action: &'static str,
        source: Box<client::Error>,
    },

    /// The session that began the backup ended, and with it the server's knowledge of the backup.
    #[error("the session of the backup at {address} has ended: the backup is not valid")]
    SessionLost {
        address: String,
        source: Box<client::Error>,
    },

    /// The server answered something that cannot be used.
    #[error("the server gave {what} as {text:?}")]
    ServerSaid { what: &'static str, text: String },

    /// A major that was never tried.
    #[error("the server is PostgreSQL {major}; {MAJOR_MIN} to {MAJOR_MAX} are supported")]
    ServerMajor { major: u32 },

    /// A standby writes no log of its own.
    #[error("the server is a standby: the log of its primary is backed up")]
    LogOfStandby,

    #[error("the server's wal_level is minimal: its log cannot make a backup consistent")]
    WalLevel,

    /// The directory is not the one of the server that answered.
    #[error("{} is not the data directory of the server that answered: {what}", path.display())]
    DataDirectory { path: PathBuf, what: &'static str },

    /// A control file that cannot be used.
    #[error("{} cannot be used", path.display())]
    Control { path: PathBuf, source: ControlError },

    /// A link where the server's data should be.
    #[error("{} is a symbolic link, and what it stands for would be left out", path.display())]
    LinkedData { path: PathBuf },

    /// A page whose checksum is wrong, and that the log does not make good.
    #[error("{}: block {block} is damaged: checksum {found:#06x}, not {expected:#06x}", path.display())]
    BadPage {
        path: PathBuf,
        block: u64,
        expected: u16,
        found: u16,
    },

    /// The standby followed its primary onto another timeline meanwhile.
    #[error("the cluster went from timeline {from} to {to} during the backup")]
    TimelineChanged { from: u32, to: u32 },

    /// The server found them while it sent them.
    #[error("the server found pages with wrong checksums")]
    BadPages,

    /// A segment of the log that the backup needs is gone or too short.
    #[error("the log segment {} is missing, and without it the backup is worthless", path.display())]
    SegmentMissing { path: PathBuf },

    /// A segment of the log that the backup needs does not hold it up to the backup's end.
    #[error("the log segment {} is not whole, and without it the backup is worthless", path.display())]
    SegmentNotWhole { path: PathBuf, source: NotRecords },

    /// The set that was to be the base of a differential backup cannot be it.
    #[error("the backup cannot differ from this base")]
    Base { source: BaseRefusal },

    /// The snapshot has ended; what is read now could be anything.
    #[error("the snapshot of {} has ended", path.display())]
    Ended { path: PathBuf },
}

/// Why a set cannot be the base of this backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseRefusal {
    #[error("it is of another cluster: the system identifiers differ")]
    OtherCluster,
    /// The summaries of the log cannot be relied on.
    #[error(
        "page {block} of {} is not what the base holds, and the server's WAL summaries do not name it", path.display()
    )]
    NotNamed { path: PathBuf, block: u64 },
    #[error("the server sends its files itself, and sends them whole")]
    Remote,
}

impl BaseRefusal {
    fn hint(&self) -> &'static str {
        match self {
            BaseRefusal::OtherCluster => {
                "make a full backup, on which later ones can build; --or-full does so by itself"
            }
            BaseRefusal::NotNamed { .. } => {
                "make a full backup now (--or-full does so by itself); with ALTER SYSTEM SET summarize_wal = off every page is read"
            }
            BaseRefusal::Remote => {
                "run the backup on the server's machine as a user who may read its data directory, or make a full one"
            }
        }
    }
}

impl Error {
    /// What the operator can do now, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { .. } => "check that the path exists and that this user may read it",
            Error::Read { .. } => {
                "check the disk and its kernel messages; the file cannot be read there"
            }
            Error::Spec { .. } => {
                "write sqlite:FILE, files:PATH..., postgres://..., or just a path"
            }
            Error::NotAFile { .. } => "name a regular file or a directory",
            Error::RunningServer { .. } => {
                "name the server, as in postgres:///postgres?host=/var/run/postgresql; once it is stopped, or for a snapshot of its file system: files:PATH"
            }
            Error::RootsCollide { .. } => {
                "back them up separately, or name the directory that holds both"
            }
            Error::TooDeep { .. } => {
                "back up a directory further down, or look for a mount inside itself"
            }
            Error::InUse { .. } => "wait until the other backup of this database has ended",
            Error::Sqlite { .. } => "check the database with: sqlite3 FILE 'PRAGMA quick_check'",
            Error::NotADatabase { .. } => {
                "if it is encrypted or of another kind, stop its application and back it up as files:FILE"
            }
            Error::Busy { .. } => "look for a long write transaction, or allow a longer wait",
            Error::HotJournal { .. } => {
                "open the database once with its application, or with sqlite3 FILE 'SELECT 1 FROM sqlite_schema', which rolls the journal back; then back up again"
            }
            Error::LocksNotKept { .. } => {
                "run the backup where the file lies on a local disk, by the path that its programs use; where all of them use this very mount on this machine, add --trust-locks, or `trust_locks = true` to its [database.NAME]"
            }
            Error::Replaced { .. } | Error::JournalChanged { .. } => "run the backup again",
            Error::ChangedUnlocked { .. } => {
                "run the backup as the owner of the database, so that it can take part in locking"
            }
            Error::ChangedLocked { .. } => {
                "run the backup on the machine of its programs, by the path that they use; a program that does not lock (nolock=1, unix-none) has to be stopped meanwhile"
            }
            Error::WalDamaged { .. } => {
                "check the database with: sqlite3 FILE 'PRAGMA integrity_check'; was its -wal file replaced?"
            }
            Error::WalTooLong { .. } => "run PRAGMA wal_checkpoint(TRUNCATE) in the database first",
            Error::WalLimit { .. } => {
                "back up in a quieter hour or to faster devices, or allow more growth"
            }
            Error::Server { source, .. } => source.hint(),
            Error::SessionLost { .. } => {
                "run the backup again; the server's log says why the session ended"
            }
            Error::ServerSaid { .. } => "is this a PostgreSQL server, without a pooler in between?",
            Error::ServerMajor { .. } => "use a version of this program that knows that major",
            Error::LogOfStandby => "connect to the primary",
            Error::WalLevel => "set wal_level = replica and restart the server",
            Error::DataDirectory { .. } => {
                "run the backup on the server's machine, or use --remote"
            }
            Error::Control { source, .. } => source.hint(),
            Error::LinkedData { .. } => {
                "mount the other file system there, or use a tablespace for it"
            }
            Error::BadPages => "the server's log names them",
            Error::BadPage { .. } => {
                "restore the page from an older backup; pg_amcheck tells what is in it"
            }
            Error::TimelineChanged { .. } => "run the backup again",
            Error::SegmentMissing { .. } => {
                "let the role make replication slots (REPLICATION), or raise wal_keep_size"
            }
            Error::SegmentNotWhole { .. } => {
                "back up again; if it comes again the log on the server's disk is damaged: look at it with pg_waldump"
            }
            Error::Base { source } => source.hint(),
            Error::Ended { .. } => "this is a mistake in the program: report it",
        }
    }
}

/// An error and what caused it, on one line.
pub(crate) fn with_cause(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
