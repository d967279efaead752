//! Errors of the catalog.
//!
//! Invariants
//! - There is one variant for each remedy: two failures with the same next command are one variant.
//! - Every error has SQL Server's number and a next step; one about the file names its path.
//! - A catalog that does not exist yet is no error, it is created.
//!
//! Leaves to others: exit codes (the programs). No variant fails a backup or a restore: the callers warn with the text
//! and the hint.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path cannot be a catalog: its directory cannot be created, or it is not a regular file.
    #[error("cannot {action} {}", path.display())]
    Path {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("cannot open the catalog {}", path.display())]
    Open {
        path: PathBuf,
        source: rusqlite::Error,
    },

    #[error("the catalog {} stayed locked by another program", path.display())]
    Locked { path: PathBuf },

    #[error("the catalog {} is damaged", path.display())]
    Corrupt {
        path: PathBuf,
        source: rusqlite::Error,
    },

    #[error("the catalog {} cannot be written", path.display())]
    ReadOnly { path: PathBuf },

    #[error("no space is left for the catalog {}", path.display())]
    Full { path: PathBuf },

    #[error("reading or writing the catalog {} failed", path.display())]
    Io {
        path: PathBuf,
        source: rusqlite::Error,
    },

    /// The catalog was deleted or replaced since it was opened; writes to it would be lost.
    #[error("the catalog {} is no longer the file that was opened", path.display())]
    Vanished { path: PathBuf },

    /// Writes to it would change its other names too, e.g. those of a `cp -al` copy.
    #[error("the catalog {} has other names (hard links)", path.display())]
    Shared { path: PathBuf },

    #[error("{} is a database, but not a Longshore catalog", path.display())]
    Foreign { path: PathBuf },

    #[error("the catalog {} has schema {found}; this version knows up to {known}", path.display())]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
    },

    /// The media to relearn could not be read.
    #[error(transparent)]
    Media(#[from] longshore_media::Error),

    /// The file of the key that seals credentials.
    #[error("the service key {} cannot be used: {why}", path.display())]
    ServiceKey { path: PathBuf, why: String },

    /// The master key and the certificates are not those that were stored last: rows were changed, swapped or put back.
    #[error("the master key and the certificates of the catalog are not those that {} knows", path.display())]
    KeysChanged { path: PathBuf },

    #[error("the configuration option '{name}' does not exist")]
    UnknownSetting { name: String },

    #[error("'{value}' is not a valid value for configuration option '{name}' ({min} to {max})")]
    SettingRange {
        name: &'static str,
        value: i64,
        min: i64,
        max: i64,
    },
}

impl Error {
    /// SQL Server's message number for this error.
    pub fn number(&self) -> Option<u32> {
        match self {
            Error::Path { .. }
            | Error::Open { .. }
            | Error::Locked { .. }
            | Error::Corrupt { .. }
            | Error::ReadOnly { .. }
            | Error::Full { .. }
            | Error::Io { .. }
            | Error::Vanished { .. }
            | Error::Shared { .. }
            | Error::Foreign { .. }
            | Error::Newer { .. } => Some(3009),
            Error::Media(e) => e.number(),
            Error::ServiceKey { .. } | Error::KeysChanged { .. } => None,
            Error::UnknownSetting { .. } => Some(15123),
            Error::SettingRange { .. } => Some(15129),
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Path { .. } | Error::Open { .. } | Error::ReadOnly { .. } => {
                "check the path and its permissions, or set LONGSHORE_CATALOG to another one"
            }
            Error::Locked { .. } => {
                "stop the program that holds it, then run `longshore catalog rebuild` with the backup's devices"
            }
            Error::Corrupt { .. } => {
                "run `longshore catalog rebuild` with your backups' devices: it renames the damaged file and reads the backups again"
            }
            Error::Full { .. } => {
                "free some space, then run `longshore catalog rebuild` with the backup's devices"
            }
            Error::Io { .. } | Error::Vanished { .. } => {
                "check the disk, then run `longshore catalog rebuild` with the backup's devices"
            }
            Error::Shared { .. } => {
                "make it a file of its own (cp CATALOG CATALOG.new && mv CATALOG.new CATALOG), then run `longshore catalog rebuild` with the backup's devices"
            }
            Error::Foreign { .. } => "set LONGSHORE_CATALOG to a path of its own",
            Error::Newer { .. } => "use the version that wrote it, or a later one",
            Error::Media(e) => e.hint(),
            Error::UnknownSetting { .. } => {
                "the options are backup compression default, backup compression algorithm, backup checksum default, hardware offload enabled, hardware offload mode, media retention, show advanced options"
            }
            Error::SettingRange { .. } => "choose a value in the range",
            Error::KeysChanged { .. } => {
                "find out who changed the catalog; if you brought an older copy of it back yourself, compare sys.certificates with \
                 your copies of the certificates, then remove the second line of this file"
            }
            Error::ServiceKey { .. } => {
                "bring the key's file back, readable by its owner alone (chmod 600); if it is lost, DROP each of sys.credentials and sys.certificates and the master key, remove the file, and CREATE them again, certificates FROM FILE"
            }
        }
    }

    /// Classifies SQLite's errors by what a user can do about them.
    pub(crate) fn sql(path: &Path, source: rusqlite::Error) -> Error {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::ReadOnly { path },
            Some(ErrorCode::DiskFull) => Error::Full { path },
            Some(ErrorCode::CannotOpen) => Error::Open { path, source },
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed,
            ) => Error::Io { path, source },
            // The statements are fixed, so any other failure is caused by the file's contents: a table is missing, a
            // column has another type, a reference leads nowhere.
            _ => Error::Corrupt { path, source },
        }
    }
}
