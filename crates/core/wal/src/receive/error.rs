//! Why receiving WAL ended, and the operator's next step.
//!
//! Invariants
//! - An error that may pass is one of the server, of the network or of the object store, and never one of the WAL itself.
//!
//! Leaves to others: when to try again (the programs).

use std::path::PathBuf;

use longshore_pg::client;
use longshore_pg::{Lsn, Timeline};

use crate::Error;

/// Why receiving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Archive(#[from] Error),

    #[error(transparent)]
    Server(#[from] client::Error),

    /// Another receiver works on the archive.
    #[error("another receiver is running for {}", archive.display())]
    Taken { archive: PathBuf },

    /// The archive's last segment is not on the history of the server's timeline.
    #[error(
        "the archive {} ends on timeline {ours}, which does not lead to the server's timeline {theirs}", archive.display()
    )]
    Elsewhere {
        archive: PathBuf,
        ours: Timeline,
        theirs: Timeline,
    },

    /// The server's WAL ends before the archive's.
    #[error("the archive {} holds WAL up to {ours}, the server {address} only up to {theirs}", archive.display())]
    Behind {
        archive: PathBuf,
        address: String,
        ours: Lsn,
        theirs: Lsn,
    },

    /// The server sent bytes that do not follow those it sent before.
    #[error("the server's stream is not understood: {what}")]
    Stream { what: String },
}

impl ReceiveError {
    /// Whether the same may succeed a little later: the server is starting, stopping or unreachable, or the object store
    /// does not answer.
    pub fn may_pass(&self) -> bool {
        match self {
            ReceiveError::Server(e) => match e {
                client::Error::Connect { .. }
                | client::Error::Lost { .. }
                | client::Error::Timeout { .. } => true,
                // Operator intervention (57P01 to 57P05), and a slot that its last session still holds (55006).
                e => e
                    .sqlstate()
                    .is_some_and(|s| s.starts_with("57P") || s == "55006" || s == "53300"),
            },
            ReceiveError::Archive(e) => e.may_pass(),
            ReceiveError::Taken { .. }
            | ReceiveError::Elsewhere { .. }
            | ReceiveError::Behind { .. }
            | ReceiveError::Stream { .. } => false,
        }
    }

    /// Whether another session holds the slot: that of a receiver which has just ended may do so for a moment longer.
    pub fn slot_is_held(&self) -> bool {
        matches!(self, ReceiveError::Server(e) if e.sqlstate() == Some("55006"))
    }

    /// The operator's next step.
    pub fn hint(&self) -> &'static str {
        match self {
            ReceiveError::Archive(Error::BranchUnknown { .. }) | ReceiveError::Behind { .. } => {
                "if the server was set back or is a copy, create an archive for it (`longshore wal create --archive NEW`), name NEW \
                 in the receiver's command and in the configuration, drop the slot, start with --create-slot, and make a full backup \
                 with that archive. If it is a standby that lags, restart the receiver when it has caught up"
            }
            ReceiveError::Archive(e) => e.hint(),
            // The file, or the slot's WAL, is gone.
            ReceiveError::Server(e) if matches!(e.sqlstate(), Some("58P01" | "55000")) => {
                "the server no longer has the WAL after the archive's end. Drop the slot; then push the missing segments \
                 if they still exist, or start with a new archive, --create-slot and a full backup"
            }
            ReceiveError::Server(e) => e.hint(),
            ReceiveError::Taken { .. } => "stop the other receiver first; one is enough",
            ReceiveError::Elsewhere { .. } => {
                "the server was restored to an LSN before the archive's end, or is another branch: create a new archive for it (`longshore wal create`)"
            }
            ReceiveError::Stream { .. } => {
                "is this a PostgreSQL server, without a pooler in between?"
            }
        }
    }
}

/// The server sent what no server sends.
pub(super) fn stream(what: impl Into<String>) -> ReceiveError {
    ReceiveError::Stream { what: what.into() }
}
