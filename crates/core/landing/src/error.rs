//! Why a restore's target cannot be written.
//!
//! Invariants
//! - There is one variant for each remedy: free space, another directory, `--replace`, or stopping a program. Each
//!   names the path and has its next step ([`Error::hint`]).
//! - A refusal comes before the first name in the target changes; after it, whatever fails, the old names go back.
//!
//! Leaves to others: clusters (`cluster_error.rs`), and exit codes (`longshore-terminal`). SQL Server's number is for
//! T-SQL.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::cluster_error::ClusterError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Refused even with `--replace`.
    #[error("{} is, or is in, {what}, which a restore never replaces", path.display())]
    TargetKept { path: PathBuf, what: &'static str },

    /// The operating system returned an error at the restore target.
    #[error("cannot {action} {}", plain(path))]
    Target {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },

    /// A target, or a directory above it, is a symbolic link whose own target does not exist.
    #[error("{} is a symbolic link to a path that does not exist", path.display())]
    DeadLink { path: PathBuf },

    #[error("{} already exists", path.display())]
    TargetExists { path: PathBuf },

    /// An existing name that no restore replaces: a tablespace's directory, or one of the restore's own names.
    #[error("{} already exists, and a restore never replaces it", path.display())]
    TargetTaken { path: PathBuf },

    /// A mount point at, below or above a place that the restore takes.
    #[error("{} is a mount point: a restore neither removes nor enters another file system there", path.display())]
    Mounted { path: PathBuf },

    /// SQLite would apply it to that database.
    #[error("{} would be taken for the log of {}, which the restore does not bring", path.display(), database.display())]
    ForeignLog { path: PathBuf, database: PathBuf },

    /// The programs that use the database would go on with it, and find another one by this name.
    #[error("{} is a symbolic link to the database {}, which a restore of this name would leave behind", path.display(), real.display())]
    DatabaseLinked { path: PathBuf, real: PathBuf },

    /// A restore that did not end left names of its own and kept the old ones; they cannot go back by themselves.
    #[error("a restore there was ended while it gave files their names, and {} {what}", path.display())]
    KilledRestore { path: PathBuf, what: &'static str },

    #[error("another restore into {} is running", path.display())]
    TargetBusy { path: PathBuf },

    /// The backup would have some names of before the restore, and others of after it.
    #[error("a backup of {} is running", path.display())]
    TargetRead { path: PathBuf },

    /// Commits of the programs that use it would be lost.
    #[error("the database {} is in use: {how}", path.display())]
    DatabaseInUse { path: PathBuf, how: &'static str },

    /// Locks and open files of other machines and mounts are not visible.
    #[error("on the file system of the database {} (network, FUSE) it is unknown whether a program uses it", path.display())]
    DatabaseUseUnknown { path: PathBuf },

    #[error("{} has {free} bytes free, the restore needs {needed}", path.display())]
    TargetFull {
        path: PathBuf,
        free: u64,
        needed: u64,
    },

    #[error("cannot move {} to {}: {what}", from.display(), to.display())]
    BadMove {
        from: PathBuf,
        to: PathBuf,
        what: &'static str,
    },

    #[error(transparent)]
    Cluster(#[from] ClusterError),

    /// The media that describe the files to write cannot be read.
    #[error(transparent)]
    Media(#[from] longshore_media::Error),
}

impl Error {
    /// SQL Server's message number for this error.
    pub fn number(&self) -> Option<u32> {
        match self {
            Error::TargetExists { .. }
            | Error::TargetTaken { .. }
            | Error::KilledRestore { .. } => Some(3142),
            Error::TargetBusy { .. }
            | Error::TargetRead { .. }
            | Error::DatabaseInUse { .. }
            | Error::DatabaseLinked { .. }
            | Error::DatabaseUseUnknown { .. } => Some(3101),
            Error::TargetFull { .. } => Some(3257),
            Error::BadMove { .. }
            | Error::TargetKept { .. }
            | Error::Mounted { .. }
            | Error::ForeignLog { .. }
            | Error::Cluster(
                ClusterError::NoDataDirectory { .. } | ClusterError::NotReplaced { .. },
            ) => Some(3156),
            Error::Cluster(ClusterError::Another { .. }) => Some(1834),
            Error::Media(e) => e.number(),
            Error::Cluster(ClusterError::Running { .. }) => Some(3101),
            Error::Cluster(ClusterError::NotHeld { .. }) => Some(3117),
            Error::Cluster(ClusterError::RestoredLogLost { .. }) => Some(4333),
            Error::Cluster(_) | Error::Target { .. } | Error::DeadLink { .. } => None,
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::TargetKept { .. } => {
                "restore to another directory, and move what you need from there"
            }
            Error::Target { source, .. } => target_hint(source.kind()),
            Error::DeadLink { .. } => {
                "create the directory that the link names (readlink shows it), or restore elsewhere"
            }
            Error::TargetExists { .. } => "restore elsewhere, or use --replace to overwrite it",
            Error::TargetTaken { .. } => {
                "move it away, or restore elsewhere; a tablespace goes to an empty directory (--tablespace-map). Over a cluster's own files restore with --delta"
            }
            Error::Mounted { .. } => {
                "unmount it, or restore elsewhere; to restore into that file system, name its directory with --to"
            }
            Error::ForeignLog { .. } => {
                "restore it to a directory without that database, or its database along with it (--only takes both, --move moves both)"
            }
            Error::DatabaseLinked { .. } => {
                "restore to the directory where the database is, with --move if its name differs; or remove the link first"
            }
            Error::KilledRestore { .. } => {
                "to go back to the old files (.longshore-restoring/old), move that name away and repeat the restore; to keep all that stands there now, remove .longshore-restoring"
            }
            Error::TargetBusy { .. } => {
                "wait until it ends (one that died on another machine or mount counts as running for 15 minutes), or restore elsewhere"
            }
            Error::TargetRead { .. } => {
                "wait until the backup has ended, end it, or restore elsewhere"
            }
            Error::DatabaseInUse { .. } => {
                "stop the programs that use it (fuser FILE names them), restore elsewhere, or give up their commits with --replace-in-use"
            }
            Error::DatabaseUseUnknown { .. } => {
                "stop the programs that use it, then add --replace-in-use or move the old file away first; or restore elsewhere"
            }
            Error::TargetFull { .. } => "free space there, or restore elsewhere",
            Error::BadMove { .. } => {
                "name both sides relative to the target, each once; `longshore list --files` shows the names in the set"
            }
            Error::Cluster(e) => e.hint(),
            Error::Media(e) => e.hint(),
        }
    }
}

/// The error for a system call that failed at `path`.
pub fn at(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Target {
        action,
        path: path.clone(),
        source,
    }
}

/// The hint for an error of the system at a restore's target.
fn target_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotADirectory => {
            "a file is in the way: name a directory, or a path that does not exist"
        }
        ErrorKind::PermissionDenied => {
            "run as a user who can write there, or restore to another directory"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only: mount it read-write, or restore elsewhere"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free space there, or restore elsewhere"
        }
        ErrorKind::FileTooLarge => {
            "raise the limit on a file's size (`ulimit -f`; LimitFSIZE= in a systemd unit), or restore to a file system \
             that takes larger files"
        }
        _ => "check the target directory, its free space and its permissions",
    }
}

/// The path without a slash at its end.
fn plain(path: &Path) -> String {
    path.components().collect::<PathBuf>().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nobody is sent to free space where the limit is on a file's size.
    #[test]
    fn a_file_that_may_not_grow_has_another_next_step_than_a_full_disk() {
        let full = target_hint(ErrorKind::StorageFull);
        assert!(full.contains("free space"), "{full}");
        assert_eq!(target_hint(ErrorKind::QuotaExceeded), full);
        let large = target_hint(ErrorKind::FileTooLarge);
        assert!(large.contains("`ulimit -f`"), "{large}");
        assert!(!large.contains("free space"), "{large}");
    }
}
