//! The state of a backup under its label.
//!
//! Invariants
//! - A stripe that is lost or cannot be read may come back: such a backup is never taken for a damaged one.
//! - A backup is foreign, and not damaged, if its stripes do not belong together: each may be a part of a whole one.
//!
//! Leaves to others: finding the state (`shelf.rs`), and what a restore or an expire makes of it (`recover.rs`, `retention.rs`).

use longshore_media::{Error as MediaError, SetHeader, SetTrailer, SignatureState, StripeFault};

/// The state of one backup.
#[derive(Debug)]
pub enum BackupState {
    Complete(Box<Complete>),
    Writing {
        by: String,
        /// Whether only processes of this machine wrote it, and have ended for certain.
        has_ended: bool,
    },
    /// Begun, never completed, and no program is writing it.
    Abandoned,
    /// Nothing but its label is left, and it was complete once.
    Lost {
        /// The evidence of that.
        what: String,
    },
    /// Stripes are not in their place.
    Missing {
        families: Vec<u16>,
        count: u16,
        /// Where they were written, if the target still has the same places.
        expected: Vec<String>,
    },
    Damaged {
        what: String,
    },
    /// Stripes of several sets under one label, of another database, of a set that already has a label, or of somebody who
    /// is not trusted.
    Foreign {
        what: String,
        /// Whether it is refused for its signature, or because it is not encrypted: anybody may have put it there, so it is not the newest backup, either.
        is_strangers: bool,
        /// Its header and trailer. `None`: its stripes do not agree, or somebody who is not trusted may have written them.
        shown: Option<Box<Shown>>,
    },
    /// Written by a newer version, or unreachable now.
    Unknown {
        what: String,
    },
    Removing,
}

/// The header and the trailer of a set that does not count under its label.
#[derive(Debug)]
pub struct Shown {
    pub header: SetHeader,
    pub trailer: SetTrailer,
}

/// A backup that is whole according to its headers and trailers.
#[derive(Debug)]
pub struct Complete {
    pub header: SetHeader,
    pub trailer: SetTrailer,
    pub stored_bytes: u64,
    /// Stripes that are lost or damaged and for which parity stands, as far as headers and trailers tell.
    pub faults: Vec<StripeFault>,
    /// How many recipients can open it; 0 if it is not encrypted or its keys are detached, `None` if its records do not tell.
    pub recipients: Option<usize>,
    /// Whose it is; `None` where nobody is trusted, so that nobody has looked.
    pub signature: Option<SignatureState>,
}

impl BackupState {
    /// One line for messages.
    pub fn text(&self) -> String {
        match self {
            BackupState::Complete(c) if !c.faults.is_empty() => {
                let faults: Vec<String> = c.faults.iter().map(StripeFault::to_string).collect();
                format!("DEGRADED: {}", faults.join("; "))
            }
            BackupState::Complete(c) if c.trailer.damaged => {
                "complete; marked: made from files that changed, or from damaged ones".into()
            }
            BackupState::Complete(c) => match c.signature {
                Some(signature) => format!("complete; {signature}"),
                None => "complete".into(),
            },
            BackupState::Writing {
                by,
                has_ended: false,
            } => format!("being written: {by}"),
            BackupState::Writing {
                by,
                has_ended: true,
            } => format!("not complete: its writer has ended ({by})"),
            BackupState::Abandoned => "incomplete: the backup ended before it was complete".into(),
            BackupState::Lost { what } => {
                format!("all its stripes are missing, and it was complete: {what}")
            }
            BackupState::Missing {
                families,
                count,
                expected,
            } => {
                let missing: Vec<_> = families.iter().map(u16::to_string).collect();
                let expected: String = expected
                    .iter()
                    .map(|place| format!("; expected: {place}"))
                    .collect();
                format!(
                    "family {} of {count} is missing{expected}",
                    missing.join(", ")
                )
            }
            BackupState::Damaged { what } => format!("damaged: {what}"),
            BackupState::Foreign { what, .. } => format!("foreign: {what}"),
            BackupState::Unknown { what } => format!("cannot be judged: {what}"),
            BackupState::Removing => "being removed".into(),
        }
    }

    /// Families of which the stripe is not there; `None` for a backup that says nothing about that.
    pub(crate) fn lost_families(&self) -> Option<Vec<u16>> {
        match self {
            BackupState::Complete(complete) => {
                let faults = complete.faults.iter();
                let lost = faults.filter(|fault| fault.is_lost);
                Some(lost.map(|fault| fault.family).collect())
            }
            BackupState::Missing { families, .. } => Some(families.clone()),
            _ => None,
        }
    }

    /// SQL Server's message number for a restore that finds this state.
    pub(crate) fn number(&self) -> Option<u32> {
        match self {
            BackupState::Complete(_) | BackupState::Unknown { .. } => None,
            BackupState::Writing { .. } | BackupState::Abandoned | BackupState::Removing => {
                Some(3256)
            }
            BackupState::Missing { .. } | BackupState::Lost { .. } => Some(3132),
            BackupState::Damaged { .. } => Some(3189),
            BackupState::Foreign { .. } => Some(3258),
        }
    }

    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            BackupState::Complete(c) if !c.faults.is_empty() => "DEGRADED",
            BackupState::Complete(c) if c.trailer.damaged => "marked",
            BackupState::Complete(_) => "complete",
            BackupState::Writing { .. } => "writing",
            BackupState::Abandoned => "INCOMPLETE",
            BackupState::Missing { .. } | BackupState::Lost { .. } => "MISSING",
            BackupState::Damaged { .. } => "DAMAGED",
            BackupState::Foreign { .. } => "foreign",
            BackupState::Unknown { .. } => "unknown",
            BackupState::Removing => "removing",
        }
    }
}

pub(crate) fn writing(by: String) -> BackupState {
    BackupState::Writing {
        by,
        has_ended: false,
    }
}

/// A backup that anybody may have put there.
pub(crate) fn strangers(what: String) -> BackupState {
    BackupState::Foreign {
        what,
        is_strangers: true,
        shown: None,
    }
}

/// Why a backup that once had its names cannot be used now.
pub(crate) fn broken(error: MediaError) -> BackupState {
    match error {
        MediaError::FamilyMissing { missing, count, .. } => BackupState::Missing {
            families: missing,
            count,
            expected: Vec::new(),
        },
        MediaError::Foreign { .. }
        | MediaError::WrittenApart { .. }
        | MediaError::FamilyTwice { .. }
        | MediaError::FamilyCount { .. } => BackupState::Foreign {
            what: error.to_string(),
            is_strangers: false,
            shown: None,
        },
        MediaError::Missing { .. }
        | MediaError::Empty { .. }
        | MediaError::NotMedia { .. }
        | MediaError::Damaged { .. }
        | MediaError::TrailerDamaged { .. }
        | MediaError::BlockDamaged { .. }
        | MediaError::SetDamaged { .. }
        | MediaError::Incomplete { .. }
        | MediaError::NoSuchSet { .. } => BackupState::Damaged {
            what: error.to_string(),
        },
        // A stripe that is lost or cannot be read may come back: retention removes nothing of this.
        MediaError::BeyondParity { .. }
        | MediaError::Newer { .. }
        | MediaError::Io { .. }
        | MediaError::Folder { .. }
        | MediaError::ContainerMix { .. }
        | MediaError::Key { .. }
        | MediaError::EncryptionMix { .. }
        | MediaError::NotEncrypted { .. }
        | MediaError::Unsigned { .. }
        | MediaError::Busy { .. }
        | MediaError::Exists { .. }
        | MediaError::NotExpired { .. }
        | MediaError::ExpiryUnknown { .. }
        | MediaError::MediaName { .. }
        | MediaError::DeviceCount { .. }
        | MediaError::TooMuchParity { .. }
        | MediaError::TooMuchTolerance { .. }
        | MediaError::ParityCount { .. }
        | MediaError::Occupied { .. }
        | MediaError::NoDevice { .. }
        | MediaError::Contradiction { .. }
        | MediaError::NoParity { .. }
        | MediaError::OneSet { .. }
        | MediaError::DeviceClass { .. }
        | MediaError::DeviceTwice { .. }
        | MediaError::Cancelled { .. }
        | MediaError::Bucket(_)
        | MediaError::Full { .. }
        | MediaError::Unsupported { .. } => BackupState::Unknown {
            what: error.to_string(),
        },
    }
}
