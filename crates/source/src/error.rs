//! Why a source cannot be read.

use std::path::PathBuf;

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
<<<<<<< HEAD
=======

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

    /// A writer died in a transaction. Its journal must be rolled back before anyone reads, and a
    /// backup does not write to its source.
    #[error("{} has an unfinished transaction in its rollback journal", path.display())]
    HotJournal { path: PathBuf },

    /// File locks and shared memory do not reach other machines.
    #[error("{} lies on a network file system", path.display())]
    NetworkFileSystem { path: PathBuf },

    /// The name now belongs to another file than the one opened.
    #[error("{} was replaced while it was being opened", path.display())]
    Replaced { path: PathBuf },

    /// A database that could only be read without a lock was written to meanwhile.
    #[error("{} was written to while it was read without a lock", path.display())]
    ChangedUnlocked { path: PathBuf },

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

    /// The snapshot has ended; what is read now could be anything.
    #[error("the snapshot of {} has ended", path.display())]
    Ended { path: PathBuf },
>>>>>>> h/source
}

impl Error {
    /// What the operator can do now, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { .. } => "check that the path exists and that this user may read it",
            Error::Read { .. } => {
                "check the disk and its kernel messages; the file cannot be read there"
            }
            Error::Spec { .. } => "write sqlite:FILE, files:PATH..., or just a path",
            Error::NotAFile { .. } => "name a regular file or a directory",
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
            Error::NetworkFileSystem { .. } => "run the backup on the machine that holds the file",
            Error::Replaced { .. } => "run the backup again",
            Error::ChangedUnlocked { .. } => {
                "run the backup as the owner of the database, so that it can take part in locking"
            }
            Error::WalDamaged { .. } => {
                "check the database with: sqlite3 FILE 'PRAGMA integrity_check'; was its -wal file replaced?"
            }
            Error::WalTooLong { .. } => "run PRAGMA wal_checkpoint(TRUNCATE) in the database first",
            Error::WalLimit { .. } => {
                "back up in a quieter hour or to faster devices, or allow more growth"
            }
            Error::Ended { .. } => "this is a mistake in the program: report it",
        }
    }
}
