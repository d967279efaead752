//! Errors of a target: one type, with SQL Server's number and the operator's next step.
//!
//! Invariants
//! - Every variant names the target, the file or the label, or wraps an error that does.
//! - `number` and `hint` match each variant, so a new one cannot lack them.
//!
//! Leaves to others: exit codes (`longshore-terminal`), and the form of T-SQL messages (`longshore-tsql`).

use std::io;
use std::path::PathBuf;

use crate::chain::BrokenChain;
use crate::recover::SkippedBackup;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory of the target does not exist. It is never created: that would fill an unmounted disk's mount point.
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

    /// Files written through a link would be where no reader of the target looks, and where the link's owner wants
    /// them.
    #[error("target {target}: {} is a symbolic link or not a directory", path.display())]
    NotADirectory { target: String, path: PathBuf },

    /// A directory of the target is empty that should not be.
    #[error(
        "target {target}: {} is not there, and should have a stripe of earlier backups in it: is the file system of {} mounted?",
        home.display(),
        home.parent().unwrap_or(home).display()
    )]
    NotMounted { target: String, home: PathBuf },

    /// Root was about to leave files in another user's directory.
    #[error(
        "target {target}: {} belongs to {owner}, who could not read, verify or remove what root leaves there",
        path.parent().unwrap_or(path).display()
    )]
    OthersTarget {
        target: String,
        /// The name that was about to be made.
        path: PathBuf,
        /// A name, or `#` and a number.
        owner: String,
    },

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
        "target {target} holds no backup of {database} that can be the base of a differential: {reasons}"
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

    /// There are backups of several branches, and it is unknown which one is meant.
    #[error(
        "target {target} holds backups of {database} from {} branches or clusters, and it is unknown which one is meant: {}",
        branches.len(),
        branches.join("; ")
    )]
    Branches {
        target: String,
        database: String,
        /// The newest label of each, with known facts.
        branches: Vec<String>,
    },

    /// None of the backups leads to the recovery target.
    #[error("no backup of {database} at target {target} can be recovered to {wish}{}", passed(passed_over, *later))]
    NoneBefore {
        target: String,
        database: String,
        wish: String,
        passed_over: Vec<SkippedBackup>,
        later: usize,
    },

    /// A recovery needs WAL, and there is no archive.
    #[error("recovering the backup of {database} to {wish} needs WAL, and there is no archive {}", path.display())]
    NoLog {
        database: String,
        wish: String,
        path: PathBuf,
    },

    /// Backups are read as a bucket was, and the WAL after them would be of now.
    #[error(
        "--as-of reads the versions that a bucket keeps, and the WAL archive {} is no bucket: it has the WAL of after that time, too",
        archive.display()
    )]
    PresentArchive { archive: PathBuf },

    #[error("the backup's chain is broken")]
    Chain(#[from] BrokenChain),

    #[error(transparent)]
    Wal(#[from] longshore_wal::Error),

    #[error(transparent)]
    Store(#[from] longshore_bucket::Error),

    /// A stripe that was copied.
    #[error(transparent)]
    Media(#[from] longshore_media::Error),

    /// By the store's own clock.
    #[error(
        "the lease {at} was not kept alive for 15 minutes: an expire may have removed what it protected"
    )]
    LeaseLost { at: String },

    /// Backups of a server at a target of buckets, without a directory for its WAL.
    #[error(
        "target {target} is in object stores, where no WAL archive can be yet, and [database.{database}.wal] names no directory for it"
    )]
    NoArchive { target: String, database: String },

    /// Backups need WAL that cannot be copied along with them.
    #[error("the backups of {database} need WAL, and there is no archive {}", path.display())]
    NoWalToCopy { database: String, path: PathBuf },

    /// Copies of backups would be the backups themselves.
    #[error(
        "targets {one} and {other} have a place in common, {place}: a copy there would protect nothing"
    )]
    SamePlace {
        one: String,
        other: String,
        place: String,
    },

    /// A copy keeps its backup's label.
    #[error("target {target} has something else under the label {label} of {database}")]
    LabelTaken {
        target: String,
        database: String,
        label: String,
    },

    /// The directory's owner could not replace another user's record, nor perhaps read it.
    #[error("target {target}: {} belongs to {owner}, and only its owner leaves records there", path.display())]
    OthersRecord {
        target: String,
        path: PathBuf,
        /// A name, or `#` and a number.
        owner: String,
    },

    /// Writing over it would lose what the newer version knows.
    #[error("a newer version of longshore wrote the record {at} (form {form})")]
    NewerRecord { at: String, form: u32 },
    /// An operator stopped what writes and removes.
    #[error(
        "backups, copies and expires of {database} at target {target} are stopped{}",
        of_word(word)
    )]
    Stopped {
        target: String,
        database: String,
        /// It names its author, the time and the reason.
        word: String,
    },

    /// Another expire is running, or a program that an expire must not disturb.
    #[error("{} is in use: {holder}", path.display())]
    Busy { path: PathBuf, holder: String },
}

impl Error {
    /// SQL Server's message number for the same error.
    pub fn number(&self) -> Option<u32> {
        match self {
            Error::Unreachable { .. } | Error::Nothing { .. } | Error::NoSuchLabel { .. } => {
                Some(3201)
            }
            Error::NotWhole { number, .. } => *number,
            // STOPAT is too early.
            Error::NoneBefore { later: 1.., .. } => Some(4335),
            Error::Chain(_) => Some(3136),
            Error::Media(e) => e.number(),
            Error::NoBase { .. } => Some(3035),
            Error::Busy { .. } | Error::LabelTaken { .. } | Error::Stopped { .. } => Some(3023),
            Error::NoneBefore { .. }
            | Error::Branches { .. }
            | Error::Io { .. }
            | Error::NotADirectory { .. }
            | Error::NotMounted { .. }
            | Error::OthersTarget { .. }
            | Error::Name { .. }
            | Error::NoLog { .. }
            | Error::NoArchive { .. }
            | Error::PresentArchive { .. }
            | Error::NoWalToCopy { .. }
            | Error::SamePlace { .. }
            | Error::LeaseLost { .. }
            | Error::OthersRecord { .. }
            | Error::NewerRecord { .. }
            | Error::Store(_)
            | Error::Wal(_) => None,
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Unreachable { .. } => {
                "check that the disk is mounted: a target's directories must exist"
            }
            Error::Io { .. } => "check the directory, its free space and its permissions",
            Error::NotADirectory { .. } => {
                "replace the link by the directory, or define the link's destination as a target of its own"
            }
            Error::NotMounted { .. } => {
                "mount it; if the disk is lost and this one is new, make that directory (mkdir), as the user who makes the backups"
            }
            Error::OthersTarget { .. } => {
                "run the command as the owner: runuser -u OWNER -- longshore …. If root is to own the backups of this \
                 database, make its directory in each of the target's directories first, as root"
            }
            Error::Name { .. } => "give another name with --database",
            Error::NoBase { .. } => {
                "make a full backup as a base for later ones; --or-full does that automatically"
            }
            Error::Branches { .. } => {
                "name the backup with --label LABEL; `longshore info` shows each backup's branch. If a copy of the server writes to this \
                 target, give the copy another target"
            }
            Error::Nothing { .. } => "`longshore info` shows what the target holds",
            Error::NoSuchLabel { .. } => "`longshore info` shows the labels",
            Error::NotWhole { .. } | Error::Chain(_) => {
                "choose another backup with --label; `longshore info` shows the state of each"
            }
            Error::NoneBefore { later: 0, .. } => {
                "`longshore info` shows the state of each backup; --target-timeline chooses another timeline"
            }
            Error::NoneBefore { .. } => {
                "choose a later target; `longshore info` shows when each backup was complete"
            }
            Error::NoLog { .. } => {
                "restore the backup with its own WAL by --target-immediate; or name the archive with --wal-archive, if it is elsewhere or its file \
                 system was not mounted"
            }
            Error::Wal(e) => e.hint(),
            Error::Store(e) => e.hint(),
            Error::Media(e) => e.hint(),
            Error::LeaseLost { .. } => {
                "check the network, then run the command again; `longshore info` shows the state of each backup"
            }
            Error::NoArchive { .. } => {
                "name a directory with `archive` in [database.NAME.wal], or back up with --with-wal"
            }
            Error::PresentArchive { .. } => {
                "name an archive in a bucket that keeps versions with --wal-archive, or restore a backup that has its own WAL to its \
                 end with --target-immediate"
            }
            Error::NoWalToCopy { .. } => {
                "check that the archive's file system is mounted; --no-wal copies the backups alone, which then cannot be recovered there"
            }
            Error::SamePlace { .. } => {
                "give copies a place of their own: another disk, another bucket; then run `longshore config check`"
            }
            Error::LabelTaken { .. } => {
                "`longshore info --target` shows what is there; another copy of the same backup may be running"
            }
            Error::OthersRecord { .. } => {
                "run the command as the owner, so that its result is recorded"
            }
            Error::NewerRecord { .. } => {
                "run the command with that version; `longshore --version` shows this one's"
            }
            Error::Stopped { .. } => {
                "when the reason is gone, allow them again: `longshore start DATABASE`"
            }
            Error::Busy { .. } => "wait until the other run has ended",
        }
    }
}

/// The word that was left, after a colon, on one line.
fn of_word(word: &str) -> String {
    match word {
        "" => String::new(),
        word => format!(": {}", word.replace(char::is_control, " ")),
    }
}

/// Why each newer backup was not used.
fn passed(passed_over: &[SkippedBackup], later: usize) -> String {
    let mut text = match later {
        0 => String::new(),
        1 => "; one was completed later".to_owned(),
        n => format!("; {n} were completed later"),
    };
    for SkippedBackup { label, why } in passed_over {
        text += &format!("; {label} is skipped: {why}");
    }
    text
}
