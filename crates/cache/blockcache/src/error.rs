//! Why a cache cannot be made or used.
//!
//! Invariants
//! - None of these errors ever answers a client's read or write: those fail only as the backend does.
//! - Every error has a next step for the operator.
//!
//! Leaves to others: exit codes and output (the program's `cache`).

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

    /// Another user has it: a process, or the system, for example with a mount.
    #[error("{path} is in use")]
    InUse { path: PathBuf },

    #[error("{path} is not a cache that this version knows")]
    NoCache { path: PathBuf },

    /// Made by a newer version, whose plugin for nbdkit belongs to it.
    #[error("{path} is a cache of the form {form:?}, which a newer version made")]
    NewerCache { path: PathBuf, form: String },

    /// Creating would overwrite data.
    #[error("{path} is not empty")]
    NotEmpty { path: PathBuf },

    #[error("a slot cannot be {slot_bytes} bytes long")]
    SlotSize { slot_bytes: u32 },

    #[error("a cache needs more than {device_bytes} bytes")]
    TooSmall { device_bytes: u64 },

    #[error("{path} has {device_bytes} bytes, and {wanted_bytes} are asked for")]
    Beyond {
        path: PathBuf,
        device_bytes: u64,
        wanted_bytes: u64,
    },

    /// The new log would overlap the old one, which is still live.
    #[error("a change of size must be at least {bytes} bytes here")]
    SmallStep { bytes: u64 },

    #[error("no memory for the cache's buffers and table")]
    Memory { source: io::Error },

    #[error("unknown policy {name:?}")]
    Policy { name: String },

    /// A block device: no file next to it survives a reboot.
    #[error("{path} is a device: its guard must be named")]
    NoGuard { path: PathBuf },

    /// A file that this program did not write, where the guard or its next version would be.
    #[error("{path} is not a guard, and is not replaced")]
    NotAGuard { path: PathBuf },

    /// A hard link of a guard, or a symbolic link to nothing: two names would become two guards.
    #[error("{path} is a link to nothing, or has several names")]
    GuardNames { path: PathBuf },

    /// A cache disk that fails could then not be recorded anywhere.
    #[error("the guard {guard} is on the disk of the cache {cache}")]
    GuardOnCache { guard: PathBuf, cache: PathBuf },

    #[error("no cache is attached")]
    Detached,

    #[error("the cache was given up; the backend serves everything")]
    GivenUp,

    #[error("serving ends")]
    Ending,

    #[error("a cache is already attached")]
    Attached,

    #[error("requests do not end: in the cache device that was detached, perhaps")]
    Hangs,

    #[error("the recording has ended: another one began, or no client fetched it in time")]
    NotRecording,
}

impl Error {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { .. } => "fix the cause above; the backend is not affected",
            Error::InUse { .. } => {
                "only one process can serve a backend, its guard or a cache, and nobody else may write to it; `losetup -a`, `fuser -v` \
                 and `mount` show who does; stop that first"
            }
            Error::NoCache { .. } => "create one with `longshore cache create`",
            Error::NewerCache { .. } => {
                "install that version, its plugin for nbdkit as well, and start the server again"
            }
            Error::NotEmpty { .. } => "give an empty file or device, or --force to overwrite it",
            Error::SlotSize { .. } => "give a slot size of 4, 8, 16, 32 or 64 KiB",
            Error::TooSmall { .. } => "give the cache 16 MiB or more",
            Error::Beyond { .. } => "give a smaller --size, or none to use the device whole",
            Error::SmallStep { .. } => "give a size that differs by more",
            Error::Memory { .. } => "give fewer threads, or a smaller cache",
            Error::Policy { .. } => "`longshore cache policy --help` names them",
            Error::NoGuard { .. } => {
                "name its guard file with --guard, always the same file, on a third disk that is neither this device nor the cache's"
            }
            Error::NotAGuard { .. } => {
                "name with --guard a file that does not exist yet, or the guard that this backend always had"
            }
            Error::GuardNames { .. } => {
                "name the guard itself with --guard, and remove its other names"
            }
            Error::GuardOnCache { .. } => {
                "name with --guard a file next to the backend or on a third disk; a guard that is moved is taken for lost"
            }
            Error::Ending => "retry when it is serving",
            Error::GivenUp => {
                "the server's log says why; attach another one with `longshore cache attach`"
            }
            Error::Detached => "attach one with `longshore cache attach`",
            Error::NotRecording => {
                "start another recording; only one runs at a time, and the client must keep up"
            }
            Error::Hangs => {
                "attach it again when that device answers, or start the server again with the new cache"
            }
            Error::Attached => "detach it first with `longshore cache detach`",
        }
    }
}
