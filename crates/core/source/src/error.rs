//! Errors in reading a source.
//!
//! Invariants
//! - Every variant names the file that an operator must look at, and there is one for each remedy.
//! - A file that changes or vanishes during a backup is no error here: it is reported as a mark, and the request
//!   decides.
//!
//! Leaves to others: exit codes (`longshore-terminal`), and the messages of statements (`longshore-tsql`).

use std::path::PathBuf;

use longshore_pg::wal::NotRecords;
use longshore_pg::{ControlError, client};

use crate::majors::{MAJOR_MAX, MAJOR_MIN};

/// Every variant names the file that an operator must look at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },

    /// Bytes that existed when the file was listed cannot be read.
    #[error("cannot read {} at byte {offset}", path.display())]
    Read {
        path: PathBuf,
        offset: u64,
        source: std::io::Error,
    },

    /// The text does not name a source.
    #[error("{text:?} is not a source: {reason}")]
    Spec { text: String, reason: &'static str },

    /// A socket, FIFO or device instead of a file or directory.
    #[error("{} is neither a file nor a directory", path.display())]
    NotAFile { path: PathBuf },

    /// The data directory of a running server, named as a plain path, or found among files where that is refused.
    #[error("a PostgreSQL server runs in {}, or was killed there: a copy of its files would not be a backup", path.display())]
    RunningServer { path: PathBuf },

    /// Some names of the tree would be the restore's, and others those that it replaces.
    #[error("a restore into {} is running: a backup would mix files of before and after it", path.display())]
    BeingRestored { path: PathBuf },

    /// Another directory has the name now, as after a restore.
    #[error("{} was replaced while it was backed up", path.display())]
    TreeReplaced { path: PathBuf },

    /// Two roots would be restored to the same name.
    #[error("{} and {} would both be backed up as {}", first.display(), second.display(), name.display())]
    RootsCollide {
        name: PathBuf,
        first: PathBuf,
        second: PathBuf,
    },

    /// A directory tree deeper than this program follows, e.g. one that contains itself through a mount.
    #[error("{} is below more than {levels_max} directories", path.display())]
    TooDeep { path: PathBuf, levels_max: usize },

    /// A snapshot and another reader of the same file in this process exclude each other.
    #[error("{} is being read by another backup in this process", path.display())]
    InUse { path: PathBuf },

    /// SQLite returned an error. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} {}", path.display())]
    Sqlite {
        action: &'static str,
        path: PathBuf,
        source: rusqlite::Error,
    },

    /// Not SQLite, or encrypted, or damaged in its first page.
    #[error("{} is not a readable SQLite database", path.display())]
    NotADatabase { path: PathBuf },

    /// SQLite opens a file of this name by itself: a FIFO there stops it for good.
    #[error("{} is not a regular file, and SQLite would open it", path.display())]
    NotACompanion { path: PathBuf },

    /// Writers held their locks for the whole waiting time.
    #[error("{} stayed locked for {waited_s} seconds", path.display())]
    Busy { path: PathBuf, waited_s: u64 },

    /// A writer died in a transaction. Rolling it back would write to the source, which a backup does not do.
    #[error("{} has an unfinished transaction in its rollback journal, which must be rolled back: {what}", path.display())]
    HotJournal { path: PathBuf, what: &'static str },

    /// The rollback journal of a dead writer changed after it was read.
    #[error("{} at byte {offset}: the rollback journal changed while it was read", path.display())]
    JournalChanged { path: PathBuf, offset: u64 },

    /// Programs may reach the database through another machine or another mount, beyond the reach of locks and shared
    /// memory: a copy would be torn, and a program that uses a write-ahead log would crash.
    #[error("{} is on a file system (network, FUSE) whose locks may not reach every program that writes to it", path.display())]
    LocksNotKept { path: PathBuf },

    /// The name now refers to a file other than the one opened.
    #[error("{} was replaced while it was being opened", path.display())]
    Replaced { path: PathBuf },

    /// A database that could only be read without a lock was written during the backup.
    #[error("{} was written to while it was read without a lock", path.display())]
    ChangedUnlocked { path: PathBuf },

    /// A writer uses no locks, or its locks are not visible to us, or it has the log of another name of the file.
    #[error("{} was written to while SQLite's lock on it was held", path.display())]
    ChangedLocked { path: PathBuf },

    /// The write-ahead log does not contain what its index says.
    #[error("{} at byte {offset}: the write-ahead log does not match the snapshot", path.display())]
    WalDamaged { path: PathBuf, offset: u64 },

    /// The write-ahead log is longer than the index that this program keeps in memory.
    #[error("{}: {frames} pages of the write-ahead log wait for a checkpoint; the limit is {frames_max}", path.display())]
    WalTooLong {
        path: PathBuf,
        frames: u32,
        frames_max: u32,
    },

    /// The write-ahead log grew beyond its limit while the snapshot held it.
    #[error("{} grew by {grown_bytes} bytes during the backup; the limit is {limit_bytes}", path.display())]
    WalLimit {
        path: PathBuf,
        grown_bytes: u64,
        limit_bytes: u64,
    },

    /// The connection failed, or the server returned an error. The cause is in `source()`.
    #[error("cannot {action} the PostgreSQL server")]
    Server {
        action: &'static str,
        source: Box<client::Error>,
    },

    /// The session that began the backup ended, and with it the backup on the server.
    #[error("the session of the backup at {address} has ended: the backup is not valid")]
    SessionLost {
        address: String,
        source: Box<client::Error>,
    },

    /// The server's answer cannot be used.
    #[error("the server returned {what} as {text:?}")]
    ServerSaid { what: &'static str, text: String },

    /// A major version that was never tested.
    #[error("the server is PostgreSQL {major}; {MAJOR_MIN} to {MAJOR_MAX} are supported")]
    ServerMajor { major: u32 },

    /// A standby writes no WAL of its own.
    #[error("the server is a standby: log backups are made from its primary")]
    LogOfStandby,

    #[error("the server's wal_level is minimal: its WAL cannot make a backup consistent")]
    WalLevel,

    /// The directory does not belong to the server that answered.
    #[error("{} is not the data directory of the server that answered: {what}", path.display())]
    DataDirectory { path: PathBuf, what: &'static str },

    /// The control file cannot be used.
    #[error("{} cannot be used", path.display())]
    Control { path: PathBuf, source: ControlError },

    /// A symbolic link in place of the server's data.
    #[error("{} is a symbolic link, and its destination would be left out", path.display())]
    LinkedData { path: PathBuf },

    /// A page has a wrong checksum, and the WAL does not restore it.
    #[error("{}: block {block} is damaged: checksum {found:#06x}, not {expected:#06x}", path.display())]
    BadPage {
        path: PathBuf,
        block: u64,
        expected: u16,
        found: u16,
    },

    /// The standby followed its primary onto another timeline during the backup.
    #[error("the cluster went from timeline {from} to {to} during the backup")]
    TimelineChanged { from: u32, to: u32 },

    /// The server found bad pages while it sent its files.
    #[error("the server found pages with wrong checksums")]
    BadPages,

    /// A WAL segment that the backup needs is missing or too short.
    #[error("the WAL segment {} is missing, and the backup is useless without it", path.display())]
    SegmentMissing { path: PathBuf },

    /// A WAL segment that the backup needs does not contain the WAL up to the backup's end.
    #[error("the WAL segment {} is incomplete, and the backup is useless without it", path.display())]
    SegmentNotWhole { path: PathBuf, source: NotRecords },

    /// The set given as the base of a differential backup is not suitable.
    #[error("this base cannot be used for a differential backup")]
    Base { source: BaseRefusal },

    /// The snapshot has ended; bytes read now are not the snapshot's.
    #[error("the snapshot of {} has ended", path.display())]
    Ended { path: PathBuf },
}

/// Why a set cannot be the base of this backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseRefusal {
    #[error("it is of another cluster: the system identifiers differ")]
    OtherCluster,
    /// The WAL summaries are not reliable.
    #[error(
        "page {block} of {} differs from the base, but the server's WAL summaries do not name it", path.display()
    )]
    NotNamed { path: PathBuf, block: u64 },
    #[error("the server sends its files itself, and always sends them whole")]
    Remote,
}

impl BaseRefusal {
    fn hint(&self) -> &'static str {
        match self {
            BaseRefusal::OtherCluster => {
                "make a full backup as a base for later ones; --or-full does that automatically"
            }
            BaseRefusal::NotNamed { .. } => {
                "make a full backup now (--or-full does that automatically); with ALTER SYSTEM SET summarize_wal = off every page is read"
            }
            BaseRefusal::Remote => {
                "run the backup on the server's machine as a user who can read its data directory, or make a full backup"
            }
        }
    }
}

impl Error {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { .. } => "check that the path exists and that this user can read it",
            Error::Read { .. } => {
                "check the disk and the kernel's messages; the file cannot be read at that offset"
            }
            Error::Spec { .. } => {
                "write sqlite:FILE, files:PATH..., postgres://..., or just a path"
            }
            Error::NotAFile { .. } => "name a regular file or a directory",
            Error::RunningServer { .. } => {
                "name the server, as in postgres:///postgres?host=/var/run/postgresql; use files:PATH if the server is stopped, or for a snapshot of its file system"
            }
            Error::RootsCollide { .. } => {
                "back them up separately, or name the directory that holds both"
            }
            Error::TooDeep { .. } => {
                "back up a directory further down, or check for a mount inside itself"
            }
            Error::InUse { .. } => "wait until the other backup of this database has ended",
            Error::Sqlite { .. } => "check the database with: sqlite3 FILE 'PRAGMA quick_check'",
            Error::NotADatabase { .. } => {
                "if it is encrypted or of another kind, stop its application and back it up as files:FILE"
            }
            Error::NotACompanion { .. } => {
                "see with `ls -l` what it is, move it away, and run the backup again"
            }
            Error::Busy { .. } => {
                "look for a long write transaction in its programs; run the backup again when it has ended"
            }
            Error::HotJournal { .. } => {
                "open the database once with its application, or with sqlite3 FILE 'SELECT 1 FROM sqlite_schema', which rolls the journal back; then back up again"
            }
            Error::LocksNotKept { .. } => {
                "run the backup on the machine where the file is on a local disk, with the path that its programs use; if all of them use this mount on this machine, add --trust-locks, or `trust_locks = true` to its [database.NAME]"
            }
            Error::BeingRestored { .. } => {
                "wait until the restore has ended, and run the backup again"
            }
            Error::Replaced { .. } | Error::TreeReplaced { .. } | Error::JournalChanged { .. } => {
                "run the backup again"
            }
            Error::ChangedUnlocked { .. } => {
                "run the backup as the owner of the database, so that it can lock the database"
            }
            Error::ChangedLocked { .. } => {
                "run the backup on the machine of its programs, with the path that they use: another name of the file, a hard link or a mount of it, has another log; first stop any program that does not lock (nolock=1, unix-none)"
            }
            Error::WalDamaged { .. } => {
                "check the database with: sqlite3 FILE 'PRAGMA integrity_check'; was its -wal file replaced?"
            }
            Error::WalTooLong { .. } => "run PRAGMA wal_checkpoint(TRUNCATE) in the database first",
            Error::WalLimit { .. } => {
                "back up at a quieter time or to faster devices, or allow more growth"
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
            Error::LinkedData { .. } => "mount the other file system there, or use a tablespace",
            Error::BadPages => "the server's log names them",
            Error::BadPage { .. } => {
                "restore the page from an older backup; pg_amcheck shows the damage"
            }
            Error::TimelineChanged { .. } => "run the backup again",
            Error::SegmentMissing { .. } => {
                "allow the role to create replication slots (REPLICATION), or raise wal_keep_size"
            }
            Error::SegmentNotWhole { .. } => {
                "run the backup again; if the error returns, the WAL on the server's disk is damaged: check it with pg_waldump"
            }
            Error::Base { source } => source.hint(),
            Error::Ended { .. } => "this is a bug in the program: report it",
        }
    }
}

/// An error and its causes, on one line.
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
