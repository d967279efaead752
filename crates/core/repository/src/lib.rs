//! Where backups live together: targets, chains, leases, retention, and the log that their recovery needs.
//!
//! A *target* is a named list of directories, or of prefixes in buckets. Each backup to it is a new media set, one
//! family for each of them, below the database's name and a label. WAL lies next to them, in an archive of `longshore_wal`.
//! `docs/repository.md` defines all names.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod advice;
mod apart;
pub mod base;
pub mod branch;
pub mod chain;
pub mod copying;
pub mod emptied;
mod error;
mod expire;
pub mod identity;
mod label;
mod leading;
pub mod lease;
mod losses;
mod mounted;
mod nearer;
mod objects;
mod place;
pub mod recover;
mod reliance;
pub mod retention;
mod shelf;
mod silent;
mod state;
pub mod status;
pub mod target;
mod uploads;
mod verdict;

pub use apart::Doubt;
pub use error::Error;
pub use expire::{ExpireReport, Fate, LogFate};
pub use label::{BackupKind, Label};
pub use nearer::FromCopy;
pub use place::LeftUploads;
pub use reliance::{Reliance, await_expires};
pub use shelf::{BackupEntry, BackupLease, Listing, NewBackup, SetIdentity, Shelf};
pub use state::{BackupState, Complete, Shown};
pub use target::{Places, Target};
pub use uploads::{LeftUpload, abort_left_upload, left_uploads};

pub use longshore_bucket::{Address as StoreAddress, Server as StoreServer, is_server_name};
/// The requests that this process has sent to object stores.
pub use longshore_bucket::{
    Requests as StoreRequests, as_of, past_ns, requests_by_bucket as store_requests,
};
