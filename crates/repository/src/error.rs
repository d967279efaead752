//! Why a target cannot be used.

use std::io;
use std::path::PathBuf;

use crate::chain::BrokenChain;
use crate::recover::Passed;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory of the target is not there. Never created: an unmounted disk's mount point would be filled.
    #[error("target {target}: cannot open the directory {}", path.display())]
    Unreachable {
        target: String,
        path: PathBuf,
        source: io::Error,
    },

    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// What is written through a link lies where nobody who reads the target looks, and where somebody else wants it.
    #[error("target {target}: {} is a symbolic link or no directory", path.display())]
    NotADirectory { target: String, path: PathBuf },

    #[error("{name:?} cannot be a directory below target {target}: {what}")]
    Name {
        target: String,
        name: String,
        what: &'static str,
    },

    #[error("target {target} holds no backup of {database} that could be restored")]
    Nothing { target: String, database: String },

    #[error("target {target} holds no backup {label} of {database}")]
    NoSuchLabel {
        target: String,
        database: String,
        label: String,
    },

    #[error(
        "target {target} holds no backup of {database} that a differential one can build on: {reasons}"
    )]
    NoBase {
        target: String,
        database: String,
        reasons: String,
    },

    #[error("backup {label} of {database} cannot be restored: {what}")]
    NotWhole {
        database: String,
        label: String,
        what: String,
        number: Option<u32>,
    },

    /// Backups of several branches, of which none is known to be the one that is meant.
    #[error(
        "target {target} holds backups of {database} of {} branches or clusters, and nothing tells which is meant: {}",
        branches.len(),
        branches.join("; ")
    )]
    Branches {
        target: String,
        database: String,
        /// The newest label of each, and what is known of it.
        branches: Vec<String>,
    },

    /// None of the backups leads to where a recovery is to end.
    #[error("no backup of {database} at target {target} can be brought to {wish}{}", passed(passed_over, *later))]
    NoneBefore {
        target: String,
        database: String,
        wish: String,
        passed_over: Vec<Passed>,
        later: usize,
    },

    /// A recovery needs log, and there is no archive.
    #[error("the log of {database} is needed to bring its backup to {wish}, and there is no archive {}", path.display())]
    NoLog {
        database: String,
        wish: String,
        path: PathBuf,
    },

    #[error("the backup's chain does not hold")]
    Chain(#[from] BrokenChain),

    #[error(transparent)]
    Wal(#[from] crate::wal::Error),

    /// Another expire, or what an expire must not disturb.
    #[error("{} is in use: {holder}", path.display())]
    Busy { path: PathBuf, holder: String },
}

impl Error {
    /// SQL Server's message number for the same refusal.
    pub fn number(&self) -> Option<u32> {
        match self {
            Error::Unreachable { .. } | Error::Nothing { .. } | Error::NoSuchLabel { .. } => {
                Some(3201)
            }
            Error::NotWhole { number, .. } => *number,
            // STOPAT is too early.
            Error::NoneBefore { later: 1.., .. } => Some(4335),
            Error::Chain(_) => Some(3136),
            Error::NoBase { .. } => Some(3035),
            Error::Busy { .. } => Some(3023),
            Error::NoneBefore { .. }
            | Error::Branches { .. }
            | Error::Io { .. }
            | Error::NotADirectory { .. }
            | Error::Name { .. }
            | Error::NoLog { .. }
            | Error::Wal(_) => None,
        }
    }

    /// What the operator can do now, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Unreachable { .. } => "is the disk mounted? A target's directories must exist",
            Error::Io { .. } => "check the directory, its free space and its permissions",
            Error::NotADirectory { .. } => {
                "remove the link and move the directory there, or name the place it leads to as a target of its own"
            }
            Error::Name { .. } => "give another name with --database",
            Error::NoBase { .. } => {
                "make a full backup, on which later ones can build; --or-full does so by itself"
            }
            Error::Branches { .. } => {
                "name the backup with --label LABEL; `longshore info` shows the branch of each. If a copy writes to this \
                 target, give it another one"
            }
            Error::Nothing { .. } => "`longshore info` shows what the target holds",
            Error::NoSuchLabel { .. } => "`longshore list --target` shows the labels there are",
            Error::NotWhole { .. } | Error::Chain(_) => {
                "choose another with --label; `longshore info` shows the state of each"
            }
            Error::NoneBefore { later: 0, .. } => {
                "`longshore info` shows the state of each backup; --target-timeline chooses another history"
            }
            Error::NoneBefore { .. } => {
                "choose a later target; `longshore info` shows when each backup was complete"
            }
            Error::NoLog { .. } => {
                "is the archive's file system mounted? Name another archive with --wal-archive, or leave the target out"
            }
            Error::Wal(e) => e.hint(),
            Error::Busy { .. } => "wait until the other run has ended",
        }
    }
}

/// Why each was not taken.
fn passed(passed_over: &[Passed], later: usize) -> String {
    let mut text = match later {
        0 => String::new(),
        1 => "; one was complete only later".to_owned(),
        n => format!("; {n} were complete only later"),
    };
    for Passed { label, why } in passed_over {
        text += &format!("; {label} is passed over: {why}");
    }
    text
}
