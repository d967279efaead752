//! Why a cache cannot be made or used. Nothing here is ever an answer to a client's read or write: those fail only as
//! the backend does.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// Somebody else has it: a process, or the system, with a mount for example.
    #[error("{path} is in use")]
    InUse { path: PathBuf },

    #[error("{path} holds no cache that this version knows")]
    NoCache { path: PathBuf },

    /// Creating would overwrite something.
    #[error("{path} is not empty")]
    NotEmpty { path: PathBuf },

    #[error("a slot cannot be {slot_bytes} bytes long")]
    SlotSize { slot_bytes: u32 },

    #[error("a cache needs more than {device_bytes} bytes")]
    TooSmall { device_bytes: u64 },

    /// The new log would lie where the old one still counts.
    #[error("a change of size is at least {bytes} bytes here")]
    SmallStep { bytes: u64 },

    #[error("no memory for the cache's buffers and table")]
    Memory { source: io::Error },

    #[error("there is no policy {name:?}")]
    Policy { name: String },

    /// A block device, beside which nothing lasts.
    #[error("{path} is a device: where its guard is must be said")]
    NoGuard { path: PathBuf },

    #[error("no cache is attached")]
    Detached,

    #[error("serving ends")]
    Ending,

    #[error("a cache is attached already")]
    Attached,

    #[error("the recording is over: another one began, or nobody came for it in time")]
    NotRecording,
}

impl Error {
    /// What the operator can do now.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { .. } => "look at the cause; the backend is untouched by it",
            Error::InUse { .. } => {
                "one process serves a backend or a cache at a time, and none what is mounted; stop the other one first"
            }
            Error::NoCache { .. } => "make one with `longshore cache create`",
            Error::NotEmpty { .. } => "give a path that holds nothing, or --force to overwrite it",
            Error::SlotSize { .. } => "a slot has 4, 8, 16, 32 or 64 KiB",
            Error::TooSmall { .. } => "give the cache 16 MiB or more",
            Error::SmallStep { .. } => "give a size that differs more",
            Error::Memory { .. } => "give fewer threads, or a smaller cache",
            Error::Policy { .. } => "`longshore cache simulate --help` names them",
            Error::NoGuard { .. } => {
                "name a file for it with --guard, always the same one, on a disk that is neither this one nor the cache's"
            }
            Error::Ending => "ask again when it serves",
            Error::Detached => "attach one with `longshore cache attach`",
            Error::NotRecording => {
                "begin another one; one at a time, on a machine that has time for it"
            }
            Error::Attached => "detach it first with `longshore cache detach`",
        }
    }
}
