//! What stands between the blocks of a restore and the disk: staging, names, and everything that must be left alone.
//!
//! [`Destination`] is the door: whoever restores puts entries and bytes behind it, from many threads, and finishes. A
//! [`Target`] receives names of a directory, a [`Cluster`] a data directory with its tablespaces. Both are written beside
//! what stands there and get their names last, or (delta restores) change in place only what differs.
//!
//! Invariants
//! - A restore that cannot finish leaves nothing that looks like a database, and what stood there before.
//! - Nothing that is in use, and nothing that this program itself needs, is replaced: a running server's directory, a
//!   database that somebody has open, an archive of log, a backup at a target, the media that are being read.
//! - Nothing outside the named directories is touched.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cluster;
mod cluster_error;
mod error;
mod files;
mod ground;
mod kept;
mod moves;
mod options;
mod place;
mod running;
mod tree;

pub use cluster::{
    Cluster, Held, HeldLock, Outline, enabled_subscriptions, taken_tablespaces, told_of_not_ahead,
    told_of_subscriptions, told_of_taken,
};
pub use cluster_error::ClusterError;
pub use error::{Error, at};
pub use files::FILES_OWN;
pub use kept::{Kept, KeptFiles, SET, directory, real};
pub use moves::moved;
pub use options::{ClusterOptions, SpaceOptions};
pub use place::{Destination, Piece, Replacing, Scope, Target};
